/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/gpu/geometry/ranks.h"
#include "engine/gpu/run/round_making.h"
#include "engine/gpu/run/round_stages.h"

static bool map_is_now(const struct vx_gpu_making *making, i32 map)
{
    const struct vx_map_key *key = &making->plan->maps[map];
    return making->makes && vx_plan_map_stage(making->plan, key) == making->stage;
}

/* ------- maps ------- */

/* The maps of a key for the requests whose sets were made in the first part of the round. */
static void maps_list(const struct vx_gpu_making *making, i32 k,
                      struct vx_gpu_level_map maps[VX_BATCH_ITEMS_MAX])
{
    const struct vx_gpu_round_levels *made = &making->round->made;
    const struct vx_map_key *key = &making->plan->maps[k];
    for (i32 r = 0; r < made->levels.requests_count; r++) {
        const struct vx_gpu_piece *piece = &making->pieces[made->of[r]];
        const struct vx_brick_set *set = made->sets + (i64)r * making->plan->sets_count;
        maps[r] = (struct vx_gpu_level_map){&set[key->from], &set[key->to],
                                            piece->set_rows[key->from],
                                            piece->set_rows[key->to], &piece->maps[k]};
    }
}

/* Of one request: all together. */
static vx_status build_of_one(const struct vx_gpu_making *making)
{
    struct vx_gpu_level_map maps[VX_LAYERS_MAX];
    struct vx_gpu_level_maps keys[VX_LAYERS_MAX];
    i32 count = 0;
    for (i32 k = 0; k < making->plan->maps_count; k++) {
        if (!map_is_now(making, k)) continue;
        maps_list(making, k, &maps[count]);
        keys[count] = (struct vx_gpu_level_maps){&making->plan->maps[k], &maps[count], 1};
        count++;
    }
    return vx_gpu_level_maps_build_keys(&making->maps_on, &making->round->lane->upload,
                                        keys, count, making->why);
}

static vx_status build_maps(const struct vx_gpu_making *making)
{
    const i32 count = making->round->made.levels.requests_count;
    struct vx_gpu_level_map maps[VX_BATCH_ITEMS_MAX];
    if (count == 1) return build_of_one(making);
    for (i32 k = 0; count && k < making->plan->maps_count; k++) {
        if (!map_is_now(making, k)) continue;
        maps_list(making, k, maps);
        VX_TRY(vx_gpu_level_maps_build(
            &making->maps_on.of[k % making->maps_on.count], &making->round->lane->upload,
            &(struct vx_gpu_level_maps){&making->plan->maps[k], maps, count},
            making->why));
    }
    return VX_OK;
}

/* Many maps of many small requests leave the join its part of the upload: without room their
 * maps are made one by one. */
vx_status vx_gpu_making_maps(struct vx_gpu_making *making)
{
    struct vx_gpu_upload *upload = &making->round->lane->upload;
    if (!making->plan->levels) return vx_gpu_making_pieces(making);
    upload->bytes -= VX_GPU_JOIN_UPLOAD;
    vx_status status = build_maps(making);
    upload->bytes += VX_GPU_JOIN_UPLOAD;
    return status;
}

/* ------- what is ordered ------- */

/* The voxels of the rows of an ordered set. */
static vx_status build_keys(const struct vx_gpu_making *making, i32 o)
{
    const struct vx_gpu_round *round = making->round;
    const struct vx_gpu_round_levels *made = &round->made;
    const i32 set = making->plan->ordered[o].set, count = made->levels.requests_count;
    struct vx_gpu_level_keys keys[VX_BATCH_ITEMS_MAX];
    for (i32 r = 0; r < count; r++) {
        const struct vx_gpu_piece *piece = &making->pieces[made->of[r]];
        keys[r] = (struct vx_gpu_level_keys){
            &made->sets[(i64)r * making->plan->sets_count + set], piece->set_rows[set],
            piece->ordered[o].keys};
    }
    return vx_gpu_level_keys_build(&making->queue, &round->lane->upload, keys, count,
                                   making->why);
}

/* The canonical orders of the sets that need them, and their voxels. */
static vx_status build_ordered(const struct vx_gpu_making *making)
{
    const struct vx_gpu_round *round = making->round;
    const struct vx_gpu_round_levels *made = &round->made;
    const i32 count = made->levels.requests_count;
    for (i32 o = 0; count && o < making->plan->ordered_count; o++) {
        const i32 set = making->plan->ordered[o].set;
        if (making->plan->sets[set].stage != making->stage) continue;
        if (making->plan->ordered[o].dense) VX_TRY(build_keys(making, o));
        if (!vx_plan_is_sorted(&making->plan->ordered[o])) continue;
        struct vx_gpu_rank_member members[VX_BATCH_ITEMS_MAX];
        for (i32 r = 0; r < count; r++) {
            const struct vx_gpu_piece *piece = &making->pieces[made->of[r]];
            members[r] = (struct vx_gpu_rank_member){
                &made->sets[(i64)r * making->plan->sets_count + set],
                piece->set_rows[set], &piece->ordered[o]};
        }
        const struct vx_gpu_ranks ranks = {members, count,
                                           round->block + making->places->ranks};
        VX_TRY(vx_gpu_ranks_build(&making->queue, &round->lane->upload, &ranks,
                                  making->why));
    }
    return VX_OK;
}

/* ------- joins ------- */

/* What a join takes of what the round's stage makes; the rows come with the first one. */
enum { JOIN_ROWS = 0, JOIN_MAPS = 1, JOIN_ORDERED = 2 };

static void skip_make(const struct vx_gpu_making *making, i32 takes,
                      struct vx_gpu_join_skip *skip)
{
    const struct vx_plan *plan = making->plan;
    skip->rows = making->stage > 0 || making->joined_rows;
    for (i32 k = 0; k < plan->maps_count; k++)
        skip->maps[k] = !(takes & JOIN_MAPS) || !map_is_now(making, k);
    for (i32 o = 0; o < plan->ordered_count; o++)
        skip->ordered[o] = !(takes & JOIN_ORDERED) ||
                           plan->sets[plan->ordered[o].set].stage != making->stage;
}

static vx_status join(struct vx_gpu_making *making, i32 takes)
{
    const struct vx_gpu_round *round = making->round;
    i32 sets[VX_SETS_MAX];
    struct vx_gpu_join_skip skip;
    if (round->members_count == 1) return VX_OK;
    skip_make(making, takes, &skip);
    for (i32 o = 0; o < making->plan->ordered_count; o++)
        sets[o] = making->plan->ordered[o].set;
    const struct vx_gpu_join join = {
        .skip = &skip,
        .pieces = making->pieces,
        .pieces_count = round->members_count,
        .keys = making->plan->maps,
        .keys_count = making->plan->maps_count,
        .rows = (void *)(round->block + making->places->joined_rows),
        .ordered = making->forward->ordered,
        .ordered_sets = sets,
        .ordered_count = making->plan->ordered_count,
        .maps = vx_gpu_making_maps_of(making, VX_BATCH_ITEMS_MAX),
    };
    making->joined_rows = true;
    return vx_gpu_pieces_join(&making->queue, &round->lane->upload, &join, making->why);
}

vx_status vx_gpu_making_rows(struct vx_gpu_making *making)
{
    return join(making, JOIN_ROWS);
}

vx_status vx_gpu_making_ordered(struct vx_gpu_making *making)
{
    VX_TRY(build_ordered(making));
    return join(making, JOIN_ORDERED);
}

/* ------- orders ------- */

/* Whether a row order is built now: with stages, all are laid out that a launch might
 * want, and each is built in the first stage that does. */
static bool order_is_now(const struct vx_gpu_making *making, i32 order)
{
    const struct vx_plan *plan = making->plan;
    if (making->round->sorted[order]) return false;
    for (i32 i = vx_plan_stage_begin(plan, making->stage);
         i < plan->stage_ends[making->stage]; i++)
        if (making->places->sorted_of[i] == order) return true;
    return false;
}

/* Sorts the rows by their masks, for each map whose algorithms need it. */
static vx_status sort(struct vx_gpu_making *making)
{
    struct vx_gpu_round *round = making->round;
    struct vx_gpu_map *maps = round->model->gpu->sorted;
    struct vx_gpu_order_job jobs[VX_LAYERS_MAX];
    i32 count = 0;
    for (i32 i = 0; i < making->places->sorted_count; i++) {
        const struct vx_gpu_sorted *sorted = &making->places->sorted[i];
        if (!order_is_now(making, i)) continue;
        round->sorted[i] = true;
        jobs[count++] = (struct vx_gpu_order_job){
            vx_gpu_sorted_want(making->forward->choices, making->places->rows, sorted),
            &maps[i], round->block + making->places->order_scratch + sorted->scratch};
    }
    return vx_gpu_orders_build(&making->queue, &round->lane->upload, jobs, count,
                               making->why);
}

vx_status vx_gpu_making_orders(struct vx_gpu_making *making)
{
    if (making->plan->levels && !making->ordered_late) VX_TRY(build_ordered(making));
    if (making->makes)
        VX_TRY(join(making, JOIN_MAPS | (making->ordered_late ? 0 : JOIN_ORDERED)));
    return sort(making);
}
