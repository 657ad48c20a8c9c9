/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/map.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/order.h"

#include <string.h>

/* Blocks per processor of a launch over bricks.  Only the device knows how many bricks
 * there are, so each block takes one set of bricks after the other.  Small sets get as
 * many blocks as a processor holds at once, because each block first makes its own
 * table.  Large sets get more, so that the last blocks do not leave most of the device
 * idle.  On an H200, 24 and 5 blocks take 101.7 and 93.0 us for 252,392 voxels, 740 and
 * 774 us for 4,113,056. */
#define BLOCKS_PER_PROCESSOR       5
#define BLOCKS_PER_PROCESSOR_LARGE 24
#define LARGE_VOXELS               (1 << 21)
#define BLOCKS_MAX                 65535

/* The fewest voxels per block, for small sets: brick_number takes 512 bricks at a time;
 * brick_map takes 8, which rarely have fewer than 32 voxels. */
#define NUMBER_VOXELS 512
#define MAP_VOXELS    32

_Static_assert(VX_KERNEL_OFFSETS_MAX == VX_BRICK_OFFSETS_MAX,
               "the largest kernel that a network may have is the largest of the map");

/* Offsets in the memory of an index, which begins at vx_gpu_index.bricks.  Counts and
 * slots are adjacent and start as zeros. */
struct layout {
    u64 slots_count;
    size_t counts, slots, base, list, places;
    size_t zeros; /* bytes from counts to the end of slots */
    size_t bytes;
};

static size_t take(size_t *bytes, size_t count, size_t each)
{
    size_t offset = *bytes;
    *bytes += vx_round_up(count * each, VX_GPU_LINE_BYTES);
    return offset;
}

static struct layout layout_of(i64 n)
{
    VX_ASSERT(n >= 1);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    size_t count = (size_t)n;
    struct layout layout = {.slots_count = VX_BRICK_GROUP};
    while (layout.slots_count < 2 * (u64)n) layout.slots_count *= 2;
    size_t slots = (size_t)layout.slots_count, bytes = 0;
    layout.counts = take(&bytes, 1, sizeof(struct vx_brick_counts));
    layout.slots = take(&bytes, slots, sizeof(struct vx_brick_slot));
    layout.zeros = bytes;
    layout.base = take(&bytes, slots, sizeof(i32));
    layout.list = take(&bytes, count, sizeof(u32));
    layout.places = take(&bytes, count, sizeof(u64));
    layout.bytes = bytes;
    return layout;
}

size_t vx_gpu_index_bytes(i64 n)
{
    return layout_of(n).bytes;
}

static u32 blocks_of(struct vx_kernel_set *set, i64 n, i64 voxels)
{
    i64 blocks = vx_gpu_caps(vx_kernel_set_gpu(set))->processors;
    blocks *= n < LARGE_VOXELS ? BLOCKS_PER_PROCESSOR : BLOCKS_PER_PROCESSOR_LARGE;
    i64 most = (n + voxels - 1) / voxels;
    if (blocks > most) blocks = most;
    if (blocks > BLOCKS_MAX) blocks = BLOCKS_MAX;
    return blocks < 1 ? 1 : (u32)blocks;
}

struct vx_jit_wanted vx_gpu_map_wanted(const char *name, i32 tile)
{
    const struct vx_kernel_spec *spec = vx_kernel_find(name);
    VX_ASSERT(spec);
    VX_ASSERT(tile < spec->tiles_count);
    return (struct vx_jit_wanted){.spec = spec,
                                  .tile = spec->tiles ? &spec->tiles[tile] : NULL};
}

void vx_gpu_index_args(struct vx_kernel_set *set, const struct vx_gpu_coords *coords,
                       struct vx_brick_index_args *args)
{
    VX_ASSERT(coords->columns == 3 || coords->columns == 4);
    struct layout layout = layout_of(coords->n);
    u8 *at = coords->memory;
    *args = (struct vx_brick_index_args){
        .n = coords->n,
        .columns = coords->columns,
        .shape = {coords->shape[0], coords->shape[1], coords->shape[2]},
        .blocks = blocks_of(set, coords->n, NUMBER_VOXELS),
        .slots_count = layout.slots_count,
        .seed = vx_kernel_set_seed(set),
        .coords = coords->coords,
        .slots = (void *)(at + layout.slots),
        .counts = (void *)(at + layout.counts),
        .base = (void *)(at + layout.base),
        .list = (void *)(at + layout.list),
        .places = (void *)(at + layout.places),
        .rows = coords->rows,
    };
}

vx_status vx_gpu_map_launch(const struct vx_gpu_queue *queue, const char *name,
                            const void *args, struct vx_why *why)
{
    struct vx_jit_wanted wanted = vx_gpu_map_wanted(name, 0);
    return vx_kernel_launch(queue->set, queue->stream, &wanted, args, why);
}

vx_status vx_gpu_index_launch(const struct vx_gpu_queue *queue,
                              const struct vx_brick_index_args *args, struct vx_why *why)
{
    if (args->n <= VX_BRICK_SMALL)
        return vx_gpu_map_launch(queue, "brick_small", args, why);
    const struct vx_gpu_words zeros = {args->counts, 0, layout_of(args->n).zeros};
    VX_TRY(vx_gpu_fill(vx_kernel_set_gpu(queue->set), queue->stream, &zeros, why));
    VX_TRY(vx_gpu_map_launch(queue, "brick_insert", args, why));
    VX_TRY(vx_gpu_map_launch(queue, "brick_number", args, why));
    return vx_gpu_map_launch(queue, "brick_rank", args, why);
}

vx_status vx_gpu_index_build(const struct vx_gpu_queue *queue,
                             const struct vx_gpu_coords *coords, struct vx_why *why,
                             struct vx_gpu_index *index)
{
    struct vx_brick_index_args args;
    vx_gpu_index_args(queue->set, coords, &args);
    *index = (struct vx_gpu_index){.n = coords->n,
                                   .rows = args.rows,
                                   .fault = args.counts->fault,
                                   .bricks = coords->memory};
    return vx_gpu_index_launch(queue, &args, why);
}

static size_t map_layout(i64 n, const struct vx_map_key *key, u8 *at,
                         struct vx_gpu_map *map)
{
    VX_ASSERT(n >= 1);
    VX_ASSERT(n <= VX_VOXELS_MAX);
    size_t rows = (size_t)n, bytes = 0;
    i32 v = vx_map_offsets(key);
    VX_ASSERT(v >= 1);
    VX_ASSERT(v <= VX_KERNEL_OFFSETS_MAX);
    i32 words = vx_mask_words(v), stride = vx_nbr_stride(v);
    size_t nbr = take(&bytes, rows, (size_t)stride * sizeof(i32));
    size_t masks = take(&bytes, rows, (size_t)words * sizeof(u32));
    size_t pairs = take(&bytes, 1, sizeof(u64));
    if (map)
        *map = (struct vx_gpu_map){.v = v,
                                   .words = words,
                                   .nbr_stride = stride,
                                   .groups = 1,
                                   .nbr = (void *)(at + nbr),
                                   .masks = (void *)(at + masks),
                                   .pairs = (void *)(at + pairs)};
    return bytes;
}

size_t vx_gpu_map_bytes(i64 n, const struct vx_map_key *key)
{
    return map_layout(n, key, NULL, NULL);
}

void vx_gpu_map_place(i64 n, const struct vx_map_key *key, void *memory,
                      struct vx_gpu_map *map)
{
    (void)map_layout(n, key, memory, map);
}

struct vx_jit_wanted vx_gpu_map_kernel(const struct vx_map_key *key, bool many)
{
    i32 words = vx_mask_words(vx_map_offsets(key));
    const char *near = many ? "brick_map_many" : "brick_map";
    for (int axis = 0; axis < 3; axis++)
        if (key->kernel[axis] / 2 * key->dilation[axis] > VX_BRICK_REACH)
            return vx_gpu_map_wanted(many ? "brick_map_far_many" : "brick_map_far", 0);
    i32 tile = 0;
    while (vx_gpu_map_wanted(near, tile).tile->values[0] < words) tile++;
    return vx_gpu_map_wanted(near, tile);
}

void vx_gpu_map_args(struct vx_kernel_set *set, const struct vx_gpu_index *index,
                     const struct vx_map_key *key, const struct vx_gpu_map *map,
                     struct vx_brick_map_args *args)
{
    struct layout layout = layout_of(index->n);
    u8 *at = index->bricks;
    *args = (struct vx_brick_map_args){
        .n = index->n,
        .slots_count = layout.slots_count,
        .seed = vx_kernel_set_seed(set),
        .slots = (void *)(at + layout.slots),
        .base = (void *)(at + layout.base),
        .list = (void *)(at + layout.list),
        .counts = (void *)(at + layout.counts),
        .v = map->v,
        .words = map->words,
        .nbr_stride = map->nbr_stride,
        .blocks = blocks_of(set, index->n, MAP_VOXELS),
        .nbr = map->nbr,
        .masks = map->masks,
        .pairs = map->pairs,
    };
    memcpy(args->kernel, key->kernel, sizeof args->kernel);
    memcpy(args->dilation, key->dilation, sizeof args->dilation);
}

vx_status vx_gpu_map_build(const struct vx_gpu_queue *queue,
                           const struct vx_gpu_index *index, const struct vx_map_key *key,
                           const struct vx_gpu_map *map, struct vx_why *why)
{
    struct vx_brick_map_args args;
    struct vx_jit_wanted kernel = vx_gpu_map_kernel(key, false);
    vx_gpu_map_args(queue->set, index, key, map, &args);
    return vx_kernel_launch(queue->set, queue->stream, &kernel, &args, why);
}

i32 vx_gpu_map_named(const char *const *names, size_t names_count,
                     struct vx_jit_wanted *wanted, i32 room)
{
    i32 count = 0;
    for (size_t i = 0; i < names_count; i++) {
        i32 tiles = vx_kernel_find(names[i])->tiles_count;
        for (i32 tile = 0; tile < tiles; tile++) {
            VX_ASSERT(count < room);
            wanted[count++] = vx_gpu_map_wanted(names[i], tile);
        }
    }
    return count;
}

i32 vx_gpu_map_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {"brick_small", "brick_insert", "brick_number",
                                        "brick_rank",  "brick_map",    "brick_map_far"};
    i32 count = vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
    return count + vx_gpu_order_kernels(wanted + count, room - count);
}
