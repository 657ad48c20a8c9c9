/* spawn - starts this program again, as a child with few and known descriptors.
 *
 *   const struct vx_spawn spawn = {arguments, {{channel, 3}, {arena, 4}}, 2};
 *   int failed = vx_spawn_self(&spawn, &pid);
 *
 * posix_spawn, not fork: a fork with gRPC's threads alive is unsafe and stalls with the
 * size of the front (measured 60 ms at 4 GiB against 0.1 ms).
 *
 * Owner    the caller waits for the child.
 * Thread   loop, or before the loop runs.
 * Limits   VX_SPAWN_FDS_MAX descriptors besides 0, 1 and 2.
 * Fails    an errno; 0 when the child runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SPAWN_H
#define VX_SERVER_SPAWN_H

#include "engine/base/types.h"

#include <sys/types.h>

#define VX_SPAWN_FDS_MAX 2

struct vx_spawn {
    char *const *arguments; /* the program's name first, NULL last */
    /* In ascending order of the child's numbers; all others but 0, 1 and 2 are closed. */
    struct {
        int ours, childs;
    } fds[VX_SPAWN_FDS_MAX];
    i32 fds_count;
};

int vx_spawn_self(const struct vx_spawn *spawn, pid_t *pid);

#endif
