/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rest.h"

#include "engine/base/process/check.h"

#include <string.h>

#define FIELD_INPUT 5 /* inputs */

#define HEADER_BYTES_MAX 6 /* a tag of one byte, a length of 32 bits */

/* Room for what nearly all messages have beside tensors; those with more are walked twice. */
#define SMALL_BYTES (16 << 10)

/* What is written, in scratch.  Beyond `most` nothing is, but all is counted. */
struct rest_out {
    u8 *bytes;
    size_t used, most;
    struct vx_why *why;
};

/* Counts `bytes` more, and says whether there is room for them. */
static vx_status rest_count(struct rest_out *out, size_t bytes, bool *room)
{
    out->used += bytes;
    *room = out->used <= out->most;
    VX_ENSURE_WHY(out->used <= VX_INFER_NAMES_BYTES_MAX, out->why, RESOURCE_EXHAUSTED,
                  "too many bytes that are not tensors",
                  "expected at most %d bytes of names, shapes and parameters, got more",
                  VX_INFER_NAMES_BYTES_MAX);
    return VX_OK;
}

/* Adds what is between two places of a walk. */
static vx_status rest_add(struct rest_out *out, struct vx_scan from,
                          const struct vx_scan *to)
{
    const size_t at = out->used, bytes = vx_scan_left(&from) - vx_scan_left(to);
    bool room;
    VX_TRY(rest_count(out, bytes, &room));
    if (room) vx_scan_copy(&from, out->bytes + at, bytes);
    return VX_OK;
}

/* Makes what has been written from `begin` on the value of a field. */
static vx_status rest_wrap(struct rest_out *out, size_t begin, u32 number)
{
    u8 header[HEADER_BYTES_MAX];
    const size_t bytes = out->used - begin;
    size_t count = 0, length = bytes;
    bool room;
    header[count++] = (u8)(number << 3 | VX_SCAN_BYTES);
    for (; length > 0x7f; length >>= 7) header[count++] = (u8)(length | 0x80);
    header[count++] = (u8)length;
    VX_TRY(rest_count(out, count, &room));
    if (!room) return VX_OK;
    memmove(out->bytes + begin + count, out->bytes + begin, bytes);
    memcpy(out->bytes + begin, header, count);
    return VX_OK;
}

/* One occurrence of `contents`: its lists are counted, the rest is kept. */
static vx_status rest_contents(struct vx_scan scan, struct rest_out *out,
                               struct vx_typed *typed)
{
    const size_t begin = out->used;
    struct vx_scan_field field;
    while (vx_scan_left(&scan)) {
        const struct vx_scan before = scan;
        VX_TRY(vx_scan_field(&scan, &field));
        if (vx_typed_has(&field)) {
            VX_TRY(vx_typed_count(typed, &scan, &field));
            continue;
        }
        vx_scan_copy(&scan, NULL, field.bytes);
        VX_TRY(rest_add(out, before, &scan));
    }
    return rest_wrap(out, begin, VX_TYPED_CONTENTS);
}

/* A field, from `before` to where the walk is then, and its value. */
struct rest_field {
    struct vx_scan before, value;
    struct vx_scan_field field;
};

static vx_status rest_next(struct vx_scan *scan, struct rest_field *next)
{
    next->before = *scan;
    VX_TRY(vx_scan_field(scan, &next->field));
    next->value = vx_scan_within(scan, next->field.bytes);
    vx_scan_copy(scan, NULL, next->field.bytes);
    return VX_OK;
}

static bool is_message(const struct rest_field *next, u32 number)
{
    return next->field.number == number && next->field.type == VX_SCAN_BYTES;
}

static vx_status rest_input(struct vx_scan scan, struct rest_out *out,
                            struct vx_typed *typed)
{
    const size_t begin = out->used;
    struct rest_field next;
    *typed = (struct vx_typed){.input = scan};
    while (vx_scan_left(&scan)) {
        VX_TRY(rest_next(&scan, &next));
        if (is_message(&next, VX_TYPED_CONTENTS))
            VX_TRY(rest_contents(next.value, out, typed));
        else
            VX_TRY(rest_add(out, next.before, &scan));
    }
    return rest_wrap(out, begin, FIELD_INPUT);
}

static vx_status rest_walk(const struct vx_spans *spans, struct rest_out *out,
                           struct vx_rest *rest)
{
    struct vx_scan scan;
    struct rest_field next;
    i32 inputs = 0;
    vx_scan_init(&scan, spans);
    while (vx_scan_left(&scan)) {
        VX_TRY(rest_next(&scan, &next));
        if (next.field.number == VX_REST_RAW) continue;
        if (is_message(&next, FIELD_INPUT)) {
            VX_ENSURE_WHY(inputs < VX_INPUTS_MAX, out->why, INVALID_ARGUMENT,
                          "too many inputs", "expected at most %d inputs, got more",
                          VX_INPUTS_MAX);
            VX_TRY(rest_input(next.value, out, &rest->inputs[inputs++]));
        } else {
            VX_TRY(rest_add(out, next.before, &scan));
        }
    }
    rest->bytes = (struct vx_span){out->bytes, out->used};
    return VX_OK;
}

vx_status vx_rest_gather(const struct vx_spans *spans, size_t bytes,
                         struct vx_arena *scratch, struct vx_why *why,
                         struct vx_rest *rest)
{
    struct rest_out out = {.most = bytes < SMALL_BYTES ? bytes : SMALL_BYTES, .why = why};
    out.bytes = vx_arena_take(scratch, out.most);
    VX_ASSERT(out.bytes); /* scratch has room for the largest rest */
    VX_TRY(rest_walk(spans, &out, rest));
    if (out.used <= out.most) return VX_OK;
    out = (struct rest_out){.most = out.used, .why = why};
    out.bytes = vx_arena_take(scratch, out.most);
    VX_ASSERT(out.bytes);
    return rest_walk(spans, &out, rest);
}
