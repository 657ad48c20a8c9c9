/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/31_voxelize.h"
#include "kernels/pointwise_spec.h"

extern const struct vx_kernel_spec vx_voxel_words_spec;
extern const struct vx_kernel_spec vx_voxel_mean_spec;

static int32_t words_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_VOXEL_THREADS;
}

static struct vx_grid words_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_voxel_words_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_VOXEL_THREADS);
}

static struct vx_grid mean_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_voxelize_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->m, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_voxel_words_spec = {
    .name = "voxel_words",
    .source = "31_voxelize.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_voxel_words_args),
    .threads = words_threads,
    .grid = words_grid,
    .ref = vx_voxel_words_ref,
};
const struct vx_kernel_spec vx_voxel_mean_spec = {
    .name = "voxel_mean",
    .source = "31_voxelize.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_voxelize_device_args),
    .threads = vx_pointwise_threads,
    .grid = mean_grid,
    .ref = vx_voxel_mean_ref,
};
