/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/levels.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "kernels/22_level_map.h"

#include <string.h>

/* The alignment of descriptions, as in pieces.c. */
#define PART_ALIGN 64
/* Blocks of 512 threads that a processor holds; more would only wait. */
#define SET_BLOCKS 4
/* Blocks per processor of the maps of many requests: what it holds of them. */
#define MANY_BLOCKS 3
/* The fewest rows per block of a map, and of keys: as in map.c. */
#define MAP_ROWS 32

static size_t take(size_t *bytes, size_t count, size_t each)
{
    size_t offset = *bytes;
    *bytes += vx_round_up(count * each, VX_GPU_LINE_BYTES);
    return offset;
}

static u32 blocks_of(struct vx_kernel_set *set, i64 work, i64 each, i64 per_processor)
{
    i64 most = vx_gpu_caps(vx_kernel_set_gpu(set))->processors * per_processor;
    i64 blocks = (work + each - 1) / each;
    VX_ASSERT(work >= 1);
    return (u32)(blocks < most ? blocks : most);
}

/* --- descriptions, for launches over many requests --- */

/* False if half of the room that is left is too little: the rest is for what follows. */
static bool upload_fits(const struct vx_gpu_upload *upload, size_t bytes)
{
    size_t left = upload->used < upload->bytes ? upload->bytes - upload->used : 0;
    return bytes + PART_ALIGN <= left / 2;
}

/* Where the host writes them; they fit. */
static void *upload_take(struct vx_gpu_upload *upload, size_t bytes, size_t *at)
{
    *at = vx_round_up(upload->used, PART_ALIGN);
    upload->used = *at + bytes;
    VX_ASSERT(upload->used <= upload->bytes);
    return upload->host + *at;
}

static vx_status upload_send(const struct vx_gpu_queue *queue,
                             const struct vx_gpu_upload *upload, size_t at,
                             struct vx_why *why)
{
    return vx_gpu_copy_in(
        vx_kernel_set_gpu(queue->set), queue->stream,
        &(struct vx_gpu_copy){upload->device + at, upload->host + at, upload->used - at},
        why);
}

/* --- sets --- */

static const i64 *rows_of(const struct vx_gpu_levels *levels, i32 request)
{
    return levels->rows_max + (i64)request * levels->sets_count;
}

static struct vx_brick_set *sets_of(const struct vx_gpu_levels *levels, i32 request)
{
    return levels->sets + (i64)request * levels->sets_count;
}

static bool small(const struct vx_gpu_levels *levels, i32 request)
{
    for (i32 s = 0; s < levels->sets_count; s++)
        if (rows_of(levels, request)[s] > VX_BRICK_SMALL) return false;
    return true;
}

static u64 slots_of(i64 rows_max)
{
    u64 slots = VX_BRICK_GROUP;
    VX_ASSERT(rows_max >= 1);
    VX_ASSERT(rows_max <= VX_VOXELS_MAX);
    while (slots < 2 * (u64)rows_max) slots *= 2;
    return slots;
}

/* Counts and slots of all requests come first, so that one fill clears them: *zeros are
 * their bytes.  memory NULL: no pointer is set.  Returns the bytes. */
static size_t layout(const struct vx_gpu_levels *levels, u8 *memory, size_t *zeros)
{
    size_t bytes = 0;
    (void)take(&bytes, 1, vx_gpu_levels_counts_bytes(levels));
    for (i32 r = 0; r < levels->requests_count; r++)
        for (i32 s = 1; s < levels->sets_count; s++) {
            u64 slots = slots_of(rows_of(levels, r)[s]);
            size_t at = take(&bytes, (size_t)slots, sizeof(struct vx_brick_slot));
            if (!memory) continue;
            sets_of(levels, r)[s].slots_count = slots;
            sets_of(levels, r)[s].slots = (void *)(memory + at);
        }
    *zeros = bytes;
    for (i32 r = 0; r < levels->requests_count; r++)
        for (i32 s = 1; s < levels->sets_count; s++) {
            i64 rows = rows_of(levels, r)[s];
            size_t base = take(&bytes, (size_t)slots_of(rows), sizeof(i32));
            size_t list = take(&bytes, (size_t)rows, sizeof(u32));
            if (!memory) continue;
            sets_of(levels, r)[s].base = (void *)(memory + base);
            sets_of(levels, r)[s].list = (void *)(memory + list);
        }
    return bytes;
}

size_t vx_gpu_levels_bytes(const struct vx_gpu_levels *levels)
{
    size_t zeros;
    return layout(levels, NULL, &zeros);
}

size_t vx_gpu_levels_counts_bytes(const struct vx_gpu_levels *levels)
{
    return (size_t)levels->requests_count * (size_t)(levels->sets_count - 1) *
           sizeof(struct vx_brick_counts);
}

/* Set 0, as map.c has laid it out. */
static struct vx_brick_set set_of_index(struct vx_kernel_set *set,
                                        const struct vx_gpu_index *index)
{
    const struct vx_gpu_coords at = {
        .columns = 3, .n = index->n, .memory = index->bricks};
    struct vx_brick_index_args args;
    vx_gpu_index_args(set, &at, &args);
    return (struct vx_brick_set){.rows_max = args.n,
                                 .slots_count = args.slots_count,
                                 .slots = args.slots,
                                 .counts = args.counts,
                                 .base = args.base,
                                 .list = args.list};
}

void vx_gpu_levels_place(struct vx_kernel_set *set, struct vx_gpu_levels *levels,
                         const struct vx_gpu_index *indices, void *memory)
{
    const i32 derived = levels->sets_count - 1;
    size_t zeros;
    levels->counts = memory;
    for (i32 r = 0; r < levels->requests_count; r++) {
        VX_ASSERT(indices[r].n == rows_of(levels, r)[0]);
        sets_of(levels, r)[0] = set_of_index(set, &indices[r]);
        for (i32 s = 1; s <= derived; s++)
            sets_of(levels, r)[s] =
                (struct vx_brick_set){.rows_max = rows_of(levels, r)[s],
                                      .counts = levels->counts + r * derived + s - 1};
    }
    (void)layout(levels, memory, &zeros);
}

static void derive_args(struct vx_kernel_set *set, const struct vx_gpu_levels *levels,
                        i32 request, i32 index, struct vx_set_derive_args *args)
{
    static const i32 rules[] = {[VX_SET_FLOOR] = VX_DERIVE_FLOOR,
                                [VX_SET_SPCONV] = VX_DERIVE_SPCONV,
                                [VX_SET_EXPAND] = VX_DERIVE_EXPAND,
                                [VX_SET_SAMPLES] = VX_DERIVE_SAMPLES};
    const struct vx_set_key *key = &levels->keys[index];
    const struct vx_brick_set *sets = sets_of(levels, request);
    VX_ASSERT(key->rule != VX_SET_REQUEST);
    VX_ASSERT(key->from >= 0);
    VX_ASSERT(key->from < index);
    *args = (struct vx_set_derive_args){.to = sets[index],
                                        .from = sets[key->from],
                                        .seed = vx_kernel_set_seed(set),
                                        .rule = rules[key->rule]};
    memcpy(args->kernel, key->kernel, sizeof args->kernel);
    memcpy(args->dilation, key->dilation, sizeof args->dilation);
    memcpy(args->stride, key->stride, sizeof args->stride);
    memcpy(args->padding, key->padding, sizeof args->padding);
    memcpy(args->shape, key->shape, sizeof args->shape);
    vx_set_derive_plan(args);
    i64 steps = (i64)args->steps[0] * args->steps[1] * args->steps[2];
    args->blocks =
        blocks_of(set, args->from.rows_max * steps, VX_SET_THREADS, SET_BLOCKS);
}

/* The sets of one request, one after the other; then numbers for all of them. */
static vx_status build_one(const struct vx_gpu_queue *queue,
                           const struct vx_gpu_levels *levels, i32 request,
                           struct vx_why *why)
{
    const struct vx_brick_set *sets = sets_of(levels, request);
    struct vx_set_derive_args derive;
    for (i32 s = 1; s < levels->sets_count; s++) {
        derive_args(queue->set, levels, request, s, &derive);
        VX_TRY(vx_gpu_map_launch(queue, "set_derive", &derive, why));
    }
    for (i32 s = 1; s < levels->sets_count;) {
        struct vx_set_number_args args = {.count = 0};
        i64 most = 1;
        for (; s < levels->sets_count && args.count < VX_SET_NUMBER_MAX; s++) {
            if (sets[s].rows_max > most) most = sets[s].rows_max;
            args.sets[args.count++] = sets[s];
        }
        args.blocks = blocks_of(queue->set, most, VX_SET_THREADS, SET_BLOCKS);
        VX_TRY(vx_gpu_map_launch(queue, "set_number", &args, why));
    }
    return VX_OK;
}

/* The sets of all small requests. */
static vx_status build_small(const struct vx_gpu_queue *queue,
                             struct vx_gpu_upload *upload,
                             const struct vx_gpu_levels *levels, i32 count,
                             struct vx_why *why)
{
    const i32 derived = levels->sets_count - 1;
    size_t at;
    struct vx_set_derive_args *args =
        upload_take(upload, (size_t)count * (size_t)derived * sizeof *args, &at);
    for (i32 r = 0; r < levels->requests_count; r++)
        for (i32 s = 1; small(levels, r) && s <= derived; s++)
            derive_args(queue->set, levels, r, s, args++);
    VX_TRY(upload_send(queue, upload, at, why));
    const struct vx_set_derive_many_args many = {count, derived,
                                                 (void *)(upload->device + at)};
    return vx_gpu_map_launch(queue, "set_derive_many", &many, why);
}

vx_status vx_gpu_levels_build(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_levels *levels, struct vx_why *why)
{
    size_t zeros;
    i32 count = 0;
    if (levels->sets_count < 2 || !levels->requests_count) return VX_OK;
    (void)layout(levels, NULL, &zeros);
    for (i32 r = 0; r < levels->requests_count; r++) count += small(levels, r);
    size_t bytes = (size_t)(levels->sets_count - 1) * sizeof(struct vx_set_derive_args);
    const bool together = count && upload_fits(upload, (size_t)count * bytes);
    if (!together || count < levels->requests_count) {
        const struct vx_gpu_words words = {levels->counts, 0, zeros};
        VX_TRY(vx_gpu_fill(vx_kernel_set_gpu(queue->set), queue->stream, &words, why));
    }
    if (together) VX_TRY(build_small(queue, upload, levels, count, why));
    for (i32 r = 0; r < levels->requests_count; r++)
        if (!together || !small(levels, r)) VX_TRY(build_one(queue, levels, r, why));
    return VX_OK;
}

vx_status vx_gpu_levels_rows(const struct vx_gpu_levels *levels, i32 request,
                             const void *counts, struct vx_why *why, i64 *rows)
{
    const i64 *most = rows_of(levels, request);
    const i64 first = (i64)request * (levels->sets_count - 1);
    struct vx_brick_counts it;
    rows[0] = most[0];
    for (i32 s = 1; s < levels->sets_count; s++) {
        memcpy(&it, (const u8 *)counts + (first + s - 1) * (i64)sizeof it, sizeof it);
        rows[s] = it.rows;
        if (it.fault[0] && rows[s] <= most[s]) rows[s] = most[s] + 1;
        VX_ENSURE_WHY(!it.fault[0], why, RESOURCE_EXHAUSTED,
                      "a set of voxels is larger than its bound",
                      "expected at most %lld voxels in set %d, got at least %lld",
                      (long long)most[s], s, (long long)rows[s]);
    }
    return VX_OK;
}

/* --- maps --- */

/* The rows of a map of one entry are as far apart as the least of any other map, so that
 * maps are joined four entries at a time. */
#define ONE_STRIDE 4

size_t vx_gpu_level_map_bytes(i64 rows, const struct vx_map_key *key)
{
    size_t bytes = 0;
    if (rows < 1) rows = 1;
    if (!vx_map_is_one(key->kind)) return vx_gpu_map_bytes(rows, key);
    (void)take(&bytes, (size_t)rows, ONE_STRIDE * sizeof(i32));
    return bytes;
}

void vx_gpu_level_map_place(i64 rows, const struct vx_map_key *key, void *memory,
                            struct vx_gpu_map *map)
{
    if (vx_map_is_one(key->kind))
        *map = (struct vx_gpu_map){
            .v = 1, .nbr_stride = ONE_STRIDE, .groups = 1, .nbr = memory};
    else
        vx_gpu_map_place(rows < 1 ? 1 : rows, key, memory, map);
}

/* The arguments of the kernel that makes a map. */
union map_args {
    struct vx_brick_map_args subm;
    struct vx_level_map_args level;
};

/* What a map needs beside its sets is map.c's.  Where it takes the parts of an index to
 * lie does not matter: they are replaced. */
static void subm_args(struct vx_kernel_set *set, const struct vx_map_key *key,
                      const struct vx_gpu_level_map *it, struct vx_brick_map_args *args)
{
    const struct vx_gpu_index index = {.n = it->rows, .bricks = it->to->slots};
    vx_gpu_map_args(set, &index, key, it->map, args);
    args->slots_count = it->to->slots_count;
    args->slots = it->to->slots;
    args->base = it->to->base;
    args->list = it->to->list;
    args->counts = it->to->counts;
}

/* Returns whether level_map can make it. */
static bool level_args(struct vx_kernel_set *set, const struct vx_map_key *key,
                       const struct vx_gpu_level_map *it, struct vx_level_map_args *args)
{
    static const i32 kinds[] = {[VX_MAP_DOWN] = VX_LEVEL_DOWN,
                                [VX_MAP_UP] = VX_LEVEL_UP,
                                [VX_MAP_PARENT] = VX_LEVEL_PARENT,
                                [VX_MAP_CHILD] = VX_LEVEL_CHILD,
                                [VX_MAP_SAMPLE] = VX_LEVEL_SAMPLE};
    struct vx_brick_map_args common;
    subm_args(set, key, it, &common);
    *args = (struct vx_level_map_args){.n = it->rows,
                                       .from_n = it->from_rows,
                                       .seed = common.seed,
                                       .from = *it->from,
                                       .to = *it->to,
                                       .kind = kinds[key->kind],
                                       .v = common.v,
                                       .words = common.words,
                                       .nbr_stride = common.nbr_stride,
                                       .blocks = common.blocks,
                                       .nbr = common.nbr,
                                       .masks = common.masks,
                                       .pairs = common.pairs};
    memcpy(args->kernel, key->kernel, sizeof args->kernel);
    memcpy(args->dilation, key->dilation, sizeof args->dilation);
    memcpy(args->stride, key->stride, sizeof args->stride);
    memcpy(args->padding, key->padding, sizeof args->padding);
    return vx_level_map_plan(args);
}

/* Returns the kernel that makes a map, for one or for many, and its arguments. */
static struct vx_jit_wanted map_kernel(struct vx_kernel_set *set,
                                       const struct vx_map_key *key,
                                       const struct vx_gpu_level_map *it, bool many,
                                       union map_args *args)
{
    static const char *const names[2][2] = {{"level_map_far", "level_map_far_many"},
                                            {"level_map", "level_map_many"}};
    if (key->kind != VX_MAP_SUBM)
        return vx_gpu_map_wanted(names[level_args(set, key, it, &args->level)][many], 0);
    subm_args(set, key, it, &args->subm);
    return vx_gpu_map_kernel(key, many);
}

/* The small ones of many things, and the rows of all of them. */
struct many {
    i32 at[VX_BATCH_ITEMS_MAX];
    i32 count;
    i64 rows;
};

static void many_add(struct many *many, i32 index, i64 rows)
{
    if (rows < 1 || rows > VX_BRICK_SMALL) return;
    many->at[many->count++] = index;
    many->rows += rows;
}

/* The blocks of one of them: its share, by rows, of what the device holds at once. */
static u32 many_share(struct vx_kernel_set *set, const struct many *many, i64 rows,
                      u32 *most)
{
    i64 all = (i64)vx_gpu_caps(vx_kernel_set_gpu(set))->processors * MANY_BLOCKS;
    i64 blocks = all * rows / many->rows, enough = (rows + MAP_ROWS - 1) / MAP_ROWS;
    if (blocks > enough) blocks = enough;
    if (blocks < 1) blocks = 1;
    if ((u32)blocks > *most) *most = (u32)blocks;
    return (u32)blocks;
}

static vx_status maps_many(const struct vx_gpu_queue *queue, struct vx_gpu_upload *upload,
                           const struct vx_gpu_level_maps *maps, const struct many *many,
                           struct vx_why *why)
{
    const bool subm = maps->key->kind == VX_MAP_SUBM;
    const size_t each =
        subm ? sizeof(struct vx_brick_map_args) : sizeof(struct vx_level_map_args);
    struct vx_jit_wanted kernel = {0}; /* the same for all, as the key says which */
    size_t at;
    u32 blocks = 0;
    u8 *to = upload_take(upload, (size_t)many->count * each, &at);
    for (i32 i = 0; i < many->count; i++) {
        const struct vx_gpu_level_map *it = &maps->maps[many->at[i]];
        union map_args args;
        kernel = map_kernel(queue->set, maps->key, it, true, &args);
        *(subm ? &args.subm.blocks : &args.level.blocks) =
            many_share(queue->set, many, it->rows, &blocks);
        memcpy(to + (size_t)i * each, &args, each);
    }
    VX_TRY(upload_send(queue, upload, at, why));
    const void *sets = upload->device + at;
    const struct vx_brick_map_many_args all_subm = {many->count, sets, blocks};
    const struct vx_level_map_many_args all_level = {many->count, sets, blocks};
    return vx_kernel_launch(queue->set, queue->stream, &kernel,
                            subm ? (const void *)&all_subm : &all_level, why);
}

vx_status vx_gpu_level_maps_build(const struct vx_gpu_queue *queue,
                                  struct vx_gpu_upload *upload,
                                  const struct vx_gpu_level_maps *maps,
                                  struct vx_why *why)
{
    struct many many = {.count = 0};
    VX_ASSERT(maps->count <= VX_BATCH_ITEMS_MAX);
    for (i32 i = 0; i < maps->count; i++) many_add(&many, i, maps->maps[i].rows);
    const bool together =
        many.count > 1 &&
        upload_fits(upload, (size_t)many.count * sizeof(union map_args));
    if (together) VX_TRY(maps_many(queue, upload, maps, &many, why));
    for (i32 i = 0; i < maps->count; i++) {
        const struct vx_gpu_level_map *it = &maps->maps[i];
        union map_args args;
        if (!it->rows || (together && it->rows <= VX_BRICK_SMALL)) continue;
        struct vx_jit_wanted kernel = map_kernel(queue->set, maps->key, it, false, &args);
        VX_TRY(vx_kernel_launch(queue->set, queue->stream, &kernel, &args, why));
    }
    return VX_OK;
}

/* --- keys --- */

static struct vx_set_coords_args keys_args(struct vx_kernel_set *set,
                                           const struct vx_gpu_level_keys *it)
{
    return (struct vx_set_coords_args){
        .n = it->rows,
        .blocks = blocks_of(set, it->rows, VX_SET_THREADS, SET_BLOCKS),
        .set = *it->set,
        .keys = it->keys};
}

static vx_status keys_many(const struct vx_gpu_queue *queue, struct vx_gpu_upload *upload,
                           const struct vx_gpu_level_keys *keys, const struct many *many,
                           struct vx_why *why)
{
    size_t at;
    u32 blocks = 0;
    struct vx_set_coords_args *args =
        upload_take(upload, (size_t)many->count * sizeof *args, &at);
    for (i32 i = 0; i < many->count; i++) {
        args[i] = keys_args(queue->set, &keys[many->at[i]]);
        if (args[i].blocks > blocks) blocks = args[i].blocks;
    }
    VX_TRY(upload_send(queue, upload, at, why));
    const struct vx_set_coords_many_args all = {many->count,
                                                (void *)(upload->device + at), blocks};
    return vx_gpu_map_launch(queue, "set_coords_many", &all, why);
}

vx_status vx_gpu_level_keys_build(const struct vx_gpu_queue *queue,
                                  struct vx_gpu_upload *upload,
                                  const struct vx_gpu_level_keys *keys, i32 count,
                                  struct vx_why *why)
{
    struct many many = {.count = 0};
    VX_ASSERT(count <= VX_BATCH_ITEMS_MAX);
    for (i32 i = 0; i < count; i++) many_add(&many, i, keys[i].rows);
    const bool together =
        many.count > 1 &&
        upload_fits(upload, (size_t)many.count * sizeof(struct vx_set_coords_args));
    if (together) VX_TRY(keys_many(queue, upload, keys, &many, why));
    for (i32 i = 0; i < count; i++) {
        if (!keys[i].rows || (together && keys[i].rows <= VX_BRICK_SMALL)) continue;
        struct vx_set_coords_args args = keys_args(queue->set, &keys[i]);
        VX_TRY(vx_gpu_map_launch(queue, "set_coords", &args, why));
    }
    return VX_OK;
}

i32 vx_gpu_levels_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {
        "set_derive",    "set_derive_many", "set_number",
        "set_coords",    "set_coords_many", "level_map",
        "level_map_far", "level_map_many",  "level_map_far_many"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
