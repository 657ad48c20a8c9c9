/* scan - walks the fields of a protobuf message over a chain of spans, without flattening
 * it.
 *
 * Knows tags, varints and lengths, nothing of any message.  Every read is checked against
 * what is left of the whole, so a hostile length ends the walk and never a read.
 *
 *   struct vx_scan scan;
 *   vx_scan_init(&scan, &spans);
 *   while (vx_scan_left(&scan)) {
 *       VX_TRY(vx_scan_field(&scan, &field));       tag, and for length-delimited ones
 * the length VX_TRY(vx_scan_copy(&scan, out, field.bytes));
 *   }
 *
 * Owner    the spans are borrowed; a scan is a value and may be copied to come back to a
 *          place.
 * Thread   any.
 * Fails    INVALID_ARGUMENT for bytes that are no protobuf.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_SCAN_H
#define VX_PROTO_SCAN_H

#include "proto/codec.h"

struct vx_scan {
    const struct vx_span *next; /* after the one being read */
    const u8 *at, *end;         /* in the one being read */
    size_t left;                /* of the whole message */
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
    u64 bytes; /* of the value that follows; for a varint, which is read already: 0 */
};

void vx_scan_init(struct vx_scan *scan, const struct vx_spans *spans);

static inline size_t vx_scan_left(const struct vx_scan *scan)
{
    return scan->left;
}

/* Reads a tag, and behind it a length or a varint's value (dropped).  The value of
 * field.bytes bytes, which are all there, comes next. */
VX_MUST_USE vx_status vx_scan_field(struct vx_scan *scan, struct vx_scan_field *field);

/* Moves on by `bytes`, copying them to `out` unless that is NULL.  `bytes` <= left. */
void vx_scan_copy(struct vx_scan *scan, void *out, size_t bytes);

#endif
