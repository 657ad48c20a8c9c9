/* regions - the shared memory that clients have registered: names, owners, references.
 *
 * A region is memory of a client's: of this host (a POSIX shared memory object) or of a
 * device (a CUDA IPC handle).  It belongs to the connection that registered it: only that
 * one sees it, uses it and takes it back, and it goes when the connection does.  Requests
 * hold a reference while they run, so a region that is taken back has no name from then on
 * and is given up when the last request has ended.
 *
 * The front maps a system region once, to copy coordinates out of it; workers map it too,
 * and read features from it and write outputs into it by DMA.  Only the worker of its
 * device opens a device region.
 *
 *   VX_TRY(vx_regions_open(&options, &regions));
 *   VX_TRY(vx_regions_add_system(regions, &peer, &wanted, &why));
 *   VX_TRY(vx_regions_use(regions, &peer, &piece, &why, &use));    any thread
 *   ... place = {use.region, use.offset} goes to the worker ...
 *   vx_regions_done(regions, &use);                                any thread
 *   vx_regions_owner_gone(regions, peer.connection);               any thread
 *
 * Every MAP is answered by MAPPED, well or not: until then its row is not used again, so
 * that a worker that is busy has only so many words waiting, and no connection has more of them
 * than there is room left.
 *
 * States of a row:
 *   FREE    -> OPENING   add_device: the worker is asked; nobody can use it yet
 *   FREE    -> NAMED     add_system
 *   OPENING -> NAMED     the worker has it; or -> FREE, it has not
 *   NAMED   -> LEAVING   removed, or its owner is gone: no name any more; OPENING too
 *   LEAVING -> FREE      vx_regions_step, when nobody uses it: workers let go of it
 *
 * Owner    the front.
 * Thread   loop, but use, done, view, owner_gone: any, under one lock held for a few steps.
 * Limits   VX_REGIONS_MAX, VX_REGIONS_OWNER_MAX of one connection, client_shm_bytes of
 *          all system regions together.  Users are not told apart: who may open connections
 *          here can take all of it, so an address is for users who trust each other.
 * Fails    as each function says.  Sentences never have a key, nor a name that the same
 *          request did not bring.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REGIONS_H
#define VX_SERVER_REGIONS_H

#include "proto/request.h"
#include "server/channel.h"
#include "server/config.h"
#include "server/peer.h"

struct vx_regions;
struct vx_workers;

/* The most of one connection, those that it has taken back and that are still in use too:
 * perf_analyzer has one per input, output and step of its data. */
#define VX_REGIONS_OWNER_MAX 64

enum vx_region_kind { VX_REGION_SYSTEM, VX_REGION_DEVICE };

struct vx_regions_options {
    const struct vx_config *config;
    struct uv_loop_s *loop; /* memory is let go of beside it; NULL = in vx_regions_step */
    struct vx_workers *const *workers; /* there when the first call comes */
    void *context;
    /* Something is to be done on the loop: vx_regions_step.  Any thread. */
    void (*ring)(void *context);
    /* Whether a connection is open: asked once its region is written down, so that one that
     * ends meanwhile leaves none behind.  NULL = it is. */
    bool (*lives)(void *context, u64 connection);
    /* Whether the process that opened a connection has that group beside its own.  NULL = it
     * has no other. */
    bool (*in_group)(void *context, u64 connection, u32 gid);
    /* The answer to an add_device: its region is there, or it is not. */
    void (*on_added)(void *context, void *waiter, vx_status status,
                     const struct vx_why *why);
};

struct vx_region_wanted {
    const char *name;
    u64 bytes;
    const char *key;  /* SYSTEM: the object's name, with or without its slash */
    u64 offset;       /* SYSTEM: where in the object the region begins */
    const u8 *handle; /* DEVICE: VX_IPC_HANDLE_BYTES */
    i64 device;       /* DEVICE: as the driver counts */
};

/* A reference to a piece of a region. */
struct vx_region_use {
    i32 region; /* 1 .. VX_REGIONS_MAX; 0 = none */
    u64 offset; /* of the piece, from the region's begin */
    u64 bytes;
    bool on_device;
    bool copied; /* its bytes lie in a slot: nobody reads them in the region any more */
    u32 workers; /* bit per worker that has it; 0 = any: it is a system region */
};

VX_MUST_USE vx_status vx_regions_open(const struct vx_regions_options *options,
                                      struct vx_regions **regions);
/* Nothing is in use any more. */
void vx_regions_close(struct vx_regions **regions);

/* What is served: `extensions` of the metadata, and what the methods answer. */
bool vx_regions_serve(const struct vx_regions *regions, enum vx_region_kind kind);

/* UNIMPLEMENTED not served; PERMISSION_DENIED this peer may not; ALREADY_EXISTS a name of
 * this connection's; INVALID_ARGUMENT a key, size or object that cannot be; NOT_FOUND no
 * such object; RESOURCE_EXHAUSTED a limit. */
VX_MUST_USE vx_status vx_regions_add_system(struct vx_regions *regions,
                                            const struct vx_peer *peer,
                                            const struct vx_region_wanted *wanted,
                                            struct vx_why *why);
/* The same, but OK means that on_added(waiter) comes: UNAVAILABLE when the device's worker
 * is down, INVALID_ARGUMENT when no worker has that device or the handle is none. */
VX_MUST_USE vx_status vx_regions_add_device(struct vx_regions *regions,
                                            const struct vx_peer *peer,
                                            const struct vx_region_wanted *wanted,
                                            void *waiter, struct vx_why *why);
/* True: the waiter's on_added will not come. */
bool vx_regions_forget(struct vx_regions *regions, void *waiter);
/* "" = every region of that kind that this connection has.  NOT_FOUND is none: as Triton. */
void vx_regions_remove(struct vx_regions *regions, const struct vx_peer *peer,
                       enum vx_region_kind kind, const char *name);

/* For the status methods: this connection's regions of one kind, one after the other.
 * cursor begins at 0; false at the end.  Texts are borrowed until the next call. */
struct vx_region_said {
    const char *name, *key;
    u64 offset, bytes;
    i64 device;
};
bool vx_regions_next(const struct vx_regions *regions, const struct vx_peer *peer,
                     enum vx_region_kind kind, i32 *cursor, struct vx_region_said *said);

/* Takes a reference.  NOT_FOUND "Unable to find shared memory region: 'R'" for a name that
 * is not this connection's; INVALID_ARGUMENT for a piece that is not all inside;
 * FAILED_PRECONDITION for a region that its client has cut or its device has lost. */
VX_MUST_USE vx_status vx_regions_use(struct vx_regions *regions,
                                     const struct vx_peer *peer,
                                     const struct vx_request_region *piece,
                                     struct vx_why *why, struct vx_region_use *use);
/* Gives it back and clears it; nothing for one that is none. */
void vx_regions_done(struct vx_regions *regions, struct vx_region_use *use);
/* Copies a piece of a system region: what is checked is the copy.  False when its client
 * has cut the object meanwhile. */
VX_MUST_USE bool vx_regions_read(struct vx_regions *regions,
                                 const struct vx_region_use *use, void *to);
/* A worker found that the memory is gone: nobody can use it from now on. */
void vx_regions_lost(struct vx_regions *regions, const struct vx_region_use *use);
/* Whether its client has cut the object under us, as far as the front has seen. */
bool vx_regions_broken(struct vx_regions *regions, const struct vx_region_use *use);

/* Its connection has ended. */
void vx_regions_owner_gone(struct vx_regions *regions, u64 connection);
/* Once per turn of the loop: workers let go of what nobody uses. */
void vx_regions_step(struct vx_regions *regions);
/* Before the scheduler hears of it: the worker gets every region. */
void vx_regions_on_worker_up(struct vx_regions *regions, i32 worker);
void vx_regions_on_worker_down(struct vx_regions *regions, i32 worker);
void vx_regions_on_mapped(struct vx_regions *regions, i32 worker,
                          const struct vx_message_mapped *message);

/* For metrics and leak tests. */
struct vx_regions_counts {
    i32 regions[2];                  /* by kind, LEAVING ones too */
    i32 uses;                        /* references that are out */
    u64 bytes;                       /* of system regions */
    u64 registered, refused, broken; /* ever */
};
void vx_regions_counts_get(struct vx_regions *regions, struct vx_regions_counts *counts);

#endif
