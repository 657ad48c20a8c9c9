/* model_narrow - convolutions of few channels in, as a network's first layer: 36_conv_narrow.
 *
 * Which launches are such is a matter of the layer, the type and the device, never of the rows of a
 * round: the order of sums is the kernel's own.  They have no choice of algorithm and tile
 * (model_choice.h), read their map as it is and need no sorted rows.
 *
 * Owner    static tiles.
 * Thread   tile: any; launch: device.
 * Limits   those of kernels/36_conv_narrow.h, and VX_NARROW_CHANNELS.
 * Fails    launch: as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_NARROW_H
#define VX_ENGINE_GPU_MODEL_NARROW_H

#include "engine/gpu/model/model_launch.h"

/* With more channels in the tiles of 06_conv_masked are as fast. */
#define VX_NARROW_CHANNELS 8

/* Its tile; NULL: another kernel computes the launch. */
const struct vx_tile *vx_gpu_narrow_tile(const struct vx_launch *launch,
                                         enum vx_number type, const struct vx_caps *caps);
struct vx_jit_wanted vx_gpu_narrow_wanted(const struct vx_gpu_choices *choices,
                                          i32 launch);
VX_MUST_USE vx_status vx_gpu_narrow_launch(const struct vx_gpu_forward *forward,
                                           i32 launch, struct vx_why *why);

#endif
