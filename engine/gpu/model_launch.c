/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model_launch.h"

#include "engine/base/check.h"
#include "kernels/12_norm.h"
#include "kernels/14_rows.h"

/* Their numbers are the same (cpu.h asserts it). */
static i32 number_of(enum vx_dtype dtype)
{
    bool known = dtype == VX_DTYPE_F32 || dtype == VX_DTYPE_F16 || dtype == VX_DTYPE_BF16;
    VX_ASSERT(known);
    return (i32)dtype;
}

void *vx_gpu_request_tensor(const struct vx_gpu_request *request, i32 tensor)
{
    const struct vx_gpu_places *places = request->places;
    return request->block + places->shared +
           vx_plan_tensor_offset(request->choices->plan, tensor, places->n);
}

static i32 channels_of(const struct vx_gpu_request *request, i32 tensor)
{
    return vx_plan_channels(request->choices->plan, tensor);
}

static i32 padded_of(const struct vx_gpu_request *request, i32 tensor)
{
    return vx_channels_padded(channels_of(request, tensor));
}

static vx_status pass_launch(const struct vx_gpu_request *request, enum vx_gpu_pass pass,
                             const void *args, struct vx_why *why)
{
    struct vx_jit_wanted kernel = vx_gpu_pass_wanted(pass, request->choices->type);
    return vx_kernel_launch(request->queue.set, request->queue.stream, &kernel, args,
                            why);
}

/* The coordinates, and after them the scratch of each map in turn, lie where the first
 * tensor will: the stream has passed them by then. */
vx_status vx_gpu_request_geometry(struct vx_gpu_request *request,
                                  const struct vx_item *item, struct vx_why *why)
{
    const struct vx_gpu_places *places = request->places;
    void *shared = request->block + places->shared;
    size_t bytes = (size_t)item->voxels * (size_t)item->coords_columns * sizeof(i32);
    VX_ASSERT(item->voxels == places->n);
    VX_TRY(vx_gpu_copy_in(request->gpu, request->queue.stream,
                          &(struct vx_gpu_copy){shared, item->coords, bytes}, why));
    VX_TRY(vx_gpu_index_build(&request->queue,
                              &(struct vx_gpu_coords){shared, item->coords_columns,
                                                      places->n,
                                                      request->block + places->index},
                              why, &request->index));
    for (i32 i = 0; i < places->maps_count; i++) {
        const struct vx_gpu_map_place *place = &places->maps[i];
        VX_TRY(vx_gpu_map_build(&request->queue, &request->index,
                                &(struct vx_gpu_map_work){
                                    &place->want, request->block + place->offset, shared},
                                why, &request->maps[i]));
    }
    return VX_OK;
}

vx_status vx_gpu_request_feats(const struct vx_gpu_request *request,
                               const struct vx_item *item, struct vx_why *why)
{
    const struct vx_plan *plan = request->choices->plan;
    i32 c = channels_of(request, 0), cp = padded_of(request, 0);
    size_t rows = (size_t)item->voxels;
    void *tensor = vx_gpu_request_tensor(request, 0);
    if (!item->feats) {
        size_t bytes = rows * (size_t)cp * (size_t)plan->options.element_bytes;
        return vx_gpu_fill(request->gpu, request->queue.stream,
                           &(struct vx_gpu_words){tensor, 0, bytes}, why);
    }
    void *staged = vx_gpu_request_tensor(request, plan->staged_feats);
    VX_TRY(vx_gpu_copy_in(
        request->gpu, request->queue.stream,
        &(struct vx_gpu_copy){staged, item->feats,
                              rows * (size_t)c * vx_dtype_bytes(item->feats_dtype)},
        why));
    const struct vx_rows_args args = {
        .n = item->voxels,
        .c = c,
        .cp = cp,
        .number = number_of(item->feats_dtype),
        .rows = request->index.rows,
        .in = staged,
        .out = tensor,
    };
    return pass_launch(request, VX_GPU_ROWS_IN, &args, why);
}

static vx_status launch_conv(const struct vx_gpu_request *request, i32 index,
                             struct vx_why *why)
{
    const struct vx_launch *launch = &request->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(request->weights, index);
    i32 map = request->places->map_of[index];
    struct vx_conv_problem problem;
    vx_gpu_problem_make(request->choices, index, request->places->n, &problem);
    struct vx_conv_operands operands = {
        .map = map < 0 ? NULL : &request->maps[map],
        .in = vx_gpu_request_tensor(request, launch->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = vx_gpu_request_tensor(request, launch->output),
        .activation = launch->node->activation,
        .channels = launch->node->layer->channels,
        .workspace = request->block + request->places->workspace,
    };
    if (launch->node->residual)
        operands.residual = vx_gpu_request_tensor(request, launch->inputs[1]);
    return vx_conv_launch(&request->queue, &problem,
                          vx_gpu_choice_get(request->choices, index, problem.n),
                          &operands, why);
}

static vx_status launch_batch_norm(const struct vx_gpu_request *request, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &request->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(request->weights, index);
    const struct vx_batch_norm_device_args args = {
        .n = request->places->n,
        .cp = padded_of(request, launch->output),
        .activation = (i32)launch->node->activation,
        .in = vx_gpu_request_tensor(request, launch->inputs[0]),
        .scale = weight.weight,
        .shift = weight.bias,
        .out = vx_gpu_request_tensor(request, launch->output),
    };
    return pass_launch(request, VX_GPU_BATCH_NORM, &args, why);
}

static vx_status launch_layer_norm(const struct vx_gpu_request *request, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &request->choices->plan->launches[index];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(request->weights, index);
    const struct vx_layer_norm_device_args args = {
        .n = request->places->n,
        .c = channels_of(request, launch->output),
        .cp = padded_of(request, launch->output),
        .activation = (i32)launch->node->activation,
        .eps = (f32)launch->node->layer->eps,
        .in = vx_gpu_request_tensor(request, launch->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = vx_gpu_request_tensor(request, launch->output),
    };
    return pass_launch(request, VX_GPU_LAYER_NORM, &args, why);
}

static vx_status launch_activation(const struct vx_gpu_request *request, i32 index,
                                   struct vx_why *why)
{
    const struct vx_launch *launch = &request->choices->plan->launches[index];
    const struct vx_activation_device_args args = {
        .n = request->places->n,
        .cp = padded_of(request, launch->output),
        .activation = (i32)launch->node->activation,
        .in = vx_gpu_request_tensor(request, launch->inputs[0]),
        .out = vx_gpu_request_tensor(request, launch->output),
    };
    return pass_launch(request, VX_GPU_ACTIVATION, &args, why);
}

static vx_status launch_add(const struct vx_gpu_request *request, i32 index,
                            struct vx_why *why)
{
    const struct vx_launch *launch = &request->choices->plan->launches[index];
    const struct vx_add_device_args args = {
        .n = request->places->n,
        .cp = padded_of(request, launch->output),
        .activation = (i32)launch->node->activation,
        .a = vx_gpu_request_tensor(request, launch->inputs[0]),
        .b = vx_gpu_request_tensor(request, launch->inputs[1]),
        .out = vx_gpu_request_tensor(request, launch->output),
    };
    return pass_launch(request, VX_GPU_ADD, &args, why);
}

static vx_status launch_concat(const struct vx_gpu_request *request, i32 index,
                               struct vx_why *why)
{
    const struct vx_launch *launch = &request->choices->plan->launches[index];
    struct vx_concat_device_args args = {
        .n = request->places->n,
        .inputs_count = launch->node->inputs_count,
        .cp = padded_of(request, launch->output),
        .out = vx_gpu_request_tensor(request, launch->output),
    };
    for (i32 i = 0; i < args.inputs_count; i++) {
        args.inputs[i].data = vx_gpu_request_tensor(request, launch->inputs[i]);
        args.inputs[i].c = channels_of(request, launch->inputs[i]);
        args.inputs[i].cp = padded_of(request, launch->inputs[i]);
    }
    return pass_launch(request, VX_GPU_CONCAT, &args, why);
}

static vx_status launch_one(const struct vx_gpu_request *request, i32 index,
                            struct vx_why *why)
{
    switch (request->choices->plan->launches[index].op) {
    case VX_OP_SUBM_CONV:
    case VX_OP_LINEAR: return launch_conv(request, index, why);
    case VX_OP_BATCH_NORM: return launch_batch_norm(request, index, why);
    case VX_OP_LAYER_NORM: return launch_layer_norm(request, index, why);
    case VX_OP_RELU:
    case VX_OP_SILU:
    case VX_OP_GELU:
    case VX_OP_SIGMOID: return launch_activation(request, index, why);
    case VX_OP_ADD: return launch_add(request, index, why);
    case VX_OP_CONCAT: return launch_concat(request, index, why);
    case VX_OPS_COUNT: break;
    }
    VX_FAIL(INTERNAL, "a layer has no kernel");
}

vx_status vx_gpu_request_layers(const struct vx_gpu_request *request, struct vx_why *why)
{
    for (i32 i = 0; i < request->choices->plan->launches_count; i++) {
        vx_panic_note("launch", (u64)i);
        VX_TRY(launch_one(request, i, why));
    }
    return VX_OK;
}

/* One by one: the next output may be staged where this one was. */
vx_status vx_gpu_request_outputs(const struct vx_gpu_request *request,
                                 const struct vx_item *item, struct vx_why *why)
{
    const struct vx_plan *plan = request->choices->plan;
    const struct vx_network *network = plan->graph->network;
    for (i32 i = 0; i < network->outputs_count; i++) {
        if (!item->outputs[i]) continue;
        enum vx_dtype dtype = network->outputs[i].dtype;
        i32 tensor = plan->outputs[i], c = channels_of(request, tensor);
        const struct vx_rows_args args = {
            .n = item->voxels,
            .c = c,
            .cp = padded_of(request, tensor),
            .number = number_of(dtype),
            .rows = request->index.rows,
            .in = vx_gpu_request_tensor(request, tensor),
            .out = vx_gpu_request_tensor(request, plan->staged_outputs[i]),
        };
        VX_TRY(pass_launch(request, VX_GPU_ROWS_OUT, &args, why));
        size_t bytes = (size_t)item->voxels * (size_t)c * vx_dtype_bytes(dtype);
        VX_TRY(vx_gpu_copy_out(request->gpu, request->queue.stream,
                               &(struct vx_gpu_copy){item->outputs[i], args.out, bytes},
                               why));
    }
    return VX_OK;
}
