/* round_dense - what must be known of a member's voxels before it has dense outputs.
 *
 * How many samples there are, and whether a voxel lies outside of the shape of an output that it
 * wants: a member with more samples than limits.samples allows, or such a voxel, is refused alone,
 * when it would ask for its places, and its mates are answered.  One launch finds this for all
 * members; the host reads it with the answers about geometries.
 *
 *   VX_TRY(vx_gpu_round_dense_launch(&round, &queue, &why));
 *   (the lane's event `told` has happened)
 *   item->status = vx_gpu_round_dense_read(&round, index);
 *
 * Owner    the round's, and the lane's memory.
 * Thread   device.
 * Limits   VX_GPU_DENSE_EACH_MAX questions about each member.
 * Fails    launch: as vx_kernel_launch.  read: RESOURCE_EXHAUSTED with the samples;
 *          INVALID_ARGUMENT with the first voxel in canonical order, as on the CPU; its row in
 *          coords is named where the host has them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_DENSE_H
#define VX_ENGINE_GPU_ROUND_DENSE_H

#include "engine/gpu/run/round.h"

/* Behind what is ordered in the round's last stage, while the coordinates of its members are
 * there.  Nothing if no member wants a dense output. */
VX_MUST_USE vx_status vx_gpu_round_dense_launch(struct vx_gpu_round *round,
                                                const struct vx_gpu_queue *queue,
                                                struct vx_why *why);
/* Sets item->rows of the dense outputs for which the member asks: its samples. */
VX_MUST_USE vx_status vx_gpu_round_dense_read(struct vx_gpu_round *round, i32 index);

#endif
