/* call_arrivals - calls that have come and are not handled yet, one of each origin in turn.
 *
 * Handling a call takes the loop tens of microseconds, and a thousand small ones of one address
 * may come at once.  In the order of their coming, one of another address waited for all of them.
 * The calls of one origin keep their order.
 *
 *   vx_call_arrivals_add(&arrivals, call);
 *   while ((call = vx_call_arrivals_take(&arrivals))) ...
 *
 * Owner    the caller owns the calls; a call is in one such list at most.
 * Thread   one at a time.
 * Limits   none; adding and taking cost the same however many calls there are.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CALL_ARRIVALS_H
#define VX_SERVER_CALL_ARRIVALS_H

#include "server/call/call.h"

/* The first call of each origin, in the order of their turns, and by the origin's number.  All
 * zeros is empty. */
struct vx_call_arrivals {
    struct vx_call *first, *last;
    struct vx_call *of_origin[VX_PEER_ORIGINS];
};

/* Behind the calls of the same origin; a new origin's turn is the last. */
void vx_call_arrivals_add(struct vx_call_arrivals *arrivals, struct vx_call *call);
/* The next call, whose origin has its next turn after all others; NULL = empty. */
struct vx_call *vx_call_arrivals_take(struct vx_call_arrivals *arrivals);

#endif
