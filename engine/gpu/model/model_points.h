/* model_points - points to voxels and back.
 *
 * A mean over the points of a voxel runs over them in canonical order (ranks.h), so that its
 * bits depend on nothing else: the launch sorts that order by the rows of the voxels, which
 * the map says.  Trilinear weights follow from the keys of the same order.
 *
 *   bytes = vx_gpu_voxelize_bytes(choices, launch, places);       (of the workspace)
 *   VX_TRY(vx_gpu_voxelize_launch(&forward, launch, why));
 *   VX_TRY(vx_gpu_devoxelize_launch(&forward, launch, why));      (trilinear)
 *
 * Owner    the forward is borrowed.
 * Thread   device.
 * Limits   as model_launch.h.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_POINTS_H
#define VX_ENGINE_GPU_MODEL_POINTS_H

#include "engine/gpu/model/model_launch.h"

size_t vx_gpu_voxelize_bytes(const struct vx_gpu_choices *choices, i32 launch,
                             const struct vx_gpu_places *places);
VX_MUST_USE vx_status vx_gpu_voxelize_launch(const struct vx_gpu_forward *forward,
                                             i32 launch, struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_devoxelize_launch(const struct vx_gpu_forward *forward,
                                               i32 launch, struct vx_why *why);

#endif
