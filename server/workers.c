/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/workers.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/devices.h"
#include "server/watchdog.h"
#include "server/worker_launch.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A worker that lived this long was healthy: its next death starts the back-off anew. */
#define HEALTHY_NS (10 * VX_NS_PER_S)
/* Second restart in a row; doubled each time up to restart_ms_max. */
#define BACKOFF_MS 100
/* After vx_workers_stop: a worker in the middle of a batch gets this long, then SIGKILL.
 */
#define STOP_MS 2000

struct worker_process {
    struct vx_workers *workers;
    i32 index;
    char device[VX_DEVICE_NAME_BYTES];
    struct vx_worker_info info;
    struct vx_launched launched;
    int channel;                      /* -1 when none */
    uv_poll_t channel_poll, pid_poll; /* pid_poll: of a process */
    uv_timer_t timer;                 /* restart, or the kill after stop */
    struct vx_watchdog_facts watch;
    bool has_hung; /* and was killed; its end is still to come */
    bool said_why; /* info.problem is of this process, not of one before */
    i32 quick_deaths;
    i64 started_ns;
};

struct vx_workers {
    struct vx_workers_options options;
    i32 count, alive;
    bool stopping, placed;
    struct vx_watchdog_limits limits;
    struct vx_watchdog_clock clock;
    uv_timer_t look;
    struct worker_process processes[VX_WORKERS_MAX];
    union vx_message in;
};

static void worker_start(struct worker_process *process);

/* ------- the watchdog's facts ------- */

static i64 watch_now(const struct vx_workers *workers)
{
    return vx_watchdog_now(&workers->clock, vx_clock_ns());
}

static void watch_sent(struct worker_process *process, i32 kind)
{
    struct vx_watchdog_facts *watch = &process->watch;
    i64 now = watch_now(process->workers);
    if (kind == VX_MESSAGE_STATS) {
        watch->asked = true;
        watch->asked_ns = now;
        return;
    }
    if (kind != VX_MESSAGE_RUN && kind != VX_MESSAGE_LOAD) return;
    if (!watch->batches && !watch->loads) watch->work_since_ns = now;
    watch->batches += kind == VX_MESSAGE_RUN;
    watch->loads += kind == VX_MESSAGE_LOAD;
}

static void watch_heard(struct worker_process *process, i32 kind)
{
    struct vx_watchdog_facts *watch = &process->watch;
    watch->heard_ns = watch_now(process->workers);
    if (kind == VX_MESSAGE_STATED) {
        watch->asked = false;
        return;
    }
    watch->worked_ns = watch->heard_ns;
    /* A word too many, of damaged memory, must not make it owe less than nothing. */
    if (kind == VX_MESSAGE_DONE && watch->batches) watch->batches--;
    if (kind == VX_MESSAGE_LOADED && watch->loads) watch->loads--;
}

/* ------- memory near the devices ------- */

/* A GPU's worker locks every page of the arena when it opens its device, so those pages
 * must have their place before: a guess from what the system tells without a driver.  With
 * one device the pages fall to the node of the thread that locks them. */
static void workers_place_early(const struct vx_workers *workers,
                                const struct vx_device_list *list)
{
    if (!workers->options.config->numa || !vx_devices_has_cuda(list)) return;
    u64 nodes = vx_devices_gpu_nodes(VX_PCI_FOLDER);
    bool is_one = !(nodes & (nodes - 1));
    if (is_one || list->count > 1) vx_shared_place(workers->options.shared, nodes);
}

/* Once all have said where they are: pages of the arena that nobody has touched come from
 * the node of the devices, or in turn from all of theirs. */
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
        vx_worker_kill(&process->launched);
        return;
    }
    watch_heard(process, message->head.kind);
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
        process->watch.starting = false;
        workers_place(workers);
        workers->options.on_up(workers->options.context, process->index);
        return;
    case VX_MESSAGE_STATED: process->info.stats = message->up.stats; return;
    case VX_MESSAGE_ENDS: worker_take_end(process, &message->ends); return;
    default:
        workers->options.on_message(workers->options.context, process->index, message);
    }
}

/* All that it has said; false when it will say no more. */
static bool worker_listen(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    for (;;) {
        size_t bytes;
        vx_status st = vx_channel_receive(process->channel, &workers->in, &bytes);
        /* One that says what no worker says is damaged, and may go on for ever. */
        if (vx_status_code(st) == VX_CODE_INTERNAL) vx_worker_kill(&process->launched);
        if (st.fault) return false;
        if (!bytes) return true;
        worker_take(process, &workers->in);
    }
}

static void worker_ended(struct worker_process *process);

static void worker_on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct worker_process *process =
        VX_CONTAINER(poll, struct worker_process, channel_poll);
    if (worker_listen(process)) return;
    /* The process is ending; its pidfd tells when it has.  Of a thread this is the end. */
    uv_poll_stop(&process->channel_poll);
    if (process->launched.thread) worker_ended(process);
}

/* ------- death and restart ------- */

static void worker_on_timer(uv_timer_t *timer)
{
    struct worker_process *process = VX_CONTAINER(timer, struct worker_process, timer);
    if (process->workers->stopping) {
        vx_worker_kill(&process->launched);
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

static void worker_log_exit(const struct worker_process *process,
                            const struct vx_worker_end *end)
{
    bool exited = !strcmp(end->how, "exit");
    const struct vx_log_field fields[] = {
        VX_LOG_I64("worker", process->index),
        VX_LOG_I64("pid", process->info.pid),
        VX_LOG_TEXT("how", end->how),
        VX_LOG_I64(exited ? "status" : "signal", end->number),
        VX_LOG_TEXT("why", process->info.problem.text),
    };
    vx_log_write(VX_EVENT_WORKER_EXIT, fields, process->said_why ? 5 : 4);
}

static void worker_ended(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    struct vx_worker_end end;
    bool was_thread = process->launched.thread != NULL;
    if (!vx_worker_join(&process->launched, &end)) return;
    /* What it said before it died still counts; then there is no more to come. */
    if (process->info.state != VX_WORKER_STOPPING) (void)worker_listen(process);
    uv_close((uv_handle_t *)&process->channel_poll, NULL);
    if (!was_thread) uv_close((uv_handle_t *)&process->pid_poll, NULL);
    close(process->channel);
    if (!was_thread) close(process->launched.pidfd);
    process->channel = process->launched.pidfd = -1;
    if (!process->said_why) process->info.problem.text[0] = '\0';
    if (!workers->stopping) worker_log_exit(process, &end);
    if (was_thread && !workers->stopping) vx_process_end(end.number ? end.number : 1);
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

static void worker_on_exit(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    worker_ended(VX_CONTAINER(poll, struct worker_process, pid_poll));
}

static void worker_begin(struct worker_process *process)
{
    struct vx_workers *workers = process->workers;
    process->has_hung = process->said_why = false;
    process->started_ns = vx_clock_ns();
    process->watch =
        (struct vx_watchdog_facts){.starting = true, .started_ns = watch_now(workers)};
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
        VX_LOG(WORKER_EXIT, VX_LOG_I64("worker", process->index),
               VX_LOG_I64("spawn", failed));
        if (!st.fault) close(fds[0]);
        worker_plan_restart(process, 0);
        return;
    }
    process->channel = fds[0];
    worker_begin(process);
}

/* ------- the watchdog ------- */

static struct vx_watchdog_verdict worker_judge(const struct worker_process *process)
{
    return vx_watchdog_judge(&process->watch, &process->workers->limits);
}

static void worker_look(struct worker_process *process, i64 now)
{
    bool can_hang =
        process->info.state == VX_WORKER_UP || process->info.state == VX_WORKER_STARTING;
    if (!can_hang || process->has_hung) return;
    if (now < worker_judge(process).due_ns) return;
    /* Timers come before the channels in a turn: its word may be lying there. */
    if (!worker_listen(process)) return;
    struct vx_watchdog_verdict verdict = worker_judge(process);
    if (now < verdict.due_ns) return;
    i64 silent_ms = (now - verdict.since_ns) / VX_NS_PER_MS;
    process->has_hung = process->said_why = true;
    process->info.hangs++;
    vx_why_set(&process->info.problem, "it owed a word (%s) and said nothing for %lld ms",
               verdict.owes, (long long)silent_ms);
    VX_LOG(WORKER_HANG, VX_LOG_I64("worker", process->index),
           VX_LOG_I64("pid", process->info.pid), VX_LOG_TEXT("device", process->device),
           VX_LOG_TEXT("owes", verdict.owes), VX_LOG_I64("silent_ms", silent_ms));
    vx_worker_kill(&process->launched);
}

static void workers_on_look(uv_timer_t *timer)
{
    struct vx_workers *workers = VX_CONTAINER(timer, struct vx_workers, look);
    vx_watchdog_look(&workers->clock, vx_clock_ns());
    i64 now = watch_now(workers);
    for (i32 w = 0; w < workers->count; w++) worker_look(&workers->processes[w], now);
}

static void workers_open_watchdog(struct vx_workers *workers)
{
    const struct vx_config *config = workers->options.config;
    workers->limits = (struct vx_watchdog_limits){
        .silence_ns = config->watchdog_ms * VX_NS_PER_MS,
        .start_ns = config->start_ms_max * VX_NS_PER_MS,
    };
    i64 tick_ns = vx_watchdog_tick_ns(&workers->limits);
    workers->clock.tick_ns = tick_ns;
    VX_ASSERT(!uv_timer_init(workers->options.loop, &workers->look));
    u64 tick_ms = (u64)(tick_ns / VX_NS_PER_MS);
    if (tick_ms) uv_timer_start(&workers->look, workers_on_look, tick_ms, tick_ms);
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
                  INVALID_ARGUMENT, "one device with in_process",
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
    workers_open_watchdog(w);
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
    if (!st.fault) {
        watch_sent(process, message->kind);
        return true;
    }
    vx_worker_kill(&process->launched);
    return false;
}

void vx_workers_ask_stats(struct vx_workers *workers)
{
    struct vx_message_head message = {.kind = VX_MESSAGE_STATS};
    /* A busy worker is not asked twice; one that does not read dies of it. */
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
        uv_timer_start(&process->timer, worker_on_timer, STOP_MS, 0);
    }
    if (!workers->alive) workers->options.on_stopped(workers->options.context);
}

void vx_workers_close(struct vx_workers **workers)
{
    vx_free(*workers);
    *workers = NULL;
}
