/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched/sched_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

vx_status vx_sched_open(i32 queue_max, struct vx_sched **sched)
{
    VX_ASSERT(queue_max > 0);
    struct vx_sched *s = vx_alloc_zero(sizeof *s);
    VX_ENSURE(s, RESOURCE_EXHAUSTED, "no memory for the scheduler");
    /* Jobs that come back from dead workers wait beyond queue_max. */
    size_t waiting_max = (size_t)queue_max + VX_SCHED_QUEUE_RESERVED +
                         VX_WORKERS_MAX * VX_WORKER_DEPTH * VX_BATCH_ITEMS_MAX;
    s->heap = vx_alloc(waiting_max * sizeof *s->heap);
    if (!s->heap) {
        vx_free(s);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for the scheduler's queue");
    }
    s->queue_max = queue_max;
    s->wake_ns = VX_NEVER;
    *sched = s;
    return VX_OK;
}

void vx_sched_close(struct vx_sched **sched)
{
    if (!*sched) return;
    VX_ASSERT((*sched)->queued == 0 && (*sched)->running == 0);
    vx_free((*sched)->heap);
    vx_free(*sched);
    *sched = NULL;
}

struct sched_instance *vx_sched_instance(struct vx_sched *sched, i32 instance)
{
    VX_ASSERT(instance >= 0 && instance < VX_INSTANCES_MAX);
    return &sched->instances[instance];
}

struct sched_worker *vx_sched_worker(struct vx_sched *sched, i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    return &sched->workers[worker];
}

void vx_sched_instance_set(struct vx_sched *sched, i32 instance,
                           const struct vx_batching *batching, bool fresh)
{
    struct sched_instance *i = vx_sched_instance(sched, instance);
    i->batching = *batching;
    if (!fresh) return;
    i->ratio = i->set_ratio = (struct vx_cost_ratio){0};
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) i->costs[w] = (struct vx_cost){0};
}

void vx_sched_instance_ready(struct vx_sched *sched, i32 instance, i32 worker, bool ready)
{
    struct sched_instance *i = vx_sched_instance(sched, instance);
    const struct sched_worker *w = vx_sched_worker(sched, worker);
    VX_ASSERT(!ready || w->up);
    if (w->leaving) return; /* its late messages change nothing */
    u32 bit = 1u << worker;
    i->workers_ready = ready ? i->workers_ready | bit : i->workers_ready & ~bit;
}

void vx_sched_worker_up(struct vx_sched *sched, i32 worker)
{
    struct sched_worker *w = vx_sched_worker(sched, worker);
    VX_ASSERT(!w->up && w->batches_count == 0);
    w->up = true;
}

static void forget_ready(struct vx_sched *sched, i32 worker)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        sched->instances[i].workers_ready &= ~(1u << worker);
}

void vx_sched_worker_threads(struct vx_sched *sched, i32 worker, i32 threads)
{
    vx_sched_worker(sched, worker)->threads = threads;
}

void vx_sched_worker_leaving(struct vx_sched *sched, i32 worker)
{
    struct sched_worker *w = vx_sched_worker(sched, worker);
    if (!w->up) return;
    w->leaving = true;
    forget_ready(sched, worker);
}

void vx_sched_worker_loading(struct vx_sched *sched, i32 worker, bool loading)
{
    u32 bit = 1u << worker;
    bool is_loading = loading && vx_sched_worker(sched, worker)->up;
    sched->workers_loading =
        is_loading ? sched->workers_loading | bit : sched->workers_loading & ~bit;
}

bool vx_sched_worker_has_solo(const struct vx_sched *sched, i32 worker)
{
    const struct sched_worker *it = &sched->workers[worker];
    for (i32 b = 0; b < it->batches_count; b++)
        if (it->batches[b].solo) return true;
    for (const struct vx_job *job = sched->solo.first; job; job = job->next)
        if (vx_sched_job_workers(sched, job) & 1u << worker) return true;
    return false;
}

/* The index of the worker's batch with this id; batches_count when there is none. */
static i32 batch_find(const struct sched_worker *worker, u64 id)
{
    i32 at = 0;
    while (at < worker->batches_count && worker->batches[at].id != id) at++;
    return at;
}

void vx_sched_undelivered(struct vx_sched *sched, i32 worker, u64 batch)
{
    struct sched_worker *w = vx_sched_worker(sched, worker);
    i32 at = batch_find(w, batch);
    VX_ASSERT(at < w->batches_count);
    w->batches[at].undelivered = true;
    vx_sched_worker_leaving(sched, worker);
}

static void line_forget_holder(const struct sched_line *line, u32 bit)
{
    for (struct vx_job *job = line->first; job; job = job->next) job->holders &= ~bit;
}

/* No waiting job may count on the geometries of the worker: it restarts with none. */
static void forget_holder(struct vx_sched *sched, i32 worker)
{
    line_forget_holder(&sched->solo, 1u << worker);
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        for (i32 l = 0; l < SCHED_LINES; l++)
            line_forget_holder(&sched->instances[i].lines[l], 1u << worker);
}

/* Puts the job back into the queue, or returns true when it has too many deaths. */
static bool job_is_poison(struct vx_sched *sched, struct vx_job *job, i32 worker,
                          i32 deaths)
{
    job->next = NULL;
    job->state = VX_JOB_NEW;
    sched->running--;
    sched->running_voxels -= job->set_voxels;
    job->deaths += deaths;
    if (job->deaths >= VX_JOB_DEATHS_MAX) {
        vx_sched_job_leaves(sched, job);
        return true;
    }
    job->holders &= ~(1u << worker);
    /* It already ran in time once, and the death is not its client's fault: from now on
     * only gRPC's deadline counts. */
    job->by_timeout = false;
    job->expires_ns = job->deadline_ns;
    vx_sched_insert(sched, job);
    return false;
}

void vx_sched_worker_down(struct vx_sched *sched, i32 worker,
                          void (*on_poison)(void *context, struct vx_job *job),
                          void *context)
{
    struct sched_worker *w = vx_sched_worker(sched, worker);
    if (!w->up) return;
    w->up = w->leaving = false;
    sched->workers_loading &= ~(1u << worker);
    forget_ready(sched, worker);
    forget_holder(sched, worker);
    struct vx_job *poison = NULL, **end = &poison, *next;
    for (i32 b = 0; b < w->batches_count; b++) {
        /* The device worked on all batches at once: each may be the cause. */
        i32 deaths = w->batches[b].undelivered ? 0 : 1;
        for (struct vx_job *job = w->batches[b].jobs; job; job = next) {
            next = job->next;
            if (!job_is_poison(sched, job, worker, deaths)) continue;
            *end = job;
            end = &job->next;
        }
        w->batches[b] = (struct sched_batch){0};
    }
    w->batches_count = 0;
    for (; poison; poison = next) {
        next = poison->next;
        poison->next = NULL;
        on_poison(context, poison);
    }
}

/* What a batch wrote beyond what its jobs' voxels say, and the time that this took. */
static void learn_unforeseen(const struct sched_batch *batch,
                             const struct vx_batch_end *end, struct vx_cost_seen *seen)
{
    f64 all = 0, unforeseen = 0;
    i64 at = 0;
    for (const struct vx_job *job = batch->jobs; job; job = job->next, at++) {
        if (end->left_out >> at & 1) continue;
        all += (f64)job->answer_bytes + (f64)job->grown_bytes;
        unforeseen += (f64)job->unforeseen_bytes;
    }
    if (unforeseen <= 0 || end->output_ns <= 0) return;
    const f64 ns = (f64)end->output_ns * (unforeseen / all);
    seen->unforeseen_bytes = (i64)unforeseen;
    seen->unforeseen_ns = ns < (f64)seen->ns ? (i64)ns : seen->ns;
    seen->ns -= seen->unforeseen_ns;
}

/* How long the most pairs that a batch had for each voxel are thought of. */
#define MOST_FADES_NS (120 * VX_NS_PER_S)

f64 vx_sched_pairs_most(const struct sched_instance *instance, const struct vx_job *job,
                        i64 now_ns)
{
    const i64 age_ns = now_ns - instance->most_ns;
    if (age_ns >= MOST_FADES_NS) return 0;
    return (f64)job->voxels * instance->pairs_most *
           (1 - (f64)age_ns / (f64)MOST_FADES_NS);
}

static void most_learn(struct sched_instance *instance, i64 pairs, i64 voxels, i64 now_ns)
{
    const struct vx_job one = {.voxels = 1};
    if (pairs <= 0 || voxels <= 0) return;
    const f64 most = (f64)pairs / (f64)voxels;
    if (most < vx_sched_pairs_most(instance, &one, now_ns)) return;
    instance->pairs_most = most;
    instance->most_ns = now_ns;
}

static void batch_learn(struct vx_sched *sched, const struct sched_batch *batch,
                        const struct vx_batch_end *end)
{
    if (end->device_ns <= 0 || (end->left_out && end->pairs <= 0)) return;
    struct sched_instance *instance = vx_sched_instance(sched, batch->instance);
    i64 voxels = batch->voxels, at = 0;
    for (const struct vx_job *job = batch->jobs; job; job = job->next, at++) {
        if (end->left_out >> at & 1) voxels -= job->voxels;
        /* Of the size that was predicted, too: it decides whether the next one is tried. */
        instance->learned_ns[vx_cost_class(sched_job_pairs(instance, job))] = end->now_ns;
    }
    i64 build_ns = end->geometry_ns < 0                ? 0
                   : end->geometry_ns > end->device_ns ? end->device_ns
                                                       : end->geometry_ns;
    f64 pairs = (f64)(end->pairs > 0 ? end->pairs : batch->pairs);
    instance->learned_ns[vx_cost_class(pairs)] = end->now_ns;
    vx_cost_ratio_learn(&instance->ratio, end->pairs, voxels);
    most_learn(instance, end->pairs, voxels, end->now_ns);
    vx_cost_ratio_learn(&instance->set_ratio, end->set_voxels, voxels);
    struct vx_cost_seen seen = {
        .ns = end->device_ns - build_ns,
        .pairs = pairs,
        .build_ns = build_ns,
        /* With jobs left out it is not known which geometries were built. */
        .build_voxels = end->left_out ? 0 : batch->build_voxels,
    };
    learn_unforeseen(batch, end, &seen);
    if (end->aside) return; /* another batch of its kind has all threads */
    vx_cost_learn(&instance->costs[end->worker], &seen);
}

static void batch_remove(struct sched_worker *worker, i32 at, i64 now_ns)
{
    worker->batches_count--;
    for (i32 b = at; b < worker->batches_count; b++)
        worker->batches[b] = worker->batches[b + 1];
    worker->batches[worker->batches_count] = (struct sched_batch){0};
    /* From here on the next batch has the device for itself. */
    if (at == 0 && worker->batches_count) worker->batches[0].since_ns = now_ns;
}

i32 vx_sched_batch_jobs(const struct vx_sched *sched, i32 worker, u64 batch)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    const struct sched_worker *w = &sched->workers[worker];
    i32 at = batch_find(w, batch), jobs = 0;
    if (at == w->batches_count) return 0;
    for (const struct vx_job *job = w->batches[at].jobs; job; job = job->next) jobs++;
    return jobs;
}

struct vx_job *vx_sched_batch_job(const struct vx_sched *sched, i32 worker, u64 batch,
                                  i32 index)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    const struct sched_worker *w = &sched->workers[worker];
    i32 at = batch_find(w, batch);
    if (at == w->batches_count) return NULL;
    struct vx_job *job = w->batches[at].jobs;
    while (job && index-- > 0) job = job->next;
    return job;
}

bool vx_sched_finish(struct vx_sched *sched, const struct vx_batch_end *end,
                     struct vx_batch_plan *plan)
{
    struct sched_worker *w = vx_sched_worker(sched, end->worker);
    i32 at = batch_find(w, end->batch);
    if (at == w->batches_count) return false;
    const struct sched_batch *batch = &w->batches[at];
    batch_learn(sched, batch, end);
    /* The one before stood still meanwhile. */
    if (end->aside && at) w->batches[0].since_ns += end->device_ns;
    plan->worker = end->worker;
    plan->instance = batch->instance;
    plan->batch = end->batch;
    plan->jobs_count = 0;
    plan->voxels = batch->voxels;
    plan->set_voxels = batch->set_voxels;
    plan->pairs = end->pairs > 0 ? end->pairs : batch->pairs;
    plan->predicted_ns = batch->predicted_ns;
    struct vx_job *next;
    for (struct vx_job *job = batch->jobs; job; job = next) {
        next = job->next;
        job->next = NULL;
        job->state = VX_JOB_NEW;
        vx_sched_job_leaves(sched, job);
        plan->jobs[plan->jobs_count++] = job;
    }
    sched->running -= plan->jobs_count;
    sched->running_voxels -= plan->set_voxels;
    batch_remove(w, at, end->now_ns);
    return true;
}

i64 vx_sched_next_ns(const struct vx_sched *sched)
{
    i64 expires_ns = sched->heap_count ? sched->heap[0]->expires_ns : VX_NEVER;
    return expires_ns < sched->wake_ns ? expires_ns : sched->wake_ns;
}

i32 vx_sched_worker_batches(const struct vx_sched *sched, i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    const struct sched_worker *w = &sched->workers[worker];
    i32 delivered = 0;
    for (i32 b = 0; b < w->batches_count; b++) delivered += !w->batches[b].undelivered;
    return delivered;
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

i64 vx_sched_voxels(const struct vx_sched *sched)
{
    return sched->queued_voxels + sched->running_voxels;
}

i32 vx_sched_instance_jobs(const struct vx_sched *sched, i32 instance)
{
    VX_ASSERT(instance >= 0 && instance < VX_INSTANCES_MAX);
    return sched->instances[instance].jobs;
}
