/* geometry_store - the geometries that a device remembers: where each lies in a range of
 * device memory, who uses it, and which is thrown out when there is no room.
 *
 * An entry is one request's active set with its coordinates and its maps, under the name of
 * those coordinates and of the list of maps; the orders of its rows are added as they are
 * first wanted.  The store touches none of the bytes: it says where they go.  A name is
 * not proof: who finds an entry by it compares the coordinates.
 *
 *   VX_TRY(vx_gpu_store_open(gpu, bytes, &why, &store));
 *   struct vx_gpu_geometry *it = vx_gpu_store_hold(store, &name);
 *   if (!it) it = vx_gpu_store_make(store, &want);      NULL = no room: build it elsewhere
 *   ...
 *   vx_gpu_store_drop(store, &it);
 *   vx_gpu_store_close(&store);
 *
 * NEW   -> HELD  make, hold; not moved and not thrown out while it is
 * HELD  -> KEPT  the last drop
 * KEPT  -> HELD  hold
 * KEPT  -> FREE  thrown out, least recently used first
 * HELD  -> GONE  forget: its name finds it no more
 * GONE  -> FREE  the last drop
 *
 * Owner    the store owns entries; hold pins one until drop.
 * Thread   device.
 * Limits   `bytes`, taken at open; VX_GPU_STORE_ENTRIES geometries, VX_GPU_STORE_ORDERS
 *          orders.  No allocation after open.
 * Fails    open: RESOURCE_EXHAUSTED with the numbers; make and order: NULL for no room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_GEOMETRY_STORE_H
#define VX_ENGINE_GPU_GEOMETRY_STORE_H

#include "engine/base/content.h"
#include "engine/gpu/gpu.h"

/* As many as the CPU's cache keeps: the last few frames of a thousand streams. */
#define VX_GPU_STORE_ENTRIES 4096

/* Networks we know sort one to four maps of a geometry. */
#define VX_GPU_STORE_ORDERS 16384

struct vx_gpu_store;

/* What an entry is found by. */
struct vx_gpu_store_name {
    struct vx_content content; /* of the coordinates */
    struct vx_content maps;    /* of the list of map keys that was built for them */
};
/* Borrowed from hold or make to drop; the second half is the user's to write. */
struct vx_gpu_geometry {
    struct vx_gpu_store_name name;
    i64 n;
    i32 columns;
    void *memory; /* device: what was asked for */
    bool gone;    /* forgotten: its name finds it no more */

    u32 writers;  /* lanes whose work on it the host has not seen the end of, as bits */
    bool settled; /* the host has seen that it is good, and `pairs` */
    i64 pairs;

    /* The store's. */
    u64 offset;
    i32 holds;
    i32 chain;        /* next of its hash, or of the free */
    i32 older, newer; /* of those that are kept, by last use */
    i32 orders;
};

struct vx_gpu_store_want {
    struct vx_gpu_store_name name;
    i64 n;
    i32 columns;
    size_t bytes;
};
struct vx_gpu_store_order {
    i32 map; /* in the list */
    i32 groups;
    size_t bytes;
};
struct vx_gpu_store_stats {
    i64 bytes, bytes_max;
    i64 hits, misses, evictions;
};

VX_MUST_USE vx_status vx_gpu_store_open(struct vx_gpu *gpu, size_t bytes,
                                        struct vx_why *why, struct vx_gpu_store **store);
void vx_gpu_store_close(struct vx_gpu_store **store);

/* NULL = not there. */
struct vx_gpu_geometry *vx_gpu_store_hold(struct vx_gpu_store *store,
                                          const struct vx_gpu_store_name *name);
/* Of one request, once: a hit is a geometry that was there and was used. */
void vx_gpu_store_count(struct vx_gpu_store *store, bool hit);
/* A new entry, held; throws out what is not held for it, as long as there is such.
 * NULL = no room. */
struct vx_gpu_geometry *vx_gpu_store_make(struct vx_gpu_store *store,
                                          const struct vx_gpu_store_want *want);
void vx_gpu_store_drop(struct vx_gpu_store *store, struct vx_gpu_geometry **geometry);
/* Of one that is held; a second time does nothing. */
void vx_gpu_store_forget(struct vx_gpu_store *store, struct vx_gpu_geometry *geometry);

/* The device memory of an order of a held entry, NULL = it has none such. */
void *vx_gpu_store_order_find(const struct vx_gpu_store *store,
                              const struct vx_gpu_geometry *geometry,
                              const struct vx_gpu_store_order *order);
/* Takes it; NULL = no room. */
void *vx_gpu_store_order_make(struct vx_gpu_store *store,
                              struct vx_gpu_geometry *geometry,
                              const struct vx_gpu_store_order *order);
void vx_gpu_store_stats_get(const struct vx_gpu_store *store,
                            struct vx_gpu_store_stats *stats);

#endif
