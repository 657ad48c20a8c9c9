/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

static bool turn_before(const struct vx_job *a, const struct vx_job *b)
{
    return a->turn != b->turn ? a->turn < b->turn : a->sequence < b->sequence;
}

bool vx_sched_before(const struct vx_job *a, const struct vx_job *b)
{
    if (a->instance == b->instance && a->level != b->level) return a->level < b->level;
    return turn_before(a, b);
}

i32 vx_sched_line_index(u64 level)
{
    if (level == VX_LEVEL_DELAYED) return SCHED_LINE_DELAYED;
    VX_ASSERT(level > 0 && level <= VX_PRIORITY_LEVELS_MAX);
    return (i32)level - 1;
}

/* ------- jobs that expire: a binary heap, the earliest on top ------- */

static void heap_set(struct vx_sched *sched, i32 at, struct vx_job *job)
{
    sched->heap[at] = job;
    job->heap_index = at;
}

/* Moves the job at `at` up or down to where it belongs. */
static void heap_settle(struct vx_sched *sched, i32 at)
{
    struct vx_job *job = sched->heap[at];
    while (at > 0 && sched->heap[(at - 1) / 2]->expires_ns > job->expires_ns) {
        heap_set(sched, at, sched->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (i32 child; (child = 2 * at + 1) < sched->heap_count; at = child) {
        if (child + 1 < sched->heap_count &&
            sched->heap[child + 1]->expires_ns < sched->heap[child]->expires_ns)
            child++;
        if (sched->heap[child]->expires_ns >= job->expires_ns) break;
        heap_set(sched, at, sched->heap[child]);
    }
    heap_set(sched, at, job);
}

static void heap_insert(struct vx_sched *sched, struct vx_job *job)
{
    job->heap_index = -1;
    if (job->expires_ns == VX_NEVER) return;
    sched->heap[sched->heap_count++] = job;
    heap_settle(sched, sched->heap_count - 1);
}

static void heap_remove(struct vx_sched *sched, struct vx_job *job)
{
    i32 at = job->heap_index;
    if (at < 0) return;
    VX_ASSERT(sched->heap[at] == job);
    struct vx_job *last = sched->heap[--sched->heap_count];
    if (last != job) {
        heap_set(sched, at, last);
        heap_settle(sched, at);
    }
    job->heap_index = -1;
}

/* ------- lines ------- */

void vx_sched_load_add(struct sched_load *load, const struct vx_job *job, i32 sign)
{
    load->jobs += sign;
    load->set_voxels += sign * job->set_voxels;
    load->pairs += sign * job->pairs;
    if (job->pairs <= 0) load->pairless_voxels += sign * job->voxels;
}

static void line_count(struct sched_line *line, const struct vx_job *job, i32 sign)
{
    vx_sched_load_add(&line->load, job, sign);
    if (job->only) vx_sched_load_add(&line->bound[__builtin_ctz(job->only)], job, sign);
}

/* The job behind which this one waits, by its turn; NULL = it is the first.  The jobs of a line
 * are of one level, or solo jobs of all models, whose levels say nothing of each other.  Searches
 * from both ends: the place of a job is at the tail if its origin has many waiting jobs, and near
 * the head if it has few beside one with many. */
static struct vx_job *line_find(const struct sched_line *line, const struct vx_job *job)
{
    struct vx_job *after = line->last, *before = line->first;
    while (after && turn_before(job, after)) {
        if (turn_before(job, before)) return before->previous;
        after = after->previous;
        before = before->next;
    }
    return after;
}

static void line_insert(struct sched_line *line, struct vx_job *job)
{
    struct vx_job *after = line_find(line, job);
    job->previous = after;
    job->next = after ? after->next : line->first;
    *(after ? &after->next : &line->first) = job;
    *(job->next ? &job->next->previous : &line->last) = job;
    line_count(line, job, 1);
}

static void line_remove(struct sched_line *line, struct vx_job *job)
{
    *(job->previous ? &job->previous->next : &line->first) = job->next;
    *(job->next ? &job->next->previous : &line->last) = job->previous;
    job->next = job->previous = NULL;
    line_count(line, job, -1);
}

void vx_sched_insert(struct vx_sched *sched, struct vx_job *job)
{
    VX_ASSERT(job->state != VX_JOB_QUEUED);
    struct sched_instance *instance = vx_sched_instance(sched, job->instance);
    if (job->deaths > 0) {
        line_insert(&sched->solo, job);
    } else {
        line_insert(&instance->lines[vx_sched_line_index(job->level)], job);
        vx_sched_load_add(&instance->waiting, job, 1);
        vx_instance_set_put(&sched->instances_waiting, job->instance, true);
    }
    heap_insert(sched, job);
    job->state = VX_JOB_QUEUED;
    vx_sched_turn_waits(sched, job, 1);
    sched->queued++;
    sched->queued_voxels += job->set_voxels;
}

void vx_sched_remove(struct vx_sched *sched, struct vx_job *job)
{
    VX_ASSERT(job->state == VX_JOB_QUEUED);
    struct sched_instance *instance = vx_sched_instance(sched, job->instance);
    if (job->deaths > 0) {
        line_remove(&sched->solo, job);
    } else {
        line_remove(&instance->lines[vx_sched_line_index(job->level)], job);
        vx_sched_load_add(&instance->waiting, job, -1);
        if (!instance->waiting.jobs)
            vx_instance_set_put(&sched->instances_waiting, job->instance, false);
    }
    heap_remove(sched, job);
    job->state = VX_JOB_NEW;
    vx_sched_turn_waits(sched, job, -1);
    sched->queued--;
    sched->queued_voxels -= job->set_voxels;
}

static struct vx_job *first_from(const struct sched_instance *instance, i32 line)
{
    for (; line < SCHED_LINES; line++)
        if (instance->lines[line].first) return instance->lines[line].first;
    return NULL;
}

struct vx_job *vx_sched_head(const struct sched_instance *instance)
{
    return first_from(instance, 0);
}

struct vx_job *vx_sched_after(const struct sched_instance *instance,
                              const struct vx_job *job)
{
    return job->next ? job->next
                     : first_from(instance, vx_sched_line_index(job->level) + 1);
}

i32 vx_sched_level_jobs(const struct sched_instance *instance, u64 level)
{
    if (instance->batching.priority_levels > 0)
        return instance->lines[vx_sched_line_index(level)].load.jobs;
    return instance->waiting.jobs - instance->lines[SCHED_LINE_DELAYED].load.jobs;
}

void vx_sched_job_leaves(struct vx_sched *sched, struct vx_job *job)
{
    struct sched_instance *instance = vx_sched_instance(sched, job->instance);
    VX_ASSERT(instance->jobs > 0);
    instance->jobs--;
}

/* ------- jobs that leave without having run ------- */

bool vx_sched_cancel(struct vx_sched *sched, struct vx_job *job)
{
    if (job->state != VX_JOB_QUEUED) return false;
    vx_sched_remove(sched, job);
    vx_sched_job_leaves(sched, job);
    if (job->took) vx_sched_turn_gone(sched, job);
    return true;
}

/* Moves the job behind all others of its instance; happens at most once. */
static void job_delay(struct vx_sched *sched, struct vx_job *job)
{
    vx_sched_remove(sched, job);
    job->level = VX_LEVEL_DELAYED;
    job->by_timeout = false;
    job->expires_ns = job->deadline_ns;
    vx_sched_insert(sched, job);
}

void vx_sched_expire(struct vx_sched *sched, i64 now_ns,
                     void (*on_late)(void *context, struct vx_job *job), void *context)
{
    while (sched->heap_count && sched->heap[0]->expires_ns <= now_ns) {
        struct vx_job *job = sched->heap[0];
        const struct sched_instance *instance = vx_sched_instance(sched, job->instance);
        if (job->by_timeout && vx_sched_policy(instance, job->level)->timeout_delay) {
            job_delay(sched, job);
            continue;
        }
        vx_sched_cancel(sched, job);
        on_late(context, job);
    }
}

/* Takes the wanted jobs out of a line and chains them by `next`.  The caller's function
 * runs only afterwards, so it cannot change the line during the walk. */
static struct vx_job **line_take(struct vx_sched *sched, struct sched_line *line,
                                 bool (*wanted)(const struct vx_job *job, i32 value),
                                 i32 value, struct vx_job **end)
{
    struct vx_job *next;
    for (struct vx_job *job = line->first; job; job = next) {
        next = job->next;
        if (!wanted(job, value)) continue;
        vx_sched_cancel(sched, job);
        *end = job;
        end = &job->next;
    }
    return end;
}

static void chain_hand_out(struct vx_job *job,
                           void (*on_job)(void *context, struct vx_job *job),
                           void *context)
{
    for (struct vx_job *next; job; job = next) {
        next = job->next;
        job->next = NULL;
        on_job(context, job);
    }
}

static bool job_is_of(const struct vx_job *job, i32 instance)
{
    return job->instance == instance;
}

void vx_sched_drop_instance(struct vx_sched *sched, i32 instance,
                            void (*on_job)(void *context, struct vx_job *job),
                            void *context)
{
    struct sched_instance *i = vx_sched_instance(sched, instance);
    struct vx_job *chain = NULL, **end = &chain;
    end = line_take(sched, &sched->solo, job_is_of, instance, end);
    for (i32 l = 0; l < SCHED_LINES; l++)
        end = line_take(sched, &i->lines[l], job_is_of, instance, end);
    chain_hand_out(chain, on_job, context);
}

static bool job_has_no_holder(const struct vx_job *job, i32 unused)
{
    (void)unused;
    return job->must_hold && !job->holders;
}

void vx_sched_holder_gone(struct vx_sched *sched, i32 worker,
                          void (*on_lost)(void *context, struct vx_job *job),
                          void *context)
{
    vx_sched_worker(sched, worker);
    struct vx_job *chain = NULL, **end = &chain;
    end = line_take(sched, &sched->solo, job_has_no_holder, 0, end);
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        for (i32 l = 0; l < SCHED_LINES && sched->instances[i].waiting.jobs; l++)
            end = line_take(sched, &sched->instances[i].lines[l], job_has_no_holder, 0,
                            end);
    chain_hand_out(chain, on_lost, context);
}

/* `value`: the workers in the low VX_WORKERS_MAX bits, the instance above them. */
static bool job_is_stranded(const struct vx_job *job, i32 value)
{
    u32 workers = (u32)value & ((1u << VX_WORKERS_MAX) - 1);
    return job->instance == value >> VX_WORKERS_MAX && job->only &&
           !(job->only & workers);
}

void vx_sched_only_gone(struct vx_sched *sched, i32 instance, u32 workers,
                        void (*on_lost)(void *context, struct vx_job *job), void *context)
{
    struct sched_instance *i = vx_sched_instance(sched, instance);
    struct vx_job *chain = NULL, **end = &chain;
    VX_ASSERT(!(workers >> VX_WORKERS_MAX));
    i32 value = instance << VX_WORKERS_MAX | (i32)workers;
    end = line_take(sched, &sched->solo, job_is_stranded, value, end);
    for (i32 l = 0; l < SCHED_LINES && i->waiting.jobs; l++)
        end = line_take(sched, &i->lines[l], job_is_stranded, value, end);
    chain_hand_out(chain, on_lost, context);
}
