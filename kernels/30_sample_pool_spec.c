/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/30_sample_pool.h"
#include "kernels/pointwise_spec.h"

static struct vx_grid chunks_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_sample_pool_args *args = pointer;
    (void)tile;
    if (args->n == 0) return (struct vx_grid){0, 1, 1};
    return (struct vx_grid){(uint32_t)vx_sample_slots(args->n, args->samples_max), 1, 1};
}

static struct vx_grid pool_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_sample_pool_args *args = pointer;
    (void)tile;
    if (args->n == 0) return (struct vx_grid){0, 1, 1};
    return (struct vx_grid){(uint32_t)vx_sample_pool_blocks(args), 1, 1};
}

const struct vx_kernel_spec vx_sample_chunks_spec = {
    .name = "sample_chunks",
    .source = "30_sample_pool.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_sample_pool_args),
    .threads = vx_pointwise_threads,
    .grid = chunks_grid,
    .ref = vx_sample_chunks_ref,
};
const struct vx_kernel_spec vx_sample_pool_spec = {
    .name = "sample_pool",
    .source = "30_sample_pool.cu",
    .tiles_count = 1,
    .types = VX_POINTWISE_TYPES,
    .args_bytes = sizeof(struct vx_sample_pool_args),
    .threads = vx_pointwise_threads,
    .grid = pool_grid,
    .ref = vx_sample_pool_ref,
};
