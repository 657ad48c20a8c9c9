/* ranks - the canonical order of the rows of a set, on the device: ascending by sample, x,
 * y, z.
 *
 * Rows of a device are in the order of bricks, and another one in each run.  The rows of
 * an output on a set of its own leave in canonical order, and sums over the voxels of a
 * sample are made in it.  So a geometry keeps for such sets what both need.
 *
 *   VX_TRY(vx_gpu_ranks_build(&queue, &upload, &ranks, &why));
 *
 * All members of a round are sorted together.
 *
 * Owner    the caller owns all memory; nothing is kept.
 * Thread   device; build only puts copies and launches on the stream.
 * Limits   VX_BATCH_ITEMS_MAX members, VX_VOXELS_MAX rows together; the indices of the
 *          sets must be whole (levels.h).
 * Fails    as vx_kernel_launch; RESOURCE_EXHAUSTED without room in `upload`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_RANKS_H
#define VX_ENGINE_GPU_RANKS_H

#include "engine/gpu/geometry/levels.h"

/* A set of one request. */
struct vx_gpu_rank_member {
    const struct vx_brick_set *set;
    i64 rows; /* 0 too */
    const struct vx_gpu_ordered *to;
};
struct vx_gpu_ranks {
    const struct vx_gpu_rank_member *members;
    i32 count;
    void *scratch; /* vx_gpu_ranks_bytes; free when the stream has passed the build */
};
/* Bytes of the scratch for so many rows of all members together. */
size_t vx_gpu_ranks_bytes(i64 rows);
VX_MUST_USE vx_status vx_gpu_ranks_build(const struct vx_gpu_queue *queue,
                                         struct vx_gpu_upload *upload,
                                         const struct vx_gpu_ranks *ranks,
                                         struct vx_why *why);

/* The kernels that these launch beside those of levels.h, and those for sums over samples,
 * for vx_kernel_set_ready. */
i32 vx_gpu_ranks_kernels(struct vx_jit_wanted *wanted, i32 room);

#endif
