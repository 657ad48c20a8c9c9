/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/workers/workers_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/base/backoff.h"
#include "server/base/timer.h"
#include "server/devices/devices.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A worker that lived this long was healthy: its death starts the back-off anew. */
#define HEALTHY_NS (10 * VX_NS_PER_S)
/* The pause before the second quick restart in a row; it doubles up to restart_ms_max. */
#define BACKOFF_MS 100
/* A worker that must end, perhaps in the middle of a batch, gets this long, then SIGKILL.
 * At stop it then gets the same time again to die: it may sleep in a driver, where no
 * signal reaches it. */
#define STOP_MS 2000

static void worker_start(struct worker_process *process);

/* ------- memory near the devices ------- */

/* A GPU's worker page-locks the whole arena when it opens its device, so the NUMA nodes
 * of the pages must be chosen before.  The nodes are a guess from the PCI devices, which
 * needs no driver.  With one worker and GPUs on several nodes nothing is chosen: the
 * pages come from the node of the thread that locks them. */
static void workers_place_early(const struct vx_workers *workers,
                                const struct vx_device_list *list)
{
    if (!workers->options.config->numa || !vx_devices_has_gpu(list)) return;
    u64 nodes = vx_devices_gpu_nodes(VX_PCI_FOLDER);
    bool is_one = !(nodes & (nodes - 1));
    if (is_one || list->count > 1) vx_shared_place(workers->options.shared, nodes);
}

/* Once all workers are up and have reported their nodes: pages of the arena that were not
 * touched yet come from the node of the devices, or in turn from each of their nodes. */
static void workers_place(struct vx_workers *workers)
{
    u64 nodes = 0;
    for (i32 w = 0; w < workers->count; w++) {
        const struct vx_worker_info *info = &workers->processes[w].info;
        if (info->state != VX_WORKER_UP) return;
        nodes |= vx_shared_nodes_of(info->stats.numa_node);
    }
    if (workers->placed) return;
    workers->placed = true;
    if (workers->options.config->numa) vx_shared_place(workers->options.shared, nodes);
}

/* ------- leaving ------- */

static void worker_on_timer(uv_timer_t *timer);

/* It is ending, or must end: it gets no more messages, and if it has not ended after
 * STOP_MS it is killed. */
static void worker_leave(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    bool was_up = process->info.state == VX_WORKER_UP;
    if (!was_up && process->info.state != VX_WORKER_STARTING) return;
    process->info.state = VX_WORKER_LEAVING;
    vx_timer_once(&process->timer, worker_on_timer, STOP_MS);
    if (was_up && workers->options.on_leaving)
        workers->options.on_leaving(workers->options.context, process->index);
}

void vx_worker_force_end(struct worker_process *process)
{
    process->was_killed = true;
    vx_worker_kill(&process->launched);
    worker_leave(process);
}

/* A worker that sent an invalid message may never end, and is no longer trusted. */
static void worker_end_damaged(struct worker_process *process)
{
    process->is_damaged = true;
    vx_worker_force_end(process);
}

/* ------- messages from a worker ------- */

static void worker_take_end(struct worker_process *process,
                            const struct vx_message_ends *ends)
{
    vx_why_set(&process->info.problem, "%s%.*s", ends->lost ? "device lost: " : "",
               VX_WHY_BYTES - 1, ends->why.text);
    process->said_why = true;
    if (ends->lost) process->info.losses++;
    worker_leave(process);
}

static void worker_take(struct worker_process *process, const union vx_message *message)
{
    struct vx_workers *workers = process->workers;
    vx_workers_watch_heard(process, message);
    switch (message->head.kind) {
    case VX_MESSAGE_UP:
        if (process->info.state != VX_WORKER_STARTING)
            return; /* told to stop meanwhile, or killed */
        process->info.stats = message->up.stats;
        process->info.state = VX_WORKER_UP;
        process->info.open_failures = 0;
        process->was_up = true;
        process->info.problem.text[0] = '\0';
        VX_LOG(WORKER_READY, VX_LOG_I64("worker", process->index),
               VX_LOG_TEXT("device", message->up.stats.device_name),
               VX_LOG_F64("seconds", (f64)(vx_clock_ns() - process->started_ns) / 1e9));
        workers_place(workers);
        workers->options.on_up(workers->options.context, process->index);
        return;
    case VX_MESSAGE_WORKING: return; /* vx_workers_watch_heard */
    case VX_MESSAGE_STATED: process->info.stats = message->up.stats; return;
    case VX_MESSAGE_ENDS: worker_take_end(process, &message->ends); return;
    default:
        workers->options.on_message(workers->options.context, process->index, message);
    }
}

bool vx_worker_listen(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    while (!process->is_damaged) {
        size_t bytes;
        vx_status st = vx_channel_receive(process->channel, &workers->in, &bytes);
        /* A worker's message is checked like any input from outside: the memory of the
         * worker may be damaged. */
        bool is_wild = !st.fault && bytes &&
                       (workers->in.head.instance < 0 ||
                        workers->in.head.instance >= VX_INSTANCES_MAX);
        if (is_wild || vx_status_code(st) == VX_CODE_INTERNAL)
            worker_end_damaged(process);
        else if (st.fault)
            worker_leave(process);
        else if (bytes)
            worker_take(process, &workers->in);
        if (st.fault || !bytes) return !st.fault;
    }
    return false;
}

static void worker_ended(struct worker_process *process);

static void worker_on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct worker_process *process =
        VX_CONTAINER(poll, struct worker_process, channel_poll);
    if (vx_worker_listen(process)) return;
    /* The process is ending; its pidfd tells when it has ended.  For a thread, the end of
     * the channel is the end. */
    uv_poll_stop(&process->channel_poll);
    if (process->launched.thread) worker_ended(process);
}

/* ------- death and restart ------- */

static void worker_plan_restart(struct worker_process *process, i64 lived_ns)
{
    const struct vx_workers_options *options = &process->workers->options;
    const struct vx_backoff pauses = {.first_ms = BACKOFF_MS,
                                      .most_ms = options->config->restart_ms_max};
    i64 healthy_ns = options->healthy_ns ? options->healthy_ns : HEALTHY_NS;
    process->quick_deaths = lived_ns < healthy_ns ? process->quick_deaths + 1 : 0;
    i64 pause = vx_backoff_ms(&pauses, process->quick_deaths - 1);
    process->info.restarts++;
    vx_timer_once(&process->timer, worker_on_timer, pause);
}

/* A worker whose memory is damaged may not be able to report the call that it made. */
static void worker_explain_end(struct worker_process *process,
                               const struct vx_worker_end *end)
{
    if (process->said_why) return;
    process->info.problem.text[0] = '\0';
    if (strcmp(end->how, "signal") != 0 || end->number != SIGSYS) return;
    vx_why_set(&process->info.problem,
               "seccomp: SIGSYS, as for a system call that a worker never makes");
}

static void worker_log_exit(const struct worker_process *process,
                            const struct vx_worker_end *end)
{
    bool exited = !strcmp(end->how, "exit");
    bool has_why = process->said_why || process->info.problem.text[0];
    const struct vx_log_field fields[] = {
        VX_LOG_I64("worker", process->index),
        VX_LOG_I64("pid", process->info.pid),
        VX_LOG_TEXT("how", end->how),
        VX_LOG_I64(exited ? "status" : "signal", end->number),
        VX_LOG_TEXT("why", process->info.problem.text),
    };
    vx_log_write(VX_EVENT_WORKER_EXIT, fields, has_why ? 5 : 4);
}

/* The worker has no process any more, or one that does not die. */
static void worker_gone(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    uv_close((uv_handle_t *)&process->channel_poll, NULL);
    close(process->channel);
    if (process->launched.pidfd >= 0) { /* not a thread */
        uv_close((uv_handle_t *)&process->pid_poll, NULL);
        close(process->launched.pidfd);
    }
    process->channel = process->launched.pidfd = -1;
    process->info.pid = 0;
    process->info.state = VX_WORKER_DOWN;
    process->info.open_failures += !process->was_up;
    workers->alive--;
    workers->options.on_down(workers->options.context, process->index);
    if (!workers->stopping) {
        worker_plan_restart(process, vx_clock_ns() - process->started_ns);
        return;
    }
    uv_close((uv_handle_t *)&process->timer, NULL);
    if (!workers->alive) workers->options.on_stopped(workers->options.context);
}

static void worker_ended(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    struct vx_worker_end end;
    bool was_thread = process->launched.thread != NULL;
    if (!vx_worker_join(&process->launched, &end)) return;
    /* Messages that it sent before it died still count. */
    if (process->info.state != VX_WORKER_STOPPING) (void)vx_worker_listen(process);
    worker_leave(process);
    worker_explain_end(process, &end);
    if (!workers->stopping) worker_log_exit(process, &end);
    if (was_thread && !workers->stopping) vx_process_end(end.number ? end.number : 1);
    worker_gone(process);
}

static void worker_give_up(struct worker_process *process)
{
    VX_LOG(WORKER_HANG, VX_LOG_I64("worker", process->index),
           VX_LOG_I64("pid", process->info.pid), VX_LOG_TEXT("device", process->device),
           VX_LOG_TEXT("owes", "end"),
           VX_LOG_TEXT("why",
                       "it was killed but has not ended: the front stops without it"));
    worker_gone(process);
}

static void worker_on_timer(uv_timer_t *timer)
{
    struct worker_process *process = VX_CONTAINER(timer, struct worker_process, timer);
    bool stopping = process->workers->stopping;
    if (!process->info.pid) {
        worker_start(process);
    } else if (stopping && process->was_killed) {
        worker_give_up(process);
    } else {
        vx_worker_force_end(process);
        if (stopping) vx_timer_once(timer, worker_on_timer, STOP_MS);
    }
}

static void worker_on_exit(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    worker_ended(VX_CONTAINER(poll, struct worker_process, pid_poll));
}

static void worker_begin(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    process->is_damaged = process->was_killed = process->said_why = false;
    process->was_up = false;
    process->started_ns = vx_clock_ns();
    vx_workers_watch_begin(process);
    process->info.pid = process->launched.pid;
    process->info.state = VX_WORKER_STARTING;
    workers->alive++;
    VX_ASSERT(
        !uv_poll_init(workers->options.loop, &process->channel_poll, process->channel));
    VX_ASSERT(!uv_poll_start(&process->channel_poll, UV_READABLE, worker_on_readable));
    VX_LOG(WORKER_START, VX_LOG_I64("worker", process->index),
           VX_LOG_I64("pid", process->info.pid), VX_LOG_TEXT("device", process->device));
    if (process->launched.thread) return;
    VX_ASSERT(!uv_poll_init(workers->options.loop, &process->pid_poll,
                            process->launched.pidfd));
    VX_ASSERT(!uv_poll_start(&process->pid_poll, UV_READABLE, worker_on_exit));
}

static void worker_cannot_start(struct worker_process *process, const char *what,
                                const char *error)
{
    vx_why_set(&process->info.problem, "could not %s: %s", what, error);
    VX_LOG(WORKER_EXIT, VX_LOG_I64("worker", process->index),
           VX_LOG_TEXT("device", process->device), VX_LOG_TEXT("how", "spawn"),
           VX_LOG_TEXT("why", process->info.problem.text));
}

static void worker_start(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    int fds[2];
    vx_status st = vx_channel_pair(fds);
    int failed =
        st.fault
            ? -1
            : vx_worker_launch(
                  &(struct vx_launch){.config = workers->options.config,
                                      .device = process->device,
                                      .channel = fds[1],
                                      .arena = vx_shared_fd(workers->options.shared)},
                  &process->launched);
    if (failed) {
        worker_cannot_start(process,
                            st.fault ? "create the IPC channel" : "start its process",
                            st.fault ? vx_status_text(st, NULL) : strerror(failed));
        if (!st.fault) close(fds[0]);
        worker_plan_restart(process, 0);
        return;
    }
    process->channel = fds[0];
    worker_begin(process);
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
        process->channel = -1;
        memcpy(process->device, list.names[i], sizeof process->device);
        process->info.device = process->device;
    }
    workers->count = list.count;
    VX_ENSURE_WHY(list.count == 1 || !workers->options.config->in_process, why,
                  INVALID_ARGUMENT, "in_process needs exactly one device",
                  "in_process: expected one device, got %d", list.count);
    workers_place_early(workers, &list);
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
    vx_workers_watch_open(w);
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
    case VX_WORKER_LEAVING: return "leaving";
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

bool vx_workers_are_gpus(const struct vx_workers *workers)
{
    for (i32 w = 0; w < workers->count; w++)
        if (vx_device_id(workers->processes[w].device, w) < 0) return false;
    return true;
}

const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers, i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < workers->count);
    return &workers->processes[worker].info;
}

/* `passed`: -1 = no descriptor. */
static bool worker_send(struct worker_process *process,
                        const struct vx_message_head *message, size_t bytes, int passed)
{
    /* It may have died, or been told to stop, since the caller chose it. */
    if (process->info.state != VX_WORKER_UP) return false;
    vx_status st = passed < 0
                       ? vx_channel_send(process->channel, message, bytes)
                       : vx_channel_send_fd(process->channel, message, bytes, passed);
    if (!st.fault) {
        vx_workers_watch_sent(process, message->kind);
        return true;
    }
    vx_worker_force_end(process);
    return false;
}

bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes)
{
    return worker_send(&workers->processes[worker], message, bytes, -1);
}

bool vx_workers_send_fd(struct vx_workers *workers, i32 worker,
                        const struct vx_message_head *message, size_t bytes, int passed)
{
    VX_ASSERT(passed >= 0);
    return worker_send(&workers->processes[worker], message, bytes, passed);
}

void vx_workers_kill(struct vx_workers *workers, i32 worker)
{
    worker_end_damaged(&workers->processes[worker]);
}

void vx_workers_ask_stats(struct vx_workers *workers)
{
    struct vx_message_head message = {.kind = VX_MESSAGE_STATS};
    /* A worker that has not answered yet is not asked again; one that does not read is
     * killed by the send. */
    for (i32 i = 0; i < workers->count; i++)
        if (!workers->processes[i].watch.asked)
            (void)vx_workers_send(workers, i, &message, sizeof message);
}

void vx_workers_stop(struct vx_workers *workers)
{
    workers->stopping = true;
    uv_close((uv_handle_t *)&workers->look, NULL);
    for (i32 i = 0; i < workers->count; i++) {
        struct worker_process *process = &workers->processes[i];
        if (!process->info.pid) {
            uv_close((uv_handle_t *)&process->timer, NULL);
            continue;
        }
        process->info.state = VX_WORKER_STOPPING;
        shutdown(process->channel, SHUT_WR); /* its last DONE can still come */
        vx_timer_once(&process->timer, worker_on_timer, STOP_MS);
    }
    if (!workers->alive) workers->options.on_stopped(workers->options.context);
}

void vx_workers_close(struct vx_workers **workers)
{
    vx_free(*workers);
    *workers = NULL;
}
