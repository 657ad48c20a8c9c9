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
    u8 *to = vx_gpu_upload_take(upload, (size_t)many->count * each, &at);
    for (i32 i = 0; i < many->count; i++) {
        const struct vx_gpu_level_map *it = &maps->maps[many->at[i]];
        union map_args args;
        kernel = map_kernel(queue->set, maps->key, it, true, &args);
        *(subm ? &args.subm.blocks : &args.level.blocks) =
            many_share(queue->set, many, it->rows, &blocks);
        memcpy(to + (size_t)i * each, &args, each);
    }
    VX_TRY(vx_gpu_upload_send(queue, upload, at, why));
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
        vx_gpu_upload_fits(upload, (size_t)many.count * sizeof(union map_args));
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
