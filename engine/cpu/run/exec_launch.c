/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/keys.h"
#include "engine/cpu/run/exec_job.h"

#include <string.h>

static const f32 *job_input(const struct vx_job *job, const struct vx_launch *launch,
                            i32 index)
{
    i32 tensor = launch->inputs[index];
    return tensor ? job->tensors[tensor] : job->feats;
}

/* Elements from a row of an input to the next. */
static i32 job_stride(const struct vx_job *job, const struct vx_launch *launch, i32 index)
{
    return vx_plan_stride(job->plan, launch->inputs[index]);
}

/* And of the result. */
static i32 job_stride_out(const struct vx_job *job, const struct vx_launch *launch)
{
    return vx_plan_stride(job->plan, launch->output);
}

/* The rows that a product multiplies: its input, or those rounded to e4m3. */
struct operand {
    const f32 *rows;
    i32 stride;
};

static struct operand job_operand(const struct vx_job *job,
                                  const struct vx_launch *launch)
{
    const struct operand in = {job_input(job, launch, 0), job_stride(job, launch, 0)};
    const struct vx_layer *layer = launch->node->layer;
    if (!launch->rounded) return in;
    const struct vx_e4m3_args args = {
        .n = job->rows[job->plan->tensor_sets[launch->rounded]],
        .c = layer->channels_in,
        .scale = layer->fp8_scale,
        .in = in.rows,
        .out = job->tensors[launch->rounded],
        .in_stride = in.stride,
    };
    vx_cpu_e4m3(job->exec->cpu, &args);
    return (struct operand){args.out, args.c};
}

static void launch_conv(const struct vx_job *job, const struct vx_launch *launch,
                        const struct vx_node_weights *weights)
{
    const struct vx_layer *layer = launch->node->layer;
    const struct vx_map *map = job->maps[launch->map];
    const struct operand in = job_operand(job, launch);
    VX_ASSERT(map->v == layer->v);
    VX_ASSERT(map->n == job->rows[launch->set]);
    VX_ASSERT(!launch->node->residual);
    const struct vx_conv_args args = {
        .n = map->n,
        .v = map->v,
        .ci = layer->channels_in,
        .co = layer->channels,
        .groups = layer->groups,
        .nbr = map->nbr,
        .in = in.rows,
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
        .in_stride = in.stride,
        .out_stride = job_stride_out(job, launch),
    };
    vx_cpu_conv_rows(job->exec->cpu, &args, vx_job_rows(job, launch));
}

static void launch_linear(const struct vx_job *job, const struct vx_launch *launch,
                          const struct vx_node_weights *weights)
{
    const struct operand in = job_operand(job, launch);
    const struct vx_linear_args args = {
        .n = vx_job_rows(job, launch),
        .ci = launch->node->layer->channels_in,
        .co = launch->node->layer->channels,
        .in = in.rows,
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
        .in_stride = in.stride,
        .out_stride = job_stride_out(job, launch),
    };
    vx_cpu_linear(job->exec->cpu, &args);
}

static void launch_batch_norm(const struct vx_job *job, const struct vx_launch *launch,
                              const struct vx_node_weights *weights)
{
    const struct vx_batch_norm_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .in = job_input(job, launch, 0),
        .scale = weights->weight,
        .shift = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
        .in_stride = job_stride(job, launch, 0),
        .out_stride = job_stride_out(job, launch),
    };
    vx_cpu_batch_norm(job->exec->cpu, &args);
}

static void launch_layer_norm(const struct vx_job *job, const struct vx_launch *launch,
                              const struct vx_node_weights *weights)
{
    const struct vx_layer_norm_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .eps = (f32)launch->node->layer->eps,
        .in = job_input(job, launch, 0),
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
        .in_stride = job_stride(job, launch, 0),
        .out_stride = job_stride_out(job, launch),
    };
    vx_cpu_layer_norm(job->exec->cpu, &args);
}

static void launch_activation(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_activation_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .activation = launch->node->activation,
        .in = job_input(job, launch, 0),
        .out = job->tensors[launch->output],
    };
    vx_cpu_activation(job->exec->cpu, &args);
}

static void launch_pair(const struct vx_job *job, const struct vx_launch *launch,
                        void (*pair)(struct vx_cpu *cpu, const struct vx_pair_args *args))
{
    const struct vx_pair_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .a = job_input(job, launch, 0),
        .b = job_input(job, launch, 1),
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
        .a_stride = job_stride(job, launch, 0),
        .b_stride = job_stride(job, launch, 1),
        .out_stride = job_stride_out(job, launch),
    };
    pair(job->exec->cpu, &args);
}

static void launch_concat(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_node *node = launch->node;
    struct vx_concat_args args = {
        .n = job->rows[launch->set],
        .inputs_count = node->inputs_count,
        .out = job->tensors[launch->output],
    };
    if (!vx_plan_copies(job->plan, launch)) return;
    for (i32 i = 0; i < node->inputs_count; i++) {
        if (!vx_plan_in_place(job->plan, launch, i))
            args.inputs[i].data = job_input(job, launch, i);
        args.inputs[i].c = vx_plan_channels(job->plan, launch->inputs[i]);
        args.inputs[i].stride = job_stride(job, launch, i);
    }
    vx_cpu_concat(job->exec->cpu, &args);
}

/* Each row is one or several rows of the input, put side by side. */
static void launch_gather(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_map *map = job->maps[launch->map];
    const struct vx_layer *layer = launch->node->layer;
    struct vx_row_gather_args args = {
        .n = map->n,
        .v = map->v,
        .c = layer->channels / map->v,
        .nbr = map->nbr,
        .in = job_input(job, launch, 0),
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
        .in_stride =
            launch->op == VX_OP_CHANNEL_TO_SPACE ? 0 : job_stride(job, launch, 0),
        .out_stride = job_stride_out(job, launch),
    };
    VX_ASSERT(map->n == job->rows[launch->set]);
    memcpy(args.kernel, map->key.kernel, sizeof args.kernel);
    vx_cpu_row_gather(job->exec->cpu, &args);
}

/* Without points a voxel is 0 before the activation, too: it is applied to all. */
static void launch_voxelize(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_map *voxels = job->maps[launch->map],
                        *order = job->maps[launch->order];
    f32 *out = job->tensors[launch->output];
    const struct vx_voxelize_args args = {
        .n = voxels->n,
        .m = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .order = order->nbr,
        .voxels = voxels->nbr,
        .in = job_input(job, launch, 0),
        .out = out,
    };
    VX_ASSERT(order->n == voxels->n);
    vx_cpu_voxelize(job->exec->cpu, &args);
    if (launch->node->activation == VX_ACTIVATION_NONE) return;
    const struct vx_activation_args activation = {
        .n = args.m,
        .c = args.c,
        .activation = launch->node->activation,
        .in = out,
        .out = out,
    };
    vx_cpu_activation(job->exec->cpu, &activation);
}

static void launch_devoxelize(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_map *map = job->maps[launch->map];
    const struct vx_keys *points =
        vx_geometry_keys(job->geometry, job->sets[launch->set]);
    struct vx_devoxelize_args args = {
        .n = map->n,
        .c = launch->node->layer->channels,
        .keys = points->keys,
        .rows = points->rows,
        .voxels = map->nbr,
        .in = job_input(job, launch, 0),
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    VX_ASSERT(map->n == points->n);
    VX_ASSERT(map->v == VX_CORNERS);
    memcpy(args.stride, map->key.stride, sizeof args.stride);
    vx_cpu_devoxelize(job->exec->cpu, &args);
}

/* The maximum of spconv starts at 0: nothing below it comes out. */
static enum vx_activation pool_activation(const struct vx_node *node,
                                          enum vx_pool_mode mode)
{
    bool zero = mode == VX_POOL_MAX && node->layer->rule == VX_SET_SPCONV;
    VX_ASSERT(!zero || node->activation == VX_ACTIVATION_NONE);
    return zero ? VX_ACTIVATION_RELU : node->activation;
}

static void launch_pool(const struct vx_job *job, const struct vx_launch *launch,
                        enum vx_pool_mode mode)
{
    const struct vx_map *map = job->maps[launch->map];
    const struct vx_pool_args args = {
        .n = map->n,
        .v = map->v,
        .c = launch->node->layer->channels,
        .mode = mode,
        .nbr = map->nbr,
        .in = job_input(job, launch, 0),
        .activation = pool_activation(launch->node, mode),
        .out = job->tensors[launch->output],
        .in_stride = job_stride(job, launch, 0),
        .out_stride = job_stride_out(job, launch),
    };
    VX_ASSERT(map->n == job->rows[launch->set]);
    vx_cpu_pool(job->exec->cpu, &args);
}

/* Row i of the result is that of the i-th sample: both sets ascend by samples. */
static void launch_global_pool(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_layer *layer = launch->node->layer;
    const i32 from = job->plan->tensor_sets[launch->inputs[0]];
    f32 *out = job->tensors[launch->output];
    struct vx_geometry_samples samples;
    vx_geometry_samples_get(job->geometry, job->sets[from], &samples);
    VX_ASSERT(samples.count == job->rows[launch->set]);
    const struct vx_global_pool_args args = {
        .samples = samples.count,
        .c = layer->channels,
        .mode = layer->mode,
        .starts = samples.starts,
        .rows = samples.rows,
        .in = job_input(job, launch, 0),
        .out = out,
    };
    vx_cpu_global_pool(job->exec->cpu, &args);
    if (launch->node->activation == VX_ACTIVATION_NONE) return;
    const struct vx_activation_args activation = {
        .n = samples.count,
        .c = layer->channels,
        .activation = launch->node->activation,
        .in = out,
        .out = out,
    };
    vx_cpu_activation(job->exec->cpu, &activation);
}

static void launch_group_norm(const struct vx_job *job, const struct vx_launch *launch,
                              const struct vx_node_weights *weights)
{
    const struct vx_layer *layer = launch->node->layer;
    struct vx_geometry_samples samples;
    vx_geometry_samples_get(job->geometry, job->sets[launch->set], &samples);
    const struct vx_group_norm_args args = {
        .samples = samples.count,
        .c = layer->channels,
        .groups = layer->groups,
        .eps = (f32)layer->eps,
        .starts = samples.starts,
        .rows = samples.rows,
        .in = job_input(job, launch, 0),
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_group_norm(job->exec->cpu, &args);
}

static void launch_curve(const struct vx_job *job, const struct vx_launch *launch,
                         enum vx_curve curve)
{
    const struct vx_curve_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .curve = curve,
        .slope = (f32)launch->node->layer->slope,
        .in = job_input(job, launch, 0),
        .out = job->tensors[launch->output],
    };
    vx_cpu_curve(job->exec->cpu, &args);
}

static void launch_softmax(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_softmax_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels,
        .in = job_input(job, launch, 0),
        .out = job->tensors[launch->output],
    };
    vx_cpu_softmax(job->exec->cpu, &args);
}

/* The tensor holds numbers of channels, of as many bytes. */
static void launch_argmax(const struct vx_job *job, const struct vx_launch *launch)
{
    _Static_assert(sizeof(i32) == sizeof(f32), "the plan counts f32");
    const struct vx_argmax_args args = {
        .n = job->rows[launch->set],
        .c = launch->node->layer->channels_in,
        .in = job_input(job, launch, 0),
        .out = (i32 *)(void *)job->tensors[launch->output],
    };
    vx_cpu_argmax(job->exec->cpu, &args);
}

static void launch_affine(const struct vx_job *job, const struct vx_launch *launch)
{
    const struct vx_layer *layer = launch->node->layer;
    const struct vx_affine_args args = {
        .n = job->rows[launch->set],
        .c = layer->channels,
        .scale = (f32)layer->scale,
        .shift = (f32)layer->shift,
        .in = job_input(job, launch, 0),
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_affine(job->exec->cpu, &args);
}

void vx_job_launch(const struct vx_job *job, i32 index)
{
    const struct vx_launch *launch = &job->plan->launches[index];
    const struct vx_node_weights *weights = vx_weights_get(job->weights, index);
    switch (launch->op) {
    case VX_OP_SUBM_CONV:
    case VX_OP_SPARSE_CONV:
    case VX_OP_INVERSE_CONV:
    case VX_OP_TRANSPOSED_CONV: launch_conv(job, launch, weights); return;
    case VX_OP_LINEAR: launch_linear(job, launch, weights); return;
    case VX_OP_BATCH_NORM: launch_batch_norm(job, launch, weights); return;
    case VX_OP_LAYER_NORM: launch_layer_norm(job, launch, weights); return;
    case VX_OP_GROUP_NORM:
    case VX_OP_INSTANCE_NORM: launch_group_norm(job, launch, weights); return;
    case VX_OP_RELU:
    case VX_OP_SILU:
    case VX_OP_GELU:
    case VX_OP_SIGMOID: launch_activation(job, launch); return;
    case VX_OP_LEAKY_RELU: launch_curve(job, launch, VX_CURVE_LEAKY_RELU); return;
    case VX_OP_SOFTPLUS: launch_curve(job, launch, VX_CURVE_SOFTPLUS); return;
    case VX_OP_TANH: launch_curve(job, launch, VX_CURVE_TANH); return;
    case VX_OP_SOFTMAX: launch_softmax(job, launch); return;
    case VX_OP_ARGMAX: launch_argmax(job, launch); return;
    case VX_OP_AFFINE: launch_affine(job, launch); return;
    case VX_OP_MUL: launch_pair(job, launch, vx_cpu_mul); return;
    case VX_OP_ADD: launch_pair(job, launch, vx_cpu_add); return;
    case VX_OP_CONCAT: launch_concat(job, launch); return;
    case VX_OP_MAX_POOL: launch_pool(job, launch, VX_POOL_MAX); return;
    case VX_OP_SUM_POOL: launch_pool(job, launch, VX_POOL_SUM); return;
    case VX_OP_AVG_POOL:
    case VX_OP_DOWNSAMPLE: launch_pool(job, launch, VX_POOL_AVG); return;
    case VX_OP_GLOBAL_POOL: launch_global_pool(job, launch); return;
    case VX_OP_PRUNE:
    case VX_OP_UNPOOL:
    case VX_OP_UPSAMPLE:
    case VX_OP_CHANNEL_TO_SPACE:
    case VX_OP_SPACE_TO_CHANNEL: launch_gather(job, launch); return;
    case VX_OP_VOXELIZE: launch_voxelize(job, launch); return;
    case VX_OP_DEVOXELIZE:
        if (launch->node->layer->trilinear)
            launch_devoxelize(job, launch);
        else
            launch_gather(job, launch);
        return;
    case VX_OP_TO_DENSE: break; /* is no node */
    case VX_OPS_COUNT: break;
    }
    VX_ASSERT(false);
}
