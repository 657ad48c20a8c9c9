/* http_private - what the files of http share; nobody else includes it.
 *
 *   http.c              the port: who comes in, who makes room, time, the end
 *   http_connection.c   one connection, from its first byte to its last reply
 *   http_listen.c       an address, and the socket that listens there
 *
 * Connections are descriptors in an epoll set of their own, and the loop hears of the set: nothing
 * of a connection outlives its close, and a turn takes a handful of events, whoever sends more.
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

#include "server/http.h"
#include "server/http_parse.h"

#define HTTP_READ_BYTES 4096 /* one read; a request larger than this takes several */
/* Status line, headers (about 300) and the whole of a small reply. */
#define HTTP_HEAD_BYTES 1024

enum http_state { HTTP_FREE, HTTP_IDLE, HTTP_READING, HTTP_WRITING, HTTP_LINGERING };

struct http_connection {
    enum http_state state;
    int fd;
    struct vx_http *http;
    struct http_connection *next, *previous; /* by since_ms, oldest first; or the free */
    u64 since_ms;                            /* when it became what it is */
    u64 deadline_ms;                         /* on the loop's clock */
    u32 hears;                               /* EPOLLIN or EPOLLOUT */
    i32 source;
    bool keep; /* another request may follow this reply */
    size_t linger_bytes;
    size_t in_used, in_length;
    size_t head_length, body_length, sent;
    char *page; /* the rest of a long reply that the kernel has not taken; or NULL */
    struct vx_http_parser parser;
    char in[HTTP_READ_BYTES];
    char head[HTTP_HEAD_BYTES];
};

/* Those of one address; of IPv6 one network of 64 bits. */
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
    uv_poll_t poll;   /* of the epoll set */
    uv_timer_t sweep; /* while there are connections: whose time is over */
    uv_timer_t pause; /* nobody is taken until then */
    i32 handles;      /* open in libuv; the memory goes back at 0 */
    bool is_closing;

    i32 connections_max, connections_count,
        fresh; /* rows from `fresh` on were never used */
    struct http_connection *connections, *free, *oldest, *newest;
    struct http_source *sources; /* connections_max */

    char *
        pages; /* one and VX_HTTP_PAGES_MAX of VX_HTTP_BODY_BYTES_MAX, touched when used */
    char *page; /* replies are made here; small ones and fast readers need no other */
    char *pages_free[VX_HTTP_PAGES_MAX];
    i32 pages_free_count;
};

/* http.c */
/* Goes to the end of the line, and has `limit_ms` from now. */
void http_enter(struct http_connection *c, enum http_state state, i64 limit_ms);
void http_hear(struct http_connection *c, u32 events);
void http_drop(struct http_connection *c);
/* The page that replies are made in. */
char *http_page(struct vx_http *http);
/* It becomes the connection's; with none left, the one who reads slowest goes. */
void http_page_keep(struct http_connection *c);
void http_page_give(struct http_connection *c);

/* http_connection.c */
/* It can be read, or written, or is broken. */
void http_connection_go_on(struct http_connection *c);
void http_connection_refuse(struct http_connection *c, i32 status, const char *why);

/* http_listen.c */
VX_MUST_USE vx_status http_listen(const char *address, struct vx_why *why, int *listener);

#endif
