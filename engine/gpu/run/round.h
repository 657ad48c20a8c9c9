/* round - launches requests of one batch together, and answers them at the end.
 *
 * The geometries of the members are found in the store or built, and joined if there are
 * several; then features, layers and outputs run over the rows of all members.  The host
 * does not wait between the first copy and the end, but for one thing: the sizes of sets
 * that are made from set 0, if a member has sent coordinates of its own.  Then a round has
 * two parts, of which the first makes all sets of all members and copies their sizes out;
 * sets that depend on features add a part for each of their stages (round_stages.h).
 *
 * A geometry of the store is used before its coordinates have been compared with the
 * member's; if they differ, the member gets `again` and runs in another round.
 *
 *   VX_TRY(vx_gpu_round_hold(&round, &refused));     geometries; some may be refused
 *   if (vx_gpu_round_sizes(&round)) {
 *       VX_TRY(vx_gpu_round_sizes_launch(&round, &why));
 *       (the lane's event `sized` has happened)
 *       vx_gpu_round_sizes_read(&round, &refused);
 *   }
 *   (with stages: round_stages.h, in place of the line below)
 *   VX_TRY(vx_gpu_round_launch(&round, &why));
 *   if (vx_gpu_round_wants_places(&round)) {
 *       (the lane's event `told` has happened)
 *       vx_gpu_round_ask(&round, batch);
 *       (every item that has asked is placed)
 *   }
 *   VX_TRY(vx_gpu_round_outputs(&round, &why));
 *   (the lane's end has happened, and `made` if it ends beside; or waiting failed)
 *   vx_gpu_round_finish(&round, status, &why);
 *
 * Owner    the caller's struct; everything in it is borrowed.
 * Thread   device.
 * Limits   VX_BATCH_ITEMS_MAX members; the places must fit in `block`.
 * Fails    launch: as vx_kernel_launch.  finish: in each member's status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_H
#define VX_ENGINE_GPU_ROUND_H

#include "engine/gpu/geometry/geometry_store.h"
#include "engine/gpu/geometry/levels.h"
#include "engine/gpu/model/model_launch.h"
#include "engine/gpu/model/model_load.h"
#include "engine/gpu/run/lane.h"

struct vx_cpu;
struct vx_geometry_cache;

/* What is kept for brief batches, so that one finds room beside a batch of all that others may have.
 * How much they need was not measured: it is a part of the default that nobody misses.  A block of
 * less than VX_GPU_BRIEF_PARTS times as much keeps nothing. */
#define VX_GPU_BRIEF_BYTES ((size_t)64 << 20)
#define VX_GPU_BRIEF_PARTS 16

/* What the rounds of all lanes share. */
struct vx_gpu_room {
    struct vx_gpu *gpu;
    struct vx_gpu_store *store;
    struct vx_gpu_reach host; /* the memory of requests, if kernels reach it */
    u8 *block; /* of all rounds: one lane uses its beginning, the other its end */
    size_t bytes, used_max;
    size_t usual; /* all but what is kept for brief batches: the most that others take */
    /* To find bad coordinates for the error. */
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
};

struct vx_gpu_member {
    struct vx_item *item;
    bool apart;                   /* must not use the store */
    struct vx_gpu_geometry *kept; /* held in the store; NULL = it is in the block */
    bool built, compared;         /* in this round */
    bool known; /* with stages: `kept` was there, or another member makes it */
    bool again; /* out: run it in another round, apart */
};
/* The sets of a round's members that are made in it; request r is member of[r]. */
struct vx_gpu_round_levels {
    struct vx_gpu_levels levels;
    i32 of[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_index indices[VX_BATCH_ITEMS_MAX];
    i64 bounds[VX_BATCH_ITEMS_MAX * VX_SETS_MAX];
    i32 shapes[VX_BATCH_ITEMS_MAX * VX_SETS_MAX][3];
    struct vx_brick_set sets[VX_BATCH_ITEMS_MAX * VX_SETS_MAX];
    struct vx_gpu_logits logits[VX_SETS_MAX];
};
struct vx_gpu_round {
    struct vx_gpu_room *room;
    struct vx_gpu_lane *lane;
    struct vx_gpu_lane *other; /* may still write geometries that this round uses */
    struct vx_model *model; /* its places are this round's until launch returns, or until
                             * outputs does if no member wants places */
    struct vx_gpu_member members[VX_BATCH_ITEMS_MAX];
    i32 members_count;
    /* (members_count, the plan's sets): rows, or before sizes are read the most. */
    i64 rows[VX_BATCH_ITEMS_MAX * VX_SETS_MAX];
    struct vx_gpu_round_levels made; /* requests_count 0: none is made in this round */
    i32 stage; /* with stages: that of the sets whose sizes are awaited or were read last */
    bool sorted[VX_LAYERS_MAX]; /* with stages: row orders that are there, as in places */
    struct vx_gpu_densities densities; /* that it is launched for (round_fills.h) */
    bool ends_beside; /* it ends when the lane's event `made` has happened, too */
    /* From launch to outputs. */
    struct vx_gpu_forward forward;
    struct vx_gpu_places places; /* of a round that waits, forward has them: that wants
                                  * places, or has stages */
    u8 *block;                   /* device memory of this round */
    size_t bytes;                /* of block */
    i64 device_ns;               /* out: device time of the round */
    /* Nanoseconds from the mark before to each; [0] is not used.  Those before times_count have been
     * read. */
    i64 times[VX_GPU_MARKS_COUNT];
    i32 times_count;
};

/* Finds or makes the members' geometries in the store, and holds them.  If a member
 * cannot have one, its status is the reason, *refused is true, and nothing is held. */
void vx_gpu_round_hold(struct vx_gpu_round *round, bool *refused);
/* True if the sizes of the members' sets must be computed first.  If false, they are in
 * round->rows. */
bool vx_gpu_round_sizes(struct vx_gpu_round *round);
/* Puts the making of sets on the lane's stream, up to the event `sized`; fails as launch. */
VX_MUST_USE vx_status vx_gpu_round_sizes_launch(struct vx_gpu_round *round,
                                                struct vx_why *why);
/* Reads the sizes into round->rows.  If a member has bad coordinates or too many voxels on
 * a set, its status is the reason or it gets `again`, *refused is true, and nothing is
 * held. */
void vx_gpu_round_sizes_read(struct vx_gpu_round *round, bool *refused);
/* Without stages: puts the round, up to its layers, on the lane's stream.  After a failure, part of it may be there: wait
 * for the stream, then finish. */
VX_MUST_USE vx_status vx_gpu_round_launch(struct vx_gpu_round *round, struct vx_why *why);
/* True if a member asks for the places of outputs (vx_item.asks). */
bool vx_gpu_round_wants_places(const struct vx_gpu_round *round);
/* Fills the rows of those members, and asks (vx_item_ask); but not for one that must run
 * again, or has failed.  A member with a voxel outside of a dense output fails here. */
void vx_gpu_round_ask(struct vx_gpu_round *round, struct vx_batch *batch);
/* Puts the outputs and the mark END on the lane's stream; fails as launch. */
VX_MUST_USE vx_status vx_gpu_round_outputs(struct vx_gpu_round *round,
                                           struct vx_why *why);
/* When all of it is on the stream: reads the times of what has passed, so that the end of the round need
 * not.  A time takes the driver 3 us (H200). */
VX_MUST_USE vx_status vx_gpu_round_look(struct vx_gpu_round *round, struct vx_why *why);
/* Answers every member and drops all geometries.  `status` is that of launch or wait. */
void vx_gpu_round_finish(struct vx_gpu_round *round, vx_status status,
                         const struct vx_why *why);

#endif
