/* sched - which waiting requests run together, where, and when: a pure state machine.
 *
 * Time comes in as a number, decisions go out as values; no clock, no I/O, no allocation
 * after open.  The loop feeds it arrivals, cancellations, ended batches and workers that
 * come and go, and carries out what vx_sched_pick says.  A simulator drives it the same
 * way.
 *
 *   VX_TRY(vx_sched_submit(sched, &call->job, now, &why));
 *   while (vx_sched_pick(sched, now, &plan)) send_run(&plan);
 *   vx_sched_finish(sched, &end, &plan);
 *
 * A batch is of one instance.  It begins with the first job of the queue that a worker can
 * run now, and takes further jobs of that instance in their order, as long as voxels,
 * pairs and requests fit; one that does not fit is passed over and keeps its place
 * (look-ahead).  A worker that has nothing to do waits for company at most delay_us after
 * the first job came, and not at all once the batch is full; a worker that is busy costs
 * no waiting, since jobs gather behind it anyhow.
 *
 * Within a level clients take turns: each gets as much of the devices as any other, by voxels,
 * however many requests it has waiting (weighted fair queueing: Demers, Keshav, Shenker, SIGCOMM
 * 1989).  What one client sends is served in its order.
 *
 * Predictions come from what batches took (server/cost.h), per instance and worker.  A job
 * that cannot end before its deadline, by the prediction, is refused when it is submitted.
 * A job whose geometry a worker holds goes to that worker, unless waiting for it takes
 * longer than building the geometry elsewhere.
 *
 * A job whose memory is with some workers only (`only`) waits for those, whoever else is
 * idle, and holds up nobody who can go elsewhere.
 *
 * A job that was with a worker when it died runs alone from then on: one batch of one job,
 * on a worker that has nothing else, no model to load either, so that the next death names
 * its cause.
 *
 * Job states, and who moves them:
 *   NEW      -> QUEUED    vx_sched_submit
 *   QUEUED   -> RUNNING   vx_sched_pick
 *   QUEUED   -> NEW       vx_sched_cancel, vx_sched_expire          (caller answers it)
 *   RUNNING  -> NEW       vx_sched_finish                           (caller answers it)
 *   RUNNING  -> QUEUED    vx_sched_worker_down, first death         (runs again, first)
 *                         or never delivered: no death
 *   RUNNING  -> NEW       vx_sched_worker_down, VX_JOB_DEATHS_MAX   (poison: caller answers)
 *   NEW      -> QUEUED    vx_sched_resubmit, after vx_sched_finish
 *
 * Owner    jobs live in the caller's memory and are borrowed while QUEUED or RUNNING.
 * Thread   loop.
 * Limits   queue_max jobs waiting, and up to VX_SCHED_QUEUE_RESERVED more of clients that
 *          have few waiting; VX_WORKERS_MAX workers; VX_INSTANCES_MAX model
 *          instances; VX_WORKER_DEPTH batches on a worker at once.
 * Fails    submit: UNAVAILABLE when a queue is full, with Triton's words, or when the
 *          request's `timeout` cannot be kept; DEADLINE_EXCEEDED when gRPC's deadline
 *          cannot.  The sentence has the expected wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCHED_H
#define VX_SERVER_SCHED_H

#include "engine/engine.h"

/* Devices of one host: eight GPUs and their like, twice. */
#define VX_WORKERS_MAX 16
/* Model versions loaded or loading at once.  Each costs 18 KB here and 4 KB in a worker, and every
 * turn of the loop looks at those that ever were: with 512 some 10 us. */
#define VX_INSTANCES_MAX 512
/* Batches on one worker: as many as its device works on at once. */
#define VX_WORKER_DEPTH VX_ENGINE_BATCHES_MAX
/* Worker deaths a job may be part of; the one that dies again is the likely cause. */
#define VX_JOB_DEATHS_MAX 2

/* Beyond queue_max, so that a client that fills the queue does not keep others out. */
#define VX_SCHED_QUEUE_RESERVED 64

enum vx_job_state { VX_JOB_NEW, VX_JOB_QUEUED, VX_JOB_RUNNING };

struct vx_job {
    struct vx_job *next, *previous; /* in the queue, or in its batch (next only) */
    enum vx_job_state state;
    i32 instance;    /* which model version, by its row in the registry */
    i64 voxels;      /* N */
    i64 pairs;       /* of the first map, when the front has seen this geometry; 0 = not
                        known, estimated */
    u64 client;      /* who shares devices with others: its connection; 0 = not known */
    u64 priority;    /* 1 is highest; 0 = not said */
    i64 deadline_ns; /* gRPC's; VX_NEVER when none */
    i64 timeout_ns;  /* the parameter `timeout`, counted from submit; 0 = none */
    u32 holders;     /* bit per worker that has its geometry */
    bool must_hold;  /* it has no coordinates of its own: only a holder can run it */
    u32 only;       /* bit per worker that can run it, up or not: its memory is there; 0 =
                        any; the job waits for one of them to come back */
    i64 queued_ns;  /* out: when it entered the queue first */
    i64 started_ns; /* out: when it was last sent to a worker */
    i64 expires_ns; /* out: when its time in the queue is over; VX_NEVER */
    bool
        by_timeout; /* out: expires_ns comes from `timeout` or the policy, not from gRPC */
    u64 level;      /* out: of priority, as the policy has it */
    u64 turn;       /* out: its place among all clients' jobs; sched_turn.c */
    u64 sequence;   /* out: order of arrival */
    i32 client_row; /* the scheduler's, while it waits */
    i32 deaths;     /* out */
    i32 heap_index; /* the scheduler's, while it waits: among those that expire */
};

struct vx_batch_plan {
    i32 worker;
    i32 instance;
    u64 batch; /* id, unique for the life of the process, never 0 */
    i32 jobs_count;
    struct vx_job *jobs[VX_BATCH_ITEMS_MAX];
    i64 voxels;       /* sum */
    i64 pairs;        /* sum, estimated where it is not known */
    i64 predicted_ns; /* on the device; 0 = nothing is known yet */
};
/* How a batch ended. */
struct vx_batch_end {
    i32 worker;
    u64 batch;
    i64 now_ns;
    i64 device_ns;   /* 0: not measured, nothing is learned */
    i64 geometry_ns; /* of it: building maps */
    i64 pairs;       /* sum of what its items had; 0 = not known */
    /* A bit per job, in the batch's order: it was sent back before it could run. */
    u64 refused;
};
_Static_assert(VX_BATCH_ITEMS_MAX <= 64, "a bit per job of a batch");

struct vx_sched;

VX_MUST_USE vx_status vx_sched_open(i32 queue_max, struct vx_sched **sched);
void vx_sched_close(struct vx_sched **sched);

/* How an instance's requests wait and are put together; copied.  Said once it is known,
 * before its first job, and again when it changes.  Forgets what was learned of a row that
 * had another model: `fresh`. */
void vx_sched_instance_set(struct vx_sched *sched, i32 instance,
                           const struct vx_batching *batching, bool fresh);
/* Whether `worker` can run `instance` now. */
void vx_sched_instance_ready(struct vx_sched *sched, i32 instance, i32 worker,
                             bool ready);

void vx_sched_worker_up(struct vx_sched *sched, i32 worker);
/* The worker is about to end: it gets no more batches.  What it has stays with it until
 * worker_down. */
void vx_sched_worker_leaving(struct vx_sched *sched, i32 worker);
/* Whether a model is being loaded there that may cost the worker: no job that saw a death begins
 * meanwhile. */
void vx_sched_worker_loading(struct vx_sched *sched, i32 worker, bool loading);
/* Whether a job that saw a death is there, or could run there and waits: such a load had better
 * wait for it. */
bool vx_sched_worker_has_solo(const struct vx_sched *sched, i32 worker);
/* The batch could not be handed over: the worker is leaving, and its end is no death of
 * these jobs. */
void vx_sched_undelivered(struct vx_sched *sched, i32 worker, u64 batch);
/* The worker is gone with all it had.  Its jobs go back to the head of the queue, but
 * those that died too often are handed to `on_poison`, state NEW. */
void vx_sched_worker_down(struct vx_sched *sched, i32 worker,
                          void (*on_poison)(void *context, struct vx_job *job),
                          void *context);

VX_MUST_USE vx_status vx_sched_submit(struct vx_sched *sched, struct vx_job *job,
                                      i64 now_ns, struct vx_why *why);
/* Whether submit would refuse such a job because its queue is full. */
bool vx_sched_is_full(const struct vx_sched *sched, const struct vx_job *job);
/* True: it was waiting and is out, state NEW.  False: it runs; its answer is still to
 * come. */
bool vx_sched_cancel(struct vx_sched *sched, struct vx_job *job);
/* Hands every waiting job whose time is over to `on_late`, state NEW: rejected, or with
 * timeout_delay put behind all others instead, without a deadline but gRPC's. */
void vx_sched_expire(struct vx_sched *sched, i64 now_ns,
                     void (*on_late)(void *context, struct vx_job *job), void *context);
/* Hands every waiting job of one instance to `on_job`, state NEW: the instance is lost.
 */
void vx_sched_drop_instance(struct vx_sched *sched, i32 instance,
                            void (*on_job)(void *context, struct vx_job *job),
                            void *context);
/* The next batch to send, or false when nothing can start now. */
bool vx_sched_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan);
/* Jobs of a batch that the worker has; 0 = it has no such batch. */
i32 vx_sched_batch_jobs(const struct vx_sched *sched, i32 worker, u64 batch);
/* The batch ended; its jobs are NEW.  False when this worker has no such batch (a late
 * word of a dead worker). */
bool vx_sched_finish(struct vx_sched *sched, const struct vx_batch_end *end,
                     struct vx_batch_plan *plan);
/* A job of a batch that has just finished goes on waiting, for another worker: its place,
 * its times and its deaths are what they were. */
void vx_sched_resubmit(struct vx_sched *sched, struct vx_job *job);
/* A geometry is gone from a worker, or the worker is gone: jobs that can run nowhere any
 * more are handed to `on_lost`, state NEW.  worker_down has taken the worker out of the
 * holders of all jobs by then; for one geometry the caller takes it out of those that name
 * it. */
void vx_sched_holder_gone(struct vx_sched *sched, i32 worker,
                          void (*on_lost)(void *context, struct vx_job *job),
                          void *context);

/* Hands every waiting job of the instance that is bound to other workers than these to
 * `on_lost`, state NEW: it would wait in vain. */
void vx_sched_only_gone(struct vx_sched *sched, i32 instance, u32 workers,
                        void (*on_lost)(void *context, struct vx_job *job),
                        void *context);

/* How long a job of that many voxels would wait now before it ran, and run: ns; 0 when
 * nothing is known. */
i64 vx_sched_expected_wait_ns(const struct vx_sched *sched, const struct vx_job *job,
                              i64 now_ns);

/* When vx_sched_expire or pick next has something to do for time alone, as the last pick
 * that answered false saw it; VX_NEVER when never. */
i64 vx_sched_next_ns(const struct vx_sched *sched);
/* Batches that were delivered to a worker and have not ended. */
i32 vx_sched_worker_batches(const struct vx_sched *sched, i32 worker);
i32 vx_sched_queued(const struct vx_sched *sched);
i32 vx_sched_running(const struct vx_sched *sched);
i64 vx_sched_queued_voxels(const struct vx_sched *sched);
i64 vx_sched_voxels(const struct vx_sched *sched); /* of all jobs, waiting or running */
/* Jobs of one instance, waiting or running: a version is unloaded only at zero. */
i32 vx_sched_instance_jobs(const struct vx_sched *sched, i32 instance);

#endif
