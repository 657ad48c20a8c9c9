/* channel - the words between front and worker: small messages on a socket pair.
 *
 * Tensors never travel here; messages carry offsets into the shared arena.  One message
 * is one SOCK_SEQPACKET record, so there is no framing and no partial read.
 *
 *   VX_TRY(vx_channel_pair(fds));
 *   VX_TRY(vx_channel_send(fd, &message.head, sizeof message.load));
 *   VX_TRY(vx_channel_receive(fd, &message, &got));
 *   vx_done_add_why(&done, i, text);  ...  vx_done_why(&done, i)
 *
 * front -> worker: LOAD, UNLOAD, RUN, STATS, MAP (with the object's descriptor), UNMAP
 * worker -> front: UP, PROGRESS, LOADED, DONE, STATED, ENDS, MAPPED
 * The end of the socket is the last word of both: a worker stops, a front restarts it.
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

#include "engine/engine.h"
#include "proto/limits.h"

/* Directory of a model on disk: the repository's path and a name; PATH_MAX. */
#define VX_PATH_BYTES 4096

enum vx_message_kind {
    VX_MESSAGE_LOAD,
    VX_MESSAGE_UNLOAD,
    VX_MESSAGE_RUN,
    VX_MESSAGE_STATS,
    VX_MESSAGE_MAP,
    VX_MESSAGE_UNMAP,
    VX_MESSAGE_UP,
    VX_MESSAGE_PROGRESS,
    VX_MESSAGE_WORKING, /* the device thread is inside of a batch and goes on; for the watchdog */
    VX_MESSAGE_LOADED,
    VX_MESSAGE_DONE,
    VX_MESSAGE_STATED,
    VX_MESSAGE_ENDS,
    VX_MESSAGE_MAPPED,
};

struct vx_message_head {
    i32 kind;
    i32 instance; /* LOAD UNLOAD RUN PROGRESS LOADED: row of the registry */
    u64 batch; /* RUN DONE; LOAD LOADED PROGRESS: which load of that row this is about */
};

struct vx_message_load {
    struct vx_message_head head;
    i32 version;
    u64 fingerprint; /* of the files that the front means: vx_repository_check */
    bool notes;      /* the worker is to log what is odd about them */
    char directory[VX_PATH_BYTES];
};

/* Where a tensor of a request lies. */
#define VX_PLACE_NONE                                                                    \
    UINT64_MAX /* as offset: coords that the cache has under `content`, an
                                    output that is not wanted */
struct vx_place {
    u64 offset; /* from the begin of the arena or of the region */
    i32 region; /* 0 = the arena; else a client's, that MAP came for before */
};
struct vx_run_item {
    struct vx_place coords, feats;
    struct vx_content content; /* the name of the coordinates; zeros = none */
    struct vx_place outputs[VX_OUTPUTS_MAX];
    i64 voxels;
    i32 coords_columns;
    i32 feats_dtype; /* enum vx_dtype */
};
struct vx_message_run {
    struct vx_message_head head;
    i32 items_count;
    struct vx_run_item items[VX_BATCH_ITEMS_MAX];
};

struct vx_done_item {
    i32 code; /* enum vx_code */
    i32 why;  /* which of the sentences is its own; -1 = none: it ended well */
    /* FAILED_PRECONDITION for this region of its own, and not for its name; 0 = none. */
    i32 region_lost;
    bool ran; /* it was given to the device, and not refused before */
    bool geometry_hit, geometry_kept;
    i64 convert_ns, geometry_ns, compute_ns, output_ns, pairs;
};
struct vx_message_done {
    struct vx_message_head head;
    i64 received_ns, sent_ns; /* RUN here, DONE here, by the clock both processes share */
    i64 device_ns;            /* of the batch: vx_batch.device_ns */
    i32 items_count;
    i32 whys_count; /* sentences; in the record they follow the last item directly */
    struct vx_done_item items[VX_BATCH_ITEMS_MAX];
    struct vx_why room[VX_BATCH_ITEMS_MAX]; /* not to be named: vx_done_why */
};

struct vx_message_up {
    struct vx_message_head head;
    struct vx_engine_stats stats;
};
/* A load goes READ -> MADE -> TUNE -> WARM -> LOADED; TUNE is a GPU's.  MADE is said once, when
 * the main thread is done with it, well or not: it may make the next. */
enum vx_progress_stage {
    VX_PROGRESS_READ, /* main thread; layers; of a GPU, and the kernels that they launch */
    VX_PROGRESS_MADE, /* the device thread has it */
    VX_PROGRESS_TUNE, /* device thread; convolutions that are tuned */
    VX_PROGRESS_WARM, /* device thread; steps of the warm-up */
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

/* A client's memory, for the RUNs behind this word.  A system region comes with the
 * descriptor of its object; a device region with the handle that its owner made. */
struct vx_message_map {
    struct vx_message_head head; /* batch: which use of that row; MAPPED says it again */
    i32 region;                  /* 1 .. VX_REGIONS_MAX */
    i32 on_device;               /* 0 or 1 */
    u64 offset;                  /* of the object, where the region begins */
    u64 bytes;
    u8 handle[VX_IPC_HANDLE_BYTES];
};
struct vx_message_unmap { /* no RUN that is not answered names it */
    struct vx_message_head head;
    i32 region;
};
struct vx_message_mapped {
    struct vx_message_head head;
    i32 region;
    i32 code; /* enum vx_code; a request that names a region that is not there fails alone */
    struct vx_why why;
};

/* The last word of a worker that ends by itself. */
struct vx_message_ends {
    struct vx_message_head head;
    bool lost; /* the device was open and is gone */
    struct vx_why why;
};

union vx_message {
    struct vx_message_head head;
    struct vx_message_load load;
    struct vx_message_run run;
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

/* Bytes of RUN with `count` items: only those travel. */
static inline size_t vx_message_run_bytes(i32 count)
{
    return offsetof(struct vx_message_run, items) +
           (size_t)count * sizeof(struct vx_run_item);
}
/* Bytes of DONE, by its two counts. */
size_t vx_message_done_bytes(const struct vx_message_done *done);
/* The sentence of an item that did not end well; items_count is set before.  "" for one
 * that has none. */
void vx_done_add_why(struct vx_message_done *done, i32 item, const char *text);
const struct vx_why *vx_done_why(const struct vx_message_done *done, i32 item);

/* fds[0] is the front's end, non-blocking; fds[1] the worker's, blocking.  Both close on
 * exec. */
VX_MUST_USE vx_status vx_channel_pair(int fds[2]);
/* The message is one that the other side takes: asserted. */
VX_MUST_USE vx_status vx_channel_send(int fd, const struct vx_message_head *message,
                                      size_t bytes);
/* With a descriptor, which the other side gets a copy of. */
VX_MUST_USE vx_status vx_channel_send_fd(int fd, const struct vx_message_head *message,
                                         size_t bytes, int passed);
/* *bytes = 0 when a non-blocking end has nothing to read.  A record is INTERNAL whose size is
 * not that of its kind and its counts, and one of a worker with a text that has no end or a
 * signature that no model has: the two sides are one binary. */
VX_MUST_USE vx_status vx_channel_receive(int fd, union vx_message *message,
                                         size_t *bytes);
/* The same for who may be sent descriptors: one comes with MAP of a system region, none with
 * anything else.  *passed is the caller's to close; -1 = none came. */
VX_MUST_USE vx_status vx_channel_receive_fd(int fd, union vx_message *message,
                                            size_t *bytes, int *passed);

#endif
