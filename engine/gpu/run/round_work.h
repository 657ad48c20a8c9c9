/* round_work - the geometry and the layers of a round, on the lane's streams.
 *
 * In a small round, or one with stages, maps are made first, then features are copied, then
 * layers run: all on the lane's main stream.  In a large one (vx_gpu_places.beside) what no
 * layer waits for goes to the streams beside it:
 *
 *   main       sets | features | orders | layers                    | outputs
 *   beside 0        | maps of one set   | comparisons, results      |
 *   beside 1        | maps between sets |
 *
 * and of a network with one set:
 *
 *   main       coordinates | map, orders | rows of features, layers | outputs
 *   beside 0               | features    | comparisons, results     |
 *
 * Maps are not made beside layers: large layers leave no room on a device, and short launches
 * that wait for them one after the other end later than all of them before the layers.
 * Answers do not depend on any of this.
 *
 *   VX_TRY(vx_gpu_round_work(&round, &why));
 *
 * Owner    the round's.
 * Thread   device.
 * Limits   those of round.h.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_WORK_H
#define VX_ENGINE_GPU_ROUND_WORK_H

#include "engine/gpu/run/round.h"

/* All of the round's stage: geometry, with stage 0 features, and layers, with their marks.
 * round->forward must be set (vx_gpu_round_forward). */
VX_MUST_USE vx_status vx_gpu_round_work(struct vx_gpu_round *round, struct vx_why *why);

#endif
