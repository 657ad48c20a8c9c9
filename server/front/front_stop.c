/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/front_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/base/timer.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* All requests have ended.  Their last spans get this much even if the drain time is over,
 * and a collector that hangs keeps the process no longer than that. */
#define SPANS_NS_MIN VX_NS_PER_S
#define SPANS_NS_MAX (5 * VX_NS_PER_S)

/* While nothing runs, a drain waits no longer for clients of which none sends anything of its
 * message or reads anything of its answer for so long. */
#define STILL_NS (5 * VX_NS_PER_S)

/* Those that are read from a descriptor.  Blocked, they wait there, also when the loop has
 * ended: a handler would be taken away before the end, and the next SIGTERM would then end
 * a process that is about to end with 0. */
static sigset_t front_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

void vx_front_block_signals(void)
{
    sigset_t set = front_signals();
    VX_ASSERT(!pthread_sigmask(SIG_BLOCK, &set, NULL));
}

/* How long the end waits for the pool, which reads the repository and the tokens: as long as a disk
 * may take, not as long as a file system whose server is gone. */
#define HELD_MS 2000

static void front_drain(struct vx_front *front);

static void front_on_held(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

void vx_front_close_handles(void *context)
{
    struct vx_front *front = context;
    vx_alloc_thaw();
    front->phase = VX_FRONT_CLOSING;
    vx_front_mail_handle(front, VX_NEVER);
    vx_infer_drop_all(&front->infer);
    vx_health_close(&front->health);
    vx_rpc_close(&front->rpc); /* empties both mailboxes */
    vx_http_close(&front->http);
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&front->wakeup,     (uv_handle_t *)&front->turn,
        (uv_handle_t *)&front->spin,       (uv_handle_t *)&front->stats,
        (uv_handle_t *)&front->phase_over, (uv_handle_t *)&front->signals};
    for (size_t i = 0; i < VX_COUNT(handles); i++) uv_close(handles[i], NULL);
    vx_timer_once(&front->held, front_on_held, HELD_MS);
    uv_unref((uv_handle_t *)&front->held);
    vx_due_fini(&front->due);
    vx_access_file_close(&front->tokens);
    vx_manager_close(&front->manager);
    close(front->signals_fd);
}

void vx_front_loop_close(struct vx_front *front)
{
    if (uv_loop_alive(&front->loop)) {
        VX_LOG(STOP_HELD, VX_LOG_TEXT("code", "OK"));
        VX_LOG(STOP, VX_LOG_TEXT("code", "OK"));
        vx_process_end(0); /* an exit would wait for the thread */
    }
    uv_close((uv_handle_t *)&front->held, NULL);
    uv_run(&front->loop, UV_RUN_DEFAULT);
    VX_ASSERT(!uv_loop_close(&front->loop));
}

static void front_log_step(const struct vx_front *front, const char *step)
{
    VX_LOG(DRAIN, VX_LOG_TEXT("step", step),
           VX_LOG_I64("running", vx_sched_running(front->sched)),
           VX_LOG_I64("queued", vx_sched_queued(front->sched)));
}

static void front_stop_workers(struct vx_front *front)
{
    front->phase = VX_FRONT_STOPPING;
    front->infer.stopping = true;
    vx_front_mail_handle(front, VX_NEVER);
    vx_front_answer(front, VX_NEVER);
    front_log_step(front, "stopping");
    vx_timer_stop(&front->phase_over);
    uv_idle_stop(&front->spin); /* front_on_turn starts it no more */
    vx_infer_drop_all(&front->infer);
    vx_workers_stop(front->workers);
}

i64 vx_front_spans_ns(const struct vx_front *front)
{
    i64 left_ns = front->drained_ns - vx_clock_ns();
    if (left_ns < SPANS_NS_MIN) return SPANS_NS_MIN;
    return left_ns < SPANS_NS_MAX ? left_ns : SPANS_NS_MAX;
}

static bool front_is_still(struct vx_front *front, u64 moved)
{
    i64 now_ns = vx_clock_ns();
    if (moved != front->moved || !front->moved_ns) front->moved_ns = now_ns;
    front->moved = moved;
    return now_ns - front->moved_ns >= STILL_NS;
}

/* Draining does not wait for watch and reflection streams, which never end. */
void vx_front_stop_when_drained(struct vx_front *front)
{
    if (front->phase != VX_FRONT_DRAINING) return;
    struct vx_rpc_counters counters = {0};
    vx_rpc_counters_get(front->rpc, &counters);
    bool works = vx_sched_queued(front->sched) || vx_sched_running(front->sched);
    bool waits =
        counters.receiving || vx_health_streams(front->health) < counters.in_flight;
    bool still = front_is_still(front, counters.moved);
    if (!works && (!waits || still)) front_stop_workers(front);
}

static void front_on_phase_over(uv_timer_t *timer)
{
    struct vx_front *front = VX_CONTAINER(timer, struct vx_front, phase_over);
    if (front->phase == VX_FRONT_GRACE)
        front_drain(front);
    else if (front->phase == VX_FRONT_DRAINING)
        front_stop_workers(front);
}

static void front_drain(struct vx_front *front)
{
    front->phase = VX_FRONT_DRAINING;
    front->drained_ns = vx_clock_ns() + front->config->drain_ms * VX_NS_PER_MS;
    front_log_step(front, "draining");
    vx_models_stop(front->models);
    vx_rpc_refuse(front->rpc);
    vx_rpc_stop_accepting(front->rpc);
    vx_timer_once(&front->phase_over, front_on_phase_over, front->config->drain_ms);
}

static void front_hear(struct vx_front *front, u32 number)
{
    if (number == SIGHUP) {
        vx_scanner_start(&front->scanner);
        if (front->tokens.loop) vx_access_file_look(&front->tokens);
        vx_rpc_reload(front->rpc);
    } else if (front->phase == VX_FRONT_SERVING) {
        front->phase = VX_FRONT_GRACE;
        front_log_step(front, "grace");
        vx_manager_stopping(&front->manager);
        vx_rpc_hear_handed(front->rpc, false);
        vx_timer_once(&front->phase_over, front_on_phase_over, front->config->grace_ms);
    } else if (front->phase == VX_FRONT_GRACE) {
        front_drain(front); /* a second signal skips the rest of the grace time */
    }
}

static void front_on_signals(uv_poll_t *poll, int status, int events)
{
    struct vx_front *front = VX_CONTAINER(poll, struct vx_front, signals);
    struct signalfd_siginfo one;
    (void)status;
    (void)events;
    while (read(front->signals_fd, &one, sizeof one) == (ssize_t)sizeof one)
        front_hear(front, one.ssi_signo);
}

void vx_front_open_signals(struct vx_front *front)
{
    sigset_t set = front_signals();
    front->signals_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    VX_ASSERT(front->signals_fd >= 0);
    VX_ASSERT(!uv_poll_init(&front->loop, &front->signals, front->signals_fd));
    VX_ASSERT(!uv_poll_start(&front->signals, UV_READABLE, front_on_signals));
}
