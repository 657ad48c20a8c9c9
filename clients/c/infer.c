/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/voxel.h"

#include "clients/c/client.h"
#include "clients/c/error.h"
#include "clients/c/geometry_header.h"
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"
#include "clients/c/region.h"
#include "clients/c/transport.h"

#include <stdio.h>
#include <string.h>

static const char infer_method[] = "/inference.GRPCInferenceService/ModelInfer";

/* An inference under way.  `call` is the first member, so that on_infer_end can cast. */
struct infer_call {
    struct voxel_call call;
    struct voxel_message message;
    struct voxel_wanted wanted;
    voxel_on_answer on_answer;
    void *context;
};

static enum voxel_code region_check(const struct voxel_client *client,
                                    const struct voxel_region *region, const char *name,
                                    struct voxel_error *error)
{
    if (!region || region->client == client) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "tensor '%s' lies in a region of another client", name);
}

static enum voxel_code regions_check(const struct voxel_client *client,
                                     const struct voxel_request *request,
                                     struct voxel_error *error)
{
    enum voxel_code code = VOXEL_OK;
    for (int32_t i = 0; i < request->inputs_count && !code; i++)
        code = region_check(client, request->inputs[i].region, request->inputs[i].name,
                            error);
    for (int32_t i = 0; i < request->places_count && !code; i++)
        code = region_check(client, request->places[i].region, request->places[i].output,
                            error);
    return code;
}

/* True if every input is [rows, C] with the same rows: then every output must have as
 * many rows. */
static bool request_rows(const struct voxel_request *request, int64_t *rows)
{
    *rows = 0;
    for (int32_t i = 0; i < request->inputs_count; i++) {
        const struct voxel_tensor *input = &request->inputs[i];
        if (input->rank != 2 || (i > 0 && input->shape[0] != *rows)) return false;
        *rows = input->shape[0];
    }
    return request->inputs_count > 0;
}

/* A header of visible ASCII; what it means is the server's business. */
static enum voxel_code traceparent_check(const char *text, struct voxel_error *error)
{
    size_t length = text ? strlen(text) : 0;
    bool good = length < VOXEL_TRACEPARENT_BYTES;
    for (size_t i = 0; i < length && good; i++) good = text[i] > ' ' && text[i] <= '~';
    if (good) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "traceparent: expected at most %d visible characters of ASCII, "
        "as 00-TRACE-SPAN-01, got '%.80s'",
        VOXEL_TRACEPARENT_BYTES - 1, text);
}

static enum voxel_code infer_prepare(const struct voxel_client *client,
                                     struct infer_call *infer,
                                     const struct voxel_request *request,
                                     struct voxel_error *error)
{
    enum voxel_code code = traceparent_check(request->traceparent, error);
    if (!code) code = voxel_message_pack(request, &infer->message, error);
    if (!code) code = regions_check(client, request, error);
    if (code) {
        voxel_message_fini(&infer->message);
        return code;
    }
    infer->wanted = (struct voxel_wanted){.places = request->places,
                                          .places_count = request->places_count,
                                          .outputs = request->outputs,
                                          .outputs_count = request->outputs_count,
                                          .model = request->model,
                                          .id = request->id,
                                          .version = request->version};
    infer->wanted.voxels = request_rows(request, &infer->wanted.rows);
    infer->call.method = infer_method;
    infer->call.pieces = infer->message.pieces;
    infer->call.pieces_count = infer->message.pieces_count;
    infer->call.deadline_us = request->deadline_us;
    if (request->traceparent)
        snprintf(infer->call.traceparent, sizeof infer->call.traceparent, "%s",
                 request->traceparent);
    if (!client->options.no_geometry_header)
        voxel_geometry_header(request, infer->call.geometry);
    return VOXEL_OK;
}

/* Turns an ended call into the answer or the error. */
static enum voxel_code infer_finish(struct infer_call *infer,
                                    struct voxel_answer **answer,
                                    struct voxel_error *error)
{
    struct voxel_call *call = &infer->call;
    *answer = NULL;
    if (call->error.code)
        return voxel_error_set(error, call->error.code, "%s", call->error.text);
    struct voxel_spans spans;
    if (!voxel_call_spans(call, &spans))
        return voxel_error_memory(error, "an answer's spans", 0);
    enum voxel_code code = voxel_answer_parse(&spans, &infer->wanted, answer, error);
    if (code) return code;
    (*answer)->sent_bytes = infer->message.bytes;
    (*answer)->round_trip_ns = call->end_ns - call->begin_ns;
    return VOXEL_OK;
}

enum voxel_code voxel_infer(struct voxel_client *client,
                            const struct voxel_request *request,
                            struct voxel_answer **answer, struct voxel_error *error)
{
    struct infer_call infer = {0};
    *answer = NULL;
    enum voxel_code code = infer_prepare(client, &infer, request, error);
    if (code) return code;
    voxel_call_run(client, &infer.call);
    code = infer_finish(&infer, answer, error);
    voxel_call_fini(&infer.call);
    voxel_message_fini(&infer.message);
    return code;
}

static void infer_close(struct infer_call *infer)
{
    voxel_call_fini(&infer->call);
    voxel_message_fini(&infer->message);
    voxel_memory_give(infer);
}

static void on_infer_end(struct voxel_call *call)
{
    struct infer_call *infer = (struct infer_call *)call;
    struct voxel_error error;
    struct voxel_answer *answer;
    voxel_on_answer on_answer = infer->on_answer;
    void *context = infer->context;
    infer_finish(infer, &answer, &error);
    /* Before the callback, which may need the memory for its next request. */
    infer_close(infer);
    on_answer(context, answer, &error);
}

/* voxel_message_pack refuses a NULL that is not allowed. */
static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

/* The length of a list; 0 if it is out of range, which voxel_message_pack refuses. */
static size_t count_of(int32_t count)
{
    return count > 0 && count <= VOXEL_OUTPUTS_MAX ? (size_t)count : 0;
}

static char *text_copy(char **at, const char *text)
{
    size_t bytes = strlen(text_or_empty(text)) + 1;
    char *copy = memcpy(*at, text_or_empty(text), bytes);
    *at += bytes;
    return copy;
}

static size_t text_bytes(const char *text)
{
    return strlen(text_or_empty(text)) + 1;
}

/* One allocation for the call and for the copies that infer_keep makes. */
static struct infer_call *infer_open(const struct voxel_request *request)
{
    size_t places_count = count_of(request->places_count);
    size_t outputs_count = count_of(request->outputs_count);
    size_t bytes = sizeof(struct infer_call) + places_count * sizeof(struct voxel_place) +
                   outputs_count * sizeof(char *) + text_bytes(request->model) +
                   text_bytes(request->id);
    for (size_t i = 0; i < places_count; i++)
        bytes += text_bytes(request->places[i].output);
    for (size_t i = 0; i < outputs_count; i++) bytes += text_bytes(request->outputs[i]);
    return voxel_memory_take(1, bytes);
}

/* Copies the lists and texts that the answer is compared with: the request's own are
 * borrowed only until voxel_infer_async returns. */
static void infer_keep(struct infer_call *infer, const struct voxel_request *request)
{
    struct voxel_wanted *wanted = &infer->wanted;
    size_t places_count = count_of(request->places_count);
    size_t outputs_count = count_of(request->outputs_count);
    struct voxel_place *places = (struct voxel_place *)(infer + 1);
    const char **outputs = (const char **)(places + places_count);
    char *at = (char *)(outputs + outputs_count);
    for (size_t i = 0; i < places_count; i++) {
        places[i] = request->places[i];
        places[i].output = text_copy(&at, request->places[i].output);
    }
    for (size_t i = 0; i < outputs_count; i++)
        outputs[i] = text_copy(&at, request->outputs[i]);
    wanted->places = places;
    wanted->outputs = outputs;
    wanted->model = text_copy(&at, request->model);
    wanted->id = text_copy(&at, request->id);
}

enum voxel_code voxel_infer_async(struct voxel_client *client,
                                  const struct voxel_request *request,
                                  voxel_on_answer on_answer, void *context,
                                  struct voxel_error *error)
{
    struct infer_call *infer = infer_open(request);
    if (!infer) return voxel_error_memory(error, "a call", sizeof *infer);
    enum voxel_code code = infer_prepare(client, infer, request, error);
    if (!code) {
        infer_keep(infer, request);
        infer->on_answer = on_answer;
        infer->context = context;
        infer->call.on_end = on_infer_end;
        code = voxel_call_start(client, &infer->call, error);
    }
    if (code) infer_close(infer);
    return code;
}
