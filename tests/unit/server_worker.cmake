# The worker's threads, with an engine of the test's own.
if(VX_SERVER)
  vx_unit_test(NAME test_worker SOURCES tests/unit/server/worker/worker_engine.c LIBS server)
  vx_unit_test(NAME test_worker_rest LIBS server)
  vx_unit_test(NAME test_confine LIBS server
    SOURCES tests/support/engine_rig.c tests/support/model_files.c ${vx_network_oracle})
  # With the real engine, in clients' memory.
  # The fake GPU's kernels: 155 s under TSan, alone.
  vx_unit_test(NAME test_worker_regions LIBS server SECONDS 15 BUSY LABELS long
    SOURCES tests/support/worker_rig.c tests/support/engine_rig.c
      tests/support/model_files.c ${vx_network_oracle})
endif()
