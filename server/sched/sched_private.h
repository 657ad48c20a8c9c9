/* sched_private - what the files of the scheduler share; no other file includes it.
 *
 *   sched.c          the object: instances, workers, ends of batches, counts
 *   sched_queue.c    which jobs wait, in which order, until when
 *   sched_room.c     whose job leaves a full queue for another
 *   sched_turn.c     which client is next: what each client had of the devices
 *   sched_owes.c     what an origin had beyond what was counted
 *   sched_admit.c    whether a job may wait: levels, policies, expected waits
 *   sched_pick.c     which batch starts now: the search along the queue
 *   sched_place.c    where: which worker is done first, and has room
 *
 * Waiting jobs of an instance are in lists called lines, one per level that has its own
 * policy.  An arriving job finds its place at once, and a pick never visits jobs of an
 * instance that no worker can run.  Solo jobs (sched.h) are in a line of their own.
 *
 * Owner    vx_sched_open's caller, through sched.h.
 * Thread   loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCHED_PRIVATE_H
#define VX_SERVER_SCHED_PRIVATE_H

#include "server/sched/cost.h"
#include "server/sched/instance_set.h"
#include "server/sched/sched.h"

/* At most this many jobs of one instance are examined by a pick: four full batches.
 * Beyond that a better fit is not worth the search, which every batch waits for. */
#define VX_SCHED_LOOK_MAX 256

/* job.level of a job that queue_policy.timeout_delay moved behind all others. */
#define VX_LEVEL_DELAYED UINT64_MAX

/* Levels 1 to VX_PRIORITY_LEVELS_MAX, then delayed. */
enum { SCHED_LINE_DELAYED = VX_PRIORITY_LEVELS_MAX, SCHED_LINES };

/* A batch predicted to take no longer may run beside a long one.  On a CPU of several threads it has one of
 * them, and keeps the long one waiting: there it takes no more than so much on one. */
#define SCHED_BRIEF_NS       (25 * VX_NS_PER_MS)
#define SCHED_BRIEF_ALONE_NS (50 * VX_NS_PER_MS)

/* A sum over jobs.  `pairless_voxels` are those of jobs whose pairs are not known. */
struct sched_load {
    i32 jobs;
    i64 set_voxels, pairs, pairless_voxels;
};
struct sched_line {
    struct vx_job *first, *last; /* in order of service: vx_sched_before */
    struct sched_load load;      /* of all its jobs */
    /* Of its jobs with `only`, summed under the first worker in `only`. */
    struct sched_load bound[VX_WORKERS_MAX];
};
struct sched_batch {
    u64 id; /* 0 = this place is empty */
    i32 instance;
    bool solo;
    bool undelivered;    /* the worker never got it */
    struct vx_job *jobs; /* linked by next, in the order they were sent */
    /* Since when it has the device for itself: sent, or end of the batch before it. */
    i64 since_ns;
    i64 voxels, build_voxels; /* of all its jobs; of those whose geometry is not held */
    i64 set_voxels, pairs;
    i64 predicted_ns;
    i64 believed_ns; /* of it, for which a request may be refused: vx_cost_believe_ns */
};
struct sched_worker {
    bool up;
    bool leaving; /* up, and about to end: it gets no more batches */
    i32 threads;  /* 0 = one */
    i32 batches_count;
    struct sched_batch batches[VX_WORKER_DEPTH]; /* oldest first */
};
struct sched_instance {
    u32 workers_ready; /* bit per worker */
    i32 jobs;          /* waiting or running */
    struct vx_batching batching;
    struct sched_line lines[SCHED_LINES];
    struct sched_load waiting;             /* sum of the lines */
    struct vx_cost_ratio ratio, set_ratio; /* of pairs; of voxels of all sets */
    /* The most pairs for each voxel of a batch, and when that was: it fades within two minutes. */
    f64 pairs_most;
    i64 most_ns;
    struct vx_cost costs[VX_WORKERS_MAX];
    i64 learned_ns[VX_COST_CLASSES]; /* when a batch of each was last learned from */
};

/* A hash table of clients with open addressing. */
#define SCHED_CLIENTS 4096
struct sched_client {
    u64 client;
    u64 turn;    /* of its latest job */
    u64 sharers; /* clients of its origin that waited then, with itself */
    i32 waiting; /* jobs */
    u16 origin;  /* under which it counts while some wait */
};
/* sched_owes.c.  Zeros: nothing. */
struct sched_owes {
    u64 source; /* struct vx_job; whose it is */
    u64 voxels; /* at `since`; none are left at `until` */
    i64 since_ns, until_ns;
    i64 slow_until_ns;    /* a brief job of it has taken long */
    i64 patient_until_ns; /* another one has: its jobs are not taken for brief */
};
struct sched_origin {
    i32 jobs;      /* that wait */
    i32 clients;   /* that have some */
    i32 gone;      /* jobs that took another's place and left without having run */
    u64 gone_turn; /* until then they count as if they waited */
    struct sched_owes owes;
};

struct vx_sched {
    i32 queued, running, queue_max;
    i64 queued_voxels, running_voxels; /* of all sets */
    u64 sequence, batch_id;
    struct vx_instance_set instances_waiting; /* that have a job in their lines */
    i64 wake_ns;            /* when the last pick's decision changes by time; VX_NEVER */
    u32 workers_loading;    /* bit per worker where no solo job may begin: see sched.h */
    struct sched_line solo; /* solo jobs of all instances */
    struct vx_job **heap;   /* waiting jobs that expire, the earliest first */
    i32 heap_count;
    u64 turn;            /* virtual time: what each origin could have had by now */
    u64 turn_last;       /* the latest turn that any job was given */
    i32 origins_waiting; /* origins with a waiting job */
    struct sched_origin origins[VX_SCHED_ORIGINS];
    struct sched_client clients[SCHED_CLIENTS];
    struct sched_worker workers[VX_WORKERS_MAX];
    struct sched_instance instances[VX_INSTANCES_MAX];
};

_Static_assert(VX_WORKERS_MAX <= 32, "workers_ready has a bit for each worker");

/* One pick's view of the workers: the batches that they have, and the jobs that this pick
 * leaves waiting for them, so that the jobs behind are placed with both in mind. */
struct sched_look {
    i64 now_ns;
    i64 wake_ns;  /* out: when the decision changes although nothing happens */
    u32 reserved; /* bit per worker that drains for a solo job */
    u32 brief; /* bit per worker that runs a long batch: only a brief one may begin there */
    i64 free_ns[VX_WORKERS_MAX]; /* from now until it is idle; 0 = no prediction */
};

/* ------- sched.c ------- */

struct sched_instance *vx_sched_instance(struct vx_sched *sched, i32 instance);
/* The pairs of a job that has as many for each voxel as the most that were seen lately. */
f64 vx_sched_pairs_most(const struct sched_instance *instance, const struct vx_job *job,
                        i64 now_ns);
struct sched_worker *vx_sched_worker(struct vx_sched *sched, i32 worker);

/* ------- sched_queue.c ------- */

/* Order of service among all waiting jobs. */
/* Levels order the jobs of one model: what its owner calls urgent means nothing to others. */
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

/* ------- sched_admit.c ------- */

/* The level of a job with that priority. */
u64 vx_sched_level(const struct vx_batching *batching, u64 priority);

/* ------- sched_room.c ------- */

/* The waiting job that is to leave so that this one, for which no place is free, can have its
 * place; NULL = none. */
struct vx_job *vx_sched_room_find(const struct vx_sched *sched, const struct vx_job *job);

/* ------- sched_turn.c ------- */

/* How many jobs of the client wait. */
i32 vx_sched_client_jobs(const struct vx_sched *sched, u64 client);
/* The turn that the job would get now. */
u64 vx_sched_turn(const struct vx_sched *sched, const struct vx_job *job, i64 now_ns);
/* Gives the job that turn. */
void vx_sched_turn_take(struct vx_sched *sched, struct vx_job *job, i64 now_ns);

/* ------- sched_owes.c ------- */

/* The voxels that the job's origin owes. */
u64 vx_sched_owes(const struct vx_sched *sched, const struct vx_job *job, i64 now_ns);
/* Whether what seems to be brief of the job's origin is not. */
bool vx_sched_is_patient(const struct vx_sched *sched, const struct vx_job *job,
                         i64 now_ns);
/* What it costs its client. */
u64 vx_sched_turn_cost(const struct vx_job *job);
/* The places that an origin counts as having: of its waiting jobs, and of those that have gone. */
i32 vx_sched_turn_places(const struct vx_sched *sched, u16 origin);
/* A job that took another's place leaves without having run. */
void vx_sched_turn_gone(struct vx_sched *sched, const struct vx_job *job);
/* A batch begins; its jobs still count as waiting. */
void vx_sched_turn_begins(struct vx_sched *sched, const struct vx_batch_plan *plan);
/* `more` is 1 or -1: one more job of the client waits, or one less. */
void vx_sched_turn_waits(struct vx_sched *sched, struct vx_job *job, i32 more);
/* How many jobs may wait before this one is refused: of all clients with queue_max, of a model and
 * level with its own limit. */
i64 vx_sched_turn_room(const struct vx_sched *sched, const struct vx_job *job, i64 most);
/* Whether the queue is crowded and its client, or its origin, already has its share. */
bool vx_sched_turn_has_part(const struct vx_sched *sched, const struct vx_job *job);

/* ------- sched_place.c ------- */

void vx_sched_look_begin(const struct vx_sched *sched, i64 now_ns,
                         struct sched_look *look);
/* Workers that can take a batch of the instance now, as bits. */
u32 vx_sched_open_workers(const struct vx_sched *sched, i32 instance,
                          struct sched_look *look);
/* Whether one batch runs on the worker, and runs long. */
bool vx_sched_runs_long(const struct vx_sched *sched, i32 worker, i64 now_ns);
/* The most that a brief batch is predicted to take there. */
i64 vx_sched_brief_ns(const struct vx_sched *sched, i32 worker);
/* Whether the job is predicted to be brief there. */
bool vx_sched_is_brief(const struct vx_sched *sched, const struct vx_job *job, i32 worker,
                       i64 now_ns);
/* Ready workers that can run the job, busy or not, as bits. */
u32 vx_sched_job_workers(const struct vx_sched *sched, const struct vx_job *job);
/* The worker in `open` on which a batch with this job begins now.  -1 when there is none,
 * or when waiting for another worker is better: then the job is added to that worker's
 * free_ns. */
i32 vx_sched_place(const struct vx_sched *sched, const struct vx_job *job, u32 open,
                   struct sched_look *look);
/* True when the job does not join a batch on `worker` but waits for one that holds its
 * geometry: then it is added to that worker's free_ns. */
bool vx_sched_prefers_holder(const struct vx_sched *sched, const struct vx_job *job,
                             i32 worker, struct sched_look *look);
/* Ready workers that can run the job alone, busy or not, as bits. */
u32 vx_sched_solo_workers(const struct vx_sched *sched, const struct vx_job *job);
/* The idle worker on which to run a solo job, or -1.  If there is none and `drain` is
 * set, reserves the worker that is predicted to be done first. */
i32 vx_sched_place_solo(const struct vx_sched *sched, const struct vx_job *job,
                        bool drain, struct sched_look *look);
/* Predicted time until the worker's batches have ended; or, of that, what may refuse a request.
 * A batch that is late is assumed to need as long again as it is late: a hung device soon looks
 * like a bad choice. */
i64 vx_sched_free_ns(const struct vx_sched *sched, i32 worker, i64 now_ns, bool believed);

/* ------- used by several files ------- */

static inline f64 sched_job_pairs(const struct sched_instance *instance,
                                  const struct vx_job *job)
{
    return job->pairs > 0 ? (f64)job->pairs
                          : vx_cost_ratio_expect(&instance->ratio, job->voxels);
}
static inline f64 sched_load_pairs(const struct sched_instance *instance,
                                   const struct sched_load *load)
{
    return (f64)load->pairs +
           vx_cost_ratio_expect(&instance->ratio, load->pairless_voxels);
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
/* The workers that can run the job once they are ready, as bits. */
static inline u32 sched_can_be(const struct vx_job *job)
{
    const u32 can = job->only ? job->only : UINT32_MAX;
    return job->must_hold ? can & job->holders : can;
}
static inline bool sched_can(const struct vx_job *job, i32 worker)
{
    return sched_can_be(job) & (1u << worker);
}

#endif
