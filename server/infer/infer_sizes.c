/* Outputs on other sets than the request's: how many rows they have is known only when
 * its geometry is there.  Then the worker asks (SIZES), goes on with the layers, and gets
 * places or a refusal (PLACES).  Nothing is taken for them before: the most that they
 * could need is far more than they do.
 *
 *   sizes unknown -> known, placed    SIZES: regions are large enough, slots are free
 *   sizes unknown -> refused          SIZES: otherwise, or the client has left; the call
 *                                     keeps the reason, and DONE answers with it
 *   any -> sizes unknown              the worker died, or lacks the geometry: the call
 *                                     runs again
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/infer/infer_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <string.h>

/* The outputs whose size is known only while the request runs, as bits; unwanted ones
 * are none of them. */
static u32 sizes_later(const struct vx_infer *infer, const struct vx_call *call)
{
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    u32 later = 0;
    for (i32 i = 0; i < call->admitted.outputs_count; i++) {
        i32 o = call->admitted.outputs[i];
        if (signature->outputs[o].set && call->admitted.voxels) later |= 1u << o;
    }
    return later;
}

u32 vx_infer_asks(const struct vx_infer *infer, const struct vx_call *call)
{
    return sizes_later(infer, call);
}

i64 vx_infer_answer_bytes(const struct vx_infer *infer, const struct vx_call *call,
                          u32 outputs)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    i64 bytes = 0;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        if (!(outputs >> o & 1) || vx_infer_output_later(call, o)) continue;
        bytes += (i64)vx_admit_reply_tensor(signature, o, admitted->rows[o]).bytes;
    }
    return bytes;
}

void vx_infer_forget_sizes(struct vx_infer *infer, struct vx_call *call)
{
    vx_infer_give_outputs(infer, call, sizes_later(infer, call));
    vx_admit_rows(&vx_infer_row(infer, call)->signature, &call->admitted);
    call->places_status = VX_OK;
    call->region_small = false;
}

void vx_infer_forget_worker(struct vx_infer *infer, i32 worker)
{
    for (i32 b = 0; b < VX_WORKER_DEPTH; b++) {
        u64 batch = infer->sent[worker][b].batch;
        if (!batch) continue;
        i32 jobs = vx_sched_batch_jobs(infer->sched, worker, batch);
        for (i32 i = 0; i < jobs; i++)
            vx_infer_forget_sizes(infer, vx_call_of_job(vx_sched_batch_job(
                                             infer->sched, worker, batch, i)));
    }
}

/* Bytes of the dense outputs that the request wants: of all samples, or of those behind the
 * first, which may have no voxels and no end. */
static i64 dense_bytes(const struct vx_infer *infer, const struct vx_call *call,
                       bool behind_first)
{
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    i64 bytes = 0;
    for (i32 i = 0; i < call->admitted.outputs_count; i++) {
        const i32 o = call->admitted.outputs[i];
        const i64 samples = call->admitted.rows[o] - behind_first;
        if (signature->outputs[o].set == VX_OUTPUT_DENSE && samples > 0)
            bytes += (i64)vx_admit_reply_tensor(signature, o, samples).bytes;
    }
    return bytes;
}

/* One voxel of sample 511 makes 512 samples: the number of voxels says nothing of that. */
static vx_status call_pay_dense(struct vx_infer *infer, struct vx_call *call,
                                struct vx_why *why)
{
    const struct vx_access_cost cost = {
        .of = {[VX_ACCESS_VOXELS] =
                   dense_bytes(infer, call, false) / VX_SCHED_VOXEL_BYTES},
        .paid = {[VX_ACCESS_VOXELS] = call->job.voxels}};
    if (call->dense_paid || !cost.of[VX_ACCESS_VOXELS]) return VX_OK;
    VX_TRY(vx_infer_spend(infer, call, &cost, why));
    call->dense_paid = true;
    return VX_OK;
}

/* The scheduler is told what the sets had beyond what was expected, and their part of the batch's time. */
static void charge_made(struct vx_infer *infer, const struct vx_call *call,
                        const struct vx_infer_end *end)
{
    const i64 beyond = end->done->set_voxels - call->job.set_voxels;
    i64 all = 0;
    for (i32 i = 0; i < end->batch->items_count; i++)
        all += end->batch->items[i].set_voxels;
    if (!beyond || all <= 0) return;
    /* One that fails half-way makes little: what it was counted with is no credit. */
    if (beyond < 0 && end->done->code != VX_CODE_OK) return;
    const f64 part = beyond > 0 ? (f64)beyond / (f64)all : 0;
    vx_sched_charge(infer->sched, &call->job, beyond,
                    (i64)(part * (f64)end->batch->device_ns), vx_clock_ns());
}

void vx_infer_pay_made(struct vx_infer *infer, struct vx_call *call,
                       const struct vx_infer_end *end)
{
    const i64 made = end->done->set_voxels - call->job.voxels;
    /* Whatever others have paid meanwhile, what has run is paid for, and is not refused. */
    const struct vx_access_cost cost = {.of = {[VX_ACCESS_VOXELS] = made},
                                        .paid = {[VX_ACCESS_VOXELS] = VX_ACCESS_HAS_RUN}};
    struct vx_why why;
    if (!vx_infer_row(infer, call)->signature.predicts) return;
    charge_made(infer, call, end);
    if (made <= 0) return;
    vx_status st = vx_infer_spend(infer, call, &cost, &why);
    (void)st; /* a token that has been taken away pays nothing more */
}

static vx_status call_place(struct vx_infer *infer, struct vx_call *call,
                            const struct vx_sizes_item *item)
{
    struct vx_admitted *admitted = &call->admitted;
    struct vx_why *why = &call->places_why;
    u32 later = sizes_later(infer, call);
    VX_ENSURE_WHY(!call->is_gone, why, CANCELLED, "the client has left",
                  "the client has left");
    for (i32 o = 0; o < VX_REQUEST_OUTPUTS_MAX; o++)
        if (later >> o & 1) admitted->rows[o] = item->rows[o];
    for (i32 i = 0; i < admitted->outputs_count; i++)
        if (later >> admitted->outputs[i] & 1)
            VX_TRY(vx_infer_check_room(infer, call, i, why));
    VX_TRY(vx_infer_take_outputs(infer, call, why));
    return call_pay_dense(infer, call, why);
}

static void call_on_sizes(struct vx_infer *infer, struct vx_call *call,
                          const struct vx_sizes_item *item, struct vx_places_item *places)
{
    u32 later = sizes_later(infer, call);
    *places = (struct vx_places_item){.item = (i32)item->item};
    call->places_why.text[0] = '\0';
    call->places_status = call_place(infer, call, item);
    places->refused = call->places_status.fault != NULL;
    if (places->refused)
        vx_infer_give_outputs(infer, call, later);
    else
        vx_sched_answer_grows(infer->sched, &call->job,
                              vx_infer_answer_bytes(infer, call, later),
                              dense_bytes(infer, call, true));
    for (i32 o = 0; o < VX_REQUEST_OUTPUTS_MAX; o++)
        if (later >> o & 1) places->outputs[o] = call->outputs[o];
}

/* Whether the call has asked for nothing yet, and would. */
static bool call_may_ask(const struct vx_infer *infer, const struct vx_call *call)
{
    u32 later = sizes_later(infer, call);
    if (call->places_status.fault) return false;
    for (i32 o = 0; o < VX_REQUEST_OUTPUTS_MAX; o++)
        if (later >> o & 1) return vx_infer_output_later(call, o);
    return false;
}

/* A worker whose memory is damaged may say anything: it asks once for each request that
 * wants such outputs, and for no other. */
static bool sizes_are_trusted(const struct vx_infer *infer, i32 worker,
                              const struct vx_message_sizes *sizes)
{
    for (i32 i = 0; i < sizes->items_count; i++) {
        struct vx_job *job = vx_sched_batch_job(infer->sched, worker, sizes->head.serial,
                                                (i32)sizes->items[i].item);
        if (job && call_may_ask(infer, vx_call_of_job(job))) continue;
        VX_LOG(WORKER_WRONG,
               VX_LOG_TEXT("why", "a worker asked for places that no request wants"),
               VX_LOG_I64("worker", worker), VX_LOG_I64("item", sizes->items[i].item));
        return false;
    }
    return true;
}

void vx_infer_on_sizes(struct vx_infer *infer, i32 worker,
                       const struct vx_message_sizes *sizes)
{
    struct vx_message_places *places = &infer->places;
    u64 batch = sizes->head.serial;
    if (!vx_sched_batch_jobs(infer->sched, worker, batch)) return; /* a dead worker's */
    if (!sizes_are_trusted(infer, worker, sizes)) {
        vx_workers_kill(infer->workers, worker);
        return;
    }
    places->head = sizes->head;
    places->head.kind = VX_MESSAGE_PLACES;
    places->items_count = sizes->items_count;
    for (i32 i = 0; i < sizes->items_count; i++) {
        const struct vx_sizes_item *item = &sizes->items[i];
        struct vx_job *job =
            vx_sched_batch_job(infer->sched, worker, batch, (i32)item->item);
        call_on_sizes(infer, vx_call_of_job(job), item, &places->items[i]);
    }
    /* If the worker does not get it, it is about to end, and its batches run again. */
    (void)vx_workers_send(infer->workers, worker, &places->head,
                          vx_message_places_bytes(places->items_count));
}
