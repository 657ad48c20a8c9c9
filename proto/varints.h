/* varints - the values of a packed list, or of one that is not packed, as they lie in a tensor.
 *
 *   VX_TRY(vx_varints_count(scan, bytes, &count));
 *   struct vx_varints to = {.type = VX_WIRE_INT16, .out = memory};
 *   vx_varints_read(&scan, bytes, &to);                             (packed)
 *   vx_varints_read_one(&scan, &to);                                (behind its tag)
 *
 * As protobuf has it, a value of up to 32 bits is what fits them of one that is sent with up to 64
 * bits, and a bool is true if any bit is sent.  That it fits a datatype of 8 or 16 bits is ours to
 * check.
 *
 * Owner    the spans are borrowed; the memory is the caller's.
 * Thread   any.
 * Fails    as enum vx_varints_end says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_VARINTS_H
#define VX_PROTO_VARINTS_H

#include "proto/scan.h"

/* Where values go: behind those that have been read. */
struct vx_varints {
    enum vx_wire_type type; /* BOOL or an integer */
    u8 *out;                /* memory for all of them */
    size_t count;           /* read so far */
    i64 misfit;             /* the value that does not fit `type`: the one after them */
};

enum vx_varints_end {
    VX_VARINTS_ALL,    /* all have been read */
    VX_VARINTS_LONG,   /* one has more than 10 bytes */
    VX_VARINTS_MISFIT, /* one does not fit its datatype */
};

/* How many values a packed list has, if none of them is too long.  INVALID_ARGUMENT if it ends
 * inside of one. */
VX_MUST_USE vx_status vx_varints_count(struct vx_scan scan, size_t bytes, u64 *count);

/* Reads a packed list of `bytes` bytes, which has been counted. */
VX_MUST_USE enum vx_varints_end vx_varints_read(struct vx_scan *scan, size_t bytes,
                                                struct vx_varints *to);
/* Reads one value.  The message does not end inside of it: vx_scan_value has said so. */
VX_MUST_USE enum vx_varints_end vx_varints_read_one(struct vx_scan *scan,
                                                    struct vx_varints *to);
/* Values behind one that is not packed, as long as each has the same tag, of one byte, and all lie
 * in one piece: many come so, and this is faster than one by one.  They may end early. */
u64 vx_varints_skip_alike(struct vx_scan *scan, u8 tag);
VX_MUST_USE enum vx_varints_end vx_varints_read_alike(struct vx_scan *scan, u8 tag,
                                                      struct vx_varints *to);
/* Takes a value that is no varint: what protobuf-c takes for a bool is any field of numbers. */
void vx_varints_take_bool(struct vx_varints *to, bool value);

#endif
