/* dense - outputs that are dense tensors: which they are, and what a request needs for one.
 *
 *   if (vx_plan_is_dense(plan, o)) ...
 *   VX_TRY(vx_plan_dense_outside(plan, o, &voxel, why));
 *
 * Owner    the plan is borrowed.
 * Thread   any; pure.
 * Limits   VX_DENSE_NUMBERS_MAX numbers for each sample, limits.samples of them.
 * Fails    check_samples: RESOURCE_EXHAUSTED.  outside: always.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_DENSE_H
#define VX_ENGINE_PLAN_DENSE_H

#include "engine/plan/plan.h"

/* True for an output of the network that is a dense tensor. */
bool vx_plan_is_dense(const struct vx_plan *plan, i32 output);

/* Fails with RESOURCE_EXHAUSTED: a request with so many samples, 1 + its largest one, wants
 * that dense output, and limits.samples allows fewer. */
VX_MUST_USE vx_status vx_plan_check_samples(const struct vx_plan *plan, i32 output,
                                            i64 samples, struct vx_why *why);
/* A voxel that lies outside of a dense tensor's shape. */
struct vx_plan_voxel {
    i64 row;   /* of the request; -1: on another set, or not known */
    i32 at[4]; /* sample x y z; at[0] -1: not known */
};
/* Fails with INVALID_ARGUMENT: says which voxel, on which set, and the shape. */
VX_MUST_USE vx_status vx_plan_dense_outside(const struct vx_plan *plan, i32 output,
                                            const struct vx_plan_voxel *voxel,
                                            struct vx_why *why);

#endif
