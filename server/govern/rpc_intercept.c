/* rpc_intercept - recvmsg, sendmsg, shutdown and epoll as gRPC's library finds them.
 *
 * gRPC 1.51 has no hook between a socket and its parser, and a second socket in between
 * would cost one more copy of each tensor.  A function that a program defines takes
 * precedence over the same function of a library, for all libraries that are linked with
 * the program.  So the functions below replace the C library's.  They make the same
 * system calls, and for the descriptors of governed connections they do a little more.
 * For all other callers, libuv for example, nothing changes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/govern/rpc_govern.h"

#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default)

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (vx_rpc_govern_may_have(fd) && !(flags & MSG_ERRQUEUE))
        return vx_rpc_govern_read(fd, message, flags);
    return syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (vx_rpc_govern_may_have(fd)) return vx_rpc_govern_write(fd, message, flags);
    return syscall(SYS_sendmsg, fd, message, flags);
}

int shutdown(int fd, int how)
{
    if (vx_rpc_govern_may_have(fd)) how = vx_rpc_govern_leave(fd, how);
    return (int)syscall(SYS_shutdown, fd, how);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms)
{
    int count =
        (int)syscall(SYS_epoll_pwait, epoll, events, most, timeout_ms, NULL, (size_t)0);
    return vx_rpc_govern_polled(events, count, most);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    int result = (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
    if (!result && operation == EPOLL_CTL_ADD && vx_rpc_govern_may_have(fd))
        vx_rpc_govern_watched(epoll, fd, event);
    return result;
}

#pragma GCC visibility pop
