/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/08_pair_list.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_pairs_count_spec;
extern const struct vx_kernel_spec vx_pairs_write_spec;

void vx_pairs_count_ref(const void *args, enum vx_number type);
void vx_pairs_write_ref(const void *args, enum vx_number type);

static int32_t threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_PAIRS_TILE;
}

static struct vx_grid grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_pair_list_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->tiles, 1, 1};
}

const struct vx_kernel_spec vx_pairs_count_spec = {
    .name = "pairs_count",
    .source = "08_pair_list.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_pair_list_args),
    .threads = threads,
    .grid = grid,
    .ref = vx_pairs_count_ref,
};
const struct vx_kernel_spec vx_pairs_write_spec = {
    .name = "pairs_write",
    .source = "08_pair_list.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_pair_list_args),
    .threads = threads,
    .grid = grid,
    .ref = vx_pairs_write_ref,
};
