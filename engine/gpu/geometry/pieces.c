/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/pieces.h"

#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/pieces_parts.h"
#include "kernels/15_geometry_join.h"

/* The alignment of descriptions. */
#define PART_ALIGN 64

/* Blocks per processor.  For 15_geometry_join: four times what a processor holds at once,
 * so that few are idle at the end.  For the maps of many pieces: what it holds, because
 * each block first makes a table. */
#define JOIN_BLOCKS 16
#define MANY_BLOCKS 4
/* The fewest voxels per block for the maps of many pieces, as in map.c. */
#define MANY_VOXELS 32

_Static_assert(sizeof(struct vx_gpu_piece_result) == sizeof(struct vx_piece_result) &&
                   offsetof(struct vx_gpu_piece_result, differs) ==
                       offsetof(struct vx_piece_result, differs) &&
                   offsetof(struct vx_gpu_piece_result, pairs) ==
                       offsetof(struct vx_piece_result, pairs),
               "the kernel writes what the host reads");

/* --- descriptions that are copied to the device --- */

vx_status vx_gpu_piece_part(struct vx_gpu_upload *upload, size_t bytes,
                            struct vx_why *why, struct vx_gpu_piece_part *part)
{
    size_t at = vx_round_up(upload->used, PART_ALIGN);
    VX_ENSURE_WHY(at <= upload->bytes && bytes <= upload->bytes - at, why,
                  RESOURCE_EXHAUSTED, "too many geometries in one round",
                  "expected at most %zu bytes of descriptions of geometries in one "
                  "round, got %zu",
                  upload->bytes, at + bytes);
    *part = (struct vx_gpu_piece_part){upload->host + at, upload->device + at};
    upload->used = at + bytes;
    return VX_OK;
}

u32 vx_gpu_piece_shares(struct vx_kernel_set *set, const i64 *chunks, i32 count,
                        struct vx_join_share *shares)
{
    i64 most = (i64)vx_gpu_caps(vx_kernel_set_gpu(set))->processors * JOIN_BLOCKS;
    i64 all = 0;
    u32 blocks = 0;
    for (i32 i = 0; i < count; i++) all += chunks[i];
    i64 each = all ? (all + most - 1) / most : 1;
    for (i32 i = 0; i < count; i++) {
        shares[i] = (struct vx_join_share){blocks, (u32)((chunks[i] + each - 1) / each)};
        blocks += shares[i].blocks;
    }
    return blocks;
}

/* --- build --- */

/* The small pieces share scratch memory; then each large piece has all of it, unless its
 * index stays. */
size_t vx_gpu_build_bytes(const struct vx_gpu_piece *pieces, i32 count, bool stay)
{
    size_t small = 0, most = 0;
    for (i32 i = 0; i < count; i++) {
        size_t bytes = vx_gpu_index_bytes(pieces[i].n);
        if (stay || pieces[i].n <= VX_BRICK_SMALL) small += bytes;
        if (bytes > most) most = bytes;
    }
    return small > most ? small : most;
}

/* The scratch memory of each piece. */
static void scratch_divide(const struct vx_gpu_build *build,
                           u8 *memory[VX_BATCH_ITEMS_MAX])
{
    u8 *next = build->scratch;
    for (i32 i = 0; i < build->pieces_count; i++) {
        const i64 n = build->pieces[i].n;
        const bool mine = build->indices || n <= VX_BRICK_SMALL;
        memory[i] = mine ? next : build->scratch;
        if (mine) next += vx_gpu_index_bytes(n);
    }
}

static struct vx_gpu_index piece_index(struct vx_kernel_set *set,
                                       const struct vx_gpu_piece *piece, void *memory,
                                       struct vx_brick_index_args *args)
{
    VX_ASSERT(piece->fault);
    const struct vx_gpu_coords coords = {
        .coords = piece->coords,
        .columns = piece->columns,
        .n = piece->n,
        .shape = {piece->shape[0], piece->shape[1], piece->shape[2]},
        .memory = memory,
        .rows = piece->rows};
    vx_gpu_index_args(set, &coords, args);
    args->fault = piece->fault;
    return (struct vx_gpu_index){.n = piece->n,
                                 .rows = piece->rows,
                                 .fault = args->counts->fault,
                                 .bricks = memory};
}

static vx_status build_one(const struct vx_gpu_queue *queue,
                           const struct vx_gpu_build *build, i32 at, u8 *memory,
                           struct vx_why *why)
{
    const struct vx_gpu_piece *piece = &build->pieces[at];
    struct vx_brick_index_args args;
    struct vx_gpu_index index = piece_index(queue->set, piece, memory, &args);
    if (build->indices) build->indices[at] = index;
    VX_TRY(vx_gpu_index_launch(queue, &args, why));
    for (i32 k = 0; k < build->keys_count; k++)
        VX_TRY(vx_gpu_map_build(queue, &index, &build->keys[k], &piece->maps[k], why));
    return VX_OK;
}

/* The small pieces of a build, their indices, and the sum of their voxels. */
struct many {
    struct vx_gpu_index indices[VX_BATCH_ITEMS_MAX];
    const struct vx_gpu_piece *pieces[VX_BATCH_ITEMS_MAX];
    i32 at[VX_BATCH_ITEMS_MAX]; /* in the build */
    i32 count;
    i64 n;
    u8 *memory[VX_BATCH_ITEMS_MAX]; /* of each piece of the build */
};

static void many_collect(const struct vx_gpu_build *build, struct many *many)
{
    many->count = 0;
    many->n = 0;
    for (i32 i = 0; i < build->pieces_count; i++) {
        if (build->pieces[i].n > VX_BRICK_SMALL) continue;
        many->at[many->count] = i;
        many->pieces[many->count++] = &build->pieces[i];
        many->n += build->pieces[i].n;
    }
}

/* Gives each piece its share, by voxels, of the blocks that the device holds at once:
 * with more, a few blocks would run after all others.  Returns the largest share. */
static u32 many_maps(struct vx_kernel_set *set, const struct many *many,
                     const struct vx_gpu_build *build, i32 key,
                     struct vx_brick_map_args *args)
{
    i64 all = (i64)vx_gpu_caps(vx_kernel_set_gpu(set))->processors * MANY_BLOCKS;
    u32 most = 0;
    for (i32 i = 0; i < many->count; i++) {
        const struct vx_gpu_piece *piece = many->pieces[i];
        i64 blocks = all * piece->n / many->n;
        i64 enough = (piece->n + MANY_VOXELS - 1) / MANY_VOXELS;
        vx_gpu_map_args(set, &many->indices[i], &build->keys[key], &piece->maps[key],
                        &args[i]);
        if (blocks > enough) blocks = enough;
        args[i].blocks = blocks ? (u32)blocks : 1;
        if (args[i].blocks > most) most = args[i].blocks;
    }
    return most;
}

static vx_status build_many(const struct vx_gpu_queue *queue,
                            struct vx_gpu_upload *upload,
                            const struct vx_gpu_build *build, struct many *many,
                            struct vx_why *why)
{
    const size_t from = upload->used, count = (size_t)many->count;
    const size_t keys = (size_t)build->keys_count;
    struct vx_gpu_piece_part index, maps;
    u32 blocks = 0; /* the same for every key */
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_brick_index_args), why,
                             &index));
    VX_TRY(vx_gpu_piece_part(upload, keys * count * sizeof(struct vx_brick_map_args), why,
                             &maps));
    for (i32 i = 0; i < many->count; i++) {
        struct vx_brick_index_args *args = index.host;
        const i32 at = many->at[i];
        many->indices[i] =
            piece_index(queue->set, many->pieces[i], many->memory[at], &args[i]);
        if (build->indices) build->indices[at] = many->indices[i];
    }
    for (size_t k = 0; k < keys; k++)
        blocks = many_maps(queue->set, many, build, (i32)k,
                           (struct vx_brick_map_args *)maps.host + k * count);
    VX_TRY(vx_gpu_upload_send(queue, upload, from, why));
    const struct vx_brick_small_many_args sets = {many->count, index.device};
    VX_TRY(vx_gpu_map_launch(queue, "brick_small_many", &sets, why));
    for (size_t k = 0; k < keys; k++) {
        struct vx_jit_wanted kernel = vx_gpu_map_kernel(&build->keys[k], true);
        const struct vx_brick_map_many_args args = {
            many->count, (struct vx_brick_map_args *)maps.device + k * count, blocks};
        VX_TRY(vx_kernel_launch(queue->set, queue->stream, &kernel, &args, why));
    }
    return VX_OK;
}

/* True if small pieces are built together: a single one needs no descriptions, and half
 * of the room for descriptions is for what follows the build. */
static bool many_pays(const struct vx_gpu_upload *upload,
                      const struct vx_gpu_build *build, const struct many *many)
{
    size_t each = (size_t)build->keys_count * sizeof(struct vx_brick_map_args) +
                  sizeof(struct vx_brick_index_args);
    size_t left = upload->used < upload->bytes ? upload->bytes - upload->used : 0;
    return many->count > 1 && (size_t)many->count * each + 2 * PART_ALIGN <= left / 2;
}

vx_status vx_gpu_pieces_build(const struct vx_gpu_queue *queue,
                              struct vx_gpu_upload *upload,
                              const struct vx_gpu_build *build, struct vx_why *why)
{
    VX_ASSERT(build->pieces_count <= VX_BATCH_ITEMS_MAX);
    VX_ASSERT(!build->indices || !build->keys_count);
    struct many many;
    many_collect(build, &many);
    scratch_divide(build, many.memory);
    const bool together = many_pays(upload, build, &many);
    if (together) VX_TRY(build_many(queue, upload, build, &many, why));
    for (i32 i = 0; i < build->pieces_count; i++) {
        if (build->pieces[i].n <= VX_BRICK_SMALL && together) continue;
        VX_TRY(build_one(queue, build, i, many.memory[i], why));
    }
    return VX_OK;
}

/* --- compare --- */

vx_status vx_gpu_pieces_compare(const struct vx_gpu_queue *queue,
                                struct vx_gpu_upload *upload,
                                const struct vx_gpu_compared *compared, i32 count,
                                struct vx_why *why)
{
    const size_t from = upload->used, pieces = (size_t)count;
    i64 chunks[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_piece_part pairs, shares;
    VX_ASSERT(count <= VX_BATCH_ITEMS_MAX);
    if (!count) return VX_OK;
    VX_TRY(vx_gpu_piece_part(upload, pieces * sizeof(struct vx_words_pair), why, &pairs));
    VX_TRY(
        vx_gpu_piece_part(upload, pieces * sizeof(struct vx_join_share), why, &shares));
    for (i32 i = 0; i < count; i++) {
        const struct vx_gpu_compared *it = &compared[i];
        VX_ASSERT(it->count >= 1);
        chunks[i] = vx_join_chunks(vx_join_quads(it->count, 1));
        ((struct vx_words_pair *)pairs.host)[i] =
            (struct vx_words_pair){.n = it->count,
                                   .a = (const u32 *)it->a,
                                   .b = (const u32 *)it->b,
                                   .differs = it->differs};
    }
    struct vx_words_differ_args args = {
        .count = count, .shares = shares.device, .pairs = pairs.device};
    args.blocks = vx_gpu_piece_shares(queue->set, chunks, count, shares.host);
    VX_TRY(vx_gpu_upload_send(queue, upload, from, why));
    return vx_gpu_map_launch(queue, "words_differ", &args, why);
}

/* --- results --- */

vx_status vx_gpu_pieces_results(const struct vx_gpu_queue *queue,
                                struct vx_gpu_upload *upload,
                                const struct vx_gpu_results *results, struct vx_why *why)
{
    const size_t from = upload->used, count = (size_t)results->pieces_count;
    const size_t maps = (size_t)results->maps_count;
    struct vx_gpu_piece_part places, pairs;
    VX_ASSERT(results->pieces_count <= VX_BATCH_ITEMS_MAX);
    if (!count) return VX_OK;
    VX_TRY(
        vx_gpu_piece_part(upload, count * sizeof(struct vx_piece_places), why, &places));
    VX_TRY(vx_gpu_piece_part(upload, count * maps * sizeof(u64 *), why, &pairs));
    for (i32 i = 0; i < results->pieces_count; i++) {
        const struct vx_gpu_piece *piece = &results->pieces[i];
        ((struct vx_piece_places *)places.host)[i] = (struct vx_piece_places){
            piece->fault, results->differs ? results->differs[i] : NULL};
        for (size_t m = 0; m < maps; m++)
            ((const u64 **)pairs.host)[(size_t)i * maps + m] = piece->maps[m].pairs;
    }
    if (!upload->reached) VX_TRY(vx_gpu_upload_send(queue, upload, from, why));
    const struct vx_piece_results_args args = {
        results->pieces_count,
        results->maps_count,
        upload->reached ? places.host : places.device,
        upload->reached ? pairs.host : pairs.device,
        (void *)results->results,
        results->each};
    return vx_gpu_map_launch(queue, "piece_results", &args, why);
}

i32 vx_gpu_pieces_kernels(struct vx_jit_wanted *wanted, i32 room)
{
    static const char *const names[] = {
        "brick_small",    "brick_insert",       "brick_number", "brick_rank",
        "brick_map",      "brick_map_far",      "join_rows",    "brick_small_many",
        "brick_map_many", "brick_map_far_many", "join_map",     "words_differ",
        "piece_results"};
    return vx_gpu_map_named(names, VX_COUNT(names), wanted, room);
}
