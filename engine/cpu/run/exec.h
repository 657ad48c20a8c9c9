/* exec - carries out a plan for one request on the CPU device.
 *
 * One block of memory holds all activations at the offsets of the plan.  It is reserved
 * when the engine opens; pages are taken when they are touched, and running allocates
 * nothing.  f32 features and f32 outputs are used in the caller's memory, without a copy.
 *
 *   VX_TRY(vx_exec_open(bytes, cpu, cache, &why, &exec));
 *   vx_exec_run(exec, plan, weights, &item);        (fills the item's status and times)
 *   vx_exec_close(&exec);
 *
 * Owner    the engine; plan, weights and item are borrowed for the call.
 * Thread   device.
 * Limits   the bytes given at open.
 * Fails    run: in the item's status.  INVALID_ARGUMENT for wrong coordinates;
 *          FAILED_PRECONDITION for a coords_ref without coords that the cache does not
 *          have; RESOURCE_EXHAUSTED, with the numbers, when N voxels do not fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_EXEC_H
#define VX_ENGINE_PLAN_EXEC_H

#include "engine/batch.h"
#include "engine/cpu/geometry/geometry.h"
#include "engine/device.h"
#include "engine/plan/plan.h"
#include "engine/weights/weights.h"

struct vx_cpu;
struct vx_exec;

/* Reserves `bytes` of address space. */
VX_MUST_USE vx_status vx_exec_open(size_t bytes, struct vx_cpu *cpu,
                                   struct vx_geometry_cache *cache, struct vx_why *why,
                                   struct vx_exec **exec);
void vx_exec_close(struct vx_exec **exec);

/* Sets the report of a request's progress: before each set, map and launch, and behind the last.
 * While a request goes on within one of these, or before or behind them, the last is reported again,
 * with each chunk that the device thread takes (cpu.h). */
void vx_exec_tell(struct vx_exec *exec, const struct vx_progress *running);

/* The item has voxels and asks for nothing, and vx_item_begin has run on it. */
void vx_exec_run(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item);

/* The same for an item that asks, in parts.  ask makes the geometry, for which sets by logits
 * need the layers before them, and fills item->rows; false: the item has failed, and that
 * was all.  go_on computes the other layers, once.  end writes the outputs to their places,
 * computing those layers first if go_on did not, or writes nothing if the item's status is a
 * fault.  From ask to end no other request and no warm-up may run: this one has the
 * block. */
bool vx_exec_ask(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item);
void vx_exec_go_on(struct vx_exec *exec);
void vx_exec_end(struct vx_exec *exec);

/* Runs another item, as run does, from within the report of progress of the one that runs: on the device
 * thread alone, while the other threads go on with that.  False: it cannot now, and nothing has
 * happened.  It has failed for lack of room, which it may have later (*later), or the one that runs
 * is building its geometry, has the same, or has its turn again: it gets as long as items like this
 * one took, 100 ms at most. */
bool vx_exec_run_aside(struct vx_exec *exec, const struct vx_plan *plan,
                       const struct vx_weights *weights, struct vx_item *item,
                       bool *later);
/* The nanoseconds of all such runs. */
i64 vx_exec_aside_ns(const struct vx_exec *exec);

/* Runs the plan on a made-up request of N voxels, in steps numbered from 0: the keys, each
 * other set, each map, each launch.  The request is a flat sheet with features of zero and
 * no outputs; sets by logits are made from its coordinates instead.  Of a product, only the first
 * rows are computed: a step is short, since requests wait for it.  Other requests may run
 * between the steps and overwrite activations; the later launches then compute on what they
 * left, and the results are not used. */
struct vx_exec_warm_piece {
    i64 voxels, index;
};
i64 vx_exec_warm_pieces(const struct vx_plan *plan);
VX_MUST_USE vx_status vx_exec_warm(struct vx_exec *exec, const struct vx_plan *plan,
                                   const struct vx_weights *weights,
                                   const struct vx_exec_warm_piece *piece,
                                   struct vx_why *why);

size_t vx_exec_bytes(const struct vx_exec *exec);
size_t vx_exec_used_max(const struct vx_exec *exec); /* most bytes of a request so far */

#endif
