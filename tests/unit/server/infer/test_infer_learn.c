/* infer_run: what the scheduler learns of a batch in which something failed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/infer/infer_rig.h"

#include <check.h>
#include <stdlib.h>

static struct vx_infer *const infer = &rig.infer;

/* Only this worker serves the model. */
static void only(i32 worker)
{
    for (i32 w = 0; w < RIG_WORKERS; w++)
        vx_sched_instance_ready(infer->sched, 0, w, w == worker);
}

/* Of two items the first runs well, 100 pairs in 1 us; the second's code, whether it ran, its pairs
 * (0: it failed before they were known), what it says that it took, and what the first says, and
 * both together took; the time that is then expected of 100 pairs, and whether anything is. */
static const struct {
    enum vx_code code;
    bool ran;
    i64 pairs, says_ns, other_says_ns, device_ns, expected_ns;
} learn_rows[] = {
    {VX_CODE_OK, true, 100, 1000, 1000, 2000, 1500}, /* half of it is the batch's own */
    /* What it took is taken off where each item has its own time. */
    {VX_CODE_INVALID_ARGUMENT, true, 0, 8000, 1000, 9000, 1000},
    {VX_CODE_INVALID_ARGUMENT, true, 0, 9000, 9000, 9000, 9000},
    /* It ran, and found no room for its answer. */
    {VX_CODE_RESOURCE_EXHAUSTED, true, 100, 1000, 1000, 2000, 1500},
    {VX_CODE_INVALID_ARGUMENT, false, 100, 0, 1000, 1000, 1000},
    {VX_CODE_OK, true, 0, 0, 1000, 1000, 1000},
};

static i64 expected_of_100_pairs(void)
{
    const struct vx_job job = {.voxels = 10, .pairs = 100};
    return vx_sched_expected_wait_ns(infer->sched, &job, vx_clock_ns());
}

/* Runs two requests, with these pairs and times, in one batch. */
static void run_two(i32 row, i32 turn)
{
    vx_infer_on_call(infer, rig_call(0, 10));
    vx_infer_on_call(infer, rig_call(1, 10));
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, turn + 1);
    ck_assert_int_eq(rig.runs[turn].run.items_count, 2);
    rig_done(&rig.runs[turn]);
    rig_said.device_ns = learn_rows[row].device_ns;
    for (i32 i = 0; i < 2; i++) {
        struct vx_done_item *item = &rig_said.items[i];
        item->convert_ns = item->geometry_ns = item->output_ns = 0;
        item->compute_ns = i ? learn_rows[row].says_ns : learn_rows[row].other_says_ns;
        item->pairs = i ? learn_rows[row].pairs : 100;
    }
    rig_said.items[1].code = (i32)learn_rows[row].code;
    rig_said.items[1].ran = learn_rows[row].ran;
}

START_TEST(of_a_batch_with_a_failure_the_others_are_learned)
{
    only(0);
    for (i32 turn = 0; turn < 4; turn++) {
        run_two(_i, turn);
        rig_end(&rig.runs[turn]);
    }
    ck_assert_int_eq(expected_of_100_pairs(), learn_rows[_i].expected_ns);
}
END_TEST

/* A batch in which nothing ran well says nothing, however long it took. */
START_TEST(nothing_is_learned_from_what_failed)
{
    only(0);
    for (i32 turn = 0; turn < 4; turn++) {
        run_two(1, turn);
        rig_said.items[0] = rig_said.items[1];
        rig_end(&rig.runs[turn]);
    }
    ck_assert_int_eq(expected_of_100_pairs(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer_learn");
    TCase *tests = tcase_create("infer_learn");
    tcase_add_checked_fixture(tests, rig_set_up, rig_tear_down);
    tcase_add_test(tests, nothing_is_learned_from_what_failed);
    tcase_add_loop_test(tests, of_a_batch_with_a_failure_the_others_are_learned, 0,
                        (int)VX_COUNT(learn_rows));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
