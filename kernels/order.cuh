/* order - ranks of masks, ranks within a wave, and the sort of few rows by one block.
 *
 * Owner    -
 * Thread   device code.
 * Limits   as 05_mask_order.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ORDER_CUH
#define VX_KERNELS_ORDER_CUH

#include "kernels/05_mask_order.h"
#include "kernels/waves.cuh"

#define BIN_PAIRS   (VX_ORDER_BINS / 2)
#define SMALL_WAVES (VX_ORDER_SMALL_THREADS / VX_WAVE)
/* Rows of one thread. */
#define SMALL_ITEMS (VX_ORDER_SMALL_ROWS / VX_ORDER_SMALL_THREADS)

/* --- keys --- */

VX_DEVICE uint32_t ones(int32_t count)
{
    return count < 32 ? (1u << count) - 1 : ~0u;
}

/* 1 to 32 bits of a mask, from bit `low`. */
VX_DEVICE uint32_t mask_bits(const uint32_t *mask, int32_t low, int32_t count)
{
    int32_t shift = low % 32;
    uint32_t bits = mask[low / 32] >> shift;
    if (shift + count > 32) bits |= mask[low / 32 + 1] << (32 - shift);
    return bits & ones(count);
}

/* The place of a number in the Gray code. */
VX_DEVICE uint32_t gray_place(uint32_t bits)
{
    for (int32_t step = 1; step < 32; step *= 2) bits ^= bits >> step;
    return bits;
}

/* The bits [low, low + count) of the rank of a mask. */
VX_DEVICE uint32_t rank_bits(const struct vx_mask_order_args *args, const uint32_t *mask,
                             int32_t low, int32_t count, int32_t group)
{
    if (args->run) {
        uint32_t word = vx_order_signature(mask, args->bits, args->run, args->n);
        return (args->gray ? gray_place(word) : word) >> low & ones(count);
    }
    int32_t begin = group * args->bits + low;
    int32_t end = (group + 1) * args->bits;
    uint32_t key = mask_bits(mask, begin, count);
    if (!args->gray) return key;
    key = gray_place(key);
    /* In the Gray code an odd number of bits above inverts every bit below. */
    int32_t above = 0;
    for (int32_t at = begin + count; at < end; at += 32)
        above += vx_count_bits(mask_bits(mask, at, end - at < 32 ? end - at : 32));
    return above % 2 ? key ^ ones(count) : key;
}

/* How often lower lanes, and earlier rounds of this wave, have had the same digit.  Adds
 * this round to the wave's counters. */
VX_DEVICE uint32_t rank_in_wave(uint16_t *counts, uint32_t digit, int32_t valid)
{
    vx_lanes peers = vx_lanes_alike(digit, VX_ORDER_DIGIT, valid);
    vx_lanes below = peers & vx_lanes_below();
    uint32_t before = counts[digit];
    vx_wave_barrier();
    if (valid && below == 0) counts[digit] = (uint16_t)(before + vx_lanes_count(peers));
    vx_wave_barrier();
    return before + vx_lanes_count(below);
}

/* Replaces each wave's counters of two digits, the halves of a word, by the sums over the
 * waves before it.  Returns the sums over all waves, again as halves. */
VX_DEVICE uint32_t sum_over_waves(uint32_t *counts, int32_t waves)
{
    uint32_t sum = 0;
    for (int32_t wave = 0; wave < waves; wave += 4) {
        uint32_t held[4];
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) held[k] = counts[(wave + k) * BIN_PAIRS];
        VX_UNROLL
        for (int32_t k = 0; k < 4; k++) {
            counts[(wave + k) * BIN_PAIRS] = sum;
            sum += held[k];
        }
    }
    return sum;
}

/* --- the small sort --- */

struct small_memory {
    uint32_t begins[VX_ORDER_BINS];
    uint32_t sums[SMALL_WAVES];
};

struct small_pass {
    int32_t low; /* first bit of the rank that the key has */
    /* > 0: the key is made from the mask, with so many bits; 0: it is in the element. */
    int32_t bits;
    int32_t rounds; /* rows of one thread */
};

/* The row of an element, with the digits of its key that later passes sort by above it;
 * *digit is the digit of this pass. */
VX_DEVICE uint32_t small_element(const struct vx_mask_order_args *args,
                                 const struct small_pass *pass, uint32_t element,
                                 uint32_t *digit)
{
    uint32_t row = element % VX_ORDER_SMALL_ROWS;
    uint32_t key = element >> VX_ORDER_SMALL_BITS;
    if (pass->bits > 0)
        key = rank_bits(args, args->masks + row * (uint32_t)args->words, pass->low,
                        pass->bits, (int32_t)vx_block_y());
    *digit = key % VX_ORDER_BINS;
    return row | key >> VX_ORDER_DIGIT << VX_ORDER_SMALL_BITS;
}

VX_DEVICE void small_sort_digit(const struct vx_mask_order_args *args,
                                const struct small_pass *pass, uint32_t *elements,
                                struct small_memory *memory)
{
    uint32_t *counts = elements + VX_ORDER_SMALL_ROWS; /* (waves, pairs of digits) */
    uint16_t *own = (uint16_t *)(counts + vx_wave() * BIN_PAIRS);
    uint32_t n = (uint32_t)args->n;
    uint32_t first = vx_wave() * (uint32_t)pass->rounds * VX_WAVE + vx_lane();
    uint32_t held[SMALL_ITEMS], marks[SMALL_ITEMS]; /* marks: digit, and rank above it */
    for (uint32_t at = vx_thread(); at < SMALL_WAVES * BIN_PAIRS;
         at += VX_ORDER_SMALL_THREADS)
        counts[at] = 0;
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < SMALL_ITEMS; k++) {
        if (k < pass->rounds) {
            uint32_t place = first + (uint32_t)k * VX_WAVE;
            uint32_t digit = 0;
            held[k] = 0;
            if (place < n) held[k] = small_element(args, pass, elements[place], &digit);
            uint32_t rank = rank_in_wave(own, digit, place < n);
            marks[k] = digit | rank << VX_ORDER_DIGIT;
        }
    }
    vx_barrier();
    uint32_t pair = 0, all;
    if (vx_thread() < BIN_PAIRS) pair = sum_over_waves(counts + vx_thread(), SMALL_WAVES);
    uint32_t before = vx_block_sum_before((pair & 0xffffu) + (pair >> 16), memory->sums,
                                          SMALL_WAVES, &all);
    if (vx_thread() < BIN_PAIRS) {
        memory->begins[2 * vx_thread()] = before;
        memory->begins[2 * vx_thread() + 1] = before + (pair & 0xffffu);
    }
    vx_barrier();
    VX_UNROLL
    for (int32_t k = 0; k < SMALL_ITEMS; k++) {
        if (k < pass->rounds && first + (uint32_t)k * VX_WAVE < n) {
            uint32_t digit = marks[k] % VX_ORDER_BINS;
            uint32_t rank = marks[k] >> VX_ORDER_DIGIT;
            elements[memory->begins[digit] + own[digit] + rank] = held[k];
        }
    }
    vx_barrier();
}

/* Leaves in `elements` the rows in their order, below other bits.  All threads of a block call
 * it, and it ends with a barrier. */
VX_DEVICE void small_sort(const struct vx_mask_order_args *args, uint32_t *elements,
                          struct small_memory *memory)
{
    uint32_t n = (uint32_t)args->n;
    struct small_pass pass = {0, 0, 0};
    pass.rounds = (int32_t)((n + VX_ORDER_SMALL_THREADS - 1) / VX_ORDER_SMALL_THREADS);
    for (uint32_t row = vx_thread(); row < n; row += VX_ORDER_SMALL_THREADS)
        elements[row] = row;
    vx_barrier();
    const int32_t bits = vx_order_rank_bits(args->bits, args->run, n);
    for (int32_t low = 0; low < bits; low += VX_ORDER_DIGIT) {
        pass.bits = 0;
        if (low % VX_ORDER_CHUNK == 0) {
            pass.low = low;
            pass.bits = bits - low;
            if (pass.bits > VX_ORDER_CHUNK) pass.bits = VX_ORDER_CHUNK;
        }
        small_sort_digit(args, &pass, elements, memory);
    }
}

#endif
