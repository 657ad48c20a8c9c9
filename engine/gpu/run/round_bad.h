/* round_bad - says what is wrong with coordinates that the device has refused.
 *
 *   item->status = vx_gpu_bad_coords(round, &result, item);
 *
 * Owner    the caller's; item->why has the sentence.
 * Thread   device; up to NAMED_VOXELS_MAX voxels it sorts them on the CPU.
 * Limits   -
 * Fails    always: INVALID_ARGUMENT, or FAILED_PRECONDITION for a member that sent only a
 *          coords_ref; INTERNAL if the CPU finds nothing wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_BAD_H
#define VX_ENGINE_GPU_ROUND_BAD_H

#include "engine/gpu/run/round.h"

VX_MUST_USE vx_status vx_gpu_bad_coords(struct vx_gpu_round *round,
                                        const struct vx_gpu_piece_result *result,
                                        struct vx_item *item);

#endif
