/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_access.h"
#include "server/rpc/rpc_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/time.h>

#include <string.h>

static void on_arrive(void *context, bool ok);
static void on_close(void *context, bool ok);
static void on_receive_infer(void *context, bool ok);
static void on_receive_stream(void *context, bool ok);

const char vx_rpc_shutting_down[] =
    "GRPC server is shutting down and has stopped accepting new requests";

static void count(_Atomic u64 *counter, u64 more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

void vx_rpc_batch_start(struct vx_rpc_record *record, const grpc_op *ops,
                        size_t ops_count, struct vx_rpc_tag *tag)
{
    vx_rpc_record_ref(record);
    /* Read first: once the tag is given, it may already be back. */
    grpc_call *call = record->grpc;
    VX_RPC_TAG_GIVE(tag);
    /* gRPC refuses only a batch that breaks its rules: our mistake. */
    VX_ASSERT(grpc_call_start_batch(call, ops, ops_count, tag, NULL) == GRPC_CALL_OK);
}

i32 vx_rpc_armed(i32 method)
{
    bool big = method != VX_RPC_METHOD_UNKNOWN &&
               vx_method_get(method)->kind == VX_METHOD_UNARY_BIG;
    return big ? VX_RPC_ARMED_BIG : VX_RPC_ARMED_SMALL;
}

static bool method_reads_first(i32 method)
{
    return vx_method_get(method)->kind == VX_METHOD_UNARY;
}

void vx_rpc_call_arm(struct vx_rpc *rpc, i32 queue, i32 method)
{
    struct vx_rpc_record *record = vx_rpc_record_take(rpc, queue, method);
    if (record) vx_rpc_record_arm(record, queue, method);
}

void vx_rpc_record_arm(struct vx_rpc_record *record, i32 queue, i32 method)
{
    struct vx_rpc *rpc = record->rpc;
    VX_ASSERT(atomic_load_explicit(&record->references, memory_order_relaxed) == 0);
    record->call = (struct vx_call){.magic = VX_CALL_MAGIC, .method = method};
    record->queue = queue;
    record->cancelled = record->waiting = record->metadata_sent = false;
    record->message_holds = false;
    record->descriptor = -1;
    record->end_code = GRPC_STATUS_OK;
    record->cancelled_out = 0;
    record->outbox = (struct vx_rpc_outbox){0};
    record->flat = grpc_empty_slice();
    record->arrive = (struct vx_rpc_tag){on_arrive, record};
    record->close = (struct vx_rpc_tag){on_close, record};
    grpc_metadata_array_init(&record->metadata);
    atomic_store_explicit(&record->wire, VX_RPC_IDLE, memory_order_relaxed);
    atomic_store_explicit(&record->references, 1, memory_order_relaxed);
    atomic_store_explicit(&record->owner, VX_RPC_RPC, memory_order_relaxed);
    grpc_completion_queue *cq = rpc->queues[queue].cq;
    grpc_call_error error;
    VX_RPC_TAG_GIVE(&record->arrive);
    if (method == VX_RPC_METHOD_UNKNOWN) {
        grpc_call_details_init(&record->details);
        error = grpc_server_request_call(rpc->server, &record->grpc, &record->details,
                                         &record->metadata, cq, cq, &record->arrive);
    } else {
        error = grpc_server_request_registered_call(
            rpc->server, rpc->registered[method], &record->grpc, &record->deadline,
            &record->metadata, method_reads_first(method) ? &record->payload : NULL, cq,
            cq, &record->arrive);
    }
    VX_ASSERT(error == GRPC_CALL_OK);
}

static i64 arrive_deadline_ns(gpr_timespec deadline, i64 now_ns)
{
    if (!gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type))) return VX_NEVER;
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    i64 left_ns, deadline_ns;
    bool far = __builtin_mul_overflow(left.tv_sec, VX_NS_PER_S, &left_ns);
    far = far || __builtin_add_overflow(left_ns, left.tv_nsec, &left_ns);
    far = far || __builtin_add_overflow(left_ns, now_ns, &deadline_ns);
    return far ? (left.tv_sec < 0 ? now_ns : VX_NEVER) : deadline_ns;
}

static void arrive_unknown(struct vx_rpc_record *record)
{
    const grpc_slice *path = &record->details.method;
    struct vx_why why;
    vx_why_set(
        &why,
        "unknown method '%.*s'; this server speaks inference.GRPCInferenceService, "
        "grpc.health.v1.Health and grpc.reflection.v1.ServerReflection",
        (int)(GRPC_SLICE_LENGTH(*path) < 100 ? GRPC_SLICE_LENGTH(*path) : 100),
        (const char *)GRPC_SLICE_START_PTR(*path));
    count(&record->rpc->unknown_methods, 1);
    vx_rpc_call_refuse(record, VX_CODE_UNIMPLEMENTED, why.text);
}

/* Small calls are answered while the server drains: health must tell the truth then. */
static bool arrive_refused_draining(struct vx_rpc_record *record)
{
    enum vx_method_kind kind = vx_method_get(record->call.method)->kind;
    if (kind != VX_METHOD_UNARY_BIG && kind != VX_METHOD_INFER_STREAM) return false;
    if (!atomic_load_explicit(&record->rpc->refusing, memory_order_relaxed)) return false;
    count(&record->rpc->refused_draining, 1);
    vx_rpc_call_refuse(record, VX_CODE_UNAVAILABLE, vx_rpc_shutting_down);
    return true;
}

static bool arrive_refused_full(struct vx_rpc_record *record)
{
    const struct vx_rpc_options *options = &record->rpc->options;
    bool stream = vx_method_get(record->call.method)->kind == VX_METHOD_INFER_STREAM;
    if (stream ? vx_rpc_stream_admit(record) : vx_rpc_record_admit(record)) return false;
    struct vx_why why;
    if (stream)
        vx_why_set(&why,
                   "the server has %d streams open, its limit (streams_max); end one, or "
                   "use ModelInfer",
                   options->streams_max);
    else
        vx_why_set(
            &why,
            "the server has %d calls in flight, its limit (calls_max); try again later",
            options->calls_max);
    count(&record->rpc->refused_full, 1);
    vx_rpc_call_refuse(record, VX_CODE_RESOURCE_EXHAUSTED, why.text);
    return true;
}

static void arrive_admitted(struct vx_rpc_record *record);

static void on_arrive(void *context, bool ok)
{
    struct vx_rpc_record *record = context;
    struct vx_rpc *rpc = record->rpc;
    i32 method = record->call.method;
    if (!ok) { /* the server is shutting down; there is no call */
        vx_rpc_record_unref(record);
        return;
    }
    vx_rpc_queue_arrived(&rpc->queues[record->queue], method);
    record->call.arrived_ns = vx_clock_ns();
    /* First of all, so that rpc learns when the peer leaves, whatever happens next. */
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &record->cancelled_out;
    vx_rpc_batch_start(record, &op, 1, &record->close);
    record->call.peer =
        vx_rpc_accept_peer(rpc->accept, record->grpc, &record->descriptor);
    vx_rpc_govern_arrived(vx_rpc_place_of(record));
    record->arrived = true;
    if (method == VX_RPC_METHOD_UNKNOWN) {
        arrive_unknown(record);
        return;
    }
    count(&rpc->calls[method], 1);
    vx_rpc_metadata_read(record);
    record->call.deadline_ns =
        arrive_deadline_ns(record->deadline, record->call.arrived_ns);
    if (vx_rpc_access_refuses(record) || vx_rpc_metadata_refuses(record)) return;
    if (arrive_refused_draining(record) || arrive_refused_full(record)) return;
    if (record->call.deadline_ns <= record->call.arrived_ns) {
        vx_rpc_call_refuse(record, VX_CODE_DEADLINE_EXCEEDED,
                           "the deadline had passed when the request arrived");
        return;
    }
    arrive_admitted(record);
}

static const char receive_left[] = "the call was cancelled before its message arrived";

static void receive_start(struct vx_rpc_record *record, void (*on)(void *, bool))
{
    record->receive = (struct vx_rpc_tag){on, record};
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &record->payload;
    vx_rpc_batch_start(record, &op, 1, &record->receive);
}

void vx_rpc_message_receive(struct vx_rpc_record *record)
{
    vx_rpc_message_drop(record);
    receive_start(record, on_receive_stream);
}

void vx_rpc_message_drop(struct vx_rpc_record *record)
{
    const size_t bytes = record->payload ? grpc_byte_buffer_length(record->payload) : 0;
    if (record->payload) grpc_byte_buffer_destroy(record->payload);
    record->payload = NULL;
    vx_rpc_govern_received(vx_rpc_place_of(record), bytes);
    grpc_slice_unref(record->flat);
    record->flat = grpc_empty_slice();
    record->call.message = (struct vx_span){0};
}

void vx_rpc_question_drop(struct vx_rpc_record *record)
{
    const i32 method = record->call.method;
    if (method != VX_RPC_METHOD_UNKNOWN && method_reads_first(method))
        vx_rpc_message_drop(record);
}

/* Makes the payload one span: in place when it came as one slice, as small messages
 * do. */
static vx_status message_view(struct vx_rpc_record *record, struct vx_why *why)
{
    size_t bytes = grpc_byte_buffer_length(record->payload);
    count(&record->rpc->bytes_in, bytes);
    VX_ENSURE_WHY(bytes <= VX_QUESTION_BYTES_MAX, why, RESOURCE_EXHAUSTED,
                  "the message is too large",
                  "this method takes messages of at most %d bytes, got %zu",
                  VX_QUESTION_BYTES_MAX, bytes);
    grpc_byte_buffer_reader reader;
    VX_ENSURE(grpc_byte_buffer_reader_init(&reader, record->payload), INVALID_ARGUMENT,
              "the message could not be decompressed");
    grpc_slice *piece;
    if (grpc_byte_buffer_reader_peek(&reader, &piece) &&
        GRPC_SLICE_LENGTH(*piece) == bytes) {
        record->call.message = (struct vx_span){GRPC_SLICE_START_PTR(*piece), bytes};
    } else if (bytes) {
        grpc_byte_buffer_reader_destroy(&reader);
        VX_ASSERT(grpc_byte_buffer_reader_init(&reader, record->payload));
        record->flat = grpc_byte_buffer_reader_readall(&reader);
        record->call.message =
            (struct vx_span){GRPC_SLICE_START_PTR(record->flat), bytes};
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return VX_OK;
}

bool vx_rpc_hand_begin(struct vx_rpc *rpc)
{
    /* Sequentially consistent on both sides: either close waits for us or we see it. */
    atomic_fetch_add(&rpc->handing, 1);
    if (!atomic_load(&rpc->closing)) return true;
    vx_rpc_hand_end(rpc);
    return false;
}

void vx_rpc_hand_end(struct vx_rpc *rpc)
{
    atomic_fetch_sub(&rpc->handing, 1);
}

void vx_rpc_give_to_loop(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    record->call.decoded_ns = vx_clock_ns();
    if (!vx_rpc_hand_begin(rpc)) {
        vx_rpc_inputs_give(record);
        vx_rpc_call_refuse(record, VX_CODE_UNAVAILABLE, vx_rpc_shutting_down);
        return;
    }
    atomic_store_explicit(&record->owner, VX_RPC_LOOP, memory_order_release);
    vx_mailbox_give(rpc->options.arrivals, &record->call.arrival);
    vx_rpc_hand_end(rpc);
}

void vx_rpc_refuse_bad(struct vx_rpc_record *record, vx_status status,
                       const struct vx_why *why)
{
    count(&record->rpc->refused_bad, 1);
    vx_rpc_call_refuse(record, vx_status_code(status), vx_status_text(status, why));
}

static void arrive_admitted(struct vx_rpc_record *record)
{
    struct vx_why why = {{0}};
    switch (vx_method_get(record->call.method)->kind) {
    case VX_METHOD_UNARY_BIG:
        /* Not for streams: they may be silent for as long as they like. */
        vx_rpc_wire_set(record, VX_RPC_RECEIVING);
        vx_rpc_receive_begin(record);
        receive_start(record, on_receive_infer);
        return;
    case VX_METHOD_INFER_STREAM: vx_rpc_stream_start(record); return;
    case VX_METHOD_SERVER_STREAM:
    case VX_METHOD_BIDI: receive_start(record, on_receive_stream); return;
    case VX_METHOD_UNARY: break;
    }
    vx_status status =
        record->payload ? message_view(record, &why) : vx_rpc_message_missing();
    if (status.fault)
        vx_rpc_refuse_bad(record, status, &why);
    else
        vx_rpc_give_to_loop(record);
}

/* The reference of the receive ends here. */
static void infer_is_read(struct vx_rpc_record *record, vx_status status,
                          const struct vx_why *why)
{
    vx_rpc_receive_end(record);
    if (record->cancelled) {
        if (!status.fault) vx_rpc_inputs_give(record);
        vx_rpc_call_end(record, VX_CODE_CANCELLED, receive_left);
    } else if (status.fault) {
        vx_rpc_refuse_bad(record, status, why);
    } else {
        vx_rpc_give_to_loop(record);
    }
    vx_rpc_record_unref(record);
}

static void on_read(void *context, bool ok)
{
    struct vx_rpc_record *record = context;
    struct vx_why why;
    (void)ok;
    const vx_status status = vx_rpc_reader_outcome(record, &why);
    infer_is_read(record, status, &why);
}

static void on_receive_infer(void *context, bool ok)
{
    struct vx_rpc_record *record = context;
    struct vx_why why = {{0}};
    vx_rpc_wire_set(record, VX_RPC_IDLE);
    if (record->cancelled || !ok) {
        vx_rpc_message_drop(record);
        vx_rpc_receive_end(record);
        vx_rpc_call_end(record, VX_CODE_CANCELLED, receive_left);
        vx_rpc_record_unref(record);
    } else if (vx_rpc_reader_wanted(record)) {
        vx_rpc_reader_give(record, on_read);
    } else {
        /* The slices are dropped before the next message is received. */
        struct vx_rpc_desk *desk = &record->rpc->queues[record->queue].desk;
        const vx_status status = vx_rpc_infer_read(record, desk, &why);
        infer_is_read(record, status, &why);
    }
}

/* A message after the first holds a reference until vx_rpc_take_message: the loop may end
 * the stream while the message is on its way. */
static void stream_give_message(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    if (!vx_rpc_hand_begin(rpc)) return;
    vx_rpc_record_ref(record);
    record->message_holds = true;
    vx_mailbox_give(rpc->options.arrivals, &record->call.arrival);
    vx_rpc_hand_end(rpc);
}

static void on_receive_stream(void *context, bool ok)
{
    struct vx_rpc_record *record = context;
    struct vx_why why = {{0}};
    int owner = atomic_load_explicit(&record->owner, memory_order_acquire);
    bool bidi = vx_method_get(record->call.method)->kind == VX_METHOD_BIDI;
    vx_status status = VX_OK;
    record->call.message_end = !ok || !record->payload;
    if (record->payload)
        status = message_view(record, &why);
    else if (!bidi)
        status = vx_rpc_message_missing();
    if (owner == VX_RPC_RPC) {
        if (record->cancelled)
            vx_rpc_call_end(record, VX_CODE_CANCELLED, receive_left);
        else if (status.fault)
            vx_rpc_refuse_bad(record, status, &why);
        else
            vx_rpc_give_to_loop(record);
    } else if (owner == VX_RPC_LOOP) {
        if (record->payload) vx_rpc_govern_taken(vx_rpc_place_of(record));
        if (status.fault) /* `gone` tells the loop */
            grpc_call_cancel_with_status(record->grpc,
                                         (grpc_status_code)vx_status_code(status),
                                         vx_status_text(status, &why), NULL);
        else
            stream_give_message(record);
    }
    vx_rpc_record_unref(record);
}

/* Called once for every call.  `cancelled` is true if the peer, its deadline or the
 * server's shutdown ended the call before our status did. */
static void on_close(void *context, bool ok)
{
    struct vx_rpc_record *record = context;
    struct vx_rpc *rpc = record->rpc;
    (void)ok; /* always true for this operation */
    record->cancelled = record->cancelled_out != 0;
    if (record->stream.started) {
        vx_rpc_stream_on_close(record);
        vx_rpc_record_unref(record);
        return;
    }
    bool of_loop =
        atomic_load_explicit(&record->owner, memory_order_acquire) == VX_RPC_LOOP;
    if (record->cancelled && of_loop && vx_rpc_hand_begin(rpc)) {
        /* This batch's reference becomes the mailbox's. */
        vx_mailbox_give(rpc->options.gone, &record->call.gone);
        vx_rpc_hand_end(rpc);
        return;
    }
    vx_rpc_record_unref(record);
}
