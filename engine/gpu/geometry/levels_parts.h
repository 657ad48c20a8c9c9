/* levels_parts - what levels.c and level_maps.c share: the blocks of a launch.
 *
 * Owner    the caller.
 * Thread   device.
 * Limits   as levels.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LEVELS_PARTS_H
#define VX_ENGINE_GPU_LEVELS_PARTS_H

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/levels.h"

/* Blocks of 512 threads that a processor holds; more would only wait. */
#define VX_GPU_SET_BLOCKS 4

/* Blocks for so much work, `each` to a block, but no more than the device holds. */
static inline u32 vx_gpu_level_blocks(struct vx_kernel_set *set, i64 work, i64 each,
                                      i64 per_processor)
{
    i64 most = vx_gpu_caps(vx_kernel_set_gpu(set))->processors * per_processor;
    i64 blocks = (work + each - 1) / each;
    VX_ASSERT(work >= 1);
    return (u32)(blocks < most ? blocks : most);
}

#endif
