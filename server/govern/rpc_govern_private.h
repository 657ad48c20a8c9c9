/* rpc_govern_private - what the files of rpc_govern share; no other file includes it.
 *
 *   rpc_govern.c       entries, reads, the end
 *   rpc_govern_write.c  writes
 *   rpc_govern_notify.c  wakes gRPC though the socket has nothing
 *   rpc_govern_cost.c  what a connection may cost, and what it earns
 *   rpc_govern_hidden.c  calls that gRPC keeps and has not reported
 *   rpc_govern_share.c  what a connection has, beside the others
 *   rpc_govern_buffers.c  what gRPC's read buffers keep
 *   rpc_govern_walk.c  what was read and sent, through the meter
 *   rpc_govern_turn.c  which connection may continue, which is closed
 *   rpc_govern_going.c  what connections had that have ended
 *   rpc_govern_whole.c  messages that are whole and wait for us
 *   rpc_govern_crowd.c  what origins end and only hold, and who goes of those that hold much
 *   rpc_govern_leave.c  connections that gRPC has ended, while the server stops
 *   rpc_intercept.c    recvmsg, sendmsg and epoll_ctl
 *
 * Owner    as rpc_govern.h says.
 * Thread   everything here is under vx_rpc_govern_lock.
 * Fails    notify_open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_GOVERN_PRIVATE_H
#define VX_SERVER_RPC_GOVERN_PRIVATE_H

#include "server/base/peer.h"
#include "server/govern/rpc_govern.h"

#include <pthread.h>

/* A connection that holds no more than this is never held up for room: gRPC takes as much
 * of a stream before it is asked for it.  Less if there are many: all together hold no
 * more than an eighth of receive_bytes_max. */
#define HELD_SMALL     (64 << 10)
#define HELD_SMALL_MIN (4 << 10)
/* A connection that has waited for work reads on when it has so much of it. */
#define WORK_RESUME 256
/* About what gRPC and TLS keep of a connection. */
#define VX_RPC_CONNECTION_BYTES (32 << 10)
/* While so few calls of all connections are unseen, reads are not shortened for calls. */
#define CALLS_UNSEEN_FEW 64

/* Bytes that will be free, and when. */
struct vx_rpc_going {
    i64 bytes, over_ns;
};

struct vx_rpc_governor {
    i32 connections_max;
    i64 message_bytes_max, receive_bytes_max, receive_ns_max;
    void (*wakeup)(void *context);
    void *context;
    struct vx_rpc_govern *rows, *live;
    struct vx_h2_stream *streams; /* of all connections; pages are touched when used */
    i32 live_count, waiting;
    i64 held;       /* bytes of unfinished messages, of all */
    i64 whole;      /* bytes of whole ones that wait in gRPC for us, of all */
    u64 kept;       /* the same of `kept` */
    i64 kept_ns;    /* the last look for connections that keep some and rest */
    i32 calls_open; /* VX_RPC_SHARE_ARRIVED, of all */
    /* The parts of `held` and `whole` of connections that have just ended. */
    struct vx_rpc_going going, whole_going;
    i64 coming; /* of all connections: their `unseen` without `settled` */
    i64 hidden; /* of all connections */
    struct vx_rpc_govern *speaker; /* may have more hidden calls than its part */
    i64 speaker_ns;                /* when its turn began */
    u64 speaker_finished;          /* its messages that had ended then */
    u64 bytes, calls;              /* vx_rpc_governor_total */
    u64 sent;                      /* bytes to all clients */
    struct vx_rpc_govern *owner;   /* may read a quarter beyond the room */
    i64 owner_ns;                  /* when its turn began */
    /* Its one message lies beyond the room and has no limit, until it is whole. */
    struct vx_rpc_govern *beyond;
    i64 beyond_ns;   /* when it last had something to read */
    i32 beyond_slow; /* checks in a row */
    /* When room was last wanted by an origin whose wants count (may_want): by which one, and when by
     * another one than that; 0 = never. */
    i64 wanted_ns, wanted_else_ns;
    u16 wanted_by;
    i64 freed_ns;         /* when much of `held` was last freed */
    i64 look_ns, turn_ns; /* when each was last */
    i32 active;           /* connections with calls in flight */
    i32 streaming;        /* connections with streams */
    i32 holders;          /* connections that hold bytes of unfinished messages */
    i32 origins_holding;  /* origins that do */
    i32 takers;           /* connections that have bytes of the arena */
    i32 origins_taking;   /* origins that have some */
    u64 tensors, arena_bytes;
    bool scarce;                   /* vx_rpc_governor_scarce */
    i64 spared_ns;                 /* when connections were last closed because of that */
    bool stopping;                 /* vx_rpc_governor_stop */
    i32 leaving;                   /* connections that have a leaving_ns */
    u64 answers;                   /* bytes of answers in the heap, of all */
    struct vx_rpc_govern *oldest;  /* the end of `live` */
    i32 fresh;                     /* connections of which that is true */
    i32 fresh_of[VX_PEER_ORIGINS]; /* those of them of each origin */
    i32 open_of[VX_PEER_ORIGINS];  /* connections of each that are not closed */
    i32 origins_open;              /* origins that have such connections */
    i32 streams_of[VX_PEER_ORIGINS]; /* open streams of each origin */
    i32 served_of[VX_PEER_ORIGINS];  /* those of them that were answered */
    i32 origins_served;              /* origins that have such streams */
    i64 held_of[VX_PEER_ORIGINS];    /* the part of `held` of each, without `going` */
    i32 holders_of[VX_PEER_ORIGINS]; /* connections of each that hold some */
    i64 stood_of[VX_PEER_ORIGINS];   /* the part of that which stood at the last check */
    /* The check before which a connection of it last had a turn, and has ended no message since; 0 =
     * there is none. */
    u32 turned_of[VX_PEER_ORIGINS];
    u64 last_of[VX_PEER_ORIGINS];    /* the number of its last turn */
    u64 turns;                       /* so far */
    u32 looks;                       /* checks so far */
    u64 tensors_of[VX_PEER_ORIGINS]; /* bytes of the arena that each origin has */
    u64 answers_of[VX_PEER_ORIGINS]; /* the part of `answers` of each */
    i32 takers_of[VX_PEER_ORIGINS];  /* its connections that have some */
    i32 calls_of[VX_PEER_ORIGINS];   /* calls in flight of each origin */
    i32 active_of[VX_PEER_ORIGINS];  /* its connections that have some */
    i32 lasting_of[VX_PEER_ORIGINS]; /* its calls that last as long as they like */
    i32 awaited_of[VX_PEER_ORIGINS]; /* those that await their message */
    i64 coming_of[VX_PEER_ORIGINS];  /* the part of `coming` of each origin */
    i32 origins_coming;              /* origins that have some */
    i64 hidden_of[VX_PEER_ORIGINS];  /* the part of `hidden` of each origin */
    i32 origins_hiding;              /* origins that have some */
    i32 origins_active;              /* origins that have some */
};

extern pthread_mutex_t vx_rpc_govern_lock;

/* rpc_govern.c */
/* The connection of a descriptor; NULL when there is none, or it has ended. */
struct vx_rpc_govern *vx_rpc_govern_at(int fd);
/* Whether the connection that this descriptor had last has ended, and spoke TLS. */
bool vx_rpc_govern_was_secure(int fd);
/* NULL when the connection has ended. */
struct vx_rpc_govern *vx_rpc_govern_of(struct vx_rpc_place place);
void vx_rpc_govern_close(struct vx_rpc_govern *govern, enum vx_rpc_cut why);
/* Opens windows of streams that were held, while there is room for what then comes. */
void vx_rpc_govern_windows_open(struct vx_rpc_govern *govern);
/* Tells the client which of its calls have begun here, before its connection is closed.  A call that
 * it is sending right now is not one of them, and gRPC's clients send it again on another
 * connection; without that it fails. */
void vx_rpc_govern_farewell(struct vx_rpc_govern *govern);
/* Ends the TLS session of a descriptor, if it has one. */
void vx_rpc_govern_bye(int fd);
/* Ends its wait and makes gRPC read on. */
void vx_rpc_govern_wake(struct vx_rpc_govern *govern);
/* Accounts for changes in the bytes of unfinished messages since the meter was `before`. */
void vx_rpc_govern_account_held(struct vx_rpc_govern *govern,
                                const struct vx_h2_meter *before);
/* Closes a connection that has sent more than we let it.  A client may use a larger window before
 * we have counted it: while a write goes on, it is judged when that ends.  A TLS session may have sent a
 * part of what it says it has not: then it is judged when all of that is sent. */
void vx_rpc_govern_judge_window(struct vx_rpc_govern *govern);

/* rpc_govern_lend.c */
/* By how many bytes its window is to be larger than gRPC's from now on; 0 = it is, or need not be. */
i64 vx_rpc_govern_lend_due(const struct vx_rpc_govern *govern);
/* The frame that says so was sent. */
void vx_rpc_govern_lend(struct vx_rpc_govern *govern);
/* How many bytes gRPC may be given. */
i64 vx_rpc_govern_lend_left(const struct vx_rpc_govern *govern);
void vx_rpc_govern_lend_wake(struct vx_rpc_govern *govern);
void vx_rpc_govern_lend_look(struct vx_rpc_govern *govern); /* at each look */

/* rpc_govern_notify.c */
VX_MUST_USE vx_status vx_rpc_govern_notify_open(void);
/* gRPC's epoll set hears the notifier from now on. */
void vx_rpc_govern_notify_join(int epoll);
/* Makes gRPC read the connection, whatever its socket has. */
void vx_rpc_govern_notify(struct vx_rpc_govern *govern);
/* Forgets it. */
void vx_rpc_govern_notify_drop(struct vx_rpc_govern *govern);

/* rpc_govern_cost.c */
/* What a new connection may cost. */
void vx_rpc_govern_cost_init(struct vx_rpc_govern *govern, i64 now_ns);
/* Gives back what time allows. */
void vx_rpc_govern_fill(struct vx_rpc_govern *govern, i64 now_ns);
enum vx_rpc_wait vx_rpc_govern_must_wait(const struct vx_rpc_govern *govern);
/* What it holds of its small part: bytes, while they lie in one buffer, which an honest
 * client needs. */
i64 vx_rpc_govern_holds(const struct vx_rpc_govern *govern);
/* How much it may hold, however little room is left. */
i64 vx_rpc_govern_small(const struct vx_rpc_govern *govern);
/* What unfinished messages may hold. */
i64 vx_rpc_govern_room(const struct vx_rpc_governor *governor);
/* How much an owner may add. */
i64 vx_rpc_govern_room_owner(const struct vx_rpc_governor *governor);
/* How much more the room may hold with the message beyond it. */
i64 vx_rpc_govern_room_passed(const struct vx_rpc_governor *governor);
/* What messages of the connection whose windows are open may have to come, if it has several. */
i64 vx_rpc_govern_room_windows(const struct vx_rpc_govern *govern);
/* Whether its origin holds more than its part, an equal one, beside others that hold some, or want
 * some. */
bool vx_rpc_govern_is_over(const struct vx_rpc_govern *govern);
/* Whether it may add nothing, since its origin is over its part and another wants room. */
bool vx_rpc_govern_is_bound(const struct vx_rpc_govern *govern);
/* Whether it gets no turn either, since its origin only holds what it has, and another wants room now:
 * in each pause of a gateway of some ms 900 connections with 60 KB each took some of what turns may add,
 * until nothing was left. */
bool vx_rpc_govern_is_barred(const struct vx_rpc_govern *govern);
/* It waits for room, and has something to read. */
void vx_rpc_govern_want(const struct vx_rpc_govern *govern, i64 now_ns);
/* Its connection holds so many more bytes. */
void vx_rpc_govern_held_add(const struct vx_rpc_govern *govern, i64 more);
/* It has ended. */
void vx_rpc_govern_held_end(struct vx_rpc_govern *govern);
/* What is left of its messages, whose prefixes have come as well, without those whose window is held. */
i64 vx_rpc_govern_rest(const struct vx_rpc_govern *govern);
/* How many bytes to read at most, when it need not wait. */
size_t vx_rpc_govern_read_bytes(const struct vx_rpc_govern *govern);
/* Something that it waited for may have come. */
void vx_rpc_govern_wake_if_may(struct vx_rpc_govern *govern);
/* True: a read brought far more than it was sized for. */
bool vx_rpc_govern_owes(const struct vx_rpc_govern *govern);

/* rpc_govern_share.c */
/* IDLE includes the awaited inferences whose message their client has not sent, but not
 * those whose message already lies in gRPC. */
i32 vx_rpc_govern_share_of(const struct vx_rpc_govern *govern, enum vx_rpc_share share);
/* It has ended: what it has is no longer part of what all have. */
void vx_rpc_govern_share_end(struct vx_rpc_govern *govern);

/* rpc_govern_hidden.c */
/* So many more of its calls were read and have not arrived; negative: fewer. */
void vx_rpc_govern_unseen(struct vx_rpc_govern *govern, i64 more);
/* Counts its hidden calls again: what the meter or a share says has changed. */
void vx_rpc_govern_hidden_count(struct vx_rpc_govern *govern);
/* A while later: what was hidden then and is now, is not on its way to us. */
void vx_rpc_govern_hidden_settle(struct vx_rpc_govern *govern);
/* It has ended. */
void vx_rpc_govern_hidden_end(struct vx_rpc_govern *govern);
/* There are too many, it has more than its part, and it is not its turn. */
bool vx_rpc_govern_hides(const struct vx_rpc_govern *govern);
/* A read need not be shortened for them. */
bool vx_rpc_govern_hidden_few(const struct vx_rpc_govern *govern);
/* Several calls of it await their message, and too few have got it since the last check. */
bool vx_rpc_govern_is_mute(const struct vx_rpc_govern *govern);
/* Which of two that wait speaks first. */
bool vx_rpc_govern_speaks_before(const struct vx_rpc_govern *a,
                                 const struct vx_rpc_govern *b);
/* Ends a turn that is over. */
void vx_rpc_govern_speaker_check(struct vx_rpc_governor *governor, i64 now_ns);
/* Gives the turn to `next`, which waits for it, if that may be now. */
void vx_rpc_govern_speaker_give(struct vx_rpc_governor *governor,
                                struct vx_rpc_govern *next, i64 now_ns);

/* rpc_govern_buffers.c */
/* gRPC is to hear that there is nothing to read.  If it then waits, it is woken. */
bool vx_rpc_govern_buffers_pause(struct vx_rpc_govern *govern);
/* How many of so many bytes to read before the next pause. */
size_t vx_rpc_govern_buffers_most(const struct vx_rpc_govern *govern, size_t most);
/* A read has brought so many bytes, or 0: nothing is there.  True: what is behind them, which are
 * more now if a buffer was filled, is to be given back before gRPC has the read's result. */
bool vx_rpc_govern_buffers_read(struct vx_rpc_govern *govern, struct msghdr *message,
                                size_t *got);
/* The connection must wait, so gRPC hears that there is nothing, or what a buffer was filled with.
 * True: as above. */
bool vx_rpc_govern_buffers_wait(struct vx_rpc_govern *govern,
                                const struct msghdr *message, size_t *got);
/* Has connections that rest give back what they keep.  Returns when to look again. */
i64 vx_rpc_govern_buffers_look(struct vx_rpc_governor *governor, i64 now_ns);
/* It has ended. */
void vx_rpc_govern_buffers_end(struct vx_rpc_govern *govern);
/* Without the lock. */
void vx_rpc_govern_buffers_give(const struct msghdr *message, size_t got);

/* rpc_govern_walk.c */
/* Bytes that were read into, or sent from, the message's pieces. */
void vx_rpc_govern_walk_read(struct vx_rpc_govern *govern, const struct msghdr *message,
                             size_t count);
/* So many bytes of the pieces are filled: which buffers have bytes and are not full. */
void vx_rpc_govern_walk_tails(struct vx_rpc_govern *govern, const struct msghdr *message,
                              size_t count);
void vx_rpc_govern_walk_sent(struct vx_rpc_govern *govern, const struct msghdr *message,
                             size_t count);

/* rpc_govern_turn.c */
/* Whether bytes or the end wait to be read: then the client waits for us. */
bool vx_rpc_govern_has_spoken(const struct vx_rpc_govern *govern);
/* It is held up by us, and its client has sent more. */
bool vx_rpc_govern_waits_for_us(const struct vx_rpc_govern *govern);
/* Nothing can be written: its client does not read. */
bool vx_rpc_govern_is_blocked(const struct vx_rpc_govern *govern);

/* rpc_govern_going.c */
/* It ends. */
void vx_rpc_govern_going_add(const struct vx_rpc_govern *govern);
/* Much will soon be free. */
bool vx_rpc_govern_going_is_much(const struct vx_rpc_governor *governor);
/* Forgets what is free now.  Returns when to call it again. */
i64 vx_rpc_govern_going_forget(struct vx_rpc_governor *governor, i64 now_ns);

/* rpc_govern_whole.c */
/* Whether room is short because whole messages wait for us: then nobody is closed for it. */
bool vx_rpc_govern_lags(const struct vx_rpc_governor *governor);
/* Fewer of its calls may have orphans now. */
void vx_rpc_govern_orphans_bound(struct vx_rpc_govern *govern);
/* At a check: what waits for us without progress. */
void vx_rpc_govern_whole_look(struct vx_rpc_govern *govern);

/* rpc_govern_crowd.c */
/* All room is taken, and no larger message has ended for so long. */
#define VX_RPC_STUCK_NS VX_NS_PER_S
/* So many bytes of it stand. */
void vx_rpc_govern_stood_set(struct vx_rpc_govern *govern, i64 stood);
/* At a check, since which it brought little or not: counts what it holds, if it stands. */
void vx_rpc_govern_stood_look(struct vx_rpc_govern *govern, bool little);
/* Whether its origin only holds: more than half of what it has stands. */
bool vx_rpc_govern_only_holds(const struct vx_rpc_govern *govern);
/* Whether it may have a turn.  Where others want room, an origin over its part has one connection with
 * turns until that ends a message, or the next check, and none for what has not begun: what turns add
 * stays.  So one with many messages at once ends them all, and one with many connections takes no
 * more than these. */
bool vx_rpc_govern_may_turn(const struct vx_rpc_govern *govern);
/* Whether its messages may lie beyond the room. */
bool vx_rpc_govern_may_pass(const struct vx_rpc_govern *govern);
/* Whether what it wants counts: unless its origin has more than its part, and only holds it. */
bool vx_rpc_govern_may_want(const struct vx_rpc_govern *govern);
/* Closes connections of origins that hold more than their part, which bring nothing.  False: there
 * are none. */
bool vx_rpc_govern_close_crowds(struct vx_rpc_governor *governor);
/* Whether turns have enough, when so much more is free; whether less is free than they need. */
bool vx_rpc_govern_is_enough(const struct vx_rpc_governor *governor, i64 freed);
bool vx_rpc_govern_is_tight(const struct vx_rpc_governor *governor);

/* A connection has come: closes one that has begun no call, if there are too many. */
void vx_rpc_govern_bound_fresh(struct vx_rpc_governor *governor, i64 now_ns);
/* A connection has its place from the first on until the second; the third: it has begun a
 * call. */
void vx_rpc_govern_place_take(struct vx_rpc_govern *govern);
void vx_rpc_govern_place_leave(struct vx_rpc_govern *govern);
void vx_rpc_govern_place_called(struct vx_rpc_govern *govern);

#endif
