/* SPDX-License-Identifier: Apache-2.0 */
#include "server/call/call_tensors.h"

#include "engine/base/process/check.h"

static vx_status use_piece(const struct vx_call_memory *memory, struct vx_call *call,
                           const struct vx_request_region *piece, struct vx_why *why,
                           struct vx_region_use *use)
{
    struct vx_regions *regions = memory->regions;
    VX_ENSURE(regions && vx_regions_serve(regions, VX_REGION_SYSTEM), UNIMPLEMENTED,
              "shared memory is not served here: send the tensors' bytes in "
              "raw_input_contents, and ask for outputs without a region");
    return vx_regions_use(regions, &call->peer, piece, why, use);
}

/* Copies the coordinates into a slot, as if they had come in the message.  The reference
 * stays: an output that overlaps them is refused on every device. */
static vx_status copy_coords(const struct vx_call_memory *memory, struct vx_why *why,
                             struct vx_request_tensor *input, struct vx_region_use *use)
{
    const struct vx_slots *slots = memory->slots;
    VX_ENSURE_WHY(slots->take(slots->context, use->bytes, &input->slot), why,
                  RESOURCE_EXHAUSTED, "no room for the request's tensors",
                  "no room for %llu bytes of input '%.60s' among the tensors in flight; "
                  "try again later",
                  (unsigned long long)use->bytes, input->name);
    VX_ENSURE_WHY(vx_regions_read(memory->regions, use,
                                  slots->memory(slots->context, &input->slot)),
                  why, FAILED_PRECONDITION, "a region was cut by its owner",
                  "input '%.60s': its shared memory was cut by its owner", input->name);
    use->copied = true;
    input->region = (struct vx_request_region){0};
    return VX_OK;
}

static vx_status take_input(const struct vx_call_memory *memory, struct vx_call *call,
                            i32 i, struct vx_why *why)
{
    struct vx_request_tensor *input = &call->request.inputs[i];
    struct vx_region_use *use = &call->inputs_use[i];
    if (!input->region.name[0]) return VX_OK;
    VX_TRY(use_piece(memory, call, &input->region, why, use));
    if (!use->bytes) { /* an empty tensor needs no region */
        vx_regions_done(memory->regions, use);
        input->region = (struct vx_request_region){0};
        return VX_OK;
    }
    if (!vx_call_is_coords(input)) return VX_OK;
    bool named = call->request.coords_named;
    VX_ENSURE_WHY(
        !use->on_device || !named, why, INVALID_ARGUMENT,
        "coords in device memory get no name",
        "coords in device memory get no name: expected input '%.60s' in the "
        "message or in system shared memory beside coords_ref, or no coords_ref; "
        "got it in region '%.127s' of a device",
        input->name, input->region.name);
    if (use->on_device || (memory->coords_in_place && !named)) return VX_OK;
    return copy_coords(memory, why, input, use);
}

static vx_status take_all(const struct vx_call_memory *memory, struct vx_call *call,
                          struct vx_why *why)
{
    const struct vx_request *request = &call->request;
    for (i32 i = 0; i < request->inputs_count; i++)
        VX_TRY(take_input(memory, call, i, why));
    for (i32 i = 0; i < request->outputs_count; i++)
        if (request->outputs_region[i].name[0])
            VX_TRY(use_piece(memory, call, &request->outputs_region[i], why,
                             &call->outputs_use[i]));
    return VX_OK;
}

vx_status vx_call_tensors_take(const struct vx_call_memory *memory, struct vx_call *call,
                               struct vx_why *why)
{
    const struct vx_slots *slots = memory->slots;
    for (i32 i = 0; i < VX_INPUTS_MAX; i++)
        call->inputs_use[i] = (struct vx_region_use){0};
    for (i32 i = 0; i < VX_REQUEST_OUTPUTS_MAX; i++)
        call->outputs_use[i] = (struct vx_region_use){0};
    vx_status st = take_all(memory, call, why);
    if (!st.fault) return VX_OK;
    vx_call_tensors_give(slots, memory->regions, call);
    return st;
}

void vx_call_regions_give(struct vx_regions *regions, struct vx_call *call)
{
    for (i32 i = 0; i < call->request.inputs_count; i++)
        if (call->inputs_use[i].region) vx_regions_done(regions, &call->inputs_use[i]);
    for (i32 i = 0; i < call->request.outputs_count; i++)
        if (call->outputs_use[i].region) vx_regions_done(regions, &call->outputs_use[i]);
}

void vx_call_tensors_give(const struct vx_slots *slots, struct vx_regions *regions,
                          struct vx_call *call)
{
    for (i32 i = 0; i < call->request.inputs_count; i++) {
        struct vx_slot *slot = &call->request.inputs[i].slot;
        if (slot->bytes) slots->give(slots->context, slot);
        *slot = (struct vx_slot){0, 0};
    }
    vx_call_regions_give(regions, call);
}
