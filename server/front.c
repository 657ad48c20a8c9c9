/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/front.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "server/admin.h"
#include "server/control.h"
#include "server/health.h"
#include "server/http.h"
#include "server/infer.h"
#include "server/models.h"
#include "server/ready_file.h"
#include "server/scanner.h"
#include "server/view.h"

#include <signal.h>
#include <uv.h>

/* How often workers are asked for their numbers; Prometheus scrapes no faster than this.
 */
#define STATS_MS 1000

/* Stopping, step by step; each step begins once and never goes back. */
enum front_phase {
    FRONT_SERVING,
    FRONT_GRACE,    /* health says NOT_SERVING; requests are still taken */
    FRONT_DRAINING, /* nothing new; what is in flight ends */
    FRONT_STOPPING, /* workers end */
    FRONT_CLOSING,  /* handles close; then the loop is empty */
};

struct front {
    const struct vx_config *config;
    uv_loop_t loop;
    uv_async_t bell;   /* something is in a mailbox */
    uv_prepare_t turn; /* before each wait: one step */
    uv_timer_t due;    /* the scheduler's next deadline */
    uv_timer_t stats;
    uv_timer_t phase_over; /* of GRACE and DRAINING */
    uv_signal_t signals[3];
    struct vx_scanner scanner;
    bool scanned; /* the repository has been looked at once */
    struct vx_mailbox arrivals, gone;
    enum front_phase phase;
    bool announced;
    struct vx_shared *shared;
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_models *models;
    struct vx_workers *workers;
    struct vx_rpc *rpc;
    struct vx_health *health;
    struct vx_metrics *metrics;
    struct vx_http *http;
    struct vx_infer infer;
    struct vx_arena scratch; /* of one small question */
    void *scratch_block;
    u8 *answer;
};

/* ------- readiness ------- */

/* The truth at this moment: every model that should serve can run somewhere, right now.
 */
static bool front_is_ready(const struct front *front)
{
    if (front->phase != FRONT_SERVING || !front->scanned) return false;
    i32 cursor = 0;
    struct vx_instance *row = vx_registry_next(front->registry, &cursor);
    if (!row)
        return vx_workers_any_up(front->workers); /* nothing to serve, and able to */
    for (; row; row = vx_registry_next(front->registry, &cursor))
        if (row->state == VX_INSTANCE_READY && !vx_instance_serves(row)) return false;
    return vx_registry_all_ready(front->registry);
}

static struct vx_front_view front_view(const struct front *front)
{
    return (struct vx_front_view){.config = front->config,
                                  .registry = front->registry,
                                  .ready = front_is_ready(front),
                                  .draining = front->phase != FRONT_SERVING};
}

static void front_announce(struct front *front)
{
    if (front->announced || !front_is_ready(front)) return;
    front->announced = true;
    vx_ready_file_write(front->config, vx_rpc_port(front->rpc),
                        vx_http_port(front->http));
}

/* ------- one turn ------- */

static void front_on_due(uv_timer_t *timer)
{
    (void)timer; /* to wake up is all: the turn looks at the clock */
}

static void front_arm_due(struct front *front)
{
    i64 next_ns = vx_sched_next_ns(front->sched);
    if (next_ns == VX_NEVER) {
        uv_timer_stop(&front->due);
        return;
    }
    i64 left_ns = next_ns - vx_clock_ns();
    /* Rounded up, so that the deadline has passed when the timer fires. */
    u64 left_ms = left_ns > 0 ? (u64)((left_ns + VX_NS_PER_MS - 1) / VX_NS_PER_MS) : 0;
    uv_timer_start(&front->due, front_on_due, left_ms, 0);
}

static void front_stop_when_drained(struct front *front);

static void front_on_turn(uv_prepare_t *prepare)
{
    struct front *front = VX_CONTAINER(prepare, struct front, turn);
    if (front->phase >= FRONT_STOPPING) return;
    vx_models_step(front->models);
    vx_infer_dispatch(&front->infer);
    struct vx_front_view view = front_view(front);
    vx_health_step(front->health, &view);
    front_announce(front);
    front_arm_due(front);
    front_stop_when_drained(front);
}

/* ------- calls ------- */

static void front_answer_control(struct front *front, struct vx_call *call)
{
    struct vx_front_view view = front_view(front);
    struct vx_why why = {""};
    struct vx_control_answer answer = {.scratch = &front->scratch,
                                       .bytes = front->answer,
                                       .capacity = VX_CONTROL_BYTES_MAX};
    vx_arena_reset(&front->scratch);
    vx_status st = vx_control_answer(&view, call->method, call->message, &answer, &why);
    call->answered = true;
    if (st.fault)
        vx_rpc_fail(front->rpc, &call, st, &why);
    else
        vx_rpc_reply(front->rpc, &call, answer.bytes, answer.length);
}

static void front_on_arrival(struct front *front, struct vx_call *call)
{
    if (call->method == VX_METHOD_ID_MODEL_INFER) {
        vx_infer_on_call(&front->infer, call);
        return;
    }
    struct vx_front_view view = front_view(front);
    vx_arena_reset(&front->scratch);
    if (vx_health_on_call(front->health, &view, call, &front->scratch)) return;
    front_answer_control(front, call);
}

static void front_on_gone(struct front *front, struct vx_call *call)
{
    if (call->method == VX_METHOD_ID_MODEL_INFER)
        vx_infer_on_gone(&front->infer, call);
    else if (!call->answered)
        vx_health_on_gone(front->health, call);
    vx_rpc_release_gone(front->rpc, call);
}

/* A call is given before it can be gone.  So the gone are taken first and handled last: whoever is
 * among them has arrived by the time the arrivals are taken. */
static void front_take_mail(struct front *front)
{
    struct vx_link *next, *gone = vx_mailbox_take_all(&front->gone);
    for (struct vx_link *link = vx_mailbox_take_all(&front->arrivals); link;
         link = next) {
        next = link->next;
        front_on_arrival(front, VX_CONTAINER(link, struct vx_call, arrival));
    }
    for (struct vx_link *link = gone; link; link = next) {
        next = link->next;
        front_on_gone(front, VX_CONTAINER(link, struct vx_call, gone));
    }
}

static void front_on_bell(uv_async_t *bell)
{
    front_take_mail(VX_CONTAINER(bell, struct front, bell));
}

static void front_ring(void *context)
{
    struct front *front = context;
    uv_async_send(&front->bell);
}

/* ------- workers ------- */

static void front_on_worker_up(void *context, i32 worker)
{
    struct front *front = context;
    vx_sched_worker_up(front->sched, worker);
    vx_models_on_worker_up(front->models, worker);
}

static void front_on_worker_down(void *context, i32 worker)
{
    struct front *front = context;
    /* Models first, while the batches are still the worker's own. */
    vx_models_on_worker_down(front->models, worker);
    vx_infer_on_worker_down(&front->infer, worker);
}

static void front_on_worker_message(void *context, i32 worker,
                                    const union vx_message *message)
{
    struct front *front = context;
    if (message->head.kind == VX_MESSAGE_DONE)
        vx_infer_on_done(&front->infer, worker, &message->done);
    else
        vx_models_on_message(front->models, worker, message);
}

static void front_on_lost(void *context, struct vx_job *job)
{
    struct front *front = context;
    vx_infer_on_lost(&front->infer, job);
}

static void front_on_stats(uv_timer_t *timer)
{
    vx_workers_ask_stats(VX_CONTAINER(timer, struct front, stats)->workers);
}

/* ------- the repository ------- */

static void front_on_listing(void *context, const struct vx_repository_listing *listing)
{
    struct front *front = context;
    if (front->phase >= FRONT_STOPPING) return;
    vx_models_on_listing(front->models, listing);
    if (listing->readable) front->scanned = true;
}

/* ------- stopping ------- */

static void front_drain(struct front *front);

static void front_close_handles(void *context)
{
    struct front *front = context;
    vx_alloc_thaw();
    front->phase = FRONT_CLOSING;
    vx_infer_drop_all(&front->infer);
    vx_health_close(&front->health);
    vx_rpc_close(&front->rpc); /* empties both mailboxes */
    vx_http_close(&front->http);
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&front->bell, (uv_handle_t *)&front->turn,
        (uv_handle_t *)&front->due, (uv_handle_t *)&front->stats,
        (uv_handle_t *)&front->phase_over};
    for (size_t i = 0; i < VX_COUNT(handles); i++) uv_close(handles[i], NULL);
    for (size_t i = 0; i < VX_COUNT(front->signals); i++)
        uv_close((uv_handle_t *)&front->signals[i], NULL);
}

static void front_log_step(const struct front *front, const char *step)
{
    VX_LOG(DRAIN, VX_LOG_TEXT("step", step),
           VX_LOG_I64("running", vx_sched_running(front->sched)),
           VX_LOG_I64("queued", vx_sched_queued(front->sched)));
}

static void front_stop_workers(struct front *front)
{
    front->phase = FRONT_STOPPING;
    front->infer.stopping = true;
    front_log_step(front, "stopping");
    uv_timer_stop(&front->phase_over);
    vx_infer_drop_all(&front->infer);
    vx_workers_stop(front->workers);
}

/* Watch and reflection streams never end by themselves; they do not hold the drain up. */
static void front_stop_when_drained(struct front *front)
{
    if (front->phase != FRONT_DRAINING) return;
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(front->rpc, &counters);
    bool busy = vx_sched_queued(front->sched) || vx_sched_running(front->sched) ||
                counters.receiving ||
                vx_health_streams(front->health) < counters.in_flight;
    if (!busy) front_stop_workers(front);
}

static void front_on_phase_over(uv_timer_t *timer)
{
    struct front *front = VX_CONTAINER(timer, struct front, phase_over);
    if (front->phase == FRONT_GRACE)
        front_drain(front);
    else if (front->phase == FRONT_DRAINING)
        front_stop_workers(front);
}

static void front_drain(struct front *front)
{
    front->phase = FRONT_DRAINING;
    front_log_step(front, "draining");
    vx_rpc_refuse(front->rpc);
    vx_rpc_stop_accepting(front->rpc);
    uv_timer_start(&front->phase_over, front_on_phase_over, (u64)front->config->drain_ms,
                   0);
}

static void front_on_signal(uv_signal_t *signal, int number)
{
    struct front *front = signal->data;
    if (number == SIGHUP) {
        vx_scanner_start(&front->scanner);
    } else if (front->phase == FRONT_SERVING) {
        front->phase = FRONT_GRACE;
        front_log_step(front, "grace");
        uv_timer_start(&front->phase_over, front_on_phase_over,
                       (u64)front->config->grace_ms, 0);
    } else if (front->phase == FRONT_GRACE) {
        front_drain(front); /* asked twice: somebody is in a hurry */
    }
}

/* ------- the admin pages ------- */

static void front_on_http(void *context, const struct vx_http_request *request,
                          struct vx_http_reply *reply)
{
    struct front *front = context;
    const struct vx_admin admin = {
        .metrics = front->metrics,
        .registry = front->registry,
        .sched = front->sched,
        .rpc = front->rpc,
        .workers = front->workers,
        .shared = front->shared,
        .ready = front_is_ready(front),
    };
    vx_admin_answer(&admin, request, reply);
}

/* ------- start ------- */

static vx_status front_open_parts(struct front *front, struct vx_why *why)
{
    const struct vx_config *config = front->config;
    VX_TRY(vx_shared_open((u64)config->arena_bytes, why, &front->shared));
    VX_TRY(vx_registry_open(&front->registry));
    VX_TRY(vx_sched_open((i32)config->queue_max, &front->sched));
    VX_TRY(vx_metrics_open(&front->metrics));
    VX_TRY(vx_models_open(&(struct vx_models_options){.repository = config->repository,
                                                      .registry = front->registry,
                                                      .sched = front->sched,
                                                      .workers = &front->workers,
                                                      .context = front,
                                                      .on_lost = front_on_lost},
                          &front->models));
    front->scratch_block = vx_alloc(VX_INFER_SCRATCH_BYTES);
    front->answer = vx_alloc(VX_CONTROL_BYTES_MAX);
    VX_ENSURE(front->scratch_block && front->answer, RESOURCE_EXHAUSTED,
              "no memory for answering small questions");
    vx_arena_init(&front->scratch, front->scratch_block, VX_INFER_SCRATCH_BYTES);
    return VX_OK;
}

static vx_status front_open_rpc(struct front *front, struct vx_why *why)
{
    const struct vx_config *config = front->config;
    struct vx_rpc_options options = {
        .address = config->grpc,
        .threads = (i32)config->rpc_threads,
        .calls_max = (i32)config->calls_max,
        .receiving_max = (i32)config->receiving_max,
        .message_bytes_max = config->message_bytes_max,
        .slots = vx_shared_slots(front->shared),
        .arrivals = &front->arrivals,
        .gone = &front->gone,
    };
    VX_TRY(vx_rpc_open(&options, why, &front->rpc));
    return vx_health_open(front->rpc, &front->health);
}

static vx_status front_open_workers(struct front *front, struct vx_why *why)
{
    struct vx_workers_options options = {
        .loop = &front->loop,
        .config = front->config,
        .shared = front->shared,
        .context = front,
        .on_up = front_on_worker_up,
        .on_down = front_on_worker_down,
        .on_message = front_on_worker_message,
        .on_stopped = front_close_handles,
    };
    VX_TRY(vx_workers_open(&options, why, &front->workers));
    front->infer = (struct vx_infer){
        .config = front->config,
        .registry = front->registry,
        .sched = front->sched,
        .shared = front->shared,
        .rpc = front->rpc,
        .workers = front->workers,
        .metrics = front->metrics,
    };
    return VX_OK;
}

static void front_open_handles(struct front *front)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    _Static_assert(VX_COUNT(numbers) == VX_COUNT(((struct front *)0)->signals),
                   "one each");
    VX_ASSERT(!uv_loop_init(&front->loop));
    VX_ASSERT(!uv_async_init(&front->loop, &front->bell, front_on_bell));
    VX_ASSERT(!uv_prepare_init(&front->loop, &front->turn));
    VX_ASSERT(!uv_timer_init(&front->loop, &front->due));
    VX_ASSERT(!uv_timer_init(&front->loop, &front->stats));
    VX_ASSERT(!uv_timer_init(&front->loop, &front->phase_over));
    for (size_t i = 0; i < VX_COUNT(numbers); i++) {
        VX_ASSERT(!uv_signal_init(&front->loop, &front->signals[i]));
        front->signals[i].data = front;
        VX_ASSERT(!uv_signal_start(&front->signals[i], front_on_signal, numbers[i]));
    }
    vx_mailbox_init(&front->arrivals, front_ring, front);
    vx_mailbox_init(&front->gone, front_ring, front);
    vx_scanner_init(&front->scanner,
                    &(struct vx_scanner_options){.loop = &front->loop,
                                                 .path = front->config->repository,
                                                 .context = front,
                                                 .on_listing = front_on_listing});
}

static vx_status front_open(struct front *front, struct vx_why *why)
{
    VX_TRY(front_open_parts(front, why));
    VX_TRY(front_open_rpc(front, why));
    VX_TRY(vx_http_open(&(struct vx_http_options){.loop = &front->loop,
                                                  .address = front->config->http,
                                                  .handler = front_on_http,
                                                  .context = front},
                        why, &front->http));
    VX_TRY(front_open_workers(front, why));
    VX_TRY(vx_rpc_start(front->rpc, why));
    VX_LOG(LISTEN, VX_LOG_TEXT("what", "grpc"),
           VX_LOG_TEXT("address", front->config->grpc),
           VX_LOG_I64("port", vx_rpc_port(front->rpc)));
    VX_LOG(LISTEN, VX_LOG_TEXT("what", "http"),
           VX_LOG_TEXT("address", front->config->http),
           VX_LOG_I64("port", vx_http_port(front->http)));
    VX_ASSERT(!uv_prepare_start(&front->turn, front_on_turn));
    VX_ASSERT(!uv_timer_start(&front->stats, front_on_stats, STATS_MS, STATS_MS));
    vx_scanner_start(&front->scanner);
    return VX_OK;
}

static void front_release(struct front *front)
{
    vx_workers_close(&front->workers);
    vx_models_close(&front->models);
    vx_sched_close(&front->sched);
    vx_registry_close(&front->registry);
    vx_metrics_close(&front->metrics);
    vx_shared_close(&front->shared);
    vx_mailbox_fini(&front->arrivals);
    vx_mailbox_fini(&front->gone);
    vx_free(front->scratch_block);
    vx_free(front->answer);
    vx_free(front);
}

int vx_front_run(const struct vx_config *config)
{
    vx_thread_enter(VX_ROLE_LOOP);
    struct front *front = vx_alloc_zero(sizeof *front);
    VX_ASSERT(front);
    front->config = config;
    front_open_handles(front);
    struct vx_why why = {""};
    vx_status st = front_open(front, &why);
    if (st.fault) {
        /* Nothing serves yet: the sentence matters, what is open ends with the process.
         */
        VX_LOG(STOP, VX_LOG_TEXT("code", vx_code_name(vx_status_code(st))),
               VX_LOG_TEXT("why", vx_status_text(st, &why)));
        return 1;
    }
    vx_alloc_freeze(); /* what serves is there; what comes is refused or waits */
    uv_run(&front->loop, UV_RUN_DEFAULT);
    VX_ASSERT(!uv_loop_close(&front->loop));
    VX_LOG(STOP, VX_LOG_TEXT("code", "OK"));
    front_release(front);
    return 0;
}
