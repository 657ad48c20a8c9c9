/* wire - the protobuf wire format: writes fields, reads them from one piece or from many.
 *
 * Three small tools.  The writer runs twice, first without memory to measure and then
 * with memory of exactly that size.  The reader goes over the fields of a message that
 * lies in one piece.  The walk goes over a message that came in many pieces (gRPC slices)
 * without joining them, so that a tensor of megabytes is copied once.
 *
 *   struct voxel_writer w = {.out = memory, .room = bytes};
 *   voxel_write_text(&w, 1, "normals");
 *
 *   struct voxel_reader r = voxel_reader_make(data, bytes);
 *   struct voxel_field field;
 *   while (voxel_reader_next(&r, &field)) ...
 *   if (r.bad) ...
 *
 * Owner    all borrow the bytes.
 * Thread   any; each struct by one thread at a time.
 * Limits   field numbers up to 2^29-1, as the format says; groups are refused.
 * Fails    a damaged message sets `bad`; nothing is read outside the bytes given.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_WIRE_H
#define VOXEL_CLIENTS_C_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum voxel_wire {
    VOXEL_WIRE_VARINT = 0,
    VOXEL_WIRE_I64 = 1,
    VOXEL_WIRE_LEN = 2,
    VOXEL_WIRE_I32 = 5
};

#define VOXEL_VARINT_BYTES_MAX 10
/* The bytes before a raw tensor: the tag of a field below 16, and a length. */
#define VOXEL_PREFIX_BYTES_MAX 11

/* Writing.  `used` counts all bytes of the message; those that do not fit into `room` are
 * not stored. */
struct voxel_writer {
    uint8_t *out; /* NULL = only count */
    size_t room;
    size_t used;
};
void voxel_write_varint(struct voxel_writer *w, uint64_t value);
void voxel_write_tag(struct voxel_writer *w, uint32_t number, enum voxel_wire wire);
void voxel_write_raw(struct voxel_writer *w, const void *data, size_t bytes);
/* Writes a tag and a length; the caller writes the content behind them. */
void voxel_write_prefix(struct voxel_writer *w, uint32_t number, size_t bytes);
/* As proto3 wants it, an empty text or a zero is not written. */
void voxel_write_text(struct voxel_writer *w, uint32_t number, const char *text);
void voxel_write_number(struct voxel_writer *w, uint32_t number, uint64_t value);

/* Reading from one piece. */
struct voxel_field {
    uint32_t number;
    enum voxel_wire wire;
    uint64_t value;      /* VARINT, I64, I32 */
    const uint8_t *data; /* LEN */
    size_t bytes;
};
struct voxel_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};
struct voxel_reader voxel_reader_make(const void *data, size_t bytes);
/* False at the end, and if the message is damaged, which also sets `bad`. */
bool voxel_reader_next(struct voxel_reader *r, struct voxel_field *field);
/* How many length-delimited fields of that number the message has; it may be damaged. */
size_t voxel_reader_count(const void *data, size_t bytes, uint32_t number);
bool voxel_reader_varint(struct voxel_reader *r, uint64_t *value);

/* A message in pieces. */
struct voxel_span {
    const uint8_t *data;
    size_t bytes; /* may be 0 */
};
struct voxel_spans {
    const struct voxel_span *list;
    size_t count;
};
/* A place in it: before byte `offset` of span `index`. */
struct voxel_walk {
    const struct voxel_spans *spans;
    size_t index;
    size_t offset;
    size_t left; /* bytes to the end of the message */
};
/* A field that the walk has reached.  For LEN the walk stands at the first byte of the
 * content, and the caller must skip or copy `bytes`; for other types it stands behind the
 * field, and `head` has all of the field. */
struct voxel_walk_field {
    uint32_t number;
    enum voxel_wire wire;
    uint8_t head[VOXEL_VARINT_BYTES_MAX * 2 + 8]; /* the bytes before the content */
    size_t head_bytes;
    size_t bytes;
};
struct voxel_walk voxel_walk_make(const struct voxel_spans *spans);
/* False at the end, and if the message is damaged, which also sets *bad. */
bool voxel_walk_next(struct voxel_walk *walk, struct voxel_walk_field *field, bool *bad);
/* Both need bytes <= walk->left. */
void voxel_walk_skip(struct voxel_walk *walk, size_t bytes);
void voxel_walk_copy(struct voxel_walk *walk, void *out, size_t bytes);

#endif
