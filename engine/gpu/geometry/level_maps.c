/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/levels_parts.h"
#include "engine/gpu/geometry/map_parts.h"
#include "kernels/22_level_map.h"

#include <string.h>

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

/* --- maps --- */

/* The rows of a map of one entry are as far apart as the least of any other map, so that
 * maps are joined four entries at a time. */
#define ONE_STRIDE 4

size_t vx_gpu_level_map_bytes(i64 rows, const struct vx_map_key *key)
{
    size_t bytes = 0;
    if (rows < 1) rows = 1;
    if (!vx_map_is_one(key)) return vx_gpu_map_bytes(rows, key);
    (void)take(&bytes, (size_t)rows, ONE_STRIDE * sizeof(i32));
    return bytes;
}

void vx_gpu_level_map_place(i64 rows, const struct vx_map_key *key, void *memory,
                            struct vx_gpu_map *map)
{
    if (vx_map_is_one(key))
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
    static const i32 kinds[] = {
        [VX_MAP_DOWN] = VX_LEVEL_DOWN,     [VX_MAP_UP] = VX_LEVEL_UP,
        [VX_MAP_PARENT] = VX_LEVEL_PARENT, [VX_MAP_CHILD] = VX_LEVEL_CHILD,
        [VX_MAP_SAMPLE] = VX_LEVEL_SAMPLE, [VX_MAP_CORNER] = VX_LEVEL_CORNER};
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

/* A map that is to be made. */
struct wanted {
    const struct vx_map_key *key;
    const struct vx_gpu_level_map *it;
};

/* The blocks of one of them: its share, by rows, of what the device holds at once. */
static u32 share(struct vx_kernel_set *set, i64 rows, i64 rows_of_all)
{
    i64 all = (i64)vx_gpu_caps(vx_kernel_set_gpu(set))->processors * MANY_BLOCKS;
    i64 blocks = all * rows / rows_of_all, enough = (rows + MAP_ROWS - 1) / MAP_ROWS;
    if (blocks > enough) blocks = enough;
    return blocks < 1 ? 1 : (u32)blocks;
}

static struct vx_jit_wanted kernel_of(struct vx_kernel_set *set,
                                      const struct wanted *wanted)
{
    union map_args args;
    return map_kernel(set, wanted->key, wanted->it, true, &args);
}

static bool same_kernel(const struct vx_jit_wanted *a, const struct vx_jit_wanted *b)
{
    return a->spec == b->spec && a->tile == b->tile;
}

static bool maps_fit(const struct vx_gpu_upload *upload, i32 count)
{
    return count > 1 &&
           vx_gpu_upload_fits(upload, (size_t)count * sizeof(union map_args));
}

/* Makes maps that have one kernel with one launch. */
static vx_status maps_together(const struct vx_gpu_queue *queue,
                               struct vx_gpu_upload *upload, const struct wanted *wanted,
                               i32 count, struct vx_why *why)
{
    const struct vx_jit_wanted kernel = kernel_of(queue->set, &wanted[0]);
    const bool subm = wanted[0].key->kind == VX_MAP_SUBM;
    const size_t each =
        subm ? sizeof(struct vx_brick_map_args) : sizeof(struct vx_level_map_args);
    size_t at;
    i64 rows = 0;
    u32 most = 0;
    u8 *to = vx_gpu_upload_take(upload, (size_t)count * each, &at);
    for (i32 i = 0; i < count; i++) rows += wanted[i].it->rows;
    for (i32 i = 0; i < count; i++) {
        union map_args args;
        const u32 blocks = share(queue->set, wanted[i].it->rows, rows);
        (void)map_kernel(queue->set, wanted[i].key, wanted[i].it, true, &args);
        *(subm ? &args.subm.blocks : &args.level.blocks) = blocks;
        if (blocks > most) most = blocks;
        memcpy(to + (size_t)i * each, &args, each);
    }
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
    const void *sets = upload->device + at;
    const struct vx_brick_map_many_args all_subm = {count, sets, most};
    const struct vx_level_map_many_args all_level = {count, sets, most};
    return vx_kernel_launch(queue->set, queue->stream, &kernel,
                            subm ? (const void *)&all_subm : &all_level, why);
}

static vx_status map_alone(const struct vx_gpu_queue *queue, const struct wanted *wanted,
                           struct vx_why *why)
{
    union map_args args;
    const struct vx_jit_wanted kernel =
        map_kernel(queue->set, wanted->key, wanted->it, false, &args);
    return vx_kernel_launch(queue->set, queue->stream, &kernel, &args, why);
}

vx_status vx_gpu_level_maps_build(const struct vx_gpu_queue *queue,
                                  struct vx_gpu_upload *upload,
                                  const struct vx_gpu_level_maps *maps,
                                  struct vx_why *why)
{
    struct wanted small[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    VX_ASSERT(maps->count <= VX_BATCH_ITEMS_MAX);
    for (i32 i = 0; i < maps->count; i++) {
        const i64 rows = maps->maps[i].rows;
        if (rows && rows <= VX_BRICK_SMALL)
            small[count++] = (struct wanted){maps->key, &maps->maps[i]};
    }
    const bool together = maps_fit(upload, count);
    if (together) VX_TRY(maps_together(queue, upload, small, count, why));
    for (i32 i = 0; i < maps->count; i++) {
        const i64 rows = maps->maps[i].rows;
        if (!rows || (together && rows <= VX_BRICK_SMALL)) continue;
        VX_TRY(map_alone(queue, &(struct wanted){maps->key, &maps->maps[i]}, why));
    }
    return VX_OK;
}

/* Takes those that have the kernel of the first one, as many as fit; the others stay. */
static i32 group_take(struct vx_kernel_set *set, const struct vx_gpu_upload *upload,
                      struct wanted *rest, i32 *left, struct wanted *group)
{
    const struct vx_jit_wanted kernel = kernel_of(set, &rest[0]);
    i32 grouped = 0, others = 0;
    for (i32 i = 0; i < *left; i++) {
        const struct vx_jit_wanted its = kernel_of(set, &rest[i]);
        const bool taken =
            same_kernel(&kernel, &its) && (!grouped || maps_fit(upload, grouped + 1));
        *(taken ? &group[grouped++] : &rest[others++]) = rest[i];
    }
    *left = others;
    return grouped;
}

vx_status vx_gpu_level_maps_build_keys(const struct vx_gpu_queues *queues,
                                       struct vx_gpu_upload *upload,
                                       const struct vx_gpu_level_maps *maps, i32 count,
                                       struct vx_why *why)
{
    struct wanted rest[VX_LAYERS_MAX], group[VX_LAYERS_MAX];
    i32 left = 0;
    VX_ASSERT(count <= VX_LAYERS_MAX);
    for (i32 k = 0; k < count; k++) {
        VX_ASSERT(maps[k].count == 1);
        if (maps[k].maps->rows) rest[left++] = (struct wanted){maps[k].key, maps[k].maps};
    }
    for (i32 number = 0; left; number++) {
        const struct vx_gpu_queue *queue = &queues->of[number % queues->count];
        const i32 grouped = group_take(queue->set, upload, rest, &left, group);
        VX_TRY(grouped > 1 ? maps_together(queue, upload, group, grouped, why)
                           : map_alone(queue, group, why));
    }
    return VX_OK;
}

/* --- keys --- */

static struct vx_set_coords_args keys_args(struct vx_kernel_set *set,
                                           const struct vx_gpu_level_keys *it)
{
    return (struct vx_set_coords_args){
        .n = it->rows,
        .blocks = vx_gpu_level_blocks(set, it->rows, VX_SET_THREADS, VX_GPU_SET_BLOCKS),
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
        vx_gpu_upload_take(upload, (size_t)many->count * sizeof *args, &at);
    for (i32 i = 0; i < many->count; i++) {
        args[i] = keys_args(queue->set, &keys[many->at[i]]);
        if (args[i].blocks > blocks) blocks = args[i].blocks;
    }
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
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
        vx_gpu_upload_fits(upload,
                           (size_t)many.count * sizeof(struct vx_set_coords_args));
    if (together) VX_TRY(keys_many(queue, upload, keys, &many, why));
    for (i32 i = 0; i < count; i++) {
        if (!keys[i].rows || (together && keys[i].rows <= VX_BRICK_SMALL)) continue;
        struct vx_set_coords_args args = keys_args(queue->set, &keys[i]);
        VX_TRY(vx_gpu_map_launch(queue, "set_coords", &args, why));
    }
    return VX_OK;
}
