/* rpc_govern_notify - makes gRPC read a connection whose socket has nothing.
 *
 * gRPC reads when epoll reports that a socket has something.  With TLS the last bytes of
 * a read may wait in OpenSSL while the socket is empty, and no call on the socket makes
 * epoll report it.  So gRPC's epoll set has one more descriptor, our notifier.  When it rings,
 * epoll_wait (rpc_intercept.c) returns to gRPC what it would return if those sockets had
 * something.  So does a connection that is to give back what gRPC's buffers keep.  gRPC
 * expects such events to be late or needless: it reads, and finds what
 * is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/check.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* For all governors of the process, and never closed, as by_descriptor is; under the lock. */
static int notifier = -1;
static struct vx_rpc_govern *notified;

vx_status vx_rpc_govern_notify_open(void)
{
    if (notifier < 0) notifier = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    VX_ENSURE(notifier >= 0, RESOURCE_EXHAUSTED, "no file descriptor left to wake gRPC");
    return VX_OK;
}

void vx_rpc_govern_notify_join(int epoll)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &notifier};
    syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, notifier, &event); /* it may be there */
}

void vx_rpc_govern_notify(struct vx_rpc_govern *govern)
{
    if (govern->notified || govern->epoll < 0) return;
    govern->notified = true;
    govern->notified_next = notified;
    notified = govern;
    VX_ASSERT(write(notifier, &(u64){1}, sizeof(u64)) == sizeof(u64));
}

void vx_rpc_govern_notify_drop(struct vx_rpc_govern *govern)
{
    struct vx_rpc_govern **at = &notified;
    if (!govern->notified) return;
    while (*at != govern) at = &(*at)->notified_next;
    *at = govern->notified_next;
    govern->notified = false;
}

/* Takes those that are notified, as far as there is room. */
static int answer(struct epoll_event *events, int count, int most)
{
    u64 rings = 0;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    while (notified && count < most) {
        struct vx_rpc_govern *one = notified;
        vx_rpc_govern_notify_drop(one);
        events[count++] = (struct epoll_event){EPOLLIN, one->event.data};
    }
    ssize_t got =
        notified ? 0 : read(notifier, &rings, sizeof rings); /* silent from now on */
    (void)got;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return count;
}

int vx_rpc_govern_polled(struct epoll_event *events, int count, int most)
{
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr == &notifier) {
            events[i] = events[count - 1];
            return answer(events, count - 1, most);
        }
    return count;
}
