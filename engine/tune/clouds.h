/* clouds - voxel sets like those that people send, on which convolutions are measured.
 *
 * Spheres (shapes.h) are one kind of surface with one kind of neighbourhood.  A kernel
 * that is fast on them may be slow on a cloud with two neighbours a voxel, or with all 27.
 *
 * | name    | what it is                                          | pairs of 3^3 a voxel |
 * |---------|-----------------------------------------------------|----------------------|
 * | torus   | a surface of 1.25 voxels                            | 12                   |
 * | cube    | a solid block                                       | 26                   |
 * | plane   | a tilted sheet, one voxel thick                     | 9                    |
 * | tree    | a curve that branches, in all directions            | 10                   |
 * | room    | walls and furniture, as a turning scanner sees them | 11                   |
 * | noise5  | 5 % of a block at random                            | 2.3                  |
 * | noise1  | 1 % of a block at random                            | 1.3                  |
 * | noise01 | 0.1 % of a block at random                          | 1.03                 |
 *
 *   VX_TRY(vx_cloud_made(0, &cloud));                 (the torus)
 *   VX_TRY(vx_cloud_level(&cloud, &coarse));          ("torus/2": stride 2)
 *   VX_TRY(vx_cloud_arrange(&cloud, VX_CLOUD_SHUFFLED));
 *   vx_cloud_free(&cloud);
 *
 * Rows are distinct.  They come in the order in which the maker met the voxels: by raster,
 * or as the scanner's beam turns.  The same machine makes the same cloud each time; another
 * C library may round a sine differently and make a few voxels more or fewer.
 *
 * Owner    the caller; a cloud that failed has nothing to free.
 * Thread   any; pure.
 * Limits   VX_CLOUD_VOXELS_MAX voxels; coordinates as a request's.
 * Fails    RESOURCE_EXHAUSTED: no memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_CLOUDS_H
#define VX_ENGINE_TUNE_CLOUDS_H

#include "engine/base/status.h"

/* What a cloud may have at most, so that a file cannot fill the memory: the least power of
 * two above the largest shell that is measured. */
#define VX_CLOUD_VOXELS_MAX ((i64)1 << 23)
#define VX_CLOUD_NAME_BYTES 24

struct vx_cloud {
    char name[VX_CLOUD_NAME_BYTES];
    i64 n;
    i32 *coords; /* (n, 4): sample, x, y, z */
};
enum vx_cloud_order {
    VX_CLOUD_GIVEN,   /* as made, or as the file has them */
    VX_CLOUD_SORTED,  /* by sample, x, y, z */
    VX_CLOUD_SHUFFLED /* at random */
};

i32 vx_clouds_count(void);
const char *vx_cloud_name(i32 which);
/* Makes the cloud of that number. */
VX_MUST_USE vx_status vx_cloud_made(i32 which, struct vx_cloud *cloud);
/* The cloud of those rows (n, 4), which are copied; of equal rows the first stays. */
VX_MUST_USE vx_status vx_cloud_of_rows(const char *name, const i32 *rows, i64 n,
                                       struct vx_cloud *cloud);
/* Voxels of twice the edge: what a convolution of kernel 2 and stride 2 makes. */
VX_MUST_USE vx_status vx_cloud_level(const struct vx_cloud *fine,
                                     struct vx_cloud *coarse);
VX_MUST_USE vx_status vx_cloud_arrange(struct vx_cloud *cloud, enum vx_cloud_order order);
void vx_cloud_free(struct vx_cloud *cloud);

/* What a maker adds voxels to; equal ones may come again. */
struct vx_cloud_rows {
    i32 *rows;
    i64 n, room;
    bool lost; /* there was no memory */
};
void vx_cloud_add(struct vx_cloud_rows *to, i32 x, i32 y, i32 z);
/* The makers, in the order of the table above. */
struct vx_cloud_maker {
    const char *name;
    void (*make)(struct vx_cloud_rows *to);
};
extern const struct vx_cloud_maker vx_cloud_makers[];
extern const i32 vx_cloud_makers_count;

#endif
