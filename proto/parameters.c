/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/parameters.h"

#include <string.h>

typedef Inference__InferParameter Parameter;

#define CASE(name_) INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_##name_

/* A count that clients write as int64 or as uint64. */
static vx_status parameter_count(const char *key, const Parameter *value,
                                 struct vx_why *why, u64 *count)
{
    int kind = value ? (int)value->parameter_choice_case : 0;
    bool fits = kind == CASE(UINT64_PARAM) ||
                (kind == CASE(INT64_PARAM) && value->int64_param >= 0);
    VX_ENSURE_WHY(
        kind != CASE(INT64_PARAM) || fits, why, INVALID_ARGUMENT,
        "a parameter is negative",
        "parameter '%.60s': expected int64_param or uint64_param, 0 or more, got %lld",
        key, (long long)value->int64_param);
    VX_ENSURE_WHY(
        fits, why, INVALID_ARGUMENT, "a parameter has the wrong type",
        "parameter '%.60s': expected int64_param or uint64_param, got another or none",
        key);
    *count = kind == CASE(UINT64_PARAM) ? value->uint64_param : (u64)value->int64_param;
    return VX_OK;
}

static vx_status parameter_flag(const char *key, const Parameter *value,
                                struct vx_why *why, bool *flag)
{
    VX_ENSURE_WHY(value && (int)value->parameter_choice_case == CASE(BOOL_PARAM), why,
                  INVALID_ARGUMENT, "a parameter has the wrong type",
                  "parameter '%.60s': expected bool_param", key);
    *flag = value->bool_param;
    return VX_OK;
}

/* "" asks for the name of what is sent; a name stands for coordinates that came before. */
static vx_status parameter_geometry(const char *key, const Parameter *value,
                                    struct vx_why *why, struct vx_request *request)
{
    VX_ENSURE_WHY(value && (int)value->parameter_choice_case == CASE(STRING_PARAM), why,
                  INVALID_ARGUMENT, "a parameter has the wrong type",
                  "parameter '%.60s': expected string_param", key);
    const char *text = value->string_param;
    VX_ENSURE_WHY(
        !text[0] || vx_content_parse(text, &request->coords_ref), why, INVALID_ARGUMENT,
        "a parameter is no name of a geometry",
        "parameter '%.60s': expected \"\" or a name that an answer gave, 32 digits of "
        "lower-case hexadecimal, got '%.60s'",
        key, text);
    request->coords_named = true;
    return VX_OK;
}

/* Whether a sequence_* value says anything: clients send zeros and false by default. */
static bool parameter_says_something(const Parameter *value)
{
    switch (value ? (int)value->parameter_choice_case : 0) {
    case CASE(BOOL_PARAM): return value->bool_param;
    case CASE(INT64_PARAM): return value->int64_param != 0;
    case CASE(UINT64_PARAM): return value->uint64_param != 0;
    case CASE(STRING_PARAM): return value->string_param[0] != '\0';
    default: return false;
    }
}

static bool starts_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

static vx_status parameter_read(const char *key, const Parameter *value,
                                struct vx_why *why, struct vx_request *request)
{
    if (!strcmp(key, "priority"))
        return parameter_count(key, value, why, &request->priority);
    if (!strcmp(key, "timing")) return parameter_flag(key, value, why, &request->timing);
    if (!strcmp(key, "coords_ref")) return parameter_geometry(key, value, why, request);
    if (!strcmp(key, "timeout")) {
        u64 timeout_us;
        VX_TRY(parameter_count(key, value, why, &timeout_us));
        request->timeout_us = timeout_us > INT64_MAX ? INT64_MAX : (i64)timeout_us;
        return VX_OK;
    }
    VX_ENSURE_WHY(!starts_with(key, "sequence_") || !parameter_says_something(value), why,
                  INVALID_ARGUMENT, "sequences are not served",
                  "parameter '%.60s': models here keep no state between requests", key);
    /* The C++ client sends this one with every request. */
    bool known = !strcmp(key, "triton_enable_empty_final_response");
    VX_ENSURE_WHY(known || !starts_with(key, "triton_"), why, INVALID_ARGUMENT,
                  "a reserved parameter",
                  "parameter keys starting with 'triton_' are reserved, got '%.60s'",
                  key);
    return VX_OK;
}

/* Of a key that is there twice only the last one exists: so maps are on the wire. */
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

static vx_status tensor_parameter(const char *kind, const char *name, const char *key,
                                  struct vx_why *why)
{
    VX_ENSURE_WHY(
        !starts_with(key, "shared_memory_"), why, INVALID_ARGUMENT,
        "shared memory is not served",
        "%s '%.60s': shared memory is not served here; send the tensor's bytes in "
        "raw_input_contents",
        kind, name);
    VX_ENSURE_WHY(strcmp(key, "classification"), why, INVALID_ARGUMENT,
                  "classification is not served",
                  "%s '%.60s': classification is not served here; ask for the tensor",
                  kind, name);
    return VX_OK;
}

vx_status
vx_parameters_read_input(const Inference__ModelInferRequest__InferInputTensor *input,
                         struct vx_why *why)
{
    for (size_t i = 0; i < input->n_parameters; i++)
        VX_TRY(tensor_parameter("input", input->name, input->parameters[i]->key, why));
    return VX_OK;
}

vx_status vx_parameters_read_output(
    const Inference__ModelInferRequest__InferRequestedOutputTensor *output,
    struct vx_why *why)
{
    for (size_t i = 0; i < output->n_parameters; i++)
        VX_TRY(tensor_parameter("output", output->name, output->parameters[i]->key, why));
    return VX_OK;
}
