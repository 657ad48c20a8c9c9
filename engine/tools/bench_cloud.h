/* bench_cloud - the clouds that a bench is asked for: made ones, files, coarser levels.
 *
 *   VX_TRY(vx_bench_clouds_open(&(struct vx_bench_clouds_wanted){
 *                                   .list = "room,scan.npy:0.1", .levels = 3}, &why, &clouds));
 *   vx_bench_clouds_close(&clouds);
 *
 * A word of the list is the name of a made cloud (engine/tune/clouds.h), "clouds" for all
 * of them, or a .npy: integers (n, 3) or (n, 4), axes or sample and axes; or FILE.npy:SIZE,
 * points whose first three columns are divided by the edge of a voxel and rounded down.  Of
 * equal voxels the first stays.
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   VX_BENCH_CLOUDS_MAX clouds, VX_CLOUD_VOXELS_MAX voxels each.
 * Fails    INVALID_ARGUMENT: a name that is none, an array of another form, a row out of
 *          range; as vx_npy_read and vx_npy_write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_BENCH_CLOUD_H
#define VX_ENGINE_TOOLS_BENCH_CLOUD_H

#include "engine/tune/clouds.h"

#define VX_BENCH_CLOUDS_MAX 64
#define VX_BENCH_LEVELS_MAX 8

struct vx_bench_clouds {
    struct vx_cloud list[VX_BENCH_CLOUDS_MAX];
    i32 count;
};
struct vx_bench_clouds_wanted {
    const char *list;
    i32 levels; /* of each cloud: 1 = itself, 2 = also that of voxels twice as large, ... */
    enum vx_cloud_order order;
    const char *save; /* a folder for NAME.npy of each, "/" written as "-"; NULL = none */
};
/* On failure *clouds is closed. */
VX_MUST_USE vx_status vx_bench_clouds_open(const struct vx_bench_clouds_wanted *wanted,
                                           struct vx_why *why,
                                           struct vx_bench_clouds *clouds);
void vx_bench_clouds_close(struct vx_bench_clouds *clouds);

#endif
