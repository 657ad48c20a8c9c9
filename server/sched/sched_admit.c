/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* A request is refused only if three quarters of its expected wait exceed the limit:
 * predictions may be too long by a quarter, and the client gets the benefit. */
#define BELIEVED_QUARTERS 3

/* ------- levels and policies ------- */

const struct vx_queue_policy *vx_sched_policy(const struct sched_instance *instance,
                                              u64 level)
{
    const struct vx_batching *batching = &instance->batching;
    bool own = batching->priority_levels > 0 && level <= VX_PRIORITY_LEVELS_MAX;
    return &batching->policies[own ? level : 0];
}

/* As with Triton, a number beyond the model's priority_levels means the default level,
 * because clients expect an answer and not a refusal.  A model without
 * priority_levels has one level, so that a request cannot pass others by a number to
 * which the model's owner gave no meaning. */
u64 vx_sched_level(const struct vx_batching *batching, u64 priority)
{
    u64 levels = batching->priority_levels > 0 ? (u64)batching->priority_levels : 0;
    if (priority && priority <= levels) return priority;
    return batching->default_priority_level > 0 ? (u64)batching->default_priority_level
                                                : 1;
}

/* Sets when its time in the queue ends.  Its `timeout` may only shorten the policy's. */
static void job_set_expiry(struct vx_job *job, const struct vx_queue_policy *policy)
{
    i64 timeout_ns = VX_NEVER;
    if (policy->default_timeout_us > 0 &&
        policy->default_timeout_us < VX_NEVER / VX_NS_PER_US)
        timeout_ns = policy->default_timeout_us * VX_NS_PER_US;
    if (policy->allow_timeout_override && job->timeout_ns > 0 &&
        job->timeout_ns < timeout_ns)
        timeout_ns = job->timeout_ns;
    i64 over_ns =
        timeout_ns < VX_NEVER - job->queued_ns ? job->queued_ns + timeout_ns : VX_NEVER;
    job->by_timeout = over_ns < job->deadline_ns;
    job->expires_ns = job->by_timeout ? over_ns : job->deadline_ns;
}

/* ------- expected waits ------- */

struct expected {
    i64 wait_ns; /* until it runs */
    i64 run_ns;  /* on the device; 0 = no prediction */
};

/* A set of workers, and their number (`part`) among all workers (`whole`) that share the
 * instance's unbound jobs.  A job is bound when it has `only`. */
struct sched_share {
    u32 workers;
    i32 part, whole;
};

/* How many batches a load fills, as a fraction, by the tightest of the three budgets. */
static f64 load_batches(const struct sched_instance *instance,
                        const struct sched_load *load)
{
    const struct vx_batching *batching = &instance->batching;
    f64 most = (f64)load->jobs / sched_requests_max(batching);
    if (batching->voxels_max > 0) {
        f64 voxels = (f64)load->set_voxels / (f64)batching->voxels_max;
        if (voxels > most) most = voxels;
    }
    if (batching->pairs_max > 0) {
        f64 pairs = sched_load_pairs(instance, load) / (f64)batching->pairs_max;
        if (pairs > most) most = pairs;
    }
    return most;
}

/* Time for `batches` batches with `pairs` pairs in total when all these workers share
 * them; 0 when none of the workers has a known cost. */
static f64 shared_ns(const struct sched_instance *instance, u32 workers, f64 batches,
                     f64 pairs)
{
    f64 rate = 0;
    for (; workers; workers &= workers - 1) {
        const struct vx_cost *cost = &instance->costs[__builtin_ctz(workers)];
        if (!vx_cost_is_known(cost)) continue;
        f64 one_ns = batches > 0 ? (f64)vx_cost_believe_ns(cost, pairs / batches, 0) : 0;
        f64 alone_ns = batches * one_ns;
        if (alone_ns > 0) rate += 1 / alone_ns;
    }
    return rate > 0 ? 1 / rate : 0;
}

static void load_sum(struct sched_load *sum, const struct sched_load *load, i32 sign)
{
    sum->jobs += sign * load->jobs;
    sum->set_voxels += sign * load->set_voxels;
    sum->pairs += sign * load->pairs;
    sum->pairless_voxels += sign * load->pairless_voxels;
}

/* Subtracts from the sums over a line those of its jobs that come after `job`. */
static void load_take_behind(const struct sched_line *line, const struct vx_job *job,
                             u32 workers, struct sched_load *ahead,
                             struct sched_load *bound)
{
    for (const struct vx_job *other = line->last; other && vx_sched_before(job, other);
         other = other->previous) {
        if (!other->only)
            vx_sched_load_add(ahead, other, -1);
        else if (workers & (other->only & -other->only))
            vx_sched_load_add(bound, other, -1);
    }
}

/* The last line with jobs that may be served before `job`: of another model its turn alone counts. */
static i32 last_line(const struct vx_sched *sched, const struct sched_instance *instance,
                     const struct vx_job *job)
{
    const bool own = instance == &sched->instances[job->instance];
    return own ? vx_sched_line_index(job->level) : SCHED_LINES - 1;
}

/* The jobs of an instance that the workers of `share` serve before `job`: their share of
 * the unbound jobs, and the jobs that are bound to them. */
static struct sched_load load_ahead(const struct vx_sched *sched,
                                    const struct sched_instance *instance,
                                    const struct vx_job *job,
                                    const struct sched_share *share)
{
    struct sched_load ahead = {0}, bound = {0};
    for (i32 l = 0; l <= last_line(sched, instance, job); l++) {
        const struct sched_line *line = &instance->lines[l];
        if (!line->load.jobs) continue;
        load_sum(&ahead, &line->load, 1);
        for (i32 w = 0; w < VX_WORKERS_MAX; w++) {
            if (!line->bound[w].jobs) continue;
            load_sum(&ahead, &line->bound[w], -1);
            if (share->workers & (1u << w)) load_sum(&bound, &line->bound[w], 1);
        }
        load_take_behind(line, job, share->workers, &ahead, &bound);
    }
    if (share->part < share->whole) {
        ahead.jobs = (i32)((i64)ahead.jobs * share->part / share->whole);
        ahead.set_voxels = ahead.set_voxels / share->whole * share->part;
        ahead.pairs = ahead.pairs / share->whole * share->part;
        ahead.pairless_voxels = ahead.pairless_voxels / share->whole * share->part;
    }
    load_sum(&ahead, &bound, 1);
    return ahead;
}

/* The share of `workers` in the unbound jobs of an instance, as `job` sees it.  An
 * unbound job may run on any of them, so they serve all of these jobs before it.  A bound
 * job waits for some workers only, and the other ready workers serve their part. */
static struct sched_share share_of(const struct sched_instance *instance,
                                   const struct vx_job *job, u32 workers)
{
    u32 shared = instance->workers_ready & workers;
    i32 part = __builtin_popcount(shared);
    i32 whole = job->only ? __builtin_popcount(instance->workers_ready) : part;
    return (struct sched_share){shared, part, whole};
}

/* Time for the batches ahead of the job on the same workers.  Jobs of its own instance
 * that do not fill a whole batch will run with it: their pairs are in *joined_pairs. */
static i64 queue_ahead_ns(const struct vx_sched *sched, const struct vx_job *job,
                          u32 workers, f64 *joined_pairs)
{
    f64 sum_ns = 0;
    *joined_pairs = 0;
    VX_INSTANCES_EACH(i, &sched->instances_waiting)
    {
        const struct sched_instance *instance = &sched->instances[i];
        struct sched_share share = share_of(instance, job, workers);
        if (!share.workers) continue;
        struct sched_load ahead = load_ahead(sched, instance, job, &share);
        if (!ahead.jobs) continue;
        f64 pairs = sched_load_pairs(instance, &ahead);
        f64 batches = load_batches(instance, &ahead);
        f64 whole = i == job->instance ? (f64)(i64)batches : batches < 1 ? 1 : batches;
        f64 whole_pairs = batches > whole ? pairs * (whole / batches) : pairs;
        if (i == job->instance) *joined_pairs = pairs - whole_pairs;
        if (whole > 0) sum_ns += shared_ns(instance, share.workers, whole, whole_pairs);
    }
    return (i64)sum_ns;
}

/* The job's level, turn and sequence are set. */
static struct expected job_expect(const struct vx_sched *sched, const struct vx_job *job,
                                  i64 now_ns)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    u32 workers = vx_sched_job_workers(sched, job);
    struct expected expected = {0};
    i64 free_ns = 0;
    f64 joined_pairs;
    i64 ahead_ns = queue_ahead_ns(sched, job, workers, &joined_pairs);
    f64 pairs = sched_job_pairs(instance, job) + joined_pairs;
    for (; workers; workers &= workers - 1) {
        i32 w = __builtin_ctz(workers);
        i64 run_ns = vx_cost_believe_ns(&instance->costs[w], pairs,
                                        sched_holds(job, w) ? 0 : job->voxels);
        if (!run_ns) return (struct expected){0}; /* this worker may be the best of all */
        i64 w_free_ns = vx_sched_runs_long(sched, w, now_ns) &&
                                vx_sched_is_brief(sched, job, w, now_ns)
                            ? 0 /* it runs beside */
                            : vx_sched_free_ns(sched, w, now_ns, true);
        if (expected.run_ns && w_free_ns + run_ns >= free_ns + expected.run_ns) continue;
        expected.run_ns = run_ns;
        free_ns = w_free_ns;
    }
    expected.wait_ns = free_ns + ahead_ns;
    return expected;
}

i64 vx_sched_expected_wait_ns(const struct vx_sched *sched, const struct vx_job *job,
                              i64 now_ns)
{
    VX_ASSERT(job->instance >= 0 && job->instance < VX_INSTANCES_MAX);
    const struct sched_instance *instance = &sched->instances[job->instance];
    struct vx_job last = *job; /* as if it were submitted now */
    last.level = vx_sched_level(&instance->batching, job->priority);
    last.set_voxels = vx_sched_set_voxels(sched, job);
    last.turn = vx_sched_turn(sched, &last, now_ns);
    last.sequence = sched->sequence + 1;
    struct expected expected = job_expect(sched, &last, now_ns);
    return expected.run_ns ? expected.wait_ns + expected.run_ns : 0;
}

static bool is_too_late(i64 now_ns, i64 wait_ns, i64 limit_ns)
{
    return wait_ns / 4 * BELIEVED_QUARTERS > limit_ns - now_ns;
}

static f64 in_ms(i64 ns)
{
    return (f64)ns / (f64)VX_NS_PER_MS;
}

/* A prediction that only refuses is never corrected: if a device was slow for a while and
 * every request has a deadline, nothing would run on it again.  So a request that an idle
 * device can take at once is run when nothing was learned of its size for so long.  With
 * any size, the batches of one client kept another's requests from being tried. */
#define PROBE_NS VX_NS_PER_S

/* Refuses at once a request that would expire in the queue or be answered too late.
 * gRPC's deadline limits the time until the answer, `timeout` the time in the queue.
 * With timeout_delay, no request is refused because of `timeout`. */
static vx_status job_check_times(const struct vx_sched *sched, const struct vx_job *job,
                                 i64 now_ns, struct vx_why *why)
{
    if (job->expires_ns == VX_NEVER) return VX_OK;
    struct expected expected = job_expect(sched, job, now_ns);
    if (!expected.run_ns) return VX_OK;
    const struct sched_instance *instance = &sched->instances[job->instance];
    const struct vx_queue_policy *policy = vx_sched_policy(instance, job->level);
    i64 end_ns = expected.wait_ns + expected.run_ns;
    i32 class = vx_cost_class(sched_job_pairs(instance, job));
    i64 learned_ns = instance->learned_ns[class];
    if (expected.wait_ns <= 0 && now_ns - learned_ns >= PROBE_NS) return VX_OK;
    if (job->deadline_ns != VX_NEVER && is_too_late(now_ns, end_ns, job->deadline_ns))
        VX_FAIL_WHY(why, DEADLINE_EXCEEDED, "the deadline cannot be met",
                    "the deadline in %.1f ms cannot be met: the expected wait is %.1f "
                    "ms, plus %.1f ms on the device",
                    in_ms(job->deadline_ns - now_ns), in_ms(expected.wait_ns),
                    in_ms(expected.run_ns));
    if (job->by_timeout && !policy->timeout_delay &&
        is_too_late(now_ns, expected.wait_ns, job->expires_ns))
        VX_FAIL_WHY(why, UNAVAILABLE, "Request timeout expired",
                    "Request timeout expired: the expected wait is %.1f ms, and the "
                    "request may wait for %.1f ms",
                    in_ms(expected.wait_ns), in_ms(job->expires_ns - now_ns));
    return VX_OK;
}

bool vx_sched_model_is_full(const struct vx_sched *sched, const struct vx_job *job)
{
    VX_ASSERT(job->instance >= 0 && job->instance < VX_INSTANCES_MAX);
    const struct sched_instance *instance = &sched->instances[job->instance];
    const u64 level = vx_sched_level(&instance->batching, job->priority);
    i64 most = vx_sched_policy(instance, level)->max_queue_size;
    i32 waiting = vx_sched_level_jobs(instance, level);
    return most > 0 && waiting >= vx_sched_turn_room(sched, job, most);
}

/* Whether a place is free. */
static vx_status check_room(const struct vx_sched *sched, const struct vx_job *job,
                            struct vx_why *why)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    i32 own = vx_sched_client_jobs(sched, job->client);
    VX_ENSURE_WHY(sched->queued < vx_sched_turn_room(sched, job, sched->queue_max), why,
                  UNAVAILABLE, "Exceeds maximum queue size",
                  "Exceeds maximum queue size: %d requests are already waiting",
                  sched->queued);
    VX_ENSURE_WHY(!vx_sched_turn_has_part(sched, job), why, UNAVAILABLE,
                  "Exceeds maximum queue size",
                  "Exceeds maximum queue size: %d requests are already waiting, %d of "
                  "them from this client and %d from its address",
                  sched->queued, own, sched->origins[job->origin].jobs);
    VX_ENSURE_WHY(!vx_sched_model_is_full(sched, job), why, UNAVAILABLE,
                  "Exceeds maximum queue size",
                  "Exceeds maximum queue size: %d requests of this model and priority "
                  "are already waiting",
                  vx_sched_level_jobs(
                      instance, vx_sched_level(&instance->batching, job->priority)));
    return VX_OK;
}

bool vx_sched_is_full(const struct vx_sched *sched, const struct vx_job *job)
{
    VX_ASSERT(job->instance >= 0 && job->instance < VX_INSTANCES_MAX);
    return check_room(sched, job, NULL).fault && !vx_sched_room_find(sched, job);
}

i64 vx_sched_set_voxels(const struct vx_sched *sched, const struct vx_job *job)
{
    VX_ASSERT(job->instance >= 0 && job->instance < VX_INSTANCES_MAX);
    const struct sched_instance *instance = &sched->instances[job->instance];
    /* The request's own are among them, whatever a worker said. */
    if (job->set_voxels >= job->voxels) return job->set_voxels;
    f64 expected = vx_cost_ratio_expect(&instance->set_ratio, job->voxels);
    return expected > (f64)job->voxels ? (i64)expected : job->voxels;
}

/* Says whose place the job takes if none is free, and refuses it if there is no such place.  The
 * place stays as it is: something else may still refuse the job. */
static vx_status find_place(const struct vx_sched *sched, const struct vx_job *job,
                            struct vx_job **last, struct vx_why *why)
{
    if (last && check_room(sched, job, NULL).fault)
        *last = vx_sched_room_find(sched, job);
    return last && *last ? VX_OK : check_room(sched, job, why);
}

vx_status vx_sched_submit(struct vx_sched *sched, struct vx_job *job, i64 now_ns,
                          struct vx_job **left, struct vx_why *why)
{
    VX_ASSERT(job->state == VX_JOB_NEW && job->voxels >= 0);
    VX_ASSERT(!(job->only >> VX_WORKERS_MAX));
    struct sched_instance *instance = vx_sched_instance(sched, job->instance);
    struct vx_job *last = NULL;
    if (left) *left = NULL;
    VX_ENSURE(job->deadline_ns > now_ns, DEADLINE_EXCEEDED,
              "the deadline had passed before the request was queued");
    job->level = vx_sched_level(&instance->batching, job->priority);
    VX_ENSURE(!job->must_hold || job->holders, FAILED_PRECONDITION,
              "no device holds the geometry that the request names");
    VX_TRY(find_place(sched, job, left ? &last : NULL, why));
    job->queued_ns = now_ns;
    job->started_ns = 0;
    job->set_voxels = vx_sched_set_voxels(sched, job);
    job->turn = vx_sched_turn(sched, job, now_ns);
    job->sequence = ++sched->sequence;
    job->deaths = 0;
    job->took = last ? vx_sched_turn_cost(last) : 0;
    job_set_expiry(job, vx_sched_policy(instance, job->level));
    VX_TRY(job_check_times(sched, job, now_ns, why));
    /* Nothing refuses it any more: nobody has lost a place for a job that does not get it. */
    if (last) {
        vx_sched_cancel(sched, last);
        *left = last;
    }
    vx_sched_turn_take(sched, job, now_ns);
    vx_sched_insert(sched, job);
    instance->jobs++;
    return VX_OK;
}

void vx_sched_resubmit(struct vx_sched *sched, struct vx_job *job)
{
    VX_ASSERT(job->state == VX_JOB_NEW && job->sequence > 0);
    VX_ASSERT(!job->must_hold || job->holders);
    vx_sched_insert(sched, job);
    vx_sched_instance(sched, job->instance)->jobs++;
}
