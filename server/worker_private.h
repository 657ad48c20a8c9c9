/* worker_private - what the files of worker share; nobody else includes it.
 *
 *   worker.c        the process: threads, opening, ending; the main thread with its loads
 *   worker_loop.c   the device thread while it serves
 *
 * Life of a batch, all on the device thread:
 *   free      -> UNDER WAY   RUN: its items point into the arena, the engine has it
 *   UNDER WAY -> free        the engine gives it back; DONE says how each item ended
 *
 * Owner    the process; what is marked so is the device thread's alone.
 * Thread   as said at each function.
 * Limits   VX_ENGINE_BATCHES_MAX batches; the front sends no more (VX_WORKER_DEPTH).
 * Fails    a lost device ends the process; nothing else fails here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKER_PRIVATE_H
#define VX_SERVER_WORKER_PRIVATE_H

#include "engine/base/mailbox.h"
#include "engine/engine.h"
#include "server/channel.h"
#include "server/sched.h"
#include "server/shared.h"
#include "server/worker.h"

/* One load on its way device -> main -> device.  One per row: the front asks for a row's
 * load only when the last one has been answered. */
struct vx_worker_load {
    struct vx_link link;
    struct vx_worker *worker;
    bool busy;
    struct vx_message_load message;
    i64 progress_said_ns;
    struct vx_model *model;
    vx_status status;
    struct vx_why why;
};

/* What one RUN asked for, from then until DONE. */
struct vx_worker_batch {
    struct vx_message_head head; /* batch 0 = this place is free */
    i64 received_ns;
    struct vx_batch batch;
    struct vx_item items[VX_BATCH_ITEMS_MAX];
};

struct vx_worker {
    const struct vx_config *config;
    int channel;
    struct vx_shared *shared;
    struct vx_engine *engine;
    struct vx_model *models[VX_INSTANCES_MAX];             /* device thread's */
    struct vx_worker_batch batches[VX_ENGINE_BATCHES_MAX]; /* device thread's */
    struct vx_worker_load loads[VX_INSTANCES_MAX];
    struct vx_mailbox to_main;   /* loads to make; the stop link last */
    struct vx_mailbox to_device; /* loads made */
    struct vx_link stop;
    int bell; /* eventfd: something is in to_device */
    int exit_code;
    union vx_message in,
        out; /* device thread's; too large for a stack that people read */
};

/* Any thread: a record is one system call. */
void vx_worker_say(const struct vx_worker *worker, const struct vx_message_head *message,
                   size_t bytes);
/* Why this process is about to end by itself: the front's log and pages tell.  Device
 * thread. */
void vx_worker_say_end(struct vx_worker *worker, bool lost, const char *why);
void vx_worker_say_progress(struct vx_worker_load *load,
                            struct vx_message_progress *message);

/* Device thread, with an open engine. */
void vx_worker_say_stats(struct vx_worker *worker, enum vx_message_kind kind);
/* Until the front closes its end; no batch is under way afterwards. */
void vx_worker_serve(struct vx_worker *worker);

#endif
