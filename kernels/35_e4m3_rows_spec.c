/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/35_e4m3_rows.h"
#include "kernels/pointwise_spec.h"

extern const struct vx_kernel_spec vx_e4m3_rows_spec;

void vx_e4m3_rows_ref(const void *args, enum vx_number type);

static struct vx_grid grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_e4m3_rows_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_POINTWISE_ROWS(args->cp));
}

const struct vx_kernel_spec vx_e4m3_rows_spec = {
    .name = "e4m3_rows",
    .source = "35_e4m3_rows.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_e4m3_rows_args),
    .threads = vx_pointwise_threads,
    .grid = grid,
    .ref = vx_e4m3_rows_ref,
};
