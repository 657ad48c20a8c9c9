/* sched_room - whose waiting job leaves when no place is free and an origin with few of them comes.
 *
 * Without it who comes first has the places: 900 connections of 200 addresses, each with a small
 * request always, kept the queue full, and an honest client with one request in 50 ms was refused
 * one in five times.  Now the longest queue gives: the last job, in order of service, of the origin
 * with most waiting jobs.
 *
 * Who has a fair part cannot be pushed out:
 *  - The newcomer's origin has less than the average even with the place that it takes, and who
 *    leaves is of an origin with more.  So that one keeps at least as many places as the newcomer's
 *    has then, nobody gets below the average by more than a part of a place, and two origins never
 *    take a place from each other in turn: the sum of the squares of what origins have falls each
 *    time.
 *  - Only a job that nothing else refuses takes a place.  It takes one and no more, and waits in it.
 *  - Who takes a place and leaves it, by cancelling or by a short deadline, is counted as if its job
 *    still waited, until that would have run (vx_sched_turn_gone).  So who submits and cancels for
 *    ever pushes out no more than who waits, and no more than the devices would have served it.
 *  - No job leaves for one of its model that is less urgent, nor one that was on a worker before: it
 *    has begun.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"

/* At most this many waiting jobs are examined, those that are served last first: the longest queue
 * is there.  An examination of all of 65,536 would take a millisecond for each newcomer. */
#define ROOM_LOOKS 4096

struct room_search {
    const struct vx_sched *sched;
    i64 origins; /* that would have jobs */
    i32 looks;   /* that are left */
    struct vx_job *last;
};

static i64 jobs_of(const struct vx_sched *sched, const struct vx_job *job)
{
    return sched->origins[job->origin].jobs;
}

/* Whether this one leaves rather than search->last. */
static bool leaves_first(const struct room_search *search, const struct vx_job *job)
{
    const struct vx_sched *sched = search->sched;
    const i64 jobs = jobs_of(sched, job);
    if (job->started_ns || jobs * search->origins <= sched->queued) return false;
    if (!search->last) return true;
    const i64 most = jobs_of(sched, search->last);
    return jobs != most ? jobs > most : vx_sched_before(search->last, job);
}

static void search_line(struct room_search *search, const struct sched_line *line)
{
    for (struct vx_job *job = line->last; job && search->looks > 0; job = job->previous) {
        search->looks--;
        if (leaves_first(search, job)) search->last = job;
    }
}

/* The lines of an instance from the last to `first`. */
static void search_instance(struct room_search *search, i32 instance, i32 first)
{
    for (i32 line = SCHED_LINES - 1; line >= first; line--)
        search_line(search, &search->sched->instances[instance].lines[line]);
}

/* The lines that a model's own limit counts, as vx_sched_level_jobs does. */
static void search_level(struct room_search *search, i32 instance, u64 level)
{
    const struct sched_instance *one = &search->sched->instances[instance];
    const i32 first = vx_sched_line_index(level),
              last = one->batching.priority_levels > 0 ? first : SCHED_LINE_DELAYED - 1;
    for (i32 line = last; line >= first; line--) search_line(search, &one->lines[line]);
}

struct vx_job *vx_sched_room_find(const struct vx_sched *sched, const struct vx_job *job)
{
    VX_ASSERT(job->state == VX_JOB_NEW);
    if (vx_sched_turn_has_part(sched, job)) return NULL;
    const i64 places = vx_sched_turn_places(sched, job->origin);
    struct room_search search = {.sched = sched,
                                 .origins = sched->origins_waiting + !jobs_of(sched, job),
                                 .looks = ROOM_LOOKS};
    if ((places + 1) * search.origins >= sched->queued) return NULL;
    const u64 level =
        vx_sched_level(&sched->instances[job->instance].batching, job->priority);
    if (vx_sched_model_is_full(sched, job)) {
        search_level(&search, job->instance, level);
        return search.last;
    }
    VX_INSTANCES_EACH(i, &sched->instances_waiting)
    search_instance(&search, i, i == job->instance ? vx_sched_line_index(level) : 0);
    return search.last;
}
