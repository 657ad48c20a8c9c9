/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/12_norm.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid batch_norm_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_batch_norm_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_batch_norm_spec = {
    .name = "batch_norm",
    .source = "12_norm.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_batch_norm_device_args),
    .threads = vx_pointwise_threads,
    .grid = batch_norm_grid,
    .ref = vx_batch_norm_device_ref,
};

static struct vx_grid layer_norm_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_layer_norm_device_args *args = pointer;
    (void)tile;
    int32_t groups = VX_POINTWISE_THREADS / VX_LAYER_NORM_LANES(args->cp);
    if (args->cp > VX_LAYER_NORM_WARP_CHANNELS) groups = 1;
    if (args->cp <= VX_LAYER_NORM_PAIR_CHANNELS) groups *= 2;
    return vx_pointwise_grid(args->n, groups);
}

const struct vx_kernel_spec vx_layer_norm_spec = {
    .name = "layer_norm",
    .source = "12_norm.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_layer_norm_device_args),
    .threads = vx_pointwise_threads,
    .grid = layer_norm_grid,
    .ref = vx_layer_norm_device_ref,
};
