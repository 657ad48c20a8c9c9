/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_points.h"

#include "engine/gpu/geometry/key_sort.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/model/model_parts.h"
#include "kernels/31_voxelize.h"
#include "kernels/32_devoxelize.h"

#include <string.h>

/* The set of the points that a voxelize reads. */
static i32 points_of(const struct vx_plan *plan, i32 launch)
{
    return plan->tensor_sets[plan->launches[launch].inputs[0]];
}

size_t vx_gpu_voxelize_bytes(const struct vx_gpu_choices *choices, i32 launch,
                             const struct vx_gpu_places *places)
{
    const i64 n = places->rows[points_of(choices->plan, launch)];
    return n ? vx_gpu_key_sort_bytes(n) : 0;
}

/* Sorts the points, which are in canonical order, by the rows of their voxels. */
static vx_status points_sort(const struct vx_gpu_forward *forward, i32 index,
                             struct vx_gpu_key_sort *sort)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    const struct vx_gpu_map *map = &forward->maps[launch->map];
    const i64 voxels = forward->places->rows[launch->set];
    sort->key.members = 1;
    sort->key.edges[1] = (i32)sort->key.n;
    vx_gpu_key_sort_begin(sort);
    sort->rows = forward->ordered[vx_gpu_ordered_of(plan, points_of(plan, index))].order;
    const struct vx_voxel_words_args words = {.n = sort->key.n,
                                              .m = voxels,
                                              .nbr_stride = map->nbr_stride,
                                              .nbr = map->nbr,
                                              .words = sort->keys};
    VX_TRY(vx_gpu_map_launch(&forward->queue, "voxel_words", &words, sort->why));
    return vx_gpu_key_sort_by(sort, sort->keys, vx_bit_length((u64)voxels));
}

vx_status vx_gpu_voxelize_launch(const struct vx_gpu_forward *forward, i32 index,
                                 struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    struct vx_gpu_key_sort sort = {.queue = &forward->queue,
                                   .scratch = forward->block + forward->places->workspace,
                                   .why = why};
    sort.key.n = forward->places->rows[points_of(plan, index)];
    if (sort.key.n) VX_TRY(points_sort(forward, index, &sort));
    const struct vx_voxelize_device_args args = {
        .n = sort.key.n,
        .m = forward->places->rows[launch->set],
        .c = launch->node->layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .order = sort.rows,
        .words = sort.keys,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_VOXEL_MEAN, &args, why);
}

vx_status vx_gpu_devoxelize_launch(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    const struct vx_gpu_ordered *points =
        &forward->ordered[vx_gpu_ordered_of(plan, launch->set)];
    const struct vx_gpu_map *map = &forward->maps[launch->map];
    struct vx_devoxelize_device_args args = {
        .n = forward->places->rows[launch->set],
        .c = launch->node->layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .nbr_stride = map->nbr_stride,
        .keys = points->sorted,
        .rows = points->order,
        .nbr = map->nbr,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    memcpy(args.stride, launch->node->layer->stride, sizeof args.stride);
    return vx_gpu_pass_launch(forward, VX_GPU_DEVOXELIZE, &args, why);
}
