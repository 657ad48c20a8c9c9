/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/cores.h"
#include "engine/cpu/geometry/geometry_parts.h"
#include "engine/cpu/geometry/room.h"

#include <string.h>
#include <sys/mman.h>

static void cache_init(struct vx_geometry_cache *cache)
{
    cache->coords_ref_bits = UINT64_MAX;
    for (i32 i = 0; i < VX_GEOMETRY_CHAINS; i++) cache->chains[i] = VX_GEOMETRY_NONE;
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++) cache->geometries[i].next = i + 1;
    cache->geometries[VX_GEOMETRY_ENTRIES_MAX - 1].next = VX_GEOMETRY_NONE;
    for (i32 i = 0; i < VX_GEOMETRY_SETS_MAX; i++) cache->sets[i].next = i + 1;
    cache->sets[VX_GEOMETRY_SETS_MAX - 1].next = VX_GEOMETRY_NONE;
    for (i32 i = 0; i < VX_GEOMETRY_MAPS_MAX; i++) cache->maps[i].next = i + 1;
    cache->maps[VX_GEOMETRY_MAPS_MAX - 1].next = VX_GEOMETRY_NONE;
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
    made->magic = VX_GEOMETRY_CACHE_MAGIC;
    cache_init(made);
    void *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        vx_geometry_close(&made);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "the geometry cache cannot be reserved",
                    "cache_bytes: %zu bytes of address space cannot be reserved", bytes);
    }
    vx_core_leave_out(range, bytes);
    made->range = range;
    made->bytes = bytes;
    vx_status status = vx_buddy_open(bytes, VX_GEOMETRY_UNIT_BYTES, &made->buddy);
    if (!status.fault)
        status = vx_shares_open(VX_GEOMETRY_ENTRIES_MAX, VX_SHARE_KINDS, &made->shares);
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
    VX_ASSERT(it->magic == VX_GEOMETRY_CACHE_MAGIC);
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++) VX_ASSERT(!it->geometries[i].holds);
    it->magic = 0;
    vx_shares_close(&it->shares);
    vx_buddy_close(&it->buddy);
    if (it->range) munmap(it->range, it->bytes);
    vx_free(it);
}

i32 *vx_geometry_chain(struct vx_geometry_cache *cache,
                       const struct vx_coords_ref *coords_ref)
{
    return &cache->chains[coords_ref->low % VX_GEOMETRY_CHAINS];
}

static void map_free(struct vx_geometry *geometry, i32 index)
{
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_map_entry *entry = &cache->maps[index];
    vx_geometry_give(geometry, &entry->block);
    vx_shares_charge(cache->shares, vx_geometry_index(geometry), VX_SHARE_MAPS, -1);
    entry->next = cache->maps_free;
    cache->maps_free = index;
}

static void set_free(struct vx_geometry *geometry, i32 index)
{
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_set_entry *entry = &cache->sets[index];
    vx_geometry_give(geometry, &entry->active.block);
    vx_shares_charge(cache->shares, vx_geometry_index(geometry), VX_SHARE_SETS, -1);
    entry->next = cache->sets_free;
    cache->sets_free = index;
}

void vx_geometry_free(struct vx_geometry_cache *cache, struct vx_geometry *geometry)
{
    const i32 index = vx_geometry_index(geometry);
    if (geometry->named) {
        i32 *link = vx_geometry_chain(cache, &geometry->name);
        while (*link != index) link = &cache->geometries[*link].next;
        *link = geometry->next;
    }
    for (i32 map = geometry->maps, next; map != VX_GEOMETRY_NONE; map = next) {
        next = cache->maps[map].next;
        map_free(geometry, map);
    }
    for (i32 set = geometry->sets, next; set != VX_GEOMETRY_NONE; set = next) {
        next = cache->sets[set].next;
        set_free(geometry, set);
    }
    vx_geometry_give(geometry, &geometry->request.block);
    vx_shares_remove(cache->shares, index);
    memset(geometry, 0, sizeof *geometry);
    geometry->next = cache->geometries_free;
    cache->geometries_free = index;
}

void vx_geometry_free_passing(struct vx_geometry_cache *cache,
                              struct vx_geometry *geometry)
{
    for (i32 *link = &geometry->maps; *link != VX_GEOMETRY_NONE;) {
        i32 index = *link;
        struct vx_map_entry *entry = &cache->maps[index];
        if (!entry->passing) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        map_free(geometry, index);
    }
    for (i32 *link = &geometry->sets; *link != VX_GEOMETRY_NONE;) {
        i32 index = *link;
        struct vx_set_entry *entry = &cache->sets[index];
        if (!entry->passing) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        set_free(geometry, index);
    }
}

/* Evicts a map that the geometry's current request has not asked for: usually one of another
 * network. */
static bool map_evict(struct vx_geometry_cache *cache, struct vx_geometry *geometry)
{
    for (i32 *link = &geometry->maps; *link != VX_GEOMETRY_NONE;
         link = &cache->maps[*link].next) {
        i32 index = *link;
        if (cache->maps[index].used >= geometry->used) continue;
        *link = cache->maps[index].next;
        map_free(geometry, index);
        cache->evictions++;
        return true;
    }
    return false;
}

/* The same for a set.  Maps and sets that were made from it were asked for no later than
 * it was, and maps go first; so nothing refers to it. */
static bool set_evict(struct vx_geometry_cache *cache, struct vx_geometry *geometry)
{
    /* The last made is the first of the list: sets before those they are made from. */
    for (i32 *link = &geometry->sets; *link != VX_GEOMETRY_NONE;
         link = &cache->sets[*link].next) {
        i32 index = *link;
        if (cache->sets[index].used >= geometry->used) continue;
        *link = cache->sets[index].next;
        set_free(geometry, index);
        cache->evictions++;
        return true;
    }
    return false;
}

/* Of any held geometry, by one of the two above. */
static bool evict_held(struct vx_geometry_cache *cache,
                       bool (*evict)(struct vx_geometry_cache *, struct vx_geometry *))
{
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++)
        if (cache->geometries[i].holds && evict(cache, &cache->geometries[i]))
            return true;
    return false;
}

void vx_geometry_trim(struct vx_geometry_cache *cache, struct vx_geometry *geometry)
{
    i32 count = 0;
    for (i32 i = geometry->sets; i != VX_GEOMETRY_NONE; i = cache->sets[i].next) count++;
    if (count < VX_GEOMETRY_OWN_SETS) return;
    while (map_evict(cache, geometry)) continue;
    while (set_evict(cache, geometry)) continue;
}

bool vx_geometry_evict_kept(struct vx_geometry_cache *cache,
                            const struct vx_geometry_want *want)
{
    const i32 index =
        vx_shares_victim(cache->shares, want->kind, want->origin, want->more);
    if (index == VX_SHARES_NONE) return false;
    VX_ASSERT(!cache->geometries[index].holds);
    vx_geometry_free(cache, &cache->geometries[index]);
    cache->evictions++;
    return true;
}

bool vx_geometry_evict(struct vx_geometry *geometry, enum vx_share kind, i64 more)
{
    struct vx_geometry_cache *cache = geometry->cache;
    const struct vx_geometry_want want = {geometry->asker, kind, more};
    if (vx_geometry_evict_kept(cache, &want)) return true;
    return !cache->still &&
           (evict_held(cache, map_evict) || evict_held(cache, set_evict));
}

/* --- room --- */

static size_t block_pages(const struct vx_geometry_block *block)
{
    return vx_round_up(block->bytes, VX_GEOMETRY_UNIT_BYTES);
}

/* The pages of a held geometry that no eviction frees. */
static size_t held_pages(const struct vx_geometry_cache *cache,
                         const struct vx_geometry *geometry)
{
    const u64 since = cache->still ? 0 : geometry->used;
    size_t pages = block_pages(&geometry->request.block);
    for (i32 i = geometry->sets; i != VX_GEOMETRY_NONE; i = cache->sets[i].next)
        if (cache->sets[i].used >= since)
            pages += block_pages(&cache->sets[i].active.block);
    for (i32 i = geometry->maps; i != VX_GEOMETRY_NONE; i = cache->maps[i].next)
        if (cache->maps[i].used >= since) pages += block_pages(&cache->maps[i].block);
    return pages;
}

/* The pages that are left when everything is evicted that can be. */
static size_t pages_in_use(const struct vx_geometry_cache *cache)
{
    size_t pages = 0;
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX; i++)
        if (cache->geometries[i].holds) pages += held_pages(cache, &cache->geometries[i]);
    for (i32 i = 0; i < cache->loose_count; i++)
        pages += block_pages(cache->loose[i].block);
    return pages;
}

bool vx_geometry_lacked(const struct vx_geometry_cache *cache)
{
    return cache->lacked;
}

vx_status vx_geometry_check_room(struct vx_geometry_cache *cache, size_t bytes,
                                 size_t blocks, struct vx_why *why)
{
    const size_t need = blocks * vx_round_up(bytes, VX_GEOMETRY_UNIT_BYTES);
    if (need <= cache->bytes - cache->pages) return VX_OK; /* nothing has to go */
    VX_ENSURE_WHY(need <= cache->bytes, why, RESOURCE_EXHAUSTED,
                  "the geometry does not fit in the geometry cache",
                  "the geometry needs %zu bytes more in the geometry cache, cache_bytes "
                  "is %zu",
                  blocks * bytes, cache->bytes);
    const size_t in_use = pages_in_use(cache);
    if (need > cache->bytes - in_use) cache->lacked = cache->still;
    VX_ENSURE_WHY(
        need <= cache->bytes - in_use, why, RESOURCE_EXHAUSTED,
        "the geometry does not fit in the geometry cache",
        "the geometry needs %zu bytes more in the geometry cache; cache_bytes is "
        "%zu, of which requests in use have %zu",
        blocks * bytes, cache->bytes, in_use);
    return VX_OK;
}

void vx_geometry_charge(struct vx_geometry *geometry, enum vx_share kind, i64 more)
{
    struct vx_shares *shares = geometry->cache->shares;
    const i32 index = vx_geometry_index(geometry);
    if (more > 0) vx_shares_move(shares, index, geometry->asker);
    vx_shares_charge(shares, index, kind, more);
}

vx_status vx_geometry_take(struct vx_geometry *geometry, size_t bytes, struct vx_why *why,
                           struct vx_geometry_block *block)
{
    struct vx_geometry_cache *cache = geometry->cache;
    const size_t need = vx_round_up(bytes, VX_GEOMETRY_UNIT_BYTES);
    const bool could = vx_buddy_could(cache->buddy, bytes);
    size_t taken = vx_buddy_piece(VX_GEOMETRY_UNIT_BYTES, bytes);
    u64 offset;
    bool there = vx_buddy_take(cache->buddy, bytes, &offset);
    if (!there) VX_TRY(vx_geometry_check_room(cache, bytes, 1, why));
    while (!there) {
        const bool fits = need <= cache->bytes - cache->pages;
        if (fits && !could) break;
        if (!vx_geometry_evict(geometry, VX_SHARE_BYTES, (i64)need)) break;
        there = vx_buddy_take(cache->buddy, bytes, &offset);
    }
    if (!there) {
        cache->lacked = cache->still;
        VX_ENSURE_WHY(!cache->still, why, RESOURCE_EXHAUSTED,
                      "the geometry does not fit in the geometry cache",
                      "the geometry needs %zu bytes more in the geometry cache, in which "
                      "a long request keeps its blocks",
                      bytes);
        VX_ASSERT(need <= cache->bytes - cache->pages); /* as checked above */
        offset = vx_geometry_pack(cache);
        vx_buddy_take_at(cache->buddy, offset, need);
        taken = need;
    }
    *block = (struct vx_geometry_block){offset, bytes, taken};
    cache->pages += need;
    vx_geometry_charge(geometry, VX_SHARE_BYTES, (i64)need);
    return VX_OK;
}

void vx_geometry_give(struct vx_geometry *geometry, struct vx_geometry_block *block)
{
    struct vx_geometry_cache *cache = geometry->cache;
    if (!block->bytes) return;
    const size_t pages = vx_round_up(block->bytes, VX_GEOMETRY_UNIT_BYTES);
    vx_buddy_give_at(cache->buddy, block->offset, block->taken);
    cache->pages -= pages;
    vx_geometry_charge(geometry, VX_SHARE_BYTES, -(i64)pages);
    *block = (struct vx_geometry_block){0};
}

vx_status vx_geometry_take_keys(struct vx_geometry *geometry, i64 n, struct vx_why *why,
                                struct vx_geometry_block *block, struct vx_keys *set)
{
    VX_TRY(vx_geometry_take(geometry, vx_geometry_set_bytes(n), why, block));
    set->n = n;
    vx_geometry_point_keys(geometry->cache, block, set);
    return VX_OK;
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

void vx_geometry_keep_still(struct vx_geometry_cache *cache, bool still)
{
    VX_ASSERT(cache->still != still);
    cache->still = still;
    if (still) {
        cache->still_cpu = cache->cpu;
        cache->lacked = false;
    } else {
        cache->cpu = cache->still_cpu;
    }
}

void vx_geometry_weaken(struct vx_geometry_cache *cache, u64 bits)
{
    cache->coords_ref_bits = bits;
}
