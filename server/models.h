/* models - brings the registry's rows in line with the repository and with the workers.
 *
 * The repository says what is there, model_control which of it is wanted, placement where,
 * and workers say what they have loaded; this decides which LOAD and UNLOAD to send and
 * moves rows through their states (registry.h).  A changed model is loaded beside the old
 * one, takes its place in one step when every worker that is to have it and is up has it,
 * and the old one is unloaded when its last request has been answered.  A load that fails
 * changes nothing for those that serve.
 *
 *   VX_TRY(vx_models_start(models, &why));       once the workers are known
 *   vx_models_on_listing(models, &listing);      the repository was scanned
 *   vx_models_on_worker_up(models, w);           it gets everything that is placed on it
 *   vx_models_step(models);                      once per turn: unload what is done with
 *   vx_models_ask_load(models, name, call, &why);    a client says what it wants
 *
 * Workers of unlike size: any of a model's workers may get any of its requests, so what is
 * admitted, and what a batch holds, is what fits the smallest of them.
 *
 * A worker reads one model at a time and gets the next LOAD when that one is read: however
 * long models warm up, those behind them are read and served.  What a worker was loading when
 * it died is suspected, whoever killed it: it is tried there again, for ever, at growing
 * intervals (models_retry.c), behind what nobody suspects and alone, so that the next death
 * names its cause.  What fails by itself is UNAVAILABLE and is not tried again until somebody
 * asks (SIGHUP, or a client's load) or its files change.
 *
 * Owner    the front; rows belong to the registry.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX rows; a version beyond them waits for a row, which the log, the
 *          index and, when it is a model's only one, readiness say.
 *          VX_MODELS_WAITERS_MAX loads and unloads that somebody waits for.
 * Fails    start: INVALID_ARGUMENT for a setting.  ask: as the protocol has it.  Else never;
 *          what goes wrong is a row's state and reason, and a line in the log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_MODELS_H
#define VX_SERVER_MODELS_H

#include "server/channel.h"
#include "server/config.h"
#include "server/registry.h"
#include "server/repository.h"
#include "server/workers.h"

/* Loads take seconds to minutes and come from people and deployment scripts. */
#define VX_MODELS_WAITERS_MAX 32

struct vx_models;

struct vx_models_options {
    const char *repository;         /* path; outlives the models */
    const struct vx_config *config; /* for start; outlives the models */
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_workers **workers; /* set before the first worker is up */
    i64 (*now_ns)(void);         /* of retries; NULL = the clock */
    void *context;
    /* A waiting job whose instance can no longer run anywhere; state NEW. */
    void (*on_lost)(void *context, struct vx_job *job);
    /* Looks at the repository without waiting (vx_scanner_look); the listing comes to
     * vx_models_on_listing.  NULL: nothing is looked at but what the front looks at. */
    void (*look)(void *context);
    /* The load or unload that `waiter` asked for has ended. */
    void (*on_ended)(void *context, void *waiter, vx_status status,
                     const struct vx_why *why);
};

VX_MUST_USE vx_status vx_models_open(const struct vx_models_options *options,
                                     struct vx_models **models);
/* Reads model_control, load_model, placement and batching; the workers are there, none is
 * up.  Without it, all models are loaded on all workers. */
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

/* Workers that serve the row, or will when they are up or have loaded it, as bits: one that
 * is not in it is no use to wait for, such as one that could not open its device, or died of
 * the row, again and again. */
u32 vx_models_workers(const struct vx_models *models, i32 instance);

/* model_control explicit: OK, and on_ended(waiter) comes later; or why not.  A load has
 * ended when no version of the model is loading any more, an unload when its last request
 * was answered and its rows are free. */
VX_MUST_USE vx_status vx_models_ask_load(struct vx_models *models, const char *name,
                                         void *waiter, struct vx_why *why);
VX_MUST_USE vx_status vx_models_ask_unload(struct vx_models *models, const char *name,
                                           void *waiter, struct vx_why *why);
/* Who asked has left: true, and it is not told any more; the load goes on. */
bool vx_models_forget(struct vx_models *models, const void *waiter);
/* The server drains: everybody who waits is told so, and nobody may ask any more. */
void vx_models_stop(struct vx_models *models);

/* What is odd about the repository, or why no model is there, for people; "" = nothing. */
const char *vx_models_problem(const struct vx_models *models);

/* The repository as it was last seen. */
const struct vx_repository_listing *vx_models_listing(const struct vx_models *models);

#endif
