/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/workers.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/devices.h"
#include "server/spawn.h"
#include "server/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A worker that lived this long was healthy: its next death starts the back-off anew. */
#define HEALTHY_NS (10 * VX_NS_PER_S)
/* Second restart in a row; doubled each time up to restart_ms_max. */
#define BACKOFF_MS 100
/* After vx_workers_stop: a worker in the middle of a batch gets this long, then SIGKILL.
 */
#define STOP_MS 2000

/* "--kernel-cache-bytes=" and the longest text. */
#define ARGUMENT_BYTES (VX_CONFIG_TEXT_BYTES + 32)
#define ARGUMENTS_MAX  20

struct worker_process {
    struct vx_workers *workers;
    i32 index;
    char device[VX_DEVICE_NAME_BYTES];
    struct vx_worker_info info;
    int channel; /* -1 when none */
    int pidfd;
    uv_poll_t channel_poll, pid_poll;
    uv_timer_t timer; /* restart, or the kill after stop */
    bool stats_asked; /* and not yet answered: a busy worker is not asked twice */
    bool said_why;    /* info.problem is of this process, not of one before */
    i32 quick_deaths;
    i64 started_ns;
};

struct vx_workers {
    struct vx_workers_options options;
    i32 count, alive;
    bool stopping;
    struct worker_process processes[VX_WORKERS_MAX];
    union vx_message in;
};

static void worker_start(struct worker_process *process);

/* ------- spawning ------- */

struct argument_list {
    i32 count;
    char text[ARGUMENTS_MAX][ARGUMENT_BYTES];
    char *pointers[ARGUMENTS_MAX];
};

static VX_PRINTF(2, 3) void argument_add(struct argument_list *list, const char *format,
                                         ...)
{
    VX_ASSERT(list->count < ARGUMENTS_MAX - 1);
    va_list values;
    va_start(values, format);
    char *text = list->text[list->count];
    int length = vsnprintf(text, ARGUMENT_BYTES, format, values);
    va_end(values);
    VX_ASSERT(length < ARGUMENT_BYTES);
    list->pointers[list->count++] = text;
    list->pointers[list->count] = NULL;
}

/* The worker's settings, as flags of the same table. */
static void worker_arguments(const struct worker_process *process,
                             struct argument_list *list)
{
    const struct vx_config *config = process->workers->options.config;
    list->count = 0;
    argument_add(list, "voxeld");
    argument_add(list, "worker");
    argument_add(list, "--device=%s", process->device);
    argument_add(list, "--threads=%lld", (long long)config->threads);
    argument_add(list, "--device-bytes=%lld", (long long)config->device_bytes);
    argument_add(list, "--cache-bytes=%lld", (long long)config->cache_bytes);
    argument_add(list, "--gpu-driver=%s", config->gpu_driver);
    argument_add(list, "--gpu-compiler=%s", config->gpu_compiler);
    argument_add(list, "--kernel-cache=%s", config->kernel_cache);
    argument_add(list, "--kernel-cache-bytes=%lld",
                 (long long)config->kernel_cache_bytes);
    argument_add(list, "--kernel-texts=%s", config->kernel_texts);
    argument_add(list, "--tune-table=%s", config->tune_table);
    argument_add(list, "--tune=%s", config->tune);
    argument_add(list, "--algorithm=%s", config->algorithm);
    argument_add(list, "--log-format=%s", config->log_format);
    argument_add(list, "--log-level=%s", config->log_level);
}

static int worker_spawn(const struct worker_process *process, int channel, pid_t *pid)
{
    static struct argument_list list; /* the loop's alone; 20 KiB of paths */
    worker_arguments(process, &list);
    const struct vx_spawn spawn = {
        list.pointers,
        {{channel, VX_WORKER_CHANNEL_FD},
         {vx_shared_fd(process->workers->options.shared), VX_WORKER_ARENA_FD}},
        2};
    return vx_spawn_self(&spawn, pid);
}

/* By its pidfd: a number may be another process's by now. */
static void worker_kill(const struct worker_process *process)
{
    if (process->pidfd >= 0) pidfd_send_signal(process->pidfd, SIGKILL, NULL, 0);
}

/* ------- what a worker says ------- */

static void worker_take_end(struct worker_process *process,
                            const struct vx_message_ends *ends)
{
    vx_why_set(&process->info.problem, "%s%.*s", ends->lost ? "device lost: " : "",
               VX_WHY_BYTES - 1, ends->why.text);
    process->said_why = true;
    if (ends->lost) process->info.losses++;
}

static void worker_take(struct worker_process *process, const union vx_message *message)
{
    struct vx_workers *workers = process->workers;
    /* What a worker says is checked like anything from outside: its memory may be damaged. */
    if (message->head.instance < 0 || message->head.instance >= VX_INSTANCES_MAX) {
        worker_kill(process);
        return;
    }
    switch (message->head.kind) {
    case VX_MESSAGE_UP:
        if (process->info.state != VX_WORKER_STARTING)
            return; /* told to stop meanwhile */
        process->info.stats = message->up.stats;
        process->info.state = VX_WORKER_UP;
        process->info.problem.text[0] = '\0';
        VX_LOG(WORKER_READY, VX_LOG_I64("worker", process->index),
               VX_LOG_TEXT("device", message->up.stats.device_name),
               VX_LOG_F64("seconds", (f64)(vx_clock_ns() - process->started_ns) / 1e9));
        workers->options.on_up(workers->options.context, process->index);
        return;
    case VX_MESSAGE_STATED:
        process->info.stats = message->up.stats;
        process->stats_asked = false;
        return;
    case VX_MESSAGE_ENDS: worker_take_end(process, &message->ends); return;
    default:
        workers->options.on_message(workers->options.context, process->index, message);
    }
}

static void worker_on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct worker_process *process =
        VX_CONTAINER(poll, struct worker_process, channel_poll);
    struct vx_workers *workers = process->workers;
    for (;;) {
        size_t bytes;
        vx_status st = vx_channel_receive(process->channel, &workers->in, &bytes);
        if (st.fault) {
            /* The process is ending; its pidfd tells when it has. */
            uv_poll_stop(&process->channel_poll);
            return;
        }
        if (!bytes) return;
        worker_take(process, &workers->in);
    }
}

/* ------- death and restart ------- */

static void worker_on_timer(uv_timer_t *timer)
{
    struct worker_process *process = VX_CONTAINER(timer, struct worker_process, timer);
    if (process->workers->stopping) {
        worker_kill(process);
        return;
    }
    worker_start(process);
}

static void worker_plan_restart(struct worker_process *process, i64 lived_ns)
{
    process->quick_deaths = lived_ns < HEALTHY_NS ? process->quick_deaths + 1 : 0;
    i64 most = process->workers->options.config->restart_ms_max;
    i64 pause = 0;
    for (i32 i = 1; i < process->quick_deaths && pause < most; i++)
        pause = pause ? 2 * pause : BACKOFF_MS;
    if (pause > most) pause = most;
    process->info.restarts++;
    uv_timer_start(&process->timer, worker_on_timer, (u64)pause, 0);
}

static void worker_log_exit(const struct worker_process *process, const siginfo_t *info)
{
    bool exited = info->si_code == CLD_EXITED;
    const struct vx_log_field fields[] = {
        VX_LOG_I64("worker", process->index),
        VX_LOG_I64("pid", process->info.pid),
        VX_LOG_TEXT("how", exited ? "exit" : "signal"),
        VX_LOG_I64(exited ? "status" : "signal", info->si_status),
        VX_LOG_TEXT("why", process->info.problem.text),
    };
    vx_log_write(VX_EVENT_WORKER_EXIT, fields, process->said_why ? 5 : 4);
}

static void worker_on_exit(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct worker_process *process = VX_CONTAINER(poll, struct worker_process, pid_poll);
    struct vx_workers *workers = process->workers;
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG) || !info.si_pid)
        return;
    uv_poll_stop(&process->pid_poll);
    /* What it said before it died still counts. */
    if (process->info.state == VX_WORKER_UP || process->info.state == VX_WORKER_STARTING)
        worker_on_readable(&process->channel_poll, 0, UV_READABLE);
    uv_close((uv_handle_t *)&process->channel_poll, NULL);
    uv_close((uv_handle_t *)&process->pid_poll, NULL);
    close(process->channel);
    close(process->pidfd);
    process->channel = process->pidfd = -1;
    if (!process->said_why) process->info.problem.text[0] = '\0';
    if (!workers->stopping) worker_log_exit(process, &info);
    process->info.pid = 0;
    process->info.state = VX_WORKER_DOWN;
    workers->alive--;
    workers->options.on_down(workers->options.context, process->index);
    if (!workers->stopping) {
        worker_plan_restart(process, vx_clock_ns() - process->started_ns);
        return;
    }
    uv_close((uv_handle_t *)&process->timer, NULL);
    if (!workers->alive) workers->options.on_stopped(workers->options.context);
}

/* A process that cannot be watched, for want of a descriptor, must not run. */
static int worker_watch(struct worker_process *process, pid_t pid)
{
    process->pidfd = pidfd_open(pid, 0);
    if (process->pidfd >= 0) return 0;
    int failed = errno;
    kill(pid, SIGKILL); /* ours and not waited for, so the number is still its own */
    waitpid(pid, NULL, 0);
    return failed;
}

static void worker_start(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    int fds[2];
    pid_t pid;
    vx_status st = vx_channel_pair(fds);
    int failed = st.fault ? -1 : worker_spawn(process, fds[1], &pid);
    if (!failed) failed = worker_watch(process, pid);
    if (!st.fault) close(fds[1]);
    if (failed) {
        VX_LOG(WORKER_EXIT, VX_LOG_I64("worker", process->index),
               VX_LOG_I64("spawn", failed));
        if (!st.fault) close(fds[0]);
        worker_plan_restart(process, 0);
        return;
    }
    process->channel = fds[0];
    process->stats_asked = process->said_why = false;
    process->started_ns = vx_clock_ns();
    process->info.pid = pid;
    process->info.state = VX_WORKER_STARTING;
    workers->alive++;
    VX_ASSERT(
        !uv_poll_init(workers->options.loop, &process->channel_poll, process->channel));
    VX_ASSERT(!uv_poll_init(workers->options.loop, &process->pid_poll, process->pidfd));
    VX_ASSERT(!uv_poll_start(&process->channel_poll, UV_READABLE, worker_on_readable));
    VX_ASSERT(!uv_poll_start(&process->pid_poll, UV_READABLE, worker_on_exit));
    VX_LOG(WORKER_START, VX_LOG_I64("worker", process->index), VX_LOG_I64("pid", pid),
           VX_LOG_TEXT("device", process->device));
}

/* ------- the public side ------- */

static vx_status workers_read_devices(struct vx_workers *workers, struct vx_why *why)
{
    struct vx_device_list list;
    VX_TRY(vx_devices_list(workers->options.config, why, &list));
    for (i32 i = 0; i < list.count; i++) {
        struct worker_process *process = &workers->processes[i];
        process->workers = workers;
        process->index = i;
        process->channel = process->pidfd = -1;
        memcpy(process->device, list.names[i], sizeof process->device);
        process->info.device = process->device;
    }
    workers->count = list.count;
    return VX_OK;
}

vx_status vx_workers_open(const struct vx_workers_options *options, struct vx_why *why,
                          struct vx_workers **workers)
{
    struct vx_workers *w = vx_alloc_zero(sizeof *w);
    VX_ENSURE(w, RESOURCE_EXHAUSTED, "no memory for the table of workers");
    w->options = *options;
    vx_status st = workers_read_devices(w, why);
    if (st.fault) {
        vx_free(w);
        return st;
    }
    for (i32 i = 0; i < w->count; i++) {
        VX_ASSERT(!uv_timer_init(options->loop, &w->processes[i].timer));
        worker_start(&w->processes[i]);
    }
    *workers = w;
    return VX_OK;
}

const char *vx_worker_state_name(enum vx_worker_state state)
{
    switch (state) {
    case VX_WORKER_DOWN: return "down";
    case VX_WORKER_STARTING: return "starting";
    case VX_WORKER_UP: return "up";
    case VX_WORKER_STOPPING: return "stopping";
    }
    return "unknown";
}

i32 vx_workers_count(const struct vx_workers *workers)
{
    return workers->count;
}

bool vx_workers_any_up(const struct vx_workers *workers)
{
    for (i32 w = 0; w < workers->count; w++)
        if (workers->processes[w].info.state == VX_WORKER_UP) return true;
    return false;
}

const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers, i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < workers->count);
    return &workers->processes[worker].info;
}

bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes)
{
    struct worker_process *process = &workers->processes[worker];
    /* It may have died, or been told to stop, since the caller made up its mind. */
    if (process->info.state != VX_WORKER_UP) return false;
    vx_status st = vx_channel_send(process->channel, message, bytes);
    if (!st.fault) return true;
    worker_kill(process);
    return false;
}

void vx_workers_ask_stats(struct vx_workers *workers)
{
    struct vx_message_head message = {.kind = VX_MESSAGE_STATS};
    for (i32 i = 0; i < workers->count; i++)
        if (!workers->processes[i].stats_asked)
            workers->processes[i].stats_asked =
                vx_workers_send(workers, i, &message, sizeof message);
}

void vx_workers_stop(struct vx_workers *workers)
{
    workers->stopping = true;
    for (i32 i = 0; i < workers->count; i++) {
        struct worker_process *process = &workers->processes[i];
        if (!process->info.pid) {
            uv_close((uv_handle_t *)&process->timer, NULL);
            continue;
        }
        process->info.state = VX_WORKER_STOPPING;
        shutdown(process->channel, SHUT_WR); /* its last DONE can still come */
        uv_timer_start(&process->timer, worker_on_timer, STOP_MS, 0);
    }
    if (!workers->alive) workers->options.on_stopped(workers->options.context);
}

void vx_workers_close(struct vx_workers **workers)
{
    vx_free(*workers);
    *workers = NULL;
}
