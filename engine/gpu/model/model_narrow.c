/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_narrow.h"

#include "engine/base/process/check.h"
#include "engine/gpu/model/model_parts.h"
#include "kernels/36_conv_narrow.h"

/* Blocks of a processor: as many as its registers are shared by. */
#define PROCESSOR_BLOCKS 2

const struct vx_tile *vx_gpu_narrow_tile(const struct vx_launch *launch,
                                         enum vx_number type, const struct vx_caps *caps)
{
    const struct vx_node *node = launch->node;
    const struct vx_layer *layer = node->layer;
    if (!vx_op_is_conv(launch->op) || launch->map < 0) return NULL;
    if (layer->groups > 1 || node->gather || node->live || vx_node_panels(node) > 1)
        return NULL;
    /* In FP8 what is multiplied has another type. */
    if (layer->fp8_scale > 0 || type == VX_NUMBER_F32) return NULL;
    const i32 ci = vx_node_channels_in(node);
    return ci > VX_NARROW_CHANNELS ? NULL : vx_conv_narrow_tile(ci, layer->v, type, caps);
}

struct vx_jit_wanted vx_gpu_narrow_wanted(const struct vx_gpu_choices *choices,
                                          i32 launch)
{
    VX_ASSERT(choices->narrow[launch]);
    return (struct vx_jit_wanted){vx_kernel_find("conv_narrow"), choices->narrow[launch],
                                  choices->type};
}

static i32 blocks_of(const struct vx_gpu_forward *forward, i32 cp)
{
    const i32 columns = (cp + VX_NARROW_COLUMNS - 1) / VX_NARROW_COLUMNS;
    const i32 blocks = forward->choices->caps->processors * PROCESSOR_BLOCKS / columns;
    return blocks > 0 ? blocks : 1;
}

vx_status vx_gpu_narrow_launch(const struct vx_gpu_forward *forward, i32 launch,
                               struct vx_why *why)
{
    const struct vx_gpu_choices *choices = forward->choices;
    const struct vx_launch *at = &choices->plan->launches[launch];
    const struct vx_gpu_weight weight = vx_gpu_weight_get(forward->weights, launch);
    const struct vx_gpu_map *map = &forward->maps[at->map];
    const struct vx_jit_wanted kernel = vx_gpu_narrow_wanted(choices, launch);
    struct vx_conv_narrow_args args = {
        .n = forward->places->rows[at->set],
        .v = map->v,
        .nbr_stride = map->nbr_stride,
        .ci = vx_node_channels_in(at->node),
        .co = at->node->layer->channels,
        .cp = vx_gpu_padded(forward, at->output),
        .in_stride = vx_gpu_stride(forward, at->inputs[0]),
        .out_stride = vx_gpu_stride(forward, at->output),
        .activation = (i32)at->node->activation,
        .nbr = map->nbr,
        .in = vx_gpu_tensor(forward, at->inputs[0]),
        .weight = weight.weight,
        .bias = weight.bias,
        .out = vx_gpu_tensor(forward, at->output),
    };
    args.weight_rows = vx_channels_padded(args.ci);
    args.blocks = blocks_of(forward, args.cp);
    if (at->node->residual) {
        args.residual = vx_gpu_tensor(forward, at->inputs[1]);
        args.residual_stride = vx_gpu_stride(forward, at->inputs[1]);
    }
    return vx_kernel_launch(forward->queue.set, forward->queue.stream, &kernel, &args,
                            why);
}
