/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/gpu/model/model_live.h"
#include "engine/gpu/model/model_mlp.h"
#include "engine/gpu/model/model_narrow.h"
#include "engine/gpu/model/model_norm.h"
#include "engine/gpu/model/model_parts.h"
#include "engine/gpu/model/model_points.h"
#include "kernels/10_activation.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/16_row_gather.h"
#include "kernels/17_pool.h"
#include "kernels/19_softmax.h"
#include "kernels/20_curve.h"
#include "kernels/24_conv_group.h"

#include <string.h>

/* Rows of the result of a launch. */
static i64 rows_of(const struct vx_gpu_forward *forward, i32 launch)
{
    return forward->places->rows[forward->choices->plan->launches[launch].set];
}

/* The map of a convolution, with the order that its algorithm reads; NULL = no map. */
static const struct vx_gpu_map *map_of(const struct vx_gpu_forward *forward, i32 index)
{
    i32 sorted = forward->places->sorted_of[index];
    i32 map = forward->choices->plan->launches[index].map;
    if (sorted >= 0) return &forward->sorted[sorted];
    return map < 0 ? NULL : &forward->maps[map];
}

void vx_gpu_conv_operands(const struct vx_gpu_forward *forward, i32 index,
                          struct vx_conv_operands *operands)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    *operands = (struct vx_conv_operands){
        .map = map_of(forward, index),
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .weight = weight.weight,
        .tiled = weight.tiled,
        .scale = weight.scale,
        .bias = weight.bias,
        .out = vx_gpu_tensor(forward, launch->output),
        .activation = launch->node->activation,
        .channels = launch->node->layer->channels,
        .workspace = forward->block + forward->places->workspace,
    };
    if (launch->node->residual)
        operands->residual = vx_gpu_tensor(forward, launch->inputs[1]);
}

/* A product over all channels.  *early: the launch before it lets it begin early; out: it lets
 * the next one. */
static vx_status launch_product(const struct vx_gpu_forward *forward, i32 index,
                                bool *early, struct vx_why *why)
{
    const struct vx_conv_choice *choice =
        vx_gpu_choice_of(forward->choices, forward->places, index);
    struct vx_conv_problem problem;
    struct vx_conv_operands operands;
    vx_gpu_problem_of(forward->choices, index, forward->places->rows, &problem);
    vx_gpu_conv_operands(forward, index, &operands);
    const bool live = forward->choices->plan->launches[index].node->live;
    operands.early = *early && !live;
    *early = !live && vx_conv_lets_early(choice);
    if (live) return vx_gpu_live_launch(forward, index, &problem, &operands, why);
    return vx_conv_launch(&forward->queue, &problem, choice, &operands, why);
}

static vx_status launch_batch_norm(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    const struct vx_batch_norm_device_args args = {
        .n = rows_of(forward, index),
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .scale = weight.weight,
        .shift = weight.bias,
        .out = vx_gpu_tensor(forward, launch->output),
        .in_stride = vx_gpu_stride(forward, launch->inputs[0]),
        .out_stride = vx_gpu_stride(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_BATCH_NORM, &args, why);
}

void vx_gpu_layer_norm_args(const struct vx_gpu_forward *forward, i32 index,
                            struct vx_layer_norm_device_args *args)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    *args = (struct vx_layer_norm_device_args){
        .n = rows_of(forward, index),
        .c = vx_gpu_channels(forward, launch->output),
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .eps = (f32)launch->node->layer->eps,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = vx_gpu_tensor(forward, launch->output),
        .in_stride = vx_gpu_stride(forward, launch->inputs[0]),
        .out_stride = vx_gpu_stride(forward, launch->output),
    };
}

static vx_status launch_layer_norm(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    struct vx_layer_norm_device_args args;
    vx_gpu_layer_norm_args(forward, index, &args);
    return vx_gpu_pass_launch(forward, VX_GPU_LAYER_NORM, &args, why);
}

static vx_status launch_activation(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_activation_device_args args = {
        .n = rows_of(forward, index),
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_ACTIVATION, &args, why);
}

/* Add or mul. */
static vx_status launch_pair(const struct vx_gpu_forward *forward, i32 index,
                             enum vx_gpu_pass pass, struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_add_device_args args = {
        .n = rows_of(forward, index),
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .a = vx_gpu_tensor(forward, launch->inputs[0]),
        .b = vx_gpu_tensor(forward, launch->inputs[1]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, pass, &args, why);
}

static vx_status launch_concat(const struct vx_gpu_forward *forward, i32 index,
                               struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    struct vx_concat_device_args args = {
        .n = rows_of(forward, index),
        .inputs_count = launch->node->inputs_count,
        .cp = vx_gpu_padded(forward, launch->output),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    for (i32 i = 0; i < args.inputs_count; i++) {
        if (!vx_plan_in_place(forward->choices->plan, launch, i))
            args.inputs[i].data = vx_gpu_tensor(forward, launch->inputs[i]);
        args.inputs[i].c = vx_gpu_channels(forward, launch->inputs[i]);
        args.inputs[i].cp = vx_gpu_stride(forward, launch->inputs[i]);
    }
    return vx_gpu_pass_launch(forward, VX_GPU_CONCAT, &args, why);
}

static vx_status launch_affine(const struct vx_gpu_forward *forward, i32 index,
                               struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_layer *layer = launch->node->layer;
    const struct vx_affine_device_args args = {
        .n = rows_of(forward, index),
        .c = layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .scale = (f32)layer->scale,
        .shift = (f32)layer->shift,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_AFFINE, &args, why);
}

static vx_status launch_curve(const struct vx_gpu_forward *forward, i32 index,
                              enum vx_curve curve, struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_curve_device_args args = {
        .n = rows_of(forward, index),
        .cp = vx_gpu_padded(forward, launch->output),
        .curve = (i32)curve,
        .slope = (f32)launch->node->layer->slope,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_CURVE, &args, why);
}

static vx_status launch_softmax(const struct vx_gpu_forward *forward, i32 index,
                                struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_softmax_device_args args = {
        .n = rows_of(forward, index),
        .c = launch->node->layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_SOFTMAX, &args, why);
}

/* The rows that an output on a set goes to: it is ordered, or the request's. */
static const i32 *rows_out_of(const struct vx_gpu_forward *forward, i32 set)
{
    const struct vx_network *network = forward->choices->plan->graph->network;
    for (i32 c = 0; c < network->coords_count; c++)
        if (network->coords[c].set == set) return forward->ranks[c];
    VX_ASSERT(!set);
    return forward->rows;
}

/* Written as the outputs want it, as i32 in the order of their rows: only they read it. */
static vx_status launch_argmax(const struct vx_gpu_forward *forward, i32 index,
                               struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_softmax_device_args args = {
        .n = rows_of(forward, index),
        .c = launch->node->layer->channels_in,
        .cp = vx_gpu_stride(forward, launch->inputs[0]),
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
        .rows = rows_out_of(forward, launch->set),
    };
    return vx_gpu_pass_launch(forward, VX_GPU_ARGMAX, &args, why);
}

/* Each row is one or several rows of the input, put side by side. */
static vx_status launch_gather(const struct vx_gpu_forward *forward, i32 index,
                               struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    const struct vx_map_key *key = &plan->maps[launch->map];
    const struct vx_gpu_map *map = &forward->maps[launch->map];
    struct vx_row_gather_device_args args = {
        .n = rows_of(forward, index),
        .v = map->v,
        .c = launch->node->layer->channels / map->v,
        .blocks = 1,
        .nbr_stride = map->nbr_stride,
        .in_cp = vx_gpu_stride(forward, launch->inputs[0]),
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .nbr = map->nbr,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
        .out_stride = vx_gpu_stride(forward, launch->output),
    };
    memcpy(args.kernel, key->kernel, sizeof args.kernel);
    if (key->kind == VX_MAP_CHILD)
        args.blocks = key->stride[0] * key->stride[1] * key->stride[2];
    return vx_gpu_pass_launch(forward, VX_GPU_ROW_GATHER, &args, why);
}

static vx_status launch_pool(const struct vx_gpu_forward *forward, i32 index,
                             enum vx_pool_mode mode, struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_node *node = launch->node;
    const struct vx_gpu_map *map = &forward->maps[launch->map];
    struct vx_pool_device_args args = {
        .n = rows_of(forward, index),
        .v = map->v,
        .nbr_stride = map->nbr_stride,
        .c = node->layer->channels,
        .cp = vx_gpu_padded(forward, launch->output),
        .mode = (i32)mode,
        .activation = (i32)node->activation,
        .nbr = map->nbr,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .out = vx_gpu_tensor(forward, launch->output),
        .in_stride = vx_gpu_stride(forward, launch->inputs[0]),
        .out_stride = vx_gpu_stride(forward, launch->output),
    };
    /* The maximum of spconv starts at 0. */
    if (mode == VX_POOL_MAX && node->layer->rule == VX_SET_SPCONV)
        args.activation = VX_ACTIVATION_RELU;
    return vx_gpu_pass_launch(forward, VX_GPU_POOL, &args, why);
}

static vx_status launch_conv_group(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_layer *layer = launch->node->layer;
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    const struct vx_gpu_map *map = &forward->maps[launch->map];
    struct vx_conv_group_args args = {
        .n = rows_of(forward, index),
        .v = map->v,
        .nbr_stride = map->nbr_stride,
        .groups = layer->groups,
        .cig = layer->channels_in / layer->groups,
        .cog = layer->channels / layer->groups,
        .in_cp = vx_gpu_stride(forward, launch->inputs[0]),
        .cp = vx_gpu_padded(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .nbr = map->nbr,
        .in = vx_gpu_tensor(forward, launch->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = vx_gpu_tensor(forward, launch->output),
    };
    if (launch->node->residual) args.residual = vx_gpu_tensor(forward, launch->inputs[1]);
    return vx_gpu_pass_launch(forward, VX_GPU_CONV_GROUP, &args, why);
}

static vx_status launch_one(const struct vx_gpu_forward *forward, i32 index,
                            struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    if (vx_op_is_conv(launch->op) && launch->node->layer->groups > 1)
        return launch_conv_group(forward, index, why);
    if (forward->choices->narrow[index]) return vx_gpu_narrow_launch(forward, index, why);
    switch (launch->op) {
    case VX_OP_BATCH_NORM: return launch_batch_norm(forward, index, why);
    case VX_OP_LAYER_NORM: return launch_layer_norm(forward, index, why);
    case VX_OP_RELU:
    case VX_OP_SILU:
    case VX_OP_GELU:
    case VX_OP_SIGMOID: return launch_activation(forward, index, why);
    case VX_OP_ADD: return launch_pair(forward, index, VX_GPU_ADD, why);
    case VX_OP_MUL: return launch_pair(forward, index, VX_GPU_MUL, why);
    case VX_OP_AFFINE: return launch_affine(forward, index, why);
    case VX_OP_CONCAT: return launch_concat(forward, index, why);
    case VX_OP_LEAKY_RELU: return launch_curve(forward, index, VX_CURVE_LEAKY_RELU, why);
    case VX_OP_SOFTPLUS: return launch_curve(forward, index, VX_CURVE_SOFTPLUS, why);
    case VX_OP_TANH: return launch_curve(forward, index, VX_CURVE_TANH, why);
    case VX_OP_SOFTMAX: return launch_softmax(forward, index, why);
    case VX_OP_ARGMAX: return launch_argmax(forward, index, why);
    case VX_OP_GROUP_NORM:
    case VX_OP_INSTANCE_NORM: return vx_gpu_norm_launch(forward, index, why);
    case VX_OP_GLOBAL_POOL: return vx_gpu_sample_pool_launch(forward, index, why);
    case VX_OP_MAX_POOL: return launch_pool(forward, index, VX_POOL_MAX, why);
    case VX_OP_SUM_POOL: return launch_pool(forward, index, VX_POOL_SUM, why);
    case VX_OP_AVG_POOL:
    case VX_OP_DOWNSAMPLE: return launch_pool(forward, index, VX_POOL_AVG, why);
    case VX_OP_PRUNE:
    case VX_OP_UNPOOL:
    case VX_OP_UPSAMPLE:
    case VX_OP_CHANNEL_TO_SPACE:
    case VX_OP_SPACE_TO_CHANNEL: return launch_gather(forward, index, why);
    case VX_OP_VOXELIZE: return vx_gpu_voxelize_launch(forward, index, why);
    case VX_OP_DEVOXELIZE:
        return launch->node->layer->trilinear
                   ? vx_gpu_devoxelize_launch(forward, index, why)
                   : launch_gather(forward, index, why);
    case VX_OP_SUBM_CONV: /* launch_product */
    case VX_OP_SPARSE_CONV:
    case VX_OP_INVERSE_CONV:
    case VX_OP_TRANSPOSED_CONV:
    case VX_OP_LINEAR:
    case VX_OP_TO_DENSE:
    case VX_OPS_COUNT: break;
    }
    VX_FAIL(INTERNAL, "a layer has no kernel");
}

/* On a set without rows; or a concat whose inputs all lie in place. */
static bool launches_nothing(const struct vx_gpu_forward *forward, i32 index)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_launch *launch = &plan->launches[index];
    if (!rows_of(forward, index)) return true;
    return launch->op == VX_OP_CONCAT && !vx_plan_copies(plan, launch);
}

vx_status vx_gpu_forward_layers(const struct vx_gpu_forward *forward, i32 stage,
                                struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    bool early = false; /* maps and orders are there before the first layer of a stage */
    VX_TRY(vx_gpu_norm_samples(forward, stage, why));
    for (i32 i = vx_plan_stage_begin(plan, stage), count; i < plan->stage_ends[stage];
         i += count) {
        vx_panic_note("launch", (u64)i);
        count = vx_gpu_mlp_count(forward, i);
        if (launches_nothing(forward, i)) continue;
        if (count == 1 && vx_gpu_is_conv(forward->choices, i)) {
            VX_TRY(launch_product(forward, i, &early, why));
            continue;
        }
        early = false;
        if (count > 1)
            VX_TRY(vx_gpu_mlp_launch(forward, i, why));
        else
            VX_TRY(launch_one(forward, i, why));
    }
    return VX_OK;
}
