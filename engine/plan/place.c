/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/place.h"

/* Kernels that read and write rows of any stride: of each row alone, or through a map. */
static bool place_is_pass(enum vx_op op)
{
    switch (op) {
    case VX_OP_BATCH_NORM:
    case VX_OP_LAYER_NORM:
    case VX_OP_MAX_POOL:
    case VX_OP_SUM_POOL:
    case VX_OP_AVG_POOL:
    case VX_OP_DOWNSAMPLE:
    case VX_OP_PRUNE:
    case VX_OP_UNPOOL:
    case VX_OP_UPSAMPLE:
    case VX_OP_CHANNEL_TO_SPACE:
    case VX_OP_SPACE_TO_CHANNEL: return true;
    default: return false;
    }
}

/* Add and mul, where they do too. */
static bool place_is_pair(const struct vx_plan *plan, enum vx_op op)
{
    return plan->options.parts == VX_PLAN_PARTS_CPU &&
           (op == VX_OP_ADD || op == VX_OP_MUL);
}

/* Whether a launch writes rows of any stride.  A concat does not: it is no part of another. */
static bool place_writes(const struct vx_plan *plan, const struct vx_launch *launch)
{
    return vx_launch_is_product(launch) || place_is_pass(launch->op) ||
           place_is_pair(plan, launch->op);
}

/* Whether a launch reads this input in rows of any stride. */
static bool place_reads(const struct vx_plan *plan, const struct vx_launch *launch,
                        i32 input)
{
    if (vx_launch_is_product(launch) || place_is_pair(plan, launch->op)) return true;
    if (vx_op_is_conv(launch->op)) return input == 0; /* in groups: no residual */
    if (plan->options.parts == VX_PLAN_PARTS_CPU) {
        /* It counts the blocks of all rows, one behind the other. */
        if (launch->op == VX_OP_CHANNEL_TO_SPACE) return false;
        return launch->op == VX_OP_CONCAT || place_is_pass(launch->op);
    }
    switch (launch->op) {
    case VX_OP_CONCAT:
    case VX_OP_ARGMAX:
    case VX_OP_GROUP_NORM:
    case VX_OP_INSTANCE_NORM:
    case VX_OP_GLOBAL_POOL: return true;
    default: return place_is_pass(launch->op);
    }
}

static bool place_all_read(const struct vx_plan *plan, i32 tensor)
{
    const struct vx_network *network = plan->graph->network;
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_launch *launch = &plan->launches[i];
        for (i32 j = 0; j < launch->node->inputs_count; j++)
            if (launch->inputs[j] == tensor && !place_reads(plan, launch, j))
                return false;
    }
    for (i32 i = 0; i < network->outputs_count; i++) {
        /* The CPU's is written where the caller wants it. */
        const bool whole =
            plan->options.parts == VX_PLAN_PARTS_CPU ||
            network->layers[network->outputs[i].layer].op == VX_OP_TO_DENSE;
        if (plan->outputs[i] == tensor && whole) return false;
    }
    return plan->options.parts != VX_PLAN_PARTS_CPU || !vx_plan_is_logits(plan, tensor);
}

/* The first column of an input of a concat. */
static i32 place_column(const struct vx_plan *plan, const struct vx_launch *concat,
                        i32 input)
{
    i32 column = 0;
    for (i32 i = 0; i < input; i++) column += vx_plan_channels(plan, concat->inputs[i]);
    return column;
}

bool vx_plan_in_place(const struct vx_plan *plan, const struct vx_launch *concat,
                      i32 input)
{
    const struct vx_plan_part *part = &plan->parts[concat->inputs[input]];
    return part->whole == concat->output &&
           part->column == place_column(plan, concat, input);
}

i32 vx_plan_copies(const struct vx_plan *plan, const struct vx_launch *concat)
{
    i32 count = 0;
    for (i32 i = 0; i < concat->node->inputs_count; i++)
        count += !vx_plan_in_place(plan, concat, i);
    return count;
}

/* Whether an input of a concat may be a part of its rows, but for the memory. */
static bool place_may(const struct vx_plan *plan, const struct vx_launch *concat,
                      i32 input)
{
    const i32 tensor = concat->inputs[input], unit = plan->options.channels_unit;
    const bool last = input == concat->node->inputs_count - 1;
    if (!tensor || plan->parts[tensor].whole) return false;
    if (place_column(plan, concat, input) % unit) return false;
    if (vx_plan_channels(plan, tensor) % unit && !last) return false;
    return place_writes(plan, &plan->launches[tensor - 1]) &&
           place_all_read(plan, tensor);
}

/* Places the tensors of one set beside each other; returns the channels of them all. */
static i64 place_set(struct vx_plan *plan, i32 set)
{
    struct vx_memory_tensor mine[VX_MEMORY_TENSORS_MAX];
    i32 of[VX_MEMORY_TENSORS_MAX], at[VX_MEMORY_TENSORS_MAX], count = 0;
    for (i32 i = 0; i < plan->tensors_count; i++) {
        if (plan->tensor_sets[i] != set || plan->parts[i].whole) continue;
        mine[count] = plan->tensors[i];
        at[i] = count;
        of[count++] = i;
    }
    for (i32 i = 0; i < plan->tensors_count; i++) {
        const i32 whole = plan->parts[i].whole;
        if (plan->tensor_sets[i] != set || !whole) continue;
        struct vx_memory_tensor *lives = &mine[at[whole]];
        if (lives->first > plan->tensors[i].first) lives->first = plan->tensors[i].first;
        if (lives->last < plan->tensors[i].last) lives->last = plan->tensors[i].last;
    }
    const i64 channels =
        (plan->options.staged ? vx_memory_plan_staged : vx_memory_plan)(mine, count);
    for (i32 i = 0; i < count; i++) plan->tensors[of[i]].offset = mine[i].offset;
    return channels;
}

/* Makes a tensor a part of a concat that reads it, if it may be one. */
static void place_part(struct vx_plan *plan, const struct vx_launch *concat, i32 tensor)
{
    for (i32 i = 0; i < concat->node->inputs_count; i++) {
        if (concat->inputs[i] != tensor || !place_may(plan, concat, i)) continue;
        plan->parts[tensor] =
            (struct vx_plan_part){concat->output, place_column(plan, concat, i)};
        if (place_set(plan, concat->set) <= plan->channels[concat->set]) return;
        plan->parts[tensor].whole = 0;
    }
}

void vx_plan_place(struct vx_plan *plan)
{
    for (i32 i = 0; i < plan->tensors_count; i++)
        plan->parts[i] = (struct vx_plan_part){0, 0};
    for (i32 set = 0; set < plan->sets_count; set++)
        plan->channels[set] = place_set(plan, set);
    if (!plan->options.parts) return;
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_launch *launch = &plan->launches[i];
        if (launch->op != VX_OP_CONCAT) continue;
        /* The latest first: it keeps the concat's tensor alive for the shortest time. */
        for (i32 tensor = launch->output - 1; tensor > 0; tensor--)
            place_part(plan, launch, tensor);
    }
    for (i32 set = 0; set < plan->sets_count; set++)
        plan->channels[set] = place_set(plan, set);
}
