/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/reflection.h"

#include "engine/base/process/check.h"
#include "proto/control.h"
#include "proto/descriptors.h"

#include "reflection.pb-c.h"

#include <string.h>

#define SERVICES_MAX 16 /* there are four */

/* All that a response may point to, in one block of the scratch arena. */
struct reflection_answer {
    Grpc__Reflection__V1__ServerReflectionResponse response;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    ProtobufCBinaryData file_list[VX_DESCRIPTOR_FILES_MAX];
    Grpc__Reflection__V1__ListServiceResponse services;
    Grpc__Reflection__V1__ServiceResponse service[SERVICES_MAX];
    Grpc__Reflection__V1__ServiceResponse *service_list[SERVICES_MAX];
    char service_name[SERVICES_MAX][VX_WIRE_NAME_BYTES];
    Grpc__Reflection__V1__ExtensionNumberResponse extensions;
    Grpc__Reflection__V1__ErrorResponse error;
};

static void answer_error(struct reflection_answer *answer, enum vx_code code, char *text)
{
    grpc__reflection__v1__error_response__init(&answer->error);
    answer->error.error_code = (i32)code;
    answer->error.error_message = text;
    answer->response.error_response = &answer->error;
    answer->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
}

static void answer_files(struct reflection_answer *answer,
                         const struct vx_descriptor_file *files, i32 files_count)
{
    if (!files_count) {
        answer_error(answer, VX_CODE_NOT_FOUND,
                     "no file of this server has that name or symbol");
        return;
    }
    grpc__reflection__v1__file_descriptor_response__init(&answer->files);
    for (i32 i = 0; i < files_count; i++)
        answer->file_list[i] = (ProtobufCBinaryData){
            files[i].bytes.bytes, (u8 *)(uintptr_t)files[i].bytes.data};
    answer->files.n_file_descriptor_proto = (size_t)files_count;
    answer->files.file_descriptor_proto = answer->file_list;
    answer->response.file_descriptor_response = &answer->files;
    answer->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
}

static void on_service(void *context, const char *name)
{
    struct reflection_answer *answer = context;
    size_t count = answer->services.n_service++;
    VX_ASSERT(count < SERVICES_MAX);
    grpc__reflection__v1__service_response__init(&answer->service[count]);
    /* The name is valid only during this call. */
    VX_ASSERT(strlen(name) < VX_WIRE_NAME_BYTES);
    memcpy(answer->service_name[count], name, strlen(name) + 1);
    answer->service[count].name = answer->service_name[count];
    answer->service_list[count] = &answer->service[count];
}

static void answer_services(struct reflection_answer *answer)
{
    grpc__reflection__v1__list_service_response__init(&answer->services);
    vx_descriptors_services(on_service, answer);
    answer->services.service = answer->service_list;
    answer->response.list_services_response = &answer->services;
    answer->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
}

/* Our files are proto3: their types have no extensions. */
static void answer_extension_numbers(struct reflection_answer *answer, char *type)
{
    struct vx_descriptor_file files[VX_DESCRIPTOR_FILES_MAX];
    if (!vx_descriptors_by_symbol(type, files)) {
        answer_error(answer, VX_CODE_NOT_FOUND, "no file of this server has that type");
        return;
    }
    grpc__reflection__v1__extension_number_response__init(&answer->extensions);
    answer->extensions.base_type_name = type;
    answer->response.all_extension_numbers_response = &answer->extensions;
    answer->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
}

static void answer_request(struct reflection_answer *answer,
                           const Grpc__Reflection__V1__ServerReflectionRequest *request)
{
    struct vx_descriptor_file files[VX_DESCRIPTOR_FILES_MAX];
#define CASE(name_)                                                                      \
    GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name_
    switch ((int)request->message_request_case) {
    case CASE(FILE_BY_FILENAME):
        answer_files(answer, files,
                     vx_descriptors_by_name(request->file_by_filename, files));
        return;
    case CASE(FILE_CONTAINING_SYMBOL):
        answer_files(answer, files,
                     vx_descriptors_by_symbol(request->file_containing_symbol, files));
        return;
    case CASE(FILE_CONTAINING_EXTENSION):
        answer_error(answer, VX_CODE_NOT_FOUND,
                     "the files of this server have no extensions");
        return;
    case CASE(ALL_EXTENSION_NUMBERS_OF_TYPE):
        answer_extension_numbers(answer, request->all_extension_numbers_of_type);
        return;
    case CASE(LIST_SERVICES): answer_services(answer); return;
    default:
        answer_error(answer, VX_CODE_UNIMPLEMENTED,
                     "this server does not support this reflection request");
    }
#undef CASE
}

vx_status vx_reflection_answer(struct vx_span message, struct vx_arena *scratch,
                               struct vx_why *why, struct vx_control_answer *answer)
{
    ProtobufCMessage *request;
    VX_ENSURE_WHY(message.bytes <= VX_REFLECTION_BYTES_MAX, why, INVALID_ARGUMENT,
                  "the reflection request is too long",
                  "expected a reflection request of at most %d bytes, got %zu",
                  VX_REFLECTION_BYTES_MAX, message.bytes);
    VX_TRY(vx_control_unpack(&grpc__reflection__v1__server_reflection_request__descriptor,
                             message, scratch, why, &request));
    struct reflection_answer *made = vx_arena_take(scratch, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no room for the answer");
    grpc__reflection__v1__server_reflection_response__init(&made->response);
    made->response.original_request = (void *)request;
    made->response.valid_host = made->response.original_request->host;
    answer_request(made, made->response.original_request);
    return vx_control_pack(&made->response.base, answer->bytes, answer->capacity,
                           &answer->length);
}
