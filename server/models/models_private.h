/* models_private - what the files of models share; no other file includes it.
 *
 *   models.c          instances and their states, as the listing asks for them
 *   models_workers.c  messages to workers and from them
 *   models_retry.c    loads whose worker died or whose device refused, and when they are retried
 *   models_follow.c   versions that serve and whose files changed while a worker was away
 *   models_wanted.c   model_control: which models are wanted, which clients wait for them
 *
 * Owner    the table is the front's, through models.h.
 * Thread   loop.
 * Limits   those of models.h.
 * Fails    as models.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_MODELS_PRIVATE_H
#define VX_SERVER_MODELS_PRIVATE_H

#include "server/models/models.h"
#include "server/models/placement.h"
#include "server/sched/instance_set.h"

/* For each instance: its load. */
struct vx_model_load {
    u64 id;     /* of this load: a late message about an earlier one has another */
    u32 placed; /* bit per worker that is to have it */
    u32 asked; /* bit per worker whose LOAD is to be sent, or was sent and not answered */
    u32 retry; /* bit per worker on which a load failed (below): retried at retry_ns */
    u32 had;   /* bit per worker that has loaded it once */
    u64 ask;   /* order of asking among all loads: each worker loads in this order */
    u64 network, weights; /* fingerprints in its entry: to tell which file has changed */
    u64 changed; /* the fingerprint of other files that the last poll saw; 0 = none */
    i64 weights_bytes; /* of the file: used by placement until a worker reports more */
    /* Consecutive loads that ended by the worker's death, or were refused by the device of a
     * worker that has had it: while no worker had it, and of each worker. */
    i32 failures, worker_failures[VX_WORKERS_MAX];
    i64 retry_ns[VX_WORKERS_MAX];
    u32 refused; /* bit per worker that answered LOAD with an error and is still up */
    struct vx_why refusal; /* why the first of them did */
    i32 notes_by; /* one plus the worker that logs notes on the files; 0 = none yet */
    /* When a worker found other files than those that it is to have, no worker has it, and its
     * requests wait for a listing: they are not lost where the new files serve them.  0 = no. */
    i64 stale_ns;
    bool follows;  /* other files than it served: no worker has loaded them yet */
    bool failed;   /* it failed, and that was logged */
    bool served;   /* it was READY: its end is logged */
    bool replaced; /* a newer load of its version became READY: so says its end */
    bool listed;   /* seen in the listing that is being compared */
};

enum vx_models_mode { VX_MODELS_ALL, VX_MODELS_POLL, VX_MODELS_EXPLICIT };

/* A client that asked for a load or an unload and has not been told how it ended. */
struct vx_models_waiter {
    void *waiter; /* NULL: the place is free */
    bool load;    /* else an unload */
    bool listed;  /* load: a listing begun after the request has been compared */
    bool no_row;  /* load: one of the versions found no free instance */
    i64 asked_ns;
    u64 load_id; /* unload: it does not wait for instances of later loads */
    char name[VX_NAME_BYTES];
};

struct vx_models {
    struct vx_models_options options;
    enum vx_models_mode mode;
    bool batching_off, stopped;
    u64 load_id, asks;
    struct vx_model_load loads[VX_INSTANCES_MAX];
    /* LOAD was sent to the worker, and no LOADED has come. */
    struct vx_instance_set loading[VX_WORKERS_MAX];
    i32 reading[VX_WORKERS_MAX]; /* the one whose files it reads now; -1 */
    i64 retry_look_ns;           /* when retries are checked next */
    u32 useless; /* bit per worker that was ended as useless and has loaded nothing since */
    struct vx_placement placement;
    i64 polled_ns;
    struct vx_message_load load; /* the one that is being sent: 4 KiB, its path */
    bool short_of_rows;          /* a version of the listing found no free instance */
    bool row_freed;              /* an instance was freed since then */
    char kept[VX_WHY_BYTES];     /* what the log has on versions that are kept */
    bool wish_all; /* load_model *: want all models of the first whole listing */
    i32 wishes_count;
    char wishes[VX_INSTANCES_MAX][VX_NAME_BYTES];
    bool wish_named[VX_INSTANCES_MAX]; /* load_model names it: it is missed when absent */
    bool wish_start
        [VX_INSTANCES_MAX]; /* load_model asks for it, by name or *; else a client */
    bool wish_new[VX_INSTANCES_MAX]; /* asked for, and no listing has had it yet */
    i64 wish_ns[VX_INSTANCES_MAX];   /* when it was last asked for */
    struct vx_models_waiter waiters[VX_MODELS_WAITERS_MAX];
    struct vx_repository_listing listing;
};

static inline struct vx_instance *vx_models_row(const struct vx_models *models,
                                                i32 instance)
{
    return vx_registry_row(models->options.registry, instance);
}

/* Instances from here on were never used. */
static inline i32 vx_models_end(const struct vx_models *models)
{
    return vx_registry_end(models->options.registry);
}

/* The instance is no longer picked; step frees it once none of its jobs is left. */
void vx_models_retire(struct vx_models *models, i32 instance);
void vx_models_fail(struct vx_models *models, i32 instance, const char *text);
/* Tells the most voxels that a model serves in one request. */
void vx_models_tell_most(const struct vx_models *models);
/* Whether it would take the place of an instance that serves. */
bool vx_models_replaces(const struct vx_models *models, i32 instance);

/* The workers on which a model that gets an instance now is placed, as bits. */
u32 vx_models_place(const struct vx_models *models, const char *name);
/* Asks all workers that the instance is placed on and that are up to load it.  A worker
 * gets LOAD when it has read the models that it was asked for before. */
void vx_models_ask_workers(struct vx_models *models, i32 instance);
/* Sends the next LOAD to a worker that reads no model. */
void vx_models_feed(struct vx_models *models, i32 worker);
/* Drops requests that can only run on workers that will not have the instance. */
void vx_models_strand(struct vx_models *models, i32 instance);
/* A worker found other files than the instance's.  True: it follows them, now or when a listing has
 * seen them, and its requests wait. */
bool vx_models_on_stale(struct vx_models *models, i32 instance);
/* Of a listing: what waits for it follows the files that it has, or fails. */
void vx_models_follow_files(struct vx_models *models, bool readable);
/* While no worker has the instance: sets its reason, with why its first worker ended. */
void vx_models_say_waiting(struct vx_models *models, i32 instance);
/* Whether workers should have the instance. */
bool vx_models_is_wanted(const struct vx_models *models, i32 instance);

/* This many consecutive failures of one load are not an accident: no request waits for that
 * worker any more, and clients that asked for the load are told that it failed.  A job on the
 * worker cannot have caused so many deaths: it is given up after fewer (VX_JOB_DEATHS_MAX). */
#define VX_LOAD_FAILURES_MAX 3
static inline bool vx_models_is_spared(const struct vx_model_load *load, i32 worker)
{
    return load->worker_failures[worker] >= VX_LOAD_FAILURES_MAX;
}
/* The worker died while it was loading the instance. */
void vx_models_on_load_death(struct vx_models *models, i32 instance, i32 worker);
/* The device of a worker that has had the instance refused it; `why` says why. */
void vx_models_on_load_refused(struct vx_models *models, i32 instance, i32 worker,
                               const struct vx_why *why);
/* Of the worker's suspects, the one to load now; -1 = none. */
i32 vx_models_retry_due(const struct vx_models *models, i32 worker);
/* A person asks: retries it now on all workers that are up; resets its failures. */
void vx_models_retry_now(struct vx_models *models, i32 instance);
/* Sends LOAD for suspects that are due. */
void vx_models_retry_step(struct vx_models *models);
/* Cancels the instance's retries and each LOAD that was not sent yet. */
void vx_models_take_back(struct vx_models *models, i32 instance);
/* No batch of the instance starts any more, and workers unload it. */
void vx_models_release(struct vx_models *models, i32 instance);

/* Whether the model has an instance that is not being unloaded. */
bool vx_models_have(const struct vx_models *models, const char *name);
/* Whether a client asked for the model, and not load_model. */
bool vx_models_is_by_client(const struct vx_models *models, const char *name);
/* Whether a listed model should be loaded. */
bool vx_models_wants(const struct vx_models *models, const char *name);
/* Whether this is the first listing after a client asked for the model: then a failed
 * load is tried again. */
bool vx_models_is_fresh_wish(const struct vx_models *models, const char *name);
/* Before and after the instances follow a new listing. */
void vx_models_wanted_before(struct vx_models *models);
void vx_models_wanted_after(struct vx_models *models, bool readable);
/* Sets what the listing has for people: which models are not wanted, and which are missed
 * because the repository has no version of them. */
void vx_models_wanted_mark(struct vx_models *models);
void vx_models_wanted_no_row(struct vx_models *models, const char *name);
/* RESOURCE_EXHAUSTED, and what takes the rows. */
vx_status vx_models_say_full(const struct vx_models *models, const char *name,
                             struct vx_why *why);
void vx_models_wanted_step(struct vx_models *models);

#endif
