/* model_dense - outputs that are dense tensors: written on the device, and copied out.
 *
 * A few samples of an item are made at a time, as many as fit VX_GPU_DENSE_BYTES, but at
 * least one, so that the memory depends neither on the request nor on its batch.  An output
 * that lies on the device is written there, without a copy.
 *
 *   bytes = vx_gpu_dense_bytes(plan);                         (of the workspace)
 *   VX_TRY(vx_gpu_dense_output(&forward, output, &why));      (vx_gpu_forward_outputs)
 *
 * Owner    the forward is borrowed.
 * Thread   output: device; the rest any.
 * Limits   items have asked, so that their number of samples is known (round_dense.h).
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_DENSE_H
#define VX_ENGINE_GPU_MODEL_DENSE_H

#include "engine/gpu/model/model_launch.h"

/* Staged at a time, unless one sample is more: a launch then costs little beside the copy. */
#define VX_GPU_DENSE_BYTES (1 << 20)

/* Device memory for any dense output of the plan, in the workspace; 0: it has none. */
size_t vx_gpu_dense_bytes(const struct vx_plan *plan);
/* Writes the output to the items that want it, but for those that have failed. */
VX_MUST_USE vx_status vx_gpu_dense_output(const struct vx_gpu_forward *forward,
                                          i32 output, struct vx_why *why);
/* The kernels of dense outputs, those of round_dense.h too, for vx_kernel_set_ready. */
i32 vx_gpu_dense_kernels(enum vx_number type, struct vx_jit_wanted *wanted, i32 room);

#endif
