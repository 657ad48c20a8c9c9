/* rpc_govern_crowd - what of the room for unfinished messages stands, and which connections go of an
 * origin that holds more than its part, so that others go on.
 *
 * What a client has sent says nothing: who leaves the next bytes of a message in its socket waits for
 * us like an honest one.  So a connection is judged by what it brings, whether it may or not: an honest
 * one has turns in all that time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* So much of receive_bytes_max is to be free for turns. */
#define FREE_PART 8
/* Origins of which some go at a check: each costs a walk over all connections, under the lock. */
#define GOING_MAX 64
/* A connection stands that holds some and brings next to nothing in so many checks in a row: 3 s.
 * After 1 s an upload of 200 KB/s that paused for 1.3 s was closed, eight times of eight. */
#define STANDS_LOOKS 6

/* ------- what stands ------- */

void vx_rpc_govern_stood_set(struct vx_rpc_govern *govern, i64 stood)
{
    govern->governor->stood_of[govern->origin] += stood - govern->stood;
    govern->stood = stood;
}

void vx_rpc_govern_stood_look(struct vx_rpc_govern *govern, bool little)
{
    const i64 held = govern->meter.held;
    govern->little = held && little ? govern->little + 1 : 0;
    vx_rpc_govern_stood_set(govern, govern->little >= STANDS_LOOKS ? held : 0);
}

bool vx_rpc_govern_only_holds(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    return 2 * governor->stood_of[govern->origin] > governor->held_of[govern->origin];
}

/* ------- who has turns ------- */

bool vx_rpc_govern_may_turn(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    if (!vx_rpc_govern_is_bound(govern)) return true;
    const bool first = governor->turned_of[govern->origin] != governor->looks + 1;
    return govern->meter.held && (first || govern->had_turn) &&
           !vx_rpc_govern_is_barred(govern);
}

/* Whether what connections may add in turns is used up, and all messages of this one are no more than
 * one message may be, of which what is left would fit the room.  Else none ends where each connection
 * has several at once: one client with 400 of 96 KB on 64 connections had none answered. */
static bool ends_beyond(const struct vx_rpc_govern *govern)
{
    const struct vx_rpc_governor *governor = govern->governor;
    const i64 rest = vx_rpc_govern_rest(govern);
    return vx_rpc_govern_room_owner(governor) <= 0 &&
           rest <= governor->receive_bytes_max &&
           govern->meter.held + rest <= governor->message_bytes_max;
}

static bool passes_now(const struct vx_rpc_governor *governor)
{
    return !vx_rpc_govern_lags(governor) ||
           governor->turn_ns - governor->beyond_ns >= VX_RPC_STUCK_NS;
}

/* While we lag one each second begins to lie beyond the room: else they would be there one after the
 * other.  Else one message may, and all of one connection where its origin may not have room
 * for them: else a gateway with 48 at once waits until others leave it enough for all. */
bool vx_rpc_govern_may_pass(const struct vx_rpc_govern *govern)
{
    const i32 unfinished = govern->meter.unfinished;
    return unfinished && passes_now(govern->governor) &&
           (unfinished == 1 || vx_rpc_govern_is_bound(govern) || ends_beyond(govern)) &&
           vx_rpc_govern_may_turn(govern);
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

/* How much its origin holds beyond an equal part. */
static i64 surplus_of(const struct crowds *crowds, const struct vx_rpc_govern *govern)
{
    return crowds->held_of[govern->origin] - crowds->part;
}

/* It stands, and its origin only holds what it has beyond its part. */
static bool may_go(const struct crowds *crowds, const struct vx_rpc_govern *govern)
{
    return !govern->cut && govern->stood && vx_rpc_govern_only_holds(govern) &&
           surplus_of(crowds, govern) > 0;
}

/* A connection of the origin that goes first; or NULL.  One with many connections goes before one whose
 * few hold as much: these are a gateway's, which waits for turns. */
static const struct vx_rpc_govern *crowd_first(const struct crowds *crowds,
                                               const struct vx_rpc_governor *governor)
{
    const struct vx_rpc_govern *first = NULL;
    i64 most = 0;
    for (const struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (!may_go(crowds, one)) continue;
        const i64 has = surplus_of(crowds, one) * governor->open_of[one->origin];
        if (has <= most) continue;
        most = has;
        first = one;
    }
    return first;
}

bool vx_rpc_govern_is_enough(const struct vx_rpc_governor *governor, i64 freed)
{
    return vx_rpc_govern_room_owner(governor) + freed >=
           governor->receive_bytes_max / FREE_PART;
}

bool vx_rpc_govern_is_tight(const struct vx_rpc_governor *governor)
{
    return !vx_rpc_govern_is_enough(governor, 0);
}

/* The oldest first: who has come lately has had less time. */
static void crowd_close(struct crowds *crowds, struct vx_rpc_governor *governor,
                        u16 origin)
{
    for (struct vx_rpc_govern *one = governor->oldest; one; one = one->previous) {
        if (one->origin != origin || !may_go(crowds, one)) continue;
        if (vx_rpc_govern_is_enough(governor, crowds->freed)) return;
        crowds->held_of[origin] -= one->meter.held;
        crowds->freed += one->meter.held;
        vx_rpc_govern_close(one, VX_RPC_CUT_STILL);
    }
}

/* Of origins that hold more than their part those go that stand, until there is room for turns: a
 * byte of a message each of 1,000 connections of one address was all room, and an honest client with
 * 48 messages was closed for it.  No more go than that, since they come back. */
bool vx_rpc_govern_close_crowds(struct vx_rpc_governor *governor)
{
    static struct crowds crowds;
    crowds = (struct crowds){0};
    crowds_count(&crowds, governor);
    for (i32 i = 0; i < GOING_MAX && !vx_rpc_govern_is_enough(governor, crowds.freed);
         i++) {
        const struct vx_rpc_govern *first = crowd_first(&crowds, governor);
        if (!first) break;
        crowd_close(&crowds, governor, first->origin);
    }
    return crowds.freed > 0;
}
