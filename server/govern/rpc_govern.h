/* rpc_govern - bounds what each connection may cost; gRPC does not.
 *
 * gRPC reads a socket as fast as bytes come, and keeps what it makes of them: calls that
 * were reset, answers to pings, halves of messages.  So this module reads in its place.
 * It replaces the system's recvmsg (rpc_intercept.c), examines the bytes before gRPC sees
 * them (h2_meter.h), and sizes each read so that what it can bring is within what the
 * connection may cost now:
 *
 *   calls    begun, but not yet seen by us.  One is given back when it arrives.
 *   rest     after some hundred calls in vain, which bring no message, gRPC gets the time
 *            to end them before it reads on.
 *   hidden   calls without their message, which gRPC does not report.  Beyond what all may
 *            have, one connection at a time reads on, to the messages behind them.
 *   work     frames that carry no message: pings, settings, resets, windows, empty data.
 *            Given back with time, and with each answer because it causes such frames.
 *            What headers of calls are beyond a small frame is work too, and the call's
 *            answer gives it back.
 *   waste    what small messages of its streams keep of gRPC's read buffers while they wait
 *            behind earlier ones.  Given back as the messages are taken.
 *   asked    large messages: as many as inferences and streams of it have arrived.  Other
 *            methods take none, but gRPC takes in any message before it says so.
 *   bytes    of unfinished messages, of all connections together.  The room for them is
 *            receive_bytes_max less what connections and calls weigh.  When it is full,
 *            one message lies beyond it until it is whole, so that one ends: the one with
 *            the fewest bytes to come.  The other connections take turns as the owner, for
 *            as long as they bring something; all owners together may add a quarter.  A
 *            connection that holds no more than its small part is never held up.
 *
 * The bytes that we send are examined for resets (sendmsg): a call that we end costs
 * nothing more.
 *
 * A connection that may cost nothing more now is not read; what it sends waits in the
 * network, and no other connection notices.  That slows a flood to a crawl, and hardly
 * slows an honest client that is only fast.  What no honest client does closes the
 * connection: a header block without end, thousands of streams, more unfinished messages
 * than all connections may hold, a message without progress while others wait for its
 * room, answers that are not read.
 *
 *   vx_rpc_govern_begin(govern, place);                 before gRPC gets it
 *   vx_rpc_govern_arrived(place);                       a call arrives
 *   vx_rpc_govern_answered(place, bytes);               a call is answered
 *   until_ns = vx_rpc_governor_turn(governor, now_ns);  what is due
 *   why = vx_rpc_govern_end(govern);                    it has ended; why we closed it
 *
 * Owner    the accept thread begins and ends the entries; one lock, vx_rpc_govern_lock,
 *          guards everything in them.
 * Thread   begin, end, turn: accept.  Reads and writes: gRPC's threads.  The rest: any.
 *          `wakeup` wakes the accept thread when a turn may let a connection continue.  It
 *          is called under the lock, so it must be short and call nothing of this module.
 * Limits   above; rpc_govern_cost.c and rpc_govern_turn.c have the numbers and the
 *          reasons.
 * Fails    open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_GOVERN_H
#define VX_SERVER_RPC_GOVERN_H

#include "engine/base/status.h"
#include "server/govern/cuts.h"
#include "server/govern/h2_meter.h"
#include "server/govern/h2_windows.h"
#include "server/tls/tls.h"

#include <sys/epoll.h>
#include <sys/socket.h>

/* Where a call came from: the descriptor by which gRPC names its connection, and the
 * connection's number, because descriptors are used again. */
struct vx_rpc_place {
    i32 descriptor;
    u64 connection;
};

enum vx_rpc_wait {
    VX_RPC_WAIT_NONE,
    VX_RPC_WAIT_CALLS,
    VX_RPC_WAIT_WORK,
    VX_RPC_WAIT_REST,
    VX_RPC_WAIT_HIDDEN,
    VX_RPC_WAIT_TAKEN,
    VX_RPC_WAIT_ASKED,
    VX_RPC_WAIT_BYTES,
    VX_RPC_WAIT_WINDOW /* for gRPC to open more (rpc_govern_lend.c) */
};

/* What is counted for each connection. */
enum vx_rpc_share {
    VX_RPC_SHARE_ARRIVED, /* calls that have arrived and that we have not ended */
    VX_RPC_SHARE_CALLS,   /* those of them that are in flight */
    VX_RPC_SHARE_AWAITED, /* inferences whose message is not here */
    /* Calls that last as long as their clients like.  Functions that return this share
     * add the inferences whose client has not sent the message. */
    VX_RPC_SHARE_IDLE,
    VX_RPC_SHARE_STREAMS, /* of ModelStreamInfer */
    VX_RPC_SHARE_UNHEARD, /* those of them whose first message is not here */
    VX_RPC_SHARE_SERVED,  /* those of which a request was answered well */
    /* Calls that are not in flight, because they were refused or made room for others, and
     * that have not ended: their client has not read so far. */
    VX_RPC_SHARE_REFUSED,
    VX_RPC_SHARE_ENDED, /* calls whose last answer is on its way to their client */
    VX_RPC_SHARES_COUNT
};

struct vx_rpc_governor;

/* A buffer of gRPC's that is filled in part: where its next bytes go, how many, and its size. */
struct vx_rpc_tail {
    const u8 *at;
    u32 left, bytes;
};
/* gRPC fills one buffer after the other, and keeps those that are left in the opposite order: the
 * first and the last of them may have bytes. */
#define VX_RPC_TAILS 4

/* One connection.  Its fields are for the files of rpc_govern. */
struct vx_rpc_govern {
    struct vx_rpc_governor *governor;
    struct vx_rpc_govern *next, *previous; /* in the list of open connections */
    struct vx_h2_meter meter;
    struct vx_h2_stream *streams;
    struct vx_h2_windows windows; /* of the streams, in what gRPC writes */
    i64 lent;           /* of the window of the connection, beyond what gRPC has opened */
    i32 lent_waits;     /* looks in a row at which it waited for gRPC to open more */
    const u8 *read_end; /* where gRPC's next bytes go, in the same buffer as the last */
    struct vx_rpc_tail tails[VX_RPC_TAILS];
    i32 tails_count;
    u64 read_bytes;  /* all that were read */
    u64 round_bytes; /* those since gRPC last heard that there are no more */
    bool round_open; /* the last of them left room in gRPC's buffers */
    u64 given;       /* bytes of these buffers that were given back last, */
    u64 given_at;    /* and read_bytes then */
    u64 kept;        /* bytes of memory in these buffers, while nothing is to be read */
    u64 looked_at;   /* read_bytes at the last look for those that rest */
    bool idle;       /* it rested, and gives them back at its next read */
    struct vx_rpc_place place;
    struct vx_tls_session *session; /* NULL = it does not speak TLS */
    i32 users;     /* gRPC's threads inside a read, or a write through the session */
    i32 writing;   /* gRPC's threads inside a write */
    bool notified; /* its wakeup is on the way: rpc_govern_notify.c */
    struct vx_rpc_govern *notified_next;
    enum vx_rpc_cut cut;
    i64 calls, work;  /* what it may still cost; below 0 it has cost too much */
    u64 repaid;       /* of meter.call_work, with answers */
    i64 unseen;       /* calls that were read and have not arrived */
    i64 hidden;       /* those of them that gRPC keeps, as their message has not come */
    i64 hidden_least; /* the fewest since the last interval began */
    i64 settled;      /* those of them that are no longer on their way to us */
    i32 vain_turns;   /* as the speaker, in which no message ended */
    i64 hushed_ns;    /* when it began to wait for such a turn, or had the last one */
    i64 heard_ns;     /* when a message of it last ended, or it began to hide too many */
    i64 queued_ns;    /* the same for turns as the owner; 0 = it waits for none */
    i64 filled_ns;
    i64 vain;    /* calls begun less whole messages, after its last rest */
    i64 rest_ns; /* until when it rests; 0 = it does not */
    i64 rested_ns, rest_long_ns; /* when its last rest ended, and how long it was */
    u64 rested_finished;         /* meter.finished then */
    enum vx_rpc_wait waits;
    i64 begun_ns;
    u16 origin;                        /* struct vx_peer */
    bool fresh;                        /* has begun no call, and is not closed */
    i64 unfinished_since_ns;           /* since when none of its messages has ended */
    u64 bytes_seen, spent, spent_seen; /* at the last check */
    u64 calls_seen, finished_seen;
    bool held_up;  /* for calls, work or a rest, since the last check */
    bool slow;     /* brought little since the last check, and did not wait for us */
    u64 sent_seen; /* bytes that had been written at the last check */
    /* Checks in a row in which whole messages of it waited, and we have done with none; in which they
     * waited, and nothing was written. */
    i32 whole_still, unsent;
    i32 little; /* checks in a row in which it held some and brought little */
    i64 stood;  /* its part of stood_of */
    i32 still, unread, flood; /* checks in a row */
    i32 untaken;              /* those in which it waited for messages to be taken */
    i32 waiting_seen;         /* messages that waited at the last check */
    i32 unasked;              /* those in which it waited for a large message's call */
    i32 mute;                 /* those in which calls of it awaited their message */
    i32 broken;     /* those in which it was within a header block, or the preface */
    i32 passes;     /* turns as the owner in which it brought nothing */
    bool had_turn;  /* was the owner since the last check */
    i64 leaving_ns; /* gRPC has ended it; until when its client may read */
    i64 asked_ns;   /* when it last began a call or ended a message */
    i32 shares[VX_RPC_SHARES_COUNT];
    i64 refused_ns; /* when the first of its refused calls came, or one last ended */
    u64 sent;       /* bytes that were written to it */
    u64 tensors;    /* bytes of the arena that its calls have */
    u64 answers;    /* bytes of answers in the heap that it has not read */
    int epoll;      /* gRPC's epoll set; -1 = not known yet */
    struct epoll_event event; /* the events that gRPC asked for */
};

/* For so many connections; uses the limits on messages and arena_bytes of the options. */
struct vx_rpc_governor_options {
    i32 connections_max;
    i64 message_bytes_max;
    i64 receive_bytes_max; /* of unfinished messages, all connections together */
    i64 receive_ns_max;    /* for one message to arrive; 0 = no limit */
    u64 arena_bytes;       /* that tensors share; 0 = not shared out */
    void (*wakeup)(void *context);
    void *context;
};
VX_MUST_USE vx_status vx_rpc_governor_open(const struct vx_rpc_governor_options *options,
                                           struct vx_rpc_governor **governor);
void vx_rpc_governor_close(struct vx_rpc_governor **governor);
/* The entry of one connection, 0 to connections_max - 1. */
struct vx_rpc_govern *vx_rpc_governor_row(struct vx_rpc_governor *governor, i32 row);
/* A connection that gRPC ends from now on stays open until its client has read what is on
 * the way and closes it, for 2 s at most.  If it were closed at once, the client's next
 * frame would make the system throw away what it has not sent. */
void vx_rpc_governor_stop(struct vx_rpc_governor *governor);
/* How many such connections there are. */
i32 vx_rpc_governor_leaving(struct vx_rpc_governor *governor);
/* Closes all connections but those: the time to read what gRPC was writing is over. */
void vx_rpc_governor_end(struct vx_rpc_governor *governor);
/* Until when this is one of them; VX_NEVER = it is none. */
i64 vx_rpc_govern_leaving_ns(struct vx_rpc_govern *govern);
void vx_rpc_govern_begin(struct vx_rpc_govern *govern, struct vx_rpc_place place,
                         u16 origin);
/* It speaks TLS: reads and writes go through the session, until the end.  After begin,
 * before gRPC gets it. */
void vx_rpc_govern_secure(struct vx_rpc_govern *govern, struct vx_tls_session *session);
/* From now on gRPC reads the end.  Returns why we closed the connection, if we did. */
enum vx_rpc_cut vx_rpc_govern_end(struct vx_rpc_govern *govern);
/* Lets waiting connections read on if they may, and closes those that are too slow.
 * Returns when to call it again; VX_NEVER = when `wakeup` is called. */
i64 vx_rpc_governor_turn(struct vx_rpc_governor *governor, i64 now_ns);

/* Few places are left for a newcomer of this origin: closes a connection that asks nothing, of
 * the origin that has most.  False: there is none. */
bool vx_rpc_governor_crowded(struct vx_rpc_governor *governor, u16 origin, i64 now_ns);
/* Whether the origin has so many connections that the last places are not for it. */
bool vx_rpc_governor_is_crowd(struct vx_rpc_governor *governor, u16 origin);
/* Records of calls are scarce from now on, or no longer.  While they are, connections that
 * read nothing are closed, first those that keep most records with refused calls. */
void vx_rpc_governor_scarce(struct vx_rpc_governor *governor, bool scarce);
/* Closes the connection if its client reads nothing: a call of it was ended long ago, and
 * gRPC still has what it was sending. */
void vx_rpc_govern_unread(struct vx_rpc_place place);
/* Grows when something of a message comes, or anything goes out. */
u64 vx_rpc_governor_moved(struct vx_rpc_governor *governor);
/* What all connections ever brought, and their answers in the heap.  Message bytes of
 * connections that have ended count twice. */
void vx_rpc_governor_total(struct vx_rpc_governor *governor, u64 *bytes, u64 *calls);

/* A call has arrived; vx_rpc_govern_share says when it has ended.  Does nothing for a
 * connection that has ended, nor do the functions below. */
void vx_rpc_govern_arrived(struct vx_rpc_place place);
/* gRPC has given us a message that is not the first of its stream. */
void vx_rpc_govern_taken(struct vx_rpc_place place);
/* An answer of so many bytes is sent. */
void vx_rpc_govern_answered(struct vx_rpc_place place, u64 bytes);
/* Adds `more`, 1 or -1, to a share of the connection. */
void vx_rpc_govern_share(struct vx_rpc_place place, enum vx_rpc_share share, i32 more);
/* False when the connection has ended. */
bool vx_rpc_govern_lives(struct vx_rpc_place place);
/* The connection's share; 0 when it has ended. */
i32 vx_rpc_govern_has(struct vx_rpc_place place, enum vx_rpc_share share);
/* Whether a message of it is not whole. */
bool vx_rpc_govern_is_behind(struct vx_rpc_place place);
/* Bytes that are here of its messages that are not whole. */
i64 vx_rpc_govern_came(struct vx_rpc_place place);
/* Who has calls in flight, as one connection sees it; zeros when that has ended. */
struct vx_rpc_calls {
    i32 own, of_origin;             /* calls: its own, and those of its origin */
    i32 active, active_of_origin;   /* connections that have some */
    i32 origins;                    /* origins that have some */
    i32 lasting, lasting_of_origin; /* Watches and streams of reflection */
    /* Calls whose message has not come, or hardly comes; of the origin all that await one. */
    i32 awaited, awaited_of_origin;
};
struct vx_rpc_calls vx_rpc_govern_calls(struct vx_rpc_place place);
/* The number of those that have streams. */
i32 vx_rpc_governor_streaming(struct vx_rpc_governor *governor);
/* How many streams are open of all connections of its origin; 0 when it has ended. */
i32 vx_rpc_govern_streams_from(struct vx_rpc_place place);
/* Whether its origin has no more than its part of so many streams: an equal one for it, for each
 * other origin whose streams were answered, and for one more. */
bool vx_rpc_govern_has_part(struct vx_rpc_place place, i32 streams_max);
/* Counts so many bytes of the arena for a tensor of a call.  False: little of it is left
 * and the connection has its part already; nothing is counted. */
bool vx_rpc_govern_take(struct vx_rpc_place place, u64 bytes);
void vx_rpc_govern_give(struct vx_rpc_place place, u64 bytes);
/* Counts so many bytes of an answer in the heap, until its call has ended.  False: the
 * connection, or its origin, has as much as it may; nothing is counted.  Answers of
 * up to VX_RPC_ANSWER_SMALL bytes are always counted: there are at most calls_max. */
#define VX_RPC_ANSWER_SMALL 4096
bool vx_rpc_govern_answer_take(struct vx_rpc_place place, u64 bytes);
void vx_rpc_govern_answer_give(struct vx_rpc_place place, u64 bytes);
/* Whether little of the arena is left and the connection has more than its part, which it
 * took when there were fewer connections.  lacks: somebody found no room for a tensor; then also
 * one whose origin has more than a 64th: few tensors in the wrong places leave no room for a
 * large one. */
bool vx_rpc_govern_hoards(struct vx_rpc_place place, bool lacks);
/* How far its client has read; zeros when the connection has ended. */
struct vx_rpc_reading {
    u64 read; /* bytes that have left our system, of all that was sent */
    u64 due;  /* so many more a client reads in 5 s, if it reads */
};
struct vx_rpc_reading vx_rpc_govern_reading(struct vx_rpc_place place);
/* A large message of it, of so many bytes, has been read and is no longer in gRPC. */
void vx_rpc_govern_received(struct vx_rpc_place place, size_t bytes);
/* Whether a message of it is overdue: nothing of the message is here, or little comes; waits_too: also
 * where it waits for room, whatever its socket has. */
bool vx_rpc_govern_is_due(struct vx_rpc_place place, bool waits_too);

/* Whether bytes of it wait to be read: what its client owes may be among them. */
bool vx_rpc_govern_is_unheard(struct vx_rpc_place place);

/* rpc_intercept.c calls these in place of the system's functions.  A descriptor that is
 * not governed is read and written as usual. */
ssize_t vx_rpc_govern_read(int fd, struct msghdr *message, int flags);
ssize_t vx_rpc_govern_write(int fd, const struct msghdr *message, int flags);
/* gRPC shuts the connection down; returns how to do it (SHUT_RDWR, SHUT_WR). */
int vx_rpc_govern_leave(int fd, int how);
/* What epoll_wait has returned: puts connections that are woken in the place of our notifier.
 * Returns how many events there are now, `most` at most. */
int vx_rpc_govern_polled(struct epoll_event *events, int count, int most);
void vx_rpc_govern_watched(int epoll, int fd, const struct epoll_event *event);
/* False: certainly not a governed descriptor.  Takes no lock. */
bool vx_rpc_govern_may_have(int fd);

#endif
