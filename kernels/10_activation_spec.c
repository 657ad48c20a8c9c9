/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/10_activation.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid activation_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_activation_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n * args->cp, VX_POINTWISE_CHANNELS);
}

const struct vx_kernel_spec vx_activation_spec = {
    .name = "activation",
    .source = "10_activation.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_activation_device_args),
    .threads = vx_pointwise_threads,
    .grid = activation_grid,
    .ref = vx_activation_device_ref,
};
