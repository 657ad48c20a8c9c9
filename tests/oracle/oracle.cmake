# Kernels against their references: programs that need only gcc and libc, so that a machine
# with a GPU and nothing else can build them.
set(vx_oracle_sources tests/oracle/rig.c tests/oracle/trial.c tests/oracle/clouds.c
  tests/oracle/cases_hash.c tests/oracle/cases_brick.c tests/oracle/cases_map.c
  tests/oracle/cases_join.c tests/oracle/cases_order.c tests/oracle/cases_orders.c tests/oracle/cases_pointwise.c tests/oracle/cases_parts.c
  tests/oracle/cases_windows.c tests/oracle/cases_samples.c tests/oracle/cases_dense.c tests/oracle/cases_points.c
  tests/oracle/cases_conv.c tests/oracle/cases_left_out.c tests/oracle/cases_mlp.c tests/oracle/cases_big.c tests/oracle/cases_self.c
  tests/oracle/cases_levels.c tests/oracle/cases_level_map.c tests/oracle/cases_level_rounds.c
  tests/oracle/cases_ranks.c tests/oracle/cases_occupancy.c tests/oracle/cases_live.c tests/oracle/brick_sets.c
  tests/support/level_truth.c)
vx_bench_program(NAME oracle LIBS engine SOURCES tests/oracle/oracle.c ${vx_oracle_sources})
vx_bench_program(NAME bits LIBS engine SOURCES tests/oracle/bits.c tests/oracle/rig.c
  tests/oracle/trial.c tests/oracle/clouds.c)
if(NOT VX_FUZZ)
  vx_leave_out(oracle oracle)
  vx_leave_out(bits oracle)
  vx_script_test(NAME oracle_self LABELS oracle SECONDS 15 BUSY
    COMMAND $<TARGET_FILE:oracle> --size self)
  foreach(name oracle bits)
    vx_script_test(NAME ${name}_fake LABELS oracle SECONDS 30 BUSY
      COMMAND $<TARGET_FILE:${name}> --device fake)
    # On the GPU of this machine, if it has one: else it says SKIPPED.
    vx_script_test(NAME ${name}_gpu LABELS oracle gpu
      COMMAND $<TARGET_FILE:${name}> --cache ${CMAKE_BINARY_DIR}/kernels-oracle)
  endforeach()
endif()

# AMD's optimised code on fibers, one thread each: of every kernel, type and tile on a chip with waves of 64 lanes; on one
# with waves of 32 those of coordinates, and of numbers those without tiles in one type: they count, sort and add.  A
# binary takes 0.8 s of CPU to compile, once for a build folder, of which CI has a new one each time; so CDNA's are
# `dear` and all of RDNA's `slow`.  Tiles of matrix instructions run for every chip in test_amd_conv and test_amd_matrix.
foreach(name gfx942 gfx1100 gfx1100_all)
  string(REPLACE _all "" arch ${name})
  set(labels chips)
  set(kernels all)
  if(name STREQUAL "gfx1100")
    set(kernels untiled)
  elseif(name STREQUAL "gfx942")
    list(APPEND labels dear)
  else()
    list(APPEND labels slow)
  endif()
  if(VX_HIP_CLANG AND NOT VX_FUZZ)
    vx_script_test(NAME oracle_${name} LABELS ${labels} SECONDS 110 BUSY
      COMMAND $<TARGET_FILE:oracle> --device hip:0 --driver $<TARGET_FILE:hip_standin> --size small --kernels ${kernels}
        --compiler ${CMAKE_SOURCE_DIR}/tests/amd/hip_clang --cache ${CMAKE_BINARY_DIR}/kernels-oracle-amd
      ENVIRONMENT "VX_STANDIN_SETTINGS=arch=${arch} seed=7" "VX_HIP_CLANG=${VX_HIP_CLANG}")
    vx_hip_clang_test(oracle_${name})
  else()
    vx_script_test(NAME oracle_${name} LABELS ${labels}
      COMMAND sh -c "echo 'SKIPPED oracle_${name}: no clang for AMD on this machine (clang-19, lld-19)'; exit 77")
  endif()
endforeach()
