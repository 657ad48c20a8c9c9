/* The worker's device thread against an engine that ends batches when the test says so: two
 * batches at once, answers in the order of their ends, loads and unloads in between, naps.
 *
 * The engine here, and the check of a model's files, replace the real ones: same names, linked
 * first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "server/channel.h"
#include "server/repository.h"
#include "server/shared.h"
#include "server/worker.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ------- the engine ------- */

struct vx_engine {
    struct vx_batch *batches[VX_ENGINE_BATCHES_MAX]; /* oldest first */
    i32 count;
};

static struct vx_engine the_engine;
static struct vx_model models[4];
static atomic_int submits, may_end, asked;
static atomic_bool is_lost;
static char events[256]; /* s submit, c collect, u unload, w warm, x close; after join */
static size_t events_count;

static void event(char what)
{
    if (events_count < sizeof events - 1) events[events_count++] = what;
}

vx_status vx_engine_open(const struct vx_engine_options *options, struct vx_why *why,
                         struct vx_engine **engine)
{
    (void)options;
    (void)why;
    *engine = &the_engine;
    return VX_OK;
}

void vx_engine_close(struct vx_engine **engine)
{
    event('x');
    *engine = NULL;
}

vx_status vx_engine_load(struct vx_engine *engine, const struct vx_model_source *source,
                         const struct vx_progress *progress, struct vx_why *why,
                         struct vx_model **model)
{
    (void)engine;
    (void)progress;
    (void)why;
    *model = &models[source->version];
    **model = (struct vx_model){.magic = VX_MODEL_MAGIC,
                                .signature = {.coords_name = "coords",
                                              .feats_channels = 1,
                                              .outputs_count = 1,
                                              .batching = {.requests_max = 1}}};
    (*model)->signature.outputs[0] = (struct vx_output){"out", VX_DTYPE_F32, 1};
    return VX_OK;
}

vx_status vx_engine_warm(struct vx_engine *engine, struct vx_model *model,
                         const struct vx_progress *progress, struct vx_why *why)
{
    (void)model;
    (void)progress;
    (void)why;
    ck_assert_int_eq(engine->count, 0); /* else an answer would have waited for it */
    event('w');
    return VX_OK;
}

void vx_engine_unload(struct vx_engine *engine, struct vx_model **model)
{
    ck_assert_int_eq(engine->count, 0);
    event('u');
    *model = NULL;
}

i32 vx_engine_under_way(const struct vx_engine *engine)
{
    return engine->count;
}

void vx_engine_submit(struct vx_engine *engine, struct vx_model *model,
                      struct vx_batch *batch)
{
    ck_assert_int_lt(engine->count, VX_ENGINE_BATCHES_MAX);
    ck_assert_ptr_nonnull(model);
    engine->batches[engine->count++] = batch;
    event('s');
    atomic_fetch_add(&submits, 1);
}

/* An item of 13 voxels fails; others say what came in. */
static void item_end(struct vx_item *item)
{
    item->status = VX_OK;
    item->pairs = item->coords ? item->coords[0] : -1;
    item->geometry_kept = vx_content_there(item->content);
    item->geometry_hit = !item->coords;
    if (item->voxels != 13) return;
    vx_why_set(&item->why, "thirteen voxels");
    item->status = vx_status_of_code(VX_CODE_INVALID_ARGUMENT);
}

struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait)
{
    atomic_fetch_add(&asked, 1);
    if (!engine->count || (!wait && atomic_load(&may_end) <= 0)) return NULL;
    if (!wait) atomic_fetch_sub(&may_end, 1);
    struct vx_batch *batch = engine->batches[0];
    engine->batches[0] = engine->batches[--engine->count];
    for (i32 i = 0; i < batch->items_count; i++) item_end(&batch->items[i]);
    batch->device_ns = 1234;
    event('c');
    return batch;
}

void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats)
{
    *stats = (struct vx_engine_stats){.cache_hits = engine->count};
}

bool vx_engine_lost(const struct vx_engine *engine, struct vx_why *why)
{
    (void)engine;
    if (!atomic_load(&is_lost)) return false;
    vx_why_set(why, "it fell out");
    return true;
}

i32 vx_engine_numa_node(const struct vx_engine *engine)
{
    (void)engine;
    return -1;
}

/* No client's memory comes here (test_worker_regions.c). */
vx_status vx_engine_pin(struct vx_engine *engine, void *memory, size_t bytes,
                        struct vx_why *why)
{
    (void)engine;
    (void)memory;
    (void)bytes;
    (void)why;
    VX_FAIL(UNIMPLEMENTED, "no memory is pinned here");
}

void vx_engine_unpin(struct vx_engine *engine, void *memory)
{
    (void)engine;
    ck_assert_ptr_null(memory);
}

vx_status vx_engine_import(struct vx_engine *engine, const u8 handle[VX_IPC_HANDLE_BYTES],
                           size_t bytes, struct vx_why *why, void **memory)
{
    (void)engine;
    (void)handle;
    (void)bytes;
    (void)why;
    (void)memory;
    VX_FAIL(UNIMPLEMENTED, "no memory is imported here");
}

void vx_engine_release(struct vx_engine *engine, void **memory)
{
    (void)engine;
    ck_assert_ptr_null(memory);
}

/* The files of a model that needs none are always those that were meant. */
vx_status vx_repository_check(const char *directory, i64 version, u64 fingerprint,
                              struct vx_why *why)
{
    (void)directory;
    (void)version;
    (void)fingerprint;
    (void)why;
    return VX_OK;
}

/* ------- the front ------- */

static struct front {
    int fd;
    int fds[2];
    struct vx_shared *shared;
    struct vx_config config;
    struct vx_worker_start start;
    pthread_t thread;
    int exit_code;
    struct vx_slot slot;
    union vx_message in;
} front;

static void *run_worker(void *unused)
{
    (void)unused;
    front.exit_code = vx_worker_run(&front.start);
    return NULL;
}

/* False: none came in that time. */
static bool hear(int milliseconds)
{
    struct pollfd wait = {.fd = front.fd, .events = POLLIN};
    if (poll(&wait, 1, milliseconds) <= 0) return false;
    size_t bytes;
    ck_assert(!vx_channel_receive(front.fd, &front.in, &bytes).fault);
    return bytes > 0;
}

static void expect(enum vx_message_kind kind, u64 batch)
{
    ck_assert_msg(hear(20000), "waited for message %d", kind);
    ck_assert_int_eq(front.in.head.kind, kind);
    ck_assert_uint_eq(front.in.head.batch, batch);
}

static void say_load(i32 instance, i32 version)
{
    static struct vx_message_load load;
    load.head = (struct vx_message_head){VX_MESSAGE_LOAD, instance, 77};
    load.version = version;
    ck_assert(!vx_channel_send(front.fd, &load.head, sizeof load).fault);
}

static void say(enum vx_message_kind kind, i32 instance)
{
    struct vx_message_head head = {kind, instance, 0};
    ck_assert(!vx_channel_send(front.fd, &head, sizeof head).fault);
}

/* Items of `voxels[i]` voxels; one of 7 has no coords, but a name. */
static void say_run(i32 instance, u64 batch, const i64 *voxels, i32 count)
{
    static struct vx_message_run run;
    run.head = (struct vx_message_head){VX_MESSAGE_RUN, instance, batch};
    run.items_count = count;
    for (i32 i = 0; i < count; i++) {
        run.items[i] = (struct vx_run_item){.coords.offset = front.slot.offset,
                                            .feats.offset = front.slot.offset + 4096,
                                            .voxels = voxels[i],
                                            .coords_columns = 4,
                                            .feats_dtype = VX_DTYPE_F32};
        for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
            run.items[i].outputs[o].offset = VX_PLACE_NONE;
        if (voxels[i] != 7) continue;
        run.items[i].coords.offset = VX_PLACE_NONE;
        run.items[i].content = (struct vx_content){7, 7};
    }
    ck_assert(!vx_channel_send(front.fd, &run.head, vx_message_run_bytes(count)).fault);
}

static void wait_submits(int count)
{
    for (int i = 0; i < 20000 && atomic_load(&submits) < count; i++) usleep(1000);
    ck_assert_int_eq(atomic_load(&submits), count);
}

static void begin(void)
{
    const struct vx_slots *slots;
    ck_assert(!vx_channel_pair(front.fds).fault);
    front.fd = front.fds[0];
    ck_assert(!vx_shared_open(1 << 20, NULL, &front.shared).fault);
    slots = vx_shared_slots(front.shared);
    ck_assert(slots->take(slots->context, 16384, &front.slot));
    i32 coords = 4242; /* the first number of all coordinates here */
    memcpy(slots->memory(slots->context, &front.slot), &coords, sizeof coords);
    vx_config_defaults(&front.config);
    snprintf(front.config.device, sizeof front.config.device, "cpu");
    front.start = (struct vx_worker_start){.config = &front.config,
                                           .channel = front.fds[1],
                                           .arena = dup(vx_shared_fd(front.shared))};
    ck_assert(!pthread_create(&front.thread, NULL, run_worker, NULL));
    expect(VX_MESSAGE_UP, 0);
    say_load(3, 1);
    expect(VX_MESSAGE_LOADED, 77);
    ck_assert_int_eq(front.in.loaded.code, VX_CODE_OK);
}

/* The events after those of begin. */
static const char *end(void)
{
    close(front.fd);
    pthread_join(front.thread, NULL);
    ck_assert_int_eq(front.exit_code, 0);
    close(front.fds[1]);
    vx_shared_close(&front.shared);
    ck_assert_int_eq(events[0], 'w');
    return events + 1;
}

/* ------- tests ------- */

/* No front says that: it is told, and the process ends badly, as after no orderly end. */
START_TEST(a_word_that_is_none_ends_the_worker)
{
    begin();
    ck_assert_int_eq(send(front.fd, "nonsense, and long enough", 26, 0), 26);
    expect(VX_MESSAGE_ENDS, 0);
    ck_assert(!front.in.ends.lost);
    ck_assert_str_eq(front.in.ends.why.text, "a channel message is malformed");
    pthread_join(front.thread, NULL);
    ck_assert_int_eq(front.exit_code, VX_WORKER_EXIT_CHANNEL);
    close(front.fd);
    close(front.fds[1]);
    vx_shared_close(&front.shared);
}
END_TEST

START_TEST(two_batches_are_under_way_and_end_when_they_end)
{
    static const i64 first[] = {5, 13, 7}, second[] = {13, 13};
    begin();
    i64 before_ns = vx_clock_ns();
    say_run(3, 100, first, 3);
    say_run(3, 101, second, 2);
    wait_submits(2);
    ck_assert(!hear(20)); /* neither has ended */
    atomic_store(&may_end, 1);
    expect(VX_MESSAGE_DONE, 100);
    const struct vx_message_done *done = &front.in.done;
    ck_assert_int_eq(done->items_count, 3);
    ck_assert_int_eq(done->items[0].code, VX_CODE_OK);
    ck_assert_int_eq(done->items[0].pairs, 4242);
    ck_assert(!done->items[0].geometry_kept);
    ck_assert_str_eq(vx_done_why(done, 0)->text, "");
    ck_assert_int_eq(done->items[1].code, VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(vx_done_why(done, 1)->text, "thirteen voxels");
    ck_assert_int_eq(done->items[2].pairs, -1); /* it came by name */
    ck_assert(done->items[2].geometry_kept && done->items[2].geometry_hit);
    ck_assert_int_eq(done->device_ns, 1234);
    ck_assert_int_ge(done->received_ns, before_ns);
    ck_assert_int_gt(done->sent_ns, done->received_ns);
    ck_assert_int_le(done->sent_ns, vx_clock_ns());
    ck_assert(!hear(20));
    say(VX_MESSAGE_STATS, 0); /* answered while the other runs */
    expect(VX_MESSAGE_STATED, 0);
    ck_assert_int_eq(front.in.up.stats.cache_hits, 1);
    atomic_store(&may_end, 1);
    expect(VX_MESSAGE_DONE, 101);
    ck_assert_str_eq(vx_done_why(done, 1)->text, "thirteen voxels");
    /* Places are free again. */
    for (u64 batch = 102; batch < 110; batch++) {
        say_run(3, batch, first, 1);
        atomic_store(&may_end, 1);
        expect(VX_MESSAGE_DONE, batch);
    }
    ck_assert_str_eq(end(), "sscc"
                            "scscscscscscscsc"
                            "ux");
}
END_TEST

START_TEST(a_model_that_comes_waits_for_no_batch_and_no_answer_waits_for_it)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    wait_submits(1);
    say_load(4, 2);
    expect(VX_MESSAGE_DONE, 100); /* collected first, though it had time */
    expect(VX_MESSAGE_LOADED, 77);
    ck_assert_int_eq(front.in.head.instance, 4);
    ck_assert_str_eq(end(), "scwuux");
}
END_TEST

START_TEST(a_model_goes_after_its_batch)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    say_run(3, 101, voxels, 1);
    wait_submits(2);
    say(VX_MESSAGE_UNLOAD, 3);
    expect(VX_MESSAGE_DONE, 100);
    expect(VX_MESSAGE_DONE, 101);
    say(VX_MESSAGE_UNLOAD, 3); /* twice is nothing */
    ck_assert_str_eq(end(), "ssccux");
}
END_TEST

START_TEST(a_front_that_goes_away_leaves_nothing_under_way)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    wait_submits(1);
    ck_assert_str_eq(end(), "scux");
}
END_TEST

/* Of a lost device nothing is answered: the process says why and ends. */
START_TEST(a_lost_device_ends_the_process_with_its_batch_unanswered)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    wait_submits(1);
    atomic_store(&is_lost, true);
    hear(20000); /* ENDS, or the process was quicker */
    pause();
}
END_TEST

static i64 cpu_ns(void)
{
    struct timespec used;
    ck_assert(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used));
    return used.tv_sec * VX_NS_PER_S + used.tv_nsec;
}

/* It asks at once for a while, then now and then, and not at all with nothing to ask for. */
START_TEST(a_long_batch_does_not_burn_the_core)
{
    static const i64 voxels[] = {5};
    begin();
    usleep(50000);
    int idle = atomic_load(&asked);
    i64 idle_ns = cpu_ns();
    usleep(200000);
    ck_assert_int_eq(atomic_load(&asked), idle);
    idle_ns = cpu_ns() - idle_ns;
    ck_assert_int_lt(idle_ns, 100 * VX_NS_PER_MS);
    say_run(3, 100, voxels, 1);
    wait_submits(1);
    usleep(100000); /* the spin is over, even on a slow machine */
    int before = atomic_load(&asked);
    usleep(200000);
    int asks = atomic_load(&asked) - before;
    ck_assert_int_gt(asks, 20);          /* it does ask: naps are short ... */
    ck_assert_int_lt(asks, 200000 / 20); /* ... but none is shorter than 20 us */
    atomic_store(&may_end, 1);
    expect(VX_MESSAGE_DONE, 100);
    ck_assert_str_eq(end(), "scux");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worker");
    TCase *tcase = tcase_create("device thread");
    tcase_set_timeout(tcase, 20);
    tcase_add_test(tcase, two_batches_are_under_way_and_end_when_they_end);
    tcase_add_test(tcase, a_word_that_is_none_ends_the_worker);
    tcase_add_test(tcase,
                   a_model_that_comes_waits_for_no_batch_and_no_answer_waits_for_it);
    tcase_add_test(tcase, a_model_goes_after_its_batch);
    tcase_add_test(tcase, a_front_that_goes_away_leaves_nothing_under_way);
    tcase_add_exit_test(tcase, a_lost_device_ends_the_process_with_its_batch_unanswered,
                        VX_WORKER_EXIT_LOST);
    tcase_add_test(tcase, a_long_batch_does_not_burn_the_core);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
