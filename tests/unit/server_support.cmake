# Logging, configuration, metrics and the admin port.
vx_unit_test(NAME test_log SOURCES tests/unit/test_log.c LIBS base)
vx_unit_test(NAME test_log_ring SOURCES tests/unit/test_log_ring.c LIBS base)
if(VX_SERVER)
  vx_unit_test(NAME test_config SOURCES tests/unit/test_config.c LIBS server)
  vx_unit_test(NAME test_metrics LIBS server
    SOURCES tests/unit/test_metrics.c tests/unit/admin_sample.c)
  vx_unit_test(NAME test_metrics_tools LIBS server
    SOURCES tests/unit/test_metrics_tools.c tests/unit/admin_sample.c)
  vx_unit_test(NAME test_page LIBS server
    SOURCES tests/unit/test_page.c tests/unit/admin_sample.c)
  vx_unit_test(NAME test_timer SOURCES tests/unit/test_timer.c LIBS server)
  vx_unit_test(NAME test_http LIBS server
    SOURCES tests/unit/test_http.c tests/unit/http_harness.c)
  vx_unit_test(NAME test_http_room LIBS server
    SOURCES tests/unit/test_http_room.c tests/unit/http_harness.c)
  vx_unit_test(NAME test_http_limits LIBS server
    SOURCES tests/unit/test_http_limits.c tests/unit/http_harness.c)
  vx_fuzz_target(NAME fuzz_h2 SOURCES tests/fuzz/fuzz_h2.c LIBS server
    CORPUS tests/fuzz/corpus/h2 MAX_LEN 4096)
  vx_fuzz_target(NAME fuzz_http SOURCES tests/fuzz/fuzz_http.c LIBS server
    CORPUS tests/fuzz/corpus/http MAX_LEN 16384)
endif()
