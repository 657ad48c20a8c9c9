# The CPU device: threads, a BLAS found at run time, and the operators.
target_sources(engine PRIVATE
  cpu/blas.c
  cpu/conv.c
  cpu/cores.c
  cpu/cpu.c
  cpu/loops_any.c
  cpu/ops.c
  cpu/pool.c
)
# The inner loops are one text compiled per vector width.  -ffp-contract=fast lets a product and a
# sum become one instruction; the rest of IEEE arithmetic stays.
set(vx_loops_options -O3 -ffp-contract=fast)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(vx_loops_options -ffp-contract=fast)
endif()
set_source_files_properties(cpu/loops_any.c PROPERTIES COMPILE_OPTIONS "${vx_loops_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  target_sources(engine PRIVATE cpu/loops_avx2.c cpu/loops_avx512.c)
  set_source_files_properties(cpu/loops_avx2.c PROPERTIES COMPILE_OPTIONS
    "${vx_loops_options};-mavx2;-mfma")
  set_source_files_properties(cpu/loops_avx512.c PROPERTIES COMPILE_OPTIONS
    "${vx_loops_options};-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
endif()
