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

/* Two blocks of candidates, which a sort needs, and the room they were taken in. */
struct candidates {
    struct vx_keys_sort sort;
    struct vx_keys_scan scan;
    struct vx_geometry_block blocks[2];
    int taken;
};

static void candidates_give_last(struct vx_geometry *geometry,
                                 struct candidates *candidates)
{
    vx_geometry_settle(geometry->cache);
    vx_geometry_give(geometry, &candidates->blocks[--candidates->taken]);
}

static void candidates_give(struct vx_geometry *geometry, struct candidates *candidates)
{
    while (candidates->taken) candidates_give_last(geometry, candidates);
}

static vx_status candidates_take(struct vx_geometry *geometry, i64 count,
                                 struct vx_why *why, struct candidates *candidates)
{
    struct vx_geometry_cache *cache = geometry->cache;
    VX_ENSURE_WHY(count <= VX_VOXELS_MAX, why, RESOURCE_EXHAUSTED,
                  "a set has too many candidates",
                  "%lld candidates for the voxels of a set, expected at most %d",
                  (long long)count, VX_VOXELS_MAX);
    struct vx_keys *keys[] = {&candidates->sort.set, &candidates->sort.scratch};
    for (int i = 0; i < 2; i++) {
        struct vx_geometry_block *block = &candidates->blocks[i];
        VX_TRY(vx_geometry_take_keys(geometry, count, why, block, keys[i]));
        vx_geometry_loosen(cache, &(struct vx_geometry_part){block, keys[i], NULL});
        candidates->taken++;
    }
    candidates->sort.counts = cache->counts;
    return VX_OK;
}

/* A set to make. */
struct source {
    struct vx_keys from;
    const struct vx_set_key *key;
    const f32 *logits; /* NULL: by the key alone */
};

static struct source source_make(const struct vx_geometry *geometry,
                                 const struct vx_geometry_prediction *prediction)
{
    const struct vx_set_key *key = &prediction->key;
    struct source source = {vx_geometry_active(geometry, key->from)->set, key,
                            prediction->logits};
    /* A warm-up's, in place of a set by logits: what follows from the first voxels. */
    bool part = !vx_set_is_predicted(key) && key->top && source.from.n > key->top;
    if (part) source.from.n = key->top;
    return source;
}

static i64 source_count(const struct source *source, struct vx_cpu *cpu)
{
    const struct vx_predict predict = {&source->from, source->key, source->logits};
    return source->logits ? vx_predict_count(cpu, &predict)
                          : vx_derive_count(cpu, &source->from, source->key);
}

static void source_fill(const struct source *source, struct vx_cpu *cpu,
                        struct candidates *candidates)
{
    const struct vx_predict predict = {&source->from, source->key, source->logits};
    if (source->logits)
        vx_predict_fill(cpu, &predict, &candidates->sort.set, &candidates->scan);
    else
        vx_derive_fill(cpu, &source->from, source->key, &candidates->sort.set,
                       &candidates->scan);
}

/* Makes the voxels of a set; *active is filled and holds a block when this succeeds. */
static vx_status set_build(struct vx_geometry *geometry, struct vx_cpu *cpu,
                           const struct vx_geometry_prediction *prediction,
                           struct vx_why *why, struct vx_active_set *active)
{
    struct candidates candidates = {.taken = 0};
    struct source source = source_make(geometry, prediction);
    vx_status status;
    i64 count = source_count(&source, cpu);
    VX_TRY_OR(status, out, candidates_take(geometry, count, why, &candidates));
    source = source_make(geometry, prediction); /* where its keys are now */
    source_fill(&source, cpu, &candidates);
    vx_keys_sort(cpu, &candidates.scan, &candidates.sort);
    i64 rows = vx_derive_unique_count(cpu, &candidates.sort.set);
    /* The scratch of the sort is free again. */
    candidates_give_last(geometry, &candidates);
    VX_TRY_OR(status, out,
              vx_geometry_take_keys(geometry, rows, why, &active->block, &active->set));
    vx_derive_unique(cpu, &candidates.sort.set, &active->set);
    active->scan = candidates.scan;
    active->scan.n = rows;
    active->scan.sorted = true;
out:
    candidates_give(geometry, &candidates);
    return status;
}

/* The sample of each voxel, which ascend: each of them is found by bisection. */
static vx_status samples_build(struct vx_geometry *geometry, i32 from, struct vx_why *why,
                               struct vx_active_set *active)
{
    struct vx_geometry_samples samples;
    vx_geometry_samples_get(geometry, from, &samples);
    VX_TRY(vx_geometry_take_keys(geometry, samples.count, why, &active->block,
                                 &active->set));
    const u64 *keys = vx_geometry_active(geometry, from)->set.keys;
    struct vx_keys *set = &active->set;
    for (i32 i = 0; i < samples.count; i++) {
        set->keys[i] = vx_key_pack(vx_key_sample(keys[samples.starts[i]]), 0, 0, 0);
        set->rows[i] = i;
    }
    set->keys[set->n] = VX_KEY_EMPTY;
    set->rows[set->n] = 0;
    active->scan = (struct vx_keys_scan){.n = set->n, .sorted = true};
    if (!set->n) return VX_OK;
    active->scan.least[0] = vx_key_sample(set->keys[0]);
    active->scan.most[0] = vx_key_sample(set->keys[set->n - 1]);
    return VX_OK;
}

/* Whether a set depends on features. */
static bool set_passes(const struct vx_geometry *geometry, i32 number)
{
    return number && geometry->cache->sets[number - 1].passing;
}

static vx_status set_make(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_geometry_prediction *prediction,
                          struct vx_why *why, i32 *index)
{
    struct vx_geometry_cache *cache = geometry->cache;
    struct vx_active_set active = {.block = {0}};
    const struct vx_set_key *key = &prediction->key;
    vx_geometry_trim(cache, geometry);
    while (cache->sets_free == VX_GEOMETRY_NONE &&
           vx_geometry_evict(geometry, VX_SHARE_SETS, 1))
        continue;
    VX_ENSURE_WHY(cache->sets_free != VX_GEOMETRY_NONE, why, RESOURCE_EXHAUSTED,
                  "too many sets of voxels are in use at once",
                  "at most %d sets of voxels may be in use at once",
                  VX_GEOMETRY_SETS_MAX);
    if (key->rule == VX_SET_SAMPLES)
        VX_TRY(samples_build(geometry, key->from, why, &active));
    else
        VX_TRY(set_build(geometry, cpu, prediction, why, &active));
    *index = cache->sets_free;
    struct vx_set_entry *made = &cache->sets[*index];
    cache->sets_free = made->next;
    *made = (struct vx_set_entry){.key = *key,
                                  .active = active,
                                  .passing = vx_set_is_predicted(key) ||
                                             set_passes(geometry, key->from),
                                  .next = geometry->sets};
    geometry->sets = *index;
    vx_geometry_charge(geometry, VX_SHARE_SETS, 1);
    return VX_OK;
}

/* A set or map was made that was not there; those that pass never are. */
static void count_miss(struct vx_geometry *geometry, bool passing)
{
    if (passing) return;
    geometry->cache->misses++;
    geometry->was_hit = false;
}

vx_status vx_geometry_set(struct vx_geometry *geometry, struct vx_cpu *cpu,
                          const struct vx_set_key *key, struct vx_why *why, i32 *number)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    VX_ASSERT(geometry->holds > 0);
    VX_ASSERT(key->rule != VX_SET_REQUEST);
    VX_ASSERT(!vx_set_is_predicted(key));
    struct vx_geometry_cache *cache = geometry->cache;
    i32 index = set_find(geometry, key);
    *number = 0;
    if (index != VX_GEOMETRY_NONE) {
        cache->hits++;
    } else {
        const struct vx_geometry_prediction none = {.key = *key};
        VX_TRY(set_make(geometry, cpu, &none, why, &index));
        count_miss(geometry, cache->sets[index].passing);
    }
    cache->sets[index].used = ++cache->now;
    *number = index + 1;
    return VX_OK;
}

vx_status vx_geometry_predict(struct vx_geometry *geometry, struct vx_cpu *cpu,
                              const struct vx_geometry_prediction *prediction,
                              struct vx_why *why, i32 *number)
{
    VX_ASSERT(geometry->magic == VX_GEOMETRY_MAGIC);
    VX_ASSERT(geometry->holds > 0);
    VX_ASSERT(vx_set_is_predicted(&prediction->key));
    VX_ASSERT(prediction->logits);
    struct vx_geometry_cache *cache = geometry->cache;
    i32 index;
    *number = 0;
    VX_TRY(set_make(geometry, cpu, prediction, why, &index));
    cache->sets[index].used = ++cache->now;
    *number = index + 1;
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
    struct candidates candidates = {.taken = 0};
    struct vx_keys *sorted = &candidates.sort.set;
    struct vx_set_key cells = {.rule = VX_SET_FLOOR};
    const size_t bytes = (size_t)set->n * sizeof *map->nbr;
    vx_status status;
    map->pairs = set->n;
    if (!set->n) return VX_OK;
    memcpy(cells.stride, map->key.stride, sizeof cells.stride);
    vx_geometry_loosen(geometry->cache, &(struct vx_geometry_part){block, NULL, map});
    VX_TRY_OR(status, out, candidates_take(geometry, set->n, why, &candidates));
    vx_derive_fill(cpu, set, &cells, sorted, &candidates.scan);
    memcpy(sorted->rows, set->rows, bytes);
    vx_keys_sort(cpu, &candidates.scan, &candidates.sort);
    memcpy(vx_geometry_at(geometry->cache, block), sorted->rows, bytes);
out:
    candidates_give(geometry, &candidates);
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
