/* cost - how long a batch will take, from how long batches took.
 *
 * A device's time for a batch is nearly a line: launches and copies cost the same for any
 * batch, the rest grows with the (row, offset) pairs of its maps.  The line is fitted by
 * least squares, and what was measured is forgotten step by step, so that a device that
 * slows down is believed after some tens of batches.  Building maps is another line, per
 * voxel, since a batch of cached geometries does without.
 *
 *   vx_cost_learn(&cost, &(struct vx_cost_seen){.ns = ns, .pairs = pairs, ...});
 *   i64 ns = vx_cost_predict_ns(&cost, pairs, build_voxels);      0 = not known yet
 *
 * A batch that took many times what was predicted counts as a few times that: a stall of
 * the host is no property of the device, and a device that did become that slow is
 * believed a few batches later.  The first batch of all pays for what is warmed up and is
 * counted but not believed.
 *
 * Thread   any; pure.
 * Limits   predicts nothing before VX_COST_SEEN_MIN batches.
 * Fails    never: no prediction is negative, whatever was measured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_COST_H
#define VX_SERVER_COST_H

#include "engine/base/types.h"

#define VX_COST_SEEN_MIN 3

/* Sums over what was seen, each older one worth less; zeros = nothing seen. */
struct vx_cost {
    i32 seen, built; /* batches; those of them that built maps */
    f64 most;        /* pairs of the largest batch */
    f64 weight, x, y, xx, xy;
    f64 slope_ns, fixed_ns; /* per pair; per batch */
    f64 build_weight, build_ns, build_voxels;
};
struct vx_cost_seen {
    i64 ns;           /* on the device, without building maps */
    f64 pairs;        /* or voxels, always the same of the two for one model */
    i64 build_ns;     /* building maps */
    i64 build_voxels; /* of the geometries that were not held; 0 = none was built */
};

void vx_cost_learn(struct vx_cost *cost, const struct vx_cost_seen *seen);
bool vx_cost_is_known(const struct vx_cost *cost);
/* Seen often enough to stay away from a device for it: one that had a bad start must not be
 * left alone with that for ever. */
bool vx_cost_is_firm(const struct vx_cost *cost);
/* Of one batch; at least 1 when it is known, 0 when it is not. */
i64 vx_cost_predict_ns(const struct vx_cost *cost, f64 pairs, i64 build_voxels);
/* Whether a batch is so much larger than all that were seen that nothing is known of it. */
bool vx_cost_is_far(const struct vx_cost *cost, f64 pairs);
/* What these add to a batch that goes anyhow; 0 when nothing is known. */
i64 vx_cost_more_ns(const struct vx_cost *cost, f64 pairs);
/* Building the maps of that many voxels.  Until it was seen: as long as `otherwise_ns`. */
i64 vx_cost_build_ns(const struct vx_cost *cost, i64 voxels, i64 otherwise_ns);

/* Pairs per voxel, of one model: what its geometries are like lately. */
struct vx_cost_ratio {
    f64 pairs, voxels;
};
void vx_cost_ratio_learn(struct vx_cost_ratio *ratio, i64 pairs, i64 voxels);
/* `voxels` themselves until a pair was seen. */
f64 vx_cost_ratio_pairs(const struct vx_cost_ratio *ratio, i64 voxels);

#endif
