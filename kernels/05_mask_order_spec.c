/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/05_mask_order.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_order_small_spec;
extern const struct vx_kernel_spec vx_count_scan_spec;
extern const struct vx_kernel_spec vx_order_blocks_spec;
extern const struct vx_kernel_spec vx_order_tiles_spec;
extern const struct vx_kernel_spec vx_order_small_many_spec;
extern const struct vx_kernel_spec vx_order_blocks_many_spec;

void vx_order_small_ref(const void *args, enum vx_number type);
void vx_count_scan_ref(const void *args, enum vx_number type);
void vx_order_blocks_ref(const void *args, enum vx_number type);
void vx_order_tiles_ref(const void *args, enum vx_number type);
void vx_order_small_many_ref(const void *args, enum vx_number type);
void vx_order_blocks_many_ref(const void *args, enum vx_number type);

static int32_t order_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_ORDER_THREADS;
}

static int32_t small_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_ORDER_SMALL_THREADS;
}

/* A word for each row, and for each wave of 32 a counter of 16 bits for each digit. */
static int32_t small_shared(const struct vx_tile *tile, enum vx_number type)
{
    (void)tile;
    (void)type;
    return VX_ORDER_SMALL_ROWS * 4 + VX_ORDER_SMALL_THREADS / 32 * VX_ORDER_BINS * 2;
}

/* struct small_memory, which is static: a begin for each digit, a sum for each wave. */
#define SMALL_SHARED_BESIDE (VX_ORDER_BINS * 4 + VX_ORDER_SMALL_THREADS / 32 * 4)

static bool small_fits(const struct vx_tile *tile, enum vx_number type,
                       const struct vx_caps *caps)
{
    return small_shared(tile, type) + SMALL_SHARED_BESIDE <= caps->shared_block;
}

static struct vx_grid small_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mask_order_args *args = args_given;
    (void)tile;
    return (struct vx_grid){args->n > 0, (uint32_t)args->groups, 1};
}

static struct vx_grid scan_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_count_scan_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->rows, 1, 1};
}

static struct vx_grid blocks_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mask_order_args *args = args_given;
    (void)tile;
    return (struct vx_grid){
        (uint32_t)((args->n + VX_ORDER_THREADS - 1) / VX_ORDER_THREADS),
        (uint32_t)args->groups, 1};
}

/* Layers of `x` blocks by as many groups as a sort has, one for each sort. */
static struct vx_grid many_layers(const struct vx_mask_order_many_args *args, int64_t x)
{
    return (struct vx_grid){(uint32_t)x, (uint32_t)args->groups, (uint32_t)args->count};
}

static struct vx_grid small_many_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mask_order_many_args *args = args_given;
    (void)tile;
    return many_layers(args, args->n > 0);
}

static struct vx_grid blocks_many_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mask_order_many_args *args = args_given;
    (void)tile;
    return many_layers(args, (args->n + VX_ORDER_THREADS - 1) / VX_ORDER_THREADS);
}

static int32_t list_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_ORDER_TILES_THREADS;
}

static struct vx_grid list_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_order_tiles_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->count, VX_ORDER_TILES_KINDS, 1};
}

const struct vx_kernel_spec vx_order_small_spec = {
    .name = "order_small",
    .source = "05_mask_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_mask_order_args),
    .threads = small_threads,
    .shared = small_shared,
    .fits = small_fits,
    .grid = small_grid,
    .ref = vx_order_small_ref,
};
const struct vx_kernel_spec vx_count_scan_spec = {
    .name = "count_scan",
    .source = "05_mask_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_count_scan_args),
    .threads = order_threads,
    .grid = scan_grid,
    .ref = vx_count_scan_ref,
};
const struct vx_kernel_spec vx_order_blocks_spec = {
    .name = "order_blocks",
    .source = "05_mask_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_mask_order_args),
    .threads = order_threads,
    .grid = blocks_grid,
    .ref = vx_order_blocks_ref,
};
const struct vx_kernel_spec vx_order_small_many_spec = {
    .name = "order_small_many",
    .source = "05_mask_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_mask_order_many_args),
    .threads = small_threads,
    .shared = small_shared,
    .fits = small_fits,
    .grid = small_many_grid,
    .ref = vx_order_small_many_ref,
};
const struct vx_kernel_spec vx_order_blocks_many_spec = {
    .name = "order_blocks_many",
    .source = "05_mask_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_mask_order_many_args),
    .threads = order_threads,
    .grid = blocks_many_grid,
    .ref = vx_order_blocks_many_ref,
};
const struct vx_kernel_spec vx_order_tiles_spec = {
    .name = "order_tiles",
    .source = "05_mask_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_order_tiles_args),
    .threads = list_threads,
    .grid = list_grid,
    .ref = vx_order_tiles_ref,
};
