/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/derive.h"
#include "engine/cpu/geometry/geometry.h"
#include "engine/cpu/geometry/geometry_parts.h"
#include "engine/cpu/geometry/predict.h"
#include "engine/cpu/geometry/room.h"
#include "kernels/01_coord_hash.h"

/* --- candidates --- */

static void candidates_give_last(struct vx_geometry *geometry,
                                 struct vx_geometry_candidates *candidates)
{
    vx_geometry_settle(geometry->cache);
    vx_geometry_give(geometry, &candidates->blocks[--candidates->taken]);
}

void vx_geometry_candidates_give(struct vx_geometry *geometry,
                                 struct vx_geometry_candidates *candidates)
{
    while (candidates->taken) candidates_give_last(geometry, candidates);
}

static vx_status candidates_check(struct vx_geometry_cache *cache, i64 count,
                                  struct vx_why *why)
{
    VX_ENSURE_WHY(count <= VX_VOXELS_MAX, why, RESOURCE_EXHAUSTED,
                  "a set has too many candidates",
                  "%lld candidates for the voxels of a set, expected at most %d",
                  (long long)count, VX_VOXELS_MAX);
    return vx_geometry_check_room(cache, vx_geometry_set_bytes(count), 2, why);
}

vx_status vx_geometry_candidates_take(struct vx_geometry *geometry, i64 count,
                                      struct vx_why *why,
                                      struct vx_geometry_candidates *candidates)
{
    struct vx_keys *keys[] = {&candidates->sort.set, &candidates->sort.scratch};
    struct vx_geometry_cache *cache = geometry->cache;
    VX_TRY(candidates_check(cache, count, why));
    for (int i = 0; i < 2; i++) {
        struct vx_geometry_block *block = &candidates->blocks[i];
        VX_TRY(vx_geometry_take_keys(geometry, count, why, block, keys[i]));
        vx_geometry_loosen(cache, &(struct vx_geometry_part){block, keys[i], NULL});
        candidates->taken++;
    }
    candidates->sort.counts = cache->counts;
    return VX_OK;
}

/* --- what a set is made from --- */

struct source {
    struct vx_keys from;
    const struct vx_set_key *key;
    const f32 *logits; /* NULL: by the key alone */
};

static struct source source_make(const struct vx_geometry_build *build)
{
    const struct vx_set_key *key = &build->prediction->key;
    struct source source = {vx_geometry_active(build->geometry, key->from)->set, key,
                            build->prediction->logits};
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
                        struct vx_geometry_candidates *candidates)
{
    const struct vx_predict predict = {&source->from, source->key, source->logits};
    if (source->logits)
        vx_predict_fill(cpu, &predict, &candidates->sort.set, &candidates->scan);
    else
        vx_derive_fill(cpu, &source->from, source->key, &candidates->sort.set,
                       &candidates->scan);
}

/* --- a set --- */

vx_status vx_geometry_check_rows(struct vx_geometry_made *made, i64 rows, bool exact,
                                 struct vx_why *why)
{
    made->rows = rows;
    made->exact = exact;
    VX_ENSURE_WHY(!made->rows_max || rows <= made->rows_max, why, RESOURCE_EXHAUSTED,
                  "a set has more voxels than it may have",
                  "a set has %s%lld voxels; it may have %lld", exact ? "" : "at least ",
                  (long long)rows, (long long)made->rows_max);
    return VX_OK;
}

vx_status vx_geometry_build_count(struct vx_geometry_build *build)
{
    const struct vx_set_key *key = &build->prediction->key;
    bool exact = true;
    i64 least;
    if (key->rule == VX_SET_SAMPLES) {
        struct vx_geometry_samples samples;
        vx_geometry_samples_get(build->geometry, key->from, &samples);
        return vx_geometry_check_rows(build->made, samples.count, exact, build->why);
    }
    const struct source source = source_make(build);
    build->candidates = source_count(&source, build->cpu);
    least = vx_derive_rows_least(key, build->candidates, &exact);
    VX_TRY(vx_geometry_check_rows(build->made, least, exact, build->why));
    return candidates_check(build->geometry->cache, build->candidates, build->why);
}

/* The sample of each voxel, which ascend: each of them is found by bisection. */
static vx_status samples_build(struct vx_geometry_build *build)
{
    struct vx_geometry *geometry = build->geometry;
    const i32 from = build->prediction->key.from;
    struct vx_active_set *active = &build->active;
    struct vx_geometry_samples samples;
    vx_geometry_samples_get(geometry, from, &samples);
    VX_TRY(vx_geometry_take_keys(geometry, samples.count, build->why, &active->block,
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

vx_status vx_geometry_build_set(struct vx_geometry_build *build)
{
    struct vx_geometry *geometry = build->geometry;
    struct vx_geometry_candidates candidates = {.taken = 0};
    struct vx_active_set *active = &build->active;
    vx_status status;
    i64 rows;
    if (build->prediction->key.rule == VX_SET_SAMPLES) return samples_build(build);
    VX_TRY_OR(status, out,
              vx_geometry_candidates_take(geometry, build->candidates, build->why,
                                          &candidates));
    const struct source source = source_make(build); /* where its keys are now */
    source_fill(&source, build->cpu, &candidates);
    vx_keys_sort(build->cpu, &candidates.scan, &candidates.sort);
    rows = vx_derive_unique_count(build->cpu, &candidates.sort.set);
    VX_TRY_OR(status, out, vx_geometry_check_rows(build->made, rows, true, build->why));
    /* The scratch of the sort is free again. */
    candidates_give_last(geometry, &candidates);
    VX_TRY_OR(
        status, out,
        vx_geometry_take_keys(geometry, rows, build->why, &active->block, &active->set));
    vx_derive_unique(build->cpu, &candidates.sort.set, &active->set);
    active->scan = candidates.scan;
    active->scan.n = rows;
    active->scan.sorted = true;
out:
    vx_geometry_candidates_give(geometry, &candidates);
    return status;
}
