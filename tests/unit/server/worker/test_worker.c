/* The worker's device thread against worker_engine.c's engine, which ends batches when the
 * test says so: two batches at once, answers in the order of their ends, loads and unloads
 * in between, sleeps.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/engine.h"
#include "engine/model/model.h"
#include "server/ipc/channel.h"
#include "server/ipc/shared.h"
#include "server/repository/repository.h"
#include "server/worker/worker.h"
#include "tests/support/wait.h"
#include "tests/unit/server/worker/worker_engine.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ------- the front ------- */

static struct front {
    int fd;
    int fds[2];
    struct vx_shared *shared;
    struct vx_config config;
    struct vx_worker_start start;
    pthread_t thread;
    int exit_code;
    struct vx_place slot;
    union vx_message in;
} front;

static void *run_worker(void *unused)
{
    (void)unused;
    front.exit_code = vx_worker_run(&front.start);
    return NULL;
}

/* False: no message came in that time. */
static bool hear(int milliseconds)
{
    struct pollfd wait = {.fd = front.fd, .events = POLLIN};
    if (poll(&wait, 1, milliseconds) <= 0) return false;
    size_t bytes;
    ck_assert(!vx_channel_receive(front.fd, &front.in, &bytes).fault);
    return bytes > 0;
}

/* PROGRESS messages in between are skipped. */
static void expect(enum vx_message_kind kind, u64 batch)
{
    do ck_assert_msg(hear(VX_WAIT_SECONDS * 1000), "waited for message %d", kind);
    while (front.in.head.kind == VX_MESSAGE_PROGRESS && kind != VX_MESSAGE_PROGRESS);
    ck_assert_int_eq(front.in.head.kind, kind);
    ck_assert_uint_eq(front.in.head.serial, batch);
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

#define FAR        1 /* outputs of the model, on another set */
#define FAR_COORDS 2

/* Items of `voxels[i]` voxels; an item of 7 voxels has no coords, but a coords_ref; one of
 * 9 asks for the places of both far outputs. */
static void say_run(i32 instance, u64 batch, const i64 *voxels, i32 count)
{
    static struct vx_message_run run;
    run.head = (struct vx_message_head){VX_MESSAGE_RUN, instance, batch};
    run.items_count = count;
    for (i32 i = 0; i < count; i++) {
        struct vx_place feats = front.slot;
        feats.offset += 4096;
        run.items[i] = (struct vx_run_item){.coords = front.slot,
                                            .feats = feats,
                                            .voxels = voxels[i],
                                            .coords_columns = 4,
                                            .feats_dtype = VX_DTYPE_F32};
        if (voxels[i] == 9) run.items[i].asks = 1u << FAR | 1u << FAR_COORDS;
        if (voxels[i] != 7) continue;
        run.items[i].coords = (struct vx_place){0};
        run.items[i].coords_ref = (struct vx_coords_ref){7, 7};
    }
    ck_assert(!vx_channel_send(front.fd, &run.head, vx_message_run_bytes(count)).fault);
}

/* The places of one item, 256 bytes apart behind the first slot's 8192; or a refusal. */
static void say_places(u64 batch, i32 item, bool refused)
{
    static struct vx_message_places places;
    places.head = (struct vx_message_head){VX_MESSAGE_PLACES, 3, batch};
    places.items_count = 1;
    places.items[0] = (struct vx_places_item){.item = item, .refused = refused};
    for (i32 o = FAR; o <= FAR_COORDS && !refused; o++) {
        places.items[0].outputs[o] = front.slot;
        places.items[0].outputs[o].offset += 8192 + 256 * (u64)o;
    }
    ck_assert(!vx_channel_send(front.fd, &places.head, vx_message_places_bytes(1)).fault);
}

/* What the engine wrote to the place of a far output. */
static i32 far_get(i32 o)
{
    const struct vx_slots *slots = vx_shared_slots(front.shared);
    i32 value;
    memcpy(&value, slots->memory(slots->context, &front.slot) + 8192 + 256 * o,
           sizeof value);
    return value;
}

static void expect_sizes(u64 batch, i32 item)
{
    expect(VX_MESSAGE_SIZES, batch);
    const struct vx_message_sizes *sizes = &front.in.sizes;
    ck_assert_int_eq(sizes->items_count, 1);
    ck_assert_int_eq(sizes->items[0].item, item);
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
        ck_assert_int_eq(sizes->items[0].rows[o], o == FAR || o == FAR_COORDS ? 18 : 0);
}

static void wait_count(atomic_int *counter, int count)
{
    VX_WAIT_UNTIL(atomic_load(counter) >= count);
    ck_assert_int_eq(atomic_load(counter), count);
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

/* The stub_events after those at the start. */
static const char *end(void)
{
    close(front.fd);
    pthread_join(front.thread, NULL);
    ck_assert_int_eq(front.exit_code, 0);
    close(front.fds[1]);
    vx_shared_close(&front.shared);
    ck_assert_int_eq(stub_events[0], 'w');
    return stub_events + 1;
}

/* ------- tests ------- */

/* No front sends this: it is logged, and the process ends with a failure, as without
 * ENDS. */
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
    wait_count(&stub_submits, 2);
    ck_assert(!hear(20)); /* neither has ended */
    atomic_store(&stub_may_end, 1);
    expect(VX_MESSAGE_DONE, 100);
    const struct vx_message_done *done = &front.in.done;
    ck_assert_int_eq(done->items_count, 3);
    ck_assert_int_eq(done->items[0].code, VX_CODE_OK);
    ck_assert_int_eq(done->items[0].pairs, 4242);
    ck_assert_int_eq(done->items[0].set_voxels, 2 * first[0]);
    ck_assert(!done->items[0].geometry_kept);
    ck_assert_str_eq(vx_done_why(done, 0)->text, "");
    ck_assert_int_eq(done->items[1].code, VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(vx_done_why(done, 1)->text, "thirteen voxels");
    ck_assert_int_eq(done->items[2].pairs, -1); /* it came by coords_ref */
    ck_assert(done->items[2].geometry_kept && done->items[2].geometry_hit);
    ck_assert_int_eq(done->device_ns, 1234);
    ck_assert_int_ge(done->received_ns, before_ns);
    ck_assert_int_gt(done->sent_ns, done->received_ns);
    ck_assert_int_le(done->sent_ns, vx_clock_ns());
    ck_assert(!hear(20));
    say(VX_MESSAGE_STATS, 0); /* answered while the other runs */
    expect(VX_MESSAGE_STATED, 0);
    ck_assert_int_eq(front.in.up.stats.cache_hits, 1);
    atomic_store(&stub_may_end, 1);
    expect(VX_MESSAGE_DONE, 101);
    ck_assert_str_eq(vx_done_why(done, 1)->text, "thirteen voxels");
    /* There is room for batches again. */
    for (u64 batch = 102; batch < 110; batch++) {
        say_run(3, batch, first, 1);
        atomic_store(&stub_may_end, 1);
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
    wait_count(&stub_submits, 1);
    say_load(4, 3);
    expect(VX_MESSAGE_DONE, 100); /* collected first, with time to spare */
    expect(VX_MESSAGE_LOADED, 77);
    ck_assert_int_eq(front.in.head.instance, 4);
    ck_assert_str_eq(end(), "scwuux");
}
END_TEST

/* The device is in a warm-up step when a request comes: it is answered after that step, not
 * after the whole warm-up.  The next step rests, though the device is idle. */
START_TEST(batches_run_between_the_pieces_of_a_warm_up)
{
    static const i64 voxels[] = {5};
    stub_pieces_of_slow = 4;
    begin();
    say_load(4, 2);
    expect(VX_MESSAGE_PROGRESS, 77);
    ck_assert_int_eq(front.in.progress.stage, VX_PROGRESS_MADE);
    for (i64 piece = 1, took = 0, ended = 0; piece <= stub_pieces_of_slow; piece++) {
        wait_count(&stub_pieces_begun, (int)piece);
        const i64 began = vx_clock_ns();
        ck_assert_int_ge(began - ended, 3 * took);
        atomic_store(&stub_may_end, 1);
        say_run(3, 100 + (u64)piece, voxels, 1);
        usleep(10000); /* sleep: a step takes as long, at least */
        ended = vx_clock_ns();
        took = ended - began;
        atomic_store(&stub_pieces_may_end, 1);
        if (piece == stub_pieces_of_slow) expect(VX_MESSAGE_LOADED, 77);
        expect(VX_MESSAGE_DONE, 100 + (u64)piece);
    }
    ck_assert_str_eq(end(), "pscpscpscpscuux");
}
END_TEST

START_TEST(a_short_warm_up_does_not_wait_for_a_long_one)
{
    begin();
    stub_pieces_of_slow = STUB_FOR_EVER;
    say_load(4, 2);
    wait_count(&stub_pieces_begun, 1);
    say_load(5, 3);
    atomic_store(&stub_pieces_may_end, STUB_FOR_EVER);
    expect(VX_MESSAGE_LOADED, 77);
    ck_assert_int_eq(front.in.head.instance, 5);
    /* The long warm-up is abandoned in the middle. */
    ck_assert_str_eq(end(), "uuux");
}
END_TEST

/* The stages of a load, each in its order, and when the next model may be read. */
START_TEST(a_load_says_how_far_it_is)
{
    stub_pieces_of_slow = 2;
    atomic_store(&stub_pieces_may_end, 2);
    begin();
    say_load(4, 2);
    expect(VX_MESSAGE_PROGRESS, 77);
    ck_assert_int_eq(front.in.progress.stage, VX_PROGRESS_MADE);
    expect(VX_MESSAGE_PROGRESS, 77);
    ck_assert_int_eq(front.in.progress.stage, VX_PROGRESS_WARM);
    ck_assert_int_eq(front.in.progress.done, 1);
    ck_assert_int_eq(front.in.progress.total, 2);
    expect(VX_MESSAGE_LOADED, 77);
    ck_assert_str_eq(end(), "ppuux");
}
END_TEST

START_TEST(a_model_goes_after_its_batch)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    say_run(3, 101, voxels, 1);
    wait_count(&stub_submits, 2);
    say(VX_MESSAGE_UNLOAD, 3);
    expect(VX_MESSAGE_DONE, 100);
    expect(VX_MESSAGE_DONE, 101);
    say(VX_MESSAGE_UNLOAD, 3); /* the second does nothing */
    ck_assert_str_eq(end(), "ssccux");
}
END_TEST

START_TEST(a_front_that_goes_away_leaves_nothing_under_way)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    wait_count(&stub_submits, 1);
    ck_assert_str_eq(end(), "scux");
}
END_TEST

/* Nothing is answered for a lost device: the process reports the reason and ends. */
START_TEST(a_lost_device_ends_the_process_with_its_batch_unanswered)
{
    static const i64 voxels[] = {5};
    begin();
    say_run(3, 100, voxels, 1);
    wait_count(&stub_submits, 1);
    atomic_store(&stub_is_lost, true);
    hear(-1); /* ENDS, or the process ended first */
    pause();
}
END_TEST

/* ------- places of outputs ------- */

START_TEST(an_item_asks_and_is_placed_or_refused)
{
    static const i64 voxels[] = {5, 9};
    begin();
    atomic_store(&stub_may_end, 1);
    say_run(3, 100, voxels, 2);
    expect_sizes(100, 1);
    ck_assert(!hear(20));     /* its batch waits for it */
    say_places(99, 1, false); /* of no batch here: nobody is left who asks */
    ck_assert(!hear(20));
    say_places(100, 1, _i);
    expect(VX_MESSAGE_DONE, 100);
    const struct vx_message_done *done = &front.in.done;
    ck_assert_int_eq(done->items[0].code, VX_CODE_OK);
    ck_assert_int_eq(done->items[1].code, _i ? VX_CODE_CANCELLED : VX_CODE_OK);
    ck_assert(done->items[1].ran);
    ck_assert_int_eq(far_get(FAR), _i ? 0 : 18);
    ck_assert_int_eq(far_get(FAR_COORDS), _i ? 0 : 18);
    ck_assert_str_eq(end(), _i ? "sarcux" : "salcux");
}
END_TEST

/* The step of a warm-up waits until nothing is under way; what comes waits for it. */
START_TEST(a_warm_up_waits_for_places_and_holds_what_comes)
{
    static const i64 asks[] = {9}, plain[] = {5};
    begin();
    say_run(3, 100, asks, 1);
    expect_sizes(100, 0);
    say_load(4, 3);
    do ck_assert(hear(VX_WAIT_SECONDS * 1000));
    while (front.in.progress.stage != VX_PROGRESS_MADE);
    VX_WAIT_UNTIL(atomic_load(&stub_asked_waiting) > 0); /* the step's own poll */
    say_run(3, 101, plain, 1);
    say(VX_MESSAGE_STATS, 0);
    expect(VX_MESSAGE_STATED, 0);
    ck_assert_int_eq(atomic_load(&stub_submits), 1);
    say_places(100, 0, false);
    expect(VX_MESSAGE_DONE, 100);
    expect(VX_MESSAGE_LOADED, 77);
    wait_count(&stub_submits, 2);
    atomic_store(&stub_may_end, 1);
    expect(VX_MESSAGE_DONE, 101);
    ck_assert_str_eq(end(), "salcwscuux");
}
END_TEST

START_TEST(a_model_goes_when_its_last_batch_has_its_places)
{
    static const i64 asks[] = {9}, plain[] = {5};
    begin();
    say_run(3, 100, asks, 1);
    expect_sizes(100, 0);
    say_run(3, 101, plain, 1);
    say(VX_MESSAGE_UNLOAD, 3);
    say(VX_MESSAGE_STATS, 0);
    expect(VX_MESSAGE_STATED, 0);
    say_places(100, 0, false);
    atomic_store(&stub_may_end, 2);
    expect(VX_MESSAGE_DONE, 100);
    expect(VX_MESSAGE_DONE, 101);
    ck_assert_str_eq(end(), "saslccux");
}
END_TEST

/* Nobody can give it places any more. */
START_TEST(a_front_that_goes_away_refuses_what_asks)
{
    static const i64 asks[] = {9, 9};
    begin();
    say_run(3, 100, asks, 1);
    expect_sizes(100, 0);
    ck_assert_str_eq(end(), "sarcux");
}
END_TEST

static i64 cpu_ns(void)
{
    struct timespec used;
    ck_assert(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used));
    return used.tv_sec * VX_NS_PER_S + used.tv_nsec;
}

/* The thread polls at once for a while, then now and then, and not at all when nothing
 * runs.  Its processor time and the least time between two polls do not depend on how
 * busy the machine is. */
START_TEST(a_long_batch_does_not_burn_the_core)
{
    static const i64 voxels[] = {5};
    begin();
    usleep(50000); /* sleep: until nothing is left to do, most probably */
    int idle = atomic_load(&stub_asked);
    i64 idle_ns = cpu_ns();
    usleep(200000); /* sleep: in which nothing may be polled */
    ck_assert_int_eq(atomic_load(&stub_asked), idle);
    idle_ns = cpu_ns() - idle_ns;
    ck_assert_int_lt(idle_ns, 100 * VX_NS_PER_MS);
    say_run(3, 100, voxels, 1);
    wait_count(&stub_submits, 1);
    usleep(100000);               /* sleep: until the spin is over, most probably */
    i64 begin_ns = vx_clock_ns(); /* before the count, so that every poll has its time */
    int before = atomic_load(&stub_asked);
    usleep(200000); /* sleep: so many short sleeps that a spin would show */
    VX_WAIT_UNTIL(atomic_load(&stub_asked) > before + 20); /* it does poll ... */
    int asks = atomic_load(&stub_asked) - before;
    i64 naps_max = (vx_clock_ns() - begin_ns) / (20 * VX_NS_PER_US);
    ck_assert_int_lt(asks, naps_max); /* ... but it sleeps at least 20 us */
    atomic_store(&stub_may_end, 1);
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
    tcase_add_test(tcase, batches_run_between_the_pieces_of_a_warm_up);
    tcase_add_test(tcase, a_short_warm_up_does_not_wait_for_a_long_one);
    tcase_add_test(tcase, a_load_says_how_far_it_is);
    tcase_add_test(tcase, a_model_goes_after_its_batch);
    tcase_add_test(tcase, a_front_that_goes_away_leaves_nothing_under_way);
    tcase_add_loop_test(tcase, an_item_asks_and_is_placed_or_refused, 0, 2);
    tcase_add_test(tcase, a_warm_up_waits_for_places_and_holds_what_comes);
    tcase_add_test(tcase, a_model_goes_when_its_last_batch_has_its_places);
    tcase_add_test(tcase, a_front_that_goes_away_refuses_what_asks);
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
