/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_mlp.h"

#include "engine/base/process/check.h"
#include "engine/gpu/model/model_parts.h"
#include "kernels/33_mlp.h"

/* From so many rows on a run is one kernel: with fewer, blocks of 128 rows leave most
 * processors without work, while the layers by themselves are divided by columns, too.
 * Measured (H200, four runs of 256 to 1024 to 256 channels), us as one kernel and by
 * themselves: 178 and 164 at 4,000 rows, 180 and 190 at 8,000, 188 and 339 at 16,000. */
#define ROWS_MIN 8000

/* True if `reader` is the only one that reads what a launch writes, as its first input. */
static bool read_by(const struct vx_plan *plan, i32 launch, i32 reader)
{
    const i32 tensor = plan->launches[launch].output;
    const struct vx_network *network = plan->graph->network;
    for (i32 o = 0; o < network->outputs_count; o++)
        if (plan->outputs[o] == tensor) return false;
    if (vx_plan_is_logits(plan, tensor)) return false;
    for (i32 i = 0; i < plan->launches_count; i++)
        for (i32 k = 0; k < plan->launches[i].node->inputs_count; k++)
            if (plan->launches[i].inputs[k] == tensor && (i != reader || k)) return false;
    return plan->launches[reader].inputs[0] == tensor;
}

/* A convolution of one offset is launched as a linear layer too, but may be in FP8. */
static bool is_linear(const struct vx_plan *plan, i32 launch)
{
    return launch < plan->launches_count && plan->launches[launch].op == VX_OP_LINEAR &&
           !(plan->launches[launch].node->layer->fp8_scale > 0);
}

static const struct vx_tile *tile_of(const struct vx_plan *plan, i32 up)
{
    const struct vx_layer *first = plan->launches[up].node->layer;
    const struct vx_layer *second = plan->launches[up + 1].node->layer;
    if (first->channels % VX_MLP_HIDDEN) return NULL;
    return vx_mlp_tile(vx_channels_padded(first->channels_in), first->channels,
                       vx_channels_padded(second->channels));
}

/* The launches of the run that begins here, 1: it is none.  All are on one set. */
static i32 run_count(const struct vx_gpu_choices *choices, i32 launch,
                     const struct vx_caps *caps)
{
    const struct vx_plan *plan = choices->plan;
    const bool norm = plan->launches[launch].op == VX_OP_LAYER_NORM;
    const i32 up = launch + norm;
    if (norm && plan->launches[launch].node->activation) return 1;
    if (!is_linear(plan, up) || !is_linear(plan, up + 1)) return 1;
    if (norm && !read_by(plan, launch, up)) return 1;
    if (plan->launches[up].node->residual || !read_by(plan, up, up + 1)) return 1;
    if (plan->launches[up + 1].node->live) return 1; /* some channels of some rows */
    if (plan->launches[launch].node->stage != plan->launches[up + 1].node->stage)
        return 1;
    const struct vx_tile *tile = tile_of(plan, up);
    const struct vx_kernel_spec *spec = vx_kernel_find("mlp");
    if (!tile || !spec->fits(tile, choices->type, caps)) return 1;
    return norm + 2;
}

void vx_gpu_mlp_find(struct vx_gpu_choices *choices, const struct vx_caps *caps)
{
    for (i32 i = 0; i < choices->plan->launches_count; i++) choices->runs[i] = 1;
    if (!choices->streams) return; /* its weights are tiled */
    for (i32 i = 0; i < choices->plan->launches_count; i++)
        choices->runs[i] = (u8)run_count(choices, i, caps);
}

/* The result may lie where the first of the launches has read: they would run one after the
 * other.  As one kernel they may do so only if each row lies where the row was. */
static bool in_place(const struct vx_gpu_forward *forward, i32 launch, i32 count)
{
    const struct vx_plan *plan = forward->choices->plan;
    const i32 in = plan->launches[launch].inputs[0];
    const i32 out = plan->launches[launch + count - 1].output;
    const size_t rows = (size_t)forward->places->rows[plan->launches[launch].set];
    const size_t element = (size_t)plan->options.element_bytes;
    const u8 *from = vx_gpu_tensor(forward, in), *to = vx_gpu_tensor(forward, out);
    const size_t from_row = (size_t)vx_gpu_stride(forward, in) * element;
    const size_t to_row = (size_t)vx_gpu_stride(forward, out) * element;
    if (from == to && from_row == to_row) return true;
    return from + rows * from_row <= to || to + rows * to_row <= from;
}

/* What the last of the launches adds and writes; what it reads is never in memory. */
static bool counts(const struct vx_gpu_forward *forward, i32 last)
{
    const struct vx_launch *launch = &forward->choices->plan->launches[last];
    const i64 rows = forward->places->rows[launch->set];
    const i32 bytes = forward->choices->plan->options.element_bytes;
    const i32 out = vx_gpu_stride(forward, launch->output);
    const i32 residual =
        launch->node->residual ? vx_gpu_stride(forward, launch->inputs[1]) : out;
    return vx_conv_stream_counts(rows, out, bytes) &&
           vx_conv_stream_counts(rows, residual, bytes);
}

i32 vx_gpu_mlp_count(const struct vx_gpu_forward *forward, i32 launch)
{
    const i32 count = forward->choices->runs[launch];
    const i32 set = forward->choices->plan->launches[launch].set;
    if (count == 1 || forward->places->rows[set] < ROWS_MIN) return 1;
    return in_place(forward, launch, count) && counts(forward, launch + count - 1) ? count
                                                                                   : 1;
}

bool vx_gpu_mlp_wanted(const struct vx_gpu_choices *choices, i32 launch,
                       struct vx_jit_wanted *kernel)
{
    const i32 count = choices->runs[launch];
    if (count == 1) return false;
    *kernel = (struct vx_jit_wanted){
        vx_kernel_find("mlp"), tile_of(choices->plan, launch + count - 2), choices->type};
    return true;
}

static void args_of(const struct vx_gpu_forward *forward, i32 launch, i64 rows,
                    struct vx_conv_device_args *args)
{
    struct vx_conv_problem problem;
    struct vx_conv_operands operands;
    vx_gpu_problem_make(forward->choices, launch, rows, &problem);
    vx_gpu_conv_operands(forward, launch, &operands);
    vx_conv_args_make(&forward->queue, &problem, &operands, args);
}

vx_status vx_gpu_mlp_launch(const struct vx_gpu_forward *forward, i32 launch,
                            struct vx_why *why)
{
    const struct vx_gpu_choices *choices = forward->choices;
    const i64 rows = forward->places->rows[choices->plan->launches[launch].set];
    const i32 up = launch + choices->runs[launch] - 2;
    struct vx_jit_wanted kernel;
    struct vx_mlp_args args = {0};
    bool wanted = vx_gpu_mlp_wanted(choices, launch, &kernel);
    VX_ASSERT(wanted);
    args_of(forward, up, rows, &args.up);
    args_of(forward, up + 1, rows, &args.down);
    /* Rows without a norm pass the same way. */
    args.norm.n = rows;
    args.norm.cp = args.up.ci;
    args.norm.in = args.up.in;
    args.norm.in_stride = args.up.in_stride;
    if (up > launch) vx_gpu_layer_norm_args(forward, launch, &args.norm);
    return vx_kernel_launch(forward->queue.set, forward->queue.stream, &kernel, &args,
                            why);
}
