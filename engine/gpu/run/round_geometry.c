/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_geometry.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/ranks.h"
#include "engine/gpu/run/round_fills.h"
#include "engine/gpu/run/round_stages.h"

#include <string.h>

struct work {
    struct vx_gpu_round *round;
    struct vx_gpu_forward *forward;
    const struct vx_plan *plan;
    const struct vx_gpu_places *places;
    i32 stage; /* 0: also of a round without stages */
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX];
    struct vx_why *why;
};

/* The maps of a member; those of the join have the index VX_BATCH_ITEMS_MAX. */
static struct vx_gpu_map *maps_of(const struct work *work, i32 index)
{
    if (!work->plan->maps_count) return NULL;
    return work->round->model->gpu->maps + (i64)index * work->plan->maps_count;
}

/* Memory for the maps of a member, with levels: in the store if it keeps them, or
 * where the member of the same geometry has them. */
static void *maps_memory(const struct work *work, i32 index)
{
    const struct vx_gpu_round *round = work->round;
    const struct vx_gpu_member *member = &round->members[index];
    struct vx_gpu_store *store = round->room->store;
    u8 *mine = round->block + work->places->pieces[index];
    const struct vx_gpu_store_order order = {
        VX_GPU_STORE_MAPS, 0,
        vx_gpu_piece_maps_bytes(work->plan, work->pieces[index].set_rows)};
    if (!member->kept || vx_gpu_round_staged(round)) return mine;
    void *there = vx_gpu_store_order_find(store, member->kept, &order);
    if (!there && member->built) {
        there = vx_gpu_store_order_make(store, member->kept, &order);
        if (!there) vx_gpu_store_forget(store, member->kept);
    }
    for (i32 i = 0; !there && i < round->members_count; i++)
        if (round->members[i].built && round->members[i].kept == member->kept)
            there = round->block + work->places->pieces[i];
    return there;
}

/* Those that are made here come first: others may have the same geometry. */
static void place_maps(struct work *work, bool built)
{
    for (i32 i = 0; i < work->round->members_count; i++) {
        struct vx_gpu_piece *piece = &work->pieces[i];
        if (work->round->members[i].built != built) continue;
        piece->set_rows = work->round->rows + (i64)i * work->plan->sets_count;
        if (vx_gpu_round_staged(work->round))
            piece->laid_rows = work->round->made.bounds + (i64)i * work->plan->sets_count;
        vx_gpu_piece_maps_place(work->plan, maps_memory(work, i), piece);
    }
}

/* What is ordered of a member, or of the join. */
static struct vx_gpu_ordered *ordered_of(const struct work *work, i32 index)
{
    return work->round->model->gpu->ordered + (i64)index * work->plan->ordered_count;
}

static void place_pieces(struct work *work)
{
    const size_t *offsets =
        work->plan->levels ? work->places->perms : work->places->pieces;
    const struct vx_gpu_round *round = work->round;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        struct vx_gpu_geometry *kept = member->kept;
        struct vx_gpu_piece *piece = &work->pieces[i];
        *piece = (struct vx_gpu_piece){.n = member->item->voxels,
                                       .columns = member->item->coords_columns,
                                       .maps = maps_of(work, i),
                                       .ordered = ordered_of(work, i)};
        memcpy(piece->shape, vx_plan_shape(work->plan, member->item->shape),
               sizeof piece->shape);
        if (kept && !vx_gpu_round_staged(round)) {
            piece->columns = kept->columns;
            piece->coords = vx_gpu_kept_coords(kept);
            piece->fault = vx_gpu_kept_fault(kept);
            vx_gpu_piece_place(work->plan, vx_gpu_kept_piece(kept), piece);
        } else {
            piece->coords = (const void *)(round->block + work->places->coords[i]);
            piece->fault = round->lane->faults[i];
            vx_gpu_piece_place(work->plan, round->block + offsets[i], piece);
        }
    }
}

/* The voxels of the rows of an ordered set. */
static vx_status build_keys(const struct work *work, i32 o)
{
    const struct vx_gpu_round *round = work->round;
    const struct vx_gpu_round_levels *made = &round->made;
    const i32 set = work->plan->ordered[o].set, count = made->levels.requests_count;
    struct vx_gpu_level_keys keys[VX_BATCH_ITEMS_MAX];
    for (i32 r = 0; r < count; r++) {
        const struct vx_gpu_piece *piece = &work->pieces[made->of[r]];
        keys[r] =
            (struct vx_gpu_level_keys){&made->sets[(i64)r * work->plan->sets_count + set],
                                       piece->set_rows[set], piece->ordered[o].keys};
    }
    return vx_gpu_level_keys_build(&round->lane->queue, &round->lane->upload, keys, count,
                                   work->why);
}

/* The canonical orders of the sets that need them, and their voxels. */
static vx_status build_ordered(const struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    const struct vx_gpu_round_levels *made = &round->made;
    const i32 count = made->levels.requests_count;
    for (i32 o = 0; count && o < work->plan->ordered_count; o++) {
        const i32 set = work->plan->ordered[o].set;
        if (work->plan->sets[set].stage != work->stage) continue;
        if (work->plan->ordered[o].dense) VX_TRY(build_keys(work, o));
        if (!vx_plan_is_sorted(&work->plan->ordered[o])) continue;
        struct vx_gpu_rank_member members[VX_BATCH_ITEMS_MAX];
        for (i32 r = 0; r < count; r++) {
            const struct vx_gpu_piece *piece = &work->pieces[made->of[r]];
            members[r] = (struct vx_gpu_rank_member){
                &made->sets[(i64)r * work->plan->sets_count + set], piece->set_rows[set],
                &piece->ordered[o]};
        }
        const struct vx_gpu_ranks ranks = {members, count,
                                           round->block + work->places->workspace};
        VX_TRY(vx_gpu_ranks_build(&round->lane->queue, &round->lane->upload, &ranks,
                                  work->why));
    }
    return VX_OK;
}

/* Maps between the sets that were made in the first part of the round. */
static vx_status build_maps(const struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    const struct vx_gpu_round_levels *made = &round->made;
    const i32 sets = work->plan->sets_count, count = made->levels.requests_count;
    for (i32 k = 0; count && k < work->plan->maps_count; k++) {
        const struct vx_map_key *key = &work->plan->maps[k];
        if (vx_plan_map_stage(work->plan, key) != work->stage) continue;
        struct vx_gpu_level_map maps[VX_BATCH_ITEMS_MAX];
        for (i32 r = 0; r < count; r++) {
            const struct vx_gpu_piece *piece = &work->pieces[made->of[r]];
            const struct vx_brick_set *set = made->sets + (i64)r * sets;
            maps[r] = (struct vx_gpu_level_map){
                &set[key->from], &set[key->to], piece->set_rows[key->from],
                piece->set_rows[key->to], &piece->maps[k]};
        }
        VX_TRY(vx_gpu_level_maps_build(&round->lane->queue, &round->lane->upload,
                                       &(struct vx_gpu_level_maps){key, maps, count},
                                       work->why));
    }
    return VX_OK;
}

/* Many maps of many small requests leave the join its part of the upload: without room their
 * maps are made one by one. */
static vx_status build_levels(const struct work *work)
{
    struct vx_gpu_upload *upload = &work->round->lane->upload;
    upload->bytes -= VX_GPU_JOIN_UPLOAD;
    vx_status status = build_maps(work);
    upload->bytes += VX_GPU_JOIN_UPLOAD;
    return status.fault ? status : build_ordered(work);
}

/* Makes the stream wait for the geometries that the other lane is still writing. */
static vx_status await_others(const struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    u32 writers = 0;
    if (vx_gpu_round_staged(round)) return VX_OK; /* what it reads was there before */
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].kept) writers |= round->members[i].kept->writers;
    if (!(writers & ~round->lane->bit)) return VX_OK;
    return vx_gpu_stream_after(round->room->gpu, round->lane->queue.stream,
                               round->other->marks[VX_GPU_MARK_GEOMETRY], work->why);
}

const i32 *vx_gpu_round_coords(const struct vx_gpu_round *round, i32 index, i32 *columns)
{
    const struct vx_gpu_member *member = &round->members[index];
    *columns = member->kept ? member->kept->columns : member->item->coords_columns;
    if (member->kept) return vx_gpu_kept_coords(member->kept);
    return (const void *)(round->block + round->forward.places->coords[index]);
}

vx_status vx_gpu_round_copy_coords(const struct vx_gpu_round *round, i32 index, void *to,
                                   struct vx_why *why)
{
    const struct vx_item *item = round->members[index].item;
    size_t bytes =
        (size_t)item->voxels * (size_t)item->coords_columns * sizeof *item->coords;
    return vx_gpu_item_in(&round->lane->queue, item->on_device & VX_ITEM_COORDS,
                          &(struct vx_gpu_copy){to, item->coords, bytes}, why);
}

static vx_status build(struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        if (!member->built) continue;
        pieces[count++] = work->pieces[i];
        void *to = member->kept ? vx_gpu_kept_coords(member->kept)
                                : (void *)(round->block + work->places->coords[i]);
        VX_TRY(vx_gpu_round_copy_coords(round, i, to, work->why));
    }
    if (!count) return VX_OK;
    const struct vx_gpu_build build = {
        .pieces = pieces,
        .pieces_count = count,
        .keys = work->plan->maps,
        .keys_count = work->plan->maps_count,
        .scratch = round->block + work->places->scratch,
    };
    return vx_gpu_pieces_build(&round->lane->queue, &round->lane->upload, &build,
                               work->why);
}

static vx_status compare(const struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    struct vx_gpu_compared compared[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        void *sent = round->block + work->places->coords[i];
        if (!member->compared) continue;
        VX_TRY(vx_gpu_round_copy_coords(round, i, sent, work->why));
        compared[count++] = (struct vx_gpu_compared){
            .a = sent,
            .b = vx_gpu_kept_coords(member->kept),
            .count = member->item->voxels * member->item->coords_columns,
            .differs = &round->lane->differs[i],
        };
    }
    if (!count) return VX_OK;
    return vx_gpu_pieces_compare(&round->lane->queue, &round->lane->upload, compared,
                                 count, work->why);
}

/* Where the round has what is ordered: with one member, in its piece. */
static void place_ordered(struct work *work, i32 sets[VX_SETS_MAX])
{
    const struct vx_gpu_round *round = work->round;
    struct vx_gpu_ordered *joined = ordered_of(work, VX_BATCH_ITEMS_MAX);
    for (i32 o = 0; o < work->plan->ordered_count; o++) {
        const struct vx_plan_ordered *it = &work->plan->ordered[o];
        sets[o] = it->set;
        (void)vx_gpu_ordered_place(it, work->places->rows[it->set], false,
                                   round->block + work->places->joined_ordered[o],
                                   &joined[o]);
        if (round->members_count == 1) joined[o] = work->pieces[0].ordered[o];
        work->forward->keys[it->set] = joined[o].keys;
        if (!it->output) continue;
        work->forward->ranks[o] = joined[o].rank;
        for (i32 i = 0; i < round->members_count; i++)
            work->forward->coords[i][o] = work->pieces[i].ordered[o].coords;
    }
    work->forward->ordered = joined;
}

/* What other stages join. */
static void skip_make(const struct work *work, struct vx_gpu_join_skip *skip)
{
    const struct vx_plan *plan = work->plan;
    skip->rows = work->stage > 0;
    for (i32 k = 0; k < plan->maps_count; k++)
        skip->maps[k] = vx_plan_map_stage(plan, &plan->maps[k]) != work->stage;
    for (i32 o = 0; o < plan->ordered_count; o++)
        skip->ordered[o] = plan->sets[plan->ordered[o].set].stage != work->stage;
}

static vx_status join(struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    struct vx_gpu_map *maps = maps_of(work, VX_BATCH_ITEMS_MAX);
    struct vx_gpu_forward *forward = work->forward;
    i32 sets[VX_SETS_MAX];
    place_ordered(work, sets);
    forward->rows = work->pieces[0].rows;
    forward->maps = work->pieces[0].maps;
    if (round->members_count == 1) return VX_OK;
    for (i32 i = 0; i < work->plan->maps_count; i++)
        vx_gpu_level_map_place(work->places->rows[work->plan->maps[i].to],
                               &work->plan->maps[i],
                               round->block + work->places->joined[i], &maps[i]);
    struct vx_gpu_join_skip skip;
    skip_make(work, &skip);
    const struct vx_gpu_join join = {
        .skip = &skip,
        .pieces = work->pieces,
        .pieces_count = round->members_count,
        .keys = work->plan->maps,
        .keys_count = work->plan->maps_count,
        .rows = (void *)(round->block + work->places->joined_rows),
        .ordered = forward->ordered,
        .ordered_sets = sets,
        .ordered_count = work->plan->ordered_count,
        .maps = maps,
    };
    forward->rows = join.rows;
    forward->maps = maps;
    return vx_gpu_pieces_join(&round->lane->queue, &round->lane->upload, &join,
                              work->why);
}

/* The memory of a row order: in the store for a single piece that it keeps, else in the
 * block.  *there: the store has the order already. */
static void *sorted_memory(const struct work *work, const struct vx_gpu_sorted *sorted,
                           size_t bytes, bool *there)
{
    const struct vx_gpu_round *round = work->round;
    struct vx_gpu_geometry *kept = round->members[0].kept;
    const struct vx_gpu_store_order order = {sorted->map, sorted->groups, bytes};
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

/* Whether a row order is built now: with stages, all are laid out that a launch might
 * want, and each is built in the first stage that does. */
static bool sort_now(const struct work *work, i32 sorted)
{
    const struct vx_plan *plan = work->plan;
    const struct vx_gpu_round *round = work->round;
    if (!vx_gpu_round_staged(round)) return true;
    if (round->sorted[sorted]) return false;
    for (i32 i = vx_plan_stage_begin(plan, work->stage);
         i < plan->stage_ends[work->stage]; i++)
        if (work->places->sorted_of[i] == sorted) return true;
    return false;
}

/* Sorts the rows by their masks, for each map whose algorithms need it. */
static vx_status sort(struct work *work)
{
    struct vx_gpu_round *round = work->round;
    struct vx_gpu_map *maps = round->model->gpu->sorted;
    struct vx_gpu_order_job jobs[VX_LAYERS_MAX];
    i32 count = 0;
    work->forward->sorted = maps;
    for (i32 i = 0; i < work->places->sorted_count; i++) {
        const struct vx_gpu_sorted *sorted = &work->places->sorted[i];
        const struct vx_gpu_order_want want =
            vx_gpu_sorted_want(work->forward->choices, work->places->rows, sorted);
        bool there;
        void *memory = sorted_memory(work, sorted, vx_gpu_order_bytes(&want), &there);
        maps[i] = work->forward->maps[sorted->map];
        vx_gpu_order_place(&want, memory, &maps[i]);
        if (there || !sort_now(work, i)) continue;
        round->sorted[i] = true;
        jobs[count++] = (struct vx_gpu_order_job){
            want, &maps[i], round->block + work->places->order_scratch + sorted->scratch};
    }
    return vx_gpu_orders_build(&round->lane->queue, &round->lane->upload, jobs, count,
                               work->why);
}

bool vx_gpu_round_asks(const struct vx_gpu_round *round)
{
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        if (member->built || member->compared || !member->kept->settled) return true;
    }
    return false;
}

static vx_status results(const struct work *work)
{
    const struct vx_gpu_round *round = work->round;
    struct vx_gpu_lane *lane = round->lane;
    u32 *differs[VX_BATCH_ITEMS_MAX];
    if (!vx_gpu_round_asks(round)) return VX_OK;
    for (i32 i = 0; i < round->members_count; i++)
        differs[i] = round->members[i].compared ? &lane->differs[i] : NULL;
    const struct vx_gpu_results results = {.pieces = work->pieces,
                                           .pieces_count = round->members_count,
                                           .maps_count = work->plan->maps_count,
                                           .differs = differs,
                                           .results = lane->results,
                                           .each =
                                               vx_gpu_round_pairs(round, lane->results)};
    VX_TRY(vx_gpu_pieces_results(&lane->queue, &lane->upload, &results, work->why));
    size_t bytes = (size_t)round->members_count * sizeof *lane->results;
    if (results.each)
        bytes += (size_t)round->members_count * (size_t)results.maps_count * sizeof(u64);
    return vx_gpu_copy_out(lane->gpu, lane->queue.stream,
                           &(struct vx_gpu_copy){lane->answers, lane->results, bytes},
                           work->why);
}

vx_status vx_gpu_round_geometry(struct vx_gpu_round *round,
                                struct vx_gpu_forward *forward, struct vx_why *why)
{
    struct work work = {.round = round,
                        .forward = forward,
                        .plan = round->model->plan,
                        .places = forward->places,
                        .stage = vx_gpu_round_staged(round) ? round->stage : 0,
                        .why = why};
    VX_ASSERT(work.places->pieces_count == round->members_count);
    VX_ASSERT(work.places->bytes <= round->bytes);
    round->lane->upload.used = 0;
    place_pieces(&work);
    if (work.plan->levels) {
        place_maps(&work, true);
        place_maps(&work, false);
    }
    VX_TRY(await_others(&work));
    VX_TRY(work.plan->levels ? build_levels(&work) : build(&work));
    VX_TRY(compare(&work));
    VX_TRY(join(&work));
    VX_TRY(sort(&work));
    return work.stage + 1 == work.plan->stages_count ? results(&work) : VX_OK;
}
