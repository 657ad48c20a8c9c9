# AMD without an AMD GPU: kernels on fibers, and a library in the place of libamdhip64 (README.md).
# Neither is built with sanitizers: they take the place of a vendor's library, which is not either, and they
# change stacks in ways that a sanitizer does not follow.
set(vx_amd_fibers tests/amd/fibers.c tests/amd/lds.c tests/amd/load.c tests/amd/matrix.c tests/amd/trap.c
  tests/amd/wave.c)
set(vx_amd_standin tests/amd/standin_graph.c tests/amd/standin_memory.c tests/amd/standin_module.c
  tests/amd/standin_state.c tests/amd/standin_stream.c)
find_program(VX_HIP_CLANG NAMES clang-21 clang-20 clang-19 DOC "The compiler for AMD that tests/amd/hip_clang runs")
if(NOT VX_FUZZ)
  list(TRANSFORM vx_amd_fibers PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE fibers)
  list(TRANSFORM vx_amd_standin PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE standin)
  add_library(hip_standin MODULE ${standin} ${fibers})
  target_include_directories(hip_standin PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(hip_standin PRIVATE vx_options)
  target_compile_options(hip_standin PRIVATE -fno-sanitize=all -fPIC)
endif()
