/* http_private - what the files of http share; no other file includes it.
 *
 *   http.c              the port: accepting, replacing connections, deadlines, close
 *   http_connection.c   one connection, from its first byte to its last reply
 *   http_host.c         by which names it may be asked, on the loopback
 *   http_listen.c       an address, and the socket that listens there
 *
 * The connections' descriptors are in an epoll set of their own, and libuv polls only the
 * set.  So no callback comes for a connection after its close, and an iteration of the
 * loop handles a bounded number of events, however many clients send.
 *
 * Owner    vx_http_open.
 * Thread   loop.
 * Limits   as http.h says.
 * Fails    as http.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HTTP_PRIVATE_H
#define VX_SERVER_HTTP_PRIVATE_H

#include "server/http/http.h"
#include "server/http/http_host.h"
#include "server/http/http_parse.h"

#define HTTP_READ_BYTES 4096 /* one read; a request larger than this takes several */
/* Status line, headers (about 300) and the whole of a small reply. */
#define HTTP_HEAD_BYTES 1024

enum http_state { HTTP_FREE, HTTP_IDLE, HTTP_READING, HTTP_WRITING, HTTP_LINGERING };

struct http_connection {
    enum http_state state;
    int fd;
    struct vx_http *http;
    struct http_connection *next, *previous; /* by since_ms, oldest first; or the free */
    u64 since_ms;                            /* when it entered its state */
    u64 deadline_ms;                         /* on the loop's clock */
    u32 hears;                               /* EPOLLIN or EPOLLOUT */
    i32 source;                              /* index in vx_http.sources */
    bool keep;                               /* another request may follow this reply */
    bool spared;                             /* when it was to make room, once */
    size_t linger_bytes;
    size_t in_used, in_length;
    size_t head_length, body_length, sent;
    char *page; /* a long reply that the kernel has not taken completely; or NULL */
    struct vx_http_parser parser;
    char in[HTTP_READ_BYTES];
    char head[HTTP_HEAD_BYTES];
};

/* How many connections come from one IPv4 address, or from one /64 network of IPv6. */
struct http_source {
    u64 key;
    i32 count;
};

struct vx_http {
    u32 magic;
    uv_loop_t *loop;
    vx_http_handler handler;
    void *context;
    struct vx_http_timeouts timeouts;
    int listener, epoll;
    bool local;    /* bound to the loopback: it answers for names of this machine alone */
    char own[256]; /* the host of its address, if it has one */
    uv_poll_t poll;   /* of the epoll set */
    uv_timer_t sweep; /* while there are connections: checks their deadlines */
    uv_timer_t pause; /* no connection is accepted until it fires */
    i32 handles;      /* open in libuv; at 0 the memory is freed */
    bool is_closing;

    /* connections[fresh] and those behind it were never used. */
    i32 connections_max, connections_count, fresh;
    struct http_connection *connections, *free, *oldest, *newest;
    struct http_source *sources; /* connections_max */

    /* 1 + VX_HTTP_PAGES_MAX pages of VX_HTTP_BODY_BYTES_MAX; memory only when used. */
    char *pages;
    char *page; /* replies are made here; short ones and fast readers need no other */
    char *pages_free[VX_HTTP_PAGES_MAX];
    i32 pages_free_count;
};

/* http.c */
/* Enters the state, as the newest connection, with a deadline `limit_ms` from now. */
void http_enter(struct http_connection *c, enum http_state state, i64 limit_ms);
/* Sets the epoll events to wait for. */
void http_hear(struct http_connection *c, u32 events);
void http_drop(struct http_connection *c);
/* The page in which replies are made. */
char *http_page(struct vx_http *http);
/* Gives this page to the connection and takes a free one for the next reply.  If none is
 * free, drops a connection that has one: of the address with the most, the oldest. */
void http_page_keep(struct http_connection *c);
void http_page_give(struct http_connection *c);

/* http_connection.c */
/* Reads or writes: the connection is ready for it, or has failed. */
void http_connection_go_on(struct http_connection *c);
void http_connection_refuse(struct http_connection *c, i32 status, const char *why);

/* http_listen.c */
VX_MUST_USE vx_status http_listen(const char *address, struct vx_why *why, int *listener);
/* The host of "HOST:PORT"; "" of a socket that was handed over. */
void http_listen_host(const char *address, char host[256]);

/* What connections are counted by: one for each host, as far as an address tells. */
u64 http_source_key(const struct sockaddr_storage *from);

#endif
