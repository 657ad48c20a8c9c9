/* worker_launch - starts a worker: as a process, or for benches as a thread.
 *
 *   struct vx_launch launch = {config, "cuda:1", channel, arena};
 *   int failed = vx_worker_launch(&launch, &launched);
 *   ... wait until launched.pidfd is readable, or for a thread until the channel ends ...
 *   vx_worker_join(&launched, &end);
 *
 * With config->in_process the worker is a thread of this process that uses the same
 * channel and maps the same arena, so that a bench can measure what a separate process
 * costs.  It cannot be killed alone: whatever would kill a worker then ends the whole
 * process.
 *
 * Owner    the caller; join releases what launch took, except the pidfd.
 * Thread   loop.  Starting a process takes about 0.1 ms; launch does not wait for it to
 *          be up.
 * Limits   one worker in the process.
 * Fails    an errno, and nothing is left behind; 0 when it runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKER_LAUNCH_H
#define VX_SERVER_WORKER_LAUNCH_H

#include "server/base/config.h"

#include <sys/types.h>

struct vx_launch {
    const struct vx_config *config;
    const char *device; /* one */
    int channel;        /* the worker's end; launch closes it, also when it fails */
    int arena;          /* borrowed */
};

struct vx_worker_thread;
struct vx_launched {
    pid_t pid;
    int pidfd; /* -1 for a thread; the caller closes it after join */
    struct vx_worker_thread *thread; /* NULL for a process */
};
struct vx_worker_end {
    const char *how; /* "exit" "signal" */
    int number;
};

int vx_worker_launch(const struct vx_launch *launch, struct vx_launched *launched);
/* Kills through the pidfd, because the pid may be another process's by now.  For a thread
 * it ends this process. */
void vx_worker_kill(const struct vx_launched *launched);
/* False when the process still runs; waits for a thread. */
bool vx_worker_join(struct vx_launched *launched, struct vx_worker_end *end);

#endif
