/* 03_brick_map - for every row and every kernel offset, the row found there, from bricks.
 *
 * Math     nbr[i,v] = row of the voxel at coordinates(i) + offset(v) in the same sample,
 *                     -1 if there is none; offset(v) as in 02_neighbor_map
 *          masks[i]   has bit v set when nbr[i,v] >= 0
 *          pairs    = number of entries >= 0
 * Shapes   slots, base, list: 03_brick_index
 *          nbr (N,S), S = V rounded up to 4, entries past V are -1
 *          masks (N,W), W = V/32 rounded up
 * Types    u64 masks of bricks in, i32 rows, u32 masks of rows out.
 * Idea     A wave takes a brick and looks up the bricks that its voxels reach, once for all its
 *          voxels.  A neighbour is then a bit in one of 27 masks, and its row is that
 *          brick's base plus the number of bits below.  Which word and which bit belong
 *          to a place in the brick and an offset stands in a table that each block
 *          builds.  Eight lanes write one row, four entries each, as 16 bytes.
 *          Where bricks have fewer than two voxels on average, those eight lanes look up the
 *          at most eight bricks that their own voxel reaches: a wave to a brick would leave
 *          most of its lanes idle.
 * Steps    1 build the table of (place, offset)
 *          2 for each brick: up to 26 look-ups, a list of its places; meanwhile the next two
 *            bricks of the list are loaded
 *          3 for each row: shift the neighbour's bit to the top of its word; the top bit
 *            says whether the neighbour exists, the count of bits gives its row
 *          4 join 4 bits of each lane to a mask
 *          5 add up the pairs of the block; the last block writes the sum
 * Tiles    brick_map: VX_WORDS, the words of mask that the table has, >= W.  Offsets
 *          beyond 4 along an axis leave the 27 bricks: brick_map_far looks up every
 *          entry.  brick_map_many, brick_map_far_many: the same for many sets, a row of
 *          blocks (y) to each.
 * Cost     bytes 4*N*S + 4*N*W written, 16 reads of 32 bytes a brick (8 lines of slots, 8
 *          of bases) mostly from cache; 14 instructions of a wave per row; scattered some 120
 *          per row, because look-ups fill 9 of 32 lanes.
 * Limits   kernel odd, V <= 343, dilation >= 1; brick_map: kernel/2*dilation <= 4.  A
 *          neighbour beyond the coordinate range does not exist.  blocks < 2^16.  Many
 *          sets: count < 2^16, and no two sets share their counts, which hold the tally.
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
/* A neighbour farther away than this along an axis may be beyond the adjacent bricks. */
#define VX_BRICK_REACH 4
/* brick_map: threads of a block, a wave to a brick. */
#define VX_BRICK_MAP_THREADS 256
/* The tally has the pairs in the bits below this one, and the finished blocks above. */
#define VX_BRICK_TALLY_BITS 48

struct vx_brick_map_args {
    int64_t n;
    uint64_t slots_count;
    uint64_t seed; /* of the index */
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

/* Independent sets in one launch: block (x, y) is block x of set y, and ends at once when
 * that set has fewer blocks. */
struct vx_brick_map_many_args {
    int64_t count;
    const struct vx_brick_map_args *sets; /* (count) in device memory */
    uint32_t blocks;                      /* the most that a set has; 1 .. 65535 */
};

void vx_brick_map_ref(const struct vx_brick_map_args *args);
void vx_brick_map_many_ref(const struct vx_brick_map_many_args *args);

/* The distance of offset v along an axis: 0 = x, 1 = y, 2 = z. */
VX_BOTH int32_t vx_brick_offset(const struct vx_brick_map_args *args, int32_t v,
                                int32_t axis)
{
    if (axis < 2) v /= args->kernel[2];
    if (axis < 1) v /= args->kernel[1];
    return (v % args->kernel[axis] - args->kernel[axis] / 2) * args->dilation[axis];
}

#endif
