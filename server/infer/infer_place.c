/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer/infer_private.h"

#include "engine/base/process/check.h"

/* A range of memory that the request reads or writes. */
struct infer_piece {
    const struct vx_place *place;
    const char *kind, *name;
    u64 bytes; /* that are really read or written */
};
struct infer_pieces {
    i32 count, inputs; /* inputs come first */
    struct infer_piece list[VX_INPUTS_MAX + VX_REQUEST_OUTPUTS_MAX];
};

const struct vx_place *vx_infer_output_held(const struct vx_call *call, i32 i)
{
    /* An output that was not asked for by name lies in no region. */
    if (i >= call->request.outputs_count) return NULL;
    return call->outputs_held[i].region ? &call->outputs_held[i] : NULL;
}

vx_status vx_infer_check_room(const struct vx_infer *infer, struct vx_call *call, i32 i,
                              struct vx_why *why)
{
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    const struct vx_place *held = vx_infer_output_held(call, i);
    i32 o = call->admitted.outputs[i];
    u64 bytes = vx_admit_reply_tensor(signature, o, call->admitted.rows[o]).bytes;
    call->region_small = held && held->bytes < bytes;
    VX_ENSURE_WHY(!call->region_small, why, INTERNAL,
                  "an output does not fit its shared memory",
                  "shared memory size specified with the request for output '%.60s' "
                  "(%llu bytes) should be at least %llu bytes to hold the results",
                  signature->outputs[o].name, (unsigned long long)held->bytes,
                  (unsigned long long)bytes);
    return VX_OK;
}

/* Refuses at once, and not after the batch has run, an output that does not fit its
 * region.  Of one whose size is not known yet, all of the place counts. */
static vx_status check_room(const struct vx_infer *infer, struct vx_call *call,
                            struct vx_why *why, struct infer_pieces *pieces)
{
    const struct vx_admitted *admitted = &call->admitted;
    const struct vx_signature *signature = &vx_infer_row(infer, call)->signature;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        const struct vx_place *held = vx_infer_output_held(call, i);
        i32 o = admitted->outputs[i];
        if (!held) continue;
        u64 bytes = held->bytes;
        if (!vx_infer_output_later(call, o)) {
            VX_TRY(vx_infer_check_room(infer, call, i, why));
            bytes = vx_admit_reply_tensor(signature, o, admitted->rows[o]).bytes;
        }
        pieces->list[pieces->count++] =
            (struct infer_piece){held, "output", call->request.outputs[i], bytes};
    }
    return VX_OK;
}

static bool overlap(const struct infer_piece *a, const struct infer_piece *b)
{
    if (a->place->region != b->place->region || !a->bytes || !b->bytes) return false;
    return a->place->offset < b->place->offset + b->bytes &&
           b->place->offset < a->place->offset + a->bytes;
}

/* Refuses an output that overlaps another tensor of the request: one of the two would be
 * garbage, and which one would depend on the device.  Inputs may share memory.  Only
 * ranges of one region are compared: one object that a client has registered under two
 * names is not detected. */
static vx_status check_overlap(const struct infer_pieces *pieces, struct vx_why *why)
{
    for (i32 i = 0; i < pieces->count; i++)
        for (i32 j = i + 1; j < pieces->count; j++) {
            const struct infer_piece *a = &pieces->list[i], *b = &pieces->list[j];
            bool reads = j < pieces->inputs;
            VX_ENSURE_WHY(reads || !overlap(a, b), why, INVALID_ARGUMENT,
                          "tensors overlap in shared memory",
                          "%s '%.60s' and %s '%.60s' overlap in their shared memory: "
                          "expected a place of its own for each output",
                          a->kind, a->name, b->kind, b->name);
        }
    return VX_OK;
}

/* Only a device's own workers can use its memory. */
static vx_status check_workers(const struct vx_infer *infer,
                               const struct infer_pieces *pieces, struct vx_call *call,
                               struct vx_why *why)
{
    u32 only = UINT32_MAX;
    for (i32 i = 0; i < pieces->count; i++)
        if (pieces->list[i].place->kind == VX_PLACE_DEVICE)
            only &= UINT32_C(1) << pieces->list[i].place->worker;
    call->job.only = only == UINT32_MAX ? 0 : only;
    VX_ENSURE(only, INVALID_ARGUMENT, "regions of one request must be on one device");
    if (!call->job.only) return VX_OK;
    VX_ENSURE_WHY(vx_models_workers(infer->models, call->job.instance) & only, why,
                  FAILED_PRECONDITION, "the model is not on the device of its regions",
                  "model '%.100s' is not loaded on the device that the request's shared "
                  "memory is on, and will not be; register memory of another device",
                  call->request.model);
    return VX_OK;
}

vx_status vx_infer_check_regions(const struct vx_infer *infer, struct vx_call *call,
                                 struct vx_why *why)
{
    const struct vx_request *request = &call->request;
    struct infer_pieces pieces = {0};
    for (i32 i = 0; i < request->inputs_count; i++)
        if (call->inputs_held[i].region)
            pieces.list[pieces.count++] =
                (struct infer_piece){&call->inputs_held[i], "input",
                                     request->inputs[i].name, call->inputs_held[i].bytes};
    pieces.inputs = pieces.count;
    VX_TRY(check_room(infer, call, why, &pieces));
    VX_TRY(check_overlap(&pieces, why));
    return check_workers(infer, &pieces, call, why);
}

u32 vx_infer_may_hold(const struct vx_infer *infer, const struct vx_call *call)
{
    u32 loaded = vx_infer_row(infer, call)->workers_loaded;
    return call->job.only ? loaded & call->job.only : loaded;
}

const struct vx_place *vx_infer_region_held(const struct vx_call *call, i32 region)
{
    for (i32 i = 0; i < call->request.inputs_count; i++)
        if (call->inputs_held[i].region == region) return &call->inputs_held[i];
    for (i32 i = 0; i < call->request.outputs_count; i++)
        if (call->outputs_held[i].region == region) return &call->outputs_held[i];
    return NULL;
}
