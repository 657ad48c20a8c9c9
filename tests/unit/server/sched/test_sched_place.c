/* Where a job goes: to the device that finishes it first, to the holder of its geometry,
 * and to an empty one after a death; as tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

static const struct vx_batching wide = {.voxels_max = 100000, .requests_max = 1};

START_TEST(unknown_devices_share_by_their_batches)
{
    struct vx_sched *sched = rig_open(&wide, 0);
    vx_sched_worker_up(sched, 0);
    vx_sched_worker_up(sched, 3);
    vx_sched_instance_ready(sched, 0, 0, true);
    vx_sched_instance_ready(sched, 0, 3, true);
    static const i32 served[5] = {3, 0, 0, 3, -1};
    struct vx_job jobs[5];
    struct vx_batch_plan plan;
    for (int i = 0; i < 5; i++) {
        jobs[i] = rig_job(10);
        if (!i) jobs[i].holders = 1u << 3; /* of equal devices the holder */
        rig_submit(sched, &jobs[i], 0);
        ck_assert_int_eq(vx_sched_pick(sched, 0, &plan), served[i] >= 0);
        if (served[i] >= 0) ck_assert_int_eq(plan.worker, served[i]);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(each_device_is_tried_before_one_is_chosen)
{
    struct vx_sched *sched = rig_open(&wide, 2);
    int served[2] = {0, 0};
    for (int i = 0; i < 60;
         i++) { /* one client; the device that is named first is slow */
        struct vx_job job = rig_job(10);
        struct vx_batch_plan plan;
        rig_submit(sched, &job, 0);
        rig_pick(sched, 0, &plan);
        const struct vx_batch_end end = {.worker = plan.worker,
                                         .batch = plan.batch,
                                         .device_ns = plan.worker ? MS : 50 * MS};
        ck_assert(vx_sched_finish(sched, &end, &plan));
        served[plan.worker]++;
    }
    ck_assert_int_ge(served[0], 3);
    ck_assert_int_le(served[0], 10);
    ck_assert_int_ge(served[1], 50);
    rig_close(&sched);
}
END_TEST

/* Two devices; what the second one costs per batch, who holds the geometry; what the job
 * costs to build; the worker that the first, second and third job go to, -1 = waits */
static const struct {
    i64 other_ns, build_ns;
    u32 holders;
    bool must_hold;
    i32 worker[3];
} place_rows[] = {
    {4 * MS, 0, 0, false, {0, 1, 0}},
    {7 * MS, 0, 0, false, {0, 0, 1}},    /* 6 ms for two on the fast one */
    {100 * MS, 0, 0, false, {0, 0, -1}}, /* the slow one is not worth it */
    {2 * MS, 0, 0, false, {1, 0, 1}},
    {3 * MS, 1 * MS, 2, false, {1, 0, 1}},   /* to build costs less than to wait */
    {3 * MS, 10 * MS, 2, false, {1, 1, -1}}, /* here it costs more */
    {9 * MS / 2, 1 * MS, 2, false, {0, 1, 0}},
    {90 * MS, 1 * MS, 2, true, {1, 1, -1}},
};

START_TEST(a_job_goes_where_it_is_done_first)
{
    struct vx_sched *sched = rig_open(&wide, 2);
    const struct rig_device fast = {.fixed_ns = 3 * MS,
                                    .build_ns = place_rows[_i].build_ns / 100};
    struct rig_device other = fast;
    other.worker = 1;
    other.fixed_ns = place_rows[_i].other_ns;
    rig_teach(sched, &wide, 3, &fast);
    rig_teach(sched, &wide, 3, &other);
    struct vx_job jobs[3];
    struct vx_batch_plan plan;
    for (int i = 0; i < 3; i++) {
        jobs[i] = rig_job(100 + i);
        jobs[i].holders = place_rows[_i].holders;
        jobs[i].must_hold = place_rows[_i].must_hold;
        rig_submit(sched, &jobs[i], 0);
        bool goes = vx_sched_pick(sched, 0, &plan);
        ck_assert_msg((goes ? plan.worker : -1) == place_rows[_i].worker[i],
                      "row %d, job %d: worker %d", _i, i, goes ? plan.worker : -1);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(a_batch_leaves_out_what_others_hold)
{
    const struct vx_batching batching = {.voxels_max = 100000, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 2);
    for (i32 w = 0; w < 2; w++)
        rig_teach(sched, &batching, 3,
                  &(struct rig_device){
                      .worker = w, .fixed_ns = 3 * MS, .pair_ns = 10, .build_ns = 100});
    struct vx_job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = rig_job(1000);
        jobs[i].holders = 1u << (i % 2);
        jobs[i].must_hold = i >= 2;
        rig_submit(sched, &jobs[i], 0);
    }
    for (i32 w = 0; w < 2; w++) {
        struct vx_batch_plan plan;
        rig_pick(sched, 0, &plan);
        ck_assert_int_eq(plan.worker, w);
        ck_assert_int_eq(plan.jobs_count, 2);
        ck_assert_ptr_eq(plan.jobs[0], &jobs[w]);
        ck_assert_ptr_eq(plan.jobs[1], &jobs[w + 2]);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(jobs_count_with_those_that_wait_before_them)
{
    struct vx_sched *sched = rig_open(&wide, 2);
    rig_teach(sched, &wide, 3, &(struct rig_device){.worker = 0, .fixed_ns = 3 * MS});
    rig_teach(sched, &wide, 3, &(struct rig_device){.worker = 1, .fixed_ns = 10 * MS});
    struct vx_job jobs[4];
    struct vx_batch_plan plan;
    for (int i = 0; i < 4; i++) {
        jobs[i] = rig_job(10);
        rig_submit(sched, &jobs[i], 0);
    }
    rig_pick(sched, 0, &plan);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 0);
    /* The third is done in 9 ms on the fast one, the fourth in 12. */
    rig_pick(sched, 0, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &jobs[3]);
    ck_assert_int_eq(plan.worker, 1);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    rig_close(&sched);
}
END_TEST

START_TEST(a_device_that_is_late_is_not_waited_for)
{
    struct vx_sched *sched = rig_open(&wide, 2);
    rig_teach(sched, &wide, 3, &(struct rig_device){.worker = 0, .fixed_ns = 3 * MS});
    rig_teach(sched, &wide, 3, &(struct rig_device){.worker = 1, .fixed_ns = 50 * MS});
    struct vx_job jobs[3];
    struct vx_batch_plan plan;
    for (int i = 0; i < 3; i++) {
        jobs[i] = rig_job(10);
        rig_submit(sched, &jobs[i], 0);
    }
    rig_pick(sched, 0, &plan);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 0);
    /* The fast one hangs; as time passes the slow one is chosen. */
    i64 now = 0;
    int wakes = 0;
    for (; !vx_sched_pick(sched, now, &plan); wakes++) {
        ck_assert_int_gt(vx_sched_next_ns(sched), now);
        now = vx_sched_next_ns(sched);
        ck_assert_int_lt(wakes, 10);
    }
    ck_assert_int_eq(plan.worker, 1);
    ck_assert_int_lt(now, 100 * MS);
    rig_close(&sched);
}
END_TEST

/* ------- deaths ------- */

START_TEST(jobs_of_a_dead_worker_run_alone)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 4};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job jobs[7];
    struct vx_batch_plan plan;
    for (int i = 0; i < 7; i++) {
        jobs[i] = rig_job(10);
        rig_submit(sched, &jobs[i], 0);
        if (i == 3 || i == 4) rig_pick(sched, 0, &plan);
    }
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    ck_assert_int_eq(vx_sched_running(sched), 0);
    ck_assert_int_eq(vx_sched_queued(sched), 7);
    vx_sched_worker_up(sched, 0);
    ck_assert(!vx_sched_pick(sched, 0, &plan)); /* up, but nothing is loaded yet */
    vx_sched_instance_ready(sched, 0, 0, true);
    for (int i = 0; i < 5; i++) { /* both batches: each may have done it */
        ck_assert_int_eq(jobs[i].deaths, 1);
        rig_pick(sched, 0, &plan);
        ck_assert_int_eq(plan.jobs_count, 1);
        ck_assert_ptr_eq(plan.jobs[0], &jobs[i]);
        ck_assert(!vx_sched_pick(sched, 0, &(struct vx_batch_plan){0}));
        if (i < 4) rig_finish(sched, &plan, 0);
    }
    int poisoned = 0;
    vx_sched_worker_down(sched, 0, rig_count_job, &poisoned);
    ck_assert_int_eq(poisoned, 1);
    ck_assert_int_eq(jobs[4].deaths, VX_JOB_DEATHS_MAX);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    rig_pick(sched, 0, &plan); /* it only waited: no death counts */
    ck_assert_int_eq(plan.jobs_count, 2);
    const struct vx_batch_end late = {.batch = plan.batch + 1000};
    ck_assert(!vx_sched_finish(sched, &late, &plan));
    rig_close(&sched);
}
END_TEST

/* It ran there, and what the worker held went with it. */
START_TEST(what_ran_on_a_dead_worker_has_no_holder_there)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 2);
    struct vx_job may = rig_job(10), must = rig_job(10), both = rig_job(10);
    struct vx_batch_plan plan;
    vx_sched_instance_ready(sched, 0, 1, false);
    may.holders = must.holders = 1u << 0;
    both.holders = 1u << 0 | 1u << 1;
    must.must_hold = both.must_hold = true;
    rig_submit(sched, &may, 0);
    rig_submit(sched, &must, 0);
    rig_submit(sched, &both, 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.jobs_count, 3);
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    ck_assert_int_eq(vx_sched_running(sched), 0);
    ck_assert_int_eq(vx_sched_voxels(sched), 30); /* they wait and do not run */
    ck_assert_uint_eq(may.holders, 0);
    ck_assert_uint_eq(must.holders, 0);
    ck_assert_uint_eq(both.holders, 1u << 1);
    int lost = 0;
    vx_sched_holder_gone(sched, 0, rig_count_job, &lost);
    ck_assert_int_eq(lost, 1);
    ck_assert_int_eq(must.state, VX_JOB_NEW);
    ck_assert_int_eq(both.state, VX_JOB_QUEUED);
    ck_assert_int_eq(both.deaths, 1);
    /* The same memory, another request: it has seen no death. */
    must.holders = 1u << 1;
    rig_submit(sched, &must, 0);
    ck_assert_int_eq(must.deaths, 0);
    rig_close(&sched);
}
END_TEST

START_TEST(a_worker_runs_empty_for_a_job_that_must_be_alone)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 1};
    struct vx_sched *sched = rig_open(&batching, 3);
    struct vx_job suspect = rig_job(10), jobs[12];
    struct vx_batch_plan plan, sent[2];
    rig_submit(sched, &suspect, 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 0);
    for (int i = 0; i < 12; i++) {
        jobs[i] = rig_job(10);
        rig_submit(sched, &jobs[i], 0);
    }
    rig_pick(sched, 0, &sent[0]);
    rig_pick(sched, 0, &sent[1]);
    ck_assert_int_eq(sent[0].worker + sent[1].worker, 1 + 2);
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    /* Worker 1 takes no more jobs; 2 continues to serve. */
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 2);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    rig_finish(sched, sent[0].worker == 1 ? &sent[0] : &sent[1], 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 1);
    ck_assert_ptr_eq(plan.jobs[0], &suspect);
    ck_assert(!vx_sched_pick(sched, 0, &plan)); /* nothing is added until it ends */
    rig_close(&sched);
}
END_TEST

START_TEST(a_job_that_must_be_alone_keeps_its_level_and_loses_its_timeout)
{
    struct vx_batching batching = {
        .voxels_max = 1000, .requests_max = 4, .priority_levels = 2};
    batching.policies[2].allow_timeout_override = true;
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job suspect = rig_job(10), better = rig_job(10), equal = rig_job(10);
    struct vx_batch_plan plan;
    suspect.priority = equal.priority = 2;
    better.priority = 1;
    better.voxels = better.pairs = 1000; /* a batch of its own */
    suspect.timeout_ns = 5 * MS;
    rig_submit(sched, &suspect, 0);
    rig_pick(sched, 0, &plan);
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    rig_submit(sched, &equal, 9 * MS);
    rig_submit(sched, &better, 9 * MS);
    /* It was in time; the worker's death is not its fault. */
    vx_sched_expire(sched, 9 * MS, rig_no_job, NULL);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    rig_pick(sched, 9 * MS, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &better);
    rig_finish(sched, &plan, 9 * MS);
    rig_pick(sched, 9 * MS, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &suspect);
    rig_finish(sched, &plan, 9 * MS);
    rig_pick(sched, 9 * MS, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &equal);
    rig_close(&sched);
}
END_TEST

/* ------- workers that are about to end, or load a model ------- */

START_TEST(a_leaving_worker_gets_nothing_more)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 1};
    struct vx_sched *sched = rig_open(&batching, 2);
    struct vx_job jobs[5];
    struct vx_batch_plan sent, other, plan;
    for (int i = 0; i < 5; i++) jobs[i] = rig_job(10);
    rig_submit(sched, &jobs[0], 0);
    rig_pick(sched, 0, &sent);
    ck_assert_int_eq(sent.worker, 0);
    vx_sched_worker_leaving(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true); /* sent before the worker knew */
    for (int i = 1; i < 5; i++) rig_submit(sched, &jobs[i], 0);
    rig_pick(sched, 0, &other);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(other.worker, 1);
    ck_assert_int_eq(plan.worker, 1);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    ck_assert_int_eq(vx_sched_worker_batches(sched, 0), 1);
    rig_finish(sched, &sent, 0); /* its jobs may still be answered */
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    vx_sched_worker_leaving(sched, 0); /* a late message */
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.worker, 0);
    rig_close(&sched);
}
END_TEST

START_TEST(a_batch_that_was_never_delivered_saw_no_death)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 3};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job jobs[8];
    struct vx_batch_plan plan;
    for (int i = 0; i < 5; i++) {
        jobs[i] = rig_job(10);
        rig_submit(sched, &jobs[i], 0);
        if (i == 1 || i == 4) rig_pick(sched, 0, &plan);
    }
    vx_sched_undelivered(sched, 0, plan.batch);
    ck_assert_int_eq(vx_sched_worker_batches(sched, 0), 1);
    for (int i = 5; i < 8; i++) {
        jobs[i] = rig_job(10);
        rig_submit(sched, &jobs[i], 0);
    }
    ck_assert(!vx_sched_pick(sched, 0, &plan)); /* nor does it get another */
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    ck_assert_int_eq(vx_sched_running(sched), 0);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(jobs[i].deaths, i < 2 ? 1 : 0);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    for (int i = 0; i < 2; i++) {
        rig_pick(sched, 0, &plan);
        ck_assert_ptr_eq(plan.jobs[0], &jobs[i]);
        rig_finish(sched, &plan, 0);
    }
    rig_pick(sched, 0, &plan); /* together, in their earlier order */
    ck_assert_int_eq(plan.jobs_count, 3);
    for (int i = 0; i < 3; i++) ck_assert_ptr_eq(plan.jobs[i], &jobs[2 + i]);
    rig_close(&sched);
}
END_TEST

START_TEST(a_job_that_must_be_alone_waits_for_the_end_of_a_load)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 1};
    struct vx_sched *sched = rig_open(&batching, 2);
    struct vx_job suspect = rig_job(10), innocent = rig_job(10);
    struct vx_batch_plan plan;
    rig_submit(sched, &suspect, 0);
    rig_pick(sched, 0, &plan);
    vx_sched_worker_down(sched, plan.worker, rig_no_job, NULL);
    i32 other = 1 - plan.worker;
    vx_sched_worker_loading(sched, other, true);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    rig_submit(sched, &innocent, 0);
    rig_pick(sched, 0, &plan); /* nor is the worker kept free for it */
    ck_assert_ptr_eq(plan.jobs[0], &innocent);
    rig_finish(sched, &plan, 0);
    vx_sched_worker_loading(sched, other, false);
    rig_pick(sched, 0, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &suspect);
    rig_finish(sched, &plan, 0);
    /* A new process loads nothing until it is sent a LOAD. */
    vx_sched_worker_loading(sched, other, true);
    vx_sched_worker_down(sched, other, rig_no_job, NULL);
    vx_sched_worker_up(sched, other);
    vx_sched_instance_ready(sched, 0, other, true);
    suspect.deaths = 1;
    vx_sched_resubmit(sched, &suspect);
    rig_pick(sched, 0, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &suspect);
    rig_close(&sched);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_place");
    TCase *table = tcase_create("table");
    tcase_add_test(table, unknown_devices_share_by_their_batches);
    tcase_add_test(table, each_device_is_tried_before_one_is_chosen);
    tcase_add_loop_test(table, a_job_goes_where_it_is_done_first, 0,
                        (int)VX_COUNT(place_rows));
    tcase_add_test(table, a_batch_leaves_out_what_others_hold);
    tcase_add_test(table, jobs_count_with_those_that_wait_before_them);
    tcase_add_test(table, a_device_that_is_late_is_not_waited_for);
    tcase_add_test(table, jobs_of_a_dead_worker_run_alone);
    tcase_add_test(table, what_ran_on_a_dead_worker_has_no_holder_there);
    tcase_add_test(table, a_worker_runs_empty_for_a_job_that_must_be_alone);
    tcase_add_test(table, a_job_that_must_be_alone_keeps_its_level_and_loses_its_timeout);
    tcase_add_test(table, a_leaving_worker_gets_nothing_more);
    tcase_add_test(table, a_batch_that_was_never_delivered_saw_no_death);
    tcase_add_test(table, a_job_that_must_be_alone_waits_for_the_end_of_a_load);
    suite_add_tcase(suite, table);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
