/* model_parts - what the launches of a round share: where tensors lie and how long they are.
 *
 *   const struct vx_add_device_args args = {.a = vx_gpu_tensor(forward, tensor), ...};
 *   VX_TRY(vx_gpu_pass_launch(forward, VX_GPU_ADD, &args, why));
 *
 * Owner    the forward is borrowed.
 * Thread   device.
 * Limits   as model_launch.h.
 * Fails    pass_launch: as vx_kernel_launch; the rest never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_PARTS_H
#define VX_ENGINE_GPU_MODEL_PARTS_H

#include "engine/base/process/check.h"
#include "engine/gpu/model/model_launch.h"
#include "kernels/12_norm.h"

/* vx_dtype and vx_number have the same values (cpu.h asserts it). */
static inline i32 vx_gpu_number_of(enum vx_dtype dtype)
{
    bool known = dtype == VX_DTYPE_F32 || dtype == VX_DTYPE_F16 || dtype == VX_DTYPE_BF16;
    VX_ASSERT(known);
    return (i32)dtype;
}

static inline void *vx_gpu_tensor(const struct vx_gpu_forward *forward, i32 tensor)
{
    const struct vx_gpu_places *places = forward->places;
    return forward->block + places->tensors +
           vx_plan_tensor_offset(forward->choices->plan, tensor, places->laid);
}

static inline i32 vx_gpu_channels(const struct vx_gpu_forward *forward, i32 tensor)
{
    return vx_plan_channels(forward->choices->plan, tensor);
}

static inline i32 vx_gpu_padded(const struct vx_gpu_forward *forward, i32 tensor)
{
    return vx_channels_padded(vx_gpu_channels(forward, tensor));
}

/* The number of an ordered set. */
static inline i32 vx_gpu_ordered_of(const struct vx_plan *plan, i32 set)
{
    for (i32 o = 0; o < plan->ordered_count; o++)
        if (plan->ordered[o].set == set) return o;
    VX_ASSERT(false);
    return -1;
}

/* Elements from a row of a tensor to the next. */
static inline i32 vx_gpu_stride(const struct vx_gpu_forward *forward, i32 tensor)
{
    return vx_plan_stride(forward->choices->plan, tensor);
}

static inline vx_status vx_gpu_pass_launch(const struct vx_gpu_forward *forward,
                                           enum vx_gpu_pass pass, const void *args,
                                           struct vx_why *why)
{
    struct vx_jit_wanted kernel = vx_gpu_pass_wanted(pass, forward->choices->type);
    return vx_kernel_launch(forward->queue.set, forward->queue.stream, &kernel, args,
                            why);
}

/* What the launch of a convolution or linear layer, and of a layer norm, reads and writes. */
void vx_gpu_conv_operands(const struct vx_gpu_forward *forward, i32 index,
                          struct vx_conv_operands *operands);
void vx_gpu_layer_norm_args(const struct vx_gpu_forward *forward, i32 index,
                            struct vx_layer_norm_device_args *args);

#endif
