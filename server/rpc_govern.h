/* rpc_govern - bounds what each connection may cost; gRPC does not.
 *
 * gRPC reads a socket as fast as bytes come, and keeps what it makes of them: calls that were
 * reset, answers to pings, halves of messages.  So it reads here: this file stands in for
 * the system's recvmsg (rpc_intercept.c), walks what came before gRPC sees it (h2_meter.h),
 * and sizes each read so that what it can bring is within what the connection may cost now:
 *
 *   calls    begun, but not yet seen by us.  One is given back when it arrives.
 *   work     frames that carry no message: pings, settings, resets, windows, empty data.
 *            Given back with time and with each answer, which brings such frames about.
 *   bytes    of messages that are not whole, of all connections together.  Beyond
 *            receive_bytes_max, less what connections and calls weigh, one connection at a
 *            time goes on, the one with least to come, so that something ends: for as long as
 *            it brings something.  Who holds no more than its small part is never held up.
 *
 * What we send is walked for the resets in it (sendmsg): a call that we end costs nothing more.
 *
 * A connection that may cost nothing more now is not read; what it sends waits in the
 * network, and nobody else notices.  That slows a flood to a walk, and an honest client that
 * is only fast hardly.  What no honest client does closes the connection: a header block
 * without end, thousands of streams, more unfinished messages than all may hold, one that
 * stands still while others wait for its room, answers that nobody reads.
 *
 *   vx_rpc_govern_begin(govern, place);                    before gRPC gets it
 *   vx_rpc_govern_arrived(place), _answered(place, bytes)    as calls come and are answered
 *   until_ns = vx_rpc_governor_turn(governor, now_ns);     what is due
 *   why = vx_rpc_govern_end(govern);                       it has ended; why we closed it
 *
 * Owner    rows are the accept thread's, which begins and ends them; everything in them is
 *          under one lock of the file.
 * Thread   begin, end, turn: accept.  Reads: whichever of gRPC's threads reads.  The rest:
 *          any.  `bell` is rung when a turn may free somebody; under the lock, so it is
 *          short and calls nothing here.
 * Limits   above; the numbers stand in rpc_govern_cost.c and rpc_govern_turn.c with their
 *          reasons.
 * Fails    open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_GOVERN_H
#define VX_SERVER_RPC_GOVERN_H

#include "engine/base/status.h"
#include "server/h2_meter.h"
#include "server/rpc.h"

#include <sys/epoll.h>
#include <sys/socket.h>

/* Where a call came from: the descriptor that gRPC knows its connection by, and the
 * connection's number, since descriptors come again. */
struct vx_rpc_place {
    i32 descriptor;
    u64 connection;
};

enum vx_rpc_wait {
    VX_RPC_WAIT_NONE,
    VX_RPC_WAIT_CALLS,
    VX_RPC_WAIT_WORK,
    VX_RPC_WAIT_BYTES
};

/* What connections have parts of. */
enum vx_rpc_share {
    VX_RPC_SHARE_ARRIVED, /* calls that gRPC keeps something of: arrived, and not ended by us */
    VX_RPC_SHARE_CALLS,   /* of them, those in flight */
    VX_RPC_SHARE_BODIES,  /* inferences whose message gRPC was asked for */
    VX_RPC_SHARE_AWAITED, /* inferences whose message is not here, the former among them */
    VX_RPC_SHARE_IDLE,    /* calls that last as long as their clients like; as the largest
                           * share, with those whose message is due from the client */
    VX_RPC_SHARE_STREAMS, /* of ModelStreamInfer */
    VX_RPC_SHARES_COUNT
};

struct vx_rpc_governor;

/* One connection.  Its fields are for the files of rpc_govern. */
struct vx_rpc_govern {
    struct vx_rpc_governor *governor;
    struct vx_rpc_govern *next, *previous; /* of those that live */
    struct vx_h2_meter meter;
    struct vx_h2_stream *streams;
    struct vx_rpc_place place;
    i32 readers; /* gRPC's threads inside of a read: one, or none */
    enum vx_rpc_cut cut;
    i64 calls, work; /* what it may still cost; below 0 it owes */
    i64 unseen;      /* calls that were read and have not arrived */
    i64 filled_ns;
    enum vx_rpc_wait waits;
    i64 begun_ns;
    i64 unfinished_since_ns;           /* no message of it has become whole since */
    u64 bytes_seen, spent, spent_seen; /* at the last look */
    u64 calls_seen, finished_seen;
    bool held_up;             /* for calls or work, since the last look */
    bool slow;                /* brought little since the last look */
    i32 still, unread, flood; /* looks in a row */
    i32 passes;    /* turns to go beyond the room in which it brought nothing */
    bool had_turn; /* since the last look */
    i64 active_ns; /* when it brought something last */
    i32 shares[VX_RPC_SHARES_COUNT];
    u64 tensors;              /* bytes of the arena */
    int epoll;                /* gRPC's, -1 = not known yet */
    struct epoll_event event; /* as gRPC wants to hear of it */
};

/* For so many connections; of the options, the limits on messages. */
VX_MUST_USE vx_status vx_rpc_governor_open(const struct vx_rpc_options *options,
                                           i32 connections_max,
                                           void (*bell)(void *context), void *context,
                                           struct vx_rpc_governor **governor);
void vx_rpc_governor_close(struct vx_rpc_governor **governor);
/* The row of one connection, 0 to connections_max - 1. */
struct vx_rpc_govern *vx_rpc_governor_row(struct vx_rpc_governor *governor, i32 row);
void vx_rpc_govern_begin(struct vx_rpc_govern *govern, struct vx_rpc_place place);
/* gRPC reads the end from now on.  Why we closed it, if we did. */
enum vx_rpc_cut vx_rpc_govern_end(struct vx_rpc_govern *govern);
/* Wakes who may go on and closes who is too slow; when to come again, VX_NEVER = when the
 * bell rings. */
i64 vx_rpc_governor_turn(struct vx_rpc_governor *governor, i64 now_ns);

/* Few rows are left: the connection that has been without a call for longest is closed. */
void vx_rpc_governor_crowded(struct vx_rpc_governor *governor);
/* What all connections ever brought; those that have ended, bytes of messages twice. */
void vx_rpc_governor_total(struct vx_rpc_governor *governor, u64 *bytes, u64 *calls);

/* A call of it has arrived; vx_rpc_govern_share says when it has ended.  Of a connection that is
 * gone: nothing, as below. */
void vx_rpc_govern_arrived(struct vx_rpc_place place);
/* So many bytes of an answer leave. */
void vx_rpc_govern_answered(struct vx_rpc_place place, u64 bytes);
/* One more of a share, or one less. */
void vx_rpc_govern_share(struct vx_rpc_place place, enum vx_rpc_share share, i32 more);
/* How much the connection has; 0 when it is gone. */
i32 vx_rpc_govern_has(struct vx_rpc_place place, enum vx_rpc_share share);
/* Connections that have calls in flight. */
i32 vx_rpc_governor_active(struct vx_rpc_governor *governor);
/* So many bytes of the arena, for a tensor of a call.  False: there is little left, and the
 * connection has its part already; then nothing is counted. */
bool vx_rpc_govern_take(struct vx_rpc_place place, u64 bytes);
void vx_rpc_govern_give(struct vx_rpc_place place, u64 bytes);
/* Whether there is little left of the arena, and the connection has more than its part: it took
 * that when there were fewer. */
bool vx_rpc_govern_hoards(struct vx_rpc_place place);
/* The connection that has most of a share, and how much; 0 = none has any. */
u64 vx_rpc_governor_largest(struct vx_rpc_governor *governor, enum vx_rpc_share share,
                            i32 *most);
/* Whether gRPC may be asked for one more message: else those of this connection that have
 * been announced are to end first. */
bool vx_rpc_govern_may_ask(struct vx_rpc_place place);
/* Whether a message of it is due that does not come: nothing of it is here, or little comes. */
bool vx_rpc_govern_is_due(struct vx_rpc_place place);

/* rpc_intercept.c: in place of the system's.  A descriptor that nobody governs is read and
 * written as ever. */
ssize_t vx_rpc_govern_read(int fd, struct msghdr *message, int flags);
ssize_t vx_rpc_govern_write(int fd, const struct msghdr *message, int flags);
void vx_rpc_govern_watched(int epoll, int fd, const struct epoll_event *event);
/* False: it is certainly not one of ours.  Takes no lock. */
bool vx_rpc_govern_may_have(int fd);

#endif
