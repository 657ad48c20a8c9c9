/* scan - walks the fields of a protobuf message over a chain of spans, in place.
 *
 * It knows tags, varints and lengths, but no message.  Every read is checked against what
 * is left of the message: a hostile length ends the walk, and is never read.
 *
 *   struct vx_scan scan;
 *   vx_scan_init(&scan, &spans);
 *   while (vx_scan_left(&scan)) {
 *       VX_TRY(vx_scan_field(&scan, &field));        (tag and length)
 *       vx_scan_copy(&scan, out, field.bytes);       (value)
 *   }
 *
 * Owner    the spans are borrowed.  A scan is a value: a copy remembers a place.
 * Thread   any.
 * Fails    INVALID_ARGUMENT for bytes that are no protobuf.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_SCAN_H
#define VX_PROTO_SCAN_H

#include "proto/codec.h"

struct vx_scan {
    const struct vx_span *next; /* the span after the current one */
    const u8 *at, *end;         /* in the current span */
    size_t left;                /* bytes of the message */
};

enum vx_scan_type {
    VX_SCAN_VARINT = 0,
    VX_SCAN_FIXED64 = 1,
    VX_SCAN_BYTES = 2,
    VX_SCAN_FIXED32 = 5,
};

struct vx_scan_field {
    u32 number;
    enum vx_scan_type type;
    u64 bytes; /* of the value that follows; 0 for a varint, which has been read */
};

void vx_scan_init(struct vx_scan *scan, const struct vx_spans *spans);

static inline size_t vx_scan_left(const struct vx_scan *scan)
{
    return scan->left;
}

/* Reads a tag and what follows it: a length, or the value of a varint, which it drops.
 * Then the scan is at the value, all field.bytes bytes of which are in the message. */
VX_MUST_USE vx_status vx_scan_field(struct vx_scan *scan, struct vx_scan_field *field);

/* The same in two steps, for who wants the value of a varint: behind the tag the scan is at it. */
VX_MUST_USE vx_status vx_scan_tag(struct vx_scan *scan, struct vx_scan_field *field);
VX_MUST_USE vx_status vx_scan_value(struct vx_scan *scan, struct vx_scan_field *field);

/* The next `bytes`, at most what is left, as a message of their own. */
static inline struct vx_scan vx_scan_within(const struct vx_scan *scan, size_t bytes)
{
    struct vx_scan part = *scan;
    part.left = bytes;
    return part;
}

/* What of the next `bytes` lies in one piece: one byte or more.  The scan stays where it is. */
struct vx_span vx_scan_piece(struct vx_scan *scan, size_t bytes);

/* Skips `bytes`, at most what is left, and copies them to `out` unless that is NULL. */
void vx_scan_copy(struct vx_scan *scan, void *out, size_t bytes);

#endif
