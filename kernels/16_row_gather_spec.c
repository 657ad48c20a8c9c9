/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/16_row_gather.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid row_gather_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_row_gather_device_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_row_gather_spec = {
    .name = "row_gather",
    .source = "16_row_gather.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_row_gather_device_args),
    .threads = vx_pointwise_threads,
    .grid = row_gather_grid,
    .ref = vx_row_gather_device_ref,
};
