/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/pieces_parts.h"
#include "kernels/15_geometry_join.h"

/* A join in preparation: the arguments of the launches, which begin after one copy of all
 * descriptions. */
struct joining {
    const struct vx_gpu_join *join;
    struct vx_join_rows_args rows[1 + 2 * VX_SETS_MAX];
    i32 rows_count;
    struct vx_join_map_args *maps; /* of maps, and of both keys of ordered sets */
    i32 maps_count;
};

static i64 set_rows(const struct vx_gpu_piece *piece, i32 set)
{
    VX_ASSERT(piece->set_rows || !set);
    return piece->set_rows ? piece->set_rows[set] : piece->n;
}

/* The first row of each piece on a set. */
static void bases_make(const struct vx_gpu_join *join, i32 set,
                       i64 bases[VX_BATCH_ITEMS_MAX])
{
    i64 n = 0;
    for (i32 i = 0; i < join->pieces_count; i++) {
        bases[i] = n;
        n += set_rows(&join->pieces[i], set);
    }
    VX_ASSERT(n <= VX_VOXELS_MAX);
}

/* A list of row numbers that every piece has for all its rows on a set. */
struct list {
    i32 set;
    const i32 *of[VX_BATCH_ITEMS_MAX];
    i32 *to;
};

static vx_status join_list(struct vx_kernel_set *set, struct vx_gpu_upload *upload,
                           struct joining *joining, const struct list *list,
                           struct vx_why *why)
{
    const struct vx_gpu_join *join = joining->join;
    const size_t count = (size_t)join->pieces_count;
    i64 chunks[VX_BATCH_ITEMS_MAX], bases[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_piece_part pieces, shares;
    bases_make(join, list->set, bases);
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_join_rows_piece), why,
                             &pieces));
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_join_share), why, &shares));
    for (i32 i = 0; i < join->pieces_count; i++) {
        const i64 n = set_rows(&join->pieces[i], list->set);
        chunks[i] = vx_join_chunks(n);
        ((struct vx_join_rows_piece *)pieces.host)[i] =
            (struct vx_join_rows_piece){n, bases[i], list->of[i]};
    }
    joining->rows[joining->rows_count++] = (struct vx_join_rows_args){
        .count = join->pieces_count,
        .blocks = vx_gpu_piece_shares(set, chunks, join->pieces_count, shares.host),
        .shares = shares.device,
        .pieces = pieces.device,
        .rows = list->to};
    return VX_OK;
}

/* The rows, and of each ordered set the ranks or the order. */
static vx_status join_lists(struct vx_kernel_set *set, struct vx_gpu_upload *upload,
                            struct joining *joining, struct vx_why *why)
{
    const struct vx_gpu_join *join = joining->join;
    struct list list = {.to = join->rows};
    for (i32 i = 0; i < join->pieces_count; i++) list.of[i] = join->pieces[i].rows;
    if (!join->skip || !join->skip->rows)
        VX_TRY(join_list(set, upload, joining, &list, why));
    for (i32 o = 0; o < join->ordered_count; o++) {
        if (join->skip && join->skip->ordered[o]) continue;
        list.set = join->ordered_sets[o];
        list.to = join->ordered[o].rank;
        for (i32 i = 0; i < join->pieces_count; i++)
            list.of[i] = join->pieces[i].ordered[o].rank;
        if (list.to) VX_TRY(join_list(set, upload, joining, &list, why));
        list.to = join->ordered[o].order;
        for (i32 i = 0; i < join->pieces_count; i++)
            list.of[i] = join->pieces[i].ordered[o].order;
        if (list.to) VX_TRY(join_list(set, upload, joining, &list, why));
    }
    return VX_OK;
}

/* Keys, in a list of words: copied as the masks of a map are, two to a row. */
static vx_status join_keys(struct vx_kernel_set *set, struct vx_gpu_upload *upload,
                           struct joining *joining, const struct list *list,
                           struct vx_why *why)
{
    const struct vx_gpu_join *join = joining->join;
    const size_t count = (size_t)join->pieces_count;
    i64 chunks[VX_BATCH_ITEMS_MAX], bases[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_piece_part pieces, shares;
    if (!list->to) return VX_OK;
    bases_make(join, list->set, bases);
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_join_map_piece), why,
                             &pieces));
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_join_share), why, &shares));
    for (i32 i = 0; i < join->pieces_count; i++) {
        const i64 n = set_rows(&join->pieces[i], list->set);
        chunks[i] = vx_join_chunks(2 * n);
        ((struct vx_join_map_piece *)pieces.host)[i] = (struct vx_join_map_piece){
            .n = n, .base = bases[i], .masks = (const u32 *)list->of[i]};
    }
    joining->maps[joining->maps_count++] = (struct vx_join_map_args){
        .count = join->pieces_count,
        .blocks = vx_gpu_piece_shares(set, chunks, join->pieces_count, shares.host),
        .words = 2,
        .shares = shares.device,
        .pieces = pieces.device,
        .masks = (u32 *)list->to};
    return VX_OK;
}

static vx_status join_ordered(struct vx_kernel_set *set, struct vx_gpu_upload *upload,
                              struct joining *joining, i32 o, struct vx_why *why)
{
    const struct vx_gpu_join *join = joining->join;
    const struct vx_gpu_ordered *whole = &join->ordered[o];
    struct list sorted = {.set = join->ordered_sets[o], .to = (void *)whole->sorted};
    struct list keys = {.set = sorted.set, .to = (void *)whole->keys};
    if (join->skip && join->skip->ordered[o]) return VX_OK;
    for (i32 i = 0; i < join->pieces_count; i++) {
        sorted.of[i] = (void *)join->pieces[i].ordered[o].sorted;
        keys.of[i] = (void *)join->pieces[i].ordered[o].keys;
    }
    VX_TRY(join_keys(set, upload, joining, &sorted, why));
    return join_keys(set, upload, joining, &keys, why);
}

/* How many numbers a row of the set that a map reads has in it. */
static i64 map_parts(const struct vx_map_key *key)
{
    if (key->kind != VX_MAP_CHILD) return 1;
    return (i64)key->stride[0] * key->stride[1] * key->stride[2];
}

static vx_status join_map(struct vx_kernel_set *set, struct vx_gpu_upload *upload,
                          struct joining *joining, i32 key, struct vx_why *why)
{
    const struct vx_gpu_join *join = joining->join;
    const size_t count = (size_t)join->pieces_count;
    const struct vx_gpu_map *whole = &join->maps[key];
    const struct vx_map_key *of = &join->keys[key];
    i64 chunks[VX_BATCH_ITEMS_MAX], to[VX_BATCH_ITEMS_MAX], from[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_piece_part pieces, shares;
    bases_make(join, of->to, to);
    bases_make(join, of->from, from);
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_join_map_piece), why,
                             &pieces));
    VX_TRY(vx_gpu_piece_part(upload, count * sizeof(struct vx_join_share), why, &shares));
    for (i32 i = 0; i < join->pieces_count; i++) {
        const struct vx_gpu_map *map = &join->pieces[i].maps[key];
        const i64 n = set_rows(&join->pieces[i], of->to);
        VX_ASSERT(map->nbr_stride == whole->nbr_stride);
        VX_ASSERT(map->words == whole->words);
        chunks[i] = vx_join_chunks(vx_join_quads(n, whole->nbr_stride));
        ((struct vx_join_map_piece *)pieces.host)[i] = (struct vx_join_map_piece){
            n, to[i], from[i] * map_parts(of), map->nbr, map->masks};
    }
    joining->maps[joining->maps_count++] = (struct vx_join_map_args){
        .count = join->pieces_count,
        .blocks = vx_gpu_piece_shares(set, chunks, join->pieces_count, shares.host),
        .nbr_stride = whole->nbr_stride,
        .words = whole->words,
        .shares = shares.device,
        .pieces = pieces.device,
        .nbr = whole->nbr,
        .masks = whole->masks};
    return VX_OK;
}

/* What is copied as maps are: maps, and the two lists of keys of an ordered set. */
static size_t join_count(const struct vx_gpu_join *join)
{
    size_t count = 0;
    for (i32 k = 0; k < join->keys_count; k++)
        count += !join->skip || !join->skip->maps[k];
    for (i32 o = 0; o < join->ordered_count; o++)
        count += !join->skip || !join->skip->ordered[o] ? 2 : 0;
    return count;
}

vx_status vx_gpu_pieces_join(const struct vx_gpu_queue *queue,
                             struct vx_gpu_upload *upload, const struct vx_gpu_join *join,
                             struct vx_why *why)
{
    const size_t from = upload->used, most = join_count(join);
    struct joining joining = {.join = join};
    struct vx_gpu_piece_part maps;
    VX_ASSERT(join->pieces_count >= 1);
    VX_ASSERT(join->pieces_count <= VX_BATCH_ITEMS_MAX);
    VX_TRY(vx_gpu_piece_part(upload, most * sizeof(struct vx_join_map_args), why, &maps));
    joining.maps = maps.host;
    VX_TRY(join_lists(queue->set, upload, &joining, why));
    for (i32 k = 0; k < join->keys_count; k++)
        if (!join->skip || !join->skip->maps[k])
            VX_TRY(join_map(queue->set, upload, &joining, k, why));
    for (i32 o = 0; o < join->ordered_count; o++)
        VX_TRY(join_ordered(queue->set, upload, &joining, o, why));
    VX_TRY(vx_gpu_upload_send(queue, upload, from, why));
    for (i32 i = 0; i < joining.rows_count; i++)
        if (joining.rows[i].blocks)
            VX_TRY(vx_gpu_map_launch(queue, "join_rows", &joining.rows[i], why));
    for (i32 i = 0; i < joining.maps_count; i++)
        if (joining.maps[i].blocks)
            VX_TRY(vx_gpu_map_launch(queue, "join_map", &joining.maps[i], why));
    return VX_OK;
}
