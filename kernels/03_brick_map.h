/* 03_brick_map - for every row and every kernel offset, the row found there; from bricks.
 *
 * Math     nbr[i,v] = row of the voxel at coordinates(i) + offset(v) in the same sample, -1
 *          if there is none; offset(v) as in 02_neighbor_map.  masks[i] has bit v when
 *          nbr[i,v] >= 0.  pairs = number of entries that are not -1.
 * Shapes   slots, base, list: 03_brick_index  nbr (N,S), S = V rounded up to 4, the rest
 *          of a row -1  masks (N,W), W = V/32 rounded up
 * Types    u64 masks of bricks in, i32 rows, u32 masks of rows out.
 * Idea     A wave takes a brick and looks up the bricks around it, once for all of its
 *          voxels.  Then a neighbour is a bit in one of 27 masks, and its row that brick's
 *          base plus the bits below: for a place in the brick and an offset, which word
 *          and which bit is a table of the block.  Eight lanes write one row, four entries
 *          each, as 16 bytes.
 * Steps    1 table of (place, offset)   2 for each brick: 27 look-ups, a list of its
 *          places   3 rows: shift the bit to the top of its word; the top bit says there,
 *          the count of bits says which   4 join 4 bits a lane to a mask   5 pairs of the
 *          block; the last block writes the sum.
 * Tiles    brick_map: VX_WORDS >= W words of mask that the table has.  Offsets beyond 4
 *          along an axis leave the 27 bricks: brick_map_far looks up every entry.
 *          brick_map_many, brick_map_far_many: the same for many sets, a row of blocks
 *          to each.
 * Cost     bytes 4*N*S + 4*N*W written, 16 reads of 32 bytes a brick (8 lines of slots, 8
 *          of bases) mostly from cache; 14 instructions of a wave per row.
 * Limits   kernel odd, V <= 343, dilation >= 1; brick_map: kernel/2*dilation <= 4.  A
 *          neighbour beyond the coordinate range does not exist.  blocks < 2^16; of many,
 *          count < 2^16, and no two sets share counts, because of the tally.
 * Order    exact, given the index.
 * Oracle   03_brick_map_ref.c, tests/oracle.
 * Source   Museth, VDB (ACM TOG 2013); fVDB (Williams et al., ACM TOG 2024).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_BRICK_MAP_H
#define VX_KERNELS_BRICK_MAP_H

#include "kernels/03_brick_index.h"

#define VX_BRICK_OFFSETS_MAX 343
/* Farther than this along an axis a neighbour is not in an adjacent brick. */
#define VX_BRICK_REACH 4
/* brick_map: threads of a block, a wave to a brick. */
#define VX_BRICK_MAP_THREADS 256
/* tally holds the pairs in the bits below, the blocks that are done above. */
#define VX_BRICK_TALLY_BITS 48

struct vx_brick_map_args {
    int64_t n;
    uint64_t slots_count;
    uint64_t seed; /* the index's */
    const struct vx_brick_slot *slots;
    const int32_t *base;
    const uint32_t *list;
    struct vx_brick_counts *counts;
    int32_t kernel[3];   /* odd, along x y z */
    int32_t dilation[3]; /* >= 1 */
    int32_t v;           /* kernel[0] * kernel[1] * kernel[2] */
    int32_t words;       /* of one mask */
    int32_t nbr_stride;  /* entries of one row of nbr */
    uint32_t blocks;     /* of the launch; 1 .. 65535 */
    int32_t *nbr;        /* (N, nbr_stride) out */
    uint32_t *masks;     /* (N, words) out */
    uint64_t *pairs;     /* (1) out */
};

/* Sets that know nothing of each other, in one launch: block (x, y) is block x of the
 * `blocks` of set y, if it has as many. */
struct vx_brick_map_many_args {
    int64_t count;
    const struct vx_brick_map_args *sets; /* (count) in device memory */
    uint32_t blocks;                      /* the most that a set has; 1 .. 65535 */
};

void vx_brick_map_ref(const struct vx_brick_map_args *args);
void vx_brick_map_many_ref(const struct vx_brick_map_many_args *args);

/* Along axis 0 x, 1 y, 2 z: how far offset v is. */
VX_BOTH int32_t vx_brick_offset(const struct vx_brick_map_args *args, int32_t v,
                                int32_t axis)
{
    if (axis < 2) v /= args->kernel[2];
    if (axis < 1) v /= args->kernel[1];
    return (v % args->kernel[axis] - args->kernel[axis] / 2) * args->dilation[axis];
}

#endif
