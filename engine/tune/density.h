/* density - classes of clouds by how many of a kernel's offsets have a voxel.
 *
 * Which tile is the fastest hardly depends on the cloud: measured with every tile (H200,
 * fp16, 3^3), that of a surface is within 1 % of the best on planes, rooms, LiDAR and
 * solids.  Only where nearly all rows have their own voxel alone, wide tiles compute mostly
 * rows without a neighbour, and a smaller one takes 8 to 23 % less time from 128 channels on.
 *
 * | class   | pairs / (N*V) | what lies there; what is measured in its place             |
 * |---------|---------------|------------------------------------------------------------|
 * | surface | 1/8 and more  | LiDAR 0.23, room 0.39, shell 0.47, solid 0.97; a shell     |
 * | sparse  | below 1/8     | noise of 5 % 0.085, 1 % 0.05, 0.1 % 0.04; noise of 2 %     |
 *
 * The bound lies between noise of 5 % and LiDAR, where nothing was found; near it both
 * tiles take the same time.  A fill that is not known counts as that of a surface.
 *
 *   problem.fill = vx_density_fill(VX_DENSITY_SPARSE);     (to measure)
 *   row.density = vx_density_of(pairs / (n * v));          (to look up)
 *
 * Thread   any; pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_DENSITY_H
#define VX_ENGINE_TUNE_DENSITY_H

#include "engine/base/types.h"

enum vx_density { VX_DENSITY_SURFACE, VX_DENSITY_SPARSE, VX_DENSITIES_COUNT };

/* The fill from which on a cloud is a surface. */
#define VX_DENSITY_SPARSE_BELOW 0.125

enum vx_density vx_density_of(f64 fill); /* 0 = not known */
const char *vx_density_name(enum vx_density density);
enum vx_density vx_density_of_name(const char *name); /* VX_DENSITIES_COUNT = no such */
/* A fill of that class: of the cloud on which it is measured, with a kernel of 3^3. */
f64 vx_density_fill(enum vx_density density);
/* The eighth of that fill: the class in a tuning table, 3 or 0. */
i32 vx_density_eighth(enum vx_density density);

#endif
