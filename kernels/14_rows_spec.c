/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/14_rows.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid rows_in_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_rows_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_rows_in_spec = {
    .name = "rows_in",
    .source = "14_rows.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_rows_args),
    .threads = vx_pointwise_threads,
    .grid = rows_in_grid,
    .ref = vx_rows_in_ref,
};

static struct vx_grid rows_out_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_rows_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_rows_out_spec = {
    .name = "rows_out",
    .source = "14_rows.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_rows_args),
    .threads = vx_pointwise_threads,
    .grid = rows_out_grid,
    .ref = vx_rows_out_ref,
};
