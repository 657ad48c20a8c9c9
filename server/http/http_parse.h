/* http_parse - parses a connection's bytes, one request at a time, with a limited head.
 *
 * llhttp knows the grammar; this knows what the admin port accepts: GET and HEAD without
 * a body, a short target, a small head.  It stops behind each request, so that a
 * pipelining client's next request waits in the caller's buffer until this one is
 * answered.
 *
 *   vx_http_parser_init(&parser);
 *   switch (vx_http_parse(&parser, bytes, length, &used)) {
 *   case VX_HTTP_MORE: ...read more...
 *   case VX_HTTP_REQUEST: ...parser.path; the next one begins at bytes + used...
 *   case VX_HTTP_BAD: ...answer parser.status and parser.why, then close...
 *   }
 *
 * Owner    the caller; must not move while it is in use.
 * Thread   one at a time; no sockets, no allocation.
 * Limits   VX_HTTP_TARGET_BYTES, VX_HTTP_HEAD_BYTES_MAX, VX_HTTP_AUTHORIZATION_BYTES,
 *          VX_HTTP_HOST_BYTES.
 * Fails    BAD with 400, 405, 413, 414, 431 or 505 and an error text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HTTP_PARSE_H
#define VX_SERVER_HTTP_PARSE_H

#include "engine/base/types.h"

#include <llhttp.h>

/* Path and query with the NUL: the longest path served has a model's name of 127 bytes,
 * each of which may be written as %XX. */
#define VX_HTTP_TARGET_BYTES 1024
/* Request line and headers: browsers send under 2 KiB, proxies add as much again. */
#define VX_HTTP_HEAD_BYTES_MAX 8192

/* "Bearer " and the longest token (server/access/). */
#define VX_HTTP_AUTHORIZATION_BYTES 264

/* The header Host: a name of 253 bytes and a port, with a NUL. */
#define VX_HTTP_HOST_BYTES 264

enum vx_http_parsed { VX_HTTP_MORE, VX_HTTP_REQUEST, VX_HTTP_BAD };

struct vx_http_parser {
    llhttp_t llhttp;
    size_t head_bytes; /* of this request, so far */
    size_t target_length;
    bool ended; /* the request before is complete; the next byte begins a new one */

    /* After REQUEST: */
    char path[VX_HTTP_TARGET_BYTES]; /* as written, without the query; never decoded */
    const char *query;               /* behind the '?', "" when there is none */
    bool head_only;                  /* HEAD: everything but the body is sent */
    bool keep_alive;
    bool authorizes; /* it has the header Authorization: */
    size_t authorization_length;
    char authorization[VX_HTTP_AUTHORIZATION_BYTES]; /* without a NUL */
    char host[VX_HTTP_HOST_BYTES];                   /* as written; "" when none came */
    size_t host_length;

    /* The name of the header that is being read, as far as it matters. */
    char field[sizeof "authorization"];
    size_t field_length;
    bool field_ends; /* its value has begun: the next name is another's */

    /* After BAD: */
    i32 status;
    const char *why;
};

void vx_http_parser_init(struct vx_http_parser *parser);
/* *used is how many of the bytes belong to this request.  After BAD the parser must not
 * be used any more. */
enum vx_http_parsed vx_http_parse(struct vx_http_parser *parser, const char *bytes,
                                  size_t length, size_t *used);

#endif
