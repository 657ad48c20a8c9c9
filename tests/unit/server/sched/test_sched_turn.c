/* Clients share the queue and the devices, whatever each of them sends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

static const struct vx_batching one_by_one = {.voxels_max = 1000000, .requests_max = 1};
static const struct vx_batching together = {.voxels_max = 100000000, .requests_max = 64};

static struct vx_job job_of(u64 client, i64 voxels)
{
    struct vx_job job = rig_job(voxels);
    job.client = client;
    job.origin = (u16)(client % VX_SCHED_ORIGINS); /* each from an address of its own */
    return job;
}

/* Runs one batch; returns the client of its first job. */
static u64 run_one(struct vx_sched *sched, i64 now_ns)
{
    struct vx_batch_plan plan;
    rig_pick(sched, now_ns, &plan);
    rig_finish(sched, &plan, now_ns);
    return plan.jobs[0]->client;
}

/* Jobs of one client are served in order, and a job of another client passes those
 * that wait. */
START_TEST(who_has_little_passes_who_has_much)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job many[100];
    struct vx_job few = job_of(2, 1000);
    for (size_t i = 0; i < VX_COUNT(many); i++) {
        many[i] = job_of(1, 1000);
        rig_submit(sched, &many[i], 0);
    }
    ck_assert_uint_eq(run_one(sched, 1), 1);
    rig_submit(sched, &few, 2);
    i32 before = 0;
    while (run_one(sched, 3) != 2) before++;
    ck_assert_int_le(before, 1); /* the next job may have the same turn */
    struct vx_batch_plan plan;
    for (size_t i = (size_t)before + 1; i < VX_COUNT(many); i++) {
        rig_pick(sched, 4, &plan);
        ck_assert_ptr_eq(plan.jobs[0], &many[i]);
        rig_finish(sched, &plan, 4);
    }
    rig_close(&sched);
}
END_TEST

/* A client keeps three jobs of a model without levels waiting; one job of another model has a level
 * behind the first, by its model's default or because its time is over.  Levels were compared across
 * models: it never ran. */
START_TEST(a_model_does_not_starve_another_by_levels)
{
    static const struct vx_batching with_levels = {
        .voxels_max = 1000000,
        .requests_max = 1,
        .priority_levels = 3,
        .default_priority_level = 2,
        .policies = {[2] = {.default_timeout_us = 1, .timeout_delay = true}}};
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job many[3], few = job_of(2, 50);
    vx_sched_instance_set(sched, 5, &with_levels, true);
    vx_sched_instance_ready(sched, 5, 0, true);
    few.instance = 5;
    for (size_t i = 0; i < VX_COUNT(many); i++) {
        many[i] = job_of(1, 1000);
        rig_submit(sched, &many[i], 0);
    }
    rig_submit(sched, &few, 0);
    if (_i)
        vx_sched_expire(sched, MS, rig_no_job, NULL); /* behind all others of its model */
    struct vx_batch_plan plan;
    i32 before = 0;
    for (;; before++) {
        rig_pick(sched, MS, &plan);
        rig_finish(sched, &plan, MS);
        if (plan.jobs[0] == &few) break;
        ck_assert_int_lt(before, 10);
        *plan.jobs[0] = job_of(1, 1000);
        rig_submit(sched, plan.jobs[0], MS);
    }
    ck_assert_int_le(before, 1);
    rig_close(&sched);
}
END_TEST

/* No client shares the turns of another, whatever its number: 8,192 connections use
 * each entry of the table at least once. */
START_TEST(no_number_is_another_client)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job many[8];
    for (size_t i = 0; i < VX_COUNT(many); i++) {
        many[i] = job_of(1, 100000);
        rig_submit(sched, &many[i], 0);
    }
    struct vx_batch_plan plan;
    rig_pick(sched, 0, &plan);
    for (u64 client = 2; client < 8192; client++) {
        struct vx_job few = job_of(client, 10);
        rig_submit(sched, &few, 1);
        struct vx_job *first = NULL;
        u64 turn = few.turn;
        for (size_t i = 1; i < VX_COUNT(many); i++)
            if (!first && many[i].turn <= turn) first = &many[i];
        ck_assert_msg(!first, "client %llu comes after client 1",
                      (unsigned long long)client);
        ck_assert(vx_sched_cancel(sched, &few));
    }
    rig_close(&sched);
}
END_TEST

/* A client that has had more than its share waits for it, though others share its
 * hash. */
START_TEST(what_is_owed_stays)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job busy = job_of(3, 1000), first = job_of(1, 100000);
    struct vx_job other = job_of(7038, 10), again = job_of(1, 10); /* one hash */
    rig_submit(sched, &busy, 0);
    rig_submit(sched, &first, 0);
    ck_assert(vx_sched_cancel(sched, &first));
    rig_submit(sched, &other, 0);
    rig_submit(sched, &again, 0);
    ck_assert_uint_gt(again.turn, first.turn);
    ck_assert_uint_lt(other.turn, first.turn);
    rig_close(&sched);
}
END_TEST

/* A small job passes the large jobs of other clients that came at the same time. */
START_TEST(a_small_job_passes_large_ones)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job large[64];
    struct vx_job small = job_of(100, 16);
    for (size_t i = 0; i < VX_COUNT(large); i++) {
        large[i] = job_of(1 + i, 65500);
        rig_submit(sched, &large[i], 0);
    }
    rig_submit(sched, &small, 1);
    ck_assert_uint_eq(run_one(sched, 2), 100);
    rig_close(&sched);
}
END_TEST

/* As long as all clients have waiting jobs, each gets as many voxels as any other. */
START_TEST(shares_are_the_same_by_voxels)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job jobs[3][200];
    static const i64 voxels[3] = {500, 1000, 4000};
    i64 served[3] = {0}, all = 0;
    for (u64 c = 0; c < 3; c++)
        for (size_t i = 0; i < (c == 2 ? 100 : 200); i++) {
            jobs[c][i] = job_of(c + 1, voxels[c]);
            rig_submit(sched, &jobs[c][i], 0);
        }
    while (all < 240000) {
        u64 c = run_one(sched, 1) - 1;
        served[c] += voxels[c] + 32; /* a job's cost besides voxels */
        all += voxels[c];
    }
    for (i32 c = 0; c < 3; c++) {
        ck_assert_int_ge(served[c], served[2] - 4 * 4000);
        ck_assert_int_le(served[c], served[2] + 4 * 4000);
    }
    rig_close(&sched);
}
END_TEST

/* A client that was away has saved nothing: it does not delay others when it comes
 * back. */
START_TEST(nobody_saves_turns)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job first[100], second[100], back[100];
    for (size_t i = 0; i < 100; i++) {
        first[i] = job_of(1, 1000);
        rig_submit(sched, &first[i], 0);
        run_one(sched, 0);
    }
    i32 of_second = 0;
    for (size_t i = 0; i < 100; i++) {
        second[i] = job_of(1, 1000);
        back[i] = job_of(2, 1000);
        rig_submit(sched, &second[i], 1);
        rig_submit(sched, &back[i], 1);
    }
    for (i32 i = 0; i < 100; i++) of_second += run_one(sched, 2) == 1;
    ck_assert_int_ge(of_second, 45);
    ck_assert_int_le(of_second, 55);
    rig_close(&sched);
}
END_TEST

/* Nor does a newcomer get what others had before it came. */
START_TEST(a_newcomer_shares_from_now_on)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job first[100], late[100];
    i32 of_first = 0;
    for (size_t i = 0; i < 100; i++) {
        first[i] = job_of(1, 1000);
        rig_submit(sched, &first[i], 0);
    }
    for (i32 i = 0; i < 50; i++) run_one(sched, 1);
    for (size_t i = 0; i < 100; i++) {
        late[i] = job_of(2, 1000);
        rig_submit(sched, &late[i], 2);
    }
    for (i32 i = 0; i < 40; i++) of_first += run_one(sched, 3) == 1;
    ck_assert_int_ge(of_first, 18);
    ck_assert_int_le(of_first, 22);
    rig_close(&sched);
}
END_TEST

/* Nor is any debt left once no job waits, not even for jobs that were cancelled. */
START_TEST(nobody_owes_turns)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job gone = job_of(1, 100000), small = job_of(1, 1000),
                  large = job_of(2, 2000);
    rig_submit(sched, &gone, 0);
    ck_assert(vx_sched_cancel(sched, &gone));
    rig_submit(sched, &small, 1);
    rig_submit(sched, &large, 1);
    ck_assert_uint_eq(run_one(sched, 2), 1);
    rig_close(&sched);
}
END_TEST

static bool is_taken(struct vx_sched *sched, struct vx_job *job)
{
    struct vx_why why = {""};
    bool full = vx_sched_is_full(sched, job);
    vx_status status =
        vx_sched_submit(sched, job, 0, NULL, &why); /* nobody leaves for it */
    ck_assert(!full || status.fault);
    ck_assert(!status.fault || vx_status_code(status) == VX_CODE_UNAVAILABLE);
    return !status.fault;
}

/* Submits so many jobs of a client, or until one is refused; returns how many were
 * accepted. */
static i32 fill(struct vx_sched *sched, u64 client, struct vx_job *jobs, i32 most)
{
    for (i32 own = 0; own < most; own++) {
        jobs[own] = job_of(client, 10);
        if (!is_taken(sched, &jobs[own])) return own;
    }
    return most;
}

static struct vx_job queue[6][2 * RIG_QUEUE_MAX];

/* One client fills the queue; others find places beyond it: the fewer a client has,
 * the more it finds. */
START_TEST(the_queue_has_places_for_others)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static const i32 taken[] = {RIG_QUEUE_MAX, 32, 16, 8, 4, 2};
    for (u64 c = 0; c < VX_COUNT(taken); c++)
        ck_assert_int_eq(fill(sched, c + 1, queue[c], 2 * RIG_QUEUE_MAX), taken[c]);
    rig_close(&sched);
}
END_TEST

/* Once three quarters (384) are taken, each of two clients may have 256, and a client
 * alone may have all. */
START_TEST(in_a_crowd_each_has_its_part_of_the_queue)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    ck_assert_int_eq(fill(sched, 1, queue[0], 127), 127);
    ck_assert_int_eq(fill(sched, 2, queue[1], RIG_QUEUE_MAX), 257);
    ck_assert_int_eq(fill(sched, 1, queue[2], RIG_QUEUE_MAX), RIG_QUEUE_MAX - 384);
    for (i32 i = 0; i < 257; i++) ck_assert(vx_sched_cancel(sched, &queue[1][i]));
    ck_assert_int_eq(fill(sched, 1, queue[3], RIG_QUEUE_MAX), 257);
    rig_close(&sched);
}
END_TEST

/* More clients than the queue has places: one job of each, as long as there is room.  In
 * a small queue each one's part is 0 then. */
static const i32 queue_sizes[] = {RIG_QUEUE_MAX, 64, 16};

START_TEST(a_client_without_a_job_has_no_part_yet)
{
    struct vx_sched *sched = rig_open_queue(&one_by_one, 1, queue_sizes[_i]);
    i32 most = queue_sizes[_i] + queue_sizes[_i] / 8, taken = 0;
    while (taken < most && fill(sched, (u64)taken + 1, &queue[0][taken], 1)) taken++;
    ck_assert_int_eq(taken, most);
    ck_assert_int_eq(fill(sched, (u64)taken + 1, &queue[0][taken], 1), 0);
    rig_close(&sched);
}
END_TEST

/* Clients of one address with a job each are as one: they leave the places beyond the queue to
 * others, and a client elsewhere has its part. */
START_TEST(a_crowd_of_one_address_has_its_part)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    i32 taken = 0;
    for (; taken < 2 * RIG_QUEUE_MAX; taken++) {
        queue[0][taken] = job_of((u64)taken + 100, 10);
        queue[0][taken].origin = 7;
        if (!is_taken(sched, &queue[0][taken])) break;
    }
    ck_assert_int_eq(taken, RIG_QUEUE_MAX);
    /* Elsewhere a client need not wait for its answers. */
    ck_assert_int_eq(fill(sched, 2, queue[1], 5), 5);
    ck_assert_int_eq(fill(sched, 3, queue[2], 1), 1);
    /* Where others wait, too, it has a third of the queue once that is crowded. */
    for (i32 i = 0; i < 100; i++) ck_assert(vx_sched_cancel(sched, &queue[0][i]));
    struct vx_job more = job_of(99, 10);
    more.origin = 7;
    ck_assert(!is_taken(sched, &more));
    for (i32 i = 100; i < 200; i++) ck_assert(vx_sched_cancel(sched, &queue[0][i]));
    ck_assert(is_taken(sched, &more));
    rig_close(&sched);
}
END_TEST

/* A newcomer's expected wait is shorter than that of all waiting jobs. */
START_TEST(a_newcomer_expects_no_long_wait)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    rig_teach(sched, &one_by_one, 1,
              &(struct rig_device){.fixed_ns = 1 * MS, .pair_ns = 1000});
    static struct vx_job many[100];
    for (size_t i = 0; i < VX_COUNT(many); i++) {
        many[i] = job_of(1, 1000);
        rig_submit(sched, &many[i], 0);
    }
    struct vx_job same = job_of(1, 1000), other = job_of(2, 1000);
    i64 long_ns = vx_sched_expected_wait_ns(sched, &same, 0);
    i64 short_ns = vx_sched_expected_wait_ns(sched, &other, 0);
    ck_assert_int_gt(long_ns, 190 * MS);
    ck_assert_int_lt(short_ns, 10 * MS);
    other.deadline_ns = 20 * MS;
    rig_submit(sched, &other, 0);
    rig_close(&sched);
}
END_TEST

/* No job joins a batch that would then take longer than a quarter of a second. */
START_TEST(a_batch_is_not_long)
{
    struct vx_sched *sched = rig_open(&together, 1);
    rig_teach(sched, &together, 1,
              &(struct rig_device){.fixed_ns = 1 * MS, .pair_ns = 100000});
    static struct vx_job jobs[64];
    for (size_t i = 0; i < VX_COUNT(jobs); i++) {
        jobs[i] = job_of(1 + i % 7, 400); /* 40 ms each */
        rig_submit(sched, &jobs[i], 0);
    }
    struct vx_batch_plan plan;
    rig_pick(sched, 1, &plan);
    ck_assert_int_eq(plan.jobs_count, 6);
    rig_close(&sched);
}
END_TEST

/* The cost of a batch far larger than any seen is unknown: it is not made. */
START_TEST(a_batch_is_not_far_beyond_what_was_seen)
{
    struct vx_sched *sched = rig_open(&together, 1);
    static struct vx_job jobs[2][64];
    static const i32 counts[2] = {1, 4};
    struct vx_batch_plan plan;
    for (i32 turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < 64; i++) {
            jobs[turn][i] = job_of(1, 60000);
            rig_submit(sched, &jobs[turn][i], 0);
        }
        rig_pick(sched, 1, &plan);
        ck_assert_int_eq(plan.jobs_count, counts[turn]);
        struct vx_batch_plan ended;
        const struct vx_batch_end end = {.worker = plan.worker,
                                         .batch = plan.batch,
                                         .device_ns = 1000,
                                         .pairs = plan.pairs};
        ck_assert(vx_sched_finish(sched, &end, &ended));
    }
    rig_close(&sched);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_turn");
    TCase *tests = tcase_create("sched_turn");
    tcase_add_test(tests, who_has_little_passes_who_has_much);
    tcase_add_loop_test(tests, a_model_does_not_starve_another_by_levels, 0, 2);
    tcase_add_test(tests, no_number_is_another_client);
    tcase_add_test(tests, what_is_owed_stays);
    tcase_add_test(tests, a_small_job_passes_large_ones);
    tcase_add_test(tests, shares_are_the_same_by_voxels);
    tcase_add_test(tests, nobody_saves_turns);
    tcase_add_test(tests, a_newcomer_shares_from_now_on);
    tcase_add_test(tests, nobody_owes_turns);
    tcase_add_test(tests, the_queue_has_places_for_others);
    tcase_add_loop_test(tests, a_client_without_a_job_has_no_part_yet, 0,
                        VX_COUNT(queue_sizes));
    tcase_add_test(tests, a_crowd_of_one_address_has_its_part);
    tcase_add_test(tests, in_a_crowd_each_has_its_part_of_the_queue);
    tcase_add_test(tests, a_newcomer_expects_no_long_wait);
    tcase_add_test(tests, a_batch_is_not_long);
    tcase_add_test(tests, a_batch_is_not_far_beyond_what_was_seen);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
