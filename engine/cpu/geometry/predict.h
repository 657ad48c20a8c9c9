/* predict - makes the voxels of a set by logits: the rules LIVE and KEEP of set_key.h.
 *
 * The passes are those of derive.h: count, fill, and then a sort.  No candidate comes twice.
 * They must find the same logits, which therefore lie in memory that nobody else can change.
 * If they do not, a pass writes nothing beyond the room that was counted, and then asserts.
 *
 *   if (vx_predict_nan(cpu, &predict, &row, &child)) ...a logit is not a number...
 *   i64 count = vx_predict_count(cpu, &predict);
 *   vx_predict_fill(cpu, &predict, &candidates, &scan);
 *
 * Owner    the caller owns all memory.
 * Thread   one at a time; work is spread over the CPU device's threads, except with `top`.
 * Limits   at most VX_VOXELS_MAX candidates, which the caller checks.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_PREDICT_H
#define VX_ENGINE_GEOMETRY_PREDICT_H

#include "engine/cpu/geometry/keys.h"
#include "engine/set_key.h"

struct vx_predict {
    const struct vx_keys *from;
    const struct vx_set_key *key;
    const f32 *logits; /* (rows of `from`, children of a voxel; KEEP: 1) */
};

/* The first voxel, as an index in the order of keys, and its first child whose logit is not
 * a number; false: there is none. */
bool vx_predict_nan(struct vx_cpu *cpu, const struct vx_predict *predict, i64 *index,
                    i32 *child);
/* The voxels of the new set; no logit is NaN, here and in fill. */
i64 vx_predict_count(struct vx_cpu *cpu, const struct vx_predict *predict);
/* Writes them to `candidates`, whose n is their count, in any order that depends on voxels
 * and logits alone; rows are not set.  *scan gets their bounds. */
void vx_predict_fill(struct vx_cpu *cpu, const struct vx_predict *predict,
                     const struct vx_keys *candidates, struct vx_keys_scan *scan);

#endif
