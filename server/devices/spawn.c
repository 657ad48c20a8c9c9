/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/devices/spawn.h"

#include "engine/base/process/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

extern char **environ;

/* Copies of our descriptors get numbers from here on.  That is above all numbers of the
 * child, so that no dup2 overwrites the source of another, and no higher, because the
 * limit of open files may be low. */
#define HIGH_FD (STDERR_FILENO + 1 + VX_SPAWN_FDS_MAX)

static int spawn_with(const struct vx_spawn *spawn, const int *high, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int last = STDERR_FILENO;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    for (i32 i = 0; i < spawn->fds_count; i++) {
        int childs = spawn->fds[i].childs;
        posix_spawn_file_actions_adddup2(&actions, high[i], childs);
        if (childs > last) last = childs;
    }
    posix_spawn_file_actions_addclosefrom_np(&actions, last + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0); /* Ctrl-C must reach the front only */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawn(pid, "/proc/self/exe", &actions, &attributes,
                             spawn->arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

int vx_spawn_self(const struct vx_spawn *spawn, pid_t *pid)
{
    int high[VX_SPAWN_FDS_MAX], failed = 0;
    VX_ASSERT(spawn->fds_count <= VX_SPAWN_FDS_MAX);
    for (i32 i = 0; i < spawn->fds_count; i++) {
        VX_ASSERT(spawn->fds[i].childs < HIGH_FD);
        high[i] = fcntl(spawn->fds[i].ours, F_DUPFD_CLOEXEC, HIGH_FD);
        if (high[i] < 0 && !failed) failed = errno;
    }
    if (!failed) failed = spawn_with(spawn, high, pid);
    for (i32 i = 0; i < spawn->fds_count; i++)
        if (high[i] >= 0) close(high[i]);
    return failed;
}
