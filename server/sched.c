/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/thread.h"

struct sched_batch {
    u64 id; /* 0 = this place is empty */
    i32 instance;
    struct vx_job *jobs; /* linked by next, in the order they were sent */
};
struct sched_worker {
    bool up;
    i32 batches_count;
    struct sched_batch
        batches[VX_WORKER_DEPTH]; /* oldest first: [0] is the one that runs */
};
struct sched_instance {
    u32 workers_ready; /* bit per worker */
    i32 jobs;          /* waiting or running */
    i64 batch_voxels_max;
    i64 batch_delay_ns;
};

struct vx_sched {
    struct vx_job *first, *last; /* the queue, in the order jobs are served */
    i32 queued, running, queue_max;
    i64 queued_voxels;
    u64 sequence, batch_id;
    struct sched_worker workers[VX_WORKERS_MAX];
    struct sched_instance instances[VX_INSTANCES_MAX];
};

_Static_assert(VX_WORKERS_MAX <= 32, "workers_ready has a bit for each worker");

vx_status vx_sched_open(i32 queue_max, struct vx_sched **sched)
{
    VX_ASSERT(queue_max > 0);
    struct vx_sched *s = vx_alloc_zero(sizeof *s);
    VX_ENSURE(s, RESOURCE_EXHAUSTED, "no memory for the scheduler");
    s->queue_max = queue_max;
    *sched = s;
    return VX_OK;
}

void vx_sched_close(struct vx_sched **sched)
{
    if (!*sched) return;
    VX_ASSERT((*sched)->queued == 0 && (*sched)->running == 0);
    vx_free(*sched);
    *sched = NULL;
}

static struct sched_instance *sched_instance(struct vx_sched *sched, i32 instance)
{
    VX_ASSERT(instance >= 0 && instance < VX_INSTANCES_MAX);
    return &sched->instances[instance];
}

static struct sched_worker *sched_worker(struct vx_sched *sched, i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    return &sched->workers[worker];
}

void vx_sched_instance_set(struct vx_sched *sched, i32 instance, i64 batch_voxels_max,
                           i64 batch_delay_ns)
{
    struct sched_instance *i = sched_instance(sched, instance);
    i->batch_voxels_max = batch_voxels_max;
    i->batch_delay_ns = batch_delay_ns;
}

void vx_sched_instance_ready(struct vx_sched *sched, i32 instance, i32 worker, bool ready)
{
    struct sched_instance *i = sched_instance(sched, instance);
    VX_ASSERT(!ready || sched_worker(sched, worker)->up);
    u32 bit = 1u << worker;
    i->workers_ready = ready ? i->workers_ready | bit : i->workers_ready & ~bit;
}

void vx_sched_worker_up(struct vx_sched *sched, i32 worker)
{
    struct sched_worker *w = sched_worker(sched, worker);
    VX_ASSERT(!w->up && w->batches_count == 0);
    w->up = true;
}

/* Who said a priority goes before who did not; 1 before 2. */
static bool sched_before(const struct vx_job *a, const struct vx_job *b)
{
    u64 pa = a->priority ? a->priority : UINT64_MAX,
        pb = b->priority ? b->priority : UINT64_MAX;
    return pa != pb ? pa < pb : a->sequence < b->sequence;
}

/* From the tail, since nearly every arrival belongs there; a job that comes back after a
 * death has an old sequence and walks to the head by the same rule. */
static void queue_insert(struct vx_sched *sched, struct vx_job *job)
{
    struct vx_job *after = sched->last;
    while (after && sched_before(job, after)) after = after->previous;
    job->previous = after;
    job->next = after ? after->next : sched->first;
    *(after ? &after->next : &sched->first) = job;
    *(job->next ? &job->next->previous : &sched->last) = job;
    job->state = VX_JOB_QUEUED;
    sched->queued++;
    sched->queued_voxels += job->voxels;
}

static void queue_remove(struct vx_sched *sched, struct vx_job *job)
{
    VX_ASSERT(job->state == VX_JOB_QUEUED);
    *(job->previous ? &job->previous->next : &sched->first) = job->next;
    *(job->next ? &job->next->previous : &sched->last) = job->previous;
    job->next = job->previous = NULL;
    job->state = VX_JOB_NEW;
    sched->queued--;
    sched->queued_voxels -= job->voxels;
}

static void job_leaves(struct vx_sched *sched, struct vx_job *job)
{
    struct sched_instance *i = sched_instance(sched, job->instance);
    VX_ASSERT(i->jobs > 0);
    i->jobs--;
}

vx_status vx_sched_submit(struct vx_sched *sched, struct vx_job *job, i64 now_ns,
                          struct vx_why *why)
{
    VX_ASSERT(job->state == VX_JOB_NEW);
    VX_ENSURE(job->deadline_ns > now_ns, DEADLINE_EXCEEDED,
              "the deadline had passed before the request could wait for a device");
    if (sched->queued >= sched->queue_max)
        VX_FAIL_WHY(why, UNAVAILABLE, "Exceeds maximum queue size",
                    "Exceeds maximum queue size: %d requests wait already",
                    sched->queued);
    job->queued_ns = now_ns;
    job->deaths = 0;
    job->sequence = ++sched->sequence;
    queue_insert(sched, job);
    sched_instance(sched, job->instance)->jobs++;
    return VX_OK;
}

bool vx_sched_cancel(struct vx_sched *sched, struct vx_job *job)
{
    if (job->state != VX_JOB_QUEUED) return false;
    queue_remove(sched, job);
    job_leaves(sched, job);
    return true;
}

/* Hands out every waiting job for which `wanted` holds. */
static void queue_drop(struct vx_sched *sched,
                       bool (*wanted)(const struct vx_job *job, i64 value), i64 value,
                       void (*on_job)(void *context, struct vx_job *job), void *context)
{
    struct vx_job *next;
    for (struct vx_job *job = sched->first; job; job = next) {
        next = job->next;
        if (!wanted(job, value)) continue;
        vx_sched_cancel(sched, job);
        on_job(context, job);
    }
}

static bool job_is_late(const struct vx_job *job, i64 now_ns)
{
    return job->deadline_ns <= now_ns;
}

void vx_sched_expire(struct vx_sched *sched, i64 now_ns,
                     void (*on_late)(void *context, struct vx_job *job), void *context)
{
    queue_drop(sched, job_is_late, now_ns, on_late, context);
}

static bool job_is_of(const struct vx_job *job, i64 instance)
{
    return job->instance == instance;
}

void vx_sched_drop_instance(struct vx_sched *sched, i32 instance,
                            void (*on_job)(void *context, struct vx_job *job),
                            void *context)
{
    queue_drop(sched, job_is_of, instance, on_job, context);
}

/* The least busy worker that has the instance and room for one more batch, or -1. */
static i32 pick_worker(const struct vx_sched *sched, i32 instance)
{
    i32 best = -1;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
        const struct sched_worker *worker = &sched->workers[w];
        if (!worker->up || worker->batches_count >= VX_WORKER_DEPTH) continue;
        if (!(sched->instances[instance].workers_ready & (1u << w))) continue;
        if (best < 0 || worker->batches_count < sched->workers[best].batches_count)
            best = w;
    }
    return best;
}

bool vx_sched_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan)
{
    for (struct vx_job *job = sched->first; job; job = job->next) {
        i32 w = pick_worker(sched, job->instance);
        if (w < 0) continue;
        queue_remove(sched, job);
        job->state = VX_JOB_RUNNING;
        job->started_ns = now_ns;
        sched->running++;
        struct sched_worker *worker = &sched->workers[w];
        struct sched_batch *batch = &worker->batches[worker->batches_count++];
        *batch = (struct sched_batch){++sched->batch_id, job->instance, job};
        *plan = (struct vx_batch_plan){.worker = w,
                                       .instance = job->instance,
                                       .batch = batch->id,
                                       .jobs_count = 1,
                                       .jobs = {job},
                                       .voxels = job->voxels};
        return true;
    }
    return false;
}

static void batch_remove(struct sched_worker *worker, i32 at)
{
    worker->batches_count--;
    for (i32 i = at; i < worker->batches_count; i++)
        worker->batches[i] = worker->batches[i + 1];
    worker->batches[worker->batches_count] = (struct sched_batch){0};
}

bool vx_sched_finish(struct vx_sched *sched, i32 worker, u64 batch,
                     struct vx_batch_plan *plan)
{
    struct sched_worker *w = sched_worker(sched, worker);
    i32 at = 0;
    while (at < w->batches_count && w->batches[at].id != batch) at++;
    if (at == w->batches_count) return false;
    *plan = (struct vx_batch_plan){
        .worker = worker, .instance = w->batches[at].instance, .batch = batch};
    struct vx_job *next;
    for (struct vx_job *job = w->batches[at].jobs; job; job = next) {
        next = job->next;
        job->next = NULL;
        job->state = VX_JOB_NEW;
        sched->running--;
        job_leaves(sched, job);
        plan->jobs[plan->jobs_count++] = job;
        plan->voxels += job->voxels;
    }
    batch_remove(w, at);
    return true;
}

void vx_sched_worker_down(struct vx_sched *sched, i32 worker,
                          void (*on_poison)(void *context, struct vx_job *job),
                          void *context)
{
    struct sched_worker *w = sched_worker(sched, worker);
    if (!w->up) return;
    w->up = false;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        sched->instances[i].workers_ready &= ~(1u << worker);
    for (i32 b = 0; b < w->batches_count; b++) {
        struct vx_job *next;
        for (struct vx_job *job = w->batches[b].jobs; job; job = next) {
            next = job->next;
            job->next = NULL;
            job->state = VX_JOB_NEW;
            sched->running--;
            /* Only what ran can have killed it; what waited behind is a bystander. */
            if (b == 0) job->deaths++;
            if (job->deaths < VX_JOB_DEATHS_MAX) {
                queue_insert(sched, job);
            } else {
                job_leaves(sched, job);
                on_poison(context, job);
            }
        }
        w->batches[b] = (struct sched_batch){0};
    }
    w->batches_count = 0;
}

i64 vx_sched_next_ns(const struct vx_sched *sched)
{
    i64 next = VX_NEVER;
    for (const struct vx_job *job = sched->first; job; job = job->next)
        if (job->deadline_ns < next) next = job->deadline_ns;
    return next;
}

i32 vx_sched_worker_batches(const struct vx_sched *sched, i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    return sched->workers[worker].batches_count;
}

i32 vx_sched_queued(const struct vx_sched *sched)
{
    return sched->queued;
}

i32 vx_sched_running(const struct vx_sched *sched)
{
    return sched->running;
}

i64 vx_sched_queued_voxels(const struct vx_sched *sched)
{
    return sched->queued_voxels;
}

i32 vx_sched_instance_jobs(const struct vx_sched *sched, i32 instance)
{
    VX_ASSERT(instance >= 0 && instance < VX_INSTANCES_MAX);
    return sched->instances[instance].jobs;
}
