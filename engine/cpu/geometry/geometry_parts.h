/* geometry_parts - the state of the geometry cache, for the files that carry it out.
 *
 * geometry.c finds and holds geometries, geometry_sets.c adds sets and maps to one that is
 * held, geometry_build.c makes the voxels of a set, geometry_cache.c gives out the memory and
 * evicts, pack.c moves it together.
 *
 * Owner    the cache owns every entry and every block of the range.
 * Thread   one at a time (the device thread).
 * Fails    as geometry.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_PARTS_H
#define VX_ENGINE_GEOMETRY_PARTS_H

#include "engine/base/memory/buddy.h"
#include "engine/base/memory/shares.h"
#include "engine/cpu/geometry/geometry.h"
#include "engine/cpu/geometry/keys.h"

#define VX_GEOMETRY_CACHE_MAGIC 0x76784743u /* "vxGC" */
#define VX_GEOMETRY_MAGIC       0x76784745u /* "vxGE" */

#define VX_GEOMETRY_NONE (-1)

/* A map, and the two blocks in which an order is sorted. */
#define VX_GEOMETRY_LOOSE_MAX 3
#define VX_GEOMETRY_PARTS_MAX                                                            \
    (VX_GEOMETRY_ENTRIES_MAX + VX_GEOMETRY_SETS_MAX + VX_GEOMETRY_MAPS_MAX +             \
     VX_GEOMETRY_LOOSE_MAX)

/* Twice as many chains as geometries, so chains stay short. */
#define VX_GEOMETRY_CHAINS (2 * VX_GEOMETRY_ENTRIES_MAX)

/* A piece of the range; zeros: none. */
struct vx_geometry_block {
    u64 offset;
    size_t bytes; /* asked for */
    size_t taken; /* of the range */
};

/* Who points into a block, and is told when it moves: keys, or else a map. */
struct vx_geometry_part {
    struct vx_geometry_block *block;
    struct vx_keys *keys;
    struct vx_map *map;
};

/* The voxels of a set, sorted, and the block of the range that holds them. */
struct vx_active_set {
    struct vx_keys_scan scan;
    struct vx_keys set;
    struct vx_geometry_block block;
};

/* FREE   -> HELD    hold, a miss
 * HELD   -> KEPT    the last drop
 * KEPT   -> HELD    hold, a hit
 * HELD   -> FREE    the last drop of a geometry without a coords_ref
 * KEPT   -> FREE    evicted: which one, shares.h says
 * HELD   -> FREE    hold failed: a duplicate voxel, no room */
struct vx_geometry {
    u32 magic;
    i32 holds; /* 0: KEPT, may be evicted */
    struct vx_geometry_cache *cache;
    bool named; /* has a coords_ref and is in its chain; else freed by the last drop */
    struct vx_coords_ref name;
    struct vx_active_set request; /* set 0; its rows are the request's */
    i32 sets;                     /* index of its first set other than 0 */
    i32 maps;                     /* index of its first map */
    i32 next;                     /* in the chain of its coords_ref, or of free entries */
    u64 used;                     /* when it was last held */
    u64 asker;                    /* the origin of that request */
    bool was_hit;                 /* since hold */
};

/* A set that was made from another one; its rows are in the order of the keys. */
struct vx_set_entry {
    struct vx_set_key key; /* from: a number of vx_geometry_set */
    struct vx_active_set active;
    bool passing; /* depends on features: freed by the last drop */
    i32 next;     /* of the same geometry, or of free entries */
    u64 used;     /* when it was last asked for */
};

struct vx_map_entry {
    struct vx_map map;
    struct vx_geometry_block block;
    bool passing; /* one of its sets is */
    i32 next;     /* of the same geometry, or of free entries */
    u64 used;     /* when it was last asked for */
};

struct vx_geometry_cache {
    u32 magic;
    u8 *range;
    size_t bytes;
    struct vx_buddy *buddy;
    struct vx_shares *shares; /* its entries are the geometries */
    struct vx_cpu *cpu;       /* of the last hold, whose caller keeps it */
    struct vx_cpu *still_cpu; /* of the last one before it was to be still */
    /* Bytes of all blocks, each in whole pages: what they need when packed. */
    size_t pages;
    i32 loose_count;
    bool still;  /* vx_geometry_keep_still */
    bool lacked; /* since then something found no room that it might find later */
    u64 now;     /* counts holds, and requests for sets and maps: the clock of `used` */
    u64 coords_ref_bits;
    i64 hits, misses, evictions;
    i32 geometries_free, sets_free, maps_free;
    i32 chains[VX_GEOMETRY_CHAINS];
    u32 counts[VX_KEYS_PIECES_MAX][1 << VX_KEYS_DIGIT_BITS];
    struct vx_geometry geometries[VX_GEOMETRY_ENTRIES_MAX];
    struct vx_set_entry sets[VX_GEOMETRY_SETS_MAX];
    struct vx_map_entry maps[VX_GEOMETRY_MAPS_MAX];
    /* Blocks of a build under way, which no geometry has yet. */
    struct vx_geometry_part loose[VX_GEOMETRY_LOOSE_MAX];
    struct vx_geometry_part parts[VX_GEOMETRY_PARTS_MAX]; /* only while they are moved */
};

/* Its number: that of its entry in the shares. */
static inline i32 vx_geometry_index(const struct vx_geometry *geometry)
{
    return (i32)(geometry - geometry->cache->geometries);
}
/* The chain of a coords_ref. */
i32 *vx_geometry_chain(struct vx_geometry_cache *cache,
                       const struct vx_coords_ref *coords_ref);
/* Frees a geometry that is not held, with its sets and maps. */
void vx_geometry_free(struct vx_geometry_cache *cache, struct vx_geometry *geometry);
/* Frees the sets and maps that depend on features. */
void vx_geometry_free_passing(struct vx_geometry_cache *cache,
                              struct vx_geometry *geometry);
/* Makes room for so much more of what is short, for a request of `origin`: evicts one geometry
 * that is not in use.  False: there is none. */
struct vx_geometry_want {
    u64 origin;
    enum vx_share kind;
    i64 more;
};
bool vx_geometry_evict_kept(struct vx_geometry_cache *cache,
                            const struct vx_geometry_want *want);
/* Does that for a held geometry, or else evicts what no held geometry's request has asked for. */
bool vx_geometry_evict(struct vx_geometry *geometry, enum vx_share kind, i64 more);
/* If a held geometry has VX_GEOMETRY_OWN_SETS sets, evicts all that its request has not asked for:
 * one at a time would be the last that was made, which may be the next that is asked for. */
void vx_geometry_trim(struct vx_geometry_cache *cache, struct vx_geometry *geometry);
/* Fails unless so many blocks of so many bytes would find room if everything were evicted that can
 * be; evicts nothing. */
VX_MUST_USE vx_status vx_geometry_check_room(struct vx_geometry_cache *cache,
                                             size_t bytes, size_t blocks,
                                             struct vx_why *why);
/* Counts what a held geometry has more of, or less.  It belongs to the origin that built the last
 * of it.  By the last use an origin could take what it knows of another's and then lose it; by the
 * first it could make another's share grow, for which that would give all else that it has. */
void vx_geometry_charge(struct vx_geometry *geometry, enum vx_share kind, i64 more);
/* Takes a block of the range for a held geometry; evicts until one is free or nothing is left to
 * evict, and then packs.  So it fails only when what is in use leaves less than `bytes`, in whole
 * pages.  All other blocks may move: pointers into them are read again, and who has one that
 * belongs to no geometry lists it as loose.  A block that cannot fit evicts nothing. */
VX_MUST_USE vx_status vx_geometry_take(struct vx_geometry *geometry, size_t bytes,
                                       struct vx_why *why,
                                       struct vx_geometry_block *block);
/* The same for n keys with their rows. */
VX_MUST_USE vx_status vx_geometry_take_keys(struct vx_geometry *geometry, i64 n,
                                            struct vx_why *why,
                                            struct vx_geometry_block *block,
                                            struct vx_keys *set);
/* Gives a block of the geometry back, if it is one. */
void vx_geometry_give(struct vx_geometry *geometry, struct vx_geometry_block *block);
/* Lists a block as loose; the last one listed is the first to settle. */
void vx_geometry_loosen(struct vx_geometry_cache *cache,
                        const struct vx_geometry_part *part);
void vx_geometry_settle(struct vx_geometry_cache *cache);
/* Moves all blocks to the beginning of the range, each in whole pages, and tells who points
 * into them (pack.c); returns where the free rest begins. */
u64 vx_geometry_pack(struct vx_geometry_cache *cache);
/* Where a block is now. */
void *vx_geometry_at(const struct vx_geometry_cache *cache,
                     const struct vx_geometry_block *block);
void vx_geometry_point_keys(const struct vx_geometry_cache *cache,
                            const struct vx_geometry_block *block, struct vx_keys *set);
/* The set of that number: 0, or of vx_geometry_set. */
const struct vx_active_set *vx_geometry_active(const struct vx_geometry *geometry,
                                               i32 number);

/* --- geometry_build.c --- */

/* Two blocks of keys, which a sort needs, listed as loose. */
struct vx_geometry_candidates {
    struct vx_keys_sort sort;
    struct vx_keys_scan scan;
    struct vx_geometry_block blocks[2];
    int taken;
};
VX_MUST_USE vx_status
vx_geometry_candidates_take(struct vx_geometry *geometry, i64 count, struct vx_why *why,
                            struct vx_geometry_candidates *candidates);
void vx_geometry_candidates_give(struct vx_geometry *geometry,
                                 struct vx_geometry_candidates *candidates);

/* A set that is made. */
struct vx_geometry_build {
    struct vx_geometry *geometry;
    struct vx_cpu *cpu;
    const struct vx_geometry_prediction *prediction; /* logits NULL: by the key alone */
    struct vx_why *why;
    struct vx_geometry_made *made;
    i64 candidates;              /* the first call sets it, the second one reads it */
    struct vx_active_set active; /* out; its block is the caller's */
};
/* Counts what the set is made from.  Fails if it is then certain that the set is too large; it has
 * taken and evicted nothing. */
VX_MUST_USE vx_status vx_geometry_build_count(struct vx_geometry_build *build);
/* Makes the voxels. */
VX_MUST_USE vx_status vx_geometry_build_set(struct vx_geometry_build *build);
/* Sets the rows of a set, and fails if they are more than it may have. */
VX_MUST_USE vx_status vx_geometry_check_rows(struct vx_geometry_made *made, i64 rows,
                                             bool exact, struct vx_why *why);

#endif
