/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* A batch that starts early because of a deadline starts this much earlier than it must:
 * the loop's timers are no finer. */
#define DEADLINE_SLACK_NS VX_NS_PER_MS
/* No job joins a batch whose predicted time would then exceed this: the next request
 * waits for all of it, and a device with four batches a second loses no throughput. */
#define BATCH_NS_MAX (VX_NS_PER_S / 4)

/* A batch while it is being formed. */
struct forming {
    f64 pairs;
    i64 build_voxels;
    i64 now_ns;
    i64 first_ns;  /* when the earliest of its jobs was submitted */
    i64 before_ns; /* the latest time to start it, given the deadlines of its jobs */
    i64 most_ns;   /* no job joins that makes it longer */
    bool brief;    /* only brief jobs join */
    bool full;
};

/* Where features decide about voxels the mean says little: a client that sends cheap ones first would
 * have its expensive ones run as one batch. */
static f64 most_pairs(const struct sched_instance *instance, const struct vx_job *job,
                      i64 now_ns)
{
    const f64 expected = sched_job_pairs(instance, job);
    if (!job->asks || job->pairs) return expected;
    const f64 most = vx_sched_pairs_most(instance, job, now_ns);
    return most > expected ? most : expected;
}

static void forming_add(const struct sched_instance *instance, struct forming *forming,
                        struct vx_batch_plan *plan, struct vx_job *job)
{
    plan->jobs[plan->jobs_count++] = job;
    plan->voxels += job->voxels;
    plan->set_voxels += job->set_voxels;
    forming->pairs += most_pairs(instance, job, forming->now_ns);
    if (!sched_holds(job, plan->worker)) forming->build_voxels += job->voxels;
    if (job->queued_ns < forming->first_ns) forming->first_ns = job->queued_ns;
}

static bool forming_fits(const struct sched_instance *instance,
                         const struct forming *forming, const struct vx_batch_plan *plan,
                         const struct vx_job *job)
{
    const struct vx_batching *batching = &instance->batching;
    if (job->set_voxels > batching->voxels_max - plan->set_voxels) return false;
    f64 pairs = forming->pairs + most_pairs(instance, job, forming->now_ns);
    if (batching->pairs_max > 0 && pairs > (f64)batching->pairs_max) return false;
    const struct vx_cost *cost = &instance->costs[plan->worker];
    i64 build = sched_holds(job, plan->worker) ? 0 : job->voxels;
    return !vx_cost_is_far(cost, pairs) &&
           vx_cost_predict_ns(cost, pairs, forming->build_voxels + build) <=
               forming->most_ns;
}

/* `timeout` is met when the job starts in time, gRPC's deadline when it ends in time. */
static void forming_close(const struct sched_instance *instance, struct forming *forming,
                          struct vx_batch_plan *plan)
{
    plan->pairs = (i64)forming->pairs;
    plan->predicted_ns = vx_cost_predict_ns(&instance->costs[plan->worker],
                                            forming->pairs, forming->build_voxels);
    for (i32 j = 0; j < plan->jobs_count; j++) {
        const struct vx_job *job = plan->jobs[j];
        i64 start_ns = VX_NEVER;
        if (job->deadline_ns != VX_NEVER)
            start_ns = job->deadline_ns - plan->predicted_ns;
        if (job->expires_ns < start_ns) start_ns = job->expires_ns;
        if (start_ns == VX_NEVER) continue;
        start_ns -= DEADLINE_SLACK_NS;
        if (start_ns < forming->before_ns) forming->before_ns = start_ns;
    }
}

/* Whether the job counts towards VX_SCHED_LOOK_MAX.  Jobs bound to other workers, by their memory or
 * by a geometry that they only name, do not: they cost three reads each, and any number of them may
 * wait for a worker that is down or busy, while the others are idle. */
static i32 look_counts(const struct vx_job *job, u32 workers)
{
    return (sched_can_be(job) & workers) != 0;
}

/* Fills a batch for plan->worker: `first`, whatever its size, and the jobs behind it that
 * fit.  A job that does not fit keeps its place, and no job behind it starts a batch
 * before it does. */
static void batch_form(const struct vx_sched *sched, struct vx_job *first,
                       struct sched_look *look, struct forming *forming,
                       struct vx_batch_plan *plan)
{
    const struct sched_instance *instance = &sched->instances[first->instance];
    i32 most = sched_requests_max(&instance->batching);
    forming_add(instance, forming, plan, first);
    struct vx_job *job = vx_sched_after(instance, first);
    for (i32 looked = 0; job && looked < VX_SCHED_LOOK_MAX;
         looked += look_counts(job, 1u << plan->worker),
             job = vx_sched_after(instance, job)) {
        if (plan->jobs_count == most) break;
        bool elsewhere = !sched_can(job, plan->worker);
        bool fits = forming_fits(instance, forming, plan, job) &&
                    (!forming->brief ||
                     vx_sched_is_brief(sched, job, plan->worker, look->now_ns));
        if (!elsewhere && !fits) forming->full = true;
        if (!elsewhere && fits &&
            !vx_sched_prefers_holder(sched, job, plan->worker, look))
            forming_add(instance, forming, plan, job);
    }
    const struct vx_batching *batching = &instance->batching;
    if (plan->jobs_count == most || plan->set_voxels >= batching->voxels_max)
        forming->full = true;
    if (batching->pairs_max > 0 && forming->pairs >= (f64)batching->pairs_max)
        forming->full = true;
    forming_close(instance, forming, plan);
}

/* Whether it may run while the one before it goes on, should that take long. */
static bool plan_is_brief(const struct vx_sched *sched, const struct vx_batch_plan *plan,
                          i64 now_ns)
{
    for (i32 j = 0; j < plan->jobs_count; j++)
        if (plan->jobs[j]->asks || vx_sched_is_patient(sched, plan->jobs[j], now_ns))
            return false;
    return plan->predicted_ns &&
           plan->predicted_ns <= vx_sched_brief_ns(sched, plan->worker);
}

static void batch_send(struct vx_sched *sched, const struct forming *forming, i64 now_ns,
                       struct vx_batch_plan *plan)
{
    struct sched_worker *worker = &sched->workers[plan->worker];
    VX_ASSERT(worker->batches_count < VX_WORKER_DEPTH);
    plan->brief = worker->batches_count && plan_is_brief(sched, plan, now_ns);
    struct sched_batch *batch = &worker->batches[worker->batches_count++];
    plan->batch = ++sched->batch_id;
    *batch = (struct sched_batch){
        .id = plan->batch,
        .instance = plan->instance,
        .solo = plan->jobs[0]->deaths > 0,
        .since_ns = now_ns,
        .voxels = plan->voxels,
        .build_voxels = forming->build_voxels,
        .set_voxels = plan->set_voxels,
        .pairs = plan->pairs,
        .predicted_ns = plan->predicted_ns,
        .believed_ns =
            vx_cost_believe_ns(&sched->instances[plan->instance].costs[plan->worker],
                               forming->pairs, forming->build_voxels),
    };
    struct vx_job **end = &batch->jobs;
    vx_sched_turn_begins(sched, plan);
    for (i32 j = 0; j < plan->jobs_count; j++) {
        struct vx_job *job = plan->jobs[j];
        vx_sched_remove(sched, job);
        job->state = VX_JOB_RUNNING;
        job->started_ns = now_ns;
        job->grown_bytes = job->unforeseen_bytes = 0;
        *end = job;
        end = &job->next;
    }
    sched->running += plan->jobs_count;
    sched->running_voxels += plan->set_voxels;
}

static void plan_begin(const struct vx_job *first, i32 worker, i64 now_ns,
                       struct forming *forming, struct vx_batch_plan *plan)
{
    *forming = (struct forming){.now_ns = now_ns,
                                .first_ns = VX_NEVER,
                                .before_ns = VX_NEVER,
                                .most_ns = BATCH_NS_MAX};
    plan->worker = worker;
    plan->instance = first->instance;
    plan->jobs_count = 0;
    plan->voxels = plan->set_voxels = 0;
}

/* ------- solo jobs ------- */

/* Whether a job of the same model and a better level could use one of these workers. */
static bool better_level_waits(const struct vx_sched *sched, const struct vx_job *solo,
                               u32 workers)
{
    const struct sched_instance *instance = &sched->instances[solo->instance];
    const struct vx_job *job = vx_sched_head(instance);
    for (i32 looked = 0; job && looked < VX_SCHED_LOOK_MAX;
         looked += look_counts(job, workers), job = vx_sched_after(instance, job)) {
        if (job->level >= solo->level) return false;
        if (vx_sched_job_workers(sched, job) & workers) return true;
    }
    return false;
}

/* Solo jobs go first within their level of their model, to idle workers.  When none is idle, one worker
 * at a time gets no new batches until it is idle, and the others serve on. */
static bool pick_solo(struct vx_sched *sched, struct sched_look *look,
                      struct vx_batch_plan *plan)
{
    struct vx_job *job = sched->solo.first;
    for (i32 looked = 0; job && looked < VX_SCHED_LOOK_MAX; job = job->next) {
        u32 may = vx_sched_solo_workers(sched, job);
        if (!may) continue;
        looked++;
        if (better_level_waits(sched, job, may)) continue;
        i32 w = vx_sched_place_solo(sched, job, !look->reserved, look);
        if (w < 0) continue;
        struct forming forming;
        plan_begin(job, w, look->now_ns, &forming, plan);
        const struct sched_instance *instance = &sched->instances[job->instance];
        forming_add(instance, &forming, plan, job);
        forming_close(instance, &forming, plan);
        batch_send(sched, &forming, look->now_ns, plan);
        return true;
    }
    return false;
}

/* ------- all others ------- */

enum started { STARTED, STARTS_NOT, STARTS_LATER };

static enum started batch_start(struct vx_sched *sched, struct vx_job *job, u32 open,
                                struct sched_look *look, struct vx_batch_plan *plan)
{
    i32 w = vx_sched_place(sched, job, open, look);
    if (w < 0) return STARTS_NOT;
    struct forming forming;
    plan_begin(job, w, look->now_ns, &forming, plan);
    if (look->brief & 1u << w) {
        forming.brief = true;
        forming.most_ns = vx_sched_brief_ns(sched, w);
    }
    batch_form(sched, job, look, &forming, plan);
    i64 delay_ns = sched->instances[job->instance].batching.delay_us * VX_NS_PER_US;
    if (!forming.full && delay_ns > 0 && !sched->workers[w].batches_count) {
        i64 go_ns = forming.first_ns + delay_ns;
        if (forming.before_ns < go_ns) go_ns = forming.before_ns;
        if (look->now_ns < go_ns) {
            if (go_ns < look->wake_ns) look->wake_ns = go_ns;
            return STARTS_LATER;
        }
    }
    batch_send(sched, &forming, look->now_ns, plan);
    return STARTED;
}

/* A position in the lines of one instance. */
struct cursor {
    struct vx_job *job;
    u32 open;
    i32 looked;
};

/* The active cursor whose job is served first; -1 = none is active. */
static i32 cursors_first(const struct cursor *cursors,
                         const struct vx_instance_set *active)
{
    i32 first = -1;
    VX_INSTANCES_EACH(i, active)
    if (first < 0 || vx_sched_before(cursors[i].job, cursors[first].job)) first = i;
    return first;
}

/* Walks the lines of all instances together, in the order of service, up to the first job
 * that can begin a batch. */
static bool pick_first(struct vx_sched *sched, struct sched_look *look,
                       struct vx_batch_plan *plan)
{
    struct cursor cursors[VX_INSTANCES_MAX];
    struct vx_instance_set active = {{0}};
    VX_INSTANCES_EACH(i, &sched->instances_waiting)
    {
        u32 open = vx_sched_open_workers(sched, i, look);
        if (!open) continue;
        cursors[i] = (struct cursor){vx_sched_head(&sched->instances[i]), open, 0};
        vx_instance_set_put(&active, i, true);
    }
    for (i32 first; (first = cursors_first(cursors, &active)) >= 0;) {
        struct cursor *cursor = &cursors[first];
        enum started started = batch_start(sched, cursor->job, cursor->open, look, plan);
        if (started == STARTED) return true;
        cursor->looked += look_counts(cursor->job, cursor->open);
        cursor->job = vx_sched_after(&sched->instances[first], cursor->job);
        if (started == STARTS_LATER || !cursor->job ||
            cursor->looked == VX_SCHED_LOOK_MAX)
            vx_instance_set_put(&active, first, false);
    }
    return false;
}

bool vx_sched_pick(struct vx_sched *sched, i64 now_ns, struct vx_batch_plan *plan)
{
    struct sched_look look;
    vx_sched_look_begin(sched, now_ns, &look);
    if (sched->solo.first && pick_solo(sched, &look, plan)) return true;
    if (pick_first(sched, &look, plan)) return true;
    sched->wake_ns = look.wake_ns;
    return false;
}
