/* geometry_store - the geometry cache of a device, and the memory of its entries.
 *
 * An entry is the geometry of one request: its coordinates, sorted voxels and maps.  It
 * is found by a name: the coords_ref of the coordinates and the hash of the list of maps.
 * Row orders are added to it when they are first needed.  The store assigns memory and
 * never accesses its contents.  Equal names do not prove equal coordinates: the caller
 * compares the coordinates.
 *
 *   VX_TRY(vx_gpu_store_open(gpu, bytes, &why, &store));
 *   struct vx_gpu_geometry *it = vx_gpu_store_hold(store, &name, origin);
 *   if (!it) it = vx_gpu_store_make(store, &want);   (NULL = no room: build it elsewhere)
 *   ...
 *   vx_gpu_store_drop(store, &it);
 *   vx_gpu_store_close(&store);
 *
 * FREE  -> HELD  make; a held entry is neither moved nor evicted
 * HELD  -> KEPT  the last drop
 * KEPT  -> HELD  hold
 * KEPT  -> FREE  evicted: which one, shares.h says
 * HELD  -> GONE  forget: its name no longer finds it
 * GONE  -> FREE  the last drop
 *
 * Owner    the store owns entries; hold pins one until drop.
 * Thread   device.
 * Limits   `bytes`, allocated at open; VX_GPU_STORE_ENTRIES geometries,
 *          VX_GPU_STORE_ORDERS orders.  No allocation after open.
 * Fails    open: RESOURCE_EXHAUSTED with the numbers, INVALID_ARGUMENT too few bytes;
 *          make and order_make: NULL for no room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_GEOMETRY_STORE_H
#define VX_ENGINE_GPU_GEOMETRY_STORE_H

#include "engine/base/limits.h"
#include "engine/base/text/coords_ref.h"
#include "engine/gpu/driver/gpu.h"

/* As many as the CPU's cache keeps: the last few frames of a thousand input streams. */
#define VX_GPU_STORE_ENTRIES 4096

/* Four orders per entry: known networks sort one to four maps of a geometry. */
#define VX_GPU_STORE_ORDERS 16384

/* The maps of a geometry whose fill is kept.  Networks have one or two maps of one set on
 * each level. */
#define VX_GPU_FILLS_MAX 16

struct vx_gpu_store;

/* The key of an entry. */
struct vx_gpu_store_name {
    struct vx_coords_ref coords_ref; /* the coords_ref of the coordinates */
    struct vx_coords_ref maps;       /* the hash of the list of map keys */
    i32 shape[3];                    /* the request's own; zeros: the network's */
};
/* Borrowed from hold or make until drop.  The caller writes `sized`, `rows`,
 * `writers`, `settled`, `pairs` and `fills`; the store writes the other fields. */
struct vx_gpu_geometry {
    struct vx_gpu_store_name name;
    i64 n;
    i32 columns;
    void *memory; /* device memory of the size that was wanted */
    bool gone;    /* forgotten: its name no longer finds it */

    /* Rows of each set, once the host knows them; of a network of one set always. */
    bool sized;
    i64 rows[VX_SETS_MAX];

    u32 writers;  /* bits of the lanes that may still write to it */
    bool settled; /* the host has read that it is valid, and `pairs` */
    i64 pairs;
    f32 fills[VX_GPU_FILLS_MAX]; /* pairs / (rows * V) of some maps; 0 = not known */

    /* Private to the store. */
    u64 offset;
    i32 holds;
    i32 chain; /* next with the same hash, or next free */
    i32 orders;
};

struct vx_gpu_store_want {
    struct vx_gpu_store_name name;
    u64 origin; /* who asks, in whose share it is kept */
    i64 n;
    i32 columns;
    size_t bytes;
};
/* In place of a map: the maps of an entry, if they were not part of its first memory. */
#define VX_GPU_STORE_MAPS (-1)
struct vx_gpu_store_order {
    i32 map; /* index in the list of maps, or MAPS */
    i32 groups;
    size_t bytes;
    /* To make it.  An entry belongs to the origin that built the last of it: by the last use one
     * could take what it knows of another's and then lose it, by the first make its share grow. */
    u64 origin;
};
struct vx_gpu_store_stats {
    i64 bytes, bytes_max;
    i64 hits, misses, evictions;
};

VX_MUST_USE vx_status vx_gpu_store_open(struct vx_gpu *gpu, size_t bytes,
                                        struct vx_why *why, struct vx_gpu_store **store);
void vx_gpu_store_close(struct vx_gpu_store **store);

/* Finds and holds an entry for a request of `origin`; NULL = not there. */
struct vx_gpu_geometry *vx_gpu_store_hold(struct vx_gpu_store *store,
                                          const struct vx_gpu_store_name *name,
                                          u64 origin);
/* Counts one request: a hit used a geometry that was in the store. */
void vx_gpu_store_count(struct vx_gpu_store *store, bool hit);
/* Makes an entry and holds it; evicts entries that are not held, until there is room.
 * NULL = no room. */
struct vx_gpu_geometry *vx_gpu_store_make(struct vx_gpu_store *store,
                                          const struct vx_gpu_store_want *want);
void vx_gpu_store_drop(struct vx_gpu_store *store, struct vx_gpu_geometry **geometry);
/* Makes a held entry impossible to find; does nothing the second time. */
void vx_gpu_store_forget(struct vx_gpu_store *store, struct vx_gpu_geometry *geometry);

/* The device memory of a row order, or of the maps, of a held entry; NULL = it has none. */
void *vx_gpu_store_order_find(const struct vx_gpu_store *store,
                              const struct vx_gpu_geometry *geometry,
                              const struct vx_gpu_store_order *order);
/* Allocates the memory of a row order, or of the maps, for a held entry; NULL = no room. */
void *vx_gpu_store_order_make(struct vx_gpu_store *store,
                              struct vx_gpu_geometry *geometry,
                              const struct vx_gpu_store_order *order);
void vx_gpu_store_stats_get(const struct vx_gpu_store *store,
                            struct vx_gpu_store_stats *stats);

#endif
