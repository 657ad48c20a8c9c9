/* levels_parts - what levels.c, level_maps.c and occupancy.c share: blocks of a launch, and
 * descriptions for launches over many requests.
 *
 * Owner    the caller.
 * Thread   device.
 * Limits   as levels.h.
 * Fails    upload_send: as vx_gpu_copy_in; the rest never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_LEVELS_PARTS_H
#define VX_ENGINE_GPU_LEVELS_PARTS_H

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/levels.h"

/* The alignment of descriptions, as in pieces.c. */
#define VX_GPU_PART_ALIGN 64
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

/* False if half of the room that is left is too little: the rest is for what follows. */
static inline bool vx_gpu_upload_fits(const struct vx_gpu_upload *upload, size_t bytes)
{
    size_t left = upload->used < upload->bytes ? upload->bytes - upload->used : 0;
    return bytes + VX_GPU_PART_ALIGN <= left / 2;
}

/* Where the host writes them; they fit. */
static inline void *vx_gpu_upload_take(struct vx_gpu_upload *upload, size_t bytes,
                                       size_t *at)
{
    *at = vx_round_up(upload->used, VX_GPU_PART_ALIGN);
    upload->used = *at + bytes;
    VX_ASSERT(upload->used <= upload->bytes);
    return upload->host + *at;
}

static inline vx_status vx_gpu_upload_send(const struct vx_gpu_queue *queue,
                                           const struct vx_gpu_upload *upload, size_t at,
                                           struct vx_why *why)
{
    return vx_gpu_copy_in(
        vx_kernel_set_gpu(queue->set), queue->stream,
        &(struct vx_gpu_copy){upload->device + at, upload->host + at, upload->used - at},
        why);
}

#endif
