/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/21_set_derive.h"

#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_set_derive_spec;
extern const struct vx_kernel_spec vx_set_derive_many_spec;
extern const struct vx_kernel_spec vx_set_number_spec;
extern const struct vx_kernel_spec vx_set_coords_spec;
extern const struct vx_kernel_spec vx_set_coords_many_spec;

/* --- the plan --- */

/* The most target bricks that the coordinates between two places touch, of which it is
 * known how many they are, not where. */
static int32_t bricks_of(int32_t values)
{
    return (values + 2) / 4 + 1;
}

/* The most target bricks that one source brick meets along an axis. */
static int32_t span_all(const struct vx_set_derive_args *args, int32_t axis)
{
    const struct vx_set_window window = vx_set_window(args, axis);
    const int32_t stride = args->stride[axis], reach = (window.offsets - 1) * window.far;
    int32_t most = 1;
    /* The source brick `stride` further meets bricks that are as far from each other. */
    for (int32_t p = 0; p < 4 * stride; p += 4) {
        int32_t low = vx_set_lowest(args, axis, p, window.padding, reach);
        int32_t high = args->rule == VX_DERIVE_EXPAND
                           ? (p + 3) * stride - window.padding + reach
                           : vx_floor_div(p + 3 + window.padding, stride);
        int32_t span = vx_floor_div(high, 4) - vx_floor_div(low, 4) + 1;
        if (span > most) most = span;
    }
    return most;
}

/* The same for one voxel, or for one offset, or for both. */
static int32_t span_apart(const struct vx_set_derive_args *args, int32_t axis,
                          int32_t apart)
{
    const struct vx_set_window window = vx_set_window(args, axis);
    const int32_t voxels = apart & VX_APART_VOXELS ? 0 : 3;
    const int32_t reach =
        apart & VX_APART_OFFSETS ? 0 : (window.offsets - 1) * window.far;
    if (args->rule == VX_DERIVE_EXPAND)
        return bricks_of(voxels * args->stride[axis] + reach + 1);
    return bricks_of((voxels + reach) / args->stride[axis] + 1);
}

/* Takes the way with the fewest steps. */
static void plan_axis(struct vx_set_derive_args *args, int32_t axis)
{
    const struct vx_set_window window = vx_set_window(args, axis);
    args->apart[axis] = 0;
    args->steps[axis] = args->spans[axis] = span_all(args, axis);
    for (int32_t apart = 1; apart < 4; apart++) {
        int32_t span = span_apart(args, axis, apart);
        int64_t steps = span;
        if (apart & VX_APART_OFFSETS) steps *= window.offsets;
        if (apart & VX_APART_VOXELS) steps *= 4;
        if (steps >= args->steps[axis]) continue;
        args->apart[axis] = apart;
        args->spans[axis] = span;
        args->steps[axis] = (int32_t)steps;
    }
}

void vx_set_derive_plan(struct vx_set_derive_args *args)
{
    args->folds = args->rule == VX_DERIVE_FLOOR;
    for (int32_t axis = 0; axis < 3; axis++) {
        args->apart[axis] = 0;
        args->spans[axis] = args->steps[axis] = 1;
        if (args->rule != VX_DERIVE_SAMPLES) plan_axis(args, axis);
        if (args->stride[axis] & (args->stride[axis] - 1)) args->folds = 0;
    }
}

/* --- launches --- */

static int32_t threads_of(const struct vx_tile *tile)
{
    (void)tile;
    return VX_SET_THREADS;
}

static struct vx_grid derive_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_set_derive_args *it = args;
    return (struct vx_grid){it->blocks, 1, 1};
}

static struct vx_grid derive_many_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_set_derive_many_args *it = args;
    return (struct vx_grid){it->sets ? (uint32_t)it->count : 0, 1, 1};
}

static struct vx_grid number_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_set_number_args *it = args;
    return (struct vx_grid){it->blocks, (uint32_t)it->count, 1};
}

static struct vx_grid coords_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_set_coords_args *it = args;
    return (struct vx_grid){it->n ? it->blocks : 0, 1, 1};
}

static struct vx_grid coords_many_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    const struct vx_set_coords_many_args *it = args;
    return (struct vx_grid){it->blocks, (uint32_t)it->count, 1};
}

static void derive_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_set_derive_ref(args);
}

static void derive_many_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_set_derive_many_ref(args);
}

static void number_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_set_number_ref(args);
}

static void coords_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_set_coords_ref(args);
}

static void coords_many_ref(const void *args, enum vx_number type)
{
    (void)type;
    vx_set_coords_many_ref(args);
}

const struct vx_kernel_spec vx_set_derive_spec = {
    .name = "set_derive",
    .source = "21_set_derive.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_derive_args),
    .threads = threads_of,
    .grid = derive_grid,
    .ref = derive_ref,
};

const struct vx_kernel_spec vx_set_derive_many_spec = {
    .name = "set_derive_many",
    .source = "21_set_derive.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_derive_many_args),
    .threads = threads_of,
    .grid = derive_many_grid,
    .ref = derive_many_ref,
};

const struct vx_kernel_spec vx_set_number_spec = {
    .name = "set_number",
    .source = "21_set_derive.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_number_args),
    .threads = threads_of,
    .grid = number_grid,
    .ref = number_ref,
};

const struct vx_kernel_spec vx_set_coords_spec = {
    .name = "set_coords",
    .source = "21_set_derive.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_coords_args),
    .threads = threads_of,
    .grid = coords_grid,
    .ref = coords_ref,
};

const struct vx_kernel_spec vx_set_coords_many_spec = {
    .name = "set_coords_many",
    .source = "21_set_derive.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_set_coords_many_args),
    .threads = threads_of,
    .grid = coords_many_grid,
    .ref = coords_many_ref,
};
