/* Versions and changed files that do not serve, of models that do: the server is ready, and the
 * ready answer and a metric name them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/thread.h"
#include "server/admin/missed.h"
#include "server/admin/page.h"
#include "tests/unit/server/admin/admin_sample.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sample sample;
static char body[1 << 18];

static void set_up(void)
{
    vx_thread_enter(VX_ROLE_LOOP);
    sample_open(&sample);
    vx_registry_close(&sample.registry);
    ck_assert(!vx_registry_open(&sample.registry).fault);
    sample.sources.registry = sample.registry;
    sample.sources.ready = true;
}

static void tear_down(void)
{
    sample_close(&sample);
}

static void add(i64 version, enum vx_instance_state state, const char *reason)
{
    i32 instance = vx_registry_add(sample.registry, "m", version, 0);
    ck_assert_int_ge(instance, 0);
    struct vx_instance *row = vx_registry_row(sample.registry, instance);
    row->state = state;
    row->workers_loaded = state == VX_INSTANCE_READY;
    snprintf(row->reason, sizeof row->reason, "%s", reason);
}

static const char *ask(const char *path)
{
    struct vx_http_request request = {.path = path, .query = ""};
    struct vx_http_reply reply = {
        .status = 200, .body = body, .capacity = sizeof body - 1};
    vx_page_answer(&sample.sources, &request, &reply);
    ck_assert_int_eq(reply.status, 200);
    body[reply.length] = '\0';
    return body;
}

/* The numbers of one version. */
static void expect_gauges(i64 version, int ready, int files_good)
{
    char line[128];
    ask("/metrics");
    snprintf(line, sizeof line, "\nvoxeld_model_ready{model=\"m\",version=\"%lld\"} %d\n",
             (long long)version, ready);
    ck_assert_msg(strstr(body, line) != NULL, "%s", line);
    snprintf(line, sizeof line,
             "\nvoxeld_model_files_good{model=\"m\",version=\"%lld\"} %d\n",
             (long long)version, files_good);
    ck_assert_msg(strstr(body, line) != NULL, "%s", line);
}

START_TEST(a_model_that_serves_what_is_there_needs_no_words)
{
    add(1, VX_INSTANCE_READY, "");
    add(1, VX_INSTANCE_UNLOADING, "");
    ck_assert_str_eq(ask("/v2/health/ready"), "{\"ready\":true}\n");
    expect_gauges(1, 1, 1);
}
END_TEST

START_TEST(changed_files_that_fail_are_named)
{
    static const char said[] = "model 'm' version 1 serves its earlier files: those that "
                               "changed cannot be loaded: half a file";
    char expected[512];
    add(1, _i ? VX_INSTANCE_READY : VX_INSTANCE_UNAVAILABLE, _i ? "" : "half a file");
    add(1, _i ? VX_INSTANCE_UNAVAILABLE : VX_INSTANCE_READY, _i ? "half a file" : "");
    snprintf(expected, sizeof expected,
             "{\"ready\":true,\"not_updated\":[{\"name\":\"m\",\"version\":\"1\",\"why\":"
             "\"%s\"}],\"note\":\"%s\"}\n",
             said, said);
    ck_assert_str_eq(ask("/v2/health/ready"), expected);
    expect_gauges(1, 1, 0);
}
END_TEST

/* While they load nothing is wrong yet: no note. */
START_TEST(changed_files_that_load_are_named)
{
    add(1, VX_INSTANCE_READY, "");
    add(1, VX_INSTANCE_LOADING, "3 of 12 layers");
    ck_assert_str_eq(ask("/v2/health/ready"),
                     "{\"ready\":true,\"not_updated\":[{\"name\":\"m\",\"version\":\"1\","
                     "\"why\":\"model 'm' version 1 serves its earlier files: those that "
                     "changed are loading: 3 of 12 layers\"}]}\n");
    expect_gauges(1, 1, 0);
}
END_TEST

START_TEST(a_broken_version_beside_one_that_serves_is_named)
{
    add(1, VX_INSTANCE_READY, "");
    add(2, VX_INSTANCE_LOADING, "");
    add(3, VX_INSTANCE_UNAVAILABLE, "half a file");
    ck_assert_str_eq(
        ask("/v2/health/ready"),
        "{\"ready\":true,\"not_updated\":["
        "{\"name\":\"m\",\"version\":\"2\",\"why\":\"model 'm' version 2 is loading\"},"
        "{\"name\":\"m\",\"version\":\"3\",\"why\":\"model 'm' version 3 cannot be "
        "served: half a file\"}],\"note\":\"model 'm' version 3 cannot be served: half a "
        "file\"}\n");
    expect_gauges(1, 1, 1);
    expect_gauges(2, 0, 0);
    expect_gauges(3, 0, 0);
}
END_TEST

/* A model of which nothing serves is in the other list, and only there. */
START_TEST(a_model_of_which_nothing_serves_is_not_ready)
{
    add(3, VX_INSTANCE_UNAVAILABLE, "half a file");
    ask("/v2/health/ready");
    ck_assert_ptr_nonnull(
        strstr(body, "\"not_ready\":[{\"name\":\"m\",\"version\":\"3\""));
    ck_assert_ptr_null(strstr(body, "not_updated"));
    expect_gauges(3, 0, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("missed");
    TCase *tests = tcase_create("missed");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_model_that_serves_what_is_there_needs_no_words);
    tcase_add_loop_test(tests, changed_files_that_fail_are_named, 0, 2);
    tcase_add_test(tests, changed_files_that_load_are_named);
    tcase_add_test(tests, a_broken_version_beside_one_that_serves_is_named);
    tcase_add_test(tests, a_model_of_which_nothing_serves_is_not_ready);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
