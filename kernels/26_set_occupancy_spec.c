/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/26_set_occupancy.h"

#include "kernels/pointwise_spec.h"

extern const struct vx_kernel_spec vx_set_occupancy_spec;
extern const struct vx_kernel_spec vx_occupancy_fault_spec;

void vx_set_occupancy_ref(const void *pointer, enum vx_number type);
void vx_occupancy_fault_ref(const void *pointer, enum vx_number type);

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_SET_THREADS;
}

static struct vx_grid occupancy_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_set_occupancy_args *args = pointer;
    (void)tile;
    return (struct vx_grid){args->blocks, (uint32_t)args->count, 1};
}

static struct vx_grid fault_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_set_occupancy_args *args = pointer;
    (void)tile;
    return vx_pointwise_grid(args->count, VX_SET_THREADS);
}

const struct vx_kernel_spec vx_set_occupancy_spec = {
    .name = "set_occupancy",
    .source = "26_set_occupancy.cu",
    .types = VX_POINTWISE_TYPES,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_occupancy_args),
    .threads = threads_of,
    .grid = occupancy_grid,
    .ref = vx_set_occupancy_ref,
};

const struct vx_kernel_spec vx_occupancy_fault_spec = {
    .name = "occupancy_fault",
    .source = "26_set_occupancy.cu",
    .types = VX_POINTWISE_TYPES,
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_occupancy_args),
    .threads = threads_of,
    .grid = fault_grid,
    .ref = vx_occupancy_fault_ref,
};
