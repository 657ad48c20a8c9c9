/* model_taken - which algorithm and tile each product of a round took, in words (taken.h).
 *
 * "masked[128,64,64,4,8,1,1,2] sparse: a b; mlp: c d": the values of a tile are those of a
 * tuning table (tune/table.h); "sparse" is the density that the round was launched for,
 * surfaces have no word.
 *
 * Owner    the caller's memory.
 * Thread   any; pure.
 * Limits   taken.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_TAKEN_H
#define VX_ENGINE_GPU_MODEL_TAKEN_H

#include "engine/gpu/model/model_launch.h"
#include "engine/model/taken.h"

/* The layers of a round that is launched.  Those on a set without rows are left out. */
void vx_gpu_taken_print(const struct vx_gpu_forward *forward, struct vx_taken *taken);

#endif
