/* page: every route, its status, and that the text shown is escaped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/thread.h"
#include "engine/base/text/json.h"
#include "server/admin/page.h"
#include "tests/unit/server/admin/admin_sample.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sample sample;
static char body[VX_HTTP_BODY_BYTES_MAX];

static struct vx_http_reply ask(const char *path)
{
    struct vx_http_request request = {.path = path, .query = ""};
    struct vx_http_reply reply = {.status = 200,
                                  .content_type = "text/plain; charset=utf-8",
                                  .body = body,
                                  .capacity = sizeof body - 1};
    vx_page_answer(&sample.sources, &request, &reply);
    ck_assert_uint_le(reply.length, reply.capacity);
    body[reply.length] = '\0';
    return reply;
}

/* The answer as JSON: it must be an object with these values. */
static void expect_json(const char *path, int status, const char *why)
{
    static char block[1 << 16];
    struct vx_arena arena;
    struct vx_why problem = {""};
    const struct vx_json *root = NULL;
    struct vx_http_reply reply = ask(path);
    ck_assert_msg(reply.status == status, "%s is %d: %s", path, reply.status, body);
    ck_assert_str_eq(reply.content_type, "application/json");
    vx_arena_init(&arena, block, sizeof block);
    vx_status st = vx_json_parse(body, reply.length, &arena, &problem, &root);
    ck_assert_msg(!st.fault, "%s: %s", problem.text, body);
    const struct vx_json *ready = vx_json_find(root, "ready");
    const struct vx_json *said = vx_json_find(root, "why");
    if (ready) ck_assert_int_eq(ready->boolean, status == 200);
    ck_assert_int_eq(said != NULL, why != NULL);
    if (why) ck_assert_msg(strstr(said->text, why) != NULL, "%s", said->text);
}

START_TEST(health_says_why_not)
{
    expect_json("/v2/health/live", 200, NULL);
    expect_json("/v2/health/ready", 503,
                "model 'segment' version 4 is loading: 14 of 52");
    /* Every reason, not only the first. */
    ck_assert_ptr_nonnull(strstr(
        body, "\"not_ready\":[{\"name\":\"segment\",\"version\":\"4\",\"why\":\"model "
              "'segment' version 4 is loading: 14 of 52 layers\"},{\"name\":\"we"));
    sample.sources.ready = true;
    expect_json("/v2/health/ready", 200, NULL);
    sample.sources.ready = false;
    sample.workers[0].up = false;
    sample.workers[0].state = "down";
    expect_json("/v2/health/ready", 503,
                "no worker has its device open: worker 0 (cpu) is down");
    sample.workers[0].device = "cuda:1";
    sample.workers[0].problem = "no CUDA driver: \"x\"";
    expect_json("/v2/health/ready", 503,
                "worker 0 (cuda:1) is down: no CUDA driver: \"x\"");
    expect_json("/v2/health/live", 200, NULL);
}
END_TEST

START_TEST(a_model_without_a_worker_says_what_keeps_it)
{
    struct vx_instance *model = vx_registry_row(sample.registry, 0);
    model->workers_loaded = 0;
    expect_json("/v2/models/normals/versions/1/ready", 503,
                "model 'normals' version 1 waits until a worker is up");
    strcpy(model->reason, "waiting for a worker: the worker of cpu ended: device lost");
    expect_json("/v2/models/normals/versions/1/ready", 503,
                "model 'normals' version 1 is waiting for a worker: the worker of cpu "
                "ended: dev");
}
END_TEST

START_TEST(a_model_without_a_row_is_named)
{
    static struct vx_repository_listing listing;
    listing = (struct vx_repository_listing){.count = 4, .missed = 1};
    strcpy(listing.entries[0].name, "extra");
    strcpy(listing.entries[1].name, "extra");
    strcpy(listing.entries[2].name, "normals");
    strcpy(listing.entries[3].name, "unloaded");
    for (i32 e = 0; e < 4; e++) {
        listing.entries[e].version = e + 3;
        listing.entries[e].no_row = e < 3;
    }
    vx_registry_explain(sample.registry, &listing);
    expect_json("/v2/health/ready", 503, "model 'segment' version 4 is loading");
    ck_assert_ptr_nonnull(
        strstr(body, "{\"name\":\"extra\",\"version\":\"3\",\"why\":\"model 'extra' "
                     "version 3 is " VX_REPOSITORY_NO_ROW "\"}]"));
    expect_json("/v2/models/extra/ready", 404,
                "'extra' is not found: not loaded: at most");
    vx_registry_close(&sample.registry);
    ck_assert(!vx_registry_open(&sample.registry).fault);
    sample.sources.registry = sample.registry;
    vx_registry_explain(sample.registry, &listing);
    expect_json("/v2/health/ready", 503, "model 'extra' version 3 is not loaded");
}
END_TEST

START_TEST(what_is_odd_is_noted_by_a_server_that_is_ready)
{
    sample.sources.ready = true;
    sample.sources.problem = "'flat' has no version";
    expect_json("/v2/health/ready", 200, NULL);
    ck_assert_ptr_nonnull(strstr(body, "\"note\":\"'flat' has no version\""));
}
END_TEST

START_TEST(draining_does_not_blame_a_model)
{
    vx_registry_close(&sample.registry);
    ck_assert(!vx_registry_open(&sample.registry).fault);
    sample.sources.registry = sample.registry;
    expect_json("/v2/health/ready", 503, "the server is starting or stopping");
    sample.sources.problem = "repository 'x' has no models";
    expect_json("/v2/health/ready", 503, "repository 'x' has no models");
    sample.sources.ready = true;
    expect_json("/v2/health/ready", 200, NULL);
    ck_assert_str_eq(body,
                     "{\"ready\":true,\"note\":\"repository 'x' has no models\"}\n");
    sample.sources.ready = false;
    i32 instance = vx_registry_add(sample.registry, "normals", 1, 0);
    struct vx_instance *model = vx_registry_row(sample.registry, instance);
    model->state = VX_INSTANCE_READY;
    model->workers_loaded = 1;
    vx_registry_row(sample.registry, vx_registry_add(sample.registry, "normals", 2, 0))
        ->state = VX_INSTANCE_UNAVAILABLE; /* does not make version 1 unready */
    expect_json("/v2/health/ready", 503, "the server is starting or stopping");
    model->workers_loaded = 0;
    expect_json("/v2/health/ready", 503, "model 'normals' version 1 waits until a");
}
END_TEST

static const struct {
    const char *path;
    int status;
    const char *why;
} models[] = {
    {"/v2/models/normals/ready", 200, NULL},
    {"/v2/models/normals/versions/1/ready", 200, NULL},
    {"/v2/models/n%6frmals/versions/2/ready", 200, NULL},
    {"/v2/models/normals/versions/3/ready", 404, "unknown model"},
    {"/v2/models/nothing/ready", 404, "unknown model: 'nothing'"},
    {"/v2/models/segment/ready", 503, "is loading: 14 of 52 layers"},
    {"/v2/models/we%22ird%5C%3cb%3e%0A/ready", 503,
     "cannot be served: layer 'enc.conv1'"},
    {"/v2/models/a%22%5c%01%0a/ready", 404, "unknown model"},
};

START_TEST(models_are_asked_by_name)
{
    expect_json(models[_i].path, models[_i].status, models[_i].why);
}
END_TEST

static const char *const unknown[] = {
    "",
    "/x",
    "//",
    "/metrics/",
    "/v2/health",
    "/v2/health/ready/",
    "/v2/models/",
    "/v2/models//ready",
    "/v2/models/normals",
    "/v2/models/normals/",
    "/v2/models/normals/ready/x",
    "/v2/models/normals/versions/ready",
    "/v2/models/normals/versions//ready",
    "/v2/models/normals/versions/0/ready",
    "/v2/models/normals/versions/x/ready",
    "/v2/models/normals/versions/1x/ready",
    "/v2/models/normals/versions/9999999999999999999/ready",
    "/v2/models/%/ready",
    "/v2/models/%4/ready",
    "/v2/models/%zz/ready",
    "/v2/models/%00/ready",
    "/v2/models/%2",
    "http://h/metrics",
};

START_TEST(unknown_paths_are_told_the_known_ones)
{
    struct vx_http_reply reply = ask(unknown[_i]);
    ck_assert_int_eq(reply.status, 404);
    ck_assert_ptr_nonnull(strstr(body, "/v2/health/ready"));
}
END_TEST

START_TEST(long_names_are_unknown)
{
    char path[2048] = "/v2/models/";
    size_t prefix = strlen(path);
    memset(path + prefix, 'x', VX_NAME_BYTES);
    memcpy(path + prefix + VX_NAME_BYTES - 1, "/ready", 7);
    expect_json(path, 404, "unknown model");
    memset(path + prefix, 'x', VX_NAME_BYTES);
    memcpy(path + prefix + VX_NAME_BYTES, "/ready", 7);
    ck_assert_int_eq(ask(path).status, 404);
}
END_TEST

START_TEST(metrics_are_served)
{
    struct vx_http_reply reply = ask("/metrics");
    ck_assert_int_eq(reply.status, 200);
    ck_assert_str_eq(reply.content_type, "text/plain; version=0.0.4; charset=utf-8");
    ck_assert_ptr_nonnull(strstr(body, "\nvoxeld_ready 0\n"));
}
END_TEST

START_TEST(half_an_answer_is_an_error)
{
    static const char *const paths[] = {"/metrics", "/", "/status.json"};
    for (size_t i = 0; i < VX_COUNT(paths); i++) {
        struct vx_http_request request = {.path = paths[i], .query = ""};
        struct vx_http_reply reply = {.status = 200, .body = body, .capacity = 1000};
        vx_page_answer(&sample.sources, &request, &reply);
        ck_assert_int_eq(reply.status, 500);
        ck_assert_uint_lt(reply.length, 1000);
        ck_assert_ptr_nonnull(strstr(body, "fit"));
    }
}
END_TEST

/* Every tag that is opened is closed, in order; void elements aside. */
static void check_tags(void)
{
    char open[64][16];
    int depth = 0;
    for (const char *at = strchr(strstr(body, "</head>"), '<'); at;
         at = strchr(at + 1, '<')) {
        bool is_end = at[1] == '/';
        size_t length = strspn(at + 1 + is_end, "abcdefghijklmnopqrstuvwxyz123456789");
        char name[16];
        ck_assert_msg(length > 0 && length < sizeof name, "%.40s", at);
        snprintf(name, sizeof name, "%.*s", (int)length, at + 1 + is_end);
        if (!is_end) {
            ck_assert_int_lt(depth, 64);
            memcpy(open[depth++], name, sizeof name);
        } else if (!strcmp(name, "head") || !strcmp(name, "html")) {
            continue; /* opened before */
        } else {
            ck_assert_int_gt(depth, 0);
            ck_assert_msg(!strcmp(open[--depth], name), "%s ends %s at %.60s", name,
                          open[depth], at);
        }
    }
    ck_assert_int_eq(depth, 0);
}

START_TEST(page_shows_what_there_is)
{
    struct vx_http_reply reply = ask("/");
    ck_assert_int_eq(reply.status, 200);
    ck_assert_str_eq(reply.content_type, "text/html; charset=utf-8");
    check_tags();
    static const char *const shown[] = {"normals",
                                        "128 k",
                                        "14 of 52 layers",
                                        "unavailable",
                                        "AMD EPYC, 2 threads",
                                        "700 MiB of 4 GiB",
                                        "starting",
                                        ">4242<",
                                        "not ready",
                                        "80 %",
                                        "we&quot;ird\\&lt;b&gt;",
                                        "got &lt;none&gt; &amp; nothing else",
                                        "INVALID_ARGUMENT",
                                        "got &lt;i&gt;",
                                        "<noscript><meta http-equiv=\"refresh\"",
                                        "src=\"/live.js\"></script>"};
    for (size_t i = 0; i < VX_COUNT(shown); i++)
        ck_assert_msg(strstr(body, shown[i]) != NULL, "no %s", shown[i]);
    /* The policy that is sent with it forbids styles and scripts in the HTML. */
    static const char *const hidden[] = {
        "<b>\n", "<none>", "<i>", "style=", "<style", "onload", "url(", "//"};
    for (size_t i = 0; i < VX_COUNT(hidden); i++)
        ck_assert_msg(!strstr(body, hidden[i]), "has %s", hidden[i]);
}
END_TEST

/* ------- the live page ------- */

/* Every file that the page or one of its files names is there, and nothing else is asked. */
START_TEST(the_files_of_the_page_are_there)
{
    static const struct {
        const char *path, *type, *says;
    } files[] = {
        {"/page.css", "text/css; charset=utf-8", "prefers-color-scheme: dark"},
        {"/live.js", "text/javascript; charset=utf-8", "from \"./charts.js\""},
        {"/charts.js", "text/javascript; charset=utf-8", "from \"./chart.js\""},
        {"/chart.js", "text/javascript; charset=utf-8", "from \"./dom.js\""},
        {"/tables.js", "text/javascript; charset=utf-8", "from \"./units.js\""},
        {"/dom.js", "text/javascript; charset=utf-8", "createElementNS"},
        {"/units.js", "text/javascript; charset=utf-8", "export"},
        {"/icon.svg", "image/svg+xml", "</svg>"},
    };
    for (size_t i = 0; i < VX_COUNT(files); i++) {
        struct vx_http_reply reply = ask(files[i].path);
        ck_assert_msg(reply.status == 200, "%s", files[i].path);
        ck_assert_str_eq(reply.content_type, files[i].type);
        ck_assert_uint_eq(strlen(body), reply.length);
        ck_assert_msg(strstr(body, files[i].says) != NULL, "%s", files[i].path);
        static const char *const never[] = {"innerHTML", "insertAdjacentHTML", "eval(",
                                            "document.write", "https:"};
        for (size_t k = 0; k < VX_COUNT(never); k++)
            ck_assert_msg(!strstr(body, never[k]), "%s: %s", files[i].path, never[k]);
    }
    ck_assert_int_eq(ask("/page_head.html").status, 404);
}
END_TEST

static const struct vx_json *status_read(void)
{
    static char block[8 << 20];
    static struct vx_arena arena;
    struct vx_why problem = {""};
    const struct vx_json *root = NULL;
    struct vx_http_reply reply = ask("/status.json");
    ck_assert_int_eq(reply.status, 200);
    ck_assert_str_eq(reply.content_type, "application/json");
    vx_arena_init(&arena, block, sizeof block);
    vx_status st = vx_json_parse(body, reply.length, &arena, &problem, &root);
    ck_assert_msg(!st.fault, "%s", problem.text);
    return root;
}

static const struct vx_json *status_get(const struct vx_json *object, const char *key)
{
    const struct vx_json *value = vx_json_find(object, key);
    ck_assert_msg(value != NULL, "no %s", key);
    return value;
}

static i64 status_i64(const struct vx_json *object, const char *key)
{
    i64 number = -1;
    ck_assert_msg(vx_json_whole(status_get(object, key), &number), "%s", key);
    return number;
}

static const struct vx_json *status_item(const struct vx_json *list, i32 index)
{
    ck_assert_int_lt(index, list->count);
    const struct vx_json *item = list->first;
    while (index--) item = item->next;
    return item;
}

START_TEST(status_says_what_there_is)
{
    const struct vx_json *root = status_read();
    ck_assert(!status_get(root, "ready")->boolean);
    ck_assert_ptr_nonnull(strstr(status_get(root, "why")->text, "14 of 52 layers"));
    const struct vx_json *requests = status_get(root, "requests");
    ck_assert_int_eq(status_i64(requests, "answered"), 4000);
    ck_assert_int_eq(status_i64(requests, "failed"), 1);
    ck_assert_int_eq(status_i64(requests, "waiting"), 3);
    const struct vx_json *latency = status_get(root, "latency");
    ck_assert_int_eq(status_get(latency, "counts")->count,
                     status_get(latency, "bounds_ns")->count + 1);
    const struct vx_json *rows = status_get(root, "models");
    ck_assert_int_eq(rows->count, 5);
    const struct vx_json *model = status_item(rows, 0);
    ck_assert_str_eq(status_get(model, "name")->text, "normals");
    ck_assert_str_eq(status_get(model, "state")->text, "ready");
    ck_assert_int_eq(status_i64(model, "answered"), 128431);
    ck_assert_int_eq(status_i64(model, "failed"), 12);
    model = status_item(rows, 3);
    ck_assert_str_eq(status_get(model, "state")->text, "loading");
    ck_assert_int_eq(status_i64(model, "load_done"), 14);
    ck_assert_int_eq(status_i64(model, "load_total"), 52);
    model = status_item(rows, 4);
    ck_assert_str_eq(status_get(model, "name")->text, "we\"ird\\<b>\n");
    ck_assert_ptr_nonnull(strstr(status_get(model, "why")->text, "got <none>"));
    const struct vx_json *device = status_item(status_get(root, "devices"), 0);
    ck_assert_str_eq(status_get(device, "state")->text, "up");
    ck_assert_int_eq(status_i64(device, "memory_peak"), 734003200);
    ck_assert_int_eq(status_i64(status_get(device, "gpu"), "busy_percent"), 7);
    const struct vx_json *failure = status_item(status_get(root, "failures"), 0);
    ck_assert_str_eq(status_get(failure, "text")->text, "expected a shape, got <i>");
    ck_assert_int_eq(status_i64(failure, "count"), 1);
}
END_TEST

/* The page asks every two seconds: what an answer may cost is linear in the models. */
START_TEST(status_is_small_and_the_largest_fits)
{
    vx_registry_close(&sample.registry);
    ck_assert(!vx_registry_open(&sample.registry).fault);
    sample.sources.registry = sample.registry;
    char name[VX_NAME_BYTES], reason[VX_WHY_BYTES];
    for (i32 i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "model-%d", i);
        sample_add(&sample, name, "14 of 52 layers");
    }
    status_read();
    ck_assert_uint_lt(strlen(body), 48 * 1024);
    memset(name, 1, sizeof name); /* each is escaped as six */
    memset(reason, 1, sizeof reason);
    reason[sizeof reason - 1] = '\0';
    for (i32 i = 100; i < VX_INSTANCES_MAX; i++) {
        snprintf(name + sizeof name - 4, 4, "%d", i);
        sample_add(&sample, name, reason);
    }
    status_read();
    ck_assert_uint_lt(strlen(body), sizeof body / 2);
}
END_TEST

START_TEST(empty_server_has_a_page)
{
    vx_registry_close(&sample.registry);
    ck_assert(!vx_registry_open(&sample.registry).fault);
    vx_metrics_close(&sample.metrics);
    ck_assert(!vx_metrics_open(&sample.metrics).fault);
    sample.sources.registry = sample.registry;
    sample.sources.metrics = sample.metrics;
    sample.sources.workers_count = 0;
    ck_assert_int_eq(ask("/").status, 200);
    check_tags();
    ck_assert_ptr_nonnull(strstr(body, ">none<"));
    ck_assert_ptr_null(strstr(body, "nan"));
    ck_assert_ptr_null(strstr(body, "inf"));
}
END_TEST

static void setup(void)
{
    vx_thread_enter(VX_ROLE_LOOP);
    sample_open(&sample);
}

static void teardown(void)
{
    sample_close(&sample);
}

int main(void)
{
    Suite *suite = suite_create("page");
    TCase *tests = tcase_create("page");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 10);
    tcase_add_test(tests, health_says_why_not);
    tcase_add_test(tests, draining_does_not_blame_a_model);
    tcase_add_test(tests, a_model_without_a_worker_says_what_keeps_it);
    tcase_add_test(tests, a_model_without_a_row_is_named);
    tcase_add_test(tests, what_is_odd_is_noted_by_a_server_that_is_ready);
    tcase_add_loop_test(tests, models_are_asked_by_name, 0, (int)VX_COUNT(models));
    tcase_add_loop_test(tests, unknown_paths_are_told_the_known_ones, 0,
                        (int)VX_COUNT(unknown));
    tcase_add_test(tests, long_names_are_unknown);
    tcase_add_test(tests, metrics_are_served);
    tcase_add_test(tests, half_an_answer_is_an_error);
    tcase_add_test(tests, page_shows_what_there_is);
    tcase_add_test(tests, empty_server_has_a_page);
    tcase_add_test(tests, the_files_of_the_page_are_there);
    tcase_add_test(tests, status_says_what_there_is);
    tcase_add_test(tests, status_is_small_and_the_largest_fits);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
