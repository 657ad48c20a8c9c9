/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/37_order_sweep.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_order_clear_spec;
extern const struct vx_kernel_spec vx_order_digits_spec;
extern const struct vx_kernel_spec vx_order_sweep_spec;
extern const struct vx_kernel_spec vx_order_clear_many_spec;
extern const struct vx_kernel_spec vx_order_digits_many_spec;
extern const struct vx_kernel_spec vx_order_sweep_many_spec;

void vx_order_clear_ref(const void *args, enum vx_number type);
void vx_order_digits_ref(const void *args, enum vx_number type);
void vx_order_sweep_ref(const void *args, enum vx_number type);
void vx_order_clear_many_ref(const void *args, enum vx_number type);
void vx_order_digits_many_ref(const void *args, enum vx_number type);
void vx_order_sweep_many_ref(const void *args, enum vx_number type);

static int32_t sweep_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_ORDER_THREADS;
}

static struct vx_grid clear_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_order_digits_args *args = args_given;
    (void)tile;
    return (struct vx_grid){args->sort.n > 0, (uint32_t)args->sort.groups, 1};
}

static struct vx_grid digits_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_order_digits_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->sort.tiles, (uint32_t)args->sort.groups, 1};
}

static struct vx_grid sweep_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mask_order_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->tiles, (uint32_t)args->groups, 1};
}

static struct vx_grid clear_many_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_order_digits_many_args *args = args_given;
    (void)tile;
    return (struct vx_grid){args->tiles > 0, (uint32_t)args->groups,
                            (uint32_t)args->count};
}

static struct vx_grid digits_many_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_order_digits_many_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->tiles, (uint32_t)args->groups,
                            (uint32_t)args->count};
}

static struct vx_grid sweep_many_grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mask_order_many_args *args = args_given;
    (void)tile;
    return (struct vx_grid){(uint32_t)args->tiles, (uint32_t)args->groups,
                            (uint32_t)args->count};
}

const struct vx_kernel_spec vx_order_clear_spec = {
    .name = "order_clear",
    .source = "37_order_sweep.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_order_digits_args),
    .threads = sweep_threads,
    .grid = clear_grid,
    .ref = vx_order_clear_ref,
};
const struct vx_kernel_spec vx_order_digits_spec = {
    .name = "order_digits",
    .source = "37_order_sweep.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_order_digits_args),
    .threads = sweep_threads,
    .grid = digits_grid,
    .ref = vx_order_digits_ref,
};
const struct vx_kernel_spec vx_order_sweep_spec = {
    .name = "order_sweep",
    .source = "37_order_sweep.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_mask_order_args),
    .threads = sweep_threads,
    .grid = sweep_grid,
    .ref = vx_order_sweep_ref,
};
const struct vx_kernel_spec vx_order_clear_many_spec = {
    .name = "order_clear_many",
    .source = "37_order_sweep.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_order_digits_many_args),
    .threads = sweep_threads,
    .grid = clear_many_grid,
    .ref = vx_order_clear_many_ref,
};
const struct vx_kernel_spec vx_order_digits_many_spec = {
    .name = "order_digits_many",
    .source = "37_order_sweep.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_order_digits_many_args),
    .threads = sweep_threads,
    .grid = digits_many_grid,
    .ref = vx_order_digits_many_ref,
};
const struct vx_kernel_spec vx_order_sweep_many_spec = {
    .name = "order_sweep_many",
    .source = "37_order_sweep.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_mask_order_many_args),
    .threads = sweep_threads,
    .grid = sweep_many_grid,
    .ref = vx_order_sweep_many_ref,
};
