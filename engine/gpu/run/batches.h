/* batches - runs up to two batches on one GPU, each on its own lane and in rounds.
 *
 * The tensors of one batch are copied in or out while the layers of the other run.  A
 * batch is one round if all of it fits in the memory, otherwise several rounds, one after
 * the other.  A member whose coordinates differ from those that the store has under its
 * coords_ref runs again in a later round, without the store.  All rounds share one block
 * of device memory: the first lane allocates from its beginning, the second from its end.
 * A round that does not fit beside the other lane's round waits until that one ends.
 *
 * A round beside a much larger one is urgent (lane.h): it would wait for all that the other has
 * launched, which may be seconds.  Then its lane rests for as long as that took, so that the larger
 * one has at least half of the device.
 *
 *   VX_TRY(vx_gpu_batches_open(&batches, set, &why));     (batches.room is set)
 *   vx_gpu_batches_submit(&batches, model, batch);
 *   batch = vx_gpu_batches_collect(&batches, true);
 *   vx_gpu_batches_close(&batches);
 *
 * FREE     -> RUNNING  submit
 * FREE     -> WAITING  submit, while the other lane holds the memory
 * WAITING  -> RUNNING  the other lane's round has ended
 * RUNNING  -> RUNNING  a round has ended and items are left
 * RUNNING  -> WAITING  the same, while the other lane holds the memory
 * RUNNING  -> FREE     the last round has ended: the batch can be collected
 *
 * A running round goes SIZES -> TOLD -> PLACES -> END; it begins with TOLD if it need not
 * make sets, and with END if no item wants places.  With stages it is in SIZES once for each
 * stage.  A batch does not end before every item
 * that has asked for places is placed.
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

#include "engine/gpu/run/round.h"

enum vx_gpu_item_state {
    VX_GPU_ITEM_WAITS,
    VX_GPU_ITEM_WAITS_APART, /* and must not use the store */
    VX_GPU_ITEM_DONE,        /* answered, or in the round that runs */
};
/* Begin and end of a round, in nanoseconds of device time. */
struct vx_gpu_span {
    f64 begin, end;
};
/* What a round on the device waits for. */
enum vx_gpu_stage {
    VX_GPU_STAGE_SIZES,  /* to know the sizes of its sets: its layers are not launched */
    VX_GPU_STAGE_TOLD,   /* to know whether its geometries are those of its items */
    VX_GPU_STAGE_PLACES, /* for the places of its outputs, which are not launched */
    VX_GPU_STAGE_END,
};
struct vx_gpu_slot {
    struct vx_gpu_lane lane;
    struct vx_gpu_round round;
    struct vx_model *model;
    struct vx_batch *batch; /* NULL = the slot is free */
    u8 states[VX_BATCH_ITEMS_MAX];
    bool running;      /* the round is on the device */
    bool urgent;       /* it, or the last one, is on the lane's urgent streams */
    i64 rest_until_ns; /* until then the next one waits, while the other lane's runs */
    bool rests;        /* it does */
    enum vx_gpu_stage stage; /* of the round that runs */
    i64 shared_ns; /* of the round's time: already counted for the other lane's batch */
    u64 number;    /* of the batch, in the order of submission */
};
struct vx_gpu_batches {
    struct vx_gpu_room room;
    struct vx_gpu_slot slots[VX_ENGINE_BATCHES_MAX];
    u64 submitted;
    struct vx_batch *first, *last; /* batches that have ended and wait to be collected */
};

/* Opens the lanes; batches->room.gpu must be set. */
VX_MUST_USE vx_status vx_gpu_batches_open(struct vx_gpu_batches *batches,
                                          struct vx_kernel_set *set, struct vx_why *why);
void vx_gpu_batches_close(struct vx_gpu_batches *batches);
void vx_gpu_batches_submit(struct vx_gpu_batches *batches, struct vx_model *model,
                           struct vx_batch *batch);
/* Ends a batch that cannot run: every item that would run is answered with `status`. */
void vx_gpu_batches_refuse(struct vx_gpu_batches *batches, struct vx_batch *batch,
                           vx_status status, const struct vx_why *why);
/* Returns a batch that has ended.  If none has: waits for one, or returns NULL if `wait`
 * is false, or if only the caller can go on: it must place items.  With `wait`, a batch
 * must be submitted. */
struct vx_batch *vx_gpu_batches_collect(struct vx_gpu_batches *batches, bool wait);
/* An item that has asked is placed. */
void vx_gpu_batches_placed(struct vx_gpu_batches *batches);
/* Waits until every lane is free, for which no item may have asked; the ended batches can then be collected. */
void vx_gpu_batches_drain(struct vx_gpu_batches *batches);
/* Runs one item and waits for it.  Every lane must be free: call drain first. */
void vx_gpu_batches_run(struct vx_gpu_batches *batches, struct vx_model *model,
                        struct vx_item *item);
bool vx_gpu_batches_use(const struct vx_gpu_batches *batches,
                        const struct vx_model *model);

/* Nanoseconds during which both rounds ran. */
i64 vx_gpu_spans_shared(const struct vx_gpu_span *a, const struct vx_gpu_span *b);

#endif
