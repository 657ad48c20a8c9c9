/* worker - the process that owns one device: runs the front's messages on an engine.
 *
 *   return vx_worker_run(&start);          `voxeld worker`, started by the front only
 *
 * Threads: the device thread reads the IPC channel and runs batches, so that a batch
 * costs one wakeup and not two; the main thread reads model files.  A load goes device ->
 * main -> device: the main thread makes the model while other models run, the device
 * thread warms it up and sends LOADED.
 *
 * A worker trusts its front, because both are one binary.  A wrong offset is our mistake
 * and therefore an assert: the worker dies, and the front restarts it.
 *
 * Owner    the process.
 * Thread   the caller becomes the main thread.
 * Fails    VX_WORKER_EXIT_NO_DEVICE when the device cannot be opened, VX_WORKER_EXIT_LOST
 *          at once when it is lost, VX_WORKER_EXIT_CHANNEL when the front sends an
 *          invalid message; ENDS tells the front why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKER_H
#define VX_SERVER_WORKER_H

#include "server/base/config.h"

struct vx_worker_start {
    const struct vx_config *config; /* `device` is one device */
    int channel;     /* the worker's end; the caller closes it afterwards */
    int arena;       /* closed by the worker */
    bool is_process; /* of its own: worker_seccomp applies */
};

/* Runs until the front closes the channel; returns the exit code of the process. */
int vx_worker_run(const struct vx_worker_start *start);

#endif
