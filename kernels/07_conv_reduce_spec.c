/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/07_conv_reduce.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid conv_reduce_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_conv_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->co));
}

const struct vx_kernel_spec vx_conv_reduce_spec = {
    .name = "conv_reduce",
    .source = "07_conv_reduce.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_conv_device_args),
    .threads = vx_pointwise_threads,
    .grid = conv_reduce_grid,
    .ref = vx_conv_reduce_ref,
};

static struct vx_grid pair_reduce_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_pair_reduce_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->co));
}

const struct vx_kernel_spec vx_pair_reduce_spec = {
    .name = "pair_reduce",
    .source = "07_conv_reduce.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_pair_reduce_args),
    .threads = vx_pointwise_threads,
    .grid = pair_reduce_grid,
    .ref = vx_pair_reduce_ref,
};
