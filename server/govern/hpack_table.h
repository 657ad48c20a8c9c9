/* hpack_table - the lengths of the names and values in HPACK's tables.
 *
 * A field of a header block may be one byte: the place of a name and a value that an
 * earlier block left in the connection's table.  gRPC copies the name for each such field,
 * so 250 bytes made a megabyte of a name of 4,000.  What a block costs is only known to
 * one who keeps the table too.  The texts do not matter, their lengths are enough.
 *
 *   vx_hpack_table_init(&table);
 *   vx_hpack_table_add(&table, &field);
 *   vx_hpack_table_resize(&table, bytes);
 *   if (vx_hpack_table_find(&table, index, &field)) ...
 *
 * Owner    the caller owns the table: 520 bytes, one of each connection.
 * Thread   one at a time.  Pure: no clock, no allocation, no system call.
 * Limits   VX_HPACK_TABLE_BYTES, HPACK's default, which our server never changes.
 * Fails    find: false for a place where nothing is.  gRPC ends such a connection.
 * Source   RFC 7541, sections 2.3 and 4, appendix A; gRPC 1.51, hpack_parser_table.cc.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HPACK_TABLE_H
#define VX_SERVER_HPACK_TABLE_H

#include "engine/base/types.h"

#define VX_HPACK_TABLE_BYTES 4096
/* By HPACK's rule an entry counts so much beside its texts. */
#define VX_HPACK_ENTRY_BYTES 32
#define VX_HPACK_ENTRIES_MAX (VX_HPACK_TABLE_BYTES / VX_HPACK_ENTRY_BYTES)
/* Entries that every table begins with; the first index is 1. */
#define VX_HPACK_STATIC_COUNT 61

/* The lengths of its texts. */
struct vx_hpack_field {
    u32 name, value;
    bool binary; /* its name ends in "-bin": gRPC decodes such values */
};

/* The same, as small as can be: no text of an entry is longer than the table. */
struct vx_hpack_entry {
    u32 name : 13, value : 13, binary : 1;
};

struct vx_hpack_table {
    struct vx_hpack_entry entries[VX_HPACK_ENTRIES_MAX]; /* a ring */
    u16 oldest, count;                                   /* the oldest entry's place */
    u16 used, bytes; /* by HPACK's rule, and at most; `bytes` is the client's choice */
};

void vx_hpack_table_init(struct vx_hpack_table *table);
/* Makes room for a field and keeps it; one larger than the table only empties it. */
void vx_hpack_table_add(struct vx_hpack_table *table, const struct vx_hpack_field *field);
/* More than VX_HPACK_TABLE_BYTES changes nothing: gRPC ends such a connection. */
void vx_hpack_table_resize(struct vx_hpack_table *table, u32 bytes);
/* The field at a place of both tables: the static one, then from 62 on what was added
 * last, and before it.  False: there is none, `field` is empty. */
bool vx_hpack_table_find(const struct vx_hpack_table *table, u32 index,
                         struct vx_hpack_field *field);

#endif
