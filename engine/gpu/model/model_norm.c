/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_norm.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/model/model_parts.h"
#include "kernels/18_group_norm.h"
#include "kernels/23_key_order.h"
#include "kernels/30_sample_pool.h"

/* Offsets in the workspace: sums of chunks, then a mean and a scale for each group. */
struct layout {
    size_t mean, scale, bytes;
};

static struct layout layout_make(i64 n, i32 samples, const struct vx_layer *layer)
{
    struct layout layout;
    const size_t slots = (size_t)vx_sample_slots(n, samples);
    const size_t each = vx_round_up((size_t)samples * (size_t)layer->groups * sizeof(f64),
                                    VX_GPU_LINE_BYTES);
    layout.mean =
        vx_round_up(slots * (size_t)layer->channels * sizeof(f64), VX_GPU_LINE_BYTES);
    layout.scale = layout.mean + each;
    layout.bytes = layout.scale + each;
    return layout;
}

size_t vx_gpu_norm_bytes(const struct vx_gpu_choices *choices, i32 launch,
                         const struct vx_gpu_places *places)
{
    const struct vx_launch *at = &choices->plan->launches[launch];
    const i32 samples = places->samples_max[vx_gpu_ordered_of(choices->plan, at->set)];
    return layout_make(places->rows[at->set], samples, at->node->layer).bytes;
}

/* A number, and then the starts. */
static i32 *count_of(const struct vx_gpu_forward *forward, i32 ordered)
{
    return (void *)(forward->block + forward->places->starts[ordered]);
}

static i32 *starts_of(const struct vx_gpu_forward *forward, i32 ordered)
{
    return (void *)(forward->block + forward->places->starts[ordered] +
                    VX_GPU_LINE_BYTES);
}

vx_status vx_gpu_norm_samples(const struct vx_gpu_forward *forward, i32 stage,
                              struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    for (i32 o = 0; o < plan->ordered_count; o++) {
        const i32 set = plan->ordered[o].set;
        struct vx_key_order_args args = {.n = forward->places->rows[set],
                                         .members = forward->items_count,
                                         .keys = forward->ordered[o].sorted,
                                         .starts = starts_of(forward, o),
                                         .count = count_of(forward, o)};
        if (!plan->ordered[o].samples || plan->sets[set].stage != stage) continue;
        for (i32 i = 0; i < forward->items_count; i++)
            args.edges[i + 1] =
                args.edges[i] + (i32)forward->item_rows[(i64)i * plan->sets_count + set];
        VX_TRY(vx_gpu_map_launch(&forward->queue, "key_starts", &args, why));
    }
    return VX_OK;
}

/* Sums of each chunk, then of each group: of values (0), or of squares (1). */
static vx_status sums(const struct vx_gpu_forward *forward,
                      struct vx_group_norm_device_args *args, i32 squares,
                      struct vx_why *why)
{
    args->squares = squares;
    VX_TRY(vx_gpu_pass_launch(forward, VX_GPU_GROUP_SUMS, args, why));
    return vx_gpu_map_launch(&forward->queue, "group_means", args, why);
}

vx_status vx_gpu_norm_launch(const struct vx_gpu_forward *forward, i32 index,
                             struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    const struct vx_layer *layer = launch->node->layer;
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    const i32 ordered = vx_gpu_ordered_of(plan, launch->set);
    const i64 n = forward->places->rows[launch->set];
    const i32 samples = forward->places->samples_max[ordered];
    const struct layout layout = layout_make(n, samples, layer);
    u8 *workspace = forward->block + forward->places->workspace;
    struct vx_group_norm_device_args args = {
        .n = n,
        .samples_max = samples,
        .c = layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .groups = layer->groups,
        .activation = (i32)launch->node->activation,
        .eps = (f32)layer->eps,
        .starts = starts_of(forward, ordered),
        .count = count_of(forward, ordered),
        .rows = forward->ordered[ordered].order,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .partial = (void *)workspace,
        .mean = (void *)(workspace + layout.mean),
        .scale = (void *)(workspace + layout.scale),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = vx_gpu_tensor(forward, launch->output),
        .in_stride = vx_gpu_stride(forward, launch->inputs[0]),
    };
    VX_TRY(sums(forward, &args, 0, why));
    VX_TRY(sums(forward, &args, 1, why));
    return vx_gpu_pass_launch(forward, VX_GPU_GROUP_APPLY, &args, why);
}

/* --- pools --- */

/* The set of what a global pool reads. */
static i32 pooled_of(const struct vx_plan *plan, i32 launch)
{
    return plan->tensor_sets[plan->launches[launch].inputs[0]];
}

size_t vx_gpu_sample_pool_bytes(const struct vx_gpu_choices *choices, i32 launch,
                                const struct vx_gpu_places *places)
{
    const i32 set = pooled_of(choices->plan, launch);
    const i32 samples = places->samples_max[vx_gpu_ordered_of(choices->plan, set)];
    const i32 channels = choices->plan->launches[launch].node->layer->channels;
    return (size_t)vx_sample_slots(places->rows[set], samples) * (size_t)channels *
           sizeof(f64);
}

/* The canonical order of the result's set says where each sample's row is: both sets have
 * the same samples. */
vx_status vx_gpu_sample_pool_launch(const struct vx_gpu_forward *forward, i32 index,
                                    struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    const i32 set = pooled_of(plan, index), from = vx_gpu_ordered_of(plan, set);
    const struct vx_sample_pool_args args = {
        .n = forward->places->rows[set],
        .samples_max = forward->places->samples_max[from],
        .c = launch->node->layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .mode = (i32)launch->node->layer->mode,
        .activation = (i32)launch->node->activation,
        .starts = starts_of(forward, from),
        .count = count_of(forward, from),
        .rows = forward->ordered[from].order,
        .places = forward->ordered[vx_gpu_ordered_of(plan, launch->set)].order,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .partial = (void *)(forward->block + forward->places->workspace),
        .out = vx_gpu_tensor(forward, launch->output),
        .in_stride = vx_gpu_stride(forward, launch->inputs[0]),
    };
    VX_TRY(vx_gpu_pass_launch(forward, VX_GPU_SAMPLE_CHUNKS, &args, why));
    return vx_gpu_pass_launch(forward, VX_GPU_SAMPLE_POOL, &args, why);
}
