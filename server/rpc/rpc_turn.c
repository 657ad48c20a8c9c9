/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_turn.h"

/* Messages of streams until connections are read.  Less costs a client that streams small
 * requests alone: with one, half of its rate. */
#define MESSAGES_PER_READ 16
/* A queue has nothing else when it is asked and has nothing.  It has read connections when
 * it is asked once more: the first time gRPC only notes that there were events. */
#define LOOKS_PER_MESSAGE 1
#define LOOKS_PER_READ    2
/* Streams go on while others always bring events.  More than a message causes (the next
 * one, an answer that is sent, a child that another stream gets): the queue runs empty. */
#define EVENTS_PER_MESSAGE 8

struct vx_call *vx_rpc_turn_take(struct vx_rpc_turn *turn)
{
    u32 looks = turn->messages_left ? LOOKS_PER_MESSAGE : LOOKS_PER_READ;
    bool owed = turn->looks >= looks || turn->events >= EVENTS_PER_MESSAGE;
    if (!turn->streams.first || !owed) return NULL;
    if (!turn->messages_left) turn->messages_left = MESSAGES_PER_READ;
    turn->messages_left--;
    turn->looks = turn->events = 0;
    return vx_call_turns_take(&turn->streams);
}

void vx_rpc_turn_asked(struct vx_rpc_turn *turn, bool event)
{
    turn->looks = event ? 0 : turn->looks + 1;
    turn->events += event;
}
