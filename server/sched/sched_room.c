/* sched_room - whose waiting job leaves when the queue is full and another client has less there.
 *
 * Without it who comes first has the places: 900 connections of 200 addresses, each with a small
 * request always, kept the queue full, and an honest client with one request in 50 ms was refused
 * one in five times.  Now the longest queue gives: the last job, in order of service, of an origin
 * with more waiting jobs than the newcomer would have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"

/* Whether its origin would have fewer jobs than an origin has on average: then one has more, and
 * there is something to look for. */
static bool has_little(const struct vx_sched *sched, const struct vx_job *job)
{
    const i64 own = sched->origins[job->origin].jobs;
    return (own + 1) * sched->origins_waiting < sched->queued;
}

/* The last job of a line whose origin keeps as many as the newcomer's then has. */
static struct vx_job *last_of_many(const struct vx_sched *sched,
                                   const struct sched_line *line, i32 own)
{
    struct vx_job *job = line->last;
    while (job && sched->origins[job->origin].jobs < own + 2) job = job->previous;
    return job;
}

/* Of an instance: no job that is more urgent than level `level` leaves. */
static struct vx_job *last_of_instance(const struct vx_sched *sched, i32 instance,
                                       u64 level, i32 own)
{
    struct vx_job *last = NULL;
    for (i32 line = SCHED_LINES - 1; !last && line >= vx_sched_line_index(level); line--)
        last = last_of_many(sched, &sched->instances[instance].lines[line], own);
    return last;
}

struct vx_job *vx_sched_make_room(struct vx_sched *sched, const struct vx_job *job)
{
    VX_ASSERT(job->state == VX_JOB_NEW);
    const i32 own = sched->origins[job->origin].jobs;
    if (sched->queued < vx_sched_turn_room(sched, job, sched->queue_max)) return NULL;
    if (!has_little(sched, job)) return NULL;
    const u64 level =
        vx_sched_level(&vx_sched_instance(sched, job->instance)->batching, job->priority);
    struct vx_job *last = NULL;
    VX_INSTANCES_EACH(i, &sched->instances_waiting)
    {
        struct vx_job *one = last_of_instance(sched, i, level, own);
        if (one && (!last || last->turn < one->turn)) last = one;
    }
    if (last) VX_ASSERT(vx_sched_cancel(sched, last));
    return last;
}
