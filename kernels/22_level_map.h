/* 22_level_map - for every row of one set, the rows of another that it reads, from bricks.
 *
 * Math     with out the voxel of row i of `to`, and k = 0 .. kernel - 1 along each axis,
 *          v = (kx*Ky + ky)*Kz + kz, nbr[i,v] = row of the voxel of `from`, in the sample
 *          of out, at
 *          DOWN     out * stride - padding + k * dilation
 *          UP       (out + padding - k * dilation) / stride, where every axis divides
 *          PARENT   floor(out / stride)
 *          CHILD    as PARENT, and then row * C + c: C = stride_x * stride_y * stride_z,
 *                   c = x + stride_x * (y + stride_y * z) with x y z = out mod stride
 *          SAMPLE   0, 0, 0
 *          CORNER   floor(out / stride) + k
 *          or -1 if there is none
 *          masks[i]   has bit v set when nbr[i,v] >= 0
 *          pairs    = number of entries >= 0
 * Shapes   from, to: 21_set_derive
 *          nbr (N,S), S = V rounded up to 4, entries past V are -1; V = 1: any S
 *          masks (N,W), W = V/32 rounded up; PARENT, CHILD, SAMPLE: no masks, no pairs
 * Types    u64 masks of bricks in, i32 rows, u32 masks of rows out.
 * Idea     As 03_brick_map: a voxel that is read is a bit in one of a few bricks of
 *          `from`, which are looked up once for each brick of `to`.  Where a place and an
 *          offset lead is a sum over the axes, so that the table has a row for each place
 *          of an axis and not of the brick; for UP it depends on the brick's place modulo
 *          the stride, and has 4 * stride rows.  Few look-ups (k2 s2: 8 down, 1 up) leave
 *          lanes idle, so a wave takes as many bricks as it has lanes for, at most 8, and
 *          then the rows of all of them.
 * Steps    1 build the table of each axis
 *          2 look up the bricks that a wave's bricks read, a lane each; list their rows
 *          3 for each row, 1 to 8 lanes with four entries each: the three sums say which
 *            bit of which mask; bits below it are counted
 *          4 join 4 bits of each lane to a mask
 *          5 add up the pairs of the block; the last block writes the sum
 * Tiles    level_map_far looks up every entry: for what vx_level_map_plan says no to.
 *          level_map_many, level_map_far_many: the same for many sets, a row of blocks (y)
 *          to each.
 * Cost     bytes 4*N*S + 4*N*W written, 32 random for each brick looked up.
 * Limits   stride <= 64, of PARENT and CORNER 4096, V <= 343, padding and dilation as in 21_set_derive; level_map:
 *          vx_level_map_plan.  A voxel beyond the coordinate range does not exist, nor does
 *          one in a brick whose rows are not all below from_n, nor any when `from` has
 *          fault[0].  Rows from `to`'s count on get no neighbours; rows from n on are not
 *          written.  blocks < 2^16, 1 <= V; CHILD: from_n * C < 2^31.  Many sets: count <
 *          2^16, and no two have the same counts in `to`, which hold the tally.
 * Order    exact, given the indices.
 * Oracle   22_level_map_ref.c, tests/oracle.
 * Source   as 03_brick_map; UP as the transpose of DOWN: Graham, Engelcke, van der Maaten,
 *          Submanifold Sparse Convolutional Networks, CVPR 2018.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_LEVEL_MAP_H
#define VX_KERNELS_LEVEL_MAP_H

#include "kernels/03_brick_map.h"
#include "kernels/21_set_derive.h"

/* level_map: bricks of `from` that one brick of `to` reads, and entries of the tables of
 * all axes. */
#define VX_LEVEL_NEAR_MAX  64
#define VX_LEVEL_TABLE_MAX 1024

enum vx_level_kind {
    VX_LEVEL_DOWN,
    VX_LEVEL_UP,
    VX_LEVEL_PARENT,
    VX_LEVEL_CHILD,
    VX_LEVEL_SAMPLE, /* stride 1 */
    VX_LEVEL_CORNER, /* dilation 1, padding 0 */
};

struct vx_level_map_args {
    int64_t n;                /* rows of nbr: of `to`, or more */
    int64_t from_n;           /* rows of `from` */
    uint64_t seed;            /* of both */
    struct vx_brick_set from; /* its list and rows_max are not used */
    struct vx_brick_set to;   /* its slots_count and rows_max are not used */
    int32_t kernel[3];        /* along x y z; PARENT, CHILD, SAMPLE: 1 */
    int32_t dilation[3];      /* >= 1 */
    int32_t stride[3];        /* >= 1 */
    int32_t padding[3];
    int32_t kind; /* enum vx_level_kind */
    int32_t v;    /* kernel[0] * kernel[1] * kernel[2] */
    int32_t words;
    int32_t nbr_stride;
    uint32_t blocks; /* of the launch; 1 .. 65535 */
    /* vx_level_map_plan sets these: along each axis a brick of `to` at b reads the bricks
     * of `from` from low on, relative to b * stride for DOWN, to 0 for SAMPLE, else to
     * floor(b / stride). */
    int32_t low[3];
    int32_t near[3];
    int32_t *nbr;    /* (N, nbr_stride) out */
    uint32_t *masks; /* (N, words) out; NULL: PARENT, CHILD, SAMPLE */
    uint64_t *pairs; /* (1) out; NULL: where masks is */
};

/* Independent sets in one launch, as in 03_brick_map. */
struct vx_level_map_many_args {
    int64_t count;
    const struct vx_level_map_args *sets; /* (count) in device memory */
    uint32_t blocks;                      /* the most that a set has; 1 .. 65535 */
};

/* Sets low and near.  Returns 1 if level_map can make the map, 0: only level_map_far. */
int vx_level_map_plan(struct vx_level_map_args *args);

void vx_level_map_ref(const struct vx_level_map_args *args);
void vx_level_map_many_ref(const struct vx_level_map_many_args *args);

/* The coordinate of `from` that one of `to` reads at offset k of an axis; 0: none. */
VX_BOTH int vx_level_at(const struct vx_level_map_args *args, int32_t axis, int32_t out,
                        int32_t k, int32_t *at)
{
    int32_t stride = args->stride[axis], far = k * args->dilation[axis];
    if (args->kind == VX_LEVEL_SAMPLE) {
        *at = 0;
        return 1;
    }
    if (args->kind == VX_LEVEL_DOWN) {
        *at = out * stride - args->padding[axis] + far;
        return 1;
    }
    if (args->kind == VX_LEVEL_UP) out += args->padding[axis] - far;
    *at = vx_floor_div(out, stride);
    if (args->kind == VX_LEVEL_CORNER) *at += k;
    return args->kind != VX_LEVEL_UP || *at * stride == out;
}

/* Places of an axis that lead to different offsets: those of one brick, or of `stride`
 * bricks in a row. */
VX_BOTH int32_t vx_level_places(const struct vx_level_map_args *args, int32_t axis)
{
    return args->kind == VX_LEVEL_DOWN ? 4 : 4 * args->stride[axis];
}

#endif
