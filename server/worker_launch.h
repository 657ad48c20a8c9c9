/* worker_launch - brings a worker to life: as a process, or for benches as a thread.
 *
 *   struct vx_launch launch = {config, "cuda:1", channel, arena};
 *   int failed = vx_worker_launch(&launch, &launched);
 *   ... launched.pidfd is readable, or the channel's end comes: it has ended ...
 *   vx_worker_join(&launched, &end);
 *
 * With config->in_process the worker is a thread of this process that speaks over the
 * same channel and maps the same arena, so that a bench can tell what the process border
 * costs.  It cannot be killed alone: what would end a worker then ends the process.
 *
 * Owner    the caller; join takes back what launch took, but the pidfd.
 * Thread   loop.  A process is started in about 0.1 ms: nothing waits for what it does.
 * Limits   one worker in the process.
 * Fails    an errno, and nothing is left behind; 0 when it runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKER_LAUNCH_H
#define VX_SERVER_WORKER_LAUNCH_H

#include "server/config.h"

#include <sys/types.h>

struct vx_launch {
    const struct vx_config *config;
    const char *device; /* one */
    int channel;        /* the worker's end, closed here whatever happens */
    int arena;          /* borrowed */
};

struct vx_worker_thread;
struct vx_launched {
    pid_t pid;
    int pidfd;                       /* -1 of a thread; the caller closes it after join */
    struct vx_worker_thread *thread; /* NULL of a process */
};
struct vx_worker_end {
    const char *how; /* "exit" "signal" */
    int number;
};

int vx_worker_launch(const struct vx_launch *launch, struct vx_launched *launched);
/* By its pidfd: a number may be another process's by now.  Of a thread: does not return. */
void vx_worker_kill(const struct vx_launched *launched);
/* False when it still runs; a thread is waited for. */
bool vx_worker_join(struct vx_launched *launched, struct vx_worker_end *end);

#endif
