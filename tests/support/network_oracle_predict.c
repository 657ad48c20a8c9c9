/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_oracle_parts.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <math.h>

/* Sample, x, y, z, one after the other. */
static bool comes_before(const i32 a[4], const i32 b[4])
{
    for (int field = 0; field < 4; field++)
        if (a[field] != b[field]) return a[field] < b[field];
    return false;
}

/* Whether voxel a stays rather than voxel b: a larger logit, or an equal one and first. */
static bool stays_before(const struct vx_oracle_set *set, const f64 *logits, i64 a, i64 b)
{
    if (logits[a] != logits[b]) return logits[a] > logits[b];
    return comes_before(set->voxels[a], set->voxels[b]);
}

static void pick_top(const struct vx_oracle_step *step, const struct vx_oracle_logits *by,
                     bool *picked)
{
    for (i64 row = 0; row < step->from->rows; row++) {
        i64 ahead = 0;
        for (i64 other = 0; other < step->from->rows; other++)
            if (step->from->voxels[other][0] == step->from->voxels[row][0])
                ahead += stays_before(step->from, by->values, other, row);
        picked[row] = ahead < step->layer->top;
    }
}

/* Whether f32 may keep another voxel in place of one.  Equal logits come from equal numbers,
 * and are equal in f32, too. */
static bool top_unsure(const struct vx_oracle_step *step,
                       const struct vx_oracle_logits *by, const bool *picked)
{
    for (i64 in = 0; in < step->from->rows; in++)
        for (i64 out = 0; out < step->from->rows; out++) {
            if (!picked[in] || picked[out]) continue;
            if (step->from->voxels[in][0] != step->from->voxels[out][0]) continue;
            f64 gap = fabs(by->values[in] - by->values[out]);
            if (gap > 0 && gap <= by->bounds[in] + by->bounds[out]) return true;
        }
    return false;
}

void vx_oracle_predict(struct vx_network_oracle *oracle,
                       const struct vx_oracle_step *step,
                       const struct vx_oracle_logits *by, struct vx_oracle_set *set)
{
    const i32 *stride = step->window.stride;
    i64 count = step->from->rows * stride[0] * stride[1] * stride[2];
    bool *picked = vx_alloc_zero((size_t)count + 1);
    VX_ASSERT(picked);
    if (step->layer->top) {
        pick_top(step, by, picked);
        oracle->unsure = oracle->unsure || top_unsure(step, by, picked);
    }
    for (i64 i = 0; i < count && !step->layer->top; i++) {
        picked[i] = by->values[i] > 0;
        oracle->unsure = oracle->unsure || fabs(by->values[i]) <= by->bounds[i];
    }
    vx_oracle_set_pick(stride, picked, step->from, set);
    for (int axis = 0; axis < 3 && step->layer->op == VX_OP_PRUNE; axis++)
        set->shape[axis] = step->from->shape[axis];
    vx_free(picked);
}
