/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server/workers/workers_rig.h"

#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rig rig;

/* Replaces the system's call: a process that hangs in a driver does not die of a
 * signal. */
/* The C library's own parameter names are reserved. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int pidfd_send_signal(int pidfd, int number, siginfo_t *info, unsigned flags)
{
    if (rig.undying) return 0;
    return (int)syscall(SYS_pidfd_send_signal, pidfd, number, info, flags);
}

/* Replaces the loop's call: the order of two events of one iteration is not specified. */
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

/* The other functions that govern/rpc_intercept.c replaces: with all of them here the linker
 * leaves it out.  No connection is governed in this test. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    return syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return syscall(SYS_sendmsg, fd, message, flags);
}

int shutdown(int fd, int how)
{
    return (int)syscall(SYS_shutdown, fd, how);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

bool rig_try_order(i32 kind)
{
    static union vx_message message; /* one empty item: the child reads no more */
    message.head = (struct vx_message_head){.kind = kind, .serial = 1};
    if (kind == VX_MESSAGE_RUN) message.run.items_count = 1;
    size_t bytes = kind == VX_MESSAGE_RUN    ? vx_message_run_bytes(1)
                   : kind == VX_MESSAGE_LOAD ? sizeof message.load
                                             : sizeof message.head;
    return vx_workers_send(rig.workers, 0, &message.head, bytes);
}

void rig_order(i32 kind)
{
    ck_assert(rig_try_order(kind));
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

/* Far more often than any limit of these tests needs; the loop's iterations are timed
 * by it too. */
void rig_on_beat(uv_timer_t *timer)
{
    (void)timer;
    i64 now = vx_clock_ns();
    if (rig.beat_ns && now - rig.beat_ns > rig.gap_ns) rig.gap_ns = now - rig.beat_ns;
    rig.beat_ns = now;
    if (rig.ups && !rig.stopped && !rig.quiet) vx_workers_ask_stats(rig.workers);
    if (rig.runs && !rig.stopped) (void)rig_try_order(VX_MESSAGE_RUN);
}

const struct vx_worker_info *rig_info(void)
{
    return vx_workers_info(rig.workers, 0);
}

void rig_setup(const char *manner)
{
    vx_thread_enter(VX_ROLE_LOOP);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_DEBUG, .fd = 2}, "test");
    vx_config_defaults(&rig.config);
    snprintf(rig.config.kernel_texts, sizeof rig.config.kernel_texts, "%s", manner);
    rig.config.watchdog_ms = 200;
    rig.config.start_ms_max = 400;
    rig.config.restart_ms_max = 60000; /* no second restart in a row */
    ck_assert(!vx_shared_open(1 << 20, NULL, &rig.shared).fault);
    ck_assert(!uv_loop_init(&rig.loop));
    ck_assert(!uv_timer_init(&rig.loop, &rig.patience));
    ck_assert(!uv_timer_init(&rig.loop, &rig.beat));
    ck_assert(!uv_timer_start(&rig.patience, on_patience, PATIENCE_MS, 0));
    ck_assert(!uv_timer_start(&rig.beat, rig_on_beat, 1, 1));
}

/* Sets the limits from now on; the interval of the watchdog's checks depends on the
 * settings' limits. */
void rig_limits_set(i64 watchdog_ms, i64 start_ms)
{
    rig.workers->limits.silence_ns = watchdog_ms * VX_NS_PER_MS;
    rig.workers->limits.start_ns = start_ms * VX_NS_PER_MS;
}

/* Delays of the machine are no hang: short limits are only for tests that exceed them. */
void rig_open_workers(void)
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
    rig_limits_set(rig.config.watchdog_ms ? PATIENCE_MS : 0,
                   rig.config.start_ms_max ? PATIENCE_MS : 0);
}

void rig_run_until(const i32 *count, i32 wanted)
{
    while (*count < wanted) uv_run(&rig.loop, UV_RUN_ONCE);
}

void rig_finish(void)
{
    rig.stopped = true;
    vx_workers_stop(rig.workers);
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert(!uv_loop_close(&rig.loop));
    vx_workers_close(&rig.workers);
    vx_shared_close(&rig.shared);
}
