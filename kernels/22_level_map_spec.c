/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/22_level_map.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_level_map_spec;
extern const struct vx_kernel_spec vx_level_map_far_spec;
extern const struct vx_kernel_spec vx_level_map_many_spec;
extern const struct vx_kernel_spec vx_level_map_far_many_spec;

/* The bricks between the lowest and the highest coordinate that any entry of an axis's
 * table has. */
static void plan_axis(struct vx_level_map_args *args, int32_t axis)
{
    const int32_t places = vx_level_places(args, axis);
    int32_t low = INT32_MAX, high = INT32_MIN, at;
    for (int32_t place = 0; place < places; place++)
        for (int32_t k = 0; k < args->kernel[axis]; k++) {
            if (!vx_level_at(args, axis, place, k, &at)) continue;
            if (at < low) low = at;
            if (at > high) high = at;
        }
    args->low[axis] = low <= high ? vx_floor_div(low, 4) : 0;
    args->near[axis] = low <= high ? vx_floor_div(high, 4) - args->low[axis] + 1 : 1;
}

int vx_level_map_plan(struct vx_level_map_args *args)
{
    int64_t near = 1, entries = 0;
    for (int32_t axis = 0; axis < 3; axis++) {
        plan_axis(args, axis);
        near *= args->near[axis];
        entries += (int64_t)vx_level_places(args, axis) * args->kernel[axis];
        if (near > VX_LEVEL_NEAR_MAX) return 0;
    }
    return entries <= VX_LEVEL_TABLE_MAX;
}

static int32_t map_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_BRICK_MAP_THREADS;
}

static struct vx_grid map_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_level_map_args *it = args;
    return (struct vx_grid){it->n ? it->blocks : 0, 1, 1};
}

static struct vx_grid map_many_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_level_map_many_args *it = args;
    return (struct vx_grid){it->blocks, (uint32_t)it->count, 1};
}

static void map_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_level_map_ref(args);
}

static void map_many_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_level_map_many_ref(args);
}

const struct vx_kernel_spec vx_level_map_spec = {
    .name = "level_map",
    .source = "22_level_map.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_level_map_args),
    .threads = map_threads,
    .grid = map_grid,
    .ref = map_ref,
};

const struct vx_kernel_spec vx_level_map_far_spec = {
    .name = "level_map_far",
    .source = "22_level_map.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_level_map_args),
    .threads = map_threads,
    .grid = map_grid,
    .ref = map_ref,
};

const struct vx_kernel_spec vx_level_map_many_spec = {
    .name = "level_map_many",
    .source = "22_level_map.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_level_map_many_args),
    .threads = map_threads,
    .grid = map_many_grid,
    .ref = map_many_ref,
};

const struct vx_kernel_spec vx_level_map_far_many_spec = {
    .name = "level_map_far_many",
    .source = "22_level_map.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_level_map_many_args),
    .threads = map_threads,
    .grid = map_many_grid,
    .ref = map_many_ref,
};
