# AMD without an AMD GPU: kernels on fibers, and a library in the place of libamdhip64 (README.md).
# Neither is built with sanitizers: they take the place of a vendor's library, which is not either, and they
# change stacks in ways that a sanitizer does not follow.
set(vx_amd_fibers tests/amd/fibers.c tests/amd/lds.c tests/amd/load.c tests/amd/matrix.c tests/amd/trap.c
  tests/amd/wave.c)
set(vx_amd_standin tests/amd/standin_graph.c tests/amd/standin_memory.c tests/amd/standin_module.c
  tests/amd/standin_state.c tests/amd/standin_stream.c)
find_program(VX_HIP_CLANG NAMES clang-19 clang-20 clang-21 DOC "The compiler for AMD that tests/amd/hip_clang runs")
if(NOT VX_FUZZ)
  list(TRANSFORM vx_amd_fibers PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE fibers)
  list(TRANSFORM vx_amd_standin PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE standin)
  add_library(hip_standin MODULE ${standin} ${fibers})
  target_include_directories(hip_standin PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(hip_standin PRIVATE vx_options)
  target_compile_options(hip_standin PRIVATE -fno-sanitize=all -fPIC)
  vx_leave_out(hip_standin amd)
  add_library(hip_over_cuda MODULE ${CMAKE_SOURCE_DIR}/tests/amd/over_cuda.c)
  target_include_directories(hip_over_cuda PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(hip_over_cuda PRIVATE vx_options ${CMAKE_DL_LIBS})
  target_compile_options(hip_over_cuda PRIVATE -fno-sanitize=all -fPIC)
  vx_leave_out(hip_over_cuda amd)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/amd/rig.c PROPERTIES
    COMPILE_DEFINITIONS AMD_STANDIN="$<TARGET_FILE:hip_standin>")
endif()

# hip_clang is a Python program that runs hundreds of times: the first python3 is then the tests' own, which starts
# in a tenth of the time of a wrapper that looks for versions.
function(vx_hip_clang_test name)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:${VX_VENV}/bin")
endfunction()

# vx_amd_test(NAME name [SOURCES file...]): a Check program over both; without a compiler for AMD it says that it
# was skipped.
function(vx_amd_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SECONDS" "SOURCES;LIBS")
  if(NOT VX_HIP_CLANG)
    vx_script_test(NAME ${arg_NAME} LABELS unit amd
      COMMAND sh -c "echo 'SKIPPED ${arg_NAME}: no clang for AMD on this machine (clang-19, lld-19)'; exit 77")
    return()
  endif()
  vx_unit_test(NAME ${arg_NAME} LIBS engine ${arg_LIBS} SOURCES ${arg_SOURCES} tests/amd/rig.c LABELS amd
    SECONDS ${arg_SECONDS})
  if(TARGET ${arg_NAME})
    add_dependencies(${arg_NAME} hip_standin)
    set_property(TEST ${arg_NAME} APPEND PROPERTY ENVIRONMENT "VX_HIP_CLANG=${VX_HIP_CLANG}")
    vx_hip_clang_test(${arg_NAME})
  endif()
endfunction()

vx_amd_test(NAME test_amd_faults SECONDS 6)
vx_amd_test(NAME test_amd_matrix SECONDS 4)
vx_amd_test(NAME test_amd_kernels SECONDS 10)
vx_amd_test(NAME test_amd_standin SECONDS 2)
vx_amd_test(NAME test_amd_conv SECONDS 12)

# HIP's names over NVIDIA's driver: compiled here, driven on a GPU by tests/gpu/run.
vx_unit_test(NAME test_amd_over_cuda LIBS engine LABELS amd SECONDS 6)
if(TARGET test_amd_over_cuda)
  add_dependencies(test_amd_over_cuda hip_over_cuda)
  target_compile_definitions(test_amd_over_cuda PRIVATE OVER_CUDA="$<TARGET_FILE:hip_over_cuda>")
endif()
