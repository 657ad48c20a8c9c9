/* SPDX-License-Identifier: Apache-2.0 */
#include "server/call/call_turns.h"

#include "engine/base/process/check.h"

static void turns_append(struct vx_call_turns *turns, struct vx_call *call)
{
    call->turn.connection = NULL;
    *(turns->last ? &turns->last->turn.connection : &turns->first) = call;
    turns->last = call;
}

void vx_call_turns_add(struct vx_call_turns *turns, struct vx_call *call)
{
    VX_ASSERT(!call->turn.waits);
    call->turn = (struct vx_call_turn){.waits = true};
    struct vx_call *first = turns->first;
    while (first && first->peer.connection != call->peer.connection)
        first = first->turn.connection;
    if (!first) {
        call->turn.last = call;
        turns_append(turns, call);
        return;
    }
    first->turn.last->turn.next = call;
    first->turn.last = call;
}

struct vx_call *vx_call_turns_take(struct vx_call_turns *turns)
{
    struct vx_call *call = turns->first;
    if (!call) return NULL;
    turns->first = call->turn.connection;
    if (!turns->first) turns->last = NULL;
    struct vx_call *next = call->turn.next;
    if (next) {
        next->turn.last = call->turn.last;
        turns_append(turns, next);
    }
    call->turn.waits = false;
    return call;
}
