/* round_geometry - finds the geometry of a round in the store, or builds it.
 *
 * A round of one member computes on its piece, and the store keeps the row orders with
 * the piece, so that a later request with this coords_ref launches nothing here.  A round
 * of several members computes on their join, whose row orders are not kept.
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

#include "engine/gpu/run/round.h"

/* Sets rows, maps and sorted of the request, whose other fields must be set. */
VX_MUST_USE vx_status vx_gpu_round_geometry(struct vx_gpu_round *round,
                                            struct vx_gpu_forward *forward,
                                            struct vx_why *why);
/* True if the host must read the lane's answers of this round: a geometry was built or
 * compared, or is not yet known to be valid. */
bool vx_gpu_round_asks(const struct vx_gpu_round *round);

#endif
