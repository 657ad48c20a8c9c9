/* memory - computes the place of each tensor of a set from the tensors' lifetimes.
 *
 * All tensors of a set have the same N rows, so sizes and offsets are counted in channels
 * of 4 bytes and hold for every N:
 *
 *   offset in bytes = offset * padded N * 4
 *
 * A tensor of 16-bit numbers has half as many such channels.  Tensors that are never
 * alive at the same time may share memory.
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

/* Two for each layer, its result and its input rounded to e4m3, one for the features, and on
 * a GPU the features and outputs in the request's types. */
#define VX_MEMORY_TENSORS_MAX (2 * VX_LAYERS_MAX + 2 + VX_OUTPUTS_MAX)

struct vx_memory_tensor {
    i32 channels;    /* of 4 bytes */
    i32 first, last; /* launches between which it is alive, both included */
    i64 offset;      /* out: in channels */
};

/* Writes every offset; returns the channels that all tensors need together. */
i64 vx_memory_plan(struct vx_memory_tensor *tensors, i32 count);
/* The same for plans whose widest tensors are alive only at the beginning and the end:
 * also tries to place tensors in the order of their lifetimes, and keeps the better. */
i64 vx_memory_plan_staged(struct vx_memory_tensor *tensors, i32 count);

#endif
