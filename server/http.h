/* http - the admin port: small GET questions, answered from memory, on the loop.
 *
 * Scrapers, probes and people read; nothing can be changed here.  A fixed number of places, and
 * a few pages for the ends of long replies, so that a slow reader costs a place and a time limit,
 * never memory and never the loop.  A turn of the loop answers at most 16 requests.
 *
 * With all places taken a newcomer gets the place of the connection that has got nowhere for
 * longest, at least 10 ms, among those of the address that has the most.  Silence, half a head,
 * an answer that is not read, a request every now and then: all the same.  A probe sends its
 * request as it connects, so it is read, answered and gone in the turn that takes it.
 *
 *   VX_TRY(vx_http_open(&(struct vx_http_options){...}, &why, &http));
 *   vx_http_port(http)
 *   vx_http_close(&http);       no callback from here on; freed when the loop has run
 *
 * A connection: IDLE -> READING (part of a request) -> WRITING (reply made) -> IDLE, or
 * LINGERING (the last reply is out, what still comes in is read and dropped so that the
 * reply is not lost).  A pipelined request waits until the reply before it has been taken.
 *
 * Owner    the caller; connections belong to the server.
 * Thread   loop.
 * Limits   VX_HTTP_CONNECTIONS_MAX, VX_HTTP_PAGES_MAX, VX_HTTP_BODY_BYTES_MAX a reply, http_parse.h,
 *          struct vx_http_timeouts.
 * Fails    open: INVALID_ARGUMENT for an address, UNAVAILABLE when the port is taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HTTP_H
#define VX_SERVER_HTTP_H

#include "engine/base/status.h"

#include <uv.h>

/* A few are enough for scrapers, probes and browsers.  The others are for floods: who has a place
 * keeps it until so many came after him. */
#define VX_HTTP_CONNECTIONS_MAX 512
#define VX_HTTP_CONNECTIONS_MIN 16
/* Replies that the kernel has not taken as a whole: to slow readers of long pages. */
#define VX_HTTP_PAGES_MAX 16
/* /metrics with every row of the registry and the longest names is 450 KiB. */
#define VX_HTTP_BODY_BYTES_MAX (8u * 1024 * 1024)

struct vx_http;

struct vx_http_request {
    const char *path;  /* "/metrics"; as written, nothing decoded */
    const char *query; /* behind the '?', "" when there is none */
};
struct vx_http_reply {
    i32 status; /* 200 unless the handler says otherwise */
    const char
        *content_type; /* static; "text/plain; charset=utf-8" unless said otherwise */
    char *body;        /* the connection's own buffer, for the handler to fill */
    size_t capacity;
    size_t length;
};
typedef void (*vx_http_handler)(void *context, const struct vx_http_request *request,
                                struct vx_http_reply *reply);

/* Milliseconds; each has a default that a person or a scraper does not meet. */
struct vx_http_timeouts {
    i64 idle_ms;    /* between requests of a connection: more than a scrape interval */
    i64 request_ms; /* from the first byte of a request to its last */
    i64 write_ms;   /* for a reply to leave: a megabyte over a slow line */
    i64 linger_ms;  /* for a client to notice that the last reply was the last */
};

struct vx_http_options {
    uv_loop_t *loop;
    const char *address; /* "127.0.0.1:8002", "[::1]:0"; read during open */
    vx_http_handler handler;
    void *context;
    i32 connections_max; /* 0: VX_HTTP_CONNECTIONS_MAX */
};
VX_MUST_USE vx_status vx_http_open(const struct vx_http_options *options,
                                   struct vx_why *why, struct vx_http **http);
i32 vx_http_port(const struct vx_http *http);
/* For those that come from now on. */
void vx_http_timeouts_set(struct vx_http *http, const struct vx_http_timeouts *timeouts);
/* Cuts every connection.  The handler is not called again; the memory goes back when the
 * loop has run the close callbacks.  NULL inside is fine. */
void vx_http_close(struct vx_http **out);

#endif
