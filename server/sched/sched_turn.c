/* sched_turn - the order in which clients are served.
 *
 * Virtual time counts the voxels, of all sets, that each client could have had of the
 * devices so far: when a batch begins, it advances by the batch's cost divided by the
 * number of clients that wait.  The turn of a job is the virtual time at which it would
 * end if its client had exactly its share of the devices: the turn of the client's job
 * before it, or the current virtual time if that is later, plus the job's own cost.  The
 * job with the earliest turn goes first.  So a small job of a client with few waiting
 * jobs passes the many of another client, and the jobs of one client keep their order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/sched/sched_private.h"

#include "engine/base/process/check.h"

/* What a job costs its client in addition to its voxels. */
#define JOB_VOXELS 32
/* The entries of the hash table where a client may be. */
#define CLIENT_LOOKS 16
/* While one in so many places of the queue is free, no client is limited to its share. */
#define QUEUE_FREE_PART 4
/* The places beyond queue_max for clients with few waiting jobs: one for so many of
 * queue_max, at most VX_SCHED_QUEUE_RESERVED. */
#define QUEUE_RESERVED_PART 8

static u64 cost_of(const struct vx_job *job)
{
    return (u64)job->set_voxels + JOB_VOXELS;
}

/* The current virtual time.  When no job waits it is the latest turn given, so that a
 * client that was idle has saved up nothing. */
static u64 turn_now(const struct vx_sched *sched)
{
    return sched->queued ? sched->turn : sched->turn_last;
}

/* The client's entry.  If it has none: of the CLIENT_LOOKS entries where it may be, the
 * one without waiting jobs that has the earliest turn, since its client loses the least.
 * If all of them have waiting jobs, the client shares the first. */
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

/* The same, and the entry becomes the client's own unless it is shared. */
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
    const i32 clients = (client->waiting > 0) - (before > 0);
    sched->clients_waiting += clients;
    sched->clients_of[job->origin] += clients;
    i32 *jobs = &sched->jobs_of[job->origin], jobs_before = *jobs;
    *jobs += more;
    sched->origins_waiting += (*jobs > 0) - (jobs_before > 0);
}

/* The fewer jobs of its origin wait, the more of the reserved places a job may use: a client
 * sends its next request before the previous one is answered.  By clients alone, 950
 * connections of one address with a job each had all places. */
i32 vx_sched_turn_room(const struct vx_sched *sched, const struct vx_job *job)
{
    i32 own = sched->jobs_of[job->origin];
    i32 reserved = sched->queue_max / QUEUE_RESERVED_PART;
    if (reserved > VX_SCHED_QUEUE_RESERVED) reserved = VX_SCHED_QUEUE_RESERVED;
    return sched->queue_max + (own < reserved ? reserved - own : 0);
}

/* An equal part of `all` places, where so many share them. */
static i32 part_of(i32 all, i32 sharers)
{
    return sharers ? all / sharers : all;
}

static bool has_part(i32 own, i32 part)
{
    return own && own >= part;
}

/* Origins share the queue, and the clients of an origin share its part.  By clients alone,
 * 1,000 connections of one address with a job each left a client elsewhere one place. */
bool vx_sched_turn_has_part(const struct vx_sched *sched, const struct vx_job *job)
{
    i32 crowded = sched->queue_max - sched->queue_max / QUEUE_FREE_PART;
    if (sched->queued < crowded) return false;
    const i32 of_origin = part_of(sched->queue_max, sched->origins_waiting);
    const i32 of_client = part_of(of_origin, sched->clients_of[job->origin]);
    return has_part(sched->jobs_of[job->origin], of_origin) ||
           has_part(vx_sched_client_jobs(sched, job->client), of_client);
}
