/* model_norm - norms over the voxels of a sample, and pools of them.
 *
 * Sums run over the rows of a sample in canonical order (ranks.h), so that the bits of a
 * sample depend on nothing else.
 *
 *   bytes = vx_gpu_norm_bytes(choices, launch, places);       (of the workspace)
 *   VX_TRY(vx_gpu_norm_samples(&forward, stage, why));        (once in each stage)
 *   VX_TRY(vx_gpu_norm_launch(&forward, launch, why));
 *
 * Owner    the forward is borrowed.
 * Thread   device.
 * Limits   as model_launch.h.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_NORM_H
#define VX_ENGINE_GPU_MODEL_NORM_H

#include "engine/gpu/model/model_launch.h"

size_t vx_gpu_norm_bytes(const struct vx_gpu_choices *choices, i32 launch,
                         const struct vx_gpu_places *places);
/* Finds where the samples begin on each set of the stage that has sums over them. */
VX_MUST_USE vx_status vx_gpu_norm_samples(const struct vx_gpu_forward *forward, i32 stage,
                                          struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_norm_launch(const struct vx_gpu_forward *forward, i32 launch,
                                         struct vx_why *why);
/* The same for a global pool. */
size_t vx_gpu_sample_pool_bytes(const struct vx_gpu_choices *choices, i32 launch,
                                const struct vx_gpu_places *places);
VX_MUST_USE vx_status vx_gpu_sample_pool_launch(const struct vx_gpu_forward *forward,
                                                i32 launch, struct vx_why *why);

#endif
