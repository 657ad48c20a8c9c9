/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer/infer_private.h"

#include <stdio.h>
#include <string.h>

/* A request that was refused on arrival was never in the queue. */
static i32 export_stages(const struct vx_infer_end *end,
                         const struct vx_infer_steps *steps)
{
    if (vx_infer_ran(end)) return VX_STAGES_COUNT;
    return steps->queued_ns ? VX_STAGE_QUEUE + 1 : VX_STAGE_RECEIVE + 1;
}

static void export_times(struct vx_record *record, const struct vx_call *call,
                         const struct vx_infer_steps *steps)
{
    const i64 begins_ns[VX_STAGES_COUNT] = {
        [VX_STAGE_RECEIVE] = call->arrived_ns,
        [VX_STAGE_QUEUE] = steps->decoded_ns,
        [VX_STAGE_INPUT] = steps->compute_ns,
        [VX_STAGE_GEOMETRY] = steps->input_end_ns,
        [VX_STAGE_COMPUTE] = steps->geometry_end_ns,
        [VX_STAGE_ANSWER] = steps->output_ns,
    };
    memcpy(record->times_ns, begins_ns, sizeof begins_ns);
    record->times_ns[record->stages] = steps->end_ns;
}

/* As voxeld_batch_fill_ratio: voxels of all sets, of the items that ran. */
static f64 export_fill(const struct vx_message_done *batch, i64 voxels_max)
{
    i64 voxels = 0;
    for (i32 i = 0; i < batch->items_count; i++)
        if (batch->items[i].ran) voxels += batch->items[i].set_voxels;
    return voxels_max > 0 ? (f64)voxels / (f64)voxels_max : 0;
}

static void export_run(struct vx_record *record, const struct vx_infer *infer,
                       const struct vx_call *call, const struct vx_infer_end *end)
{
    const struct vx_instance *row = vx_infer_row(infer, call);
    record->ran = true;
    record->geometry_hit = end->done->geometry_hit;
    record->worker = end->worker;
    record->pairs = end->done->pairs;
    record->batch_requests = end->batch_items;
    record->batch_voxels = end->batch_voxels;
    record->batch_fill = export_fill(end->batch, row->signature.batching.voxels_max);
    (void)snprintf(record->device, sizeof record->device, "%s",
                   vx_workers_info(infer->workers, end->worker)->device);
    if (record->code == VX_CODE_OK)
        record->bytes_out = (i64)vx_infer_bytes_out(infer, call);
}

void vx_infer_export(const struct vx_infer *infer, const struct vx_call *call,
                     const struct vx_infer_end *end, const struct vx_infer_steps *steps,
                     const struct vx_trace *trace)
{
    i32 stages = export_stages(end, steps);
    struct vx_record *record = vx_exporter_begin(infer->exporter, 1 + stages);
    if (!record) return;
    memcpy(record->trace_id, trace->trace_id, sizeof record->trace_id);
    memcpy(record->span_id, trace->span_id, sizeof record->span_id);
    memcpy(record->parent_id, trace->parent_id, sizeof record->parent_id);
    if (trace->parent_id[0])
        memcpy(record->trace_state, call->tracestate, sizeof record->trace_state);
    record->path = vx_method_get(call->method)->path;
    record->code = vx_infer_code(call, end);
    record->stages = stages;
    export_times(record, call, steps);
    if (end->status.fault) vx_infer_kept_text(call, end, record->why);
    memcpy(record->model, call->request.model, sizeof record->model);
    memcpy(record->id, call->request.id, sizeof record->id);
    record->version = call->job.instance < 0 ? 0 : vx_infer_row(infer, call)->version;
    record->voxels = call->job.voxels;
    record->bytes_in = (i64)call->body_bytes;
    if (vx_infer_ran(end)) export_run(record, infer, call, end);
    vx_exporter_end(infer->exporter);
}
