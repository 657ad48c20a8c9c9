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

/* Accounts for what was written. */
static void account_write(struct vx_rpc_govern *govern, const struct msghdr *message,
                          size_t sent)
{
    struct vx_h2_meter before = govern->meter;
    govern->governor->sent += sent;
    govern->sent += sent;
    vx_rpc_govern_walk_sent(govern, message, sent);
    vx_rpc_govern_account_held(govern, &before);
    vx_rpc_govern_hidden_count(govern);
    vx_rpc_govern_wake_if_may(govern);
}

static struct vx_rpc_govern *write_begin(int fd)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    if (govern) govern->writing++;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return govern;
}

ssize_t vx_rpc_govern_write(int fd, const struct msghdr *message, int flags)
{
    const struct vx_rpc_govern *begun = write_begin(fd);
    ssize_t sent = write_plain(fd, message, flags);
    int error = errno;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    if (govern) {
        if (sent > 0) account_write(govern, message, (size_t)sent);
        govern->writing -= govern == begun;
        vx_rpc_govern_judge_window(govern);
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    errno = error;
    return sent;
}

/* gRPC's SETTINGS come first, and no frame comes within another one.  A write that begins now finds
 * the lock. */
void vx_rpc_govern_farewell(struct vx_rpc_govern *govern)
{
    const struct vx_h2_sent *sent = &govern->meter.sent;
    const u32 last = govern->meter.last_id;
    u8 frame[VX_H2_HEAD_BYTES + 8] = {
        [2] = 8,          [3] = GOAWAY,    [9] = (u8)(last >> 24),
        (u8)(last >> 16), (u8)(last >> 8), (u8)last};
    struct iovec piece = {frame, sizeof frame};
    const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (!govern->sent || govern->writing || sent->have || sent->left) return;
    if (govern->session)
        (void)vx_tls_write(govern->session, &message);
    else
        (void)syscall(SYS_sendmsg, govern->place.descriptor, &message,
                      MSG_DONTWAIT | MSG_NOSIGNAL);
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
