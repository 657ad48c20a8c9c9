/* rpc_turn - what the thread of a queue does next: an event of gRPC, or a message of a
 * stream that has come.
 *
 * gRPC 1.51 reads connections only when a queue is empty, and messages that it has read
 * already would keep the queue from that: a stream's next one is there as soon as it is
 * asked for.  So a message is handled when the queue has nothing else, and after some
 * messages connections are read.
 *
 *   vx_call_turns_add(&turn->streams, call);          its message is here
 *   if ((call = vx_rpc_turn_take(turn))) ...          its message is handled
 *   else                                              the queue is asked: if streams wait,
 *       vx_rpc_turn_asked(turn, got);                 without waiting
 *
 * Owner    the queue.
 * Thread   the queue's.  Pure.
 * Limits   none.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_TURN_H
#define VX_SERVER_RPC_TURN_H

#include "server/call/call_turns.h"

/* All zeros is empty. */
struct vx_rpc_turn {
    struct vx_call_turns streams;
    i32 messages_left; /* until connections are read */
    u32 looks, events; /* since the last message: the queue had nothing, or an event */
};

/* The stream whose message is handled now, those of each connection in turn; NULL = the
 * queue is asked first. */
struct vx_call *vx_rpc_turn_take(struct vx_rpc_turn *turn);
/* The queue was asked, and had an event or nothing. */
void vx_rpc_turn_asked(struct vx_rpc_turn *turn, bool event);

#endif
