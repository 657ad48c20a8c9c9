/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/25_set_ranks.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_set_ranks_spec;

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_RANK_THREADS;
}

static struct vx_grid grid_of(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_set_ranks_args *args = pointer;
    (void)tile;
    return (struct vx_grid){args->blocks, (uint32_t)args->count, 1};
}

static void ranks_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_set_ranks_ref(args);
}

const struct vx_kernel_spec vx_set_ranks_spec = {
    .name = "set_ranks",
    .source = "25_set_ranks.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_ranks_args),
    .threads = threads_of,
    .grid = grid_of,
    .ref = ranks_ref,
};
