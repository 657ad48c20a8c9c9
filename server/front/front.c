/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/front/front_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/admin/admin.h"
#include "server/base/host.h"
#include "server/base/timer.h"
#include "server/control/control.h"
#include "server/front/ready_file.h"
#include "server/front/room.h"
#include "server/infer/view.h"
#include "server/regions/regions.h"
#include "server/trace/trace_text.h"

/* How often workers are asked for their numbers; Prometheus scrapes no faster. */
#define STATS_MS 1000
/* How long control methods are answered in one iteration: inferences and workers must not
 * wait for a thousand answers about 512 models each. */
#define ANSWER_NS (2 * VX_NS_PER_MS)
/* How long calls that have come are handled in one iteration, about a hundred of them: batches
 * that end, and requests that are to run, wait no longer for a thousand that come at once. */
#define MAIL_NS (2 * VX_NS_PER_MS)

struct vx_front_view vx_front_view(const struct vx_front *front)
{
    return (struct vx_front_view){.config = front->config,
                                  .registry = front->registry,
                                  .models = front->models,
                                  .regions = front->regions,
                                  .access = front->access,
                                  .tracing = front->tracing,
                                  .workers = front->workers,
                                  .ready = vx_front_is_ready(front),
                                  .draining = front->phase != VX_FRONT_SERVING};
}

/* ------- one iteration ------- */

static void front_on_spin(uv_idle_t *spin)
{
    (void)spin; /* an active idle handle keeps the loop from sleeping */
}

/* Spins for spin_ns after an event: a worker's next message, or the next request of a
 * client that waited for an answer, is likely to come soon.  Calls that wait to be handled
 * or answered do so until the next iteration, which must come at once. */
static void front_spin(struct vx_front *front)
{
    bool waits = front->control.first || front->coming.first || front->left;
    bool wanted = waits || vx_clock_ns() - front->event_ns < front->spin_ns;
    if (wanted)
        uv_idle_start(&front->spin, front_on_spin);
    else
        uv_idle_stop(&front->spin);
}

static void front_on_turn(uv_prepare_t *prepare)
{
    struct vx_front *front = VX_CONTAINER(prepare, struct vx_front, turn);
    if (front->phase >= VX_FRONT_STOPPING) return;
    vx_front_mail_handle(front, MAIL_NS);
    vx_infer_dispatch(&front->infer); /* inferences do not wait for the answers */
    vx_front_answer(front, ANSWER_NS);
    vx_models_step(front->models);
    vx_regions_step(front->regions);
    vx_infer_dispatch(&front->infer);
    struct vx_front_view view = vx_front_view(front);
    vx_health_step(front->health, &view);
    vx_front_announce(front);
    vx_due_set(&front->due, vx_sched_next_ns(front->sched));
    vx_front_stop_when_drained(front);
    if (front->phase < VX_FRONT_STOPPING) front_spin(front);
}

/* ------- calls ------- */

/* The load, unload or region that the call waits for is done, or has failed. */
static void front_on_answered(void *context, void *waiter, vx_status status,
                              const struct vx_why *why)
{
    struct vx_front *front = context;
    struct vx_call *call = waiter;
    call->answered = true;
    if (status.fault)
        vx_front_fail(front, &call, status, why);
    else
        vx_rpc_reply(front->rpc, &call, "", 0);
}

/* True, and the call is ended, if it waited for a load or unload, which continues without
 * it, or for a device region, which is released then. */
static bool front_forget(struct vx_front *front, struct vx_call *call)
{
    if (!vx_models_forget(front->models, call) &&
        !vx_regions_forget(front->regions, call))
        return false;
    call->answered = true;
    vx_rpc_fail(front->rpc, &call, vx_status_of_code(VX_CODE_CANCELLED), NULL);
    return true;
}

/* True for an inference call, and for one request of an inference stream. */
static bool front_is_infer(const struct vx_call *call)
{
    return call->method == VX_METHOD_ID_MODEL_INFER ||
           call->method == VX_METHOD_ID_MODEL_STREAM_INFER;
}

void vx_front_on_arrival(struct vx_front *front, struct vx_call *call)
{
    if (front_is_infer(call)) {
        vx_infer_on_call(&front->infer, call);
        return;
    }
    struct vx_front_view view = vx_front_view(front);
    vx_arena_reset(&front->scratch);
    if (vx_health_on_call(front->health, &view, call, &front->scratch)) return;
    call->is_gone = false;
    vx_call_turns_add(&front->control, call);
    /* The end of an iteration answers nothing any more. */
    if (front->phase >= VX_FRONT_STOPPING) vx_front_answer(front, VX_NEVER);
}

void vx_front_on_gone(struct vx_front *front, struct vx_call *call)
{
    if (front_is_infer(call))
        vx_infer_on_gone(&front->infer, call);
    else if (call->turn.waits)
        call->is_gone = true; /* vx_front_answer ends it */
    else if (!call->answered && !front_forget(front, call))
        vx_health_on_gone(front->health, call);
    vx_rpc_release_gone(front->rpc, call);
}

static void front_on_bell(uv_async_t *wakeup)
{
    struct vx_front *front = VX_CONTAINER(wakeup, struct vx_front, wakeup);
    front->event_ns = vx_clock_ns();
    vx_front_mail_take(front);
    /* The end of an iteration handles nothing any more. */
    if (front->phase >= VX_FRONT_STOPPING) vx_front_mail_handle(front, VX_NEVER);
}

static void front_ring(void *context)
{
    struct vx_front *front = context;
    uv_async_send(&front->wakeup);
}

static void front_on_refused(void *context, const struct vx_rpc_refusal *refusal)
{
    vx_front_note_failure(context, refusal);
}

static void front_on_disconnected(void *context, u64 connection)
{
    struct vx_front *front = context;
    vx_regions_owner_gone(front->regions, connection);
    if (front->access) vx_access_gone(front->access, connection);
}

static bool front_lives(void *context, u64 connection)
{
    const struct vx_front *front = context;
    return vx_rpc_connection_lives(front->rpc, connection);
}

static bool front_in_group(void *context, u64 connection, u32 gid)
{
    const struct vx_front *front = context;
    return vx_rpc_connection_in_group(front->rpc, connection, gid);
}

/* ------- workers ------- */

static void front_on_worker_up(void *context, i32 worker)
{
    struct vx_front *front = context;
    vx_regions_on_worker_up(front->regions, worker); /* before any RUN */
    vx_sched_worker_up(front->sched, worker);
    vx_sched_worker_threads(front->sched, worker,
                            vx_workers_info(front->workers, worker)->stats.threads);
    vx_models_on_worker_up(front->models, worker);
}

static void front_on_worker_leaving(void *context, i32 worker)
{
    struct vx_front *front = context;
    vx_sched_worker_leaving(front->sched, worker);
}

static void front_on_worker_down(void *context, i32 worker)
{
    struct vx_front *front = context;
    /* Models first, while the batches still belong to the worker. */
    vx_models_on_worker_down(front->models, worker);
    vx_infer_on_worker_down(&front->infer, worker);
    vx_regions_on_worker_down(front->regions, worker);
}

static void front_on_worker_message(void *context, i32 worker,
                                    const union vx_message *message)
{
    struct vx_front *front = context;
    front->event_ns = vx_clock_ns();
    if (message->head.kind == VX_MESSAGE_DONE)
        vx_infer_on_done(&front->infer, worker, &message->done);
    else if (message->head.kind == VX_MESSAGE_SIZES)
        vx_infer_on_sizes(&front->infer, worker, &message->sizes);
    else if (message->head.kind == VX_MESSAGE_MAPPED)
        vx_regions_on_mapped(front->regions, worker, &message->mapped);
    else
        vx_models_on_message(front->models, worker, message);
}

static void front_on_lost(void *context, struct vx_job *job)
{
    struct vx_front *front = context;
    vx_infer_on_lost(&front->infer, job);
}

/* The next process begins without what clients mapped into this one. */
static void front_on_useless(void *context, i32 worker)
{
    struct vx_front *front = context;
    VX_LOG(WORKER_USELESS, VX_LOG_I64("worker", worker),
           VX_LOG_TEXT("device", vx_workers_info(front->workers, worker)->device));
    vx_regions_condemn_all(front->regions, worker);
    vx_workers_kill(front->workers, worker);
}

static void front_on_stats(uv_timer_t *timer)
{
    struct vx_front *front = VX_CONTAINER(timer, struct vx_front, stats);
    vx_metrics_step(front->metrics, vx_sched_queued(front->sched), vx_clock_ns());
    vx_workers_ask_stats(front->workers);
    vx_front_tell_manager(front);
    vx_rpc_cut_slow(front->rpc, vx_clock_ns());
}

/* ------- the repository ------- */

static void front_on_listing(void *context, const struct vx_repository_listing *listing)
{
    struct vx_front *front = context;
    if (front->phase >= VX_FRONT_STOPPING) return;
    vx_models_on_listing(front->models, listing);
    if (listing->readable) front->scanned = true;
}

static void front_look(void *context)
{
    struct vx_front *front = context;
    vx_scanner_look(&front->scanner);
}

/* ------- start ------- */

static i32 front_admin_connections(const struct vx_front *front)
{
    struct vx_room room;
    vx_room_get(&room);
    return vx_room_admin_connections(room.files, front->config->connections_max);
}

/* Where the spans of requests go, if anywhere. */
static vx_status front_open_exporter(struct vx_front *front, struct vx_why *why)
{
    const struct vx_config *config = front->config;
    const struct vx_exporter_options options = {
        .endpoint = config->otlp_endpoint,
        .resource = config->otlp_resource,
        .delay_ns = config->otlp_delay_ms * VX_NS_PER_MS,
        .timeout_ns = config->otlp_timeout_ms * VX_NS_PER_MS,
    };
    f64 ratio;
    if (!config->otlp_endpoint[0]) return VX_OK;
    VX_TRY(vx_ratio_parse(config->otlp_ratio, why, &ratio));
    VX_TRY(vx_exporter_open(&options, why, &front->exporter));
    vx_tracing_export(front->tracing, ratio);
    return VX_OK;
}

static vx_status front_open_parts(struct vx_front *front, struct vx_why *why)
{
    const struct vx_config *config = front->config;
    VX_TRY(vx_repository_expect(config->repository, why));
    VX_TRY(vx_ready_file_expect(config, why));
    VX_TRY(vx_front_open_access(front, why));
    VX_TRY(vx_shared_open((u64)config->arena_bytes, why, &front->shared));
    VX_TRY(vx_registry_open(&front->registry));
    if (config->tokens[0]) vx_registry_hide_names(front->registry);
    VX_TRY(vx_sched_open((i32)config->queue_max, &front->sched));
    VX_TRY(vx_geometries_open(&front->geometries));
    VX_TRY(vx_metrics_open(&front->metrics));
    VX_TRY(vx_tracing_open(front->registry, &front->tracing));
    VX_TRY(front_open_exporter(front, why));
    VX_TRY(vx_models_open(&(struct vx_models_options){.repository = config->repository,
                                                      .registry = front->registry,
                                                      .sched = front->sched,
                                                      .workers = &front->workers,
                                                      .context = front,
                                                      .config = config,
                                                      .look = front_look,
                                                      .on_ended = front_on_answered,
                                                      .on_useless = front_on_useless,
                                                      .voxels_most = &front->voxels_most,
                                                      .on_lost = front_on_lost},
                          &front->models));
    VX_TRY(vx_regions_open(&(struct vx_regions_options){.config = config,
                                                        .loop = &front->loop,
                                                        .workers = &front->workers,
                                                        .context = front,
                                                        .ring = front_ring,
                                                        .lives = front_lives,
                                                        .in_group = front_in_group,
                                                        .on_added = front_on_answered},
                           &front->regions));
    front->scratch_block = vx_alloc(VX_CONTROL_SCRATCH_BYTES);
    front->answer = vx_alloc(VX_ANSWER_BYTES_MAX);
    VX_ENSURE(front->scratch_block && front->answer, RESOURCE_EXHAUSTED,
              "no memory for answering small questions");
    vx_arena_init(&front->scratch, front->scratch_block, VX_CONTROL_SCRATCH_BYTES);
    return VX_OK;
}

static vx_status front_open_rpc(struct vx_front *front, struct vx_why *why)
{
    const struct vx_config *config = front->config;
    struct vx_rpc_options options = {
        .addresses = config->grpc,
        .connections_max = (i32)config->connections_max,
        .tls = {config->tls_cert, config->tls_key, config->tls_client_ca,
                config->tls_client_crl},
        .streams_max = (i32)config->streams_max,
        .threads = vx_host_rpc_threads(config, vx_host_processors()),
        .calls_max = (i32)config->calls_max,
        .receive_bytes_max = config->receive_bytes_max,
        .message_bytes_max = config->message_bytes_max,
        .receive_ns_max = config->receive_ms_max * VX_NS_PER_MS,
        .send_ns_max = config->send_ms_max * VX_NS_PER_MS,
        .slots = vx_shared_slots(front->shared),
        .arena_bytes = (u64)config->arena_bytes,
        .regions = front->regions,
        .access = front->access,
        .coords_in_place = vx_workers_are_gpus(front->workers),
        .voxels_most = &front->voxels_most,
        .arrivals = &front->arrivals,
        .gone = &front->gone,
        .on_ended = front_ring,
        .on_refused = front_on_refused,
        .on_disconnected = front_on_disconnected,
        .context = front,
    };
    vx_coords_ref_key_make(&options.coords_ref_key);
    vx_coords_ref_key_make(&options.owners_key);
    struct vx_why said = {""};
    vx_status status = vx_rpc_open(&options, &said, &front->rpc);
    if (status.fault) vx_why_set(why, "grpc: %.240s", vx_status_text(status, &said));
    VX_TRY(status);
    return vx_health_open(front->rpc, &front->health);
}

static void front_open_infer(struct vx_front *front)
{
    front->infer = (struct vx_infer){
        .config = front->config,
        .registry = front->registry,
        .models = front->models,
        .regions = front->regions,
        .access = front->access,
        .sched = front->sched,
        .geometries = front->geometries,
        .shared = front->shared,
        .rpc = front->rpc,
        .workers = front->workers,
        .metrics = front->metrics,
        .tracing = front->tracing,
        .exporter = front->exporter,
    };
}

static vx_status front_open_workers(struct vx_front *front, struct vx_why *why)
{
    struct vx_workers_options options = {
        .loop = &front->loop,
        .config = front->config,
        .shared = front->shared,
        .context = front,
        .on_up = front_on_worker_up,
        .on_leaving = front_on_worker_leaving,
        .on_down = front_on_worker_down,
        .on_message = front_on_worker_message,
        .on_stopped = vx_front_close_handles,
    };
    return vx_workers_open(&options, why, &front->workers);
}

static void front_open_handles(struct vx_front *front)
{
    VX_ASSERT(!uv_loop_init(&front->loop));
    VX_ASSERT(!uv_async_init(&front->loop, &front->wakeup, front_on_bell));
    VX_ASSERT(!uv_prepare_init(&front->loop, &front->turn));
    VX_ASSERT(!uv_idle_init(&front->loop, &front->spin));
    VX_ASSERT(!uv_timer_init(&front->loop, &front->stats));
    VX_ASSERT(!uv_timer_init(&front->loop, &front->phase_over));
    VX_ASSERT(!uv_timer_init(&front->loop, &front->held));
    vx_front_open_signals(front);
    vx_manager_open(&front->manager, &front->loop);
    vx_mailbox_init(&front->arrivals, front_ring, front);
    vx_mailbox_init(&front->gone, front_ring, front);
    vx_scanner_init(&front->scanner,
                    &(struct vx_scanner_options){.loop = &front->loop,
                                                 .path = front->config->repository,
                                                 .context = front,
                                                 .on_listing = front_on_listing});
}

static vx_status front_open(struct vx_front *front, struct vx_why *why)
{
    VX_TRY(vx_due_init(&front->due, &front->loop));
    VX_TRY(front_open_parts(front, why));
    VX_TRY(vx_http_open(
        &(struct vx_http_options){.loop = &front->loop,
                                  .address = front->config->http,
                                  .handler = vx_front_on_http,
                                  .context = front,
                                  .connections_max = front_admin_connections(front)},
        why, &front->http));
    VX_TRY(front_open_workers(front, why));
    VX_TRY(front_open_rpc(front, why)); /* needs to know whether workers have GPUs */
    front_open_infer(front);
    VX_TRY(vx_models_start(front->models, why));
    vx_ready_file_remove(front->config); /* the addresses are this server's now */
    VX_TRY(vx_rpc_start(front->rpc, why));
    VX_LOG(LISTEN, VX_LOG_TEXT("what", "http"),
           VX_LOG_TEXT("address", front->config->http),
           VX_LOG_I64("port", vx_http_port(front->http)));
    VX_ASSERT(!uv_prepare_start(&front->turn, front_on_turn));
    vx_timer_every(&front->stats, front_on_stats, STATS_MS);
    vx_scanner_start(&front->scanner);
    return VX_OK;
}

static void front_release(struct vx_front *front)
{
    vx_workers_close(&front->workers);
    vx_models_close(&front->models);
    vx_regions_close(&front->regions);
    vx_access_close(&front->access);
    vx_sched_close(&front->sched);
    vx_geometries_close(&front->geometries);
    vx_registry_close(&front->registry);
    vx_metrics_close(&front->metrics);
    vx_tracing_close(&front->tracing);
    vx_shared_close(&front->shared);
    vx_mailbox_fini(&front->arrivals);
    vx_mailbox_fini(&front->gone);
    vx_free(front->scratch_block);
    vx_free(front->answer);
    vx_free(front);
}

int vx_front_run(const struct vx_config *config)
{
    /* Static, so that what is open when a start fails is no leak: it ends with the process. */
    static struct vx_front *front;
    vx_thread_enter(VX_ROLE_LOOP);
    front = vx_alloc_zero(sizeof *front);
    VX_ASSERT(front);
    front->config = config;
    front->spin_ns = vx_host_spin_ns(config, vx_host_processors());
    front_open_handles(front);
    struct vx_why why = {""};
    vx_status st = front_open(front, &why);
    if (st.fault) {
        /* Nothing serves yet: only logs the error; what is open ends with the process. */
        VX_LOG(START_FAILED, VX_LOG_TEXT("code", vx_code_name(vx_status_code(st))),
               VX_LOG_TEXT("why", vx_status_text(st, &why)));
        return 1;
    }
    vx_alloc_freeze(); /* from here on, an allocation on this thread is a bug */
    uv_run(&front->loop, UV_RUN_DEFAULT);
    vx_ready_file_end(config);
    vx_exporter_close(&front->exporter, vx_front_spans_ns(front));
    vx_front_loop_close(front);
    VX_LOG(STOP, VX_LOG_TEXT("code", "OK"));
    front_release(front);
    return 0;
}
