/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer/infer_private.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/utf8.h"
#include "server/call/admit.h"

#include <string.h>

static void duration_add(struct vx_duration *duration, i64 ns)
{
    duration->count++;
    duration->ns += (u64)(ns > 0 ? ns : 0);
}

/* A call that ran well, but whose client has left, counts as CANCELLED. */
enum vx_code vx_infer_code(const struct vx_call *call, const struct vx_infer_end *end)
{
    bool left = call->is_gone && !end->status.fault;
    return left ? VX_CODE_CANCELLED : vx_status_code(end->status);
}

/* The worker reports when it received the batch, when it answered, and how long its
 * device worked.  The rest of that time the batch waited for the batch before it, which
 * is queue time. */
static struct vx_infer_steps infer_steps_make(const struct vx_call *call,
                                              const struct vx_infer_end *end, i64 now_ns)
{
    struct vx_infer_steps steps = {.decoded_ns = call->decoded_ns,
                                   .queued_ns = call->job.queued_ns,
                                   .end_ns = now_ns};
    if (!vx_infer_ran(end)) return steps;
    const struct vx_message_done *batch = end->batch;
    struct vx_infer_times times = vx_infer_times_make(batch);
    i64 begin_ns = batch->sent_ns - batch->device_ns;
    if (begin_ns < batch->received_ns) begin_ns = batch->received_ns;
    steps.compute_ns = begin_ns;
    steps.input_end_ns = begin_ns + times.convert_ns;
    steps.geometry_end_ns = steps.input_end_ns + times.geometry_ns;
    steps.output_ns = steps.geometry_end_ns + times.compute_ns;
    steps.compute_end_ns = steps.output_ns + times.output_ns;
    return steps;
}

/* Time until its device began with it, or until its end; 0 if it never was in the
 * queue. */
static i64 infer_queue_ns(const struct vx_infer_steps *steps)
{
    if (!steps->queued_ns) return 0;
    return (steps->compute_ns ? steps->compute_ns : steps->end_ns) - steps->queued_ns;
}

static void infer_count_run(struct vx_instance_stats *stats, const struct vx_call *call,
                            const struct vx_done_item *done,
                            const struct vx_infer_steps *steps)
{
    stats->inference_count++;
    stats->last_inference_ms = (u64)vx_clock_wall_ms();
    stats->voxels += (u64)call->job.voxels;
    stats->pairs += (u64)done->pairs;
    stats->set_voxels += (u64)done->set_voxels;
    duration_add(&stats->success, steps->end_ns - steps->decoded_ns);
    duration_add(&stats->queue, infer_queue_ns(steps));
    duration_add(&stats->compute_input, steps->input_end_ns - steps->compute_ns);
    duration_add(&stats->compute_infer, steps->output_ns - steps->input_end_ns);
    duration_add(&stats->compute_output, steps->compute_end_ns - steps->output_ns);
    duration_add(done->geometry_hit ? &stats->geometry_hit : &stats->geometry_miss,
                 done->geometry_ns);
}

/* Whether it failed because of voxeld, a device or a model's files. */
static bool infer_is_fault(const struct vx_call *call, enum vx_code code)
{
    if (call->region_small) return false;
    return code == VX_CODE_INTERNAL || code == VX_CODE_DATA_LOSS;
}

static void infer_count_failure(struct vx_instance_stats *stats,
                                const struct vx_call *call, enum vx_code code,
                                i64 total_ns)
{
    duration_add(&stats->fail, total_ns);
    stats->broken += infer_is_fault(call, code);
    switch (code) {
    case VX_CODE_CANCELLED:
    case VX_CODE_DEADLINE_EXCEEDED: stats->cancelled++; break;
    case VX_CODE_UNAVAILABLE:
    case VX_CODE_RESOURCE_EXHAUSTED: stats->rejected++; break;
    default: break;
    }
}

/* ------- the access log and traces ------- */

static const char *infer_peer_name(enum vx_peer_kind kind)
{
    static const char *const names[] = {
        [VX_PEER_REMOTE] = "remote", [VX_PEER_LOCAL] = "local", [VX_PEER_UNIX] = "unix"};
    return names[kind];
}

/* Where the tensors were: "device" if one was there, else "region" if one was, else
 * "wire". */
static const char *infer_way(const struct vx_place *held, i32 count)
{
    const char *way = "wire";
    for (i32 i = 0; i < count; i++) {
        if (held[i].kind == VX_PLACE_DEVICE) return "device";
        if (held[i].kind == VX_PLACE_SYSTEM) way = "region";
    }
    return way;
}

u64 vx_infer_bytes_out(const struct vx_infer *infer, const struct vx_call *call)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    u64 bytes = 0;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        bytes += vx_admit_reply_tensor(signature, o, admitted->rows[o]).bytes;
    }
    return bytes;
}

static i64 us(i64 ns)
{
    return ns / VX_NS_PER_US;
}

/* Texts that a client chooses freely come last, so that they cannot push anything else
 * out of the line. */
static void infer_log_access(const struct vx_infer *infer, const struct vx_call *call,
                             const struct vx_infer_end *end,
                             const struct vx_infer_steps *steps,
                             const struct vx_trace *trace)
{
    static const struct vx_done_item nothing;
    const struct vx_done_item *done = end->done ? end->done : &nothing;
    bool well = !end->status.fault && end->done;
    char geometry[VX_COORDS_REF_SHORT_BYTES] = "";
    if (vx_coords_ref_there(call->request.coords_ref))
        vx_coords_ref_print_short(call->request.coords_ref, geometry);
    VX_LOG(
        ACCESS, VX_LOG_TEXT("code", vx_code_name(vx_infer_code(call, end))),
        VX_LOG_TEXT("method", strrchr(vx_method_get(call->method)->path, '/') + 1),
        VX_LOG_TEXT("peer", infer_peer_name(call->peer.kind)),
        VX_LOG_I64("connection", (i64)call->peer.connection),
        VX_LOG_I64("uid", call->peer.kind == VX_PEER_UNIX ? (i64)call->peer.uid : -1),
        VX_LOG_I64("voxels", call->job.voxels),
        VX_LOG_I64("bytes_in", (i64)call->body_bytes),
        VX_LOG_I64("bytes_out", well ? (i64)vx_infer_bytes_out(infer, call) : 0),
        VX_LOG_TEXT("inputs", infer_way(call->inputs_held, VX_INPUTS_MAX)),
        VX_LOG_TEXT("outputs", infer_way(call->outputs_held, VX_REQUEST_OUTPUTS_MAX)),
        VX_LOG_I64("total_us", us(steps->end_ns - call->arrived_ns)),
        VX_LOG_I64("receive_us", us(call->decoded_ns - call->arrived_ns)),
        VX_LOG_I64("queue_us", us(infer_queue_ns(steps))),
        VX_LOG_I64("input_us", us(done->convert_ns)),
        VX_LOG_I64("geometry_us", us(done->geometry_ns)),
        VX_LOG_I64("compute_us", us(done->compute_ns)),
        VX_LOG_I64("output_us", us(done->output_ns)),
        VX_LOG_I64("geometry_hit", done->geometry_hit),
        VX_LOG_I64("batch_size", end->batch_items),
        VX_LOG_I64("batch_voxels", end->batch_voxels),
        VX_LOG_I64("worker", end->done ? end->worker : -1),
        VX_LOG_TEXT("coords_ref", geometry), VX_LOG_TEXT("trace_id", trace->trace_id),
        VX_LOG_TEXT("parent_id", trace->parent_id),
        VX_LOG_TEXT("span_id", trace->span_id), VX_LOG_TEXT("token", call->ticket.name),
        VX_LOG_I64("version", call->job.instance < 0
                                  ? call->request.version
                                  : vx_infer_row(infer, call)->version),
        VX_LOG_TEXT("model", call->request.model), VX_LOG_TEXT("id", call->request.id));
}

/* Triton's names, in ns of the monotonic clock; the line's timestamp is the end, by the
 * calendar.  0 = that stage was not reached. */
static void infer_log_trace(const struct vx_call *call, const struct vx_infer_end *end,
                            const struct vx_infer_steps *steps,
                            const struct vx_trace *trace)
{
    VX_LOG(TRACE, VX_LOG_TEXT("trace_id", trace->trace_id),
           VX_LOG_TEXT("parent_id", trace->parent_id),
           VX_LOG_TEXT("span_id", trace->span_id),
           VX_LOG_TEXT("code", vx_code_name(vx_infer_code(call, end))),
           VX_LOG_I64("REQUEST_START", steps->decoded_ns),
           VX_LOG_I64("QUEUE_START", steps->queued_ns),
           VX_LOG_I64("COMPUTE_START", steps->compute_ns),
           VX_LOG_I64("COMPUTE_INPUT_END", steps->input_end_ns),
           VX_LOG_I64("COMPUTE_OUTPUT_START", steps->output_ns),
           VX_LOG_I64("COMPUTE_END", steps->compute_end_ns),
           VX_LOG_I64("REQUEST_END", steps->end_ns),
           VX_LOG_TEXT("model", call->request.model),
           VX_LOG_TEXT("id", call->request.id));
}

static void infer_log(const struct vx_infer *infer, const struct vx_call *call,
                      const struct vx_infer_end *end, const struct vx_infer_steps *steps)
{
    struct vx_trace trace =
        vx_tracing_begin(infer->tracing, call->request.model, call->traceparent);
    if (infer->config->access_log) infer_log_access(infer, call, end, steps, &trace);
    if (trace.wanted) infer_log_trace(call, end, steps, &trace);
    if (trace.exported) vx_infer_export(infer, call, end, steps, &trace);
}

/* Whether the sentence names a region: only the client that sent a region's name reads it. */
static bool infer_names_region(const struct vx_call *call, const struct vx_infer_end *end)
{
    return call->regions_status.fault && end->status.fault == call->regions_status.fault;
}

/* "(sample 0, ...)", "(0, 1, 2)". */
static bool is_voxel(const char *in)
{
    return (*in >= '0' && *in <= '9') || *in == '-' || !strncmp(in, "sample ", 7);
}

/* Workers put voxels, and nothing else that clients sent, in parentheses. */
static void hide_voxels(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        *to++ = *at;
        if (*at != '(' || !is_voxel(at + 1)) continue;
        const char *end = strchr(at, ')');
        if (!end) break;             /* the sentence was cut, perhaps inside a voxel */
        if (end - at <= 3) continue; /* shorter than any voxel */
        memcpy(to, "...", 3);
        to += 3;
        at = end - 1;
    }
    *to = '\0';
}

void vx_infer_kept_text(const struct vx_call *call, const struct vx_infer_end *end,
                        char text[VX_WHY_BYTES])
{
    const bool left = !end->status.fault;
    const struct vx_why *why = infer_names_region(call, end) ? NULL : end->why;
    vx_utf8_print(text, VX_WHY_BYTES, "%s",
                  left ? "it ran, but its client had left"
                       : vx_status_text(end->status, why));
    if (end->done) hide_voxels(text);
}

static void infer_note_failure(struct vx_infer *infer, const struct vx_call *call,
                               const struct vx_infer_end *end, enum vx_code code)
{
    struct vx_failure failure = {.code = code,
                                 .method = vx_method_get(call->method)->path,
                                 .no_model = call->job.instance < 0};
    vx_utf8_print(failure.model, sizeof failure.model, "%s", call->request.model);
    vx_infer_kept_text(call, end, failure.text);
    vx_failures_note(&infer->metrics->failures, &failure);
    if (!infer_is_fault(call, code)) return;
    VX_LOG(REQUEST_FAILED, VX_LOG_TEXT("code", vx_code_name(code)),
           VX_LOG_TEXT("why", failure.text), VX_LOG_I64("voxels", call->job.voxels),
           VX_LOG_I64("worker", end->done ? end->worker : -1),
           VX_LOG_TEXT("model", call->request.model),
           VX_LOG_TEXT("id", call->request.id));
}

void vx_infer_count(struct vx_infer *infer, const struct vx_call *call,
                    const struct vx_infer_end *end)
{
    enum vx_code code = vx_infer_code(call, end);
    struct vx_infer_steps steps = infer_steps_make(call, end, vx_clock_ns());
    struct vx_metrics_request sample = {
        .code = code,
        .total_ns = steps.end_ns - call->arrived_ns,
        .voxels = call->job.voxels,
        .bytes_in = call->body_bytes,
        .by_name = vx_coords_ref_there(call->request.coords_ref),
        .unknown_geometry = call->geometry_unknown,
        .refused_late = end->refused_late,
    };
    if (vx_infer_ran(end)) {
        sample.ran = true;
        sample.queue_ns = infer_queue_ns(&steps);
        sample.compute_ns = end->done->compute_ns;
        sample.geometry_ns = end->done->geometry_ns;
        sample.pairs = end->done->pairs;
        if (code == VX_CODE_OK) sample.bytes_out = vx_infer_bytes_out(infer, call);
    }
    vx_metrics_observe_request(infer->metrics, &sample);
    infer_log(infer, call, end, &steps);
    if (code != VX_CODE_OK) infer_note_failure(infer, call, end, code);
    if (call->job.instance < 0) return; /* there is no model to count it for */
    struct vx_instance_stats *stats = vx_infer_row(infer, call)->stats;
    if (code == VX_CODE_OK)
        infer_count_run(stats, call, end->done, &steps);
    else
        infer_count_failure(stats, call, code, steps.end_ns - steps.decoded_ns);
}

/* Items that ran together each report the time of all of them; items that ran one after
 * another report their own.  So only the proportions are used, scaled to the batch's
 * time. */
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

/* Sums over the items that ran, without those that were sent back before. */
struct batch_ran {
    i32 items, well;
    i64 voxels, set_voxels;
};
static struct batch_ran batch_ran_make(const struct vx_infer_batch *batch)
{
    struct batch_ran ran = {0};
    for (i32 i = 0; i < batch->done->items_count; i++) {
        const struct vx_done_item *item = &batch->done->items[i];
        if (!item->ran) continue;
        ran.items++;
        ran.well += item->code == VX_CODE_OK;
        ran.voxels += batch->plan->jobs[i]->voxels;
        ran.set_voxels += item->set_voxels;
    }
    return ran;
}

/* execution_count is the number of successful executions, as Triton's protocol says.
 * batch_stats: how often a batch of this size ran, and what it took. */
static void count_execution(struct vx_instance_stats *stats, i32 items,
                            const struct vx_message_done *done)
{
    struct vx_batch_stats *size = &stats->batches[items - 1];
    stats->execution_count++;
    struct vx_infer_times times = vx_infer_times_make(done);
    duration_add(&size->compute_input, times.convert_ns);
    duration_add(&size->compute_infer, times.geometry_ns + times.compute_ns);
    duration_add(&size->compute_output, times.output_ns);
}

void vx_infer_count_batch(struct vx_infer *infer, const struct vx_infer_batch *batch)
{
    const struct vx_batch_plan *plan = batch->plan;
    const struct vx_message_done *done = batch->done;
    struct vx_instance *row = vx_registry_row(infer->registry, plan->instance);
    const struct batch_ran ran = batch_ran_make(batch);
    if (!ran.items) return;
    if (ran.well) count_execution(row->stats, ran.items, done);
    struct vx_metrics_batch sample = {
        .requests = ran.items,
        .voxels = ran.voxels,
        .set_voxels = ran.set_voxels,
        .voxels_max = row->signature.batching.voxels_max,
        .device_ns = done->device_ns,
        .predicted_ns = plan->predicted_ns,
    };
    if (batch->sent.batch)
        sample.border_ns =
            done->received_ns - batch->sent.sent_ns + batch->now_ns - done->sent_ns;
    vx_metrics_observe_batch(infer->metrics, &sample);
}
