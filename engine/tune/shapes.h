/* shapes - the voxel sets on which convolutions are measured: shells of spheres, and noise.
 *
 * A shell of resolution R is every voxel whose centre is at most R/2 and at least R/2 -
 * 1.25 from the centre of a cube of R^3.  Its voxels have 12.4 to 13.3 of 27 neighbours,
 * like the surface of any solid.  FlexGEMM's benchmark uses the same sets in the same
 * order, raster inside chunks of 256^3, so that results can be compared with theirs.
 *
 * Noise is one voxel in VX_SHAPE_NOISE_OF of a cube, at random but the same on every machine,
 * in raster order: 1.5 of 27 neighbours, itself among them (density.h: sparse).
 *
 *   i64 n = vx_shape_shell_count(256);        (252 392)
 *   vx_shape_shell(256, n, coords);
 *
 * Owner    the caller owns the memory.
 * Thread   any; pure.
 * Limits   resolutions 1 to VX_SHAPE_RES_MAX.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_SHAPES_H
#define VX_ENGINE_TUNE_SHAPES_H

#include "engine/base/types.h"

/* Coordinates are 0 to R-1 and must fit in VX_AXIS_BITS; a shell of 2^14 has 2^30 voxels,
 * the most of one request. */
#define VX_SHAPE_RES_MAX 16384

i64 vx_shape_shell_count(i32 res);
/* The first n voxels of the shell as rows (sample 0, x, y, z). */
void vx_shape_shell(i32 res, i64 n, i32 *coords);
/* The smallest even resolution whose shell has at least n voxels. */
i32 vx_shape_res_of(i64 n);
/* n voxels of noise as such rows.  Takes about a second for each hundred million voxels of
 * the cube. */
#define VX_SHAPE_NOISE_OF 50
void vx_shape_noise(i64 n, i32 *coords);

/* One row of the benchmark: a shell, its channels, and how many layers run on it. */
struct vx_shape {
    i32 res, channels, layers;
};
/* The rows that are measured by default: FlexGEMM's benchmark and three narrow ones. */
extern const struct vx_shape vx_shapes_shells[];
extern const i32 vx_shapes_shells_count;
/* "RES:C" or "RES:C:L"; false = not of this form or out of range. */
bool vx_shape_parse(const char *text, struct vx_shape *shape);

#endif
