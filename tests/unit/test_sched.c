/* The scheduler as tables, and as a simulation from seeds: arrivals, cancels, deadlines,
 * deaths.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/clock.h"
#include "server/sched.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_MAX 8

static struct vx_sched *open_one(void)
{
    struct vx_sched *sched;
    ck_assert(!vx_sched_open(QUEUE_MAX, &sched).fault);
    vx_sched_instance_set(sched, 0, 1000, 0);
    return sched;
}

static struct vx_sched *open_with_worker(void)
{
    struct vx_sched *sched = open_one();
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    return sched;
}

static struct vx_job job_make(u64 priority, i64 deadline_ns)
{
    return (struct vx_job){
        .voxels = 10, .priority = priority, .deadline_ns = deadline_ns};
}

static void no_job(void *context, struct vx_job *job)
{
    (void)context;
    (void)job;
    ck_abort_msg("no job was expected here");
}

static void count_job(void *context, struct vx_job *job)
{
    ck_assert_int_eq(job->state, VX_JOB_NEW);
    ++*(int *)context;
}

static void finish(struct vx_sched *sched, i32 worker, u64 batch)
{
    struct vx_batch_plan plan;
    ck_assert(vx_sched_finish(sched, worker, batch, &plan));
}

START_TEST(nothing_runs_without_a_ready_worker)
{
    struct vx_sched *sched = open_one();
    struct vx_job job = job_make(0, VX_NEVER);
    struct vx_batch_plan plan;
    ck_assert(!vx_sched_submit(sched, &job, 1, NULL).fault);
    ck_assert(!vx_sched_pick(sched, 2, &plan));
    vx_sched_worker_up(sched, 0);
    ck_assert(!vx_sched_pick(sched, 2, &plan));
    vx_sched_instance_ready(sched, 0, 0, true);
    ck_assert(vx_sched_pick(sched, 3, &plan));
    ck_assert_ptr_eq(plan.jobs[0], &job);
    ck_assert_int_eq(plan.jobs_count, 1);
    ck_assert_int_eq(plan.voxels, 10);
    ck_assert_int_eq(job.queued_ns, 1);
    ck_assert_int_eq(job.started_ns, 3);
    finish(sched, 0, plan.batch);
    ck_assert_int_eq(vx_sched_instance_jobs(sched, 0), 0);
    vx_sched_close(&sched);
}
END_TEST

START_TEST(order_is_priority_then_arrival)
{
    struct vx_sched *sched = open_one();
    struct vx_job jobs[4] = {job_make(0, VX_NEVER), job_make(2, VX_NEVER),
                             job_make(1, VX_NEVER), job_make(2, VX_NEVER)};
    static const int served[4] = {2, 1, 3, 0};
    for (int i = 0; i < 4; i++)
        ck_assert(!vx_sched_submit(sched, &jobs[i], i, NULL).fault);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    struct vx_batch_plan plan;
    for (int i = 0; i < 4; i++) {
        ck_assert(vx_sched_pick(sched, 9, &plan));
        ck_assert_ptr_eq(plan.jobs[0], &jobs[served[i]]);
        finish(sched, 0, plan.batch);
    }
    vx_sched_close(&sched);
}
END_TEST

START_TEST(a_worker_holds_no_more_than_its_depth)
{
    struct vx_sched *sched = open_with_worker();
    struct vx_job jobs[VX_WORKER_DEPTH + 1];
    struct vx_batch_plan plan;
    u64 first = 0;
    for (int i = 0; i <= VX_WORKER_DEPTH; i++) {
        jobs[i] = job_make(0, VX_NEVER);
        ck_assert(!vx_sched_submit(sched, &jobs[i], 0, NULL).fault);
    }
    for (int i = 0; i < VX_WORKER_DEPTH; i++) {
        ck_assert(vx_sched_pick(sched, 0, &plan));
        if (!first) first = plan.batch;
    }
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    finish(sched, 0, first);
    ck_assert(vx_sched_pick(sched, 0, &plan));
    ck_assert_ptr_eq(plan.jobs[0], &jobs[VX_WORKER_DEPTH]);
    int lost = 0;
    vx_sched_worker_down(sched, 0, no_job, NULL);
    vx_sched_drop_instance(sched, 0, count_job, &lost);
    ck_assert_int_eq(lost, VX_WORKER_DEPTH);
    vx_sched_close(&sched);
}
END_TEST

START_TEST(a_full_queue_says_so)
{
    struct vx_sched *sched = open_one();
    struct vx_job jobs[QUEUE_MAX + 1];
    struct vx_why why = {""};
    for (int i = 0; i <= QUEUE_MAX; i++) {
        jobs[i] = job_make(0, VX_NEVER);
        vx_status st = vx_sched_submit(sched, &jobs[i], 0, &why);
        ck_assert_int_eq(vx_status_code(st),
                         i < QUEUE_MAX ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    }
    ck_assert_ptr_nonnull(strstr(why.text, "Exceeds maximum queue size"));
    ck_assert_int_eq(jobs[QUEUE_MAX].state, VX_JOB_NEW);
    int dropped = 0;
    vx_sched_drop_instance(sched, 0, count_job, &dropped);
    ck_assert_int_eq(dropped, QUEUE_MAX);
    vx_sched_close(&sched);
}
END_TEST

START_TEST(deadlines_end_waiting_jobs_only)
{
    struct vx_sched *sched = open_with_worker();
    struct vx_job late = job_make(0, 5), running = job_make(0, 50),
                  waiting = job_make(0, 60);
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &late, 5, NULL)),
                     VX_CODE_DEADLINE_EXCEEDED);
    ck_assert(!vx_sched_submit(sched, &running, 6, NULL).fault);
    struct vx_batch_plan plan;
    ck_assert(vx_sched_pick(sched, 7, &plan));
    vx_sched_instance_ready(sched, 0, 0, false);
    ck_assert(!vx_sched_submit(sched, &waiting, 8, NULL).fault);
    ck_assert_int_eq(vx_sched_next_ns(sched), 60);
    int ended = 0;
    vx_sched_expire(sched, 59, no_job, NULL);
    vx_sched_expire(sched, 60, count_job, &ended);
    ck_assert_int_eq(ended, 1);
    ck_assert_int_eq(running.state, VX_JOB_RUNNING);
    ck_assert_int_eq(vx_sched_next_ns(sched), VX_NEVER);
    finish(sched, 0, plan.batch);
    vx_sched_close(&sched);
}
END_TEST

START_TEST(cancel_takes_back_only_what_waits)
{
    struct vx_sched *sched = open_with_worker();
    struct vx_job a = job_make(0, VX_NEVER), b = job_make(0, VX_NEVER);
    struct vx_batch_plan plan;
    ck_assert(!vx_sched_submit(sched, &a, 0, NULL).fault);
    ck_assert(vx_sched_pick(sched, 0, &plan));
    ck_assert(!vx_sched_submit(sched, &b, 0, NULL).fault);
    ck_assert(!vx_sched_cancel(sched, &a));
    ck_assert(vx_sched_cancel(sched, &b));
    ck_assert(!vx_sched_cancel(sched, &b));
    ck_assert_int_eq(vx_sched_queued(sched), 0);
    finish(sched, 0, plan.batch);
    vx_sched_close(&sched);
}
END_TEST

START_TEST(a_death_sends_jobs_to_the_head_and_two_are_poison)
{
    struct vx_sched *sched = open_with_worker();
    struct vx_job poison = job_make(0, VX_NEVER), behind = job_make(0, VX_NEVER),
                  later = job_make(0, VX_NEVER);
    struct vx_batch_plan plan;
    ck_assert(!vx_sched_submit(sched, &poison, 0, NULL).fault);
    ck_assert(!vx_sched_submit(sched, &behind, 0, NULL).fault);
    ck_assert(vx_sched_pick(sched, 0, &plan) && vx_sched_pick(sched, 0, &plan));
    ck_assert(!vx_sched_submit(sched, &later, 0, NULL).fault);
    for (int death = 1; death <= VX_JOB_DEATHS_MAX; death++) {
        int poisoned = 0;
        vx_sched_worker_down(sched, 0, count_job, &poisoned);
        ck_assert_int_eq(poisoned, death == VX_JOB_DEATHS_MAX);
        ck_assert_int_eq(poison.deaths, death);
        vx_sched_worker_up(sched, 0);
        ck_assert(!vx_sched_pick(sched, 0, &plan)); /* up, but nothing is loaded yet */
        vx_sched_instance_ready(sched, 0, 0, true);
        if (death == VX_JOB_DEATHS_MAX) break;
        ck_assert(vx_sched_pick(sched, 0, &plan));
        ck_assert_ptr_eq(plan.jobs[0], &poison);
        ck_assert(vx_sched_pick(sched, 0, &plan));
        ck_assert_ptr_eq(plan.jobs[0], &behind);
    }
    /* The bystander waited behind the killer both times and is none. */
    ck_assert_int_eq(behind.deaths, 0);
    ck_assert(vx_sched_pick(sched, 0, &plan));
    ck_assert_ptr_eq(plan.jobs[0], &behind);
    ck_assert(!vx_sched_finish(sched, 0, plan.batch + 1000, &plan));
    finish(sched, 0, plan.batch ? plan.batch : 1);
    vx_sched_drop_instance(sched, 0, count_job, &(int){0});
    vx_sched_close(&sched);
}
END_TEST

START_TEST(work_goes_to_the_least_busy_worker)
{
    struct vx_sched *sched = open_with_worker();
    vx_sched_worker_up(sched, 3);
    vx_sched_instance_ready(sched, 0, 3, true);
    struct vx_job jobs[3] = {job_make(0, VX_NEVER), job_make(0, VX_NEVER),
                             job_make(0, VX_NEVER)};
    i32 served[3];
    u64 batches[3];
    for (int i = 0; i < 3; i++) {
        struct vx_batch_plan plan;
        ck_assert(!vx_sched_submit(sched, &jobs[i], 0, NULL).fault);
        ck_assert(vx_sched_pick(sched, 0, &plan));
        served[i] = plan.worker;
        batches[i] = plan.batch;
    }
    ck_assert_int_eq(served[0], 0);
    ck_assert_int_eq(served[1], 3);
    for (int i = 0; i < 3; i++) finish(sched, served[i], batches[i]);
    vx_sched_close(&sched);
}
END_TEST

/* ------- simulation ------- */

#define SIM_JOBS      400
#define SIM_WORKERS   3
#define SIM_INSTANCES 2

struct sim {
    u64 random;
    i64 now;
    struct vx_sched *sched;
    struct vx_job jobs[SIM_JOBS];
    bool submitted[SIM_JOBS], ended[SIM_JOBS];
    bool up[SIM_WORKERS];
    u64 sent[SIM_WORKERS][VX_WORKER_DEPTH];
    int sent_count[SIM_WORKERS];
    u64 log; /* of everything that happened, to compare two runs of one seed */
};

static u64 sim_random(struct sim *sim, u64 below)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random % below;
}

static void sim_note(struct sim *sim, u64 what, u64 value)
{
    sim->log = (sim->log ^ (what * 131 + value)) * UINT64_C(0x100000001b3);
}

static void sim_end(void *context, struct vx_job *job)
{
    struct sim *sim = context;
    size_t i = (size_t)(job - sim->jobs);
    ck_assert(sim->submitted[i]);
    ck_assert_msg(!sim->ended[i], "job %zu ended twice", i);
    sim->ended[i] = true;
    sim_note(sim, 1, i);
}

static void sim_on_late(void *context, struct vx_job *job)
{
    struct sim *sim = context;
    ck_assert_int_le(job->deadline_ns, sim->now);
    sim_end(sim, job);
}

static void sim_submit(struct sim *sim, size_t i)
{
    struct vx_job *job = &sim->jobs[i];
    *job = (struct vx_job){.instance = (i32)sim_random(sim, SIM_INSTANCES),
                           .voxels = (i64)sim_random(sim, 5000),
                           .priority = sim_random(sim, 3),
                           .deadline_ns = sim_random(sim, 3)
                                              ? VX_NEVER
                                              : sim->now + (i64)sim_random(sim, 40)};
    sim->submitted[i] = true;
    vx_status st = vx_sched_submit(sim->sched, job, sim->now, NULL);
    if (st.fault) sim_end(sim, job);
}

static void sim_worker_toggle(struct sim *sim, i32 w)
{
    if (sim->up[w]) {
        vx_sched_worker_down(sim->sched, w, sim_end, sim);
        sim->sent_count[w] = 0;
    } else {
        vx_sched_worker_up(sim->sched, w);
        for (i32 i = 0; i < SIM_INSTANCES; i++)
            vx_sched_instance_ready(sim->sched, i, w, true);
    }
    sim->up[w] = !sim->up[w];
}

static void sim_finish_one(struct sim *sim, i32 w)
{
    if (!sim->sent_count[w]) return;
    struct vx_batch_plan plan;
    ck_assert(vx_sched_finish(sim->sched, w, sim->sent[w][0], &plan));
    sim->sent_count[w]--;
    memmove(&sim->sent[w][0], &sim->sent[w][1],
            sizeof sim->sent[w] - sizeof sim->sent[w][0]);
    for (i32 j = 0; j < plan.jobs_count; j++) sim_end(sim, plan.jobs[j]);
}

static void sim_turn(struct sim *sim)
{
    vx_sched_expire(sim->sched, sim->now, sim_on_late, sim);
    struct vx_batch_plan plan;
    while (vx_sched_pick(sim->sched, sim->now, &plan)) {
        ck_assert(sim->up[plan.worker]);
        ck_assert_int_lt(sim->sent_count[plan.worker], VX_WORKER_DEPTH);
        for (i32 j = 0; j < plan.jobs_count; j++)
            ck_assert_msg(plan.jobs[j]->deadline_ns > sim->now,
                          "a job ran after its deadline");
        sim->sent[plan.worker][sim->sent_count[plan.worker]++] = plan.batch;
        sim_note(sim, 2, plan.batch * 16 + (u64)plan.worker);
    }
}

static u64 sim_run(u64 seed)
{
    static struct sim sim;
    sim = (struct sim){.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    ck_assert(!vx_sched_open(24, &sim.sched).fault);
    for (i32 i = 0; i < SIM_INSTANCES; i++) vx_sched_instance_set(sim.sched, i, 10000, 0);
    for (size_t next = 0; next < SIM_JOBS;) {
        sim.now += (i64)sim_random(&sim, 4);
        switch (sim_random(&sim, 8)) {
        case 0:
        case 1:
        case 2: sim_submit(&sim, next++); break;
        case 3:
        case 4: sim_finish_one(&sim, (i32)sim_random(&sim, SIM_WORKERS)); break;
        case 5: sim_worker_toggle(&sim, (i32)sim_random(&sim, SIM_WORKERS)); break;
        default: {
            struct vx_job *job = &sim.jobs[sim_random(&sim, next + 1)];
            if (job < &sim.jobs[next] && vx_sched_cancel(sim.sched, job))
                sim_end(&sim, job);
        }
        }
        sim_turn(&sim);
    }
    /* Drain: every worker up, everything ends exactly once, nothing is owned. */
    for (i32 w = 0; w < SIM_WORKERS; w++)
        if (!sim.up[w]) sim_worker_toggle(&sim, w);
    for (int turns = 0; vx_sched_queued(sim.sched) + vx_sched_running(sim.sched) > 0;
         turns++) {
        ck_assert_int_lt(turns, 10 * SIM_JOBS);
        sim_turn(&sim);
        for (i32 w = 0; w < SIM_WORKERS; w++) sim_finish_one(&sim, w);
    }
    for (size_t i = 0; i < SIM_JOBS; i++)
        ck_assert_msg(sim.ended[i], "job %zu never ended", i);
    ck_assert_int_eq(vx_sched_queued_voxels(sim.sched), 0);
    vx_sched_close(&sim.sched);
    return sim.log;
}

START_TEST(simulation_ends_every_job_once_and_repeats)
{
    u64 seed = (u64)_i + 1;
    u64 first = sim_run(seed), second = sim_run(seed);
    ck_assert_msg(first == second, "seed %llu: two runs differ",
                  (unsigned long long)seed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched");
    TCase *table = tcase_create("table");
    tcase_add_test(table, nothing_runs_without_a_ready_worker);
    tcase_add_test(table, order_is_priority_then_arrival);
    tcase_add_test(table, a_worker_holds_no_more_than_its_depth);
    tcase_add_test(table, a_full_queue_says_so);
    tcase_add_test(table, deadlines_end_waiting_jobs_only);
    tcase_add_test(table, cancel_takes_back_only_what_waits);
    tcase_add_test(table, a_death_sends_jobs_to_the_head_and_two_are_poison);
    tcase_add_test(table, work_goes_to_the_least_busy_worker);
    suite_add_tcase(suite, table);
    TCase *sim = tcase_create("simulation");
    tcase_add_loop_test(sim, simulation_ends_every_job_once_and_repeats, 0, 200);
    suite_add_tcase(suite, sim);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
