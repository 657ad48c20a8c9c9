/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/32_devoxelize.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid devoxelize_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_devoxelize_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_devoxelize_spec = {
    .name = "devoxelize",
    .source = "32_devoxelize.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_devoxelize_device_args),
    .threads = vx_pointwise_threads,
    .grid = devoxelize_grid,
    .ref = vx_devoxelize_device_ref,
};
