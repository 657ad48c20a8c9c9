/* sched_turn - the order in which origins, and their clients, are served.
 *
 * Virtual time counts the voxels, of all sets and for outputs, that each origin could have had of
 * the devices so far: when a batch begins, it advances by the batch's cost divided by the
 * number of origins that wait.  The turn of a job is the virtual time at which it would
 * end if its client had exactly its share of the devices, an equal part of its origin's:
 * the turn of the client's job before it, or the current virtual time if that is later,
 * plus the job's own cost, once for each client of the origin that waits.  The job with
 * the earliest turn goes first.  So a small job of a client with few waiting jobs passes
 * the many of another client, the jobs of one client keep their order, and an origin gets
 * no more by opening more connections.
 *
 * A job's turn stays as it was given, though clients come and go afterwards.  An origin whose
 * clients come one after the other may so have more than its share of what waits; but then
 * time advances for all, and the others' turns are the earlier ones.
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
/* The places beyond a limit for origins with few waiting jobs: one for so many of the limit, at
 * most VX_SCHED_QUEUE_RESERVED. */
#define QUEUE_RESERVED_PART 8
/* An origin may have this part of the queue, however many there are: of 512 places each of 200
 * origins had two, and a client with three requests was refused. */
#define QUEUE_LEAST_PART 64

u64 vx_sched_turn_cost(const struct vx_job *job)
{
    return (u64)job->set_voxels + JOB_VOXELS +
           (u64)job->answer_bytes / VX_SCHED_VOXEL_BYTES;
}

static u64 later(u64 a, u64 b)
{
    return a > b ? a : b;
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

/* Among how many clients of its origin the job's would share, were it to wait. */
static u64 sharers_of(const struct vx_sched *sched, const struct sched_client *client,
                      const struct vx_job *job)
{
    return (u64)sched->origins[job->origin].clients + !client->waiting;
}

/* The turn of the client's job before.  What it owes was counted for as many sharers as there
 * were then: if the others have left without having been served, it owes less. */
static u64 client_turn(const struct vx_sched *sched, const struct sched_client *client,
                       u64 sharers)
{
    const u64 now = turn_now(sched);
    if (client->waiting || client->turn <= now || sharers >= client->sharers)
        return client->turn;
    return now + (client->turn - now) / client->sharers * sharers;
}

u64 vx_sched_turn(const struct vx_sched *sched, const struct vx_job *job, i64 now_ns)
{
    const struct sched_client *client = &sched->clients[client_row(sched, job->client)];
    bool is_own = client->waiting || client->client == job->client;
    const u64 sharers = sharers_of(sched, client, job);
    const u64 own = is_own ? client_turn(sched, client, sharers) : 0;
    const u64 paid = turn_now(sched) + vx_sched_owes(sched, job, now_ns);
    return later(own, paid) + vx_sched_turn_cost(job) * sharers;
}

void vx_sched_turn_take(struct vx_sched *sched, struct vx_job *job, i64 now_ns)
{
    job->turn = vx_sched_turn(sched, job, now_ns);
    sched->turn = turn_now(sched);
    struct sched_client *client = &sched->clients[client_take(sched, job->client)];
    client->turn = job->turn;
    client->sharers = sharers_of(sched, client, job);
    sched->turn_last = later(sched->turn_last, job->turn);
}

/* Its own turn has passed, and those of its client's jobs that wait stay: the next one that comes
 * pays. */
static void turn_grows(struct vx_sched *sched, const struct vx_job *job, u64 cost)
{
    struct sched_client *client = &sched->clients[client_take(sched, job->client)];
    const u64 sharers = sharers_of(sched, client, job);
    client->turn =
        later(client_turn(sched, client, sharers), turn_now(sched)) + cost * sharers;
    client->sharers = sharers;
    sched->turn_last = later(sched->turn_last, client->turn);
    const i32 sharing = sched->origins_waiting + !sched->origins[job->origin].jobs;
    if (sched->queued) sched->turn += cost / (u64)sharing;
}

/* The batch of a job that runs. */
static struct sched_batch *batch_of(struct vx_sched *sched, const struct vx_job *job,
                                    i32 *worker)
{
    for (*worker = 0; *worker < VX_WORKERS_MAX; ++*worker) {
        struct sched_worker *w = &sched->workers[*worker];
        for (i32 b = 0; b < w->batches_count; b++)
            for (const struct vx_job *one = w->batches[b].jobs; one; one = one->next)
                if (one == job) return &w->batches[b];
    }
    return NULL;
}

/* Its batch takes longer than was predicted, and those who wait for it are told so. */
void vx_sched_answer_grows(struct vx_sched *sched, struct vx_job *job, i64 bytes,
                           i64 unforeseen)
{
    i32 worker;
    VX_ASSERT(job->state == VX_JOB_RUNNING && bytes >= unforeseen);
    VX_ASSERT(unforeseen >= 0);
    if (bytes > job->charged_bytes) {
        turn_grows(sched, job, (u64)(bytes - job->charged_bytes) / VX_SCHED_VOXEL_BYTES);
        job->charged_bytes = bytes;
    }
    job->grown_bytes = bytes;
    job->unforeseen_bytes = unforeseen;
    struct sched_batch *batch = batch_of(sched, job, &worker);
    VX_ASSERT(batch);
    const struct vx_cost *cost = &sched->instances[job->instance].costs[worker];
    const i64 more_ns = vx_cost_unforeseen_ns(cost, unforeseen);
    if (batch->predicted_ns > 0) batch->predicted_ns += more_ns;
    if (batch->believed_ns > 0) batch->believed_ns += more_ns;
}

void vx_sched_turn_begins(struct vx_sched *sched, const struct vx_batch_plan *plan)
{
    u64 cost = 0;
    for (i32 j = 0; j < plan->jobs_count; j++) cost += vx_sched_turn_cost(plan->jobs[j]);
    sched->turn += cost / (u64)sched->origins_waiting;
}

/* An entry that clients of several origins share counts for the one that had it first, so
 * that it is taken off where it was added. */
void vx_sched_turn_waits(struct vx_sched *sched, struct vx_job *job, i32 more)
{
    if (more > 0) job->client_row = client_take(sched, job->client);
    struct sched_client *client = &sched->clients[job->client_row];
    struct sched_origin *origin = &sched->origins[job->origin];
    if (!client->waiting) client->origin = job->origin;
    i32 clients = -(client->waiting > 0), waiting = -(origin->jobs > 0);
    client->waiting += more;
    origin->jobs += more;
    VX_ASSERT(client->waiting >= 0 && origin->jobs >= 0);
    sched->origins[client->origin].clients += clients + (client->waiting > 0);
    sched->origins_waiting += waiting + (origin->jobs > 0);
}

/* The fewer jobs of its origin wait, the more of the reserved places a job may use: a client
 * sends its next request before the previous one is answered.  By clients alone, 950
 * connections of one address with a job each had all places. */
i64 vx_sched_turn_room(const struct vx_sched *sched, const struct vx_job *job, i64 most)
{
    i64 own = sched->origins[job->origin].jobs;
    i64 reserved = most / QUEUE_RESERVED_PART;
    if (reserved > VX_SCHED_QUEUE_RESERVED) reserved = VX_SCHED_QUEUE_RESERVED;
    return most + (own < reserved ? reserved - own : 0);
}

i32 vx_sched_turn_places(const struct vx_sched *sched, u16 origin)
{
    const struct sched_origin *one = &sched->origins[origin];
    return one->jobs + (turn_now(sched) < one->gone_turn ? one->gone : 0);
}

/* Its place counts for as long as it, or the job that it pushed out if that is longer, would have
 * used its origin's share of the devices: who submits and cancels pushes out no more than who
 * waits. */
void vx_sched_turn_gone(struct vx_sched *sched, const struct vx_job *job)
{
    struct sched_origin *origin = &sched->origins[job->origin];
    const u64 now = turn_now(sched);
    if (now >= origin->gone_turn) {
        origin->gone = 0;
        origin->gone_turn = now;
    }
    origin->gone++;
    origin->gone_turn += later(vx_sched_turn_cost(job), job->took);
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
    const i32 least = sched->queue_max / QUEUE_LEAST_PART;
    i32 of_origin = part_of(sched->queue_max, sched->origins_waiting);
    if (of_origin < least) of_origin = least;
    const struct sched_origin *origin = &sched->origins[job->origin];
    const i32 of_client = part_of(of_origin, origin->clients);
    return has_part(origin->jobs, of_origin) ||
           has_part(vx_sched_client_jobs(sched, job->client), of_client);
}
