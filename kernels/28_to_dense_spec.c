/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/28_to_dense_device.h"
#include "kernels/pointwise_spec.h"

extern const struct vx_kernel_spec vx_dense_check_spec;
extern const struct vx_kernel_spec vx_dense_cells_spec;
extern const struct vx_kernel_spec vx_to_dense_spec;

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_DENSE_THREADS;
}

static struct vx_grid check_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_dense_check_args *args = pointer;
    (void)tile;
    return (struct vx_grid){args->blocks, (uint32_t)args->count, 1};
}

static struct vx_grid cells_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_dense_cells_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->n, VX_DENSE_THREADS);
}

static struct vx_grid to_dense_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_to_dense_device_args *args = pointer;
    (void)tile;
    return (struct vx_grid){
        (uint32_t)(args->samples * vx_dense_tiles(args)),
        (uint32_t)((args->c + VX_DENSE_CHANNELS - 1) / VX_DENSE_CHANNELS), 1};
}

const struct vx_kernel_spec vx_dense_check_spec = {
    .name = "dense_check",
    .source = "28_to_dense.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_dense_check_args),
    .threads = threads_of,
    .grid = check_grid,
    .ref = vx_dense_check_ref,
};
const struct vx_kernel_spec vx_dense_cells_spec = {
    .name = "dense_cells",
    .source = "28_to_dense.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_dense_cells_args),
    .threads = threads_of,
    .grid = cells_grid,
    .ref = vx_dense_cells_ref,
};
const struct vx_kernel_spec vx_to_dense_spec = {
    .name = "to_dense",
    .source = "28_to_dense.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_to_dense_device_args),
    .threads = threads_of,
    .grid = to_dense_grid,
    .ref = vx_to_dense_device_ref,
};
