/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/proto/codec_harness.h"

#include "engine/base/process/check.h"

#include <stdlib.h>
#include <string.h>

/* ------- notation ------- */

void wire_add(struct wire *wire, const void *bytes, size_t length)
{
    VX_ASSERT(length <= WIRE_BYTES_MAX - wire->length);
    if (length) memcpy(wire->bytes + wire->length, bytes, length);
    wire->length += length;
}

void wire_add_varint(struct wire *wire, u64 value)
{
    do {
        u8 byte = (u8)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        wire_add(wire, &byte, 1);
        value >>= 7;
    } while (value);
}

static void add_block(struct wire *wire, u64 field, const struct wire *inner)
{
    wire_add_varint(wire, field << 3 | 2);
    wire_add_varint(wire, inner->length);
    wire_add(wire, inner->bytes, inner->length);
}

static const char *add_hex(struct wire *wire, const char *at)
{
    for (; at[0] && strchr("0123456789abcdef", at[0]); at += 2) {
        char pair[3] = {at[0], at[1], 0};
        u8 byte = (u8)strtoul(pair, NULL, 16);
        wire_add(wire, &byte, 1);
    }
    return at;
}

/* Numbers up to the ']': varints, floats (f) or doubles (d). */
static const char *add_list(struct wire *wire, const char *at, char kind)
{
    while (*at != ']') {
        char *end;
        f64 real = strtod(at, &end);
        f32 narrow = (f32)real;
        if (kind == 'f')
            wire_add(wire, &narrow, 4);
        else if (kind == 'd')
            wire_add(wire, &real, 8);
        else
            wire_add_varint(wire, *at == '-' ? (u64)strtoll(at, &end, 10)
                                             : strtoull(at, &end, 10));
        VX_ASSERT(end > at);
        at = end;
        while (*at == ' ') at++;
    }
    return at + 1;
}

static const char *write_items(struct wire *wire, const char *at);

static const char *write_value(struct wire *inner, const char *at)
{
    char *end;
    const char *stop;
    switch (*at++) {
    case '\'':
        stop = strchr(at, '\'');
        wire_add(inner, at, (size_t)(stop - at));
        return stop + 1;
    case '@':
        for (u64 left = strtoull(at, &end, 10); left; left--) wire_add(inner, "a", 1);
        return end;
    case '#':
        for (u64 i = 0, count = strtoull(at, &end, 10); i < count; i++)
            wire_add(inner, &(u8){(u8)(i * 7 + 1)}, 1);
        return end;
    case '{':
        at = write_items(inner, at);
        VX_ASSERT(*at == '}');
        return at + 1;
    case 'x': return add_hex(inner, at);
    case '[': return add_list(inner, at, 'v');
    case 'f':
    case 'd': VX_ASSERT(*at == '['); return add_list(inner, at + 1, at[-1]);
    default: vx_panic(__FILE__, __LINE__, at - 1);
    }
}

static const char *write_items(struct wire *wire, const char *at)
{
    for (;;) {
        while (*at == ' ' || *at == '\n') at++;
        if (!*at || *at == '}') return at;
        if (*at == '!') {
            at = add_hex(wire, at + 1);
            continue;
        }
        char *end;
        u64 field = strtoull(at, &end, 10);
        VX_ASSERT(end > at);
        at = end;
        if (*at == ':') {
            wire_add_varint(wire, field << 3);
            at++;
            wire_add_varint(wire, *at == '-' ? (u64)strtoll(at, &end, 10)
                                             : strtoull(at, &end, 10));
            at = end;
            continue;
        }
        struct wire *inner = calloc(1, sizeof *inner);
        at = write_value(inner, at);
        add_block(wire, field, inner);
        free(inner);
    }
}

void wire_write(struct wire *wire, const char *notation)
{
    wire->length = 0;
    const char *end = write_items(wire, notation);
    VX_ASSERT(!*end);
}

/* ------- dice: splitmix64 ------- */

u64 dice_roll(struct dice *dice, u64 sides)
{
    u64 z = dice->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % sides;
}

/* ------- spans ------- */

static void cut_add(struct cut *cut, const u8 *bytes, size_t length)
{
    u8 *block = length ? malloc(length) : NULL;
    if (length) memcpy(block, bytes, length);
    cut->blocks[cut->spans.count] = block;
    cut->list[cut->spans.count++] = (struct vx_span){block, length};
    cut->spans.bytes += length;
}

void cut_open(struct cut *cut, const u8 *bytes, size_t length, size_t piece,
              struct dice *dice)
{
    size_t most = 2 * length + 4;
    cut->list = calloc(most, sizeof *cut->list);
    cut->blocks = calloc(most, sizeof *cut->blocks);
    cut->spans = (struct vx_spans){cut->list, 0, 0};
    for (size_t at = 0; at < length;) {
        size_t here = length - at;
        if (piece) {
            size_t next = 1 + (size_t)dice_roll(dice, piece);
            if (next < here) here = next;
            if (!dice_roll(dice, 8)) cut_add(cut, NULL, 0);
        }
        cut_add(cut, bytes + at, here);
        at += here;
    }
    if (piece) cut_add(cut, NULL, 0);
}

void cut_close(struct cut *cut)
{
    for (size_t i = 0; i < cut->spans.count; i++) free(cut->blocks[i]);
    free(cut->blocks);
    free(cut->list);
}

/* ------- slots ------- */

static bool heap_take(void *context, size_t bytes, struct vx_place *slot)
{
    struct heap_slots *heap = context;
    *slot = (struct vx_place){.kind = VX_PLACE_ARENA};
    if (!bytes) return true;
    heap->takes++;
    if (heap->full_at && heap->takes >= heap->full_at) return false;
    for (u64 i = 0; i < HEAP_SLOTS_MAX; i++) {
        if (heap->memory[i]) continue;
        heap->memory[i] = malloc(bytes);
        if (!heap->memory[i]) return false;
        memset(heap->memory[i], 0xee, bytes);
        heap->bytes[i] = bytes;
        heap->out++;
        slot->offset = i;
        slot->bytes = bytes;
        return true;
    }
    return false;
}

static void heap_give(void *context, struct vx_place *slot)
{
    struct heap_slots *heap = context;
    if (!slot->bytes) return;
    VX_ASSERT(slot->offset < HEAP_SLOTS_MAX && heap->memory[slot->offset]);
    VX_ASSERT(heap->bytes[slot->offset] == slot->bytes);
    free(heap->memory[slot->offset]);
    heap->memory[slot->offset] = NULL;
    heap->out--;
    *slot = (struct vx_place){0};
}

static u8 *heap_memory(void *context, const struct vx_place *slot)
{
    struct heap_slots *heap = context;
    VX_ASSERT(slot->bytes && heap->bytes[slot->offset] == slot->bytes);
    return heap->memory[slot->offset];
}

/* ------- parsing ------- */

size_t parse_scratch_bytes = VX_INFER_SCRATCH_BYTES;

void parse_run(struct parse *parse, const struct vx_spans *spans)
{
    static void *block;
    static size_t block_bytes;
    if (block_bytes != parse_scratch_bytes) {
        free(block);
        block = aligned_alloc(64, parse_scratch_bytes);
        block_bytes = parse_scratch_bytes;
    }
    struct vx_arena scratch;
    parse->heap =
        (struct heap_slots){.full_at = parse->heap.full_at, .arena = parse->heap.arena};
    parse->heap.slots = (struct vx_slots){.take = heap_take,
                                          .give = heap_give,
                                          .memory = heap_memory,
                                          .context = &parse->heap,
                                          .bytes = parse->heap.arena};
    memset(&parse->why, 0, sizeof parse->why);
    memset(&parse->request, 0xdd, sizeof parse->request);
    vx_arena_init(&scratch, block, block_bytes);
    parse->status = vx_codec_parse_infer(spans, &parse->heap.slots, &scratch, &parse->why,
                                         &parse->request);
    parse->scratch_used = scratch.used;
}

void parse_flat(struct parse *parse, const u8 *bytes, size_t length)
{
    struct cut cut;
    cut_open(&cut, bytes, length, 0, NULL);
    parse_run(parse, &cut.spans);
    cut_close(&cut);
}

void parse_end(struct parse *parse)
{
    for (i32 i = 0; !parse->status.fault && i < parse->request.inputs_count; i++)
        heap_give(&parse->heap, &parse->request.inputs[i].place);
    VX_ASSERT(!parse->heap.out);
}

const char *parse_text(const struct parse *parse)
{
    return vx_status_text(parse->status, &parse->why);
}

const u8 *parse_memory(const struct parse *parse, i32 input)
{
    const struct vx_place *slot = &parse->request.inputs[input].place;
    return slot->bytes ? parse->heap.memory[slot->offset] : NULL;
}
