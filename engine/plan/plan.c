/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/plan.h"

#include "engine/base/process/check.h"
#include "kernels/kernel.h"

#include <string.h>

const struct vx_plan_options vx_plan_cpu = {
    .rows_unit = 16, .channels_unit = 1, .element_bytes = 4};

struct vx_plan_options vx_plan_gpu(i32 element_bytes)
{
    return (struct vx_plan_options){.rows_unit = 64,
                                    .channels_unit = VX_CHANNELS_UNIT,
                                    .element_bytes = element_bytes,
                                    .staged = true};
}

/* Channels of 4 bytes in a row of a tensor. */
static i32 plan_row(const struct vx_plan *plan, i32 channels)
{
    size_t padded = vx_round_up((size_t)channels, (size_t)plan->options.channels_unit);
    return (i32)(padded * (size_t)plan->options.element_bytes / 4);
}

static i32 plan_map(struct vx_plan *plan, const struct vx_layer *layer)
{
    struct vx_map_key key;
    memcpy(key.kernel, layer->kernel, sizeof key.kernel);
    memcpy(key.dilation, layer->dilation, sizeof key.dilation);
    /* An axis of one offset has no dilation; equal maps must have equal keys. */
    for (int axis = 0; axis < 3; axis++)
        if (key.kernel[axis] == 1) key.dilation[axis] = 1;
    for (i32 i = 0; i < plan->maps_count; i++)
        if (!memcmp(&plan->maps[i], &key, sizeof key)) return i;
    plan->maps[plan->maps_count] = key;
    return plan->maps_count++;
}

/* Sorts the maps, largest first, stable: this order needs the least room
 * (vx_geometry_room). */
static void plan_sort_maps(struct vx_plan *plan)
{
    for (i32 i = 0; i < plan->maps_count; i++) {
        i32 at = i, v = vx_map_offsets(&plan->maps[i]);
        for (; at && vx_map_offsets(plan->maps_by_size[at - 1]) < v; at--)
            plan->maps_by_size[at] = plan->maps_by_size[at - 1];
        plan->maps_by_size[at] = &plan->maps[i];
    }
}

static void plan_launch(struct vx_plan *plan, i32 index)
{
    const struct vx_node *node = &plan->graph->nodes[index];
    struct vx_launch *launch = &plan->launches[index];
    struct vx_memory_tensor *output = &plan->tensors[index + 1];
    *launch = (struct vx_launch){.node = node, .op = node->layer->op, .map = -1};
    launch->output = index + 1;
    *output =
        (struct vx_memory_tensor){plan_row(plan, node->layer->channels), index, index, 0};
    for (i32 i = 0; i < node->inputs_count; i++) {
        launch->inputs[i] = node->inputs[i] == VX_LAYER_FEATS ? 0 : node->inputs[i] + 1;
        plan->tensors[launch->inputs[i]].last = index;
    }
    if (launch->op != VX_OP_SUBM_CONV) return;
    if (node->layer->v == 1)
        launch->op = VX_OP_LINEAR; /* (1, Ci, Co) is (Ci, Co); no map is needed */
    else
        launch->map = plan_map(plan, node->layer);
}

/* Outputs are converted after the last launch.  In a staged plan they are converted one
 * by one, each into a tensor of the output's type whose memory the next one may reuse. */
static void plan_outputs(struct vx_plan *plan)
{
    const struct vx_network *network = plan->graph->network;
    for (i32 i = 0; i < network->outputs_count; i++) {
        i32 last = plan->launches_count + (plan->options.staged ? i : 0);
        plan->outputs[i] = plan->graph->outputs[i] + 1;
        plan->tensors[plan->outputs[i]].last = last;
        if (!plan->options.staged) continue;
        const struct vx_network_output *output = &network->outputs[i];
        size_t bytes = vx_dtype_bytes(output->dtype) *
                       (size_t)vx_network_channels(network, output->layer);
        plan->staged_outputs[i] = plan->tensors_count++;
        plan->tensors[plan->staged_outputs[i]] =
            (struct vx_memory_tensor){(i32)(vx_round_up(bytes, 4) / 4), last, last, 0};
    }
}

/* Tensor 0; in a staged plan also the features as sent, at most 4 bytes a channel. */
static void plan_feats(struct vx_plan *plan)
{
    i32 channels = plan->graph->network->feats_channels;
    plan->tensors[0] = (struct vx_memory_tensor){plan_row(plan, channels), -1, -1, 0};
    if (!plan->options.staged) return;
    plan->staged_feats = plan->tensors_count++;
    plan->tensors[plan->staged_feats] = (struct vx_memory_tensor){channels, -1, -1, 0};
}

vx_status vx_plan_build(const struct vx_graph *graph,
                        const struct vx_plan_options *options, struct vx_arena *arena,
                        const struct vx_plan **plan)
{
    size_t nodes = (size_t)graph->nodes_count;
    size_t staged = options->staged ? 1 + (size_t)graph->network->outputs_count : 0;
    struct vx_plan *made = vx_arena_take(arena, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "the memory for a plan is full");
    made->graph = graph;
    made->options = *options;
    made->launches_count = graph->nodes_count;
    made->tensors_count = graph->nodes_count + 1;
    made->launches = vx_arena_take_array(arena, nodes, sizeof *made->launches);
    made->tensors = vx_arena_take_array(arena, nodes + 1 + staged, sizeof *made->tensors);
    made->maps = vx_arena_take_array(arena, nodes, sizeof *made->maps);
    made->maps_by_size = vx_arena_take_array(arena, nodes, sizeof *made->maps_by_size);
    bool good = made->launches && made->tensors && made->maps && made->maps_by_size;
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "the memory for a plan is full");
    plan_feats(made);
    for (i32 i = 0; i < graph->nodes_count; i++) plan_launch(made, i);
    plan_sort_maps(made);
    plan_outputs(made);
    made->channels = (options->staged ? vx_memory_plan_staged : vx_memory_plan)(
        made->tensors, made->tensors_count);
    *plan = made;
    return VX_OK;
}

static size_t rows_padded(const struct vx_plan *plan, i64 n)
{
    return vx_round_up((size_t)n, (size_t)plan->options.rows_unit);
}

size_t vx_plan_bytes(const struct vx_plan *plan, i64 n)
{
    size_t bytes;
    VX_ASSERT(n >= 0);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    if (vx_mul_overflows(rows_padded(plan, n) * sizeof(f32), (size_t)plan->channels,
                         &bytes))
        return SIZE_MAX;
    return bytes;
}

i64 vx_plan_voxels_max(const struct vx_plan *plan, size_t bytes)
{
    size_t unit = (size_t)plan->options.rows_unit;
    size_t rows = bytes / (unit * sizeof(f32) * (size_t)plan->channels) * unit;
    return rows < VX_VOXELS_MAX ? (i64)rows : VX_VOXELS_MAX;
}

i32 vx_plan_channels(const struct vx_plan *plan, i32 tensor)
{
    VX_ASSERT(tensor >= 0);
    VX_ASSERT(tensor <= plan->launches_count);
    if (!tensor) return plan->graph->network->feats_channels;
    return plan->graph->nodes[tensor - 1].layer->channels;
}

size_t vx_plan_tensor_offset(const struct vx_plan *plan, i32 tensor, i64 n)
{
    VX_ASSERT(tensor >= 0);
    VX_ASSERT(tensor < plan->tensors_count);
    return (size_t)plan->tensors[tensor].offset * rows_padded(plan, n) * sizeof(f32);
}
