/* codec_harness - writes messages from a short notation, cuts them into spans, keeps
 * slots on the heap.
 *
 * The notation: items separated by spaces, each a field number and a value.
 *   1'conv'      text              1@300      text of 300 letters
 *   2:-1         varint            3[3 4]     packed varints
 *   5{1'a'}      message           6f[1.5]    packed floats, 7d[..] packed doubles
 *   7#48         48 counted bytes  5x0aff     bytes in hex        !0aff  bytes as they are, no tag
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_CODEC_HARNESS_H
#define VX_TESTS_UNIT_CODEC_HARNESS_H

#include "proto/codec.h"

#define WIRE_BYTES_MAX 65536
struct wire {
    u8 bytes[WIRE_BYTES_MAX];
    size_t length;
};
void wire_write(struct wire *wire, const char *notation);
/* Only for messages that must be computed: the notation covers the rest. */
void wire_add(struct wire *wire, const void *bytes, size_t length);
void wire_add_varint(struct wire *wire, u64 value);

/* A generator of the tests' own, so that a seed is enough to repeat a run. */
struct dice {
    u64 state;
};
u64 dice_roll(struct dice *dice, u64 sides); /* 0 .. sides - 1 */

/* Each span is a heap block of its own size, so that a sanitizer reports a read past
 * its end. */
struct cut {
    struct vx_spans spans;
    struct vx_span *list;
    u8 **blocks;
};
/* piece 0: one span.  Otherwise spans of 1 to `piece` bytes, and now and then an empty
 * one. */
void cut_open(struct cut *cut, const u8 *bytes, size_t length, size_t piece,
              struct dice *dice);
void cut_close(struct cut *cut);

/* Slots in heap blocks of their own size; counts those that are taken. */
#define HEAP_SLOTS_MAX 64
struct heap_slots {
    struct vx_slots slots;
    u8 *memory[HEAP_SLOTS_MAX];
    u64 bytes[HEAP_SLOTS_MAX];
    i32 out;
    i32 takes, full_at; /* take number full_at and later ones fail; 0 = none does */
    u64 arena;          /* bytes of all of it; 0 = it has no end */
};

/* One parse: run it, inspect it, end it.  The caller sets full_at and arena
 * of the heap before. */
struct parse {
    struct heap_slots heap;
    struct vx_request request;
    struct vx_why why;
    vx_status status;
    size_t scratch_used;
};
extern size_t
    parse_scratch_bytes; /* VX_INFER_SCRATCH_BYTES unless a test says otherwise */
void parse_run(struct parse *parse, const struct vx_spans *spans);
void parse_flat(struct parse *parse, const u8 *bytes, size_t length);
/* Gives back the slots of a parse that succeeded; a slot that is still taken then is a
 * leak. */
void parse_end(struct parse *parse);
const char *parse_text(const struct parse *parse);
/* The bytes of an input of a parse that succeeded. */
const u8 *parse_memory(const struct parse *parse, i32 input);

#endif
