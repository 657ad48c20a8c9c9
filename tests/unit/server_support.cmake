# Logging, configuration, metrics and the admin port.
vx_unit_test(NAME test_log LIBS base)
vx_unit_test(NAME test_log_ring LIBS base)
vx_unit_test(NAME test_out LIBS base)
if(VX_SERVER)
  vx_unit_test(NAME test_config LIBS server)
  vx_unit_test(NAME test_config_file LIBS server)
  vx_unit_test(NAME test_metrics LIBS server
    SOURCES tests/unit/server/admin/admin_sample.c)
  vx_unit_test(NAME test_metrics_recent LIBS server)
  vx_unit_test(NAME test_metrics_tools LIBS server
    SOURCES tests/unit/server/admin/admin_sample.c)
  vx_unit_test(NAME test_page LIBS server
    SOURCES tests/unit/server/admin/admin_sample.c)
  vx_unit_test(NAME test_missed LIBS server
    SOURCES tests/unit/server/admin/admin_sample.c)
  foreach(name test_access_calls test_access_file)
    vx_unit_test(NAME ${name} SOURCES tests/unit/server/access/access_rig.c LIBS server)
  endforeach()
  vx_unit_test(NAME test_metrics_tokens LIBS server)
  vx_unit_test(NAME test_access_limit LIBS server)
  vx_unit_test(NAME test_access_table LIBS server)
  vx_fuzz_target(NAME fuzz_access SOURCES tests/fuzz/fuzz_access.c ROOMS server/access LIBS base ssl crypto
    CORPUS tests/fuzz/corpus/access)
  vx_unit_test(NAME test_timer LIBS server)
  foreach(name test_http test_http_host test_http_limits test_http_room)
    vx_unit_test(NAME ${name} LIBS server SOURCES tests/unit/server/http/http_harness.c)
  endforeach()
  vx_unit_test(NAME test_answer LIBS server)
  vx_unit_test(NAME test_exporter LIBS server)
  vx_unit_test(NAME test_record_ring LIBS server)
  vx_unit_test(NAME test_span_pack LIBS server)
  vx_unit_test(NAME test_trace_text LIBS server)
  vx_fuzz_target(NAME fuzz_trace SOURCES tests/fuzz/fuzz_trace.c server/trace/answer.c server/trace/span_pack.c
    server/trace/trace_text.c server/metrics/tracing.c server/models/registry.c server/repository/repository.c
    LIBS proto llhttp base
    CORPUS tests/fuzz/corpus/trace MAX_LEN 4096)
  vx_fuzz_target(NAME fuzz_h2 SOURCES tests/fuzz/fuzz_h2.c server/govern/h2_credit.c server/govern/h2_meter.c
    server/govern/h2_sent.c server/govern/h2_whole.c server/govern/hpack_count.c server/govern/hpack_table.c
    server/govern/hpack_text.c LIBS base
    CORPUS tests/fuzz/corpus/h2 MAX_LEN 4096)
  vx_fuzz_target(NAME fuzz_http SOURCES tests/fuzz/fuzz_http.c server/http/http_parse.c LIBS llhttp base
    CORPUS tests/fuzz/corpus/http MAX_LEN 16384)
endif()
