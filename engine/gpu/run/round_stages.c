/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/round_stages.h"

#include "engine/base/process/check.h"
#include "engine/gpu/model/model_parts.h"
#include "engine/gpu/run/round_work.h"
#include "kernels/26_set_occupancy.h"

#include <string.h>

_Static_assert(sizeof(struct vx_occupancy_set) + sizeof(struct vx_set_coords_args) <=
                   VX_GPU_STAGE_UPLOAD_EACH,
               "a set by logits, and the keys of the set that it is made from");

/* --- launched --- */

static void begin(struct vx_gpu_round *round)
{
    memset(round->sorted, 0, sizeof round->sorted);
    memset(round->made.levels.stage.left, 0, sizeof round->made.levels.stage.left);
    vx_gpu_round_forward(round, true);
}

/* The logits of each set by logits of the next stage. */
static void logits_find(struct vx_gpu_round *round)
{
    const struct vx_plan *plan = round->model->plan;
    const struct vx_gpu_forward *forward = &round->forward;
    for (i32 set = 1; set < plan->sets_count; set++) {
        if (plan->sets[set].stage != round->stage + 1) continue;
        if (!vx_set_is_predicted(&plan->sets[set].key)) continue;
        const i32 tensor = vx_plan_logits(plan, set);
        round->made.logits[set] = (struct vx_gpu_logits){vx_gpu_tensor(forward, tensor),
                                                         vx_gpu_stride(forward, tensor)};
    }
}

static vx_status stage_mark(struct vx_gpu_lane *lane, i32 stage, i32 end,
                            struct vx_why *why)
{
    return vx_gpu_event_record(lane->gpu, lane->stages[stage][end], lane->queue.stream,
                               why);
}

/* Makes the sets of the next stage, and copies their sizes out. */
static vx_status sets_launch(struct vx_gpu_round *round, struct vx_why *why)
{
    struct vx_gpu_lane *lane = round->lane;
    struct vx_gpu_levels *levels = &round->made.levels;
    struct vx_gpu_upload end = lane->upload;
    const size_t before = VX_GPU_UPLOAD_BYTES - VX_GPU_STAGE_UPLOAD;
    end.host += before;
    end.device += before;
    end.bytes = VX_GPU_STAGE_UPLOAD;
    end.used = 0;
    VX_TRY(stage_mark(lane, round->stage + 1, 0, why));
    logits_find(round);
    levels->stage.now = round->stage + 1;
    levels->stage.rows = round->rows;
    levels->stage.logits = round->made.logits;
    levels->stage.type = round->model->number;
    levels->stage.scratch = round->block + round->places.workspace;
    VX_TRY(vx_gpu_levels_build(&lane->queue, &end, levels, why));
    const struct vx_gpu_copy copy = {lane->counts, levels->counts,
                                     vx_gpu_levels_counts_bytes(levels)};
    VX_TRY(vx_gpu_copy_out(lane->gpu, lane->queue.stream, &copy, why));
    return vx_gpu_event_record(lane->gpu, lane->sized, lane->queue.stream, why);
}

/* The maps and layers of the round's stage.  The end of the upload is the next stage's. */
static vx_status stage_work(struct vx_gpu_round *round, struct vx_why *why)
{
    struct vx_gpu_upload *upload = &round->lane->upload;
    const struct vx_gpu_sizes sizes = {round->rows, round->members_count, true,
                                       &round->densities};
    vx_gpu_places_stage(round->model->gpu->choices, &sizes, round->stage, &round->places);
    upload->bytes = VX_GPU_UPLOAD_BYTES - VX_GPU_STAGE_UPLOAD;
    vx_status status = vx_gpu_round_work(round, why);
    upload->bytes = VX_GPU_UPLOAD_BYTES;
    return status;
}

vx_status vx_gpu_round_stage_launch(struct vx_gpu_round *round, struct vx_why *why)
{
    if (!round->stage) begin(round);
    VX_TRY(stage_work(round, why));
    if (vx_gpu_round_stage_last(round))
        return vx_gpu_lane_mark(round->lane, VX_GPU_MARK_LAYERS, why);
    return sets_launch(round, why);
}

vx_status vx_gpu_round_stage_times(const struct vx_gpu_round *round, struct vx_why *why,
                                   i64 *ns)
{
    struct vx_gpu_lane *lane = round->lane;
    *ns = 0;
    for (i32 s = 1; s < round->model->plan->stages_count; s++) {
        f64 elapsed;
        VX_TRY(vx_gpu_event_elapsed(lane->gpu, lane->stages[s][0], lane->stages[s][1],
                                    why, &elapsed));
        *ns += (i64)elapsed;
    }
    return VX_OK;
}

/* --- read --- */

/* Checks a set of a member. */
static vx_status set_check(const struct vx_gpu_round *round, i32 index, i32 set,
                           struct vx_why *why)
{
    const struct vx_plan *plan = round->model->plan;
    const struct vx_brick_counts counts =
        vx_gpu_levels_count(&round->made.levels, index, set, round->lane->counts);
    const u64 key = ~counts.bad;
    const i32 voxel[4] = {vx_key_sample(key), vx_key_axis(key, 0), vx_key_axis(key, 1),
                          vx_key_axis(key, 2)};
    if (!vx_set_is_predicted(&plan->sets[set].key))
        return vx_plan_check_set(plan, set, counts.rows, !counts.fault[0], why);
    if (counts.bad)
        return vx_plan_not_a_number(plan, set, voxel, (i32)counts.bad_child, why);
    return vx_plan_check_set(plan, set, counts.live, true, why);
}

static vx_status rows_read(struct vx_gpu_round *round, i32 index)
{
    const struct vx_plan *plan = round->model->plan;
    struct vx_why *why = &round->members[index].item->why;
    i64 *rows = round->rows + (i64)index * plan->sets_count;
    for (i32 set = 1; set < plan->sets_count; set++)
        if (plan->sets[set].stage == round->stage)
            VX_TRY(set_check(round, index, set, why));
    return vx_gpu_levels_rows(&round->made.levels, index, round->lane->counts, why, rows);
}

/* What a member that fails costs: the sets so far, and of this stage's, which the device has made,
 * as many rows as they may have. */
static i64 voxels_made(const struct vx_gpu_round *round, i32 index)
{
    const struct vx_plan *plan = round->model->plan;
    const i64 first = (i64)index * plan->sets_count;
    i64 sum = 0;
    for (i32 set = 0; set < plan->sets_count; set++) {
        i64 rows = round->rows[first + set];
        if (plan->sets[set].stage == round->stage) {
            const struct vx_brick_counts counts =
                vx_gpu_levels_count(&round->made.levels, index, set, round->lane->counts);
            const i64 most = round->made.bounds[first + set];
            rows = vx_set_is_predicted(&plan->sets[set].key) ? counts.live : counts.rows;
            if (rows > most) rows = most;
        }
        sum += rows;
    }
    return sum;
}

void vx_gpu_round_stage_read(struct vx_gpu_round *round)
{
    const struct vx_plan *plan = round->model->plan;
    struct vx_gpu_levels_stage *stage = &round->made.levels.stage;
    round->stage++;
    VX_ASSERT(stage->now == round->stage);
    for (i32 i = 0; i < round->members_count; i++) {
        if (stage->left[i]) continue;
        vx_status status = rows_read(round, i);
        if (!status.fault) continue;
        round->members[i].item->status = status;
        round->members[i].item->set_voxels = voxels_made(round, i);
        stage->left[i] = true;
        for (i32 set = 1; set < plan->sets_count; set++)
            if (plan->sets[set].stage >= round->stage)
                round->rows[(i64)i * plan->sets_count + set] = 0;
    }
}
