/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/rpc/rpc_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <grpc/support/log.h>
#include <grpc/support/time.h>

#include <sched.h>
#include <string.h>

/* Slices that a message may come in.  gRPC reads 64 KiB at a time and cuts at HTTP/2
 * frames, 16 KiB with stock clients; a slow connection brings single packets.  No honest
 * client sends slices that are smaller than this on average. */
#define PIECE_BYTES_MIN 1024
/* With a small message_bytes_max there are slow connections, too. */
#define PIECES_MIN 65536
/* How long vx_rpc_close lets answers go out before it cancels all calls. */
#define CLOSE_FLUSH_NS (200 * VX_NS_PER_MS)
/* How long the clients may then take to read what gRPC was writing, before their connections
 * are closed: it keeps a call until that is written. */
#define CLOSE_UNREAD_NS (2 * VX_NS_PER_S)
/* How often vx_rpc_close checks whether it is time for either. */
#define CLOSE_TURN_NS (5 * VX_NS_PER_MS)
/* The server is destroyed by then; gRPC never drops a slice that it has not dropped after
 * so many turns: 10 s in which this process ran, not those in which it was stopped. */
#define CLOSE_LENDS_TURNS (10 * VX_NS_PER_S / CLOSE_TURN_NS)
#define CLOSE_LIBRARY_S   1

static const struct vx_method methods[VX_METHODS_COUNT] = {
#define VX_METHOD(path_, identifier_, kind_)                                             \
    [VX_METHOD_ID_##identifier_] = {path_, VX_METHOD_##kind_},
#include "proto/service.def"
#undef VX_METHOD
};

const struct vx_method *vx_method_get(i32 method)
{
    VX_ASSERT(method >= 0 && method < VX_METHODS_COUNT);
    return &methods[method];
}

static void log_line(gpr_log_func_args *args)
{
    VX_LOG(GRPC, VX_LOG_TEXT("severity", gpr_log_severity_string(args->severity)),
           VX_LOG_TEXT("file", args->file), VX_LOG_I64("line", args->line),
           VX_LOG_TEXT("text", args->message));
}

static vx_status open_queues(struct vx_rpc *rpc)
{
    i32 threads = rpc->options.threads;
    rpc->spans_max = (size_t)rpc->options.message_bytes_max / PIECE_BYTES_MIN;
    if (rpc->spans_max < PIECES_MIN) rpc->spans_max = PIECES_MIN;
    rpc->queues = vx_alloc_zero((size_t)threads * sizeof *rpc->queues);
    VX_ENSURE(rpc->queues, RESOURCE_EXHAUSTED, "no memory for the completion queues");
    for (i32 i = 0; i < threads; i++) {
        struct vx_rpc_queue *queue = &rpc->queues[i];
        queue->rpc = rpc;
        VX_TRY(vx_rpc_desk_open(&queue->desk, rpc->spans_max));
    }
    return VX_OK;
}

static vx_status open_server(struct vx_rpc *rpc, struct vx_why *why)
{
    rpc->server = vx_rpc_server_make(&rpc->options);
    VX_ENSURE(rpc->server, INTERNAL, "gRPC rejected the server's settings");
    for (i32 i = 0; i < rpc->options.threads; i++) {
        rpc->queues[i].cq = grpc_completion_queue_create_for_next(NULL);
        grpc_server_register_completion_queue(rpc->server, rpc->queues[i].cq, NULL);
    }
    for (i32 i = 0; i < VX_METHODS_COUNT; i++) {
        bool first = methods[i].kind == VX_METHOD_UNARY;
        rpc->registered[i] = grpc_server_register_method(
            rpc->server, methods[i].path, NULL,
            first ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
        VX_ASSERT(rpc->registered[i]);
    }
    return vx_rpc_accept_open(&rpc->options, why, &rpc->accept);
}

static vx_status open_all(struct vx_rpc *rpc, struct vx_why *why)
{
    VX_TRY(open_queues(rpc));
    VX_TRY(vx_rpc_pool_open(rpc));
    VX_TRY(vx_rpc_senders_open(rpc));
    VX_TRY(vx_rpc_readers_open(rpc));
    return open_server(rpc, why);
}

vx_status vx_rpc_open(const struct vx_rpc_options *options, struct vx_why *why,
                      struct vx_rpc **rpc)
{
    VX_ON(LOOP);
    VX_ASSERT(options->threads > 0 && options->calls_max > 0);
    VX_ASSERT(options->receive_bytes_max > 0);
    VX_ASSERT(options->message_bytes_max > 0 &&
              options->message_bytes_max <= VX_MESSAGE_BYTES_MAX);
    VX_ASSERT(options->connections_max > 0);
    VX_TRY(vx_rpc_addresses_check(options->addresses, why));
    struct vx_rpc *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the rpc adapter");
    made->options = *options;
    VX_ASSERT(!pthread_mutex_init(&made->lock, NULL));
    pthread_condattr_t attributes;
    VX_ASSERT(!pthread_condattr_init(&attributes));
    VX_ASSERT(!pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    VX_ASSERT(!pthread_cond_init(&made->idle, &attributes));
    VX_ASSERT(!pthread_cond_init(&made->crew_joins, NULL));
    pthread_condattr_destroy(&attributes);
    gpr_set_log_function(log_line);
    grpc_init();
    vx_status status = open_all(made, why);
    *rpc = made;
    if (status.fault) vx_rpc_close(rpc);
    return status;
}

vx_status vx_rpc_start(struct vx_rpc *rpc, struct vx_why *why)
{
    VX_ON(LOOP);
    VX_ASSERT(!rpc->started);
    (void)why;
    grpc_server_start(rpc->server);
    rpc->started = true;
    vx_status status = VX_OK;
    for (i32 i = 0; i < rpc->options.threads && !status.fault; i++) {
        struct vx_rpc_queue *queue = &rpc->queues[i];
        status = vx_thread_open(&queue->thread, VX_ROLE_RPC, vx_rpc_queue_run, queue);
        queue->running = !status.fault;
    }
    if (!status.fault) status = vx_rpc_senders_start(rpc);
    if (!status.fault) status = vx_rpc_readers_start(rpc);
    if (status.fault) return status;
    vx_rpc_crew_begin(rpc);
    return vx_rpc_accept_start(rpc->accept, rpc->server);
}

i32 vx_rpc_port(const struct vx_rpc *rpc)
{
    return vx_rpc_accept_port(rpc->accept);
}

void vx_rpc_counters_get(const struct vx_rpc *rpc, struct vx_rpc_counters *counters)
{
    /* Only the lock is changed. */
    struct vx_rpc *from = (struct vx_rpc *)(uintptr_t)rpc;
    for (i32 i = 0; i < VX_METHODS_COUNT; i++) counters->calls[i] = from->calls[i];
    counters->refused_full = from->refused_full;
    counters->refused_bad = from->refused_bad;
    counters->refused_draining = from->refused_draining;
    counters->unknown_methods = from->unknown_methods;
    counters->cut_receiving = from->cut_receiving;
    counters->cut_sending = from->cut_sending;
    counters->bytes_in = from->bytes_in;
    counters->bytes_out = from->bytes_out;
    pthread_mutex_lock(&from->lock);
    counters->in_flight = from->in_flight;
    counters->receiving = from->receiving;
    counters->streams = from->streams;
    counters->crew = from->crew;
    pthread_mutex_unlock(&from->lock);
    vx_rpc_accept_count(from->accept, counters);
    counters->moved = vx_rpc_governor_moved(vx_rpc_accept_governor(from->accept));
}

bool vx_rpc_connection_lives(const struct vx_rpc *rpc, u64 connection)
{
    return vx_rpc_accept_has(rpc->accept, connection);
}

bool vx_rpc_connection_in_group(const struct vx_rpc *rpc, u64 connection, u32 gid)
{
    return vx_rpc_accept_in_group(rpc->accept, connection, gid);
}

void vx_rpc_reload(struct vx_rpc *rpc)
{
    vx_rpc_accept_reload(rpc->accept);
}

bool vx_rpc_call_name(struct vx_call *call, struct vx_tls_name *name)
{
    const struct vx_rpc_record *record = vx_rpc_record_of(call);
    return vx_rpc_accept_name(record->rpc->accept, vx_rpc_place_of(record), name);
}

void vx_rpc_refuse(struct vx_rpc *rpc)
{
    VX_ON(LOOP);
    rpc->refusing = true;
}

static void on_shutdown(void *context, bool ok)
{
    struct vx_rpc *rpc = context;
    VX_ASSERT(ok);
    pthread_mutex_lock(&rpc->lock);
    rpc->shut_down = true;
    pthread_cond_signal(&rpc->idle);
    pthread_mutex_unlock(&rpc->lock);
}

void vx_rpc_hear_handed(struct vx_rpc *rpc, bool wanted)
{
    VX_ON(LOOP);
    vx_rpc_accept_hear_handed(rpc->accept, wanted);
}

void vx_rpc_stop_accepting(struct vx_rpc *rpc)
{
    VX_ON(LOOP);
    if (rpc->stopped) return;
    rpc->stopped = true;
    rpc->refusing = true;
    vx_rpc_crew_end(rpc);
    if (rpc->accept) vx_rpc_accept_stop(rpc->accept);
    rpc->shutdown = (struct vx_rpc_tag){on_shutdown, rpc};
    VX_RPC_TAG_GIVE(&rpc->shutdown);
    grpc_server_shutdown_and_notify(rpc->server, rpc->queues[0].cq, &rpc->shutdown);
}

/* After this no rpc thread gives to the mailboxes. */
static void close_mailboxes(struct vx_rpc *rpc)
{
    atomic_store(&rpc->closing, true);
    while (atomic_load(&rpc->handing))
        sched_yield(); /* a few instructions of another thread */
}

/* Ends the calls in the mailboxes, then every call that the loop still owns. */
static void close_end_calls(struct vx_rpc *rpc)
{
    struct vx_link *next;
    for (struct vx_link *link = vx_mailbox_take_all(rpc->options.arrivals); link;
         link = next) {
        next = link->next;
        struct vx_call *call = VX_CONTAINER(link, struct vx_call, arrival);
        if (vx_rpc_take_message(rpc, call)) vx_rpc_inputs_give(vx_rpc_record_of(call));
    }
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct vx_rpc_record *record = &rpc->records[i];
        if (atomic_load_explicit(&record->owner, memory_order_acquire) != VX_RPC_LOOP)
            continue;
        struct vx_call *call = &record->call;
        vx_rpc_fail(rpc, &call, vx_status_of_code(VX_CODE_UNAVAILABLE),
                    &(struct vx_why){"GRPC server is shutting down"});
    }
    for (i32 i = 0; i < rpc->records_count; i++) vx_rpc_stream_stop(&rpc->records[i]);
    for (struct vx_link *link = vx_mailbox_take_all(rpc->options.gone); link;
         link = next) {
        next = link->next;
        vx_rpc_release_gone(rpc, VX_CONTAINER(link, struct vx_call, gone));
    }
}

static void close_wait_turn(struct vx_rpc *rpc)
{
    if (!rpc->queues[0].running) { /* never started: only the shutdown's tag comes */
        vx_rpc_queue_turn(&rpc->queues[0], gpr_time_from_nanos(0, GPR_TIMESPAN));
        return;
    }
    i64 until_ns = vx_clock_ns() + CLOSE_TURN_NS;
    struct timespec until = {.tv_sec = until_ns / VX_NS_PER_S,
                             .tv_nsec = until_ns % VX_NS_PER_S};
    pthread_mutex_lock(&rpc->lock);
    pthread_cond_timedwait(&rpc->idle, &rpc->lock, &until);
    pthread_mutex_unlock(&rpc->lock);
}

/* True when the server has shut down and every record is in the pool: only then is no
 * thread about to call the server. */
static bool close_all_back(struct vx_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    bool back = rpc->shut_down && rpc->free_count == rpc->records_count;
    pthread_mutex_unlock(&rpc->lock);
    return back;
}

static void close_server(struct vx_rpc *rpc)
{
    vx_rpc_stop_accepting(rpc);
    close_mailboxes(rpc);
    close_end_calls(rpc);
    vx_rpc_senders_close(rpc);
    i64 cut_ns = vx_clock_ns() + CLOSE_FLUSH_NS, end_ns = VX_NEVER;
    while (!close_all_back(rpc)) {
        close_wait_turn(rpc);
        i64 now_ns = vx_clock_ns();
        if (now_ns >= end_ns && rpc->accept)
            vx_rpc_governor_end(vx_rpc_accept_governor(rpc->accept));
        if (now_ns < cut_ns) continue;
        grpc_server_cancel_all_calls(rpc->server);
        cut_ns = VX_NEVER;
        end_ns = now_ns + CLOSE_UNREAD_NS;
    }
    vx_rpc_accept_close(&rpc->accept);
    grpc_server_destroy(rpc->server);
}

static void close_queue(struct vx_rpc_queue *queue)
{
    if (queue->cq) {
        grpc_completion_queue_shutdown(queue->cq);
        if (queue->running) pthread_join(queue->thread, NULL);
        while (!queue->running &&
               vx_rpc_queue_turn(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC))) {
        }
        grpc_completion_queue_destroy(queue->cq);
    }
    vx_rpc_desk_close(&queue->desk);
}

/* Waits for lends: a slice that outlives its call holds one until gRPC's last thread has
 * dropped the slice. */
static void close_wait_lends(struct vx_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    for (i64 turns = 0; rpc->lends_out; turns++) {
        VX_ASSERT(turns < CLOSE_LENDS_TURNS);
        i64 until_ns = vx_clock_ns() + CLOSE_TURN_NS;
        struct timespec until = {.tv_sec = until_ns / VX_NS_PER_S,
                                 .tv_nsec = until_ns % VX_NS_PER_S};
        pthread_cond_timedwait(&rpc->idle, &rpc->lock, &until);
    }
    pthread_mutex_unlock(&rpc->lock);
}

static void shutdown_run(void *context)
{
    (void)context;
    grpc_shutdown_blocking();
}

/* gRPC's own threads end in milliseconds, unless a large write was blocked a moment ago:
 * then one of them sleeps in its poll for up to 10 s and cannot be woken.  It holds
 * nothing of ours, and the end of this process should not wait for it. */
static void close_library(void)
{
    pthread_t thread;
    vx_status status = vx_thread_open(&thread, VX_ROLE_RPC, shutdown_run, NULL);
    if (status.fault)
        return; /* no memory for a thread: gRPC's threads end with the process */
    (void)vx_thread_join_within(thread, CLOSE_LIBRARY_S * VX_NS_PER_S);
}

void vx_rpc_close(struct vx_rpc **rpc)
{
    VX_ON(LOOP);
    struct vx_rpc *going = *rpc;
    *rpc = NULL;
    if (!going) return;
    if (going->server) close_server(going);
    vx_rpc_senders_close(going); /* if no server was made */
    vx_rpc_readers_close(going);
    for (i32 i = 0; going->queues && i < going->options.threads; i++)
        close_queue(&going->queues[i]);
    close_wait_lends(going);
    close_library();
    vx_rpc_pool_close(going);
    vx_free(going->queues);
    pthread_cond_destroy(&going->idle);
    pthread_cond_destroy(&going->crew_joins);
    pthread_mutex_destroy(&going->lock);
    vx_free(going);
}
