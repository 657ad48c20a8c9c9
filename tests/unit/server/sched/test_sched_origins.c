/* Origins take turns first, then the clients of each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/sched/sched_rig.h"

#include <stdlib.h>

static const struct vx_batching one_by_one = {.voxels_max = 1000000, .requests_max = 1};

/* Runs one batch; returns the client of its job. */
static u64 run_one(struct vx_sched *sched, i64 now_ns)
{
    struct vx_batch_plan plan;
    rig_pick(sched, now_ns, &plan);
    rig_finish(sched, &plan, now_ns);
    return plan.jobs[0]->client;
}

#define CROWD 250

static struct vx_job crowd[CROWD];

static struct vx_job job_from(u16 origin, u64 client, i64 voxels)
{
    struct vx_job job = rig_job(voxels);
    job.client = client;
    job.origin = origin;
    return job;
}

/* So many clients of origin 7 with a job each. */
static void crowd_submit(struct vx_sched *sched)
{
    for (u64 i = 0; i < CROWD; i++) {
        crowd[i] = job_from(7, 1000 + i, 10);
        rig_submit(sched, &crowd[i], 0);
    }
}

/* Runs one batch of a job; if it is of the crowd, its client asks again. */
static struct vx_job *run_and_ask(struct vx_sched *sched)
{
    struct vx_batch_plan plan;
    rig_pick(sched, 1, &plan);
    rig_finish(sched, &plan, 1);
    struct vx_job *job = plan.jobs[0];
    if (job->origin == 7) rig_submit(sched, job, 1);
    return job;
}

/* Each of its connections had a turn before the job of a client elsewhere: its p99 was
 * 1.1 s beside 1,000. */
START_TEST(a_crowd_of_one_address_has_one_turn)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    struct vx_job few = job_from(8, 2, 10);
    crowd_submit(sched);
    for (i32 i = 0; i < 3 * CROWD; i++) run_and_ask(sched);
    for (i32 asked = 0; asked < 100; asked++) {
        i32 before = 0;
        rig_submit(sched, &few, 1);
        while (run_and_ask(sched) != &few) before++;
        ck_assert_int_le(before, 2);
    }
    rig_close(&sched);
}
END_TEST

/* Its clients lose nothing by being many: a proxy's have half of the devices beside one client
 * elsewhere with as much as it likes, and each as many as any other. */
START_TEST(a_crowd_of_one_address_has_its_half)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job many[100];
    static i32 served[CROWD];
    i32 of_crowd = 0;
    for (size_t i = 0; i < VX_COUNT(many); i++) many[i] = job_from(8, 2, 10);
    crowd_submit(sched);
    for (size_t i = 0; i < VX_COUNT(many); i++) rig_submit(sched, &many[i], 1);
    for (i32 i = 0; i < 20 * CROWD; i++) {
        struct vx_job *job = run_and_ask(sched);
        if (job->origin == 7) {
            of_crowd++;
            served[job - crowd]++;
        } else {
            rig_submit(sched, job, 1);
        }
    }
    ck_assert_int_ge(of_crowd, 9 * CROWD);
    ck_assert_int_le(of_crowd, 11 * CROWD);
    for (i32 i = 0; i < CROWD; i++) {
        ck_assert_int_ge(served[i], 8);
        ck_assert_int_le(served[i], 12);
    }
    rig_close(&sched);
}
END_TEST

/* Within an origin, too, who has little passes who has much. */
START_TEST(clients_of_one_address_take_turns)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job many[100];
    struct vx_job few = job_from(7, 2, 1000);
    for (size_t i = 0; i < VX_COUNT(many); i++) {
        many[i] = job_from(7, 1, 1000);
        rig_submit(sched, &many[i], 0);
    }
    for (i32 i = 0; i < 5; i++) ck_assert_uint_eq(run_one(sched, 1), 1);
    rig_submit(sched, &few, 2);
    i32 before = 0;
    while (run_one(sched, 3) != 2) before++;
    ck_assert_int_le(before, 2);
    rig_close(&sched);
}
END_TEST

/* An origin whose clients come one after the other has more than its half of what waits then,
 * as the turns of the first are for few sharers.  It gains nothing by cancelling the others and
 * beginning anew, nor by having been away. */
START_TEST(nobody_gains_by_beginning_anew)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job bursts[150], many[100];
    i32 of_many = 0, of_bursts = 0;
    for (size_t i = 0; i < VX_COUNT(many); i++) many[i] = job_from(8, 2, 10);
    for (size_t i = 0; i < VX_COUNT(many); i++) rig_submit(sched, &many[i], 0);
    for (i32 i = 0; i < 3000; i++) {
        struct vx_batch_plan plan;
        rig_pick(sched, 1, &plan);
        rig_finish(sched, &plan, 1);
        rig_submit(sched, plan.jobs[0], 1);
    }
    for (u64 round = 0; round < 20; round++) {
        for (size_t i = 0; i < VX_COUNT(bursts); i++) {
            bursts[i] = job_from(9, 1000 + 100 * round + i / 10, 10);
            rig_submit(sched, &bursts[i], 1);
        }
        for (i32 left = VX_COUNT(bursts) / 2; left > 0;) {
            struct vx_batch_plan plan;
            rig_pick(sched, 1, &plan);
            rig_finish(sched, &plan, 1);
            bool of_burst = plan.jobs[0]->origin == 9;
            left -= of_burst;
            of_bursts += of_burst;
            of_many += !of_burst;
            if (!of_burst) rig_submit(sched, plan.jobs[0], 1);
        }
        for (size_t i = 0; i < VX_COUNT(bursts); i++)
            if (bursts[i].state == VX_JOB_QUEUED)
                ck_assert(vx_sched_cancel(sched, &bursts[i]));
    }
    ck_assert_int_ge(of_many, of_bursts * 9 / 10);
    ck_assert_int_le(of_many, of_bursts * 11 / 10);
    rig_close(&sched);
}
END_TEST

/* The turn of a client that shares with 249 others is far away.  When these have left unserved,
 * its next job has no more to wait for than its own. */
START_TEST(who_left_unserved_costs_others_nothing)
{
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    static struct vx_job many[100];
    for (size_t i = 0; i < VX_COUNT(many); i++) {
        many[i] = job_from(8, 2, 10);
        rig_submit(sched, &many[i], 0);
    }
    crowd_submit(sched);
    for (i32 i = 0; i < CROWD; i++) ck_assert(vx_sched_cancel(sched, &crowd[i]));
    struct vx_job again = job_from(7, 1000 + CROWD - 1, 10);
    rig_submit(sched, &again, 1);
    i32 before = 0;
    while (run_one(sched, 2) == 2) before++;
    ck_assert_int_le(before, 2);
    rig_close(&sched);
}
END_TEST

/* A model's own limit has an eighth more for who has little: one address that fills it keeps nobody
 * else out, and gets none of them itself. */
START_TEST(a_models_limit_has_places_for_others)
{
    static struct vx_job many[65], others[8];
    struct vx_batching batching = one_by_one;
    batching.policies[0].max_queue_size = 64;
    struct vx_sched *sched = rig_open(&batching, 1);
    for (u64 i = 0; i < 64; i++) {
        many[i] = job_from(7, 1000 + i, 10);
        rig_submit(sched, &many[i], 0);
    }
    many[64] = job_from(7, 2000, 10);
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &many[64], 0, NULL, NULL)),
                     VX_CODE_UNAVAILABLE);
    for (u64 i = 0; i < 8; i++) {
        others[i] = job_from((u16)(8 + i), 3000 + i, 10);
        rig_submit(sched, &others[i], 0);
    }
    struct vx_job last = job_from(20, 4000, 10);
    ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &last, 0, NULL, NULL)),
                     VX_CODE_UNAVAILABLE);
    rig_close(&sched);
}
END_TEST

/* With so many origins that an equal part would be one place, each may have a 64th of all. */
START_TEST(an_origin_has_a_few_places_among_many)
{
    static struct vx_job one_each[RIG_QUEUE_MAX * 3 / 4], few[RIG_QUEUE_MAX / 64 + 1];
    struct vx_sched *sched = rig_open(&one_by_one, 1);
    for (u64 i = 0; i < VX_COUNT(one_each); i++) {
        one_each[i] = job_from((u16)(10 + i), 1000 + i, 10);
        rig_submit(sched, &one_each[i], 0);
    }
    for (size_t i = 0; i < VX_COUNT(few); i++) {
        few[i] = job_from(7, 1, 10);
        const bool may = i + 1 < VX_COUNT(few);
        ck_assert_int_eq(vx_status_code(vx_sched_submit(sched, &few[i], 0, NULL, NULL)),
                         may ? VX_CODE_OK : VX_CODE_UNAVAILABLE);
    }
    rig_close(&sched);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_origins");
    TCase *tests = tcase_create("sched_origins");
    tcase_add_test(tests, a_crowd_of_one_address_has_one_turn);
    tcase_add_test(tests, a_crowd_of_one_address_has_its_half);
    tcase_add_test(tests, clients_of_one_address_take_turns);
    tcase_add_test(tests, nobody_gains_by_beginning_anew);
    tcase_add_test(tests, who_left_unserved_costs_others_nothing);
    tcase_add_test(tests, an_origin_has_a_few_places_among_many);
    tcase_add_test(tests, a_models_limit_has_places_for_others);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
