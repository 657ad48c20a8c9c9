/* model_live - a product before channel_to_space, for the children that will be there.
 *
 * The product has the channels of C children side by side; about half of the children of
 * predicted voxels are not there.  The channels of a child are a problem of their own, over
 * the same rows and the same map: C launches, one behind the other.  From so many rows on
 * that it pays, each takes only the rows that have its child, in the order in which they
 * are sorted anyway (34_live_order).  What is not computed stays as it was, and nothing
 * reads it.  A row's sums are the same with and without the lists, so are its bits.
 *
 * The logits are known before the product runs, so the host need not know how many rows a
 * list has: behind its end are places without a row, whose tiles have no offset.
 *
 * Workspace: that of one problem, then lists, masks, block masks, counts.
 *
 * Owner    -
 * Thread   bytes, kernels: any; launch: device.
 * Limits   those of kernels/34_live_order.h.
 * Fails    launch: as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_LIVE_H
#define VX_ENGINE_GPU_MODEL_LIVE_H

#include "engine/gpu/model/model_launch.h"

/* Workspace of any product, with its lists if it has some. */
size_t vx_gpu_conv_bytes(const struct vx_gpu_choices *choices, i32 launch,
                         const struct vx_conv_problem *problem,
                         const struct vx_conv_choice *choice);
/* The kernels of the lists. */
i32 vx_gpu_live_kernels(enum vx_number type, struct vx_jit_wanted *wanted, i32 room);
/* problem: of one child; operands: of the whole launch. */
VX_MUST_USE vx_status vx_gpu_live_launch(const struct vx_gpu_forward *forward, i32 index,
                                         const struct vx_conv_problem *problem,
                                         const struct vx_conv_operands *operands,
                                         struct vx_why *why);

#endif
