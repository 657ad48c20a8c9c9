/* Whose waiting job leaves a full queue, for whom, and that nobody leaves for a job which is then
 * refused, or which comes only to go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>
#include <string.h>

/* 16 places, and two more for origins with less than two. */
#define QUEUE_MAX 16
#define FULL      18
/* Origin 1 has 11 of 18, and so on: on average an origin has 3.6 places, and beside a sixth 3. */
static const i32 counts[] = {11, 3, 2, 1, 1};
enum { HEAVY = 1, AVERAGE = 2, TWO = 3, ONE = 4, NEWCOMER = 6 };

static const struct vx_batching one_by_one = {
    .voxels_max = 1000000,
    .requests_max = 1,
    .policies = {{.allow_timeout_override = true}}};

static struct vx_job full[FULL], others[FULL];
static i32 others_count;
static u64 clients;

static struct vx_job job_from(u16 origin)
{
    struct vx_job job = rig_job(10);
    job.client = ++clients;
    job.origin = origin;
    return job;
}

static struct vx_sched *room_open(const struct vx_batching *batching)
{
    struct vx_sched *sched;
    ck_assert(!vx_sched_open(QUEUE_MAX, &sched).fault);
    vx_sched_instance_set(sched, 0, batching, true);
    vx_sched_worker_up(sched, 0);
    vx_sched_instance_ready(sched, 0, 0, true);
    return sched;
}

static void room_prepare(u64 priority)
{
    i32 at = 0;
    for (i32 o = 0; o < (i32)VX_COUNT(counts); o++)
        for (i32 i = 0; i < counts[o]; i++, at++) {
            full[at] = job_from((u16)(o + 1));
            full[at].priority = priority;
        }
    ck_assert_int_eq(at, FULL);
}

static void room_fill(struct vx_sched *sched)
{
    for (i32 i = 0; i < FULL; i++)
        if (full[i].state == VX_JOB_NEW) rig_submit(sched, &full[i], 0);
    ck_assert_int_eq(vx_sched_queued(sched), FULL);
}

static struct vx_sched *room_open_full(void)
{
    struct vx_sched *sched = room_open(&one_by_one);
    room_prepare(0);
    room_fill(sched);
    return sched;
}

/* Asks for a place; returns the job that left. */
static struct vx_job *ask(struct vx_sched *sched, struct vx_job *job, enum vx_code code)
{
    struct vx_job *left = job;
    struct vx_why why = {""};
    const bool is_full = vx_sched_is_full(sched, job);
    vx_status st = vx_sched_submit(sched, job, 0, &left, &why);
    ck_assert_msg(vx_status_code(st) == code, "%s", vx_status_text(st, &why));
    const bool says_so = strstr(vx_status_text(st, &why), "Exceeds maximum queue size");
    if (code != VX_CODE_OK) ck_assert_ptr_null(left);
    if (code != VX_CODE_OK) ck_assert_int_eq(is_full, says_so);
    if (left) ck_assert_int_eq(left->state, VX_JOB_NEW);
    return left;
}

static void nobody_left(struct vx_sched *sched)
{
    ck_assert_int_eq(vx_sched_queued(sched), FULL);
    for (i32 i = 0; i < FULL; i++) ck_assert_int_eq(full[i].state, VX_JOB_QUEUED);
}

/* ------- who leaves, and for whom ------- */

START_TEST(the_last_of_the_longest_queue_leaves)
{
    struct vx_sched *sched = room_open_full();
    struct vx_job few = job_from(NEWCOMER), more = job_from(NEWCOMER),
                  third = job_from(NEWCOMER);
    ck_assert(!vx_sched_is_full(sched, &few));
    ck_assert_ptr_eq(ask(sched, &few, VX_CODE_OK), &full[10]);
    ck_assert_int_eq(few.state, VX_JOB_QUEUED);
    ck_assert_int_eq(vx_sched_queued(sched), FULL);
    ck_assert_int_eq(vx_sched_instance_jobs(sched, 0), FULL);
    ck_assert_ptr_eq(ask(sched, &more, VX_CODE_OK), &full[9]);
    /* With a third it would have what an origin has on average. */
    ck_assert_ptr_null(ask(sched, &third, VX_CODE_UNAVAILABLE));
    ck_assert_int_eq(vx_sched_queued(sched), FULL);
    rig_close(&sched);
}
END_TEST

/* Who asks for no `left` takes nobody's place. */
START_TEST(nobody_leaves_unsaid)
{
    struct vx_sched *sched = room_open_full();
    struct vx_job few = job_from(NEWCOMER);
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &few, 0, NULL, NULL)),
                     VX_CODE_UNAVAILABLE);
    nobody_left(sched);
    rig_close(&sched);
}
END_TEST

/* The origin, and whether another leaves for it: on average an origin has 3.6. */
static const struct {
    u16 origin;
    bool gets;
} origin_rows[] = {{HEAVY, false}, {AVERAGE, false}, {TWO, true}, {ONE, true}};

START_TEST(who_has_an_average_part_is_refused)
{
    struct vx_sched *sched = room_open_full();
    struct vx_job job = job_from(origin_rows[_i].origin);
    struct vx_job *left =
        ask(sched, &job, origin_rows[_i].gets ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    ck_assert_ptr_eq(left, origin_rows[_i].gets ? &full[10] : NULL);
    rig_close(&sched);
}
END_TEST

/* Others come until nobody leaves for them: each takes from who has most, and who has no more than
 * the average loses nothing. */
START_TEST(who_has_a_fair_part_keeps_it)
{
    struct vx_sched *sched = room_open(&one_by_one);
    room_prepare(0);
    for (i32 i = 11; i < 14; i++) full[i].voxels = 1000; /* they are served last */
    room_fill(sched);
    i32 of[64] = {0, 11, 3, 2, 1, 1}, origins = 5, taken = 0;
    for (i32 o = NEWCOMER; o < NEWCOMER + FULL; o++) {
        struct vx_job *job = &others[o - NEWCOMER], *left;
        *job = job_from((u16)o);
        if (vx_sched_is_full(sched, job)) break;
        left = ask(sched, job, VX_CODE_OK);
        ck_assert_ptr_nonnull(left);
        origins++;
        for (i32 i = 0; i < 64; i++) ck_assert_int_le(of[i], of[left->origin]);
        ck_assert_int_gt(of[left->origin] * origins, FULL);
        of[left->origin]--;
        of[o]++;
        taken++;
        ck_assert_int_ge(of[left->origin], of[o]);
    }
    /* Of 17 origins one has two places, of 18 each has one. */
    ck_assert_int_eq(taken, 12);
    ck_assert_int_eq(of[HEAVY] + of[AVERAGE] + of[TWO], 4);
    ck_assert_int_eq(of[ONE], 1);
    rig_close(&sched);
}
END_TEST

/* _i: the newcomer's priority. */
START_TEST(nobody_leaves_for_what_may_wait)
{
    struct vx_batching batching = one_by_one;
    batching.priority_levels = 3;
    batching.default_priority_level = 2;
    struct vx_sched *sched = room_open(&batching);
    room_prepare(2);
    room_fill(sched);
    struct vx_job few = job_from(NEWCOMER);
    few.priority = (u64)_i;
    struct vx_job *left = ask(sched, &few, _i <= 2 ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    ck_assert_ptr_eq(left, _i <= 2 ? &full[10] : NULL);
    rig_close(&sched);
}
END_TEST

/* A job that was on a worker has begun.  _i: the worker died of it, or never got it. */
START_TEST(what_was_on_a_worker_does_not_leave)
{
    struct vx_batching batching = one_by_one;
    batching.requests_max = 16;
    struct vx_sched *sched = room_open(&batching);
    struct vx_batch_plan plan;
    room_prepare(0);
    for (i32 i = 0; i < 11; i++) rig_submit(sched, &full[i], 0);
    rig_pick(sched, 1, &plan);
    ck_assert_int_eq(plan.jobs_count, 11);
    /* Nor one that is there. */
    struct vx_job *running = &full[3];
    ck_assert_int_eq(running->state, VX_JOB_RUNNING);
    if (_i) vx_sched_undelivered(sched, 0, plan.batch);
    vx_sched_worker_down(sched, 0, rig_no_job, NULL);
    ck_assert_int_eq(running->deaths, !_i);
    room_fill(sched);
    struct vx_job few = job_from(NEWCOMER);
    ck_assert_ptr_null(ask(sched, &few, VX_CODE_UNAVAILABLE));
    nobody_left(sched);
    rig_close(&sched);
}
END_TEST

/* ------- a model's own limit ------- */

/* Two may wait of model 1, and no address has as much of model 0 as HEAVY.  _i: HEAVY has one of the
 * two as well. */
START_TEST(a_place_of_a_model_is_of_that_model)
{
    struct vx_batching small = one_by_one;
    small.policies[0].max_queue_size = 2;
    struct vx_sched *sched = room_open(&one_by_one);
    vx_sched_instance_set(sched, 1, &small, true);
    struct vx_job there[2] = {job_from(_i ? HEAVY : ONE), job_from(AVERAGE)},
                  few = job_from(NEWCOMER);
    for (i32 i = 0; i < 2; i++) {
        there[i].instance = 1;
        rig_submit(sched, &there[i], 0);
    }
    room_prepare(0);
    for (i32 i = 0; i < 8; i++) rig_submit(sched, &full[i], 0);
    ck_assert(!vx_sched_model_is_full(sched, &few));
    few.instance = 1;
    ck_assert(vx_sched_model_is_full(sched, &few));
    struct vx_job *left = ask(sched, &few, _i ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    ck_assert_ptr_eq(left, _i ? &there[0] : NULL);
    ck_assert_int_eq(vx_sched_queued(sched), 10);
    rig_close(&sched);
}
END_TEST

/* Each level has its own limit: 2 of level 1, 2 of level 2. */
START_TEST(a_place_of_a_level_is_of_that_level)
{
    struct vx_batching batching = one_by_one;
    batching.priority_levels = 2;
    batching.default_priority_level = 2;
    batching.policies[1].max_queue_size = batching.policies[2].max_queue_size = 4;
    struct vx_sched *sched = room_open(&batching);
    struct vx_job jobs[8], few = job_from(NEWCOMER);
    for (i32 i = 0; i < 8; i++) {
        jobs[i] = job_from((u16)(i < 4 ? HEAVY : 10 + i / 6));
        jobs[i].priority = i < 4 ? 2 : 1;
        rig_submit(sched, &jobs[i], 0);
    }
    few.priority = 1; /* origins have 4, 2 and 2, and who has 4 has none of level 1 */
    ck_assert_ptr_null(ask(sched, &few, VX_CODE_UNAVAILABLE));
    few.priority = 2;
    ck_assert_ptr_eq(ask(sched, &few, VX_CODE_OK), &jobs[3]);
    rig_close(&sched);
}
END_TEST

/* ------- a job that is refused ------- */

/* What is wrong with it. */
enum { PASSED, TOO_LATE, TIMEOUT, NO_HOLDER, PART, WELL, WRONGS };

static const enum vx_code wrongs[WRONGS] = {
    [PASSED] = VX_CODE_DEADLINE_EXCEEDED, [TOO_LATE] = VX_CODE_DEADLINE_EXCEEDED,
    [TIMEOUT] = VX_CODE_UNAVAILABLE,      [NO_HOLDER] = VX_CODE_FAILED_PRECONDITION,
    [PART] = VX_CODE_UNAVAILABLE,         [WELL] = VX_CODE_OK,
};

START_TEST(nobody_leaves_for_a_job_that_is_refused)
{
    struct vx_sched *sched = room_open(&one_by_one);
    rig_teach(sched, &one_by_one, 1, &(struct rig_device){.fixed_ns = 10 * MS});
    room_prepare(0);
    room_fill(sched);
    struct vx_job job = job_from(_i == PART ? TWO : NEWCOMER);
    job.deadline_ns = 10000 * MS;
    if (_i == PASSED) job.deadline_ns = 0;
    if (_i == TOO_LATE) job.deadline_ns = 5 * MS;
    if (_i == TIMEOUT) job.timeout_ns = MS;
    if (_i == NO_HOLDER) job.must_hold = true;
    if (_i == PART) job.client = full[14].client; /* it has one of its origin's two */
    struct vx_job *left = ask(sched, &job, wrongs[_i]);
    ck_assert_int_eq(left != NULL, _i == WELL);
    if (_i != WELL) nobody_left(sched);
    rig_close(&sched);
}
END_TEST

/* ------- a job that comes only to go ------- */

static void others_fill(struct vx_sched *sched)
{
    struct vx_job *other = &others[others_count++];
    ck_assert_int_le(others_count, FULL);
    *other = job_from((u16)(20 + others_count));
    rig_submit(sched, other, 0);
    ck_assert_int_eq(vx_sched_queued(sched), FULL);
}

/* Comes and goes so often, or until nobody leaves for it, while others take the places that it
 * frees; returns how many it has pushed out. */
static i32 come_and_go(struct vx_sched *sched, i32 most, bool by_deadline)
{
    for (i32 pushed = 0; pushed < most; pushed++) {
        struct vx_job job = job_from(NEWCOMER);
        int late = 0;
        if (by_deadline) job.deadline_ns = 1;
        if (vx_sched_is_full(sched, &job)) {
            ask(sched, &job, VX_CODE_UNAVAILABLE);
            return pushed;
        }
        ck_assert_ptr_nonnull(ask(sched, &job, VX_CODE_OK));
        vx_sched_expire(sched, 1, rig_count_job, &late);
        ck_assert_int_eq(late, by_deadline);
        ck_assert_int_eq(vx_sched_cancel(sched, &job), !by_deadline);
        others_fill(sched);
    }
    return most;
}

/* As many as if it had waited: its third place would be an average part.  _i: by its deadline. */
START_TEST(who_comes_and_goes_pushes_out_few)
{
    struct vx_sched *sched = room_open_full();
    ck_assert_int_eq(come_and_go(sched, FULL, _i), 2);
    for (i32 i = 0; i < 9; i++) ck_assert_int_eq(full[i].state, VX_JOB_QUEUED);
    ck_assert_int_eq(come_and_go(sched, FULL, _i), 0);
    rig_close(&sched);
}
END_TEST

/* Who has pushed out one counts as if it waited until that one would have had its origin's share of
 * the devices, 1,032 voxels; its own job has 42.  How many it has pushed out; what runs, of how many
 * voxels, shared by six origins; and how many it pushes out then: two as in the beginning, or one
 * less.  With two that it pushed out there are seven origins, and one is all. */
static const struct {
    i32 before;
    i64 voxels;
    i32 pushes;
} passed_rows[] = {{1, 10, 1},
                   {1, 6 * 1000 - 32, 1},
                   {1, 6 * 1032 - 32, 2},
                   {2, 7 * 2063 - 32, 0},
                   {2, 7 * 2064 - 32, 1}};

START_TEST(it_pushes_out_no_more_than_is_served)
{
    struct vx_batching batching = one_by_one;
    struct vx_batch_plan plan;
    batching.priority_levels = 2;
    batching.default_priority_level = 2;
    struct vx_sched *sched = room_open(&batching);
    room_prepare(2);
    for (i32 i = 0; i < 11; i++) full[i].voxels = 1000;
    full[FULL - 1].voxels = passed_rows[_i].voxels;
    full[FULL - 1].priority = 1;
    room_fill(sched);
    const i32 before = passed_rows[_i].before;
    ck_assert_int_eq(come_and_go(sched, before, false), before);
    rig_pick(sched, 0, &plan);
    ck_assert_ptr_eq(plan.jobs[0], &full[FULL - 1]);
    others_fill(sched);
    ck_assert_int_eq(come_and_go(sched, FULL, false), passed_rows[_i].pushes);
    rig_close(&sched);
}
END_TEST

/* Who waits until it runs owes nothing. */
START_TEST(who_is_served_takes_the_next_place)
{
    struct vx_batching batching = one_by_one;
    batching.priority_levels = 2;
    batching.default_priority_level = 2;
    struct vx_sched *sched = room_open(&batching);
    room_prepare(2);
    room_fill(sched);
    for (i32 i = 0; i < 6; i++) {
        struct vx_batch_plan plan;
        struct vx_job job = job_from(NEWCOMER);
        job.priority = 1;
        ck_assert_ptr_nonnull(ask(sched, &job, VX_CODE_OK));
        rig_pick(sched, 0, &plan);
        ck_assert_ptr_eq(plan.jobs[0], &job);
        rig_finish(sched, &plan, 0);
        others_fill(sched);
    }
    rig_close(&sched);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_room");
    TCase *tests = tcase_create("sched_room");
    tcase_add_test(tests, the_last_of_the_longest_queue_leaves);
    tcase_add_test(tests, nobody_leaves_unsaid);
    tcase_add_loop_test(tests, who_has_an_average_part_is_refused, 0,
                        (int)VX_COUNT(origin_rows));
    tcase_add_test(tests, who_has_a_fair_part_keeps_it);
    tcase_add_loop_test(tests, nobody_leaves_for_what_may_wait, 1, 4);
    tcase_add_loop_test(tests, what_was_on_a_worker_does_not_leave, 0, 2);
    tcase_add_loop_test(tests, a_place_of_a_model_is_of_that_model, 0, 2);
    tcase_add_test(tests, a_place_of_a_level_is_of_that_level);
    tcase_add_loop_test(tests, nobody_leaves_for_a_job_that_is_refused, 0, WRONGS);
    tcase_add_loop_test(tests, who_comes_and_goes_pushes_out_few, 0, 2);
    tcase_add_loop_test(tests, it_pushes_out_no_more_than_is_served, 0,
                        (int)VX_COUNT(passed_rows));
    tcase_add_test(tests, who_is_served_takes_the_next_place);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
