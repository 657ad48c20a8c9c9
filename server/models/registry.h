/* registry - the models and versions that the server has, by name, and the state of each.
 *
 * One instance per loaded version.  Instances belong to the loop; the workers hold the
 * weights.  A request names a model and perhaps a version and gets an instance, or the
 * error sentence that stock clients know.
 *
 *   VX_TRY(vx_registry_pick(registry, "normals", 0, &why, &instance));
 *
 * States, with the names that Triton gives them:
 *   FREE      -> LOADING       the repository has it, and it is wanted
 *   LOADING   -> READY         every worker that it is placed on and that is up has it
 *   LOADING   -> UNAVAILABLE   a worker refused it; `reason` says why
 *   READY     -> LOADING       no worker has it: several in a row died while loading it
 *   READY     -> UNAVAILABLE   the last worker that had it restarted and cannot load it
 *   not FREE  -> UNLOADING     the repository no longer has it, a newer load replaces it,
 *                              a client unloads it, or its failed load is tried anew
 *   UNLOADING -> FREE          its last request was answered
 *
 * Owner    the front; instances are borrowed until the next iteration of the loop.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX instances.
 * Fails    pick: NOT_FOUND, UNAVAILABLE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REGISTRY_H
#define VX_SERVER_REGISTRY_H

#include "engine/signature.h"
#include "server/repository/repository.h"
#include "server/sched/sched.h"

enum vx_instance_state {
    VX_INSTANCE_FREE,
    VX_INSTANCE_LOADING,
    VX_INSTANCE_READY,
    VX_INSTANCE_UNLOADING,
    VX_INSTANCE_UNAVAILABLE,
};

/* A count and the nanoseconds spent, as in ModelStatistics. */
struct vx_duration {
    u64 count;
    u64 ns;
};
/* Batches of one size. */
struct vx_batch_stats {
    struct vx_duration compute_input, compute_infer, compute_output;
};
/* As Triton defines them.  success and fail are measured from the arrival of the whole
 * message to the answer.  The other durations are of successful requests only, and each
 * request counts the whole time of its batch.  So success is queue + compute_input +
 * compute_infer + compute_output + our own overhead. */
struct vx_instance_stats {
    u64 inference_count;   /* successful requests: one voxel grid is one inference */
    u64 execution_count;   /* device batches with at least one successful request */
    u64 last_inference_ms; /* since 1970 */
    u64 voxels;            /* of successful requests */
    u64 pairs, set_voxels; /* of all their neighbour maps; of all their sets */
    struct vx_duration success, fail;
    struct vx_duration queue;          /* until the device began with the request */
    struct vx_duration compute_input;  /* features copied to the device and converted */
    struct vx_duration compute_infer;  /* geometry and layers */
    struct vx_duration compute_output; /* answers converted and copied back */
    /* Geometry found in the cache, or built; also part of compute_infer. */
    struct vx_duration geometry_hit, geometry_miss;
    /* Parts of fail: refused by a limit, cancelled by the client, faults of our own. */
    u64 rejected, cancelled, broken;
    struct vx_batch_stats batches[VX_BATCH_ITEMS_MAX]; /* [requests in the batch - 1] */
};

struct vx_instance {
    enum vx_instance_state state;
    bool awaited; /* without it the server is not ready */
    char name[VX_NAME_BYTES];
    i64 version;
    u64 fingerprint; /* of its entry in the listing: it differs when the files changed */
    /* Why it is UNAVAILABLE, or the progress of LOADING ("3 of 12 layers"). */
    char reason[VX_WHY_BYTES];
    i64 load_done, load_total;         /* the same in numbers; total 0 = none are known */
    struct vx_signature signature;     /* valid from READY on */
    u32 workers_loaded;                /* bit per worker that has it */
    i64 weights_bytes[VX_WORKERS_MAX]; /* on each of them: kinds of devices differ */
    i64 load_started_ns, load_ns; /* when the last load began, and how long it took */
    /* Of the version, not of the instance: a reload goes on counting where the instance that
     * it replaces stopped, and both count together while that one's last requests end. */
    struct vx_instance_stats *stats;
};

/* READY, and a worker that is up has it: a request could run now. */
static inline bool vx_instance_serves(const struct vx_instance *row)
{
    return row->state == VX_INSTANCE_READY && row->workers_loaded;
}

struct vx_registry;

VX_MUST_USE vx_status vx_registry_open(struct vx_registry **registry);
void vx_registry_close(struct vx_registry **registry);

/* From now on the error for an unknown model does not list those that exist: a client may
 * know of some only. */
void vx_registry_hide_names(struct vx_registry *registry);
bool vx_registry_hides_names(const struct vx_registry *registry);

/* Sets the listing of the repository; borrowed until the next call.  With it, the error
 * for a listed model without an instance says why it has none, and such a model counts as
 * not ready.  NULL = no listing. */
void vx_registry_explain(struct vx_registry *registry,
                         const struct vx_repository_listing *listing);
const struct vx_repository_listing *
vx_registry_listing(const struct vx_registry *registry);

/* One more than the highest number ever used: instances from here on are FREE. */
i32 vx_registry_end(const struct vx_registry *registry);
/* The most voxels that an instance serves in one request; 0: none serves. */
i64 vx_registry_voxels_most(const struct vx_registry *registry);
/* The instance with this number, in any state. */
struct vx_instance *vx_registry_row(struct vx_registry *registry, i32 instance);
/* Takes a FREE instance and makes it LOADING and awaited.  -1 when there is none.  Its
 * counts are those of the version's other instance, or zeros if that has none. */
i32 vx_registry_add(struct vx_registry *registry, const char *name, i64 version,
                    u64 fingerprint);
/* The instance for an inference: `version` 0 = the highest that is READY. */
VX_MUST_USE vx_status vx_registry_pick(struct vx_registry *registry, const char *name,
                                       i64 version, struct vx_why *why, i32 *instance);
/* The instance for a query about a model, in any state but FREE: READY before others,
 * then the highest version.  The error for an unknown model is the sentence that stock
 * clients know; `why` NULL: none is made, which costs a search over all names. */
VX_MUST_USE vx_status vx_registry_find(struct vx_registry *registry, const char *name,
                                       i64 version, struct vx_why *why, i32 *instance);
/* Instances that are not FREE, ordered by name, then version, then number; call with
 * *cursor = 0 or from vx_registry_seek first.  NULL at the end.  An addition ends a walk.
 */
struct vx_instance *vx_registry_next(struct vx_registry *registry, i32 *cursor);
/* The cursor at which the instances of this version begin, if there are any. */
i32 vx_registry_seek(const struct vx_registry *registry, const char *name, i64 version);
/* True when there is a model, and all that are awaited are READY.  A version that is not
 * READY or has no instance does not count when another version of its model is READY. */
bool vx_registry_all_ready(struct vx_registry *registry);
/* The server was ready for the first time.  From now on a model of the repository without
 * an instance does not count while another model is READY: it has never served. */
void vx_registry_on_ready(struct vx_registry *registry);
bool vx_registry_was_ready(const struct vx_registry *registry);

#endif
