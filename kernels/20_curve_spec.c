/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/20_curve.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid curve_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_curve_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n * args->cp, VX_POINTWISE_CHANNELS);
}

const struct vx_kernel_spec vx_curve_spec = {
    .name = "curve",
    .source = "20_curve.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_curve_device_args),
    .threads = vx_pointwise_threads,
    .grid = curve_grid,
    .ref = vx_curve_device_ref,
};
