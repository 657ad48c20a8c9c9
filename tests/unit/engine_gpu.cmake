# The GPU's host half: driver tables and the fake, the compiler at run time and its cache.
vx_unit_test(NAME test_sha256 LIBS base)
foreach(name jit jit_amd jit_compiler gpu_fake)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/jit_rig.c)
endforeach()
vx_unit_test(NAME test_kernel_cache LIBS engine)
vx_unit_test(NAME test_gpu_streams LIBS engine)
# A stand-in for NVML is opened as a library, as NVML is; an old one lacks a function.
foreach(name fake_nvml fake_nvml_old)
  add_library(${name} MODULE EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/unit/engine/gpu/driver/fake_nvml.c)
  target_link_libraries(${name} PRIVATE vx_options)
endforeach()
target_compile_definitions(fake_nvml_old PRIVATE FAKE_NVML_OLD)
foreach(test test_gpu_monitor test_bench_power)
  vx_unit_test(NAME ${test} LIBS engine)
  if(TARGET ${test})
    add_dependencies(${test} fake_nvml fake_nvml_old)
    target_compile_definitions(${test} PRIVATE FAKE_NVML="$<TARGET_FILE:fake_nvml>"
      FAKE_NVML_OLD="$<TARGET_FILE:fake_nvml_old>")
  endif()
endforeach()
if(TARGET test_jit_amd)
  add_library(stub_hiprtc MODULE ${CMAKE_SOURCE_DIR}/tests/unit/engine/gpu/jit/stub_hiprtc.c)
  target_link_libraries(stub_hiprtc PRIVATE vx_options)
  add_dependencies(test_jit_amd stub_hiprtc)
  target_compile_definitions(test_jit_amd PRIVATE STUB_HIPRTC="$<TARGET_FILE:stub_hiprtc>")
endif()
# A stand-in for AMD's library too; one that lacks a function, and one that needs a library that the
# loader does not find, because nothing says where it was built.
vx_unit_test(NAME test_gpu_hip LIBS engine)
if(TARGET test_gpu_hip)
  set(stub ${CMAKE_SOURCE_DIR}/tests/unit/engine/gpu/driver/stub_hip.c)
  add_library(stub_hip_gone SHARED ${CMAKE_SOURCE_DIR}/tests/unit/engine/gpu/driver/stub_gone.c)
  foreach(library stub_hip stub_hip_lacks stub_hip_half)
    string(TOUPPER ${library} word)
    add_library(${library} MODULE ${stub})
    target_include_directories(${library} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${library} PRIVATE vx_options)
    add_dependencies(test_gpu_hip ${library})
    target_compile_definitions(test_gpu_hip PRIVATE ${word}="$<TARGET_FILE:${library}>")
  endforeach()
  target_compile_definitions(stub_hip_lacks PRIVATE STUB_LACKS_LAUNCH)
  target_link_libraries(stub_hip_half PRIVATE -Wl,--no-as-needed stub_hip_gone)
  set_target_properties(stub_hip_half PROPERTIES SKIP_BUILD_RPATH TRUE)
endif()
# On the GPU of this machine, if it has one.
vx_unit_test(NAME test_gpu_absent LIBS engine SOURCES tests/support/model_files.c)
vx_unit_test(NAME test_gpu_cuda LIBS engine LABELS gpu
  SOURCES tests/support/jit_rig.c)

# Every kernel with every type and tile for every architecture: it compiles, spills no registers
# where its spec says so, and AMD's multiply with matrix instructions. Needs NVRTC, or clang 19 and
# llvm-objdump 19 for AMD; no GPU.
if(NOT VX_SANITIZE)
  # One to three minutes of both cores each.  `tests/run --all` has half of Hopper's, which has the most kernels and
  # tiles, and CI of Hopper's and of AMD's the kernels of the demo's network, of AMD's 35 of 165 (21 s of CPU instead of a hundred): registers, shared memory and
  # matrix instructions of what is launched.  All are the same sources for other chips: `tests/run slow`.  That each of
  # AMD's kernels, types and tiles compiles, and is right, oracle_gfx942 and oracle_gfx1100 show; the matrix tiles,
  # which differ between its chips, test_amd_conv compiles and runs for all four.
  foreach(arch sm_75 sm_80 sm_86 sm_87 sm_89 sm_90a sm_100 sm_120 gfx90a gfx942 gfx1100 gfx1200)
    set(labels jit chips slow)
    # It takes every core by itself: begun last, it leaves none of them idle at the end.
    vx_script_test(NAME compile_${arch} LABELS ${labels} SECONDS 1 BUSY
      COMMAND tests/unit/compile_all $<TARGET_FILE:voxeld-tools> ${arch}
        ${CMAKE_BINARY_DIR}/kernels-${arch})
  endforeach()
  # Its kernels of BF16 differ from those of FP16 in the type of an instruction.
  vx_script_test(NAME compile_hopper LABELS jit chips dear SECONDS 1 BUSY
    COMMAND tests/unit/compile_all $<TARGET_FILE:voxeld-tools> sm_90a
      ${CMAKE_BINARY_DIR}/kernels-sm_90a --without-bf16)
  foreach(arch sm_90a gfx942)
    vx_script_test(NAME compile_demo_${arch} LABELS jit chips SECONDS 2 BUSY
      COMMAND tests/unit/compile_all $<TARGET_FILE:voxeld-tools> ${arch} ${CMAKE_BINARY_DIR}/kernels-demo-${arch}
        ${CMAKE_SOURCE_DIR}/deploy/demo/repository/normals)
  endforeach()
endif()
