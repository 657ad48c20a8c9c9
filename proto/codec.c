/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include "engine/base/memory/buddy.h"
#include "engine/base/process/check.h"
#include "engine/base/utf8.h"
#include "open_inference.pb-c.h"
#include "proto/control.h"
#include "proto/parameters.h"
#include "proto/rest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_ID 3

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;

/* What pass one learns. */
struct infer_layout {
    size_t rest_bytes; /* of all fields but raw tensors, tags included */
    i32 raws_count;
    u64 raws[VX_INPUTS_MAX]; /* bytes of each raw tensor, in order */
};

/* ------- pass one: measure ------- */

/* Reads the id before everything else, so that an error later in the message can name it.
 * An id that is too long or no text is ignored here; the request is refused later. */
static void infer_read_id(struct vx_scan scan, const struct vx_scan_field *field,
                          struct vx_request *request)
{
    request->id[0] = '\0';
    if (field->type != VX_SCAN_BYTES || field->bytes >= sizeof request->id) return;
    vx_scan_copy(&scan, request->id, (size_t)field->bytes);
    request->id[field->bytes] = '\0';
    size_t length = strlen(request->id);
    if (length != field->bytes || !vx_utf8_is(request->id, length)) request->id[0] = '\0';
}

static vx_status infer_measure(const struct vx_spans *spans, struct infer_layout *layout,
                               struct vx_why *why, struct vx_request *request)
{
    struct vx_scan scan;
    struct vx_scan_field field;
    *layout = (struct infer_layout){0};
    vx_scan_init(&scan, spans);
    while (vx_scan_left(&scan)) {
        size_t before = vx_scan_left(&scan);
        VX_TRY(vx_scan_field(&scan, &field));
        if (field.number == FIELD_ID) infer_read_id(scan, &field, request);
        vx_scan_copy(&scan, NULL, field.bytes);
        if (field.number != VX_REST_RAW) {
            layout->rest_bytes += before - vx_scan_left(&scan);
            /* Checked inside the loop, because every field is work, however small. */
            VX_ENSURE_WHY(layout->rest_bytes <= VX_INFER_REST_BYTES_MAX, why,
                          RESOURCE_EXHAUSTED, "too many bytes that are not raw tensors",
                          "expected at most %d bytes of names, shapes, parameters and "
                          "typed contents, got %zu or more; send tensors in "
                          "raw_input_contents",
                          VX_INFER_REST_BYTES_MAX, layout->rest_bytes);
            continue;
        }
        VX_ENSURE(field.type == VX_SCAN_BYTES, INVALID_ARGUMENT,
                  "raw_input_contents must be bytes");
        VX_ENSURE(layout->raws_count < VX_INPUTS_MAX, INVALID_ARGUMENT,
                  "raw_input_contents has more entries than a request may have inputs");
        layout->raws[layout->raws_count++] = field.bytes;
    }
    return VX_OK;
}

/* ------- the rest, field by field ------- */

static vx_status read_name(const char *what, const char *text, size_t capacity,
                           struct vx_why *why, char *out)
{
    size_t length = strlen(text);
    VX_ENSURE_WHY(length < capacity, why, INVALID_ARGUMENT, "a name is too long",
                  "%s: expected at most %zu bytes, got %zu", what, capacity - 1, length);
    memcpy(out, text, length + 1);
    return VX_OK;
}

vx_status vx_codec_parse_version(const char *text, struct vx_why *why, i64 *version)
{
    *version = 0;
    if (!text[0]) return VX_OK;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool digits = text[0] >= '0' && text[0] <= '9' && !*end;
    VX_ENSURE_WHY(
        digits && !errno && value > 0, why, INVALID_ARGUMENT,
        "the model version is not a positive integer",
        "failed to get model version from specified version string '%.60s' (details: "
        "expected %s), version should be an integral value > 0",
        text, digits && errno ? "at most 9223372036854775807" : "digits");
    *version = value;
    return VX_OK;
}

/* "[3,4]", for error texts. */
struct shape_text {
    char text[VX_RANK_MAX * 21 + 3]; /* an i64 and its comma are at most 21 */
};

static struct shape_text shape_text(const struct vx_request_tensor *tensor)
{
    struct shape_text shape = {"["};
    size_t length = 1, room = sizeof shape.text;
    for (i32 d = 0; d < tensor->rank; d++)
        length += (size_t)snprintf(shape.text + length, room - length,
                                   d ? ",%lld" : "%lld", (long long)tensor->shape[d]);
    snprintf(shape.text + length, room - length, "]");
    return shape;
}

static vx_status read_shape(const Input *input, struct vx_why *why,
                            struct vx_request_tensor *tensor)
{
    VX_ENSURE_WHY(input->n_shape <= VX_RANK_MAX, why, INVALID_ARGUMENT,
                  "too many dimensions",
                  "input '%.60s': expected at most %d dimensions, got %zu", tensor->name,
                  VX_RANK_MAX, input->n_shape);
    tensor->rank = (i32)input->n_shape;
    tensor->elements = 1;
    bool overflows = false, empty = false;
    for (i32 d = 0; d < tensor->rank; d++) {
        i64 size = input->shape[d];
        VX_ENSURE_WHY(size >= 0, why, INVALID_ARGUMENT, "a dimension is negative",
                      "input '%.60s': dimension %d must be 0 or more, got %lld",
                      tensor->name, d, (long long)size);
        tensor->shape[d] = size;
        empty = empty || size == 0;
        overflows = __builtin_mul_overflow(tensor->elements, size, &tensor->elements) ||
                    overflows;
    }
    if (empty) tensor->elements = 0; /* however large the other dimensions */
    VX_ENSURE_WHY(empty || (!overflows && tensor->elements <= INT64_MAX / 8), why,
                  INVALID_ARGUMENT, "a shape has too many elements",
                  "input '%.60s': the product of its shape %s does not fit 64 bits",
                  tensor->name, shape_text(tensor).text);
    return VX_OK;
}

static vx_status read_input(const Input *input, struct vx_why *why,
                            struct vx_request *request)
{
    struct vx_request_tensor *tensor = &request->inputs[request->inputs_count];
    VX_TRY(read_name("input name", input->name, sizeof tensor->name, why, tensor->name));
    VX_ENSURE_WHY(tensor->name[0], why, INVALID_ARGUMENT, "an input has no name",
                  "input %d has no name", request->inputs_count);
    for (i32 i = 0; i < request->inputs_count; i++)
        VX_ENSURE_WHY(strcmp(request->inputs[i].name, tensor->name), why,
                      INVALID_ARGUMENT, "an input appears twice",
                      "input '%.60s' appears twice", tensor->name);
    tensor->type = vx_wire_type_of(input->datatype);
    VX_ENSURE_WHY(tensor->type != VX_WIRE_NONE, why, INVALID_ARGUMENT, "unknown datatype",
                  "input '%.60s': expected a datatype such as FP32 or INT32, got '%.40s'",
                  tensor->name, input->datatype);
    VX_ENSURE_WHY(tensor->type != VX_WIRE_BYTES, why, INVALID_ARGUMENT,
                  "BYTES is not supported", "input '%.60s': expected numbers, got BYTES",
                  tensor->name);
    VX_TRY(vx_parameters_read_input(input, why, &tensor->region));
    VX_TRY(read_shape(input, why, tensor));
    request->inputs_count++;
    return VX_OK;
}

static vx_status read_outputs(const Request *message, struct vx_why *why,
                              struct vx_request *request)
{
    VX_ENSURE_WHY(message->n_outputs <= VX_REQUEST_OUTPUTS_MAX, why, INVALID_ARGUMENT,
                  "too many outputs", "expected at most %d outputs, got %zu",
                  VX_REQUEST_OUTPUTS_MAX, message->n_outputs);
    for (size_t i = 0; i < message->n_outputs; i++) {
        VX_TRY(read_name("output name", message->outputs[i]->name, VX_WIRE_NAME_BYTES,
                         why, request->outputs[i]));
        VX_ENSURE_WHY(request->outputs[i][0], why, INVALID_ARGUMENT,
                      "an output has no name", "output %zu has no name", i);
        for (size_t j = 0; j < i; j++)
            VX_ENSURE_WHY(strcmp(request->outputs[j], request->outputs[i]), why,
                          INVALID_ARGUMENT, "an output appears twice",
                          "output '%.60s' appears twice", request->outputs[i]);
        VX_TRY(vx_parameters_read_output(message->outputs[i], why,
                                         &request->outputs_region[i]));
    }
    request->outputs_count = (i32)message->n_outputs;
    return VX_OK;
}

static vx_status read_rest(const Request *message, struct vx_why *why,
                           struct vx_request *request)
{
    VX_TRY(read_name("id", message->id, sizeof request->id, why, request->id));
    VX_TRY(read_name("model_name", message->model_name, sizeof request->model, why,
                     request->model));
    VX_ENSURE(request->model[0], INVALID_ARGUMENT,
              "model_name is missing: expected the name of a model");
    VX_TRY(vx_codec_parse_version(message->model_version, why, &request->version));
    VX_TRY(vx_parameters_read_request(message, why, request));
    VX_ASSERT(message->n_inputs <= VX_INPUTS_MAX); /* rest.c */
    for (size_t i = 0; i < message->n_inputs; i++)
        VX_TRY(read_input(message->inputs[i], why, request));
    return read_outputs(message, why, request);
}

/* ------- tensors into slots ------- */

static vx_status tensor_check_bytes(const struct vx_request_tensor *tensor, u64 got,
                                    struct vx_why *why)
{
    u64 expected = (u64)tensor->elements * vx_wire_type_bytes(tensor->type);
    VX_ENSURE_WHY(got == expected, why, INVALID_ARGUMENT,
                  "a tensor has the wrong number of bytes",
                  "input byte size mismatch for input '%.60s', expected %llu, got %llu: "
                  "shape %s of %s",
                  tensor->name, (unsigned long long)expected, (unsigned long long)got,
                  shape_text(tensor).text, vx_wire_type_name(tensor->type));
    return VX_OK;
}

u64 vx_slot_bytes(u64 bytes)
{
    return bytes ? vx_buddy_piece(1, bytes) : 0;
}

/* What pass two works on. */
struct tensor_pass {
    const struct vx_spans *spans;
    const struct infer_layout *layout;
    const struct vx_rest *rest;
    const Request *message;
    const struct vx_slots *slots;
    struct vx_request *request;
};

static bool in_region(const struct vx_request_tensor *tensor)
{
    return tensor->region.name[0] != '\0';
}

/* A request that needs more than the whole arena never fits, whatever else ends. */
static vx_status tensor_refuse(const struct tensor_pass *pass,
                               const struct vx_request_tensor *tensor, u64 bytes,
                               struct vx_why *why)
{
    const u64 arena = pass->slots->bytes;
    u64 all = 0; /* may overflow by shapes whose bytes are not checked yet */
    for (i32 i = 0; i < pass->request->inputs_count; i++) {
        const struct vx_request_tensor *input = &pass->request->inputs[i];
        if (!in_region(input))
            all += vx_slot_bytes((u64)input->elements * vx_wire_type_bytes(input->type));
    }
    VX_ENSURE_WHY(!arena || all <= arena, why, RESOURCE_EXHAUSTED,
                  "the request's tensors need more than the whole arena",
                  "the inputs of this request need %llu bytes, in blocks of powers of "
                  "two, and arena_bytes is %llu: send fewer voxels",
                  (unsigned long long)all, (unsigned long long)arena);
    VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "no room for the request's tensors",
                "no room for %llu bytes of input '%.60s' in the memory for tensors in "
                "flight; try again later",
                (unsigned long long)bytes, tensor->name);
}

static vx_status tensor_take_slot(const struct tensor_pass *pass,
                                  struct vx_request_tensor *tensor, struct vx_why *why)
{
    size_t bytes = (size_t)tensor->elements * vx_wire_type_bytes(tensor->type);
    if (pass->slots->take(pass->slots->context, bytes, &tensor->place)) return VX_OK;
    return tensor_refuse(pass, tensor, bytes, why);
}

/* There is a raw entry for each input that is not in shared memory, in their order. */
static vx_status raws_check(const struct tensor_pass *pass, struct vx_why *why)
{
    const struct vx_request *request = pass->request;
    i32 expected = 0;
    for (i32 i = 0; i < request->inputs_count; i++)
        expected += !in_region(&request->inputs[i]);
    VX_ENSURE_WHY(
        pass->layout->raws_count == expected, why, INVALID_ARGUMENT,
        "raw_input_contents must have one entry for each input",
        "expected %d entries in raw_input_contents, one for each input%s, got %d",
        expected,
        expected == request->inputs_count ? "" : " that is not in shared memory",
        pass->layout->raws_count);
    for (i32 i = 0, raw = 0; i < request->inputs_count; i++)
        if (!in_region(&request->inputs[i]))
            VX_TRY(
                tensor_check_bytes(&request->inputs[i], pass->layout->raws[raw++], why));
    return VX_OK;
}

static vx_status tensors_from_raw(const struct tensor_pass *pass, struct vx_why *why)
{
    const struct vx_slots *slots = pass->slots;
    struct vx_request *request = pass->request;
    VX_TRY(raws_check(pass, why));
    for (i32 i = 0; i < request->inputs_count; i++)
        if (!in_region(&request->inputs[i]))
            VX_TRY(tensor_take_slot(pass, &request->inputs[i], why));
    struct vx_scan scan;
    struct vx_scan_field field;
    vx_scan_init(&scan, pass->spans);
    for (i32 i = 0; i < request->inputs_count;) {
        if (in_region(&request->inputs[i])) {
            i++;
            continue;
        }
        VX_TRY(vx_scan_field(&scan, &field));
        u8 *out = NULL;
        if (field.number == VX_REST_RAW) {
            const struct vx_place *place = &request->inputs[i++].place;
            if (place->bytes) out = slots->memory(slots->context, place);
        }
        vx_scan_copy(&scan, out, field.bytes);
    }
    return VX_OK;
}

static vx_status tensors_from_typed(const struct tensor_pass *pass, struct vx_why *why)
{
    const struct vx_slots *slots = pass->slots;
    for (i32 i = 0; i < pass->request->inputs_count; i++) {
        struct vx_request_tensor *tensor = &pass->request->inputs[i];
        const Inference__InferTensorContents *contents =
            pass->message->inputs[i]->contents;
        if (in_region(tensor)) continue;
        VX_TRY(vx_typed_check(contents, &pass->rest->inputs[i], tensor, why));
        VX_TRY(tensor_take_slot(pass, tensor, why));
        if (tensor->place.bytes)
            VX_TRY(vx_typed_read(&pass->rest->inputs[i], tensor, why,
                                 slots->memory(slots->context, &tensor->place)));
    }
    return VX_OK;
}

/* A tensor is in one place: raw, typed or shared memory. */
static vx_status check_places(const struct tensor_pass *pass, struct vx_why *why)
{
    for (i32 i = 0; i < pass->request->inputs_count; i++) {
        const struct vx_request_tensor *tensor = &pass->request->inputs[i];
        bool typed = pass->message->inputs[i]->contents != NULL;
        VX_ENSURE_WHY(!typed || !in_region(tensor), why, INVALID_ARGUMENT,
                      "an input has contents and is in shared memory",
                      "unexpected 'content' provided when using shared memory for input "
                      "tensor '%.60s' for model '%.60s'",
                      tensor->name, pass->request->model);
        VX_ENSURE_WHY(
            !typed || !pass->layout->raws_count, why, INVALID_ARGUMENT,
            "contents field must not be specified when using raw_input_contents",
            "contents field must not be specified when using raw_input_contents "
            "for '%.60s' for model '%.60s'",
            tensor->name, pass->request->model);
        if (in_region(tensor))
            VX_TRY(tensor_check_bytes(tensor, tensor->region.bytes, why));
    }
    return VX_OK;
}

static vx_status read_tensors(const struct tensor_pass *pass, struct vx_why *why)
{
    VX_TRY(check_places(pass, why));
    return pass->layout->raws_count ? tensors_from_raw(pass, why)
                                    : tensors_from_typed(pass, why);
}

vx_status vx_codec_parse_infer(const struct vx_spans *spans, const struct vx_slots *slots,
                               struct vx_arena *scratch, struct vx_why *why,
                               struct vx_request *request)
{
    struct infer_layout layout;
    struct vx_rest rest;
    ProtobufCMessage *message;
    memset(request, 0, sizeof *request);
    VX_TRY(infer_measure(spans, &layout, why, request));
    VX_TRY(vx_rest_gather(spans, layout.rest_bytes, scratch, why, &rest));
    VX_TRY(vx_control_unpack(&inference__model_infer_request__descriptor, rest.bytes,
                             scratch, why, &message));
    const Request *infer = (const Request *)(const void *)message;
    VX_TRY(read_rest(infer, why, request));
    struct tensor_pass pass = {spans, &layout, &rest, infer, slots, request};
    vx_status st = read_tensors(&pass, why);
    if (st.fault)
        for (i32 i = 0; i < request->inputs_count; i++) {
            struct vx_place *place = &request->inputs[i].place;
            if (place->bytes) slots->give(slots->context, place);
            *place = (struct vx_place){0};
        }
    return st;
}
