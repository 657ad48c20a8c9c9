/* Rows of the registry in the scheduler: any of them, and the set that records them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/instance_set.h"
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

/* The first row, the last, and those on both sides of each word boundary of the set. */
START_TEST(rows_of_any_number_are_served_in_order)
{
    static const i32 rows[] = {VX_INSTANCES_MAX - 1, 0, 63, 64, 127, 128, 200};
    struct vx_job jobs[VX_COUNT(rows)];
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 8};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_batch_plan plan;
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        vx_sched_instance_set(sched, rows[i], &batching, true);
        vx_sched_instance_ready(sched, rows[i], 0, true);
        jobs[i] = rig_job(10);
        jobs[i].instance = rows[i];
        rig_submit(sched, &jobs[i], 0);
    }
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        rig_pick(sched, 0, &plan);
        ck_assert_int_eq(plan.instance, rows[i]);
        rig_finish(sched, &plan, 0);
    }
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    rig_close(&sched);
}
END_TEST

START_TEST(a_set_of_rows_holds_what_was_put_in)
{
    struct vx_instance_set set = {{0}};
    ck_assert(!vx_instance_set_any(&set));
    for (i32 row = 0; row < VX_INSTANCES_MAX; row += 7)
        vx_instance_set_put(&set, row, true);
    i32 next = 0;
    VX_INSTANCES_EACH(row, &set)
    {
        ck_assert_int_eq(row, next);
        next += 7;
        vx_instance_set_put(&set, row, false); /* the row that the walk is at */
    }
    ck_assert_int_ge(next, VX_INSTANCES_MAX);
    ck_assert(!vx_instance_set_any(&set));
    vx_instance_set_put(&set, VX_INSTANCES_MAX - 1, true);
    ck_assert(vx_instance_set_has(&set, VX_INSTANCES_MAX - 1) &&
              !vx_instance_set_has(&set, 63));
    ck_assert_int_eq(vx_instance_set_next(&set, 64), VX_INSTANCES_MAX - 1);
    ck_assert_int_eq(vx_instance_set_next(&set, VX_INSTANCES_MAX), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched rows");
    TCase *tests = tcase_create("rows");
    tcase_add_test(tests, rows_of_any_number_are_served_in_order);
    tcase_add_test(tests, a_set_of_rows_holds_what_was_put_in);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
