/* regions_private - what the files of regions share; no other file includes it.
 *
 *   regions.c        names, references, counts
 *   regions_add.c    registration: who may, and what it needs
 *   regions_open.c   the POSIX object behind a system region
 *   regions_tell.c   messages to and from workers; the release of a region
 *
 * Owner    the table is the front's, through regions.h.
 * Thread   loop; fields marked (lock): any, under regions->lock.  The other fields of a
 *          row do not change until the loop frees the row, so a thread that holds a
 *          reference reads them without the lock.
 * Limits   VX_REGION_KEY_BYTES.
 * Fails    as regions.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REGIONS_PRIVATE_H
#define VX_SERVER_REGIONS_PRIVATE_H

#include "server/ipc/foreign.h"
#include "server/regions/regions.h"
#include "server/workers/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

/* The longest file name (255 bytes), a slash and a NUL. */
#define VX_REGION_KEY_BYTES 257

enum vx_region_state {
    VX_REGION_FREE,
    VX_REGION_OPENING,
    VX_REGION_NAMED,
    VX_REGION_LEAVING,
};

struct vx_region {
    enum vx_region_state state; /* (lock) */
    i32 uses;                   /* (lock) */
    bool lost;                  /* (lock) DEVICE: its worker could not open it again */
    bool condemned;             /* (lock) DEVICE: no worker opens it again */
    bool cut;                   /* (lock) a worker found that its object is gone */
    bool counted_broken;        /* (lock) */
    enum vx_region_kind kind;
    u64 owner;  /* connection */
    u64 serial; /* of this use of the row: head.serial of its MAP, MAPPED and UNMAP */
    char name[VX_WIRE_NAME_BYTES];
    u64 bytes;
    char key[VX_REGION_KEY_BYTES]; /* SYSTEM, as its client wrote it */
    u64 offset;
    int fd; /* kept for workers that start later */
    struct vx_foreign *foreign;
    uv_work_t work; /* releases fd and foreign */
    bool closing;   /* loop only: `work` is under way and owns fd and foreign */
    i64 device;     /* DEVICE */
    i32 worker;
    u8 handle[VX_IPC_HANDLE_BYTES];
    void *waiter; /* loop only: on_added is called with it when OPENING ends */
    u32 have;     /* loop only: a bit per worker that got MAP and has not refused it */
    u32 owe;      /* loop only: a bit per worker whose MAPPED is awaited */
};

/* The setting client_shm. */
enum vx_regions_who { VX_REGIONS_OFF, VX_REGIONS_UNIX, VX_REGIONS_LOCAL };

struct vx_regions {
    struct vx_regions_options options;
    enum vx_regions_who who;
    pthread_mutex_t lock;
    i32 uses;                        /* (lock) */
    u64 registered, refused, broken; /* (lock) */
    u64 serial;
    atomic_bool stirred; /* a row may have something to do in vx_regions_step */
    struct vx_region rows[VX_REGIONS_MAX];
};

static inline i32 vx_region_number(const struct vx_regions *regions,
                                   const struct vx_region *row)
{
    return (i32)(row - regions->rows) + 1;
}

/* True if the region has an owner and a name. */
static inline bool vx_region_is_owned(const struct vx_region *row)
{
    return row->state == VX_REGION_OPENING || row->state == VX_REGION_NAMED;
}

/* regions.c: the owner's region of that name, OPENING or NAMED, or NULL.  The caller
 * holds the lock. */
struct vx_region *vx_region_find(struct vx_regions *regions, u64 owner, const char *name);
/* Takes the region's name away: LEAVING.  The caller does not hold the lock. */
void vx_region_leave(struct vx_regions *regions, struct vx_region *row);

/* regions_open.c: opens the object, if this peer may read and write it. */
VX_MUST_USE vx_status vx_region_open_object(const struct vx_regions_options *options,
                                            const struct vx_peer *peer,
                                            const struct vx_region_wanted *wanted,
                                            struct vx_why *why, int *fd);

/* regions_add.c: a worker with that device, or for -1 with any GPU; -1 if there is
 * none. */
i32 vx_regions_worker_of(const struct vx_regions *regions, i64 device);
/* Makes a new or OPENING row NAMED; or LEAVING, and false, if its owner has ended. */
bool vx_region_name(struct vx_regions *regions, struct vx_region *row);

/* regions_tell.c: sends MAP to every worker that should have the region and is up. */
void vx_region_send_map(struct vx_regions *regions, struct vx_region *row);
/* True if this connection may have one more unanswered MAP at each worker. */
bool vx_regions_may_send(const struct vx_regions *regions, u64 owner);

#endif
