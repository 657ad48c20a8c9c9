# The load generator of the benches; tests/gpu/serve runs it.
if(VX_SERVER)
  vx_bench_program(NAME bench_load LIBS voxelcli voxelclient base m
    SOURCES tests/bench/load.c tests/bench/load_answer.c tests/bench/load_bad.c
      tests/bench/load_call.c tests/bench/load_drive.c tests/bench/load_stats.c
      tests/bench/load_vanish.c tests/bench/load_work.c tests/support/voxels.c)
endif()
vx_e2e_test(NAME e2e_geometry_names FILE tests/e2e/test_geometry_names.py SECONDS 5 LABELS words)
if(VX_SERVER)
  # Every part of the GPU host's script, on the CPU and small; two workers are killed during it.  84 s of CPU: a tenth of
  # `tests/run`, so `tests/run --all` alone has it, with what else is for hosts with GPUs.
  vx_script_test(NAME bench_serve LABELS bench chips dear SECONDS 50 BUSY
    COMMAND tests/gpu/serve --device cpu --small --seconds 0.5 --kill-seconds 11
      --bin ${CMAKE_BINARY_DIR}/bin --logs ${CMAKE_BINARY_DIR}/serve-logs
    ENVIRONMENT "RPC_THREADS=2" "LOAD_THREADS=1")
endif()
