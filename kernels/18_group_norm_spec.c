/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/18_group_norm.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid slots_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_group_norm_device_args *args = pointer;
    (void)tile;
    if (args->n == 0) return (struct vx_grid){0, 1, 1};
    return (struct vx_grid){(uint32_t)vx_sample_slots(args->n, args->samples_max), 1, 1};
}

static struct vx_grid means_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_group_norm_device_args *args = pointer;
    (void)tile;
    if (args->n == 0) return (struct vx_grid){0, 1, 1};
    return (struct vx_grid){(uint32_t)vx_group_norm_blocks(args), 1, 1};
}

const struct vx_kernel_spec vx_group_sums_spec = {
    .name = "group_sums",
    .source = "18_group_norm.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_group_norm_device_args),
    .threads = vx_pointwise_threads,
    .grid = slots_grid,
    .ref = vx_group_sums_ref,
};
const struct vx_kernel_spec vx_group_means_spec = {
    .name = "group_means",
    .source = "18_group_norm.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_group_norm_device_args),
    .threads = vx_pointwise_threads,
    .grid = means_grid,
    .ref = vx_group_means_ref,
};
const struct vx_kernel_spec vx_group_apply_spec = {
    .name = "group_apply",
    .source = "18_group_norm.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_group_norm_device_args),
    .threads = vx_pointwise_threads,
    .grid = slots_grid,
    .ref = vx_group_apply_ref,
};
