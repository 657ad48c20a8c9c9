/* sched_owes - what an origin had beyond what its jobs were counted with, and who is not brief.
 *
 * Virtual time (sched_turn.c) charges a job when it is submitted, by what is expected of it.  What
 * it made beyond that is known when it has run, and its client may be gone by then; and virtual
 * time forgets what is owed whenever the queue is empty.  So an origin owes voxels for as long as
 * they took: its jobs go behind so many voxels of others'.  The debt shrinks with time, and by
 * jobs that made less than expected.
 *
 * A number of origins may be given to another one when its last connection has ended: `source`
 * says whose the account is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/sched/sched_private.h"

/* On one thread a brief job takes SCHED_BRIEF_ALONE_NS at most.  A job that takes twice as long may be
 * a processor that was away; a second one within a minute is how jobs of this origin are. */
#define ASIDE_MOST_NS (2 * SCHED_BRIEF_ALONE_NS)
#define PATIENT_NS    (60 * VX_NS_PER_S)

/* What is left at a time. */
static u64 owes_at(const struct sched_owes *owes, i64 now_ns)
{
    if (now_ns >= owes->until_ns) return 0;
    const f64 left =
        (f64)(owes->until_ns - now_ns) / (f64)(owes->until_ns - owes->since_ns);
    return (u64)((f64)owes->voxels * left);
}

static const struct sched_owes *owes_of(const struct vx_sched *sched,
                                        const struct vx_job *job)
{
    static const struct sched_owes none;
    const struct sched_owes *owes = &sched->origins[job->origin].owes;
    return owes->source == job->source ? owes : &none;
}

static struct sched_owes *owes_take(struct vx_sched *sched, const struct vx_job *job)
{
    struct sched_owes *owes = &sched->origins[job->origin].owes;
    if (owes->source != job->source) *owes = (struct sched_owes){.source = job->source};
    return owes;
}

u64 vx_sched_owes(const struct vx_sched *sched, const struct vx_job *job, i64 now_ns)
{
    return owes_at(owes_of(sched, job), now_ns);
}

void vx_sched_charge(struct vx_sched *sched, const struct vx_job *job, i64 voxels,
                     i64 took_ns, i64 now_ns)
{
    struct sched_owes *owes = owes_take(sched, job);
    const u32 ready = vx_sched_instance(sched, job->instance)->workers_ready;
    const i32 workers = ready ? __builtin_popcount(ready) : 1;
    const u64 left = owes_at(owes, now_ns);
    i64 left_ns = left ? owes->until_ns - now_ns : 0;
    owes->voxels = left;
    owes->since_ns = now_ns;
    if (voxels > 0 && took_ns > 0) { /* a part of all devices was theirs */
        owes->voxels += (u64)voxels;
        left_ns += took_ns / workers;
    } else if (voxels < 0) {
        owes->voxels = left > (u64)-voxels ? left - (u64)-voxels : 0;
        left_ns = left ? (i64)((f64)left_ns * ((f64)owes->voxels / (f64)left)) : 0;
    }
    owes->until_ns = now_ns + left_ns;
}

void vx_sched_ran_aside(struct vx_sched *sched, const struct vx_job *job, i64 took_ns,
                        i64 now_ns)
{
    struct sched_owes *owes = owes_take(sched, job);
    if (took_ns <= ASIDE_MOST_NS) return;
    if (owes->slow_until_ns > now_ns) owes->patient_until_ns = now_ns + PATIENT_NS;
    owes->slow_until_ns = now_ns + PATIENT_NS;
}

bool vx_sched_is_patient(const struct vx_sched *sched, const struct vx_job *job,
                         i64 now_ns)
{
    return now_ns < owes_of(sched, job)->patient_until_ns;
}
