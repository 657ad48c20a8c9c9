/* map_key - which rows an operation reads: the shape of its kernel, and how the set that
 * it writes lies to the set that it reads.
 *
 * With out the voxel of a row of set `to`, and k an offset of the kernel, 0 to kernel - 1
 * along each axis, the row at offset k is the row of set `from` at
 *
 *   SUBM    out + (k - (kernel - 1) / 2) * dilation         from and to are one set
 *   DOWN    out * stride - padding + k * dilation           to is coarser
 *   UP      (out + padding - k * dilation) / stride         to is finer; only where every
 *                                                           axis divides
 *   PARENT  floor(out / stride)                             to is finer, or has some of
 *                                                           from's voxels; V = 1
 *   CHILD   PARENT's row * C + c, with C the voxels of a block of stride x * y * z and c
 *           the one that out is: x + stride_x * (y + stride_y * z), counted in the block
 *   SAMPLE  0, 0, 0                                         from is one of SAMPLES; V = 1
 *   CORNER  floor(out / stride) + k                         from is coarser; the kernel is
 *                                                           2x2x2: the corners of a cell
 *
 * One kind is not about the voxel of its row:
 *
 *   ORDER   row i is the i-th of the rows of `from`, which is `to`, sorted by (sample,
 *           floor(voxel / stride), voxel), each by x, y, z; V = 1.  So the rows of a
 *           coarser voxel stand together.
 *
 * UP is DOWN transposed: row p of a fine set has q at offset k if and only if, in the map
 * DOWN of the same numbers, q has p there.
 *
 * Owner    a value; all fields count when two keys are compared with memcmp.
 * Thread   any.
 * Limits   vx_map_offsets is at most VX_KERNEL_OFFSETS_MAX; the network's reader checks it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MAP_KEY_H
#define VX_ENGINE_MAP_KEY_H

#include "engine/base/types.h"

enum vx_map_kind {
    VX_MAP_SUBM,
    VX_MAP_DOWN,
    VX_MAP_UP,
    VX_MAP_PARENT,
    VX_MAP_CHILD,
    VX_MAP_SAMPLE,
    VX_MAP_CORNER,
    VX_MAP_ORDER,
};

struct vx_map_key {
    i32 kernel[3];   /* along x y z; SUBM: odd; vx_map_is_one: 1 */
    i32 dilation[3]; /* >= 1 */
    i32 stride[3];   /* >= 1; SUBM: 0; SAMPLE: 1 */
    i32 padding[3];  /* DOWN, UP; else 0 */
    enum vx_map_kind kind;
    i32 from, to; /* sets of the network: the rows that it names, the rows that it has */
};

/* V, the kernel offsets. */
static inline i32 vx_map_offsets(const struct vx_map_key *key)
{
    return key->kernel[0] * key->kernel[1] * key->kernel[2];
}

/* A map that names one row for each of its own, whatever the stride is: V = 1, and what
 * counts as its pairs is its rows. */
static inline bool vx_map_is_one(const struct vx_map_key *key)
{
    return key->kind == VX_MAP_PARENT || key->kind == VX_MAP_CHILD ||
           key->kind == VX_MAP_SAMPLE || key->kind == VX_MAP_ORDER;
}

#endif
