/* regions - the shared memory that clients have registered: names, owners, references.
 *
 * A region is a client's memory: host memory (a POSIX shared memory object) or device
 * memory (a CUDA IPC handle).  It belongs to the connection that registered it: only that
 * connection can see, use and unregister it, and it ends with the connection.  A request
 * holds a reference to each region it uses.  An unregistered region loses its name at
 * once; its memory is released when the last request that uses it has ended.
 *
 * The front maps each system region, to copy coords out of it; the workers map it too,
 * and read feats from it and write outputs into it by DMA.  A device region is opened
 * only by the worker of its device.
 *
 *   VX_TRY(vx_regions_open(&options, &regions));
 *   VX_TRY(vx_regions_add_system(regions, &peer, &wanted, &why));
 *   VX_TRY(vx_regions_use(regions, &peer, &piece, &why, &held));   any thread
 *   ... the place goes to the worker ...
 *   vx_regions_done(regions, &held);                               any thread
 *   vx_regions_owner_gone(regions, peer.connection);               any thread
 *
 * A worker answers every MAP with MAPPED, also when it failed.  A row is not reused
 * before that, which bounds the messages that wait for a busy worker.  A connection may
 * have as many unanswered MAPs as there is still room for.
 *
 * States of a row:
 *   FREE    -> OPENING   add_device: the worker is asked; the region cannot be used yet
 *   FREE    -> NAMED     add_system
 *   OPENING -> NAMED     the worker has opened it
 *   OPENING -> LEAVING   the worker could not open it; or as from NAMED
 *   NAMED   -> LEAVING   it was unregistered, or its owner ended: it has no name any more
 *   LEAVING -> FREE      vx_regions_step, when nothing uses it: the workers get UNMAP
 *
 * Owner    the front.
 * Thread   loop; use, done, broken, lost, condemn, read, owner_gone and counts_get: any, under one
 *          lock that is held for a few steps.
 * Limits   VX_REGIONS_MAX; VX_REGIONS_OWNER_MAX per connection; client_shm_bytes for all
 *          system regions together.  Users are not told apart: any user who may connect
 *          can take all of it, so only users who trust each other should share an
 *          address.
 * Fails    as each function says.  An error text never contains a key, nor any name that
 *          the same request did not send.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REGIONS_H
#define VX_SERVER_REGIONS_H

#include "proto/request.h"
#include "server/base/config.h"
#include "server/base/peer.h"
#include "server/ipc/channel.h"

struct vx_regions;
struct vx_workers;

/* Per connection, including regions that it has unregistered and that are still in use.
 * perf_analyzer registers one per input, output and step of its data. */
#define VX_REGIONS_OWNER_MAX 64

enum vx_region_kind { VX_REGION_SYSTEM, VX_REGION_DEVICE };

struct vx_regions_options {
    const struct vx_config *config;
    /* Its thread pool releases memory; NULL = vx_regions_step releases it. */
    struct uv_loop_s *loop;
    struct vx_workers *const *workers; /* set before the first call */
    void *context;
    /* Wakes the loop, which then calls vx_regions_step.  Any thread. */
    void (*ring)(void *context);
    /* True while a connection is open.  Called after its region is in the table, so that
     * a connection that ends meanwhile leaves no region behind.  NULL = always open. */
    bool (*lives)(void *context, u64 connection);
    /* True if `gid` is a supplementary group of the process that opened the connection.
     * NULL = it has none. */
    bool (*in_group)(void *context, u64 connection, u32 gid);
    /* Reports the result of an add_device. */
    void (*on_added)(void *context, void *waiter, vx_status status,
                     const struct vx_why *why);
};

struct vx_region_wanted {
    const char *name;
    u64 bytes;
    const char *key;  /* SYSTEM: the object's name, with or without its slash */
    u64 offset;       /* SYSTEM: where in the object the region begins */
    const u8 *handle; /* DEVICE: VX_IPC_HANDLE_BYTES */
    i64 device;       /* DEVICE: the driver's number */
};

VX_MUST_USE vx_status vx_regions_open(const struct vx_regions_options *options,
                                      struct vx_regions **regions);
/* No reference may be left, and the loop must have ended. */
void vx_regions_close(struct vx_regions **regions);

/* True if regions of this kind are served: decides `extensions` of the server metadata,
 * and whether the methods answer UNIMPLEMENTED. */
bool vx_regions_serve(const struct vx_regions *regions, enum vx_region_kind kind);

/* UNIMPLEMENTED       this kind is not served
 * PERMISSION_DENIED   this peer may not
 * ALREADY_EXISTS      this connection has a region of that name
 * INVALID_ARGUMENT    the name, key, size or object is not acceptable
 * NOT_FOUND           no such object
 * RESOURCE_EXHAUSTED  a limit is reached
 * CANCELLED           the connection has ended meanwhile */
VX_MUST_USE vx_status vx_regions_add_system(struct vx_regions *regions,
                                            const struct vx_peer *peer,
                                            const struct vx_region_wanted *wanted,
                                            struct vx_why *why);
/* The same, but after OK on_added(waiter) reports the result, for example that the handle
 * is invalid.  INVALID_ARGUMENT also when no worker has that device; UNAVAILABLE when the
 * device's worker is down. */
VX_MUST_USE vx_status vx_regions_add_device(struct vx_regions *regions,
                                            const struct vx_peer *peer,
                                            const struct vx_region_wanted *wanted,
                                            void *waiter, struct vx_why *why);
/* True: it has cancelled the waiter's add_device, and on_added is not called for it. */
bool vx_regions_forget(struct vx_regions *regions, void *waiter);
/* "" = every region of that kind that this connection has.  An unknown name is not an
 * error, as in Triton. */
void vx_regions_remove(struct vx_regions *regions, const struct vx_peer *peer,
                       enum vx_region_kind kind, const char *name);

/* For the status methods: iterates over this connection's regions of one kind.  *cursor
 * starts at 0; false at the end.  The texts are borrowed until the next call. */
struct vx_region_said {
    const char *name, *key;
    u64 offset, bytes;
    i64 device;
};
bool vx_regions_next(const struct vx_regions *regions, const struct vx_peer *peer,
                     enum vx_region_kind kind, i32 *cursor, struct vx_region_said *said);

/* Takes a reference to the region and makes the piece's place.  NOT_FOUND "Unable to find shared memory region: 'R'" when this
 * connection has no region of that name; INVALID_ARGUMENT when the piece is not entirely
 * inside the region; FAILED_PRECONDITION when the client has truncated the object or the
 * device has lost the region. */
VX_MUST_USE vx_status vx_regions_use(struct vx_regions *regions,
                                     const struct vx_peer *peer,
                                     const struct vx_request_region *piece,
                                     struct vx_why *why, struct vx_place *held);
/* Releases the reference and clears *held; does nothing if it is in no region. */
void vx_regions_done(struct vx_regions *regions, struct vx_place *held);
/* Copies a piece of a system region, so that the caller validates the copy, which the
 * client cannot change.  False when the client has truncated the object meanwhile. */
VX_MUST_USE bool vx_regions_read(struct vx_regions *regions, const struct vx_place *held,
                                 void *to);
/* A worker has found that the memory is gone.  A system region cannot be used from now
 * on; a device region can be used again if its worker restarts and opens it. */
void vx_regions_lost(struct vx_regions *regions, const struct vx_place *held);
/* The request that holds the place has ended worker processes: if it is of a device region, no worker
 * opens that again, and it cannot be used from now on. */
void vx_regions_condemn(struct vx_regions *regions, const struct vx_place *held);
/* The same for all device regions of a worker whose process is of no use. */
void vx_regions_condemn_all(struct vx_regions *regions, i32 worker);
/* True if the memory is gone, as far as the front knows: the client has truncated the
 * object, or the device has lost the region. */
bool vx_regions_broken(struct vx_regions *regions, const struct vx_place *held);

/* The connection has ended: unregisters its regions. */
void vx_regions_owner_gone(struct vx_regions *regions, u64 connection);
/* Once per iteration of the loop: releases the regions that are unregistered and
 * unused. */
void vx_regions_step(struct vx_regions *regions);
/* Sends every region to the worker; called before the scheduler learns that it is up. */
void vx_regions_on_worker_up(struct vx_regions *regions, i32 worker);
void vx_regions_on_worker_down(struct vx_regions *regions, i32 worker);
void vx_regions_on_mapped(struct vx_regions *regions, i32 worker,
                          const struct vx_message_mapped *message);

/* For metrics and leak tests. */
struct vx_regions_counts {
    i32 regions[2];                  /* by kind, including LEAVING */
    i32 uses;                        /* references held now */
    u64 bytes;                       /* of system regions */
    u64 registered, refused, broken; /* totals since start */
};
void vx_regions_counts_get(struct vx_regions *regions, struct vx_regions_counts *counts);

#endif
