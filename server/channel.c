/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/channel.h"

#include "engine/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
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

/* The k-th sentence of a DONE, behind its last item. */
static struct vx_why *done_why_at(const struct vx_message_done *done, i32 k)
{
    const u8 *whys = (const u8 *)done + offsetof(struct vx_message_done, items) +
                     (size_t)done->items_count * sizeof(struct vx_done_item);
    return (struct vx_why *)(uintptr_t)(whys + (size_t)k * sizeof(struct vx_why));
}

size_t vx_message_done_bytes(const struct vx_message_done *done)
{
    return (size_t)((const u8 *)done_why_at(done, done->whys_count) - (const u8 *)done);
}

void vx_done_add_why(struct vx_message_done *done, i32 item, const char *text)
{
    VX_ASSERT(item >= 0 && item < done->items_count);
    VX_ASSERT(done->whys_count < done->items_count);
    done->items[item].why = done->whys_count;
    vx_why_set(done_why_at(done, done->whys_count++), "%s", text);
}

const struct vx_why *vx_done_why(const struct vx_message_done *done, i32 item)
{
    static const struct vx_why none = {""};
    VX_ASSERT(item >= 0 && item < done->items_count);
    i32 why = done->items[item].why;
    return why < 0 ? &none : done_why_at(done, why);
}

static bool done_is_whole(const struct vx_message_done *done, size_t bytes)
{
    if (bytes < offsetof(struct vx_message_done, items)) return false;
    if (done->items_count < 1 || done->items_count > VX_BATCH_ITEMS_MAX) return false;
    if (done->whys_count < 0 || done->whys_count > done->items_count) return false;
    if (bytes != vx_message_done_bytes(done)) return false;
    for (i32 i = 0; i < done->items_count; i++)
        if (done->items[i].why < -1 || done->items[i].why >= done->whys_count)
            return false;
    for (i32 k = 0; k < done->whys_count; k++)
        if (!memchr(done_why_at(done, k)->text, 0, VX_WHY_BYTES)) return false;
    return true;
}

static bool run_is_whole(const struct vx_message_run *run, size_t bytes)
{
    return bytes >= offsetof(struct vx_message_run, items) && run->items_count >= 1 &&
           run->items_count <= VX_BATCH_ITEMS_MAX &&
           bytes == vx_message_run_bytes(run->items_count);
}

static bool message_is_whole(const union vx_message *message, size_t bytes)
{
    if (bytes < sizeof message->head) return false;
    switch ((enum vx_message_kind)message->head.kind) {
    case VX_MESSAGE_LOAD: return bytes == sizeof message->load;
    case VX_MESSAGE_RUN: return run_is_whole(&message->run, bytes);
    case VX_MESSAGE_DONE: return done_is_whole(&message->done, bytes);
    case VX_MESSAGE_UP:
    case VX_MESSAGE_STATED: return bytes == sizeof message->up;
    case VX_MESSAGE_PROGRESS: return bytes == sizeof message->progress;
    case VX_MESSAGE_LOADED: return bytes == sizeof message->loaded;
    case VX_MESSAGE_ENDS: return bytes == sizeof message->ends;
    case VX_MESSAGE_UNLOAD:
    case VX_MESSAGE_STATS: return bytes == sizeof message->head;
    }
    return false;
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
    VX_ENSURE(message_is_whole(message, (size_t)got), INTERNAL,
              "a channel message has not the size of its kind");
    *bytes = (size_t)got;
    return VX_OK;
}
