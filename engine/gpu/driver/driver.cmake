# The drivers of all vendors, the run-time compiler and its cache.  The sources in kernels/
# become one C file in the build tree.
target_sources(engine PRIVATE
  gpu/arch.c
  gpu/cache.c
  gpu/cuda.c
  gpu/driver.c
  gpu/fake.c
  gpu/fake_foreign.c
  gpu/fake_memory.c
  gpu/fake_queue.c
  gpu/gpu.c
  gpu/gpu_queue.c
  gpu/hip.c
  gpu/jit.c
  gpu/jit_compile.c
  gpu/jit_key.c
  gpu/kernel_set.c
  gpu/monitor.c
)
file(GLOB vx_kernel_texts CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  ${CMAKE_SOURCE_DIR}/kernels/*.cu ${CMAKE_SOURCE_DIR}/kernels/*.cuh
  ${CMAKE_SOURCE_DIR}/kernels/*.h ${CMAKE_SOURCE_DIR}/kernels/rtc/*.h)
list(SORT vx_kernel_texts)
list(TRANSFORM vx_kernel_texts PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE vx_kernel_paths)
set(vx_texts_c ${CMAKE_CURRENT_BINARY_DIR}/texts.c)
add_custom_command(OUTPUT ${vx_texts_c}
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUT=${vx_texts_c}
    "-DFILES=${vx_kernel_texts}" -P ${CMAKE_CURRENT_SOURCE_DIR}/gpu/embed.cmake
  DEPENDS ${vx_kernel_paths} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/embed.cmake
  VERBATIM COMMENT "Embedding the kernel texts")
target_sources(engine PRIVATE ${vx_texts_c})
