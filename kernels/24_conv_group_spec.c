/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/24_conv_group.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid conv_group_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_conv_group_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_conv_group_spec = {
    .name = "conv_group",
    .source = "24_conv_group.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_conv_group_args),
    .threads = vx_pointwise_threads,
    .grid = conv_group_grid,
    .ref = vx_conv_group_ref,
};
