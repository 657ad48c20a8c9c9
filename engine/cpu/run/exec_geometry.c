/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/run/exec_job.h"

#include <string.h>

struct vx_job vx_job_make(struct vx_exec *exec, const struct vx_plan *plan,
                          const struct vx_weights *weights, struct vx_item *item)
{
    struct vx_job job = {.exec = exec,
                         .plan = plan,
                         .weights = weights,
                         .item = item,
                         .block = exec->block,
                         .bytes = exec->bytes,
                         .running = exec->running,
                         .parts = INT32_MAX};
    job.rows[0] = item->voxels;
    return job;
}

vx_status vx_exec_fits(const struct vx_plan *plan, size_t bytes, const i64 *rows,
                       struct vx_why *why)
{
    size_t need = vx_plan_bytes(plan, rows);
    char text[VX_PLAN_NEED_BYTES];
    VX_ENSURE_WHY(
        need <= bytes, why, RESOURCE_EXHAUSTED,
        "the activations do not fit in the device memory",
        "%lld voxels need %zu bytes of device memory (%s), %zu are available: at most "
        "%lld voxels fit",
        (long long)rows[0], need, vx_plan_need_text(plan, text), bytes,
        (long long)vx_plan_voxels_max(plan, bytes));
    return VX_OK;
}

vx_status vx_job_fits(const struct vx_job *job, const i64 *rows)
{
    const vx_status status = vx_exec_fits(job->plan, job->bytes, rows, &job->item->why);
    job->exec->lacks = status.fault != NULL;
    return status;
}

/* The place of a tensor on a set of this stage: in the block. */
static void place_tensor(struct vx_job *job, i32 tensor, i32 stage)
{
    const struct vx_plan *plan = job->plan;
    if (plan->sets[plan->tensor_sets[tensor]].stage != stage) return;
    job->tensors[tensor] =
        (f32 *)(void *)(job->block + vx_plan_tensor_offset(plan, tensor, job->rows));
}

vx_status vx_job_place(struct vx_job *job, i32 stage)
{
    const struct vx_plan *plan = job->plan;
    const struct vx_network *network = plan->graph->network;
    struct vx_item *item = job->item;
    VX_TRY(vx_job_fits(job, job->rows));
    size_t used = vx_plan_bytes(plan, job->rows);
    if (used > job->exec->used_max) job->exec->used_max = used;
    job->exec->in_use = used;
    for (i32 i = 0; i < plan->tensors_count; i++) place_tensor(job, i, stage);
    for (i32 i = 0; i < network->outputs_count; i++)
        if (item->outputs[i] && vx_job_output_is_in_place(plan, i))
            job->tensors[plan->outputs[i]] = item->outputs[i];
    for (i32 i = 0; i < plan->tensors_count; i++) {
        const struct vx_plan_part *part = &plan->parts[i];
        if (part->whole && plan->sets[plan->tensor_sets[i]].stage <= stage)
            job->tensors[i] = job->tensors[part->whole] + part->column;
    }
    job->feats = job->tensors[0];
    if (item->feats && item->feats_dtype == VX_DTYPE_F32) job->feats = item->feats;
    return VX_OK;
}

void vx_job_tell(struct vx_job *job)
{
    i64 total = vx_exec_warm_pieces(job->plan) - 1;
    VX_ASSERT(job->told <= total);
    if (job->running.report) job->running.report(job->running.context, job->told, total);
    job->told++;
}

void vx_job_tell_again(const struct vx_job *job)
{
    i64 total = vx_exec_warm_pieces(job->plan) - 1, done = job->told ? job->told - 1 : 0;
    if (job->running.report) job->running.report(job->running.context, done, total);
}

/* --- sets --- */

/* What a warm-up takes in place of a set by logits: all children but those with z above 0,
 * which is half of most blocks, as on a surface; or all voxels.  Of the first voxels only, if
 * they would be more than the set can have.  It follows from coordinates alone and is kept. */
static vx_status stand_in(struct vx_job *job, i32 set, struct vx_geometry_made *made)
{
    const struct vx_plan *plan = job->plan;
    struct vx_set_key key = plan->sets[set].key;
    i64 most[VX_SETS_MAX], bound, children = (i64)key.stride[0] * key.stride[1];
    vx_sets_rows_max(plan->sets, plan->sets_count, job->item->voxels, most);
    bound = key.top && key.top < most[set] ? key.top : most[set];
    key.rule = VX_SET_EXPAND;
    key.from = job->sets[key.from];
    key.by = 0;
    key.kernel[2] = 1;
    if (bound < children) key.kernel[0] = key.kernel[1] = 1, children = 1;
    key.top = (i32)(bound / children);
    return vx_geometry_set(job->geometry, job->exec->cpu, &key, &job->item->why, made);
}

static vx_status predict(struct vx_job *job, i32 set, struct vx_geometry_made *made)
{
    const struct vx_plan *plan = job->plan;
    struct vx_geometry_prediction prediction = {plan->sets[set].key,
                                                job->tensors[vx_plan_logits(plan, set)]};
    i32 voxel[4], child;
    prediction.key.from = job->sets[prediction.key.from];
    if (vx_geometry_find_nan(job->geometry, job->exec->cpu, &prediction, voxel, &child))
        return vx_plan_not_a_number(plan, set, voxel, child, &job->item->why);
    return vx_geometry_predict(job->geometry, job->exec->cpu, &prediction,
                               &job->item->why, made);
}

static vx_status find_set(struct vx_job *job, i32 set, struct vx_geometry_made *made)
{
    struct vx_set_key key = job->plan->sets[set].key;
    key.from = job->sets[key.from];
    if (key.rule == VX_SET_SPCONV) memcpy(key.shape, job->shapes[set], sizeof key.shape);
    if (!vx_set_is_predicted(&key))
        return vx_geometry_set(job->geometry, job->exec->cpu, &key, &job->item->why,
                               made);
    return job->made_up ? stand_in(job, set, made) : predict(job, set, made);
}

/* Gets a set.  One that is refused counts as many rows as were looked at to count its own: those of
 * the set that it follows from, or fewer.  They are a part of what a failed request costs. */
static vx_status make_set(struct vx_job *job, i32 set)
{
    const struct vx_set *it = &job->plan->sets[set];
    struct vx_geometry_made made = {.rows_max = it->rows_max};
    vx_status status = find_set(job, set, &made);
    i64 looked = job->rows[it->key.from];
    job->sets[set] = made.number;
    job->rows[set] = status.fault && looked < made.rows ? looked : made.rows;
    VX_TRY(vx_plan_check_set(job->plan, set, made.rows, made.exact, &job->item->why));
    return status;
}

/* Whether one more part is wanted: a warm-up takes a few at a time. */
static bool parts_take(struct vx_job *job)
{
    return job->parts && job->parts--;
}

/* Gets the sets of a stage; set 0 is there. */
static vx_status stage_sets(struct vx_job *job, i32 stage)
{
    const struct vx_plan *plan = job->plan;
    for (i32 i = 0; i < plan->sets_count; i++) {
        if (plan->sets[i].stage != stage || !parts_take(job) || !i) continue;
        vx_job_tell(job);
        VX_TRY(make_set(job, i));
    }
    return VX_OK;
}

/* Gets the maps of a stage, the largest first: they find places without moving others.  A
 * request that fits does so whatever the cache held before (vx_geometry_room). */
static vx_status stage_maps(struct vx_job *job, i32 stage)
{
    const struct vx_plan *plan = job->plan;
    for (i32 i = 0; i < plan->maps_count; i++) {
        const struct vx_map_key *map = plan->maps_by_size[i];
        struct vx_map_key key = *map;
        if (vx_plan_map_stage(plan, map) != stage || !parts_take(job)) continue;
        key.from = job->sets[key.from];
        key.to = job->sets[key.to];
        vx_job_tell(job);
        VX_TRY(vx_geometry_map(job->geometry, job->exec->cpu, &key, &job->item->why,
                               &job->maps[map - plan->maps]));
    }
    return VX_OK;
}

vx_status vx_job_stage(struct vx_job *job, i32 stage)
{
    VX_TRY(stage_sets(job, stage));
    return stage_maps(job, stage);
}

/* Where there is a spatial shape, every voxel must lie in it. */
static vx_status job_shape(struct vx_job *job)
{
    struct vx_item *item = job->item;
    i32 at[4];
    i64 row =
        vx_geometry_outside(job->geometry, vx_plan_shape(job->plan, item->shape), at);
    if (row >= 0) return vx_plan_outside(job->plan, item->shape, row, at, &item->why);
    VX_TRY(vx_plan_shapes(job->plan, item->shape, &item->why, job->shapes));
    return vx_plan_check_shape(job->plan, item->shape, &item->why);
}

vx_status vx_job_hold(struct vx_job *job)
{
    struct vx_item *item = job->item;
    struct vx_exec *exec = job->exec;
    const struct vx_coords_view view = {item->coords, item->voxels, item->coords_columns,
                                        item->coords_ref, item->origin};
    VX_TRY(vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry));
    return job_shape(job);
}
