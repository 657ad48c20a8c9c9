/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/keys.h"

#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "kernels/01_coord_hash.h"

#include <string.h>

#define DIGITS (1 << VX_KEYS_DIGIT_BITS)

/* Fewest rows of a chunk: with fewer, clearing the histogram takes longest.  Most: with each the
 * device's thread says that it goes on (cpu.h), and the prefix sum of more chunks takes longer. */
#define PIECE_ROWS_MIN 8192
#define PIECE_ROWS_MAX (1 << 18)

/* Bytes of a chunk that is copied. */
#define COPY_BYTES (1 << 20)

/* A radix sort from the lowest digit up.  The coordinates of one request use a small part
 * of the 63 bits of a key, so digits are taken from the bits that vary: each field minus
 * its least value, packed without gaps.  Each chunk counts its digits, one prefix sum
 * gives each chunk its places, and each chunk moves its rows there.  The sort is stable
 * for any number of chunks. */
struct radix {
    struct vx_keys from, to;
    u64 base; /* the least value of every field */
    int bits[4];
    int shift;
    i64 piece_rows;
    u32 (*counts)[DIGITS];
};

static u32 digit(const struct radix *radix, u64 key)
{
    const int axis_bits = VX_KEY_AXIS_BITS;
    /* No field is less than its base, so nothing is borrowed between fields. */
    u64 rest = key - radix->base;
    u64 dense = rest >> 3 * axis_bits;
    dense = dense << radix->bits[1] | (rest >> 2 * axis_bits & VX_KEY_AXIS_MASK);
    dense = dense << radix->bits[2] | (rest >> axis_bits & VX_KEY_AXIS_MASK);
    dense = dense << radix->bits[3] | (rest & VX_KEY_AXIS_MASK);
    return (u32)(dense >> radix->shift) & (DIGITS - 1);
}

static i64 piece_end(const struct radix *radix, i64 piece)
{
    i64 end = (piece + 1) * radix->piece_rows;
    return end < radix->from.n ? end : radix->from.n;
}

static void count_task(void *context, i64 begin, i64 end)
{
    const struct radix *radix = context;
    for (i64 piece = begin; piece < end; piece++) {
        u32 *counts = radix->counts[piece];
        memset(counts, 0, sizeof radix->counts[piece]);
        for (i64 i = piece * radix->piece_rows; i < piece_end(radix, piece); i++)
            counts[digit(radix, radix->from.keys[i])]++;
    }
}

static void move_task(void *context, i64 begin, i64 end)
{
    const struct radix *radix = context;
    for (i64 piece = begin; piece < end; piece++) {
        u32 *places = radix->counts[piece];
        for (i64 i = piece * radix->piece_rows; i < piece_end(radix, piece); i++) {
            u32 place = places[digit(radix, radix->from.keys[i])]++;
            radix->to.keys[place] = radix->from.keys[i];
            radix->to.rows[place] = radix->from.rows[i];
        }
    }
}

static void prefix(struct radix *radix, i64 pieces)
{
    u32 place = 0;
    for (int d = 0; d < DIGITS; d++) {
        for (i64 piece = 0; piece < pieces; piece++) {
            u32 count = radix->counts[piece][d];
            radix->counts[piece][d] = place;
            place += count;
        }
    }
}

i64 vx_keys_pieces(const struct vx_cpu *cpu, i64 n, i64 least, i64 most)
{
    i64 pieces = vx_cpu_threads(cpu);
    if (pieces > n / least) pieces = n / least;
    if (pieces < (n - 1) / most + 1) pieces = (n - 1) / most + 1;
    if (pieces > VX_KEYS_PIECES_MAX) pieces = VX_KEYS_PIECES_MAX;
    return pieces ? pieces : 1;
}

struct copy {
    u8 *to;
    const u8 *from;
};

static void copy_task(void *context, i64 begin, i64 end)
{
    const struct copy *copy = context;
    memcpy(copy->to + begin, copy->from + begin, (size_t)(end - begin));
}

void vx_keys_copy(struct vx_cpu *cpu, void *to, const void *from, size_t bytes)
{
    struct copy copy = {to, from};
    vx_cpu_spread(cpu, (i64)bytes, COPY_BYTES, copy_task, &copy);
}

void vx_keys_sort(struct vx_cpu *cpu, const struct vx_keys_scan *scan,
                  const struct vx_keys_sort *sort)
{
    i64 n = sort->set.n;
    VX_ASSERT(sort->scratch.n == n);
    if (n < 2) return;
    struct radix radix = {.from = sort->set, .to = sort->scratch, .counts = sort->counts};
    radix.base =
        vx_key_pack(scan->least[0], scan->least[1], scan->least[2], scan->least[3]);
    int bits = 0;
    for (int field = 0; field < 4; field++) {
        radix.bits[field] = vx_bit_length((u64)(scan->most[field] - scan->least[field]));
        bits += radix.bits[field];
    }
    i64 pieces = vx_keys_pieces(cpu, n, PIECE_ROWS_MIN, PIECE_ROWS_MAX);
    radix.piece_rows = (n - 1) / pieces + 1;
    pieces = (n - 1) / radix.piece_rows + 1;
    for (; radix.shift < bits; radix.shift += VX_KEYS_DIGIT_BITS) {
        vx_cpu_spread(cpu, pieces, 1, count_task, &radix);
        prefix(&radix, pieces);
        vx_cpu_spread(cpu, pieces, 1, move_task, &radix);
        struct vx_keys sorted = radix.to;
        radix.to = radix.from;
        radix.from = sorted;
    }
    if (radix.from.keys != sort->set.keys) {
        vx_keys_copy(cpu, sort->set.keys, radix.from.keys,
                     (size_t)n * sizeof *sort->set.keys);
        vx_keys_copy(cpu, sort->set.rows, radix.from.rows,
                     (size_t)n * sizeof *sort->set.rows);
    }
}
