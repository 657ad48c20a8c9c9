/* What may begin while a long batch runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

static const struct vx_batching wide = {.voxels_max = 1000000, .requests_max = 64};

/* Instance 0 takes 200 ms for a batch, 1 takes 1 ms, and nothing is known of 2. */
enum { LONG_MODEL, SHORT_MODEL, NEW_MODEL, MODELS };

static struct vx_sched *sched;

/* Jobs outlive their test: tear_down ends what runs. */
static struct vx_job room[16];
static i32 made;

static struct vx_job *job_of(i32 instance, i64 voxels)
{
    struct vx_job *job = &room[made++];
    *job = rig_job(voxels);
    job->instance = instance;
    return job;
}

static void set_up(void)
{
    made = 0;
    static const struct rig_device devices[] = {
        {.instance = LONG_MODEL, .fixed_ns = 200 * MS},
        {.instance = SHORT_MODEL, .fixed_ns = 1 * MS, .pair_ns = 10 * US},
    };
    sched = rig_open(&wide, 1);
    for (i32 i = 1; i < MODELS; i++) {
        vx_sched_instance_set(sched, i, &wide, true);
        vx_sched_instance_ready(sched, i, 0, true);
    }
    for (i32 i = 0; i < 2; i++) rig_teach(sched, &wide, 1, &devices[i]);
}

static void tear_down(void)
{
    rig_close(&sched);
}

/* Sends a batch that is predicted to take 200 ms. */
static struct vx_batch_plan run_long(void)
{
    struct vx_batch_plan plan;
    rig_submit(sched, job_of(LONG_MODEL, 100), 0);
    rig_pick(sched, 0, &plan);
    ck_assert(!plan.brief);
    return plan;
}

/* Who waits for longer, and came before, does not keep it waiting, and the next one may follow. */
START_TEST(a_brief_batch_begins_beside_a_long_one)
{
    struct vx_job *waits, *asks, *unknown, *brief, *next;
    struct vx_batch_plan plan;
    run_long();
    waits = job_of(LONG_MODEL, 100);
    asks = job_of(SHORT_MODEL, 1);
    asks->asks = true;
    unknown = job_of(NEW_MODEL, 1);
    brief = job_of(SHORT_MODEL, 2);
    next = job_of(SHORT_MODEL, 3);
    rig_submit(sched, waits, 0);
    rig_submit(sched, asks, 0);
    rig_submit(sched, unknown, 0);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
    rig_submit(sched, brief, 0);
    rig_pick(sched, 0, &plan);
    ck_assert(plan.brief);
    ck_assert_int_eq(plan.jobs_count, 1);
    ck_assert_ptr_eq(plan.jobs[0], brief);
    rig_submit(sched, next, 0);
    struct vx_batch_plan other;
    ck_assert(!vx_sched_pick(sched, 0, &other)); /* both places are taken */
    rig_finish(sched, &plan, 2 * MS);
    rig_pick(sched, 2 * MS, &other);
    ck_assert_ptr_eq(other.jobs[0], next);
}
END_TEST

/* Jobs join while the whole is brief: 1 ms and 10 us for each voxel, 25 ms at most. */
START_TEST(a_brief_batch_stays_brief)
{
    struct vx_job *jobs[4];
    struct vx_batch_plan plan;
    run_long();
    for (i32 i = 0; i < 4; i++) {
        jobs[i] = job_of(SHORT_MODEL, 700);
        rig_submit(sched, jobs[i], 0);
    }
    rig_pick(sched, 0, &plan);
    ck_assert(plan.brief);
    ck_assert_int_eq(plan.jobs_count, 3);
    ck_assert_int_le(plan.predicted_ns, 25 * MS);
    struct vx_job *large = job_of(SHORT_MODEL, 2600);
    rig_finish(sched, &plan, 0);
    rig_pick(sched, 0, &plan);
    rig_finish(sched, &plan, 0);
    rig_submit(sched, large, 0);
    ck_assert(!vx_sched_pick(sched, 0, &plan));
}
END_TEST

/* By the clock a batch is long that was predicted to be short; and about when a long one should end, any
 * batch may be sent. */
static const struct {
    i64 now_ns;
    bool any;
} long_rows[] = {
    {0, false},       {101 * MS, false}, {179 * MS, false},  {181 * MS, true},
    {219 * MS, true}, {221 * MS, false}, {9000 * MS, false},
};

START_TEST(about_its_end_any_batch_is_sent)
{
    struct vx_job *any, *brief;
    struct vx_batch_plan plan;
    run_long();
    any = job_of(LONG_MODEL, 100);
    rig_submit(sched, any, 0);
    ck_assert_int_eq(vx_sched_pick(sched, long_rows[_i].now_ns, &plan),
                     long_rows[_i].any);
    if (long_rows[_i].any) return;
    brief = job_of(SHORT_MODEL, 1);
    rig_submit(sched, brief, 0);
    rig_pick(sched, long_rows[_i].now_ns, &plan);
    ck_assert_ptr_eq(plan.jobs[0], brief);
}
END_TEST

START_TEST(what_was_short_and_is_not_is_long)
{
    struct vx_job *running = job_of(SHORT_MODEL, 1), *any, *brief;
    struct vx_batch_plan plan;
    rig_submit(sched, running, 0);
    rig_pick(sched, 0, &plan);
    any = job_of(LONG_MODEL, 100);
    rig_submit(sched, any, 101 * MS);
    ck_assert(!vx_sched_pick(sched, 101 * MS, &plan));
    brief = job_of(SHORT_MODEL, 1);
    rig_submit(sched, brief, 101 * MS);
    rig_pick(sched, 101 * MS, &plan);
    ck_assert_ptr_eq(plan.jobs[0], brief);
}
END_TEST

/* A second batch in its usual place may turn out to be behind a long one. */
START_TEST(a_second_batch_says_whether_it_is_brief)
{
    struct vx_job *running = job_of(SHORT_MODEL, 1), *second;
    struct vx_batch_plan plan;
    rig_submit(sched, running, 0);
    rig_pick(sched, 0, &plan);
    ck_assert(!plan.brief); /* nothing runs before it */
    second = job_of(_i == 1 ? LONG_MODEL : SHORT_MODEL, 1);
    for (i32 k = 0; _i == 2 && k < 2; k++) vx_sched_ran_aside(sched, second, 101 * MS, 0);
    rig_submit(sched, second, MS);
    rig_pick(sched, MS, &plan);
    ck_assert_int_eq(plan.brief, !_i);
}
END_TEST

/* It had one thread, or a part of the device: its time teaches nothing, and it is said to wait for
 * nobody. */
START_TEST(a_brief_batch_teaches_nothing)
{
    struct vx_job *brief, *job = job_of(SHORT_MODEL, 1);
    struct vx_batch_plan plan;
    run_long();
    const i64 before_ns = vx_sched_expected_wait_ns(sched, job, 0);
    ck_assert_int_le(before_ns, 2 * MS);
    brief = job_of(SHORT_MODEL, 1);
    rig_submit(sched, brief, 0);
    rig_pick(sched, 0, &plan);
    const struct vx_batch_end end = {.batch = plan.batch,
                                     .now_ns = 90 * MS,
                                     .device_ns = 89 * MS,
                                     .aside = true,
                                     .pairs = 1};
    ck_assert(vx_sched_finish(sched, &end, &plan));
    ck_assert_int_eq(vx_sched_expected_wait_ns(sched, job, 90 * MS), before_ns);
    job->instance = LONG_MODEL; /* which stood still for 89 ms */
    ck_assert_int_ge(vx_sched_expected_wait_ns(sched, job, 90 * MS), 398 * MS);
}
END_TEST

/* Two of an origin that were taken for brief and took long: those that come from there within a minute, or
 * wait already, wait their turn; others do not. */
START_TEST(what_was_wrongly_brief_is_so_no_more)
{
    static const struct {
        i64 took_ms, again_s, comes_s;
        bool other, moved, brief;
    } rows[] = {
        {100, 0, 0, false, false, true},     {101, 0, 0, false, false, false},
        {3000, 59, 60, false, false, false}, {3000, 60, 60, false, false, true},
        {3000, 1, 60, false, false, false},  {3000, 1, 61, false, false, true},
        {3000, 1, 2, true, false, true},     {3000, 1, 2, false, true, true},
    };
    struct vx_job first = {.origin = 5, .source = 5}, *next = job_of(SHORT_MODEL, 1);
    struct vx_batch_plan plan;
    const i64 now_ns = rows[_i].comes_s * VX_NS_PER_S;
    rig_submit(sched, job_of(LONG_MODEL, 100), now_ns);
    rig_pick(sched, now_ns, &plan);
    vx_sched_ran_aside(sched, &first, rows[_i].took_ms * MS, 0);
    next->origin = rows[_i].other ? 6 : 5;
    next->source = rows[_i].moved ? 55 : next->origin;
    ck_assert_int_lt(vx_sched_expected_wait_ns(sched, next, now_ns), 100 * MS);
    rig_submit(sched, next, now_ns);
    vx_sched_ran_aside(sched, &first, rows[_i].took_ms * MS,
                       rows[_i].again_s * VX_NS_PER_S);
    ck_assert_int_eq(vx_sched_pick(sched, now_ns, &plan), rows[_i].brief);
}
END_TEST

/* On many threads it has one of them: what is brief on two is not on 64. */
START_TEST(one_thread_of_many_is_slow)
{
    struct vx_job *one = job_of(SHORT_MODEL, 1);
    struct vx_batch_plan plan;
    vx_sched_worker_threads(sched, 0, _i ? 64 : 48);
    run_long();
    rig_submit(sched, one, 0);
    ck_assert_int_eq(vx_sched_pick(sched, 0, &plan), !_i);
}
END_TEST

/* Of two workers that run long the one that is free sooner has its second place taken: the other one is as
 * good. */
START_TEST(each_worker_has_a_place_for_brief_ones)
{
    struct vx_job *running[2], *brief[2];
    struct vx_batch_plan plan;
    vx_sched_worker_up(sched, 1);
    for (i32 i = 0; i < 2; i++) vx_sched_instance_ready(sched, i, 1, true);
    rig_teach(
        sched, &wide, 3,
        &(struct rig_device){.instance = SHORT_MODEL, .worker = 1, .fixed_ns = 1 * MS});
    rig_teach(
        sched, &wide, 3,
        &(struct rig_device){.instance = LONG_MODEL, .worker = 1, .fixed_ns = 900 * MS});
    for (i32 i = 0; i < 2; i++) {
        running[i] = job_of(LONG_MODEL, 100);
        running[i]->only = 1u << i;
        rig_submit(sched, running[i], 0);
        rig_pick(sched, 0, &plan);
    }
    for (i32 i = 0; i < 2; i++) {
        brief[i] = job_of(SHORT_MODEL, 1);
        rig_submit(sched, brief[i], 0);
        rig_pick(sched, 0, &plan);
        ck_assert(plan.brief);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_brief");
    TCase *tests = tcase_create("brief");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_brief_batch_begins_beside_a_long_one);
    tcase_add_test(tests, a_brief_batch_stays_brief);
    tcase_add_loop_test(tests, about_its_end_any_batch_is_sent, 0,
                        (int)(sizeof long_rows / sizeof *long_rows));
    tcase_add_test(tests, what_was_short_and_is_not_is_long);
    tcase_add_loop_test(tests, a_second_batch_says_whether_it_is_brief, 0, 3);
    tcase_add_test(tests, a_brief_batch_teaches_nothing);
    tcase_add_loop_test(tests, what_was_wrongly_brief_is_so_no_more, 0, 8);
    tcase_add_loop_test(tests, one_thread_of_many_is_slow, 0, 2);
    tcase_add_test(tests, each_worker_has_a_place_for_brief_ones);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
