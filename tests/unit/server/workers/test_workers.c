/* workers: processes that behave as told, and how the front handles them.  This program
 * is its own child: as `worker` it speaks the IPC channel's protocol, and breaks it where
 * the test wants.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/numa.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "tests/unit/server/workers/workers_child.h"
#include "tests/unit/server/workers/workers_rig.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------- the watchdog ------- */

static const struct {
    const char *manner;
    i32 sends; /* once it is up; -1 = nothing, it gets STATS requests all the time */
    bool runs;
    const char *owes;
    i64 limit_ms;
} hangs[] = {
    {"mute", -1, false, "(start)", 400},
    {"deaf", -1, false, "(answer)", 200},
    {"chats", VX_MESSAGE_RUN, false, "(batch)", 200},
    {"chats", VX_MESSAGE_LOAD, false, "(load)", 400},
    {"forgets", VX_MESSAGE_LOAD, true, "(warm-up)", 400}, /* its batches end */
    {"reads", VX_MESSAGE_LOAD, true, "(batch)", 200},     /* its load goes on */
};

/* It has sent a message since it was given the work of this row, so that nothing else
 * is overdue for longer. */
static bool chats(const char *manner)
{
    const struct vx_watchdog_facts *watch = &rig.workers->processes[0].watch;
    if (!strcmp(manner, "reads"))
        return watch->batches.count && watch->loads.word_ns > watch->batches.since_ns;
    if (!strcmp(manner, "forgets")) /* a batch has ended since the warm-up began */
        return watch->warms.count && watch->batches.word_ns > watch->warms.since_ns;
    return watch->heard_ns > watch->batches.since_ns &&
           watch->heard_ns > watch->loads.since_ns;
}

START_TEST(who_owes_and_is_silent_is_killed)
{
    rig_setup(hangs[_i].manner);
    i64 began_ns = vx_clock_ns(); /* a mute one is silent from here on */
    rig_open_workers();
    if (strcmp(hangs[_i].manner, "mute")) rig_run_until(&rig.ups, 1);
    if (hangs[_i].sends >= 0) rig_order(hangs[_i].sends);
    rig.runs = hangs[_i].runs;
    while (hangs[_i].sends >= 0 && !chats(hangs[_i].manner))
        uv_run(&rig.loop, UV_RUN_ONCE);
    rig_limits_set(hangs[_i].limit_ms, hangs[_i].limit_ms);
    rig_run_until(&rig.downs, 1);
    ck_assert_int_ge(vx_clock_ns() - began_ns, hangs[_i].limit_ms * VX_NS_PER_MS);
    ck_assert_int_eq(rig_info()->hangs, 1);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 1);
    ck_assert_msg(strstr(rig_info()->problem.text, hangs[_i].owes) != NULL, "%s",
                  rig_info()->problem.text);
    rig_finish();
}
END_TEST

START_TEST(who_says_something_lives)
{
    rig_setup("good");
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    rig_limits_set(2000, 4000); /* far longer than a machine's own delays */
    rig_order(VX_MESSAGE_LOAD); /* seven seconds, with progress messages */
    rig_order(VX_MESSAGE_RUN);  /* answered after the load */
    rig_run_until(&rig.loadeds, 1);
    rig_run_until(&rig.dones, 1);
    rig_finish();
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 0);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_EXIT), 0);
}
END_TEST

START_TEST(without_limits_nobody_is_killed)
{
    rig_setup("deaf");
    rig.config.watchdog_ms = rig.config.start_ms_max = 0;
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    rig_order(VX_MESSAGE_RUN);
    i64 until_ns = vx_clock_ns() + 600 * VX_NS_PER_MS;
    while (vx_clock_ns() < until_ns) uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert_int_eq(rig.downs, 0);
    rig_finish();
}
END_TEST

/* The watchdog's timer fires first in an iteration, the channel's message is read
 * later: both are due. */
START_TEST(a_front_that_slept_listens_first)
{
    rig_setup("good");
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    const struct worker_process *process = &rig.workers->processes[0];
    rig.quiet = true;
    while (process->watch.asked) uv_run(&rig.loop, UV_RUN_ONCE);
    rig_limits_set(200, 400);
    for (int i = 0; i < 3; i++) {
        struct pollfd answer = {.fd = process->channel, .events = POLLIN};
        rig_order(VX_MESSAGE_RUN);
        ck_assert_int_eq(poll(&answer, 1, PATIENCE_MS), 1);
        usleep(600 * 1000); /* sleep: longer than the limits */
        rig_run_until(&rig.dones, i + 1);
    }
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 0);
    rig_finish();
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
    rig_setup(ends[_i].manner);
    rig_open_workers();
    rig_run_until(&rig.downs, 1);
    ck_assert_int_eq(rig.ups, ends[_i].ups);
    ck_assert_int_eq(rig_info()->hangs, 0);
    ck_assert_str_eq(rig_info()->problem.text, ends[_i].why);
    ck_assert_int_ne(rig_info()->state, VX_WORKER_UP);
    rig_finish();
}
END_TEST

/* The end is announced, or seen by the closed channel: the worker gets no work from
 * then on, and is killed if it does not end. */
START_TEST(who_leaves_gets_no_work_and_must_end)
{
    rig_setup(_i ? "closes" : "leaves");
    rig.config.watchdog_ms = 0;
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    i64 begin_ns = vx_clock_ns(); /* before it leaves, however late this thread goes on */
    rig_order(VX_MESSAGE_RUN);
    rig_run_until(&rig.leaves, 1);
    ck_assert(!rig_try_order(VX_MESSAGE_RUN));
    ck_assert(!vx_workers_any_up(rig.workers));
    ck_assert_str_eq(vx_worker_state_name(rig_info()->state), "leaving");
    ck_assert_int_eq(rig.downs, 0);
    rig_run_until(&rig.downs, 1);
    ck_assert_int_ge(vx_clock_ns() - begin_ns, 1900 * VX_NS_PER_MS);
    ck_assert_int_eq(rig.leaves, 1);
    ck_assert_str_eq(rig_info()->problem.text, _i ? "" : "as the test wants");
    rig_run_until(&rig.ups, 2);
    rig_finish();
}
END_TEST

START_TEST(who_is_not_believed_is_killed_at_once)
{
    rig_setup("good");
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    rig_order(VX_MESSAGE_RUN);
    vx_workers_kill(rig.workers, 0);
    ck_assert_int_eq(rig.leaves, 1);
    rig_run_until(&rig.downs, 1);
    ck_assert_int_eq(rig.dones, 0);
    rig_finish();
}
END_TEST

START_TEST(restarts_back_off)
{
    rig_setup("ends");
    rig.config.restart_ms_max = 150;
    i64 began_ns = vx_clock_ns();
    rig_open_workers();
    rig_run_until(&rig.downs, 4); /* 0, 100, 150 ms between them */
    ck_assert_int_ge(vx_clock_ns() - began_ns, 250 * VX_NS_PER_MS);
    ck_assert_int_eq(rig_info()->restarts, 4); /* the planned one counts */
    rig_finish();
}
END_TEST

/* Restarted at once, however often: otherwise the thirteenth restart would wait for
 * minutes. */
START_TEST(a_long_life_is_forgiven)
{
    rig_setup("good");
    rig.healthy_ns = 1;
    rig_open_workers();
    for (int life = 1; life <= 13; life++) {
        rig_run_until(&rig.ups, life);
        ck_assert_int_eq(kill(rig_info()->pid, SIGKILL), 0);
        rig_run_until(&rig.downs, life);
    }
    ck_assert_int_eq(rig_info()->restarts, 13);
    rig_finish();
}
END_TEST

/* Announced and ended before the front reads, so that the front sees the end first. */
START_TEST(last_words_count)
{
    rig_setup("quits");
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    rig_order(VX_MESSAGE_RUN);
    siginfo_t ended;
    ck_assert_int_eq(waitid(P_PID, (id_t)rig_info()->pid, &ended, WEXITED | WNOWAIT), 0);
    rig.backwards = true;
    rig_run_until(&rig.downs, 1);
    ck_assert_int_eq(rig.dones, 1);
    ck_assert_str_eq(rig_info()->problem.text, "as the test wants");
    rig.backwards = false;
    rig_finish();
}
END_TEST

START_TEST(who_does_not_stop_is_killed)
{
    rig_setup("stays");
    rig_open_workers();
    i64 began_ns = vx_clock_ns(); /* before the loop's time, from which timers run */
    rig_run_until(&rig.ups, 1);
    rig_finish(); /* 2 s, then SIGKILL */
    ck_assert_int_ge(vx_clock_ns() - began_ns, 1900 * VX_NS_PER_MS);
    ck_assert_int_eq(rig.downs, 1);
}
END_TEST

START_TEST(who_does_not_die_is_left_behind)
{
    rig_setup("stays");
    rig_open_workers();
    i64 began_ns = vx_clock_ns(); /* before the loop's time, from which timers run */
    rig_run_until(&rig.ups, 1);
    pid_t pid = rig_info()->pid;
    rig.undying = true;
    rig_finish(); /* 2 s, SIGKILL, 2 s */
    ck_assert_int_ge(vx_clock_ns() - began_ns, 3900 * VX_NS_PER_MS);
    ck_assert_int_eq(rig.downs, 1);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_WORKER_HANG), 1);
    ck_assert(!kill(pid, SIGKILL)); /* it exists, and is our child */
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

/* ------- memory near the devices ------- */

/* On a machine with one node there is nothing to choose, and nothing is done or
 * logged. */
START_TEST(the_arena_is_placed_once_when_all_are_up)
{
    rig_setup("good");
    rig.config.numa = !_i;
    rig.config.restart_ms_max = 10;
    u64 nodes = vx_numa_nodes();
    ck_assert_uint_eq(vx_shared_nodes_of(0), 1);
    ck_assert_uint_eq(vx_shared_nodes_of(-1), nodes);
    ck_assert_uint_eq(vx_shared_nodes_of(VX_NUMA_NODES_MAX), nodes);
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    ck_assert(!kill(rig_info()->pid, SIGKILL));
    rig_run_until(&rig.ups, 2);
    bool has_choice = rig.config.numa && (nodes & (nodes - 1));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_NUMA), has_choice ? 1 : 0);
    rig_finish();
}
END_TEST

/* ------- the loop during starts ------- */

/* Repeated until one start is fast: what a start costs the loop it costs each time,
 * what other programs cost it they do not. */
START_TEST(a_start_does_not_hold_up_the_loop)
{
    size_t bytes = 256 << 20; /* a large front: a fork would copy its page table */
    u8 *memory = vx_alloc(bytes);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 1, bytes);
    rig_setup("good");
    rig_open_workers();
    rig_run_until(&rig.ups, 1);
    i64 began_ns = vx_clock_ns();
    rig.gap_ns = INT64_MAX;
    for (i32 start = 0; rig.gap_ns >= 20 * VX_NS_PER_MS; start++) {
        ck_assert_msg(vx_clock_ns() - began_ns < VX_WAIT_SECONDS / 2 * VX_NS_PER_S,
                      "in %d starts the loop never stood still for less than 20 ms",
                      start);
        rig.config.restart_ms_max = 10;
        rig.gap_ns = 0;
        rig.beat_ns = vx_clock_ns();
        ck_assert(!kill(rig_info()->pid, SIGKILL));
        rig_run_until(&rig.ups, start + 2);
        rig_on_beat(NULL); /* the time since the last one counts too */
    }
    rig_finish();
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
