/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/http.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/thread.h"
#include "server/http_parse.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 4096 /* one read; a request larger than this takes several */
#define HEAD_BYTES 512  /* status line and headers of a reply: about 300 */
#define BACKLOG    64   /* connections that wait in the kernel for a slot */
/* Who has been silent for less may have a request on its way, and keeps its slot. */
#define EVICT_AFTER_MS 100
/* What a client that was told to go may still send: its body, most likely. */
#define LINGER_BYTES_MAX (1024u * 1024)
#define HTTP_MAGIC       0x76784854u /* "vxHT" */

static const struct vx_http_timeouts timeouts_default = {75000, 10000, 30000, 2000};

enum connection_state { FREE, IDLE, READING, WRITING, LINGERING, CLOSING };

struct connection {
    enum connection_state state;
    struct vx_http *http;
    u64 deadline_ms; /* on the loop's clock; 0 for none */
    u64 since_ms;    /* when it became what it is */
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct vx_http_parser parser;
    bool keep; /* another request may follow this reply */
    size_t linger_bytes;
    size_t in_used, in_length;
    char in[READ_BYTES];
    char head[HEAD_BYTES];
    char *body; /* VX_HTTP_BODY_BYTES_MAX of the server's block; pages are touched when
                   used */
};

struct vx_http {
    u32 magic;
    uv_loop_t *loop;
    vx_http_handler handler;
    void *context;
    struct vx_http_timeouts timeouts;
    uv_tcp_t listener;
    uv_timer_t timer; /* the nearest deadline of all connections */
    i32 handles;      /* open in libuv; the memory goes back at 0 */
    bool is_closing;
    bool is_waiting; /* a newcomer could not be given a slot yet */
    char *bodies;
    struct connection connections[VX_HTTP_CONNECTIONS_MAX];
};

static void connection_step(struct connection *c);
static void connection_close(struct connection *c);
static void connection_reply_error(struct connection *c, i32 status, const char *why);
static void http_accept(struct vx_http *http);

/* ------- time ------- */

static void http_on_timer(uv_timer_t *timer);

static void http_arm(struct vx_http *http)
{
    u64 nearest = UINT64_MAX;
    for (size_t i = 0; i < VX_COUNT(http->connections); i++) {
        const struct connection *c = &http->connections[i];
        if (c->deadline_ms && c->deadline_ms < nearest) nearest = c->deadline_ms;
        u64 evicted_ms = c->since_ms + EVICT_AFTER_MS;
        if (http->is_waiting && c->state == IDLE && evicted_ms < nearest)
            nearest = evicted_ms;
    }
    if (http->is_closing) return;
    if (nearest == UINT64_MAX) {
        uv_timer_stop(&http->timer);
        return;
    }
    u64 now = uv_now(http->loop);
    uv_timer_start(&http->timer, http_on_timer, nearest > now ? nearest - now : 0, 0);
}

/* Every state but FREE and CLOSING ends by itself: `limit_ms` from now. */
static void connection_enter(struct connection *c, enum connection_state state,
                             i64 limit_ms)
{
    c->state = state;
    c->since_ms = uv_now(c->http->loop);
    c->deadline_ms = limit_ms ? c->since_ms + (u64)limit_ms : 0;
    http_arm(c->http);
}

static void http_on_timer(uv_timer_t *timer)
{
    struct vx_http *http = VX_CONTAINER(timer, struct vx_http, timer);
    u64 now = uv_now(http->loop);
    for (size_t i = 0; i < VX_COUNT(http->connections); i++) {
        struct connection *c = &http->connections[i];
        if (!c->deadline_ms || c->deadline_ms > now) continue;
        if (c->state == READING)
            connection_reply_error(c, 408, "the request did not end in time");
        else
            connection_close(c);
    }
    if (http->is_waiting) http_accept(http);
    http_arm(http);
}

/* ------- the end ------- */

static void http_on_handle_closed(struct vx_http *http)
{
    VX_ASSERT(http->handles > 0);
    if (--http->handles || !http->is_closing) return;
    http->magic = 0;
    vx_free(http->bodies);
    vx_free(http);
}

static void connection_on_closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    struct vx_http *http = c->http;
    c->state = FREE;
    if (http->is_waiting && !http->is_closing) http_accept(http);
    http_on_handle_closed(http);
}

static void connection_close(struct connection *c)
{
    if (c->state == CLOSING) return;
    VX_ASSERT(c->state != FREE);
    connection_enter(c, CLOSING, 0);
    uv_close((uv_handle_t *)&c->tcp, connection_on_closed);
}

/* ------- reading ------- */

static void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct connection *c = handle->data;
    *buffer = uv_buf_init(c->in, sizeof c->in);
}

static void connection_on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
    (void)buffer;
    struct connection *c = stream->data;
    if (got == 0) return; /* nothing there after all */
    if (got < 0) {
        connection_close(c);
        return;
    }
    if (c->state == LINGERING) {
        c->linger_bytes += (size_t)got;
        if (c->linger_bytes > LINGER_BYTES_MAX) connection_close(c);
        return;
    }
    VX_ASSERT(c->in_used == c->in_length);
    c->in_used = 0;
    c->in_length = (size_t)got;
    connection_step(c);
}

static void connection_read(struct connection *c)
{
    int error =
        uv_read_start((uv_stream_t *)&c->tcp, connection_on_alloc, connection_on_read);
    if (error && error != UV_EALREADY) connection_close(c);
}

/* ------- writing ------- */

static const char *status_text(i32 status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
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

static void connection_on_shutdown(uv_shutdown_t *shutdown, int status)
{
    struct connection *c = shutdown->data;
    if (c->state == CLOSING) return;
    if (status) {
        connection_close(c);
        return;
    }
    c->linger_bytes = 0;
    connection_enter(c, LINGERING, c->http->timeouts.linger_ms);
    connection_read(c);
}

static void connection_on_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    if (c->state == CLOSING) return;
    if (status) {
        connection_close(c);
        return;
    }
    if (!c->keep) {
        /* Closing with unread bytes would reset the connection and take our reply with
         * it. */
        if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, connection_on_shutdown))
            connection_close(c);
        return;
    }
    connection_enter(c, IDLE, c->http->timeouts.idle_ms);
    if (c->in_used < c->in_length)
        connection_step(c);
    else
        connection_read(c);
}

static void connection_write(struct connection *c, const struct vx_http_reply *reply)
{
    int length = snprintf(
        c->head, sizeof c->head,
        "HTTP/1.1 %d %s\r\n"
        "Content-Type: %s\r\n"
        "Content-Length: %zu\r\n"
        "Connection: %s\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
        "%s\r\n",
        reply->status, status_text(reply->status), reply->content_type, reply->length,
        c->keep ? "keep-alive" : "close",
        reply->status == 405 ? "Allow: GET, HEAD\r\n" : "");
    VX_ASSERT(length > 0 && (size_t)length < sizeof c->head);
    size_t body_bytes = c->parser.head_only ? 0 : reply->length;
    uv_buf_t buffers[] = {uv_buf_init(c->head, (unsigned)length),
                          uv_buf_init(reply->body, (unsigned)body_bytes)};
    uv_read_stop((uv_stream_t *)&c->tcp);
    connection_enter(c, WRITING, c->http->timeouts.write_ms);
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, buffers, body_bytes ? 2 : 1,
                 connection_on_written))
        connection_close(c);
}

static struct vx_http_reply connection_reply(struct connection *c)
{
    return (struct vx_http_reply){.status = 200,
                                  .content_type = "text/plain; charset=utf-8",
                                  .body = c->body,
                                  .capacity = VX_HTTP_BODY_BYTES_MAX};
}

static void connection_reply_error(struct connection *c, i32 status, const char *why)
{
    struct vx_http_reply reply = connection_reply(c);
    reply.status = status;
    reply.length = (size_t)snprintf(reply.body, reply.capacity, "%s\n", why);
    c->keep = false;
    c->parser.head_only = false;
    connection_write(c, &reply);
}

static void connection_answer(struct connection *c)
{
    struct vx_http *http = c->http;
    struct vx_http_request request = {.path = c->parser.path, .query = c->parser.query};
    struct vx_http_reply reply = connection_reply(c);
    c->keep = c->parser.keep_alive;
    http->handler(http->context, &request, &reply);
    VX_ASSERT(reply.length <= reply.capacity);
    connection_write(c, &reply);
}

/* Feeds what was read to the parser, up to the end of one request. */
static void connection_step(struct connection *c)
{
    VX_ASSERT(c->state == IDLE || c->state == READING);
    size_t used = 0;
    enum vx_http_parsed parsed =
        vx_http_parse(&c->parser, c->in + c->in_used, c->in_length - c->in_used, &used);
    c->in_used += used;
    switch (parsed) {
    case VX_HTTP_REQUEST: connection_answer(c); break;
    case VX_HTTP_BAD: connection_reply_error(c, c->parser.status, c->parser.why); break;
    case VX_HTTP_MORE:
        if (c->state == IDLE) {
            connection_enter(c, READING, c->http->timeouts.request_ms);
            connection_read(c);
        }
        break;
    }
}

/* ------- coming in ------- */

static struct connection *http_find_free(struct vx_http *http)
{
    /* The lowest: its pages have been touched already. */
    for (size_t i = 0; i < VX_COUNT(http->connections); i++)
        if (http->connections[i].state == FREE) return &http->connections[i];
    return NULL;
}

static void http_evict_idle(struct vx_http *http)
{
    struct connection *oldest = NULL;
    u64 now = uv_now(http->loop);
    for (size_t i = 0; i < VX_COUNT(http->connections); i++) {
        struct connection *c = &http->connections[i];
        if (c->state == CLOSING) return; /* one is on its way out already */
        if (c->state != IDLE || c->since_ms + EVICT_AFTER_MS > now) continue;
        if (!oldest || c->since_ms < oldest->since_ms) oldest = c;
    }
    if (oldest) connection_close(oldest);
    http_arm(http); /* or look again when one has been idle for long enough */
}

static void http_accept(struct vx_http *http)
{
    struct connection *c = http_find_free(http);
    http->is_waiting = !c;
    if (!c) {
        http_evict_idle(http);
        return;
    }
    VX_ASSERT(!uv_tcp_init(http->loop, &c->tcp)); /* opens no descriptor yet */
    http->handles++;
    c->tcp.data = c->write.data = c->shutdown.data = c;
    c->in_used = c->in_length = 0;
    vx_http_parser_init(&c->parser);
    connection_enter(c, IDLE, http->timeouts.request_ms);
    if (uv_accept((uv_stream_t *)&http->listener, (uv_stream_t *)&c->tcp)) {
        connection_close(c);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    connection_read(c);
}

static void http_on_connection(uv_stream_t *listener, int status)
{
    if (status)
        return; /* the client left, or we are out of descriptors: the next one may do */
    http_accept(VX_CONTAINER(listener, struct vx_http, listener));
}

/* ------- open and close ------- */

/* Takes "HOST:PORT" or "[V6]:PORT" apart; *port points into `address`. */
static bool address_split(const char *address, char host[256], const char **port)
{
    const char *colon = strrchr(address, ':');
    if (!colon) return false;
    size_t length = (size_t)(colon - address);
    if (length > 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    } else if (strcspn(address, ":[]") < length) {
        return false; /* a V6 address without its brackets */
    }
    if (length == 0 || length > 255) return false;
    memcpy(host, address, length);
    host[length] = '\0';
    *port = colon + 1;
    size_t digits = strspn(*port, "0123456789");
    return digits > 0 && digits <= 5 && !(*port)[digits] &&
           strtol(*port, NULL, 10) <= 65535;
}

static vx_status address_parse(const char *address, struct vx_why *why,
                               struct sockaddr_storage *out)
{
    char host[256];
    const char *port;
    VX_ENSURE_WHY(
        address_split(address, host, &port), why, INVALID_ARGUMENT,
        "the admin address is not HOST:PORT",
        "http: expected HOST:PORT or [V6]:PORT with a port from 0 to 65535, got '%.100s'",
        address);
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE},
                    *found = NULL;
    int error = getaddrinfo(host, port, &wanted, &found);
    VX_ENSURE_WHY(!error, why, INVALID_ARGUMENT, "the admin address has an unknown host",
                  "http: expected a host of this machine, got '%.100s': %s", host,
                  gai_strerror(error));
    VX_ASSERT(found->ai_addrlen <= sizeof *out);
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return VX_OK;
}

static vx_status http_listen(struct vx_http *http, const char *address,
                             struct vx_why *why)
{
    struct sockaddr_storage socket_address = {0};
    VX_TRY(address_parse(address, why, &socket_address));
    int error = uv_tcp_bind(&http->listener, (const struct sockaddr *)&socket_address, 0);
    if (!error)
        error = uv_listen((uv_stream_t *)&http->listener, BACKLOG, http_on_connection);
    VX_ENSURE_WHY(!error, why, UNAVAILABLE, "the admin port cannot be opened",
                  "http: expected to listen on '%.100s', got: %s", address,
                  uv_strerror(error));
    return VX_OK;
}

vx_status vx_http_open(const struct vx_http_options *options, struct vx_why *why,
                       struct vx_http **out)
{
    VX_ON(LOOP);
    struct vx_http *http = vx_alloc_zero(sizeof *http);
    char *bodies = vx_alloc(VX_HTTP_CONNECTIONS_MAX * (size_t)VX_HTTP_BODY_BYTES_MAX);
    if (!http || !bodies) {
        vx_free(http);
        vx_free(bodies);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for the admin port");
    }
    *http = (struct vx_http){.magic = HTTP_MAGIC,
                             .loop = options->loop,
                             .handler = options->handler,
                             .context = options->context,
                             .timeouts = timeouts_default,
                             .bodies = bodies,
                             .handles = 2};
    for (size_t i = 0; i < VX_COUNT(http->connections); i++) {
        http->connections[i].http = http;
        http->connections[i].body = bodies + i * VX_HTTP_BODY_BYTES_MAX;
    }
    signal(SIGPIPE,
           SIG_IGN); /* libuv writes with write(2); a vanished reader must be an error */
    VX_ASSERT(!uv_tcp_init(options->loop, &http->listener));
    VX_ASSERT(!uv_timer_init(options->loop, &http->timer));
    vx_status st = http_listen(http, options->address, why);
    if (st.fault) vx_http_close(&http);
    *out = http;
    return st;
}

i32 vx_http_port(const struct vx_http *http)
{
    VX_ASSERT(http->magic == HTTP_MAGIC);
    struct sockaddr_storage address;
    int bytes = sizeof address;
    VX_ASSERT(!uv_tcp_getsockname(&http->listener, (struct sockaddr *)&address, &bytes));
    if (address.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)&address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
}

void vx_http_timeouts_set(struct vx_http *http, const struct vx_http_timeouts *timeouts)
{
    VX_ASSERT(http->magic == HTTP_MAGIC);
    http->timeouts = *timeouts;
}

static void http_on_listener_closed(uv_handle_t *handle)
{
    http_on_handle_closed(VX_CONTAINER(handle, struct vx_http, listener));
}

static void http_on_timer_closed(uv_handle_t *handle)
{
    http_on_handle_closed(VX_CONTAINER(handle, struct vx_http, timer));
}

void vx_http_close(struct vx_http **out)
{
    VX_ON(LOOP);
    struct vx_http *http = *out;
    *out = NULL;
    if (!http) return;
    VX_ASSERT(http->magic == HTTP_MAGIC);
    http->is_closing = true;
    for (size_t i = 0; i < VX_COUNT(http->connections); i++)
        if (http->connections[i].state != FREE) connection_close(&http->connections[i]);
    uv_close((uv_handle_t *)&http->listener, http_on_listener_closed);
    uv_close((uv_handle_t *)&http->timer, http_on_timer_closed);
}
