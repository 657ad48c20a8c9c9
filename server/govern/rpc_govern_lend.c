/* rpc_govern_lend - what a client may send beyond the window that gRPC has opened to its connection.
 *
 * gRPC opens 64 KiB to a connection, and more only for messages that have begun.  So a client could send
 * no message of more than that in one go: its rest waited for a round trip, with each message anew.  A
 * connection that has begun such a message may send LENT_BYTES more from then on.  gRPC ends a connection
 * that sends more than it has opened, so it is not given more: what is beyond stays in the socket, and
 * gRPC hears that there is nothing, until it has written a larger window.  It does so by itself as soon as
 * less than half of its window is left.
 *
 * Of a client that breaks the window of a stream gRPC does not take the frame from the connection's window:
 * half may be left to it and nothing to us, and neither goes on.  The meter counts the windows of streams,
 * so that such a connection is closed before.  If the counts ever differ otherwise, it is closed when it
 * has stood for long: gRPC writes within milliseconds, if its client reads.
 *
 * Source: RFC 9113, sections 5.2 and 6.9; a server of gRPC that guesses its clients' bandwidth opens
 * windows of megabytes instead, and keeps as much of each stream that nobody reads (rpc_listen.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

/* With the first window as many as a stream has: a message that fits there needs no round trip.  They may
 * lie in the socket of each connection. */
#define LENT_BYTES (VX_H2_STREAM_WINDOW_BYTES - VX_H2_WINDOW_BYTES)
/* A frame's head takes all of it from the window, so one may begin with the last byte that gRPC is given.
 * gRPC takes frames of 16 KiB. */
#define FRAME_BYTES (16 << 10)
/* With less than this left the connection waits: what is left does not shrink within a frame, and reads of
 * one byte each would be thousands. */
#define LEFT_LEAST (4 << 10)
/* So many looks without a byte: 10 s. */
#define WAITS_LONG 20

i64 vx_rpc_govern_lend_due(const struct vx_rpc_govern *govern)
{
    return govern->meter.wide && !govern->lent ? LENT_BYTES : 0;
}

void vx_rpc_govern_lend(struct vx_rpc_govern *govern)
{
    govern->lent = LENT_BYTES;
    govern->meter.window += LENT_BYTES;
}

i64 vx_rpc_govern_lend_left(const struct vx_rpc_govern *govern)
{
    if (!govern->lent) return INT64_MAX;
    const i64 left = govern->meter.window - govern->lent - FRAME_BYTES;
    return left < LEFT_LEAST ? 0 : left;
}

/* gRPC has written something, a larger window maybe.  If there is another reason to wait, the next read
 * finds it. */
void vx_rpc_govern_lend_wake(struct vx_rpc_govern *govern)
{
    if (govern->waits == VX_RPC_WAIT_WINDOW && vx_rpc_govern_lend_left(govern) > 0)
        vx_rpc_govern_wake(govern);
}

void vx_rpc_govern_lend_look(struct vx_rpc_govern *govern)
{
    const bool waits = govern->waits == VX_RPC_WAIT_WINDOW;
    const bool stands =
        waits && !govern->windows.ahead && govern->meter.bytes == govern->bytes_seen;
    govern->lent_waits = stands ? govern->lent_waits + 1 : 0;
    if (govern->lent_waits >= WAITS_LONG) vx_rpc_govern_close(govern, VX_RPC_CUT_WINDOW);
}
