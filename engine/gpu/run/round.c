/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round.h"

#include "engine/base/process/check.h"
#include "engine/model/backend.h"
#include "engine/gpu/run/round_bad.h"
#include "engine/gpu/run/round_dense.h"
#include "engine/gpu/run/round_fills.h"
#include "engine/gpu/run/round_geometry.h"
#include "engine/gpu/run/round_work.h"
#include "engine/gpu/run/round_stages.h"
#include "engine/plan/dense.h"

bool vx_gpu_round_wants_places(const struct vx_gpu_round *round)
{
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].item->asks) return true;
    return false;
}

/* The places must outlive the launch, while the other lane may launch the same model. */
void vx_gpu_round_forward(struct vx_gpu_round *round, bool stays)
{
    struct vx_gpu_model *gpu = round->model->gpu;
    if (stays && !vx_gpu_round_staged(round)) round->places = gpu->places;
    round->forward = (struct vx_gpu_forward){
        .gpu = round->room->gpu,
        .queue = round->lane->queue,
        .host = &round->room->host,
        .choices = gpu->choices,
        .places = stays ? &round->places : &gpu->places,
        .weights = gpu->weights,
        .block = round->block,
        .item_rows = round->rows,
        .items_count = round->members_count,
    };
    for (i32 i = 0; i < round->members_count; i++)
        round->forward.items[i] = round->members[i].item;
}

vx_status vx_gpu_round_launch(struct vx_gpu_round *round, struct vx_why *why)
{
    struct vx_gpu_lane *lane = round->lane;
    vx_gpu_round_forward(round, vx_gpu_round_wants_places(round));
    if (!round->made.levels.requests_count)
        VX_TRY(vx_gpu_lane_mark(lane, VX_GPU_MARK_BEGIN, why));
    VX_TRY(vx_gpu_round_work(round, why));
    return vx_gpu_lane_mark(lane, VX_GPU_MARK_LAYERS, why);
}

/* The rows of the outputs that a member asks for; dense ones have samples instead. */
static void rows_fill(const struct vx_gpu_round *round, i32 index)
{
    const struct vx_network *network = round->model->network;
    const i64 *rows = round->rows + (i64)index * round->model->plan->sets_count;
    struct vx_item *item = round->members[index].item;
    for (i32 o = 0; o < network->outputs_count; o++)
        if (item->asks >> o & 1 && !vx_plan_is_dense(round->model->plan, o))
            item->rows[o] = rows[vx_network_set(network, network->outputs[o].layer)];
    for (i32 c = 0; c < network->coords_count; c++) {
        i32 o = network->outputs_count + c;
        if (item->asks >> o & 1) item->rows[o] = rows[network->coords[c].set];
    }
}

void vx_gpu_round_ask(struct vx_gpu_round *round, struct vx_batch *batch)
{
    for (i32 i = 0; i < round->members_count; i++) {
        const struct vx_gpu_member *member = &round->members[i];
        if (!member->item->asks || member->item->status.fault) continue;
        if (member->compared && round->lane->answers[i].differs) continue;
        member->item->status = vx_gpu_round_dense_read(round, i);
        if (member->item->status.fault) continue;
        rows_fill(round, i);
        vx_item_ask(batch, member->item);
    }
}

vx_status vx_gpu_round_outputs(struct vx_gpu_round *round, struct vx_why *why)
{
    VX_TRY(vx_gpu_forward_outputs(&round->forward, why));
    return vx_gpu_lane_mark(round->lane, VX_GPU_MARK_END, why);
}

static vx_status time_read(struct vx_gpu_round *round, struct vx_why *why)
{
    const i32 mark = round->times_count;
    i64 *ns = &round->times[mark];
    VX_TRY(vx_gpu_lane_elapsed(round->lane, (enum vx_gpu_mark)(mark - 1),
                               (enum vx_gpu_mark)mark, why, ns));
    round->device_ns += *ns;
    round->times_count++;
    return VX_OK;
}

vx_status vx_gpu_round_look(struct vx_gpu_round *round, struct vx_why *why)
{
    bool passed = true;
    while (passed && round->times_count < VX_GPU_MARKS_COUNT) {
        VX_TRY(vx_gpu_event_done(round->lane->gpu, round->lane->marks[round->times_count],
                                 why, &passed));
        if (passed) VX_TRY(time_read(round, why));
    }
    return VX_OK;
}

/* Those that were not read while the round ran, and what maps of later stages took. */
static vx_status times_end(struct vx_gpu_round *round, struct vx_why *why)
{
    i64 later, *times = round->times;
    while (round->times_count < VX_GPU_MARKS_COUNT) VX_TRY(time_read(round, why));
    VX_TRY(vx_gpu_round_stage_times(round, why, &later));
    times[VX_GPU_MARK_GEOMETRY] += times[VX_GPU_MARK_MAPS] + later;
    times[VX_GPU_MARK_LAYERS] -= later;
    return VX_OK;
}

static void times_write(const i64 times[VX_GPU_MARKS_COUNT], struct vx_item *item)
{
    item->geometry_ns = times[VX_GPU_MARK_GEOMETRY];
    item->convert_ns = times[VX_GPU_MARK_FEATS];
    item->compute_ns = times[VX_GPU_MARK_LAYERS];
    item->output_ns = times[VX_GPU_MARK_END];
}

/* result: NULL if the geometry is kept, and settled. */
static void member_cost(const struct vx_gpu_round *round, i32 index,
                        const struct vx_gpu_piece_result *result)
{
    const struct vx_gpu_member *member = &round->members[index];
    const struct vx_plan *plan = round->model->plan;
    const i64 *rows = round->rows + (i64)index * plan->sets_count;
    member->item->set_voxels = vx_plan_set_voxels(plan, rows);
    member->item->pairs =
        result ? (i64)result->pairs + vx_plan_one_pairs(plan, rows) : member->kept->pairs;
}

/* Answers a member of a round that has succeeded; counted: the lane has its faults and pairs. */
static void member_answer(struct vx_gpu_round *round, i32 index, bool counted)
{
    static const struct vx_gpu_piece_result nothing_wrong;
    struct vx_gpu_member *member = &round->members[index];
    struct vx_gpu_geometry *kept = member->kept;
    struct vx_item *item = member->item;
    struct vx_gpu_piece_result result =
        counted ? round->lane->answers[index] : nothing_wrong;
    if (item->status
            .fault) { /* in a stage, which has counted, of its dense outputs, or places */
        const i64 *rows = round->rows + (i64)index * round->model->plan->sets_count;
        if (!item->set_voxels)
            item->set_voxels = vx_plan_set_voxels(round->model->plan, rows);
        return;
    }
    if (member->compared && round->lane->answers[index].differs) {
        member->again = true;
        return;
    }
    if (result.fault[0] || result.fault[1]) {
        if (kept) vx_gpu_store_forget(round->room->store, kept);
        item->status = vx_gpu_bad_coords(round, &result, item);
        return;
    }
    member_cost(round, index, counted ? &result : NULL);
    item->geometry_hit = !member->built || member->known;
    if (!kept) return;
    kept->settled = true;
    kept->pairs = item->pairs;
    item->geometry_kept = !kept->gone;
}

static void member_fail(struct vx_gpu_round *round, i32 index, vx_status status,
                        const struct vx_why *why)
{
    struct vx_gpu_member *member = &round->members[index];
    if (!member->item->status.fault) { /* else it has failed by itself, in a stage */
        member->item->status = status;
        member->item->why = *why;
    }
    /* It is not known whether the device has written this geometry. */
    if (member->kept && member->kept->writers & round->lane->bit)
        vx_gpu_store_forget(round->room->store, member->kept);
}

/* Counts a hit or a miss of the store, for a member that was answered. */
static void member_count(const struct vx_gpu_round *round,
                         const struct vx_gpu_member *member)
{
    if (member->again || !vx_coords_ref_there(member->item->coords_ref)) return;
    const bool hit = !member->built || member->known;
    vx_gpu_store_count(round->room->store, hit && !member->item->status.fault);
}

void vx_gpu_round_finish(struct vx_gpu_round *round, vx_status status,
                         const struct vx_why *why)
{
    bool counted = vx_gpu_round_counts(round);
    struct vx_why said = {{0}};
    if (status.fault)
        said = *why;
    else
        status = times_end(round, &said);
    for (i32 i = 0; i < round->members_count; i++) {
        if (status.fault) {
            member_fail(round, i, status, &said);
            continue;
        }
        member_answer(round, i, counted);
        if (!round->members[i].item->status.fault)
            times_write(round->times, round->members[i].item);
    }
    if (!status.fault) vx_gpu_round_fills(round, counted);
    for (i32 i = 0; i < round->members_count; i++) {
        struct vx_gpu_member *member = &round->members[i];
        member_count(round, member);
        if (member->kept) member->kept->writers &= ~round->lane->bit;
        vx_gpu_store_drop(round->room->store, &member->kept);
    }
}
