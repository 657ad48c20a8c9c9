# Calls from outside: gRPC, and the small questions it brings.
if(VX_SERVER)
  foreach(name test_rpc test_rpc_accept test_rpc_infer_stream test_rpc_lends test_rpc_listen test_rpc_peers test_rpc_slow test_rpc_stream_leaving test_rpc_streams test_health)
    vx_unit_test(NAME ${name}
      SOURCES tests/unit/${name}.c tests/unit/rpc_harness.c tests/unit/rpc_client.c LIBS server)
  endforeach()
  # Under TSan its floods take minutes: `long`.
  vx_unit_test(NAME test_rpc_govern LIBS server LABELS long
    SOURCES tests/unit/test_rpc_govern.c tests/unit/rpc_harness.c tests/unit/rpc_client.c tests/unit/rpc_raw.c)
  foreach(name test_rpc_leaving)
    vx_unit_test(NAME ${name}
      SOURCES tests/unit/${name}.c tests/unit/rpc_harness.c tests/unit/rpc_client.c tests/unit/rpc_raw.c LIBS server)
  endforeach()
  foreach(name test_rpc_governor test_rpc_governor_calls test_rpc_share)
    vx_unit_test(NAME ${name}
      SOURCES tests/unit/${name}.c tests/unit/governor_rig.c tests/unit/rpc_harness.c tests/unit/rpc_client.c tests/unit/rpc_raw.c LIBS server)
  endforeach()
  vx_unit_test(NAME test_h2_meter SOURCES tests/unit/test_h2_meter.c LIBS server)
  vx_unit_test(NAME test_rpc_regions SOURCES tests/unit/test_rpc_regions.c LIBS server)
  vx_unit_test(NAME test_control SOURCES tests/unit/test_control.c LIBS server)
  vx_unit_test(NAME test_control_memory SOURCES tests/unit/test_control_memory.c tests/unit/regions_rig.c LIBS server)
  vx_unit_test(NAME test_control_repository SOURCES tests/unit/test_control_repository.c LIBS server)
endif()
