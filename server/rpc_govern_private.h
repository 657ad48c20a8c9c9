/* rpc_govern_private - what the files of rpc_govern share; nobody else includes it.
 *
 *   rpc_govern.c       rows, reads, writes, the end
 *   rpc_govern_cost.c  what a connection may cost, and what it earns
 *   rpc_govern_turn.c  who may go on, who is closed
 *   rpc_intercept.c    recvmsg, sendmsg and epoll_ctl
 *
 * Owner    as rpc_govern.h says.
 * Thread   everything here is under vx_rpc_govern_lock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_GOVERN_PRIVATE_H
#define VX_SERVER_RPC_GOVERN_PRIVATE_H

#include "server/rpc_govern.h"

#include <pthread.h>

/* Never held up for room: what gRPC takes of a stream before it is asked for; less in a
 * crowd, all together no more than an eighth of receive_bytes_max. */
#define HELD_SMALL     (64 << 10)
#define HELD_SMALL_MIN (4 << 10)
/* Who has waited for work reads on when there is so much of it. */
#define WORK_RESUME 256

struct vx_rpc_governor {
    i32 connections_max;
    i64 message_bytes_max, receive_bytes_max, receive_ns_max;
    void (*bell)(void *context);
    void *context;
    struct vx_rpc_govern *rows, *live;
    struct vx_h2_stream *streams; /* of all rows; pages are touched when used */
    i32 live_count, waiting;
    i64 held;       /* of all */
    i32 calls_open; /* of all, VX_RPC_SHARE_ARRIVED */
    i64 going; /* of `held`, what was of connections that have ended since the last look */
    i64 unseen;                  /* of all */
    u64 bytes, calls;            /* that ever came, or may be free again */
    struct vx_rpc_govern *owner; /* may go beyond receive_bytes_max */
    i64 owner_ns;                /* since when */
    i64 freed_ns;                /* when much of `held` became whole last */
    i64 look_ns, turn_ns;        /* the last of each */
    i32 active;                  /* connections with calls in flight */
    i32 holders;                 /* connections that hold bytes of unfinished messages */
    i32 takers;                  /* connections that have some of the arena */
    u64 tensors, arena_bytes;
    struct vx_rpc_govern *oldest; /* the other end of `live` */
    i32 fresh;                    /* connections that have begun no call */
};

extern pthread_mutex_t vx_rpc_govern_lock;

/* rpc_govern.c */
/* NULL when the connection is gone. */
struct vx_rpc_govern *vx_rpc_govern_of(struct vx_rpc_place place);
void vx_rpc_govern_close(struct vx_rpc_govern *govern, enum vx_rpc_cut why);
/* It waits no longer, and gRPC reads on. */
void vx_rpc_govern_wake(struct vx_rpc_govern *govern);

/* rpc_govern_cost.c */
/* What a new connection may cost. */
void vx_rpc_govern_cost_init(struct vx_rpc_govern *govern, i64 now_ns);
/* So many more of its calls were read and have not arrived; or fewer. */
void vx_rpc_govern_unseen(struct vx_rpc_govern *govern, i64 more);
/* What time has given back. */
void vx_rpc_govern_fill(struct vx_rpc_govern *govern, i64 now_ns);
enum vx_rpc_wait vx_rpc_govern_must_wait(const struct vx_rpc_govern *govern);
/* So much it may hold however little room there is. */
i64 vx_rpc_govern_small(const struct vx_rpc_govern *govern);
/* What an owner with several messages may add. */
i64 vx_rpc_govern_room_owner(const struct vx_rpc_governor *governor);
/* How much to read at most, when it need not wait. */
size_t vx_rpc_govern_read_bytes(const struct vx_rpc_govern *govern);
/* True: a read brought far more than it was for. */
bool vx_rpc_govern_owes(const struct vx_rpc_govern *govern);

/* rpc_govern_turn.c */
/* One more connection has come: one that has begun nothing may have to go for it. */
void vx_rpc_govern_bound_fresh(struct vx_rpc_governor *governor, i64 now_ns);

#endif
