/* network_oracle_sets - the voxels of each set of a network, and which rows an op reads.
 *
 * Written from engine/map_key.h and engine/set_key.h alone, in the plainest way: a set is
 * found by trying every offset of every voxel, a neighbour by looking up its coordinates.
 * It does not use the engine's own functions for this, so that a mistake in them shows.
 *
 *   struct vx_oracle_set fine, coarse;
 *   vx_oracle_set_request(coords, 4, n, shape, &fine);
 *   vx_oracle_set_make(VX_SET_FLOOR, &window, &fine, &coarse);
 *   i32 *reads = vx_oracle_map(VX_MAP_DOWN, &window, &fine, &coarse);
 *   ...reads[row * v + offset]...
 *   vx_free(reads);
 *   vx_oracle_set_fini(&coarse);
 *   vx_oracle_set_fini(&fine);
 *
 * Owner    the caller.
 * Thread   any.
 * Fails    panics: a test without its oracle proves nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_NETWORK_ORACLE_SETS_H
#define VX_TESTS_SUPPORT_NETWORK_ORACLE_SETS_H

#include "engine/map_key.h"
#include "engine/set_key.h"

struct vx_oracle_set {
    i64 rows;
    i32 (*voxels)[4]; /* sample x y z; set 0 in the request's order, others ascend */
    i32 shape[3];     /* coordinates are 0 .. shape - 1; 0 = not bounded */
    u64 *keys;        /* a hash of them, `slots` long: packed coordinates, or EMPTY */
    i32 *row_of;      /* the row of each key */
    size_t slots;
};

/* The window of an op: what it reads of another set, with every number worked out. */
struct vx_oracle_window {
    i32 kernel[3], dilation[3], stride[3], padding[3];
};

/* coords (n, columns); 3 columns are voxels of sample 0. */
void vx_oracle_set_request(const i32 *coords, i32 columns, i64 n, const i32 shape[3],
                           struct vx_oracle_set *set);
/* A new set by any rule but REQUEST. */
void vx_oracle_set_make(enum vx_set_rule rule, const struct vx_oracle_window *window,
                        const struct vx_oracle_set *from, struct vx_oracle_set *set);
/* A new set of children: child c of row r is there if picked[r * children + c]. */
void vx_oracle_set_pick(const i32 stride[3], const bool *picked,
                        const struct vx_oracle_set *from, struct vx_oracle_set *set);
void vx_oracle_set_fini(struct vx_oracle_set *set);
bool vx_oracle_set_equal(const struct vx_oracle_set *a, const struct vx_oracle_set *b);

/* The rows of `from` that each row of `to` reads, (to->rows, offsets), -1 = none.  PARENT
 * has one offset; CHILD is PARENT with vx_oracle_child.  Free with vx_free. */
i32 *vx_oracle_map(enum vx_map_kind kind, const struct vx_oracle_window *window,
                   const struct vx_oracle_set *from, const struct vx_oracle_set *to);
/* Which child of its parent a voxel is: x + stride_x * (y + stride_y * z). */
i32 vx_oracle_child(const i32 voxel[4], const i32 stride[3]);

#endif
