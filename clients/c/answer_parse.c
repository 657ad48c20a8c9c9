/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/infer_wire.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/c/region.h"

#include <string.h>

/* Field numbers of ModelInferResponse and of the messages inside it. */
enum {
    ANSWER_MODEL = 1,
    ANSWER_VERSION = 2,
    ANSWER_ID = 3,
    ANSWER_PARAMETERS = 4,
    ANSWER_OUTPUTS = 5,
    ANSWER_RAW = 6,
    TENSOR_NAME = 1,
    TENSOR_DATATYPE = 2,
    TENSOR_SHAPE = 3,
    TENSOR_PARAMETERS = 4,
    TENSOR_CONTENTS = 5,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    PARAMETER_BOOL = 1,
    PARAMETER_INT64 = 2,
    PARAMETER_STRING = 3,
    PARAMETER_DOUBLE = 4,
    PARAMETER_UINT64 = 5,
};

/* Where each raw tensor begins, and a copy of all other fields. */
struct parts {
    struct voxel_walk raw[VOXEL_OUTPUTS_MAX]; /* each with `left` = its bytes */
    int32_t raw_count;
    uint8_t *rest; /* NULL in the first pass, which only counts rest_bytes */
    size_t rest_bytes;
};

static enum voxel_code damaged(struct voxel_error *error, const char *where)
{
    return voxel_error_set(error, VOXEL_INTERNAL,
                           "the server's answer is damaged: %s is not valid protobuf",
                           where);
}

/* Walks the top level once.  If parts->rest is set, copies all but raw tensors there. */
static enum voxel_code parts_walk(const struct voxel_spans *spans, struct parts *parts,
                                  struct voxel_error *error)
{
    struct voxel_walk walk = voxel_walk_make(spans);
    struct voxel_walk_field field;
    bool bad;
    parts->raw_count = 0;
    parts->rest_bytes = 0;
    while (voxel_walk_next(&walk, &field, &bad)) {
        if (field.number == ANSWER_RAW && field.wire == VOXEL_WIRE_LEN) {
            if (parts->raw_count == VOXEL_OUTPUTS_MAX)
                return voxel_error_set(error, VOXEL_INTERNAL,
                                       "the answer has more than %d raw outputs",
                                       VOXEL_OUTPUTS_MAX);
            parts->raw[parts->raw_count] = walk;
            parts->raw[parts->raw_count++].left = field.bytes;
            voxel_walk_skip(&walk, field.bytes);
            continue;
        }
        size_t bytes = field.head_bytes + field.bytes;
        if (bytes > VOXEL_REST_BYTES_MAX - parts->rest_bytes)
            return voxel_error_set(
                error, VOXEL_INTERNAL,
                "the answer has more than %u bytes besides its tensors",
                VOXEL_REST_BYTES_MAX);
        if (parts->rest) {
            uint8_t *at = parts->rest + parts->rest_bytes;
            memcpy(at, field.head, field.head_bytes);
            voxel_walk_copy(&walk, at + field.head_bytes, field.bytes);
        } else {
            voxel_walk_skip(&walk, field.bytes);
        }
        parts->rest_bytes += bytes;
    }
    return bad ? damaged(error, "its top level") : VOXEL_OK;
}

static const char *text_of(struct voxel_pool *pool, const struct voxel_field *field)
{
    return voxel_pool_take_text(pool, field->data, field->bytes);
}

/* Adds the dimensions of one shape field, packed or not.  False if the field is damaged
 * or has too many. */
static bool shape_add(struct voxel_tensor *tensor, const struct voxel_field *field)
{
    struct voxel_reader r = voxel_reader_make(field->data, field->bytes);
    uint64_t value = field->value;
    while (field->wire != VOXEL_WIRE_LEN || r.at < r.end) {
        if (field->wire == VOXEL_WIRE_LEN && !voxel_reader_varint(&r, &value))
            return false;
        if (tensor->rank == VOXEL_RANK_MAX || (int64_t)value < 0) return false;
        tensor->shape[tensor->rank++] = (int64_t)value;
        if (field->wire != VOXEL_WIRE_LEN) break;
    }
    return true;
}

static bool parse_choice(struct voxel_pool *pool, const struct voxel_field *message,
                         struct voxel_parameter *parameter)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    while (voxel_reader_next(&r, &field)) {
        if (field.number == PARAMETER_BOOL && field.wire == VOXEL_WIRE_VARINT) {
            parameter->kind = VOXEL_PARAMETER_BOOL;
            parameter->int64 = field.value != 0;
        } else if (field.number == PARAMETER_INT64 && field.wire == VOXEL_WIRE_VARINT) {
            parameter->kind = VOXEL_PARAMETER_INT64;
            parameter->int64 = (int64_t)field.value;
        } else if (field.number == PARAMETER_UINT64 && field.wire == VOXEL_WIRE_VARINT) {
            parameter->kind = VOXEL_PARAMETER_UINT64;
            parameter->uint64 = field.value;
        } else if (field.number == PARAMETER_DOUBLE && field.wire == VOXEL_WIRE_I64) {
            parameter->kind = VOXEL_PARAMETER_DOUBLE;
            memcpy(&parameter->number, &field.value, sizeof parameter->number);
        } else if (field.number == PARAMETER_STRING && field.wire == VOXEL_WIRE_LEN) {
            parameter->kind = VOXEL_PARAMETER_STRING;
            parameter->text = text_of(pool, &field);
        }
    }
    return !r.bad && parameter->text;
}

static bool parse_parameter(struct voxel_pool *pool, const struct voxel_field *entry,
                            struct voxel_parameter *parameter)
{
    struct voxel_reader r = voxel_reader_make(entry->data, entry->bytes);
    struct voxel_field field;
    parameter->name = "";
    parameter->text = "";
    while (voxel_reader_next(&r, &field)) {
        if (field.wire != VOXEL_WIRE_LEN) continue;
        if (field.number == ENTRY_KEY) parameter->name = text_of(pool, &field);
        if (field.number == ENTRY_VALUE && !parse_choice(pool, &field, parameter))
            return false;
    }
    return !r.bad && parameter->name;
}

/* The parameters `coords` and `stride` of an output; others are not for this client. */
static bool parse_output_parameter(struct voxel_pool *pool,
                                   const struct voxel_field *entry,
                                   struct voxel_tensor *tensor)
{
    struct voxel_parameter parameter = {.kind = VOXEL_PARAMETER_BOOL};
    if (!parse_parameter(pool, entry, &parameter)) return false;
    if (parameter.kind != VOXEL_PARAMETER_STRING) return true;
    if (strcmp(parameter.name, "coords") == 0) tensor->coords = parameter.text;
    if (strcmp(parameter.name, "stride") == 0) tensor->stride = parameter.text;
    return true;
}

static enum voxel_code parse_output(struct voxel_pool *pool,
                                    const struct voxel_field *message,
                                    struct voxel_tensor *tensor,
                                    struct voxel_error *error)
{
    struct voxel_reader r = voxel_reader_make(message->data, message->bytes);
    struct voxel_field field;
    bool typed = false;
    tensor->name = "";
    while (voxel_reader_next(&r, &field)) {
        bool text = field.wire == VOXEL_WIRE_LEN;
        if (field.number == TENSOR_NAME && text) tensor->name = text_of(pool, &field);
        if (field.number == TENSOR_CONTENTS && text) typed = true;
        if (field.number == TENSOR_DATATYPE && text) {
            const char *name = text_of(pool, &field);
            tensor->type = name ? voxel_type_of(name) : VOXEL_NONE;
        }
        if (field.number == TENSOR_SHAPE && !shape_add(tensor, &field)) r.bad = true;
        if (field.number == TENSOR_PARAMETERS && text &&
            !parse_output_parameter(pool, &field, tensor))
            r.bad = true;
    }
    if (!tensor->name)
        return voxel_error_memory(error, "an output's name", message->bytes);
    if (r.bad) return damaged(error, "an output");
    if (typed)
        return voxel_error_set(
            error, VOXEL_UNIMPLEMENTED,
            "the server sent output '%s' as typed contents; this client reads only "
            "raw_output_contents",
            tensor->name);
    if (tensor->type == VOXEL_NONE)
        return voxel_error_set(error, VOXEL_INTERNAL, "output '%s' has no known datatype",
                               tensor->name);
    return VOXEL_OK;
}

/* Reads the names, the outputs without their data, and the parameters. */
static enum voxel_code parse_rest(struct voxel_pool *pool, const struct parts *parts,
                                  struct voxel_answer *answer, struct voxel_error *error)
{
    size_t outputs_count =
        voxel_reader_count(parts->rest, parts->rest_bytes, ANSWER_OUTPUTS);
    size_t count = voxel_reader_count(parts->rest, parts->rest_bytes, ANSWER_PARAMETERS);
    if (outputs_count > VOXEL_OUTPUTS_MAX || count > VOXEL_PARAMETERS_MAX)
        return voxel_error_set(
            error, VOXEL_INTERNAL,
            "the answer has %zu outputs and %zu parameters; at most %d and "
            "%d are read",
            outputs_count, count, VOXEL_OUTPUTS_MAX, VOXEL_PARAMETERS_MAX);
    struct voxel_tensor *outputs = voxel_pool_take(pool, sizeof *outputs * outputs_count);
    struct voxel_parameter *parameters =
        voxel_pool_take(pool, sizeof *parameters * count);
    if (!outputs || !parameters)
        return voxel_error_memory(error, "an answer", parts->rest_bytes);
    answer->outputs = outputs;
    answer->parameters = parameters;
    answer->model = answer->version = answer->id = "";
    struct voxel_reader r = voxel_reader_make(parts->rest, parts->rest_bytes);
    struct voxel_field field;
    while (voxel_reader_next(&r, &field)) {
        if (field.wire != VOXEL_WIRE_LEN) continue;
        enum voxel_code code = VOXEL_OK;
        if (field.number == ANSWER_MODEL) answer->model = text_of(pool, &field);
        if (field.number == ANSWER_VERSION) answer->version = text_of(pool, &field);
        if (field.number == ANSWER_ID) answer->id = text_of(pool, &field);
        if (field.number == ANSWER_OUTPUTS)
            code = parse_output(pool, &field, &outputs[answer->outputs_count++], error);
        if (field.number == ANSWER_PARAMETERS &&
            !parse_parameter(pool, &field, &parameters[answer->parameters_count++]))
            code = damaged(error, "a parameter");
        if (code) return code;
    }
    if (!answer->model || !answer->version || !answer->id)
        return voxel_error_memory(error, "an answer", parts->rest_bytes);
    return r.bad ? damaged(error, "its head") : VOXEL_OK;
}

static const struct voxel_place *place_of(const struct voxel_wanted *wanted,
                                          const struct voxel_tensor *output)
{
    for (int32_t i = 0; i < wanted->places_count; i++)
        if (strcmp(wanted->places[i].output, output->name) == 0)
            return &wanted->places[i];
    return NULL;
}

/* Where the bytes of an output are copied to: the caller's place or memory of the pool.
 * NULL and an error if there is no room. */
static void *output_memory(struct voxel_pool *pool, const struct voxel_place *place,
                           const struct voxel_tensor *output, struct voxel_error *error)
{
    if (place && output->bytes > place->bytes) {
        voxel_error_set(error, VOXEL_OUT_OF_RANGE,
                        "output '%s' has %zu bytes, the place for it has %zu",
                        output->name, output->bytes, place->bytes);
        return NULL;
    }
    if (place && !place->region) return place->memory;
    if (place && place->region->memory)
        return (uint8_t *)place->region->memory + place->region_offset;
    void *memory = place ? NULL : voxel_pool_take_bytes(pool, output->bytes);
    if (place)
        voxel_error_set(error, VOXEL_INTERNAL,
                        "the server sent output '%s' in the answer; expected it in its "
                        "region of device memory",
                        output->name);
    else if (!memory)
        voxel_error_memory(error, "an output", output->bytes);
    return memory;
}

/* True if the server wrote the output into its region itself: the answer then has no byte
 * of it, and the tensor is made to point there. */
static bool output_lies_there(const struct voxel_place *place, uint64_t expected,
                              struct voxel_tensor *output)
{
    if (!place || !place->region || output->bytes > 0 || expected > place->bytes)
        return false;
    const uint8_t *memory = place->region->memory;
    output->bytes = (size_t)expected;
    output->data = memory ? memory + place->region_offset : NULL;
    output->region = place->region;
    output->region_offset = place->region_offset;
    return true;
}

static enum voxel_code copy_outputs(struct voxel_pool *pool, struct parts *parts,
                                    const struct voxel_wanted *wanted,
                                    struct voxel_answer *answer,
                                    struct voxel_error *error)
{
    if (parts->raw_count != answer->outputs_count)
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "the answer has %d outputs but %d raw tensors",
                               (int)answer->outputs_count, (int)parts->raw_count);
    struct voxel_tensor *outputs = (struct voxel_tensor *)(uintptr_t)answer->outputs;
    for (int32_t i = 0; i < answer->outputs_count; i++) {
        struct voxel_tensor *output = &outputs[i];
        const struct voxel_place *place = place_of(wanted, output);
        output->bytes = parts->raw[i].left;
        uint64_t expected = voxel_type_bytes(output->type);
        bool fits = true;
        for (int32_t d = 0; d < output->rank && fits; d++)
            fits =
                !__builtin_mul_overflow(expected, (uint64_t)output->shape[d], &expected);
        if (fits && output->type != VOXEL_BYTES &&
            output_lies_there(place, expected, output))
            continue;
        if (output->type != VOXEL_BYTES && (!fits || expected != output->bytes))
            return voxel_error_set(
                error, VOXEL_INTERNAL, "output '%s' has %zu bytes; its shape needs %llu",
                output->name, output->bytes, (unsigned long long)expected);
        void *memory = output_memory(pool, place, output, error);
        if (!memory) return error ? error->code : VOXEL_RESOURCE_EXHAUSTED;
        voxel_walk_copy(&parts->raw[i], memory, output->bytes);
        output->data = memory;
    }
    return VOXEL_OK;
}

enum voxel_code voxel_answer_parse(const struct voxel_spans *spans,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_answer **answer,
                                   struct voxel_error *error)
{
    struct voxel_error local;
    if (!error) error = &local;
    *answer = NULL;
    struct parts parts = {0};
    struct voxel_pool *pool = NULL;
    struct voxel_answer *root = NULL;
    enum voxel_code code = parts_walk(spans, &parts, error);
    if (code) return code;
    parts.rest = voxel_memory_take_bytes(parts.rest_bytes);
    pool = voxel_pool_open();
    if (pool) root = voxel_pool_take_root(pool, sizeof *root);
    if (!parts.rest || !root)
        code = voxel_error_memory(error, "an answer", parts.rest_bytes);
    if (!code) code = parts_walk(spans, &parts, error);
    if (!code) code = parse_rest(pool, &parts, root, error);
    if (!code) code = voxel_answer_check(root, wanted, error);
    if (!code) code = copy_outputs(pool, &parts, wanted, root, error);
    voxel_memory_give(parts.rest);
    if (code) {
        voxel_pool_close(pool);
        return code;
    }
    root->received_bytes = voxel_walk_make(spans).left;
    *answer = root;
    return voxel_error_clear(error);
}

const struct voxel_tensor *voxel_answer_find(const struct voxel_answer *answer,
                                             const char *output)
{
    for (int32_t i = 0; i < answer->outputs_count; i++)
        if (strcmp(answer->outputs[i].name, output) == 0) return &answer->outputs[i];
    return NULL;
}

const struct voxel_parameter *
voxel_answer_find_parameter(const struct voxel_answer *answer, const char *name)
{
    for (int32_t i = 0; i < answer->parameters_count; i++)
        if (strcmp(answer->parameters[i].name, name) == 0) return &answer->parameters[i];
    return NULL;
}

bool voxel_answer_sparse(const struct voxel_answer *answer, const char *output,
                         struct voxel_sparse *sparse)
{
    *sparse = (struct voxel_sparse){.features = voxel_answer_find(answer, output)};
    if (!sparse->features || !sparse->features->coords || !sparse->features->stride)
        return false;
    sparse->coords = voxel_answer_find(answer, sparse->features->coords);
    return sparse->coords && voxel_stride_read(sparse->features->stride, sparse->stride);
}

void voxel_answer_free(struct voxel_answer *answer)
{
    if (answer) voxel_pool_close(voxel_pool_of_root(answer));
}
