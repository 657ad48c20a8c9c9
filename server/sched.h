/* sched - which waiting requests run together, where, and when: a pure state machine.
 *
 * The interface is for batches; for now every batch is one request, and the budget and delay of
 * an instance wait for the policy that will use them.
 *
 * Time comes in as a number, decisions go out as values; no clock, no I/O, no allocation
 * after open.  The loop feeds it arrivals, cancellations, ended batches and workers that
 * come and go, and carries out what vx_sched_pick says.  A simulator drives it the same
 * way.
 *
 *   VX_TRY(vx_sched_submit(sched, &call->job, now, &why));
 *   while (vx_sched_pick(sched, now, &plan)) send_run(&plan);
 *   vx_sched_finish(sched, plan.worker, plan.batch);
 *
 * Job states, and who moves them:
 *   NEW      -> QUEUED    vx_sched_submit
 *   QUEUED   -> RUNNING   vx_sched_pick
 *   QUEUED   -> NEW       vx_sched_cancel, vx_sched_expire          (caller answers it)
 *   RUNNING  -> NEW       vx_sched_finish                           (caller answers it)
 *   RUNNING  -> QUEUED    vx_sched_worker_down, first death         (runs again, first)
 *   RUNNING  -> NEW       vx_sched_worker_down, VX_JOB_DEATHS_MAX   (poison: caller answers)
 *
 * Owner    jobs live in the caller's memory and are borrowed while QUEUED or RUNNING.
 * Thread   loop.
 * Limits   queue_max jobs waiting; VX_WORKERS_MAX workers; VX_INSTANCES_MAX model
 *          instances; VX_WORKER_DEPTH batches on a worker at once.
 * Fails    submit: UNAVAILABLE when the queue is full, DEADLINE_EXCEEDED when it is too
 *          late.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCHED_H
#define VX_SERVER_SCHED_H

#include "engine/base/limits.h"
#include "engine/base/status.h"

/* Devices of one host: eight GPUs and their like, twice. */
#define VX_WORKERS_MAX 16
/* Model versions loaded or loading at once. */
#define VX_INSTANCES_MAX 64
/* Batches sent ahead to one worker: one runs, the next already waits there, so that the
 * device never idles for a round trip of messages. */
#define VX_WORKER_DEPTH 2
/* Worker deaths a job may be part of; the one that dies again is the likely cause. */
#define VX_JOB_DEATHS_MAX 2

enum vx_job_state { VX_JOB_NEW, VX_JOB_QUEUED, VX_JOB_RUNNING };

struct vx_job {
    struct vx_job *next, *previous; /* in the queue, or in its batch (next only) */
    enum vx_job_state state;
    i32 instance;    /* which model version, by its row in the registry */
    i64 voxels;      /* N */
    u64 priority;    /* 1 is highest; 0 = default, behind all that say a number */
    i64 deadline_ns; /* VX_NEVER when none */
    i64 queued_ns;   /* out: when it entered the queue first */
    i64 started_ns;  /* out: when it was last sent to a worker */
    u64 sequence;    /* out: order of arrival */
    i32 deaths;      /* out */
};

struct vx_batch_plan {
    i32 worker;
    i32 instance;
    u64 batch; /* id, unique for the life of the process, never 0 */
    i32 jobs_count;
    struct vx_job *jobs[VX_BATCH_ITEMS_MAX];
    i64 voxels; /* sum */
};

struct vx_sched;

VX_MUST_USE vx_status vx_sched_open(i32 queue_max, struct vx_sched **sched);
void vx_sched_close(struct vx_sched **sched);

/* An instance's batch budget; said once it is known, before its first job. */
void vx_sched_instance_set(struct vx_sched *sched, i32 instance, i64 batch_voxels_max,
                           i64 batch_delay_ns);
/* Whether `worker` can run `instance` now. */
void vx_sched_instance_ready(struct vx_sched *sched, i32 instance, i32 worker,
                             bool ready);

void vx_sched_worker_up(struct vx_sched *sched, i32 worker);
/* The worker is gone with all it had.  Its jobs go back to the head of the queue, but
 * those that died too often are handed to `on_poison`, state NEW. */
void vx_sched_worker_down(struct vx_sched *sched, i32 worker,
                          void (*on_poison)(void *context, struct vx_job *job),
                          void *context);

VX_MUST_USE vx_status vx_sched_submit(struct vx_sched *sched, struct vx_job *job,
                                      i64 now_ns, struct vx_why *why);
/* True: it was waiting and is out, state NEW.  False: it runs; its answer is still to
 * come. */
bool vx_sched_cancel(struct vx_sched *sched, struct vx_job *job);
/* Hands every waiting job whose deadline has passed to `on_late`, state NEW. */
void vx_sched_expire(struct vx_sched *sched, i64 now_ns,
                     void (*on_late)(void *context, struct vx_job *job), void *context);
/* Hands every waiting job of one instance to `on_job`, state NEW: the instance is lost.
 */
void vx_sched_drop_instance(struct vx_sched *sched, i32 instance,
                            void (*on_job)(void *context, struct vx_job *job),
                            void *context);
/* The next batch to send, or false when nothing can start now. */
bool vx_sched_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan);
/* The batch ended; its jobs are NEW.  False when this worker has no such batch (a late
 * word of a dead worker). */
bool vx_sched_finish(struct vx_sched *sched, i32 worker, u64 batch,
                     struct vx_batch_plan *plan);

/* When vx_sched_expire or pick next has something to do for time alone; VX_NEVER when
 * never. */
i64 vx_sched_next_ns(const struct vx_sched *sched);
i32 vx_sched_worker_batches(const struct vx_sched *sched, i32 worker);
i32 vx_sched_queued(const struct vx_sched *sched);
i32 vx_sched_running(const struct vx_sched *sched);
i64 vx_sched_queued_voxels(const struct vx_sched *sched);
/* Jobs of one instance, waiting or running: a version is unloaded only at zero. */
i32 vx_sched_instance_jobs(const struct vx_sched *sched, i32 instance);

#endif
