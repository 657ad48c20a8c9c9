/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer/infer_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/call/admit.h"
#include "server/call/call_tensors.h"

#include <stdio.h>
#include <string.h>

/* ------- the end of a call ------- */

static void reply_add(struct vx_reply *reply, const char *name, i64 number)
{
    VX_ASSERT(reply->parameters_count < VX_REPLY_PARAMETERS_MAX);
    struct vx_reply_parameter *p = &reply->parameters[reply->parameters_count++];
    *p = (struct vx_reply_parameter){.kind = VX_PARAMETER_I64, .number = number};
    snprintf(p->name, sizeof p->name, "%s", name);
}

/* Adds what the parameter `timing` asks for. */
static void reply_add_timing(const struct vx_infer *infer, const struct vx_call *call,
                             const struct vx_infer_end *end, struct vx_reply *reply)
{
    reply_add(reply, "queue_ns", call->job.started_ns - call->job.queued_ns);
    reply_add(reply, "convert_ns", end->done->convert_ns);
    reply_add(reply, "geometry_ns", end->done->geometry_ns);
    reply_add(reply, "compute_ns", end->done->compute_ns);
    reply_add(reply, "output_ns", end->done->output_ns);
    reply_add(reply, "total_ns", vx_clock_ns() - call->arrived_ns);
    reply_add(reply, "geometry_hit", end->done->geometry_hit);
    reply->parameters[reply->parameters_count - 1].kind = VX_PARAMETER_BOOL;
    reply_add(reply, "pairs", end->done->pairs);
    reply_add(reply, "set_voxels", end->done->set_voxels);
    reply_add(reply, "batch_size", end->batch_items);
    reply_add(reply, "batch_voxels", end->batch_voxels);
    reply_add(reply, "device", 0);
    struct vx_reply_parameter *device = &reply->parameters[reply->parameters_count - 1];
    device->kind = VX_PARAMETER_TEXT;
    snprintf(device->text, sizeof device->text, "%s:%d",
             vx_workers_info(infer->workers, end->worker)->device, end->worker);
    if (!call->request.layers || !end->batch) return;
    const char *taken = vx_done_taken(end->batch, end->done);
    if (!taken) return;
    reply_add(reply, "layers", 0);
    struct vx_reply_parameter *layers = &reply->parameters[reply->parameters_count - 1];
    layers->kind = VX_PARAMETER_TEXT;
    layers->long_text = taken;
}

/* Adds the coords_ref that a later request may send in place of these coordinates. */
static void reply_add_geometry(const struct vx_call *call, const struct vx_infer_end *end,
                               struct vx_reply *reply)
{
    if (!call->request.coords_named || !end->done->geometry_kept) return;
    reply_add(reply, "coords_ref", 0);
    struct vx_reply_parameter *name = &reply->parameters[reply->parameters_count - 1];
    name->kind = VX_PARAMETER_TEXT;
    vx_coords_ref_print(vx_infer_name(call), name->text);
}

static void infer_reply(struct vx_infer *infer, struct vx_call *call,
                        const struct vx_infer_end *end)
{
    const struct vx_instance *row = vx_infer_row(infer, call);
    struct vx_reply *reply = &infer->reply;
    struct vx_place outputs[VX_REQUEST_OUTPUTS_MAX];
    const struct vx_admitted *admitted = &call->admitted;
    *reply = (struct vx_reply){.version = row->version,
                               .outputs_count = admitted->outputs_count};
    memcpy(reply->model, row->name, sizeof reply->model);
    memcpy(reply->id, call->request.id, sizeof reply->id);
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        reply->outputs[i] = vx_admit_reply_tensor(&row->signature, o, admitted->rows[o]);
        /* An output that went into a region has an entry, which is empty. */
        outputs[i] = vx_place_in_region(&call->outputs[o]) ? (struct vx_place){0}
                                                           : call->outputs[o];
        reply->outputs[i].bytes = outputs[i].bytes;
    }
    if (call->request.timing) reply_add_timing(infer, call, end, reply);
    if (call->method == VX_METHOD_ID_MODEL_STREAM_INFER) {
        reply_add(reply, "triton_final_response", 1);
        reply->parameters[reply->parameters_count - 1].kind = VX_PARAMETER_BOOL;
    }
    reply_add_geometry(call, end, reply);
    vx_rpc_reply_infer(infer->rpc, &call, reply, outputs);
}

void vx_infer_finish(struct vx_infer *infer, struct vx_call *call,
                     const struct vx_infer_end *end)
{
    VX_ASSERT(!call->answered && call->job.state == VX_JOB_NEW);
    vx_infer_count(infer, call, end);
    u64 bytes = vx_call_tensors_bytes(call);
    vx_call_tensors_give(vx_shared_slots(infer->shared), infer->regions, call);
    vx_rpc_gave(call, bytes);
    call->answered = true;
    if (!end->status.fault && !call->is_gone) {
        infer_reply(infer, call, end);
        return;
    }
    vx_infer_give_outputs(infer, call, UINT32_MAX);
    vx_status st = end->status;
    if (!st.fault)
        st = vx_status_of_code(VX_CODE_CANCELLED); /* it ran, but its client has left */
    vx_rpc_fail(infer->rpc, &call, st, end->why);
}

void vx_infer_fail(struct vx_infer *infer, struct vx_call *call, vx_status status,
                   const struct vx_why *why)
{
    vx_infer_finish(infer, call, &(struct vx_infer_end){.status = status, .why = why});
}

/* ------- arrival ------- */

#define HINT_BYTES 64

/* When it is worth trying again, as far as the scheduler knows. */
static const char *infer_hint(const struct vx_infer *infer, const struct vx_call *call,
                              char text[HINT_BYTES])
{
    i64 wait_ns = vx_sched_expected_wait_ns(infer->sched, &call->job, vx_clock_ns());
    if (wait_ns > 0)
        snprintf(text, HINT_BYTES, "try again in about %lld ms",
                 (long long)((wait_ns + VX_NS_PER_MS - 1) / VX_NS_PER_MS));
    else
        snprintf(text, HINT_BYTES, "try again later");
    return text;
}

/* Whether an output gets a slot now: its size is known, and it has no place. */
static bool infer_wants_slot(const struct vx_call *call, i32 i)
{
    i32 o = call->admitted.outputs[i];
    return !vx_infer_output_later(call, o) && !vx_infer_output_held(call, i) &&
           call->outputs[o].kind == VX_PLACE_NONE;
}

/* Counts the slots that outputs get now, `counted` bytes.  A client that does not read its
 * answers must not get the whole arena.  Slots count, not the tensors in them: with outputs
 * of 4 MB and 8 bytes it had twice its share. */
static vx_status infer_count_slots(struct vx_infer *infer, struct vx_call *call,
                                   struct vx_why *why, u64 *counted)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    u64 bytes = 0;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        if (infer_wants_slot(call, i))
            bytes += vx_slot_bytes(
                vx_admit_reply_tensor(signature, o, admitted->rows[o]).bytes);
    }
    VX_ENSURE_WHY(
        vx_rpc_may_take(call, bytes), why, RESOURCE_EXHAUSTED,
        "the outputs exceed the connection's share of the arena",
        "no room for %llu bytes of outputs: that exceeds the share of this connection, "
        "or of its address, of the %llu bytes for tensors in flight while others have "
        "most of them; "
        "try again when they have their answers",
        (unsigned long long)bytes, (unsigned long long)vx_shared_bytes(infer->shared));
    *counted = bytes;
    return VX_OK;
}

/* What may be in an answer beside its outputs. */
#define REPLY_BYTES_MAX                                                                  \
    ((u64)VX_MESSAGE_BYTES_MAX - VX_REPLY_HEAD_BYTES_MAX - VX_STREAM_PREFIX_BYTES_MAX)

/* A request that needs more than the whole arena never fits, whatever else ends, and an answer that
 * no message can have is refused before it is computed. */
static vx_status infer_check_sizes(const struct vx_infer *infer,
                                   const struct vx_call *call, struct vx_why *why)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    const u64 arena = vx_shared_bytes(infer->shared);
    const u64 inputs = vx_call_tensors_bytes(call);
    struct vx_reply_tensor outputs[VX_REQUEST_OUTPUTS_MAX];
    char text[VX_ADMIT_SMALLER_BYTES];
    i32 count = 0;
    u64 bytes = inputs, answer = 0;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        if (!infer_wants_slot(call, i) && call->outputs[o].kind != VX_PLACE_ARENA)
            continue;
        outputs[count] = vx_admit_reply_tensor(signature, o, admitted->rows[o]);
        answer += outputs[count].bytes;
        bytes += vx_slot_bytes(outputs[count++].bytes);
    }
    VX_ENSURE_WHY(answer <= REPLY_BYTES_MAX, why, INVALID_ARGUMENT,
                  "the reply is too large",
                  "the reply of %llu bytes exceeds gRPC's byte size limit of %d: %s",
                  (unsigned long long)answer, VX_MESSAGE_BYTES_MAX,
                  vx_admit_smaller(outputs, count, 0, text));
    VX_ENSURE_WHY(bytes <= arena, why, RESOURCE_EXHAUSTED,
                  "the request's tensors need more than the whole arena",
                  "the tensors of this request need %llu bytes, in blocks of powers of "
                  "two, and arena_bytes is %llu: %s",
                  (unsigned long long)bytes, (unsigned long long)arena,
                  vx_admit_smaller(outputs, count, inputs, text));
    return VX_OK;
}

/* Outputs get their slots here, and give them back in vx_infer_give_outputs, nowhere else: a
 * block counts for the connection as long as the call has it, and what goes into its answer
 * until that has been sent. */
vx_status vx_infer_take_outputs(struct vx_infer *infer, struct vx_call *call,
                                struct vx_why *why)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_slots *arena = vx_shared_slots(infer->shared);
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    char hint[HINT_BYTES];
    u64 left; /* counted, and not taken yet */
    VX_TRY(infer_check_sizes(infer, call, why));
    VX_TRY(infer_count_slots(infer, call, why, &left));
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = admitted->outputs[i];
        const struct vx_place *held = vx_infer_output_held(call, i);
        if (held && !vx_infer_output_later(call, o)) call->outputs[o] = *held;
        if (!infer_wants_slot(call, i)) continue;
        u64 bytes = vx_admit_reply_tensor(signature, o, admitted->rows[o]).bytes;
        const bool taken = arena->take(arena->context, bytes, &call->outputs[o]);
        if (taken)
            left -= vx_slot_bytes(bytes);
        else
            vx_rpc_gave(call, left);
        VX_ENSURE_WHY(
            taken, why, RESOURCE_EXHAUSTED, "no room for the answer",
            "no room for %llu bytes of output '%.60s': %llu of %llu bytes of tensors are "
            "in flight; %s",
            (unsigned long long)bytes, signature->outputs[o].name,
            (unsigned long long)vx_shared_used(infer->shared),
            (unsigned long long)vx_shared_bytes(infer->shared),
            infer_hint(infer, call, hint));
    }
    VX_ASSERT(!left);
    return VX_OK;
}

void vx_infer_give_outputs(struct vx_infer *infer, struct vx_call *call, u32 outputs)
{
    const struct vx_slots *arena = vx_shared_slots(infer->shared);
    for (i32 o = 0; o < VX_REQUEST_OUTPUTS_MAX; o++) {
        struct vx_place *place = &call->outputs[o];
        if (!(outputs >> o & 1)) continue;
        if (place->kind == VX_PLACE_ARENA) {
            const u64 whole = vx_slot_bytes(place->bytes);
            arena->give(arena->context, place);
            vx_rpc_gave(call, whole);
        }
        *place = (struct vx_place){0};
    }
}

/* Arena bytes are limited where slots are taken; this limits the work of all requests. */
static vx_status infer_check_voxels(const struct vx_infer *infer,
                                    const struct vx_call *call, struct vx_why *why)
{
    i64 most = infer->config->voxels_max, now = vx_sched_voxels(infer->sched);
    i64 more = vx_sched_set_voxels(infer->sched, &call->job);
    char hint[HINT_BYTES];
    VX_ENSURE_WHY(!most || now + more <= most || !now, why, RESOURCE_EXHAUSTED,
                  "too many voxels are in flight",
                  "%lld voxels are in flight and %lld more would exceed the server's "
                  "voxels_max of %lld; %s",
                  (long long)now, (long long)more, (long long)most,
                  infer_hint(infer, call, hint));
    return VX_OK;
}

vx_status vx_infer_unknown_geometry(struct vx_call *call, struct vx_why *why)
{
    call->geometry_unknown = true;
    char name[VX_COORDS_REF_SHORT_BYTES];
    vx_coords_ref_print_short(call->request.coords_ref, name);
    VX_FAIL_WHY(why, FAILED_PRECONDITION, "the geometry is not known here",
                "coords_ref '%s' is not known here, or no longer: send coords again",
                name);
}

/* Writes into the job what the front knows of its geometry. */
static vx_status infer_find_geometry(struct vx_infer *infer, struct vx_call *call,
                                     struct vx_why *why)
{
    struct vx_geometry_fact fact = {0};
    if (vx_coords_ref_there(vx_infer_name(call)) &&
        vx_infer_find_fact(infer, call, &fact)) {
        call->job.holders = fact.workers;
        /* Where features decide about voxels, the same coordinates may cost anything. */
        if (fact.cost.instance == call->job.instance &&
            !vx_infer_row(infer, call)->signature.predicts) {
            call->job.pairs = fact.cost.pairs;
            call->job.set_voxels = fact.cost.set_voxels;
        }
    }
    call->job.must_hold = vx_coords_ref_there(call->request.coords_ref);
    if (!call->job.must_hold) return VX_OK;
    /* A holder without this model or without the request's regions is no use.  If there
     * is no other, the client is asked for coords, which another worker can take. */
    call->job.holders &= vx_infer_may_hold(infer, call);
    if (!call->job.holders) return vx_infer_unknown_geometry(call, why);
    VX_ENSURE_WHY(fact.voxels == call->job.voxels, why, INVALID_ARGUMENT,
                  "feats must have one row per voxel of the geometry",
                  "input '%.60s' must have one row per voxel of the geometry that "
                  "coords_ref names, expected %lld, got %lld",
                  call->admitted.feats->name, (long long)fact.voxels,
                  (long long)call->job.voxels);
    return VX_OK;
}

_Static_assert(VX_PEER_ORIGINS <= VX_SCHED_ORIGINS, "each has its jobs counted");

static i64 infer_timeout_ns(const struct vx_call *call)
{
    i64 timeout_us = call->request.timeout_us;
    bool endless = timeout_us <= 0 || timeout_us > INT64_MAX / 4 / VX_NS_PER_US;
    return endless ? 0 : timeout_us * VX_NS_PER_US;
}

vx_status vx_infer_spend(struct vx_infer *infer, struct vx_call *call,
                         const struct vx_access_cost *cost, struct vx_why *why)
{
    if (!infer->access) return VX_OK;
    return vx_access_spend(infer->access, &call->ticket, cost, vx_clock_ns(), why);
}

/* A call was counted as a request when it arrived, a message of a stream was not. */
static vx_status infer_check_access(struct vx_infer *infer, struct vx_call *call,
                                    struct vx_why *why)
{
    const struct vx_access_cost cost = {
        .of = {[VX_ACCESS_REQUESTS] = call->method == VX_METHOD_ID_MODEL_STREAM_INFER,
               [VX_ACCESS_BYTES] = (i64)(call->body_bytes + call->copied_bytes)}};
    if (!infer->access) return VX_OK;
    VX_TRY(vx_infer_spend(infer, call, &cost, why));
    return vx_access_model(infer->access, &call->ticket, call->request.model, why);
}

static vx_status infer_admit(struct vx_infer *infer, struct vx_call *call,
                             struct vx_why *why)
{
    const struct vx_request *request = &call->request;
    i32 instance;
    VX_ENSURE(!infer->stopping, UNAVAILABLE,
              "GRPC server is shutting down and has stopped accepting new requests");
    VX_TRY(infer_check_access(infer, call, why));
    VX_TRY(vx_registry_pick(infer->registry, request->model, request->version, why,
                            &instance));
    call->job.instance = instance;
    if (call->regions_status.fault) *why = call->regions_why;
    VX_TRY(call->regions_status);
    const struct vx_instance *row = vx_infer_row(infer, call);
    VX_TRY(vx_admit(row->name, &row->signature, request, why, &call->admitted));
    call->job.voxels = call->admitted.voxels;
    call->job.answer_bytes = vx_infer_answer_bytes(infer, call, UINT32_MAX);
    call->job.asks = vx_infer_asks(infer, call) || row->signature.predicts;
    call->job.client = call->peer.connection;
    call->job.origin = call->peer.origin;
    call->job.source = call->peer.source;
    call->job.priority = request->priority;
    call->job.deadline_ns = call->deadline_ns;
    call->job.timeout_ns = infer_timeout_ns(call);
    VX_TRY(vx_infer_check_regions(infer, call, why));
    VX_TRY(infer_find_geometry(infer, call, why));
    VX_TRY(infer_check_voxels(infer, call, why));
    VX_TRY(vx_infer_take_outputs(infer, call, why));
    const struct vx_access_cost cost = {.of = {[VX_ACCESS_VOXELS] = call->job.voxels}};
    return vx_infer_spend(infer, call, &cost, why);
}

/* It waited, and gives its place to a request whose address has fewer.  Its client is told what it
 * would have been told by a queue that was full when it came. */
static void infer_make_way(struct vx_infer *infer, struct vx_call *call)
{
    struct vx_why why = {""};
    char hint[HINT_BYTES];
    vx_why_set(&why, "Exceeds maximum queue size: %d requests are already waiting; %s",
               vx_sched_queued(infer->sched), infer_hint(infer, call, hint));
    vx_infer_fail(infer, call, vx_status_of_code(VX_CODE_UNAVAILABLE), &why);
}

static vx_status infer_submit(struct vx_infer *infer, struct vx_call *call,
                              struct vx_why *why)
{
    /* Arrivals of one iteration are dispatched together, at its end.  A queue that looks
     * full only because of that is emptied first. */
    if (vx_sched_queued(infer->sched) >= infer->config->queue_max ||
        vx_sched_model_is_full(infer->sched, &call->job))
        vx_infer_dispatch(infer);
    struct vx_job *left;
    vx_status st = vx_sched_submit(infer->sched, &call->job, vx_clock_ns(), &left, why);
    if (left) infer_make_way(infer, vx_call_of_job(left));
    return st;
}

/* The scheduler has refused the job: its queue is full, or the job would come too
 * late. */
static void infer_refuse(struct vx_infer *infer, struct vx_call *call, vx_status status,
                         const struct vx_why *why)
{
    enum vx_code code = vx_status_code(status);
    bool is_full =
        code == VX_CODE_UNAVAILABLE && vx_sched_is_full(infer->sched, &call->job);
    struct vx_why hinted = {""};
    char hint[HINT_BYTES];
    if (is_full)
        vx_why_set(&hinted, "%s; %s", vx_status_text(status, why),
                   infer_hint(infer, call, hint));
    vx_infer_finish(infer, call,
                    &(struct vx_infer_end){
                        .status = status,
                        .why = is_full ? &hinted : why,
                        .refused_late = code == VX_CODE_DEADLINE_EXCEEDED ||
                                        (code == VX_CODE_UNAVAILABLE && !is_full)});
}

void vx_infer_on_call(struct vx_infer *infer, struct vx_call *call)
{
    VX_ON(LOOP);
    VX_ASSERT(call->magic == VX_CALL_MAGIC);
    call->job = (struct vx_job){.instance = -1};
    call->geometry_unknown = call->region_small = call->dense_paid = false;
    call->places_status = VX_OK;
    memset(call->outputs, 0, sizeof call->outputs);
    struct vx_why why = {""};
    vx_status st = infer_admit(infer, call, &why);
    if (st.fault)
        vx_infer_fail(infer, call, st, &why);
    else if ((st = infer_submit(infer, call, &why)).fault)
        infer_refuse(infer, call, st, &why);
}

void vx_infer_on_gone(struct vx_infer *infer, struct vx_call *call)
{
    if (call->answered) return;
    call->is_gone = true;
    if (vx_sched_cancel(infer->sched, &call->job))
        vx_infer_fail(infer, call, vx_status_of_code(VX_CODE_CANCELLED), NULL);
    /* Otherwise it runs, and vx_infer_finish sees is_gone. */
}

/* ------- what never runs ------- */

void vx_infer_on_lost(struct vx_infer *infer, struct vx_job *job)
{
    struct vx_call *call = vx_call_of_job(job);
    struct vx_why why = {""};
    vx_why_set(&why, "model '%.100s' became unavailable while the request waited",
               call->request.model);
    vx_infer_fail(infer, call, vx_status_of_code(VX_CODE_UNAVAILABLE), &why);
}

static void infer_on_drop(void *context, struct vx_job *job)
{
    struct vx_why why = {"the server is stopping, and the request did not start in time"};
    vx_infer_fail(context, vx_call_of_job(job), vx_status_of_code(VX_CODE_UNAVAILABLE),
                  &why);
}

void vx_infer_drop_all(struct vx_infer *infer)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        vx_sched_drop_instance(infer->sched, i, infer_on_drop, infer);
}
