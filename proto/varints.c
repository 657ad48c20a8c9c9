/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/varints.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define VARINT_BYTES_MAX 10
#define CONTINUES        UINT64_C(0x8080808080808080) /* of 8 bytes: another one follows */
#define ONES             UINT64_C(0x0101010101010101)

/* ------- count ------- */

/* Bytes that end a value.  Eight counters of a byte each run beside each other, and are added
 * before one of them is full. */
static u64 count_ends(const u8 *at, size_t bytes)
{
    u64 count = 0;
    size_t words = bytes / 8;
    const u8 *end = at + bytes;
    while (words) {
        const size_t here = words < 255 ? words : 255;
        u64 lanes = 0;
        for (size_t i = 0; i < here; i++, at += 8) {
            u64 word;
            memcpy(&word, at, 8);
            lanes += ~word >> 7 & ONES;
        }
        const u64 even = UINT64_C(0x00ff00ff00ff00ff);
        lanes = (lanes & even) + (lanes >> 8 & even);
        count += lanes * UINT64_C(0x0001000100010001) >> 48;
        words -= here;
    }
    for (; at < end; at++) count += !(*at & 0x80);
    return count;
}

vx_status vx_varints_count(struct vx_scan scan, size_t bytes, u64 *count)
{
    u8 last = 0;
    *count = 0;
    while (bytes) {
        const struct vx_span piece = vx_scan_piece(&scan, bytes);
        *count += count_ends(piece.data, piece.bytes);
        last = piece.data[piece.bytes - 1];
        vx_scan_copy(&scan, NULL, piece.bytes);
        bytes -= piece.bytes;
    }
    VX_ENSURE(!(last & 0x80), INVALID_ARGUMENT,
              "the message is not valid protobuf: a list ends inside a value");
    return VX_OK;
}

/* ------- one value ------- */

struct varint {
    u64 value;
    size_t bytes; /* 0: it does not end within what there is, or has more than 10 */
    bool beyond;  /* it has bits beyond the 64th, which fall off */
};

/* One of up to 10 bytes that may end with what there is. */
static struct varint varint_read(const u8 *at, size_t bytes)
{
    struct varint got = {0};
    if (bytes > VARINT_BYTES_MAX) bytes = VARINT_BYTES_MAX;
    for (size_t i = 0; i < bytes; i++) {
        got.value |= (u64)(at[i] & 0x7f) << (7 * i);
        if (at[i] & 0x80) continue;
        got.bytes = i + 1;
        got.beyond = i == VARINT_BYTES_MAX - 1 && at[i] & 0x7e;
        break;
    }
    return got;
}

/* The low seven bits of each byte of a word, one behind the other: bytes to pairs of 14 bits, to
 * 28, to 56. */
INLINE u64 varint_fold(u64 word)
{
    word = (word & UINT64_C(0x007f007f007f007f)) |
           (word & UINT64_C(0x7f007f007f007f00)) >> 1;
    word = (word & UINT64_C(0x00003fff00003fff)) |
           (word & UINT64_C(0x3fff00003fff0000)) >> 2;
    return (word & UINT64_C(0x000000000fffffff)) |
           (word & UINT64_C(0x0fffffff00000000)) >> 4;
}

/* The value that ends at the first bit of `ends` and begins at bit `from`. */
INLINE u64 varint_of(u64 word, u64 ends, int from)
{
    return varint_fold((word & (ends ^ (ends - 1))) >> from);
}

/* One where 10 bytes can be read. */
INLINE struct varint varint_read_fast(const u8 *at)
{
    u64 word;
    memcpy(&word, at, 8);
    const u64 ends = ~word & CONTINUES;
    if (ends)
        return (struct varint){.value = varint_of(word, ends, 0),
                               .bytes = (size_t)__builtin_ctzll(ends) / 8 + 1};
    const u64 value = varint_fold(word) | (u64)(at[8] & 0x7f) << 56;
    if (!(at[8] & 0x80)) return (struct varint){.value = value, .bytes = 9};
    if (at[9] & 0x80) return (struct varint){0};
    return (struct varint){
        .value = value | (u64)at[9] << 63, .bytes = 10, .beyond = at[9] & 0x7e};
}

/* ------- into memory ------- */

INLINE size_t width_of(enum vx_wire_type type)
{
    switch (type) {
    case VX_WIRE_INT16:
    case VX_WIRE_UINT16: return 2;
    case VX_WIRE_INT32:
    case VX_WIRE_UINT32: return 4;
    case VX_WIRE_INT64:
    case VX_WIRE_UINT64: return 8;
    default: return 1;
    }
}

/* False if the value, as the list has it, does not fit; then the memory has some of its bits. */
INLINE bool put(enum vx_wire_type type, u8 *out, const struct varint *got)
{
    const u32 narrow = (u32)got->value;
    const u16 half = (u16)narrow;
    const u8 byte = (u8)narrow;
    switch (type) {
    case VX_WIRE_BOOL: *out = got->value != 0 || got->beyond; return true;
    case VX_WIRE_INT8: *out = byte; return (i32)narrow == (i8)byte;
    case VX_WIRE_UINT8: *out = byte; return narrow == byte;
    case VX_WIRE_INT16: memcpy(out, &half, 2); return (i32)narrow == (i16)half;
    case VX_WIRE_UINT16: memcpy(out, &half, 2); return narrow == half;
    case VX_WIRE_INT32:
    case VX_WIRE_UINT32: memcpy(out, &narrow, 4); return true;
    default: memcpy(out, &got->value, 8); return true;
    }
}

/* Eight values of a byte each; they fit all datatypes. */
INLINE void put_eight(enum vx_wire_type type, u8 *out, const u8 *at)
{
    u8 bytes[8];
    u16 halves[8];
    u32 words[8];
    u64 wide[8];
    switch (width_of(type)) {
    case 1:
        for (int i = 0; i < 8; i++) bytes[i] = type == VX_WIRE_BOOL ? at[i] != 0 : at[i];
        memcpy(out, bytes, sizeof bytes);
        break;
    case 2:
        for (int i = 0; i < 8; i++) halves[i] = at[i];
        memcpy(out, halves, sizeof halves);
        break;
    case 4:
        for (int i = 0; i < 8; i++) words[i] = at[i];
        memcpy(out, words, sizeof words);
        break;
    default:
        for (int i = 0; i < 8; i++) wide[i] = at[i];
        memcpy(out, wide, sizeof wide);
    }
}

/* The values that end in a word.  None waits for the length of the one before, as it would if each
 * were loaded by itself.  Returns the bits of those that fit. */
INLINE int put_word(enum vx_wire_type type, u64 word, u8 **out)
{
    int from = 0;
    for (u64 ends = ~word & CONTINUES; ends; ends &= ends - 1) {
        const struct varint got = {.value = varint_of(word, ends, from)};
        if (!put(type, *out, &got)) break;
        *out += width_of(type);
        from = __builtin_ctzll(ends) + 1;
    }
    return from;
}

/* Reads what it can of `bytes` in one piece: whole values, up to one that does not end in it, is
 * too long or does not fit.  Returns the bytes of those that were read. */
INLINE size_t put_run(enum vx_wire_type type, const u8 *at, size_t bytes,
                      struct vx_varints *to)
{
    const size_t width = width_of(type);
    u8 *out = to->out + to->count * width;
    size_t used = 0;
    while (bytes - used >= VARINT_BYTES_MAX) {
        u64 word;
        memcpy(&word, at + used, 8);
        if (!(word & CONTINUES)) {
            put_eight(type, out, at + used);
            out += 8 * width;
            used += 8;
            continue;
        }
        const int bits = put_word(type, word, &out);
        used += (size_t)bits / 8;
        if (bits) continue;
        const struct varint got = varint_read_fast(at + used);
        if (!got.bytes || !put(type, out, &got)) break;
        out += width;
        used += got.bytes;
    }
    while (used < bytes) {
        const struct varint got = varint_read(at + used, bytes - used);
        if (!got.bytes || !put(type, out, &got)) break;
        out += width;
        used += got.bytes;
    }
    to->count = (size_t)(out - to->out) / width;
    return used;
}

/* A copy of the loop for each datatype, so that none asks for it at each value. */
static size_t put_run_of(const u8 *at, size_t bytes, struct vx_varints *to)
{
    switch (to->type) {
    case VX_WIRE_BOOL: return put_run(VX_WIRE_BOOL, at, bytes, to);
    case VX_WIRE_INT8: return put_run(VX_WIRE_INT8, at, bytes, to);
    case VX_WIRE_UINT8: return put_run(VX_WIRE_UINT8, at, bytes, to);
    case VX_WIRE_INT16: return put_run(VX_WIRE_INT16, at, bytes, to);
    case VX_WIRE_UINT16: return put_run(VX_WIRE_UINT16, at, bytes, to);
    case VX_WIRE_INT32:
    case VX_WIRE_UINT32: return put_run(VX_WIRE_UINT32, at, bytes, to);
    default: return put_run(VX_WIRE_UINT64, at, bytes, to);
    }
}

static bool is_signed(enum vx_wire_type type)
{
    return type == VX_WIRE_INT8 || type == VX_WIRE_INT16;
}

static enum vx_varints_end put_one(const struct varint *got, struct vx_varints *to)
{
    const u32 narrow = (u32)got->value;
    if (!put(to->type, to->out + to->count * width_of(to->type), got)) {
        to->misfit = is_signed(to->type) ? (i32)narrow : (i64)narrow;
        return VX_VARINTS_MISFIT;
    }
    to->count++;
    return VX_VARINTS_ALL;
}

/* The value at which put_run ended: one that goes on in the next piece is read here. */
static enum vx_varints_end read_over(struct vx_scan *scan, size_t bytes,
                                     struct vx_varints *to)
{
    u8 near[VARINT_BYTES_MAX];
    struct vx_scan ahead = *scan;
    if (bytes > VARINT_BYTES_MAX) bytes = VARINT_BYTES_MAX;
    vx_scan_copy(&ahead, near, bytes);
    const struct varint got = varint_read(near, bytes);
    if (!got.bytes) return VX_VARINTS_LONG;
    vx_scan_copy(scan, NULL, got.bytes);
    return put_one(&got, to);
}

enum vx_varints_end vx_varints_read(struct vx_scan *scan, size_t bytes,
                                    struct vx_varints *to)
{
    while (bytes) {
        const struct vx_span piece = vx_scan_piece(scan, bytes);
        const size_t used = put_run_of(piece.data, piece.bytes, to);
        vx_scan_copy(scan, NULL, used);
        bytes -= used;
        if (used == piece.bytes) continue;
        const size_t left = vx_scan_left(scan);
        const enum vx_varints_end end = read_over(scan, bytes, to);
        if (end != VX_VARINTS_ALL) return end;
        bytes -= left - vx_scan_left(scan);
    }
    return VX_VARINTS_ALL;
}

enum vx_varints_end vx_varints_read_one(struct vx_scan *scan, struct vx_varints *to)
{
    const struct vx_span piece = vx_scan_piece(scan, vx_scan_left(scan));
    const struct varint got = varint_read(piece.data, piece.bytes);
    if (!got.bytes) return read_over(scan, vx_scan_left(scan), to);
    vx_scan_copy(scan, NULL, got.bytes);
    return put_one(&got, to);
}

/* In the next piece; at least a tag and 10 bytes are read at once. */
#define ALIKE_BYTES (1 + VARINT_BYTES_MAX)

u64 vx_varints_skip_alike(struct vx_scan *scan, u8 tag)
{
    if (!vx_scan_left(scan)) return 0;
    const struct vx_span piece = vx_scan_piece(scan, vx_scan_left(scan));
    size_t used = 0;
    u64 count = 0;
    while (piece.bytes - used >= ALIKE_BYTES && piece.data[used] == tag) {
        const struct varint got = varint_read_fast(piece.data + used + 1);
        if (!got.bytes) break;
        used += 1 + got.bytes;
        count++;
    }
    vx_scan_copy(scan, NULL, used);
    return count;
}

enum vx_varints_end vx_varints_read_alike(struct vx_scan *scan, u8 tag,
                                          struct vx_varints *to)
{
    if (!vx_scan_left(scan)) return VX_VARINTS_ALL;
    const struct vx_span piece = vx_scan_piece(scan, vx_scan_left(scan));
    enum vx_varints_end end = VX_VARINTS_ALL;
    size_t used = 0;
    while (piece.bytes - used >= ALIKE_BYTES && piece.data[used] == tag) {
        const struct varint got = varint_read_fast(piece.data + used + 1);
        if (!got.bytes) break; /* too long: the walk goes on with it and fails */
        end = put_one(&got, to);
        if (end != VX_VARINTS_ALL) break;
        used += 1 + got.bytes;
    }
    vx_scan_copy(scan, NULL, used);
    return end;
}

void vx_varints_take_bool(struct vx_varints *to, bool value)
{
    to->out[to->count++] = value;
}
