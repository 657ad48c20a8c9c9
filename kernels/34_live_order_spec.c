/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/34_live_order.h"

#include "kernels/pointwise_spec.h"

extern const struct vx_kernel_spec vx_live_count_spec;
extern const struct vx_kernel_spec vx_live_write_spec;
extern const struct vx_kernel_spec vx_live_blocks_spec;

void vx_live_count_ref(const void *pointer, enum vx_number type);
void vx_live_write_ref(const void *pointer, enum vx_number type);
void vx_live_blocks_ref(const void *pointer, enum vx_number type);

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_LIVE_THREADS;
}

static struct vx_grid tiles_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_live_order_args *args = pointer;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->tiles, (uint32_t)args->groups, 1};
}

static struct vx_grid blocks_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_live_order_args *args = pointer;
    (void)tile;
    return (struct vx_grid){(uint32_t)((args->n + VX_LIVE_THREADS - 1) / VX_LIVE_THREADS),
                            (uint32_t)(args->panels * args->groups), 1};
}

const struct vx_kernel_spec vx_live_count_spec = {
    .name = "live_count",
    .source = "34_live_order.cu",
    .types = VX_POINTWISE_TYPES,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_live_order_args),
    .threads = threads_of,
    .grid = tiles_grid,
    .ref = vx_live_count_ref,
};

const struct vx_kernel_spec vx_live_write_spec = {
    .name = "live_write",
    .source = "34_live_order.cu",
    .types = VX_POINTWISE_TYPES,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_live_order_args),
    .threads = threads_of,
    .grid = tiles_grid,
    .ref = vx_live_write_ref,
};

const struct vx_kernel_spec vx_live_blocks_spec = {
    .name = "live_blocks",
    .source = "34_live_order.cu",
    .types = VX_POINTWISE_TYPES,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_live_order_args),
    .threads = threads_of,
    .grid = blocks_grid,
    .ref = vx_live_blocks_ref,
};
