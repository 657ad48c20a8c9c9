# The CPU device, geometry, the references, and the buddy allocator under them.
vx_unit_test(NAME test_buddy LIBS base m
  SOURCES tests/unit/test_buddy.c tests/support/voxels.c)
vx_unit_test(NAME test_kernels LIBS kernels base m
  SOURCES tests/unit/test_kernels.c tests/support/voxels.c)
vx_unit_test(NAME test_cpu_pool LIBS engine SOURCES tests/unit/test_cpu_pool.c)
vx_unit_test(NAME test_geometry LIBS engine TIMEOUT 120
  SOURCES tests/unit/test_geometry.c tests/support/voxels.c)
vx_unit_test(NAME test_cpu_ops LIBS engine TIMEOUT 300
  SOURCES tests/unit/test_cpu_ops.c tests/support/cpu_cases.c tests/support/voxels.c)
vx_unit_test(NAME test_cpu_bits LIBS engine TIMEOUT 300
  SOURCES tests/unit/test_cpu_bits.c tests/support/cpu_cases.c tests/support/voxels.c)
vx_bench_program(NAME bench_cpu_conv
  SOURCES tests/bench/bench_cpu_conv.c tests/support/voxels.c LIBS engine)
