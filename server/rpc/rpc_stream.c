/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <stdio.h>
#include <string.h>

static const char stream_left[] = "the client cancelled the call or disconnected";

static void on_message(void *context, bool ok);
static void on_sent(void *context, bool ok);

/* Sets why the stream ends, unless that is set already.  Under the lock. */
static void stream_set_end(struct vx_rpc_record *parent, grpc_status_code code,
                           const char *text)
{
    if (parent->end_code != GRPC_STATUS_OK || parent->stream.ended) return;
    parent->end_code = code;
    snprintf(parent->end_text, sizeof parent->end_text, "%s", text);
}

static void stream_receive(struct vx_rpc_record *parent)
{
    /* `wire` stays idle: streams may be silent for as long as they like. */
    parent->receive = (struct vx_rpc_tag){on_message, parent};
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &parent->payload;
    vx_rpc_batch_start(parent, &op, 1, &parent->receive);
}

void vx_rpc_stream_write(struct vx_rpc_record *parent)
{
    /* No other thread takes it out of the queue while `sending` is set. */
    grpc_byte_buffer *message = parent->stream.first->answer;
    grpc_op ops[2] = {0};
    size_t ops_count = 0;
    if (!parent->metadata_sent) ops[ops_count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    parent->metadata_sent = true;
    ops[ops_count].op = GRPC_OP_SEND_MESSAGE;
    ops[ops_count++].data.send_message.send_message = message;
    vx_rpc_govern_answered(vx_rpc_place_of(parent), grpc_byte_buffer_length(message));
    atomic_fetch_add_explicit(&parent->rpc->bytes_out, grpc_byte_buffer_length(message),
                              memory_order_relaxed);
    parent->send = (struct vx_rpc_tag){on_sent, parent};
    vx_rpc_wire_set(parent, VX_RPC_SENDING);
    vx_rpc_batch_start(parent, ops, ops_count, &parent->send);
}

/* Once `closing` is set, the senders may be gone. */
static void stream_send(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    size_t bytes = grpc_byte_buffer_length(parent->stream.first->answer);
    if (!vx_rpc_sender_wanted(rpc, bytes) || !vx_rpc_hand_begin(rpc)) {
        vx_rpc_stream_write(parent);
        return;
    }
    vx_rpc_sender_give(parent, NULL);
    vx_rpc_hand_end(rpc);
}

/* Takes the answers that will not be sent, linked by `next`.  Under the lock. */
static struct vx_rpc_record *stream_take_unsent(struct vx_rpc_stream *stream)
{
    struct vx_rpc_record *unsent = NULL, **at = &stream->first;
    if (stream->sending) at = &stream->first->next;
    while (*at) {
        struct vx_rpc_record *child = *at;
        if (!child->answered) {
            at = &child->next;
            continue;
        }
        *at = child->next;
        stream->count--;
        child->next = unsent;
        unsent = child;
    }
    stream->last = at;
    return unsent;
}

/* The only place that decides what a stream does next.  Called after each change, with a
 * reference, by any thread. */
static void stream_step(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    struct vx_rpc_stream *stream = &parent->stream;
    struct vx_rpc_record *unsent = NULL;
    pthread_mutex_lock(&rpc->lock);
    struct vx_rpc_record *turn = stream->sending ? NULL : stream->first;
    if (turn && !turn->answered) turn = NULL;
    if (turn && !turn->answer) { /* only in a strict stream: its first error ends it */
        stream_set_end(parent, turn->end_code, turn->end_text);
        stream->over = true;
    }
    bool send = turn && !stream->over;
    bool read = !stream->over && !stream->reading && !stream->read_end &&
                stream->count < VX_STREAM_REQUESTS_MAX && vx_rpc_spare_take(parent);
    bool end = !send && !stream->sending && !stream->ended &&
               (stream->over || (stream->read_end && !stream->first));
    if (send) stream->sending = true;
    if (read) stream->reading = true;
    if (end) stream->ended = stream->over = true;
    if (stream->over) unsent = stream_take_unsent(stream);
    pthread_mutex_unlock(&rpc->lock);
    while (unsent) {
        struct vx_rpc_record *child = unsent;
        unsent = child->next;
        vx_rpc_record_unref(child);
    }
    if (send) stream_send(parent);
    if (read) stream_receive(parent);
    if (!end) return;
    atomic_store_explicit(&parent->owner, VX_RPC_ANSWERED, memory_order_release);
    vx_rpc_end_start(parent, NULL);
}

static void on_sent(void *context, bool ok)
{
    struct vx_rpc_record *parent = context;
    struct vx_rpc *rpc = parent->rpc;
    struct vx_rpc_stream *stream = &parent->stream;
    vx_rpc_wire_set(parent, VX_RPC_IDLE);
    pthread_mutex_lock(&rpc->lock);
    struct vx_rpc_record *child = stream->first;
    stream->first = child->next;
    if (!stream->first) stream->last = &stream->first;
    stream->count--;
    stream->sending = false;
    if (child->end_code == GRPC_STATUS_OK) {
        stream->active_ns = vx_clock_ns();
        vx_rpc_stream_served(parent);
    }
    if (!ok) {
        stream_set_end(parent, GRPC_STATUS_CANCELLED, stream_left);
        stream->over = true;
    }
    pthread_mutex_unlock(&rpc->lock);
    vx_rpc_record_unref(child);
    stream_step(parent);
    vx_rpc_record_unref(parent);
}

void vx_rpc_stream_answer(struct vx_rpc_record *child, grpc_byte_buffer *message)
{
    struct vx_rpc_record *parent = child->parent;
    struct vx_rpc *rpc = parent->rpc;
    vx_rpc_record_ref(parent); /* the child may be gone before the step is done */
    pthread_mutex_lock(&rpc->lock);
    child->answer = message;
    child->answered = true;
    pthread_mutex_unlock(&rpc->lock);
    stream_step(parent);
    vx_rpc_record_unref(parent);
}

/* ------- messages ------- */

static void child_init(struct vx_rpc_record *child, struct vx_rpc_record *parent)
{
    child->call = (struct vx_call){.magic = VX_CALL_MAGIC,
                                   .method = parent->call.method,
                                   .peer = parent->call.peer,
                                   .arrived_ns = vx_clock_ns(),
                                   .deadline_ns = parent->call.deadline_ns};
    child->call.ticket = parent->call.ticket;
    memcpy(child->call.traceparent, parent->call.traceparent,
           sizeof child->call.traceparent);
    memcpy(child->call.tracestate, parent->call.tracestate,
           sizeof child->call.tracestate);
    child->queue = parent->queue;
    child->cancelled = child->waiting = child->metadata_sent = false;
    child->message_holds = false;
    child->outbox = (struct vx_rpc_outbox){0};
    child->payload = parent->payload;
    parent->payload = NULL;
    child->flat = grpc_empty_slice();
    grpc_metadata_array_init(&child->metadata);
}

static bool stream_is_over(struct vx_rpc_record *parent)
{
    pthread_mutex_lock(&parent->rpc->lock);
    const bool over = parent->stream.over;
    pthread_mutex_unlock(&parent->rpc->lock);
    return over;
}

static void request_handle(struct vx_rpc_record *child, vx_status status,
                           const struct vx_why *why)
{
    struct vx_rpc *rpc = child->rpc;
    if (stream_is_over(child->parent)) {
        if (!status.fault) vx_rpc_inputs_give(child);
        vx_rpc_call_end(child, VX_CODE_CANCELLED, stream_left);
    } else if (status.fault) {
        vx_rpc_refuse_bad(child, status, why);
    } else if (atomic_load_explicit(&rpc->refusing, memory_order_relaxed)) {
        /* It was decoded all the same: the answer carries its id. */
        vx_rpc_inputs_give(child);
        atomic_fetch_add_explicit(&rpc->refused_draining, 1, memory_order_relaxed);
        vx_rpc_call_refuse(child, VX_CODE_UNAVAILABLE, vx_rpc_shutting_down);
    } else {
        vx_rpc_give_to_loop(child);
    }
}

/* The next message may be received. */
static void stream_is_read(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    pthread_mutex_lock(&rpc->lock);
    parent->stream.reading = false;
    pthread_mutex_unlock(&rpc->lock);
    stream_step(parent);
}

static void on_read(void *context, bool ok)
{
    struct vx_rpc_record *child = context, *parent = child->parent;
    struct vx_why why;
    (void)ok;
    const vx_status status = vx_rpc_reader_outcome(child, &why);
    request_handle(child, status, &why);
    stream_is_read(parent);
    vx_rpc_record_unref(child);
    vx_rpc_record_unref(parent);
}

/* The message is the parent's payload; the child is in the queue already. */
static void stream_take_request(struct vx_rpc_record *parent, struct vx_rpc_record *child)
{
    struct vx_why why = {{0}};
    child_init(child, parent);
    const bool over = stream_is_over(parent);
    if (!over && vx_rpc_reader_wanted(child)) {
        vx_rpc_record_ref(child);
        vx_rpc_record_ref(parent);
        vx_rpc_reader_give(child, on_read);
        return;
    }
    if (over) {
        vx_rpc_call_end(child, VX_CODE_CANCELLED, stream_left);
    } else {
        struct vx_rpc_desk *desk = &child->rpc->queues[child->queue].desk;
        const vx_status status = vx_rpc_infer_read(child, desk, &why);
        request_handle(child, status, &why);
    }
    stream_is_read(parent);
}

static void stream_read_end(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    vx_rpc_message_drop(parent);
    pthread_mutex_lock(&rpc->lock);
    parent->stream.reading = false;
    parent->stream.read_end = true;
    pthread_mutex_unlock(&rpc->lock);
    stream_step(parent);
}

static void on_message(void *context, bool ok)
{
    struct vx_rpc_record *parent = context;
    if (parent->payload && parent->stream.heard)
        vx_rpc_govern_taken(vx_rpc_place_of(parent));
    if (!parent->stream.heard) vx_rpc_stream_heard(parent);
    parent->stream.heard = true;
    if (ok && parent->payload && !parent->cancelled) {
        /* Keeps the tag's reference. */
        vx_call_turns_add(&parent->rpc->queues[parent->queue].turn.streams,
                          &parent->call);
        return;
    }
    stream_read_end(parent);
    vx_rpc_record_unref(parent);
}

void vx_rpc_stream_hear(struct vx_call *call)
{
    struct vx_rpc_record *parent = vx_rpc_record_of(call);
    stream_take_request(parent, vx_rpc_child_make(parent));
    vx_rpc_record_unref(parent);
}

void vx_rpc_stream_wake(struct vx_rpc_record *parent)
{
    stream_step(parent);
    vx_rpc_record_unref(parent);
}

/* ------- begin and end ------- */

void vx_rpc_stream_start(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    vx_rpc_record_ref(parent);
    pthread_mutex_lock(&rpc->lock);
    parent->stream.started = true;
    pthread_mutex_unlock(&rpc->lock);
    stream_step(parent);
    vx_rpc_record_unref(parent);
}

void vx_rpc_stream_on_close(struct vx_rpc_record *parent)
{
    struct vx_rpc *rpc = parent->rpc;
    struct vx_rpc_stream *stream = &parent->stream;
    struct vx_rpc_record *left[VX_STREAM_REQUESTS_MAX];
    i32 left_count = 0;
    bool waited = vx_rpc_spare_forgo(parent);
    pthread_mutex_lock(&rpc->lock);
    stream_set_end(parent, GRPC_STATUS_CANCELLED, stream_left);
    stream->over = true;
    for (struct vx_rpc_record *child = stream->first; child; child = child->next) {
        if (atomic_load_explicit(&child->owner, memory_order_acquire) != VX_RPC_LOOP)
            continue;
        vx_rpc_record_ref(child);
        left[left_count++] = child;
    }
    pthread_mutex_unlock(&rpc->lock);
    for (i32 i = 0; i < left_count; i++) {
        if (!vx_rpc_hand_begin(rpc)) {
            vx_rpc_record_unref(left[i]);
            continue;
        }
        vx_mailbox_give(rpc->options.gone, &left[i]->call.gone);
        vx_rpc_hand_end(rpc);
    }
    stream_step(parent);
    if (waited) vx_rpc_record_unref(parent);
}

void vx_rpc_stream_stop(struct vx_rpc_record *record)
{
    struct vx_rpc *rpc = record->rpc;
    if (!vx_rpc_record_hold(record)) return;
    pthread_mutex_lock(&rpc->lock);
    bool streams = record->stream.started;
    if (streams) {
        stream_set_end(record, GRPC_STATUS_UNAVAILABLE, "GRPC server is shutting down");
        record->stream.read_end = true;
    }
    pthread_mutex_unlock(&rpc->lock);
    if (streams) stream_step(record);
    vx_rpc_record_unref(record);
}
