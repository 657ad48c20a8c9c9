/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/cpu/geometry/geometry.h"

#include "engine/base/memory/buddy.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/geometry/keys.h"
#include "engine/cpu/geometry/map.h"
#include "engine/cpu/geometry/room.h"

#include <string.h>
#include <sys/mman.h>

#define CACHE_MAGIC    0x76784743u /* "vxGC" */
#define GEOMETRY_MAGIC 0x76784745u /* "vxGE" */

#define NONE (-1)

/* Twice as many chains as geometries, so chains stay short. */
#define CHAINS_COUNT (2 * VX_GEOMETRY_ENTRIES_MAX)

/* FREE   -> HELD    hold, a miss
 * HELD   -> KEPT    the last drop
 * KEPT   -> HELD    hold, a hit
 * HELD   -> FREE    the last drop of a geometry without a coords_ref
 * KEPT   -> FREE    evicted, least recently used first
 * HELD   -> FREE    hold failed: a duplicate voxel, no room */
struct vx_geometry {
    u32 magic;
    i32 holds; /* 0: KEPT, may be evicted */
    struct vx_geometry_cache *cache;
    bool named; /* has a coords_ref and is in its chain; else freed by the last drop */
    struct vx_coords_ref name;
    struct vx_keys_scan scan;
    struct vx_keys set;
    u64 offset;   /* of the set in the range */
    i32 maps;     /* index of its first map */
    i32 next;     /* in the chain of its coords_ref, or of free entries */
    u64 used;     /* when it was last held */
    bool was_hit; /* since hold */
};

struct map_entry {
    struct vx_map map;
    u64 offset;
    i32 next; /* of the same geometry, or of free entries */
    u64 used; /* when it was last asked for */
};

struct vx_geometry_cache {
    u32 magic;
    u8 *range;
    size_t bytes;
    struct vx_buddy *buddy;
    u64 now; /* counts holds and requests for maps: the clock of `used` */
    u64 coords_ref_bits;
    i64 hits, misses, evictions;
    i32 geometries_free, maps_free;
    i32 chains[CHAINS_COUNT];
    u32 counts[VX_KEYS_PIECES_MAX][1 << VX_KEYS_DIGIT_BITS];
    struct vx_geometry geometries[VX_GEOMETRY_ENTRIES_MAX];
    struct map_entry maps[VX_GEOMETRY_MAPS_MAX];
};

static void cache_init(struct vx_geometry_cache *cache)
{
    cache->coords_ref_bits = UINT64_MAX;
    for (i32 i = 0; i < CHAINS_COUNT; i++) cache->chains[i] = NONE;
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++) cache->geometries[i].next = i + 1;
    cache->geometries[VX_GEOMETRY_ENTRIES_MAX - 1].next = NONE;
    for (i32 i = 0; i < VX_GEOMETRY_MAPS_MAX; i++) cache->maps[i].next = i + 1;
    cache->maps[VX_GEOMETRY_MAPS_MAX - 1].next = NONE;
}

vx_status vx_geometry_open(size_t cache_bytes, struct vx_why *why,
                           struct vx_geometry_cache **cache)
{
    *cache = NULL;
    size_t bytes = cache_bytes / VX_GEOMETRY_UNIT_BYTES * VX_GEOMETRY_UNIT_BYTES;
    VX_ENSURE_WHY(bytes, why, INVALID_ARGUMENT, "the geometry cache is too small",
                  "cache_bytes: expected at least %d, got %zu", VX_GEOMETRY_UNIT_BYTES,
                  cache_bytes);
    struct vx_geometry_cache *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the geometry cache");
    made->magic = CACHE_MAGIC;
    cache_init(made);
    void *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        vx_geometry_close(&made);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "the geometry cache cannot be reserved",
                    "cache_bytes: %zu bytes of address space cannot be reserved", bytes);
    }
    made->range = range;
    made->bytes = bytes;
    vx_status status = vx_buddy_open(bytes, VX_GEOMETRY_UNIT_BYTES, &made->buddy);
    if (status.fault)
        vx_geometry_close(&made);
    else
        *cache = made;
    return status;
}

void vx_geometry_close(struct vx_geometry_cache **cache)
{
    struct vx_geometry_cache *it = *cache;
    *cache = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == CACHE_MAGIC);
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++) VX_ASSERT(!it->geometries[i].holds);
    it->magic = 0;
    vx_buddy_close(&it->buddy);
    if (it->range) munmap(it->range, it->bytes);
    vx_free(it);
}

static i32 *chain_of(struct vx_geometry_cache *cache,
                     const struct vx_coords_ref *coords_ref)
{
    return &cache->chains[coords_ref->low % CHAINS_COUNT];
}

static void map_free(struct vx_geometry_cache *cache, i32 index)
{
    struct map_entry *entry = &cache->maps[index];
    if (entry->map.n) vx_buddy_give(cache->buddy, entry->offset);
    entry->next = cache->maps_free;
    cache->maps_free = index;
}

/* Frees a geometry that is not held, with its maps. */
static void geometry_free(struct vx_geometry_cache *cache, struct vx_geometry *geometry)
{
    i32 index = (i32)(geometry - cache->geometries);
    if (geometry->named) {
        i32 *link = chain_of(cache, &geometry->name);
        while (*link != index) link = &cache->geometries[*link].next;
        *link = geometry->next;
    }
    for (i32 map = geometry->maps, next; map != NONE; map = next) {
        next = cache->maps[map].next;
        map_free(cache, map);
    }
    if (geometry->set.keys) vx_buddy_give(cache->buddy, geometry->offset);
    memset(geometry, 0, sizeof *geometry);
    geometry->next = cache->geometries_free;
    cache->geometries_free = index;
}

/* Evicts a map of a held geometry that the current request has not asked for: usually a
 * map of another network. */
static bool evict_map(struct vx_geometry_cache *cache)
{
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++) {
        struct vx_geometry *geometry = &cache->geometries[i];
        if (!geometry->holds) continue;
        for (i32 *link = &geometry->maps; *link != NONE;
             link = &cache->maps[*link].next) {
            i32 index = *link;
            if (cache->maps[index].used >= geometry->used) continue;
            *link = cache->maps[index].next;
            map_free(cache, index);
            cache->evictions++;
            return true;
        }
    }
    return false;
}

static bool evict_geometry(struct vx_geometry_cache *cache)
{
    struct vx_geometry *oldest = NULL;
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++) {
        struct vx_geometry *geometry = &cache->geometries[i];
        if (!geometry->magic || geometry->holds) continue;
        if (!oldest || geometry->used < oldest->used) oldest = geometry;
    }
    if (!oldest) return false;
    geometry_free(cache, oldest);
    cache->evictions++;
    return true;
}

static bool evict(struct vx_geometry_cache *cache)
{
    return evict_geometry(cache) || evict_map(cache);
}

/* Takes a block of the range; evicts until one is free or nothing is left to evict. */
static vx_status take_piece(struct vx_geometry_cache *cache, size_t bytes,
                            struct vx_why *why, u64 *offset)
{
    /* A block that can never fit evicts nothing. */
    unsigned long long piece = vx_buddy_piece(VX_GEOMETRY_UNIT_BYTES, bytes);
    VX_ENSURE_WHY(
        vx_buddy_could(cache->buddy, bytes), why, RESOURCE_EXHAUSTED,
        "the geometry does not fit in the geometry cache",
        "the geometry needs %zu bytes more in the geometry cache, in a block of "
        "%llu (a power of two); cache_bytes is %zu, too small for such a block",
        bytes, piece, cache->bytes);
    while (!vx_buddy_take(cache->buddy, bytes, offset)) {
        if (evict(cache)) continue;
        VX_FAIL_WHY(
            why, RESOURCE_EXHAUSTED, "the geometry does not fit in the geometry cache",
            "the geometry needs %zu bytes more in the geometry cache, in a block "
            "of %llu (a power of two); cache_bytes is %zu, this request already "
            "uses %llu, the largest free block has %llu",
            bytes, piece, cache->bytes, (unsigned long long)vx_buddy_used(cache->buddy),
            (unsigned long long)vx_buddy_largest(cache->buddy));
    }
    return VX_OK;
}

static vx_status take_set(struct vx_geometry_cache *cache, i64 n, struct vx_why *why,
                          u64 *offset, struct vx_keys *set)
{
    size_t rows = (size_t)n + 1;
    VX_TRY(take_piece(cache, vx_geometry_set_bytes(n), why, offset));
    set->n = n;
    set->keys = (u64 *)(void *)(cache->range + *offset);
    set->rows = (i32 *)(void *)(set->keys + rows);
    return VX_OK;
}

/* The first geometry with that coords_ref, from entry `i` of its chain on; or NULL. */
static struct vx_geometry *chain_find(struct vx_geometry_cache *cache, i32 i,
                                      struct vx_coords_ref name)
{
    for (; i != NONE; i = cache->geometries[i].next)
        if (vx_coords_ref_equal(cache->geometries[i].name, name))
            return &cache->geometries[i];
    return NULL;
}

static struct vx_geometry *geometry_find(struct vx_geometry_cache *cache,
                                         struct vx_cpu *cpu,
                                         const struct vx_coords_view *view,
                                         struct vx_coords_ref name)
{
    struct vx_geometry *found = chain_find(cache, *chain_of(cache, &name), name);
    while (found && !vx_keys_equal(cpu, view, &found->set))
        found = chain_find(cache, found->next, name);
    return found;
}

/* Finds a geometry by its coords_ref alone.  Two geometries with one coords_ref are not
 * to be expected, but could not be told apart: the client must then send coordinates. */
static vx_status geometry_named(struct vx_geometry_cache *cache,
                                const struct vx_coords_view *view,
                                struct vx_coords_ref name, struct vx_why *why,
                                struct vx_geometry **geometry)
{
    struct vx_geometry *found = chain_find(cache, *chain_of(cache, &name), name);
    if (!found || chain_find(cache, found->next, name)) {
        cache->misses++;
        VX_FAIL_WHY(why, FAILED_PRECONDITION, "the geometry is not in the device's cache",
                    "coords_ref: the geometry is not in the device's cache; send coords");
    }
    VX_ENSURE_WHY(found->scan.n == view->n, why, INVALID_ARGUMENT,
                  "the geometry of the coords_ref has another number of voxels",
                  "coords_ref names a geometry of %lld voxels, the request has %lld",
                  (long long)found->scan.n, (long long)view->n);
    *geometry = found;
    return VX_OK;
}

static vx_status geometry_sort(struct vx_geometry *geometry, struct vx_cpu *cpu,
                               struct vx_why *why)
{
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_keys_sort sort = {.set = geometry->set, .counts = cache->counts};
    u64 offset;
    VX_TRY(take_set(cache, geometry->set.n, why, &offset, &sort.scratch));
    vx_keys_sort(cpu, &geometry->scan, &sort);
    vx_buddy_give(cache->buddy, offset);
    return vx_keys_check_unique(cpu, &geometry->set, why);
}

static vx_status geometry_build(struct vx_geometry *geometry, struct vx_cpu *cpu,
                                const struct vx_coords_view *view, struct vx_why *why)
{
    if (!view->n) return VX_OK;
    VX_TRY(take_set(geometry->cache, view->n, why, &geometry->offset, &geometry->set));
    vx_keys_pack(cpu, view, &geometry->set);
    return geometry->scan.sorted ? VX_OK : geometry_sort(geometry, cpu, why);
}

static vx_status geometry_make(struct vx_geometry_cache *cache,
                               const struct vx_keys_scan *scan, struct vx_why *why,
                               struct vx_geometry **geometry)
{
    *geometry = NULL;
    if (cache->geometries_free == NONE) (void)evict_geometry(cache);
    VX_ENSURE_WHY(cache->geometries_free != NONE, why, RESOURCE_EXHAUSTED,
                  "too many geometries are in use at once",
                  "at most %d geometries may be in use at once", VX_GEOMETRY_ENTRIES_MAX);
    i32 index = cache->geometries_free;
    struct vx_geometry *made = &cache->geometries[index];
    cache->geometries_free = made->next;
    *made = (struct vx_geometry){
        .magic = GEOMETRY_MAGIC,
        .cache = cache,
        .scan = *scan,
        .maps = NONE,
        .next = NONE,
    };
    *geometry = made;
    return VX_OK;
}

static void geometry_name(struct vx_geometry *geometry, struct vx_coords_ref name)
{
    i32 *chain = chain_of(geometry->cache, &name);
    geometry->named = true;
    geometry->name = name;
    geometry->next = *chain;
    *chain = (i32)(geometry - geometry->cache->geometries);
}

vx_status vx_geometry_hold(struct vx_geometry_cache *cache, struct vx_cpu *cpu,
                           const struct vx_coords_view *view, struct vx_why *why,
                           struct vx_geometry **geometry)
{
    VX_ASSERT(cache->magic == CACHE_MAGIC);
    *geometry = NULL;
    struct vx_geometry *found = NULL;
    bool named = vx_coords_ref_there(view->coords_ref);
    const struct vx_coords_ref name = {view->coords_ref.low & cache->coords_ref_bits,
                                       view->coords_ref.high & cache->coords_ref_bits};
    VX_ASSERT(view->rows || named || !view->n);
    if (!view->rows && named && view->n)
        VX_TRY(geometry_named(cache, view, name, why, &found));
    else if (named)
        found = geometry_find(cache, cpu, view, name);
    bool hit = found != NULL;
    if (!hit) {
        struct vx_keys_scan scan;
        VX_TRY(vx_keys_scan(cpu, view, why, &scan));
        VX_TRY(geometry_make(cache, &scan, why, &found));
        if (named) geometry_name(found, name);
    }
    /* Held from here on, so that the build does not evict it to make room. */
    bool first = found->holds++ == 0;
    if (first) {
        found->used = ++cache->now;
        found->was_hit = hit;
    }
    vx_status status = hit ? VX_OK : geometry_build(found, cpu, view, why);
    if (status.fault) {
        found->holds = 0;
        geometry_free(cache, found);
        return status;
    }
    cache->hits += hit;
    cache->misses += !hit;
    *geometry = found;
    return VX_OK;
}

static struct map_entry *map_find(struct vx_geometry *geometry,
                                  const struct vx_map_key *key)
{
    for (i32 i = geometry->maps; i != NONE; i = geometry->cache->maps[i].next) {
        struct map_entry *entry = &geometry->cache->maps[i];
        if (!memcmp(&entry->map.key, key, sizeof *key)) return entry;
    }
    return NULL;
}

static void map_fill(const struct vx_geometry *geometry, struct vx_cpu *cpu, i32 *nbr,
                     struct vx_map *map)
{
    struct vx_map_build build = {.set = geometry->set, .key = map->key, .nbr = nbr};
    for (int axis = 0; axis < 3; axis++) {
        build.least[axis] = geometry->scan.least[axis + 1];
        build.most[axis] = geometry->scan.most[axis + 1];
    }
    vx_map_build(cpu, &build);
    map->nbr = nbr;
    map->pairs = build.pairs;
}

static vx_status map_make(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_map_key *key, struct vx_why *why,
                          struct map_entry **entry)
{
    /* nbr of a map without rows: not read, but not NULL. */
    static i32 no_rows[1] = {NONE};
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_map map = {.key = *key, .v = vx_map_offsets(key), .n = geometry->scan.n};
    u64 offset = 0;
    if (map.n) VX_TRY(take_piece(cache, vx_geometry_map_bytes(key, map.n), why, &offset));
    while (cache->maps_free == NONE && evict(cache)) continue;
    if (cache->maps_free == NONE) {
        if (map.n) vx_buddy_give(cache->buddy, offset);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "too many neighbour maps are in use at once",
                    "at most %d neighbour maps may be in use at once",
                    VX_GEOMETRY_MAPS_MAX);
    }
    map_fill(geometry, cpu, map.n ? (i32 *)(void *)(cache->range + offset) : no_rows,
             &map);
    i32 index = cache->maps_free;
    struct map_entry *made = &cache->maps[index];
    cache->maps_free = made->next;
    *made = (struct map_entry){.map = map, .offset = offset, .next = geometry->maps};
    geometry->maps = index;
    *entry = made;
    return VX_OK;
}

vx_status vx_geometry_map(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_map_key *key, struct vx_why *why,
                          const struct vx_map **map)
{
    VX_ASSERT(geometry->magic == GEOMETRY_MAGIC);
    VX_ASSERT(geometry->holds > 0);
    *map = NULL;
    struct vx_geometry_cache *cache = geometry->cache;
    struct map_entry *entry = map_find(geometry, key);
    if (entry) {
        cache->hits++;
    } else {
        VX_TRY(map_make(geometry, cpu, key, why, &entry));
        cache->misses++;
        geometry->was_hit = false;
    }
    entry->used = ++cache->now;
    *map = &entry->map;
    return VX_OK;
}

bool vx_geometry_was_hit(const struct vx_geometry *geometry)
{
    VX_ASSERT(geometry->magic == GEOMETRY_MAGIC);
    return geometry->was_hit;
}

bool vx_geometry_kept(const struct vx_geometry *geometry)
{
    VX_ASSERT(geometry->magic == GEOMETRY_MAGIC);
    return geometry->named;
}

void vx_geometry_drop(struct vx_geometry_cache *cache, struct vx_geometry **geometry)
{
    struct vx_geometry *it = *geometry;
    *geometry = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == GEOMETRY_MAGIC);
    VX_ASSERT(it->cache == cache);
    VX_ASSERT(it->holds > 0);
    if (--it->holds == 0 && !it->named) geometry_free(cache, it);
}

void vx_geometry_forget(struct vx_geometry_cache *cache, struct vx_coords_ref name)
{
    const struct vx_coords_ref weak = {name.low & cache->coords_ref_bits,
                                       name.high & cache->coords_ref_bits};
    struct vx_geometry *found = chain_find(cache, *chain_of(cache, &weak), weak);
    if (found && !found->holds) geometry_free(cache, found);
}

void vx_geometry_stats_get(const struct vx_geometry_cache *cache,
                           struct vx_geometry_stats *stats)
{
    *stats = (struct vx_geometry_stats){
        .bytes = (i64)vx_buddy_used(cache->buddy),
        .bytes_max = (i64)cache->bytes,
        .hits = cache->hits,
        .misses = cache->misses,
        .evictions = cache->evictions,
    };
}

void vx_geometry_weaken(struct vx_geometry_cache *cache, u64 bits)
{
    cache->coords_ref_bits = bits;
}
