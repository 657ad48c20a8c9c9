/* What the scheduler's choices gain: the same clients and devices, in simulated time,
 * with a choice and without it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/sched/sched.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define US          VX_NS_PER_US
#define MS          VX_NS_PER_MS
#define CLIENTS_MAX 256
#define WORKERS_MAX 4
#define GEOMETRIES  48
/* Geometries that a device keeps: a third of all, so that four devices together can
 * keep all. */
#define KEPT_MAX 16

struct scene {
    struct vx_batching batching;
    i32 clients, workers, requests; /* requests in all, each client one at a time */
    i64 think_ns; /* between an answer and the next request, 0 to this */
    i64 (*voxels)(u64 random);
    i64 fixed_ns, request_ns, voxel_ns, build_ns; /* of the device; build per voxel */
    bool tell_holders;
};
struct result {
    i64 end_ns, wait_max_ns;
    i32 batches, builds;
};

static struct {
    const struct scene *scene;
    struct result result;
    u64 random;
    i64 now;
    struct vx_sched *sched;
    struct vx_job jobs[CLIENTS_MAX];
    i32 geometry[CLIENTS_MAX];
    i64 asks_ns[CLIENTS_MAX]; /* when the client asks next; VX_NEVER while it waits */
    i32 asked, answered;
    struct {
        i32 kept[KEPT_MAX]; /* geometry + 1 */
        i32 kept_next, count;
        i64 end_ns;
        struct {
            u64 id;
            i64 took_ns, build_ns;
        } batches[VX_WORKER_DEPTH];
    } devices[WORKERS_MAX];
} load;

static u64 load_random(void)
{
    load.random ^= load.random << 13;
    load.random ^= load.random >> 7;
    load.random ^= load.random << 17;
    return load.random >> 16;
}

static bool device_has(i32 w, i32 geometry)
{
    for (i32 k = 0; k < KEPT_MAX; k++)
        if (load.devices[w].kept[k] == geometry + 1) return true;
    return false;
}

static void client_ask(i32 c)
{
    struct vx_job *job = &load.jobs[c];
    load.asks_ns[c] = VX_NEVER;
    load.asked++;
    load.geometry[c] = (i32)(load_random() % GEOMETRIES);
    *job = (struct vx_job){.voxels = load.scene->voxels(load_random()),
                           .deadline_ns = VX_NEVER};
    for (i32 w = 0; w < load.scene->workers && load.scene->tell_holders; w++)
        if (device_has(w, load.geometry[c])) job->holders |= 1u << w;
    ck_assert(!vx_sched_submit(load.sched, job, load.now, NULL, NULL).fault);
}

static void device_start(const struct vx_batch_plan *plan)
{
    const struct scene *scene = load.scene;
    i32 w = plan->worker, place = load.devices[w].count++;
    i64 build_ns = 0;
    for (i32 j = 0; j < plan->jobs_count && scene->build_ns; j++) {
        i32 geometry = load.geometry[plan->jobs[j] - load.jobs];
        if (device_has(w, geometry)) continue;
        build_ns += scene->build_ns * plan->jobs[j]->voxels;
        load.devices[w].kept[load.devices[w].kept_next++ % KEPT_MAX] = geometry + 1;
        load.result.builds++;
    }
    for (i32 j = 0; j < plan->jobs_count; j++)
        if (load.now - plan->jobs[j]->queued_ns > load.result.wait_max_ns)
            load.result.wait_max_ns = load.now - plan->jobs[j]->queued_ns;
    i64 took_ns = scene->fixed_ns + scene->request_ns * plan->jobs_count +
                  scene->voxel_ns * plan->voxels + build_ns;
    load.devices[w].batches[place].id = plan->batch;
    load.devices[w].batches[place].took_ns = took_ns;
    load.devices[w].batches[place].build_ns = build_ns;
    if (!place) load.devices[w].end_ns = load.now + took_ns;
    load.result.batches++;
}

static void device_end(i32 w)
{
    struct vx_batch_plan plan;
    const struct vx_batch_end end = {.worker = w,
                                     .batch = load.devices[w].batches[0].id,
                                     .now_ns = load.now,
                                     .device_ns = load.devices[w].batches[0].took_ns,
                                     .geometry_ns = load.devices[w].batches[0].build_ns};
    ck_assert(vx_sched_finish(load.sched, &end, &plan));
    for (i32 j = 0; j < plan.jobs_count; j++) {
        i64 think_ns = load.scene->think_ns;
        if (think_ns) think_ns = (i64)(load_random() % (u64)think_ns);
        load.asks_ns[plan.jobs[j] - load.jobs] = load.now + think_ns;
        load.answered++;
    }
    load.devices[w].count--;
    load.devices[w].batches[0] = load.devices[w].batches[1];
    load.devices[w].end_ns = load.now + load.devices[w].batches[0].took_ns;
}

static i64 load_next(void)
{
    i64 next_ns = vx_sched_next_ns(load.sched);
    for (i32 w = 0; w < load.scene->workers; w++)
        if (load.devices[w].count && load.devices[w].end_ns < next_ns)
            next_ns = load.devices[w].end_ns;
    for (i32 c = 0; c < load.scene->clients && load.asked < load.scene->requests; c++)
        if (load.asks_ns[c] < next_ns) next_ns = load.asks_ns[c];
    ck_assert_int_ne(next_ns, VX_NEVER);
    return next_ns > load.now ? next_ns : load.now;
}

static struct result load_run(const struct scene *scene)
{
    memset(&load, 0, sizeof load);
    load.scene = scene;
    load.random = 88172645463325252u;
    ck_assert(!vx_sched_open(CLIENTS_MAX, &load.sched).fault);
    vx_sched_instance_set(load.sched, 0, &scene->batching, true);
    for (i32 w = 0; w < scene->workers; w++) {
        vx_sched_worker_up(load.sched, w);
        vx_sched_instance_ready(load.sched, 0, w, true);
    }
    while (load.answered < scene->requests) {
        for (i32 c = 0; c < scene->clients; c++)
            if (load.asks_ns[c] <= load.now && load.asked < scene->requests)
                client_ask(c);
        struct vx_batch_plan plan;
        while (vx_sched_pick(load.sched, load.now, &plan)) device_start(&plan);
        load.now = load_next();
        for (i32 w = 0; w < scene->workers; w++)
            if (load.devices[w].count && load.devices[w].end_ns <= load.now)
                device_end(w);
    }
    vx_sched_close(&load.sched);
    load.result.end_ns = load.now;
    return load.result;
}

/* ------- what it gains ------- */

static i64 voxels_848(u64 random)
{
    (void)random;
    return 848;
}

/* Half are small, half take more than half a budget. */
static i64 voxels_mixed(u64 random)
{
    return random % 2 ? 20 + (i64)(random >> 8) % 400 : 510 + (i64)(random >> 8) % 350;
}

START_TEST(batching_is_worth_four_times)
{
    struct scene scene = {
        .batching = {.voxels_max = 1000000, .requests_max = VX_BATCH_ITEMS_MAX},
        .clients = 64,
        .workers = 1,
        .requests = 6400,
        .voxels = voxels_848,
        .fixed_ns = 200 * US,
        .request_ns = 10 * US,
    };
    struct result together = load_run(&scene);
    scene.batching.requests_max = 1;
    struct result alone = load_run(&scene);
    ck_assert_int_eq(alone.batches, 6400);
    ck_assert_msg(alone.end_ns >= 4 * together.end_ns, "alone %lld us, together %lld us",
                  (long long)(alone.end_ns / US), (long long)(together.end_ns / US));
    /* No client is worse off by more than two batches of everything. */
    ck_assert_int_le(together.wait_max_ns, 2 * (200 + 64 * 10) * US);
}
END_TEST

/* For comparison: the same requests in order of arrival, a batch closed by the first
 * that does not fit, all there from the start. */
static i64 prefix_ns(const struct scene *scene)
{
    i64 end_ns = 0, voxels = 0;
    i32 count = 0;
    u64 state = 88172645463325252u;
    load.random = state;
    for (i32 r = 0; r <= scene->requests; r++) {
        load_random(); /* the geometry's */
        i64 next = r < scene->requests ? scene->voxels(load_random()) : 0;
        bool fits = voxels + next <= scene->batching.voxels_max &&
                    count < scene->batching.requests_max && r < scene->requests;
        if (!fits && count) {
            end_ns += scene->fixed_ns + scene->voxel_ns * voxels;
            voxels = count = 0;
        }
        voxels += next;
        count++;
    }
    return end_ns;
}

START_TEST(looking_ahead_beats_the_prefix_of_the_queue)
{
    struct scene scene = {
        .batching = {.voxels_max = 1000, .requests_max = 64},
        .clients = 256,
        .workers = 1,
        .requests = 256,
        .voxels = voxels_mixed,
        .fixed_ns = 200 * US,
        .voxel_ns = 100,
    };
    struct result ahead = load_run(&scene);
    i64 prefix = prefix_ns(&scene);
    ck_assert_msg(ahead.end_ns * 10 <= prefix * 9, "look-ahead %lld us, prefix %lld us",
                  (long long)(ahead.end_ns / US), (long long)(prefix / US));
}
END_TEST

START_TEST(a_large_request_is_not_starved_by_small_ones)
{
    struct scene scene = {
        .batching = {.voxels_max = 1000, .requests_max = 64},
        .clients = 200,
        .workers = 1,
        .requests = 20000,
        .voxels = voxels_mixed,
        .fixed_ns = 200 * US,
        .voxel_ns = 100,
    };
    struct result result = load_run(&scene);
    /* Each batch begins with the job that has waited longest, so that no job waits for
     * more batches than there are clients, and each of those has at most 1000 voxels. */
    ck_assert_int_le(result.wait_max_ns, 200 * (200 * US + 1000 * 100));
}
END_TEST

START_TEST(holders_save_builds)
{
    struct scene scene = {
        .batching = {.voxels_max = 20000, .requests_max = 16},
        .clients = 24,
        .workers = 4,
        .requests = 6000,
        .think_ns = 20 * MS,
        .voxels = voxels_848,
        .fixed_ns = 200 * US,
        .voxel_ns = 200,
        .build_ns = 2000,
    };
    struct result blind = load_run(&scene);
    scene.tell_holders = true;
    struct result told = load_run(&scene);
    ck_assert_msg(told.builds * 3 <= blind.builds, "%d builds with holders, %d without",
                  told.builds, blind.builds);
    ck_assert_msg(told.end_ns <= blind.end_ns, "%lld us with holders, %lld us without",
                  (long long)(told.end_ns / US), (long long)(blind.end_ns / US));
}
END_TEST

START_TEST(four_devices_are_four_times_one)
{
    struct scene scene = {
        .batching = {.voxels_max = 16000, .requests_max = 64},
        .clients = 256,
        .workers = 1,
        .requests = 20000,
        .voxels = voxels_848,
        .fixed_ns = 50 * US,
        .voxel_ns = 100,
    };
    struct result one = load_run(&scene);
    scene.workers = 4;
    struct result four = load_run(&scene);
    ck_assert_msg(one.end_ns * 10 >= four.end_ns * 38, "one: %lld us, four: %lld us",
                  (long long)(one.end_ns / US), (long long)(four.end_ns / US));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_load");
    TCase *choices = tcase_create("choices");
    tcase_add_test(choices, batching_is_worth_four_times);
    tcase_add_test(choices, looking_ahead_beats_the_prefix_of_the_queue);
    tcase_add_test(choices, a_large_request_is_not_starved_by_small_ones);
    tcase_add_test(choices, holders_save_builds);
    tcase_add_test(choices, four_devices_are_four_times_one);
    suite_add_tcase(suite, choices);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
