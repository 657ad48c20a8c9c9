/* rpc_govern_crowd - which connections go of an origin that holds more than its part of the room for
 * unfinished messages, so that others go on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* It brings nothing, does not wait for us, and has ended no message for a while. */
static bool stands(const struct vx_rpc_govern *govern, i64 now_ns)
{
    return govern->slow && now_ns - govern->unfinished_since_ns >= VX_RPC_STUCK_NS &&
           !vx_rpc_govern_waits_for_us(govern);
}

/* Of origins that hold more than their part those go that stand, until each holds its part: a byte
 * of a message each of 1,000 connections of one address was all room, and an honest client with 48
 * messages was closed for it. */
bool vx_rpc_govern_close_crowds(struct vx_rpc_governor *governor, i64 now_ns)
{
    static i64 held_of[VX_PEER_ORIGINS]; /* zeros between calls */
    i64 all = 0, room = vx_rpc_govern_room(governor);
    i32 origins = 0;
    bool closed = false;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (one->cut || !one->meter.held) continue;
        origins += !held_of[one->origin];
        held_of[one->origin] += one->meter.held;
        all += one->meter.held;
    }
    i64 part = origins > 1 ? (all < room ? all : room) / origins : all;
    if (part < HELD_SMALL) part = HELD_SMALL;
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next) {
        if (one->cut || !one->meter.held || held_of[one->origin] <= part) continue;
        if (!stands(one, now_ns)) continue;
        held_of[one->origin] -= one->meter.held;
        vx_rpc_govern_close(one, VX_RPC_CUT_STILL);
        closed = true;
    }
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next)
        held_of[one->origin] = 0;
    return closed;
}
