/* models - brings the registry's rows in line with the repository and with the workers.
 *
 * The repository says what should be there, workers say what they have loaded; this
 * decides which LOAD and UNLOAD to send and moves rows through their states (registry.h).
 * A changed model is loaded beside the old one, takes its place in one step when every
 * worker has it, and the old one is unloaded when its last request has been answered.  A
 * load that fails changes nothing for those that serve.
 *
 *   vx_models_on_listing(models, &listing);      the repository was scanned
 *   vx_models_on_worker_up(models, w);           it gets everything
 *   vx_models_step(models);                      once per turn: unload what is done with
 *
 * Owner    the front; rows belong to the registry.
 * Thread   loop.
 * Limits   VX_INSTANCES_MAX rows; a version beyond them is logged and left out.
 * Fails    never; what goes wrong is a row's state and reason, and a line in the log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_MODELS_H
#define VX_SERVER_MODELS_H

#include "server/channel.h"
#include "server/registry.h"
#include "server/repository.h"
#include "server/workers.h"

struct vx_models;

struct vx_models_options {
    const char *repository; /* path; outlives the models */
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_workers **workers; /* set before the first worker is up */
    void *context;
    /* A waiting job whose instance can no longer run anywhere; state NEW. */
    void (*on_lost)(void *context, struct vx_job *job);
};

VX_MUST_USE vx_status vx_models_open(const struct vx_models_options *options,
                                     struct vx_models **models);
void vx_models_close(struct vx_models **models);

void vx_models_on_listing(struct vx_models *models,
                          const struct vx_repository_listing *listing);
void vx_models_on_worker_up(struct vx_models *models, i32 worker);
void vx_models_on_worker_down(struct vx_models *models, i32 worker);
/* PROGRESS and LOADED. */
void vx_models_on_message(struct vx_models *models, i32 worker,
                          const union vx_message *message);
void vx_models_step(struct vx_models *models);

#endif
