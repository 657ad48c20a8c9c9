/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/http/http_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "server/base/timer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Per iteration of the loop: a page may take a millisecond, and inferences wait. */
#define EVENTS_PER_TURN 8
/* To accept one, or to make room for it: either may answer a request. */
#define TRIES_PER_TURN 8
/* A connection whose state changed less than this ago is not replaced: its request may be
 * on its way.  So when all are taken, at most connections_max new ones are accepted in
 * this time; the others wait in the kernel. */
#define EVICT_AFTER_MS 10
/* How often deadlines are checked. */
#define SWEEP_MS 50
/* How long none is accepted when the kernel had no descriptor or memory for one. */
#define PAUSE_MS   100
#define HTTP_MAGIC 0x76784854u /* "vxHT" */

static const struct vx_http_timeouts timeouts_default = {75000, 10000, 30000, 2000};

static void http_on_sweep(uv_timer_t *timer);

/* ------- the list, oldest first ------- */

static void line_leave(struct http_connection *c)
{
    struct vx_http *http = c->http;
    *(c->previous ? &c->previous->next : &http->oldest) = c->next;
    *(c->next ? &c->next->previous : &http->newest) = c->previous;
}

static void line_join(struct http_connection *c)
{
    struct vx_http *http = c->http;
    c->next = NULL;
    c->previous = http->newest;
    *(c->previous ? &c->previous->next : &http->oldest) = c;
    http->newest = c;
}

void http_enter(struct http_connection *c, enum http_state state, i64 limit_ms)
{
    VX_ASSERT(state != HTTP_FREE);
    c->state = state;
    c->since_ms = uv_now(c->http->loop);
    c->deadline_ms = c->since_ms + (u64)limit_ms;
    line_leave(c);
    line_join(c);
}

/* ------- connections by address ------- */

/* An IPv4 address or an IPv6 network of 64 bits.  No such network begins with 32 zero bits,
 * so those keys are for IPv4, and one of them for ::1 and its like. */
u64 http_source_key(const struct sockaddr_storage *from)
{
    u64 key = 0;
    if (from->ss_family == AF_INET)
        return (u64)((const struct sockaddr_in *)(const void *)from)->sin_addr.s_addr
               << 32;
    if (from->ss_family != AF_INET6) return 0;
    const struct in6_addr *six =
        &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(six)) {
        memcpy((u8 *)&key + 4, six->s6_addr + 12, 4);
    } else {
        memcpy(&key, six->s6_addr, sizeof key);
        if (!(u32)key) key = UINT64_MAX;
    }
    return key;
}

static i32 source_take(struct vx_http *http, u64 key)
{
    i32 unused = -1;
    for (i32 i = 0; i < http->connections_max; i++) {
        if (http->sources[i].count && http->sources[i].key == key) {
            http->sources[i].count++;
            return i;
        }
        if (unused < 0 && !http->sources[i].count) unused = i;
    }
    VX_ASSERT(unused >= 0); /* there are as many as connections */
    http->sources[unused] = (struct http_source){key, 1};
    return unused;
}

/* ------- rows ------- */

static struct http_connection *row_take(struct vx_http *http)
{
    struct http_connection *c = http->free;
    if (c)
        http->free = c->next;
    else /* the next that was never used: its pages are touched now */
        c = &http->connections[http->fresh++];
    c->http = http;
    if (!http->connections_count++) vx_timer_every(&http->sweep, http_on_sweep, SWEEP_MS);
    return c;
}

void http_drop(struct http_connection *c)
{
    struct vx_http *http = c->http;
    VX_ASSERT(c->state != HTTP_FREE);
    http_page_give(c);
    line_leave(c);
    close(c->fd); /* this also removes it from the epoll set */
    http->sources[c->source].count--;
    c->state = HTTP_FREE;
    c->next = http->free;
    http->free = c;
    if (!--http->connections_count && !http->is_closing) vx_timer_stop(&http->sweep);
}

void http_hear(struct http_connection *c, u32 events)
{
    if (c->hears == events) return;
    struct epoll_event event = {.events = events, .data.ptr = c};
    c->hears = events;
    VX_ASSERT(!epoll_ctl(c->http->epoll, EPOLL_CTL_MOD, c->fd, &event));
}

/* ------- making room ------- */

/* The oldest connection of the address that has the most: a flood harms its own address
 * only.  With has_page, the oldest that has a page, if possible of that address. */
static struct http_connection *http_find_victim(struct vx_http *http, bool has_page)
{
    i32 most = 0;
    for (i32 i = 0; i < http->connections_max; i++)
        if (http->sources[i].count > most) most = http->sources[i].count;
    struct http_connection *other = NULL;
    for (struct http_connection *c = http->oldest; c; c = c->next) {
        if (has_page && !c->page) continue;
        if (http->sources[c->source].count == most) return c;
        if (!other) other = c;
    }
    return other;
}

/* Its request may lie unread in the kernel: if this changes its state, it stays, but only
 * once.  512 connections with 40 requests each stayed until all of these were answered. */
static void http_evict(struct http_connection *c)
{
    u64 since_ms = c->since_ms;
    if (!c->spared && c->state != HTTP_LINGERING) http_connection_go_on(c);
    c->spared = true;
    if (c->state != HTTP_FREE && c->since_ms == since_ms) http_drop(c);
}

/* ------- pages ------- */

char *http_page(struct vx_http *http)
{
    return http->page;
}

void http_page_keep(struct http_connection *c)
{
    struct vx_http *http = c->http;
    VX_ASSERT(!c->page);
    if (!http->pages_free_count) http_drop(http_find_victim(http, true));
    c->page = http->page;
    http->page = http->pages_free[--http->pages_free_count];
}

void http_page_give(struct http_connection *c)
{
    if (!c->page) return;
    c->http->pages_free[c->http->pages_free_count++] = c->page;
    c->page = NULL;
}

/* ------- coming in ------- */

static void http_hear_listener(struct vx_http *http, u32 events)
{
    struct epoll_event event = {.events = events, .data.ptr = NULL};
    VX_ASSERT(!epoll_ctl(http->epoll, EPOLL_CTL_MOD, http->listener, &event));
}

static void http_on_pause_over(uv_timer_t *timer)
{
    http_hear_listener(VX_CONTAINER(timer, struct vx_http, pause), EPOLLIN);
}

/* New connections wait in the kernel meanwhile, and do not wake the loop. */
static void http_pause(struct vx_http *http, i64 pause_ms)
{
    http_hear_listener(http, 0);
    vx_timer_once(&http->pause, http_on_pause_over, pause_ms);
}

static void http_begin(struct vx_http *http, int fd, const struct sockaddr_storage *from)
{
    struct http_connection *c = row_take(http);
    int yes = 1;
    c->fd = fd;
    c->state = HTTP_IDLE;
    c->since_ms = uv_now(http->loop);
    c->deadline_ms = c->since_ms + (u64)http->timeouts.request_ms;
    c->hears = EPOLLIN;
    c->in_used = c->in_length = 0;
    c->page = NULL;
    c->spared = false;
    c->source = source_take(http, http_source_key(from));
    vx_http_parser_init(&c->parser);
    line_join(c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    bool good = !setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) &&
                !epoll_ctl(http->epoll, EPOLL_CTL_ADD, fd, &event);
    if (!good)
        http_drop(c);
    else /* a probe has sent its request by now: answer it at once */
        http_connection_go_on(c);
}

/* True if a new connection waits to be accepted: only then is another dropped for it. */
static bool http_has_newcomer(const struct vx_http *http)
{
    struct pollfd poll_for = {.fd = http->listener, .events = POLLIN};
    return poll(&poll_for, 1, 0) > 0;
}

/* Drops one connection, unless its request has come; false: the one to go is too young. */
static bool http_make_room(struct vx_http *http)
{
    struct http_connection *c = http_find_victim(http, false);
    if (c->since_ms + EVICT_AFTER_MS > uv_now(http->loop)) return false;
    http_evict(c);
    return true;
}

/* False: stop accepting for now. */
static bool http_accept(struct vx_http *http)
{
    if (http->connections_count == http->connections_max) {
        if (!http_has_newcomer(http)) return false;
        if (http_make_room(http)) return true; /* it is tried again */
        http_pause(http, 1);
        return false;
    }
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof from;
    int fd = accept4(http->listener, (struct sockaddr *)&from, &bytes,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        http_begin(http, fd, &from);
        return true;
    }
    if (errno == EAGAIN) return false;
    /* These errors are about one client that has left: try the next. */
    if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO || errno == EPERM)
        return true;
    http_pause(http, PAUSE_MS);
    return false;
}

static void http_on_events(uv_poll_t *poll, int status, int events)
{
    (void)status; /* a set has no errors */
    (void)events;
    struct vx_http *http = VX_CONTAINER(poll, struct vx_http, poll);
    struct epoll_event heard[EVENTS_PER_TURN];
    int count = epoll_wait(http->epoll, heard, EVENTS_PER_TURN, 0);
    bool comes = false;
    for (int i = 0; i < count; i++) {
        struct http_connection *c = heard[i].data.ptr;
        if (!c)
            comes = true; /* accept last: it may drop a connection that is in `heard` */
        else if (c->state != HTTP_FREE) /* an earlier event may have dropped it */
            http_connection_go_on(c);
    }
    for (int i = 0; comes && i < TRIES_PER_TURN; i++)
        if (!http_accept(http)) break;
}

/* ------- time ------- */

static void http_on_sweep(uv_timer_t *timer)
{
    struct vx_http *http = VX_CONTAINER(timer, struct vx_http, sweep);
    u64 now = uv_now(http->loop);
    for (struct http_connection *next, *c = http->oldest; c; c = next) {
        next = c->next;
        if (c->deadline_ms > now) continue;
        if (c->state == HTTP_READING)
            http_connection_refuse(c, 408, "the request was not complete in time");
        else
            http_drop(c);
    }
}

/* ------- open and close ------- */

static void http_free(struct vx_http *http)
{
    if (http->listener >= 0) close(http->listener);
    if (http->epoll >= 0) close(http->epoll);
    http->magic = 0;
    vx_free(http->connections);
    vx_free(http->sources);
    vx_free(http->pages);
    vx_free(http);
}

static vx_status http_open_memory(struct vx_http *http)
{
    size_t count = (size_t)http->connections_max;
    http->connections = vx_alloc_zero(count * sizeof *http->connections);
    http->sources = vx_alloc_zero(count * sizeof *http->sources);
    http->pages = vx_alloc((VX_HTTP_PAGES_MAX + 1) * (size_t)VX_HTTP_BODY_BYTES_MAX);
    VX_ENSURE(http->connections && http->sources && http->pages, RESOURCE_EXHAUSTED,
              "no memory for the admin port");
    http->page = http->pages;
    http->pages_free_count = VX_HTTP_PAGES_MAX;
    for (size_t i = 0; i < VX_HTTP_PAGES_MAX; i++) /* the first is taken first */
        http->pages_free[i] =
            http->pages + (VX_HTTP_PAGES_MAX - i) * (size_t)VX_HTTP_BODY_BYTES_MAX;
    return VX_OK;
}

static struct sockaddr_storage bound(const struct vx_http *http)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    VX_ASSERT(!getsockname(http->listener, (struct sockaddr *)&address, &bytes));
    return address;
}

static vx_status http_open_sockets(struct vx_http *http, const char *address,
                                   struct vx_why *why)
{
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    VX_ENSURE(http->epoll >= 0, RESOURCE_EXHAUSTED,
              "no descriptor left for the admin port");
    VX_TRY(http_listen(address, why, &http->listener));
    struct sockaddr_storage at = bound(http);
    http->local = vx_http_host_is_loopback(&at);
    http_listen_host(address, http->own);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    VX_ENSURE(!epoll_ctl(http->epoll, EPOLL_CTL_ADD, http->listener, &event),
              RESOURCE_EXHAUSTED, "no memory in the kernel for the admin port");
    return VX_OK;
}

vx_status vx_http_open(const struct vx_http_options *options, struct vx_why *why,
                       struct vx_http **out)
{
    VX_ON(LOOP);
    *out = NULL;
    struct vx_http *http = vx_alloc_zero(sizeof *http);
    VX_ENSURE(http, RESOURCE_EXHAUSTED, "no memory for the admin port");
    *http = (struct vx_http){.magic = HTTP_MAGIC,
                             .loop = options->loop,
                             .handler = options->handler,
                             .context = options->context,
                             .timeouts = timeouts_default,
                             .listener = -1,
                             .epoll = -1,
                             .connections_max = options->connections_max
                                                    ? options->connections_max
                                                    : VX_HTTP_CONNECTIONS_MAX};
    vx_status st = http_open_memory(http);
    if (!st.fault) st = http_open_sockets(http, options->address, why);
    if (st.fault) {
        http_free(http);
        return st;
    }
    VX_ASSERT(!uv_timer_init(http->loop, &http->sweep));
    VX_ASSERT(!uv_timer_init(http->loop, &http->pause));
    VX_ASSERT(!uv_poll_init(http->loop, &http->poll, http->epoll));
    VX_ASSERT(!uv_poll_start(&http->poll, UV_READABLE, http_on_events));
    http->handles = 3;
    *out = http;
    return VX_OK;
}

i32 vx_http_port(const struct vx_http *http)
{
    VX_ASSERT(http->magic == HTTP_MAGIC);
    struct sockaddr_storage address = bound(http);
    if (address.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)&address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
}

void vx_http_timeouts_set(struct vx_http *http, const struct vx_http_timeouts *timeouts)
{
    VX_ASSERT(http->magic == HTTP_MAGIC);
    http->timeouts = *timeouts;
}

static void http_on_handle_closed(uv_handle_t *handle)
{
    struct vx_http *http = handle->data;
    VX_ASSERT(http->handles > 0);
    if (!--http->handles) http_free(http);
}

void vx_http_close(struct vx_http **out)
{
    VX_ON(LOOP);
    struct vx_http *http = *out;
    *out = NULL;
    if (!http) return;
    VX_ASSERT(http->magic == HTTP_MAGIC);
    http->is_closing = true;
    while (http->oldest) http_drop(http->oldest);
    uv_handle_t *const handles[] = {(uv_handle_t *)&http->poll,
                                    (uv_handle_t *)&http->sweep,
                                    (uv_handle_t *)&http->pause};
    for (size_t i = 0; i < VX_COUNT(handles); i++) {
        handles[i]->data = http;
        uv_close(handles[i], http_on_handle_closed);
    }
}
