/* round_geometry - the active sets and maps of a round: found in the store, built, or
 * joined, and put on the stream.
 *
 * A round of one member computes on its piece, and what is sorted for it is kept beside
 * the piece: said a second time, nothing is launched.  A round of several joins.
 *
 *   vx_gpu_round_hold(&round, &refused);                            (round.h)
 *   VX_TRY(vx_gpu_round_geometry(&round, &request, &why));
 *
 * Owner    the round's.
 * Thread   device.
 * Limits   those of pieces.h.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_GEOMETRY_H
#define VX_ENGINE_GPU_ROUND_GEOMETRY_H

#include "engine/gpu/round.h"

/* Sets rows, maps and sorted of the request, whose other fields are there. */
VX_MUST_USE vx_status vx_gpu_round_geometry(struct vx_gpu_round *round,
                                            struct vx_gpu_request *request,
                                            struct vx_why *why);
/* Whether the host will read the lane's answers of this round: something was built or
 * compared, or is not yet known to be good. */
bool vx_gpu_round_asks(const struct vx_gpu_round *round);

#endif
