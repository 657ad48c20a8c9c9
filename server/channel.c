/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/channel.h"

#include "engine/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

/* Room for every message that can be under way: VX_WORKER_DEPTH runs and one load per
 * instance, 64 x 4 KiB and some; the kernel doubles it for its own accounting. */
#define SOCKET_BUFFER_BYTES (1 << 20)

vx_status vx_channel_pair(int fds[2])
{
    VX_ENSURE(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds),
              RESOURCE_EXHAUSTED, "no socket pair for another worker");
    int bytes = SOCKET_BUFFER_BYTES;
    for (int i = 0; i < 2; i++) {
        /* Best effort: the system's maximum may be lower, and its default holds the usual
         * case. */
        if (setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes)) continue;
    }
    VX_ASSERT(!fcntl(fds[0], F_SETFL, O_NONBLOCK));
    return VX_OK;
}

vx_status vx_channel_send(int fd, const struct vx_message_head *message, size_t bytes)
{
    VX_ASSERT(bytes >= sizeof *message && bytes <= VX_MESSAGE_BYTES);
    ssize_t sent;
    do sent = send(fd, message, bytes, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    VX_ENSURE(sent == (ssize_t)bytes, UNAVAILABLE,
              "the other end of the channel does not read");
    return VX_OK;
}

static size_t message_bytes_min(i32 kind)
{
    switch (kind) {
    case VX_MESSAGE_LOAD: return sizeof(struct vx_message_load);
    case VX_MESSAGE_RUN: return vx_message_run_bytes(1);
    case VX_MESSAGE_DONE: return vx_message_done_bytes(1);
    case VX_MESSAGE_UP:
    case VX_MESSAGE_STATED: return sizeof(struct vx_message_up);
    case VX_MESSAGE_PROGRESS: return sizeof(struct vx_message_progress);
    case VX_MESSAGE_LOADED: return sizeof(struct vx_message_loaded);
    case VX_MESSAGE_ENDS: return sizeof(struct vx_message_ends);
    default: return sizeof(struct vx_message_head);
    }
}

vx_status vx_channel_receive(int fd, union vx_message *message, size_t *bytes)
{
    *bytes = 0;
    ssize_t got;
    /* A peer that died with messages unread resets the socket once; what it said comes after. */
    bool was_reset = false, again;
    do {
        got = recv(fd, message, sizeof *message, 0);
        again = got < 0 && (errno == EINTR || (errno == ECONNRESET && !was_reset));
        was_reset = again && errno == ECONNRESET;
    } while (again);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return VX_OK;
    VX_ENSURE(got > 0, UNAVAILABLE, "the other end of the channel is closed");
    VX_ENSURE((size_t)got >= sizeof message->head &&
                  (size_t)got >= message_bytes_min(message->head.kind),
              INTERNAL, "a channel message is shorter than its kind");
    *bytes = (size_t)got;
    return VX_OK;
}
