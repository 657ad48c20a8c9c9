/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_geometry.h"

#include "engine/base/process/check.h"
#include "engine/gpu/run/round_dense.h"
#include "engine/gpu/run/round_fills.h"
#include "engine/gpu/run/round_making.h"
#include "engine/gpu/run/round_stages.h"

#include <string.h>

/* Memory for the maps of a member, with levels: in the store if it keeps them, or
 * where the member of the same geometry has them. */
static void *maps_memory(const struct vx_gpu_making *making, i32 index)
{
    const struct vx_gpu_round *round = making->round;
    const struct vx_gpu_member *member = &round->members[index];
    struct vx_gpu_store *store = round->room->store;
    u8 *mine = round->block + making->places->pieces[index];
    const struct vx_gpu_store_order order = {
        VX_GPU_STORE_MAPS, 0,
        vx_gpu_piece_maps_bytes(making->plan, making->pieces[index].set_rows),
        member->item->origin};
    if (!member->kept || vx_gpu_round_staged(round)) return mine;
    void *there = vx_gpu_store_order_find(store, member->kept, &order);
    if (!there && member->built) {
        there = vx_gpu_store_order_make(store, member->kept, &order);
        if (!there) vx_gpu_store_forget(store, member->kept);
    }
    for (i32 i = 0; !there && i < round->members_count; i++)
        if (round->members[i].built && round->members[i].kept == member->kept)
            there = round->block + making->places->pieces[i];
    return there;
}

/* Those that are made here come first: others may have the same geometry. */
static void place_maps(struct vx_gpu_making *making, bool built)
{
    for (i32 i = 0; i < making->round->members_count; i++) {
        struct vx_gpu_piece *piece = &making->pieces[i];
        if (making->round->members[i].built != built) continue;
        piece->set_rows = making->round->rows + (i64)i * making->plan->sets_count;
        if (vx_gpu_round_staged(making->round))
            piece->laid_rows =
                making->round->made.bounds + (i64)i * making->plan->sets_count;
        vx_gpu_piece_maps_place(making->plan, maps_memory(making, i), piece);
    }
}

static void place_pieces(struct vx_gpu_making *making)
{
    const size_t *offsets =
        making->plan->levels ? making->places->perms : making->places->pieces;
    const struct vx_gpu_round *round = making->round;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        struct vx_gpu_geometry *kept = member->kept;
        struct vx_gpu_piece *piece = &making->pieces[i];
        *piece = (struct vx_gpu_piece){.n = member->item->voxels,
                                       .columns = member->item->coords_columns,
                                       .maps = vx_gpu_making_maps_of(making, i),
                                       .ordered = vx_gpu_making_ordered_of(making, i)};
        memcpy(piece->shape, vx_plan_shape(making->plan, member->item->shape),
               sizeof piece->shape);
        if (kept && !vx_gpu_round_staged(round)) {
            piece->columns = kept->columns;
            piece->coords = vx_gpu_kept_coords(kept);
            piece->fault = vx_gpu_kept_fault(kept);
            vx_gpu_piece_place(making->plan, vx_gpu_kept_piece(kept), piece);
        } else {
            piece->coords = (const void *)(round->block + making->places->coords[i]);
            piece->fault = round->lane->faults[i];
            vx_gpu_piece_place(making->plan, round->block + offsets[i], piece);
        }
    }
}

/* Makes the stream wait for the geometries that the other lane is still writing, row orders
 * among them. */
static vx_status await_others(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    u32 writers = 0;
    if (vx_gpu_round_staged(round)) return VX_OK; /* what it reads was there before */
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].kept) writers |= round->members[i].kept->writers;
    if (!(writers & ~round->lane->bit)) return VX_OK;
    VX_TRY(vx_gpu_stream_after(round->room->gpu, making->queue.stream,
                               round->other->marks[VX_GPU_MARK_MAPS], making->why));
    return vx_gpu_stream_after(round->room->gpu, making->queue.stream, round->other->made,
                               making->why);
}

i32 *vx_gpu_round_coords(const struct vx_gpu_round *round, i32 index, i32 *columns)
{
    const struct vx_gpu_member *member = &round->members[index];
    *columns = member->kept ? member->kept->columns : member->item->coords_columns;
    if (member->kept) return vx_gpu_kept_coords(member->kept);
    return (void *)(round->block + round->forward.places->coords[index]);
}

vx_status vx_gpu_round_copy_coords(const struct vx_gpu_round *round, i32 index, void *to,
                                   const struct vx_gpu_queue *queue, struct vx_why *why)
{
    const struct vx_item *item = round->members[index].item;
    size_t bytes =
        (size_t)item->voxels * (size_t)item->coords_columns * sizeof *item->coords;
    return vx_gpu_item_in(queue, item->on_device & VX_ITEM_COORDS,
                          &(struct vx_gpu_copy){to, item->coords, bytes}, why);
}

static vx_status coords_copy(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    i32 columns;
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].built)
            VX_TRY(vx_gpu_round_copy_coords(round, i,
                                            vx_gpu_round_coords(round, i, &columns),
                                            &making->queue, making->why));
    return VX_OK;
}

bool vx_gpu_making_builds(const struct vx_gpu_making *making)
{
    for (i32 i = 0; i < making->round->members_count; i++)
        if (making->round->members[i].built) return true;
    return false;
}

vx_status vx_gpu_making_pieces(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].built) pieces[count++] = making->pieces[i];
    if (!count) return VX_OK;
    const struct vx_gpu_build build = {
        .pieces = pieces,
        .pieces_count = count,
        .keys = making->plan->maps,
        .keys_count = making->plan->maps_count,
        .scratch = round->block + making->places->scratch,
    };
    return vx_gpu_pieces_build(&making->queue, &round->lane->upload, &build, making->why);
}

/* Where a member's coordinates are compared: where they lie, or in a copy. */
static vx_status coords_sent(const struct vx_gpu_making *making, i32 index,
                             const i32 **at)
{
    const struct vx_gpu_round *round = making->round;
    const struct vx_item *item = round->members[index].item;
    const size_t bytes =
        (size_t)item->voxels * (size_t)item->coords_columns * sizeof *item->coords;
    void *copy = round->block + making->places->coords[index];
    const bool direct =
        !item->coords_change &&
        vx_gpu_direct(&round->room->host, item->on_device & VX_ITEM_COORDS, item->coords,
                      bytes);
    *at = direct ? item->coords : copy;
    if (direct) return VX_OK;
    return vx_gpu_round_copy_coords(round, index, copy, &making->queue, making->why);
}

/* Where it is written that a member's coordinates differ: where the host reads it, unless more is
 * gathered for the host behind the comparison. */
static u32 *differs_of(const struct vx_gpu_round *round, i32 index)
{
    struct vx_gpu_lane *lane = round->lane;
    return vx_gpu_round_counts(round) ? &lane->differs[index]
                                      : &lane->results[index].differs;
}

static vx_status compare(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_compared compared[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        if (!member->compared) continue;
        const i32 *sent;
        VX_TRY(coords_sent(making, i, &sent));
        compared[count++] = (struct vx_gpu_compared){
            .a = sent,
            .b = vx_gpu_kept_coords(member->kept),
            .count = member->item->voxels * member->item->coords_columns,
            .differs = differs_of(round, i),
        };
    }
    if (!count) return VX_OK;
    return vx_gpu_pieces_compare(&making->queue, &round->lane->upload, compared, count,
                                 making->why);
}

/* Where the round has what is ordered: with one member, in its piece. */
static void place_ordered(struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_forward *forward = making->forward;
    struct vx_gpu_ordered *joined = vx_gpu_making_ordered_of(making, VX_BATCH_ITEMS_MAX);
    for (i32 o = 0; o < making->plan->ordered_count; o++) {
        const struct vx_plan_ordered *it = &making->plan->ordered[o];
        (void)vx_gpu_ordered_place(it, making->places->rows[it->set], false,
                                   round->block + making->places->joined_ordered[o],
                                   &joined[o]);
        if (round->members_count == 1) joined[o] = making->pieces[0].ordered[o];
        forward->keys[it->set] = joined[o].keys;
        if (!it->output) continue;
        forward->ranks[o] = joined[o].rank;
        for (i32 i = 0; i < round->members_count; i++)
            forward->coords[i][o] = making->pieces[i].ordered[o].coords;
    }
    forward->ordered = joined;
}

/* Where the round has rows and maps: with one member, in its piece. */
static void place_joined(struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_map *maps = vx_gpu_making_maps_of(making, VX_BATCH_ITEMS_MAX);
    place_ordered(making);
    making->forward->rows = making->pieces[0].rows;
    making->forward->maps = making->pieces[0].maps;
    if (round->members_count == 1) return;
    for (i32 i = 0; i < making->plan->maps_count; i++)
        vx_gpu_level_map_place(making->places->rows[making->plan->maps[i].to],
                               &making->plan->maps[i],
                               round->block + making->places->joined[i], &maps[i]);
    making->forward->rows = (void *)(round->block + making->places->joined_rows);
    making->forward->maps = maps;
}

/* The memory of a row order: in the store for a single piece that it keeps, else in the
 * block.  *there: the store has the order already. */
static void *sorted_memory(const struct vx_gpu_making *making,
                           const struct vx_gpu_sorted *sorted, size_t bytes, bool *there)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_geometry *kept = round->members[0].kept;
    const struct vx_gpu_store_order order = {sorted->map, sorted->groups, bytes,
                                             round->members[0].item->origin};
    void *memory = NULL;
    *there = false;
    if (round->members_count == 1 && kept && !vx_gpu_round_staged(round)) {
        memory = vx_gpu_store_order_find(round->room->store, kept, &order);
        *there = memory != NULL;
        if (!memory) {
            memory = vx_gpu_store_order_make(round->room->store, kept, &order);
            if (memory) kept->writers |= round->lane->bit;
        }
    }
    return memory ? memory : round->block + sorted->offset;
}

/* With stages, those of the stages before are there. */
static void place_sorted(struct vx_gpu_making *making)
{
    struct vx_gpu_round *round = making->round;
    struct vx_gpu_map *maps = round->model->gpu->sorted;
    making->forward->sorted = maps;
    for (i32 i = 0; i < making->places->sorted_count; i++) {
        const struct vx_gpu_sorted *sorted = &making->places->sorted[i];
        const struct vx_gpu_order_want want =
            vx_gpu_sorted_want(making->forward->choices, making->places->rows, sorted);
        bool there;
        void *memory = sorted_memory(making, sorted, vx_gpu_order_bytes(&want), &there);
        if (!vx_gpu_round_staged(round)) round->sorted[i] = there;
        maps[i] = making->forward->maps[sorted->map];
        vx_gpu_order_place(&want, memory, &maps[i]);
    }
}

bool vx_gpu_round_counts(const struct vx_gpu_round *round)
{
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].built || !round->members[i].kept->settled) return true;
    return false;
}

bool vx_gpu_round_asks(const struct vx_gpu_round *round)
{
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].compared) return true;
    return vx_gpu_round_counts(round);
}

/* Gathers what the host reads of all members; returns its bytes. */
static vx_status gather(const struct vx_gpu_making *making, size_t *bytes)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_lane *lane = round->lane;
    u32 *differs[VX_BATCH_ITEMS_MAX];
    for (i32 i = 0; i < round->members_count; i++)
        differs[i] = round->members[i].compared ? differs_of(round, i) : NULL;
    const struct vx_gpu_results results = {.pieces = making->pieces,
                                           .pieces_count = round->members_count,
                                           .maps_count = making->plan->maps_count,
                                           .differs = differs,
                                           .results = lane->results,
                                           .each =
                                               vx_gpu_round_pairs(round, lane->results)};
    if (results.each)
        *bytes += (size_t)round->members_count * (size_t)results.maps_count * sizeof(u64);
    return vx_gpu_pieces_results(&making->queue, &lane->upload, &results, making->why);
}

static vx_status results(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    struct vx_gpu_lane *lane = round->lane;
    size_t bytes = (size_t)round->members_count * sizeof *lane->results;
    if (!vx_gpu_round_asks(round)) return VX_OK;
    if (vx_gpu_round_counts(round)) VX_TRY(gather(making, &bytes));
    return vx_gpu_lane_answer(lane, making->queue.stream, bytes, making->why);
}

/* True if layers read what is ordered: sums over samples, the order itself, or an argmax, which
 * writes its rows where the output wants them. */
static bool layers_read_ordered(const struct vx_plan *plan)
{
    for (i32 o = 0; o < plan->ordered_count; o++)
        if (plan->ordered[o].samples) return true;
    for (i32 i = 0; i < plan->launches_count; i++)
        if (plan->launches[i].op == VX_OP_ARGMAX) return true;
    return false;
}

vx_status vx_gpu_making_begin(struct vx_gpu_making *making, struct vx_gpu_round *round,
                              struct vx_why *why)
{
    struct vx_gpu_forward *forward = &round->forward;
    making->round = round;
    making->forward = forward;
    making->plan = round->model->plan;
    making->places = forward->places;
    making->queue = round->lane->queue;
    making->maps_on = (struct vx_gpu_queues){{round->lane->queue}, 1};
    making->stage = vx_gpu_round_staged(round) ? round->stage : 0;
    making->makes = round->made.levels.requests_count || round->members_count > 1;
    making->joined_rows = round->members_count == 1;
    making->why = why;
    VX_ASSERT(making->places->pieces_count == round->members_count);
    VX_ASSERT(making->places->bytes <= round->bytes);
    making->ordered_late = making->places->beside && making->plan->ordered_count &&
                           !layers_read_ordered(making->plan);
    round->lane->upload.used = 0;
    place_pieces(making);
    if (making->plan->levels) {
        place_maps(making, true);
        place_maps(making, false);
    }
    place_joined(making);
    place_sorted(making);
    VX_TRY(await_others(making));
    return making->plan->levels ? VX_OK : coords_copy(making);
}

bool vx_gpu_making_ends(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    return vx_gpu_round_asks(round) || vx_gpu_round_wants_places(round) ||
           (making->ordered_late && making->makes);
}

vx_status vx_gpu_making_end(struct vx_gpu_making *making)
{
    struct vx_gpu_round *round = making->round;
    if (making->ordered_late && making->makes) VX_TRY(vx_gpu_making_ordered(making));
    VX_TRY(compare(making));
    if (making->stage + 1 < making->plan->stages_count) return VX_OK;
    VX_TRY(results(making));
    VX_TRY(vx_gpu_round_dense_launch(round, &making->queue, making->why));
    if (!vx_gpu_round_wants_places(round)) return VX_OK;
    return vx_gpu_event_record(round->lane->gpu, round->lane->told, making->queue.stream,
                               making->why);
}
