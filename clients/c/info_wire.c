/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/info_wire.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/c/wire.h"

#include <stdio.h>
#include <string.h>

static enum voxel_code damaged(struct voxel_error *error, const char *what)
{
    return voxel_error_set(error, VOXEL_INTERNAL,
                           "the server's answer is damaged: expected %s", what);
}

enum voxel_code voxel_flag_parse(const void *data, size_t bytes, bool *flag,
                                 struct voxel_error *error)
{
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    *flag = false;
    while (voxel_reader_next(&r, &field))
        if (field.number == 1 && field.wire == VOXEL_WIRE_VARINT)
            *flag = field.value != 0;
    return r.bad ? damaged(error, "a bool") : voxel_error_clear(error);
}

/* A message that is being parsed into a pool. */
struct parse {
    struct voxel_pool *pool;
    bool full; /* an allocation has failed */
    bool bad;  /* the message is damaged */
};

static void *parse_open(struct parse *parse, size_t root_bytes)
{
    *parse = (struct parse){.pool = voxel_pool_open()};
    void *root = parse->pool ? voxel_pool_take_root(parse->pool, root_bytes) : NULL;
    if (!root) {
        voxel_pool_close(parse->pool);
        parse->pool = NULL;
        parse->full = true;
    }
    return root;
}

/* Ends a parse.  After a failure closes the pool, and with it the root. */
static enum voxel_code parse_close(struct parse *parse, const char *what,
                                   struct voxel_error *error)
{
    if (!parse->bad && !parse->full) return voxel_error_clear(error);
    voxel_pool_close(parse->pool);
    return parse->full ? voxel_error_memory(error, what, 0) : damaged(error, what);
}

static const char *parse_text(struct parse *parse, const struct voxel_field *field)
{
    const char *text = voxel_pool_take_text(parse->pool, field->data, field->bytes);
    if (!text) parse->full = true;
    return text ? text : "";
}

/* Room for every length-delimited field `number` of a message.  NULL if memory is full;
 * next_field then returns false, so that nothing is written into the list. */
static void *parse_list(struct parse *parse, const struct voxel_field *message,
                        uint32_t number, size_t size)
{
    size_t count = voxel_reader_count(message->data, message->bytes, number);
    size_t bytes;
    void *list = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes))
        list = voxel_pool_take(parse->pool, bytes);
    if (!list) parse->full = true;
    return list;
}

/* The next field of a message; false at its end, on damage, or without memory. */
static bool next_field(struct parse *parse, struct voxel_reader *r,
                       struct voxel_field *field)
{
    if (!parse->full && !parse->bad && voxel_reader_next(r, field)) return true;
    if (r->bad) parse->bad = true;
    return false;
}

enum voxel_code voxel_server_info_parse(const void *data, size_t bytes,
                                        struct voxel_server_info **info,
                                        struct voxel_error *error)
{
    struct parse parse;
    struct voxel_server_info *root = parse_open(&parse, sizeof *root);
    *info = NULL;
    if (!root) return parse_close(&parse, "server metadata", error);
    struct voxel_field whole = {.data = data, .bytes = bytes};
    const char **extensions = parse_list(&parse, &whole, 3, sizeof *extensions);
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    root->name = root->version = "";
    root->extensions = extensions;
    while (next_field(&parse, &r, &field)) {
        if (field.wire != VOXEL_WIRE_LEN) continue;
        if (field.number == 1) root->name = parse_text(&parse, &field);
        if (field.number == 2) root->version = parse_text(&parse, &field);
        if (field.number == 3)
            extensions[root->extensions_count++] = parse_text(&parse, &field);
    }
    enum voxel_code code = parse_close(&parse, "server metadata", error);
    if (!code) *info = root;
    return code;
}

static void parse_shape(struct parse *parse, const struct voxel_field *field,
                        struct voxel_tensor_info *tensor)
{
    struct voxel_reader r = voxel_reader_make(field->data, field->bytes);
    uint64_t value = field->value;
    do {
        if (field->wire == VOXEL_WIRE_LEN) {
            if (r.at == r.end) return;
            if (!voxel_reader_varint(&r, &value)) {
                parse->bad = true;
                return;
            }
        }
        if (tensor->rank == VOXEL_RANK_MAX) {
            parse->bad = true;
            return;
        }
        tensor->shape[tensor->rank++] = (int64_t)value;
    } while (field->wire == VOXEL_WIRE_LEN);
}

static void parse_tensor_info(struct parse *parse, const struct voxel_field *message,
                              struct voxel_tensor_info *tensor)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    tensor->name = tensor->type_name = "";
    while (next_field(parse, &r, &field)) {
        if (field.number == 3 && field.wire != VOXEL_WIRE_I32 &&
            field.wire != VOXEL_WIRE_I64)
            parse_shape(parse, &field, tensor);
        if (field.wire != VOXEL_WIRE_LEN) continue;
        if (field.number == 1) tensor->name = parse_text(parse, &field);
        if (field.number == 2) tensor->type_name = parse_text(parse, &field);
    }
    tensor->type = voxel_type_of(tensor->type_name);
}

/* The content of the first field `number`, which has a length; false if there is none. */
static bool find_field(const struct voxel_field *message, uint32_t number,
                       struct voxel_field *found)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    while (voxel_reader_next(&r, found))
        if (found->number == number && found->wire == VOXEL_WIRE_LEN) return true;
    return false;
}

bool voxel_axes_are_order(const char *text)
{
    return strlen(text) == 3 && strchr(text, 'x') && strchr(text, 'y') &&
           strchr(text, 'z');
}

/* An entry of ModelConfig's map `parameters`: both texts are short and ours. */
static void take_limit(const struct voxel_field *entry, struct voxel_model_limits *limits)
{
    struct voxel_field key, parameter, value;
    char text[64] = "";
    if (!find_field(entry, 1, &key) || !find_field(entry, 2, &parameter) ||
        !find_field(&parameter, 1, &value) || value.bytes >= sizeof text)
        return;
    memcpy(text, value.data, value.bytes);
    long long most;
    int shape[3];
    if (key.bytes == 10 && !memcmp(key.data, "voxels_max", 10)) {
        if (sscanf(text, "%lld", &most) == 1 && most > 0) limits->voxels_max = most;
    } else if (key.bytes == 16 && !memcmp(key.data, "voxels_max_bound", 16)) {
        snprintf(limits->bound, sizeof limits->bound, "%.31s", text);
    } else if (key.bytes == 13 && !memcmp(key.data, "spatial_shape", 13)) {
        if (sscanf(text, "%dx%dx%d", &shape[0], &shape[1], &shape[2]) == 3 &&
            shape[0] > 0 && shape[1] > 0 && shape[2] > 0)
            memcpy(limits->spatial_shape, shape, sizeof shape);
    } else if (key.bytes == 4 && !memcmp(key.data, "axes", 4)) {
        if (voxel_axes_are_order(text)) memcpy(limits->axes, text, sizeof limits->axes);
    }
}

enum voxel_code voxel_model_limits_parse(const void *data, size_t bytes,
                                         struct voxel_model_limits *limits,
                                         struct voxel_error *error)
{
    const struct voxel_field whole = {.data = data, .bytes = bytes};
    struct voxel_field config, field;
    *limits = (struct voxel_model_limits){0};
    if (!find_field(&whole, 1, &config)) return damaged(error, "a model's configuration");
    struct voxel_reader r = voxel_reader_make(config.data, config.bytes);
    while (voxel_reader_next(&r, &field))
        if (field.number == 14 && field.wire == VOXEL_WIRE_LEN)
            take_limit(&field, limits);
    return r.bad ? damaged(error, "a model's configuration") : voxel_error_clear(error);
}

enum voxel_code voxel_model_info_parse(const void *data, size_t bytes,
                                       struct voxel_model_info **info,
                                       struct voxel_error *error)
{
    struct parse parse;
    struct voxel_model_info *root = parse_open(&parse, sizeof *root);
    *info = NULL;
    if (!root) return parse_close(&parse, "model metadata", error);
    struct voxel_field whole = {.data = data, .bytes = bytes};
    const char **versions = parse_list(&parse, &whole, 2, sizeof *versions);
    struct voxel_tensor_info *inputs = parse_list(&parse, &whole, 4, sizeof *inputs);
    struct voxel_tensor_info *outputs = parse_list(&parse, &whole, 5, sizeof *outputs);
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    root->name = root->platform = "";
    root->versions = versions;
    root->inputs = inputs;
    root->outputs = outputs;
    while (next_field(&parse, &r, &field)) {
        if (field.wire != VOXEL_WIRE_LEN) continue;
        if (field.number == 1) root->name = parse_text(&parse, &field);
        if (field.number == 2)
            versions[root->versions_count++] = parse_text(&parse, &field);
        if (field.number == 3) root->platform = parse_text(&parse, &field);
        if (field.number == 4)
            parse_tensor_info(&parse, &field, &inputs[root->inputs_count++]);
        if (field.number == 5)
            parse_tensor_info(&parse, &field, &outputs[root->outputs_count++]);
    }
    enum voxel_code code = parse_close(&parse, "model metadata", error);
    if (!code) *info = root;
    return code;
}

static void parse_duration(struct parse *parse, const struct voxel_field *message,
                           struct voxel_duration *duration)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    while (next_field(parse, &r, &field)) {
        if (field.wire != VOXEL_WIRE_VARINT) continue;
        if (field.number == 1) duration->count = field.value;
        if (field.number == 2) duration->ns = field.value;
    }
}

static void parse_durations(struct parse *parse, const struct voxel_field *message,
                            struct voxel_model_statistics *model)
{
    struct voxel_duration *const by_number[] = {
        NULL,
        &model->success,
        &model->fail,
        &model->queue,
        &model->compute_input,
        &model->compute_infer,
        &model->compute_output,
        &model->cache_hit,
        &model->cache_miss,
    };
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    while (next_field(parse, &r, &field))
        if (field.number < sizeof by_number / sizeof *by_number &&
            field.wire == VOXEL_WIRE_LEN)
            parse_duration(parse, &field, by_number[field.number]);
}

static void parse_model_statistics(struct parse *parse, const struct voxel_field *message,
                                   struct voxel_model_statistics *model)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    model->name = model->version = "";
    while (next_field(parse, &r, &field)) {
        bool number = field.wire == VOXEL_WIRE_VARINT;
        bool bytes = field.wire == VOXEL_WIRE_LEN;
        if (field.number == 1 && bytes) model->name = parse_text(parse, &field);
        if (field.number == 2 && bytes) model->version = parse_text(parse, &field);
        if (field.number == 3 && number) model->last_inference_ms = field.value;
        if (field.number == 4 && number) model->inference_count = field.value;
        if (field.number == 5 && number) model->execution_count = field.value;
        if (field.number == 6 && bytes) parse_durations(parse, &field, model);
    }
}

enum voxel_code voxel_statistics_parse(const void *data, size_t bytes,
                                       struct voxel_statistics **statistics,
                                       struct voxel_error *error)
{
    struct parse parse;
    struct voxel_statistics *root = parse_open(&parse, sizeof *root);
    *statistics = NULL;
    if (!root) return parse_close(&parse, "statistics", error);
    struct voxel_field whole = {.data = data, .bytes = bytes};
    struct voxel_model_statistics *models = parse_list(&parse, &whole, 1, sizeof *models);
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    root->models = models;
    while (next_field(&parse, &r, &field))
        if (field.number == 1 && field.wire == VOXEL_WIRE_LEN)
            parse_model_statistics(&parse, &field, &models[root->models_count++]);
    enum voxel_code code = parse_close(&parse, "statistics", error);
    if (!code) *statistics = root;
    return code;
}

static void parse_index(struct parse *parse, const struct voxel_field *message,
                        struct voxel_model_index *model)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    model->name = model->version = model->state = model->reason = "";
    while (next_field(parse, &r, &field)) {
        if (field.wire != VOXEL_WIRE_LEN) continue;
        if (field.number == 1) model->name = parse_text(parse, &field);
        if (field.number == 2) model->version = parse_text(parse, &field);
        if (field.number == 3) model->state = parse_text(parse, &field);
        if (field.number == 4) model->reason = parse_text(parse, &field);
    }
}

enum voxel_code voxel_models_parse(const void *data, size_t bytes,
                                   struct voxel_models **models,
                                   struct voxel_error *error)
{
    struct parse parse;
    struct voxel_models *root = parse_open(&parse, sizeof *root);
    *models = NULL;
    if (!root) return parse_close(&parse, "a repository index", error);
    struct voxel_field whole = {.data = data, .bytes = bytes};
    struct voxel_model_index *list = parse_list(&parse, &whole, 1, sizeof *list);
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    root->models = list;
    while (next_field(&parse, &r, &field))
        if (field.number == 1 && field.wire == VOXEL_WIRE_LEN)
            parse_index(&parse, &field, &list[root->models_count++]);
    enum voxel_code code = parse_close(&parse, "a repository index", error);
    if (!code) *models = root;
    return code;
}

enum voxel_code voxel_models_from_statistics(const struct voxel_statistics *statistics,
                                             struct voxel_models **models,
                                             struct voxel_error *error)
{
    struct parse parse;
    struct voxel_models *root = parse_open(&parse, sizeof *root);
    *models = NULL;
    if (!root) return parse_close(&parse, "a list of models", error);
    size_t count = (size_t)statistics->models_count;
    struct voxel_model_index *list = voxel_pool_take(parse.pool, count * sizeof *list);
    if (!list) parse.full = true;
    for (size_t i = 0; i < count && !parse.full; i++) {
        const struct voxel_model_statistics *model = &statistics->models[i];
        struct voxel_field name = {.data = (const uint8_t *)model->name,
                                   .bytes = strlen(model->name)};
        struct voxel_field version = {.data = (const uint8_t *)model->version,
                                      .bytes = strlen(model->version)};
        list[i] = (struct voxel_model_index){.name = parse_text(&parse, &name),
                                             .version = parse_text(&parse, &version),
                                             .state = "READY",
                                             .reason = ""};
    }
    root->models = list;
    root->models_count = statistics->models_count;
    enum voxel_code code = parse_close(&parse, "a list of models", error);
    if (!code) *models = root;
    return code;
}

void voxel_info_free(void *info)
{
    if (info) voxel_pool_close(voxel_pool_of_root(info));
}
