/* infer_rig - inferences for which the test plays the workers and the clients: infer.c
 * and its siblings between a real scheduler, registry, arena, table of geometries and
 * table of regions.
 *
 *   rig_set_up();
 *   struct vx_call *call = rig_call(0, 10);
 *   vx_infer_on_call(&rig.infer, call);
 *   vx_infer_dispatch(&rig.infer);           rig.runs[0] is what the worker was told
 *   rig_done(&rig.runs[0]);                  the worker's answer, all well; the test may change it
 *   rig_end(&rig.runs[0]);                   rig.answers[0] is what the client was told
 *
 * vx_workers_* and what answers calls are the rig's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_INFER_RIG_H
#define VX_TESTS_INFER_RIG_H

#include "server/infer/infer_private.h"

enum { RIG_WORKERS = 2, RIG_CALLS = 8, RIG_WORDS = 32 };

struct rig_run {
    i32 worker;
    struct vx_message_run run;
};

struct rig_places {
    i32 worker;
    struct vx_message_places places;
};

struct rig_answer {
    struct vx_call *call;
    enum vx_code code;
    struct vx_why why;     /* when it failed */
    struct vx_reply reply; /* otherwise */
    struct vx_place outputs[VX_REQUEST_OUTPUTS_MAX];
    i32 coming; /* the last vx_rpc_answers_coming */
};

struct rig {
    struct vx_infer infer;
    struct vx_config config;
    struct vx_workers *workers; /* for the regions only; not a real one */
    struct vx_worker_info infos[RIG_WORKERS];
    u32 model_workers; /* what vx_models_workers returns */
    bool deaf;         /* workers accept no message */
    i32 killed;        /* a bit for each killed worker */
    i32 coming;
    u64 took,
        gave; /* bytes of the arena that were counted for connections, or no longer */
    struct rig_run runs[RIG_WORDS];
    struct rig_answer answers[RIG_WORDS];
    struct rig_places places[RIG_WORDS];
    i32 runs_count, answers_count, places_count;
    struct vx_call calls[RIG_CALLS];
    i64 counted[RIG_CALLS]; /* of the arena, for the call now; its end asserts it */
    bool beyond;            /* nobody may take more of the arena */
};
extern struct rig rig;
/* The DONE that rig_end passes on. */
extern struct vx_message_done rig_said;

/* Model "conv", features of 4 channels, outputs "normals" (f32 x 3) and "score" (f16); both workers
 * are up and have it.  A batch takes 4 requests of 1000 voxels together. */
void rig_set_up(void);
void rig_tear_down(void);
struct vx_signature *rig_signature(void);

/* Prepares call number `i`: its inputs in slots, geometry number i + 1, both outputs. */
struct vx_call *rig_call(i32 i, i64 voxels);
/* The same with the coords_ref of geometry number `geometry`, without coordinates. */
struct vx_call *rig_call_named(i32 i, i64 voxels, u64 geometry);
void rig_drop_slots(struct vx_call *call);
/* The call arrives and is sent to a worker, alone in its batch. */
struct rig_run *rig_start(struct vx_call *call);

void rig_done(const struct rig_run *run);
void rig_end(const struct rig_run *run);
/* The worker's process has died, and a new one has loaded the model. */
void rig_restart(i32 worker);

struct rig_answer *rig_answer_of(const struct vx_call *call);
/* Returns the call's answer; fails the test when there is none or it has another code. */
struct rig_answer *rig_expect(const struct vx_call *call, enum vx_code code);
u64 rig_used(void); /* of the arena, in bytes */
/* The worker has kept this geometry of 10 voxels, 270 pairs and 41 voxels of all sets. */
void rig_kept(struct vx_coords_ref coords_ref, i32 worker);

#endif
