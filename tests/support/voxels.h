/* voxels - sets of coordinates that tests and benchmarks are run on, the same on every machine.
 *
 *   i64 n = voxels_shell(64, NULL);
 *   i32 *coords = vx_alloc((size_t)n * 16);
 *   voxels_shell(64, coords);
 *
 * Owner    the caller.
 * Thread   any; a generator belongs to one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_VOXELS_H
#define VX_TESTS_SUPPORT_VOXELS_H

#include "engine/base/types.h"

/* A generator of our own (an additive sequence, mixed), so that a seed gives the same numbers
 * everywhere. */
struct voxels_random {
    u64 state;
};
u64 voxels_next(struct voxels_random *random);
i32 voxels_between(struct voxels_random *random, i32 least, i32 most);
f32 voxels_unit(struct voxels_random *random);                          /* [-1, 1) */
void voxels_fill(struct voxels_random *random, f32 *values, i64 count); /* with units */

/* The field's usual benchmark: voxels of a res^3 grid whose distance from its centre is at most
 * res/2 and at least res/2 - 1.25, x slowest, sample 0.  Rows are written if coords is not NULL. */
i64 voxels_shell(i32 res, i32 *coords);

/* n different voxels as a rotating scanner sees them: rings on the ground and on walls around the
 * origin, thinner with distance, in the order of the beams.  Sample 0. */
void voxels_scan(struct voxels_random *random, i64 n, i32 *coords);

void voxels_shuffle(struct voxels_random *random, i32 *coords, i64 n);

#endif
