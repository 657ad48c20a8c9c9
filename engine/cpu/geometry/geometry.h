/* geometry - sets of voxels and neighbour maps of the CPU device, cached by coords_ref.
 *
 * Coordinates become packed keys, which are sorted once.  Other sets of the network, and
 * neighbour maps, are built when they are first asked for, and stay with the geometry.
 * Sets have numbers: 0 is the request's, and its rows are in the request's order; the rows
 * of all others ascend by (sample, x, y, z).  Sets by logits (set_key.h), and what is made
 * from them, belong to one request: nothing finds them again, and the last drop frees them.
 * The cache finds a geometry again by its
 * coords_ref, the hash that the front computes (coords_ref.h).  If the
 * request has coordinates, they are compared in full; if it has only the coords_ref, that
 * is trusted.  The cache evicts the geometry that was used least recently, of the origin that
 * has most (shares.h).  A geometry without a coords_ref is freed with its last drop.
 *
 *   VX_TRY(vx_geometry_open(cache_bytes, &why, &cache));
 *   VX_TRY(vx_geometry_hold(cache, cpu, &view, &why, &geometry));
 *   VX_TRY(vx_geometry_set(geometry, cpu, &set_key, &why, &made));
 *   VX_TRY(vx_geometry_map(geometry, cpu, &key, &why, &map));
 *   vx_geometry_drop(cache, &geometry);
 *   vx_geometry_close(&cache);
 *
 * Owner    the cache owns geometries; hold protects one from eviction until drop.  Memory moves:
 *          arrays that keys, maps and samples point to are valid until the cache is next asked
 *          for a geometry, a set or a map; then keys and maps have new pointers.
 * Thread   one at a time (the device thread).
 * Limits   cache_bytes, reserved at open, hold everything: geometries in use, cached
 *          ones, and the scratch of a build.  VX_GEOMETRY_ENTRIES_MAX geometries,
 *          VX_GEOMETRY_SETS_MAX sets, VX_GEOMETRY_MAPS_MAX maps.  No allocation after
 *          open.
 * Fails    INVALID_ARGUMENT for coordinates out of range or duplicate, with the rows, and
 *          for a coords_ref whose geometry has another number of voxels;
 *          FAILED_PRECONDITION for a coords_ref without coordinates that is not in the
 *          cache; RESOURCE_EXHAUSTED for a set with more rows than it may have, and when a
 *          geometry does not fit beside what is in use.  Neither evicts anything.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_GEOMETRY_H
#define VX_ENGINE_GEOMETRY_GEOMETRY_H

#include "engine/base/limits.h"
#include "engine/base/status.h"
#include "engine/base/text/coords_ref.h"
#include "engine/map_key.h"
#include "engine/set_key.h"

struct vx_cpu;
struct vx_geometry_cache;
struct vx_geometry;

/* Geometries in the cache: for a worker with a thousand streams, the last few frames of
 * each.  An entry has 128 bytes. */
#define VX_GEOMETRY_ENTRIES_MAX 4096

/* Sets in the cache besides those of the requests: the networks we know have up to 6. */
#define VX_GEOMETRY_SETS_MAX 8192

/* Sets of one geometry, those of several networks in several spatial shapes; one more replaces
 * sets of its own.  So ever new shapes of the same voxels neither evict other geometries nor make a
 * list that is long to search. */
#define VX_GEOMETRY_OWN_SETS 256

/* Maps in the cache: the networks we know need 1 to 9 for each geometry. */
#define VX_GEOMETRY_MAPS_MAX 16384

struct vx_coords_view {
    /* (n, columns) row-major, borrowed for the call; NULL: the geometry of `content`. */
    const i32 *rows;
    i64 n;
    i32 columns;                     /* 4: sample x y z; 3: x y z, sample 0 */
    struct vx_coords_ref coords_ref; /* zeros = none: do not keep the geometry */
    u64 origin;                      /* who asks, in whose share it is kept */
};

struct vx_map {
    struct vx_map_key key; /* from and to: numbers of sets */
    i32 v;                 /* kernel[0] * kernel[1] * kernel[2] */
    i64 n;                 /* rows of the set `to` */
    const i32 *nbr;        /* (V, N): the row of set `from` at each offset, -1 = none */
    i64 pairs;             /* entries of nbr that are not -1 */
};

struct vx_geometry_stats {
    i64 bytes, bytes_max;
    /* Each geometry, set and map counts.  A coords_ref that is not in the cache is a
     * miss; so is a geometry without one. */
    i64 hits, misses, evictions;
};

VX_MUST_USE vx_status vx_geometry_open(size_t cache_bytes, struct vx_why *why,
                                       struct vx_geometry_cache **cache);
void vx_geometry_close(struct vx_geometry_cache **cache);

/* Finds or builds the geometry of a request; the caller drops it. */
VX_MUST_USE vx_status vx_geometry_hold(struct vx_geometry_cache *cache,
                                       struct vx_cpu *cpu,
                                       const struct vx_coords_view *view,
                                       struct vx_why *why, struct vx_geometry **geometry);
/* How large a set may be, and is. */
struct vx_geometry_made {
    i64 rows_max; /* in: a larger set is not made; 0 = any that fits */
    i32 number;   /* out: of the set, valid until drop; 0: it is not made */
    i64 rows;     /* out: also of a set that is not made, as far as they were counted */
    bool exact;   /* out: it has so many, else at least so many */
};
/* Finds or builds a set of a held geometry; key->from is 0 or a number that an earlier
 * call gave.  A set that is larger than rows_max, or than what can be free, is refused as soon as
 * that is certain: mostly before it takes room from anything else. */
VX_MUST_USE vx_status vx_geometry_set(struct vx_geometry *geometry, struct vx_cpu *cpu,
                                      const struct vx_set_key *key, struct vx_why *why,
                                      struct vx_geometry_made *made);
/* A set by logits, and its logits: (rows of key.from, children of a voxel), for KEEP
 * (rows of key.from, 1). */
struct vx_geometry_prediction {
    struct vx_set_key key; /* as above */
    const f32 *logits;
};
/* Makes it; no logit is NaN. */
VX_MUST_USE vx_status vx_geometry_predict(struct vx_geometry *geometry,
                                          struct vx_cpu *cpu,
                                          const struct vx_geometry_prediction *prediction,
                                          struct vx_why *why,
                                          struct vx_geometry_made *made);
/* The first voxel, by sample x y z, with a logit that is not a number, and the first such
 * child; false: there is none. */
bool vx_geometry_find_nan(const struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_geometry_prediction *prediction, i32 voxel[4],
                          i32 *child);
/* The rows of a set. */
i64 vx_geometry_rows(const struct vx_geometry *geometry, i32 set);
/* Writes the coordinates of a set, (N, 4) sample x y z in voxels of that set. */
void vx_geometry_coords(const struct vx_geometry *geometry, struct vx_cpu *cpu, i32 set,
                        i32 *coords);
/* The rows of a set sample by sample: those of the i-th sample that has any are
 * rows[starts[i]] .. rows[starts[i + 1] - 1], ascending by x, y, z. */
struct vx_geometry_samples {
    i32 count;
    i64 starts[VX_SAMPLE_MAX + 2];
    const i32 *rows; /* (N) */
};
void vx_geometry_samples_get(const struct vx_geometry *geometry, i32 set,
                             struct vx_geometry_samples *samples);
/* The first row of the request, in the order of keys, that lies outside of 0 .. shape - 1
 * along an axis, and its sample x y z; or -1.  An axis of 0 is not bounded. */
i64 vx_geometry_outside(const struct vx_geometry *geometry, const i32 shape[3],
                        i32 at[4]);
/* The same for any set: the place of a voxel in its keys, or -1. */
i64 vx_geometry_set_outside(const struct vx_geometry *geometry, i32 set,
                            const i32 shape[3]);
/* The voxels of a set in canonical order, and their rows; valid until drop. */
const struct vx_keys *vx_geometry_keys(const struct vx_geometry *geometry, i32 set);
/* 1 + the largest sample of the request; 0 if it has no voxels. */
i32 vx_geometry_samples(const struct vx_geometry *geometry);
/* Finds or builds a map of a held geometry, whose key names sets by their numbers; valid
 * until drop. */
VX_MUST_USE vx_status vx_geometry_map(struct vx_geometry *geometry, struct vx_cpu *cpu,
                                      const struct vx_map_key *key, struct vx_why *why,
                                      const struct vx_map **map);
/* True when hold, and every set and map since hold that the cache keeps, came from it. */
bool vx_geometry_was_hit(const struct vx_geometry *geometry);
/* True when the geometry is in the cache under its coords_ref. */
bool vx_geometry_kept(const struct vx_geometry *geometry);
void vx_geometry_drop(struct vx_geometry_cache *cache, struct vx_geometry **geometry);
/* Frees the geometry of a coords_ref, if it is cached and not held. */
void vx_geometry_forget(struct vx_geometry_cache *cache, struct vx_coords_ref name);
/* While `still`, no block moves and nothing of a held geometry is evicted: somebody reads them.  Where
 * that would have made room, there is none (RESOURCE_EXHAUSTED). */
void vx_geometry_keep_still(struct vx_geometry_cache *cache, bool still);
/* Whether there was none since then, and may be some later. */
bool vx_geometry_lacked(const struct vx_geometry_cache *cache);
void vx_geometry_stats_get(const struct vx_geometry_cache *cache,
                           struct vx_geometry_stats *stats);

/* For tests: uses only these bits of every coords_ref, so that different sets collide. */
void vx_geometry_weaken(struct vx_geometry_cache *cache, u64 bits);

#endif
