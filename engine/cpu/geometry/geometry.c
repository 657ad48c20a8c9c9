/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/geometry/geometry.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/cpu/geometry/geometry_parts.h"
#include "engine/cpu/geometry/room.h"

#include <string.h>

/* The first geometry with that coords_ref, from entry `i` of its chain on; or NULL. */
static struct vx_geometry *chain_find(struct vx_geometry_cache *cache, i32 i,
                                      struct vx_coords_ref name)
{
    for (; i != VX_GEOMETRY_NONE; i = cache->geometries[i].next)
        if (vx_coords_ref_equal(cache->geometries[i].name, name))
            return &cache->geometries[i];
    return NULL;
}

static struct vx_geometry *geometry_find(struct vx_geometry_cache *cache,
                                         struct vx_cpu *cpu,
                                         const struct vx_coords_view *view,
                                         struct vx_coords_ref name)
{
    struct vx_geometry *found = chain_find(cache, *vx_geometry_chain(cache, &name), name);
    while (found && !vx_keys_equal(cpu, view, &found->request.set))
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
    struct vx_geometry *found = chain_find(cache, *vx_geometry_chain(cache, &name), name);
    if (!found || chain_find(cache, found->next, name)) {
        cache->misses++;
        VX_FAIL_WHY(why, FAILED_PRECONDITION, "the geometry is not in the device's cache",
                    "coords_ref: the geometry is not in the device's cache; send coords");
    }
    VX_ENSURE_WHY(found->request.scan.n == view->n, why, INVALID_ARGUMENT,
                  "the geometry of the coords_ref has another number of voxels",
                  "coords_ref names a geometry of %lld voxels, the request has %lld",
                  (long long)found->request.scan.n, (long long)view->n);
    *geometry = found;
    return VX_OK;
}

static vx_status geometry_sort(struct vx_geometry *geometry, struct vx_cpu *cpu,
                               struct vx_why *why)
{
    struct vx_keys_sort sort = {.counts = geometry->cache->counts};
    struct vx_geometry_block scratch;
    VX_TRY(vx_geometry_take_keys(geometry, geometry->request.set.n, why, &scratch,
                                 &sort.scratch));
    sort.set = geometry->request.set; /* where it is now */
    vx_keys_sort(cpu, &geometry->request.scan, &sort);
    vx_geometry_give(geometry, &scratch);
    return vx_keys_check_unique(cpu, &geometry->request.set, why);
}

static vx_status geometry_build(struct vx_geometry *geometry, struct vx_cpu *cpu,
                                const struct vx_coords_view *view, struct vx_why *why)
{
    if (!view->n) return VX_OK;
    VX_TRY(vx_geometry_take_keys(geometry, view->n, why, &geometry->request.block,
                                 &geometry->request.set));
    vx_keys_pack(cpu, view, &geometry->request.set);
    return geometry->request.scan.sorted ? VX_OK : geometry_sort(geometry, cpu, why);
}

static vx_status geometry_make(struct vx_geometry_cache *cache,
                               const struct vx_keys_scan *scan, u64 origin,
                               struct vx_why *why, struct vx_geometry **geometry)
{
    const struct vx_geometry_want want = {origin, VX_SHARE_ENTRIES, 1};
    *geometry = NULL;
    if (cache->geometries_free == VX_GEOMETRY_NONE)
        (void)vx_geometry_evict_kept(cache, &want);
    VX_ENSURE_WHY(cache->geometries_free != VX_GEOMETRY_NONE, why, RESOURCE_EXHAUSTED,
                  "too many geometries are in use at once",
                  "at most %d geometries may be in use at once", VX_GEOMETRY_ENTRIES_MAX);
    i32 index = cache->geometries_free;
    struct vx_geometry *made = &cache->geometries[index];
    cache->geometries_free = made->next;
    *made = (struct vx_geometry){
        .magic = VX_GEOMETRY_MAGIC,
        .cache = cache,
        .request = {.scan = *scan},
        .sets = VX_GEOMETRY_NONE,
        .maps = VX_GEOMETRY_NONE,
        .next = VX_GEOMETRY_NONE,
    };
    vx_shares_add(cache->shares, index, origin);
    *geometry = made;
    return VX_OK;
}

static void geometry_name(struct vx_geometry *geometry, struct vx_coords_ref name)
{
    i32 *chain = vx_geometry_chain(geometry->cache, &name);
    geometry->named = true;
    geometry->name = name;
    geometry->next = *chain;
    *chain = vx_geometry_index(geometry);
}

vx_status vx_geometry_hold(struct vx_geometry_cache *cache, struct vx_cpu *cpu,
                           const struct vx_coords_view *view, struct vx_why *why,
                           struct vx_geometry **geometry)
{
    VX_ASSERT(cache->magic == VX_GEOMETRY_CACHE_MAGIC);
    *geometry = NULL;
    cache->cpu = cpu;
    struct vx_geometry *found = NULL;
    bool named = vx_coords_ref_there(view->coords_ref);
    const struct vx_coords_ref name = {view->coords_ref.low & cache->coords_ref_bits,
                                       view->coords_ref.high & cache->coords_ref_bits};
    VX_ASSERT(view->rows || named || !view->n);
    vx_shares_ask(cache->shares, view->origin, vx_clock_ns());
    if (!view->rows && named && view->n)
        VX_TRY(geometry_named(cache, view, name, why, &found));
    else if (named)
        found = geometry_find(cache, cpu, view, name);
    bool hit = found != NULL;
    if (!hit) {
        struct vx_keys_scan scan;
        VX_TRY(vx_keys_scan(cpu, view, why, &scan));
        VX_TRY(geometry_make(cache, &scan, view->origin, why, &found));
        if (named) geometry_name(found, name);
    }
    /* Held from here on, so that the build does not evict it to make room. */
    bool first = found->holds++ == 0;
    if (first) {
        if (hit) vx_shares_use(cache->shares, vx_geometry_index(found), view->origin);
        found->used = ++cache->now;
        found->asker = view->origin;
        found->was_hit = hit;
    }
    vx_status status = hit ? VX_OK : geometry_build(found, cpu, view, why);
    if (status.fault) {
        found->holds = 0;
        vx_geometry_free(cache, found);
        return status;
    }
    cache->hits += hit;
    cache->misses += !hit;
    *geometry = found;
    return VX_OK;
}

bool vx_geometry_was_hit(const struct vx_geometry *geometry)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    return geometry->was_hit;
}

bool vx_geometry_kept(const struct vx_geometry *geometry)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    return geometry->named;
}

void vx_geometry_drop(struct vx_geometry_cache *cache, struct vx_geometry **geometry)
{
    struct vx_geometry *it = *geometry;
    *geometry = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == VX_GEOMETRY_MAGIC);
    VX_ASSERT(it->cache == cache);
    VX_ASSERT(it->holds > 0);
    if (--it->holds) return;
    if (!it->named) {
        vx_geometry_free(cache, it);
        return;
    }
    vx_geometry_free_passing(cache, it);
    vx_shares_rest(cache->shares, vx_geometry_index(it));
}

void vx_geometry_forget(struct vx_geometry_cache *cache, struct vx_coords_ref name)
{
    const struct vx_coords_ref weak = {name.low & cache->coords_ref_bits,
                                       name.high & cache->coords_ref_bits};
    struct vx_geometry *found = chain_find(cache, *vx_geometry_chain(cache, &weak), weak);
    if (found && !found->holds) vx_geometry_free(cache, found);
}
