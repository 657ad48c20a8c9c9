/* worker_private - what the files of worker share; no other file includes it.
 *
 *   worker.c          the process: threads, opening, ending; loads on the main thread
 *   worker_loop.c     the device thread while it serves
 *   worker_models.c   its models: loads, warmed up step by step between batches
 *   worker_regions.c  clients' memory: mapped, page-locked, imported, released
 *
 *   worker_places.c   places of outputs whose size is known only while an item runs
 *
 * Life of a batch, all on the device thread:
 *   free      -> UNDER WAY   RUN: its items point into the arena, the engine has it
 *   free      -> HELD        RUN, while a warm-up waits for batches that ask for places
 *   HELD      -> UNDER WAY   that step has run
 *   UNDER WAY -> free        the engine gives it back; DONE reports how each item ended
 *
 * Owner    the process; members marked "device thread's" are used by that thread only.
 * Thread   as stated at each function.
 * Limits   VX_ENGINE_BATCHES_MAX batches; the front sends no more (VX_WORKER_DEPTH).
 * Fails    a lost device ends the process; nothing else fails here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKER_PRIVATE_H
#define VX_SERVER_WORKER_PRIVATE_H

#include "engine/base/memory/mailbox.h"
#include "engine/engine.h"
#include "server/ipc/channel.h"
#include "server/ipc/foreign.h"
#include "server/ipc/shared.h"
#include "server/sched/sched.h"
#include "server/worker/worker.h"

#include <stdatomic.h>

/* One load on its way device -> main -> device.  One per instance: the front sends LOAD
 * for an instance only after the previous one was answered.
 *   FREE    -> MAKING   LOAD: it belongs to the main thread
 *   MAKING  -> WARMING  made: the device thread warms it up step by step, between batches
 *   WARMING -> FREE     after the last step, or one that failed: LOADED */
enum vx_worker_load_state { VX_LOAD_FREE, VX_LOAD_MAKING, VX_LOAD_WARMING };
struct vx_worker_load {
    struct vx_link link;
    struct vx_worker *worker;
    enum vx_worker_load_state state; /* device thread's */
    i64 pieces;                      /* steps of its warm-up that were run */
    struct vx_message_load message;
    i32 stage_said;       /* the stage of its last PROGRESS */
    i64 progress_said_ns; /* when that was sent */
    struct vx_model *model;
    vx_status status;
    struct vx_why why;
};

/* Which regions an item lies in; zeros = none. */
struct vx_worker_uses {
    i32 lost;     /* region, not mapped or truncated, that the item's status is about */
    bool refused; /* the item was refused before it ran; its status has the reason */
    i32 count;
    i32 regions[2 + VX_OUTPUTS_MAX];
};

/* One batch, from RUN until DONE. */
struct vx_worker_batch {
    struct vx_message_head head; /* batch 0 = this place is free */
    bool held;
    i64 received_ns;
    struct vx_batch batch;
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_worker_uses uses[VX_BATCH_ITEMS_MAX];
    struct vx_taken taken[VX_TAKEN_MAX];
};

/* A client's memory.  MAP sets `there`, UNMAP clears it. */
struct vx_worker_region {
    bool there;         /* mapped, and usable */
    bool waits, pinned; /* still to be page-locked; page-locked */
    u64 use;            /* head.serial of MAP */
    u64 bytes;
    struct vx_foreign *foreign; /* of a system region */
    void *device;               /* of a device region */
    struct vx_why why;          /* if not `there`: the reason */
};
/* The memory that the main thread is page-locking, device -> main -> device. */
struct vx_worker_pin {
    struct vx_link link;
    i32 region; /* the region page-locked last; the search for the next starts there */
    /* NULL = idle.  If it is not the region's any more, the region was unmapped. */
    struct vx_foreign *foreign;
    void *begin;
    u64 bytes;
    vx_status status;
    struct vx_why why;
};
/* Memory that the main thread must release; no region has it any more. */
#define VX_WORKER_DROPS 16
struct vx_worker_drop {
    struct vx_link link;
    atomic_bool busy; /* the main thread has it, until it has released the memory */
    struct vx_foreign *foreign;
    bool pinned;
};
struct vx_worker_regions {
    struct vx_worker_region rows[VX_REGIONS_MAX + 1]; /* [0] is unused: 0 is the arena */
    struct vx_worker_pin pin;
    struct vx_worker_drop drops[VX_WORKER_DROPS];
    bool locks;   /* the device is a GPU, which copies faster from locked pages */
    bool closing; /* the main thread has stopped */
    bool refused; /* a region could not be page-locked, and that was logged */
};

struct vx_worker {
    const struct vx_config *config;
    int channel;
    bool is_process;
    struct vx_shared *shared;
    struct vx_engine *engine;
    struct vx_model *models[VX_INSTANCES_MAX]; /* device thread's */
    bool leaving[VX_INSTANCES_MAX];            /* to be unloaded; device thread's */
    struct vx_worker_batch batches[VX_ENGINE_BATCHES_MAX]; /* device thread's */
    struct vx_worker_load loads[VX_INSTANCES_MAX];
    i64 working_said_ns;       /* last WORKING, or begin of the batch; device thread's */
    bool open;                 /* the front has not closed its end; device thread's */
    bool within;               /* a request goes on below: vx_worker_hear_within */
    i64 heard_ns;              /* when the channel was last read there */
    i32 warming;               /* loads in state WARMING; device thread's */
    i64 piece_ns, piece_ended; /* how long the last warm-up step took, when it ended */
    i64 served_ns;             /* when a batch last ended; device thread's */
    bool holds; /* a step waits until no batch is under way: new ones are held */
    struct vx_worker_regions regions; /* device thread's, except what main works on */
    struct vx_mailbox to_main;        /* loads, memory to pin or release; `stop` last */
    struct vx_mailbox to_device;      /* loads made, memory that was pinned */
    struct vx_link stop;
    int wakeup; /* eventfd: the wakeup for to_device */
    int exit_code;
    union vx_message in, out; /* device thread's; large, so not on the stack */
    int passed;               /* the descriptor that came with `in`; -1 = none */
};

/* For how long the next step of a warm-up waits; 0 = it may run now.  It waits in proportion
 * to the last one while the device is `busy`, or was lately, but not for ever.  Device
 * thread. */
i64 vx_worker_warm_rest_ns(const struct vx_worker *worker, bool busy, i64 now_ns);
/* Runs one step of one model's warm-up; no batch is under way.  Device thread. */
void vx_worker_warm(struct vx_worker *worker);
/* The main thread has made the model of a load, or failed to.  Device thread. */
void vx_worker_on_made(struct vx_worker *worker, struct vx_worker_load *load);
void vx_worker_on_load(struct vx_worker *worker, const struct vx_message_load *message);
/* Unloads the model as soon as no batch of it is left. */
void vx_worker_on_unload(struct vx_worker *worker, i32 instance);
/* Whether the worker has a batch of the instance that is not answered. */
bool vx_worker_has_batch(const struct vx_worker *worker, i32 instance);
/* Answers all batches that are under way, except those that wait for places. */
void vx_worker_answer_all(struct vx_worker *worker);
/* The same until none of the instance is left, which gets no more. */
void vx_worker_answer_those(struct vx_worker *worker, i32 instance);

/* --- places of outputs; device thread --- */

/* Sends SIZES for the items that the engine has asked about since the last call. */
void vx_worker_say_sizes(struct vx_worker *worker);
void vx_worker_on_places(struct vx_worker *worker,
                         const struct vx_message_places *message);
/* Refuses all items that wait for places: the front is gone. */
void vx_worker_refuse_places(struct vx_worker *worker);

/* Sends a message.  Any thread: a record is one system call. */
void vx_worker_say(const struct vx_worker *worker, const struct vx_message_head *message,
                   size_t bytes);
/* Sends ENDS: this process ends by itself, and the front reports why.  Device thread. */
void vx_worker_say_end(struct vx_worker *worker, bool lost, const char *why);
void vx_worker_say_progress(struct vx_worker_load *load,
                            struct vx_message_progress *message);

/* Device thread, with an open engine. */
void vx_worker_say_stats(struct vx_worker *worker, enum vx_message_kind kind);
/* If the device is lost, reports why and ends the process. */
void vx_worker_end_if_lost(struct vx_worker *worker);
/* Reads the channel from within a report of the engine, while a request goes on, and answers brief
 * batches that can run meanwhile.  Device thread. */
void vx_worker_hear_within(struct vx_worker *worker, i64 now_ns);
/* Serves until the front closes its end; no batch is under way afterwards. */
void vx_worker_serve(struct vx_worker *worker);

/* --- regions; device thread, except where it says main thread --- */

void vx_worker_on_map(struct vx_worker *worker, const struct vx_message_map *message);
void vx_worker_on_unmap(struct vx_worker *worker, const struct vx_message_unmap *message);
/* Main thread: runs a region task.  Page-locks memory and gives it back, or releases
 * memory.  False if the link is not a region task. */
bool vx_worker_regions_on_main(struct vx_worker *worker, struct vx_link *link);
void vx_worker_on_pinned(struct vx_worker *worker);
/* The main thread has stopped: releases all regions. */
void vx_worker_regions_close(struct vx_worker *worker);

/* The address of an item's tensor; NULL if its place is NONE.  If its region is not mapped
 * or was truncated, the item's status is a fault, and the item must not run. */
struct vx_worker_tensor {
    i64 bytes;
    size_t align; /* of an element */
    u32 bit;      /* in the item's on_device */
};
void *vx_worker_at(const struct vx_worker *worker, const struct vx_place *place,
                   const struct vx_worker_tensor *tensor, struct vx_item *item,
                   struct vx_worker_uses *uses);
/* After its batch: an item whose region was truncated meanwhile becomes a fault. */
void vx_worker_check(const struct vx_worker *worker, struct vx_worker_uses *uses,
                     struct vx_item *item);

#endif
