/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/control_private.h"

#include "server/regions/regions.h"
#include "server/rpc/rpc.h"

#include "open_inference.pb-c.h"

#include <string.h>

/* The method's name without its service. */
static const char *method_name(i32 method)
{
    return strrchr(vx_method_get(method)->path, '/') + 1;
}

/* Where shared memory is not served, all six methods answer UNIMPLEMENTED. */
static vx_status check_served(const struct vx_control_question *question, i32 method,
                              enum vx_region_kind kind)
{
    struct vx_regions *regions = question->view->regions;
    VX_ENSURE_WHY(regions && vx_regions_serve(regions, VX_REGION_SYSTEM), question->why,
                  UNIMPLEMENTED, "client shared memory is off",
                  "%s is not available: the setting client_shm is off",
                  method_name(method));
    VX_ENSURE_WHY(vx_regions_serve(regions, kind), question->why, UNIMPLEMENTED,
                  "no worker has a GPU",
                  "%s is not available: no device of voxeld is a GPU",
                  method_name(method));
    return VX_OK;
}

/* An unknown client counts as a remote one without regions; it may not register any. */
static const struct vx_peer *question_peer(const struct vx_control_question *question)
{
    static const struct vx_peer nobody = {.kind = VX_PEER_REMOTE};
    return question->peer ? question->peer : &nobody;
}

/* Lists the client's regions of one kind in table order; with a name only that region. */
static i32 regions_list(const struct vx_control_question *question,
                        enum vx_region_kind kind, const char *name,
                        struct vx_region_said said[VX_REGIONS_OWNER_MAX])
{
    i32 count = 0, cursor = 0;
    struct vx_region_said one;
    while (count < VX_REGIONS_OWNER_MAX &&
           vx_regions_next(question->view->regions, question_peer(question), kind,
                           &cursor, &one))
        if (!*name || !strcmp(name, one.name)) said[count++] = one;
    return count;
}

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c only reads it, but declares no const */
}

/* ------- Status ------- */

#define SYSTEM_(name_) Inference__SystemSharedMemoryStatusResponse##name_
#define DEVICE_(name_) Inference__CudaSharedMemoryStatusResponse##name_

struct system_answer {
    SYSTEM_() response;
    SYSTEM_(__RegionStatus) values[VX_REGIONS_OWNER_MAX];
    SYSTEM_(__RegionsEntry) entries[VX_REGIONS_OWNER_MAX];
    SYSTEM_(__RegionsEntry) * list[VX_REGIONS_OWNER_MAX];
};
struct device_answer {
    DEVICE_() response;
    DEVICE_(__RegionStatus) values[VX_REGIONS_OWNER_MAX];
    DEVICE_(__RegionsEntry) entries[VX_REGIONS_OWNER_MAX];
    DEVICE_(__RegionsEntry) * list[VX_REGIONS_OWNER_MAX];
};

vx_status vx_control_system_status(struct vx_control_question *question)
{
    const Inference__SystemSharedMemoryStatusRequest *request =
        (const void *)question->request;
    struct vx_region_said said[VX_REGIONS_OWNER_MAX];
    VX_TRY(check_served(question, VX_METHOD_ID_SYSTEM_SHARED_MEMORY_STATUS,
                        VX_REGION_SYSTEM));
    i32 count = regions_list(question, VX_REGION_SYSTEM, request->name, said);
    VX_ENSURE_WHY(count || !*request->name, question->why, NOT_FOUND,
                  "no such shared memory region",
                  "Unable to find system shared memory region: '%.127s'", request->name);
    struct system_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__system_shared_memory_status_response__init(&answer->response);
    for (i32 i = 0; i < count; i++) {
        inference__system_shared_memory_status_response__region_status__init(
            &answer->values[i]);
        inference__system_shared_memory_status_response__regions_entry__init(
            &answer->entries[i]);
        answer->values[i].name = answer->entries[i].key = text_of(said[i].name);
        answer->values[i].key = text_of(said[i].key);
        answer->values[i].offset = said[i].offset;
        answer->values[i].byte_size = said[i].bytes;
        answer->entries[i].value = &answer->values[i];
        answer->list[i] = &answer->entries[i];
    }
    answer->response.n_regions = (size_t)count;
    answer->response.regions = answer->list;
    question->answer = &answer->response.base;
    return VX_OK;
}

vx_status vx_control_device_status(struct vx_control_question *question)
{
    const Inference__CudaSharedMemoryStatusRequest *request =
        (const void *)question->request;
    struct vx_region_said said[VX_REGIONS_OWNER_MAX];
    VX_TRY(
        check_served(question, VX_METHOD_ID_CUDA_SHARED_MEMORY_STATUS, VX_REGION_DEVICE));
    i32 count = regions_list(question, VX_REGION_DEVICE, request->name, said);
    VX_ENSURE_WHY(count || !*request->name, question->why, NOT_FOUND,
                  "no such shared memory region",
                  "Unable to find cuda shared memory region: '%.127s'", request->name);
    struct device_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__cuda_shared_memory_status_response__init(&answer->response);
    for (i32 i = 0; i < count; i++) {
        inference__cuda_shared_memory_status_response__region_status__init(
            &answer->values[i]);
        inference__cuda_shared_memory_status_response__regions_entry__init(
            &answer->entries[i]);
        answer->values[i].name = answer->entries[i].key = text_of(said[i].name);
        answer->values[i].device_id = (u64)said[i].device;
        answer->values[i].byte_size = said[i].bytes;
        answer->entries[i].value = &answer->values[i];
        answer->list[i] = &answer->entries[i];
    }
    answer->response.n_regions = (size_t)count;
    answer->response.regions = answer->list;
    question->answer = &answer->response.base;
    return VX_OK;
}

/* ------- Register ------- */

vx_status vx_control_system_register(struct vx_control_question *question)
{
    static const Inference__SystemSharedMemoryRegisterResponse done =
        INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    const Inference__SystemSharedMemoryRegisterRequest *request =
        (const void *)question->request;
    VX_TRY(check_served(question, VX_METHOD_ID_SYSTEM_SHARED_MEMORY_REGISTER,
                        VX_REGION_SYSTEM));
    const struct vx_region_wanted wanted = {
        .name = request->name,
        .key = request->key,
        .offset = request->offset,
        .bytes = request->byte_size,
    };
    question->answer = &done.base;
    return vx_regions_add_system(question->view->regions, question_peer(question),
                                 &wanted, question->why);
}

vx_status vx_control_device_register(struct vx_control_question *question)
{
    const Inference__CudaSharedMemoryRegisterRequest *request =
        (const void *)question->request;
    VX_TRY(check_served(question, VX_METHOD_ID_CUDA_SHARED_MEMORY_REGISTER,
                        VX_REGION_DEVICE));
    VX_ENSURE_WHY(request->raw_handle.len == VX_IPC_HANDLE_BYTES, question->why,
                  INVALID_ARGUMENT, "not a handle of device memory",
                  "expected a raw_handle of %d bytes for shared memory region '%.127s', "
                  "got %zu",
                  VX_IPC_HANDLE_BYTES, request->name, request->raw_handle.len);
    VX_ENSURE(question->waiter, UNAVAILABLE, "device memory cannot be registered now");
    const struct vx_region_wanted wanted = {
        .name = request->name,
        .handle = request->raw_handle.data,
        .device = request->device_id,
        .bytes = request->byte_size,
    };
    question->later = true;
    return vx_regions_add_device(question->view->regions, question_peer(question),
                                 &wanted, question->waiter, question->why);
}

/* ------- Unregister ------- */

vx_status vx_control_system_unregister(struct vx_control_question *question)
{
    static const Inference__SystemSharedMemoryUnregisterResponse done =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    const Inference__SystemSharedMemoryUnregisterRequest *request =
        (const void *)question->request;
    VX_TRY(check_served(question, VX_METHOD_ID_SYSTEM_SHARED_MEMORY_UNREGISTER,
                        VX_REGION_SYSTEM));
    vx_regions_remove(question->view->regions, question_peer(question), VX_REGION_SYSTEM,
                      request->name);
    question->answer = &done.base;
    return VX_OK;
}

vx_status vx_control_device_unregister(struct vx_control_question *question)
{
    static const Inference__CudaSharedMemoryUnregisterResponse done =
        INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    const Inference__CudaSharedMemoryUnregisterRequest *request =
        (const void *)question->request;
    VX_TRY(check_served(question, VX_METHOD_ID_CUDA_SHARED_MEMORY_UNREGISTER,
                        VX_REGION_DEVICE));
    vx_regions_remove(question->view->regions, question_peer(question), VX_REGION_DEVICE,
                      request->name);
    question->answer = &done.base;
    return VX_OK;
}
