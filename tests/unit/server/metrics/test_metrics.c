/* metrics: the text follows Prometheus' grammar exactly, and the numbers are right.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"
#include "server/base/text.h"
#include "server/http/http.h"
#include "tests/unit/server/admin/admin_sample.h"

#include <check.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 20000

static struct sample sample;
static char text[VX_HTTP_BODY_BYTES_MAX];

static void render(void)
{
    size_t length = 0;
    vx_status st = vx_metrics_render(&sample.sources, text, sizeof text, &length);
    ck_assert(!st.fault);
    ck_assert_uint_eq(length, strlen(text));
}

/* The value of a series, by its name and labels as written; NULL when there is none. */
static const char *value_of(const char *series)
{
    static char value[64];
    char line[512];
    snprintf(line, sizeof line, "\n%s ", series);
    const char *at = strstr(text, line);
    if (!at) return NULL;
    at += strlen(line);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\n"), at);
    return value;
}
static void expect(const char *series, const char *value)
{
    const char *found = value_of(series);
    ck_assert_msg(found != NULL, "no series %s", series);
    ck_assert_msg(!strcmp(found, value), "%s is %s, expected %s", series, found, value);
}

/* ------- the grammar ------- */

struct grammar {
    regex_t help, type, series;
    char name[128], kind[16]; /* the family that is being read */
    char *seen[LINES_MAX];    /* families and series: neither may come twice */
    int seen_count;
};

static void grammar_once(struct grammar *grammar, const char *what, size_t length)
{
    bool again = false; /* one assert per line: Check tells its parent of each */
    for (int i = 0; i < grammar->seen_count && !again; i++)
        again = !strncmp(grammar->seen[i], what, length) && !grammar->seen[i][length];
    ck_assert_msg(!again, "twice: %.*s", (int)length, what);
    ck_assert_int_lt(grammar->seen_count, LINES_MAX);
    grammar->seen[grammar->seen_count++] = strndup(what, length);
}

static void grammar_series(struct grammar *grammar, const char *line)
{
    ck_assert_msg(!regexec(&grammar->series, line, 0, NULL, 0), "not a series: %s", line);
    grammar_once(grammar, line, (size_t)(strrchr(line, ' ') - line));
    size_t name = strcspn(line, "{ ");
    bool histogram = !strcmp(grammar->kind, "histogram");
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    bool known = !histogram && strlen(grammar->name) == name;
    for (size_t i = 0; histogram && i < VX_COUNT(suffixes); i++)
        known |= strlen(grammar->name) + strlen(suffixes[i]) == name &&
                 !strncmp(line + strlen(grammar->name), suffixes[i], strlen(suffixes[i]));
    ck_assert_msg(known && !strncmp(line, grammar->name, strlen(grammar->name)),
                  "not of family %s: %s", grammar->name, line);
}

static void grammar_line(struct grammar *grammar, const char *line)
{
    if (!strncmp(line, "# HELP ", 7)) {
        ck_assert_msg(!regexec(&grammar->help, line, 0, NULL, 0), "%s", line);
        size_t length = strcspn(line + 7, " ");
        grammar_once(grammar, line, 7 + length);
        snprintf(grammar->name, sizeof grammar->name, "%.*s", (int)length, line + 7);
        grammar->kind[0] = '\0';
    } else if (!strncmp(line, "# TYPE ", 7)) {
        ck_assert_msg(!regexec(&grammar->type, line, 0, NULL, 0), "%s", line);
        ck_assert(!strncmp(line + 7, grammar->name, strlen(grammar->name)));
        snprintf(grammar->kind, sizeof grammar->kind, "%s", strrchr(line, ' ') + 1);
        bool ours = !strncmp(grammar->name, "voxeld_", 7);
        bool total = strlen(grammar->name) > 6 &&
                     !strcmp(grammar->name + strlen(grammar->name) - 6, "_total");
        if (ours) ck_assert_msg(total == !strcmp(grammar->kind, "counter"), "%s", line);
    } else {
        ck_assert_msg(grammar->kind[0], "before any TYPE: %s", line);
        grammar_series(grammar, line);
    }
}

/* Checks all of `text` against the exposition format, plain decimals included. */
static void check_grammar(void)
{
    static struct grammar grammar;
    memset(&grammar, 0, sizeof grammar);
    const int flags = REG_EXTENDED | REG_NOSUB;
    ck_assert(!regcomp(&grammar.help, "^# HELP [a-z_]+ [A-Z0-9].*\\.$", flags));
    ck_assert(
        !regcomp(&grammar.type, "^# TYPE [a-z_]+ (counter|gauge|histogram)$", flags));
    ck_assert(!regcomp(&grammar.series,
                       "^[a-z_]+(\\{[a-z_]+=\"([^\"\\]|\\\\[\"\\n])*\""
                       "(,[a-z_]+=\"([^\"\\]|\\\\[\"\\n])*\")*\\})? "
                       "(0|[1-9][0-9]*)(\\.[0-9]*[1-9])?$",
                       flags));
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    static char copy[sizeof text];
    memcpy(copy, text, strlen(text) + 1);
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n"))
        grammar_line(&grammar, line);
    for (int i = 0; i < grammar.seen_count; i++) free(grammar.seen[i]);
    regfree(&grammar.help);
    regfree(&grammar.type);
    regfree(&grammar.series);
}

START_TEST(text_follows_the_grammar)
{
    render();
    check_grammar();
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(strstr(text, "e+"));
}
END_TEST

/* ------- the numbers ------- */

START_TEST(models_are_said)
{
    render();
    expect("nv_inference_request_success{model=\"normals\",version=\"1\"}", "128431");
    expect("nv_inference_count{model=\"normals\",version=\"1\"}", "128431");
    expect("nv_inference_exec_count{model=\"normals\",version=\"1\"}", "64215");
    expect("nv_inference_request_duration_us{model=\"normals\",version=\"1\"}",
           "5265671000");
    expect("nv_inference_compute_input_duration_us{model=\"normals\",version=\"1\"}",
           "38593515"); /* 128431 * 300.5 us, whole microseconds */
    expect("nv_inference_request_failure{model=\"normals\",version=\"1\",reason="
           "\"REJECTED\"}",
           "4");
    expect("nv_inference_request_failure{model=\"normals\",version=\"1\",reason="
           "\"CANCELED\"}",
           "5");
    expect("nv_inference_request_failure{model=\"normals\",version=\"1\",reason="
           "\"BACKEND\"}",
           "2");
    expect("nv_inference_request_failure{model=\"normals\",version=\"1\",reason="
           "\"OTHER\"}",
           "1");
    expect("voxeld_model_geometry_misses_total{model=\"normals\",version=\"1\"}",
           "25686");
    expect("nv_model_load_duration_secs{model=\"normals\",version=\"1\"}", "0.34");
    expect("nv_inference_pending_request_count{model=\"normals\",version=\"1\"}", "0");
    expect("voxeld_model_ready{model=\"segment\",version=\"4\"}", "0");
    expect("voxeld_model_files_good{model=\"normals\",version=\"2\"}", "1");
    expect("voxeld_model_set_voxels_total{model=\"normals\",version=\"2\"}", "360000000");
    /* Of two instances of one name and version, the one that serves. */
    expect("nv_inference_count{model=\"normals\",version=\"2\"}", "9000");
    expect("voxeld_model_ready{model=\"we\\\"ird\\\\<b>\\n\",version=\"1\"}", "0");
}
END_TEST

START_TEST(server_and_workers_are_said)
{
    render();
    expect("voxeld_models_missed", "0");
    expect("voxeld_queued_requests", "3");
    expect("voxeld_queued_voxels", "94245");
    expect("voxeld_running_requests", "2");
    expect("voxeld_ready", "0");
    expect("voxeld_calls_in_flight", "5");
    expect("voxeld_connections", "12");
    expect("voxeld_connections_total", "345");
    expect("voxeld_connections_refused_total", "6");
    expect("voxeld_spans_total{result=\"dropped\"}", "77");
    expect("voxeld_spans_total{result=\"failed\"}", "3584");
    expect("voxeld_spans_total{result=\"rejected\"}", "14");
    expect("voxeld_spans_total{result=\"sent\"}", "962500");
    expect("voxeld_streams", "2");
    expect("voxeld_token_file_good", "0");
    expect("voxeld_token_requests_total{token=\"open\"}", "0");
    ck_assert_ptr_null(strstr(text, "\nvoxeld_regions{")); /* not reported */
    expect("voxeld_arena_bytes", "2147483648");
    expect("voxeld_arena_used_bytes", "14680064");
    expect("voxeld_rpc_received_bytes_total", "123456789012");
    expect("voxeld_rpc_calls_total{method=\"inference.GRPCInferenceService/ModelInfer\"}",
           "137500");
    expect("voxeld_rpc_refused_total{reason=\"bad\"}", "3");
    expect("voxeld_rpc_refused_total{reason=\"full\"}", "0");
    expect("voxeld_requests_total{code=\"OK\"}", "4000");
    expect("voxeld_requests_total{code=\"INVALID_ARGUMENT\"}", "1");
    expect("voxeld_worker_up{worker=\"0\",device=\"cpu\"}", "1");
    expect("voxeld_worker_up{worker=\"1\",device=\"cpu\"}", "0");
    expect("voxeld_worker_restarts_total{worker=\"0\",device=\"cpu\"}", "2");
    expect("voxeld_rpc_cut_total{phase=\"sending\"}", "6");
    expect("voxeld_worker_hangs_total{worker=\"0\",device=\"cpu\"}", "3");
    expect("voxeld_worker_device_lost_total{worker=\"0\",device=\"cpu\"}", "1");
    expect("voxeld_worker_device_lost_total{worker=\"1\",device=\"cpu\"}", "0");
    expect("voxeld_geometry_cache_hits_total{worker=\"0\",device=\"cpu\"}", "110000");
    ck_assert_int_gt(atoll(value_of("process_resident_memory_bytes")), 100000);
    ck_assert_int_gt(atoll(value_of("process_start_time_seconds")), 1600000000);
    ck_assert(strtod(value_of("process_cpu_seconds_total"), NULL) >= 0);
    sample.sources.sched = NULL;
    render();
    check_grammar();
    ck_assert_ptr_null(strstr(text, "\nnv_inference_pending_request_count{"));
}
END_TEST

START_TEST(histograms_add_up)
{
    struct vx_metrics *metrics;
    ck_assert(!vx_metrics_open(&metrics).fault);
    sample.sources.metrics = metrics;
    render();
    expect("voxeld_request_seconds_bucket{le=\"+Inf\"}", "0");
    expect("voxeld_request_seconds_sum", "0");
    static const i64 times_ns[] = {1, 100000, 100001, 1500000, 31 * VX_NS_PER_S, -5};
    for (size_t i = 0; i < VX_COUNT(times_ns); i++)
        vx_metrics_observe_request(
            metrics, &(struct vx_metrics_request){.code = VX_CODE_OK,
                                                  .total_ns = times_ns[i],
                                                  .voxels = 0,
                                                  .pairs = 1000,
                                                  .bytes_out = 5000,
                                                  .bytes_in = UINT64_C(1) << 40});
    vx_metrics_observe_batch(
        metrics, &(struct vx_metrics_batch){.requests = 64, .voxels = 12345678901});
    vx_metrics_observe_batch(metrics,
                             &(struct vx_metrics_batch){.requests = 2,
                                                        .voxels = 150,
                                                        .set_voxels = 250,
                                                        .voxels_max = 1000,
                                                        .border_ns = 20001,
                                                        .device_ns = 2000000,
                                                        .predicted_ns = 2030000});
    render();
    check_grammar();
    expect("voxeld_request_seconds_bucket{le=\"0.0001\"}", "3"); /* bounds included */
    expect("voxeld_request_seconds_bucket{le=\"0.0002\"}", "4");
    expect("voxeld_request_seconds_bucket{le=\"0.001\"}", "4");
    expect("voxeld_request_seconds_bucket{le=\"0.002\"}", "5");
    expect("voxeld_request_seconds_bucket{le=\"30\"}", "5");
    expect("voxeld_request_seconds_bucket{le=\"+Inf\"}", "6");
    expect("voxeld_request_seconds_count", "6");
    expect("voxeld_request_seconds_sum", "31.001700002");
    expect("voxeld_request_voxels_bucket{le=\"64\"}", "6");
    expect("voxeld_request_bytes_bucket{le=\"1073741824\"}", "0");
    expect("voxeld_request_bytes_sum", "6597069766656");
    expect("voxeld_request_pairs_bucket{le=\"1024\"}", "6");
    expect("voxeld_request_pairs_sum", "6000");
    expect("voxeld_answer_bytes_bucket{le=\"4096\"}", "0");
    expect("voxeld_answer_bytes_sum", "30000");
    expect("voxeld_queue_seconds_count", "0"); /* none of them ran */
    expect("voxeld_batch_requests_bucket{le=\"2\"}", "1");
    expect("voxeld_batch_requests_bucket{le=\"64\"}", "2");
    expect("voxeld_batch_voxels_sum", "12345679051");
    expect("voxeld_border_seconds_bucket{le=\"0.00002\"}", "1");
    expect("voxeld_border_seconds_bucket{le=\"0.00005\"}", "2");
    /* Without a budget no share of it is reported, without a prediction no error. */
    expect("voxeld_batch_fill_ratio_count", "1");
    expect("voxeld_batch_fill_ratio_bucket{le=\"0.2\"}", "0");
    expect("voxeld_batch_fill_ratio_bucket{le=\"0.3\"}", "1");
    expect("voxeld_batch_fill_ratio_sum", "0.25");
    expect("voxeld_batch_prediction_error_seconds_count", "1");
    expect("voxeld_batch_prediction_error_seconds_sum", "0.00003");
    vx_metrics_close(&metrics);
}
END_TEST

START_TEST(failures_do_not_look_fast)
{
    struct vx_metrics *metrics;
    ck_assert(!vx_metrics_open(&metrics).fault);
    vx_metrics_observe_request(metrics, &(struct vx_metrics_request){
                                            .code = VX_CODE_UNAVAILABLE, .total_ns = 10});
    ck_assert_uint_eq(vx_metrics_recent(metrics, VX_HISTOGRAM_REQUEST).count, 0);
    ck_assert_uint_eq(metrics->codes[VX_CODE_UNAVAILABLE], 1);
    vx_metrics_close(&metrics);
}
END_TEST

START_TEST(names_of_geometries_are_counted)
{
    struct vx_metrics *metrics;
    ck_assert(!vx_metrics_open(&metrics).fault);
    static const struct vx_metrics_request requests[] = {
        {.code = VX_CODE_OK},
        {.code = VX_CODE_OK, .by_name = true},
        {.code = VX_CODE_OK, .by_name = true},
        {.code = VX_CODE_FAILED_PRECONDITION, .by_name = true, .unknown_geometry = true},
        {.code = VX_CODE_FAILED_PRECONDITION, .by_name = true}, /* of a region, say */
        {.code = VX_CODE_CANCELLED, .by_name = true},
        {.code = VX_CODE_UNAVAILABLE, .refused_late = true},
        {.code = VX_CODE_DEADLINE_EXCEEDED},
    };
    for (size_t i = 0; i < VX_COUNT(requests); i++)
        vx_metrics_observe_request(metrics, &requests[i]);
    sample.sources.metrics = metrics;
    render();
    expect("voxeld_geometry_refs_total{result=\"hit\"}", "2");
    expect("voxeld_geometry_refs_total{result=\"unknown\"}", "1");
    expect("voxeld_deadline_refusals_total", "1");
    vx_metrics_close(&metrics);
}
END_TEST

static void observe_ms(struct vx_metrics *metrics, int count, i64 ms)
{
    for (int i = 0; i < count; i++)
        vx_metrics_observe_request(
            metrics, &(struct vx_metrics_request){.code = VX_CODE_OK,
                                                  .total_ns = ms * VX_NS_PER_MS});
}

START_TEST(percentiles_are_of_the_last_minute)
{
    struct vx_metrics *metrics;
    ck_assert(!vx_metrics_open(&metrics).fault);
    struct vx_recent recent = vx_metrics_recent(metrics, VX_HISTOGRAM_REQUEST);
    ck_assert_uint_eq(recent.count, 0);
    ck_assert_uint_eq(recent.p99, 0);
    observe_ms(metrics, 980, 15); /* in (10, 20] ms */
    observe_ms(metrics, 20, 400); /* in (200, 500] ms */
    recent = vx_metrics_recent(metrics, VX_HISTOGRAM_REQUEST);
    ck_assert_uint_eq(recent.count, 1000);
    ck_assert_uint_eq(recent.p50 / 1000, 15102); /* 10 + 10 * 500/980 ms */
    ck_assert_uint_eq(recent.p90 / 1000, 19183);
    ck_assert_uint_eq(recent.p99 / 1000, 350000); /* 200 + 300 * 10/20 ms */
    /* 50 s later they still count; 60 s later they do not. */
    i64 start = metrics->slice * VX_METRICS_SLICE_NS;
    vx_metrics_turn(metrics, start + 5 * VX_METRICS_SLICE_NS);
    ck_assert_uint_eq(vx_metrics_recent(metrics, VX_HISTOGRAM_REQUEST).count, 1000);
    observe_ms(metrics, 7, 40000); /* beyond the last bound */
    vx_metrics_turn(metrics, start + 6 * VX_METRICS_SLICE_NS);
    recent = vx_metrics_recent(metrics, VX_HISTOGRAM_REQUEST);
    ck_assert_uint_eq(recent.count, 7);
    ck_assert_uint_eq(recent.p50, 30 * (u64)VX_NS_PER_S);
    vx_metrics_turn(metrics, start + 1000 * VX_METRICS_SLICE_NS);
    ck_assert_uint_eq(vx_metrics_recent(metrics, VX_HISTOGRAM_REQUEST).count, 0);
    ck_assert_uint_eq(metrics->histograms[VX_HISTOGRAM_REQUEST].counts[9], 0);
    vx_metrics_close(&metrics);
}
END_TEST

/* ------- limits ------- */

START_TEST(the_largest_text_fits_a_reply)
{
    vx_registry_close(&sample.registry);
    ck_assert(!vx_registry_open(&sample.registry).fault);
    sample.sources.registry = sample.registry;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        char name[VX_NAME_BYTES];
        memset(name, '"', sizeof name - 1); /* each is escaped as two */
        name[sizeof name - 1] = '\0';
        ck_assert_int_ge(vx_registry_add(sample.registry, name, INT64_MAX - i, 0), 0);
        struct vx_instance *model = vx_registry_row(sample.registry, i);
        memset(model->stats, 0x7f, sizeof *model->stats);
        model->load_ns = INT64_MAX;
    }
    static struct vx_worker_view workers[VX_WORKERS_MAX];
    for (i32 i = 0; i < VX_WORKERS_MAX; i++) {
        workers[i] = sample.workers[0];
        workers[i].index = i;
    }
    sample.sources.workers = workers;
    sample.sources.workers_count = VX_WORKERS_MAX;
    render();
    check_grammar();
    ck_assert_uint_lt(strlen(text), sizeof text * 3 / 4);
}
END_TEST

/* What a scrape costs is what it writes, and one walk over the models: tests/bench/scrape.py
 * measures it. */
START_TEST(a_hundred_models_are_170_kb)
{
    char name[16];
    for (i32 i = 0; i < 95; i++) {
        snprintf(name, sizeof name, "model-%d", i);
        sample_add(&sample, name, "");
    }
    render();
    ck_assert_uint_lt(strlen(text), 192 * 1024);
}
END_TEST

START_TEST(a_small_buffer_is_a_status)
{
    render();
    /* Two renderings differ by a few digits: those of the process's own time and
     * memory. */
    size_t whole = strlen(text) - 64, length = 0;
    char *small = malloc(whole); /* ASan detects a write past its end */
    vx_status st = vx_metrics_render(&sample.sources, small, whole, &length);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_uint_lt(length, whole);
    ck_assert(vx_metrics_render(&sample.sources, small, 0, &length).fault);
    free(small);
}
END_TEST

START_TEST(texts_are_cut_and_escaped)
{
    char out[64];
    struct vx_text piece;
    vx_text_init(&piece, out, sizeof out);
    vx_text_html(&piece, "<a href=\"x\">'&'");
    ck_assert_str_eq(out, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
    vx_text_init(&piece, out, sizeof out);
    vx_text_label(&piece, "a\\b\"c\nd");
    ck_assert_str_eq(out, "a\\\\b\\\"c\\nd");
    vx_text_init(&piece, out, sizeof out);
    vx_text_json(&piece, "a\\\"\n\x01");
    ck_assert_str_eq(out, "a\\\\\\\"\\u000a\\u0001");
    /* A device's name, for instance: valid characters stay, other bytes become '?'. */
    void (*const escapes[])(struct vx_text * text, const char *piece) = {
        vx_text_html, vx_text_label, vx_text_json};
    for (size_t i = 0; i < VX_COUNT(escapes); i++) {
        vx_text_init(&piece, out, sizeof out);
        escapes[i](&piece, "\xff caf\xc3\xa9 \xe2\x82\xac\xf0\x9d\x84");
        ck_assert_str_eq(out, "? caf\xc3\xa9 \xe2\x82\xac???");
    }
    vx_text_init(&piece, out, sizeof out);
    vx_text_decimal(&piece, 0, 0);
    vx_text_add(&piece, " ");
    vx_text_decimal(&piece, UINT64_MAX, 999999999);
    vx_text_add(&piece, " ");
    vx_text_decimal(&piece, 100, 1000);
    ck_assert_str_eq(out, "0 18446744073709551615.999999999 100.000001");
    vx_text_init(&piece, out, sizeof out);
    vx_text_i64(&piece, INT64_MIN);
    vx_text_i64(&piece, 0);
    vx_text_i64(&piece, INT64_MAX);
    ck_assert_str_eq(out, "-922337203685477580809223372036854775807");
    vx_text_init(&piece, out, 5);
    vx_text_add(&piece, "1234");
    ck_assert(!piece.full);
    vx_text_add(&piece, "5");
    ck_assert(piece.full);
    vx_text_init(&piece, out, 5);
    vx_text_add(&piece, "12345"); /* dropped whole, and all after it */
    vx_text_add(&piece, "6");
    ck_assert_str_eq(out, "");
    ck_assert_uint_eq(piece.needed, 6);
}
END_TEST

static void setup(void)
{
    sample_open(&sample);
}

static void teardown(void)
{
    sample_close(&sample);
}

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tests = tcase_create("metrics");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 10);
    tcase_add_test(tests, text_follows_the_grammar);
    tcase_add_test(tests, models_are_said);
    tcase_add_test(tests, server_and_workers_are_said);
    tcase_add_test(tests, histograms_add_up);
    tcase_add_test(tests, names_of_geometries_are_counted);
    tcase_add_test(tests, failures_do_not_look_fast);
    tcase_add_test(tests, percentiles_are_of_the_last_minute);
    tcase_add_test(tests, the_largest_text_fits_a_reply);
    tcase_add_test(tests, a_hundred_models_are_170_kb);
    tcase_add_test(tests, a_small_buffer_is_a_status);
    tcase_add_test(tests, texts_are_cut_and_escaped);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
