/* workers: processes that behave as told, and what becomes of them.  This program is its
 * own child: as `worker` it speaks the channel's language, badly where the test wants it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/alloc.h"
#include "engine/base/log.h"
#include "engine/base/numa.h"
#include "engine/base/thread.h"
#include "server/workers_private.h"
#include "tests/support/wait.h"
#include "tests/unit/workers_child.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS (VX_WAIT_SECONDS * 1000)

/* ------- the front of the test ------- */

static struct rig {
    uv_loop_t loop;
    uv_timer_t patience, beat;
    struct vx_config config;
    struct vx_shared *shared;
    struct vx_workers *workers;
    i32 ups, leaves, downs, dones, loadeds;
    bool stopped, runs; /* runs: a batch with each beat */
    bool undying;       /* no signal ends the process */
    bool backwards;     /* events of one turn come in the opposite order */
    bool quiet;         /* no questions */
    i64 healthy_ns;
    i64 beat_ns, gap_ns;
} rig;

/* In place of the system's: a process that sleeps in a driver does not die of it. */
/* The C library's own names of the parameters are reserved. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int pidfd_send_signal(int pidfd, int number, siginfo_t *info, unsigned flags)
{
    if (rig.undying) return 0;
    return (int)syscall(SYS_pidfd_send_signal, pidfd, number, info, flags);
}

/* The loop's: which of two events of one turn comes first is nobody's promise. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout_ms,
                const sigset_t *mask)
{
    int count = (int)syscall(SYS_epoll_pwait, epoll, events, most, timeout_ms, mask, 8);
    for (int i = 0; rig.backwards && i < count / 2; i++) {
        struct epoll_event event = events[i];
        events[i] = events[count - 1 - i];
        events[count - 1 - i] = event;
    }
    return count;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms)
{
    return epoll_pwait(epoll, events, most, timeout_ms, NULL);
}

static bool try_order(i32 kind)
{
    static union vx_message message; /* one empty item: the child looks no further */
    message.head = (struct vx_message_head){.kind = kind, .batch = 1};
    if (kind == VX_MESSAGE_RUN) message.run.items_count = 1;
    size_t bytes = kind == VX_MESSAGE_RUN    ? vx_message_run_bytes(1)
                   : kind == VX_MESSAGE_LOAD ? sizeof message.load
                                             : sizeof message.head;
    return vx_workers_send(rig.workers, 0, &message.head, bytes);
}

static void order(i32 kind)
{
    ck_assert(try_order(kind));
}

static void on_up(void *context, i32 worker)
{
    ck_assert_ptr_eq(context, &rig);
    ck_assert_int_eq(worker, 0);
    rig.ups++;
}

static void on_leaving(void *context, i32 worker)
{
    (void)context;
    ck_assert_int_eq(worker, 0);
    ck_assert_int_eq(vx_workers_info(rig.workers, 0)->state, VX_WORKER_LEAVING);
    rig.leaves++;
}

static void on_down(void *context, i32 worker)
{
    (void)context;
    (void)worker;
    if (!rig.stopped) ck_assert_int_eq(rig.leaves, rig.ups); /* first, and once */
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

/* Far more often than any limit of these tests asks, and what the loop's turns are timed by. */
static void on_beat(uv_timer_t *timer)
{
    (void)timer;
    i64 now = vx_clock_ns();
    if (rig.beat_ns && now - rig.beat_ns > rig.gap_ns) rig.gap_ns = now - rig.beat_ns;
    rig.beat_ns = now;
    if (rig.ups && !rig.stopped && !rig.quiet) vx_workers_ask_stats(rig.workers);
    if (rig.runs && !rig.stopped) (void)try_order(VX_MESSAGE_RUN);
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

/* From now on; how often the watchdog looks follows from those of the settings. */
static void limits_set(i64 watchdog_ms, i64 start_ms)
{
    rig.workers->limits.silence_ns = watchdog_ms * VX_NS_PER_MS;
    rig.workers->limits.start_ns = start_ms * VX_NS_PER_MS;
}

/* What the machine takes is no hang: limits are for those who are to pass them. */
static void open_workers(void)
{
    const struct vx_workers_options options = {
        .loop = &rig.loop,
        .config = &rig.config,
        .shared = rig.shared,
        .healthy_ns = rig.healthy_ns,
        .context = &rig,
        .on_up = on_up,
        .on_leaving = on_leaving,
        .on_down = on_down,
        .on_message = on_message,
        .on_stopped = on_stopped,
    };
    struct vx_why why = {""};
    vx_status st = vx_workers_open(&options, &why, &rig.workers);
    ck_assert_msg(!st.fault, "%s", why.text);
    limits_set(rig.config.watchdog_ms ? PATIENCE_MS : 0,
               rig.config.start_ms_max ? PATIENCE_MS : 0);
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
    bool runs;
    const char *owes;
    i64 limit_ms;
} hangs[] = {
    {"mute", -1, false, "(start)", 400},
    {"deaf", -1, false, "(answer)", 200},
    {"chats", VX_MESSAGE_RUN, false, "(batch)", 200},
    {"chats", VX_MESSAGE_LOAD, false, "(load)", 400},
    {"forgets", VX_MESSAGE_LOAD, true, "(warm-up)", 400}, /* and its batches end */
    {"reads", VX_MESSAGE_LOAD, true, "(batch)", 200},     /* and its load goes on */
};

/* It has said something since it was given the work of this row, so that nothing else is owed
 * for longer. */
static bool chats(const char *manner)
{
    const struct vx_watchdog_facts *watch = &rig.workers->processes[0].watch;
    if (!strcmp(manner, "reads"))
        return watch->batches.count && watch->loads.word_ns > watch->batches.since_ns;
    return watch->heard_ns > watch->batches.since_ns &&
           watch->heard_ns > watch->loads.since_ns;
}

START_TEST(who_owes_and_is_silent_is_killed)
{
    setup(hangs[_i].manner);
    open_workers();
    i64 began_ns = vx_clock_ns();
    if (strcmp(hangs[_i].manner, "mute")) run_until(&rig.ups, 1);
    if (hangs[_i].sends >= 0) order(hangs[_i].sends);
    rig.runs = hangs[_i].runs;
    while (hangs[_i].sends >= 0 && !chats(hangs[_i].manner))
        uv_run(&rig.loop, UV_RUN_ONCE);
    limits_set(hangs[_i].limit_ms, hangs[_i].limit_ms);
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
    limits_set(2000, 4000); /* far more than a machine is silent by itself */
    order(VX_MESSAGE_LOAD); /* seven seconds, told bit by bit */
    order(VX_MESSAGE_RUN);  /* answered behind it */
    run_until(&rig.loadeds, 1);
    run_until(&rig.dones, 1);
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
    const struct worker_process *process = &rig.workers->processes[0];
    rig.quiet = true;
    while (process->watch.asked) uv_run(&rig.loop, UV_RUN_ONCE);
    limits_set(200, 400);
    for (int i = 0; i < 3; i++) {
        struct pollfd answer = {.fd = process->channel, .events = POLLIN};
        order(VX_MESSAGE_RUN);
        ck_assert_int_eq(poll(&answer, 1, PATIENCE_MS), 1);
        usleep(600 * 1000); /* sleep: longer than the limits */
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
    {"lies", "", 1},
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

/* Told, or seen by its closed channel: it gets no work from then on, and if it does not end
 * it is killed. */
START_TEST(who_leaves_gets_no_work_and_must_end)
{
    setup(_i ? "closes" : "leaves");
    rig.config.watchdog_ms = 0;
    open_workers();
    run_until(&rig.ups, 1);
    order(VX_MESSAGE_RUN);
    run_until(&rig.leaves, 1);
    i64 left_ns = vx_clock_ns();
    ck_assert(!try_order(VX_MESSAGE_RUN));
    ck_assert(!vx_workers_any_up(rig.workers));
    ck_assert_str_eq(vx_worker_state_name(info()->state), "leaving");
    ck_assert_int_eq(rig.downs, 0);
    run_until(&rig.downs, 1);
    ck_assert_int_ge(vx_clock_ns() - left_ns, 1900 * VX_NS_PER_MS);
    ck_assert_int_eq(rig.leaves, 1);
    ck_assert_str_eq(info()->problem.text, _i ? "" : "as the test wants");
    run_until(&rig.ups, 2);
    finish();
}
END_TEST

START_TEST(who_is_not_believed_is_killed_at_once)
{
    setup("good");
    open_workers();
    run_until(&rig.ups, 1);
    order(VX_MESSAGE_RUN);
    vx_workers_kill(rig.workers, 0);
    ck_assert_int_eq(rig.leaves, 1);
    run_until(&rig.downs, 1);
    ck_assert_int_eq(rig.dones, 0);
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

/* Started again at once, however often: else the thirteenth would wait for minutes. */
START_TEST(a_long_life_is_forgiven)
{
    setup("good");
    rig.healthy_ns = 1;
    open_workers();
    for (int life = 1; life <= 13; life++) {
        run_until(&rig.ups, life);
        ck_assert_int_eq(kill(info()->pid, SIGKILL), 0);
        run_until(&rig.downs, life);
    }
    ck_assert_int_eq(info()->restarts, 13);
    finish();
}
END_TEST

/* Said and gone before the front looks, which then hears of the end first. */
START_TEST(last_words_count)
{
    setup("quits");
    open_workers();
    run_until(&rig.ups, 1);
    order(VX_MESSAGE_RUN);
    siginfo_t ended;
    ck_assert_int_eq(waitid(P_PID, (id_t)info()->pid, &ended, WEXITED | WNOWAIT), 0);
    rig.backwards = true;
    run_until(&rig.downs, 1);
    ck_assert_int_eq(rig.dones, 1);
    ck_assert_str_eq(info()->problem.text, "as the test wants");
    rig.backwards = false;
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

START_TEST(who_does_not_die_is_left_behind)
{
    setup("stays");
    open_workers();
    run_until(&rig.ups, 1);
    i64 began_ns = vx_clock_ns();
    pid_t pid = info()->pid;
    rig.undying = true;
    finish(); /* 2 s, SIGKILL, 2 s */
    ck_assert_int_ge(vx_clock_ns() - began_ns, 3900 * VX_NS_PER_MS);
    ck_assert_int_eq(rig.downs, 1);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 1);
    ck_assert(!kill(pid, SIGKILL)); /* it is there, and our child */
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
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

/* Until one does not: what a start costs the loop it costs each time, what the machine's other
 * programs cost it they do not. */
START_TEST(a_start_does_not_hold_up_the_loop)
{
    size_t bytes = 256 << 20; /* a front of some size: a fork would copy its page table */
    u8 *memory = vx_alloc(bytes);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 1, bytes);
    setup("good");
    open_workers();
    run_until(&rig.ups, 1);
    i64 began_ns = vx_clock_ns();
    rig.gap_ns = INT64_MAX;
    for (i32 start = 0; rig.gap_ns >= 20 * VX_NS_PER_MS; start++) {
        ck_assert_msg(vx_clock_ns() - began_ns < VX_WAIT_SECONDS / 2 * VX_NS_PER_S,
                      "in %d starts the loop never stood still for less than 20 ms",
                      start);
        rig.config.restart_ms_max = 10;
        rig.gap_ns = 0;
        rig.beat_ns = vx_clock_ns();
        ck_assert(!kill(info()->pid, SIGKILL));
        run_until(&rig.ups, start + 2);
        on_beat(NULL); /* the time since the last one counts too */
    }
    finish();
    vx_free(memory);
}
END_TEST

int main(int argc, char **argv)
{
    static const char flag[] = "--kernel-texts=";
    for (int i = 2; i < argc && !strcmp(argv[1], "worker"); i++)
        if (!strncmp(argv[i], flag, sizeof flag - 1))
            return workers_child(argv[i] + sizeof flag - 1);
    Suite *suite = suite_create("workers");
    TCase *tests = tcase_create("workers");
    tcase_set_timeout(tests, 20);
    tcase_add_loop_test(tests, who_owes_and_is_silent_is_killed, 0, (int)VX_COUNT(hangs));
    tcase_add_test(tests, who_says_something_lives);
    tcase_add_test(tests, without_limits_nobody_is_killed);
    tcase_add_test(tests, a_front_that_slept_listens_first);
    tcase_add_loop_test(tests, why_it_ended_is_told, 0, (int)VX_COUNT(ends));
    tcase_add_loop_test(tests, who_leaves_gets_no_work_and_must_end, 0, 2);
    tcase_add_test(tests, who_is_not_believed_is_killed_at_once);
    tcase_add_test(tests, restarts_back_off);
    tcase_add_test(tests, a_long_life_is_forgiven);
    tcase_add_test(tests, last_words_count);
    tcase_add_test(tests, who_does_not_stop_is_killed);
    tcase_add_test(tests, who_does_not_die_is_left_behind);
    tcase_add_loop_test(tests, the_arena_is_placed_once_when_all_are_up, 0, 2);
    tcase_add_test(tests, a_start_does_not_hold_up_the_loop);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
