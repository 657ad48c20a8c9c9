/* cost - predicts how long a batch will take, from the times of earlier batches.
 *
 * A device's time for a batch is nearly linear: launches and copies cost the same for any
 * batch, the rest grows with the (row, offset) pairs of its neighbour maps, which for one
 * model are always the same maps.  The line is fitted by least squares.  Older
 * measurements lose weight with each new one, so that the prediction follows a device
 * that slows down after some tens of batches.  Building geometries is predicted
 * separately, per voxel, because a batch whose geometries are cached builds none.
 *
 *   vx_cost_learn(&cost, &(struct vx_cost_seen){.ns = ns, .pairs = pairs, ...});
 *   i64 ns = vx_cost_predict_ns(&cost, pairs, build_voxels);      0 = not known yet
 *
 * A batch that took many times its prediction is learned as a few times its prediction: a
 * stall of the host is not a property of the device, and if the device did become that
 * slow, the prediction follows a few batches later.  When it is fast again, two batches
 * in a row far below their predictions are enough: the fit starts anew.  The very first
 * batch includes
 * warm-up: it is counted, but its time is not learned.
 *
 * Samples of a dense output behind the first are as many as a client likes, with any voxels.
 * Their time is learned per byte and is no part of the line, on which they would raise what
 * is predicted of all others.
 *
 * Voxels cost something beside their pairs, so batches of few pairs and many voxels next to
 * ones of many pairs and few voxels make a line that is flat and high.  A prediction is
 * therefore never more than a few times what batches of about its pairs took.
 *
 * A line through small batches may say minutes of a batch a thousand times as large that takes
 * a second.  That does to compare workers, but nobody is refused for it: see vx_cost_believe_ns.
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

/* Batches of about as many pairs: up to 3, up to 15, up to 63, ... */
#define VX_COST_CLASSES 20

/* Weighted sums over the measured batches, older ones with less weight; zeros = none. */
struct vx_cost {
    i32 seen, built; /* batches; those of them that built geometries */
    i32 low;         /* batches in a row that took far less than predicted */
    f64 most;        /* pairs of the largest batch */
    f64 weight, x, y, xx, xy;
    f64 slope_ns, fixed_ns; /* per pair; per batch */
    f64 build_weight, build_ns, build_voxels;
    f64 unforeseen_ns, unforeseen_bytes;
    f64 class_ns
        [VX_COST_CLASSES]; /* what the last batches of each class took; 0 = none */
};
struct vx_cost_seen {
    i64 ns;           /* on the device, without building maps */
    f64 pairs;        /* or voxels, but always the same unit for one model */
    i64 build_ns;     /* building geometries */
    i64 build_voxels; /* of the geometries that were not held; 0 = none was built */
    /* Beside `ns`: outputs that no number of voxels says; 0 = none. */
    i64 unforeseen_ns, unforeseen_bytes;
};

i32 vx_cost_class(f64 pairs);
void vx_cost_learn(struct vx_cost *cost, const struct vx_cost_seen *seen);
bool vx_cost_is_known(const struct vx_cost *cost);
/* Whether enough batches were measured to avoid a device because of its cost.  With
 * fewer, a device that had a slow start would never be used again. */
bool vx_cost_is_firm(const struct vx_cost *cost);
/* The predicted time of one batch: at least 1; 0 when it is not known. */
i64 vx_cost_predict_ns(const struct vx_cost *cost, f64 pairs, i64 build_voxels);
/* Whether a batch is too much larger than all measured ones to predict its time. */
bool vx_cost_is_far(const struct vx_cost *cost, f64 pairs);
/* The part of the prediction for which a request may be refused: of a batch that is far, what the
 * largest takes that is not. */
i64 vx_cost_believe_ns(const struct vx_cost *cost, f64 pairs, i64 build_voxels);
/* What these pairs add to a batch that runs in any case; 0 when it is not known. */
i64 vx_cost_more_ns(const struct vx_cost *cost, f64 pairs);
/* Time to build the geometries of that many voxels; `otherwise_ns` until one was seen. */
i64 vx_cost_build_ns(const struct vx_cost *cost, i64 voxels, i64 otherwise_ns);

/* Time to write so many bytes that were not foreseen; 0 until some were. */
i64 vx_cost_unforeseen_ns(const struct vx_cost *cost, i64 bytes);

/* What recent requests of one model needed for each of their voxels: pairs, or voxels of
 * all sets. */
struct vx_cost_ratio {
    f64 needed, voxels;
};
void vx_cost_ratio_learn(struct vx_cost_ratio *ratio, i64 needed, i64 voxels);
/* What is expected of `voxels` voxels; `voxels` itself until something was learned. */
f64 vx_cost_ratio_expect(const struct vx_cost_ratio *ratio, i64 voxels);

#endif
