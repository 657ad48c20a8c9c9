/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "server/call/admit.h"

#include <stdio.h>
#include <string.h>

/* Tensors up to this size are copied into the reply: that is cheaper than a gRPC
 * reference count, and the slot is free at once. */
#define REPLY_COPY_BYTES_MAX 4096
/* Slices of a message: one per tensor, one before each of them, and one at the end. */
#define REPLY_SLICES_MAX (2 * VX_REQUEST_OUTPUTS_MAX + 1)

static void on_ended(void *context, bool ok)
{
    (void)ok; /* false: the peer had left; there is nobody to tell */
    vx_rpc_wire_set(context, VX_RPC_IDLE);
    vx_rpc_record_unref(context);
}

/* Starts the last batch of a call; drops the reference of the record's owner. */
void vx_rpc_end_start(struct vx_rpc_record *record, grpc_byte_buffer *message)
{
    vx_rpc_question_drop(record);
    vx_rpc_metadata_drop(record);
    grpc_op ops[3] = {0};
    size_t ops_count = 0;
    if (!record->metadata_sent) ops[ops_count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    record->metadata_sent = true;
    if (message) {
        ops[ops_count].op = GRPC_OP_SEND_MESSAGE;
        ops[ops_count++].data.send_message.send_message = message;
        atomic_fetch_add_explicit(&record->rpc->bytes_out,
                                  grpc_byte_buffer_length(message), memory_order_relaxed);
    }
    grpc_slice text = grpc_slice_from_copied_string(record->end_text);
    ops[ops_count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[ops_count].data.send_status_from_server.status = record->end_code;
    ops[ops_count++].data.send_status_from_server.status_details =
        record->end_code == GRPC_STATUS_OK ? NULL : &text;
    record->send = (struct vx_rpc_tag){on_ended, record};
    vx_rpc_wire_set(record, VX_RPC_SENDING);
    record->ended = true;
    vx_rpc_govern_share(vx_rpc_place_of(record), VX_RPC_SHARE_ENDED, 1);
    vx_rpc_govern_answered(vx_rpc_place_of(record),
                           message ? grpc_byte_buffer_length(message) : 0);
    vx_rpc_batch_start(record, ops, ops_count, &record->send);
    grpc_slice_unref(text);
    if (message) grpc_byte_buffer_destroy(message); /* the batch has its own references */
    vx_rpc_record_unref(record);
}

static void end_set(struct vx_rpc_record *record, enum vx_code code, const char *text)
{
    record->end_code = (grpc_status_code)code; /* status.def has gRPC's numbers */
    snprintf(record->end_text, sizeof record->end_text, "%s", text);
    atomic_store_explicit(&record->owner, VX_RPC_ANSWERED, memory_order_release);
}

static grpc_byte_buffer *message_copy(const void *bytes, size_t length)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, length);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return message;
}

/* Answers with an error inside the stream, which goes on, unless it is strict. */
static void request_fail(struct vx_rpc_record *child)
{
    u8 bytes[VX_STREAM_ERROR_BYTES_MAX];
    grpc_byte_buffer *message = NULL;
    if (!child->parent->stream.strict) {
        const struct vx_request *request = &child->call.request;
        size_t length =
            vx_codec_pack_stream_error(child->end_text, request, bytes, sizeof bytes);
        message = message_copy(bytes, length);
    }
    vx_rpc_stream_answer(child, message);
}

void vx_rpc_call_end(struct vx_rpc_record *record, enum vx_code code, const char *text)
{
    end_set(record, code, text);
    if (record->parent)
        request_fail(record);
    else
        vx_rpc_end_start(record, NULL);
}

void vx_rpc_refusal_tell(const struct vx_rpc_record *record, enum vx_code code,
                         const char *model, const char *text)
{
    const struct vx_rpc_options *options = &record->rpc->options;
    i32 method = record->call.method;
    const char *path = method == VX_RPC_METHOD_UNKNOWN ? "" : vx_method_get(method)->path;
    if (options->on_refused)
        options->on_refused(options->context, &(struct vx_rpc_refusal){.code = code,
                                                                       .method = path,
                                                                       .model = model,
                                                                       .text = text});
}

void vx_rpc_call_refuse(struct vx_rpc_record *record, enum vx_code code, const char *text)
{
    vx_rpc_refusal_tell(record, code, record->call.request.model, text);
    if (!record->parent) {
        pthread_mutex_lock(&record->rpc->lock);
        vx_rpc_refused_count(record, true);
        pthread_mutex_unlock(&record->rpc->lock);
    }
    vx_rpc_call_end(record, code, text);
}

static struct vx_rpc_record *reply_take(struct vx_call **call)
{
    VX_ON(LOOP);
    struct vx_rpc_record *record = vx_rpc_record_of(*call);
    VX_ASSERT(atomic_load_explicit(&record->owner, memory_order_relaxed) == VX_RPC_LOOP);
    *call = NULL;
    return record;
}

/* A reply that is being built: bytes are collected in `text` until a tensor is lent; then
 * both become slices. */
struct reply_slices {
    grpc_slice list[REPLY_SLICES_MAX];
    size_t count;
    u8 text[VX_STREAM_PREFIX_BYTES_MAX + VX_REPLY_HEAD_BYTES_MAX +
            VX_REQUEST_OUTPUTS_MAX * (VX_RAW_PREFIX_BYTES_MAX + REPLY_COPY_BYTES_MAX)];
    size_t length;
};

static void slices_flush(struct reply_slices *slices)
{
    if (!slices->length) return;
    slices->list[slices->count++] =
        grpc_slice_from_copied_buffer((const char *)slices->text, slices->length);
    slices->length = 0;
}

/* Puts a stream's prefix before the head, so that the reply of `total` bytes becomes a
 * field of the stream's message. */
static void slices_nest(struct reply_slices *slices, u64 total)
{
    u8 prefix[VX_STREAM_PREFIX_BYTES_MAX];
    size_t length = vx_codec_pack_stream_prefix(total, prefix, sizeof prefix);
    memmove(slices->text + length, slices->text, slices->length);
    memcpy(slices->text, prefix, length);
    slices->length += length;
}

static bool slices_add_tensor(struct vx_rpc *rpc, struct reply_slices *slices,
                              const struct vx_place *slot)
{
    slices->length += vx_codec_pack_raw_prefix(slot->bytes, slices->text + slices->length,
                                               sizeof slices->text - slices->length);
    const struct vx_slots *slots = rpc->options.slots;
    if (slot->bytes > REPLY_COPY_BYTES_MAX) {
        slices_flush(slices);
        return vx_rpc_lend_slot(rpc, *slot, &slices->list[slices->count++]);
    }
    if (!slot->bytes) return true;
    memcpy(slices->text + slices->length, slots->memory(slots->context, slot),
           slot->bytes);
    slices->length += slot->bytes;
    struct vx_place taken = *slot;
    slots->give(slots->context, &taken);
    return true;
}

static void reply_give_slots(struct vx_rpc *rpc, const struct vx_place *outputs,
                             i32 outputs_count)
{
    const struct vx_slots *slots = rpc->options.slots;
    for (i32 i = 0; i < outputs_count; i++) {
        struct vx_place slot = outputs[i];
        if (slot.bytes) slots->give(slots->context, &slot);
    }
}

static u64 reply_bytes(const struct vx_reply *reply, size_t head_bytes)
{
    u64 total = head_bytes;
    u8 prefix[VX_RAW_PREFIX_BYTES_MAX];
    for (i32 i = 0; i < reply->outputs_count; i++)
        total +=
            vx_codec_pack_raw_prefix(reply->outputs[i].bytes, prefix, sizeof prefix) +
            reply->outputs[i].bytes;
    return total;
}

static vx_status reply_check_size(const struct vx_reply *reply, u64 total,
                                  struct vx_why *why)
{
    char text[VX_ADMIT_SMALLER_BYTES];
    VX_ENSURE_WHY(total <= VX_MESSAGE_BYTES_MAX - VX_STREAM_PREFIX_BYTES_MAX, why,
                  INVALID_ARGUMENT, "the reply is too large",
                  "the reply of %llu bytes exceeds gRPC's byte size limit of %d: %s",
                  (unsigned long long)total, VX_MESSAGE_BYTES_MAX,
                  vx_admit_smaller(reply->outputs, reply->outputs_count, 0, text));
    return VX_OK;
}

void vx_rpc_reply_infer(struct vx_rpc *rpc, struct vx_call **call,
                        const struct vx_reply *reply, const struct vx_place *outputs)
{
    struct vx_rpc_record *record = reply_take(call);
    struct reply_slices slices;
    slices.count = 0;
    slices.length = vx_codec_pack_reply_head(reply, slices.text, VX_REPLY_HEAD_BYTES_MAX);
    struct vx_why why;
    u64 total = reply_bytes(reply, slices.length);
    if (record->parent) slices_nest(&slices, total);
    vx_status status = reply_check_size(reply, total, &why);
    if (status.fault) {
        reply_give_slots(rpc, outputs, reply->outputs_count);
        vx_rpc_call_end(record, vx_status_code(status), vx_status_text(status, &why));
        return;
    }
    for (i32 i = 0; i < reply->outputs_count; i++) {
        VX_ASSERT(outputs[i].bytes == reply->outputs[i].bytes);
        if (slices_add_tensor(rpc, &slices, &outputs[i])) continue;
        /* Only when gRPC still holds, for peers that are gone, as many slices as all
         * calls together may have. */
        slices.count--;
        for (size_t k = 0; k < slices.count; k++) grpc_slice_unref(slices.list[k]);
        reply_give_slots(rpc, outputs + i, reply->outputs_count - i);
        vx_rpc_call_end(
            record, VX_CODE_RESOURCE_EXHAUSTED,
            "too many answers wait for clients that do not read them; try again later");
        return;
    }
    slices_flush(&slices);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(slices.list, slices.count);
    for (size_t k = 0; k < slices.count; k++) grpc_slice_unref(slices.list[k]);
    end_set(record, VX_CODE_OK, "");
    if (record->parent)
        vx_rpc_stream_answer(record, message);
    else if (vx_rpc_sender_wanted(rpc, grpc_byte_buffer_length(message)))
        vx_rpc_sender_give(record, message);
    else
        vx_rpc_end_start(record, message);
}

void vx_rpc_reply(struct vx_rpc *rpc, struct vx_call **call, const void *bytes,
                  size_t length)
{
    (void)rpc;
    struct vx_rpc_record *record = reply_take(call);
    if (!vx_rpc_govern_answer_take(vx_rpc_place_of(record), length)) {
        vx_rpc_call_end(record, VX_CODE_RESOURCE_EXHAUSTED,
                        "too many bytes of answers wait for clients that do not read; "
                        "try again later");
        return;
    }
    record->answer_bytes = length;
    end_set(record, VX_CODE_OK, "");
    vx_rpc_end_start(record, message_copy(length ? bytes : "", length));
}

/* Streams.  The thread that sets `busy` sends; when its batch completes, on_stream_sent
 * sends the next message or clears `busy`.  So send batches never overlap, whichever
 * thread starts them. */
static void on_stream_sent(void *context, bool ok);

static void stream_send_next(struct vx_rpc_record *record)
{
    struct vx_rpc_outbox *outbox = &record->outbox;
    grpc_byte_buffer *message = outbox->ring[outbox->first]; /* ours while busy */
    grpc_op ops[2] = {0};
    size_t ops_count = 0;
    if (!record->metadata_sent) ops[ops_count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    record->metadata_sent = true;
    ops[ops_count].op = GRPC_OP_SEND_MESSAGE;
    ops[ops_count++].data.send_message.send_message = message;
    vx_rpc_govern_answered(vx_rpc_place_of(record), grpc_byte_buffer_length(message));
    atomic_fetch_add_explicit(&record->rpc->bytes_out, grpc_byte_buffer_length(message),
                              memory_order_relaxed);
    record->send = (struct vx_rpc_tag){on_stream_sent, record};
    vx_rpc_batch_start(record, ops, ops_count, &record->send);
}

static void on_stream_sent(void *context, bool ok)
{
    struct vx_rpc_record *record = context;
    struct vx_rpc *rpc = record->rpc;
    struct vx_rpc_outbox *outbox = &record->outbox;
    grpc_byte_buffer *sent[VX_STREAM_SENDS_MAX];
    i32 sent_count = 0;
    pthread_mutex_lock(&rpc->lock);
    if (!ok) outbox->broken = true;
    do { /* what was sent, or all messages when the send failed */
        sent[sent_count++] = outbox->ring[outbox->first];
        outbox->first = (outbox->first + 1) % VX_STREAM_SENDS_MAX;
        outbox->count--;
    } while (outbox->broken && outbox->count);
    bool more = outbox->count > 0;
    bool end = !more && outbox->ending;
    outbox->busy = more;
    pthread_mutex_unlock(&rpc->lock);
    for (i32 i = 0; i < sent_count; i++) grpc_byte_buffer_destroy(sent[i]);
    if (more) stream_send_next(record);
    if (end) vx_rpc_end_start(record, NULL);
    vx_rpc_record_unref(record);
}

bool vx_rpc_send(struct vx_rpc *rpc, struct vx_call *call, const void *bytes,
                 size_t length)
{
    VX_ON(LOOP);
    struct vx_rpc_record *record = vx_rpc_record_of(call);
    VX_ASSERT(atomic_load_explicit(&record->owner, memory_order_relaxed) == VX_RPC_LOOP);
    grpc_byte_buffer *message = message_copy(length ? bytes : "", length);
    struct vx_rpc_outbox *outbox = &record->outbox;
    pthread_mutex_lock(&rpc->lock);
    bool fits = outbox->count < VX_STREAM_SENDS_MAX;
    bool keep = fits && !outbox->broken;
    bool start = keep && !outbox->busy;
    if (keep) {
        i32 last = (outbox->first + outbox->count++) % VX_STREAM_SENDS_MAX;
        outbox->ring[last] = message;
        outbox->busy = true;
    }
    pthread_mutex_unlock(&rpc->lock);
    if (!keep) grpc_byte_buffer_destroy(message);
    if (start) stream_send_next(record);
    return fits; /* a broken stream drops the message: `gone` is on its way */
}

void vx_rpc_receive(struct vx_rpc *rpc, struct vx_call *call)
{
    VX_ON(LOOP);
    (void)rpc;
    struct vx_rpc_record *record = vx_rpc_record_of(call);
    VX_ASSERT(vx_method_get(call->method)->kind == VX_METHOD_BIDI);
    VX_ASSERT(atomic_load_explicit(&record->owner, memory_order_relaxed) == VX_RPC_LOOP);
    vx_rpc_message_receive(record);
}

bool vx_rpc_take_message(struct vx_rpc *rpc, struct vx_call *call)
{
    VX_ON(LOOP);
    (void)rpc;
    struct vx_rpc_record *record = vx_rpc_record_of(call);
    bool open = atomic_load_explicit(&record->owner, memory_order_relaxed) == VX_RPC_LOOP;
    bool holds = record->message_holds;
    record->message_holds = false;
    if (holds) vx_rpc_record_unref(record);
    return open;
}

void vx_rpc_message_end(struct vx_rpc *rpc, struct vx_call *call)
{
    VX_ON(LOOP);
    (void)rpc;
    vx_rpc_message_drop(vx_rpc_record_of(call));
}

/* Sends the status now, or after the last message that is being sent. */
static void reply_end(struct vx_rpc_record *record, enum vx_code code, const char *text)
{
    if (record->parent) {
        vx_rpc_call_end(record, code, text);
        return;
    }
    end_set(record, code, text);
    pthread_mutex_lock(&record->rpc->lock);
    bool now = !record->outbox.busy;
    record->outbox.ending = true;
    pthread_mutex_unlock(&record->rpc->lock);
    if (now) vx_rpc_end_start(record, NULL);
}

void vx_rpc_fail(struct vx_rpc *rpc, struct vx_call **call, vx_status status,
                 const struct vx_why *why)
{
    (void)rpc;
    VX_ASSERT(status.fault);
    reply_end(reply_take(call), vx_status_code(status), vx_status_text(status, why));
}

void vx_rpc_finish(struct vx_rpc *rpc, struct vx_call **call)
{
    (void)rpc;
    reply_end(reply_take(call), VX_CODE_OK, "");
}

void vx_rpc_release_gone(struct vx_rpc *rpc, struct vx_call *call)
{
    (void)rpc;
    vx_rpc_record_unref(vx_rpc_record_of(call));
}
