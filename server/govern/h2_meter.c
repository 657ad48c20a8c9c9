/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/h2_meter.h"

#include "engine/base/process/check.h"
#include "server/govern/h2_credit.h"
#include "server/govern/h2_whole.h"

#include <string.h>

enum {
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    WINDOW_UPDATE = 8,
    CONTINUATION = 9
};
enum { ACK = 0x1, END_STREAM = 0x1, END_HEADERS = 0x4, PADDED = 0x8, PRIORITY = 0x20 };

#define PRIORITY_BYTES 5

void vx_h2_meter_init(struct vx_h2_meter *meter, struct vx_h2_stream *streams,
                      i32 streams_max, i64 message_bytes_max)
{
    VX_ASSERT(streams_max > 0);
    VX_ASSERT(message_bytes_max > 0 && message_bytes_max <= INT32_MAX);
    *meter = (struct vx_h2_meter){.streams = streams,
                                  .streams_max = streams_max,
                                  .message_bytes_max = message_bytes_max,
                                  .stream_window = VX_H2_WINDOW_BYTES,
                                  .preface_left = VX_H2_PREFACE_BYTES,
                                  .buffers = 1,
                                  .window = VX_H2_WINDOW_BYTES,
                                  .stream = -1};
    vx_hpack_init(&meter->hpack);
}

/* ------- streams ------- */

/* The index of the stream, or the place to insert it. */
static i32 stream_place(const struct vx_h2_meter *meter, u32 id)
{
    i32 low = 0, high = meter->streams_count;
    while (low < high) {
        i32 middle = low + (high - low) / 2;
        if (meter->streams[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static i32 stream_find(const struct vx_h2_meter *meter, u32 id)
{
    i32 at = stream_place(meter, id);
    return at < meter->streams_count && meter->streams[at].id == id ? at : -1;
}

struct vx_h2_stream *vx_h2_meter_stream(const struct vx_h2_meter *meter, u32 id)
{
    i32 at = stream_find(meter, id);
    return at < 0 ? NULL : &meter->streams[at];
}

void vx_h2_meter_window(struct vx_h2_meter *meter, struct vx_h2_stream *stream,
                        enum vx_h2_window window)
{
    const i64 left = stream->left;
    meter->barred += left * (window == VX_H2_WINDOW_HELD) -
                     left * (stream->window == VX_H2_WINDOW_HELD);
    stream->window = (u8)window;
    stream->still = 0;
}

/* Ids only grow, so a new one is appended. */
static void stream_open(struct vx_h2_meter *meter, u32 id)
{
    if (meter->streams_count == meter->streams_max) {
        meter->fault = VX_H2_STREAMS_MANY;
        return;
    }
    meter->streams[meter->streams_count++] =
        (struct vx_h2_stream){.id = id, .credit = meter->stream_window};
    meter->silent++;
}

/* It has sent a byte of a message, or ends. */
static void silence_end(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    if (stream->spoke) return;
    stream->spoke = true;
    meter->silent--;
}

/* Its call goes on, or is over. */
static void headers_end(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    meter->heavy -= stream->heavy;
    stream->heavy = 0;
}

/* The current message is complete, or its rest will not come. */
static void message_end(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    if (!stream->got) return;
    meter->came -= stream->got;
    meter->held -= stream->held;
    if (stream->have == VX_H2_PREFIX_BYTES) {
        meter->announced -= stream->length;
        meter->large -= stream->length >= VX_H2_MESSAGE_LONG;
    }
    meter->unfinished--;
    vx_h2_meter_window(meter, stream, VX_H2_WINDOW_FIRST);
    stream->got = stream->length = stream->left = 0;
    stream->held = stream->buffer = stream->here = stream->weight = 0;
    stream->have = 0;
}

static void waiting_add(struct vx_h2_meter *meter, struct vx_h2_stream *stream, i32 count,
                        i64 came, i64 held)
{
    stream->waiting += count;
    stream->waiting_came += came;
    stream->waiting_held += held;
    meter->waiting += count;
    meter->waiting_came += came;
    meter->waiting_held += held;
}

/* A whole message that waits: its buffers, but for one that is counted already. */
static void message_wait(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    bool counted = stream->buffer == meter->waiting_buffer;
    i64 held = stream->held - (counted ? stream->weight : 0);
    waiting_add(meter, stream, 1, stream->got, held);
    meter->waiting_buffer = stream->buffer;
}

static void message_finish(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    meter->finished++;
    headers_end(meter, stream);
    if (stream->later) message_wait(meter, stream);
    /* gRPC drops one that is too large. */
    if (stream->length >= VX_H2_MESSAGE_WHOLE &&
        stream->length <= meter->message_bytes_max)
        vx_h2_whole_set(meter, stream, stream->length);
    stream->later = true;
    message_end(meter, stream);
}

/* Its client sends nothing more. */
static void sending_end(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    silence_end(meter, stream);
    headers_end(meter, stream);
    message_end(meter, stream);
}

static void stream_close(struct vx_h2_meter *meter, i32 at)
{
    if (at < 0) return;
    struct vx_h2_stream *stream = &meter->streams[at];
    sending_end(meter, stream);
    waiting_add(meter, stream, -stream->waiting, -stream->waiting_came,
                -stream->waiting_held);
    meter->withheld -= stream->withheld > 0;
    meter->overdrawn -= stream->credit < 0;
    vx_h2_whole_orphan(meter, stream);
    meter->streams_count--;
    memmove(stream, stream + 1, (size_t)(meter->streams_count - at) * sizeof *stream);
    if (meter->stream == at)
        meter->stream = -1;
    else if (meter->stream > at)
        meter->stream--;
}

/* gRPC keeps the call until we have ended it, too. */
static void stream_end(struct vx_h2_meter *meter, i32 at)
{
    if (at < 0) return;
    struct vx_h2_stream *stream = &meter->streams[at];
    sending_end(meter, stream);
    stream->ended = true;
    if (stream->answered) stream_close(meter, at);
}

/* ------- messages ------- */

/* What the bytes of a message in the current buffer count as.  Without buffers, as
 * themselves. */
static u32 weight_of(const struct vx_h2_meter *meter, u32 here, u32 before)
{
    bool small = meter->left < VX_H2_PIECE_SMALL;
    u32 least = before ? before : small ? meter->buffer_bytes : meter->buffer_bytes / 2;
    return here > least ? here : least;
}

/* So many more bytes of a message have come. */
static void message_grow(struct vx_h2_meter *meter, struct vx_h2_stream *stream,
                         u32 count)
{
    if (stream->buffer != meter->buffers) stream->here = stream->weight = 0;
    stream->buffer = meter->buffers;
    stream->here += count;
    u32 weight = weight_of(meter, stream->here, stream->weight);
    stream->held += weight - stream->weight;
    meter->held += weight - stream->weight;
    stream->weight = weight;
    stream->got += count;
    meter->came += count;
    meter->bytes += count;
}

static void prefix_take(struct vx_h2_meter *meter, struct vx_h2_stream *stream, u8 byte)
{
    if (!stream->have) meter->unfinished++;
    if (stream->have) stream->length = stream->length << 8 | byte; /* after the flag */
    stream->have++;
    message_grow(meter, stream, 1);
    if (stream->have < VX_H2_PREFIX_BYTES) return;
    stream->left = stream->length;
    meter->announced += stream->length;
    meter->large += stream->length >= VX_H2_MESSAGE_LONG;
    meter->wide |= stream->length > VX_H2_WINDOW_BYTES - VX_H2_PREFIX_BYTES;
    if (stream->length > meter->message_bytes_max + VX_H2_MESSAGE_EXCESS)
        meter->fault = VX_H2_MESSAGE_LARGE;
    if (!stream->left) message_finish(meter, stream);
}

static void body_take(struct vx_h2_meter *meter, struct vx_h2_stream *stream, u32 count)
{
    if (stream->window == VX_H2_WINDOW_HELD) meter->barred -= count;
    stream->fresh += count;
    stream->left -= count;
    message_grow(meter, stream, count);
    if (!stream->left) message_finish(meter, stream);
}

static void data_take(struct vx_h2_meter *meter, const u8 *bytes, u32 count)
{
    if (meter->stream < 0) return;
    struct vx_h2_stream *stream = &meter->streams[meter->stream];
    if (count) silence_end(meter, stream);
    while (count && !meter->fault) {
        u32 taken = 1;
        if (stream->have < VX_H2_PREFIX_BYTES) {
            prefix_take(meter, stream, *bytes);
        } else {
            taken = count < stream->left ? count : stream->left;
            body_take(meter, stream, taken);
        }
        bytes += taken;
        count -= taken;
    }
}

/* ------- frames ------- */

static u32 units(u32 bytes)
{
    return 1 + bytes / VX_H2_UNIT_BYTES;
}

/* An honest client may write its message in small frames: 1 MB in frames of 200 bytes. */
static void piece_begin(struct vx_h2_meter *meter)
{
    struct vx_h2_stream *stream = &meter->streams[meter->stream];
    meter->work += meter->pieces++ % VX_H2_UNIT_PIECES == 0;
    if (!stream->got) return;
    stream->held += VX_H2_PIECE_BYTES;
    meter->held += VX_H2_PIECE_BYTES;
}

static void data_begin(struct vx_h2_meter *meter)
{
    meter->window -= meter->left;
    meter->stream = stream_find(meter, meter->id);
    struct vx_h2_stream *stream =
        meter->stream < 0 ? NULL : meter->streams + meter->stream;
    /* gRPC counts what comes behind the end, too. */
    if (stream) vx_h2_credit_add(meter, stream, -(i64)meter->left);
    if (stream && stream->ended) meter->stream = -1;
    if (meter->stream < 0)
        meter->work += 1 + meter->left / VX_H2_WASTE_BYTES;
    else if (!meter->left || meter->flags & PADDED)
        meter->work++; /* no gRPC client pads: all of it may be padding */
    else if (meter->left < VX_H2_UNIT_BYTES)
        piece_begin(meter);
    meter->pad_due = meter->flags & PADDED && meter->left;
}

static void headers_begin(struct vx_h2_meter *meter)
{
    /* Even ids are the server's. */
    bool begins = meter->id > meter->last_id && meter->id % 2;
    meter->block = meter->left;
    vx_hpack_begin(&meter->hpack);
    meter->priority_left = meter->flags & PRIORITY ? PRIORITY_BYTES : 0;
    /* gRPC would take them for fields when a CONTINUATION follows. */
    if (meter->left < meter->priority_left) meter->fault = VX_H2_BLOCK_BROKEN;
    meter->work += units(meter->left) - begins;
    if (!begins) return;
    meter->call_work += units(meter->left) - 1;
    meter->calls++;
    meter->last_id = meter->id;
    stream_open(meter, meter->id);
}

static void frame_begin(struct vx_h2_meter *meter)
{
    const u8 *head = meter->head;
    meter->left = vx_h2_length_of(head);
    meter->type = head[3];
    meter->flags = head[4];
    meter->id = vx_h2_id_of(head);
    meter->pad = 0;
    meter->pad_due = false;
    meter->stream = -1;
    if (meter->type == DATA) {
        data_begin(meter);
    } else if (meter->type == HEADERS) {
        headers_begin(meter);
    } else {
        meter->work += units(meter->left);
        if (meter->type == CONTINUATION) meter->block += meter->left;
    }
    if (meter->type == HEADERS) meter->block_open = true;
    if (meter->block > VX_H2_BLOCK_BYTES_MAX) meter->fault = VX_H2_BLOCK_LONG;
}

/* The headers of a call, but not its trailers. */
static void headers_weigh(struct vx_h2_meter *meter)
{
    i32 at = stream_find(meter, meter->id);
    struct vx_h2_stream *stream = at < 0 ? NULL : &meter->streams[at];
    if (!stream || stream->spoke || stream->heavy) return;
    stream->heavy = (u8)(meter->hpack.decoded / VX_H2_HEAVY_BYTES % 256);
    meter->heavy += stream->heavy;
}

/* Half a field at the end of a block of a stream that it does not know, gRPC puts in front
 * of the next block. */
static void block_end(struct vx_h2_meter *meter)
{
    meter->block_open = !(meter->flags & END_HEADERS);
    if (meter->block_open) return;
    if (!vx_hpack_is_whole(&meter->hpack)) meter->fault = VX_H2_BLOCK_BROKEN;
    headers_weigh(meter);
}

static void frame_end(struct vx_h2_meter *meter)
{
    if (meter->type == HEADERS || meter->type == CONTINUATION) block_end(meter);
    bool last =
        meter->flags & END_STREAM && (meter->type == DATA || meter->type == HEADERS);
    if (last) stream_end(meter, stream_find(meter, meter->id));
    if (meter->type == SETTINGS && meter->flags & ACK) vx_h2_credit_settle(meter);
    if (meter->type == RST_STREAM) stream_close(meter, stream_find(meter, meter->id));
    meter->head_have = 0;
    meter->stream = -1;
    meter->begun = true;
}

/* As gRPC reads them: it knows no padding of headers, and takes it for fields. */
static void fields_take(struct vx_h2_meter *meter, const u8 *bytes, u32 count)
{
    u32 skipped = count < meter->priority_left ? count : meter->priority_left;
    meter->priority_left -= (u8)skipped;
    vx_hpack_walk(&meter->hpack, bytes + skipped, count - skipped);
    if (meter->hpack.broken) meter->fault = VX_H2_BLOCK_BROKEN;
    if (meter->hpack.decoded > VX_H2_BLOCK_DECODED_MAX) meter->fault = VX_H2_BLOCK_LONG;
}

static u32 payload_take(struct vx_h2_meter *meter, const u8 *bytes, u32 count)
{
    if (meter->pad_due) {
        meter->pad_due = false;
        meter->left--;
        meter->pad = *bytes < meter->left ? *bytes : meter->left;
        return 1;
    }
    u32 taken = count < meter->left ? count : meter->left;
    u32 data = meter->left - meter->pad < taken ? meter->left - meter->pad : taken;
    if (meter->type == DATA) data_take(meter, bytes, data);
    if (meter->type == HEADERS || meter->type == CONTINUATION)
        fields_take(meter, bytes, taken);
    meter->left -= taken;
    if (meter->pad > meter->left) meter->pad = meter->left;
    return taken;
}

void vx_h2_meter_buffer(struct vx_h2_meter *meter, size_t bytes)
{
    meter->buffers++;
    meter->buffer_bytes = bytes < INT32_MAX ? (u32)bytes : INT32_MAX;
}

void vx_h2_meter_walk(struct vx_h2_meter *meter, const u8 *bytes, size_t count)
{
    while (count && !meter->fault) {
        u32 piece = count > UINT32_MAX ? UINT32_MAX : (u32)count, taken;
        if (meter->preface_left) {
            taken = piece < meter->preface_left ? piece : meter->preface_left;
            meter->preface_left -= taken;
        } else if (meter->head_have < VX_H2_HEAD_BYTES) {
            taken = vx_h2_head_take(meter->head, &meter->head_have, bytes, piece);
            if (meter->head_have == VX_H2_HEAD_BYTES) frame_begin(meter);
        } else {
            taken = payload_take(meter, bytes, piece);
        }
        bytes += taken;
        count -= taken;
        if (meter->fault) return;
        if (meter->head_have == VX_H2_HEAD_BYTES && !meter->left) frame_end(meter);
    }
}

/* A reset, the end of an answer, or a larger window. */
static void sent_end(struct vx_h2_meter *meter)
{
    const u8 *head = meter->sent.head;
    bool last = (head[3] == HEADERS || head[3] == DATA) && head[4] & END_STREAM;
    if (head[3] == WINDOW_UPDATE)
        vx_h2_credit_update(meter, vx_h2_id_of(head), meter->sent.value & INT32_MAX);
    if (head[3] != RST_STREAM && !last) return;
    i32 at = stream_find(meter, vx_h2_id_of(head));
    if (at < 0) return;
    meter->streams[at].answered = true;
    if (!last || meter->streams[at].ended) stream_close(meter, at);
}

void vx_h2_meter_sent(struct vx_h2_meter *meter, const u8 *bytes, size_t count)
{
    while (count) {
        size_t taken = vx_h2_sent_take(&meter->sent, bytes, count);
        bytes += taken;
        count -= taken;
        if (vx_h2_sent_ends(&meter->sent)) sent_end(meter);
    }
}

/* What a message of a stream that waits keeps beside its own bytes, in the mean. */
static i64 waste_each(const struct vx_h2_stream *stream)
{
    return (stream->waiting_held - stream->waiting_came) / stream->waiting;
}

/* Whose it was is not known: it counts as one of the stream whose messages keep least.  With
 * the mean of all, messages of a stream that is read made up for those of one that is not. */
void vx_h2_meter_taken(struct vx_h2_meter *meter)
{
    i32 least = -1;
    if (!meter->waiting) return;
    for (i32 i = 0; i < meter->streams_count; i++) {
        const struct vx_h2_stream *one = &meter->streams[i];
        if (!one->waiting) continue;
        if (least < 0 || waste_each(one) < waste_each(&meter->streams[least])) least = i;
    }
    struct vx_h2_stream *stream = &meter->streams[least];
    waiting_add(meter, stream, -1, -(stream->waiting_came / stream->waiting),
                -(stream->waiting_held / stream->waiting));
    meter->waiting_buffer = 0; /* it may have been the one that was counted for it */
}

i64 vx_h2_meter_waste(const struct vx_h2_meter *meter)
{
    i64 waste = meter->waiting_held - meter->waiting_came;
    return waste > 0 ? waste : 0;
}

i64 vx_h2_meter_left(const struct vx_h2_meter *meter)
{
    return meter->stream < 0 ? 0 : meter->streams[meter->stream].left;
}

i64 vx_h2_meter_frame_left(const struct vx_h2_meter *meter)
{
    return meter->stream < 0 ? 0 : meter->left;
}

bool vx_h2_meter_between(const struct vx_h2_meter *meter)
{
    return meter->begun && !meter->head_have && !meter->block_open && !meter->fault;
}
