/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/plan.h"

#include "engine/base/check.h"

#include <string.h>

static i32 plan_map(struct vx_plan *plan, const struct vx_layer *layer)
{
    struct vx_map_key key;
    memcpy(key.kernel, layer->kernel, sizeof key.kernel);
    memcpy(key.dilation, layer->dilation, sizeof key.dilation);
    /* Along an axis of one offset nothing is dilated. */
    for (int axis = 0; axis < 3; axis++)
        if (key.kernel[axis] == 1) key.dilation[axis] = 1;
    for (i32 i = 0; i < plan->maps_count; i++)
        if (!memcmp(&plan->maps[i], &key, sizeof key)) return i;
    plan->maps[plan->maps_count] = key;
    return plan->maps_count++;
}

static void plan_launch(struct vx_plan *plan, i32 index)
{
    const struct vx_node *node = &plan->graph->nodes[index];
    struct vx_launch *launch = &plan->launches[index];
    struct vx_memory_tensor *output = &plan->tensors[index + 1];
    *launch = (struct vx_launch){.node = node, .op = node->layer->op, .map = -1};
    launch->output = index + 1;
    *output = (struct vx_memory_tensor){node->layer->channels, index, index, 0};
    for (i32 i = 0; i < node->inputs_count; i++) {
        launch->inputs[i] = node->inputs[i] == VX_LAYER_FEATS ? 0 : node->inputs[i] + 1;
        plan->tensors[launch->inputs[i]].last = index;
    }
    if (launch->op != VX_OP_SUBM_CONV) return;
    if (node->layer->v == 1)
        launch->op = VX_OP_LINEAR; /* (1, Ci, Co) is (Ci, Co), and no map is needed */
    else
        launch->map = plan_map(plan, node->layer);
}

vx_status vx_plan_build(const struct vx_graph *graph, struct vx_arena *arena,
                        const struct vx_plan **plan)
{
    size_t nodes = (size_t)graph->nodes_count;
    struct vx_plan *made = vx_arena_take(arena, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "the memory for a plan is full");
    made->graph = graph;
    made->launches_count = graph->nodes_count;
    made->tensors_count = graph->nodes_count + 1;
    made->launches = vx_arena_take_array(arena, nodes, sizeof *made->launches);
    made->tensors = vx_arena_take_array(arena, nodes + 1, sizeof *made->tensors);
    made->maps = vx_arena_take_array(arena, nodes, sizeof *made->maps);
    bool good = made->launches && made->tensors && made->maps;
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "the memory for a plan is full");
    made->tensors[0] =
        (struct vx_memory_tensor){graph->network->feats_channels, -1, -1, 0};
    for (i32 i = 0; i < graph->nodes_count; i++) plan_launch(made, i);
    /* Outputs are converted after the last launch. */
    for (i32 i = 0; i < graph->network->outputs_count; i++) {
        made->outputs[i] = graph->outputs[i] + 1;
        made->tensors[made->outputs[i]].last = made->launches_count;
    }
    made->channels = vx_memory_plan(made->tensors, made->tensors_count);
    *plan = made;
    return VX_OK;
}

static size_t rows_padded(i64 n)
{
    return vx_round_up((size_t)n, VX_PLAN_ROWS_UNIT);
}

size_t vx_plan_bytes(const struct vx_plan *plan, i64 n)
{
    size_t bytes;
    VX_ASSERT(n >= 0);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    if (vx_mul_overflows(rows_padded(n) * sizeof(f32), (size_t)plan->channels, &bytes))
        return SIZE_MAX;
    return bytes;
}

i64 vx_plan_voxels_max(const struct vx_plan *plan, size_t bytes)
{
    size_t unit_bytes = VX_PLAN_ROWS_UNIT * sizeof(f32) * (size_t)plan->channels;
    size_t rows = bytes / unit_bytes * VX_PLAN_ROWS_UNIT;
    return rows < VX_VOXELS_MAX ? (i64)rows : VX_VOXELS_MAX;
}

size_t vx_plan_tensor_offset(const struct vx_plan *plan, i32 tensor, i64 n)
{
    VX_ASSERT(tensor >= 0);
    VX_ASSERT(tensor < plan->tensors_count);
    return (size_t)plan->tensors[tensor].offset * rows_padded(n) * sizeof(f32);
}
