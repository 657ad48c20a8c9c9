/* fp8_error - how far an output with rounding to e4m3 is from the same without.
 *
 * NMSE: the sum of squared differences, divided by the sum of the squares without.  Of an
 * argmax it is that of its rows written as 0 and 1, twice the share of rows that choose
 * another channel.  A row that only one of both has, because logits decide which voxels
 * there are, counts with zeros for the other.
 *
 * Owner    the caller's values.
 * Thread   any; pure.
 * Limits   -
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_FP8_ERROR_H
#define VX_ENGINE_TOOLS_FP8_ERROR_H

#include "engine/signature.h"

/* The rows of one output. */
struct vx_fp8_rows {
    i64 count;
    const void *values; /* (count, channels): f32, or i32 of an argmax */
    const i32 *coords; /* (count, 4), ascending; NULL: rows of one number are one voxel */
};

struct vx_fp8_error {
    f64 squares, all; /* of differences; of the numbers without rounding */
    i64 rows;         /* that either has */
    i64 lost, gained; /* rows that only the plain one has, and only the rounded one */
    i64 changed;      /* of an argmax: rows that choose another channel */
    /* The element that differs most, and where it is among the rows that either has. */
    f64 plain, rounded;
    i64 row;
    i32 channel; /* -1: no element differs */
};

struct vx_fp8_error vx_fp8_error_of(const struct vx_output *output,
                                    const struct vx_fp8_rows *plain,
                                    const struct vx_fp8_rows *rounded);
/* 0 if nothing differs, infinite if only zeros are expected, else squares / all. */
f64 vx_fp8_nmse(const struct vx_fp8_error *error);

#endif
