/* What others get of a device between two long jobs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

static const struct vx_batching one_by_one = {.voxels_max = 1000000, .requests_max = 1};

/* A voxel takes 10 us: a job of LONG voxels 600 ms, one of MIDDLING voxels 200 ms, which is not
 * long. */
#define PAIR_NS  (10 * US)
#define LONG     60000
#define LONG_NS  (LONG * PAIR_NS)
#define MIDDLING 20000

static struct vx_sched *sched;

static void set_up(void)
{
    sched = rig_open(&one_by_one, 1);
    rig_teach(sched, &one_by_one, 1, &(struct rig_device){.pair_ns = PAIR_NS});
}

static void tear_down(void)
{
    rig_close(&sched);
}

static struct vx_job job_of(u64 client, i64 voxels)
{
    struct vx_job job = rig_job(voxels);
    job.client = client;
    job.origin = (u16)client;
    return job;
}

static void submit(struct vx_job *job, u64 client, i64 voxels, i64 now_ns)
{
    *job = job_of(client, voxels);
    rig_submit(sched, job, now_ns);
}

static void begin(struct vx_job *job, i64 now_ns, struct vx_batch_plan *plan)
{
    rig_pick(sched, now_ns, plan);
    ck_assert_ptr_eq(plan->jobs[0], job);
}

static void nothing_begins(i64 now_ns)
{
    struct vx_batch_plan plan;
    ck_assert(!vx_sched_pick(sched, now_ns, &plan));
}

/* Runs a long job of client 1 from 0 to `end_ns`, for which a short one of `waits` waits, which
 * runs behind it. */
static void run_long_one(u64 waits, i64 end_ns)
{
    static struct vx_job first, other;
    struct vx_batch_plan plan, behind;
    submit(&first, 1, LONG, 0);
    begin(&first, 0, &plan);
    submit(&other, waits, 16, 1 * MS);
    begin(&other, end_ns - 1 * MS, &behind);
    rig_finish(sched, &plan, end_ns);
    rig_finish(sched, &behind, end_ns);
}

/* As long as the long job took, no other begins there, of nobody; short ones do. */
START_TEST(a_device_rests_from_long_jobs)
{
    struct vx_job again, short_one;
    struct vx_batch_plan plan;
    run_long_one(2, LONG_NS);
    submit(&again, 1 + (u64)_i, LONG, LONG_NS);
    nothing_begins(LONG_NS);
    ck_assert_int_eq(vx_sched_next_ns(sched), 2 * LONG_NS);
    submit(&short_one, 2, 16, LONG_NS + 1 * MS);
    begin(&short_one, LONG_NS + 1 * MS, &plan);
    rig_finish(sched, &plan, LONG_NS + 2 * MS);
    nothing_begins(2 * LONG_NS - 1);
    begin(&again, 2 * LONG_NS, &plan);
    rig_finish(sched, &plan, 3 * LONG_NS);
}
END_TEST

/* What counts is how long it took, not what was predicted. */
START_TEST(a_short_run_is_no_long_one)
{
    struct vx_job first, other, again;
    struct vx_batch_plan plan;
    submit(&first, 1, LONG, 0);
    begin(&first, 0, &plan);
    submit(&other, 2, 16, 1 * MS);
    rig_finish(sched, &plan, 250 * MS + _i);
    begin(&other, 250 * MS + _i, &plan);
    rig_finish(sched, &plan, 251 * MS);
    submit(&again, 1, LONG, 251 * MS);
    ck_assert_int_eq(vx_sched_pick(sched, 251 * MS, &plan), !_i);
}
END_TEST

/* A client that waits for itself alone gets the device at once. */
START_TEST(who_is_alone_notices_nothing)
{
    struct vx_job again;
    struct vx_batch_plan plan;
    run_long_one(1, LONG_NS);
    submit(&again, 1, LONG, LONG_NS);
    begin(&again, LONG_NS, &plan);
    rig_finish(sched, &plan, 2 * LONG_NS);
}
END_TEST

/* Nor do clients that all send long jobs: the next one is sent before the first has ended. */
START_TEST(long_jobs_among_themselves_follow_each_other)
{
    struct vx_job jobs[3];
    struct vx_batch_plan plans[3];
    for (u64 i = 0; i < 3; i++) submit(&jobs[i], 1 + i, LONG, 0);
    begin(&jobs[0], 0, &plans[0]);
    begin(&jobs[1], LONG_NS - 1 * MS, &plans[1]);
    rig_finish(sched, &plans[0], LONG_NS);
    begin(&jobs[2], 2 * LONG_NS - 1 * MS, &plans[2]);
    rig_finish(sched, &plans[1], 2 * LONG_NS);
    rig_finish(sched, &plans[2], 3 * LONG_NS);
}
END_TEST

/* A short job whose client has had much is behind a long one by its turn; it still waits for one
 * long job and not for two. */
START_TEST(no_long_job_is_sent_behind_a_long_one)
{
    struct vx_job first, second, spent[4], short_one;
    struct vx_batch_plan plan, behind;
    submit(&first, 1, LONG, 0);
    begin(&first, 0, &plan);
    for (i32 i = 0; i < 4; i++) submit(&spent[i], 2, MIDDLING, 0);
    submit(&short_one, 2, MIDDLING, 0);
    submit(&second, 3, LONG, 0);
    for (i32 i = 0; i < 4; i++) ck_assert(vx_sched_cancel(sched, &spent[i]));
    ck_assert_uint_gt(short_one.turn, second.turn);
    begin(&short_one, LONG_NS - 1 * MS, &behind);
    rig_finish(sched, &plan, LONG_NS);
    nothing_begins(LONG_NS);
    rig_finish(sched, &behind, LONG_NS + 200 * MS);
    begin(&second, 2 * LONG_NS, &plan);
    rig_finish(sched, &plan, 3 * LONG_NS);
}
END_TEST

/* However many short ones wait all the time: when the rest is over it is the long one's turn. */
START_TEST(a_flood_of_short_jobs_does_not_starve_a_long_one)
{
    static struct vx_job flood[200];
    struct vx_job again;
    struct vx_batch_plan plan;
    run_long_one(2, LONG_NS);
    for (size_t i = 0; i < VX_COUNT(flood); i++) submit(&flood[i], 2, MIDDLING, LONG_NS);
    submit(&again, 1, LONG, LONG_NS);
    i32 before = 0;
    for (i64 now_ns = 2 * LONG_NS;; now_ns += 200 * MS, before++) {
        rig_pick(sched, now_ns, &plan);
        rig_finish(sched, &plan, now_ns + 200 * MS);
        if (plan.jobs[0] == &again) break;
    }
    ck_assert_int_le(before, LONG / MIDDLING + 1); /* as by turns alone */
}
END_TEST

/* A worker that ended and came back rests from nothing. */
START_TEST(a_new_worker_does_not_rest)
{
    struct vx_job again;
    struct vx_batch_plan plan;
    run_long_one(2, LONG_NS);
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    submit(&again, 1, LONG, LONG_NS);
    begin(&again, LONG_NS, &plan);
    rig_finish(sched, &plan, 2 * LONG_NS);
}
END_TEST

/* Another worker, which has run no long job, takes it. */
START_TEST(each_worker_rests_for_itself)
{
    struct vx_job again;
    struct vx_batch_plan plan;
    run_long_one(2, LONG_NS);
    vx_sched_worker_up(sched, 1);
    vx_sched_instance_ready(sched, 0, 1, true);
    rig_teach(sched, &one_by_one, 3,
              &(struct rig_device){.worker = 1, .pair_ns = PAIR_NS});
    submit(&again, 1, LONG, LONG_NS);
    begin(&again, LONG_NS, &plan);
    ck_assert_int_eq(plan.worker, 1);
    rig_finish(sched, &plan, 2 * LONG_NS);
}
END_TEST

/* A deadline that the rest does not leave time for is refused at once. */
START_TEST(a_rest_is_part_of_the_expected_wait)
{
    struct vx_why why = {""};
    run_long_one(2, LONG_NS);
    struct vx_job job = job_of(1, LONG);
    const i64 wait_ns = vx_sched_expected_wait_ns(sched, &job, LONG_NS);
    ck_assert_int_ge(wait_ns, LONG_NS + LONG_NS * 9 / 10);
    const struct vx_job short_one = job_of(2, 16);
    ck_assert_int_lt(vx_sched_expected_wait_ns(sched, &short_one, LONG_NS), LONG_NS / 2);
    job.deadline_ns = LONG_NS + LONG_NS * 5 / 4;
    const vx_status status = vx_sched_submit(sched, &job, LONG_NS, NULL, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_DEADLINE_EXCEEDED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_long");
    TCase *tests = tcase_create("sched_long");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_device_rests_from_long_jobs, 0, 3);
    tcase_add_loop_test(tests, a_short_run_is_no_long_one, 0, 2);
    tcase_add_test(tests, who_is_alone_notices_nothing);
    tcase_add_test(tests, long_jobs_among_themselves_follow_each_other);
    tcase_add_test(tests, no_long_job_is_sent_behind_a_long_one);
    tcase_add_test(tests, a_flood_of_short_jobs_does_not_starve_a_long_one);
    tcase_add_test(tests, a_new_worker_does_not_rest);
    tcase_add_test(tests, each_worker_rests_for_itself);
    tcase_add_test(tests, a_rest_is_part_of_the_expected_wait);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
