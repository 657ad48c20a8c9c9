/* memory - where each tensor of a plan lies: lifetimes to offsets.
 *
 * All tensors of a level have the same N rows, so sizes and offsets are counted in
 * channels of 4 bytes and the answer holds for every N: offset in bytes = offset * padded
 * N * 4.  Tensors of 16-bit numbers have half as many.  Tensors that are never alive
 * together may share their place.
 *
 *   struct vx_memory_tensor tensors[] = {{.channels = 4, .first = -1, .last = 0}, ...};
 *   i64 channels = vx_memory_plan(tensors, 3);
 *   tensors[1].offset ...
 *
 * Owner    the caller's table; offsets are written into it.
 * Thread   any; pure.
 * Limits   VX_MEMORY_TENSORS_MAX tensors.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_MEMORY_H
#define VX_ENGINE_PLAN_MEMORY_H

#include "engine/base/limits.h"
#include "engine/base/types.h"

/* One per layer, the features, and on a GPU the features and outputs as the request has
 * them. */
#define VX_MEMORY_TENSORS_MAX (VX_LAYERS_MAX + 2 + VX_OUTPUTS_MAX)

struct vx_memory_tensor {
    i32 channels;    /* of 4 bytes */
    i32 first, last; /* steps between which it is alive, both included */
    i64 offset;      /* out: in channels */
};

/* Writes every offset; returns the channels that all of them need together. */
i64 vx_memory_plan(struct vx_memory_tensor *tensors, i32 count);
/* The same for tensors of which the widest live at the very beginning and the very end:
 * placed in the order of their lives too, and the better of the two is taken. */
i64 vx_memory_plan_staged(struct vx_memory_tensor *tensors, i32 count);

#endif
