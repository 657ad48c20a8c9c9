/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/31_voxelize.h"

/* One channel of one voxel. */
static double mean_of(const struct vx_voxelize_args *args, int64_t voxel, int64_t c)
{
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t i = 0; i < args->n; i++) {
        int64_t point = args->order[i];
        if (args->voxels[point] != voxel) continue;
        sum += (double)args->in[point * args->c + c];
        count++;
    }
    return count ? sum / (double)count : 0.0;
}

void vx_voxelize_ref(const struct vx_voxelize_args *args)
{
    for (int64_t voxel = 0; voxel < args->m; voxel++)
        for (int64_t c = 0; c < args->c; c++)
            args->out[voxel * args->c + c] = (float)mean_of(args, voxel, c);
}
