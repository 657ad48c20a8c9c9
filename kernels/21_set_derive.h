/* 21_set_derive - the voxels of a set from those of another one, brick by brick.
 *
 * Math     with p a voxel of `from`, and k = 0 .. kernel - 1 along each axis, the voxels of
 *          `to` are, in the sample of p and each once,
 *          FLOOR    floor(p / stride)
 *          SPCONV   (p + padding - k * dilation) / stride for every k for which every axis
 *                   divides and the result lies in 0 .. shape - 1
 *          EXPAND   p * stride - padding + k * dilation for every k
 *          SAMPLES  0, 0, 0
 *          row(voxel) as in 03_brick_index; coords[row] = vx_key_pack(voxel)
 * Shapes   slots, base (S)  list (rows_max)  keys (N)
 * Types    u64 keys and masks, i32 rows.
 * Idea     The new set is an index of bricks as the one that it is made from, so that a
 *          set can be made from a set before anybody knows how many rows either has: the
 *          number of bricks is read where it lies.  The rules treat each axis by itself.
 *          So all voxels of a source brick that fall into one target brick come from its
 *          mask by a 4x4 matrix of bits for each axis, and are added by one OR.
 * Steps    set_derive: a thread takes a source brick and a target brick near it; makes the
 *          target's mask; finds or creates the target; ORs; lists what it created
 *          set_number: as brick_number, for all sets of a request at once
 *          set_coords: writes the key of each row's voxel
 *          set_derive_many: one block clears, derives and numbers all sets of a request,
 *          one after the other; set_coords_many: a row of blocks (y) to each set
 * Tiles    VX_SET_THREADS threads to a block.
 * Cost     bytes 16*S zeroed; 20 per source brick, 16 random per target brick and source
 *          brick; 20 per brick to number; 8*N keys.
 * Limits   those of 03_brick_index.  A voxel beyond the range of coordinates does not
 *          exist.  stride <= 64, of FLOOR 4096, kernel <= 343, dilation <= 1024, padding <= 343 * 1024;
 *          rows_max <= 2^30; S a power of two >= 2 * rows_max and >= VX_BRICK_GROUP.
 *          set_derive needs slots and counts of zeros.  A set with more bricks or rows than
 *          rows_max gets fault[0], and then lacks voxels: its list has at most rows_max
 *          bricks, and all kernels here stay inside their memory, but other kernels must
 *          not look up voxels in it.  fault[1] stays 0: many p may name the same voxel.
 * Order    the reference lists bricks in the order in which it meets them; a device in any
 *          order.  Compare as sets.
 * Oracle   21_set_derive_ref.c, tests/oracle.
 * Source   FLOOR: Choy et al., MinkowskiEngine, CVPR 2019; SPCONV: Yan et al., SECOND,
 *          Sensors 2018.  Separable masks of bricks: ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SET_DERIVE_H
#define VX_KERNELS_SET_DERIVE_H

#include "kernels/01_coord_hash.h"
#include "kernels/03_brick_index.h"

#define VX_SET_THREADS 512
/* Sets that one launch of set_number numbers: its arguments then have 496 bytes. */
#define VX_SET_NUMBER_MAX 10

/* A set on the device: an index of bricks without a permutation. */
struct vx_brick_set {
    int64_t rows_max;     /* what memory there is for: of bricks, and of rows */
    uint64_t slots_count; /* power of two, >= 2 rows_max */
    struct vx_brick_slot *slots;
    struct vx_brick_counts *counts;
    int32_t *base;  /* (slots_count) first row of a brick; set only where one is */
    uint32_t *list; /* (rows_max) slots of the bricks */
};

/* Offsets that are far from each other, or voxels of a brick whose targets are. */
#define VX_APART_OFFSETS 1
#define VX_APART_VOXELS  2

enum vx_derive_rule {
    VX_DERIVE_FLOOR,
    VX_DERIVE_SPCONV,
    VX_DERIVE_EXPAND,
    VX_DERIVE_SAMPLES, /* kernel, dilation and stride 1, padding 0 */
};

struct vx_set_derive_args {
    struct vx_brick_set to;
    struct vx_brick_set from; /* its base is not used */
    uint64_t seed;            /* of both */
    int32_t kernel[3];        /* FLOOR: not used, as dilation and padding */
    int32_t dilation[3];
    int32_t stride[3];
    int32_t padding[3];
    int32_t shape[3]; /* SPCONV */
    int32_t rule;     /* enum vx_derive_rule */
    uint32_t blocks;  /* of the launch; set_derive_many: not used */
    /* vx_set_derive_plan sets the rest.  A step of an axis is one target brick that the
     * source brick may meet along it, of all voxels and offsets, or of some. */
    int32_t folds;    /* FLOOR by 1, 2, 4 ...: needs no matrices, and one step */
    int32_t apart[3]; /* VX_APART_: which of them have steps of their own */
    int32_t spans[3]; /* target bricks of those that have not */
    int32_t steps[3]; /* of the axis */
};

/* Chains: sets that are made one from the other, or all from earlier ones. */
struct vx_set_derive_many_args {
    int64_t count;                         /* chains */
    int32_t sets;                          /* of each chain */
    const struct vx_set_derive_args *args; /* (count, sets) in device memory */
};

struct vx_set_number_args {
    int64_t count;
    uint32_t blocks; /* for each set */
    struct vx_brick_set sets[VX_SET_NUMBER_MAX];
};

struct vx_set_coords_args {
    int64_t n;       /* rows of `keys` */
    uint32_t blocks; /* of the launch */
    struct vx_brick_set set;
    uint64_t *keys; /* (N) out; VX_KEY_EMPTY for a row that the set does not have */
};
struct vx_set_coords_many_args {
    int64_t count;
    const struct vx_set_coords_args *sets; /* (count) in device memory */
    uint32_t blocks;                       /* the most that a set has */
};

/* Sets the fields of the arguments that follow from the rule. */
void vx_set_derive_plan(struct vx_set_derive_args *args);

void vx_set_derive_ref(const struct vx_set_derive_args *args);
void vx_set_derive_many_ref(const struct vx_set_derive_many_args *args);
void vx_set_number_ref(const struct vx_set_number_args *args);
void vx_set_coords_ref(const struct vx_set_coords_args *args);
void vx_set_coords_many_ref(const struct vx_set_coords_many_args *args);

/* floor(a / b), b > 0. */
VX_BOTH int32_t vx_floor_div(int32_t a, int32_t b)
{
    return a / b - (a % b < 0);
}

/* A brick's place along an axis: its first voxel is at 4 times that. */
VX_BOTH int32_t vx_brick_axis(uint64_t key, int32_t axis)
{
    return (int32_t)(key >> (32 - 16 * axis) & 0xffffu) - (1 << 15);
}

/* A voxel's coordinate from its brick's place and its bit. */
VX_BOTH int32_t vx_brick_voxel(uint64_t key, uint32_t bit, int32_t axis)
{
    return vx_brick_axis(key, axis) * 4 + (int32_t)(bit >> (4 - 2 * axis) & 3u);
}

VX_BOTH int32_t vx_brick_sample(uint64_t key)
{
    return (int32_t)(key >> 48 & 511u);
}

/* Kernel, dilation and padding of an axis; FLOOR is SPCONV with a window as wide as the
 * stride. */
struct vx_set_window {
    int32_t offsets, far, padding;
};
VX_BOTH struct vx_set_window vx_set_window(const struct vx_set_derive_args *args,
                                           int32_t axis)
{
    struct vx_set_window window = {args->stride[axis], 1, 0};
    if (args->rule == VX_DERIVE_FLOOR) return window;
    window.offsets = args->kernel[axis];
    window.far = args->dilation[axis];
    window.padding = args->padding[axis];
    return window;
}

/* The lowest coordinate that can follow from p or a higher one.  reach: from the first to
 * the last offset. */
VX_BOTH int32_t vx_set_lowest(const struct vx_set_derive_args *args, int32_t axis,
                              int32_t p, int32_t padding, int32_t reach)
{
    int32_t stride = args->stride[axis];
    if (args->rule == VX_DERIVE_EXPAND) return p * stride - padding;
    return vx_floor_div(p + padding - reach + stride - 1, stride);
}

#endif
