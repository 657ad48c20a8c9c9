/* hpack_count - what the header blocks of a connection cost gRPC, without decoding them.
 *
 * On the wire a field may be one byte: an index of HPACK's tables.  gRPC makes a copy of
 * its name and a record of some 170 bytes of it.  48 calls of 64 KiB each had three million
 * such fields and took 490 MB; 960 calls of 320 bytes each, with a name of 4,000, 900 MB.
 * gRPC's own limit is that of the settings which the client has confirmed, 16 MiB until
 * then, and holds for each frame of a block alone.
 *
 *   vx_hpack_init(&count);                   a connection begins
 *   vx_hpack_begin(&count);                  a block begins
 *   vx_hpack_walk(&count, bytes, bytes_count);    cut anywhere
 *   count.decoded                            bytes of the fields that are whole
 *   if (count.broken || !vx_hpack_is_whole(&count)) ...    at the end of the block
 *
 * What gRPC reads is read here alike, zeros behind a number too: 0x7f 0x83 0x80 0x80 0x80 0
 * is the length 130.  Else the rest of a block is text here and fields there.
 *
 * Owner    the caller owns the count: 600 bytes, one of each connection.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Fails    broken: a text that gRPC drops (hpack_text.h).  For anything else that is no
 *          HPACK gRPC ends the connection; the count only has to survive it.
 * Source   RFC 7541, sections 5 and 6; gRPC 1.51, hpack_parser.cc.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HPACK_COUNT_H
#define VX_SERVER_HPACK_COUNT_H

#include "server/govern/hpack_table.h"
#include "server/govern/hpack_text.h"

/* What a field counts beside the bytes of its name and value.  gRPC keeps some 170 bytes of
 * it; but see VX_H2_BLOCK_DECODED_MAX. */
#define VX_HPACK_FIELD_BYTES 128

/* What the next byte is. */
enum vx_hpack_next {
    VX_HPACK_FIELD,  /* the first byte of a field */
    VX_HPACK_INDEX,  /* more of its index */
    VX_HPACK_LENGTH, /* the first byte of a text's length */
    VX_HPACK_MORE,   /* more of that length */
    VX_HPACK_TEXT,   /* of the text */
};

enum vx_hpack_form {
    VX_HPACK_INDEXED, /* all of it is in a table */
    VX_HPACK_KEPT,    /* its value follows, and it enters the table */
    VX_HPACK_LITERAL, /* its value follows */
    VX_HPACK_SIZE,    /* no field: the table's new size */
};

struct vx_hpack_count {
    u64 decoded; /* names, values and VX_HPACK_FIELD_BYTES of each field */
    bool broken;
    /* State. */
    bool named; /* the field's name is known */
    u8 next, form;
    u8 shift;   /* of the number's next bits */
    u64 number; /* the index or length so far */
    bool huffman;
    struct vx_hpack_field field;
    struct vx_hpack_text text;
    struct vx_hpack_table table;
};

void vx_hpack_init(struct vx_hpack_count *count);
void vx_hpack_begin(struct vx_hpack_count *count);
/* Reads nothing more once it is broken. */
void vx_hpack_walk(struct vx_hpack_count *count, const u8 *bytes, size_t bytes_count);
/* Whether what has come ends with a field. */
bool vx_hpack_is_whole(const struct vx_hpack_count *count);

#endif
