/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/ranks.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "kernels/05_mask_order.h"
#include "kernels/23_key_order.h"
#include "kernels/25_set_ranks.h"

#include <string.h>

/* Blocks of the last launch for each processor: what it holds. */
#define RANK_BLOCKS 8
/* The alignment of descriptions, as in pieces.c. */
#define PART_ALIGN 64

_Static_assert(VX_KEY_MEMBERS_MAX >= VX_BATCH_ITEMS_MAX, "all items of a round");

/* Offsets in the scratch. */
struct layout {
    size_t keys;              /* (N) u64 */
    size_t rows[2], words[2]; /* (N) */
    size_t numbers, counts, totals;
    i64 tiles;
    size_t bytes;
};

static size_t take(struct layout *layout, i64 count, size_t each)
{
    size_t at = layout->bytes;
    layout->bytes += vx_round_up((size_t)count * each, VX_GPU_LINE_BYTES);
    return at;
}

static struct layout layout_make(i64 n)
{
    struct layout layout = {.tiles = (n + VX_ORDER_TILE - 1) / VX_ORDER_TILE};
    layout.keys = take(&layout, n, sizeof(u64));
    for (int i = 0; i < 2; i++) {
        layout.rows[i] = take(&layout, n, sizeof(i32));
        layout.words[i] = take(&layout, n, sizeof(u32));
    }
    layout.numbers = take(&layout, n, sizeof(u32));
    layout.counts = take(&layout, layout.tiles * VX_ORDER_BINS, sizeof(u32));
    layout.totals = take(&layout, VX_ORDER_BINS, sizeof(u32));
    return layout;
}

size_t vx_gpu_ranks_bytes(i64 rows)
{
    return layout_make(rows).bytes;
}

/* A build under way. */
struct sort {
    const struct vx_gpu_queue *queue;
    const struct vx_gpu_ranks *ranks;
    struct layout layout;
    struct vx_key_order_args key;
    struct vx_why *why;
    const i32 *rows; /* the order so far; NULL = as they are */
    i32 turn;        /* the buffer that the next pass writes */
};

static void *at(const struct sort *sort, size_t offset)
{
    return (u8 *)sort->ranks->scratch + offset;
}

static vx_status keys_make(struct sort *sort, struct vx_gpu_upload *upload)
{
    struct vx_gpu_level_keys keys[VX_BATCH_ITEMS_MAX];
    u64 *first = at(sort, sort->layout.keys);
    for (i32 m = 0; m < sort->ranks->count; m++) {
        const struct vx_gpu_rank_member *member = &sort->ranks->members[m];
        keys[m] = (struct vx_gpu_level_keys){member->set, member->rows,
                                             first + sort->key.edges[m]};
    }
    return vx_gpu_level_keys_build(sort->queue, upload, keys, sort->ranks->count,
                                   sort->why);
}

static vx_status pass(struct sort *sort, const struct vx_key_pass *it, const u32 *keys_in)
{
    struct vx_mask_order_args args = {.n = sort->key.n,
                                      .tiles = sort->layout.tiles,
                                      .words = 2,
                                      .bits = VX_KEY_BITS,
                                      .groups = 1,
                                      .key_low = it->key_low,
                                      .key_bits = it->key_bits,
                                      .shift = it->shift,
                                      .digit_bits = it->digit_bits,
                                      .masks = (const u32 *)(const void *)sort->key.keys,
                                      .keys_in = keys_in,
                                      .rows_in = sort->rows,
                                      .keys_out =
                                          at(sort, sort->layout.words[sort->turn]),
                                      .rows_out = at(sort, sort->layout.rows[sort->turn]),
                                      .counts = at(sort, sort->layout.counts),
                                      .totals = at(sort, sort->layout.totals)};
    const struct vx_count_scan_args scan = {.rows = (i64)1 << it->digit_bits,
                                            .tiles = args.tiles,
                                            .counts = args.counts,
                                            .totals = args.totals};
    VX_TRY(vx_gpu_map_launch(sort->queue, "order_count", &args, sort->why));
    VX_TRY(vx_gpu_map_launch(sort->queue, "count_scan", &scan, sort->why));
    VX_TRY(vx_gpu_map_launch(sort->queue, "order_scatter", &args, sort->why));
    sort->rows = args.rows_out;
    sort->turn = !sort->turn;
    return VX_OK;
}

/* By the members' numbers, as the last digit. */
static vx_status pass_members(struct sort *sort)
{
    struct vx_key_order_args args = sort->key;
    const struct vx_key_pass last = {
        .key_bits = 32, .digit_bits = vx_bit_length((u64)(args.members - 1))};
    if (args.members == 1) return VX_OK;
    args.rows = sort->rows;
    args.numbers = at(sort, sort->layout.numbers);
    VX_TRY(vx_gpu_map_launch(sort->queue, "key_members", &args, sort->why));
    return pass(sort, &last, args.numbers);
}

static vx_status sort_large(struct sort *sort)
{
    struct vx_key_pass passes[VX_KEY_PASSES_MAX];
    i32 count = vx_key_passes(~(u64)0 >> 1, passes);
    for (i32 i = 0; i < count; i++)
        VX_TRY(pass(sort, &passes[i],
                    passes[i].fresh ? NULL : at(sort, sort->layout.words[!sort->turn])));
    return pass_members(sort);
}

static vx_status sort_small(struct sort *sort)
{
    sort->key.rows_out = at(sort, sort->layout.rows[0]);
    sort->rows = sort->key.rows_out;
    return vx_gpu_map_launch(sort->queue, "key_small", &sort->key, sort->why);
}

/* True if a block can sort each member. */
static bool is_small(const struct sort *sort)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("key_small");
    for (i32 m = 0; m < sort->ranks->count; m++)
        if (sort->ranks->members[m].rows > VX_ORDER_SMALL_ROWS) return false;
    return spec->fits(NULL, 0, vx_gpu_caps(vx_kernel_set_gpu(sort->queue->set)));
}

/* Writes what the members keep. */
static vx_status ranks_write(const struct sort *sort, struct vx_gpu_upload *upload)
{
    const i32 count = sort->ranks->count;
    size_t from = vx_round_up(upload->used, PART_ALIGN), most = 0;
    size_t bytes = (size_t)count * sizeof(struct vx_set_ranks_member);
    VX_ENSURE_WHY(from <= upload->bytes && bytes <= upload->bytes - from, sort->why,
                  RESOURCE_EXHAUSTED, "too many geometries in one round",
                  "expected at most %zu bytes of descriptions of geometries in one "
                  "round, got %zu",
                  upload->bytes, from + bytes);
    struct vx_set_ranks_member *to = (void *)(upload->host + from);
    for (i32 m = 0; m < count; m++) {
        const struct vx_gpu_rank_member *member = &sort->ranks->members[m];
        to[m] = (struct vx_set_ranks_member){member->rows,      sort->key.edges[m],
                                             member->to->rank,  member->to->coords,
                                             member->to->order, member->to->sorted};
        if ((size_t)member->rows > most) most = (size_t)member->rows;
    }
    upload->used = from + bytes;
    struct vx_gpu *gpu = vx_kernel_set_gpu(sort->queue->set);
    VX_TRY(vx_gpu_copy_in(
        gpu, sort->queue->stream,
        &(struct vx_gpu_copy){upload->device + from, upload->host + from, bytes},
        sort->why));
    size_t blocks = (most + VX_RANK_THREADS - 1) / VX_RANK_THREADS;
    size_t enough = (size_t)vx_gpu_caps(gpu)->processors * RANK_BLOCKS;
    const struct vx_set_ranks_args args = {.count = count,
                                           .blocks =
                                               (u32)(blocks < enough ? blocks : enough),
                                           .members = (void *)(upload->device + from),
                                           .keys = sort->key.keys,
                                           .rows = sort->rows};
    return vx_gpu_map_launch(sort->queue, "set_ranks", &args, sort->why);
}

vx_status vx_gpu_ranks_build(const struct vx_gpu_queue *queue,
                             struct vx_gpu_upload *upload,
                             const struct vx_gpu_ranks *ranks, struct vx_why *why)
{
    struct sort sort = {.queue = queue, .ranks = ranks, .why = why};
    VX_ASSERT(ranks->count <= VX_BATCH_ITEMS_MAX);
    sort.key.members = ranks->count;
    for (i32 m = 0; m < ranks->count; m++) {
        sort.key.n += ranks->members[m].rows;
        sort.key.edges[m + 1] = (i32)sort.key.n;
    }
    VX_ASSERT(sort.key.n <= VX_VOXELS_MAX);
    if (!sort.key.n) return VX_OK;
    sort.layout = layout_make(sort.key.n);
    sort.key.keys = at(&sort, sort.layout.keys);
    VX_TRY(keys_make(&sort, upload));
    VX_TRY(is_small(&sort) ? sort_small(&sort) : sort_large(&sort));
    return ranks_write(&sort, upload);
}

i32 vx_gpu_ranks_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {"key_small",     "key_members", "key_starts",
                                        "group_means",   "order_count", "count_scan",
                                        "order_scatter", "set_ranks"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
