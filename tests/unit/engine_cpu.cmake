vx_bench_program(NAME bench_cpu_conv
  SOURCES tests/bench/bench_cpu_conv.c tests/support/voxels.c LIBS engine)
