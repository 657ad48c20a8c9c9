/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/run/exec_job.h"
#include "engine/model/backend.h"

#include <string.h>

/* High half of the coords_ref of a warm-up's geometry; the low half is N.  A coords_ref
 * of the front is a 128-bit hash and cannot be expected to have this value. */
#define WARM_NAME UINT64_C(0x7661726d2d757021)

/* A step of a warm-up makes requests wait, so of a convolution or a linear layer it runs as many
 * rows as need so many multiplications: 10 to 40 ms on two cores.  It brings the weights from their
 * file, and every thread has run the layer; the rest of its rows would show nothing new.  With all
 * rows a layer of 256 channels at 30,000 voxels took 0.7 s. */
#define WARM_PRODUCTS (INT64_C(1) << 30)
/* But no fewer than these: two tiles. */
#define WARM_ROWS_MIN 64

/* A size that needs more memory than this on its own set is halved until it does not: a step that touches
 * gigabytes for the first time takes seconds (20 activations of 16,384 channels at 25,000 voxels: 2.7
 * to 9 s in which nobody else was answered). */
#define WARM_BYTES ((size_t)512 << 20)

static i64 warm_voxels(const struct vx_plan *plan, i64 size)
{
    for (i64 voxels = size;; voxels /= 2) {
        const i64 alone[VX_SETS_MAX] = {voxels};
        if (voxels <= WARM_ROWS_MIN || vx_plan_bytes(plan, alone) <= WARM_BYTES)
            return voxels;
    }
}

i64 vx_job_rows(const struct vx_job *job, const struct vx_launch *launch)
{
    const i64 n = job->rows[launch->set];
    const struct vx_layer *layer = launch->node->layer;
    if (!job->made_up) return n;
    const i64 groups = layer->groups ? layer->groups : 1, v = layer->v ? layer->v : 1;
    i64 rows = WARM_PRODUCTS / (v * layer->channels_in / groups * layer->channels);
    if (rows < WARM_ROWS_MIN) rows = WARM_ROWS_MIN;
    if (rows >= n) return n;
    const i64 stride = vx_plan_stride(job->plan, launch->output);
    for (i64 row = rows; row < n; row++)
        memset(job->tensors[launch->output] + row * stride, 0,
               (size_t)layer->channels * sizeof(f32));
    return rows;
}

i64 vx_exec_warm_pieces(const struct vx_plan *plan)
{
    return (i64)plan->sets_count + plan->maps_count + plan->launches_count;
}

/* Gets the geometry with its first `parts` sets and maps.  Batches that ran since the last
 * step may have evicted it; then this step builds it again. */
static vx_status warm_geometry(struct vx_job *job, i64 parts)
{
    struct vx_item *item = job->item;
    struct vx_exec *exec = job->exec;
    struct vx_coords_view view = {
        .n = item->voxels, .columns = 4, .coords_ref = item->coords_ref};
    vx_status status =
        vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry);
    if (vx_status_code(status) == VX_CODE_FAILED_PRECONDITION) {
        i32 *rows;
        VX_TRY(vx_warm_coords_open(item->voxels, &item->why, &rows));
        view.rows = rows;
        status =
            vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry);
        vx_warm_coords_close(&rows, item->voxels);
    }
    job->parts = parts;
    for (i32 stage = 0; !status.fault && stage < job->plan->stages_count; stage++)
        status = vx_job_stage(job, stage);
    return status;
}

vx_status vx_exec_warm(struct vx_exec *exec, const struct vx_plan *plan,
                       const struct vx_weights *weights,
                       const struct vx_exec_warm_piece *piece, struct vx_why *why)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == VX_EXEC_MAGIC);
    VX_ASSERT(!exec->asking.item); /* it has the block */
    VX_ASSERT(piece->voxels > 0);
    VX_ASSERT(piece->index >= 0);
    VX_ASSERT(piece->index < vx_exec_warm_pieces(plan));
    const i64 alone[VX_SETS_MAX] = {piece->voxels};
    VX_TRY(vx_exec_fits(plan, exec->bytes, alone, why));
    const i64 voxels = warm_voxels(plan, piece->voxels);
    struct vx_item item = {
        .coords_ref = {(u64)voxels, WARM_NAME}, .coords_columns = 4, .voxels = voxels};
    struct vx_job job = vx_job_make(exec, plan, weights, &item);
    job.running = (struct vx_progress){0};
    job.made_up = true;
    i64 parts = (i64)plan->sets_count + plan->maps_count, launch = piece->index - parts;
    vx_warm_shape(plan->sets[0].shape, item.voxels, item.shape);
    VX_TRY(vx_plan_shapes(plan, item.shape, why, job.shapes));
    vx_status status = warm_geometry(&job, launch < 0 ? piece->index + 1 : parts);
    for (i32 s = 0; !status.fault && launch >= 0 && s < plan->stages_count; s++)
        status = vx_job_place(&job, s);
    if (!status.fault && !launch) {
        size_t channels = (size_t)plan->graph->network->feats_channels;
        memset(job.tensors[0], 0, (size_t)item.voxels * channels * sizeof(f32));
    }
    if (!status.fault && launch >= 0) {
        vx_panic_note("launch", (u64)launch);
        vx_job_launch(&job, (i32)launch);
    }
    if (status.fault && why) *why = item.why;
    if (job.geometry) vx_geometry_drop(exec->cache, &job.geometry);
    if (status.fault || piece->index + 1 == vx_exec_warm_pieces(plan))
        vx_geometry_forget(exec->cache, item.coords_ref);
    return status;
}
