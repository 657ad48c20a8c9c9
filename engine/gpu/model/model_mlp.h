/* model_mlp - layers that one kernel computes together: 33_mlp.
 *
 * A run is a layer norm, or none, a linear layer with its activation and a linear layer
 * with its residual, one behind the other, where nothing else reads what lies in between.
 * Which launches begin a run is found once, when a model is loaded.  Whether a round takes
 * the kernel depends on its rows, as the choice of any tile does: the bits are the same.
 *
 *   vx_gpu_mlp_find(choices, caps);
 *   i32 count = vx_gpu_mlp_count(forward, launch);      1: as it is
 *
 * Owner    -
 * Thread   find, wanted: any; count, launch: device.
 * Limits   those of kernels/33_mlp.h.
 * Fails    launch: as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_MLP_H
#define VX_ENGINE_GPU_MODEL_MLP_H

#include "engine/gpu/model/model_launch.h"

/* Notes for each launch how many launches the run has that begins there. */
void vx_gpu_mlp_find(struct vx_gpu_choices *choices, const struct vx_caps *caps);
/* How many launches the next kernel stands for. */
i32 vx_gpu_mlp_count(const struct vx_gpu_forward *forward, i32 launch);
/* The kernel of the run that begins at a launch; false: none does. */
bool vx_gpu_mlp_wanted(const struct vx_gpu_choices *choices, i32 launch,
                       struct vx_jit_wanted *kernel);
VX_MUST_USE vx_status vx_gpu_mlp_launch(const struct vx_gpu_forward *forward, i32 launch,
                                        struct vx_why *why);

#endif
