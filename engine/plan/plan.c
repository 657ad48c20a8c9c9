/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/plan.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/blocks.h"
#include "engine/plan/place.h"
#include "kernels/kernel.h"

#include <stdio.h>
#include <string.h>

/* Voxels of a request for which the sizes of maps are compared. */
#define SORTED_VOXELS (1 << 20)

const struct vx_plan_options vx_plan_cpu = {.rows_unit = 16,
                                            .channels_unit = 1,
                                            .element_bytes = 4,
                                            .rounded_bytes = 4,
                                            .parts = VX_PLAN_PARTS_CPU};

struct vx_plan_options vx_plan_gpu(i32 element_bytes)
{
    return (struct vx_plan_options){.rows_unit = 64,
                                    .channels_unit = VX_CHANNELS_UNIT,
                                    .element_bytes = element_bytes,
                                    .staged = true,
                                    .parts = VX_PLAN_PARTS_GPU};
}

/* Channels of 4 bytes in a row of a tensor. */
static i32 plan_row(const struct vx_plan *plan, i32 channels)
{
    size_t padded = vx_round_up((size_t)channels, (size_t)plan->options.channels_unit);
    return (i32)(padded * (size_t)plan->options.element_bytes / 4);
}

static i32 plan_map(struct vx_plan *plan, const struct vx_map_key *key)
{
    for (i32 i = 0; i < plan->maps_count; i++)
        if (!memcmp(&plan->maps[i], key, sizeof *key)) return i;
    plan->maps[plan->maps_count] = *key;
    return plan->maps_count++;
}

/* Sorts the maps, largest first, stable, as large as they are for many voxels: blocks of
 * powers of two, in falling order, leave no gaps (exec_geometry.c). */
static void plan_sort_maps(struct vx_plan *plan)
{
    i64 rows[VX_SETS_MAX], sizes[VX_LAYERS_MAX];
    vx_sets_rows_max(plan->sets, plan->sets_count, SORTED_VOXELS, rows);
    for (i32 i = 0; i < plan->maps_count; i++) {
        const struct vx_map_key *key = &plan->maps[i];
        i64 size = vx_map_offsets(key) * rows[key->to];
        i32 at = i;
        for (; at && sizes[at - 1] < size; at--) {
            plan->maps_by_size[at] = plan->maps_by_size[at - 1];
            sizes[at] = sizes[at - 1];
        }
        plan->maps_by_size[at] = key;
        sizes[at] = size;
    }
}

/* The tensor into which the input of a layer in FP8 is rounded. */
static void plan_rounded(struct vx_plan *plan, i32 index)
{
    struct vx_launch *launch = &plan->launches[index];
    const i32 from = launch->inputs[0];
    size_t channels = vx_round_up((size_t)vx_plan_channels(plan, from),
                                  (size_t)plan->options.channels_unit);
    size_t bytes = channels * (size_t)plan->options.rounded_bytes;
    launch->rounded = plan->tensors_count++;
    plan->tensors[launch->rounded] =
        (struct vx_memory_tensor){(i32)(vx_round_up(bytes, 4) / 4), index, index, 0};
    plan->tensor_sets[launch->rounded] = plan->tensor_sets[from];
}

static void plan_launch(struct vx_plan *plan, i32 index)
{
    const struct vx_network *network = plan->graph->network;
    const struct vx_node *node = &plan->graph->nodes[index];
    struct vx_launch *launch = &plan->launches[index];
    struct vx_map_key key;
    *launch =
        (struct vx_launch){.node = node, .op = node->layer->op, .map = -1, .order = -1};
    launch->set = node->layer->set;
    if (node->gather) launch->op = VX_OP_SPARSE_CONV;
    launch->output = index + 1;
    plan->tensors[index + 1] =
        (struct vx_memory_tensor){plan_row(plan, node->layer->channels), index, index, 0};
    plan->tensor_sets[index + 1] = launch->set;
    for (i32 i = 0; i < node->inputs_count; i++) {
        launch->inputs[i] = node->inputs[i] == VX_LAYER_FEATS ? 0 : node->inputs[i] + 1;
        plan->tensors[launch->inputs[i]].last = index;
    }
    if (node->layer->fp8_scale > 0 && plan->options.rounded_bytes)
        plan_rounded(plan, index);
    if (vx_layer_map(network, node->gather ? node->gather : node->layer, &key))
        launch->map = plan_map(plan, &key);
    else if (vx_op_is_conv(launch->op))
        launch->op = VX_OP_LINEAR; /* (1, Ci, Co) is (Ci, Co) */
    /* A device with its own memory sorts when it runs (gpu/model/model_points.c). */
    if (!plan->options.staged && vx_layer_order(network, node->layer, &key))
        launch->order = plan_map(plan, &key);
}

/* Where the launches of each stage end, and the order of the sets.  Logits live until their
 * set is made, which is before the first launch of its stage. */
static void plan_stages(struct vx_plan *plan)
{
    i32 count = 0;
    plan->stages_count = 1;
    for (i32 i = 0; i < plan->sets_count; i++)
        if (plan->stages_count <= plan->sets[i].stage)
            plan->stages_count = plan->sets[i].stage + 1;
    for (i32 stage = 0; stage < plan->stages_count; stage++) {
        for (i32 i = 0; i < plan->sets_count; i++)
            if (plan->sets[i].stage == stage) plan->sets_by_stage[count++] = i;
        i32 end = stage ? plan->stage_ends[stage - 1] : 0;
        while (end < plan->launches_count && plan->launches[end].node->stage == stage)
            end++;
        plan->stage_ends[stage] = end;
    }
    VX_ASSERT(plan->stage_ends[plan->stages_count - 1] == plan->launches_count);
    for (i32 set = 1; set < plan->sets_count; set++) {
        if (!vx_set_is_predicted(&plan->sets[set].key)) continue;
        struct vx_memory_tensor *logits = &plan->tensors[vx_plan_logits(plan, set)];
        i32 needed = plan->stage_ends[plan->sets[set].stage - 1];
        VX_ASSERT(logits->first < needed);
        if (logits->last < needed) logits->last = needed;
    }
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
        if (network->layers[output->layer].op == VX_OP_TO_DENSE) continue;
        size_t bytes = vx_dtype_bytes(output->dtype) *
                       (size_t)vx_network_channels(network, output->layer);
        plan->staged_outputs[i] = plan->tensors_count++;
        plan->tensors[plan->staged_outputs[i]] =
            (struct vx_memory_tensor){(i32)(vx_round_up(bytes, 4) / 4), last, last, 0};
        plan->tensor_sets[plan->staged_outputs[i]] =
            vx_network_set(network, output->layer);
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

/* The entry of a set, made if there is none. */
static struct vx_plan_ordered *plan_ordered(struct vx_plan *plan, i32 set)
{
    for (i32 i = 0; i < plan->ordered_count; i++)
        if (plan->ordered[i].set == set) return &plan->ordered[i];
    plan->ordered[plan->ordered_count] = (struct vx_plan_ordered){.set = set};
    return &plan->ordered[plan->ordered_count++];
}

static void plan_order(struct vx_plan *plan)
{
    const struct vx_network *network = plan->graph->network;
    for (i32 i = 0; i < network->coords_count; i++)
        plan_ordered(plan, network->coords[i].set)->output = true;
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_launch *launch = &plan->launches[i];
        if (launch->op == VX_OP_GROUP_NORM || launch->op == VX_OP_INSTANCE_NORM)
            plan_ordered(plan, launch->set)->samples = true;
        if (launch->op == VX_OP_DEVOXELIZE && launch->node->layer->trilinear)
            plan_ordered(plan, launch->set)->samples = true;
        if (launch->op == VX_OP_VOXELIZE)
            plan_ordered(plan, plan->tensor_sets[launch->inputs[0]])->samples = true;
        if (launch->op != VX_OP_GLOBAL_POOL) continue;
        /* Its result has the samples of its input in the same order. */
        plan_ordered(plan, plan->tensor_sets[launch->inputs[0]])->samples = true;
        plan_ordered(plan, launch->set)->samples = true;
    }
    for (i32 i = 0; plan->options.staged && i < network->outputs_count; i++) {
        const struct vx_layer *layer = &network->layers[network->outputs[i].layer];
        if (layer->op == VX_OP_TO_DENSE) plan_ordered(plan, layer->set)->dense = true;
    }
}

/* The most maps that the nodes have: at most VX_LAYERS_MAX (network.c). */
static size_t maps_max(const struct vx_graph *graph)
{
    size_t count = (size_t)graph->nodes_count;
    for (i32 i = 0; i < graph->nodes_count; i++)
        count += graph->nodes[i].layer->op == VX_OP_VOXELIZE;
    return count;
}

vx_status vx_plan_build(const struct vx_graph *graph,
                        const struct vx_plan_options *options, struct vx_arena *arena,
                        const struct vx_plan **plan)
{
    size_t nodes = (size_t)graph->nodes_count, maps = maps_max(graph);
    size_t staged = options->staged ? 1 + (size_t)graph->network->outputs_count : 0;
    size_t tensors = nodes + 1 + staged + (size_t)graph->network->fp8.layers_count;
    struct vx_plan *made = vx_arena_take(arena, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "the memory for a plan is full");
    made->graph = graph;
    made->options = *options;
    made->sets = graph->network->sets;
    made->sets_count = graph->network->sets_count;
    made->launches_count = graph->nodes_count;
    made->tensors_count = graph->nodes_count + 1;
    made->launches = vx_arena_take_array(arena, nodes, sizeof *made->launches);
    made->tensors = vx_arena_take_array(arena, tensors, sizeof *made->tensors);
    made->tensor_sets = vx_arena_take_array(arena, tensors, sizeof *made->tensor_sets);
    made->maps = vx_arena_take_array(arena, maps, sizeof *made->maps);
    made->maps_by_size = vx_arena_take_array(arena, maps, sizeof *made->maps_by_size);
    made->parts = vx_arena_take_array(arena, tensors, sizeof *made->parts);
    bool good = made->launches && made->tensors && made->tensor_sets && made->maps &&
                made->maps_by_size && made->parts;
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "the memory for a plan is full");
    plan_feats(made);
    for (i32 i = 0; i < graph->nodes_count; i++) plan_launch(made, i);
    plan_stages(made);
    plan_order(made);
    made->levels = made->sets_count > 1 || made->ordered_count;
    for (i32 i = 0; i < made->maps_count; i++)
        made->levels = made->levels || made->maps[i].kind != VX_MAP_SUBM;
    plan_sort_maps(made);
    plan_outputs(made);
    vx_plan_place(made);
    *plan = made;
    return VX_OK;
}

/* Bytes of all tensors of a set; SIZE_MAX when the number overflows. */
static size_t set_bytes(const struct vx_plan *plan, i32 set, i64 rows)
{
    size_t bytes, padded = vx_round_up((size_t)rows, (size_t)plan->options.rows_unit);
    VX_ASSERT(rows >= 0);
    VX_ASSERT(rows <= VX_VOXELS_MAX);
    if (vx_mul_overflows(padded * sizeof(f32), (size_t)plan->channels[set], &bytes))
        return SIZE_MAX;
    return bytes;
}

size_t vx_plan_bytes(const struct vx_plan *plan, const i64 *rows)
{
    size_t sum = 0;
    for (i32 set = 0; set < plan->sets_count; set++) {
        size_t bytes = set_bytes(plan, set, rows[set]);
        if (bytes > SIZE_MAX - sum) return SIZE_MAX;
        sum += bytes;
    }
    return sum;
}

size_t vx_plan_bytes_max(const struct vx_plan *plan, i64 n)
{
    i64 rows[VX_SETS_MAX];
    vx_sets_rows_max(plan->sets, plan->sets_count, n, rows);
    return vx_plan_bytes(plan, rows);
}

i64 vx_plan_voxels_max(const struct vx_plan *plan, size_t bytes)
{
    i64 fits = 0, over = VX_VOXELS_MAX + INT64_C(1);
    while (over - fits > 1) {
        i64 middle = fits + (over - fits) / 2;
        if (vx_plan_bytes_max(plan, middle) <= bytes)
            fits = middle;
        else
            over = middle;
    }
    return fits;
}

const char *vx_plan_need_text(const struct vx_plan *plan, char out[VX_PLAN_NEED_BYTES])
{
    int used = snprintf(out, VX_PLAN_NEED_BYTES, "%lld channels each",
                        (long long)plan->channels[0]);
    i32 others = plan->sets_count - 1;
    if (others)
        snprintf(out + used, VX_PLAN_NEED_BYTES - (size_t)used,
                 ", and %d set%s made from them", others, others > 1 ? "s" : "");
    return out;
}

vx_status vx_plan_check_set(const struct vx_plan *plan, i32 set, i64 rows, bool exact,
                            struct vx_why *why)
{
    const struct vx_set *it = &plan->sets[set];
    VX_ENSURE_WHY(!it->rows_max || rows <= it->rows_max, why, RESOURCE_EXHAUSTED,
                  "a set has more voxels than its limit",
                  "set %d, made by layer \"%.*s\", has %s%lld voxels; limits.sets allows "
                  "%lld",
                  set, VX_NAME_SHOWN, plan->graph->network->layers[it->layer].name,
                  exact ? "" : "at least ", (long long)rows, (long long)it->rows_max);
    return VX_OK;
}

const i32 *vx_plan_shape(const struct vx_plan *plan, const i32 own[3])
{
    return own[0] ? own : plan->sets[0].shape;
}

vx_status vx_plan_shapes(const struct vx_plan *plan, const i32 own[3], struct vx_why *why,
                         i32 shapes[VX_SETS_MAX][3])
{
    memcpy(shapes[0], vx_plan_shape(plan, own), sizeof shapes[0]);
    for (i32 s = 1; s < plan->sets_count; s++)
        for (int axis = 0; axis < 3; axis++) {
            const struct vx_set *set = &plan->sets[s];
            const i32 from = shapes[set->key.from][axis];
            shapes[s][axis] = vx_set_size(&set->key, axis, from);
            VX_ENSURE_WHY(shapes[s][axis] >= 0, why, INVALID_ARGUMENT,
                          "a kernel is larger than the spatial shape",
                          "spatial_shape %dx%dx%d: layer \"%.*s\" reads %d voxels along "
                          "column %d of coords; its kernel reaches over %d, with a "
                          "padding of %d on both sides",
                          shapes[0][0], shapes[0][1], shapes[0][2], VX_NAME_SHOWN,
                          plan->graph->network->layers[set->layer].name, from, axis + 1,
                          set->key.dilation[axis] * (set->key.kernel[axis] - 1) + 1,
                          set->key.padding[axis]);
        }
    return VX_OK;
}

vx_status vx_plan_check_shape(const struct vx_plan *plan, const i32 own[3],
                              struct vx_why *why)
{
    const struct vx_network *network = plan->graph->network;
    i32 shapes[VX_SETS_MAX][3];
    if (!own[0]) return VX_OK; /* the network's has been checked */
    VX_TRY(vx_plan_shapes(plan, own, why, shapes));
    for (i32 s = 1; s < plan->sets_count; s++)
        for (int axis = 0; axis < 3; axis++)
            VX_ENSURE_WHY(
                shapes[s][axis] <= VX_AXIS_MAX + 1, why, INVALID_ARGUMENT,
                "the spatial shape of a set exceeds the range of coordinates",
                "spatial_shape %dx%dx%d: the set of layer \"%.*s\" has %d voxels along "
                "column %d of coords; expected at most %d, the range of coordinates",
                own[0], own[1], own[2], VX_NAME_SHOWN,
                network->layers[plan->sets[s].layer].name, shapes[s][axis], axis + 1,
                VX_AXIS_MAX + 1);
    vx_status status = vx_blocks_check(network, shapes, why);
    if (status.fault)
        vx_why_prefix(why, "spatial_shape %dx%dx%d: ", own[0], own[1], own[2]);
    return status;
}

vx_status vx_plan_outside(const struct vx_plan *plan, const i32 own[3], i64 row,
                          const i32 at[4], struct vx_why *why)
{
    const i32 *shape = vx_plan_shape(plan, own);
    char which[96] = "a row of coords";
    if (row >= 0)
        snprintf(which, sizeof which, "coords row %lld (%d, %d, %d, %d)", (long long)row,
                 at[0], at[1], at[2], at[3]);
    VX_FAIL_WHY(
        why, INVALID_ARGUMENT, "a voxel lies outside of the spatial shape",
        "%s lies outside of the %s's spatial_shape: expected 0 to %d, 0 to %d and 0 "
        "to %d in the last three columns",
        which, shape == own ? "request" : "network", shape[0] - 1, shape[1] - 1,
        shape[2] - 1);
}

i64 vx_plan_set_voxels(const struct vx_plan *plan, const i64 *rows)
{
    i64 sum = 0;
    for (i32 i = 0; i < plan->sets_count; i++) sum += rows[i];
    return sum;
}

i64 vx_plan_one_pairs(const struct vx_plan *plan, const i64 *rows)
{
    i64 sum = 0;
    for (i32 i = 0; i < plan->maps_count; i++)
        if (vx_map_is_one(&plan->maps[i]) && plan->maps[i].kind != VX_MAP_ORDER)
            sum += rows[plan->maps[i].to];
    return sum;
}

vx_status vx_plan_not_a_number(const struct vx_plan *plan, i32 set, const i32 voxel[4],
                               i32 child, struct vx_why *why)
{
    const struct vx_network *network = plan->graph->network;
    const struct vx_set *made = &plan->sets[set];
    char which[24] = "";
    if (made->key.rule == VX_SET_LIVE)
        snprintf(which, sizeof which, ", child %d,", child);
    VX_FAIL_WHY(
        why, INVALID_ARGUMENT, "a logit is not a number",
        "layer \"%.*s\": the logit of voxel (%d, %d, %d, %d) of set %d%s is not a "
        "number; set %d, made by layer \"%.*s\", follows from it",
        VX_NAME_SHOWN, network->layers[made->key.by].name, voxel[0], voxel[1], voxel[2],
        voxel[3], made->key.from, which, set, VX_NAME_SHOWN,
        network->layers[made->layer].name);
}

i32 vx_plan_map_stage(const struct vx_plan *plan, const struct vx_map_key *map)
{
    i32 from = plan->sets[map->from].stage, to = plan->sets[map->to].stage;
    return from > to ? from : to;
}

i32 vx_plan_logits(const struct vx_plan *plan, i32 set)
{
    const struct vx_set_key *key = &plan->sets[set].key;
    VX_ASSERT(vx_set_is_predicted(key));
    return plan->graph->node_of[key->by] + 1;
}

bool vx_plan_is_logits(const struct vx_plan *plan, i32 tensor)
{
    for (i32 set = 1; set < plan->sets_count; set++)
        if (vx_set_is_predicted(&plan->sets[set].key) &&
            vx_plan_logits(plan, set) == tensor)
            return true;
    return false;
}

i32 vx_plan_channels(const struct vx_plan *plan, i32 tensor)
{
    VX_ASSERT(tensor >= 0);
    VX_ASSERT(tensor <= plan->launches_count);
    if (!tensor) return plan->graph->network->feats_channels;
    return plan->graph->nodes[tensor - 1].layer->channels;
}

i32 vx_plan_stride(const struct vx_plan *plan, i32 tensor)
{
    const i32 whole = plan->parts[tensor].whole;
    return (i32)vx_round_up((size_t)vx_plan_channels(plan, whole ? whole : tensor),
                            (size_t)plan->options.channels_unit);
}

size_t vx_plan_tensor_offset(const struct vx_plan *plan, i32 tensor, const i64 *rows)
{
    VX_ASSERT(tensor >= 0);
    VX_ASSERT(tensor < plan->tensors_count);
    const struct vx_plan_part *part = &plan->parts[tensor];
    if (part->whole)
        return vx_plan_tensor_offset(plan, part->whole, rows) +
               (size_t)part->column * (size_t)plan->options.element_bytes;
    i32 set = plan->tensor_sets[tensor];
    size_t padded = vx_round_up((size_t)rows[set], (size_t)plan->options.rows_unit);
    size_t offset = (size_t)plan->tensors[tensor].offset * padded * sizeof(f32);
    for (i32 i = 0; plan->sets_by_stage[i] != set; i++)
        offset += set_bytes(plan, plan->sets_by_stage[i], rows[plan->sets_by_stage[i]]);
    return offset;
}
