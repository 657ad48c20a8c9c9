/* What is known of a job only when it runs: the bytes of its outputs, and what they cost its client; the
 * voxels that its features make.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/sched_private.h"
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

static const struct vx_batching one_by_one = {.voxels_max = 1000000, .requests_max = 1};

#define LARGE (200 << 20) /* bytes: a dense output of 512 samples */

static struct vx_sched *sched;

static void set_up(void)
{
    sched = rig_open(&one_by_one, 1);
}

static void tear_down(void)
{
    rig_close(&sched);
}

static void submit(struct vx_job *job, u64 client, i64 voxels, i64 bytes)
{
    *job = rig_job(voxels);
    job->client = client;
    job->origin = (u16)client;
    job->answer_bytes = bytes;
    rig_submit(sched, job, 0);
}

static struct vx_job *run_one(void)
{
    struct vx_batch_plan plan;
    rig_pick(sched, 0, &plan);
    rig_finish(sched, &plan, 0);
    return plan.jobs[0];
}

/* One voxel whose answer is large comes after a thousand whose answer is small. */
START_TEST(a_large_answer_is_a_large_request)
{
    struct vx_job large, small;
    submit(&large, 1, 1, LARGE);
    submit(&small, 2, 1000, 4000);
    ck_assert_ptr_eq(run_one(), &small);
    ck_assert_ptr_eq(run_one(), &large);
}
END_TEST

/* The size of a dense output is known only when its job runs: then the client's next one waits. */
START_TEST(what_is_known_late_is_paid_by_the_next)
{
    struct vx_job first, waits, again, small;
    struct vx_batch_plan plan;
    submit(&first, 1, 1, 0);
    rig_pick(sched, 0, &plan);
    submit(&waits, 3, 1000, 0);
    vx_sched_answer_grows(sched, &first, LARGE, 0);
    submit(&again, 1, 1, 0);
    submit(&small, 2, 1000, 0);
    rig_finish(sched, &plan, 0);
    ck_assert_ptr_eq(run_one(), &waits);
    ck_assert_ptr_eq(run_one(), &small);
    ck_assert_ptr_eq(run_one(), &again);
}
END_TEST

/* Charges of 1,000 voxels by jobs of origin 1 at 0 ms, when nobody waits; then one of another client of
 * origin 1 comes, and one of origin 2 behind it. */
static const struct {
    i32 jobs;
    i64 comes_ms, other_voxels;
    i64 fewer; /* that another job of origin 1 has made less than expected, at 0 ms */
    bool elsewhere; /* another origin has its number by now */
    bool other_first;
} charges[] = {
    {1, 0, 900, 0, false, true},
    {1, 0, 1100, 0, false, false},
    {1, 50, 400, 0, false, true},
    {1, 50, 600, 0, false, false}, /* half of it is left */
    {1, 100, 1, 0, false, false},
    {2, 0, 1900, 0, false, true},
    {2, 100, 900, 0, false, true},
    {2, 200, 1, 0, false, false},
    {1, 0, 400, 500, false, true},
    {1, 0, 600, 500, false, false},
    {1, 0, 1, 5000, false, false},
    {1, 25, 200, 500, false, true},
    {1, 25, 300, 500, false, false},
    {1, 0, 1, 0, true, false},
};

static struct vx_job job_from(u64 client, u64 source, i64 voxels)
{
    struct vx_job job = rig_job(voxels);
    job.client = client;
    job.origin = (u16)source;
    job.source = source;
    return job;
}

/* Neither a closed loop, whose queue is empty when a batch ends, nor a new connection forgets it. */
START_TEST(what_was_made_beyond_is_paid_by_the_origin)
{
    const i64 now_ns = charges[_i].comes_ms * VX_NS_PER_MS;
    struct vx_job first = job_from(1, 1, 1), again = job_from(7, 1, 1);
    struct vx_job other = job_from(2, 2, charges[_i].other_voxels);
    struct vx_batch_plan plan;
    rig_submit(sched, &first, 0);
    rig_pick(sched, 0, &plan);
    rig_finish(sched, &plan, 0);
    for (i32 i = 0; i < charges[_i].jobs; i++)
        vx_sched_charge(sched, &first, 1000, 100 * VX_NS_PER_MS, 0);
    if (charges[_i].fewer) vx_sched_charge(sched, &first, -charges[_i].fewer, 0, 0);
    if (charges[_i].elsewhere) again.source = 77;
    rig_submit(sched, &again, now_ns);
    rig_submit(sched, &other, now_ns);
    rig_pick(sched, now_ns, &plan);
    ck_assert_ptr_eq(plan.jobs[0], charges[_i].other_first ? &other : &again);
    rig_finish(sched, &plan, now_ns);
    run_one();
}
END_TEST

/* Of two workers one is the others' meanwhile: half of the time. */
START_TEST(time_is_a_part_of_all_devices)
{
    struct vx_job first = job_from(1, 1, 1);
    vx_sched_worker_up(sched, 1);
    vx_sched_instance_ready(sched, 0, 1, true);
    vx_sched_charge(sched, &first, 1000, 100 * VX_NS_PER_MS, 0);
    ck_assert_uint_eq(vx_sched_owes(sched, &first, 25 * VX_NS_PER_MS), 500);
    ck_assert_uint_eq(vx_sched_owes(sched, &first, 50 * VX_NS_PER_MS), 0);
}
END_TEST

/* Time that is not known charges nothing, and what was charged long ago adds nothing. */
START_TEST(one_that_is_not_charged_owes_nothing)
{
    struct vx_job first = job_from(1, 1, 1);
    vx_sched_charge(sched, &first, 1000000, 0, 0);
    vx_sched_charge(sched, &first, 0, VX_NS_PER_S, 0);
    vx_sched_charge(sched, &first, -10, VX_NS_PER_S, 0);
    ck_assert_uint_eq(vx_sched_owes(sched, &first, 0), 0);
    vx_sched_charge(sched, &first, 1000000, 1, 0);
    vx_sched_charge(sched, &first, 10, VX_NS_PER_S, 1);
    ck_assert_uint_eq(vx_sched_owes(sched, &first, 1), 10);
}
END_TEST

/* What it takes is time in which those who wait could have had the device: who comes now has no
 * earlier turn than who came before. */
START_TEST(time_goes_on_meanwhile)
{
    struct vx_job first, waits, late;
    struct vx_batch_plan plan;
    submit(&first, 1, 1, 0);
    rig_pick(sched, 0, &plan);
    submit(&waits, 3, 1000, 0);
    vx_sched_answer_grows(sched, &first, LARGE, 0);
    submit(&late, 4, 1, 0);
    ck_assert_uint_ge(late.turn,
                      LARGE / VX_SCHED_VOXEL_BYTES / 2); /* shared by two origins */
    rig_finish(sched, &plan, 0);
    ck_assert_ptr_eq(run_one(), &waits);
    ck_assert_ptr_eq(run_one(), &late);
}
END_TEST

/* While nobody waits nothing is owed, as with voxels. */
START_TEST(while_nobody_waits_nothing_is_owed)
{
    struct vx_job first, again, other;
    struct vx_batch_plan plan;
    submit(&first, 1, 1, 0);
    rig_pick(sched, 0, &plan);
    vx_sched_answer_grows(sched, &first, LARGE, 0);
    rig_finish(sched, &plan, 0);
    submit(&again, 1, 1, 0);
    submit(&other, 2, 1000, 0);
    ck_assert_ptr_eq(run_one(), &again);
    ck_assert_ptr_eq(run_one(), &other);
}
END_TEST

/* The same batch again and again, 27 pairs in 1 ms, the last time with a large answer of 200 ms. */
static void run_many(i64 unforeseen)
{
    for (i32 i = 0; i < 12; i++) {
        struct vx_job job;
        struct vx_batch_plan plan;
        const i64 large_ns = i == 11 ? 200 * MS : 0;
        submit(&job, 1, 1, 0);
        rig_pick(sched, i * VX_NS_PER_S, &plan);
        if (i == 11) vx_sched_answer_grows(sched, &job, LARGE, unforeseen);
        ck_assert(vx_sched_finish(sched,
                                  &(struct vx_batch_end){.worker = plan.worker,
                                                         .batch = plan.batch,
                                                         .now_ns = i * VX_NS_PER_S,
                                                         .device_ns = MS + large_ns,
                                                         .output_ns = large_ns,
                                                         .pairs = 27,
                                                         .set_voxels = 1},
                                  &plan));
    }
}

static i64 expected(i64 now_ns)
{
    struct vx_job job = rig_job(1);
    job.client = 9;
    job.asks = true; /* else it runs beside what takes long */
    job.pairs = 27;
    return vx_sched_expected_wait_ns(sched, &job, now_ns);
}

/* Samples that a client makes up do not change what others are said to take, and a batch that has
 * them is known to take longer. */
START_TEST(what_nobody_foresees_is_predicted_when_it_is_known)
{
    run_many(_i ? LARGE : 0);
    const i64 now = 100 * VX_NS_PER_S, alone_ns = expected(now);
    if (!_i) {
        ck_assert_int_gt(alone_ns, 1100 * US); /* 1 ms, and of 4 ms a part */
        return;
    }
    ck_assert_int_ge(alone_ns, 999 * US);
    ck_assert_int_le(alone_ns, 1001 * US);
    struct vx_job job;
    struct vx_batch_plan plan;
    submit(&job, 1, 1, 0);
    rig_pick(sched, now, &plan);
    ck_assert_int_le(expected(now), 2002 * US);
    vx_sched_answer_grows(sched, &job, LARGE, LARGE / 2);
    ck_assert_int_ge(expected(now), 101 * MS);
    ck_assert_int_le(expected(now), 103 * MS);
    const struct vx_batch_end end = {.worker = plan.worker, .batch = plan.batch};
    ck_assert(vx_sched_finish(sched, &end, &plan));
    ck_assert_int_ge(plan.predicted_ns, 100 * MS);
}
END_TEST

/* Of jobs whose sizes features decide the mean says little: after one batch of 100 pairs a voxel, cheap ones
 * in any number do not make the next ones join in one batch, until two minutes have passed.  Others go by
 * the mean. */
START_TEST(the_most_that_was_seen_lately_bounds_a_batch)
{
    const struct vx_batching batching = {.voxels_max = 100000, .requests_max = 64};
    vx_sched_instance_set(sched, 0, &batching, true);
    rig_teach(sched, &batching, 1,
              &(struct rig_device){.fixed_ns = MS, .pair_ns = 10 * US});
    static struct vx_job jobs[10];
    struct vx_batch_plan plan;
    const bool asks = _i != 1, faded = _i == 2;
    for (i32 k = 0; k < 60; k++) {
        jobs[0] = rig_job(50);
        jobs[0].pairs = 0;
        rig_submit(sched, &jobs[0], 0);
        rig_pick(sched, 0, &plan);
        const i64 pairs = k ? 50 : 5000;
        const struct vx_batch_end end = {.batch = plan.batch,
                                         .now_ns = k * MS,
                                         .device_ns = MS + pairs * 10 * US,
                                         .pairs = pairs,
                                         .set_voxels = pairs};
        ck_assert(vx_sched_finish(sched, &end, &plan));
    }
    const i64 now_ns = faded ? 121 * VX_NS_PER_S : 60 * MS;
    for (i32 i = 0; i < 10; i++) {
        jobs[i] = rig_job(50);
        jobs[i].pairs = 0;
        jobs[i].asks = asks;
        rig_submit(sched, &jobs[i], now_ns);
    }
    rig_pick(sched, now_ns, &plan);
    if (asks && !faded)
        ck_assert_int_le(plan.jobs_count, 5); /* of 50 ms each */
    else
        ck_assert_int_eq(plan.jobs_count, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_answer");
    TCase *tests = tcase_create("sched_answer");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_large_answer_is_a_large_request);
    tcase_add_test(tests, what_is_known_late_is_paid_by_the_next);
    tcase_add_loop_test(tests, what_was_made_beyond_is_paid_by_the_origin, 0,
                        (int)VX_COUNT(charges));
    tcase_add_test(tests, time_is_a_part_of_all_devices);
    tcase_add_test(tests, one_that_is_not_charged_owes_nothing);
    tcase_add_test(tests, time_goes_on_meanwhile);
    tcase_add_test(tests, while_nobody_waits_nothing_is_owed);
    tcase_add_loop_test(tests, what_nobody_foresees_is_predicted_when_it_is_known, 0, 2);
    tcase_add_loop_test(tests, the_most_that_was_seen_lately_bounds_a_batch, 0, 3);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
