/* SPDX-License-Identifier: Apache-2.0 */
#include "server/workers/workers_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/base/timer.h"

/* ------- facts ------- */

static i64 watch_now(const struct vx_workers *workers)
{
    return vx_watchdog_now(&workers->clock, vx_clock_ns());
}

void vx_workers_watch_begin(struct worker_process *process)
{
    process->watch = (struct vx_watchdog_facts){
        .starting = true, .started_ns = watch_now(process->workers)};
}

void vx_workers_watch_sent(struct worker_process *process, i32 kind)
{
    struct vx_watchdog_facts *watch = &process->watch;
    i64 now = watch_now(process->workers);
    if (kind == VX_MESSAGE_STATS) {
        watch->asked = true;
        watch->asked_ns = now;
    }
    if (kind == VX_MESSAGE_RUN) vx_watchdog_sent(&watch->batches, now);
    if (kind == VX_MESSAGE_LOAD) vx_watchdog_sent(&watch->loads, now);
}

/* While the device thread runs a step of tuning or warm-up, batches wait for it.  Its
 * progress messages are therefore signs of life for batches, too.  Those of the main
 * thread, which reads files and prepares kernels, are not. */
static void watch_progress(struct vx_watchdog_facts *watch, i32 stage, i64 now)
{
    if (stage == VX_PROGRESS_READ) {
        watch->loads.word_ns = now;
        return;
    }
    if (stage == VX_PROGRESS_MADE) {
        vx_watchdog_answered(&watch->loads, now);
        vx_watchdog_sent(&watch->warms, now);
    }
    watch->warms.word_ns = watch->batches.word_ns = now;
}

void vx_workers_watch_heard(struct worker_process *process,
                            const union vx_message *message)
{
    struct vx_watchdog_facts *watch = &process->watch;
    i64 now = watch_now(process->workers);
    watch->heard_ns = now;
    switch (message->head.kind) {
    case VX_MESSAGE_UP: watch->starting = false; return;
    /* The next step of a warm-up waits for that batch. */
    case VX_MESSAGE_WORKING: watch->batches.word_ns = watch->warms.word_ns = now; return;
    case VX_MESSAGE_STATED: watch->asked = false; return;
    case VX_MESSAGE_DONE: vx_watchdog_answered(&watch->batches, now); return;
    case VX_MESSAGE_LOADED:
        vx_watchdog_answered(&watch->warms, now);
        watch->batches.word_ns = now;
        return;
    case VX_MESSAGE_PROGRESS: watch_progress(watch, message->progress.stage, now); return;
    default: return;
    }
}

/* ------- checks ------- */

static struct vx_watchdog_verdict worker_judge(const struct worker_process *process)
{
    return vx_watchdog_judge(&process->watch, &process->workers->limits);
}

static void worker_look(struct worker_process *process, i64 now)
{
    if (process->info.state != VX_WORKER_UP && process->info.state != VX_WORKER_STARTING)
        return;
    if (now < worker_judge(process).due_ns) return;
    /* Timers run before channels are read: its message may have arrived. */
    if (!vx_worker_listen(process)) return;
    struct vx_watchdog_verdict verdict = worker_judge(process);
    if (now < verdict.due_ns) return;
    i64 silent_ms = (now - verdict.since_ns) / VX_NS_PER_MS;
    process->said_why = true;
    process->info.hangs++;
    vx_why_set(&process->info.problem,
               "a message was due (%s), and it sent nothing for %lld ms", verdict.owes,
               (long long)silent_ms);
    VX_LOG(WORKER_HANG, VX_LOG_I64("worker", process->index),
           VX_LOG_I64("pid", process->info.pid), VX_LOG_TEXT("device", process->device),
           VX_LOG_TEXT("owes", verdict.owes), VX_LOG_I64("silent_ms", silent_ms));
    vx_worker_force_end(process);
}

static void workers_on_look(uv_timer_t *timer)
{
    struct vx_workers *workers = VX_CONTAINER(timer, struct vx_workers, look);
    vx_watchdog_look(&workers->clock, vx_clock_ns());
    i64 now = watch_now(workers);
    for (i32 w = 0; w < workers->count; w++) worker_look(&workers->processes[w], now);
}

void vx_workers_watch_open(struct vx_workers *workers)
{
    const struct vx_config *config = workers->options.config;
    workers->limits = (struct vx_watchdog_limits){
        .silence_ns = config->watchdog_ms * VX_NS_PER_MS,
        .start_ns = config->start_ms_max * VX_NS_PER_MS,
    };
    i64 tick_ns = vx_watchdog_tick_ns(&workers->limits);
    workers->clock.tick_ns = tick_ns;
    VX_ASSERT(!uv_timer_init(workers->options.loop, &workers->look));
    i64 tick_ms = tick_ns / VX_NS_PER_MS;
    if (tick_ms) vx_timer_every(&workers->look, workers_on_look, tick_ms);
}
