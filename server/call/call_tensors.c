/* SPDX-License-Identifier: Apache-2.0 */
#include "server/call/call_tensors.h"

#include "engine/base/process/check.h"

static vx_status use_piece(const struct vx_call_memory *memory, struct vx_call *call,
                           const struct vx_request_region *piece, struct vx_why *why,
                           struct vx_place *held)
{
    struct vx_regions *regions = memory->regions;
    VX_ENSURE(regions && vx_regions_serve(regions, VX_REGION_SYSTEM), UNIMPLEMENTED,
              "shared memory is not enabled on this server: send the tensors' bytes in "
              "raw_input_contents, and ask for outputs without a region");
    return vx_regions_use(regions, &call->peer, piece, why, held);
}

/* What is copied costs its client a few bytes of a message: no more than some model might use.
 * Columns are four at most, of 32 bits. */
static vx_status check_copy(const struct vx_call_memory *memory, struct vx_why *why,
                            const struct vx_request_tensor *input, u64 bytes)
{
    if (!memory->voxels_most) return VX_OK;
    const i64 most = atomic_load_explicit(memory->voxels_most, memory_order_relaxed);
    VX_ENSURE_WHY(bytes <= (u64)most * 4 * sizeof(i32), why, RESOURCE_EXHAUSTED,
                  "more voxels than any model serves in one request",
                  "input '%.60s' has %llu bytes, and no model here serves more than %lld "
                  "voxels in one request; send fewer",
                  input->name, (unsigned long long)bytes, (long long)most);
    return VX_OK;
}

/* Copies the coordinates into a slot, as if they had come in the message.  The reference
 * stays: an output that overlaps them is refused on every device. */
static vx_status copy_coords(const struct vx_call_memory *memory, struct vx_why *why,
                             struct vx_request_tensor *input, const struct vx_place *held)
{
    const struct vx_slots *slots = memory->slots;
    if (!slots->take(slots->context, held->bytes, &input->place)) {
        VX_ENSURE_WHY(!slots->bytes || vx_slot_bytes(held->bytes) <= slots->bytes, why,
                      RESOURCE_EXHAUSTED, "a tensor needs more than the whole arena",
                      "input '%.60s' needs %llu bytes, a block of a power of two, and "
                      "arena_bytes is %llu: send fewer voxels",
                      input->name, (unsigned long long)vx_slot_bytes(held->bytes),
                      (unsigned long long)slots->bytes);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "no room for the request's tensors",
                    "no room for %llu bytes of input '%.60s' among the tensors in "
                    "flight; try again later",
                    (unsigned long long)held->bytes, input->name);
    }
    VX_ENSURE_WHY(vx_regions_read(memory->regions, held,
                                  slots->memory(slots->context, &input->place)),
                  why, FAILED_PRECONDITION, "a region was truncated by its client",
                  "input '%.60s': its shared memory object was truncated by the "
                  "client, or /dev/shm is full",
                  input->name);
    return VX_OK;
}

static vx_status take_coords(const struct vx_call_memory *memory, struct vx_why *why,
                             struct vx_request_tensor *input, bool named,
                             const struct vx_place *held)
{
    bool on_device = held->kind == VX_PLACE_DEVICE;
    VX_ENSURE_WHY(!on_device || !named, why, INVALID_ARGUMENT,
                  "coords in device memory get no coords_ref",
                  "coords in device memory get no coords_ref: send input '%.60s' in the "
                  "message or in system shared memory, or leave coords_ref out; it is in "
                  "device region '%.127s'",
                  input->name, input->region.name);
    if (!on_device && (named || !memory->coords_in_place)) {
        VX_TRY(check_copy(memory, why, input, held->bytes));
        return copy_coords(memory, why, input, held);
    }
    input->place = *held;
    return VX_OK;
}

static vx_status take_input(const struct vx_call_memory *memory, struct vx_call *call,
                            i32 i, struct vx_why *why)
{
    struct vx_request_tensor *input = &call->request.inputs[i];
    struct vx_place *held = &call->inputs_held[i];
    if (!input->region.name[0]) return VX_OK;
    VX_TRY(use_piece(memory, call, &input->region, why, held));
    if (!held->bytes) { /* an empty tensor needs no region */
        vx_regions_done(memory->regions, held);
        input->place = (struct vx_place){.kind = VX_PLACE_ARENA};
        return VX_OK;
    }
    if (input == vx_admit_coords_of(&call->request)) {
        VX_TRY(take_coords(memory, why, input, call->request.coords_named, held));
        if (input->place.kind == VX_PLACE_ARENA) call->copied_bytes = held->bytes;
        return VX_OK;
    }
    input->place = *held;
    return VX_OK;
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
                             &call->outputs_held[i]));
    return VX_OK;
}

vx_status vx_call_tensors_take(const struct vx_call_memory *memory, struct vx_call *call,
                               struct vx_why *why)
{
    const struct vx_slots *slots = memory->slots;
    call->copied_bytes = 0;
    for (i32 i = 0; i < VX_INPUTS_MAX; i++) call->inputs_held[i] = (struct vx_place){0};
    for (i32 i = 0; i < VX_REQUEST_OUTPUTS_MAX; i++)
        call->outputs_held[i] = (struct vx_place){0};
    vx_status st = take_all(memory, call, why);
    if (!st.fault) return VX_OK;
    vx_call_tensors_give(slots, memory->regions, call);
    return st;
}

static void call_regions_give(struct vx_regions *regions, struct vx_call *call)
{
    for (i32 i = 0; i < call->request.inputs_count; i++)
        if (call->inputs_held[i].region) vx_regions_done(regions, &call->inputs_held[i]);
    for (i32 i = 0; i < call->request.outputs_count; i++)
        if (call->outputs_held[i].region)
            vx_regions_done(regions, &call->outputs_held[i]);
}

u64 vx_call_tensors_bytes(const struct vx_call *call)
{
    u64 bytes = 0;
    for (i32 i = 0; i < call->request.inputs_count; i++) {
        const struct vx_place *place = &call->request.inputs[i].place;
        if (place->kind == VX_PLACE_ARENA) bytes += vx_slot_bytes(place->bytes);
    }
    return bytes;
}

void vx_call_tensors_give(const struct vx_slots *slots, struct vx_regions *regions,
                          struct vx_call *call)
{
    for (i32 i = 0; i < call->request.inputs_count; i++) {
        struct vx_place *place = &call->request.inputs[i].place;
        if (place->kind == VX_PLACE_ARENA && place->bytes)
            slots->give(slots->context, place);
        *place = (struct vx_place){0};
    }
    call_regions_give(regions, call);
}
