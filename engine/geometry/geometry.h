/* geometry - an active set and all that follows from it, kept by name.
 *
 * Coordinates become packed keys, sorted once, and, on demand, one neighbour map per
 * (kernel, dilation).  A geometry is found again by the name that the front made of its
 * coordinates (base/content.h): confirmed by a full compare when the coordinates are
 * there, taken at its word when the name comes alone.  Thrown out is what was used least
 * recently; a geometry without a name ends with its last drop.
 *
 *   VX_TRY(vx_geometry_open(cache_bytes, &why, &cache));
 *   VX_TRY(vx_geometry_hold(cache, cpu, &view, &why, &geometry));
 *   VX_TRY(vx_geometry_map(geometry, cpu, &key, &why, &map));
 *   vx_geometry_drop(cache, &geometry);
 *   vx_geometry_close(&cache);
 *
 * Owner    the cache owns geometries; hold pins one until drop.
 * Thread   one at a time (the device thread).
 * Limits   cache_bytes, reserved at open, hold everything: what is pinned, what is kept,
 *          and the scratch of a build.  VX_GEOMETRY_ENTRIES_MAX geometries,
 *          VX_GEOMETRY_MAPS_MAX maps.  No allocation after open.
 * Fails    INVALID_ARGUMENT for coordinates out of range or duplicate, naming the rows,
 *          and for a name that stands for another number of voxels;
 *          FAILED_PRECONDITION for a name alone that is not in the cache;
 *          RESOURCE_EXHAUSTED when one geometry does not fit even an otherwise empty
 *          cache.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_GEOMETRY_H
#define VX_ENGINE_GEOMETRY_GEOMETRY_H

#include "engine/base/content.h"
#include "engine/base/limits.h"
#include "engine/base/status.h"

struct vx_cpu;
struct vx_geometry_cache;
struct vx_geometry;

/* Geometries kept at once: a worker that serves a thousand streams keeps the last few
 * frames of each; 128 bytes an entry. */
#define VX_GEOMETRY_ENTRIES_MAX 4096

/* Maps kept at once: networks we know need 1 to 9 per geometry. */
#define VX_GEOMETRY_MAPS_MAX 16384

struct vx_coords_view {
    const i32 *rows; /* (n, columns) row-major, borrowed for the call; NULL: those that
                        `content` names */
    i64 n;
    i32 columns;               /* 4: sample x y z; 3: x y z, sample 0 */
    struct vx_content content; /* their name; zeros: none, and nobody finds them again */
};

struct vx_map_key {
    i32 kernel[3];   /* odd, along x y z */
    i32 dilation[3]; /* >= 1 */
};
struct vx_map {
    struct vx_map_key key;
    i32 v; /* kernel[0] * kernel[1] * kernel[2] */
    i64 n;
    const i32 *nbr; /* (V, N): row of the neighbour at coordinate + offset(v), -1 empty */
    i64 pairs;      /* entries that are not -1 */
};

struct vx_geometry_stats {
    i64 bytes, bytes_max;
    /* Of geometries and of maps, counted one by one; a name alone that is not in the cache
     * is a miss, a geometry without a name too. */
    i64 hits, misses, evictions;
};

VX_MUST_USE vx_status vx_geometry_open(size_t cache_bytes, struct vx_why *why,
                                       struct vx_geometry_cache **cache);
void vx_geometry_close(struct vx_geometry_cache **cache);

VX_MUST_USE vx_status vx_geometry_hold(struct vx_geometry_cache *cache,
                                       struct vx_cpu *cpu,
                                       const struct vx_coords_view *view,
                                       struct vx_why *why, struct vx_geometry **geometry);
/* The map lives until drop (and longer if the geometry stays cached). */
VX_MUST_USE vx_status vx_geometry_map(struct vx_geometry *geometry, struct vx_cpu *cpu,
                                      const struct vx_map_key *key, struct vx_why *why,
                                      const struct vx_map **map);
/* True when hold and every map since hold came from the cache. */
bool vx_geometry_was_hit(const struct vx_geometry *geometry);
/* True when the cache has it under the name that it was held by. */
bool vx_geometry_kept(const struct vx_geometry *geometry);
void vx_geometry_drop(struct vx_geometry_cache *cache, struct vx_geometry **geometry);
/* Takes what nobody holds out of the cache, if that name is there. */
void vx_geometry_forget(struct vx_geometry_cache *cache, struct vx_content name);
void vx_geometry_stats_get(const struct vx_geometry_cache *cache,
                           struct vx_geometry_stats *stats);

/* For tests: keeps only these bits of every name, so that different sets collide. */
void vx_geometry_weaken(struct vx_geometry_cache *cache, u64 bits);

#endif
