/* registry - the models and versions this server has, by name, and what became of each.
 *
 * One row (instance) per loaded version.  Rows are the loop's; the workers hold the
 * weights.  A request names a model and perhaps a version and gets a row, or the sentence
 * stock clients know.
 *
 *   VX_TRY(vx_registry_pick(registry, "normals", 0, &why, &instance));
 *
 * States, with the names Triton gives them:
 *   FREE -> LOADING      the repository has it, and it is wanted
 *   LOADING -> READY     every worker that is to have it and is up has it, warm
 *   LOADING -> UNAVAILABLE   a worker refused it; `reason` says why
 *   READY -> UNAVAILABLE     the last worker that had it restarted and could not load it
 *   READY -> UNLOADING   the repository no longer has it, a newer load replaced it, or a
 *                        client unloads it
 *   UNLOADING -> FREE    its last request was answered
 *   UNAVAILABLE -> FREE  the files changed, or a person had the repository read again or
 *                        the model loaded; what is there is tried anew
 *
 * Owner    the front; rows are borrowed until the next turn of the loop.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX rows.
 * Fails    pick: NOT_FOUND, UNAVAILABLE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REGISTRY_H
#define VX_SERVER_REGISTRY_H

#include "engine/engine.h"
#include "server/repository.h"
#include "server/sched.h"

enum vx_instance_state {
    VX_INSTANCE_FREE,
    VX_INSTANCE_LOADING,
    VX_INSTANCE_READY,
    VX_INSTANCE_UNLOADING,
    VX_INSTANCE_UNAVAILABLE,
};

/* A count and the nanoseconds spent, as ModelStatistics wants them. */
struct vx_duration {
    u64 count;
    u64 ns;
};
/* Batches of one size. */
struct vx_batch_stats {
    struct vx_duration compute_input, compute_infer, compute_output;
};
/* As Triton defines them: success and fail last from the whole message to the answer; the
 * rest is of requests answered well, each of which books all of its batch's time.  So
 * success is queue + compute_input + compute_infer + compute_output and our own overhead. */
struct vx_instance_stats {
    u64 inference_count;   /* requests answered well: one voxel grid is one inference */
    u64 execution_count;   /* device batches that answered a request well */
    u64 last_inference_ms; /* since 1970 */
    u64 voxels;            /* in requests answered well */
    u64 pairs;
    struct vx_duration success, fail;
    struct vx_duration queue;          /* until its device began with it */
    struct vx_duration compute_input;  /* features copied to the device and converted */
    struct vx_duration compute_infer;  /* geometry and layers */
    struct vx_duration compute_output; /* answers converted and copied back */
    struct vx_duration geometry_hit,
        geometry_miss;               /* keys and maps; in compute_infer too */
    u64 rejected, cancelled, broken; /* of fail: a limit; its client; faults of ours */
    struct vx_batch_stats batches[VX_BATCH_ITEMS_MAX]; /* by requests in it, less one */
};

struct vx_instance {
    enum vx_instance_state state;
    char name[VX_NAME_BYTES];
    i64 version;
    u64 fingerprint; /* of its entry in the listing: another one is a change on disk */
    char reason[VX_WHY_BYTES];     /* of UNAVAILABLE, or the progress of LOADING ("3 of 12
                                      layers") */
    struct vx_signature signature; /* valid from READY on */
    u32 workers_loaded;            /* bit per worker that has it */
    i64 weights_bytes[VX_WORKERS_MAX]; /* on those: kinds of devices differ */
    i64 load_started_ns, load_ns;      /* how long the (last) load took */
    struct vx_instance_stats stats;
};

/* READY, and a worker that is up has it: a request would run right now. */
static inline bool vx_instance_serves(const struct vx_instance *row)
{
    return row->state == VX_INSTANCE_READY && row->workers_loaded;
}

struct vx_registry;

VX_MUST_USE vx_status vx_registry_open(struct vx_registry **registry);
void vx_registry_close(struct vx_registry **registry);

/* What there is in the repository, borrowed until the next call: a name without a row is then
 * answered with why it has none, and is a model that is not ready.  NULL: nothing is known. */
void vx_registry_explain(struct vx_registry *registry,
                         const struct vx_repository_listing *listing);
const struct vx_repository_listing *
vx_registry_listing(const struct vx_registry *registry);

/* One beyond the last row that ever was used: all others are FREE. */
i32 vx_registry_end(const struct vx_registry *registry);
/* Row by number; state FREE is legal. */
struct vx_instance *vx_registry_row(struct vx_registry *registry, i32 instance);
/* Takes a free row and makes it LOADING.  -1 when there is none. */
i32 vx_registry_add(struct vx_registry *registry, const char *name, i64 version,
                    u64 fingerprint);
/* The row for an inference: `version` 0 = the highest that is READY. */
VX_MUST_USE vx_status vx_registry_pick(struct vx_registry *registry, const char *name,
                                       i64 version, struct vx_why *why, i32 *instance);
/* The row for a question about a model, in any state but FREE, READY first, highest
 * first; and what "no such model" means to stock clients. */
VX_MUST_USE vx_status vx_registry_find(struct vx_registry *registry, const char *name,
                                       i64 version, struct vx_why *why, i32 *instance);
/* Rows that are not FREE, ordered by name then version; call with *cursor = 0 first. NULL
 * at the end. */
struct vx_instance *vx_registry_next(struct vx_registry *registry, i32 *cursor);
/* True when something is there and all of it is READY (UNAVAILABLE rows, and versions without
 * a row, do not hold readiness back once an older version of the same name serves). */
bool vx_registry_all_ready(struct vx_registry *registry);

#endif
