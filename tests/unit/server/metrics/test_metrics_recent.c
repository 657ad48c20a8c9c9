/* metrics: the points of the last ten minutes; failures: a row for each reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "server/metrics/metrics.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct vx_metrics *metrics;
static struct vx_failure rows[VX_FAILURES_MAX];

/* ------- points ------- */

static void end_request(enum vx_code code, i64 total_ms)
{
    vx_metrics_observe_request(
        metrics,
        &(struct vx_metrics_request){.code = code, .total_ns = total_ms * VX_NS_PER_MS});
}

static void end_batch(i64 voxels)
{
    vx_metrics_observe_batch(metrics, &(struct vx_metrics_batch){.requests = 1,
                                                                 .voxels = voxels,
                                                                 .set_voxels = voxels,
                                                                 .voxels_max = 1000});
}

START_TEST(a_point_is_what_happened_in_its_time)
{
    i64 now = metrics->track.began_ns;
    ck_assert_int_eq(vx_metrics_points(metrics), 0);
    for (int i = 0; i < 10; i++) end_request(VX_CODE_OK, 15);
    end_request(VX_CODE_NOT_FOUND, 0);
    end_batch(250);
    end_batch(750);
    vx_metrics_step(metrics, 7, now + VX_METRICS_POINT_NS / 2);
    ck_assert_int_eq(vx_metrics_points(metrics), 0);
    vx_metrics_step(metrics, 3, now + VX_METRICS_POINT_NS + 5);
    ck_assert_int_eq(vx_metrics_points(metrics), 1);
    const struct vx_metrics_point *point = vx_metrics_point(metrics, 0);
    ck_assert_int_eq(point->span_ns, VX_METRICS_POINT_NS + 5);
    ck_assert_uint_eq(point->answered, 10);
    ck_assert_uint_eq(point->failed, 1);
    ck_assert_uint_eq(point->p50_ns / 1000000, 15);
    ck_assert_uint_eq(point->p99_ns / 1000000, 20);
    ck_assert_uint_eq(point->batches, 2);
    ck_assert_uint_eq(point->fill, 500000000);
    ck_assert_int_eq(point->queued_max, 7);
    /* The next one begins with nothing. */
    end_request(VX_CODE_OK, 1);
    vx_metrics_step(metrics, 0, now + 3 * VX_METRICS_POINT_NS);
    point = vx_metrics_point(metrics, 1);
    ck_assert_uint_eq(point->answered, 1);
    ck_assert_uint_eq(point->failed + point->batches + point->fill, 0);
    ck_assert_int_eq(point->queued_max, 0);
}
END_TEST

START_TEST(the_oldest_points_are_forgotten)
{
    i64 now = metrics->track.began_ns;
    for (i32 i = 1; i <= VX_METRICS_POINTS + 30; i++) {
        for (i32 k = 0; k < i; k++) end_request(VX_CODE_OK, 1);
        vx_metrics_step(metrics, 0, now + i * VX_METRICS_POINT_NS);
    }
    ck_assert_int_eq(vx_metrics_points(metrics), VX_METRICS_POINTS);
    for (i32 i = 0; i < VX_METRICS_POINTS; i++)
        ck_assert_uint_eq(vx_metrics_point(metrics, i)->answered, (u64)i + 31);
}
END_TEST

/* ------- failures ------- */

static void note(enum vx_code code, const char *model, const char *text)
{
    struct vx_failure failure = {.code = code, .method = "/s/M"};
    snprintf(failure.model, sizeof failure.model, "%s", model);
    snprintf(failure.text, sizeof failure.text, "%s", text);
    vx_failures_note(&metrics->failures, &failure);
}

START_TEST(a_reason_has_one_row)
{
    ck_assert_int_eq(vx_failures_list(&metrics->failures, rows), 0);
    note(VX_CODE_INVALID_ARGUMENT, "a", "expected 4, got 3");
    note(VX_CODE_NOT_FOUND, "b", "unknown model");
    note(VX_CODE_INVALID_ARGUMENT, "a", "expected 16, got -2.5");
    note(VX_CODE_INVALID_ARGUMENT, "a1", "expected 4, got 3");
    note(VX_CODE_UNAVAILABLE, "a", "expected 4, got 3");
    ck_assert_int_eq(vx_failures_list(&metrics->failures, rows), 4);
    ck_assert_int_eq(rows[0].code, VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(rows[1].model, "a1");
    /* The row of the first: its count, and the sentence that came last. */
    ck_assert_str_eq(rows[2].text, "expected 16, got -2.5");
    ck_assert_uint_eq(rows[2].count, 2);
    ck_assert_uint_eq(rows[2].id, 1);
    ck_assert_int_le(rows[2].first_ms, rows[2].last_ms);
    ck_assert_str_eq(rows[3].model, "b");
    ck_assert_uint_eq(rows[3].count, 1);
}
END_TEST

START_TEST(a_flood_of_one_kind_does_not_hide_the_others)
{
    note(VX_CODE_INTERNAL, "a", "a fault of our own");
    note(VX_CODE_UNAVAILABLE, "a", "the queue is full");
    char model[16] = "";
    for (int i = 0; i < 1000; i++) {
        snprintf(model, sizeof model, "absent-%d", i);
        note(VX_CODE_NOT_FOUND, model, "unknown model");
    }
    ck_assert_int_eq(vx_failures_list(&metrics->failures, rows), VX_FAILURES_MAX);
    ck_assert_str_eq(rows[0].model, "absent-999");
    ck_assert_str_eq(rows[VX_FAILURES_MAX - 3].model, "absent-970");
    ck_assert_int_eq(rows[VX_FAILURES_MAX - 2].code, VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(rows[VX_FAILURES_MAX - 1].code, VX_CODE_INTERNAL);
}
END_TEST

/* Whatever names a client makes up, with quotes in them too, its refusals are one row. */
START_TEST(names_make_no_rows)
{
    static const char *const names[] = {"a", "9f3a...", "the b'c", "d' e'f 'g", "'", ""};
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        struct vx_failure failure = {
            .code = VX_CODE_NOT_FOUND, .method = "/s/M", .no_model = true};
        snprintf(failure.model, sizeof failure.model, "%s", names[i]);
        snprintf(failure.text, sizeof failure.text,
                 "the server's list has no '%s', nor '%s' of it", names[i], names[i]);
        vx_failures_note(&metrics->failures, &failure);
    }
    ck_assert_int_eq(vx_failures_list(&metrics->failures, rows), 1);
    ck_assert_uint_eq(rows[0].count, VX_COUNT(names));
    ck_assert_ptr_nonnull(strstr(rows[0].text, "list has no '', nor")); /* the last */
    note(VX_CODE_NOT_FOUND, "", "the server's list has no 'a', or not any more");
    ck_assert_int_eq(vx_failures_list(&metrics->failures, rows), 2);
}
END_TEST

static void *note_many(void *context)
{
    for (int i = 0; i < 2000; i++) note(VX_CODE_NOT_FOUND, context, "unknown model");
    return NULL;
}

START_TEST(any_thread_may_note)
{
    static char names[3][2] = {"a", "b", "c"};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        ck_assert(!pthread_create(&threads[i], NULL, note_many, names[i]));
    for (int i = 0; i < 3; i++) ck_assert(!pthread_join(threads[i], NULL));
    ck_assert_int_eq(vx_failures_list(&metrics->failures, rows), 3);
    for (int i = 0; i < 3; i++) ck_assert_uint_eq(rows[i].count, 2000);
}
END_TEST

static void setup(void)
{
    vx_thread_enter(VX_ROLE_LOOP);
    ck_assert(!vx_metrics_open(&metrics).fault);
}

static void teardown(void)
{
    vx_metrics_close(&metrics);
}

int main(void)
{
    Suite *suite = suite_create("metrics_recent");
    TCase *tests = tcase_create("metrics_recent");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_point_is_what_happened_in_its_time);
    tcase_add_test(tests, the_oldest_points_are_forgotten);
    tcase_add_test(tests, a_reason_has_one_row);
    tcase_add_test(tests, a_flood_of_one_kind_does_not_hide_the_others);
    tcase_add_test(tests, names_make_no_rows);
    tcase_add_test(tests, any_thread_may_note);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
