/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched_private.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"

/* Part of an expected wait that must be over the limit before a request is refused for
 * it: predictions may be wrong by a quarter, in the client's favour. */
#define BELIEVED_QUARTERS 3

/* ------- levels and policies ------- */

const struct vx_queue_policy *vx_sched_policy(const struct sched_instance *instance,
                                              u64 level)
{
    const struct vx_batching *batching = &instance->batching;
    bool own = batching->priority_levels > 0 && level <= VX_PRIORITY_LEVELS_MAX;
    return &batching->policies[own ? level : 0];
}

/* The level of a job.  As with Triton a number beyond the model's priority_levels is the default,
 * since clients expect an answer and no refusal; and a model without levels has one, so that
 * nobody passes others by a number that its owner never gave a meaning. */
static u64 job_level(const struct vx_batching *batching, u64 priority)
{
    u64 levels = batching->priority_levels > 0 ? (u64)batching->priority_levels : 0;
    if (priority && priority <= levels) return priority;
    return batching->default_priority_level > 0 ? (u64)batching->default_priority_level
                                                : 1;
}

/* When its time in the queue is over.  A request's own `timeout` may only shorten the
 * policy's. */
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

/* ------- what it would wait ------- */

struct expected {
    i64 wait_ns; /* until it runs */
    i64 run_ns;  /* then; 0 = nothing is known */
};

/* Workers, and how many they are of all that serve the same jobs. */
struct sched_share {
    u32 workers;
    i32 part, whole;
};

/* How many batches a load makes, as a fraction: the tightest of the three budgets. */
static f64 load_batches(const struct sched_instance *instance,
                        const struct sched_load *load)
{
    const struct vx_batching *batching = &instance->batching;
    f64 most = (f64)load->jobs / sched_requests_max(batching);
    if (batching->voxels_max > 0) {
        f64 voxels = (f64)load->voxels / (f64)batching->voxels_max;
        if (voxels > most) most = voxels;
    }
    if (batching->pairs_max > 0) {
        f64 pairs = sched_load_pairs(instance, load) / (f64)batching->pairs_max;
        if (pairs > most) most = pairs;
    }
    return most;
}

/* Time for that many batches with that many pairs together, when all these workers share
 * them; 0 when nothing is known of any. */
static f64 shared_ns(const struct sched_instance *instance, u32 workers, f64 batches,
                     f64 pairs)
{
    f64 rate = 0;
    for (; workers; workers &= workers - 1) {
        const struct vx_cost *cost = &instance->costs[__builtin_ctz(workers)];
        if (!vx_cost_is_known(cost)) continue;
        f64 alone_ns = cost->fixed_ns * batches + cost->slope_ns * pairs;
        if (alone_ns > 0) rate += 1 / alone_ns;
    }
    return rate > 0 ? 1 / rate : 0;
}

static void load_sum(struct sched_load *sum, const struct sched_load *load, i32 sign)
{
    sum->jobs += sign * load->jobs;
    sum->voxels += sign * load->voxels;
    sum->pairs += sign * load->pairs;
    sum->pairless_voxels += sign * load->pairless_voxels;
}

/* Takes out of the sums over a line those jobs of it whose turn is after this one. */
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

/* The jobs of an instance that some workers serve before this one: their share of what may go
 * anywhere, and what is bound to them. */
static struct sched_load load_ahead(const struct sched_instance *instance,
                                    const struct vx_job *job,
                                    const struct sched_share *share)
{
    struct sched_load ahead = {0}, bound = {0};
    for (i32 l = 0; l <= vx_sched_line_index(job->level); l++) {
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
        ahead.voxels = ahead.voxels / share->whole * share->part;
        ahead.pairs = ahead.pairs / share->whole * share->part;
        ahead.pairless_voxels = ahead.pairless_voxels / share->whole * share->part;
    }
    load_sum(&ahead, &bound, 1);
    return ahead;
}

/* What `workers` serve of an instance when this job waits for them: a job that is bound to
 * some shares with the others what is not. */
static struct sched_share share_of(const struct sched_instance *instance,
                                   const struct vx_job *job, u32 workers)
{
    u32 shared = instance->workers_ready & workers;
    i32 part = __builtin_popcount(shared);
    i32 whole = job->only ? __builtin_popcount(instance->workers_ready) : part;
    return (struct sched_share){shared, part, whole};
}

/* Whole batches of what waits for the same workers.  What is left over of the job's own
 * instance goes with it, and is in *joined_pairs. */
static i64 queue_ahead_ns(const struct vx_sched *sched, const struct vx_job *job,
                          u32 workers, f64 *joined_pairs)
{
    f64 sum_ns = 0;
    *joined_pairs = 0;
    VX_ROWS_EACH(i, &sched->instances_waiting)
    {
        const struct sched_instance *instance = &sched->instances[i];
        struct sched_share share = share_of(instance, job, workers);
        if (!share.workers) continue;
        struct sched_load ahead = load_ahead(instance, job, &share);
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

/* Of a job that has its place: level, turn, sequence. */
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
        i64 run_ns = vx_cost_predict_ns(&instance->costs[w], pairs,
                                        sched_holds(job, w) ? 0 : job->voxels);
        if (!run_ns) return (struct expected){0}; /* it may be the best of all */
        i64 w_free_ns = vx_sched_free_ns(sched, w, now_ns);
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
    last.level = job_level(&instance->batching, job->priority);
    last.turn = vx_sched_turn(sched, job);
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

/* Refuses at once what would be refused, or be of no use, after the wait.  gRPC's deadline
 * is for the answer, `timeout` for the time in the queue; a policy that delays refuses
 * nobody for it. */
static vx_status job_check_times(const struct vx_sched *sched, const struct vx_job *job,
                                 i64 now_ns, struct vx_why *why)
{
    if (job->expires_ns == VX_NEVER) return VX_OK;
    struct expected expected = job_expect(sched, job, now_ns);
    if (!expected.run_ns) return VX_OK;
    const struct vx_queue_policy *policy =
        vx_sched_policy(&sched->instances[job->instance], job->level);
    i64 end_ns = expected.wait_ns + expected.run_ns;
    if (job->deadline_ns != VX_NEVER && is_too_late(now_ns, end_ns, job->deadline_ns))
        VX_FAIL_WHY(why, DEADLINE_EXCEEDED, "the deadline cannot be kept",
                    "the deadline in %.1f ms cannot be kept: the expected wait is "
                    "%.1f ms, and %.1f ms on the device",
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

static vx_status check_room(const struct vx_sched *sched, const struct vx_job *job,
                            u64 level, struct vx_why *why)
{
    const struct sched_instance *instance = &sched->instances[job->instance];
    i32 own = vx_sched_client_jobs(sched, job->client);
    VX_ENSURE_WHY(sched->queued < vx_sched_turn_room(sched, job->client), why,
                  UNAVAILABLE, "Exceeds maximum queue size",
                  "Exceeds maximum queue size: %d requests wait already", sched->queued);
    VX_ENSURE_WHY(
        !vx_sched_turn_has_part(sched, job->client), why, UNAVAILABLE,
        "Exceeds maximum queue size",
        "Exceeds maximum queue size: %d requests wait already, and %d of them are "
        "this client's",
        sched->queued, own);
    i64 most = vx_sched_policy(instance, level)->max_queue_size;
    i32 waiting = vx_sched_level_jobs(instance, level);
    VX_ENSURE_WHY(most <= 0 || waiting < most, why, UNAVAILABLE,
                  "Exceeds maximum queue size",
                  "Exceeds maximum queue size: %d requests of this model and priority "
                  "wait already",
                  waiting);
    return VX_OK;
}

bool vx_sched_is_full(const struct vx_sched *sched, const struct vx_job *job)
{
    VX_ASSERT(job->instance >= 0 && job->instance < VX_INSTANCES_MAX);
    const struct vx_batching *batching = &sched->instances[job->instance].batching;
    u64 level = job_level(batching, job->priority);
    return check_room(sched, job, level, NULL).fault != NULL;
}

vx_status vx_sched_submit(struct vx_sched *sched, struct vx_job *job, i64 now_ns,
                          struct vx_why *why)
{
    VX_ASSERT(job->state == VX_JOB_NEW && job->voxels >= 0);
    VX_ASSERT(!(job->only >> VX_WORKERS_MAX));
    struct sched_instance *instance = vx_sched_instance(sched, job->instance);
    VX_ENSURE(job->deadline_ns > now_ns, DEADLINE_EXCEEDED,
              "the deadline had passed before the request could wait for a device");
    job->level = job_level(&instance->batching, job->priority);
    VX_ENSURE(!job->must_hold || job->holders, FAILED_PRECONDITION,
              "no device holds the geometry that the request names");
    VX_TRY(check_room(sched, job, job->level, why));
    job->queued_ns = now_ns;
    job->turn = vx_sched_turn(sched, job);
    job->sequence = ++sched->sequence;
    job->deaths = 0;
    job_set_expiry(job, vx_sched_policy(instance, job->level));
    VX_TRY(job_check_times(sched, job, now_ns, why));
    vx_sched_turn_take(sched, job);
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
