/* sched_private - what the files of the scheduler share; nobody else includes it.
 *
 *   sched.c          the object: instances, workers, ends of batches, counts
 *   sched_queue.c    who waits, in which order, until when
 *   sched_turn.c     whose turn it is: what each client had of the devices
 *   sched_admit.c    may it wait at all: levels, policies, expected waits
 *   sched_pick.c     which batch starts now: the look along the queue
 *   sched_place.c    where: which worker is done first, and has room
 *
 * Waiting jobs of an instance lie in lines, one per level that has a policy of its own, so
 * that an arrival finds its place at once and a pick never looks at jobs of an instance
 * that nobody can run.  Jobs that saw a death lie in a line apart: they run alone.
 *
 * Owner    vx_sched_open's caller, through sched.h.
 * Thread   loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCHED_PRIVATE_H
#define VX_SERVER_SCHED_PRIVATE_H

#include "server/cost.h"
#include "server/rows.h"
#include "server/sched.h"

/* Jobs of one instance that a pick looks at, at most: four full batches.  Beyond that a
 * better fit is not worth the walk, which is on the path of every batch. */
#define VX_SCHED_LOOK_MAX 256

/* job.level of who comes after all others of the model; see queue_policy.timeout_delay. */
#define VX_LEVEL_DELAYED UINT64_MAX

/* Levels 1 to VX_PRIORITY_LEVELS_MAX, then delayed. */
enum { SCHED_LINE_DELAYED = VX_PRIORITY_LEVELS_MAX, SCHED_LINES };

/* A sum over jobs; pairs where they are known, voxels where they are not. */
struct sched_load {
    i32 jobs;
    i64 voxels, pairs, pairless_voxels;
};
struct sched_line {
    struct vx_job *first, *last;             /* in order of service: vx_sched_before */
    struct sched_load load;                  /* all of it */
    struct sched_load bound[VX_WORKERS_MAX]; /* of it, jobs with `only`: by their first
                                                worker */
};
struct sched_batch {
    u64 id; /* 0 = this place is empty */
    i32 instance;
    bool solo;
    bool undelivered;    /* the worker never got it */
    struct vx_job *jobs; /* linked by next, in the order they were sent */
    i64 since_ns; /* when it had the device for itself: sent, or the one before it ended */
    i64 voxels, build_voxels; /* of all its jobs; of those whose geometry is not held */
    i64 pairs;
    i64 predicted_ns;
};
struct sched_worker {
    bool up;
    bool leaving; /* up, and about to end: ready for nothing any more */
    i32 batches_count;
    struct sched_batch batches[VX_WORKER_DEPTH]; /* oldest first */
};
struct sched_instance {
    u32 workers_ready; /* bit per worker */
    i32 jobs;          /* waiting or running */
    struct vx_batching batching;
    struct sched_line lines[SCHED_LINES];
    struct sched_load waiting; /* sum of the lines */
    struct vx_cost_ratio ratio;
    struct vx_cost costs[VX_WORKERS_MAX];
};

/* Clients by a hash of their numbers, each in an entry of its own not far from there. */
#define SCHED_CLIENTS 4096
struct sched_client {
    u64 client;
    u64 turn;    /* of its last job */
    i32 waiting; /* jobs */
};

struct vx_sched {
    i32 queued, running, queue_max;
    i64 queued_voxels, running_voxels;
    u64 sequence, batch_id;
    struct vx_rows instances_waiting; /* that have a job in their lines */
    i64 wake_ns;            /* when the last pick would have said more; VX_NEVER */
    u32 workers_loading;    /* bit per worker that loads a model */
    struct sched_line solo; /* jobs that saw a death, of all instances */
    struct vx_job **heap;   /* waiting jobs that expire, the earliest first */
    i32 heap_count;
    u64 turn;            /* what each client could have had by now */
    u64 turn_last;       /* the last that any job was given */
    i32 clients_waiting; /* entries with a job that waits */
    struct sched_client clients[SCHED_CLIENTS];
    struct sched_worker workers[VX_WORKERS_MAX];
    struct sched_instance instances[VX_INSTANCES_MAX];
};

_Static_assert(VX_WORKERS_MAX <= 32, "workers_ready has a bit for each worker");

/* One pick's view of the workers: what they have, and what is left waiting for them by
 * choice, so that the jobs behind count with it. */
struct sched_look {
    i64 now_ns;
    i64 wake_ns;                 /* out: when the answer changes for time alone */
    u32 reserved;                /* bit per worker that is to run empty for a solo job */
    i64 free_ns[VX_WORKERS_MAX]; /* from now until it is through; 0 when nobody knows */
};

/* ------- sched.c ------- */

struct sched_instance *vx_sched_instance(struct vx_sched *sched, i32 instance);
struct sched_worker *vx_sched_worker(struct vx_sched *sched, i32 worker);

/* ------- sched_queue.c ------- */

/* Order of service among all that wait. */
bool vx_sched_before(const struct vx_job *a, const struct vx_job *b);
void vx_sched_insert(struct vx_sched *sched, struct vx_job *job);
void vx_sched_remove(struct vx_sched *sched, struct vx_job *job);
/* The first job in an instance's lines, and the one behind another; NULL at the end. */
struct vx_job *vx_sched_head(const struct sched_instance *instance);
struct vx_job *vx_sched_after(const struct sched_instance *instance,
                              const struct vx_job *job);
void vx_sched_load_add(struct sched_load *load, const struct vx_job *job, i32 sign);
/* Jobs of the level's own queue, as max_queue_size counts them. */
i32 vx_sched_level_jobs(const struct sched_instance *instance, u64 level);
void vx_sched_job_leaves(struct vx_sched *sched, struct vx_job *job);
const struct vx_queue_policy *vx_sched_policy(const struct sched_instance *instance,
                                              u64 level);
i32 vx_sched_line_index(u64 level);

/* ------- sched_turn.c ------- */

/* How many jobs of the client wait. */
i32 vx_sched_client_jobs(const struct vx_sched *sched, u64 client);
/* Which turn the job would get now. */
u64 vx_sched_turn(const struct vx_sched *sched, const struct vx_job *job);
/* It gets that turn. */
void vx_sched_turn_take(struct vx_sched *sched, struct vx_job *job);
/* A batch begins; its jobs still wait. */
void vx_sched_turn_begins(struct vx_sched *sched, const struct vx_batch_plan *plan);
/* One more job of the client waits, or one less. */
void vx_sched_turn_waits(struct vx_sched *sched, struct vx_job *job, i32 more);
/* How many jobs may wait before one more of the client is refused. */
i32 vx_sched_turn_room(const struct vx_sched *sched, u64 client);
/* Whether so many clients wait that this one has its part of the queue. */
bool vx_sched_turn_has_part(const struct vx_sched *sched, u64 client);

/* ------- sched_place.c ------- */

void vx_sched_look_begin(const struct vx_sched *sched, i64 now_ns,
                         struct sched_look *look);
/* Workers that can take a batch of the instance now, as bits. */
u32 vx_sched_open_workers(const struct vx_sched *sched, i32 instance,
                          struct sched_look *look);
/* Workers that may ever run the job, as bits. */
u32 vx_sched_job_workers(const struct vx_sched *sched, const struct vx_job *job);
/* The worker, of those in `open`, to begin a batch with this job now; -1 when there is
 * none, or when waiting for another is better: the job is then counted with that one. */
i32 vx_sched_place(const struct vx_sched *sched, const struct vx_job *job, u32 open,
                   struct sched_look *look);
/* True when the job, rather than join a batch on `worker`, waits for one that holds its
 * geometry: it is then counted with that one. */
bool vx_sched_prefers_holder(const struct vx_sched *sched, const struct vx_job *job,
                             i32 worker, struct sched_look *look);
/* Workers that may ever run the job alone, as bits. */
u32 vx_sched_solo_workers(const struct vx_sched *sched, const struct vx_job *job);
/* The idle worker to run a job alone on, or -1; `drain`: the soonest free is then
 * reserved. */
i32 vx_sched_place_solo(const struct vx_sched *sched, const struct vx_job *job,
                        bool drain, struct sched_look *look);
i64 vx_sched_free_ns(const struct vx_sched *sched, i32 worker, i64 now_ns);

/* ------- small ones of all ------- */

static inline f64 sched_job_pairs(const struct sched_instance *instance,
                                  const struct vx_job *job)
{
    return job->pairs > 0 ? (f64)job->pairs
                          : vx_cost_ratio_pairs(&instance->ratio, job->voxels);
}
static inline f64 sched_load_pairs(const struct sched_instance *instance,
                                   const struct sched_load *load)
{
    return (f64)load->pairs +
           vx_cost_ratio_pairs(&instance->ratio, load->pairless_voxels);
}
static inline i32 sched_requests_max(const struct vx_batching *batching)
{
    return batching->requests_max < 1                    ? 1
           : batching->requests_max > VX_BATCH_ITEMS_MAX ? VX_BATCH_ITEMS_MAX
                                                         : batching->requests_max;
}
static inline bool sched_holds(const struct vx_job *job, i32 worker)
{
    return job->holders & (1u << worker);
}
/* Whether the worker, when it is ready, can run it at all. */
static inline bool sched_can(const struct vx_job *job, i32 worker)
{
    u32 can = job->only ? job->only : UINT32_MAX;
    if (job->must_hold) can &= job->holders;
    return can & (1u << worker);
}

#endif
