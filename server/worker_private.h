/* worker_private - what the files of worker share; nobody else includes it.
 *
 *   worker.c        the process: threads, opening, ending; the main thread with its loads
 *   worker_loop.c   the device thread while it serves
 *   worker_models.c   its models: loads, warmed up piece by piece between batches
 *   worker_regions.c  clients' memory: mapped, page-locked, imported, and let go of
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
#include "server/foreign.h"
#include "server/sched.h"
#include "server/shared.h"
#include "server/worker.h"

#include <stdatomic.h>

/* One load on its way device -> main -> device.  One per row: the front asks for a row's
 * load only when the last one has been answered.
 *   FREE    -> MAKING   LOAD: main's, until it gives it back
 *   MAKING  -> WARMING  made: the device thread runs it piece by piece, between batches
 *   WARMING -> FREE     the last piece, or one that failed: LOADED */
enum vx_worker_load_state { VX_LOAD_FREE, VX_LOAD_MAKING, VX_LOAD_WARMING };
struct vx_worker_load {
    struct vx_link link;
    struct vx_worker *worker;
    enum vx_worker_load_state state; /* device thread's */
    i64 pieces;                      /* of its warm-up, that were run */
    struct vx_message_load message;
    i32 stage_said; /* of its last PROGRESS, and when */
    i64 progress_said_ns;
    struct vx_model *model;
    vx_status status;
    struct vx_why why;
};

/* Which regions an item lies in; zeros = none. */
struct vx_worker_uses {
    i32 lost;     /* this one is not there, or was cut: the item's status is about that */
    bool refused; /* the item's status says why before it could run */
    i32 count;
    i32 regions[2 + VX_OUTPUTS_MAX];
};

/* What one RUN asked for, from then until DONE. */
struct vx_worker_batch {
    struct vx_message_head head; /* batch 0 = this place is free */
    i64 received_ns;
    struct vx_batch batch;
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_worker_uses uses[VX_BATCH_ITEMS_MAX];
};

/* A client's memory.  NOT THERE -> THERE with MAP, back with UNMAP. */
struct vx_worker_region {
    bool there;
    bool waits, pinned; /* usable already, to be page-locked; it is */
    u64 use;            /* MAP's head.batch */
    u64 bytes;
    struct vx_foreign *foreign; /* of a system region */
    void *device;               /* of a device region */
    struct vx_why why;          /* not there: why not */
};
/* The one piece of memory that main is page-locking, device -> main -> device. */
struct vx_worker_pin {
    struct vx_link link;
    i32 region;                 /* 0 = none: it is the device thread's */
    struct vx_foreign *foreign; /* no more the region's: it was let go of meanwhile */
    void *begin;
    u64 bytes;
    vx_status status;
    struct vx_why why;
};
/* Memory that main is to let go of: nobody here has it any more. */
#define VX_WORKER_DROPS 16
struct vx_worker_drop {
    struct vx_link link;
    atomic_bool busy; /* main's, until it has */
    struct vx_foreign *foreign;
    bool pinned;
};
struct vx_worker_regions {
    struct vx_worker_region rows[VX_REGIONS_MAX + 1]; /* [0] is the arena's number */
    struct vx_worker_pin pin;
    struct vx_worker_drop drops[VX_WORKER_DROPS];
    bool locks;   /* the device is a GPU, which copies faster from locked pages */
    bool closing; /* main has stopped */
    bool refused; /* one could not be page-locked, and the log has it */
};

struct vx_worker {
    const struct vx_config *config;
    int channel;
    struct vx_shared *shared;
    struct vx_engine *engine;
    struct vx_model *models[VX_INSTANCES_MAX];             /* device thread's */
    struct vx_worker_batch batches[VX_ENGINE_BATCHES_MAX]; /* device thread's */
    struct vx_worker_load loads[VX_INSTANCES_MAX];
    i64 working_said_ns;       /* or when the batch began; device thread's */
    i32 warming;               /* loads in that state; device thread's */
    i64 piece_ns, piece_ended; /* how long the last piece took, and when it ended */
    struct vx_worker_regions regions; /* device thread's, but for what main is at */
    struct vx_mailbox
        to_main; /* loads to make, memory to pin or drop; the stop link last */
    struct vx_mailbox to_device; /* loads made, memory that was pinned */
    struct vx_link stop;
    int bell; /* eventfd: something is in to_device */
    int exit_code;
    union vx_message in,
        out;    /* device thread's; too large for a stack that people read */
    int passed; /* what came with `in`; -1 = nothing */
};

/* The device has something to run or to say: the next piece of a warm-up waits, but not for
 * ever.  Device thread. */
bool vx_worker_may_warm(const struct vx_worker *worker, bool busy);
/* One piece of one model's warm-up.  Device thread. */
void vx_worker_warm(struct vx_worker *worker);
/* A load that main has made, well or not.  Device thread. */
void vx_worker_on_made(struct vx_worker *worker, struct vx_worker_load *load);
void vx_worker_on_load(struct vx_worker *worker, const struct vx_message_load *message);
void vx_worker_on_unload(struct vx_worker *worker, i32 instance);
/* Answers what is under way. */
void vx_worker_answer_all(struct vx_worker *worker);

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
/* The contexts of a lost device are gone: the process says why, and ends here. */
void vx_worker_end_if_lost(struct vx_worker *worker);
/* Until the front closes its end; no batch is under way afterwards. */
void vx_worker_serve(struct vx_worker *worker);

/* --- regions; device thread but where it says main --- */

void vx_worker_on_map(struct vx_worker *worker, const struct vx_message_map *message);
void vx_worker_on_unmap(struct vx_worker *worker, const struct vx_message_unmap *message);
/* Main: page-locks what it was given, and gives it back; lets go of what it was given.  False:
 * the link is none of regions'. */
bool vx_worker_regions_on_main(struct vx_worker *worker, struct vx_link *link);
void vx_worker_on_pinned(struct vx_worker *worker);
/* Main has stopped: lets go of everything. */
void vx_worker_regions_close(struct vx_worker *worker);

/* Where a tensor of an item lies, in a region or in the arena.  A region that is not there, or
 * was cut, is a fault in the item's status: then it must not be run.  `bit`: of the item's
 * on_device. */
struct vx_worker_tensor {
    const struct vx_place *place;
    i64 bytes;
    size_t align; /* of an element */
    u32 bit;
};
void *vx_worker_at(const struct vx_worker *worker, const struct vx_worker_tensor *tensor,
                   struct vx_item *item, struct vx_worker_uses *uses);
/* After its batch: an item whose memory was cut meanwhile has no answer. */
void vx_worker_check(const struct vx_worker *worker, struct vx_worker_uses *uses,
                     struct vx_item *item);

#endif
