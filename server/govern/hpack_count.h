/* hpack_count - counts the fields of header blocks, without decoding them.
 *
 * A field costs gRPC some 130 bytes, and its client one: an index of HPACK's table.  48 calls
 * of 64 KiB each had three million fields and took 490 MB.  gRPC's own limit is that of the
 * settings which the client has confirmed, 16 MiB until then, and holds for each frame of a
 * block alone.
 *
 *   vx_hpack_begin(&count);                  a block begins
 *   vx_hpack_walk(&count, bytes, bytes_count);    cut anywhere
 *   count.fields                             that have begun, table sizes included
 *
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Fails    never: gRPC refuses bytes that are no HPACK; the count only has to survive them.
 * Source   RFC 7541, sections 5 and 6.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HPACK_COUNT_H
#define VX_SERVER_HPACK_COUNT_H

#include "engine/base/types.h"

/* What the next byte is. */
enum vx_hpack_next {
    VX_HPACK_FIELD,  /* the first byte of a field */
    VX_HPACK_INDEX,  /* more of its index */
    VX_HPACK_LENGTH, /* the first byte of a string's length */
    VX_HPACK_MORE,   /* more of that length */
    VX_HPACK_TEXT,   /* of the string */
};

struct vx_hpack_count {
    u32 fields;
    /* State. */
    enum vx_hpack_next next;
    u32 number, shift; /* the index or length so far */
    i32 strings;       /* that the field has yet to bring */
};

void vx_hpack_begin(struct vx_hpack_count *count);
void vx_hpack_walk(struct vx_hpack_count *count, const u8 *bytes, size_t bytes_count);

#endif
