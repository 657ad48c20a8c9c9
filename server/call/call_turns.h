/* call_turns - calls that wait to be answered or heard, one of each connection in turn.
 *
 * A connection that sends many calls at once delays its own calls and no others'.
 *
 *   vx_call_turns_add(&turns, call);
 *   while ((call = vx_call_turns_take(&turns))) ...
 *
 * Owner    the caller owns the calls; a call is in one such list at most.
 * Thread   one at a time.
 * Limits   none; adding takes a step for each connection that has calls in the list.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CALL_TURNS_H
#define VX_SERVER_CALL_TURNS_H

#include "server/call/call.h"

/* The first call of each connection, in the order of their turns.  All zeros is empty. */
struct vx_call_turns {
    struct vx_call *first, *last;
};

/* Behind the calls of the same connection; a new connection's turn is the last. */
void vx_call_turns_add(struct vx_call_turns *turns, struct vx_call *call);
/* The next call, whose connection has its next turn after all others; NULL = empty. */
struct vx_call *vx_call_turns_take(struct vx_call_turns *turns);

#endif
