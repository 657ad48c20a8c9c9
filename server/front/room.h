/* room - checks at start that the system's limits suffice for the settings.
 *
 * A limit that is too small shows late and elsewhere: a worker that cannot be started, a
 * library that aborts, a signal.  So before anything is opened, each limit is compared
 * with what the settings need, and the error names the limit, its value, what is needed,
 * and what to change.  Where the daemon can adapt, it does: few descriptors mean fewer
 * connections.
 *
 *   vx_host_raise_files();
 *   vx_room_get(&room);
 *   VX_TRY(vx_room_check(&config, processors, &room, &why));
 *   if (vx_room_advise(&config, &room, &why)) ...enough for small requests only...
 *
 * Page-locking needs no limit here: voxeld does not call mlock, and NVIDIA's driver is
 * not bound by RLIMIT_MEMLOCK.
 *
 * Owner    the caller.
 * Thread   any; at start.  get asks the system, check and advise are pure.
 * Limits   VX_ROOM_ANY = the system sets none, or it cannot be read.
 * Fails    check: RESOURCE_EXHAUSTED with the error text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ROOM_H
#define VX_SERVER_ROOM_H

#include "server/base/config.h"

#define VX_ROOM_ANY INT64_MAX

struct vx_room {
    i64 files;               /* RLIMIT_NOFILE, as far as it can be raised */
    i64 file_bytes;          /* RLIMIT_FSIZE */
    i64 address_bytes;       /* RLIMIT_AS */
    i64 data_bytes;          /* RLIMIT_DATA */
    i64 memory_bytes;        /* the control group's limit or the machine's memory */
    i64 threads;             /* that may still be started: RLIMIT_NPROC, pids.max */
    const char *threads_why; /* which of the two limits it is; "" when neither */
};

void vx_room_get(struct vx_room *room);
VX_MUST_USE vx_status vx_room_check(const struct vx_config *config, i32 processors,
                                    const struct vx_room *room, struct vx_why *why);
/* True, with a text in `why`, if memory suffices but not for all that the settings
 * allow. */
bool vx_room_advise(const struct vx_config *config, const struct vx_room *room,
                    struct vx_why *why);
/* Connections of the admin port, given the gRPC connections that rpc_accept.c allows for
 * this limit of open files. */
i32 vx_room_admin_connections(i64 files, i64 connections_max);

#endif
