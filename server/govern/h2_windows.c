/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/h2_windows.h"

#include "engine/base/process/check.h"
#include "server/govern/h2_credit.h"

#include <string.h>

#define WINDOW_UPDATE 8
/* A stream that brings no more than this part of its message, in some looks in a row, counts no more until
 * it brings more: a byte now and then on each of a proxy's streams kept all large messages of its
 * connection waiting.  Looks are half a second apart, so that is two minutes. */
#define STILL_PART 240

/* A message with more than half of the room is large, and counts as that: so smaller ones go on beside
 * one of them, and no two of them come side by side. */
static i64 weight_of(const struct vx_h2_stream *stream, i64 room)
{
    const i64 large = room / 2 + 1;
    return stream->left < large ? (i64)stream->left : large;
}

/* Whether there is room beside the open ones; alone any has. */
static bool fits(const struct vx_h2_meter *meter, const struct vx_h2_stream *stream,
                 i64 room)
{
    if (meter->announced <= room) return true;
    i64 open = 0;
    for (i32 i = 0; i < meter->streams_count; i++)
        if (meter->streams[i].window == VX_H2_WINDOW_OPEN)
            open += weight_of(&meter->streams[i], room);
    return open + weight_of(stream, room) <= room;
}

static u32 number_get(u8 *const at[4])
{
    return (u32)*at[0] << 24 | (u32)*at[1] << 16 | (u32)*at[2] << 8 | *at[3];
}

static u8 byte_of(u32 value, i32 i)
{
    return (u8)(value >> (24 - 8 * i));
}

/* gRPC opens the window of a stream by this number.  One whose message has not begun is not held: what
 * it has is not known.  None overtakes those that are held, or a large one would wait for ever. */
static void judge(struct vx_h2_meter *meter, u32 id, u8 *const at[4], i64 room)
{
    struct vx_h2_stream *stream = vx_h2_meter_stream(meter, id);
    const u32 more = number_get(at) & INT32_MAX;
    if (!stream || !stream->left || more <= 1) return;
    if (stream->window == VX_H2_WINDOW_OPEN || stream->window == VX_H2_WINDOW_STILL)
        return;
    if (!meter->withheld && fits(meter, stream, room)) {
        vx_h2_meter_window(meter, stream, VX_H2_WINDOW_OPEN);
        return;
    }
    if (!stream->withheld) stream->turn = ++meter->turns;
    meter->withheld += !stream->withheld;
    stream->withheld += more - 1;
    vx_h2_meter_window(meter, stream, VX_H2_WINDOW_HELD);
    for (i32 i = 0; i < 4; i++) *at[i] = byte_of(1, i);
}

/* What is looked at: the meter's streams, the room, and where the number of a frame lies.  One of which
 * a part was in an earlier message cannot be changed any more: it has no first byte. */
struct look {
    struct vx_h2_meter *meter;
    i64 room;
    u8 *number[4];
};

static void walk(struct vx_h2_sent *at, struct look *look, u8 *bytes, size_t count)
{
    while (count) {
        const u32 due = vx_h2_sent_due(at);
        const size_t taken = vx_h2_sent_take(at, bytes, count);
        for (size_t k = 0; due && due <= 4 && k < taken; k++)
            look->number[4 - due + k] = bytes + k;
        bytes += taken;
        count -= taken;
        if (!vx_h2_sent_ends(at)) continue;
        if (at->head[3] == WINDOW_UPDATE && look->number[0])
            judge(look->meter, vx_h2_id_of(at->head), look->number, look->room);
        look->number[0] = NULL;
    }
}

void vx_h2_windows_hold(struct vx_h2_windows *windows, struct vx_h2_meter *meter,
                        const struct iovec *pieces, size_t count, i64 room)
{
    struct look look = {.meter = meter, .room = room};
    size_t known = windows->ahead;
    for (size_t i = 0; i < count; i++) {
        const size_t length = pieces[i].iov_len, part = known < length ? known : length;
        known -= part;
        windows->ahead += length - part;
        walk(&windows->at, &look, (u8 *)pieces[i].iov_base + part, length - part);
    }
}

void vx_h2_windows_sent(struct vx_h2_windows *windows, size_t bytes)
{
    VX_ASSERT(bytes <= windows->ahead);
    windows->ahead -= bytes;
}

/* First who has waited longest: by ids alone a stream that goes on with one large message after the
 * other would keep all later ones waiting. */
struct vx_h2_stream *vx_h2_windows_next(const struct vx_h2_meter *meter, i64 room)
{
    struct vx_h2_stream *first = NULL;
    for (i32 i = 0; meter->withheld && i < meter->streams_count; i++) {
        struct vx_h2_stream *stream = &meter->streams[i];
        if (!stream->withheld) continue;
        /* Its message has ended within what it had: the rest is for the next one. */
        if (stream->window != VX_H2_WINDOW_HELD) return stream;
        if (!first || (i32)(stream->turn - first->turn) < 0) first = stream;
    }
    return first && fits(meter, first, room) ? first : NULL;
}

void vx_h2_windows_frame(const struct vx_h2_stream *stream, u8 frame[VX_H2_UPDATE_BYTES])
{
    const u8 head[VX_H2_HEAD_BYTES] = {[2] = 4, [3] = WINDOW_UPDATE};
    memcpy(frame, head, sizeof head);
    for (i32 i = 0; i < 4; i++) {
        frame[VX_H2_HEAD_BYTES - 4 + i] = byte_of(stream->id, i);
        frame[VX_H2_HEAD_BYTES + i] = byte_of(stream->withheld, i);
    }
}

void vx_h2_windows_opened(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    vx_h2_credit_add(meter, stream, stream->withheld);
    stream->withheld = 0;
    meter->withheld--;
    if (stream->window == VX_H2_WINDOW_HELD)
        vx_h2_meter_window(meter, stream, VX_H2_WINDOW_OPEN);
}

static bool is_slow(const struct vx_h2_stream *stream)
{
    return stream->fresh <= stream->length / STILL_PART;
}

static void look_at(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    const bool slow = is_slow(stream);
    stream->fresh = 0;
    stream->still = slow ? stream->still + 1 : 0;
    if (stream->window == VX_H2_WINDOW_OPEN && stream->still >= VX_H2_STILL_LOOKS)
        vx_h2_meter_window(meter, stream, VX_H2_WINDOW_STILL);
    else if (stream->window == VX_H2_WINDOW_STILL && !slow)
        vx_h2_meter_window(meter, stream, VX_H2_WINDOW_OPEN);
}

void vx_h2_windows_look(struct vx_h2_meter *meter)
{
    for (i32 i = 0; meter->withheld && i < meter->streams_count; i++)
        if (meter->streams[i].window == VX_H2_WINDOW_OPEN ||
            meter->streams[i].window == VX_H2_WINDOW_STILL)
            look_at(meter, &meter->streams[i]);
}
