/* rpc_govern_share - what a connection has, beside the others and those of its origin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

/* Bytes of answers in the heap whose calls have not ended: of all connections, and of
 * one.  The largest answer of a control method (VX_ANSWER_BYTES_MAX) is half of what
 * one may have.  An origin may have as many as it leaves free (dynamic threshold): alone half
 * of all, and one that comes finds some. */
#define ANSWERS_MAX        (32u << 20)
#define ANSWERS_OF_ONE_MAX (8u << 20)

static void served_add(const struct vx_rpc_govern *govern, i32 more)
{
    struct vx_rpc_governor *governor = govern->governor;
    i32 *served = &governor->served_of[govern->origin], before = *served;
    *served += more;
    governor->origins_served += (*served > 0) - (before > 0);
}

/* The connection has so many more calls in flight. */
static void calls_add(const struct vx_rpc_govern *govern, i32 before, i32 more)
{
    struct vx_rpc_governor *governor = govern->governor;
    i32 *calls = &governor->calls_of[govern->origin], calls_before = *calls;
    const i32 active = (before + more > 0) - (before > 0);
    *calls += more;
    governor->active += active;
    governor->active_of[govern->origin] += active;
    governor->origins_active += (*calls > 0) - (calls_before > 0);
}

void vx_rpc_govern_share(struct vx_rpc_place place, enum vx_rpc_share share, i32 more)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) {
        i32 before = govern->shares[share];
        govern->shares[share] += more;
        VX_ASSERT(govern->shares[share] >= 0);
        if (share == VX_RPC_SHARE_CALLS) calls_add(govern, before, more);
        if (share == VX_RPC_SHARE_STREAMS) {
            govern->governor->streaming += (before + more > 0) - (before > 0);
            govern->governor->streams_of[govern->origin] += more;
        }
        if (share == VX_RPC_SHARE_IDLE)
            govern->governor->lasting_of[govern->origin] += more;
        if (share == VX_RPC_SHARE_AWAITED)
            govern->governor->awaited_of[govern->origin] += more;
        if (share == VX_RPC_SHARE_SERVED) served_add(govern, more);
        if (share == VX_RPC_SHARE_ARRIVED) govern->governor->calls_open += more;
        if (more < 0) vx_rpc_govern_orphans_bound(govern);
        vx_rpc_govern_hidden_count(govern);
        vx_rpc_govern_wake_if_may(govern);
        if (share == VX_RPC_SHARE_REFUSED && (!before || more < 0))
            govern->refused_ns = vx_clock_ns();
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

/* The connection has so many more bytes of the arena. */
static void tensors_add(struct vx_rpc_govern *govern, i64 more)
{
    struct vx_rpc_governor *governor = govern->governor;
    u64 *of_origin = &governor->tensors_of[govern->origin], before = *of_origin;
    const i32 had = govern->tensors > 0;
    VX_ASSERT(more >= 0 || govern->tensors >= (u64)-more);
    govern->tensors += (u64)more;
    governor->tensors += (u64)more;
    *of_origin += (u64)more;
    const i32 takers = (govern->tensors > 0) - had;
    governor->takers += takers;
    governor->takers_of[govern->origin] += takers;
    governor->origins_taking += (*of_origin > 0) - (before > 0);
}

static void answers_add(struct vx_rpc_govern *govern, i64 more)
{
    VX_ASSERT(more >= 0 || govern->answers >= (u64)-more);
    govern->answers += (u64)more;
    govern->governor->answers += (u64)more;
    govern->governor->answers_of[govern->origin] += (u64)more;
}

static bool answers_fit(const struct vx_rpc_govern *govern, u64 bytes)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const u64 all = governor->answers, of_origin = governor->answers_of[govern->origin];
    return govern->answers + bytes <= ANSWERS_OF_ONE_MAX &&
           all + of_origin + 2 * bytes <= ANSWERS_MAX;
}

void vx_rpc_govern_share_end(struct vx_rpc_govern *govern)
{
    struct vx_rpc_governor *governor = govern->governor;
    const i32 *shares = govern->shares;
    governor->calls_open -= shares[VX_RPC_SHARE_ARRIVED];
    calls_add(govern, shares[VX_RPC_SHARE_CALLS], -shares[VX_RPC_SHARE_CALLS]);
    governor->streaming -= shares[VX_RPC_SHARE_STREAMS] > 0;
    governor->streams_of[govern->origin] -= shares[VX_RPC_SHARE_STREAMS];
    governor->lasting_of[govern->origin] -= shares[VX_RPC_SHARE_IDLE];
    governor->awaited_of[govern->origin] -= shares[VX_RPC_SHARE_AWAITED];
    served_add(govern, -shares[VX_RPC_SHARE_SERVED]);
    tensors_add(govern, -(i64)govern->tensors);
    answers_add(govern, -(i64)govern->answers);
}

struct vx_rpc_calls vx_rpc_govern_calls(struct vx_rpc_place place)
{
    struct vx_rpc_calls calls = {0};
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) {
        const struct vx_rpc_governor *governor = govern->governor;
        const i32 *shares = govern->shares, origin = govern->origin;
        calls = (struct vx_rpc_calls){
            .own = shares[VX_RPC_SHARE_CALLS],
            .of_origin = governor->calls_of[origin],
            .active = governor->active,
            .active_of_origin = governor->active_of[origin],
            .origins = governor->origins_active,
            .lasting = shares[VX_RPC_SHARE_IDLE],
            .lasting_of_origin = governor->lasting_of[origin],
            .awaited = vx_rpc_govern_share_of(govern, VX_RPC_SHARE_IDLE) -
                       shares[VX_RPC_SHARE_IDLE],
            .awaited_of_origin = governor->awaited_of[origin],
        };
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return calls;
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
    bool has = false;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    const struct vx_rpc_governor *governor = govern ? govern->governor : NULL;
    if (governor) {
        const i32 others =
            governor->origins_served - (governor->served_of[govern->origin] > 0);
        has = governor->streams_of[govern->origin] <= streams_max / (others + 2);
    }
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

/* An equal part of three quarters of the arena for each origin that has some, so that a newcomer
 * finds room; and of that for each of its connections that has some.  By connections alone 400 of
 * one address with 512 KB each refused every request of 1 MB of others. */
struct arena_part {
    u64 of_origin, of_connection;
};

/* `takes`: the connection is one of those from now on. */
static struct arena_part arena_part(const struct vx_rpc_govern *govern, bool takes)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const u64 origin_new = takes && !governor->tensors_of[govern->origin];
    const u64 connection_new = takes && !govern->tensors;
    struct arena_part part;
    part.of_origin =
        governor->arena_bytes / 4 * 3 / ((u64)governor->origins_taking + origin_new);
    part.of_connection =
        part.of_origin / ((u64)governor->takers_of[govern->origin] + connection_new);
    return part;
}

/* Little of what a few connections of an origin have is in no part: beside a gateway of its address, whose
 * answers waited for slow readers elsewhere, a client with 256 bytes was refused now and then.  All of it
 * is a 16th of the arena. */
#define LITTLE_PART  1024
#define LITTLE_COUNT 64

static bool has_little(const struct vx_rpc_govern *govern, u64 bytes)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return govern->tensors + bytes <= governor->arena_bytes / LITTLE_PART &&
           governor->takers_of[govern->origin] < LITTLE_COUNT;
}

/* Whether so many more bytes are within the parts.  Alone an origin has all. */
static bool has_part(const struct vx_rpc_govern *govern, u64 bytes)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const u64 of_origin = governor->tensors_of[govern->origin];
    const struct arena_part part = arena_part(govern, true);
    return (of_origin == governor->tensors || of_origin + bytes <= part.of_origin) &&
           govern->tensors + bytes <= part.of_connection;
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
        may = !crowded || has_part(govern, bytes) || has_little(govern, bytes);
    }
    if (govern && may) tensors_add(govern, (i64)bytes);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return may;
}

#define ARENA_LITTLE_PART 64

bool vx_rpc_govern_hoards(struct vx_rpc_place place, bool lacks)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    const struct vx_rpc_governor *governor = govern ? govern->governor : NULL;
    bool hoards = governor && governor->arena_bytes && govern->tensors &&
                  governor->takers > 1 &&
                  governor->tensors > governor->arena_bytes / 4 * 3 &&
                  govern->tensors > arena_part(govern, false).of_connection;
    const u64 little = governor ? governor->arena_bytes / ARENA_LITTLE_PART : 0;
    if (lacks && little && governor->tensors_of[govern->origin] > little) hoards = true;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return hoards;
}

/* Who reads an eighth of what its calls have of the arena each time has read all of it after
 * eight: 40 s.  Little has to be read at a modem's rate: 256 KiB in 5 s are 0.4 Mbit/s. */
#define READ_PART 8
#define READ_MIN  ((u64)256 << 10)

struct vx_rpc_reading vx_rpc_govern_reading(struct vx_rpc_place place)
{
    struct vx_rpc_reading reading = {0};
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) {
        int waits = 0; /* in the socket: its client has not taken it */
        if (ioctl(place.descriptor, SIOCOUTQ, &waits) || waits < 0) waits = 0;
        const u64 part = govern->tensors / READ_PART;
        reading.read = govern->sent > (u64)waits ? govern->sent - (u64)waits : 0;
        reading.due = part > READ_MIN ? part : READ_MIN;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return reading;
}

void vx_rpc_govern_give(struct vx_rpc_place place, u64 bytes)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) tensors_add(govern, -(i64)bytes);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

bool vx_rpc_govern_answer_take(struct vx_rpc_place place, u64 bytes)
{
    bool may = true;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern && bytes > VX_RPC_ANSWER_SMALL) may = answers_fit(govern, bytes);
    if (govern && may) {
        answers_add(govern, (i64)bytes);
        govern->governor->bytes += bytes;
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return may;
}

void vx_rpc_govern_answer_give(struct vx_rpc_place place, u64 bytes)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) answers_add(govern, -(i64)bytes);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

bool vx_rpc_govern_is_unheard(struct vx_rpc_place place)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    const bool unheard = govern && vx_rpc_govern_has_spoken(govern);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return unheard;
}
