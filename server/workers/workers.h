/* workers - starts the worker processes, watches them, and restarts those that die.
 *
 * One worker per device.  A worker is up once it has sent UP.  It is down once its pidfd
 * reports its end; its batches then return to the scheduler.  The first restart is
 * immediate; a worker that dies again soon is restarted after a pause, which grows up to
 * restart_ms_max.  A worker that hangs (server/workers/watchdog.h) is killed, and restarted like
 * any other that died.
 *
 *   VX_TRY(vx_workers_open(&options, &why, &workers));
 *   vx_workers_send(workers, w, &message.head, bytes);
 *   vx_workers_stop(workers);     channels closed; on_stopped when the last is gone
 *   vx_workers_close(&workers);
 *
 * States: DOWN -> STARTING (spawned) -> UP (sent UP) -> LEAVING -> DOWN (exited);
 * STOPPING is final.  A worker is LEAVING when it has sent ENDS, when its channel ends
 * and when it is killed: it gets no more work.  If it does not end by itself, it is
 * killed.  If it does not die either, a stop waits for it for a few seconds and then
 * leaves it behind.
 *
 * Owner    the front; `info` is borrowed until the next iteration of the loop.
 * Thread   loop.
 * Limits   VX_WORKERS_MAX.
 * Fails    open: INVALID_ARGUMENT for an unknown device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKERS_H
#define VX_SERVER_WORKERS_H

#include "server/base/config.h"
#include "server/ipc/channel.h"
#include "server/ipc/shared.h"
#include "server/sched/sched.h"

#include <uv.h>

struct vx_workers;

enum vx_worker_state {
    VX_WORKER_DOWN,
    VX_WORKER_STARTING,
    VX_WORKER_UP,
    VX_WORKER_LEAVING, /* known to be ending */
    VX_WORKER_STOPPING,
};

const char *vx_worker_state_name(enum vx_worker_state state); /* "up" */

struct vx_worker_info {
    enum vx_worker_state state;
    i32 pid;
    i32 restarts;
    i32 hangs;                    /* times the watchdog killed it */
    i32 losses;                   /* times it reported that its device was lost */
    i32 open_failures;            /* consecutive processes that ended before UP */
    const char *device;           /* one: "cpu", "cuda:1" */
    struct vx_engine_stats stats; /* as last reported */
    struct vx_why problem;        /* why it ended, until it is up again; "" = not known */
};

struct vx_workers_options {
    uv_loop_t *loop;
    const struct vx_config *config;
    const struct vx_shared *shared;
    i64 healthy_ns; /* a worker that lived this long restarts at once; 0 = ten seconds */
    void *context;
    void (*on_up)(void *context, i32 worker);
    /* The worker was UP and is LEAVING: called once, before its on_down; NULL = no
     * callback.  vx_workers_send may call it.  Messages that the worker sent before may
     * still arrive. */
    void (*on_leaving)(void *context, i32 worker);
    void (*on_down)(void *context, i32 worker); /* its process is gone */
    /* PROGRESS, LOADED, DONE; borrowed for the call. */
    void (*on_message)(void *context, i32 worker, const union vx_message *message);
    void (*on_stopped)(void *context); /* after vx_workers_stop: none is left */
};

VX_MUST_USE vx_status vx_workers_open(const struct vx_workers_options *options,
                                      struct vx_why *why, struct vx_workers **workers);
i32 vx_workers_count(const struct vx_workers *workers);
bool vx_workers_any_up(const struct vx_workers *workers);
/* Whether the device of every worker is a GPU, real or fake. */
bool vx_workers_are_gpus(const struct vx_workers *workers);
const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers,
                                             i32 worker);
/* False when the worker is not UP.  If the message cannot be sent because the worker does
 * not read, the worker is killed: false, and on_down follows. */
bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes);
/* The same with a descriptor, which is copied. */
bool vx_workers_send_fd(struct vx_workers *workers, i32 worker,
                        const struct vx_message_head *message, size_t bytes, int passed);
/* For a worker that sent an invalid message: kills it and ignores its other messages. */
void vx_workers_kill(struct vx_workers *workers, i32 worker);
/* Asks every worker that is up for its statistics; they appear in `info` later. */
void vx_workers_ask_stats(struct vx_workers *workers);
void vx_workers_stop(struct vx_workers *workers);
/* After on_stopped, and after the loop has closed its handles. */
void vx_workers_close(struct vx_workers **workers);

#endif
