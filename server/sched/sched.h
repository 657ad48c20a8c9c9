/* sched - which waiting requests run together, where, and when: a pure state machine.
 *
 * Time is an argument and decisions are return values: there is no clock, no I/O and no
 * allocation after open.  The loop reports arrivals, cancellations, ended batches and
 * workers that come and go, and carries out what vx_sched_pick decides.  A simulator
 * drives the scheduler in the same way.
 *
 *   VX_TRY(vx_sched_submit(sched, &call->job, now, &left, &why));
 *   while (vx_sched_pick(sched, now, &plan)) send_run(&plan);
 *   vx_sched_finish(sched, &end, &plan);
 *
 * All jobs of a batch are of one instance.  A batch begins with the first job of the
 * queue that a worker can run now, and takes further jobs of that instance in their
 * order, as long as voxels, pairs and requests fit; a job that does not fit is passed
 * over and keeps its place (look-ahead).  Voxels are those of all sets that the network
 * makes of the request's, pairs those of all its maps: what a job brings is known if its
 * geometry is, and otherwise expected from recent jobs of the instance.  An idle worker
 * waits for further jobs for at most delay_us after the first job was submitted, and does
 * not wait once the batch is full.  For a busy worker no such wait is needed: jobs gather
 * while it is busy.
 *
 * Levels order the jobs of one model.  Within them, and between models, clients take turns:
 * each gets the same share of the devices, measured in voxels, however many of its requests
 * wait (weighted fair queueing: Demers, Keshav, Shenker, SIGCOMM 1989).  The jobs of one client
 * run in their order.
 *
 * Predictions come from the times of earlier batches (server/sched/cost.h), per instance and
 * worker.  A job that is predicted to end after its deadline is refused when it is
 * submitted.  A job whose geometry a worker holds goes to that worker, unless waiting for
 * it takes longer than building the geometry elsewhere.
 *
 * A job whose memory only some workers can reach (`only`) waits for one of those, even if
 * others are idle, and does not delay jobs that can run elsewhere.
 *
 * A job that was on a worker when that worker died becomes a solo job: from then on it
 * runs as a batch of one, on a worker that runs no other batch and loads no model, so
 * that the next death names its cause.
 *
 * Job states, and which function changes them:
 *   NEW      -> QUEUED    vx_sched_submit
 *   QUEUED   -> RUNNING   vx_sched_pick
 *   QUEUED   -> NEW       vx_sched_cancel, vx_sched_expire          (caller answers it)
 *   QUEUED   -> NEW       vx_sched_submit of another job: `left`    (caller answers it)
 *   RUNNING  -> NEW       vx_sched_finish                           (caller answers it)
 *   RUNNING  -> QUEUED    vx_sched_worker_down, first death         (runs again, first)
 *   RUNNING  -> QUEUED    vx_sched_worker_down, never delivered     (not a death)
 *   RUNNING  -> NEW       vx_sched_worker_down, VX_JOB_DEATHS_MAX   (caller answers it)
 *   NEW      -> QUEUED    vx_sched_resubmit, after vx_sched_finish
 *
 * Owner    jobs live in the caller's memory and are borrowed while QUEUED or RUNNING.
 * Thread   loop.
 * Limits   queue_max jobs waiting, and up to VX_SCHED_QUEUE_RESERVED more of origins that
 *          have few waiting, as beyond a model's max_queue_size; VX_WORKERS_MAX workers; VX_INSTANCES_MAX instances;
 *          VX_WORKER_DEPTH batches on a worker at once.
 * Fails    submit: UNAVAILABLE when a queue is full, with Triton's words, or when the
 *          request's `timeout` cannot be met; DEADLINE_EXCEEDED when gRPC's deadline
 *          cannot.  The sentence has the expected wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCHED_H
#define VX_SERVER_SCHED_H

#include "engine/signature.h"

/* Devices of one host: twice the usual eight GPUs. */
#define VX_WORKERS_MAX 16
/* Model versions loaded or loading at once.  Each costs 18 KB in the front and 4 KB in a
 * worker.  Every iteration of the loop visits all that were ever used: 512 take 10 us. */
#define VX_INSTANCES_MAX 512
/* Batches on one worker: as many as its device works on at once. */
#define VX_WORKER_DEPTH VX_ENGINE_BATCHES_MAX
/* A job that was on this many workers when they died is the likely cause. */
#define VX_JOB_DEATHS_MAX 2

/* Places beyond queue_max: an origin that fills the queue does not keep others out. */
#define VX_SCHED_QUEUE_RESERVED 64
/* Origins of connections (server/base/peer.h) are numbers below it. */
#define VX_SCHED_ORIGINS 16384

enum vx_job_state { VX_JOB_NEW, VX_JOB_QUEUED, VX_JOB_RUNNING };

struct vx_job {
    struct vx_job *next, *previous; /* in the queue, or in its batch (next only) */
    enum vx_job_state state;
    i32 instance;     /* which model version: its number in the registry */
    i64 voxels;       /* N */
    i64 pairs;        /* of all its neighbour maps; 0 = not known: they are estimated */
    i64 set_voxels;   /* of all its sets; 0 = not known: submit writes what is expected */
    i64 answer_bytes; /* of its outputs, as far as their sizes are known when it comes */
    u64 client;       /* its connection, which takes turns with others; 0 = not known */
    u16 origin;       /* of the connection, below VX_SCHED_ORIGINS */
    u64 source;       /* whose number that is now: struct vx_peer; 0 = not known */
    u64 priority;     /* 1 is highest; 0 = not set */
    i64 deadline_ns;  /* gRPC's; VX_NEVER when none */
    i64 timeout_ns;   /* the parameter `timeout`, counted from submit; 0 = none */
    u32 holders;      /* bit per worker that has its geometry */
    bool must_hold;   /* it has no coordinates of its own: only a holder can run it */
    u32 only;         /* bit per worker, up or not, that can reach its memory; 0 = any.
                        The job waits until one of them is up. */
    bool asks;      /* its size is known only when it runs: that of outputs, or of sets */
    i64 queued_ns;  /* out: when it first entered the queue */
    i64 started_ns; /* out: when it was last sent to a worker */
    i64 expires_ns; /* out: when its time in the queue is over; VX_NEVER */
    bool by_timeout; /* out: expires_ns is from `timeout` or the policy, not from gRPC */
    u64 level;       /* out: its priority level under the model's policy */
    u64 turn;        /* out: its place among the jobs of all clients; sched_turn.c */
    u64 took; /* the scheduler's: what the job whose place it took would have cost; 0 = none */
    u64 sequence;   /* out: order of arrival */
    i32 client_row; /* the scheduler's, while it waits: its client's entry */
    i32 deaths;     /* out: worker deaths it was part of */
    i32 heap_index; /* the scheduler's, while it waits: its place in the expiry heap */
    /* The scheduler's, while it runs: as vx_sched_answer_grows was told. */
    i64 grown_bytes, unforeseen_bytes;
    i64 charged_bytes; /* the scheduler's, of all its runs: what its client has paid of them */
};

/* Bytes of outputs that cost as much as a voxel.  A CPU writes 200 MB in 23 ms, and takes 0.2 to
 * 0.4 us for a voxel of a small network, in which it writes as much as this or twice as much.  By
 * voxels alone a dense output of 200 MB cost as much as its one voxel. */
#define VX_SCHED_VOXEL_BYTES 2048

struct vx_batch_plan {
    i32 worker;
    i32 instance;
    u64 batch; /* id, unique for the life of the process, never 0 */
    i32 jobs_count;
    struct vx_job *jobs[VX_BATCH_ITEMS_MAX];
    i64 voxels;       /* sum */
    i64 set_voxels;   /* sum, as pairs */
    i64 pairs;        /* sum, estimated where it is not known */
    i64 predicted_ns; /* on the device; 0 = no prediction yet */
    bool brief;       /* it may run while the batch before it goes on: vx_batch.brief */
};
/* How a batch ended. */
struct vx_batch_end {
    i32 worker;
    u64 batch;
    i64 now_ns;
    i64 device_ns;   /* 0: not measured, nothing is learned */
    i64 geometry_ns; /* the part of device_ns that built geometries */
    i64 output_ns;   /* the part that wrote outputs */
    bool aside;      /* it ran within the batch before: device_ns is that of one thread */
    i64 pairs, set_voxels; /* sums over its items; 0 = not known */
    /* A bit per job, in the batch's order, that is not in these sums: the worker refused it before
     * it ran, or it failed before its work was known.  A GPU's times may have its part. */
    u64 left_out;
};
_Static_assert(VX_BATCH_ITEMS_MAX <= 64, "a bit per job of a batch");

struct vx_sched;

VX_MUST_USE vx_status vx_sched_open(i32 queue_max, struct vx_sched **sched);
void vx_sched_close(struct vx_sched **sched);

/* Sets how the instance's requests wait and are batched; copied.  Call it before the
 * instance's first job, and again when it changes.  `fresh`: the number had another model
 * before; discards the cost estimates of that model. */
void vx_sched_instance_set(struct vx_sched *sched, i32 instance,
                           const struct vx_batching *batching, bool fresh);
/* Sets whether `worker` can run `instance` now. */
void vx_sched_instance_ready(struct vx_sched *sched, i32 instance, i32 worker,
                             bool ready);

void vx_sched_worker_up(struct vx_sched *sched, i32 worker);
/* So many threads share what a worker computes (at least 1), and a brief batch has one of them. */
void vx_sched_worker_threads(struct vx_sched *sched, i32 worker, i32 threads);
/* The worker is about to end: it gets no more batches.  The batches that it has stay with
 * it until worker_down. */
void vx_sched_worker_leaving(struct vx_sched *sched, i32 worker);
/* Sets whether the worker loads a model that may kill it: no solo job begins there. */
void vx_sched_worker_loading(struct vx_sched *sched, i32 worker, bool loading);
/* Whether a solo job runs there, or waits and could run there: a load that may kill the
 * worker should then wait. */
bool vx_sched_worker_has_solo(const struct vx_sched *sched, i32 worker);
/* The batch could not be sent: the worker is leaving, and its end does not count as a
 * death of these jobs. */
void vx_sched_undelivered(struct vx_sched *sched, i32 worker, u64 batch);
/* The worker's process is gone.  Its jobs go back to the head of the queue, except those
 * with VX_JOB_DEATHS_MAX deaths, which are handed to `on_poison`, state NEW. */
void vx_sched_worker_down(struct vx_sched *sched, i32 worker,
                          void (*on_poison)(void *context, struct vx_job *job),
                          void *context);

/* *left: the waiting job whose place this one took, state NEW; NULL = none, as whenever submit
 * fails.  Without `left` no job leaves for it, and a full queue refuses it. */
VX_MUST_USE vx_status vx_sched_submit(struct vx_sched *sched, struct vx_job *job,
                                      i64 now_ns, struct vx_job **left,
                                      struct vx_why *why);
/* Whether submit would refuse such a job because its queue is full, and nobody leaves for it. */
bool vx_sched_is_full(const struct vx_sched *sched, const struct vx_job *job);
/* Whether as many jobs of its model and level wait as may. */
bool vx_sched_model_is_full(const struct vx_sched *sched, const struct vx_job *job);
/* True: it was waiting and has left the queue, state NEW.  False: it is running; its
 * answer is still to come. */
bool vx_sched_cancel(struct vx_sched *sched, struct vx_job *job);
/* A job that has run made so many voxels more than it was counted with, which took so long (0 = not
 * known: nothing is charged), or so many fewer.  For as long its origin's next jobs, by whatever client,
 * go behind so many voxels of the others', fewer and fewer with time. */
void vx_sched_charge(struct vx_sched *sched, const struct vx_job *job, i64 voxels,
                     i64 took_ns, i64 now_ns);
/* A job that ran within another batch took so long there.  When two of an origin within a minute were not
 * brief at all, none of it is taken for brief for a minute. */
void vx_sched_ran_aside(struct vx_sched *sched, const struct vx_job *job, i64 took_ns,
                        i64 now_ns);
/* Hands every waiting job whose time in the queue is over to `on_late`, state NEW.  If it
 * is over by `timeout` and the policy has timeout_delay, the job instead moves behind all
 * others of its model and then expires only by gRPC's deadline. */
void vx_sched_expire(struct vx_sched *sched, i64 now_ns,
                     void (*on_late)(void *context, struct vx_job *job), void *context);
/* Hands every waiting job of a lost instance to `on_job`, state NEW. */
void vx_sched_drop_instance(struct vx_sched *sched, i32 instance,
                            void (*on_job)(void *context, struct vx_job *job),
                            void *context);
/* The next batch to send, or false when nothing can start now. */
bool vx_sched_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan);
/* Jobs of a batch that the worker has; 0 = it has no such batch. */
i32 vx_sched_batch_jobs(const struct vx_sched *sched, i32 worker, u64 batch);
/* Job number `index` of it, in the order they were sent; NULL = there is none. */
struct vx_job *vx_sched_batch_job(const struct vx_sched *sched, i32 worker, u64 batch,
                                  i32 index);
/* The batch ended; its jobs are NEW.  False when this worker has no such batch (a late
 * message of a dead worker). */
bool vx_sched_finish(struct vx_sched *sched, const struct vx_batch_end *end,
                     struct vx_batch_plan *plan);
/* The outputs of a job that runs have so many bytes more than its answer_bytes: they cost its
 * client as if it had said so, once, though a job that runs again says so again.  `unforeseen` of
 * them are of samples behind the first, as many as the client likes: their time is predicted from
 * now on, and is not what its model is said to take. */
void vx_sched_answer_grows(struct vx_sched *sched, struct vx_job *job, i64 bytes,
                           i64 unforeseen);
/* A job of a batch that has just finished waits again, for another worker: it keeps its
 * place, its times and its deaths. */
void vx_sched_resubmit(struct vx_sched *sched, struct vx_job *job);
/* A geometry is gone from a worker, or the worker is gone: hands the waiting jobs that no
 * worker can run any more to `on_lost`, state NEW.  Before this call, worker_down has
 * removed a dead worker from the holders of all jobs; for a single geometry the caller
 * removes the worker from the holders of the jobs that name it. */
void vx_sched_holder_gone(struct vx_sched *sched, i32 worker,
                          void (*on_lost)(void *context, struct vx_job *job),
                          void *context);

/* Hands every waiting job of the instance whose `only` names none of `workers` to
 * `on_lost`, state NEW: it would wait in vain. */
void vx_sched_only_gone(struct vx_sched *sched, i32 instance, u32 workers,
                        void (*on_lost)(void *context, struct vx_job *job),
                        void *context);

/* How long the job would take if it were submitted now, waiting and running: ns; 0 when
 * there is no prediction. */
i64 vx_sched_expected_wait_ns(const struct vx_sched *sched, const struct vx_job *job,
                              i64 now_ns);

/* When vx_sched_expire or vx_sched_pick next has something to do although nothing else
 * happens, as of the last pick that returned false; VX_NEVER when never. */
i64 vx_sched_next_ns(const struct vx_sched *sched);
/* Batches that were delivered to the worker and have not ended. */
i32 vx_sched_worker_batches(const struct vx_sched *sched, i32 worker);
i32 vx_sched_queued(const struct vx_sched *sched);
i32 vx_sched_running(const struct vx_sched *sched);
/* Voxels of all sets of the jobs that wait, or that wait or run. */
i64 vx_sched_queued_voxels(const struct vx_sched *sched);
i64 vx_sched_voxels(const struct vx_sched *sched);
/* Voxels of all sets of a job that may be submitted: as the job says, or as expected. */
i64 vx_sched_set_voxels(const struct vx_sched *sched, const struct vx_job *job);
/* Jobs of one instance, waiting or running: a version is unloaded only at zero. */
i32 vx_sched_instance_jobs(const struct vx_sched *sched, i32 instance);

#endif
