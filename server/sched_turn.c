/* sched_turn - whose turn it is.
 *
 * Time is counted in voxels that each client could have had: a batch moves it on by its cost over
 * the clients that wait.  The turn of a job is when it would end if its client had only its part of
 * the devices: after the one before it, or after now, plus its own cost.  The earliest turn goes
 * first.  So a small job of a client that has little waiting passes the many of another, and the jobs
 * of one client keep their order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched_private.h"

#include "engine/base/check.h"

/* What a job costs its client beside its voxels. */
#define JOB_VOXELS 32
/* Entries that a client's may be in. */
#define CLIENT_LOOKS 16
/* While this part of the queue is free nobody's own part counts. */
#define QUEUE_FREE_PART 4
/* Of queue_max, as far as VX_SCHED_QUEUE_RESERVED: what is beyond it for who has few waiting. */
#define QUEUE_RESERVED_PART 8

static u64 cost_of(const struct vx_job *job)
{
    return (u64)job->voxels + JOB_VOXELS;
}

/* Where all stand: who was away has saved nothing. */
static u64 turn_now(const struct vx_sched *sched)
{
    return sched->queued ? sched->turn : sched->turn_last;
}

/* The client's entry; else the one nearby whose client loses least by it.  Where jobs of others wait
 * in all of them it shares one: that takes as many clients as there are looks. */
static i32 client_row(const struct vx_sched *sched, u64 client)
{
    /* Fibonacci hashing: connections are numbered one by one. */
    u32 home = (u32)(client * 0x9E3779B97F4A7C15u >> 32);
    i32 best = (i32)(home % SCHED_CLIENTS);
    for (u32 i = 0; i < CLIENT_LOOKS; i++) {
        i32 row = (i32)((home + i) % SCHED_CLIENTS);
        const struct sched_client *one = &sched->clients[row],
                                  *other = &sched->clients[best];
        if (one->client == client) return row;
        if (!one->waiting && (other->waiting || one->turn < other->turn)) best = row;
    }
    return best;
}

/* The same, as its own. */
static i32 client_take(struct vx_sched *sched, u64 client)
{
    i32 row = client_row(sched, client);
    struct sched_client *one = &sched->clients[row];
    if (!one->waiting && one->client != client)
        *one = (struct sched_client){.client = client};
    return row;
}

i32 vx_sched_client_jobs(const struct vx_sched *sched, u64 client)
{
    return sched->clients[client_row(sched, client)].waiting;
}

u64 vx_sched_turn(const struct vx_sched *sched, const struct vx_job *job)
{
    const struct sched_client *client = &sched->clients[client_row(sched, job->client)];
    bool is_own = client->waiting || client->client == job->client;
    u64 own = is_own ? client->turn : 0, now = turn_now(sched);
    return (own > now ? own : now) + cost_of(job);
}

void vx_sched_turn_take(struct vx_sched *sched, struct vx_job *job)
{
    job->turn = vx_sched_turn(sched, job);
    sched->turn = turn_now(sched);
    sched->clients[client_take(sched, job->client)].turn = job->turn;
    if (job->turn > sched->turn_last) sched->turn_last = job->turn;
}

void vx_sched_turn_begins(struct vx_sched *sched, const struct vx_batch_plan *plan)
{
    u64 cost = 0;
    for (i32 j = 0; j < plan->jobs_count; j++) cost += cost_of(plan->jobs[j]);
    sched->turn += cost / (u64)sched->clients_waiting;
}

void vx_sched_turn_waits(struct vx_sched *sched, struct vx_job *job, i32 more)
{
    if (more > 0) job->client_row = client_take(sched, job->client);
    struct sched_client *client = &sched->clients[job->client_row];
    i32 before = client->waiting;
    client->waiting += more;
    VX_ASSERT(client->waiting >= 0);
    sched->clients_waiting += (client->waiting > 0) - (before > 0);
}

/* The fewer of its jobs wait, the more of what is reserved: a client sends its next request before
 * the last one is answered. */
i32 vx_sched_turn_room(const struct vx_sched *sched, u64 client)
{
    i32 own = vx_sched_client_jobs(sched, client);
    i32 reserved = sched->queue_max / QUEUE_RESERVED_PART;
    if (reserved > VX_SCHED_QUEUE_RESERVED) reserved = VX_SCHED_QUEUE_RESERVED;
    return sched->queue_max + (own < reserved ? reserved - own : 0);
}

bool vx_sched_turn_has_part(const struct vx_sched *sched, u64 client)
{
    i32 own = vx_sched_client_jobs(sched, client);
    i32 clients = sched->clients_waiting + !own;
    i32 crowded = sched->queue_max - sched->queue_max / QUEUE_FREE_PART;
    return own && sched->queued >= crowded && own >= sched->queue_max / clients;
}
