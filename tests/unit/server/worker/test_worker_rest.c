/* The rest between two steps of a warm-up: in proportion to the step while requests run, or ran
 * lately, and none when nobody sends any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/worker/worker_private.h"

#include <check.h>
#include <stdlib.h>

#define MS VX_NS_PER_MS
#define S  VX_NS_PER_S

/* A step of 40 ms has ended at 100 s; a batch ended at `served`. */
static const struct {
    i64 served, now;
    bool busy;
    i64 rest;
} rows[] = {
    {99 * S, 100 * S, true, 120 * MS},           /* three times as long */
    {99 * S, 100 * S, false, 120 * MS},          /* the device is idle for a moment */
    {99 * S, 100 * S + 119 * MS, false, 1 * MS}, /* and so it waits */
    {99 * S, 100 * S + 120 * MS, false, 0},      /* the rest is over */
    {99 * S, 100 * S + 500 * MS, true, 0},       /* the busiest device lets it end */
    {97 * S, 100 * S, false, 0},                 /* nobody sends anything */
    {97 * S + 50 * MS, 100 * S, false, 50 * MS}, /* or soon nobody does */
    {97 * S, 100 * S, true, 120 * MS},           /* one batch runs for long */
    {0, 100 * S, false, 0},                      /* no batch yet */
};

START_TEST(a_step_waits_for_its_rest_while_requests_come)
{
    static struct vx_worker worker;
    worker.piece_ns = 40 * MS;
    worker.piece_ended = 100 * S;
    worker.served_ns = rows[_i].served;
    ck_assert_int_eq(vx_worker_warm_rest_ns(&worker, rows[_i].busy, rows[_i].now),
                     rows[_i].rest);
}
END_TEST

/* Longer silence than a step's own time would count as a hang. */
START_TEST(the_longest_rest_is_three_seconds)
{
    static struct vx_worker worker;
    worker.piece_ns = 60 * S;
    worker.piece_ended = worker.served_ns = 100 * S;
    for (int busy = 0; busy < 2; busy++)
        ck_assert_int_eq(vx_worker_warm_rest_ns(&worker, busy, 100 * S), 3 * S);
}
END_TEST

START_TEST(the_first_step_does_not_wait)
{
    static struct vx_worker worker;
    worker.served_ns = 100 * S;
    for (int busy = 0; busy < 2; busy++)
        ck_assert_int_eq(vx_worker_warm_rest_ns(&worker, busy, 100 * S), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worker_rest");
    TCase *tcase = tcase_create("worker_rest");
    tcase_add_loop_test(tcase, a_step_waits_for_its_rest_while_requests_come, 0,
                        VX_COUNT(rows));
    tcase_add_test(tcase, the_longest_rest_is_three_seconds);
    tcase_add_test(tcase, the_first_step_does_not_wait);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
