/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/infer_wire.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/c/region.h"

#include <string.h>

/* Field numbers of ModelInferRequest and of the messages inside it. */
enum {
    REQUEST_MODEL = 1,
    REQUEST_VERSION = 2,
    REQUEST_ID = 3,
    REQUEST_PARAMETERS = 4,
    REQUEST_INPUTS = 5,
    REQUEST_OUTPUTS = 6,
    REQUEST_RAW = 7,
    TENSOR_NAME = 1,
    TENSOR_DATATYPE = 2,
    TENSOR_SHAPE = 3,
    TENSOR_PARAMETERS = 4,
    OUTPUT_PARAMETERS = 2,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    PARAMETER_BOOL = 1,
    PARAMETER_INT64 = 2,
    PARAMETER_STRING = 3,
    PARAMETER_UINT64 = 5,
};

/* Where a tensor lies in a region. */
struct piece {
    const struct voxel_region *region;
    size_t offset, bytes;
};

static enum voxel_code piece_check(const char *what, const char *name,
                                   const struct piece *piece, struct voxel_error *error)
{
    size_t room = piece->region->bytes;
    if (piece->offset <= room && piece->bytes <= room - piece->offset) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s '%s': %zu bytes at offset %zu do not fit a region of %zu",
                           what, name, piece->bytes, piece->offset, room);
}

static enum voxel_code tensor_check(const struct voxel_tensor *tensor,
                                    struct voxel_error *error)
{
    const char *name = tensor->name;
    if (!name || !*name)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "an input needs a name");
    if (tensor->type <= VOXEL_NONE || tensor->type > VOXEL_BYTES)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "input '%s' needs a type, VOXEL_BOOL..VOXEL_BYTES, not %d",
                               name, (int)tensor->type);
    if (tensor->rank < 0 || tensor->rank > VOXEL_RANK_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "input '%s': rank must be 0..%d, not %d", name,
                               VOXEL_RANK_MAX, (int)tensor->rank);
    uint64_t expected = voxel_type_bytes(tensor->type);
    for (int32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0 ||
            __builtin_mul_overflow(expected, (uint64_t)tensor->shape[i], &expected))
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "input '%s': dimension %d is %lld: it must be at least 0 and "
                "the bytes must fit 64 bits",
                name, (int)i, (long long)tensor->shape[i]);
    }
    if (tensor->type != VOXEL_BYTES && expected != tensor->bytes)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "input '%s': its shape needs %llu bytes, but it has %zu",
                               name, (unsigned long long)expected, tensor->bytes);
    const struct piece piece = {tensor->region, tensor->region_offset, tensor->bytes};
    if (tensor->region) return piece_check("input", name, &piece, error);
    if (tensor->bytes && !tensor->data)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "input '%s' has no data",
                               name);
    return VOXEL_OK;
}

static enum voxel_code place_check(const struct voxel_place *place,
                                   struct voxel_error *error)
{
    if (!place->output || (!place->memory && !place->region))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a place needs an output's name and memory or a region");
    const struct piece piece = {place->region, place->region_offset, place->bytes};
    return place->region ? piece_check("output", place->output, &piece, error) : VOXEL_OK;
}

static enum voxel_code request_check(const struct voxel_request *request,
                                     struct voxel_error *error)
{
    if (!request->model || !*request->model)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a request needs a model's name");
    if (request->inputs_count < 0 || request->inputs_count > VOXEL_INPUTS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a request has 0..%d inputs, not %d", VOXEL_INPUTS_MAX,
                               (int)request->inputs_count);
    if ((request->inputs_count && !request->inputs) ||
        (request->outputs_count > 0 && !request->outputs) ||
        (request->places_count > 0 && !request->places))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a request with inputs_count %d, outputs_count %d and "
                               "places_count %d needs each of these arrays, not NULL",
                               (int)request->inputs_count, (int)request->outputs_count,
                               (int)request->places_count);
    if (request->outputs_count < 0 || request->outputs_count > VOXEL_OUTPUTS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a request names 0..%d outputs, not %d", VOXEL_OUTPUTS_MAX,
                               (int)request->outputs_count);
    if (request->version < 0 || request->timeout_us < 0 || request->deadline_us < 0)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "version, timeout_us and deadline_us must not be negative");
    if (request->coords_ref && strlen(request->coords_ref) >= VOXEL_REF_BYTES_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "coords_ref must have at most %d bytes, not %zu",
                               VOXEL_REF_BYTES_MAX - 1, strlen(request->coords_ref));
    for (int32_t i = 0; i < request->inputs_count; i++) {
        enum voxel_code code = tensor_check(&request->inputs[i], error);
        if (code) return code;
    }
    if (request->places_count < 0 || request->places_count > VOXEL_OUTPUTS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a request has 0..%d places, not %d", VOXEL_OUTPUTS_MAX,
                               (int)request->places_count);
    for (int32_t i = 0; i < request->places_count; i++) {
        enum voxel_code code = place_check(&request->places[i], error);
        if (code) return code;
    }
    return VOXEL_OK;
}

/* One parameter: `text` if it is not NULL, else the number `value`.  An empty text is
 * written too, since the member of the oneof that is present tells the type. */
struct parameter {
    const char *key;
    uint32_t member;
    uint64_t value;
    const char *text;
};

static void pack_value(struct voxel_writer *w, const struct parameter *p)
{
    if (p->text) {
        size_t bytes = strlen(p->text);
        voxel_write_prefix(w, PARAMETER_STRING, bytes);
        voxel_write_raw(w, p->text, bytes);
    } else {
        voxel_write_tag(w, p->member, VOXEL_WIRE_VARINT);
        voxel_write_varint(w, p->value);
    }
}

/* Writes a map entry: the key and an InferParameter. */
static void pack_parameter(struct voxel_writer *w, uint32_t field,
                           const struct parameter *p)
{
    struct voxel_writer inner = {0};
    pack_value(&inner, p);
    struct voxel_writer entry = {0};
    voxel_write_text(&entry, ENTRY_KEY, p->key);
    voxel_write_prefix(&entry, ENTRY_VALUE, inner.used);
    voxel_write_prefix(w, field, entry.used + inner.used);
    voxel_write_text(w, ENTRY_KEY, p->key);
    voxel_write_prefix(w, ENTRY_VALUE, inner.used);
    pack_value(w, p);
}

/* Writes the parameters that say where a tensor lies; an offset of 0 is left out. */
static void pack_piece(struct voxel_writer *w, uint32_t field, const struct piece *piece)
{
    const struct parameter name = {.key = "shared_memory_region",
                                   .text = piece->region->name};
    const struct parameter size = {.key = "shared_memory_byte_size",
                                   .member = PARAMETER_INT64,
                                   .value = piece->bytes};
    const struct parameter offset = {
        .key = "shared_memory_offset", .member = PARAMETER_INT64, .value = piece->offset};
    pack_parameter(w, field, &name);
    pack_parameter(w, field, &size);
    if (piece->offset) pack_parameter(w, field, &offset);
}

static void pack_tensor_body(struct voxel_writer *w, const struct voxel_tensor *tensor)
{
    voxel_write_text(w, TENSOR_NAME, tensor->name);
    voxel_write_text(w, TENSOR_DATATYPE, voxel_type_name(tensor->type));
    if (tensor->rank > 0) {
        struct voxel_writer shape = {0};
        for (int32_t i = 0; i < tensor->rank; i++)
            voxel_write_varint(&shape, (uint64_t)tensor->shape[i]);
        voxel_write_prefix(w, TENSOR_SHAPE, shape.used);
        for (int32_t i = 0; i < tensor->rank; i++)
            voxel_write_varint(w, (uint64_t)tensor->shape[i]);
    }
    const struct piece piece = {tensor->region, tensor->region_offset, tensor->bytes};
    if (tensor->region) pack_piece(w, TENSOR_PARAMETERS, &piece);
}

/* The output's place in a region, where the server writes it; NULL = it comes in the
 * answer. */
static const struct voxel_place *place_of(const struct voxel_request *request,
                                          const char *output)
{
    for (int32_t i = 0; i < request->places_count; i++)
        if (strcmp(request->places[i].output, output) == 0)
            return request->places[i].region ? &request->places[i] : NULL;
    return NULL;
}

static void pack_output_body(struct voxel_writer *w, const char *name,
                             const struct voxel_place *place)
{
    voxel_write_text(w, TENSOR_NAME, name);
    if (!place) return;
    const struct piece piece = {place->region, place->region_offset, place->bytes};
    pack_piece(w, OUTPUT_PARAMETERS, &piece);
}

static void pack_output(struct voxel_writer *w, const char *name,
                        const struct voxel_place *place)
{
    struct voxel_writer body = {0};
    pack_output_body(&body, name, place);
    voxel_write_prefix(w, REQUEST_OUTPUTS, body.used);
    pack_output_body(w, name, place);
}

static bool outputs_name(const struct voxel_request *request, const char *output)
{
    for (int32_t i = 0; i < request->outputs_count; i++)
        if (strcmp(request->outputs[i], output) == 0) return true;
    return false;
}

/* Writes the named outputs, then the unnamed ones that have a place in a region. */
static void pack_outputs(struct voxel_writer *w, const struct voxel_request *request)
{
    for (int32_t i = 0; i < request->outputs_count; i++)
        pack_output(w, request->outputs[i], place_of(request, request->outputs[i]));
    for (int32_t i = 0; i < request->places_count; i++) {
        const struct voxel_place *place = &request->places[i];
        if (place == place_of(request, place->output) &&
            !outputs_name(request, place->output))
            pack_output(w, place->output, place);
    }
}

static void pack_parameters(struct voxel_writer *w, const struct voxel_request *request)
{
    const struct parameter priority = {"priority", PARAMETER_UINT64, request->priority,
                                       NULL};
    const struct parameter timeout = {"timeout", PARAMETER_INT64,
                                      (uint64_t)request->timeout_us, NULL};
    const struct parameter timing = {"timing", PARAMETER_BOOL, 1, NULL};
    const struct parameter layers = {.key = "timing", .text = "layers"};
    const struct parameter shape = {.key = "spatial_shape",
                                    .text = request->spatial_shape};
    const struct parameter ref = {.key = "coords_ref", .text = request->coords_ref};
    if (request->priority) pack_parameter(w, REQUEST_PARAMETERS, &priority);
    if (request->timeout_us) pack_parameter(w, REQUEST_PARAMETERS, &timeout);
    if (request->timing || request->layers)
        pack_parameter(w, REQUEST_PARAMETERS, request->layers ? &layers : &timing);
    if (request->spatial_shape) pack_parameter(w, REQUEST_PARAMETERS, &shape);
    if (request->coords_ref) pack_parameter(w, REQUEST_PARAMETERS, &ref);
}

void voxel_version_text(int64_t version, char text[24])
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    for (int64_t v = version; v > 0; v /= 10) digits[--at] = (char)('0' + v % 10);
    memcpy(text, digits + at, sizeof digits - at);
}

/* Writes fields 1 to 6. */
static void pack_head(struct voxel_writer *w, const struct voxel_request *request)
{
    voxel_write_text(w, REQUEST_MODEL, request->model);
    char version[24];
    voxel_version_text(request->version, version);
    voxel_write_text(w, REQUEST_VERSION, version);
    voxel_write_text(w, REQUEST_ID, request->id);
    pack_parameters(w, request);
    for (int32_t i = 0; i < request->inputs_count; i++) {
        struct voxel_writer body = {0};
        pack_tensor_body(&body, &request->inputs[i]);
        voxel_write_prefix(w, REQUEST_INPUTS, body.used);
        pack_tensor_body(w, &request->inputs[i]);
    }
    pack_outputs(w, request);
}

/* Writes our own bytes and, when `message` is given, the list of pieces. */
static void pack_pieces(struct voxel_writer *w, const struct voxel_request *request,
                        struct voxel_message *message)
{
    size_t begin = 0;
    pack_head(w, request);
    for (int32_t i = 0; i < request->inputs_count; i++) {
        const struct voxel_tensor *tensor = &request->inputs[i];
        if (tensor->region) continue;
        voxel_write_prefix(w, REQUEST_RAW, tensor->bytes);
        if (tensor->bytes <= VOXEL_COPY_BYTES_MAX) {
            voxel_write_raw(w, tensor->data, tensor->bytes);
            continue;
        }
        if (!message) continue;
        size_t at = message->pieces_count;
        message->pieces[at] = (struct voxel_span){message->own + begin, w->used - begin};
        message->pieces[at + 1] = (struct voxel_span){tensor->data, tensor->bytes};
        message->borrowed[at + 1] = true;
        message->pieces_count += 2;
        begin = w->used;
    }
    if (message && w->used > begin) {
        struct voxel_span *piece = &message->pieces[message->pieces_count++];
        *piece = (struct voxel_span){message->own + begin, w->used - begin};
    }
}

enum voxel_code voxel_message_pack(const struct voxel_request *request,
                                   struct voxel_message *message,
                                   struct voxel_error *error)
{
    memset(message, 0, sizeof *message);
    enum voxel_code code = request_check(request, error);
    if (code) return code;
    struct voxel_writer w = {0};
    pack_pieces(&w, request, NULL);
    uint64_t total = w.used;
    for (int32_t i = 0; i < request->inputs_count; i++)
        if (!request->inputs[i].region &&
            request->inputs[i].bytes > VOXEL_COPY_BYTES_MAX &&
            __builtin_add_overflow(total, request->inputs[i].bytes, &total))
            total = UINT64_MAX;
    if (total > VOXEL_MESSAGE_BYTES_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the request is larger than a message may be (%u bytes)",
                               VOXEL_MESSAGE_BYTES_MAX);
    message->own = voxel_memory_take_bytes(w.used);
    if (!message->own) return voxel_error_memory(error, "a request", w.used);
    message->bytes = (size_t)total;
    struct voxel_writer real = {.out = message->own, .room = w.used};
    pack_pieces(&real, request, message);
    return VOXEL_OK;
}

void voxel_message_fini(struct voxel_message *message)
{
    voxel_memory_give(message->own);
    message->own = NULL;
    message->pieces_count = 0;
}
