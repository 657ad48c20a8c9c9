/* exec - carries out a plan for one request on the CPU device.
 *
 * One block of memory, reserved when the engine opens and touched only when used, holds
 * all activations at the offsets the plan gives them; nothing is allocated.  Features
 * that come as f32, and outputs that are wanted as f32, are used where the caller has
 * them.
 *
 *   VX_TRY(vx_exec_open(bytes, cpu, cache, &why, &exec));
 *   vx_exec_run(exec, plan, weights, &item);        (fills item's status and times)
 *   vx_exec_close(&exec);
 *
 * Owner    the engine; plan, weights, item are borrowed for the call.
 * Thread   device.
 * Limits   the bytes given at open.
 * Fails    run: in the item's status.  INVALID_ARGUMENT for its coordinates;
 *          FAILED_PRECONDITION for a name alone that the cache does not have;
 *          RESOURCE_EXHAUSTED when N voxels do not fit, with the numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_EXEC_H
#define VX_ENGINE_PLAN_EXEC_H

#include "engine/engine.h"
#include "engine/model/weights.h"
#include "engine/plan/plan.h"

struct vx_cpu;
struct vx_exec;

/* `bytes` of address space; pages are taken as they are touched. */
VX_MUST_USE vx_status vx_exec_open(size_t bytes, struct vx_cpu *cpu,
                                   struct vx_geometry_cache *cache, struct vx_why *why,
                                   struct vx_exec **exec);
void vx_exec_close(struct vx_exec **exec);

/* Whom to tell of a request's progress: before each map and each layer, and at the end. */
void vx_exec_tell(struct vx_exec *exec, const struct vx_progress *running);

/* The item has voxels and has been through vx_item_begin. */
void vx_exec_run(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item);

/* Runs the plan on N voxels that nobody sent, a flat sheet, features of zero, no outputs, in
 * pieces: keys, each map, each launch, in this order from 0 on.  Requests may run between
 * them: what they leave in the block is read as features, and nobody reads the result. */
struct vx_exec_warm_piece {
    i64 voxels, index;
};
i64 vx_exec_warm_pieces(const struct vx_plan *plan);
VX_MUST_USE vx_status vx_exec_warm(struct vx_exec *exec, const struct vx_plan *plan,
                                   const struct vx_weights *weights,
                                   const struct vx_exec_warm_piece *piece,
                                   struct vx_why *why);

size_t vx_exec_bytes(const struct vx_exec *exec);
size_t vx_exec_used_max(const struct vx_exec *exec); /* the most a request has needed */

/* The sentence for what does not fit; used at load too. */
VX_MUST_USE vx_status vx_exec_check(const struct vx_plan *plan, size_t bytes, i64 n,
                                    struct vx_why *why);

#endif
