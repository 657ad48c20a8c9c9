/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/29_weight_tile.h"
#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_weight_tile_spec;

void vx_weight_tile_ref(const void *args, enum vx_number type);

static int32_t threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_WEIGHT_TILE_THREADS;
}

static struct vx_grid grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_weight_tile_args *args = args_given;
    int64_t chunks =
        args->v * vx_weight_tile_blocks(args->ci, args->number_bytes) * 8 * args->co;
    (void)tile;
    return (struct vx_grid){
        (uint32_t)((chunks + VX_WEIGHT_TILE_THREADS - 1) / VX_WEIGHT_TILE_THREADS), 1, 1};
}

const struct vx_kernel_spec vx_weight_tile_spec = {
    .name = "weight_tile",
    .source = "29_weight_tile.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_weight_tile_args),
    .threads = threads,
    .grid = grid,
    .ref = vx_weight_tile_ref,
};
