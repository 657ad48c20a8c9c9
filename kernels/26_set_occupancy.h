/* 26_set_occupancy - the voxels of a set that follow from logits: live children, or the
 * voxels that are kept.
 *
 * Math     with p a voxel of `from`, row(p) its row, C = stride_x * stride_y * stride_z, and
 *          c = x + stride_x * (y + stride_y * z) for x y z = 0 .. stride - 1, the voxels of
 *          `to` are, in the sample of p,
 *            p * stride + (x, y, z)   for every c with logits[row(p),c] > 0
 *          or, if there are `kept` (then C = 1),
 *            p                        for every p with kept[row(p)] = 1
 *          live = number of those voxels
 *          bad  = ~vx_key_pack(p) of the first p, in the order of keys, that has a logit
 *          which is not a number; bad_child = its first such c.  0: all are numbers.
 * Shapes   from, to: 21_set_derive.  logits (N,Cp)  kept (N)
 * Types    logits VX_TYPE (f32 for TF32), u32 kept, u64 keys and masks.
 * Idea     The children of the voxels of a source brick lie in C target bricks that belong
 *          to it alone.  A wave takes such a target brick, a lane each of its voxels: which
 *          voxel of the source and which child it is follow from the place alone, and the
 *          lanes' answers are the mask.
 * Steps    set_occupancy: makes masks; finds or creates targets; ORs; lists; counts
 *          occupancy_fault: finds the child that `bad` stands for
 *          set_number (21) then numbers the rows.
 * Tiles    VX_SET_THREADS threads; a wave takes VX_OCCUPANCY_TASKS target bricks at a time,
 *          a row of blocks (y) each set.
 * Cost     bytes per row of `from` C elements in whole sectors of 32, and 28 per target
 *          brick; 16 random per target brick with a voxel.
 * Limits   those of 21_set_derive; C <= Cp.  slots and counts of `to` are zeros before.
 *          Rows of `from` from n on count as absent.  A voxel beyond the range of
 *          coordinates does not exist, but its logit must be a number.  More bricks or rows
 *          than rows_max: fault[0], as in 21_set_derive; `live` is right all the same.
 *          count < 2^16.
 * Order    as 21_set_derive.
 * Oracle   26_set_occupancy_ref.c, tests/oracle.
 * Source   Xiang et al., TRELLIS.2, 2025 (predicted subdivision); Tatarchenko, Dosovitskiy,
 *          Brox, Octree Generating Networks, ICCV 2017.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SET_OCCUPANCY_H
#define VX_KERNELS_SET_OCCUPANCY_H

#include "kernels/21_set_derive.h"

/* With more, a small set would leave processors idle; with one, most lanes of an insertion
 * would be. */
#define VX_OCCUPANCY_TASKS 8

struct vx_occupancy_set {
    int64_t n; /* rows of logits: those of `from`, or fewer */
    struct vx_brick_set to;
    struct vx_brick_set from;
    const void *logits;   /* (n, cp) */
    const uint32_t *kept; /* (n) or NULL */
    int32_t cp;
    int32_t stride[3];
    uint32_t blocks; /* of the launch, for this set */
};

struct vx_set_occupancy_args {
    int64_t count;
    const struct vx_occupancy_set *sets; /* (count) in device memory */
    uint64_t seed;                       /* of all sets */
    uint32_t blocks;                     /* the most that a set has */
};

/* The child that a voxel of a target brick is.  part: which of the C target bricks of the
 * source brick; bit: the voxel's.  Sets the bit of its voxel in the source brick. */
VX_BOTH int32_t vx_occupancy_child(const int32_t stride[3], int32_t part, uint32_t bit,
                                   uint32_t *source)
{
    int32_t child = 0, times = 1;
    *source = 0;
    for (int32_t axis = 0; axis < 3; axis++) {
        int32_t at = part % stride[axis] * 4 + (int32_t)(bit >> (4 - 2 * axis) & 3u);
        part /= stride[axis];
        *source |= (uint32_t)(at / stride[axis]) << (4 - 2 * axis);
        child += at % stride[axis] * times;
        times *= stride[axis];
    }
    return child;
}

#endif
