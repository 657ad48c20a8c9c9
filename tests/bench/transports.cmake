# Every transport for a request, and the engine without a daemon; tests/gpu/serve runs it.
if(VX_SERVER)
  vx_bench_program(NAME bench_transports LIBS voxelcli voxelclient engine m ${CMAKE_DL_LIBS}
    SOURCES tests/bench/transports.c tests/bench/transports_client.c
      tests/bench/transports_device.c tests/bench/transports_engine.c tests/support/voxels.c)
  vx_leave_out(bench_transports bench)
  # bench_serve runs it on the CPU; the fake device stands for device memory.
  vx_script_test(NAME bench_transports_fake LABELS bench SECONDS 15 BUSY
    COMMAND tests/gpu/serve --device fake:0 --small --seconds 0.5
      --bin ${CMAKE_BINARY_DIR}/bin --logs ${CMAKE_BINARY_DIR}/transports-logs transports
    ENVIRONMENT "RPC_THREADS=2")
endif()
