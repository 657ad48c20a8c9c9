# Calls from outside: gRPC, and the RPCs beside inference.
if(VX_SERVER)
  foreach(name test_rpc_accept test_rpc_crew test_rpc_infer_stream test_rpc_lends test_rpc_listen test_rpc_peers test_rpc_read test_rpc_stream_leaving test_rpc_streams)
    vx_unit_test(NAME ${name}
      SOURCES tests/unit/server/rpc/rpc_harness.c tests/unit/server/rpc/rpc_client.c LIBS server)
  endforeach()
  # Under TSan its floods take minutes: `long`.
  vx_unit_test(NAME test_rpc_govern LIBS server LABELS long
    SOURCES tests/unit/server/rpc/rpc_harness.c tests/unit/server/rpc/rpc_client.c tests/unit/server/rpc/rpc_raw.c)
  foreach(name test_rpc test_rpc_arena test_rpc_farewell test_rpc_kept test_rpc_leaving test_rpc_slow test_rpc_stream_places test_rpc_turns)
    vx_unit_test(NAME ${name}
      SOURCES tests/unit/server/rpc/rpc_harness.c tests/unit/server/rpc/rpc_client.c tests/unit/server/rpc/rpc_raw.c LIBS server)
  endforeach()
  foreach(name test_rpc_governor test_rpc_governor_arena test_rpc_governor_buffers test_rpc_governor_calls test_rpc_governor_crawl test_rpc_governor_hidden test_rpc_governor_large test_rpc_governor_places
    test_rpc_governor_crowd test_rpc_governor_room test_rpc_governor_several test_rpc_governor_whole test_rpc_governor_window test_rpc_share)
    vx_unit_test(NAME ${name}
      SOURCES tests/unit/server/govern/governor_rig.c tests/unit/server/rpc/rpc_harness.c tests/unit/server/rpc/rpc_client.c tests/unit/server/rpc/rpc_raw.c LIBS server)
  endforeach()
  vx_unit_test(NAME test_rpc_governor_late
    SOURCES tests/unit/server/govern/governor_rig.c tests/unit/server/tls/tls_rig.c tests/unit/server/rpc/rpc_harness.c tests/unit/server/rpc/rpc_client.c tests/unit/server/rpc/rpc_raw.c LIBS server)
  foreach(name test_health test_health_watch)
    vx_unit_test(NAME ${name} LIBS server
      SOURCES tests/unit/server/rpc/rpc_harness.c tests/unit/server/rpc/rpc_client.c)
  endforeach()
  vx_unit_test(NAME test_reflection_room LIBS server)
  vx_unit_test(NAME test_h2_meter LIBS server)
  vx_unit_test(NAME test_h2_waiting LIBS server)
  vx_unit_test(NAME test_h2_windows LIBS server)
  vx_unit_test(NAME test_hpack_table LIBS server)
  foreach(name test_h2_blocks test_hpack_count test_hpack_text)
    vx_unit_test(NAME ${name} SOURCES tests/unit/server/govern/hpack_rig.c LIBS server)
  endforeach()
  vx_unit_test(NAME test_tls_order LIBS server)
  foreach(name test_tls test_tls_keys)
    vx_unit_test(NAME ${name} LIBS server SOURCES tests/unit/server/tls/tls_rig.c)
  endforeach()
  vx_unit_test(NAME test_call_tensors LIBS server)
  vx_unit_test(NAME test_call_arrivals LIBS server)
  vx_unit_test(NAME test_call_turns LIBS server)
  vx_unit_test(NAME test_control LIBS server)
  vx_unit_test(NAME test_control_memory SOURCES tests/unit/server/regions/regions_rig.c LIBS server)
  vx_unit_test(NAME test_control_repository LIBS server)
endif()
