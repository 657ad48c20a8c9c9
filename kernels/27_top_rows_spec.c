/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/27_top_rows.h"

#include "kernels/pointwise_spec.h"

extern const struct vx_kernel_spec vx_top_keys_spec;
extern const struct vx_kernel_spec vx_top_mark_spec;

void vx_top_keys_ref(const void *pointer, enum vx_number type);
void vx_top_mark_ref(const void *pointer, enum vx_number type);

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_TOP_THREADS;
}

static struct vx_grid grid_of(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_top_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_TOP_THREADS);
}

const struct vx_kernel_spec vx_top_keys_spec = {
    .name = "top_keys",
    .source = "27_top_rows.cu",
    .types = VX_POINTWISE_TYPES,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_top_args),
    .threads = threads_of,
    .grid = grid_of,
    .ref = vx_top_keys_ref,
};

const struct vx_kernel_spec vx_top_mark_spec = {
    .name = "top_mark",
    .source = "27_top_rows.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_top_args),
    .threads = threads_of,
    .grid = grid_of,
    .ref = vx_top_mark_ref,
};
