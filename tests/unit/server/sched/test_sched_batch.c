/* Which jobs run together, when, and which are refused, as tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>
#include <string.h>

#define JOBS_MAX 10

/* ------- what goes into a batch ------- */

/* voxels_max, pairs_max, requests_max; sizes in the order of arrival, 0 ends; the batch
 * that each goes with, from 1 */
static const struct {
    i64 voxels_max, pairs_max;
    i32 requests_max;
    i64 voxels[JOBS_MAX];
    i32 batch[JOBS_MAX];
} forming_rows[] = {
    {100, 0, 64, {10, 10, 10}, {1, 1, 1}},
    {100, 0, 1, {10, 10, 10}, {1, 2, 3}},
    {100, 0, 2, {10, 10, 10}, {1, 1, 2}},
    {100, 0, 64, {60, 60, 40}, {1, 2, 1}}, /* passed over: first of the next batch */
    {100, 0, 64, {60, 60, 60, 40, 40}, {1, 2, 3, 1, 2}},
    {100, 0, 64, {500, 10, 10}, {1, 2, 2}}, /* the first goes whatever its size */
    {100, 0, 64, {10, 500, 10}, {1, 2, 1}},
    {1000, 100, 64, {50, 60, 50}, {1, 2, 1}}, /* pairs: here one per voxel */
    {1000, 100, 64, {500, 10}, {1, 2}},
    {100, 0, 0, {10, 10}, {1, 2}}, /* 0 requests is no batch */
    {100, 0, 64, {50, 50, 1}, {1, 1, 2}},
};

START_TEST(a_batch_takes_what_fits)
{
    const struct vx_batching batching = {.voxels_max = forming_rows[_i].voxels_max,
                                         .pairs_max = forming_rows[_i].pairs_max,
                                         .requests_max = forming_rows[_i].requests_max};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job jobs[JOBS_MAX];
    int count = 0, served = 0;
    for (; count < JOBS_MAX && forming_rows[_i].voxels[count]; count++) {
        jobs[count] = rig_job(forming_rows[_i].voxels[count]);
        rig_submit(sched, &jobs[count], 0);
    }
    for (i32 batch = 1; served < count; batch++) {
        struct vx_batch_plan plan;
        rig_pick(sched, 0, &plan);
        i64 voxels = 0;
        for (i32 j = 0; j < plan.jobs_count; j++, served++) {
            ck_assert_int_eq(forming_rows[_i].batch[plan.jobs[j] - jobs], batch);
            ck_assert(!j || plan.jobs[j] > plan.jobs[j - 1]); /* in their order */
            voxels += plan.jobs[j]->voxels;
        }
        ck_assert_int_eq(plan.voxels, voxels);
        rig_finish(sched, &plan, 0);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(a_batch_is_of_one_instance)
{
    const struct vx_batching batching = {.voxels_max = 100, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 1);
    vx_sched_instance_set(sched, 1, &batching, true);
    vx_sched_instance_ready(sched, 1, 0, true);
    struct vx_job jobs[6];
    for (int i = 0; i < 6; i++) {
        jobs[i] = rig_job(1);
        jobs[i].instance = i % 2;
        rig_submit(sched, &jobs[i], 0);
    }
    for (i32 i = 0; i < 2; i++) {
        struct vx_batch_plan plan;
        rig_pick(sched, 0, &plan);
        ck_assert_int_eq(plan.instance, i);
        ck_assert_int_eq(plan.jobs_count, 3);
        for (i32 j = 0; j < 3; j++) ck_assert_int_eq(plan.jobs[j]->instance, i);
    }
    rig_close(&sched);
}
END_TEST

START_TEST(pairs_that_are_not_known_are_estimated)
{
    const struct vx_batching batching = {
        .voxels_max = 10000, .pairs_max = 1000, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job jobs[4];
    struct vx_batch_plan plan;
    jobs[0] = rig_job(100);
    jobs[0].pairs = 0;
    rig_submit(sched, &jobs[0], 0);
    rig_pick(sched, 0, &plan);
    const struct vx_batch_end end = {
        .batch = plan.batch, .device_ns = 1000, .pairs = 500};
    ck_assert(vx_sched_finish(sched, &end, &plan));
    for (int i = 0; i < 4; i++) { /* five pairs per voxel have been seen */
        jobs[i] = rig_job(80);
        jobs[i].pairs = 0;
        rig_submit(sched, &jobs[i], 0);
    }
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.jobs_count, 2);
    ck_assert_int_eq(plan.pairs, 800);
    rig_close(&sched);
}
END_TEST

/* A network with coarser sets: what a job brings is said, or expected from batches of its
 * model that ended, and fills the batch. */
START_TEST(voxels_of_all_sets_fill_a_batch)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job jobs[6], other = rig_job(100);
    struct vx_batch_plan plan;
    vx_sched_instance_set(sched, 1, &batching, true);
    vx_sched_instance_ready(sched, 1, 0, true);
    jobs[0] = rig_job(200);
    rig_submit(sched, &jobs[0], 0);
    ck_assert_int_eq(jobs[0].set_voxels, 200); /* nothing is known yet */
    rig_pick(sched, 0, &plan);
    const struct vx_batch_end end = {
        .batch = plan.batch, .device_ns = 1000, .pairs = 200, .set_voxels = 300};
    ck_assert(vx_sched_finish(sched, &end, &plan));
    for (int i = 1; i < 6; i++) {
        jobs[i] = rig_job(100);
        if (i == 2) jobs[i].set_voxels = 851; /* does not fit beside the first */
        if (i == 3) jobs[i].set_voxels = 40;  /* a worker said so: its own are 100 */
        if (i == 4) jobs[i].set_voxels = 700;
        rig_submit(sched, &jobs[i], 0);
    }
    other.instance = 1; /* nothing is known of this model */
    rig_submit(sched, &other, 0);
    ck_assert_int_eq(jobs[3].set_voxels, 150);
    ck_assert_int_eq(other.set_voxels, 100);
    ck_assert_int_eq(vx_sched_queued_voxels(sched), 150 + 851 + 150 + 700 + 150 + 100);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.jobs_count, 3); /* 1, 3 and 4 */
    ck_assert_int_eq(plan.voxels, 300);
    ck_assert_int_eq(plan.set_voxels, 1000);
    ck_assert_int_eq(vx_sched_queued_voxels(sched), 851 + 150 + 100);
    ck_assert_int_eq(vx_sched_voxels(sched), 1000 + 851 + 150 + 100);
    rig_finish(sched, &plan, 0);
    ck_assert_int_eq(vx_sched_voxels(sched), 851 + 150 + 100);
    rig_close(&sched);
}
END_TEST

/* ------- when it goes ------- */

static const struct vx_batching delayed = {
    .voxels_max = 1000, .requests_max = 4, .delay_us = 500};

/* The pairs of a batch belong to the voxels of the jobs that ran. */
START_TEST(pairs_are_of_those_that_ran)
{
    static const u64 left_out[] = {0, 1, 2, 5};
    static const i64 ran[] = {600, 500, 400, 200};
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job jobs[3] = {rig_job(100), rig_job(200), rig_job(300)};
    struct vx_batch_plan plan;
    for (int i = 0; i < 3; i++) rig_submit(sched, &jobs[i], 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.jobs_count, 3);
    const struct vx_batch_end end = {.batch = plan.batch,
                                     .device_ns = 1000,
                                     .pairs = 9 * ran[_i],
                                     .left_out = left_out[_i]};
    ck_assert(vx_sched_finish(sched, &end, &plan));
    struct vx_job unknown = rig_job(10);
    unknown.pairs = 0;
    rig_submit(sched, &unknown, 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_eq(plan.pairs, 90);
    rig_close(&sched);
}
END_TEST

START_TEST(an_idle_worker_waits_for_company)
{
    struct vx_sched *sched = rig_open(&delayed, 1);
    struct vx_job jobs[6];
    struct vx_batch_plan plan;
    for (int i = 0; i < 6; i++) jobs[i] = rig_job(10);
    rig_submit(sched, &jobs[0], 100 * US);
    ck_assert(!vx_sched_pick(sched, 100 * US, &plan));
    ck_assert_int_eq(vx_sched_next_ns(sched), 600 * US);
    rig_submit(sched, &jobs[1], 400 * US);
    ck_assert(!vx_sched_pick(sched, 599 * US, &plan));
    ck_assert_int_eq(vx_sched_next_ns(sched), 600 * US); /* from the first */
    rig_pick(sched, 600 * US, &plan);
    ck_assert_int_eq(plan.jobs_count, 2);
    /* A busy device costs a job no waiting. */
    rig_submit(sched, &jobs[2], 700 * US);
    rig_pick(sched, 700 * US, &plan);
    ck_assert_int_eq(plan.jobs_count, 1);
    rig_close(&sched);
    /* Full: by requests, by voxels, and when a job did not fit. */
    static const i64 voxels[3][4] = {{1, 1, 1, 1}, {500, 500, 0, 0}, {600, 500, 0, 0}};
    for (int row = 0; row < 3; row++) {
        sched = rig_open(&delayed, 1);
        for (int i = 0; i < 4 && voxels[row][i]; i++) {
            ck_assert(!vx_sched_pick(sched, 0, &plan));
            jobs[i] = rig_job(voxels[row][i]);
            rig_submit(sched, &jobs[i], 0);
        }
        rig_pick(sched, 0, &plan);
        rig_close(&sched);
    }
}
END_TEST

START_TEST(a_delay_is_cut_short_for_a_deadline)
{
    struct vx_batching batching = delayed;
    batching.delay_us = 50000;
    struct vx_sched *sched = rig_open(&batching, 1);
    rig_teach(sched, &batching, 1,
              &(struct rig_device){.fixed_ns = 2 * MS, .pair_ns = 10});
    struct vx_job calm = rig_job(10), urgent = rig_job(10), queued = rig_job(10);
    struct vx_batch_plan plan;
    urgent.deadline_ns = 20 * MS;
    rig_submit(sched, &calm, 0);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    ck_assert_int_eq(vx_sched_next_ns(sched), 50 * MS);
    rig_submit(sched, &urgent, 1 * MS);
    ck_assert(!vx_sched_pick(sched, 1 * MS, &plan));
    i64 next_ns = vx_sched_next_ns(sched); /* 20 less 2 on the device, 1 to spare */
    ck_assert(next_ns > 16 * MS && next_ns < 18 * MS);
    rig_pick(sched, next_ns, &plan);
    ck_assert_int_eq(plan.jobs_count, 2);
    rig_close(&sched);
    /* The timeout is for the queue alone. */
    batching.policies[0].allow_timeout_override = true;
    sched = rig_open(&batching, 1);
    queued.timeout_ns = 20 * MS;
    rig_submit(sched, &queued, 0);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    ck_assert_int_eq(vx_sched_next_ns(sched), 19 * MS);
    rig_close(&sched);
}
END_TEST

/* How long the running batch takes, how much waits behind it; when the second place is
 * used */
static const struct {
    i64 fixed_ns;
    i32 waiting;
    i64 voxels, at_ns;
} second_rows[] = {
    {1 * MS, 1, 10, MS / 2}, /* half of what is predicted has passed */
    {1 * MS, 31, 10, MS / 2},
    {1 * MS, 32, 10, 0}, /* half a budget of requests */
    {1 * MS, 1, 500, 0}, /* of voxels */
    {1 * MS, 1, 499, MS / 2},
    {3 * MS, 1, 10, 0}, /* a large one */
    {99 * MS, 1, 10, 0},
    {200 * MS, 1, 10, 180 * MS}, /* a long one: 20 ms before its end */
    {200 * MS, 64, 10, 180 * MS},
    {0, 1, 10, 0}, /* nothing is known */
};

START_TEST(the_second_place_is_used_when_it_pays)
{
    const struct vx_batching batching = {.voxels_max = 1000, .requests_max = 64};
    struct vx_sched *sched = rig_open(&batching, 1);
    if (second_rows[_i].fixed_ns)
        rig_teach(sched, &batching, 1,
                  &(struct rig_device){.fixed_ns = second_rows[_i].fixed_ns});
    static struct vx_job first, jobs[64];
    struct vx_batch_plan plan;
    first = rig_job(0);
    rig_submit(sched, &first, 0);
    rig_pick(sched, 0, &plan);
    for (i32 i = 0; i < second_rows[_i].waiting; i++) {
        jobs[i] = rig_job(second_rows[_i].voxels);
        rig_submit(sched, &jobs[i], 0);
    }
    if (second_rows[_i].at_ns) {
        ck_assert(!vx_sched_pick(sched, 0, &plan));
        i64 at_ns = vx_sched_next_ns(sched);
        ck_assert(llabs(at_ns - second_rows[_i].at_ns) < MS / 10);
        ck_assert(!vx_sched_pick(sched, at_ns - 1, &plan));
        rig_pick(sched, at_ns, &plan);
    } else {
        rig_pick(sched, 0, &plan);
    }
    ck_assert_int_eq(plan.jobs_count, second_rows[_i].waiting);
    rig_close(&sched);
}
END_TEST

static const struct vx_batching wide = {.voxels_max = 100000, .requests_max = 1};

/* ------- who is refused at once ------- */

/* How many jobs wait (each 10 ms on the device, one after another), the deadline, the
 * timeout, the policy; the answer */
static const struct {
    i32 ahead;
    i64 deadline_ns, timeout_ns;
    bool delay;
    enum vx_code code;
} admit_rows[] = {
    {0, 11 * MS, 0, false, VX_CODE_OK},
    {0, 7 * MS, 0, false, VX_CODE_DEADLINE_EXCEEDED},
    {0, 8 * MS, 0, false, VX_CODE_OK}, /* a quarter of tolerance */
    {9, 101 * MS, 0, false, VX_CODE_OK},
    {9, 70 * MS, 0, false, VX_CODE_DEADLINE_EXCEEDED},
    {9, 80 * MS, 0, false, VX_CODE_OK},
    {9, VX_NEVER, 91 * MS, false, VX_CODE_OK},
    {9, VX_NEVER, 60 * MS, false, VX_CODE_UNAVAILABLE},
    {9, VX_NEVER, 60 * MS, true, VX_CODE_OK}, /* it would be delayed, not refused */
    {0, VX_NEVER, 1 * US, false, VX_CODE_OK}, /* queue timeout: it starts at once */
};

START_TEST(what_cannot_be_in_time_is_refused_at_once)
{
    struct vx_batching batching = wide;
    batching.policies[0].allow_timeout_override = true;
    batching.policies[0].timeout_delay = admit_rows[_i].delay;
    struct vx_sched *sched = rig_open(&batching, 1);
    struct vx_job ahead[9], job = rig_job(100);
    struct vx_why why = {""};
    struct vx_batch_plan plan;
    ck_assert_int_eq(vx_sched_expected_wait_ns(sched, &job, 0), 0);
    rig_teach(sched, &batching, 1, &(struct rig_device){.fixed_ns = 10 * MS});
    for (i32 i = 0; i < admit_rows[_i].ahead; i++) {
        ahead[i] = rig_job(100);
        rig_submit(sched, &ahead[i], 0);
        if (i < VX_WORKER_DEPTH) rig_pick(sched, 0, &plan);
    }
    i64 expected_ns = (admit_rows[_i].ahead + 1) * 10 * MS;
    ck_assert(llabs(vx_sched_expected_wait_ns(sched, &job, 0) - expected_ns) < MS / 2);
    job.deadline_ns = admit_rows[_i].deadline_ns;
    job.timeout_ns = admit_rows[_i].timeout_ns;
    vx_status st = vx_sched_submit(sched, &job, 0, NULL, &why);
    ck_assert_msg(vx_status_code(st) == admit_rows[_i].code, "row %d: %s", _i,
                  vx_status_text(st, &why));
    if (st.fault) ck_assert_ptr_nonnull(strstr(why.text, "the expected wait is "));
    if (st.fault) ck_assert_ptr_nonnull(strstr(why.text, " ms"));
    ck_assert_int_eq(!!strstr(why.text, "Request timeout expired"),
                     admit_rows[_i].code == VX_CODE_UNAVAILABLE);
    rig_close(&sched);
}
END_TEST

/* What is learned of batches of another size is no proof that this size still takes long. */
START_TEST(an_idle_device_tries_a_size_that_it_has_not_seen_for_a_second)
{
    struct vx_sched *sched = rig_open(&wide, 1);
    struct vx_why why = {""};
    struct vx_batch_plan plan, ended;
    rig_teach(sched, &wide, 1, &(struct rig_device){.fixed_ns = 10 * MS});
    struct vx_job large = rig_job(500000);
    rig_submit(sched, &large, 900 * MS);
    rig_pick(sched, 900 * MS, &plan);
    const struct vx_batch_end end = {
        .batch = plan.batch, .device_ns = 20 * MS, .pairs = 500000, .now_ns = 920 * MS};
    ck_assert(vx_sched_finish(sched, &end, &ended));
    struct vx_job job = rig_job(200);
    job.deadline_ns = 999 * MS + 5 * MS;
    ck_assert(vx_sched_submit(sched, &job, 999 * MS, NULL, &why).fault != NULL);
    job.deadline_ns = 1000 * MS + 5 * MS;
    rig_submit(sched, &job, 1000 * MS);
    rig_close(&sched);
}
END_TEST

START_TEST(an_expected_wait_knows_batches_levels_and_workers)
{
    const struct vx_batching batching = {
        .voxels_max = 100000, .requests_max = 10, .priority_levels = 3};
    struct vx_sched *sched = rig_open(&batching, 2);
    for (i32 w = 0; w < 2; w++)
        rig_teach(
            sched, &batching, 3,
            &(struct rig_device){.worker = w, .fixed_ns = 5 * MS, .pair_ns = 10 * US});
    static struct vx_job jobs[100];
    for (int i = 0; i < 100; i++) { /* ten batches of 15 ms on two devices */
        jobs[i] = rig_job(100);
        jobs[i].priority = 2;
        rig_submit(sched, &jobs[i], 0);
    }
    struct vx_job job = rig_job(100);
    job.priority = 3;
    i64 wait_ns = vx_sched_expected_wait_ns(sched, &job, 0);
    ck_assert_msg(llabs(wait_ns - 81 * MS) < 2 * MS, "got %lld us",
                  (long long)wait_ns / US);
    job.priority = 1;
    wait_ns = vx_sched_expected_wait_ns(sched, &job, 0);
    ck_assert_msg(llabs(wait_ns - 6 * MS) < MS, "got %lld us", (long long)wait_ns / US);
    rig_close(&sched);
}
END_TEST

START_TEST(an_expected_wait_knows_what_runs)
{
    struct vx_sched *sched = rig_open(&wide, 1);
    rig_teach(sched, &wide, 1, &(struct rig_device){.fixed_ns = 10 * MS});
    struct vx_job jobs[2] = {rig_job(100), rig_job(100)}, job = rig_job(100);
    struct vx_batch_plan first, second;
    for (int i = 0; i < 2; i++) rig_submit(sched, &jobs[i], 0);
    rig_pick(sched, 0, &first);
    rig_pick(sched, 0, &second);
    static const i64 rows[3][2] = {{0, 30}, {6, 24}, {12, 22}}; /* at; expected; ms */
    for (int row = 0; row < 3; row++) {
        i64 wait_ns = vx_sched_expected_wait_ns(sched, &job, rows[row][0] * MS);
        ck_assert_msg(llabs(wait_ns - rows[row][1] * MS) < MS / 4, "row %d: %lld us", row,
                      (long long)(wait_ns / US));
    }
    rig_finish(sched, &first, 12 * MS); /* the second has the device since then */
    ck_assert(llabs(vx_sched_expected_wait_ns(sched, &job, 12 * MS) - 20 * MS) < MS / 4);
    /* A new model in the same row starts without a history. */
    vx_sched_instance_set(sched, 0, &wide, false);
    ck_assert_int_gt(vx_sched_expected_wait_ns(sched, &job, 12 * MS), 0);
    vx_sched_instance_set(sched, 0, &wide, true);
    ck_assert_int_eq(vx_sched_expected_wait_ns(sched, &job, 12 * MS), 0);
    rig_close(&sched);
}
END_TEST

/* One batch runs and one waits that are a thousand times as large as any that was measured.  By the
 * line they take minutes; a request behind them is not refused for that. */
START_TEST(a_guess_refuses_nobody)
{
    const struct vx_batching batching = {.voxels_max = 1000000000, .requests_max = 1};
    struct vx_sched *sched = rig_open(&batching, 1);
    rig_teach(sched, &batching, 1,
              &(struct rig_device){.fixed_ns = 200 * US, .pair_ns = 10 * US});
    struct vx_job large[2] = {rig_job(50000000), rig_job(50000000)}, small = rig_job(100);
    struct vx_batch_plan plan;
    rig_submit(sched, &large[0], 0);
    rig_pick(sched, 0, &plan);
    ck_assert_int_gt(plan.predicted_ns, 400000 * MS);
    rig_submit(sched, &large[1], 0);
    small.deadline_ns = 60000 * MS;
    rig_submit(sched, &small, MS);
    rig_close(&sched);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_batch");
    TCase *table = tcase_create("table");
    tcase_add_loop_test(table, a_batch_takes_what_fits, 0, (int)VX_COUNT(forming_rows));
    tcase_add_test(table, a_batch_is_of_one_instance);
    tcase_add_test(table, pairs_that_are_not_known_are_estimated);
    tcase_add_test(table, voxels_of_all_sets_fill_a_batch);
    tcase_add_loop_test(table, pairs_are_of_those_that_ran, 0, 4);
    tcase_add_test(table, an_idle_worker_waits_for_company);
    tcase_add_test(table, a_delay_is_cut_short_for_a_deadline);
    tcase_add_loop_test(table, the_second_place_is_used_when_it_pays, 0,
                        (int)VX_COUNT(second_rows));
    tcase_add_loop_test(table, what_cannot_be_in_time_is_refused_at_once, 0,
                        (int)VX_COUNT(admit_rows));
    tcase_add_test(table, an_idle_device_tries_a_size_that_it_has_not_seen_for_a_second);
    tcase_add_test(table, an_expected_wait_knows_batches_levels_and_workers);
    tcase_add_test(table, an_expected_wait_knows_what_runs);
    tcase_add_test(table, a_guess_refuses_nobody);
    suite_add_tcase(suite, table);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
