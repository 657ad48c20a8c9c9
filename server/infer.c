/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "server/admit.h"
#include "server/channel.h"

#include <stdio.h>
#include <string.h>

/* What an inference cost and how it ended; zeros for what it did not reach. */
struct infer_end {
    vx_status status;
    const struct vx_why *why;
    const struct vx_done_item *done; /* NULL when it never ran */
    i32 worker;
    i32 batch_items;
};

static struct vx_instance *infer_row(const struct vx_infer *infer,
                                     const struct vx_call *call)
{
    return vx_registry_row(infer->registry, call->job.instance);
}

static void infer_give_slots(struct vx_infer *infer, struct vx_slot *slots, i32 count)
{
    const struct vx_slots *arena = vx_shared_slots(infer->shared);
    for (i32 i = 0; i < count; i++) arena->give(arena->context, &slots[i]);
}

static void infer_give_inputs(struct vx_infer *infer, struct vx_call *call)
{
    for (i32 i = 0; i < call->request.inputs_count; i++)
        infer_give_slots(infer, &call->request.inputs[i].slot, 1);
}

/* ------- counting ------- */

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
                             const struct infer_end *end, i64 now_ns)
{
    if (!infer->config->access_log) return;
    const struct vx_done_item *done = end->done;
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
           VX_LOG_TEXT("traceparent", call->traceparent));
}

static void infer_count(struct vx_infer *infer, const struct vx_call *call,
                        const struct infer_end *end)
{
    i64 now_ns = vx_clock_ns();
    enum vx_code code = vx_status_code(end->status);
    struct vx_metrics_request sample = {
        .code = code,
        .total_ns = now_ns - call->arrived_ns,
        .voxels = call->job.voxels,
        .bytes_in = call->body_bytes,
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
    struct vx_instance_stats *stats = &infer_row(infer, call)->stats;
    if (code == VX_CODE_OK)
        infer_count_run(stats, call, end->done, now_ns);
    else
        infer_count_failure(stats, call, code, now_ns);
}

/* ------- the end of a call ------- */

static void reply_add(struct vx_reply *reply, const char *name, i64 number)
{
    VX_ASSERT(reply->parameters_count < VX_REPLY_PARAMETERS_MAX);
    struct vx_reply_parameter *p = &reply->parameters[reply->parameters_count++];
    *p = (struct vx_reply_parameter){.kind = VX_PARAMETER_I64, .number = number};
    snprintf(p->name, sizeof p->name, "%s", name);
}

/* What the request's parameter `timing` asks for. */
static void reply_add_timing(const struct vx_infer *infer, const struct vx_call *call,
                             const struct infer_end *end, struct vx_reply *reply)
{
    reply_add(reply, "queue_ns", call->job.started_ns - call->job.queued_ns);
    reply_add(reply, "geometry_ns", end->done->geometry_ns);
    reply_add(reply, "compute_ns", end->done->compute_ns);
    reply_add(reply, "total_ns", vx_clock_ns() - call->arrived_ns);
    reply_add(reply, "geometry_hit", end->done->geometry_hit);
    reply->parameters[reply->parameters_count - 1].kind = VX_PARAMETER_BOOL;
    reply_add(reply, "batch_size", end->batch_items);
    reply_add(reply, "device", 0);
    struct vx_reply_parameter *device = &reply->parameters[reply->parameters_count - 1];
    device->kind = VX_PARAMETER_TEXT;
    snprintf(device->text, sizeof device->text, "%s:%d",
             vx_workers_info(infer->workers, end->worker)->device, end->worker);
}

static void infer_reply(struct vx_infer *infer, struct vx_call *call,
                        const struct infer_end *end)
{
    const struct vx_instance *row = infer_row(infer, call);
    static struct vx_reply reply; /* the loop's alone; 6 KiB */
    struct vx_slot outputs[VX_REQUEST_OUTPUTS_MAX];
    const struct vx_admitted *admitted = &call->admitted;
    reply = (struct vx_reply){.version = row->version,
                              .outputs_count = admitted->outputs_count};
    memcpy(reply.model, row->name, sizeof reply.model);
    memcpy(reply.id, call->request.id, sizeof reply.id);
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        reply.outputs[i] = vx_admit_reply_tensor(&row->signature, o, admitted->voxels);
        outputs[i] = call->outputs[o];
    }
    if (call->request.timing) reply_add_timing(infer, call, end, &reply);
    vx_rpc_reply_infer(infer->rpc, &call, &reply, outputs);
}

/* The one way out for every call. */
static void infer_finish(struct vx_infer *infer, struct vx_call *call,
                         const struct infer_end *end)
{
    VX_ASSERT(!call->answered && call->job.state == VX_JOB_NEW);
    infer_count(infer, call, end);
    infer_give_inputs(infer, call);
    call->answered = true;
    if (!end->status.fault && !call->is_gone) {
        infer_reply(infer, call, end);
        return;
    }
    infer_give_slots(infer, call->outputs, VX_REQUEST_OUTPUTS_MAX);
    vx_status st = end->status;
    if (!st.fault)
        st = vx_status_of_code(VX_CODE_CANCELLED); /* ran, but nobody is there */
    vx_rpc_fail(infer->rpc, &call, st, end->why);
}

static void infer_fail(struct vx_infer *infer, struct vx_call *call, vx_status status,
                       const struct vx_why *why)
{
    infer_finish(infer, call, &(struct infer_end){.status = status, .why = why});
}

/* ------- arrival ------- */

static vx_status infer_take_outputs(struct vx_infer *infer, struct vx_call *call,
                                    struct vx_why *why)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_slots *arena = vx_shared_slots(infer->shared);
    const struct vx_signature *signature = &infer_row(infer, call)->signature;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        u64 bytes = vx_admit_reply_tensor(signature, o, admitted->voxels).bytes;
        VX_ENSURE_WHY(
            arena->take(arena->context, bytes, &call->outputs[o]), why,
            RESOURCE_EXHAUSTED, "no room for the answer",
            "no room for %llu bytes of output '%.60s': %llu of %llu bytes of tensors are "
            "in flight; try again later",
            (unsigned long long)bytes, signature->outputs[o].name,
            (unsigned long long)vx_shared_used(infer->shared),
            (unsigned long long)vx_shared_bytes(infer->shared));
    }
    return VX_OK;
}

static i64 infer_deadline(const struct vx_call *call)
{
    i64 timeout_us = call->request.timeout_us;
    if (timeout_us <= 0 || timeout_us > INT64_MAX / 4 / VX_NS_PER_US)
        return call->deadline_ns;
    i64 by_timeout = call->decoded_ns + timeout_us * VX_NS_PER_US;
    return by_timeout < call->deadline_ns ? by_timeout : call->deadline_ns;
}

static vx_status infer_admit(struct vx_infer *infer, struct vx_call *call,
                             struct vx_why *why)
{
    const struct vx_request *request = &call->request;
    i32 instance;
    VX_ENSURE(!infer->stopping, UNAVAILABLE,
              "GRPC server is shutting down and has stopped accepting new requests");
    VX_TRY(vx_registry_pick(infer->registry, request->model, request->version, why,
                            &instance));
    call->job.instance = instance;
    const struct vx_instance *row = infer_row(infer, call);
    VX_TRY(vx_admit(row->name, &row->signature, request, why, &call->admitted));
    VX_TRY(infer_take_outputs(infer, call, why));
    call->job.voxels = call->admitted.voxels;
    call->job.priority = request->priority;
    call->job.deadline_ns = infer_deadline(call);
    /* Arrivals of one turn are dispatched together, at its end; a queue that only looks full
     * because of that is emptied first. */
    if (vx_sched_queued(infer->sched) >= infer->config->queue_max)
        vx_infer_dispatch(infer);
    return vx_sched_submit(infer->sched, &call->job, vx_clock_ns(), why);
}

void vx_infer_on_call(struct vx_infer *infer, struct vx_call *call)
{
    VX_ON(LOOP);
    VX_ASSERT(call->magic == VX_CALL_MAGIC);
    call->job = (struct vx_job){.instance = -1};
    memset(call->outputs, 0, sizeof call->outputs);
    struct vx_why why = {""};
    vx_status st = infer_admit(infer, call, &why);
    if (st.fault) infer_fail(infer, call, st, &why);
}

void vx_infer_on_gone(struct vx_infer *infer, struct vx_call *call)
{
    if (call->answered) return;
    call->is_gone = true;
    if (vx_sched_cancel(infer->sched, &call->job))
        infer_fail(infer, call, vx_status_of_code(VX_CODE_CANCELLED), NULL);
    /* Else it runs; its end finds is_gone. */
}

/* ------- to the worker and back ------- */

static struct vx_run_item infer_run_item(const struct vx_call *call)
{
    const struct vx_admitted *admitted = &call->admitted;
    struct vx_run_item item = {
        .coords_offset = admitted->coords->slot.offset,
        .feats_offset = admitted->feats->slot.offset,
        .voxels = admitted->voxels,
        .coords_columns = admitted->coords_columns,
        .feats_dtype = admitted->feats_dtype,
    };
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++) item.outputs_offset[o] = VX_NO_OUTPUT;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        item.outputs_offset[o] = call->outputs[o].offset;
    }
    return item;
}

static void infer_send(struct vx_infer *infer, const struct vx_batch_plan *plan)
{
    static struct vx_message_run run; /* the loop's alone; 6 KiB */
    run.head = (struct vx_message_head){VX_MESSAGE_RUN, plan->instance, plan->batch};
    run.items_count = plan->jobs_count;
    for (i32 i = 0; i < plan->jobs_count; i++)
        run.items[i] = infer_run_item(vx_call_of_job(plan->jobs[i]));
    vx_workers_send(infer->workers, plan->worker, &run.head,
                    vx_message_run_bytes(run.items_count));
}

static void infer_on_late(void *context, struct vx_job *job)
{
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    i64 waited_ms = (vx_clock_ns() - job->queued_ns) / VX_NS_PER_MS;
    bool by_timeout = job->deadline_ns < call->deadline_ns;
    /* `timeout` is the queue's and has Triton's words; the gRPC deadline is the caller's.
     */
    vx_why_set(&why,
               by_timeout ? "Request timeout expired: it waited %lld ms for a device"
                          : "the deadline passed after %lld ms of waiting for a device",
               (long long)waited_ms);
    infer_fail(
        context, call,
        vx_status_of_code(by_timeout ? VX_CODE_UNAVAILABLE : VX_CODE_DEADLINE_EXCEEDED),
        &why);
}

void vx_infer_dispatch(struct vx_infer *infer)
{
    i64 now_ns = vx_clock_ns();
    vx_sched_expire(infer->sched, now_ns, infer_on_late, infer);
    struct vx_batch_plan plan;
    while (vx_sched_pick(infer->sched, now_ns, &plan)) infer_send(infer, &plan);
}

void vx_infer_on_done(struct vx_infer *infer, i32 worker,
                      const struct vx_message_done *done)
{
    struct vx_batch_plan plan;
    if (!vx_sched_finish(infer->sched, worker, done->head.batch, &plan)) return;
    VX_ASSERT(plan.jobs_count == done->items_count);
    vx_registry_row(infer->registry, plan.instance)->stats.execution_count++;
    vx_metrics_observe_batch(infer->metrics, plan.jobs_count, plan.voxels);
    for (i32 i = 0; i < plan.jobs_count; i++) {
        const struct vx_done_item *item = &done->items[i];
        infer_finish(infer, vx_call_of_job(plan.jobs[i]),
                     &(struct infer_end){
                         .status = vx_status_of_code((enum vx_code)item->code),
                         .why = &item->why,
                         .done = item,
                         .worker = worker,
                         .batch_items = plan.jobs_count,
                     });
    }
}

static void infer_on_poison(void *context, struct vx_job *job)
{
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    VX_LOG(BATCH_POISON, VX_LOG_TEXT("model", call->request.model),
           VX_LOG_TEXT("id", call->request.id), VX_LOG_I64("voxels", job->voxels),
           VX_LOG_I64("deaths", job->deaths));
    vx_why_set(
        &why,
        "%d device processes died while this request ran; it will not be tried again",
        job->deaths);
    infer_fail(context, call, vx_status_of_code(VX_CODE_INTERNAL), &why);
}

void vx_infer_on_worker_down(struct vx_infer *infer, i32 worker)
{
    vx_sched_worker_down(infer->sched, worker, infer_on_poison, infer);
}

void vx_infer_on_lost(struct vx_infer *infer, struct vx_job *job)
{
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    vx_why_set(&why, "model '%.100s' became unavailable while the request waited",
               call->request.model);
    infer_fail(infer, call, vx_status_of_code(VX_CODE_UNAVAILABLE), &why);
}

static void infer_on_drop(void *context, struct vx_job *job)
{
    struct vx_why why = {
        "the server is stopping and the request's turn did not come in time"};
    infer_fail(context, vx_call_of_job(job), vx_status_of_code(VX_CODE_UNAVAILABLE),
               &why);
}

void vx_infer_drop_all(struct vx_infer *infer)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        vx_sched_drop_instance(infer->sched, i, infer_on_drop, infer);
}
