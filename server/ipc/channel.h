/* channel - the IPC channel between front and worker: small messages on a socket pair.
 *
 * Tensors never travel here; messages carry offsets into the shared arena.  One message
 * is one SOCK_SEQPACKET record, so there is no framing and no partial read.
 *
 *   VX_TRY(vx_channel_pair(fds));
 *   VX_TRY(vx_channel_send(fd, &message.head, sizeof message.load));
 *   VX_TRY(vx_channel_receive(fd, &message, &got));
 *   vx_done_add_why(&done, i, text);  ...  vx_done_why(&done, i)
 *
 * front -> worker: LOAD, UNLOAD, RUN, PLACES, STATS, MAP (with the object's descriptor),
 *                  UNMAP
 * worker -> front: UP, PROGRESS, WORKING, LOADED, SIZES, DONE, STATED, ENDS, MAPPED
 *
 * A RUN is answered by a DONE.  Between them comes one SIZES for each of its items that
 * asks for places (vx_run_item.asks) and has got as far as that, several in one record;
 * each item of a SIZES gets its answer in a PLACES.
 *
 * When the socket closes, a worker stops, and the front restarts the worker.
 *
 * Owner    the two processes own one end each.
 * Thread   front: loop.  worker: received on the device thread, sent from device and main
 *          (a record is one system call, so no lock).
 * Limits   VX_MESSAGE_BYTES.
 * Fails    UNAVAILABLE when the other side is gone or does not read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CHANNEL_H
#define VX_SERVER_CHANNEL_H

#include "engine/base/text/coords_ref.h"
#include "engine/device.h"
#include "engine/signature.h"
#include "proto/limits.h"
#include "proto/request.h"

/* A model's directory, the repository's path and a name: PATH_MAX. */
#define VX_PATH_BYTES 4096

/* Where posix_spawn puts the worker's two descriptors. */
#define VX_WORKER_CHANNEL_FD 3
#define VX_WORKER_ARENA_FD   4

#define VX_WORKER_EXIT_NO_DEVICE 1
#define VX_WORKER_EXIT_LOST      3 /* 2 is for wrong arguments, as in every subcommand */
#define VX_WORKER_EXIT_CHANNEL   4

enum vx_message_kind {
    VX_MESSAGE_LOAD,
    VX_MESSAGE_UNLOAD,
    VX_MESSAGE_RUN,
    VX_MESSAGE_PLACES,
    VX_MESSAGE_STATS,
    VX_MESSAGE_MAP,
    VX_MESSAGE_UNMAP,
    VX_MESSAGE_UP,
    VX_MESSAGE_PROGRESS,
    VX_MESSAGE_WORKING, /* for the watchdog: the device thread advances in a batch */
    VX_MESSAGE_LOADED,
    VX_MESSAGE_SIZES,
    VX_MESSAGE_DONE,
    VX_MESSAGE_STATED,
    VX_MESSAGE_ENDS,
    VX_MESSAGE_MAPPED,
};

struct vx_message_head {
    i32 kind;
    i32 instance; /* LOAD UNLOAD RUN PROGRESS LOADED: index in the registry */
    /* The front's number of a RUN, a LOAD or a MAP; every message about the same batch
     * (SIZES, PLACES, DONE), load or region repeats it. */
    u64 serial;
};

struct vx_message_load {
    struct vx_message_head head;
    i32 version;
    u64 fingerprint; /* of the files that the front has seen: vx_repository_check */
    bool notes;      /* the worker logs what is odd about them */
    char directory[VX_PATH_BYTES];
};

struct vx_run_item {
    struct vx_place coords; /* NONE: the cache has the geometry */
    struct vx_place feats;
    struct vx_coords_ref coords_ref;         /* zeros = none */
    u64 origin;                              /* vx_item.origin */
    struct vx_place outputs[VX_OUTPUTS_MAX]; /* NONE: not wanted, or asked for later */
    i64 voxels;
    i32 coords_columns;
    i32 shape[3];    /* vx_item.shape */
    i32 feats_dtype; /* enum vx_dtype */
    u32 asks;        /* a bit for each output whose place comes later: vx_item.asks */
    bool says_taken; /* vx_item.says_taken */
};
struct vx_message_run {
    struct vx_message_head head;
    bool brief; /* vx_batch.brief */
    i32 items_count;
    struct vx_run_item items[VX_BATCH_ITEMS_MAX];
};

/* How many rows the outputs have for which an item asks; 0 for the others. */
struct vx_sizes_item {
    i64 item; /* index in the batch; ascending */
    i64 rows[VX_OUTPUTS_MAX];
};
struct vx_message_sizes {
    struct vx_message_head head;
    i32 items_count;
    struct vx_sizes_item items[VX_BATCH_ITEMS_MAX];
};

struct vx_places_item {
    i32 item;    /* index in the batch; ascending */
    i32 refused; /* 1: there are no places; the front knows why */
    struct vx_place outputs[VX_OUTPUTS_MAX]; /* NONE for those it did not ask for */
};
struct vx_message_places {
    struct vx_message_head head;
    i32 items_count;
    struct vx_places_item items[VX_BATCH_ITEMS_MAX];
};

struct vx_done_item {
    i32 code; /* enum vx_code */
    i32 why;  /* index of its error text; -1 = none: it succeeded */
    /* The region that is gone, if FAILED_PRECONDITION is about a region of this request
     * and not about its coords_ref; 0 = none. */
    i32 region_lost;
    bool ran; /* it was given to the device: not refused before */
    bool geometry_hit, geometry_kept;
    bool aside; /* vx_item.aside */
    i64 convert_ns, geometry_ns, compute_ns, output_ns, pairs, set_voxels;
    i32 taken; /* vx_item.taken: the number of its text, from 1 on; 0 = none */
};
struct vx_message_done {
    struct vx_message_head head;
    /* When the worker received RUN and sent DONE; both processes share this clock. */
    i64 received_ns, sent_ns;
    i64 device_ns; /* vx_batch.device_ns */
    bool aside;    /* vx_batch.aside */
    i32 items_count;
    i32 whys_count;  /* error texts; in the record they follow the last item directly */
    i32 taken_count; /* what layers took; these texts follow the error texts */
    struct vx_done_item items[VX_BATCH_ITEMS_MAX];
    struct vx_why room[VX_BATCH_ITEMS_MAX];   /* use vx_done_why, not this */
    struct vx_taken taken_room[VX_TAKEN_MAX]; /* use vx_done_taken */
};

struct vx_message_up {
    struct vx_message_head head;
    struct vx_engine_stats stats;
};
/* A load goes READ -> MADE -> TUNE -> WARM -> LOADED; TUNE only on a GPU.  MADE is sent
 * once, when the main thread has finished with the model, also when it failed: it can
 * then start the next. */
enum vx_progress_stage {
    VX_PROGRESS_READ, /* main thread; counts layers and, on a GPU, their kernels */
    VX_PROGRESS_MADE, /* the device thread has the model */
    VX_PROGRESS_TUNE, /* device thread; counts convolutions that are tuned */
    VX_PROGRESS_WARM, /* device thread; counts steps of the warm-up */
};
struct vx_message_progress {
    struct vx_message_head head;
    i64 done, total;
    i32 stage; /* enum vx_progress_stage */
};
struct vx_message_loaded {
    struct vx_message_head head;
    i32 code; /* enum vx_code */
    struct vx_why why;
    struct vx_signature signature; /* when code is OK */
};

/* A region, for the RUNs after this message.  A system region comes with the descriptor
 * of its object; a device region with the handle that its client made. */
struct vx_message_map {
    struct vx_message_head head;
    i32 region;    /* 1 .. VX_REGIONS_MAX */
    i32 on_device; /* 0 or 1 */
    u64 offset;    /* where the region begins in the object */
    u64 bytes;
    u8 handle[VX_IPC_HANDLE_BYTES];
};
/* Sent when no unanswered RUN uses the region. */
struct vx_message_unmap {
    struct vx_message_head head;
    i32 region;
};
/* After an error, requests that use the region fail, each alone. */
struct vx_message_mapped {
    struct vx_message_head head;
    i32 region;
    i32 code; /* enum vx_code */
    struct vx_why why;
};

/* The last message of a worker that ends by itself. */
struct vx_message_ends {
    struct vx_message_head head;
    bool lost; /* the device was open and is gone */
    struct vx_why why;
};

union vx_message {
    struct vx_message_head head;
    struct vx_message_load load;
    struct vx_message_run run;
    struct vx_message_places places;
    struct vx_message_sizes sizes;
    struct vx_message_done done;
    struct vx_message_up up; /* UP and STATED */
    struct vx_message_progress progress;
    struct vx_message_loaded loaded;
    struct vx_message_ends ends;
    struct vx_message_map map;
    struct vx_message_unmap unmap;
    struct vx_message_mapped mapped;
};
#define VX_MESSAGE_BYTES sizeof(union vx_message)

/* Bytes of RUN with `count` items: only those are sent. */
static inline size_t vx_message_run_bytes(i32 count)
{
    return offsetof(struct vx_message_run, items) +
           (size_t)count * sizeof(struct vx_run_item);
}
/* The same of SIZES and PLACES. */
static inline size_t vx_message_sizes_bytes(i32 count)
{
    return offsetof(struct vx_message_sizes, items) +
           (size_t)count * sizeof(struct vx_sizes_item);
}
static inline size_t vx_message_places_bytes(i32 count)
{
    return offsetof(struct vx_message_places, items) +
           (size_t)count * sizeof(struct vx_places_item);
}
/* Bytes of DONE, from its three counts. */
size_t vx_message_done_bytes(const struct vx_message_done *done);
/* Sets and gets the error text of an item; items_count must be set before.  vx_done_why
 * returns "" for an item that succeeded. */
void vx_done_add_why(struct vx_message_done *done, i32 item, const char *text);
const struct vx_why *vx_done_why(const struct vx_message_done *done, i32 item);
/* The same of what layers took; all error texts must have been added.  NULL: not asked for,
 * or there was no room for it. */
void vx_done_add_taken(struct vx_message_done *done, const struct vx_taken *taken);
const char *vx_done_taken(const struct vx_message_done *done,
                          const struct vx_done_item *item);

/* fds[0] is the front's end, non-blocking; fds[1] the worker's, blocking.  Both close on
 * exec. */
VX_MUST_USE vx_status vx_channel_pair(int fds[2]);
/* Asserts that the other side accepts the message. */
VX_MUST_USE vx_status vx_channel_send(int fd, const struct vx_message_head *message,
                                      size_t bytes);
/* Sends with a descriptor, of which the other side gets a copy. */
VX_MUST_USE vx_status vx_channel_send_fd(int fd, const struct vx_message_head *message,
                                         size_t bytes, int passed);
/* *bytes = 0 when a non-blocking end has nothing to read.  INTERNAL when the record's
 * size does not match its kind and counts, a text has no NUL, or a value is out of range,
 * such as in a signature that no model has: the two sides are one binary. */
VX_MUST_USE vx_status vx_channel_receive(int fd, union vx_message *message,
                                         size_t *bytes);
/* The same for the end that may be sent descriptors: one with MAP of a system region,
 * none with any other message.  The caller closes *passed; -1 = none. */
VX_MUST_USE vx_status vx_channel_receive_fd(int fd, union vx_message *message,
                                            size_t *bytes, int *passed);

#endif
