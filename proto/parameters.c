/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/parameters.h"

#include "engine/base/limits.h"
#include "engine/base/text/typed.h"

#include <ctype.h>
#include <string.h>

typedef Inference__InferParameter Parameter;

#define CASE(name_) INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_##name_

/* Names a parameter in error texts: "parameter 'priority'", or "input 'feats': parameter
 * 'shared_memory_offset'". */
struct place {
    const char *kind, *name; /* kind "": a parameter of the request */
    const char *key;
};

#define PLACE_FORMAT "%s%s%.60s%sparameter '%.60s'"
#define PLACE_TEXT(p_)                                                                   \
    (p_)->kind, *(p_)->kind ? " '" : "", (p_)->name, *(p_)->kind ? "': " : "", (p_)->key

static int value_kind(const Parameter *value)
{
    return value ? (int)value->parameter_choice_case : 0;
}

static const char *value_kind_name(const Parameter *value)
{
    switch (value_kind(value)) {
    case CASE(BOOL_PARAM): return "bool_param";
    case CASE(INT64_PARAM): return "int64_param";
    case CASE(STRING_PARAM): return "string_param";
    case CASE(DOUBLE_PARAM): return "double_param";
    case CASE(UINT64_PARAM): return "uint64_param";
    default: return "none";
    }
}

/* A count that clients write as int64 or as uint64. */
static vx_status parameter_count(const struct place *place, const Parameter *value,
                                 struct vx_why *why, u64 *count)
{
    int kind = value_kind(value);
    bool is_count = kind == CASE(UINT64_PARAM) || kind == CASE(INT64_PARAM);
    VX_ENSURE_WHY(is_count, why, INVALID_ARGUMENT, "a parameter has the wrong type",
                  PLACE_FORMAT ": expected int64_param or uint64_param, got %s",
                  PLACE_TEXT(place), value_kind_name(value));
    VX_ENSURE_WHY(kind == CASE(UINT64_PARAM) || value->int64_param >= 0, why,
                  INVALID_ARGUMENT, "a parameter is negative",
                  PLACE_FORMAT
                  ": expected int64_param or uint64_param, 0 or more, got %lld",
                  PLACE_TEXT(place), (long long)value->int64_param);
    *count = kind == CASE(UINT64_PARAM) ? value->uint64_param : (u64)value->int64_param;
    return VX_OK;
}

static vx_status parameter_flag(const struct place *place, const Parameter *value,
                                struct vx_why *why, bool *flag)
{
    VX_ENSURE_WHY(value_kind(value) == CASE(BOOL_PARAM), why, INVALID_ARGUMENT,
                  "a parameter has the wrong type",
                  PLACE_FORMAT ": expected bool_param, got %s", PLACE_TEXT(place),
                  value_kind_name(value));
    *flag = value->bool_param;
    return VX_OK;
}

/* true, or "layers" for more. */
static vx_status parameter_timing(const struct place *place, const Parameter *value,
                                  struct vx_why *why, struct vx_request *request)
{
    if (value_kind(value) != CASE(STRING_PARAM))
        return parameter_flag(place, value, why, &request->timing);
    VX_ENSURE_WHY(!strcmp(value->string_param, "layers"), why, INVALID_ARGUMENT,
                  "a parameter has the wrong value",
                  PLACE_FORMAT ": expected true, false or \"layers\", got '%.60s'",
                  PLACE_TEXT(place), value->string_param);
    request->timing = request->layers = true;
    return VX_OK;
}

/* "" asks for the coords_ref of the coords in this request; a coords_ref stands for
 * coords of an earlier one. */
static vx_status parameter_geometry(const struct place *place, const Parameter *value,
                                    struct vx_why *why, struct vx_request *request)
{
    VX_ENSURE_WHY(value_kind(value) == CASE(STRING_PARAM), why, INVALID_ARGUMENT,
                  "a parameter has the wrong type",
                  PLACE_FORMAT ": expected string_param, got %s", PLACE_TEXT(place),
                  value_kind_name(value));
    const char *text = value->string_param;
    bool zeros = strspn(text, "0") == 32 && !text[32];
    VX_ENSURE_WHY(!zeros, why, INVALID_ARGUMENT, "a parameter is not a coords_ref",
                  PLACE_FORMAT
                  ": expected \"\" or a coords_ref from an answer, got 32 zeros, "
                  "which is never one",
                  PLACE_TEXT(place));
    VX_ENSURE_WHY(!text[0] || vx_coords_ref_parse(text, &request->coords_ref), why,
                  INVALID_ARGUMENT, "a parameter is not a coords_ref",
                  PLACE_FORMAT
                  ": expected \"\" or a coords_ref from an answer, 32 digits of "
                  "lower-case hexadecimal, got %zu bytes that begin with '%.4s'",
                  PLACE_TEXT(place), strlen(text), text);
    request->coords_named = true;
    return VX_OK;
}

/* Three sizes as in "1440x1440x40", the way strides are written in answers. */
static vx_status parameter_shape(const struct place *place, const Parameter *value,
                                 struct vx_why *why, i32 shape[3])
{
    VX_ENSURE_WHY(value_kind(value) == CASE(STRING_PARAM), why, INVALID_ARGUMENT,
                  "a parameter has the wrong type",
                  PLACE_FORMAT ": expected string_param, got %s", PLACE_TEXT(place),
                  value_kind_name(value));
    const char *at = value->string_param;
    bool good = true;
    for (int axis = 0; axis < 3; axis++) {
        i64 size = 0;
        size_t digits = strspn(at, "0123456789");
        for (size_t i = 0; i < digits && size <= VX_SHAPE_AXIS_MAX; i++)
            size = size * 10 + (at[i] - '0');
        at += digits;
        good = good && size >= 1 && size <= VX_SHAPE_AXIS_MAX;
        good = good && *at == (axis < 2 ? 'x' : '\0');
        if (!good) break;
        shape[axis] = (i32)size;
        at++;
    }
    VX_ENSURE_WHY(
        good, why, INVALID_ARGUMENT, "a parameter is not a shape",
        PLACE_FORMAT
        ": expected three sizes of 1 to %d, as in \"1440x1440x40\", got '%.60s'",
        PLACE_TEXT(place), VX_SHAPE_AXIS_MAX, value->string_param);
    return VX_OK;
}

static bool starts_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* Parameters of a sequence mean nothing to a model without state.  As in Triton, their
 * types are checked and they are ignored. */
static vx_status parameter_sequence(const struct place *place, const Parameter *value,
                                    struct vx_why *why)
{
    bool ignored;
    int kind = value_kind(value);
    if (strcmp(place->key, "sequence_id"))
        return parameter_flag(place, value, why, &ignored);
    VX_ENSURE_WHY(kind == CASE(INT64_PARAM) || kind == CASE(UINT64_PARAM) ||
                      kind == CASE(STRING_PARAM),
                  why, INVALID_ARGUMENT, "a parameter has the wrong type",
                  PLACE_FORMAT ": expected int64_param or string_param, got %s",
                  PLACE_TEXT(place), value_kind_name(value));
    return VX_OK;
}

/* In lower case, and without what joins words. */
static void word_fold(const char *word, char out[VX_NAME_BYTES])
{
    size_t length = 0;
    for (; *word && length < VX_NAME_BYTES - 1; word++)
        if (*word != '_' && *word != '-')
            out[length++] = (char)tolower((unsigned char)*word);
    out[length] = '\0';
}

/* The key that a person meant who wrote this one, with one mistake at most; or NULL. */
static const char *key_meant(const char *key)
{
    static const char *const known[] = {"priority",      "timeout",    "timing",
                                        "spatial_shape", "coords_ref", NULL};
    char folded[VX_NAME_BYTES], other[VX_NAME_BYTES];
    word_fold(key, folded);
    for (size_t i = 0; known[i]; i++) {
        word_fold(known[i], other);
        if (strlen(folded) > strlen(other) + 1) continue; /* each letter is work */
        if (vx_word_distance(folded, other) <= 1) return known[i];
    }
    return NULL;
}

/* Keys of the user's own: of the types that Triton takes, and ignored. */
static vx_status parameter_custom(const struct place *place, const Parameter *value,
                                  struct vx_why *why)
{
    int kind = value_kind(value);
    VX_ENSURE_WHY(!starts_with(place->key, "triton_"), why, INVALID_ARGUMENT,
                  "a reserved parameter",
                  "parameter keys starting with 'triton_' are reserved, got '%.60s'",
                  place->key);
    /* A request that was to end in time, or to name its coordinates, would do neither. */
    const char *meant = key_meant(place->key);
    VX_ENSURE_WHY(!meant, why, INVALID_ARGUMENT, "a misspelt parameter",
                  PLACE_FORMAT
                  ": expected '%s', or a key of your own that is less like it",
                  PLACE_TEXT(place), meant);
    VX_ENSURE_WHY(kind && kind != CASE(UINT64_PARAM), why, INVALID_ARGUMENT,
                  "a parameter has the wrong type",
                  PLACE_FORMAT ": expected bool_param, int64_param, string_param or "
                               "double_param for a key of your own, got %s",
                  PLACE_TEXT(place), value_kind_name(value));
    return VX_OK;
}

static vx_status parameter_read(const char *key, const Parameter *value,
                                struct vx_why *why, struct vx_request *request)
{
    const struct place place = {"", "", key};
    bool ignored;
    if (!strcmp(key, "priority"))
        return parameter_count(&place, value, why, &request->priority);
    if (!strcmp(key, "timing")) return parameter_timing(&place, value, why, request);
    if (!strcmp(key, "coords_ref"))
        return parameter_geometry(&place, value, why, request);
    if (!strcmp(key, "spatial_shape"))
        return parameter_shape(&place, value, why, request->shape);
    if (!strcmp(key, "timeout")) {
        u64 timeout_us;
        VX_TRY(parameter_count(&place, value, why, &timeout_us));
        request->timeout_us = timeout_us > INT64_MAX ? INT64_MAX : (i64)timeout_us;
        return VX_OK;
    }
    if (!strcmp(key, "sequence_id") || !strcmp(key, "sequence_start") ||
        !strcmp(key, "sequence_end"))
        return parameter_sequence(&place, value, why);
    /* The C++ client sends this one with every request. */
    if (!strcmp(key, "triton_enable_empty_final_response"))
        return parameter_flag(&place, value, why, &ignored);
    return parameter_custom(&place, value, why);
}

/* A protobuf map on the wire may repeat a key: then only the last entry counts. */
static bool parameter_is_replaced(const Inference__ModelInferRequest *message,
                                  size_t index)
{
    for (size_t i = index + 1; i < message->n_parameters; i++)
        if (!strcmp(message->parameters[i]->key, message->parameters[index]->key))
            return true;
    return false;
}

vx_status vx_parameters_read_request(const Inference__ModelInferRequest *message,
                                     struct vx_why *why, struct vx_request *request)
{
    VX_ENSURE_WHY(message->n_parameters <= VX_PARAMETERS_MAX, why, INVALID_ARGUMENT,
                  "too many parameters", "expected at most %d parameters, got %zu",
                  VX_PARAMETERS_MAX, message->n_parameters);
    for (size_t i = 0; i < message->n_parameters; i++) {
        const char *key = message->parameters[i]->key;
        if (parameter_is_replaced(message, i)) continue;
        VX_TRY(parameter_read(key, message->parameters[i]->value, why, request));
    }
    return VX_OK;
}

/* The parameters of a tensor that matter; of a repeated key, the last. */
struct tensor_parameters {
    const char *kind, *name; /* "input", and its name */
    const Parameter *region, *bytes, *offset;
    bool classification;
};

static vx_status tensor_note(const char *key, const Parameter *value, struct vx_why *why,
                             struct tensor_parameters *found)
{
    static const Parameter none = INFERENCE__INFER_PARAMETER__INIT;
    if (!value) value = &none;
    if (!strcmp(key, "shared_memory_region"))
        found->region = value;
    else if (!strcmp(key, "shared_memory_byte_size"))
        found->bytes = value;
    else if (!strcmp(key, "shared_memory_offset"))
        found->offset = value;
    else if (!strcmp(key, "classification"))
        found->classification = true;
    else /* ignoring a misspelt key would take the tensor from the wrong place */
        VX_ENSURE_WHY(
            !starts_with(key, "shared_memory_"), why, INVALID_ARGUMENT,
            "an unknown shared_memory_ parameter",
            "%s '%.60s': expected shared_memory_region, shared_memory_byte_size "
            "or shared_memory_offset, got '%.60s'",
            found->kind, found->name, key);
    return VX_OK;
}

static vx_status tensor_region_name(const struct tensor_parameters *found,
                                    struct vx_why *why, struct vx_request_region *region)
{
    const Parameter *value = found->region;
    VX_ENSURE_WHY(
        value_kind(value) == CASE(STRING_PARAM), why, INVALID_ARGUMENT,
        "a parameter has the wrong type",
        "invalid value type for 'shared_memory_region' parameter for %s '%.60s', "
        "expected string_param, got %s",
        found->kind, found->name, value_kind_name(value));
    size_t length = strlen(value->string_param);
    VX_ENSURE_WHY(
        length > 0 && length < sizeof region->name, why, INVALID_ARGUMENT,
        "the name of a region is empty or too long",
        "'shared_memory_region' of %s '%.60s': expected 1 to %zu bytes, got %zu",
        found->kind, found->name, sizeof region->name - 1, length);
    memcpy(region->name, value->string_param, length + 1);
    return VX_OK;
}

static vx_status tensor_region(const struct tensor_parameters *found, struct vx_why *why,
                               struct vx_request_region *region)
{
    *region = (struct vx_request_region){0};
    const char *alone = found->bytes    ? "shared_memory_byte_size"
                        : found->offset ? "shared_memory_offset"
                                        : NULL;
    VX_ENSURE_WHY(
        found->region || !alone, why, INVALID_ARGUMENT,
        "a parameter of shared memory without its region",
        "'%s' can not be specified without 'shared_memory_region' parameter for "
        "%s '%.60s'",
        alone, found->kind, found->name);
    VX_ENSURE_WHY(!found->region || !found->classification, why, INVALID_ARGUMENT,
                  "shared memory and classification exclude each other",
                  "%s '%.60s' has both 'shared_memory_region' and 'classification' "
                  "parameters: expected one of them",
                  found->kind, found->name);
    VX_ENSURE_WHY(
        !found->classification, why, INVALID_ARGUMENT, "classification is not supported",
        "%s '%.60s': classification is not supported; request the tensor itself",
        found->kind, found->name);
    if (!found->region) return VX_OK;
    VX_ENSURE_WHY(found->bytes, why, INVALID_ARGUMENT, "a region without its bytes",
                  "'shared_memory_byte_size' must be specified along with "
                  "'shared_memory_region' parameter for %s '%.60s'",
                  found->kind, found->name);
    struct place place = {found->kind, found->name, "shared_memory_byte_size"};
    VX_TRY(parameter_count(&place, found->bytes, why, &region->bytes));
    place.key = "shared_memory_offset";
    if (found->offset)
        VX_TRY(parameter_count(&place, found->offset, why, &region->offset));
    return tensor_region_name(found, why, region);
}

vx_status
vx_parameters_read_input(const Inference__ModelInferRequest__InferInputTensor *input,
                         struct vx_why *why, struct vx_request_region *region)
{
    struct tensor_parameters found = {.kind = "input", .name = input->name};
    for (size_t i = 0; i < input->n_parameters; i++)
        VX_TRY(tensor_note(input->parameters[i]->key, input->parameters[i]->value, why,
                           &found));
    return tensor_region(&found, why, region);
}

vx_status vx_parameters_read_output(
    const Inference__ModelInferRequest__InferRequestedOutputTensor *output,
    struct vx_why *why, struct vx_request_region *region)
{
    struct tensor_parameters found = {.kind = "output", .name = output->name};
    for (size_t i = 0; i < output->n_parameters; i++)
        VX_TRY(tensor_note(output->parameters[i]->key, output->parameters[i]->value, why,
                           &found));
    return tensor_region(&found, why, region);
}
