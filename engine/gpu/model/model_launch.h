/* model_launch - puts the work of one round on a stream: features, layers, outputs.
 *
 * Nothing here waits, allocates or depends on results of the device.  A request with bad
 * coordinates runs like any other, within its own rows, and is refused when the host has
 * read its flags.
 *
 *   struct vx_gpu_forward request = {.gpu = gpu, .queue = {set, stream, NULL}, ...};
 *   (geometry: round_making.h)
 *   VX_TRY(vx_gpu_forward_send(&request, &request.queue, &why));
 *   VX_TRY(vx_gpu_forward_feats(&request, &why));
 *   VX_TRY(vx_gpu_forward_layers(&request, 0, &why));
 *   VX_TRY(vx_gpu_forward_outputs(&request, &why));
 *   (wait for the stream)
 *
 * The rows of a round are those of its items, one after the other, on each set.  A layer on
 * a set of no rows is not launched.
 *
 * Owner    the caller; all is borrowed until the stream has passed it.
 * Thread   device.
 * Limits   places must have been made for the items' voxels, and must fit the block.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_LAUNCH_H
#define VX_ENGINE_GPU_MODEL_LAUNCH_H

#include "engine/batch.h"
#include "engine/gpu/model/model_choice.h"
#include "engine/gpu/model/model_kernels.h"
#include "engine/gpu/model/model_weights.h"

struct vx_gpu_forward {
    struct vx_gpu *gpu;
    struct vx_gpu_queue queue;
    const struct vx_gpu_reach *host; /* of items, that kernels reach */
    const struct vx_gpu_choices *choices;
    const struct vx_gpu_places *places;
    const struct vx_gpu_weights *weights;
    u8 *block; /* device memory that the places count from */
    struct vx_item *items[VX_BATCH_ITEMS_MAX];
    i32 items_count;
    const i64 *item_rows; /* (items_count, the plan's sets) */
    const i32 *rows;      /* of set 0: row of the request of each device row */
    /* What the outputs of each set of network->coords need: ranks of the round, and the
     * coordinates of each item. */
    const i32 *ranks[VX_NETWORK_OUTPUTS_MAX];
    const i32 *coords[VX_BATCH_ITEMS_MAX][VX_NETWORK_OUTPUTS_MAX];
    /* By set, of those with a dense output: the voxel of each row. */
    const u64 *keys[VX_SETS_MAX];
    const struct vx_gpu_ordered *ordered; /* one per ordered set of the plan */
    const struct vx_gpu_map *maps;   /* one per map of the plan, rows in brick order */
    const struct vx_gpu_map *sorted; /* one per entry of places->sorted */
};

/* Copy between our memory and an item's, which may be `on_device` too. */
VX_MUST_USE vx_status vx_gpu_item_in(const struct vx_gpu_queue *queue, bool on_device,
                                     const struct vx_gpu_copy *copy, struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_item_out(const struct vx_gpu_queue *queue, bool on_device,
                                      const struct vx_gpu_copy *copy, struct vx_why *why);
/* So few bytes of an item a kernel reads or writes where they lie, if it reaches them: a copy of them
 * is a step more on the stream, which takes as long as a kernel. */
#define VX_GPU_DIRECT_BYTES (1 << 20)
/* Rows are in another order there, each a transfer of its own: so of rows so few, and of rows of few
 * bytes fewer.  H200, microseconds to write rows of an answer, with a copy and without: 848 of 128
 * bytes 11.1, 5.6; 2,000 13.5, 8.6; 3,500 of 8 bytes 9.3, 18.3. */
#define VX_GPU_DIRECT_ROWS   4096
#define VX_GPU_DIRECT_NARROW 1024
#define VX_GPU_DIRECT_WIDE   64 /* bytes of a row that is not narrow */
static inline i64 vx_gpu_direct_rows(size_t row_bytes)
{
    return row_bytes < VX_GPU_DIRECT_WIDE ? VX_GPU_DIRECT_NARROW : VX_GPU_DIRECT_ROWS;
}
static inline bool vx_gpu_direct(const struct vx_gpu_reach *host, bool on_device,
                                 const void *at, size_t bytes)
{
    return !on_device && bytes <= VX_GPU_DIRECT_BYTES && vx_gpu_reaches(host, at, bytes);
}
/* Copies features that are not read where they lie, on any queue: before the geometry is there, if
 * tensors do not share its memory (vx_gpu_places.beside). */
VX_MUST_USE vx_status vx_gpu_forward_send(const struct vx_gpu_forward *forward,
                                          const struct vx_gpu_queue *queue,
                                          struct vx_why *why);
/* Makes the first layers' rows of them, behind the copy.  If the round has one item, its feats may
 * be NULL: then they are zeros. */
VX_MUST_USE vx_status vx_gpu_forward_feats(const struct vx_gpu_forward *forward,
                                           struct vx_why *why);
/* The layers of a stage (plan.h), of which a static network has one. */
VX_MUST_USE vx_status vx_gpu_forward_layers(const struct vx_gpu_forward *forward,
                                            i32 stage, struct vx_why *why);
/* Copies the outputs that items want, but for those that have failed. */
VX_MUST_USE vx_status vx_gpu_forward_outputs(const struct vx_gpu_forward *forward,
                                             struct vx_why *why);

#endif
