/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

#include <sys/socket.h>

/* A client that has read our farewell (GOAWAY) closes at once.  One that does not, or whose
 * network takes longer, loses what it has not read by then. */
#define LEAVE_NS (2 * VX_NS_PER_S)

void vx_rpc_governor_stop(struct vx_rpc_governor *governor)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    governor->stopping = true;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

i32 vx_rpc_governor_leaving(struct vx_rpc_governor *governor)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    i32 leaving = governor->leaving;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return leaving;
}

void vx_rpc_governor_end(struct vx_rpc_governor *governor)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    for (struct vx_rpc_govern *one = governor->live; one; one = one->next)
        if (!one->leaving_ns) vx_rpc_govern_close(one, VX_RPC_CUT_UNREAD);
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

i64 vx_rpc_govern_leaving_ns(struct vx_rpc_govern *govern)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    i64 leaving_ns = govern->leaving_ns ? govern->leaving_ns : VX_NEVER;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return leaving_ns;
}

/* A frame that comes after SHUT_RDWR resets the connection, and the system throws away what
 * it has not sent; after SHUT_WR it does not. */
int vx_rpc_govern_leave(int fd, int how)
{
    vx_rpc_govern_bye(fd);
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_at(fd);
    bool leaves = govern && govern->governor->stopping && !govern->cut;
    if (leaves && !govern->leaving_ns) {
        govern->leaving_ns = vx_clock_ns() + LEAVE_NS;
        govern->governor->leaving++;
        govern->governor->wakeup(govern->governor->context);
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return leaves ? SHUT_WR : how;
}
