/* models_private - what the files of models share; nobody else includes it.
 *
 *   models.c          rows and their states, from listing to row
 *   models_workers.c  words to workers and from them
 *   models_retry.c    loads whose worker died: who is suspected, and when it is tried again
 *   models_wanted.c   model_control: which models should be there, and who waits for them
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

#include "server/models.h"
#include "server/placement.h"
#include "server/rows.h"

/* Beside each registry row: the load under way. */
struct vx_model_load {
    u64 id;     /* of the row's load, so that a late word about an earlier one is known as
                   such */
    u32 placed; /* bit per worker that is to have it */
    u32 asked;  /* bit per worker: LOAD to be sent or sent, LOADED not yet heard */
    u32 retry;  /* bit per worker that died of it: to be asked again at retry_ns */
    u64 ask; /* when it was asked for, in asks of all rows: workers load in that order */
    u64 network, weights; /* of its entry: which of the files has changed */
    i64 weights_bytes; /* of the file: what placement counts before a worker says more */
    i32 deaths;        /* of workers that were loading it while none had it, in a row */
    i32 worker_deaths[VX_WORKERS_MAX]; /* of each one that was loading it, in a row */
    i64 retry_ns[VX_WORKERS_MAX];
    i32 notes_by; /* the worker that logs what is odd about the files, plus one; 0 = none
                     yet */
    bool failed;  /* and it was said so */
    bool listed;  /* seen in the listing that is being compared */
};

enum vx_models_mode { VX_MODELS_ALL, VX_MODELS_POLL, VX_MODELS_EXPLICIT };

/* Somebody who asked for a load or an unload, and has not been told how it ended. */
struct vx_models_waiter {
    void *waiter; /* NULL: the place is free */
    bool load;    /* else an unload */
    bool listed;  /* a load: a listing begun after it was asked for has been compared */
    bool no_row;  /* a load: a version of it found no free row */
    i64 asked_ns;
    u64 load_id; /* an unload: rows of later loads are not its own */
    char name[VX_NAME_BYTES];
};

struct vx_models {
    struct vx_models_options options;
    enum vx_models_mode mode;
    bool batching_off, stopped;
    u64 load_id, asks;
    struct vx_model_load loads[VX_INSTANCES_MAX];
    struct vx_rows loading[VX_WORKERS_MAX]; /* whose LOAD is with the worker */
    i32 reading[VX_WORKERS_MAX];            /* the one of these that it reads; -1 */
    i64 retry_look_ns;                      /* when retries are looked at again */
    struct vx_placement placement;
    i64 polled_ns;
    bool short_of_rows; /* a version of the listing has no row */
    bool row_freed;     /* since then */
    bool wish_all;      /* explicit: the first complete listing's models are wished for */
    i32 wishes_count;
    char wishes[VX_INSTANCES_MAX][VX_NAME_BYTES];
    struct vx_models_waiter waiters[VX_MODELS_WAITERS_MAX];
    struct vx_repository_listing listing;
};

static inline struct vx_instance *vx_models_row(const struct vx_models *models,
                                                i32 instance)
{
    return vx_registry_row(models->options.registry, instance);
}

/* Rows beyond were never used, and need not be looked at. */
static inline i32 vx_models_end(const struct vx_models *models)
{
    return vx_registry_end(models->options.registry);
}

/* The row stops being picked; step frees it once nothing of it is under way. */
void vx_models_retire(struct vx_models *models, i32 instance);
void vx_models_fail(struct vx_models *models, i32 instance, const char *text);

/* Which workers a model that gets a row now is to have. */
u32 vx_models_place(const struct vx_models *models, const char *name);
/* LOAD for every worker that is to have the row and is up, as soon as its turn comes. */
void vx_models_ask_workers(struct vx_models *models, i32 instance);
/* The next LOAD for a worker that reads none. */
void vx_models_feed(struct vx_models *models, i32 worker);
/* Requests that wait for workers which will not have the row, since their memory is there,
 * wait in vain. */
void vx_models_strand(struct vx_models *models, i32 instance);
/* While no worker that is to have the row is up: the row's reason is what keeps them. */
void vx_models_say_waiting(struct vx_models *models, i32 instance);
/* Whether workers should have the row. */
bool vx_models_is_wanted(const struct vx_models *models, i32 instance);

/* So many deaths of one load in a row are no accident: nobody waits for that worker any more,
 * and the load is said to have failed to who asked for it.  Batches that the worker had are not
 * blamed instead: a job takes part in fewer deaths than these (VX_JOB_DEATHS_MAX). */
#define VX_LOAD_DEATHS_MAX 3
static inline bool vx_models_is_spared(const struct vx_model_load *load, i32 worker)
{
    return load->worker_deaths[worker] >= VX_LOAD_DEATHS_MAX;
}
/* The worker died while it was loading the row. */
void vx_models_on_load_death(struct vx_models *models, i32 instance, i32 worker);
/* Of the rows that the worker died of, the one that is to be tried there now; -1 = none is. */
i32 vx_models_retry_due(const struct vx_models *models, i32 worker);
/* Somebody asks: what workers died of is tried again now, as if nothing had been. */
void vx_models_retry_now(struct vx_models *models, i32 instance);
/* Sends what has become due. */
void vx_models_retry_step(struct vx_models *models);
/* Asks that were not sent yet are taken back. */
void vx_models_take_back(struct vx_models *models, i32 instance);
/* No request goes there any more, and workers unload it. */
void vx_models_release(struct vx_models *models, i32 instance);

/* Whether a listed model should be loaded. */
bool vx_models_wants(const struct vx_models *models, const char *name);
/* Whether a client asked for it since the last listing: what failed is tried again. */
bool vx_models_is_fresh_wish(const struct vx_models *models, const char *name);
void vx_models_wanted_before(struct vx_models *models); /* rows follow the listing */
void vx_models_wanted_after(struct vx_models *models, bool readable);
void vx_models_wanted_no_row(struct vx_models *models, const char *name);
void vx_models_wanted_step(struct vx_models *models);

#endif
