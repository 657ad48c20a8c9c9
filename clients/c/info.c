/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/voxel.h"

#include "clients/c/error.h"
#include "clients/c/info_wire.h"
#include "clients/c/memory.h"
#include "clients/c/transport.h"

#include <stdio.h>
#include <string.h>

#define SERVICE "/inference.GRPCInferenceService/"

/* A request of these methods has a name and a version, or nothing. */
#define INFO_REQUEST_BYTES_MAX 1024

/* The bytes of one answer, contiguous. */
struct info_reply {
    uint8_t *data;
    size_t bytes;
};

static enum voxel_code reply_gather(struct voxel_call *call, struct info_reply *reply,
                                    struct voxel_error *error)
{
    if (call->error.code)
        return voxel_error_set(error, call->error.code, "%s", call->error.text);
    struct voxel_spans spans;
    if (!voxel_call_spans(call, &spans)) return voxel_error_memory(error, "an answer", 0);
    struct voxel_walk walk = voxel_walk_make(&spans);
    if (walk.left > VOXEL_INFO_BYTES_MAX)
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "the answer has %zu bytes, at most %u are read", walk.left,
                               VOXEL_INFO_BYTES_MAX);
    reply->bytes = walk.left;
    reply->data = voxel_memory_take_bytes(walk.left);
    if (!reply->data) return voxel_error_memory(error, "an answer", walk.left);
    voxel_walk_copy(&walk, reply->data, walk.left);
    return VOXEL_OK;
}

/* Calls `method` with fields 1 (name) and 2 (version) of `model`, which may be NULL. */
static enum voxel_code ask(struct voxel_client *client, const char *method,
                           const struct voxel_model_name *model, struct info_reply *reply,
                           struct voxel_error *error)
{
    uint8_t request[INFO_REQUEST_BYTES_MAX];
    struct voxel_writer w = {.out = request, .room = sizeof request};
    char version[24];
    *reply = (struct info_reply){0};
    if (model) voxel_write_text(&w, 1, model->name);
    if (model && model->version > 0) {
        snprintf(version, sizeof version, "%lld", (long long)model->version);
        voxel_write_text(&w, 2, version);
    }
    if (w.used > w.room)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a model's name must be shorter than %d bytes",
                               INFO_REQUEST_BYTES_MAX - 32);
    struct voxel_span piece = {request, w.used};
    struct voxel_call call = {
        .method = method, .pieces = &piece, .pieces_count = w.used > 0 ? 1 : 0};
    voxel_call_run(client, &call);
    enum voxel_code code = reply_gather(&call, reply, error);
    voxel_call_fini(&call);
    return code;
}

static enum voxel_code ask_flag(struct voxel_client *client, const char *method,
                                const struct voxel_model_name *model, bool *flag,
                                struct voxel_error *error)
{
    struct info_reply reply;
    *flag = false;
    enum voxel_code code = ask(client, method, model, &reply, error);
    if (!code) code = voxel_flag_parse(reply.data, reply.bytes, flag, error);
    voxel_memory_give(reply.data);
    return code;
}

enum voxel_code voxel_server_live(struct voxel_client *client, bool *live,
                                  struct voxel_error *error)
{
    return ask_flag(client, SERVICE "ServerLive", NULL, live, error);
}

enum voxel_code voxel_server_ready(struct voxel_client *client, bool *ready,
                                   struct voxel_error *error)
{
    return ask_flag(client, SERVICE "ServerReady", NULL, ready, error);
}

enum voxel_code voxel_model_ready(struct voxel_client *client,
                                  const struct voxel_model_name *model, bool *ready,
                                  struct voxel_error *error)
{
    return ask_flag(client, SERVICE "ModelReady", model, ready, error);
}

enum voxel_code voxel_server_info_get(struct voxel_client *client,
                                      struct voxel_server_info **info,
                                      struct voxel_error *error)
{
    struct info_reply reply;
    *info = NULL;
    enum voxel_code code = ask(client, SERVICE "ServerMetadata", NULL, &reply, error);
    if (!code) code = voxel_server_info_parse(reply.data, reply.bytes, info, error);
    voxel_memory_give(reply.data);
    return code;
}

enum voxel_code voxel_model_info_get(struct voxel_client *client,
                                     const struct voxel_model_name *model,
                                     struct voxel_model_info **info,
                                     struct voxel_error *error)
{
    struct info_reply reply;
    *info = NULL;
    enum voxel_code code = ask(client, SERVICE "ModelMetadata", model, &reply, error);
    if (!code) code = voxel_model_info_parse(reply.data, reply.bytes, info, error);
    voxel_memory_give(reply.data);
    return code;
}

enum voxel_code voxel_model_limits_get(struct voxel_client *client,
                                       const struct voxel_model_name *model,
                                       struct voxel_model_limits *limits,
                                       struct voxel_error *error)
{
    struct info_reply reply;
    *limits = (struct voxel_model_limits){0};
    enum voxel_code code = ask(client, SERVICE "ModelConfig", model, &reply, error);
    if (!code) code = voxel_model_limits_parse(reply.data, reply.bytes, limits, error);
    voxel_memory_give(reply.data);
    /* The protocol has no ModelConfig: it is an extension of Triton's. */
    return code == VOXEL_UNIMPLEMENTED ? voxel_error_clear(error) : code;
}

enum voxel_code voxel_statistics_get(struct voxel_client *client,
                                     const struct voxel_model_name *model,
                                     struct voxel_statistics **statistics,
                                     struct voxel_error *error)
{
    struct info_reply reply;
    *statistics = NULL;
    enum voxel_code code = ask(client, SERVICE "ModelStatistics", model, &reply, error);
    if (!code) code = voxel_statistics_parse(reply.data, reply.bytes, statistics, error);
    voxel_memory_give(reply.data);
    return code;
}

enum voxel_code voxel_models_get(struct voxel_client *client,
                                 struct voxel_models **models, struct voxel_error *error)
{
    struct info_reply reply;
    *models = NULL;
    enum voxel_code code = ask(client, SERVICE "RepositoryIndex", NULL, &reply, error);
    if (!code) code = voxel_models_parse(reply.data, reply.bytes, models, error);
    voxel_memory_give(reply.data);
    if (code != VOXEL_UNIMPLEMENTED) return code;
    const struct voxel_model_name every = {.name = ""};
    struct voxel_statistics *statistics;
    code = voxel_statistics_get(client, &every, &statistics, error);
    if (!code) code = voxel_models_from_statistics(statistics, models, error);
    voxel_info_free(statistics);
    return code;
}
