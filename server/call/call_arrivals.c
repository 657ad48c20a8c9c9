/* SPDX-License-Identifier: Apache-2.0 */
#include "server/call/call_arrivals.h"

#include "engine/base/process/check.h"

/* It is the first call of its origin, which has the last turn. */
static void arrivals_append(struct vx_call_arrivals *arrivals, struct vx_call *call)
{
    arrivals->of_origin[call->peer.origin] = call;
    call->coming.other = NULL;
    *(arrivals->last ? &arrivals->last->coming.other : &arrivals->first) = call;
    arrivals->last = call;
}

void vx_call_arrivals_add(struct vx_call_arrivals *arrivals, struct vx_call *call)
{
    VX_ASSERT(!call->coming.waits && call->peer.origin < VX_PEER_ORIGINS);
    struct vx_call *first = arrivals->of_origin[call->peer.origin];
    call->coming = (struct vx_call_coming){.waits = true};
    if (!first) {
        call->coming.last = call;
        arrivals_append(arrivals, call);
        return;
    }
    first->coming.last->coming.next = call;
    first->coming.last = call;
}

struct vx_call *vx_call_arrivals_take(struct vx_call_arrivals *arrivals)
{
    struct vx_call *call = arrivals->first;
    if (!call) return NULL;
    arrivals->first = call->coming.other;
    if (!arrivals->first) arrivals->last = NULL;
    arrivals->of_origin[call->peer.origin] = NULL;
    struct vx_call *next = call->coming.next;
    if (next) {
        next->coming.last = call->coming.last;
        arrivals_append(arrivals, next);
    }
    call->coming.waits = false;
    return call;
}
