/* Which jobs wait, in which order and until when: the scheduler's queue and its policies,
 * as tables. Batches and placement are in test_sched_batch.c, everything at once in
 * test_sched_sim.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>
#include <string.h>

static const struct vx_batching one_by_one = {.voxels_max = 1000, .requests_max = 1};
/* Three levels, the second is the default, each with limits of its own. */
static const struct vx_batching levels = {
    .voxels_max = 1000,
    .requests_max = 1,
    .priority_levels = 3,
    .default_priority_level = 2,
    .policies = {[1] = {.max_queue_size = 2},
                 [2] = {.default_timeout_us = 100, .allow_timeout_override = true},
                 [3] = {.default_timeout_us = 100, .timeout_delay = true}},
};

static struct vx_job job_make(u64 priority, i64 deadline_ns)
{
    struct vx_job job = rig_job(10);
    job.priority = priority;
    job.deadline_ns = deadline_ns;
    return job;
}

START_TEST(nothing_runs_without_a_ready_worker)
{
    struct vx_sched *sched = rig_open(&one_by_one, 0);
    struct vx_job job = job_make(0, VX_NEVER);
    struct vx_batch_plan plan;
    rig_submit(sched, &job, 1);
    ck_assert(!vx_sched_pick(sched, 2, &plan));
    vx_sched_worker_up(sched, 0);
    ck_assert(!vx_sched_pick(sched, 2, &plan));
    vx_sched_instance_ready(sched, 0, 0, true);
    rig_pick(sched, 3, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &job);
    ck_assert_int_eq(plan.jobs_count, 1);
    ck_assert_int_eq(plan.voxels, 10);
    ck_assert_int_eq(plan.pairs, 10);
    ck_assert_int_eq(job.queued_ns, 1);
    ck_assert_int_eq(job.started_ns, 3);
    ck_assert_int_eq(vx_sched_running(sched), 1);
    rig_finish(sched, &plan, 4);
    ck_assert_int_eq(vx_sched_instance_jobs(sched, 0), 0);
    rig_close(&sched);
}
END_TEST

START_TEST(order_is_priority_then_arrival)
{
    struct vx_batching batching = one_by_one;
    batching.priority_levels = VX_PRIORITY_LEVELS_MAX;
    batching.default_priority_level = 5;
    struct vx_sched *sched = rig_open(&batching, 0);
    static const u64 priorities[] = {0, 2, 1, 2, 8, UINT64_MAX, 7, 8, 0, 9};
    static const int served[] = {2, 1, 3, 0, 5, 8, 9, 6, 4, 7};
    struct vx_job jobs[VX_COUNT(priorities)];
    for (size_t i = 0; i < VX_COUNT(priorities); i++) {
        jobs[i] = job_make(priorities[i], VX_NEVER);
        rig_submit(sched, &jobs[i], (i64)i);
    }
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    struct vx_batch_plan plan;
    for (size_t i = 0; i < VX_COUNT(served); i++) {
        rig_pick(sched, 9, &plan);
        ck_assert_ptr_eq(plan.jobs[0], &jobs[served[i]]);
        rig_finish(sched, &plan, 9);
    }
    rig_close(&sched);
}
END_TEST

/* A priority that the model does not define lets a job pass no other. */
START_TEST(without_levels_order_is_arrival)
{
    struct vx_sched *sched = rig_open(&one_by_one, 0);
    struct vx_job jobs[] = {job_make(0, VX_NEVER), job_make(3, VX_NEVER),
                            job_make(1, VX_NEVER), job_make(UINT64_MAX, VX_NEVER)};
    for (size_t i = 0; i < VX_COUNT(jobs); i++) rig_submit(sched, &jobs[i], (i64)i);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    struct vx_batch_plan plan;
    for (size_t i = 0; i < VX_COUNT(jobs); i++) {
        rig_pick(sched, 9, &plan);
        ck_assert_ptr_eq(plan.jobs[0], &jobs[i]);
        rig_finish(sched, &plan, 9);
    }
    rig_close(&sched);
}
END_TEST

/* The second model's job is served by its turn, though its level is not the first. */
START_TEST(levels_order_one_model_and_turns_all)
{
    struct vx_batching two_levels = one_by_one;
    two_levels.priority_levels = two_levels.default_priority_level = 2;
    struct vx_sched *sched = rig_open(&two_levels, 0);
    vx_sched_instance_set(sched, 5, &two_levels, true);
    struct vx_job jobs[3] = {job_make(0, VX_NEVER), job_make(0, VX_NEVER),
                             job_make(1, VX_NEVER)};
    static const int served[3] = {1, 2, 0};
    jobs[0].instance = jobs[2].instance = 5;
    for (int i = 0; i < 3; i++) rig_submit(sched, &jobs[i], 0);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    vx_sched_instance_ready(sched, 5, 0, true);
    struct vx_batch_plan plan;
    for (int i = 0; i < 3; i++) {
        rig_pick(sched, 0, &plan);
        ck_assert_ptr_eq(plan.jobs[0], &jobs[served[i]]);
        ck_assert_int_eq(plan.instance, jobs[served[i]].instance);
        rig_finish(sched, &plan, 0);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(a_worker_holds_no_more_than_its_depth)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job jobs[VX_WORKER_DEPTH + 1];
    struct vx_batch_plan plan, first;
    for (int i = 0; i <= VX_WORKER_DEPTH; i++) {
        jobs[i] = job_make(0, VX_NEVER);
        rig_submit(sched, &jobs[i], 0);
    }
    rig_pick(sched, 0, &first);
    for (int i = 1; i < VX_WORKER_DEPTH; i++) rig_pick(sched, 0, &plan);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    ck_assert_int_eq(vx_sched_worker_batches(sched, 0), VX_WORKER_DEPTH);
    rig_finish(sched, &first, 0);
    rig_pick(sched, 0, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &jobs[VX_WORKER_DEPTH]);
    rig_close(&sched);
}
END_TEST

START_TEST(a_full_queue_says_so)
{
    struct vx_sched *sched = rig_open(&one_by_one, 0);
    struct vx_job jobs[RIG_QUEUE_MAX + 1];
    struct vx_why why = {""};
    for (int i = 0; i <= RIG_QUEUE_MAX; i++) {
        jobs[i] = job_make(0, VX_NEVER);
        vx_status st = vx_sched_submit(sched, &jobs[i], 0, NULL, &why);
        ck_assert_int_eq(vx_status_code(st),
                         i < RIG_QUEUE_MAX ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    }
    ck_assert_ptr_nonnull(strstr(why.text, "Exceeds maximum queue size"));
    ck_assert_int_eq(jobs[RIG_QUEUE_MAX].state, VX_JOB_NEW);
    int dropped = 0;
    vx_sched_drop_instance(sched, 0, rig_count_job, &dropped);
    ck_assert_int_eq(dropped, RIG_QUEUE_MAX);
    ck_assert_int_eq(vx_sched_queued_voxels(sched), 0);
    vx_sched_close(&sched);
}
END_TEST

/* ------- levels and policies ------- */

/* priority_levels, priority; level */
static const struct {
    i32 levels;
    u64 priority;
    u64 level;
} level_rows[] = {
    {3, 1, 1},          {3, 3, 3},
    {3, 0, 2},          {3, 4, 2}, /* as Triton: beyond the levels is the default */
    {3, UINT64_MAX, 2}, {0, 4, 1},
    {0, 0, 1},          {0, UINT64_MAX, 1},
};

START_TEST(a_priority_is_a_level)
{
    struct vx_batching batching = levels;
    batching.priority_levels = level_rows[_i].levels;
    if (!batching.priority_levels) batching.default_priority_level = 0;
    struct vx_sched *sched = rig_open(&batching, 0);
    struct vx_job job = job_make(level_rows[_i].priority, VX_NEVER);
    struct vx_why why = {""};
    ck_assert(!vx_sched_submit(sched, &job, 0, NULL, &why).fault);
    ck_assert_uint_eq(job.level, level_rows[_i].level);
    rig_close(&sched);
}
END_TEST

START_TEST(a_level_has_a_queue_size_of_its_own)
{
    struct vx_sched *sched = rig_open(&levels, 0);
    struct vx_job jobs[4] = {job_make(1, VX_NEVER), job_make(1, VX_NEVER),
                             job_make(1, VX_NEVER), job_make(2, VX_NEVER)};
    struct vx_why why = {""};
    rig_submit(sched, &jobs[0], 0);
    rig_submit(sched, &jobs[1], 0);
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &jobs[2], 0, NULL, &why)),
                     VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why.text, "Exceeds maximum queue size"));
    rig_submit(sched, &jobs[3], 0); /* another level */
    ck_assert(vx_sched_cancel(sched, &jobs[0]));
    rig_submit(sched, &jobs[2], 0);
    rig_close(&sched);
    /* Without levels the whole queue of the model counts. */
    struct vx_batching batching = one_by_one;
    batching.policies[0].max_queue_size = 2;
    sched = rig_open(&batching, 0);
    for (u64 i = 0; i < 3; i++) {
        jobs[i] = job_make(i, VX_NEVER);
        ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &jobs[i], 0, NULL, &why)),
                         i < 2 ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    }
    rig_close(&sched);
}
END_TEST

/* default_timeout_us, allow_timeout_override, the request's timeout, its deadline; then
 * when it expires, and whether by timeout; all from a submit at 1000 */
static const struct {
    i64 default_us;
    bool allow;
    i64 timeout_ns, deadline_ns, expires_ns;
    bool by_timeout;
} timeout_rows[] = {
    {0, true, 0, VX_NEVER, VX_NEVER, false},
    {0, true, 500, VX_NEVER, 1500, true},
    {0, false, 500, VX_NEVER, VX_NEVER, false},
    {2, true, 0, VX_NEVER, 3000, true},
    {2, true, 500, VX_NEVER, 1500, true},
    {2, true, 5000, VX_NEVER, 3000, true}, /* it may only shorten */
    {2, false, 500, VX_NEVER, 3000, true},
    {2, true, 500, 1200, 1200, false},
    {2, true, 500, 1700, 1500, true},
    {INT64_MAX, true, INT64_MAX - 1, VX_NEVER, VX_NEVER, false},
};

START_TEST(a_timeout_ends_a_wait)
{
    struct vx_batching batching = one_by_one;
    batching.policies[0].default_timeout_us = timeout_rows[_i].default_us;
    batching.policies[0].allow_timeout_override = timeout_rows[_i].allow;
    struct vx_sched *sched = rig_open(&batching, 0);
    struct vx_job job = job_make(0, timeout_rows[_i].deadline_ns);
    job.timeout_ns = timeout_rows[_i].timeout_ns;
    rig_submit(sched, &job, 1000);
    ck_assert_int_eq(job.expires_ns, timeout_rows[_i].expires_ns);
    ck_assert_int_eq(job.by_timeout, timeout_rows[_i].by_timeout);
    ck_assert_int_eq(vx_sched_next_ns(sched), timeout_rows[_i].expires_ns);
    if (job.expires_ns != VX_NEVER) {
        int late = 0;
        vx_sched_expire(sched, job.expires_ns - 1, rig_no_job, NULL);
        vx_sched_expire(sched, job.expires_ns, rig_count_job, &late);
        ck_assert_int_eq(late, 1);
        ck_assert_int_eq(vx_sched_next_ns(sched), VX_NEVER);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(a_delayed_job_goes_behind_all_others)
{
    struct vx_sched *sched = rig_open(&levels, 0);
    struct vx_job delayed = job_make(3, 900 * US), other = job_make(3, VX_NEVER),
                  late = job_make(3, 50 * US);
    rig_submit(sched, &delayed, 0);
    rig_submit(sched, &other, 99 * US);
    vx_sched_expire(sched, 100 * US, rig_no_job, NULL);
    ck_assert_int_eq(delayed.state, VX_JOB_QUEUED);
    ck_assert_int_eq(delayed.expires_ns, 900 * US);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    struct vx_batch_plan plan;
    rig_pick(sched, 101 * US, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &other);
    rig_finish(sched, &plan, 101 * US);
    rig_pick(sched, 101 * US, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &delayed);
    rig_finish(sched, &plan, 101 * US);
    /* gRPC's deadline still ends it. */
    vx_sched_instance_ready(sched, 0, 0, false);
    int ended = 0;
    rig_submit(sched, &late, 0);
    vx_sched_expire(sched, 50 * US, rig_count_job, &ended);
    ck_assert_int_eq(ended, 1);
    late = job_make(3, 300 * US);
    rig_submit(sched, &late, 0);
    vx_sched_expire(sched, 400 * US, rig_count_job, &ended);
    ck_assert_int_eq(ended, 2);
    rig_close(&sched);
}
END_TEST

/* Its queue timeout and its deadline have both passed: it is late, not delayed for ever. */
START_TEST(a_delayed_job_that_is_late_ends)
{
    struct vx_batching batching = one_by_one;
    batching.policies[0] =
        (struct vx_queue_policy){.default_timeout_us = 100, .timeout_delay = true};
    struct vx_sched *sched = rig_open(&batching, 0);
    struct vx_job late = job_make(0, 300 * US), endless = job_make(0, VX_NEVER);
    rig_submit(sched, &late, 0);
    rig_submit(sched, &endless, 0);
    int ended = 0;
    vx_sched_expire(sched, 400 * US, rig_count_job, &ended);
    ck_assert_int_eq(ended, 1);
    ck_assert_int_eq(late.state, VX_JOB_NEW);
    ck_assert_int_eq(endless.state, VX_JOB_QUEUED);
    ck_assert(!endless.by_timeout);
    ck_assert_int_eq(vx_sched_next_ns(sched), VX_NEVER);
    rig_close(&sched);
}
END_TEST

START_TEST(deadlines_end_waiting_jobs_only)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job late = job_make(0, 5), running = job_make(0, 50),
                  waiting = job_make(0, 60);
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &late, 5, NULL, NULL)),
                     VX_CODE_DEADLINE_EXCEEDED);
    rig_submit(sched, &running, 6);
    struct vx_batch_plan plan;
    rig_pick(sched, 7, &plan);
    vx_sched_instance_ready(sched, 0, 0, false);
    rig_submit(sched, &waiting, 8);
    ck_assert_int_eq(vx_sched_next_ns(sched), 60);
    int ended = 0;
    vx_sched_expire(sched, 59, rig_no_job, NULL);
    vx_sched_expire(sched, 60, rig_count_job, &ended);
    ck_assert_int_eq(ended, 1);
    ck_assert_int_eq(running.state, VX_JOB_RUNNING);
    ck_assert_int_eq(vx_sched_next_ns(sched), VX_NEVER);
    rig_finish(sched, &plan, 60);
    rig_close(&sched);
}
END_TEST

START_TEST(the_earliest_of_many_expires_first)
{
    struct vx_sched *sched = rig_open(&one_by_one, 0);
    static struct vx_job jobs[200];
    u64 state = 12345;
    for (int i = 0; i < 200; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        jobs[i] = job_make(0, 1000 + (i64)(state >> 40) % 500);
        rig_submit(sched, &jobs[i], 0);
        if (i % 3 == 2)
            ck_assert(vx_sched_cancel(sched, &jobs[state >> 33 & 1 ? i : i - 1]));
    }
    for (i64 now = 1000; now < 1500; now++) {
        i64 earliest = VX_NEVER;
        for (int i = 0; i < 200; i++)
            if (jobs[i].state == VX_JOB_QUEUED && jobs[i].deadline_ns < earliest)
                earliest = jobs[i].deadline_ns;
        ck_assert_int_eq(vx_sched_next_ns(sched), earliest);
        int ended = 0;
        vx_sched_expire(sched, now, rig_count_job, &ended);
        ck_assert(earliest > now ? ended == 0 : ended > 0);
    }
    ck_assert_int_eq(vx_sched_queued(sched), 0);
    rig_close(&sched);
}
END_TEST

START_TEST(cancel_takes_back_only_what_waits)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job a = job_make(0, VX_NEVER), b = job_make(0, VX_NEVER);
    struct vx_batch_plan plan;
    rig_submit(sched, &a, 0);
    rig_pick(sched, 0, &plan);
    rig_submit(sched, &b, 0);
    ck_assert(!vx_sched_cancel(sched, &a));
    ck_assert(vx_sched_cancel(sched, &b));
    ck_assert(!vx_sched_cancel(sched, &b));
    ck_assert_int_eq(vx_sched_queued(sched), 0);
    rig_finish(sched, &plan, 0);
    rig_close(&sched);
}
END_TEST

START_TEST(jobs_without_a_holder_are_handed_out)
{
    struct vx_sched *sched = rig_open(&one_by_one, 2);
    struct vx_job held = rig_job(10), may = rig_job(10), nobody = rig_job(10);
    held.must_hold = nobody.must_hold = true;
    held.holders = 1u << 1;
    may.holders = 1u << 1;
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &nobody, 0, NULL, NULL)),
                     VX_CODE_FAILED_PRECONDITION);
    vx_sched_instance_ready(sched, 0, 0, false);
    vx_sched_instance_ready(sched, 0, 1, false);
    rig_submit(sched, &held, 0);
    rig_submit(sched, &may, 0);
    vx_sched_holder_gone(sched, 0, rig_no_job, NULL);
    vx_sched_worker_down(sched, 1, rig_no_job, NULL);
    int lost = 0;
    vx_sched_holder_gone(sched, 1, rig_count_job, &lost);
    ck_assert_int_eq(lost, 1);
    ck_assert_int_eq(held.state, VX_JOB_NEW);
    ck_assert_int_eq(may.state, VX_JOB_QUEUED);
    ck_assert_uint_eq(may.holders, 0);
    rig_close(&sched);
}
END_TEST

/* ------- for another worker ------- */

/* The geometry that it was sent for is not there: it waits as if it had never run. */
START_TEST(a_job_submitted_again_is_what_it_was)
{
    struct vx_batching batching = one_by_one;
    batching.policies[0].allow_timeout_override = true;
    struct vx_sched *sched = rig_open(&batching, 2);
    struct vx_job stale = job_make(2, 900 * US), equal = job_make(2, VX_NEVER);
    struct vx_batch_plan plan;
    stale.must_hold = true;
    stale.holders = 1u << 0;
    stale.timeout_ns = 50 * US;
    rig_submit(sched, &stale, 10 * US);
    rig_pick(sched, 11 * US, &plan);
    ck_assert_int_eq(vx_sched_batch_jobs(sched, 0, plan.batch), 1);
    ck_assert_int_eq(vx_sched_batch_jobs(sched, 1, plan.batch), 0);
    ck_assert_int_eq(vx_sched_batch_jobs(sched, 0, plan.batch + 1), 0);
    rig_submit(sched, &equal, 12 * US);
    vx_sched_instance_ready(sched, 0, 1, false);
    rig_finish(sched, &plan, 20 * US);
    ck_assert_int_eq(vx_sched_batch_jobs(sched, 0, plan.batch), 0);
    u64 sequence = stale.sequence;
    stale.holders = 1u << 1;
    stale.deaths = 1;
    vx_sched_resubmit(sched, &stale);
    ck_assert_int_eq(stale.state, VX_JOB_QUEUED);
    ck_assert_int_eq(stale.queued_ns, 10 * US);
    ck_assert_int_eq(stale.expires_ns, 60 * US);
    ck_assert(stale.by_timeout);
    ck_assert_int_eq(stale.deaths, 1);
    ck_assert_uint_eq(stale.sequence, sequence);
    ck_assert_int_eq(vx_sched_queued(sched), 2);
    ck_assert_int_eq(vx_sched_instance_jobs(sched, 0), 2);
    vx_sched_instance_ready(sched, 0, 0, false);
    vx_sched_instance_ready(sched, 0, 1, true);
    rig_pick(sched, 30 * US, &plan); /* it came first */
    ck_assert_ptr_eq(plan.jobs[0], &stale);
    rig_finish(sched, &plan, 30 * US);
    stale.deaths = 0;
    vx_sched_instance_ready(sched, 0, 1, false);
    vx_sched_resubmit(sched, &stale);
    int late = 0;
    vx_sched_expire(sched, 60 * US - 1, rig_no_job, NULL);
    vx_sched_expire(sched, 60 * US, rig_count_job, &late);
    ck_assert_int_eq(late, 1);
    vx_sched_instance_ready(sched, 0, 1, true);
    rig_pick(sched, 61 * US, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &equal);
    rig_close(&sched);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched");
    TCase *table = tcase_create("table");
    tcase_add_test(table, nothing_runs_without_a_ready_worker);
    tcase_add_test(table, order_is_priority_then_arrival);
    tcase_add_test(table, without_levels_order_is_arrival);
    tcase_add_test(table, levels_order_one_model_and_turns_all);
    tcase_add_test(table, a_worker_holds_no_more_than_its_depth);
    tcase_add_test(table, a_full_queue_says_so);
    tcase_add_loop_test(table, a_priority_is_a_level, 0, (int)VX_COUNT(level_rows));
    tcase_add_test(table, a_level_has_a_queue_size_of_its_own);
    tcase_add_loop_test(table, a_timeout_ends_a_wait, 0, (int)VX_COUNT(timeout_rows));
    tcase_add_test(table, a_delayed_job_goes_behind_all_others);
    tcase_add_test(table, a_delayed_job_that_is_late_ends);
    tcase_add_test(table, deadlines_end_waiting_jobs_only);
    tcase_add_test(table, the_earliest_of_many_expires_first);
    tcase_add_test(table, cancel_takes_back_only_what_waits);
    tcase_add_test(table, jobs_without_a_holder_are_handed_out);
    tcase_add_test(table, a_job_submitted_again_is_what_it_was);
    suite_add_tcase(suite, table);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
