/* Jobs whose memory only some workers have: they run nowhere else, wait for those workers
 * that are down, and block no other job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

/* More of them than a pick examines. */
#define BOUND 400

static const struct vx_batching one = {.voxels_max = 100000, .requests_max = 1};
static const struct vx_batching many = {.voxels_max = 1000000, .requests_max = 64};

static void worker_down(struct vx_sched *sched, i32 worker)
{
    vx_sched_worker_down(sched, worker, rig_no_job, NULL);
    vx_sched_holder_gone(sched, worker, rig_no_job, NULL);
}

static void worker_up(struct vx_sched *sched, i32 worker)
{
    vx_sched_worker_up(sched, worker);
    vx_sched_instance_ready(sched, 0, worker, true);
}

static struct vx_job bound_job(i64 voxels, u32 only)
{
    struct vx_job job = rig_job(voxels);
    job.only = only;
    return job;
}

/* The workers that a job may use, those that are up, and where it runs; -1 = waits. */
static const struct {
    u32 only, up, holders;
    bool must_hold;
    i32 worker;
} rows[] = {
    {0, 7, 0, false, 0},         {1, 7, 0, false, 0}, {2, 7, 0, false, 1},
    {4, 7, 0, false, 2},         {6, 7, 0, false, 1}, {6, 5, 0, false, 2},
    {2, 5, 0, false, -1},        {2, 7, 1, false, 1}, /* the job may not use the holder */
    {6, 7, 4, false, 2},         {6, 7, 4, true, 2},  {2, 5, 2, true, -1},
    {1u << 15, 7, 0, false, -1},
};

START_TEST(a_job_goes_where_its_memory_is)
{
    struct vx_sched *sched = rig_open(&one, 0);
    for (i32 w = 0; w < 3; w++)
        if (rows[_i].up & (1u << w)) worker_up(sched, w);
    struct vx_job job = bound_job(10, rows[_i].only);
    job.holders = rows[_i].holders;
    job.must_hold = rows[_i].must_hold;
    struct vx_batch_plan plan = {.worker = -1};
    rig_submit(sched, &job, 0);
    bool goes = vx_sched_pick(sched, 0, &plan);
    ck_assert_msg((goes ? plan.worker : -1) == rows[_i].worker, "row %d: worker %d", _i,
                  goes ? plan.worker : -1);
    rig_close(&sched);
}
END_TEST

START_TEST(it_waits_for_a_worker_that_is_down_and_runs_when_it_is_back)
{
    struct vx_sched *sched = rig_open(&one, 2);
    struct vx_batch_plan plan;
    worker_down(sched, 1);
    struct vx_job job = bound_job(10, 2), late = bound_job(10, 2);
    rig_submit(sched, &job, 0);
    late.deadline_ns = 5 * MS;
    rig_submit(sched, &late, 0);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    ck_assert(vx_sched_next_ns(sched) == 5 * MS);
    int expired = 0;
    vx_sched_expire(sched, 5 * MS, rig_count_job, &expired);
    ck_assert_int_eq(expired, 1);
    ck_assert(!vx_sched_pick(sched, 9 * MS, &plan));
    worker_up(sched, 1);
    rig_pick(sched, 10 * MS, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &job);
    ck_assert_int_eq(plan.worker, 1);
    rig_close(&sched);
}
END_TEST

static struct vx_job crowd[BOUND];

static void crowd_submit(struct vx_sched *sched, u32 only)
{
    for (i32 i = 0; i < BOUND; i++) {
        crowd[i] = bound_job(1000, only);
        rig_submit(sched, &crowd[i], 0);
    }
}

START_TEST(those_that_wait_for_a_dead_worker_hold_up_nobody)
{
    struct vx_sched *sched = rig_open(_i ? &many : &one, 2);
    struct vx_batch_plan plan;
    worker_down(sched, 1);
    struct vx_job first = rig_job(10), other = rig_job(10);
    if (_i) rig_submit(sched, &first, 0); /* it begins the batch that the other joins */
    crowd_submit(sched, 2);
    rig_submit(sched, &other, 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 0);
    ck_assert_int_eq(plan.jobs_count, 1 + _i);
    ck_assert_ptr_eq(plan.jobs[_i], &other);
    rig_finish(sched, &plan, MS);
    ck_assert(!vx_sched_pick(sched, MS, &plan));
    ck_assert_int_eq(vx_sched_queued(sched), BOUND);
    worker_up(sched, 1);
    rig_pick(sched, 2 * MS, &plan);
    ck_assert_int_eq(plan.worker, 1);
    ck_assert_ptr_eq(plan.jobs[0], &crowd[0]);
    ck_assert_int_eq(plan.jobs_count, _i ? 64 : 1);
    rig_close(&sched);
}
END_TEST

/* A job's wait is predicted from the jobs before it on its own workers. */
/* Those that name a geometry which only a busy worker holds hold up nobody either, however many
 * they are; also at VX_SCHED_LOOK_MAX, and on both sides of it. */
static const i32 named[] = {0, 255, 256, 257, 400};

START_TEST(those_that_wait_for_a_busy_holder_hold_up_nobody)
{
    struct vx_sched *sched = rig_open(&one, 0);
    static struct vx_job jobs[BOUND + 2];
    struct vx_batch_plan plan;
    worker_up(sched, 0);
    worker_up(sched, 1);
    for (i32 i = 0; i < named[_i] + 2; i++) {
        jobs[i] = rig_job(1);
        jobs[i].must_hold = true;
        jobs[i].holders = 1;
        rig_submit(sched, &jobs[i], 0);
    }
    i32 begun = 0; /* as many as a worker takes at once */
    for (; begun < 2 && vx_sched_pick(sched, 0, &plan); begun++)
        ck_assert_int_eq(plan.worker, 0);
    ck_assert_int_eq(begun, 2);
    struct vx_job other = rig_job(50000); /* its turn is behind all of theirs */
    other.client = other.origin = 2;
    rig_submit(sched, &other, 0);
    ck_assert(vx_sched_pick(sched, 0, &plan));
    ck_assert_int_eq(plan.worker, 1);
    ck_assert_ptr_eq(plan.jobs[0], &other);
    rig_close(&sched);
}
END_TEST

START_TEST(a_wait_is_that_for_its_own_workers)
{
    struct vx_sched *sched = rig_open(&one, 2);
    for (i32 w = 0; w < 2; w++)
        rig_teach(sched, &one, 3, &(struct rig_device){.worker = w, .fixed_ns = MS});
    crowd_submit(sched, 2);
    struct vx_job anywhere = rig_job(1000), there = bound_job(1000, 2),
                  here = bound_job(1000, 1);
    i64 free_ms = vx_sched_expected_wait_ns(sched, &anywhere, 0) / MS,
        there_ms = vx_sched_expected_wait_ns(sched, &there, 0) / MS,
        here_ms = vx_sched_expected_wait_ns(sched, &here, 0) / MS;
    ck_assert_msg(here_ms <= 2, "%lld ms before an idle worker", (long long)here_ms);
    ck_assert_msg(there_ms >= BOUND * 3 / 4, "%lld ms behind them", (long long)there_ms);
    ck_assert(free_ms <= there_ms);
    /* No other job is refused because of jobs that wait for a dead worker. */
    worker_down(sched, 1);
    anywhere.deadline_ns = here.deadline_ns = 20 * MS;
    rig_submit(sched, &anywhere, 0);
    rig_submit(sched, &here, 0);
    /* A bound job shares its worker with jobs that are not bound. */
    struct vx_job loose[40];
    for (i32 i = 0; i < 40; i++) {
        loose[i] = rig_job(1000);
        rig_submit(sched, &loose[i], 0);
    }
    worker_up(sched, 1);
    struct vx_job next = bound_job(1000, 1);
    i64 next_ms = vx_sched_expected_wait_ns(sched, &next, 0) / MS;
    ck_assert_msg(next_ms >= 15 && next_ms <= 30, "%lld ms", (long long)next_ms);
    rig_close(&sched);
}
END_TEST

START_TEST(who_waits_in_vain_is_handed_out)
{
    struct vx_sched *sched = rig_open(&one, 2);
    struct vx_batch_plan plan;
    struct vx_job died = bound_job(10, 2), bound = bound_job(10, 2),
                  two = bound_job(10, 3), loose = rig_job(10),
                  elsewhere = bound_job(10, 2);
    vx_sched_instance_set(sched, 1, &one, true);
    elsewhere.instance = 1;
    rig_submit(sched, &died, 0);
    rig_pick(sched, 0, &plan);
    worker_down(sched, 1);
    rig_submit(sched, &bound, 0);
    rig_submit(sched, &two, 0);
    rig_submit(sched, &loose, 0);
    rig_submit(sched, &elsewhere, 0);
    int lost = 0;
    vx_sched_only_gone(sched, 0, 3, rig_no_job, NULL);
    vx_sched_only_gone(sched, 0, 1, rig_count_job, &lost);
    ck_assert_int_eq(lost, 2);
    ck_assert(died.state == VX_JOB_NEW && bound.state == VX_JOB_NEW);
    ck_assert_int_eq(vx_sched_queued(sched), 3);
    ck_assert_int_eq(vx_sched_instance_jobs(sched, 0), 2);
    rig_close(&sched);
}
END_TEST

START_TEST(it_is_tried_again_alone_where_its_memory_is)
{
    struct vx_sched *sched = rig_open(&one, 2);
    struct vx_batch_plan plan;
    struct vx_job job = bound_job(10, 2), other = rig_job(10);
    rig_submit(sched, &job, 0);
    rig_pick(sched, 0, &plan);
    worker_down(sched, 1);
    ck_assert_int_eq(job.deaths, 1);
    ck_assert(!vx_sched_pick(sched, MS, &plan));
    rig_submit(sched, &other, MS);
    rig_pick(sched, MS, &plan); /* it keeps no other worker empty for itself */
    ck_assert_ptr_eq(plan.jobs[0], &other);
    rig_finish(sched, &plan, 2 * MS);
    worker_up(sched, 1);
    rig_pick(sched, 2 * MS, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &job);
    ck_assert_int_eq(plan.worker, 1);
    rig_finish(sched, &plan, 3 * MS);
    rig_close(&sched);
}
END_TEST

static enum vx_code submit_within(struct vx_sched *sched, struct vx_job *job, i64 now_ns)
{
    *job = rig_job(100);
    job->deadline_ns = now_ns + 1000 * MS;
    return vx_status_code(vx_sched_submit(sched, job, now_ns, NULL, NULL));
}

static void run(struct vx_sched *sched, i64 now_ns)
{
    struct vx_batch_plan plan;
    rig_pick(sched, now_ns, &plan);
    const struct vx_batch_end end = {.worker = plan.worker,
                                     .batch = plan.batch,
                                     .now_ns = now_ns + 200 * MS,
                                     .device_ns = 200 * MS,
                                     .pairs = 100};
    ck_assert(vx_sched_finish(sched, &end, &plan));
}

/* The device was slow and every request has a deadline: one is tried each second, until the
 * prediction is right again. */
START_TEST(an_idle_device_is_tried_again)
{
    static const struct vx_batching batching = {.voxels_max = 100000, .requests_max = 1};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job job, other;
    rig_teach(sched, &batching, 1, &(struct rig_device){.fixed_ns = 4000 * MS});
    ck_assert_int_eq(submit_within(sched, &job, 999 * MS), VX_CODE_DEADLINE_EXCEEDED);
    ck_assert_int_eq(submit_within(sched, &job, 1000 * MS), VX_CODE_OK);
    /* Another job would wait for that one. */
    ck_assert_int_eq(submit_within(sched, &other, 1000 * MS), VX_CODE_DEADLINE_EXCEEDED);
    run(sched, 1000 * MS);
    ck_assert_int_eq(submit_within(sched, &job, 2199 * MS), VX_CODE_DEADLINE_EXCEEDED);
    ck_assert_int_eq(submit_within(sched, &job, 2200 * MS), VX_CODE_OK);
    run(sched, 2200 * MS);
    for (i64 now_ns = 2400 * MS; now_ns < 5000 * MS; now_ns += 200 * MS) {
        ck_assert_int_eq(submit_within(sched, &job, now_ns), VX_CODE_OK);
        run(sched, now_ns);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(a_full_queue_is_known_as_such)
{
    struct vx_sched *sched = rig_open(&one, 1);
    struct vx_job *jobs = calloc(RIG_QUEUE_MAX, sizeof *jobs), more = rig_job(1);
    for (i32 i = 0; i < RIG_QUEUE_MAX; i++) {
        jobs[i] = rig_job(1);
        ck_assert(!vx_sched_is_full(sched, &jobs[i]));
        rig_submit(sched, &jobs[i], 0);
    }
    struct vx_why why = {""};
    ck_assert(vx_sched_is_full(sched, &more));
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &more, 0, NULL, &why)),
                     VX_CODE_UNAVAILABLE);
    ck_assert(vx_sched_cancel(sched, &jobs[3]));
    ck_assert(!vx_sched_is_full(sched, &more));
    rig_close(&sched);
    free(jobs);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_only");
    TCase *only = tcase_create("only");
    tcase_add_loop_test(only, a_job_goes_where_its_memory_is, 0, (int)VX_COUNT(rows));
    tcase_add_test(only, it_waits_for_a_worker_that_is_down_and_runs_when_it_is_back);
    tcase_add_loop_test(only, those_that_wait_for_a_dead_worker_hold_up_nobody, 0, 2);
    tcase_add_loop_test(only, those_that_wait_for_a_busy_holder_hold_up_nobody, 0,
                        (int)VX_COUNT(named));
    tcase_add_test(only, a_wait_is_that_for_its_own_workers);
    tcase_add_test(only, it_is_tried_again_alone_where_its_memory_is);
    tcase_add_test(only, who_waits_in_vain_is_handed_out);
    tcase_add_test(only, a_full_queue_is_known_as_such);
    tcase_add_test(only, an_idle_device_is_tried_again);
    suite_add_tcase(suite, only);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
