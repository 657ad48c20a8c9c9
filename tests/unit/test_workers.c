/* workers: processes that behave as told, and what becomes of them.  This program is its
 * own child: as `worker` it speaks the channel's language, badly where the test wants it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/alloc.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/numa.h"
#include "engine/base/thread.h"
#include "server/worker.h"
#include "server/workers.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 10000 /* a busy machine under a sanitizer */

/* ------- the child ------- */

static void say(i32 kind, u64 batch)
{
    static union vx_message message;
    memset(&message, 0, sizeof message);
    message.head = (struct vx_message_head){.kind = kind, .batch = batch};
    size_t bytes = sizeof message.up;
    if (kind == VX_MESSAGE_DONE) {
        message.done.items_count = 1;
        message.done.items[0].why = -1;
        bytes = vx_message_done_bytes(&message.done);
    }
    if (kind == VX_MESSAGE_LOADED) bytes = sizeof message.loaded;
    if (kind == VX_MESSAGE_PROGRESS) bytes = sizeof message.progress;
    if (kind == VX_MESSAGE_ENDS) bytes = sizeof message.ends;
    if (kind == VX_MESSAGE_ENDS) vx_why_set(&message.ends.why, "as the test wants");
    if (vx_channel_send(VX_WORKER_CHANNEL_FD, &message.head, bytes).fault) _exit(0);
}

static void hang(void)
{
    for (;;) pause();
}

static void child_answer(const char *manner, const struct vx_message_head *head)
{
    if (head->kind == VX_MESSAGE_STATS && strcmp(manner, "deaf")) {
        say(VX_MESSAGE_STATED, 0);
    } else if (head->kind == VX_MESSAGE_RUN && !strcmp(manner, "good")) {
        say(VX_MESSAGE_DONE, head->batch);
    } else if (head->kind == VX_MESSAGE_LOAD) {
        for (int i = 0; i < 10 && !strcmp(manner, "good"); i++) {
            usleep(50 * 1000);
            say(VX_MESSAGE_PROGRESS, head->batch);
        }
        if (!strcmp(manner, "good")) say(VX_MESSAGE_LOADED, head->batch);
    }
}

static int child(const char *manner)
{
    static union vx_message in;
    if (!strcmp(manner, "mute")) hang();
    if (!strcmp(manner, "ends")) {
        say(VX_MESSAGE_ENDS, 0);
        return 1;
    }
    say(VX_MESSAGE_UP, 0);
    if (!strcmp(manner, "wild") || !strcmp(manner, "cut")) {
        bool is_cut = !strcmp(manner, "cut");
        in.head.kind = VX_MESSAGE_LOADED;
        in.head.instance = is_cut ? 0 : VX_INSTANCES_MAX;
        size_t bytes = is_cut ? sizeof in.head : sizeof in.loaded;
        if (vx_channel_send(VX_WORKER_CHANNEL_FD, &in.head, bytes).fault) return 1;
        hang();
    }
    for (;;) {
        size_t bytes;
        vx_status st = vx_channel_receive(VX_WORKER_CHANNEL_FD, &in, &bytes);
        if (!st.fault)
            child_answer(manner, &in.head);
        else if (!strcmp(manner, "stays"))
            hang();
        else
            return 0;
    }
}

/* ------- the front of the test ------- */

static struct rig {
    uv_loop_t loop;
    uv_timer_t patience, beat;
    struct vx_config config;
    struct vx_shared *shared;
    struct vx_workers *workers;
    i32 ups, downs, dones, loadeds;
    bool stopped;
    i64 beat_ns, gap_ns;
} rig;

static void order(i32 kind)
{
    static union vx_message message; /* one empty item: the child looks no further */
    message.head = (struct vx_message_head){.kind = kind, .batch = 1};
    if (kind == VX_MESSAGE_RUN) message.run.items_count = 1;
    size_t bytes = kind == VX_MESSAGE_RUN    ? vx_message_run_bytes(1)
                   : kind == VX_MESSAGE_LOAD ? sizeof message.load
                                             : sizeof message.head;
    ck_assert(vx_workers_send(rig.workers, 0, &message.head, bytes));
}

static void on_up(void *context, i32 worker)
{
    ck_assert_ptr_eq(context, &rig);
    ck_assert_int_eq(worker, 0);
    rig.ups++;
}

static void on_down(void *context, i32 worker)
{
    (void)context;
    (void)worker;
    rig.downs++;
}

static void on_message(void *context, i32 worker, const union vx_message *message)
{
    (void)context;
    (void)worker;
    rig.dones += message->head.kind == VX_MESSAGE_DONE;
    rig.loadeds += message->head.kind == VX_MESSAGE_LOADED;
}

static void on_stopped(void *context)
{
    (void)context;
    uv_close((uv_handle_t *)&rig.patience, NULL);
    uv_close((uv_handle_t *)&rig.beat, NULL);
}

static void on_patience(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("nothing came of it: %d ups, %d downs", rig.ups, rig.downs);
}

/* Twice as often as any limit of these tests asks, and what the loop's turns are timed by. */
static void on_beat(uv_timer_t *timer)
{
    (void)timer;
    i64 now = vx_clock_ns();
    if (rig.beat_ns && now - rig.beat_ns > rig.gap_ns) rig.gap_ns = now - rig.beat_ns;
    rig.beat_ns = now;
    if (rig.ups && !rig.stopped) vx_workers_ask_stats(rig.workers);
}

static const struct vx_worker_info *info(void)
{
    return vx_workers_info(rig.workers, 0);
}

static void setup(const char *manner)
{
    vx_thread_enter(VX_ROLE_LOOP);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_DEBUG, .fd = 2}, "test");
    vx_config_defaults(&rig.config);
    snprintf(rig.config.kernel_texts, sizeof rig.config.kernel_texts, "%s", manner);
    rig.config.watchdog_ms = 200;
    rig.config.start_ms_max = 400;
    rig.config.restart_ms_max = 60000; /* the second restart in a row does not come */
    ck_assert(!vx_shared_open(1 << 20, NULL, &rig.shared).fault);
    ck_assert(!uv_loop_init(&rig.loop));
    ck_assert(!uv_timer_init(&rig.loop, &rig.patience));
    ck_assert(!uv_timer_init(&rig.loop, &rig.beat));
    ck_assert(!uv_timer_start(&rig.patience, on_patience, PATIENCE_MS, 0));
    ck_assert(!uv_timer_start(&rig.beat, on_beat, 1, 1));
}

static void open_workers(void)
{
    const struct vx_workers_options options = {
        .loop = &rig.loop,
        .config = &rig.config,
        .shared = rig.shared,
        .context = &rig,
        .on_up = on_up,
        .on_down = on_down,
        .on_message = on_message,
        .on_stopped = on_stopped,
    };
    struct vx_why why = {""};
    vx_status st = vx_workers_open(&options, &why, &rig.workers);
    ck_assert_msg(!st.fault, "%s", why.text);
}

static void run_until(const i32 *count, i32 wanted)
{
    while (*count < wanted) uv_run(&rig.loop, UV_RUN_ONCE);
}

static void finish(void)
{
    rig.stopped = true;
    vx_workers_stop(rig.workers);
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert(!uv_loop_close(&rig.loop));
    vx_workers_close(&rig.workers);
    vx_shared_close(&rig.shared);
}

/* ------- the watchdog ------- */

static const struct {
    const char *manner;
    i32 sends; /* once it is up; -1 = nothing, it is asked for its numbers all the time */
    const char *owes;
    i64 limit_ms;
} hangs[] = {
    {"mute", -1, "(start)", 400},
    {"deaf", -1, "(answer)", 200},
    {"chats", VX_MESSAGE_RUN, "(batch)", 200},
    {"chats", VX_MESSAGE_LOAD, "(load)", 400},
};

START_TEST(who_owes_and_is_silent_is_killed)
{
    setup(hangs[_i].manner);
    open_workers();
    i64 began_ns = vx_clock_ns();
    if (strcmp(hangs[_i].manner, "mute")) run_until(&rig.ups, 1);
    if (hangs[_i].sends >= 0) order(hangs[_i].sends);
    run_until(&rig.downs, 1);
    ck_assert_int_ge(vx_clock_ns() - began_ns, hangs[_i].limit_ms * VX_NS_PER_MS);
    ck_assert_int_eq(info()->hangs, 1);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 1);
    ck_assert_msg(strstr(info()->problem.text, hangs[_i].owes) != NULL, "%s",
                  info()->problem.text);
    finish();
}
END_TEST

START_TEST(who_says_something_lives)
{
    setup("good");
    open_workers();
    run_until(&rig.ups, 1);
    order(VX_MESSAGE_LOAD); /* half a second, told bit by bit */
    order(VX_MESSAGE_RUN);  /* answered behind it */
    run_until(&rig.loadeds, 1);
    finish();
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 0);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_EXIT), 0);
}
END_TEST

START_TEST(without_limits_nobody_is_killed)
{
    setup("deaf");
    rig.config.watchdog_ms = rig.config.start_ms_max = 0;
    open_workers();
    run_until(&rig.ups, 1);
    order(VX_MESSAGE_RUN);
    i64 until_ns = vx_clock_ns() + 600 * VX_NS_PER_MS;
    while (vx_clock_ns() < until_ns) uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert_int_eq(rig.downs, 0);
    finish();
}
END_TEST

/* The watchdog's timer comes first in a turn, the channel's word later: both wait. */
START_TEST(a_front_that_slept_listens_first)
{
    setup("good");
    open_workers();
    run_until(&rig.ups, 1);
    for (int i = 0; i < 3; i++) {
        order(VX_MESSAGE_RUN);
        usleep(600 * 1000);
        run_until(&rig.dones, i + 1);
    }
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 0);
    finish();
}
END_TEST

/* ------- other ends ------- */

static const struct {
    const char *manner, *why;
    i32 ups;
} ends[] = {
    {"ends", "as the test wants", 0},
    {"wild", "", 1},
    {"cut", "", 1},
};

START_TEST(why_it_ended_is_told)
{
    setup(ends[_i].manner);
    open_workers();
    run_until(&rig.downs, 1);
    ck_assert_int_eq(rig.ups, ends[_i].ups);
    ck_assert_int_eq(info()->hangs, 0);
    ck_assert_str_eq(info()->problem.text, ends[_i].why);
    ck_assert_int_ne(info()->state, VX_WORKER_UP);
    finish();
}
END_TEST

START_TEST(restarts_back_off)
{
    setup("ends");
    rig.config.restart_ms_max = 150;
    i64 began_ns = vx_clock_ns();
    open_workers();
    run_until(&rig.downs, 4); /* 0, 100, 150 ms between them */
    ck_assert_int_ge(vx_clock_ns() - began_ns, 250 * VX_NS_PER_MS);
    ck_assert_int_eq(info()->restarts, 4); /* the one that is planned counts */
    finish();
}
END_TEST

START_TEST(who_does_not_stop_is_killed)
{
    setup("stays");
    open_workers();
    run_until(&rig.ups, 1);
    i64 began_ns = vx_clock_ns();
    finish(); /* 2 s, then SIGKILL */
    ck_assert_int_ge(vx_clock_ns() - began_ns, 1900 * VX_NS_PER_MS);
    ck_assert_int_eq(rig.downs, 1);
}
END_TEST

/* ------- memory near the devices ------- */

/* On a machine with one node there is nothing to choose, and nothing is done or said. */
START_TEST(the_arena_is_placed_once_when_all_are_up)
{
    setup("good");
    rig.config.numa = !_i;
    rig.config.restart_ms_max = 10;
    u64 nodes = vx_numa_nodes();
    ck_assert_uint_eq(vx_shared_nodes_of(0), 1);
    ck_assert_uint_eq(vx_shared_nodes_of(-1), nodes);
    ck_assert_uint_eq(vx_shared_nodes_of(VX_NUMA_NODES_MAX), nodes);
    open_workers();
    run_until(&rig.ups, 1);
    ck_assert(!kill(info()->pid, SIGKILL));
    run_until(&rig.ups, 2);
    bool has_choice = rig.config.numa && (nodes & (nodes - 1));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_NUMA), has_choice ? 1 : 0);
    finish();
}
END_TEST

/* ------- the loop during starts ------- */

/* The best of several: what a start costs the loop it costs each time, what the machine's
 * other programs cost it they do not. */
START_TEST(a_start_does_not_hold_up_the_loop)
{
    size_t bytes = 256 << 20; /* a front of some size: a fork would copy its page table */
    u8 *memory = vx_alloc(bytes);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 1, bytes);
    i64 best_ns = INT64_MAX;
    setup("good");
    open_workers();
    run_until(&rig.ups, 1);
    for (i32 start = 0; start < 8; start++) {
        rig.config.restart_ms_max = 10;
        rig.gap_ns = 0;
        rig.beat_ns = vx_clock_ns();
        ck_assert(!kill(info()->pid, SIGKILL));
        run_until(&rig.ups, start + 2);
        on_beat(NULL); /* the time since the last one counts too */
        if (rig.gap_ns < best_ns) best_ns = rig.gap_ns;
    }
    ck_assert_msg(best_ns < 20 * VX_NS_PER_MS, "the loop stood still for %lld us",
                  (long long)best_ns / 1000);
    finish();
    vx_free(memory);
}
END_TEST

int main(int argc, char **argv)
{
    static const char flag[] = "--kernel-texts=";
    for (int i = 2; i < argc && !strcmp(argv[1], "worker"); i++)
        if (!strncmp(argv[i], flag, sizeof flag - 1))
            return child(argv[i] + sizeof flag - 1);
    Suite *suite = suite_create("workers");
    TCase *tests = tcase_create("workers");
    tcase_set_timeout(tests, 20);
    tcase_add_loop_test(tests, who_owes_and_is_silent_is_killed, 0, (int)VX_COUNT(hangs));
    tcase_add_test(tests, who_says_something_lives);
    tcase_add_test(tests, without_limits_nobody_is_killed);
    tcase_add_test(tests, a_front_that_slept_listens_first);
    tcase_add_loop_test(tests, why_it_ended_is_told, 0, (int)VX_COUNT(ends));
    tcase_add_test(tests, restarts_back_off);
    tcase_add_test(tests, who_does_not_stop_is_killed);
    tcase_add_loop_test(tests, the_arena_is_placed_once_when_all_are_up, 0, 2);
    tcase_add_test(tests, a_start_does_not_hold_up_the_loop);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
