/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/http/http_private.h"

#include "engine/base/process/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* What a client may still send after its last reply: its body, most likely. */
#define LINGER_BYTES_MAX (1024u * 1024)

/* ------- writing ------- */

static const char *status_text(i32 status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
    }
}

static void connection_linger(struct http_connection *c)
{
    /* Closing with unread bytes would reset the connection and lose the reply. */
    if (shutdown(c->fd, SHUT_WR)) {
        http_drop(c);
        return;
    }
    c->linger_bytes = 0;
    http_enter(c, HTTP_LINGERING, c->http->timeouts.linger_ms);
    http_hear(c, EPOLLIN);
}

static void connection_written(struct http_connection *c)
{
    http_page_give(c);
    if (!c->keep) {
        connection_linger(c);
        return;
    }
    http_enter(c, HTTP_IDLE, c->http->timeouts.idle_ms);
    /* A pipelined request that has already been read waits for EPOLLOUT: until the other
     * connections had their turn and the client can take an answer. */
    http_hear(c, c->in_used < c->in_length ? EPOLLOUT : EPOLLIN);
}

/* Sends as much of the head and of `body` as the kernel takes. */
static void connection_flush(struct http_connection *c, char *body)
{
    size_t all = c->head_length + c->body_length;
    while (c->sent < all) {
        size_t in_head = c->sent < c->head_length ? c->head_length - c->sent : 0;
        size_t in_body = c->sent > c->head_length ? c->sent - c->head_length : 0;
        struct iovec parts[] = {{c->head + c->head_length - in_head, in_head},
                                {body + in_body, c->body_length - in_body}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = VX_COUNT(parts)};
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent <= 0) {
            http_drop(c);
            return;
        }
        c->sent += (size_t)sent;
    }
    connection_written(c);
}

/* Makes the head and sends what the kernel takes; EPOLLOUT continues with the rest. */
static void connection_write(struct http_connection *c, const struct vx_http_reply *reply)
{
    int length = snprintf(
        c->head, sizeof c->head,
        "HTTP/1.1 %d %s\r\n"
        "Content-Type: %s\r\n"
        "Content-Length: %zu\r\n"
        "Connection: %s\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src "
        "'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action "
        "'none'; frame-ancestors 'none'\r\n"
        "%s\r\n",
        reply->status, status_text(reply->status), reply->content_type, reply->length,
        c->keep ? "keep-alive" : "close",
        reply->status == 405   ? "Allow: GET, HEAD\r\n"
        : reply->status == 401 ? "WWW-Authenticate: Bearer\r\n"
                               : "");
    VX_ASSERT(length > 0);
    VX_ASSERT((size_t)length < sizeof c->head);
    c->head_length = (size_t)length;
    c->body_length = c->parser.head_only ? 0 : reply->length;
    c->sent = 0;
    if (c->body_length <= sizeof c->head - c->head_length) {
        memcpy(c->head + c->head_length, reply->body, c->body_length);
        c->head_length += c->body_length;
        c->body_length = 0;
    }
    http_enter(c, HTTP_WRITING, c->http->timeouts.write_ms);
    connection_flush(c, reply->body);
    if (c->state != HTTP_WRITING) return;
    if (c->body_length) http_page_keep(c);
    http_hear(c, EPOLLOUT);
}

static struct vx_http_reply connection_reply(struct http_connection *c)
{
    return (struct vx_http_reply){.status = 200,
                                  .content_type = "text/plain; charset=utf-8",
                                  .body = http_page(c->http),
                                  .capacity = VX_HTTP_BODY_BYTES_MAX};
}

void http_connection_refuse(struct http_connection *c, i32 status, const char *why)
{
    struct vx_http_reply reply = connection_reply(c);
    reply.status = status;
    reply.length = (size_t)snprintf(reply.body, reply.capacity, "%s\n", why);
    c->keep = false;
    c->parser.head_only = false;
    connection_write(c, &reply);
}

static const char wrong_host[] =
    "this port is bound to the loopback and answers for localhost and addresses: "
    "expected "
    "such a Host, got another name (a proxy can set it: Host: localhost)";

static void connection_answer(struct http_connection *c)
{
    struct vx_http *http = c->http;
    if (http->local && !vx_http_host_fits(c->parser.host, http->own)) {
        explicit_bzero(c->parser.authorization, sizeof c->parser.authorization);
        http_connection_refuse(c, 403, wrong_host);
        return;
    }
    struct vx_http_request request = {.path = c->parser.path, .query = c->parser.query};
    struct vx_http_reply reply = connection_reply(c);
    if (c->parser.authorizes) {
        request.authorization = c->parser.authorization;
        request.authorization_length = c->parser.authorization_length;
    }
    c->keep = c->parser.keep_alive;
    http->handler(http->context, &request, &reply);
    explicit_bzero(c->parser.authorization, sizeof c->parser.authorization);
    VX_ASSERT(reply.length <= reply.capacity);
    connection_write(c, &reply);
}

/* ------- reading ------- */

/* Feeds the bytes that were read to the parser, up to the end of one request. */
static void connection_parse(struct http_connection *c)
{
    VX_ASSERT(c->state == HTTP_IDLE || c->state == HTTP_READING);
    size_t used = 0;
    enum vx_http_parsed parsed =
        vx_http_parse(&c->parser, c->in + c->in_used, c->in_length - c->in_used, &used);
    c->in_used += used;
    switch (parsed) {
    case VX_HTTP_REQUEST: connection_answer(c); break;
    case VX_HTTP_BAD: http_connection_refuse(c, c->parser.status, c->parser.why); break;
    case VX_HTTP_MORE:
        if (c->state == HTTP_IDLE)
            http_enter(c, HTTP_READING, c->http->timeouts.request_ms);
        http_hear(c, EPOLLIN);
        break;
    }
}

static void connection_read(struct http_connection *c)
{
    ssize_t got = recv(c->fd, c->in, sizeof c->in, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return; /* nothing to read */
    if (got <= 0) {
        http_drop(c);
        return;
    }
    if (c->state == HTTP_LINGERING) {
        c->linger_bytes += (size_t)got;
        if (c->linger_bytes > LINGER_BYTES_MAX) http_drop(c);
        return;
    }
    c->in_used = 0;
    c->in_length = (size_t)got;
    connection_parse(c);
}

void http_connection_go_on(struct http_connection *c)
{
    VX_ASSERT(c->state != HTTP_FREE);
    if (c->state == HTTP_WRITING)
        connection_flush(c, c->page ? c->page : c->head);
    else if (c->state != HTTP_LINGERING && c->in_used < c->in_length)
        connection_parse(c);
    else
        connection_read(c);
}
