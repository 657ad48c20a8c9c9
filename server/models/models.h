/* models - keeps the registry in line with the repository and with the workers.
 *
 * The repository lists the models that exist, model_control selects those that are
 * wanted, placement assigns them to workers, and workers report what they have loaded.
 * This module decides which LOAD and UNLOAD to send and moves instances through their
 * states (registry.h).  A changed model is loaded beside the old one and replaces it in
 * one step, once every worker that it is placed on and that is up has loaded it.  The old
 * one is unloaded when its last request has been answered.  A load that fails changes
 * nothing for the instances that serve.
 *
 *   VX_TRY(vx_models_start(models, &why));       once the workers are known
 *   vx_models_on_listing(models, &listing);      the repository was scanned
 *   vx_models_on_worker_up(models, w);           it gets every model placed on it
 *   vx_models_step(models);                      once per iteration of the loop
 *   vx_models_ask_load(models, name, call, &why);    a client asks for a load
 *
 * Workers may differ in size, and each worker of a model may get any of its requests.  So
 * the largest request and the largest batch are those that fit the smallest of them.
 *
 * A worker reads the files of one model at a time and gets its next LOAD when they are
 * read, so that a long warm-up does not delay the models behind it.  A model that a
 * worker was loading when it died is a suspect there, whatever killed the worker.  Its
 * load is tried again on that worker for ever, at growing intervals (models_retry.c),
 * after all models that are not suspects, and alone, so that the next death names its
 * cause.  So is what a worker had and its device refuses after a restart.  Any other load that
 * fails with an error makes the instance UNAVAILABLE; it is not tried again until a person asks
 * (SIGHUP, or a client's load) or its files change.
 *
 * Owner    the front; instances belong to the registry.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX instances.  A version beyond them waits until one is free;
 *          the log, the index and, if the model has no other version, readiness report
 *          it.  VX_MODELS_WAITERS_MAX loads and unloads that clients wait for.
 * Fails    start: INVALID_ARGUMENT for a setting.  ask: as the protocol defines.  The
 *          rest never: errors become an instance's state and reason, and a line in the
 *          log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_MODELS_H
#define VX_SERVER_MODELS_H

#include "server/base/config.h"
#include "server/ipc/channel.h"
#include "server/models/registry.h"
#include "server/repository/repository.h"
#include "server/workers/workers.h"

/* Loads take seconds to minutes and come from people and deployment scripts. */
#define VX_MODELS_WAITERS_MAX 32

struct vx_models;

struct vx_models_options {
    const char *repository;         /* path; outlives the models */
    const struct vx_config *config; /* for start; outlives the models */
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_workers **workers; /* set before the first worker is up */
    i64 (*now_ns)(void);         /* the clock of retries; NULL = vx_clock_ns */
    void *context;
    /* A worker that is up, serves nothing, and has refused several times in a row what it had
     * before: its process may be damaged.  NULL: nobody minds. */
    void (*on_useless)(void *context, i32 worker);
    /* Written: the most voxels that a model serves in one request; 0: there is none.  NULL: nobody
     * asks. */
    _Atomic i64 *voxels_most;
    /* A waiting job whose instance can no longer run anywhere; state NEW. */
    void (*on_lost)(void *context, struct vx_job *job);
    /* Starts a scan of the repository (vx_scanner_look); the listing comes to
     * vx_models_on_listing.  NULL: only the front starts scans. */
    void (*look)(void *context);
    /* The load or unload that `waiter` asked for has ended. */
    void (*on_ended)(void *context, void *waiter, vx_status status,
                     const struct vx_why *why);
};

VX_MUST_USE vx_status vx_models_open(const struct vx_models_options *options,
                                     struct vx_models **models);
struct vx_placement_devices; /* placement.h */
/* What is wrong with these settings whatever the machine and the repository have. */
VX_MUST_USE vx_status vx_models_expect(const struct vx_config *config,
                                       const struct vx_placement_devices *devices,
                                       struct vx_why *why);
/* Reads model_control, load_model, placement and batching.  Call it when the workers are
 * open and none is up yet.  Without it, all models are loaded on all workers. */
VX_MUST_USE vx_status vx_models_start(struct vx_models *models, struct vx_why *why);
void vx_models_close(struct vx_models **models);

void vx_models_on_listing(struct vx_models *models,
                          const struct vx_repository_listing *listing);
void vx_models_on_worker_up(struct vx_models *models, i32 worker);
void vx_models_on_worker_down(struct vx_models *models, i32 worker);
/* PROGRESS and LOADED. */
void vx_models_on_message(struct vx_models *models, i32 worker,
                          const union vx_message *message);
void vx_models_step(struct vx_models *models);

/* Workers that serve the instance, or will serve it once they are up or have loaded it,
 * as bits.  It is no use to wait for any other: for example one that failed to open its
 * device, or died while it loaded the instance, several times in a row. */
u32 vx_models_workers(const struct vx_models *models, i32 instance);

/* For model_control explicit.  If the result is OK, on_ended(waiter) is called later.  A
 * load has ended when no version of the model is loading any more, an unload when the
 * last request was answered and the model's instances are free. */
VX_MUST_USE vx_status vx_models_ask_load(struct vx_models *models, const char *name,
                                         void *waiter, struct vx_why *why);
VX_MUST_USE vx_status vx_models_ask_unload(struct vx_models *models, const char *name,
                                           void *waiter, struct vx_why *why);
/* The waiter has left: on_ended is not called for it, and the load goes on.  False when
 * there is no such waiter. */
bool vx_models_forget(struct vx_models *models, const void *waiter);
/* The server drains: ends all waiters with UNAVAILABLE, and refuses further ones. */
void vx_models_stop(struct vx_models *models);

/* For people: what is wrong with the repository, or why no model is loaded; or "". */
const char *vx_models_problem(const struct vx_models *models);

/* The repository as it was last seen. */
const struct vx_repository_listing *vx_models_listing(const struct vx_models *models);

#endif
