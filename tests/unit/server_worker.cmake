# The worker's threads, with an engine of the test's own.
if(VX_SERVER)
  vx_unit_test(NAME test_worker SOURCES tests/unit/test_worker.c LIBS server)
endif()
