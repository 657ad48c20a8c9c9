/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/geometry_store.h"

#include "engine/base/memory/buddy.h"
#include "engine/base/memory/shares.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <string.h>

#define STORE_MAGIC 0x76784753u /* "vxGS" */

/* The unit of allocation: a small geometry has a few thousand bytes.  Each unit costs two
 * to four bytes of host memory. */
#define UNIT_BYTES 4096

#define NONE (-1)

/* At least two hash values per entry, so that chains are short. */
#define CHAINS_COUNT (2 * VX_GPU_STORE_ENTRIES)

struct order {
    i32 map, groups;
    size_t bytes;
    u64 offset;
    i32 next; /* of the same geometry, or next free */
};

struct vx_gpu_store {
    u32 magic;
    struct vx_gpu *gpu;
    u8 *range; /* device */
    void *memory;
    size_t bytes;
    struct vx_buddy *buddy;
    struct vx_shares *shares;
    i64 hits, misses, evictions;
    i32 entries_free, orders_free;
    i32 chains[CHAINS_COUNT];
    struct vx_gpu_geometry entries[VX_GPU_STORE_ENTRIES];
    struct order orders[VX_GPU_STORE_ORDERS];
};

static void store_init(struct vx_gpu_store *store)
{
    for (i32 i = 0; i < CHAINS_COUNT; i++) store->chains[i] = NONE;
    for (i32 i = 0; i < VX_GPU_STORE_ENTRIES; i++) store->entries[i].chain = i + 1;
    store->entries[VX_GPU_STORE_ENTRIES - 1].chain = NONE;
    for (i32 i = 0; i < VX_GPU_STORE_ORDERS; i++) store->orders[i].next = i + 1;
    store->orders[VX_GPU_STORE_ORDERS - 1].next = NONE;
}

static vx_status open_range(struct vx_gpu_store *store, struct vx_why *why)
{
    size_t have = 0, total = 0;
    vx_status status = vx_gpu_alloc(store->gpu, store->bytes, why, &store->memory);
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED &&
        !vx_gpu_memory_info(store->gpu, NULL, &have, &total).fault)
        vx_why_set(why,
                   "cache_bytes: %zu bytes are more than %s has free: %zu of %zu bytes",
                   store->bytes, vx_gpu_name(store->gpu), have, total);
    if (status.fault) return status;
    store->range = store->memory;
    VX_TRY(vx_shares_open(VX_GPU_STORE_ENTRIES, VX_SHARE_KINDS, &store->shares));
    return vx_buddy_open(store->bytes, UNIT_BYTES, &store->buddy);
}

vx_status vx_gpu_store_open(struct vx_gpu *gpu, size_t bytes, struct vx_why *why,
                            struct vx_gpu_store **store)
{
    *store = NULL;
    VX_ENSURE_WHY(bytes >= UNIT_BYTES, why, INVALID_ARGUMENT,
                  "the geometry cache is too small",
                  "cache_bytes: expected at least %d, got %zu", UNIT_BYTES, bytes);
    struct vx_gpu_store *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the geometry cache");
    made->magic = STORE_MAGIC;
    made->gpu = gpu;
    made->bytes = bytes / UNIT_BYTES * UNIT_BYTES;
    store_init(made);
    vx_status status = open_range(made, why);
    if (status.fault)
        vx_gpu_store_close(&made);
    else
        *store = made;
    return status;
}

void vx_gpu_store_close(struct vx_gpu_store **store)
{
    struct vx_gpu_store *it = *store;
    *store = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == STORE_MAGIC);
    for (i32 i = 0; i < VX_GPU_STORE_ENTRIES; i++) VX_ASSERT(!it->entries[i].holds);
    it->magic = 0;
    vx_buddy_close(&it->buddy);
    vx_shares_close(&it->shares);
    if (it->memory) vx_gpu_free(it->gpu, &it->memory);
    vx_free(it);
}

static bool name_equal(const struct vx_gpu_store_name *a,
                       const struct vx_gpu_store_name *b)
{
    return vx_coords_ref_equal(a->coords_ref, b->coords_ref) &&
           vx_coords_ref_equal(a->maps, b->maps) &&
           !memcmp(a->shape, b->shape, sizeof a->shape);
}

static i32 *chain_of(struct vx_gpu_store *store, const struct vx_gpu_store_name *name)
{
    return &store->chains[(name->coords_ref.low ^ name->maps.low) % CHAINS_COUNT];
}

static i32 index_of(const struct vx_gpu_store *store, const struct vx_gpu_geometry *it)
{
    VX_ASSERT(it >= store->entries);
    VX_ASSERT(it < store->entries + VX_GPU_STORE_ENTRIES);
    return (i32)(it - store->entries);
}

/* --- the end of an entry --- */

static void chain_remove(struct vx_gpu_store *store, const struct vx_gpu_geometry *it)
{
    i32 *link = chain_of(store, &it->name);
    while (*link != index_of(store, it)) link = &store->entries[*link].chain;
    *link = it->chain;
}

static void entry_free(struct vx_gpu_store *store, struct vx_gpu_geometry *it)
{
    VX_ASSERT(!it->holds);
    for (i32 i = it->orders, next; i != NONE; i = next) {
        struct order *order = &store->orders[i];
        next = order->next;
        vx_buddy_give(store->buddy, order->offset);
        order->next = store->orders_free;
        store->orders_free = i;
    }
    vx_buddy_give(store->buddy, it->offset);
    vx_shares_remove(store->shares, index_of(store, it));
    memset(it, 0, sizeof *it);
    it->chain = store->entries_free;
    store->entries_free = index_of(store, it);
}

static bool evict(struct vx_gpu_store *store, enum vx_share kind, u64 origin, i64 want)
{
    const i32 index = vx_shares_victim(store->shares, kind, origin, want);
    if (index == VX_SHARES_NONE) return false;
    chain_remove(store, &store->entries[index]);
    entry_free(store, &store->entries[index]);
    store->evictions++;
    return true;
}

static i64 piece_bytes(size_t bytes)
{
    return (i64)vx_buddy_piece(UNIT_BYTES, bytes);
}

static bool take(struct vx_gpu_store *store, size_t bytes, u64 origin, u64 *offset)
{
    /* A request that can never fit must not evict anything. */
    if (!vx_buddy_could(store->buddy, bytes)) return false;
    while (!vx_buddy_take(store->buddy, bytes, offset))
        if (!evict(store, VX_SHARE_BYTES, origin, piece_bytes(bytes))) return false;
    return true;
}

/* --- entries --- */

struct vx_gpu_geometry *vx_gpu_store_hold(struct vx_gpu_store *store,
                                          const struct vx_gpu_store_name *name,
                                          u64 origin)
{
    VX_ASSERT(store->magic == STORE_MAGIC);
    vx_shares_ask(store->shares, origin, vx_clock_ns());
    i32 index = *chain_of(store, name);
    while (index != NONE && !name_equal(&store->entries[index].name, name))
        index = store->entries[index].chain;
    if (index == NONE) return NULL;
    struct vx_gpu_geometry *it = &store->entries[index];
    if (!it->holds++) vx_shares_use(store->shares, index, origin);
    return it;
}

void vx_gpu_store_count(struct vx_gpu_store *store, bool hit)
{
    store->hits += hit;
    store->misses += !hit;
}

struct vx_gpu_geometry *vx_gpu_store_make(struct vx_gpu_store *store,
                                          const struct vx_gpu_store_want *want)
{
    VX_ASSERT(store->magic == STORE_MAGIC);
    u64 offset;
    vx_shares_ask(store->shares, want->origin, vx_clock_ns());
    if (store->entries_free == NONE && !evict(store, VX_SHARE_ENTRIES, want->origin, 1))
        return NULL;
    if (!take(store, want->bytes, want->origin, &offset)) return NULL;
    i32 index = store->entries_free;
    struct vx_gpu_geometry *made = &store->entries[index];
    store->entries_free = made->chain;
    i32 *chain = chain_of(store, &want->name);
    *made = (struct vx_gpu_geometry){
        .name = want->name,
        .n = want->n,
        .columns = want->columns,
        .memory = store->range + offset,
        .offset = offset,
        .holds = 1,
        .chain = *chain,
        .orders = NONE,
    };
    *chain = index;
    vx_shares_add(store->shares, index, want->origin);
    vx_shares_charge(store->shares, index, VX_SHARE_BYTES, piece_bytes(want->bytes));
    return made;
}

void vx_gpu_store_forget(struct vx_gpu_store *store, struct vx_gpu_geometry *geometry)
{
    VX_ASSERT(geometry->holds > 0);
    if (geometry->gone) return;
    geometry->gone = true;
    chain_remove(store, geometry);
}

void vx_gpu_store_drop(struct vx_gpu_store *store, struct vx_gpu_geometry **geometry)
{
    struct vx_gpu_geometry *it = *geometry;
    *geometry = NULL;
    if (!it) return;
    VX_ASSERT(it->holds > 0);
    if (--it->holds) return;
    if (it->gone)
        entry_free(store, it);
    else
        vx_shares_rest(store->shares, index_of(store, it));
}

/* --- orders --- */

void *vx_gpu_store_order_find(const struct vx_gpu_store *store,
                              const struct vx_gpu_geometry *geometry,
                              const struct vx_gpu_store_order *order)
{
    for (i32 i = geometry->orders; i != NONE; i = store->orders[i].next) {
        const struct order *it = &store->orders[i];
        if (it->map == order->map && it->groups == order->groups &&
            it->bytes == order->bytes)
            return store->range + it->offset;
    }
    return NULL;
}

void *vx_gpu_store_order_make(struct vx_gpu_store *store,
                              struct vx_gpu_geometry *geometry,
                              const struct vx_gpu_store_order *order)
{
    u64 offset;
    VX_ASSERT(geometry->holds > 0);
    while (store->orders_free == NONE)
        if (!evict(store, VX_SHARE_MAPS, order->origin, 1)) return NULL;
    if (!take(store, order->bytes, order->origin, &offset)) return NULL;
    i32 index = store->orders_free;
    struct order *made = &store->orders[index];
    store->orders_free = made->next;
    *made =
        (struct order){order->map, order->groups, order->bytes, offset, geometry->orders};
    geometry->orders = index;
    const i32 entry = index_of(store, geometry);
    vx_shares_move(store->shares, entry, order->origin);
    vx_shares_charge(store->shares, entry, VX_SHARE_BYTES, piece_bytes(order->bytes));
    vx_shares_charge(store->shares, entry, VX_SHARE_MAPS, 1);
    return store->range + offset;
}

void vx_gpu_store_stats_get(const struct vx_gpu_store *store,
                            struct vx_gpu_store_stats *stats)
{
    *stats = (struct vx_gpu_store_stats){
        .bytes = (i64)vx_buddy_used(store->buddy),
        .bytes_max = (i64)store->bytes,
        .hits = store->hits,
        .misses = store->misses,
        .evictions = store->evictions,
    };
}
