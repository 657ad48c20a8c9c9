/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer/infer_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/ipc/channel.h"

#include <string.h>

/* ------- to the worker ------- */

static struct vx_run_item infer_run_item(const struct vx_infer *infer,
                                         const struct vx_call *call)
{
    const struct vx_admitted *admitted = &call->admitted;
    struct vx_run_item item = {
        .coords_ref = vx_infer_coords_ref(call),
        .origin = call->names_origin,
        .feats = admitted->feats->place,
        .voxels = admitted->voxels,
        .coords_columns = admitted->coords ? admitted->coords_columns : 4,
        .feats_dtype = admitted->feats_dtype,
        .asks = vx_infer_asks(infer, call),
        .says_taken = call->request.layers,
    };
    if (admitted->coords) item.coords = admitted->coords->place;
    memcpy(item.shape, admitted->shape, sizeof item.shape);
    memcpy(item.outputs, call->outputs, sizeof item.outputs);
    return item;
}

static void sent_note(struct vx_infer *infer, const struct vx_batch_plan *plan)
{
    struct vx_infer_sent *sent = infer->sent[plan->worker];
    i32 at = 0; /* the first if all are taken, which must not happen */
    for (i32 i = 0; i < VX_WORKER_DEPTH; i++)
        if (!sent[i].batch) at = i;
    sent[at] = (struct vx_infer_sent){plan->batch, vx_clock_ns()};
}

static struct vx_infer_sent sent_take(struct vx_infer *infer, i32 worker, u64 batch)
{
    struct vx_infer_sent found = {0};
    for (i32 i = 0; i < VX_WORKER_DEPTH; i++) {
        struct vx_infer_sent *sent = &infer->sent[worker][i];
        if (sent->batch != batch) continue;
        found = *sent;
        *sent = (struct vx_infer_sent){0};
    }
    return found;
}

static void infer_send(struct vx_infer *infer, const struct vx_batch_plan *plan)
{
    struct vx_message_run *run = &infer->run;
    run->head = (struct vx_message_head){VX_MESSAGE_RUN, plan->instance, plan->batch};
    run->brief = plan->brief;
    run->items_count = plan->jobs_count;
    for (i32 i = 0; i < plan->jobs_count; i++)
        run->items[i] = infer_run_item(infer, vx_call_of_job(plan->jobs[i]));
    sent_note(infer, plan);
    if (!vx_workers_send(infer->workers, plan->worker, &run->head,
                         vx_message_run_bytes(run->items_count)))
        vx_sched_undelivered(infer->sched, plan->worker, plan->batch);
}

static void infer_on_late(void *context, struct vx_job *job)
{
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    i64 waited_ms = (vx_clock_ns() - job->queued_ns) / VX_NS_PER_MS;
    /* `timeout` limits the time in the queue and has Triton's words; the gRPC deadline is
     * the caller's. */
    vx_why_set(&why,
               job->by_timeout
                   ? "Request timeout expired: it waited %lld ms for a device"
                   : "the deadline passed after %lld ms of waiting for a device",
               (long long)waited_ms);
    vx_infer_fail(context, call,
                  vx_status_of_code(job->by_timeout ? VX_CODE_UNAVAILABLE
                                                    : VX_CODE_DEADLINE_EXCEEDED),
                  &why);
}

void vx_infer_dispatch(struct vx_infer *infer)
{
    i64 now_ns = vx_clock_ns();
    vx_sched_expire(infer->sched, now_ns, infer_on_late, infer);
    struct vx_batch_plan plan;
    while (vx_sched_pick(infer->sched, now_ns, &plan)) infer_send(infer, &plan);
}

/* ------- and back ------- */

/* The entry of its geometry was stale.  True: another worker holds the geometry, and the
 * job waits for that one. */
static bool infer_try_elsewhere(struct vx_infer *infer, struct vx_call *call)
{
    struct vx_geometry_fact fact = {0};
    if (call->is_gone || !call->job.must_hold) return false;
    if (!vx_infer_find_fact(infer, call, &fact)) return false;
    call->job.holders = fact.workers & vx_infer_may_hold(infer, call);
    if (!call->job.holders) return false;
    vx_infer_forget_sizes(infer, call); /* a worker that asks and says this is damaged */
    vx_sched_resubmit(infer->sched, &call->job);
    return true;
}

/* How a call really ended.  One whose outputs found no place was refused by the front,
 * which knows why; and no worker can have written outputs that it did not ask about. */
static vx_status infer_end_status(const struct vx_call *call, vx_status status,
                                  const struct vx_why **why)
{
    const struct vx_admitted *admitted = &call->admitted;
    if (call->places_status.fault) {
        *why = &call->places_why;
        return call->places_status;
    }
    for (i32 i = 0; i < admitted->outputs_count && !status.fault; i++)
        VX_ENSURE(!vx_infer_output_later(call, admitted->outputs[i]), INTERNAL,
                  "a worker answered a request without asking where its outputs go");
    return status;
}

/* How long an item says that it took. */
static i64 item_ns(const struct vx_done_item *item)
{
    return item->convert_ns + item->geometry_ns + item->compute_ns + item->output_ns;
}

/* A geometry that the worker was said to hold, and has built, is not its client's fault. */
static void infer_ran_aside(struct vx_infer *infer, const struct vx_call *call,
                            const struct vx_infer_end *end)
{
    const bool held = call->job.holders >> end->worker & 1;
    const i64 built_ns = held ? end->done->geometry_ns : 0;
    vx_sched_ran_aside(infer->sched, &call->job, item_ns(end->done) - built_ns,
                       vx_clock_ns());
}

static void infer_on_item(struct vx_infer *infer, struct vx_call *call,
                          const struct vx_infer_end *end)
{
    struct vx_coords_ref coords_ref = vx_infer_coords_ref(call);
    const struct vx_geometry_report report = {
        .coords_ref = coords_ref,
        .origin = call->names_origin,
        .worker = end->worker,
        .voxels = call->job.voxels,
        .cost = {call->job.instance, end->done->pairs, end->done->set_voxels}};
    if (end->done->geometry_kept) vx_geometries_kept(infer->geometries, &report);
    if (end->done->ran) vx_infer_pay_made(infer, call, end);
    if (end->done->aside) infer_ran_aside(infer, call, end);
    struct vx_infer_end said = *end;
    struct vx_why why = {""};
    const struct vx_place *lost = NULL;
    said.status = infer_end_status(call, end->status, &said.why);
    if (end->done->region_lost) lost = vx_infer_region_held(call, end->done->region_lost);
    if (lost) {
        vx_regions_lost(infer->regions, lost);
    } else if (vx_status_code(end->status) == VX_CODE_FAILED_PRECONDITION &&
               call->job.must_hold) {
        vx_geometries_gone(infer->geometries, coords_ref, end->worker);
        if (infer_try_elsewhere(infer, call)) return;
        said.status = vx_infer_unknown_geometry(call, &why);
        said.why = &why;
    }
    vx_infer_finish(infer, call, &said);
}

/* An item whose work is not known took no time if it was refused before it ran, and otherwise
 * some that belongs to none of the others. */
static bool item_is_left_out(const struct vx_done_item *item)
{
    return !item->ran || (item->code != VX_CODE_OK && item->pairs <= 0);
}

/* The time that the scheduler may learn, and in it the geometries.  What failed is taken off.  A
 * GPU says of each item how long the whole batch took, which did the work of all; a CPU runs one
 * item after the other, and says what each took. */
static void batch_end_times(const struct vx_message_done *done, struct vx_batch_end *end)
{
    i64 all_ns = 0, failed_ns = 0, failed_geometry_ns = 0, failed_output_ns = 0;
    for (i32 i = 0; i < done->items_count; i++) {
        const struct vx_done_item *item = &done->items[i];
        all_ns += item_ns(item);
        if (!item_is_left_out(item)) continue;
        failed_ns += item_ns(item);
        failed_geometry_ns += item->geometry_ns;
        failed_output_ns += item->output_ns;
    }
    end->device_ns = done->device_ns;
    end->geometry_ns = vx_infer_times_make(done).geometry_ns;
    end->output_ns = vx_infer_times_make(done).output_ns;
    if (all_ns > done->device_ns) return;
    end->device_ns -= failed_ns;
    end->geometry_ns -= failed_geometry_ns;
    end->output_ns -= failed_output_ns;
}

/* What the scheduler may learn from: of a batch in which something failed, the work of the others,
 * and on a CPU their time.  If it learned nothing of such a batch, a client that has a request
 * fail in each would keep it from learning what all others cost. */
static struct vx_batch_end infer_batch_end(i32 worker, const struct vx_message_done *done)
{
    struct vx_batch_end end = {.worker = worker,
                               .batch = done->head.serial,
                               .now_ns = vx_clock_ns(),
                               .aside = done->aside};
    batch_end_times(done, &end);
    for (i32 i = 0; i < done->items_count; i++) {
        const struct vx_done_item *item = &done->items[i];
        if (item_is_left_out(item)) {
            end.left_out |= UINT64_C(1) << i;
            continue;
        }
        end.pairs += item->pairs;
        end.set_voxels += item->set_voxels;
    }
    return end;
}

/* A worker that answers a different number of items than it was sent has damaged memory:
 * none of its answers counts, and its batches wait again once it is dead. */
static bool infer_trusts(const struct vx_infer *infer, i32 worker,
                         const struct vx_message_done *done)
{
    i32 jobs = vx_sched_batch_jobs(infer->sched, worker, done->head.serial);
    if (!jobs || jobs == done->items_count) return true;
    VX_LOG(
        WORKER_WRONG,
        VX_LOG_TEXT("why", "a worker answered a batch with a wrong number of requests"),
        VX_LOG_I64("worker", worker), VX_LOG_I64("sent", jobs),
        VX_LOG_I64("answered", done->items_count));
    return false;
}

void vx_infer_on_done(struct vx_infer *infer, i32 worker,
                      const struct vx_message_done *done)
{
    struct vx_batch_plan *plan = &infer->plan;
    if (!infer_trusts(infer, worker, done)) {
        vx_workers_kill(infer->workers, worker);
        return;
    }
    const struct vx_batch_end end = infer_batch_end(worker, done);
    struct vx_infer_sent sent = sent_take(infer, worker, end.batch);
    if (!vx_sched_finish(infer->sched, &end, plan)) return;
    vx_infer_count_batch(
        infer, &(struct vx_infer_batch){
                   .plan = plan, .done = done, .sent = sent, .now_ns = end.now_ns});
    vx_rpc_answers_coming(infer->rpc, plan->jobs_count);
    for (i32 i = 0; i < plan->jobs_count; i++) {
        const struct vx_done_item *item = &done->items[i];
        infer_on_item(infer, vx_call_of_job(plan->jobs[i]),
                      &(struct vx_infer_end){
                          .status = vx_status_of_code((enum vx_code)item->code),
                          .why = vx_done_why(done, i),
                          .done = item,
                          .batch = done,
                          .worker = worker,
                          .batch_items = plan->jobs_count,
                          .batch_voxels = plan->voxels,
                      });
    }
    vx_rpc_answers_coming(infer->rpc, 0);
}

static void infer_on_poison(void *context, struct vx_job *job)
{
    struct vx_infer *infer = context;
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    VX_LOG(BATCH_POISON, VX_LOG_TEXT("model", call->request.model),
           VX_LOG_TEXT("id", call->request.id), VX_LOG_I64("voxels", job->voxels),
           VX_LOG_I64("deaths", job->deaths));
    for (i32 i = 0; i < VX_INPUTS_MAX; i++)
        vx_regions_condemn(infer->regions, &call->inputs_held[i]);
    for (i32 i = 0; i < VX_REQUEST_OUTPUTS_MAX; i++)
        vx_regions_condemn(infer->regions, &call->outputs_held[i]);
    vx_why_set(
        &why,
        "%d worker processes died while this request ran; it will not be tried again",
        job->deaths);
    vx_infer_fail(infer, call, vx_status_of_code(VX_CODE_INTERNAL), &why);
}

static void infer_on_holder_gone(void *context, struct vx_job *job)
{
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    vx_status st = vx_infer_unknown_geometry(call, &why);
    vx_infer_fail(context, call, st, &why);
}

void vx_infer_on_worker_down(struct vx_infer *infer, i32 worker)
{
    vx_infer_forget_worker(infer, worker);
    memset(infer->sent[worker], 0, sizeof infer->sent[worker]);
    vx_geometries_worker_down(infer->geometries, worker);
    vx_sched_worker_down(infer->sched, worker, infer_on_poison, infer);
    vx_sched_holder_gone(infer->sched, worker, infer_on_holder_gone, infer);
}
