/* 37_order_sweep - the large sort: how often each digit is there, and a pass in one launch.
 *
 * Math     key(p)         = keys_in[g,p]; of order_digits without keys_in the bits of the rank of
 *                           row rows_in[g,p] (05)
 *          totals[d,g,x]  = the places p whose key has x as digit d
 *          place(p)       = sum over x below p's digit of totals[g,x]
 *                           + the places before p that have p's digit
 *          rows_out[g, place(p)] = rows_in[g,p]   keys_out[g, place(p)] = key(p)
 * Shapes   masks (N,W)  keys, rows (G,N)  totals (digits, G, VX_ORDER_BINS)
 *          state (digits, G, vx_sweep_layout_of(tiles).words)
 * Types    u32 masks, keys, totals and state, i32 rows.
 * Idea     order_clear, then order_digits: the totals of up to four digits in one look at the
 *          masks, for which order does not matter, and the keys.  Then order_sweep for each digit,
 *          from the lowest up: a block takes the next tile of rows, says how many rows of each
 *          digit it has, and adds up what the tiles before it have said.  It waits only for tiles
 *          that were taken before its own, whose blocks have begun, so one of them can always go
 *          on.  Each word says by itself that it is written (coherent.cuh): a tile's counts by
 *          SAID; the sum of a span of tiles by how many have added to it; what is before the end
 *          of a span by SAID.  A tile adds up its own span's tiles, and spans back to one that
 *          knows all before it.
 * Cost     order_digits: N * (4 or 4W + 4) bytes.  order_sweep: N * 16 bytes, 1 KiB out per tile
 *          and at most 15 KiB in from the tiles of its span, 10 KiB from each four spans.
 * Limits   N <= 2^30.  Keys of 1 to 32 bits, digits of 1 to VX_ORDER_DIGIT.  State and totals are
 *          zero when order_digits (totals, by order_clear) and order_sweep (state, by
 *          order_digits) begin.
 * Order    exact: a stable sort has one answer.
 * Oracle   37_order_sweep_ref.c, tests/oracle/cases_order.c; the large sort as a whole:
 *          tests/unit/kernels/test_kernels_order.c.
 * Source   Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back
 *          (2016); Adinets and Merrill, Onesweep (2022).  Spans are ours: few rows make few tiles,
 *          of which none knows what is before it when all of them ask.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ORDER_SWEEP_H
#define VX_KERNELS_ORDER_SWEEP_H

#include <stdint.h>

#include "kernels/05_mask_order.h"

/* Digits of a key of 32 bits. */
#define VX_SWEEP_DIGITS 4

/* Tiles of a span. */
#define VX_SWEEP_SPAN 16
/* A tile's word has the rows of two digits, 16 bits for each, and says that it is written; so does
 * the word of what is before the end of a span. */
#define VX_SWEEP_SAID 0x80000000u
/* A span's word has, above its rows, how many tiles have added theirs. */
#define VX_SWEEP_TILE (1u << 25)

/* Where the words of a pass lie, for one group: the next tile to be taken, alone in its line; the
 * tiles' (tiles, bins / 2); the spans' (spans, bins), and what is before their ends (spans, bins). */
struct vx_sweep_layout {
    int64_t spans, counts, sums, through, words;
};
VX_BOTH struct vx_sweep_layout vx_sweep_layout_of(int64_t tiles)
{
    struct vx_sweep_layout at;
    at.spans = (tiles + VX_SWEEP_SPAN - 1) / VX_SWEEP_SPAN;
    at.counts = 32;
    at.sums = at.counts + tiles * (VX_ORDER_BINS / 2);
    at.through = at.sums + at.spans * VX_ORDER_BINS;
    at.words = at.through + at.spans * VX_ORDER_BINS;
    return at;
}

/* Of order_clear and order_digits.  sort: `tiles` those of the sweeps, `totals` (out) and `counts`
 * (state, out) those of the first digit, the others behind them; keys_out may be NULL.  order_sweep
 * has a struct vx_mask_order_args, whose `counts` is the state of its pass. */
struct vx_order_digits_args {
    struct vx_mask_order_args sort;
    int32_t digits;
    int32_t shifts[VX_SWEEP_DIGITS], bits[VX_SWEEP_DIGITS];
};

/* As vx_mask_order_many_args. */
struct vx_order_digits_many_args {
    int64_t count;
    const struct vx_order_digits_args *sorts; /* (count) in device memory */
    int64_t tiles;                            /* the most of any sort, as of groups */
    int32_t groups;
};

#endif
