/* round_making - the geometry of a round while it is made: of a stage of it, with stages.
 *
 *   VX_TRY(vx_gpu_making_begin(&making, &round, &why));
 *   VX_TRY(vx_gpu_making_maps(&making));          on making.maps_on
 *   VX_TRY(vx_gpu_making_orders(&making));        on making.queue, behind all of that
 *   (features and layers may be launched)
 *   VX_TRY(vx_gpu_making_end(&making));           on making.queue, behind the maps
 *
 * Sets rows, maps, sorted and what is ordered of round->forward, whose other fields must be set.
 *
 * Owner    the caller's struct; everything in it is borrowed.
 * Thread   device.
 * Limits   those of pieces.h.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_MAKING_H
#define VX_ENGINE_GPU_ROUND_MAKING_H

#include "engine/gpu/run/round.h"

struct vx_gpu_making {
    struct vx_gpu_round *round;
    struct vx_gpu_forward *forward; /* the round's */
    const struct vx_plan *plan;
    const struct vx_gpu_places *places;
    struct vx_gpu_queues maps_on;
    struct vx_gpu_queue queue; /* where all else goes */
    i32 stage;                 /* 0: also of a round without stages */
    bool makes;                /* there are maps to make, or to join */
    bool ordered_late; /* what is ordered is for outputs alone: it is made at the end */
    bool joined_rows;
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX];
    struct vx_why *why;
};

/* Places everything, and copies coordinates.  (With several sets these and what all maps need are
 * there: round_sizes.c.) */
VX_MUST_USE vx_status vx_gpu_making_begin(struct vx_gpu_making *making,
                                          struct vx_gpu_round *round, struct vx_why *why);
/* The maps of each member; without levels on making.queue, and its rows, too. */
VX_MUST_USE vx_status vx_gpu_making_maps(struct vx_gpu_making *making);
/* The rest of what layers read: joined maps, if there are several members, and row orders. */
VX_MUST_USE vx_status vx_gpu_making_orders(struct vx_gpu_making *making);
/* What layers do not wait for: comparing coordinates, what is ordered for outputs alone, and
 * what the host reads. */
VX_MUST_USE vx_status vx_gpu_making_end(struct vx_gpu_making *making);
/* Joins the rows of several members, which features need. */
VX_MUST_USE vx_status vx_gpu_making_rows(struct vx_gpu_making *making);
/* True if a member's geometry is built here. */
bool vx_gpu_making_builds(const struct vx_gpu_making *making);
/* True if vx_gpu_making_end launches anything. */
bool vx_gpu_making_ends(const struct vx_gpu_making *making);

/* --- between round_geometry.c and round_maps.c --- */

/* The maps of a member; those of the join have the index VX_BATCH_ITEMS_MAX. */
static inline struct vx_gpu_map *vx_gpu_making_maps_of(const struct vx_gpu_making *making,
                                                       i32 index)
{
    if (!making->plan->maps_count) return NULL;
    return making->round->model->gpu->maps + (i64)index * making->plan->maps_count;
}
/* What is ordered of a member, or of the join. */
static inline struct vx_gpu_ordered *
vx_gpu_making_ordered_of(const struct vx_gpu_making *making, i32 index)
{
    return making->round->model->gpu->ordered + (i64)index * making->plan->ordered_count;
}
/* Without levels: builds the pieces that are new, rows and maps. */
VX_MUST_USE vx_status vx_gpu_making_pieces(const struct vx_gpu_making *making);
/* Makes what is ordered, and joins it. */
VX_MUST_USE vx_status vx_gpu_making_ordered(struct vx_gpu_making *making);

#endif
