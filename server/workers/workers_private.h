/* workers_private - what the files of workers share; no other file includes it.
 *
 *   workers.c         processes: start, messages, end, restart, stop
 *   workers_watch.c   which answers are outstanding; kills a worker that hangs
 *
 * Owner    the table is the front's, through workers.h.
 * Thread   loop.
 * Limits   VX_WORKERS_MAX.
 * Fails    as workers.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKERS_PRIVATE_H
#define VX_SERVER_WORKERS_PRIVATE_H

#include "server/devices/devices.h"
#include "server/workers/watchdog.h"
#include "server/workers/worker_launch.h"
#include "server/workers/workers.h"

struct worker_process {
    struct vx_workers *workers;
    i32 index;
    char device[VX_DEVICE_NAME_BYTES];
    struct vx_worker_info info;
    struct vx_launched launched;
    int channel;                      /* -1 when none */
    uv_poll_t channel_poll, pid_poll; /* pid_poll: not if the worker is a thread */
    uv_timer_t timer; /* when to restart it, or kill it if it still runs */
    struct vx_watchdog_facts watch;
    bool is_damaged; /* it sent an invalid message: its messages are ignored */
    bool was_killed; /* its end is still to come */
    bool was_up;
    bool said_why; /* info.problem is about this process, not an earlier one */
    i32 quick_deaths;
    i64 started_ns;
};

struct vx_workers {
    struct vx_workers_options options;
    i32 count, alive;
    bool stopping, placed;
    struct vx_watchdog_limits limits;
    struct vx_watchdog_clock clock;
    uv_timer_t look;
    struct worker_process processes[VX_WORKERS_MAX];
    union vx_message in;
};

/* Handles all messages that have arrived; false when no more will come. */
bool vx_worker_listen(struct worker_process *process);
/* Kills it with SIGKILL; it gets no more work. */
void vx_worker_force_end(struct worker_process *process);

void vx_workers_watch_open(struct vx_workers *workers);
void vx_workers_watch_begin(struct worker_process *process);
void vx_workers_watch_sent(struct worker_process *process, i32 kind);
void vx_workers_watch_heard(struct worker_process *process,
                            const union vx_message *message);

#endif
