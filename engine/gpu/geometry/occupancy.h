/* occupancy - the voxels of a set by logits, of all requests of a round, on the device.
 *
 *   VX_TRY(vx_gpu_occupancy_build(&queue, &upload, &levels, set, &why));
 *
 * The set's index is then whole but for the numbers of its rows.  Its counts say how many
 * voxels there are, and which voxel of the set that it is made from has a logit that is not
 * a number (kernels/26_set_occupancy.h).
 *
 * Owner    as levels.h.
 * Thread   device; only puts copies and launches on the stream.
 * Limits   as levels.h; the slots and counts of the set are zeros.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_OCCUPANCY_H
#define VX_ENGINE_GPU_OCCUPANCY_H

#include "engine/gpu/geometry/levels.h"

VX_MUST_USE vx_status vx_gpu_occupancy_build(const struct vx_gpu_queue *queue,
                                             struct vx_gpu_upload *upload,
                                             const struct vx_gpu_levels *levels, i32 set,
                                             struct vx_why *why);
/* The kernels that these launch, for vx_kernel_set_ready; type: of the logits. */
i32 vx_gpu_occupancy_kernels(enum vx_number type, struct vx_jit_wanted *wanted, i32 room);
/* A kernel of kernels/ that is compiled for each type of numbers. */
struct vx_jit_wanted vx_gpu_typed_wanted(const char *name, enum vx_number type);

#endif
