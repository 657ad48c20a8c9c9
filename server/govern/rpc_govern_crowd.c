/* rpc_govern_crowd - what origins do with the room for unfinished messages, and which connections go
 * of one that holds more than its part, so that others go on.
 *
 * What a client has sent says nothing: who leaves the next bytes of a message in its socket waits for
 * us like an honest one.  So an origin is judged by the bytes of messages that it ended of late.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* So much of receive_bytes_max is to be free for turns. */
#define FREE_PART 8
/* Origins of which some go at a check: each costs a walk over all connections, under the lock. */
#define GOING_MAX 64
#define I64_BITS  64

/* ------- what an origin did of late ------- */

struct vx_rpc_lately vx_rpc_govern_lately(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    struct vx_rpc_lately lately = governor->lately_of[govern->origin];
    const u32 looks = governor->looks - lately.look;
    lately.ended = looks < I64_BITS ? lately.ended >> looks : 0;
    lately.stood = looks < I64_BITS ? lately.stood >> looks : 0;
    lately.look = governor->looks;
    return lately;
}

void vx_rpc_govern_ended_add(const struct vx_rpc_govern *govern, i64 bytes)
{
    struct vx_rpc_lately lately = vx_rpc_govern_lately(govern);
    lately.ended += bytes;
    govern->governor->lately_of[govern->origin] = lately;
}

/* It has held some for a while, and brings next to nothing, whether it may or not. */
static bool stands(const struct vx_rpc_govern *govern, i64 now_ns)
{
    return govern->meter.held && govern->little &&
           now_ns - govern->held_since_ns >= VX_RPC_STUCK_NS;
}

void vx_rpc_govern_stood_add(const struct vx_rpc_govern *govern, i64 now_ns)
{
    if (!stands(govern, now_ns)) return;
    struct vx_rpc_lately lately = vx_rpc_govern_lately(govern);
    lately.stood += govern->meter.held;
    govern->governor->lately_of[govern->origin] = lately;
}

bool vx_rpc_govern_only_holds(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_lately lately = vx_rpc_govern_lately(govern);
    return lately.stood > lately.ended;
}

/* ------- who goes ------- */

/* What each origin holds, without connections that are closed, and its part of the room. */
struct crowds {
    i64 held_of[VX_PEER_ORIGINS], part;
    i64 freed;
};

static void crowds_count(struct crowds *crowds, const struct vx_rpc_governor *governor)
{
    i64 all = 0, room = vx_rpc_govern_room(governor);
    i32 origins = 0;
    for (const struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (one->cut) continue;
        origins += !crowds->held_of[one->origin] && one->meter.held;
        crowds->held_of[one->origin] += one->meter.held;
        all += one->meter.held;
    }
    crowds->part = origins > 1 ? (all < room ? all : room) / origins : all;
    if (crowds->part < HELD_SMALL) crowds->part = HELD_SMALL;
}

/* How much its origin holds beyond an equal part and what it ended of late: a gateway with 48 requests
 * of 96 KB at once needs more than such a part of 3 MiB. */
static i64 surplus_of(const struct crowds *crowds, const struct vx_rpc_govern *govern)
{
    return crowds->held_of[govern->origin] - crowds->part -
           vx_rpc_govern_lately(govern).ended;
}

/* Of an origin that only holds, and not for whose sake others are to go. */
static bool may_go(const struct crowds *crowds, const struct vx_rpc_govern *govern,
                   i64 now_ns)
{
    return !govern->cut && stands(govern, now_ns) && vx_rpc_govern_only_holds(govern) &&
           vx_rpc_govern_lately(govern).wanted != govern->governor->looks &&
           surplus_of(crowds, govern) > 0;
}

/* A connection of the origin that goes first; or NULL.  One with many connections goes before one whose
 * few hold as much: these are a gateway's, which waits for turns. */
static const struct vx_rpc_govern *crowd_first(const struct crowds *crowds,
                                               const struct vx_rpc_governor *governor,
                                               i64 now_ns)
{
    const struct vx_rpc_govern *first = NULL;
    i64 most = 0;
    for (const struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (!may_go(crowds, one, now_ns)) continue;
        const i64 has = surplus_of(crowds, one) * governor->open_of[one->origin];
        if (has <= most) continue;
        most = has;
        first = one;
    }
    return first;
}

static bool is_enough(const struct crowds *crowds, const struct vx_rpc_governor *governor)
{
    return vx_rpc_govern_room_owner(governor) + crowds->freed >=
           governor->receive_bytes_max / FREE_PART;
}

/* The oldest first: who has come lately has had less time. */
static void crowd_close(struct crowds *crowds, struct vx_rpc_governor *governor,
                        u16 origin, i64 now_ns)
{
    for (struct vx_rpc_govern *one = governor->oldest; one; one = one->previous) {
        if (one->origin != origin || !may_go(crowds, one, now_ns)) continue;
        if (is_enough(crowds, governor)) return;
        crowds->held_of[origin] -= one->meter.held;
        crowds->freed += one->meter.held;
        vx_rpc_govern_close(one, VX_RPC_CUT_STILL);
    }
}

/* Of origins that hold more than their part those go that stand, until there is room for turns: a
 * byte of a message each of 1,000 connections of one address was all room, and an honest client with
 * 48 messages was closed for it.  No more go than that, since they come back. */
bool vx_rpc_govern_close_crowds(struct vx_rpc_governor *governor, i64 now_ns)
{
    static struct crowds crowds;
    crowds = (struct crowds){0};
    crowds_count(&crowds, governor);
    for (i32 i = 0; i < GOING_MAX && !is_enough(&crowds, governor); i++) {
        const struct vx_rpc_govern *first = crowd_first(&crowds, governor, now_ns);
        if (!first) break;
        crowd_close(&crowds, governor, first->origin, now_ns);
    }
    return crowds.freed > 0;
}
