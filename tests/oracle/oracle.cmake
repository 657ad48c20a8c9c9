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

# AMD's optimised code of every kernel, on fibers, one thread each: a chip with waves of 64 lanes, one of 32.
foreach(arch gfx942 gfx1100)
  if(VX_HIP_CLANG AND NOT VX_FUZZ)
    vx_script_test(NAME oracle_${arch} LABELS chips SECONDS 110 BUSY
      COMMAND $<TARGET_FILE:oracle> --device hip:0 --driver $<TARGET_FILE:hip_standin> --size small
        --compiler ${CMAKE_SOURCE_DIR}/tests/amd/hip_clang --cache ${CMAKE_BINARY_DIR}/kernels-oracle-amd
      ENVIRONMENT "VX_STANDIN_SETTINGS=arch=${arch} seed=7" "VX_HIP_CLANG=${VX_HIP_CLANG}")
    vx_hip_clang_test(oracle_${arch})
  else()
    vx_script_test(NAME oracle_${arch} LABELS chips
      COMMAND sh -c "echo 'SKIPPED oracle_${arch}: no clang for AMD on this machine (clang-19, lld-19)'; exit 77")
  endif()
endforeach()
