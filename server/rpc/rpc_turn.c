/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_turn.h"

/* Messages of streams until connections are read.  With one, a client that streams small
 * requests alone had half of its rate. */
#define MESSAGES_PER_READ 16
/* Before a message the queue is asked until it has nothing, or has had as many events as
 * most messages cause (the next one, an answer that is sent).  So the messages of other
 * connections come in between, and a stream that is alone costs little more. */
#define LOOKS_PER_MESSAGE  1
#define EVENTS_PER_MESSAGE 2
/* It reads connections when it is asked once more: the first time gRPC only notes that
 * there were events.  Streams go on while others always bring events, but only after more
 * of them than all these messages have left there, so the queue runs empty. */
#define LOOKS_PER_READ  2
#define EVENTS_PER_READ (2 * MESSAGES_PER_READ)

static bool owes_message(const struct vx_rpc_turn *turn)
{
    if (turn->messages_left)
        return turn->looks >= LOOKS_PER_MESSAGE || turn->events >= EVENTS_PER_MESSAGE;
    return turn->looks >= LOOKS_PER_READ || turn->events >= EVENTS_PER_READ;
}

struct vx_call *vx_rpc_turn_take(struct vx_rpc_turn *turn)
{
    if (!turn->streams.first || !owes_message(turn)) return NULL;
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
