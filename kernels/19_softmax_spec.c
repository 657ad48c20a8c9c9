/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/19_softmax.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid softmax_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_softmax_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n,
                             VX_POINTWISE_THREADS / VX_LAYER_NORM_LANES(args->cp));
}

const struct vx_kernel_spec vx_softmax_spec = {
    .name = "softmax",
    .source = "19_softmax.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_softmax_device_args),
    .threads = vx_pointwise_threads,
    .grid = softmax_grid,
    .ref = vx_softmax_device_ref,
};

const struct vx_kernel_spec vx_argmax_spec = {
    .name = "argmax",
    .source = "19_softmax.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_softmax_device_args),
    .threads = vx_pointwise_threads,
    .grid = softmax_grid,
    .ref = vx_argmax_device_ref,
};
