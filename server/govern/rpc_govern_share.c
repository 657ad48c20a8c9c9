/* rpc_govern_share - what a connection has, beside the others and those of its origin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* Bytes of answers in the heap whose calls have not ended: of all connections, and of
 * one.  The largest answer of a control method (VX_ANSWER_BYTES_MAX) is half of what
 * one may have. */
#define ANSWERS_MAX        (32u << 20)
#define ANSWERS_OF_ONE_MAX (8u << 20)

static void served_add(const struct vx_rpc_govern *govern, i32 more)
{
    struct vx_rpc_governor *governor = govern->governor;
    i32 *served = &governor->served_of[govern->origin], before = *served;
    *served += more;
    governor->origins_served += (*served > 0) - (before > 0);
}

void vx_rpc_govern_share(struct vx_rpc_place place, enum vx_rpc_share share, i32 more)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) {
        i32 before = govern->shares[share];
        govern->shares[share] += more;
        VX_ASSERT(govern->shares[share] >= 0);
        if (share == VX_RPC_SHARE_CALLS)
            govern->governor->active += (before + more > 0) - (before > 0);
        if (share == VX_RPC_SHARE_STREAMS) {
            govern->governor->streaming += (before + more > 0) - (before > 0);
            govern->governor->streams_of[govern->origin] += more;
        }
        if (share == VX_RPC_SHARE_SERVED) served_add(govern, more);
        if (share == VX_RPC_SHARE_ARRIVED) govern->governor->calls_open += more;
        vx_rpc_govern_hidden_count(govern);
        vx_rpc_govern_wake_if_may(govern);
        if (share == VX_RPC_SHARE_REFUSED && (!before || more < 0))
            govern->refused_ns = vx_clock_ns();
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

void vx_rpc_govern_share_end(struct vx_rpc_govern *govern)
{
    struct vx_rpc_governor *governor = govern->governor;
    const i32 *shares = govern->shares;
    governor->calls_open -= shares[VX_RPC_SHARE_ARRIVED];
    governor->active -= shares[VX_RPC_SHARE_CALLS] > 0;
    governor->streaming -= shares[VX_RPC_SHARE_STREAMS] > 0;
    governor->streams_of[govern->origin] -= shares[VX_RPC_SHARE_STREAMS];
    served_add(govern, -shares[VX_RPC_SHARE_SERVED]);
    governor->takers -= govern->tensors > 0;
    governor->tensors -= govern->tensors;
    governor->answers -= govern->answers;
}

i32 vx_rpc_governor_active(struct vx_rpc_governor *governor)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    i32 active = governor->active;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return active;
}

i32 vx_rpc_governor_streaming(struct vx_rpc_governor *governor)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    i32 streaming = governor->streaming;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return streaming;
}

i32 vx_rpc_govern_streams_from(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    i32 streams = govern ? govern->governor->streams_of[govern->origin] : 0;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return streams;
}

bool vx_rpc_govern_has_part(struct vx_rpc_place place, i32 streams_max)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    const struct vx_rpc_governor *governor = govern ? govern->governor : NULL;
    bool has = governor && governor->streams_of[govern->origin] <=
                               streams_max / (governor->origins_served + 1);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return has;
}

i32 vx_rpc_govern_share_of(const struct vx_rpc_govern *govern, enum vx_rpc_share share)
{
    i32 has = govern->shares[share];
    i32 due = govern->meter.silent + govern->meter.unfinished;
    if (share != VX_RPC_SHARE_IDLE) return has;
    i32 awaited = govern->shares[VX_RPC_SHARE_AWAITED];
    return has + (awaited < due ? awaited : due);
}

bool vx_rpc_govern_lives(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    bool lives = vx_rpc_govern_of(place) != NULL;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return lives;
}

bool vx_rpc_govern_is_behind(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    bool behind = govern && govern->meter.silent + govern->meter.unfinished > 0;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return behind;
}

i64 vx_rpc_govern_came(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    i64 came = govern ? govern->meter.came : 0;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return came;
}

i32 vx_rpc_govern_has(struct vx_rpc_place place, enum vx_rpc_share share)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    i32 has = govern ? vx_rpc_govern_share_of(govern, share) : 0;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return has;
}

/* An equal part of three quarters of the arena for each connection that has some, so that
 * a newcomer finds room. */
static u64 arena_part(const struct vx_rpc_governor *governor, u64 takers)
{
    return governor->arena_bytes / 4 * 3 / takers;
}

/* There is no limit while half of the arena is free, and none for a connection's only call
 * while a quarter is: its part may be less than any request of its model needs. */
bool vx_rpc_govern_take(struct vx_rpc_place place, u64 bytes)
{
    bool may = true;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    struct vx_rpc_governor *governor = govern ? govern->governor : NULL;
    if (govern && bytes && governor->arena_bytes) {
        u64 takers = (u64)governor->takers + !govern->tensors;
        u64 quarters = govern->shares[VX_RPC_SHARE_CALLS] > 1 ? 2 : 3;
        bool crowded = takers > 1 &&
                       governor->tensors + bytes > governor->arena_bytes / 4 * quarters;
        may = !crowded || govern->tensors + bytes <= arena_part(governor, takers);
    }
    if (govern && may && bytes) {
        governor->takers += !govern->tensors;
        govern->tensors += bytes;
        governor->tensors += bytes;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return may;
}

bool vx_rpc_govern_hoards(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    const struct vx_rpc_governor *governor = govern ? govern->governor : NULL;
    bool hoards = governor && governor->arena_bytes && govern->tensors &&
                  governor->takers > 1 &&
                  governor->tensors > governor->arena_bytes / 4 * 3 &&
                  govern->tensors > arena_part(governor, (u64)governor->takers);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return hoards;
}

void vx_rpc_govern_give(struct vx_rpc_place place, u64 bytes)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern && bytes) {
        VX_ASSERT(govern->tensors >= bytes);
        govern->tensors -= bytes;
        govern->governor->tensors -= bytes;
        govern->governor->takers -= !govern->tensors;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

bool vx_rpc_govern_answer_take(struct vx_rpc_place place, u64 bytes)
{
    bool may = true;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern && bytes > VX_RPC_ANSWER_SMALL)
        may = govern->answers + bytes <= ANSWERS_OF_ONE_MAX &&
              govern->governor->answers + bytes <= ANSWERS_MAX;
    if (govern && may) {
        govern->answers += bytes;
        govern->governor->answers += bytes;
        govern->governor->bytes += bytes;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return may;
}

void vx_rpc_govern_answer_give(struct vx_rpc_place place, u64 bytes)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) {
        VX_ASSERT(govern->answers >= bytes);
        govern->answers -= bytes;
        govern->governor->answers -= bytes;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

u64 vx_rpc_governor_largest(struct vx_rpc_governor *governor, enum vx_rpc_share share,
                            i32 *most)
{
    u64 connection = 0;
    *most = 0;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    for (const struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        i32 has = vx_rpc_govern_share_of(one, share);
        if (has <= *most) continue;
        *most = has;
        connection = one->place.connection;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return connection;
}

/* gRPC may be asked for as many messages as there are silent streams, which may never
 * send one, and for one more.  Beyond that it may be asked while the announced messages
 * fit into receive_bytes_max. */
bool vx_rpc_govern_may_ask(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    bool may = !govern || govern->shares[VX_RPC_SHARE_BODIES] <= govern->meter.silent ||
               govern->meter.announced <= govern->governor->receive_bytes_max;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return may;
}

bool vx_rpc_govern_is_due(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    bool due = !govern || govern->meter.silent ||
               (govern->meter.unfinished && govern->slow && !govern->waits);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return due;
}
