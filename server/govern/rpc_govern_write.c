/* rpc_govern_write - what gRPC writes to a connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/govern/rpc_govern_private.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GOAWAY 7 /* RFC 9113, 6.8 */
/* So many windows are opened at a time: each is a system call under the lock. */
#define WINDOWS_MOST 64

/* The session through which a descriptor is used now, counted as in use; NULL = none. */
static struct vx_rpc_govern *use_session(int fd, bool *over)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    if (govern && !govern->session) govern = NULL;
    if (govern) govern->users++;
    *over = vx_rpc_govern_was_secure(fd);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return govern;
}

static ssize_t write_plain(int fd, const struct msghdr *message, int flags)
{
    bool over;
    struct vx_rpc_govern *govern = use_session(fd, &over);
    if (over) errno = EPIPE; /* plain bytes must not follow those of TLS */
    if (over) return -1;
    if (!govern) return syscall(SYS_sendmsg, fd, message, flags);
    ssize_t sent = vx_tls_write(govern->session, message);
    int error = errno;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    govern->users--;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    errno = error;
    return sent;
}

/* ------- frames of ours ------- */

/* gRPC's SETTINGS come first, and no frame comes within another one, nor between the headers of a call
 * and their CONTINUATION, which ours never need: gRPC has sent all of its last write.  One that begins
 * now finds the lock. */
static bool may_insert(const struct vx_rpc_govern *govern)
{
    const struct vx_h2_sent *sent = &govern->meter.sent;
    return govern->sent && !govern->writing && !govern->windows.ahead && !sent->have &&
           !sent->left;
}

/* Returns how many bytes of it were sent: if not all, nothing may follow.  Negative: none, since its
 * client does not read. */
static ssize_t insert(struct vx_rpc_govern *govern, u8 *frame, size_t bytes)
{
    struct iovec piece = {frame, bytes};
    const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (!govern->session)
        return syscall(SYS_sendmsg, govern->place.descriptor, &message,
                       MSG_DONTWAIT | MSG_NOSIGNAL);
    /* A session may keep what it did not send, and says that it sent nothing. */
    if (vx_rpc_govern_is_blocked(govern)) return -1;
    const ssize_t sent = vx_tls_write(govern->session, &message);
    return sent < 0 ? 0 : sent;
}

void vx_rpc_govern_farewell(struct vx_rpc_govern *govern)
{
    const u32 last = govern->meter.last_id;
    u8 frame[VX_H2_HEAD_BYTES + 8] = {
        [2] = 8,          [3] = GOAWAY,    [9] = (u8)(last >> 24),
        (u8)(last >> 16), (u8)(last >> 8), (u8)last};
    if (may_insert(govern)) (void)insert(govern, frame, sizeof frame);
}

static struct vx_h2_stream *window_next(const struct vx_rpc_govern *govern)
{
    if (govern->cut || !may_insert(govern)) return NULL;
    return vx_h2_windows_next(&govern->meter, vx_rpc_govern_room_windows(govern));
}

void vx_rpc_govern_windows_open(struct vx_rpc_govern *govern)
{
    struct vx_h2_stream *next;
    u8 frame[VX_H2_UPDATE_BYTES];
    for (i32 i = 0; i < WINDOWS_MOST && (next = window_next(govern)); i++) {
        vx_h2_windows_frame(next, frame);
        const ssize_t sent = insert(govern, frame, sizeof frame);
        if (sent < 0) return; /* until gRPC has written, or a check */
        vx_h2_windows_opened(&govern->meter, next);
        if (sent < (ssize_t)sizeof frame) vx_rpc_govern_close(govern, VX_RPC_CUT_UNREAD);
    }
}

/* Tells the client that its connection's window is larger than gRPC has made it.  Not while a read goes on,
 * which has no bound yet. */
static void lend(struct vx_rpc_govern *govern)
{
    const u32 more = (u32)vx_rpc_govern_lend_due(govern);
    u8 frame[VX_H2_UPDATE_BYTES];
    if (govern->cut || govern->users || !may_insert(govern)) return;
    vx_h2_windows_frame(&(struct vx_h2_stream){.withheld = more}, frame);
    const ssize_t sent = insert(govern, frame, sizeof frame);
    if (sent < 0) return; /* behind gRPC's next write */
    vx_rpc_govern_lend(govern);
    if (sent < (ssize_t)sizeof frame) vx_rpc_govern_close(govern, VX_RPC_CUT_UNREAD);
}

/* ------- what gRPC writes ------- */

/* Accounts for what was written. */
static void account_write(struct vx_rpc_govern *govern, const struct msghdr *message,
                          size_t sent)
{
    struct vx_h2_meter before = govern->meter;
    govern->governor->sent += sent;
    govern->sent += sent;
    vx_h2_windows_sent(&govern->windows, sent);
    vx_rpc_govern_walk_sent(govern, message, sent);
    vx_rpc_govern_account_held(govern, &before);
    vx_rpc_govern_hidden_count(govern);
    vx_rpc_govern_wake_if_may(govern);
    vx_rpc_govern_lend_wake(govern);
}

static struct vx_rpc_govern *write_begin(int fd, const struct msghdr *message)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    if (govern) {
        govern->writing++;
        vx_h2_windows_hold(&govern->windows, &govern->meter, message->msg_iov,
                           message->msg_iovlen, vx_rpc_govern_room_windows(govern));
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return govern;
}

ssize_t vx_rpc_govern_write(int fd, const struct msghdr *message, int flags)
{
    const struct vx_rpc_govern *begun = write_begin(fd, message);
    ssize_t sent = write_plain(fd, message, flags);
    int error = errno;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    if (govern && govern == begun) {
        if (sent > 0) account_write(govern, message, (size_t)sent);
        govern->writing--;
        vx_rpc_govern_judge_window(govern);
        if (govern->meter.withheld) vx_rpc_govern_windows_open(govern);
        if (vx_rpc_govern_lend_due(govern)) lend(govern);
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    errno = error;
    return sent;
}

void vx_rpc_govern_bye(int fd)
{
    bool over;
    struct vx_rpc_govern *govern = use_session(fd, &over);
    if (!govern) return;
    vx_tls_bye(govern->session);
    pthread_mutex_lock(&vx_rpc_govern_lock);
    govern->users--;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}
