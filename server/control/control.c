/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/control_private.h"

#include "engine/base/process/check.h"
#include "proto/control.h"
#include "server/regions/regions.h"
#include "server/rpc/rpc.h"

#include "model_config.pb-c.h"
#include "open_inference.pb-c.h"

#include <stdio.h>
#include <string.h>

struct vx_control_dtype vx_control_dtype_get(enum vx_dtype dtype)
{
    static const struct vx_control_dtype spelt[] = {
        [VX_DTYPE_F32] = {"FP32", INFERENCE__DATA_TYPE__TYPE_FP32},
        [VX_DTYPE_F16] = {"FP16", INFERENCE__DATA_TYPE__TYPE_FP16},
        [VX_DTYPE_BF16] = {"BF16", INFERENCE__DATA_TYPE__TYPE_BF16},
        [VX_DTYPE_I32] = {"INT32", INFERENCE__DATA_TYPE__TYPE_INT32},
    };
    VX_ASSERT(dtype > VX_DTYPE_NONE && dtype < VX_COUNT(spelt));
    return spelt[dtype];
}

vx_status vx_control_may(struct vx_control_question *question, const char *model)
{
    struct vx_access *access = question->view->access;
    if (!access) return VX_OK;
    return vx_access_model(access, question->ticket, model, question->why);
}

bool vx_control_sees(struct vx_control_question *question, const char *model)
{
    struct vx_access *access = question->view->access;
    return !access || vx_access_sees(access, question->ticket, model);
}

const char *vx_control_token(const struct vx_control_question *question)
{
    return question->view->access ? question->ticket->name : "";
}

vx_status vx_control_pick(struct vx_control_question *question, const char *name,
                          const char *version, struct vx_instance **row)
{
    i64 number;
    i32 instance;
    VX_TRY(vx_control_may(question, name));
    VX_TRY(vx_codec_parse_version(version, question->why, &number));
    VX_TRY(vx_registry_pick(question->view->registry, name, number, question->why,
                            &instance));
    *row = vx_registry_row(question->view->registry, instance);
    return VX_OK;
}

static vx_status control_server_live(struct vx_control_question *question)
{
    static const Inference__ServerLiveResponse live = {
        PROTOBUF_C_MESSAGE_INIT(&inference__server_live_response__descriptor),
        .live = true};
    question->answer = &live.base;
    return VX_OK;
}

static vx_status control_server_ready(struct vx_control_question *question)
{
    Inference__ServerReadyResponse *answer =
        vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__server_ready_response__init(answer);
    answer->ready = question->view->ready;
    question->answer = &answer->base;
    return VX_OK;
}

/* An unknown model, and one that was unloaded, is not ready, as with Triton: who waits for a
 * model asks before it is there. */
static vx_status control_model_ready(struct vx_control_question *question)
{
    const Inference__ModelReadyRequest *request = (const void *)question->request;
    struct vx_registry *registry = question->view->registry;
    i64 version;
    i32 instance;
    VX_TRY(vx_control_may(question, request->name));
    VX_TRY(vx_codec_parse_version(request->version, question->why, &version));
    vx_status found = vx_registry_find(registry, request->name, version, NULL, &instance);
    if (vx_status_code(found) != VX_CODE_NOT_FOUND) VX_TRY(found);
    Inference__ModelReadyResponse *answer =
        vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__model_ready_response__init(answer);
    answer->ready = !found.fault && !question->view->draining &&
                    vx_instance_serves(vx_registry_row(registry, instance));
    question->answer = &answer->base;
    return VX_OK;
}

/* What is served, by Triton's names and in its order: some tools check for `statistics`.
 * schedule_policy stands for the request parameters `priority` and `timeout`. */
static char *const extensions[] = {"model_repository",
                                   "model_repository(unload_dependents)",
                                   "schedule_policy",
                                   "model_configuration",
                                   "system_shared_memory",
                                   "cuda_shared_memory",
                                   "parameters",
                                   "statistics",
                                   "trace",
                                   "logging"};

static bool extension_is_served(const struct vx_control_question *question,
                                const char *name)
{
    const struct vx_regions *regions = question->view->regions;
    if (!strcmp(name, "system_shared_memory"))
        return regions && vx_regions_serve(regions, VX_REGION_SYSTEM);
    if (!strcmp(name, "cuda_shared_memory"))
        return regions && vx_regions_serve(regions, VX_REGION_DEVICE);
    return true;
}

struct server_answer {
    Inference__ServerMetadataResponse response;
    char *list[VX_COUNT(extensions)];
};

static vx_status control_server_metadata(struct vx_control_question *question)
{
    struct server_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    Inference__ServerMetadataResponse *response = &answer->response;
    inference__server_metadata_response__init(response);
    response->name = "voxeld";
    response->version = VX_VERSION;
    response->extensions = answer->list;
    for (size_t i = 0; i < VX_COUNT(extensions); i++)
        if (extension_is_served(question, extensions[i]))
            answer->list[response->n_extensions++] = extensions[i];
    question->answer = &response->base;
    return VX_OK;
}

/* A ModelMetadataResponse and everything it points to, taken from the arena at once. */
struct metadata_answer {
    Inference__ModelMetadataResponse response;
    Inference__ModelMetadataResponse__TensorMetadata tensors[2 + VX_OUTPUTS_MAX];
    Inference__ModelMetadataResponse__TensorMetadata *tensor_list[2 + VX_OUTPUTS_MAX];
    i64 shapes[2 + VX_OUTPUTS_MAX][1 + VX_OUTPUT_DIMS_MAX];
    char versions[VX_INSTANCES_MAX][VX_CONTROL_NUMBER_BYTES];
    char *version_list[VX_INSTANCES_MAX];
};

static void metadata_set_tensor(struct metadata_answer *answer, i32 tensor, char *name,
                                enum vx_dtype dtype, i64 columns)
{
    Inference__ModelMetadataResponse__TensorMetadata *metadata = &answer->tensors[tensor];
    inference__model_metadata_response__tensor_metadata__init(metadata);
    answer->tensor_list[tensor] = metadata;
    answer->shapes[tensor][0] = -1; /* rows: any number of voxels */
    answer->shapes[tensor][1] = columns;
    metadata->name = name;
    metadata->datatype = (char *)(uintptr_t)vx_control_dtype_get(dtype).name;
    metadata->n_shape = 2;
    metadata->shape = answer->shapes[tensor];
}

static void metadata_set_output(struct metadata_answer *answer, i32 tensor,
                                struct vx_output *output)
{
    metadata_set_tensor(answer, tensor, output->name, output->dtype, output->channels);
    answer->tensors[tensor].n_shape =
        (size_t)vx_output_shape(output, -1, answer->shapes[tensor]);
}

static void metadata_set_versions(struct metadata_answer *answer,
                                  struct vx_registry *registry, const char *name)
{
    i32 cursor = 0;
    size_t count = 0;
    const struct vx_instance *row;
    while ((row = vx_registry_next(registry, &cursor))) {
        if (row->state != VX_INSTANCE_READY || strcmp(row->name, name)) continue;
        snprintf(answer->versions[count], VX_CONTROL_NUMBER_BYTES, "%lld",
                 (long long)row->version);
        answer->version_list[count] = answer->versions[count];
        count++;
    }
    answer->response.n_versions = count;
    answer->response.versions = answer->version_list;
}

static vx_status control_model_metadata(struct vx_control_question *question)
{
    const Inference__ModelMetadataRequest *request = (const void *)question->request;
    struct vx_instance *row;
    VX_TRY(vx_control_pick(question, request->name, request->version, &row));
    struct metadata_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    struct vx_signature *signature = &row->signature;
    Inference__ModelMetadataResponse *response = &answer->response;
    inference__model_metadata_response__init(response);
    response->name = row->name;
    response->platform = VX_CONTROL_PLATFORM;
    metadata_set_versions(answer, question->view->registry, row->name);
    metadata_set_tensor(answer, 0, signature->coords_name, VX_DTYPE_I32, 4);
    metadata_set_tensor(answer, 1, signature->feats_name, VX_DTYPE_F32,
                        signature->feats_channels);
    for (i32 i = 0; i < signature->outputs_count; i++)
        metadata_set_output(answer, 2 + i, &signature->outputs[i]);
    response->n_inputs = 2;
    response->inputs = answer->tensor_list;
    response->n_outputs = (size_t)signature->outputs_count;
    response->outputs = answer->tensor_list + 2;
    question->answer = &response->base;
    return VX_OK;
}

/* The methods answered here; inference, health and reflection are answered elsewhere. */
static const struct control_method {
    i32 method;
    vx_status (*answer)(struct vx_control_question *question);
    const ProtobufCMessageDescriptor *request;
} control_methods[] = {
#define SERVED(method_, request_, answer_)                                               \
    {                                                                                    \
        VX_METHOD_ID_##method_, answer_, &inference__##request_##_request__descriptor    \
    }
    SERVED(SERVER_LIVE, server_live, control_server_live),
    SERVED(SERVER_READY, server_ready, control_server_ready),
    SERVED(MODEL_READY, model_ready, control_model_ready),
    SERVED(SERVER_METADATA, server_metadata, control_server_metadata),
    SERVED(MODEL_METADATA, model_metadata, control_model_metadata),
    SERVED(MODEL_CONFIG, model_config, vx_control_model_config),
    SERVED(MODEL_STATISTICS, model_statistics, vx_control_model_statistics),
    SERVED(REPOSITORY_INDEX, repository_index, vx_control_repository_index),
    SERVED(REPOSITORY_MODEL_LOAD, repository_model_load, vx_control_repository_load),
    SERVED(REPOSITORY_MODEL_UNLOAD, repository_model_unload,
           vx_control_repository_unload),
    SERVED(SYSTEM_SHARED_MEMORY_STATUS, system_shared_memory_status,
           vx_control_system_status),
    SERVED(SYSTEM_SHARED_MEMORY_REGISTER, system_shared_memory_register,
           vx_control_system_register),
    SERVED(SYSTEM_SHARED_MEMORY_UNREGISTER, system_shared_memory_unregister,
           vx_control_system_unregister),
    SERVED(CUDA_SHARED_MEMORY_STATUS, cuda_shared_memory_status,
           vx_control_device_status),
    SERVED(CUDA_SHARED_MEMORY_REGISTER, cuda_shared_memory_register,
           vx_control_device_register),
    SERVED(CUDA_SHARED_MEMORY_UNREGISTER, cuda_shared_memory_unregister,
           vx_control_device_unregister),
    SERVED(TRACE_SETTING, trace_setting, vx_control_trace_setting),
    SERVED(LOG_SETTINGS, log_settings, vx_control_log_settings),
#undef SERVED
};

vx_status vx_control_answer(const struct vx_front_view *view, i32 method,
                            struct vx_span message, struct vx_control_answer *answer,
                            struct vx_why *why)
{
    const struct control_method *row = NULL;
    for (size_t i = 0; i < VX_COUNT(control_methods); i++)
        if (control_methods[i].method == method) row = &control_methods[i];
    VX_ASSERT(row);
    VX_ASSERT(!view->access || answer->ticket);
    ProtobufCMessage *request;
    VX_TRY(vx_control_unpack(row->request, message, answer->scratch, why, &request));
    struct vx_control_question question = {
        .view = view,
        .request = request,
        .scratch = answer->scratch,
        .why = why,
        .peer = answer->peer,
        .ticket = answer->ticket,
        .waiter = answer->waiter,
    };
    VX_TRY(row->answer(&question));
    answer->later = question.later;
    if (question.later) return VX_OK;
    return vx_control_pack(question.answer, answer->bytes, answer->capacity,
                           &answer->length);
}
