/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* While a batch runs that takes longer than this, there is time to copy another one in
 * behind it, and jobs that arrive later can still join the batch after that. */
#define LARGE_NS (2 * VX_NS_PER_MS)
/* Beside a batch that takes longer than the first, by prediction or by the clock, a second place is
 * for brief batches alone: who comes meanwhile waits for none of its kind.  Others are sent only
 * about when it is predicted to end: that hides the copy, too. */
#define LONG_NS  (100 * VX_NS_PER_MS)
#define AHEAD_NS (20 * VX_NS_PER_MS)
/* The shortest time after which a choice that depends on a late batch is reconsidered:
 * with a shorter one the loop would do nothing but wake up. */
#define LATE_STEP_NS (VX_NS_PER_MS / 10)

i64 vx_sched_free_ns(const struct vx_sched *sched, i32 worker, i64 now_ns, bool believed)
{
    const struct sched_worker *w = &sched->workers[worker];
    i64 free_ns = 0;
    for (i32 b = 0; b < w->batches_count; b++) {
        const struct sched_batch *batch = &w->batches[b];
        i64 left_ns = believed ? batch->believed_ns : batch->predicted_ns;
        if (b == 0 && left_ns > 0) {
            left_ns -= now_ns - batch->since_ns;
            if (left_ns < 0) left_ns = -left_ns;
        }
        free_ns += left_ns;
    }
    return free_ns;
}

bool vx_sched_runs_long(const struct vx_sched *sched, i32 worker, i64 now_ns)
{
    const struct sched_worker *w = &sched->workers[worker];
    if (w->batches_count != 1) return false;
    const i64 predicted_ns = w->batches[0].predicted_ns;
    const i64 run_ns = now_ns - w->batches[0].since_ns, left_ns = predicted_ns - run_ns;
    if (predicted_ns <= 0) return false; /* not known: of its kind none is */
    if (predicted_ns > LONG_NS && left_ns > AHEAD_NS) return true;
    return run_ns > LONG_NS && (left_ns > AHEAD_NS || left_ns < -AHEAD_NS);
}

i64 vx_sched_brief_ns(const struct vx_sched *sched, i32 worker)
{
    const i32 threads = sched->workers[worker].threads;
    return threads > 2 ? SCHED_BRIEF_ALONE_NS / threads : SCHED_BRIEF_NS;
}

bool vx_sched_is_brief(const struct vx_sched *sched, const struct vx_job *job, i32 worker,
                       i64 now_ns)
{
    if (job->asks || vx_sched_is_patient(sched, job, now_ns)) return false;
    const struct sched_instance *instance = &sched->instances[job->instance];
    const i64 build = sched_holds(job, worker) ? 0 : job->voxels;
    const f64 pairs = sched_job_pairs(instance, job);
    const i64 ns = vx_cost_predict_ns(&instance->costs[worker], pairs, build);
    return ns && ns <= vx_sched_brief_ns(sched, worker) &&
           !vx_cost_is_far(&instance->costs[worker], pairs);
}

void vx_sched_look_begin(const struct vx_sched *sched, i64 now_ns,
                         struct sched_look *look)
{
    *look = (struct sched_look){.now_ns = now_ns, .wake_ns = VX_NEVER};
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
        if (!sched->workers[w].batches_count) continue;
        look->free_ns[w] = vx_sched_free_ns(sched, w, now_ns, false);
        if (vx_sched_runs_long(sched, w, now_ns)) look->brief |= 1u << w;
    }
}

static void look_wake(struct sched_look *look, i64 at_ns)
{
    if (at_ns < look->wake_ns) look->wake_ns = at_ns;
}

/* Whether to send a second batch while one runs, or wait for its end.  The device copies
 * the second batch in while the first computes.  But a batch that is sent now takes no
 * further jobs, and several small batches cost more than the copy that this hides. */
static bool second_place_pays(const struct sched_instance *instance,
                              const struct sched_batch *running, struct sched_look *look)
{
    const struct vx_batching *batching = &instance->batching;
    const struct sched_load *waiting = &instance->waiting;
    if (2 * waiting->jobs >= sched_requests_max(batching)) return true;
    if (2 * waiting->set_voxels >= batching->voxels_max) return true;
    if (batching->pairs_max > 0 &&
        2 * sched_load_pairs(instance, waiting) >= (f64)batching->pairs_max)
        return true;
    if (running->predicted_ns <= 0 || running->predicted_ns > LARGE_NS) return true;
    i64 half_ns = running->since_ns + running->predicted_ns / 2;
    if (look->now_ns >= half_ns) return true;
    look_wake(look, half_ns);
    return false;
}

/* A second batch of any size may be sent some time before the end of a long one. */
static void wake_late(const struct sched_batch *running, struct sched_look *look)
{
    const i64 late_ns = running->since_ns + running->predicted_ns - AHEAD_NS;
    if (look->now_ns < late_ns) look_wake(look, late_ns);
}

u32 vx_sched_open_workers(const struct vx_sched *sched, i32 instance,
                          struct sched_look *look)
{
    const struct sched_instance *i = &sched->instances[instance];
    u32 open = 0;
    for (u32 left = i->workers_ready & ~look->reserved; left; left &= left - 1) {
        i32 w = __builtin_ctz(left);
        const struct sched_worker *worker = &sched->workers[w];
        if (worker->batches_count >= VX_WORKER_DEPTH || worker->batches[0].solo) continue;
        if (look->brief & 1u << w)
            wake_late(&worker->batches[0], look);
        else if (worker->batches_count &&
                 !second_place_pays(i, &worker->batches[0], look))
            continue;
        open |= 1u << w;
    }
    return open;
}

u32 vx_sched_job_workers(const struct vx_sched *sched, const struct vx_job *job)
{
    u32 workers = sched->instances[job->instance].workers_ready;
    if (job->only) workers &= job->only;
    return job->must_hold ? workers & job->holders : workers;
}

static i64 build_ns(const struct sched_instance *instance, const struct vx_job *job,
                    i32 worker)
{
    if (sched_holds(job, worker)) return 0;
    const struct vx_cost *cost = &instance->costs[worker];
    i64 run_ns = vx_cost_more_ns(cost, sched_job_pairs(instance, job));
    return vx_cost_build_ns(cost, job->voxels, run_ns);
}

static bool all_firm(const struct sched_instance *instance, u32 workers)
{
    for (; workers; workers &= workers - 1)
        if (!vx_cost_is_firm(&instance->costs[__builtin_ctz(workers)])) return false;
    return true;
}

/* The one of `workers` that is predicted to finish the job first; on a tie, one that
 * holds its geometry.  While the cost of any of them is not firm: the one with the fewest
 * batches, and on a tie the one with the fewest measured batches. */
static i32 first_done(const struct vx_sched *sched, const struct vx_job *job, u32 workers,
                      const struct sched_look *look, i64 *done_ns)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    bool firm = all_firm(instance, workers);
    f64 pairs = sched_job_pairs(instance, job);
    i32 best = -1;
    for (; workers; workers &= workers - 1) {
        i32 w = __builtin_ctz(workers);
        const i64 run_ns = build_ns(instance, job, w) +
                           vx_cost_predict_ns(&instance->costs[w], pairs, 0);
        i64 done = look->free_ns[w] + run_ns;
        /* Beside a long batch it waits for nothing, but an idle worker is better. */
        if (look->brief & 1u << w && done > 2 * run_ns &&
            vx_sched_is_brief(sched, job, w, look->now_ns))
            done = 2 * run_ns;
        if (!firm)
            done = sched->workers[w].batches_count * 1000 + instance->costs[w].seen;
        if (best >= 0 && done > *done_ns) continue;
        if (best >= 0 && done == *done_ns &&
            (sched_holds(job, best) || !sched_holds(job, w)))
            continue;
        best = w;
        *done_ns = done;
    }
    return best;
}

/* The fraction of a batch that a job takes up. */
static f64 job_share(const struct vx_batching *batching, const struct vx_job *job)
{
    f64 share = 1.0 / sched_requests_max(batching);
    f64 voxels =
        (f64)job->set_voxels / (f64)(batching->voxels_max > 0 ? batching->voxels_max : 1);
    if (voxels > share) share = voxels;
    return share < 1 ? share : 1;
}

/* Leaves the job for this worker: adds its time to free_ns, for the jobs behind it. */
static void look_leave(const struct vx_sched *sched, const struct vx_job *job, i32 worker,
                       struct sched_look *look)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    const struct vx_cost *cost = &instance->costs[worker];
    if (!vx_cost_is_known(cost)) return;
    f64 fixed_ns = cost->fixed_ns * job_share(&instance->batching, job);
    look->free_ns[worker] += build_ns(instance, job, worker) + (i64)fixed_ns +
                             vx_cost_more_ns(cost, sched_job_pairs(instance, job));
}

i32 vx_sched_place(const struct vx_sched *sched, const struct vx_job *job, u32 open,
                   struct sched_look *look)
{
    u32 may = vx_sched_job_workers(sched, job);
    open &= may;
    for (u32 left = open & look->brief; left; left &= left - 1)
        if (!vx_sched_is_brief(sched, job, __builtin_ctz(left), look->now_ns))
            open &= ~(left & -left);
    if (!open) return -1;
    i64 done_ns = 0, open_done_ns = 0;
    i32 now = first_done(sched, job, open, look, &open_done_ns);
    if (open == may || !all_firm(&sched->instances[job->instance], may)) return now;
    i32 best = first_done(sched, job, may, look, &done_ns);
    if (open & (1u << best)) return best;
    /* The job waits for a better worker.  That changes when the batch that runs there is
     * late by as much as the better worker would be earlier. */
    const struct sched_batch *running = &sched->workers[best].batches[0];
    i64 end_ns = running->since_ns + running->predicted_ns;
    i64 better_ns = open_done_ns - done_ns;
    look_wake(look, (end_ns > look->now_ns ? end_ns : look->now_ns) +
                        (better_ns > LATE_STEP_NS ? better_ns : LATE_STEP_NS));
    look_leave(sched, job, best, look);
    return -1;
}

bool vx_sched_prefers_holder(const struct vx_sched *sched, const struct vx_job *job,
                             i32 worker, struct sched_look *look)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    u32 holders = job->holders & vx_sched_job_workers(sched, job);
    if (!holders || sched_holds(job, worker)) return false;
    if (!all_firm(instance, holders | 1u << worker)) return false;
    i64 here_ns = look->free_ns[worker] + build_ns(instance, job, worker), there_ns = 0;
    i32 holder = -1;
    for (; holders; holders &= holders - 1) {
        i32 w = __builtin_ctz(holders);
        if (holder >= 0 && look->free_ns[w] >= there_ns) continue;
        holder = w;
        there_ns = look->free_ns[w];
    }
    if (there_ns >= here_ns) return false;
    look_leave(sched, job, holder, look);
    return true;
}

u32 vx_sched_solo_workers(const struct vx_sched *sched, const struct vx_job *job)
{
    return vx_sched_job_workers(sched, job) & ~sched->workers_loading;
}

i32 vx_sched_place_solo(const struct vx_sched *sched, const struct vx_job *job,
                        bool drain, struct sched_look *look)
{
    u32 may = vx_sched_solo_workers(sched, job) & ~look->reserved, idle = 0;
    for (u32 left = may; left; left &= left - 1)
        if (!sched->workers[__builtin_ctz(left)].batches_count) idle |= left & -left;
    i64 done_ns = 0;
    if (idle) return first_done(sched, job, idle, look, &done_ns);
    if (may && drain) {
        i32 w = first_done(sched, job, may, look, &done_ns);
        look->reserved |= 1u << w;
        look_leave(sched, job, w, look);
    }
    return -1;
}
