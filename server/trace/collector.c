/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace/collector.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAD_BYTES (VX_ENDPOINT_PATH_BYTES + VX_ENDPOINT_HOST_BYTES + 256)
#define READ_BYTES 4096

void vx_collector_open(struct vx_collector *collector, const struct vx_endpoint *endpoint,
                       int stop_fd, _Atomic i64 *stop_ns)
{
    *collector = (struct vx_collector){
        .endpoint = endpoint, .fd = -1, .stop_fd = stop_fd, .stop_ns = stop_ns};
}

void vx_collector_close(struct vx_collector *collector)
{
    if (collector->fd >= 0) close(collector->fd);
    collector->fd = -1;
}

/* ------- waiting ------- */

enum waited { WAITED_READY, WAITED_LATE, WAITED_STOPPED };

/* Waits until the connection is ready for `events`, which it gets in *got.  STOPPED: the
 * process stops, and its own deadline has passed. */
static enum waited collector_wait(const struct vx_collector *collector, short events,
                                  i64 deadline_ns, short *got)
{
    for (;;) {
        i64 stop_ns = atomic_load_explicit(collector->stop_ns, memory_order_acquire);
        i64 now_ns = vx_clock_ns(),
            end_ns = stop_ns < deadline_ns ? stop_ns : deadline_ns;
        if (now_ns >= end_ns) return end_ns == stop_ns ? WAITED_STOPPED : WAITED_LATE;
        struct pollfd fds[] = {
            {.fd = collector->fd, .events = events},
            /* Once it is readable it stays so; then stop_ns has the time to wait. */
            {.fd = stop_ns == VX_NEVER ? collector->stop_fd : -1, .events = POLLIN}};
        i64 wait_ms = (end_ns - now_ns + VX_NS_PER_MS - 1) / VX_NS_PER_MS;
        if (poll(fds, VX_COUNT(fds), wait_ms < INT32_MAX ? (int)wait_ms : -1) <= 0)
            continue;
        if (!fds[0].revents) continue;
        *got = fds[0].revents;
        return WAITED_READY;
    }
}

static const char *waited_text(enum waited waited)
{
    return waited == WAITED_STOPPED ? "voxeld stopped before it answered"
                                    : "it did not answer in time";
}

static bool collector_fail(struct vx_collector *collector, const char *step,
                           const char *text)
{
    vx_why_set(&collector->why, "%s %s: %s", step, collector->endpoint->authority, text);
    return false;
}

/* ------- connecting ------- */

static bool connect_one(struct vx_collector *collector, const struct addrinfo *address,
                        i64 deadline_ns)
{
    collector->fd =
        socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (collector->fd < 0) return collector_fail(collector, "socket", strerror(errno));
    int error = 0, on = 1;
    socklen_t length = sizeof error;
    (void)setsockopt(collector->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(collector->fd, address->ai_addr, address->ai_addrlen) < 0) error = errno;
    if (error == EINPROGRESS) {
        short got;
        enum waited waited = collector_wait(collector, POLLOUT, deadline_ns, &got);
        if (waited != WAITED_READY) {
            vx_collector_close(collector);
            return collector_fail(collector, "connect to", waited_text(waited));
        }
        if (getsockopt(collector->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
            error = errno;
    }
    if (!error) return true;
    vx_collector_close(collector);
    return collector_fail(collector, "connect to", strerror(error));
}

/* Tries all addresses of the name, each for its part of the time that is left, so that one
 * that swallows everything does not hide the next. */
static bool collector_connect(struct vx_collector *collector, i64 deadline_ns)
{
    const struct vx_endpoint *endpoint = collector->endpoint;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list;
    int error = getaddrinfo(endpoint->host, endpoint->port, &hints, &list);
    if (error) return collector_fail(collector, "look up", gai_strerror(error));
    i64 count = 0;
    for (struct addrinfo *one = list; one; one = one->ai_next) count++;
    bool connected = false;
    for (struct addrinfo *one = list; one && !connected; one = one->ai_next, count--) {
        i64 now_ns = vx_clock_ns();
        connected = connect_one(collector, one, now_ns + (deadline_ns - now_ns) / count);
    }
    freeaddrinfo(list);
    return connected;
}

/* ------- one exchange ------- */

struct exchange {
    char head[HEAD_BYTES];
    struct iovec parts[2]; /* what is still to be sent: head, body */
    bool heard;            /* a byte of the answer has come */
    bool reset;            /* the connection broke, or was closed */
};

static void exchange_init(struct exchange *exchange, const struct vx_endpoint *endpoint,
                          const u8 *body, size_t bytes)
{
    int length = snprintf(exchange->head, sizeof exchange->head,
                          "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: voxeld/%s\r\n"
                          "Content-Type: application/x-protobuf\r\n"
                          "Content-Length: %zu\r\n\r\n",
                          endpoint->path, endpoint->authority, VX_VERSION, bytes);
    VX_ASSERT(length > 0);
    VX_ASSERT((size_t)length < sizeof exchange->head);
    exchange->parts[0] = (struct iovec){exchange->head, (size_t)length};
    exchange->parts[1] = (struct iovec){(void *)(uintptr_t)body, bytes};
    exchange->heard = exchange->reset = false;
}

static bool exchange_sends(const struct exchange *exchange)
{
    return !exchange->reset &&
           exchange->parts[0].iov_len + exchange->parts[1].iov_len > 0;
}

static void exchange_send(struct exchange *exchange, int fd)
{
    struct msghdr message = {.msg_iov = exchange->parts,
                             .msg_iovlen = VX_COUNT(exchange->parts)};
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0) {
        /* What it answered before it closed may still be read. */
        exchange->reset = errno != EAGAIN && errno != EINTR;
        return;
    }
    for (size_t i = 0; i < VX_COUNT(exchange->parts); i++) {
        struct iovec *part = &exchange->parts[i];
        size_t now = (size_t)sent < part->iov_len ? (size_t)sent : part->iov_len;
        part->iov_base = (char *)part->iov_base + now;
        part->iov_len -= now;
        sent -= (ssize_t)now;
    }
}

static enum vx_answered exchange_read(struct exchange *exchange,
                                      struct vx_collector *collector)
{
    char bytes[READ_BYTES];
    ssize_t got = read(collector->fd, bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return VX_ANSWER_MORE;
    if (got <= 0) {
        exchange->reset = true;
        return vx_answer_end(&collector->answer);
    }
    exchange->heard = true;
    return vx_answer_feed(&collector->answer, bytes, (size_t)got);
}

/* Sends and reads at once: a collector may refuse a body before it has all of it.  True
 * when the answer is whole. */
static bool exchange_run(struct exchange *exchange, struct vx_collector *collector,
                         i64 deadline_ns)
{
    vx_answer_init(&collector->answer);
    enum vx_answered answered = VX_ANSWER_MORE;
    while (answered == VX_ANSWER_MORE) {
        short events = POLLIN, got = 0;
        if (exchange_sends(exchange)) events |= POLLOUT;
        enum waited waited = collector_wait(collector, events, deadline_ns, &got);
        if (waited != WAITED_READY)
            return collector_fail(collector, "post to", waited_text(waited));
        if (got & POLLOUT) exchange_send(exchange, collector->fd);
        if (got & (POLLIN | POLLERR | POLLHUP))
            answered = exchange_read(exchange, collector);
    }
    if (answered == VX_ANSWER_DONE) return true;
    return collector_fail(collector, "post to", collector->answer.why);
}

static enum vx_posted posted_of(i32 status)
{
    if (status >= 200 && status < 300) return VX_POSTED_TAKEN;
    bool later = status == 429 || status == 502 || status == 503 || status == 504;
    return later ? VX_POSTED_LATER : VX_POSTED_REFUSED;
}

enum vx_posted vx_collector_post(struct vx_collector *collector, const u8 *body,
                                 size_t bytes, i64 deadline_ns)
{
    struct exchange exchange;
    for (;;) {
        bool reused = collector->fd >= 0;
        if (!reused && !collector_connect(collector, deadline_ns))
            return VX_POSTED_FAILED;
        exchange_init(&exchange, collector->endpoint, body, bytes);
        bool whole = exchange_run(&exchange, collector, deadline_ns);
        if (!whole || !collector->answer.keep_alive || exchange_sends(&exchange))
            vx_collector_close(collector);
        if (whole) break;
        bool stale = reused && exchange.reset && !exchange.heard;
        if (!stale) return VX_POSTED_FAILED;
    }
    enum vx_posted posted = posted_of(collector->answer.status);
    if (posted != VX_POSTED_TAKEN)
        vx_why_set(&collector->why, "%s answered %d", collector->endpoint->authority,
                   collector->answer.status);
    return posted;
}
