/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/17_pool.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid pool_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_pool_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_pool_spec = {
    .name = "pool",
    .source = "17_pool.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_pool_device_args),
    .threads = vx_pointwise_threads,
    .grid = pool_grid,
    .ref = vx_pool_device_ref,
};
