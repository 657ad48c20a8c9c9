/* round - some requests of one batch, computed together: what is launched at once, and
 * what is made of it when the device has ended.
 *
 * Members look their geometries up (the store), build those that are not there, and join
 * them when there are several; then features, layers and outputs run over the rows of all.
 * The host waits for nothing between the first copy and the end: a geometry that the store
 * has is used before it is known that its coordinates are the member's, and a member whose
 * coordinates are not answers `again`.
 *
 *   VX_TRY(vx_gpu_round_hold(&round, &refused));     geometries; some may be refused
 *   VX_TRY(vx_gpu_round_launch(&round, &why));
 *   (the lane's end has happened, or waiting for it failed)
 *   vx_gpu_round_finish(&round, status, &why);
 *
 * Owner    the caller's struct; everything in it is borrowed.
 * Thread   device.
 * Limits   VX_BATCH_ITEMS_MAX members; places that fit the memory that `block` begins.
 * Fails    launch: as vx_kernel_launch.  finish: in each member's status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ROUND_H
#define VX_ENGINE_GPU_ROUND_H

#include "engine/gpu/geometry_store.h"
#include "engine/gpu/lane.h"
#include "engine/gpu/model_launch.h"
#include "engine/gpu/model_load.h"

struct vx_cpu;
struct vx_geometry_cache;

/* What the rounds of all lanes share. */
struct vx_gpu_room {
    struct vx_gpu *gpu;
    struct vx_gpu_store *store;
    u8 *block; /* of all rounds: one from its beginning, one from its end */
    size_t bytes, used_max;
    /* For the sentences about bad coordinates. */
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
};

struct vx_gpu_member {
    struct vx_item *item;
    bool apart;                   /* has to do without the store */
    struct vx_gpu_geometry *kept; /* in the store, held; NULL = in the block */
    bool built, compared;         /* in this round */
    bool again;                   /* out: run it apart, another round */
};
struct vx_gpu_round {
    struct vx_gpu_room *room;
    struct vx_gpu_lane *lane;
    struct vx_gpu_lane *other; /* on which geometries may be on their way */
    struct vx_model *model;    /* its places are this round's until launch returns */
    struct vx_gpu_member members[VX_BATCH_ITEMS_MAX];
    i32 members_count;
    u8 *block;     /* device memory of this round */
    size_t bytes;  /* of it */
    i64 device_ns; /* out: that the device was at it */
};

/* Holds the members' geometries, or makes them.  A member that cannot have one carries the
 * reason in its status; then nothing is held and *refused is true. */
void vx_gpu_round_hold(struct vx_gpu_round *round, bool *refused);
/* Puts all on the lane's stream.  After a failure part of it may be there: wait, finish. */
VX_MUST_USE vx_status vx_gpu_round_launch(struct vx_gpu_round *round, struct vx_why *why);
/* `status`: of launch or wait.  Answers every member, lets go of all that is held. */
void vx_gpu_round_finish(struct vx_gpu_round *round, vx_status status,
                         const struct vx_why *why);

#endif
