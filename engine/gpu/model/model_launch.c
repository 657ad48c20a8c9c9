/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_launch.h"

#include "engine/base/process/check.h"
#include "kernels/10_activation.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/14_rows.h"

/* vx_dtype and vx_number have the same values (cpu.h asserts it). */
static i32 number_of(enum vx_dtype dtype)
{
    bool known = dtype == VX_DTYPE_F32 || dtype == VX_DTYPE_F16 || dtype == VX_DTYPE_BF16;
    VX_ASSERT(known);
    return (i32)dtype;
}

vx_status vx_gpu_item_in(const struct vx_gpu_queue *queue, bool on_device,
                         const struct vx_gpu_copy *copy, struct vx_why *why)
{
    struct vx_gpu *gpu = vx_kernel_set_gpu(queue->set);
    if (on_device) return vx_gpu_copy_within(gpu, queue->stream, copy, why);
    return vx_gpu_copy_in(gpu, queue->stream, copy, why);
}

vx_status vx_gpu_item_out(const struct vx_gpu_queue *queue, bool on_device,
                          const struct vx_gpu_copy *copy, struct vx_why *why)
{
    struct vx_gpu *gpu = vx_kernel_set_gpu(queue->set);
    if (on_device) return vx_gpu_copy_within(gpu, queue->stream, copy, why);
    return vx_gpu_copy_out(gpu, queue->stream, copy, why);
}

static void *tensor_of(const struct vx_gpu_forward *forward, i32 tensor)
{
    const struct vx_gpu_places *places = forward->places;
    return forward->block + places->shared +
           vx_plan_tensor_offset(forward->choices->plan, tensor, &places->n);
}

static i32 channels_of(const struct vx_gpu_forward *forward, i32 tensor)
{
    return vx_plan_channels(forward->choices->plan, tensor);
}

static i32 padded_of(const struct vx_gpu_forward *forward, i32 tensor)
{
    return vx_channels_padded(channels_of(forward, tensor));
}

static vx_status pass_launch(const struct vx_gpu_forward *forward, enum vx_gpu_pass pass,
                             const void *args, struct vx_why *why)
{
    struct vx_jit_wanted kernel = vx_gpu_pass_wanted(pass, forward->choices->type);
    return vx_kernel_launch(forward->queue.set, forward->queue.stream, &kernel, args,
                            why);
}

/* Adjacent items with features of one type, which are converted together. */
struct run {
    i32 first, count; /* items */
    i64 row, n;       /* first row in the round, and number of rows */
    enum vx_dtype dtype;
};

/* Moves to the next run, or from a zeroed run to the first one; false = there is none. */
static bool run_next(const struct vx_gpu_forward *forward, struct run *run)
{
    run->first += run->count;
    run->row += run->n;
    run->count = 0;
    run->n = 0;
    if (run->first == forward->items_count) return false;
    run->dtype = forward->items[run->first]->feats_dtype;
    for (i32 i = run->first; i < forward->items_count; i++) {
        if (forward->items[i]->feats_dtype != run->dtype) break;
        run->n += forward->items[i]->voxels;
        run->count++;
    }
    return true;
}

/* Stages a run where it would begin if all features had the widest type, so that runs do
 * not overlap.  Row numbers count from the first row of the round, so args.in is moved to
 * where that row would be. */
static vx_status feats_run(const struct vx_gpu_forward *forward, const struct run *run,
                           struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    i32 c = channels_of(forward, 0), cp = padded_of(forward, 0);
    size_t row_bytes = (size_t)c * vx_dtype_bytes(run->dtype), first = (size_t)run->row;
    size_t tensor_row = (size_t)cp * (size_t)plan->options.element_bytes;
    u8 *staged = tensor_of(forward, plan->staged_feats), *tensor = tensor_of(forward, 0);
    staged += first * (size_t)c * sizeof(f32);
    const struct vx_rows_args args = {
        .n = run->n,
        .c = c,
        .cp = cp,
        .number = number_of(run->dtype),
        .rows = forward->rows + run->row,
        .in = staged - first * row_bytes,
        .out = tensor + first * tensor_row,
    };
    for (i32 i = run->first; i < run->first + run->count; i++) {
        const struct vx_item *item = forward->items[i];
        size_t bytes = (size_t)item->voxels * row_bytes;
        VX_TRY(vx_gpu_item_in(&forward->queue, item->on_device & VX_ITEM_FEATS,
                              &(struct vx_gpu_copy){staged, item->feats, bytes}, why));
        staged += bytes;
    }
    return pass_launch(forward, VX_GPU_ROWS_IN, &args, why);
}

vx_status vx_gpu_forward_feats(const struct vx_gpu_forward *forward, struct vx_why *why)
{
    struct run run = {0};
    if (!forward->items[0]->feats) {
        VX_ASSERT(forward->items_count == 1);
        size_t row_bytes = (size_t)padded_of(forward, 0) *
                           (size_t)forward->choices->plan->options.element_bytes;
        return vx_gpu_fill(forward->gpu, forward->queue.stream,
                           &(struct vx_gpu_words){tensor_of(forward, 0), 0,
                                                  (size_t)forward->places->n * row_bytes},
                           why);
    }
    while (run_next(forward, &run)) VX_TRY(feats_run(forward, &run, why));
    return VX_OK;
}

/* The map of a convolution, with the order that its algorithm reads; NULL = no map. */
static const struct vx_gpu_map *map_of(const struct vx_gpu_forward *forward, i32 index)
{
    i32 sorted = forward->places->sorted_of[index];
    i32 map = forward->choices->plan->launches[index].map;
    if (sorted >= 0) return &forward->sorted[sorted];
    return map < 0 ? NULL : &forward->maps[map];
}

static vx_status launch_conv(const struct vx_gpu_forward *forward, i32 index,
                             struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    struct vx_conv_problem problem;
    vx_gpu_problem_make(forward->choices, index, forward->places->n, &problem);
    struct vx_conv_operands operands = {
        .map = map_of(forward, index),
        .in = tensor_of(forward, launch->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = tensor_of(forward, launch->output),
        .activation = launch->node->activation,
        .channels = launch->node->layer->channels,
        .workspace = forward->block + forward->places->workspace,
    };
    if (launch->node->residual) operands.residual = tensor_of(forward, launch->inputs[1]);
    return vx_conv_launch(&forward->queue, &problem,
                          vx_gpu_choice_get(forward->choices, index, problem.n),
                          &operands, why);
}

static vx_status launch_batch_norm(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    const struct vx_batch_norm_device_args args = {
        .n = forward->places->n,
        .cp = padded_of(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .in = tensor_of(forward, launch->inputs[0]),
        .scale = weight.weight,
        .shift = weight.bias,
        .out = tensor_of(forward, launch->output),
    };
    return pass_launch(forward, VX_GPU_BATCH_NORM, &args, why);
}

static vx_status launch_layer_norm(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, index);
    const struct vx_layer_norm_device_args args = {
        .n = forward->places->n,
        .c = channels_of(forward, launch->output),
        .cp = padded_of(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .eps = (f32)launch->node->layer->eps,
        .in = tensor_of(forward, launch->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = tensor_of(forward, launch->output),
    };
    return pass_launch(forward, VX_GPU_LAYER_NORM, &args, why);
}

static vx_status launch_activation(const struct vx_gpu_forward *forward, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_activation_device_args args = {
        .n = forward->places->n,
        .cp = padded_of(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .in = tensor_of(forward, launch->inputs[0]),
        .out = tensor_of(forward, launch->output),
    };
    return pass_launch(forward, VX_GPU_ACTIVATION, &args, why);
}

static vx_status launch_add(const struct vx_gpu_forward *forward, i32 index,
                            struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    const struct vx_add_device_args args = {
        .n = forward->places->n,
        .cp = padded_of(forward, launch->output),
        .activation = (i32)launch->node->activation,
        .a = tensor_of(forward, launch->inputs[0]),
        .b = tensor_of(forward, launch->inputs[1]),
        .out = tensor_of(forward, launch->output),
    };
    return pass_launch(forward, VX_GPU_ADD, &args, why);
}

static vx_status launch_concat(const struct vx_gpu_forward *forward, i32 index,
                               struct vx_why *why)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[index];
    struct vx_concat_device_args args = {
        .n = forward->places->n,
        .inputs_count = launch->node->inputs_count,
        .cp = padded_of(forward, launch->output),
        .out = tensor_of(forward, launch->output),
    };
    for (i32 i = 0; i < args.inputs_count; i++) {
        args.inputs[i].data = tensor_of(forward, launch->inputs[i]);
        args.inputs[i].c = channels_of(forward, launch->inputs[i]);
        args.inputs[i].cp = padded_of(forward, launch->inputs[i]);
    }
    return pass_launch(forward, VX_GPU_CONCAT, &args, why);
}

static vx_status launch_one(const struct vx_gpu_forward *forward, i32 index,
                            struct vx_why *why)
{
    switch (forward->choices->plan->launches[index].op) {
    case VX_OP_SUBM_CONV:
    case VX_OP_LINEAR: return launch_conv(forward, index, why);
    case VX_OP_BATCH_NORM: return launch_batch_norm(forward, index, why);
    case VX_OP_LAYER_NORM: return launch_layer_norm(forward, index, why);
    case VX_OP_RELU:
    case VX_OP_SILU:
    case VX_OP_GELU:
    case VX_OP_SIGMOID: return launch_activation(forward, index, why);
    case VX_OP_ADD: return launch_add(forward, index, why);
    case VX_OP_CONCAT: return launch_concat(forward, index, why);
    default: VX_FAIL(INTERNAL, "a layer has no kernel"); /* vx_model_begin refuses them */
    }
}

vx_status vx_gpu_forward_layers(const struct vx_gpu_forward *forward, struct vx_why *why)
{
    for (i32 i = 0; i < forward->choices->plan->launches_count; i++) {
        vx_panic_note("launch", (u64)i);
        VX_TRY(launch_one(forward, i, why));
    }
    return VX_OK;
}

static bool output_wanted(const struct vx_gpu_forward *forward, i32 output)
{
    for (i32 i = 0; i < forward->items_count; i++)
        if (forward->items[i]->outputs[output]) return true;
    return false;
}

/* Converts an output from the rows of the round to the rows of the requests, for all
 * items, then copies it to those that want it. */
static vx_status output_run(const struct vx_gpu_forward *forward, i32 output,
                            struct vx_why *why)
{
    const struct vx_plan *plan = forward->choices->plan;
    enum vx_dtype dtype = plan->graph->network->outputs[output].dtype;
    i32 tensor = plan->outputs[output], c = channels_of(forward, tensor);
    u8 *staged = tensor_of(forward, plan->staged_outputs[output]);
    const struct vx_rows_args args = {
        .n = forward->places->n,
        .c = c,
        .cp = padded_of(forward, tensor),
        .number = number_of(dtype),
        .rows = forward->rows,
        .in = tensor_of(forward, tensor),
        .out = staged,
    };
    VX_TRY(pass_launch(forward, VX_GPU_ROWS_OUT, &args, why));
    for (i32 i = 0; i < forward->items_count; i++) {
        const struct vx_item *item = forward->items[i];
        size_t bytes = (size_t)item->voxels * (size_t)c * vx_dtype_bytes(dtype);
        if (item->outputs[output])
            VX_TRY(vx_gpu_item_out(
                &forward->queue, item->on_device & VX_ITEM_OUTPUT(output),
                &(struct vx_gpu_copy){item->outputs[output], staged, bytes}, why));
        staged += bytes;
    }
    return VX_OK;
}

/* One output after the other, because they may be staged in the same memory. */
vx_status vx_gpu_forward_outputs(const struct vx_gpu_forward *forward, struct vx_why *why)
{
    const struct vx_network *network = forward->choices->plan->graph->network;
    for (i32 i = 0; i < network->outputs_count; i++)
        if (output_wanted(forward, i)) VX_TRY(output_run(forward, i, why));
    return VX_OK;
}
