/* batches - the batches that a GPU is at: each on a lane of its own, cut into rounds.
 *
 * One batch's tensors are on their way in or out while the other's layers run.  A batch is
 * one round when all of it fits, else one after the other; a member whose geometry turned
 * out to be another's goes again in a round of its own kind.  Memory of rounds is one
 * block: the first lane takes from its beginning, the second from its end, and who finds
 * too little left waits until the other's round has ended.
 *
 *   VX_TRY(vx_gpu_batches_open(&batches, &why));          room is there
 *   vx_gpu_batches_submit(&batches, model, batch);
 *   batch = vx_gpu_batches_collect(&batches, true);
 *   vx_gpu_batches_close(&batches);
 *
 * FREE     -> RUNNING  submit; or WAITING when the other lane has the memory
 * WAITING  -> RUNNING  the other's round ended
 * RUNNING  -> RUNNING  a round ended and there is more
 * RUNNING  -> FREE     the last round ended: the batch can be collected
 *
 * Owner    the caller's struct.
 * Thread   device.
 * Limits   VX_ENGINE_BATCHES_MAX batches submitted and not collected.
 * Fails    in each item's status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_BATCHES_H
#define VX_ENGINE_GPU_BATCHES_H

#include "engine/gpu/round.h"

enum vx_gpu_item_state {
    VX_GPU_ITEM_WAITS,
    VX_GPU_ITEM_WAITS_APART, /* for a round without the store */
    VX_GPU_ITEM_DONE,        /* or in the round that runs */
};
/* When a round began and ended, in nanoseconds of the device. */
struct vx_gpu_span {
    f64 begin, end;
};
struct vx_gpu_slot {
    struct vx_gpu_lane lane;
    struct vx_gpu_round round;
    struct vx_model *model;
    struct vx_batch *batch; /* NULL = the slot is free */
    u8 states[VX_BATCH_ITEMS_MAX];
    bool running;  /* the round */
    i64 shared_ns; /* of the round's time, while the other's ran too */
    u64 number;    /* of the batch, as they were submitted */
};
struct vx_gpu_batches {
    struct vx_gpu_room room;
    struct vx_gpu_slot slots[VX_ENGINE_BATCHES_MAX];
    u64 submitted;
    struct vx_batch *first, *last; /* that have ended and wait to be collected */
};

/* Opens the lanes; room.gpu is there. */
VX_MUST_USE vx_status vx_gpu_batches_open(struct vx_gpu_batches *batches,
                                          struct vx_kernel_set *set, struct vx_why *why);
void vx_gpu_batches_close(struct vx_gpu_batches *batches);
void vx_gpu_batches_submit(struct vx_gpu_batches *batches, struct vx_model *model,
                           struct vx_batch *batch);
/* For one that cannot be run at all: every item that would run is answered so. */
void vx_gpu_batches_refuse(struct vx_gpu_batches *batches, struct vx_batch *batch,
                           vx_status status, const struct vx_why *why);
/* NULL when none has ended and `wait` is false.  Something is submitted. */
struct vx_batch *vx_gpu_batches_collect(struct vx_gpu_batches *batches, bool wait);
/* Until every lane is free; what has ended waits to be collected. */
void vx_gpu_batches_drain(struct vx_gpu_batches *batches);
/* Runs one item here and now, after a drain. */
void vx_gpu_batches_run(struct vx_gpu_batches *batches, struct vx_model *model,
                        struct vx_item *item);
bool vx_gpu_batches_use(const struct vx_gpu_batches *batches,
                        const struct vx_model *model);

/* How long both were at it. */
i64 vx_gpu_spans_shared(const struct vx_gpu_span *a, const struct vx_gpu_span *b);

#endif
