/* regions_private - what the files of regions share; nobody else includes it.
 *
 *   regions.c        names, references, counts
 *   regions_add.c    registration: who may, and what it needs
 *   regions_open.c   the POSIX object behind a system region
 *   regions_tell.c   words to workers and from them; the end of a row
 *
 * Owner    the table is the front's, through regions.h.
 * Thread   loop, but what is marked (lock): any, under regions->lock.  A row that is not
 *          FREE keeps everything else until the loop frees it, so who holds a reference
 *          reads it without the lock.
 * Limits   VX_REGION_KEY_BYTES.
 * Fails    as regions.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REGIONS_PRIVATE_H
#define VX_SERVER_REGIONS_PRIVATE_H

#include "server/foreign.h"
#include "server/regions.h"
#include "server/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

/* The system's longest name of a file, a slash and a NUL. */
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
    bool cut;                   /* (lock) a worker found that its object is gone */
    bool counted_broken;        /* (lock) */
    enum vx_region_kind kind;
    u64 owner;  /* connection */
    u64 serial; /* of this use of the row: head.batch of its words */
    char name[VX_WIRE_NAME_BYTES];
    u64 bytes;
    char key[VX_REGION_KEY_BYTES]; /* SYSTEM, as its client wrote it */
    u64 offset;
    int fd; /* kept for workers that come up later */
    struct vx_foreign *foreign;
    uv_work_t work; /* lets go of it */
    bool closing;   /* the loop's: fd and foreign are with a thread of libuv's */
    i64 device;     /* DEVICE */
    i32 worker;
    u8 handle[VX_IPC_HANDLE_BYTES];
    void *waiter; /* the loop's: hears of the end of OPENING */
    u32 have;     /* the loop's: bit per worker that was sent MAP, and has not refused */
    u32 owe;      /* the loop's: bit per worker that has not said MAPPED */
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

/* Whether requests may name it: it belongs to somebody. */
static inline bool vx_region_is_owned(const struct vx_region *row)
{
    return row->state == VX_REGION_OPENING || row->state == VX_REGION_NAMED;
}

/* regions.c: under the lock.  The row of that name, OPENING or NAMED; NULL. */
struct vx_region *vx_region_find(struct vx_regions *regions, u64 owner, const char *name);
/* From now on it has no name.  Without the lock. */
void vx_region_leave(struct vx_regions *regions, struct vx_region *row);

/* regions_open.c: the descriptor of the object, which this peer may read and write. */
VX_MUST_USE vx_status vx_region_open_object(const struct vx_regions_options *options,
                                            const struct vx_peer *peer,
                                            const struct vx_region_wanted *wanted,
                                            struct vx_why *why, int *fd);

/* regions_add.c: a worker with that device, or with any GPU for -1; -1 = none. */
i32 vx_regions_worker_of(const struct vx_regions *regions, i64 device);
/* OPENING or new, and now NAMED: false when its owner is gone meanwhile. */
bool vx_region_name(struct vx_regions *regions, struct vx_region *row);

/* regions_tell.c: to every worker that should have it and is up. */
void vx_region_send_map(struct vx_regions *regions, struct vx_region *row);
/* Whether one MAP more of this connection's may wait for each worker. */
bool vx_regions_may_send(const struct vx_regions *regions, u64 owner);

#endif
