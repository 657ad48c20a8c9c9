/* http - the admin port: short GET requests, answered from memory, on the loop.
 *
 * Scrapers, probes and people read; nothing can be changed here.  There is a fixed number
 * of connections, and there are a few pages for the unsent part of long replies: a slow
 * reader costs a connection and a time limit, but no further memory, and it never blocks
 * the loop.  An iteration of the loop answers at most 16 requests.
 *
 * When all connections are taken, a new one replaces an old one: of the address that has
 * the most, the connection whose state has not changed for longest, and for at least
 * 10 ms.  It does not matter whether it is silent, has sent half a head, does not read
 * its answer, or sends a request now and then.  A probe sends its request as it connects,
 * so it is read, answered and closed in the iteration that accepts it.
 *
 *   VX_TRY(vx_http_open(&(struct vx_http_options){...}, &why, &http));
 *   vx_http_port(http)
 *   vx_http_close(&http);       no callback from here on; freed when the loop has run
 *
 * States of a connection:
 *   IDLE       waits for a request
 *   READING    has part of a request
 *   WRITING    the reply is made; then IDLE, or LINGERING after the last reply
 *   LINGERING  reads and drops what still comes in, so that the reply is not lost
 * A pipelined request waits until the reply before it is sent.
 *
 * Owner    the caller; connections belong to the server.
 * Thread   loop.
 * Limits   VX_HTTP_CONNECTIONS_MAX, VX_HTTP_PAGES_MAX, VX_HTTP_BODY_BYTES_MAX per reply,
 *          http_parse.h, struct vx_http_timeouts.
 * Fails    open: INVALID_ARGUMENT for an address, UNAVAILABLE when the port is taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HTTP_H
#define VX_SERVER_HTTP_H

#include "engine/base/status.h"

#include <uv.h>

/* A few are enough for scrapers, probes and browsers.  The others are for floods: a
 * connection is not replaced before so many others came after it. */
#define VX_HTTP_CONNECTIONS_MAX 512
#define VX_HTTP_CONNECTIONS_MIN 16
/* Long replies that the kernel has not taken completely: their clients read slowly. */
#define VX_HTTP_PAGES_MAX 16
/* /metrics with 512 models is 779 KB (metrics/README.md). */
#define VX_HTTP_BODY_BYTES_MAX (8u * 1024 * 1024)

struct vx_http;

struct vx_http_request {
    const char *path;  /* "/metrics"; as written, nothing decoded */
    const char *query; /* behind the '?', "" when there is none */
    /* The header Authorization, without a NUL; NULL = none came.  It is a secret: it is
     * wiped when the handler returns. */
    const char *authorization;
    size_t authorization_length;
};
struct vx_http_reply {
    i32 status; /* 200 unless the handler sets another */
    /* Static; "text/plain; charset=utf-8" unless the handler sets another. */
    const char *content_type;
    char *body; /* for the handler to fill */
    size_t capacity;
    size_t length;
};
typedef void (*vx_http_handler)(void *context, const struct vx_http_request *request,
                                struct vx_http_reply *reply);

/* Milliseconds; the defaults are more than a person or a scraper needs. */
struct vx_http_timeouts {
    i64 idle_ms;    /* between requests of a connection: more than a scrape interval */
    i64 request_ms; /* from the first byte of a request to its last */
    i64 write_ms;   /* to send a reply: a megabyte over a slow line */
    i64 linger_ms;  /* for the client to close after the last reply */
};

struct vx_http_options {
    uv_loop_t *loop;
    const char *address; /* "127.0.0.1:8002", "[::1]:0"; read during open */
    vx_http_handler handler;
    void *context;
    i32 connections_max; /* 0: VX_HTTP_CONNECTIONS_MAX */
};
/* Whether the text is an address; open looks its host up. */
VX_MUST_USE vx_status vx_http_address_check(const char *address, struct vx_why *why);
VX_MUST_USE vx_status vx_http_open(const struct vx_http_options *options,
                                   struct vx_why *why, struct vx_http **http);
i32 vx_http_port(const struct vx_http *http);
/* Applies to states that connections enter from now on. */
void vx_http_timeouts_set(struct vx_http *http, const struct vx_http_timeouts *timeouts);
/* Closes every connection.  The handler is not called again; the memory is freed when the
 * loop has run the close callbacks.  *out may be NULL. */
void vx_http_close(struct vx_http **out);

#endif
