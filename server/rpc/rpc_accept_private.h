/* rpc_accept_private - what rpc_accept.c, rpc_secure.c, rpc_room.c and rpc_leave.c share; no other file
 * includes it.
 *
 * Owner    as rpc_accept.c says.
 * Thread   accept; (lock) fields are read by others.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_ACCEPT_PRIVATE_H
#define VX_SERVER_RPC_ACCEPT_PRIVATE_H

#include "server/rpc/rpc_origins.h"
#include "server/rpc/rpc_private.h"
#include "server/rpc/rpc_silent.h"
#include "server/tls/tls.h"

#include <grpc/grpc_security.h>

struct vx_rpc_connection {
    int fd;    /* (lock) in the epoll set; open while peer.connection is not 0 */
    int given; /* gRPC's descriptor; 0 = gRPC does not have the connection yet */
    struct vx_peer peer;            /* (lock) */
    char name[VX_RPC_PEER_BYTES];   /* for the log; set when gRPC has the connection */
    bool secure;                    /* it must speak TLS */
    struct vx_tls_session *session; /* (lock) NULL = none, or not yet */
    struct vx_rpc_silent silent;    /* in the list until gRPC has the connection */
    struct vx_rpc_connection *next; /* in the free list */
};

struct vx_rpc_accept {
    struct vx_rpc_options options;
    struct vx_rpc_listeners listeners;
    grpc_server *server;
    grpc_server_credentials *plain;
    int epoll, wakeup;
    pthread_t thread;
    bool running;

    /* Used by the accept thread only, except a connection's (lock) fields. */
    struct vx_rpc_connection *rows, *free;
    struct vx_rpc_silents silents;
    struct vx_rpc_origins origins;
    i32 rows_count;
    struct vx_rpc_window window; /* window.peers: (lock) */
    struct vx_rpc_governor *governor;
    struct vx_tls *tls; /* NULL = plain */
    struct vx_rpc_memory memory;
    struct vx_rpc_cuts cuts;
    u64 connection_last; /* the number of the last connection given to gRPC */
    i64 paused_until_ns; /* 0 = not paused */
    i64 silence_ns;

    pthread_mutex_t gate;
    bool stopping, closing, wants_handed; /* (gate) */

    pthread_mutex_t lock;
    i32 connections;       /* (lock) */
    u64 accepted, refused; /* (lock) */
};

/* rpc_accept.c */
/* Wakes the accept thread.  Any thread. */
void vx_rpc_accept_wake(void *context);
void vx_rpc_connection_end(struct vx_rpc_accept *accept, struct vx_rpc_connection *row);
/* Its preface has come. */
void vx_rpc_connection_give(struct vx_rpc_accept *accept, struct vx_rpc_connection *row);

/* One was closed, or not taken, for want of a place or in its handshake. */
void vx_rpc_connection_refused(struct vx_rpc_accept *accept);
static inline struct vx_rpc_connection *vx_rpc_connection_of(struct vx_rpc_silent *silent)
{
    return VX_CONTAINER(silent, struct vx_rpc_connection, silent);
}

/* rpc_room.c: who makes way for a newcomer */
/* A silent connection makes way, or one that asks nothing when few entries are left: then its
 * entry is free a moment later.  Of the last ones a crowd gets none, but for one that goes.
 * False: the newcomer gets none. */
bool vx_rpc_room(struct vx_rpc_accept *accept, const struct vx_peer *peer);

/* rpc_leave.c: connections that gRPC has ended, whose clients may still read */
/* Ends those that have had their time.  Returns when the next one is due. */
i64 vx_rpc_leaving_turn(struct vx_rpc_accept *accept, i64 now_ns);
/* Waits until the accept thread has ended them all: 2 s at most.  Loop. */
void vx_rpc_leaving_wait(struct vx_rpc_accept *accept);

/* rpc_secure.c: connections that speak TLS */
VX_MUST_USE vx_status vx_rpc_secure_open(struct vx_rpc_accept *accept,
                                         struct vx_why *why);
/* Whether a handshake has begun, which then also ends by itself. */
bool vx_rpc_secure_shakes(const struct vx_rpc_connection *row);
/* Its socket has bytes, or room. */
void vx_rpc_secure_event(struct vx_rpc_accept *accept, struct vx_rpc_connection *row);
/* Handshakes that have ended: gives their connections to gRPC, or ends them. */
void vx_rpc_secure_turn(struct vx_rpc_accept *accept);
/* The connection ends: counts a handshake that ends with it. */
void vx_rpc_secure_note(struct vx_rpc_accept *accept, struct vx_rpc_connection *row,
                        enum vx_tls_result result, const char *why);

#endif
