/* 34_live_order - the rows of a convolution that have each child, for channel_to_space.
 *
 * Math     live(i,c)      = logits[i,c] > 0: child c of row i will be there
 *          lists[c,g]     = the rows order[g] that are live in c, in that order, then -1
 *          live_masks[c,i] = masks[i] where live(i,c), else 0
 *          block_masks[c,g,b] = union over the rows lists[c,g, 32b .. 32b+31] of
 *                           mask & group g
 * Shapes   logits (N,Cp)  order (G,N)  lists (C,G,N)  masks (N,W)  live_masks (C,N,W)
 *          block_masks (C,G,B,W), B = N/32 rounded up  counts (C,G,tiles)  totals (C,G)
 * Types    logits VX_TYPE (f32 for TF32); i32 rows, u32 masks and counts.
 * Idea     A convolution before channel_to_space has Co columns for each of C children, of
 *          which half are never there.  The columns of a child are a convolution of their
 *          own, over the rows that have it: the same map, and an order that leaves rows
 *          out.  A row keeps its place among the others, so that what was sorted by masks
 *          still is, without another sort.
 * Steps    1 live_count: live rows of each list in each tile
 *          2 count_scan (05_mask_order): how many are in the tiles before
 *          3 live_write: lists, -1 behind them, masks
 *          4 live_blocks
 * Tiles    VX_LIVE_TILE places of the order; each wave takes consecutive ones.
 * Cost     bytes per row and group: 2*(4 + 8 elements) read, 4*C written, and 4*C*W for
 *          the masks; 4*(C + C*W/32) for the blocks.
 * Limits   C <= VX_LIVE_PANELS <= Cp; V <= 343, a multiple of G; N <= 2^30.  Rows of logits
 *          begin at multiples of 16 bytes.
 * Order    exact.
 * Oracle   34_live_order_ref.c.
 * Source   -
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_LIVE_ORDER_H
#define VX_KERNELS_LIVE_ORDER_H

#include <stdint.h>

#include "kernels/mask.h"

/* Children of a voxel at most: those of stride 2 along three axes. */
#define VX_LIVE_PANELS  8
#define VX_LIVE_THREADS 256
#define VX_LIVE_TILE    2048

/* The arguments of all live_ kernels. */
struct vx_live_order_args {
    int64_t n;
    int64_t tiles;          /* N / VX_LIVE_TILE rounded up */
    int32_t panels;         /* C */
    int32_t v, groups;      /* of offsets: as in 06_conv_masked.h */
    int32_t words;          /* 32-bit words of one mask */
    int32_t cp;             /* elements from a row of logits to the next */
    const void *logits;     /* (N, cp) */
    const int32_t *order;   /* (groups, N); NULL = rows as they are, in every group */
    const uint32_t *masks;  /* (N, words); NULL = every row has every offset */
    uint32_t *counts;       /* (C, groups, tiles) out of count; in of write, scanned */
    const uint32_t *totals; /* (C, groups) in of write */
    int32_t *lists;         /* (C, groups, N) out of write; in of blocks */
    uint32_t *live_masks;   /* (C, N, words) out of write, or NULL; not without masks */
    uint32_t *block_masks;  /* (C, groups, blocks of 32, words) out of blocks */
};

/* The bits of a group of offsets in one word of a mask. */
VX_BOTH uint32_t vx_live_group_word(int32_t v, int32_t groups, int32_t group,
                                    int32_t word)
{
    int32_t low = group * (v / groups) - 32 * word, high = low + v / groups;
    if (low < 0) low = 0;
    if (high > 32) high = 32;
    if (low >= high) return 0;
    return ~0u >> (32 - (high - low)) << low;
}

#endif
