/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round.h"

#include "engine/base/process/check.h"
#include "engine/gpu/run/round_bad.h"
#include "engine/gpu/run/round_geometry.h"
#include "engine/gpu/run/round_stages.h"

#include <string.h>

/* The rows of a member. */
static i64 *rows_of(struct vx_gpu_round *round, i32 index)
{
    return round->rows + (i64)index * round->model->plan->sets_count;
}

/* Takes the rows of a geometry that the store has; false: it is not known yet. */
static bool rows_take(struct vx_gpu_round *round, i32 index)
{
    const struct vx_gpu_geometry *kept = round->members[index].kept;
    if (!kept || !kept->sized) return false;
    memcpy(rows_of(round, index), kept->rows,
           (size_t)round->model->plan->sets_count * sizeof *kept->rows);
    return true;
}

bool vx_gpu_round_sizes(struct vx_gpu_round *round)
{
    bool known = true;
    round->made.levels.requests_count = 0;
    round->stage = 0;
    if (!round->model->plan->levels) return false;
    if (vx_gpu_round_staged(round)) return true;
    for (i32 i = 0; i < round->members_count; i++) known &= rows_take(round, i);
    return !known;
}

/* --- launched --- */

/* Where the coordinates of a member lie: in the store, if it keeps them and none were sent
 * that must be compared with them. */
static void *coords_of(const struct vx_gpu_round *round, i32 index)
{
    const struct vx_gpu_member *member = &round->members[index];
    if (!member->kept || member->compared)
        return round->block + round->model->gpu->places.coords[index];
    return vx_gpu_kept_coords(member->kept);
}

/* With stages: where the coordinates that were sent differ from those that are kept. */
static vx_status compare(const struct vx_gpu_round *round, struct vx_why *why)
{
    struct vx_gpu_compared compared[VX_BATCH_ITEMS_MAX];
    i32 count = 0;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        if (!member->compared) continue;
        compared[count++] = (struct vx_gpu_compared){
            .a = coords_of(round, i),
            .b = vx_gpu_kept_coords(member->kept),
            .count = member->item->voxels * member->item->coords_columns,
            .differs = &round->lane->differs[i]};
    }
    return vx_gpu_pieces_compare(&round->lane->queue, &round->lane->upload, compared,
                                 count, why);
}

/* The pieces of the members whose geometries are built: set 0 alone, without maps. */
static vx_status pieces_make(struct vx_gpu_round *round,
                             struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX],
                             struct vx_why *why)
{
    const struct vx_gpu_places *places = &round->model->gpu->places;
    const struct vx_plan *plan = round->model->plan;
    struct vx_gpu_round_levels *made = &round->made;
    i32 count = 0;
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        const struct vx_gpu_geometry *kept = member->kept;
        struct vx_gpu_piece *piece = &pieces[count];
        if (!member->built) continue;
        const bool mine = !kept || vx_gpu_round_staged(round);
        void *coords = coords_of(round, i);
        *piece = (struct vx_gpu_piece){
            .n = member->item->voxels,
            .columns =
                member->item->coords ? member->item->coords_columns : kept->columns,
            .coords = coords,
            .rows = mine ? (void *)(round->block + places->perms[i])
                         : vx_gpu_kept_piece(kept),
            .fault = mine ? round->lane->faults[i] : vx_gpu_kept_fault(kept)};
        memcpy(piece->shape, vx_plan_shape(plan, member->item->shape),
               sizeof piece->shape);
        VX_TRY(vx_plan_shapes(plan, member->item->shape, why,
                              made->shapes + (i64)count * plan->sets_count));
        if (member->item->coords)
            VX_TRY(vx_gpu_round_copy_coords(round, i, coords, &round->lane->queue, why));
        vx_sets_rows_max(plan->sets, plan->sets_count, piece->n,
                         made->bounds + (i64)count * plan->sets_count);
        made->of[count++] = i;
    }
    made->levels = (struct vx_gpu_levels){.keys = round->model->gpu->choices->keys,
                                          .sets_count = plan->sets_count,
                                          .requests_count = count,
                                          .shapes = made->shapes,
                                          .rows_max = made->bounds,
                                          .sets = made->sets};
    if (!vx_gpu_round_staged(round)) return VX_OK;
    VX_ASSERT(count == round->members_count);
    made->levels.stage.of = round->model->gpu->choices->stages;
    return compare(round, why);
}

static vx_status levels_make(struct vx_gpu_round *round, struct vx_gpu_piece *pieces,
                             struct vx_why *why)
{
    const struct vx_gpu_places *places = &round->model->gpu->places;
    struct vx_gpu_round_levels *made = &round->made;
    struct vx_gpu_lane *lane = round->lane;
    const struct vx_gpu_build build = {.pieces = pieces,
                                       .pieces_count = made->levels.requests_count,
                                       .scratch = round->block + places->scratch,
                                       .indices = made->indices};
    VX_TRY(vx_gpu_pieces_build(&lane->queue, &lane->upload, &build, why));
    vx_gpu_levels_place(lane->queue.set, &made->levels, made->indices,
                        round->block + places->levels);
    return vx_gpu_levels_build(&lane->queue, &lane->upload, &made->levels, why);
}

/* Copies out the faults of the coordinates: of one piece directly, of several together. */
static vx_status faults_send(struct vx_gpu_round *round,
                             const struct vx_gpu_piece *pieces, struct vx_why *why)
{
    struct vx_gpu_lane *lane = round->lane;
    const i32 count = round->made.levels.requests_count;
    u32 *differs[VX_BATCH_ITEMS_MAX];
    for (i32 r = 0; r < count; r++) {
        const bool compared = round->members[round->made.of[r]].compared;
        differs[r] = compared ? &lane->differs[round->made.of[r]] : NULL;
    }
    if (count == 1 && !differs[0]) {
        const struct vx_gpu_copy copy = {lane->answers[0].fault, pieces[0].fault,
                                         sizeof lane->answers[0].fault};
        return vx_gpu_copy_out(lane->gpu, lane->queue.stream, &copy, why);
    }
    const struct vx_gpu_results results = {.pieces = pieces,
                                           .pieces_count = count,
                                           .differs = differs,
                                           .results = lane->results};
    VX_TRY(vx_gpu_pieces_results(&lane->queue, &lane->upload, &results, why));
    return vx_gpu_lane_answer(lane, lane->queue.stream,
                              (size_t)count * sizeof *lane->results, why);
}

/* Copies out what the host must know: faults, and the size of each set. */
static vx_status sizes_send(struct vx_gpu_round *round, const struct vx_gpu_piece *pieces,
                            struct vx_why *why)
{
    const struct vx_gpu_levels *levels = &round->made.levels;
    struct vx_gpu_lane *lane = round->lane;
    VX_TRY(faults_send(round, pieces, why));
    if (levels->sets_count == 1) return VX_OK;
    return vx_gpu_copy_out(lane->gpu, lane->queue.stream,
                           &(struct vx_gpu_copy){lane->counts, levels->counts,
                                                 vx_gpu_levels_counts_bytes(levels)},
                           why);
}

vx_status vx_gpu_round_sizes_launch(struct vx_gpu_round *round, struct vx_why *why)
{
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_lane *lane = round->lane;
    lane->upload.used = 0;
    /* The other lane may launch the same model before the first stage. */
    if (vx_gpu_round_staged(round)) round->places = round->model->gpu->places;
    VX_TRY(vx_gpu_lane_mark(lane, VX_GPU_MARK_BEGIN, why));
    VX_TRY(pieces_make(round, pieces, why));
    VX_TRY(levels_make(round, pieces, why));
    VX_TRY(sizes_send(round, pieces, why));
    return vx_gpu_event_record(lane->gpu, lane->sized, lane->queue.stream, why);
}

/* --- read --- */

/* With stages: what is kept under a member's name is not what it has sent. */
static void kept_leave(struct vx_gpu_round *round, i32 r)
{
    struct vx_gpu_member *member = &round->members[round->made.of[r]];
    if (!member->known || !member->compared) return;
    member->compared = false;
    if (!round->lane->answers[r].differs) return;
    member->known = false;
    vx_gpu_store_drop(round->room->store, &member->kept);
}

/* Fails if a set of request r has more rows than it may have; then what the device has made of its
 * sets is what it costs. */
static vx_status rows_check(struct vx_gpu_round *round, i32 r, vx_status status)
{
    const struct vx_plan *plan = round->model->plan;
    struct vx_item *item = round->members[round->made.of[r]].item;
    const i64 *rows = rows_of(round, round->made.of[r]);
    const i64 *most = round->made.bounds + (i64)r * plan->sets_count;
    for (i32 set = 1; set < plan->sets_count; set++) {
        vx_status large = vx_plan_check_set(plan, set, rows[set], false, &item->why);
        if (large.fault) status = large;
        if (large.fault) break;
    }
    item->set_voxels = 0;
    for (i32 set = 0; status.fault && set < plan->sets_count; set++)
        item->set_voxels += rows[set] < most[set] ? rows[set] : most[set];
    return status;
}

/* Reads the rows of request r of the levels; fails for its member alone. */
static vx_status rows_read(struct vx_gpu_round *round, i32 r)
{
    const struct vx_plan *plan = round->model->plan;
    const i32 index = round->made.of[r];
    struct vx_gpu_member *member = &round->members[index];
    const struct vx_gpu_piece_result *result = &round->lane->answers[r];
    i64 *rows = rows_of(round, index);
    if (result->fault[0] || result->fault[1])
        return vx_gpu_bad_coords(round, result, member->item);
    memset(rows, 0, (size_t)plan->sets_count * sizeof *rows);
    vx_status status = vx_gpu_levels_rows(&round->made.levels, r, round->lane->counts,
                                          &member->item->why, rows);
    status = rows_check(round, r, status);
    if (status.fault || !member->kept) return status;
    member->kept->sized = true;
    memcpy(member->kept->rows, rows, (size_t)plan->sets_count * sizeof *rows);
    return VX_OK;
}

/* Counts a member that is answered here. */
static void refuse(struct vx_gpu_round *round, struct vx_gpu_member *member,
                   vx_status status)
{
    member->item->status = status;
    if (vx_coords_ref_there(member->item->coords_ref))
        vx_gpu_store_count(round->room->store, false);
}

void vx_gpu_round_sizes_read(struct vx_gpu_round *round, bool *refused)
{
    *refused = false;
    for (i32 r = 0; r < round->made.levels.requests_count; r++) {
        kept_leave(round, r);
        vx_status status = rows_read(round, r);
        if (!status.fault) continue;
        refuse(round, &round->members[round->made.of[r]], status);
        *refused = true;
    }
    for (i32 i = 0; i < round->members_count; i++) {
        struct vx_gpu_member *member = &round->members[i];
        if (member->built || rows_take(round, i)) continue;
        /* The member that was to make its geometry could not. */
        *refused = true;
        member->again = member->item->coords != NULL;
        if (!member->again) refuse(round, member, vx_gpu_not_there(member->item));
    }
    if (*refused) vx_gpu_round_let_go(round);
}
