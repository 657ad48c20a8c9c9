/* room - whether what the system allows is enough for the settings, before anything is opened.
 *
 * A limit that is too small shows late and elsewhere: a worker that cannot be started, a library
 * that aborts, a signal.  So each limit is held against what the settings need, and a sentence
 * names the limit, what it is, what is needed, and what to change.  What the daemon can adapt to,
 * it does: fewer connections where descriptors are few.
 *
 *   vx_host_raise_files();
 *   vx_room_get(&room);
 *   VX_TRY(vx_room_check(&config, processors, &room, &why));
 *   if (vx_room_advise(&config, &room, &why)) ...the limit holds for small requests only...
 *
 * Page-locking needs no limit of ours: nothing here calls mlock, and NVIDIA's driver is not bound
 * by RLIMIT_MEMLOCK.
 *
 * Owner    the caller.
 * Thread   any; at start.  get asks the system, check and advise are pure.
 * Limits   VX_ROOM_ANY = the system sets none, or does not tell.
 * Fails    check: RESOURCE_EXHAUSTED with the sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ROOM_H
#define VX_SERVER_ROOM_H

#include "server/config.h"

#define VX_ROOM_ANY INT64_MAX

struct vx_room {
    i64 files;               /* RLIMIT_NOFILE, as far as it can be raised */
    i64 file_bytes;          /* RLIMIT_FSIZE */
    i64 address_bytes;       /* RLIMIT_AS */
    i64 data_bytes;          /* RLIMIT_DATA */
    i64 memory_bytes;        /* of the control group; or of the machine */
    i64 threads;             /* that may be started yet: RLIMIT_NPROC, pids.max */
    const char *threads_why; /* which of them; "" when neither */
};

void vx_room_get(struct vx_room *room);
VX_MUST_USE vx_status vx_room_check(const struct vx_config *config, i32 processors,
                                    const struct vx_room *room, struct vx_why *why);
/* True, and a sentence: it will do, but not for all that the settings allow. */
bool vx_room_advise(const struct vx_config *config, const struct vx_room *room,
                    struct vx_why *why);
/* Connections of the admin port, beside those that rpc_accept.c makes of so many files. */
i32 vx_room_admin_connections(i64 files, i64 connections_max);

#endif
