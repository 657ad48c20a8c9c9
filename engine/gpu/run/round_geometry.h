/* round_geometry - finds the geometry of a round in the store, or builds it.
 *
 * A round of one member computes on its piece, and the store keeps the row orders with
 * the piece, so that a later request with this coords_ref launches nothing here.  A round
 * of several members computes on their join, whose row orders are not kept.
 *
 *   vx_gpu_round_hold(&round, &refused);                            (round.h)
 *   VX_TRY(vx_gpu_making_begin(&making, &round, &why));             (round_making.h)
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

/* A geometry in the store: fault flags, coordinates, then rows and maps as
 * vx_gpu_piece_place places them. */
static inline size_t vx_gpu_kept_coords_bytes(i64 n, i32 columns)
{
    return vx_round_up((size_t)n * (size_t)columns * sizeof(i32), VX_GPU_LINE_BYTES);
}
static inline u32 *vx_gpu_kept_fault(const struct vx_gpu_geometry *kept)
{
    return kept->memory;
}
static inline void *vx_gpu_kept_coords(const struct vx_gpu_geometry *kept)
{
    return (u8 *)kept->memory + VX_GPU_LINE_BYTES;
}
static inline void *vx_gpu_kept_piece(const struct vx_gpu_geometry *kept)
{
    return (u8 *)vx_gpu_kept_coords(kept) +
           vx_gpu_kept_coords_bytes(kept->n, kept->columns);
}

/* The coordinates of a member on the device; they stay until its features are there.
 * *columns: 3 or 4. */
i32 *vx_gpu_round_coords(const struct vx_gpu_round *round, i32 index, i32 *columns);
/* Copies the coordinates that a member has sent. */
VX_MUST_USE vx_status vx_gpu_round_copy_coords(const struct vx_gpu_round *round,
                                               i32 index, void *to,
                                               const struct vx_gpu_queue *queue,
                                               struct vx_why *why);
/* Drops all geometries of a round that ends before its layers: those that were made in it
 * are empty, or lack their maps, and are forgotten. */
void vx_gpu_round_let_go(struct vx_gpu_round *round);
/* Answers a member whose coords_ref names a geometry that is not there. */
VX_MUST_USE vx_status vx_gpu_not_there(struct vx_item *item);

/* True if faults and pairs of this round's geometries must be read: one was built, or is not yet
 * known to be valid. */
bool vx_gpu_round_counts(const struct vx_gpu_round *round);
/* True if the host must read the lane's answers of this round: it counts, or coordinates were
 * compared, of which the answers then say nothing but whether they differ. */
bool vx_gpu_round_asks(const struct vx_gpu_round *round);

#endif
