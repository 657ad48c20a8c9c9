/* handed - listening sockets that a service manager opened: systemd's socket activation.
 *
 * An address "systemd:NAME" stands for the sockets with FileDescriptorName=NAME.  They stay
 * open in the manager while this process ends and the next one starts, so clients that
 * connect meanwhile wait and are not refused.  Therefore nobody may shut such a socket
 * down, and closing it does not take it out of an epoll set: do that first.
 *
 *   if (vx_handed_is(address)) VX_TRY(vx_handed_take(address, 0, why, &fd));
 *
 * Owner    the caller closes what it took.
 * Thread   main or the loop's, before others start: it reads the environment.
 * Fails    INVALID_ARGUMENT: the manager handed over no such socket, or one that does not
 *          listen.
 * Source   sd_listen_fds(3): LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES, descriptors from 3.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HANDED_H
#define VX_SERVER_HANDED_H

#include "engine/base/status.h"

/* Whether the address is "systemd:" and a name. */
bool vx_handed_is(const char *address);

/* How many sockets have the address's name; 0 if this process was handed none. */
i32 vx_handed_count(const char *address);

/* Where the name's first socket listens, "HOST:PORT" or "unix:PATH"; the address itself if
 * it has none. */
void vx_handed_where(const char *address, char *text, size_t bytes);

/* The index'th socket of the name, non-blocking and closed on exec. */
VX_MUST_USE vx_status vx_handed_take(const char *address, i32 index, struct vx_why *why,
                                     int *fd);

#endif
