/* 05_mask_order - rows sorted by their masks, once per group of offsets, and the union of
 * the masks of every 32 rows.
 *
 * Math     order[g] = the rows sorted by (window(i), rank(mask(i) & group g)), equal keys
 *          in rising i; window(i) = i / span; rank = the bits of the group as a number,
 *          or their place in the Gray code: bit k = xor of the bits from k up.
 *          block_masks[g,b] = union over the rows order[g, 32b .. 32b+31] of mask & group
 * Shapes   masks (N,W)  order (G,N)  block_masks (G,B,W), B = N/32 rounded up
 *          keys, rows (G,N)  counts (G*windows, bins, tiles)  totals (G*windows, bins)
 * Types    u32 masks and keys, i32 rows.
 * Idea     A stable radix sort from the lowest digit up.  A window is sorted on its own,
 *          as a segment, so it costs no bits of the key.  Digits have up to 9 bits: the 27
 *          offsets of 3^3 are three passes, one plane of them a single one.  A key is made
 *          from the mask when it is first needed, 32 bits (of a wider mask 27) at a time,
 *          and carried until they are used up.  A set of at most VX_ORDER_SMALL_ROWS rows
 *          is sorted by one block in shared memory, where a row and the 18 bits of key
 *          that are still to come share one word.
 * Steps    small: all in one launch.  large, for each digit: 1 order_count: how often each
 *          value occurs in each tile   2 count_scan: how often in the tiles before
 *          3 order_scatter: ranks inside the tile by ballots, sorted in shared memory,
 *          written in runs.  Then order_blocks.
 * Tiles    VX_ORDER_TILE rows; each wave ranks rows that lie together.
 * Cost     bytes per row, group and pass: 4 (count) + 16 (scatter).
 * Limits   V <= 343; N <= 2^30; windows <= 32.
 * Order    exact: a stable sort has one answer.
 * Oracle   05_mask_order_ref.c.
 * Source   Knuth, TAOCP 3, 5.2.5; ranks by ballots: Adinets and Merrill, Onesweep, 2022;
 *          mask sort: spconv 2.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MASK_ORDER_H
#define VX_KERNELS_MASK_ORDER_H

#include <stdint.h>

#include "kernels/06_conv_masked.h"

/* Bits of one digit.  9 makes 27 bits three passes; a wave's counters of two digits share
 * one word, so 512 of them cost what 256 would. */
#define VX_ORDER_DIGIT 9
#define VX_ORDER_BINS  (1 << VX_ORDER_DIGIT)
/* Rows of one block of the large sort: 256 threads with 8 rows each fill an H200 from
 * 270,000 rows on. */
#define VX_ORDER_THREADS 256
#define VX_ORDER_TILE    2048
/* Rows that one block sorts in shared memory: 16 for each thread.  A row has 14 bits, so
 * that two more digits fit beside it. */
#define VX_ORDER_SMALL_THREADS 1024
#define VX_ORDER_SMALL_BITS    13
#define VX_ORDER_SMALL_ROWS    (1 << VX_ORDER_SMALL_BITS)
/* Bits of a key that travel together: three digits. */
#define VX_ORDER_CHUNK (3 * VX_ORDER_DIGIT)

struct vx_mask_order_args {
    int64_t n;
    int64_t span;  /* rows of a window: N / windows rounded up */
    int64_t tiles; /* of one window: span / VX_ORDER_TILE rounded up */
    int32_t words; /* 32-bit words of one mask */
    int32_t bits;  /* offsets of one group: V / groups */
    int32_t groups;
    int32_t windows;
    int32_t gray;              /* 0 or 1 */
    int32_t key_low, key_bits; /* the piece of the rank that is sorted by: 1..32 bits */
    int32_t shift, digit_bits; /* the digit inside the piece: 1..VX_ORDER_DIGIT bits */
    const uint32_t *masks;     /* (N, words) */
    const uint32_t *keys_in;   /* (groups, N); NULL = made from masks */
    const int32_t *rows_in;    /* (groups, N); NULL = rows as they are */
    uint32_t *keys_out;        /* (groups, N) or NULL; scatter */
    int32_t *rows_out;         /* (groups, N); small, scatter */
    uint32_t *counts;          /* (groups*windows, 1 << digit_bits, tiles) */
    uint32_t *totals;          /* (groups*windows, 1 << digit_bits) */
    uint32_t *block_masks;     /* (groups, blocks of 32, words); small, blocks */
};

/* counts (rows, tiles): each becomes the sum of those before it in its row. */
struct vx_count_scan_args {
    int64_t rows, tiles;
    uint32_t *counts;
    uint32_t *totals; /* (rows) out: the sum of the row */
};

#endif
