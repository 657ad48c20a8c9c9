/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/derive.h"
#include "engine/cpu/geometry/geometry.h"
#include "engine/cpu/geometry/geometry_parts.h"
#include "engine/cpu/geometry/map.h"
#include "engine/cpu/geometry/predict.h"
#include "engine/cpu/geometry/room.h"
#include "kernels/01_coord_hash.h"

#include <string.h>

/* Rows of one chunk when coordinates are written. */
#define COORDS_ROWS 16384

const struct vx_active_set *vx_geometry_active(const struct vx_geometry *geometry,
                                               i32 number)
{
    VX_ASSERT(number >= 0);
    VX_ASSERT(number <= VX_GEOMETRY_SETS_MAX);
    return number ? &geometry->cache->sets[number - 1].active : &geometry->request;
}

/* --- sets --- */

static i32 set_find(const struct vx_geometry *geometry, const struct vx_set_key *key)
{
    const struct vx_set_entry *sets = geometry->cache->sets;
    for (i32 i = geometry->sets; i != VX_GEOMETRY_NONE; i = sets[i].next)
        if (!memcmp(&sets[i].key, key, sizeof *key)) return i;
    return VX_GEOMETRY_NONE;
}

/* Whether a set depends on features. */
static bool set_passes(const struct vx_geometry *geometry, i32 number)
{
    return number && geometry->cache->sets[number - 1].passing;
}

/* Makes a set and numbers it. */
static vx_status set_make(struct vx_geometry_build *build)
{
    struct vx_geometry *geometry = build->geometry;
    struct vx_geometry_cache *cache = geometry->cache;
    const struct vx_set_key *key = &build->prediction->key;
    VX_TRY(vx_geometry_build_count(build));
    vx_geometry_trim(cache, geometry);
    while (cache->sets_free == VX_GEOMETRY_NONE &&
           vx_geometry_evict(geometry, VX_SHARE_SETS, 1))
        continue;
    if (cache->sets_free == VX_GEOMETRY_NONE) cache->lacked = cache->still;
    VX_ENSURE_WHY(cache->sets_free != VX_GEOMETRY_NONE, build->why, RESOURCE_EXHAUSTED,
                  "too many sets of voxels are in use at once",
                  "at most %d sets of voxels may be in use at once",
                  VX_GEOMETRY_SETS_MAX);
    VX_TRY(vx_geometry_build_set(build));
    const i32 index = cache->sets_free;
    struct vx_set_entry *made = &cache->sets[index];
    cache->sets_free = made->next;
    *made = (struct vx_set_entry){.key = *key,
                                  .active = build->active,
                                  .passing = vx_set_is_predicted(key) ||
                                             set_passes(geometry, key->from),
                                  .next = geometry->sets};
    geometry->sets = index;
    vx_geometry_charge(geometry, VX_SHARE_SETS, 1);
    build->made->number = index + 1;
    return VX_OK;
}

/* A set or map was made that was not there; those that pass never are. */
static void count_miss(struct vx_geometry *geometry, bool passing)
{
    if (passing) return;
    geometry->cache->misses++;
    geometry->was_hit = false;
}

/* What a set that is to be found or made says before. */
static void made_begin(struct vx_geometry_made *made)
{
    *made = (struct vx_geometry_made){.rows_max = made->rows_max};
}

vx_status vx_geometry_set(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_set_key *key, struct vx_why *why,
                          struct vx_geometry_made *made)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    VX_ASSERT(geometry->holds > 0);
    VX_ASSERT(key->rule != VX_SET_REQUEST);
    VX_ASSERT(!vx_set_is_predicted(key));
    struct vx_geometry_cache *cache = geometry->cache;
    const i32 index = set_find(geometry, key);
    made_begin(made);
    if (index != VX_GEOMETRY_NONE) {
        VX_TRY(vx_geometry_check_rows(made, cache->sets[index].active.scan.n, true, why));
        made->number = index + 1;
        cache->hits++;
    } else {
        const struct vx_geometry_prediction none = {.key = *key};
        VX_TRY(set_make(&(struct vx_geometry_build){.geometry = geometry,
                                                    .cpu = cpu,
                                                    .prediction = &none,
                                                    .why = why,
                                                    .made = made}));
        count_miss(geometry, set_passes(geometry, made->number));
    }
    cache->sets[made->number - 1].used = ++cache->now;
    return VX_OK;
}

vx_status vx_geometry_predict(struct vx_geometry *geometry, struct vx_cpu *cpu,
                              const struct vx_geometry_prediction *prediction,
                              struct vx_why *why, struct vx_geometry_made *made)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    VX_ASSERT(geometry->holds > 0);
    VX_ASSERT(vx_set_is_predicted(&prediction->key));
    VX_ASSERT(prediction->logits);
    struct vx_geometry_cache *cache = geometry->cache;
    made_begin(made);
    VX_TRY(set_make(&(struct vx_geometry_build){.geometry = geometry,
                                                .cpu = cpu,
                                                .prediction = prediction,
                                                .why = why,
                                                .made = made}));
    cache->sets[made->number - 1].used = ++cache->now;
    return VX_OK;
}

bool vx_geometry_find_nan(const struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_geometry_prediction *prediction, i32 voxel[4],
                          i32 *child)
{
    const struct vx_keys *from = &vx_geometry_active(geometry, prediction->key.from)->set;
    const struct vx_predict predict = {from, &prediction->key, prediction->logits};
    i64 at;
    if (!vx_predict_nan(cpu, &predict, &at, child)) return false;
    voxel[0] = vx_key_sample(from->keys[at]);
    for (int axis = 0; axis < 3; axis++)
        voxel[axis + 1] = vx_key_axis(from->keys[at], axis);
    return true;
}

i64 vx_geometry_rows(const struct vx_geometry *geometry, i32 set)
{
    return vx_geometry_active(geometry, set)->scan.n;
}

/* Where coordinates are written. */
struct coords_job {
    const struct vx_keys *set;
    i32 *coords;
};

static void coords_task(void *context, i64 begin, i64 end)
{
    const struct coords_job *job = context;
    for (i64 i = begin; i < end; i++) {
        i32 *at = job->coords + (i64)job->set->rows[i] * 4;
        at[0] = vx_key_sample(job->set->keys[i]);
        for (int axis = 0; axis < 3; axis++)
            at[axis + 1] = vx_key_axis(job->set->keys[i], axis);
    }
}

void vx_geometry_coords(const struct vx_geometry *geometry, struct vx_cpu *cpu, i32 set,
                        i32 *coords)
{
    const struct vx_keys *keys = &vx_geometry_active(geometry, set)->set;
    struct coords_job job = {keys, coords};
    vx_cpu_spread(cpu, keys->n, COORDS_ROWS, coords_task, &job);
}

void vx_geometry_samples_get(const struct vx_geometry *geometry, i32 set,
                             struct vx_geometry_samples *samples)
{
    const struct vx_keys *keys = &vx_geometry_active(geometry, set)->set;
    i64 at = 0;
    samples->count = 0;
    samples->rows = keys->rows;
    samples->starts[0] = 0;
    while (at < keys->n) {
        i32 next = vx_key_sample(keys->keys[at]) + 1;
        at = vx_keys_place(keys, at,
                           vx_key_pack(next, VX_AXIS_MIN, VX_AXIS_MIN, VX_AXIS_MIN));
        samples->starts[++samples->count] = at;
    }
}

i64 vx_geometry_set_outside(const struct vx_geometry *geometry, i32 set,
                            const i32 shape[3])
{
    const struct vx_active_set *active = vx_geometry_active(geometry, set);
    bool bad = false;
    for (int axis = 0; axis < 3 && active->scan.n; axis++)
        bad = bad || (shape[axis] && (active->scan.least[axis + 1] < 0 ||
                                      active->scan.most[axis + 1] >= shape[axis]));
    for (i64 i = 0; bad && i < active->set.n; i++)
        for (int axis = 0; axis < 3; axis++) {
            i32 at = vx_key_axis(active->set.keys[i], axis);
            if (shape[axis] && (at < 0 || at >= shape[axis])) return i;
        }
    return -1;
}

i64 vx_geometry_outside(const struct vx_geometry *geometry, const i32 shape[3], i32 at[4])
{
    const struct vx_keys *set = &geometry->request.set;
    i64 place = vx_geometry_set_outside(geometry, 0, shape);
    if (place < 0) return -1;
    at[0] = vx_key_sample(set->keys[place]);
    for (int axis = 0; axis < 3; axis++)
        at[axis + 1] = vx_key_axis(set->keys[place], axis);
    return set->rows[place];
}

const struct vx_keys *vx_geometry_keys(const struct vx_geometry *geometry, i32 set)
{
    return &vx_geometry_active(geometry, set)->set;
}

i32 vx_geometry_samples(const struct vx_geometry *geometry)
{
    const struct vx_keys *set = &geometry->request.set;
    return set->n ? vx_key_sample(set->keys[set->n - 1]) + 1 : 0;
}

/* --- maps --- */

static struct vx_map_entry *map_find(struct vx_geometry *geometry,
                                     const struct vx_map_key *key)
{
    for (i32 i = geometry->maps; i != VX_GEOMETRY_NONE;
         i = geometry->cache->maps[i].next) {
        struct vx_map_entry *entry = &geometry->cache->maps[i];
        if (!memcmp(&entry->map.key, key, sizeof *key)) return entry;
    }
    return NULL;
}

/* ORDER: the rows sorted by the voxels in which they lie.  They come in the order of their
 * own keys, and the sort is stable. */
static vx_status order_fill(struct vx_geometry *geometry, struct vx_cpu *cpu,
                            struct vx_why *why, struct vx_geometry_block *block,
                            struct vx_map *map)
{
    const struct vx_keys *set = &vx_geometry_active(geometry, map->key.to)->set;
    struct vx_geometry_candidates candidates = {.taken = 0};
    struct vx_keys *sorted = &candidates.sort.set;
    struct vx_set_key cells = {.rule = VX_SET_FLOOR};
    const size_t bytes = (size_t)set->n * sizeof *map->nbr;
    vx_status status;
    map->pairs = set->n;
    if (!set->n) return VX_OK;
    memcpy(cells.stride, map->key.stride, sizeof cells.stride);
    vx_geometry_loosen(geometry->cache, &(struct vx_geometry_part){block, NULL, map});
    VX_TRY_OR(status, out,
              vx_geometry_candidates_take(geometry, set->n, why, &candidates));
    vx_derive_fill(cpu, set, &cells, sorted, &candidates.scan);
    vx_keys_copy(cpu, sorted->rows, set->rows, bytes);
    vx_keys_sort(cpu, &candidates.scan, &candidates.sort);
    vx_keys_copy(cpu, vx_geometry_at(geometry->cache, block), sorted->rows, bytes);
out:
    vx_geometry_candidates_give(geometry, &candidates);
    vx_geometry_settle(geometry->cache);
    return status;
}

static void map_fill(const struct vx_geometry *geometry, struct vx_cpu *cpu, i32 *nbr,
                     struct vx_map *map)
{
    const struct vx_active_set *to = vx_geometry_active(geometry, map->key.to);
    if (map->key.kind != VX_MAP_SUBM) {
        struct vx_map_between between = {
            .from = vx_geometry_active(geometry, map->key.from)->set,
            .to = to->set,
            .key = map->key,
            .nbr = nbr};
        vx_map_build_between(cpu, &between);
        map->pairs = between.pairs;
        return;
    }
    struct vx_map_build build = {.set = to->set, .key = map->key, .nbr = nbr};
    for (int axis = 0; axis < 3; axis++) {
        build.least[axis] = to->scan.least[axis + 1];
        build.most[axis] = to->scan.most[axis + 1];
    }
    vx_map_build(cpu, &build);
    map->pairs = build.pairs;
}

static vx_status map_make(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_map_key *key, struct vx_why *why,
                          struct vx_map_entry **entry)
{
    /* nbr of a map without rows: not read, but not NULL. */
    static i32 no_rows[1] = {VX_GEOMETRY_NONE};
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_map map = {
        .key = *key, .v = vx_map_offsets(key), .n = vx_geometry_rows(geometry, key->to)};
    struct vx_geometry_block block = {0};
    i64 children = key->kind == VX_MAP_CHILD
                       ? (i64)key->stride[0] * key->stride[1] * key->stride[2]
                       : 1;
    VX_ENSURE_WHY(vx_geometry_rows(geometry, key->from) * children <= INT32_MAX, why,
                  RESOURCE_EXHAUSTED, "a set has too many children",
                  "%lld voxels with %lld children each: expected at most %d in all",
                  (long long)vx_geometry_rows(geometry, key->from), (long long)children,
                  INT32_MAX);
    if (map.n)
        VX_TRY(
            vx_geometry_take(geometry, vx_geometry_map_bytes(key, map.n), why, &block));
    while (cache->maps_free == VX_GEOMETRY_NONE &&
           vx_geometry_evict(geometry, VX_SHARE_MAPS, 1))
        continue;
    if (cache->maps_free == VX_GEOMETRY_NONE) {
        cache->lacked = cache->still;
        vx_geometry_give(geometry, &block);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "too many neighbour maps are in use at once",
                    "at most %d neighbour maps may be in use at once",
                    VX_GEOMETRY_MAPS_MAX);
    }
    i32 *nbr = map.n ? vx_geometry_at(cache, &block) : no_rows;
    map.nbr = nbr;
    if (key->kind == VX_MAP_ORDER) {
        vx_status status = order_fill(geometry, cpu, why, &block, &map);
        if (status.fault) vx_geometry_give(geometry, &block);
        if (status.fault) return status;
    } else {
        map_fill(geometry, cpu, nbr, &map);
    }
    i32 index = cache->maps_free;
    struct vx_map_entry *made = &cache->maps[index];
    cache->maps_free = made->next;
    *made = (struct vx_map_entry){.map = map,
                                  .block = block,
                                  .passing = set_passes(geometry, key->from) ||
                                             set_passes(geometry, key->to),
                                  .next = geometry->maps};
    geometry->maps = index;
    vx_geometry_charge(geometry, VX_SHARE_MAPS, 1);
    *entry = made;
    return VX_OK;
}

vx_status vx_geometry_map(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_map_key *key, struct vx_why *why,
                          const struct vx_map **map)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    VX_ASSERT(geometry->holds > 0);
    *map = NULL;
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_map_entry *entry = map_find(geometry, key);
    if (entry) {
        cache->hits++;
    } else {
        VX_TRY(map_make(geometry, cpu, key, why, &entry));
        count_miss(geometry, entry->passing);
    }
    entry->used = ++cache->now;
    *map = &entry->map;
    return VX_OK;
}
