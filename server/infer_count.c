/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer_private.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"

static void duration_add(struct vx_duration *duration, i64 ns)
{
    duration->count++;
    duration->ns += (u64)(ns > 0 ? ns : 0);
}

static void infer_count_run(struct vx_instance_stats *stats, const struct vx_call *call,
                            const struct vx_done_item *done, i64 now_ns)
{
    stats->inference_count++;
    stats->last_inference_ms = (u64)vx_clock_wall_ms();
    stats->voxels += (u64)call->job.voxels;
    stats->pairs += (u64)done->pairs;
    duration_add(&stats->success, now_ns - call->arrived_ns);
    duration_add(&stats->queue, call->job.started_ns - call->job.queued_ns);
    duration_add(&stats->compute_input, done->convert_ns + done->geometry_ns);
    duration_add(&stats->compute_infer, done->compute_ns);
    duration_add(&stats->compute_output, done->output_ns);
    duration_add(done->geometry_hit ? &stats->cache_hit : &stats->cache_miss,
                 done->geometry_ns);
}

static void infer_count_failure(struct vx_instance_stats *stats,
                                const struct vx_call *call, enum vx_code code, i64 now_ns)
{
    duration_add(&stats->fail, now_ns - call->arrived_ns);
    if (code == VX_CODE_CANCELLED || code == VX_CODE_DEADLINE_EXCEEDED)
        stats->cancelled++;
    if (code == VX_CODE_UNAVAILABLE || code == VX_CODE_RESOURCE_EXHAUSTED)
        stats->rejected++;
}

static void infer_log_access(const struct vx_infer *infer, const struct vx_call *call,
                             const struct vx_infer_end *end, i64 now_ns)
{
    if (!infer->config->access_log) return;
    const struct vx_done_item *done = end->done;
    char geometry[VX_CONTENT_TEXT_BYTES] = "";
    if (vx_content_there(call->request.coords_ref))
        vx_content_print(call->request.coords_ref, geometry);
    VX_LOG(ACCESS, VX_LOG_TEXT("model", call->request.model),
           VX_LOG_TEXT("id", call->request.id),
           VX_LOG_TEXT("code", vx_code_name(vx_status_code(end->status))),
           VX_LOG_I64("voxels", call->job.voxels),
           VX_LOG_I64("bytes_in", (i64)call->body_bytes),
           VX_LOG_I64("total_us", (now_ns - call->arrived_ns) / VX_NS_PER_US),
           VX_LOG_I64("receive_us", (call->decoded_ns - call->arrived_ns) / VX_NS_PER_US),
           VX_LOG_I64("compute_us", done ? done->compute_ns / VX_NS_PER_US : 0),
           VX_LOG_I64("geometry_us", done ? done->geometry_ns / VX_NS_PER_US : 0),
           VX_LOG_I64("geometry_hit", done ? done->geometry_hit : 0),
           VX_LOG_TEXT("geometry_ref", geometry),
           VX_LOG_I64("batch_size", end->batch_items),
           VX_LOG_I64("worker", done ? end->worker : -1),
           VX_LOG_TEXT("traceparent", call->traceparent));
}

void vx_infer_count(struct vx_infer *infer, const struct vx_call *call,
                    const struct vx_infer_end *end)
{
    i64 now_ns = vx_clock_ns();
    enum vx_code code = vx_status_code(end->status);
    struct vx_metrics_request sample = {
        .code = code,
        .total_ns = now_ns - call->arrived_ns,
        .voxels = call->job.voxels,
        .bytes_in = call->body_bytes,
        .by_name = vx_content_there(call->request.coords_ref),
        .refused_late = end->refused_late,
    };
    if (end->done) {
        sample.ran = true;
        sample.queue_ns = call->job.started_ns - call->job.queued_ns;
        sample.compute_ns = end->done->compute_ns;
        sample.geometry_ns = end->done->geometry_ns;
    }
    vx_metrics_observe_request(infer->metrics, &sample);
    infer_log_access(infer, call, end, now_ns);
    if (call->job.instance < 0) return; /* no model to book it on */
    struct vx_instance_stats *stats = &vx_infer_row(infer, call)->stats;
    if (code == VX_CODE_OK)
        infer_count_run(stats, call, end->done, now_ns);
    else
        infer_count_failure(stats, call, code, now_ns);
}

/* Items that ran in one go each say the time of all of it, those that ran one after the
 * other their own: so only the proportions are the batch's. */
struct vx_infer_times vx_infer_times_make(const struct vx_message_done *done)
{
    f64 convert = 0, geometry = 0, compute = 0, output = 0;
    for (i32 i = 0; i < done->items_count; i++) {
        convert += (f64)done->items[i].convert_ns;
        geometry += (f64)done->items[i].geometry_ns;
        compute += (f64)done->items[i].compute_ns;
        output += (f64)done->items[i].output_ns;
    }
    f64 sum = convert + geometry + compute + output;
    f64 scale = sum > 0 ? (f64)done->device_ns / sum : 0;
    return (struct vx_infer_times){.convert_ns = (i64)(convert * scale),
                                   .geometry_ns = (i64)(geometry * scale),
                                   .compute_ns = (i64)(compute * scale),
                                   .output_ns = (i64)(output * scale)};
}

/* Triton's batch_stats: how often a batch of this size ran, and what it took. */
static void count_batch_size(struct vx_instance_stats *stats,
                             const struct vx_message_done *done)
{
    struct vx_batch_stats *size = &stats->batches[done->items_count - 1];
    struct vx_infer_times times = vx_infer_times_make(done);
    duration_add(&size->compute_input, times.convert_ns + times.geometry_ns);
    duration_add(&size->compute_infer, times.compute_ns);
    duration_add(&size->compute_output, times.output_ns);
}

void vx_infer_count_batch(struct vx_infer *infer, const struct vx_infer_batch *batch)
{
    const struct vx_batch_plan *plan = batch->plan;
    const struct vx_message_done *done = batch->done;
    struct vx_instance *row = vx_registry_row(infer->registry, plan->instance);
    row->stats.execution_count++;
    count_batch_size(&row->stats, done);
    struct vx_metrics_batch sample = {
        .requests = plan->jobs_count,
        .voxels = plan->voxels,
        .voxels_max = row->signature.batching.voxels_max,
        .device_ns = done->device_ns,
        .predicted_ns = plan->predicted_ns,
    };
    if (batch->sent.batch)
        sample.border_ns =
            done->received_ns - batch->sent.sent_ns + batch->now_ns - done->sent_ns;
    vx_metrics_observe_batch(infer->metrics, &sample);
}
