/* sched_long - jobs that take a device for long, and what others get of it in between.
 *
 * A batch that runs cannot be stopped, so who asks for little waits for the rest of a long one.
 * Turns do not help: when the short jobs that waited have run, the device is idle, and the next
 * long job would begin at once.  One client that always had a request of 2.4 million voxels in
 * flight kept half of another's requests waiting for 0.45 s and more.
 *
 *   a long batch ends, after T, and nobody else's short job waited for it     nothing
 *   it ends, and such a job waited        that worker begins no long job for another T
 *   a long batch runs, and such a job waits      no long job is sent behind it
 *
 * So while others wait, long jobs have half of a device's time, all of them together, and short
 * ones find it free in the other half.  A long job waits no longer than the one before it took,
 * and then it is its turn as always: nobody starves.  Only long jobs are held, and only on that
 * worker; a client alone, and clients that all send long jobs, notice nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"

static bool is_long_on(const struct vx_sched *sched, const struct vx_job *job, i32 worker)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    const struct vx_cost *cost = &instance->costs[worker];
    const f64 pairs = sched_job_pairs(instance, job);
    const i64 build = sched_holds(job, worker) ? 0 : job->voxels;
    return vx_cost_is_far(cost, pairs) ||
           vx_cost_predict_ns(cost, pairs, build) > VX_SCHED_BATCH_NS_MAX;
}

bool vx_sched_is_long(const struct vx_sched *sched, const struct vx_job *job)
{
    u32 workers = vx_sched_job_workers(sched, job);
    if (!workers) return false;
    for (; workers; workers &= workers - 1)
        if (!is_long_on(sched, job, __builtin_ctz(workers))) return false;
    return true;
}

/* Whether short jobs wait that are not this client's own. */
static bool others_wait(const struct vx_sched *sched, u64 client)
{
    return sched->shorts > vx_sched_client_shorts(sched, client);
}

void vx_sched_long_note(struct vx_sched *sched, struct sched_worker *worker)
{
    struct sched_batch *first = &worker->batches[0];
    if (worker->batches_count && others_wait(sched, first->jobs->client))
        first->was_awaited = true;
}

void vx_sched_long_ends(struct vx_sched *sched, struct sched_worker *worker, i64 now_ns)
{
    const struct sched_batch *first = &worker->batches[0];
    const i64 took_ns = now_ns - first->since_ns;
    vx_sched_long_note(sched, worker);
    if (took_ns > VX_SCHED_BATCH_NS_MAX && first->was_awaited)
        worker->rests_until_ns = now_ns + took_ns;
}

i64 vx_sched_long_held_ns(const struct vx_sched *sched, const struct vx_job *job,
                          i32 worker, i64 now_ns)
{
    const i64 left_ns = sched->workers[worker].rests_until_ns - now_ns;
    return job->is_long && left_ns > 0 ? left_ns : 0;
}

/* The worker runs a batch that is long, by its prediction or already. */
static bool runs_long(const struct sched_worker *worker, i64 now_ns)
{
    const struct sched_batch *first = &worker->batches[0];
    return worker->batches_count && (first->predicted_ns > VX_SCHED_BATCH_NS_MAX ||
                                     now_ns - first->since_ns > VX_SCHED_BATCH_NS_MAX);
}

u32 vx_sched_long_workers(const struct vx_sched *sched, const struct vx_job *job,
                          u32 workers, struct sched_look *look)
{
    if (!job->is_long) return workers;
    const bool awaited = others_wait(sched, job->client);
    for (u32 left = workers; left; left &= left - 1) {
        const i32 w = __builtin_ctz(left);
        const i64 held_ns = vx_sched_long_held_ns(sched, job, w, look->now_ns);
        if (held_ns && look->now_ns + held_ns < look->wake_ns)
            look->wake_ns = look->now_ns + held_ns;
        if (held_ns || (awaited && runs_long(&sched->workers[w], look->now_ns)))
            workers &= ~(1u << w);
    }
    return workers;
}
