/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/proto/codec_judge.h"

#include "engine/base/limits.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;
typedef Inference__InferTensorContents Contents;
typedef Inference__InferParameter Parameter;

struct wanted {
    const char *name;
    size_t bytes;
};
static const struct wanted types[] = {
    {"BOOL", 1}, {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8},
    {"INT8", 1}, {"INT16", 2}, {"INT32", 4},  {"INT64", 8},  {"FP16", 2},
    {"FP32", 4}, {"FP64", 8},  {"BF16", 2},
};

static size_t judge_type(const Input *input)
{
    for (size_t i = 0; i < VX_COUNT(types); i++)
        if (!strcmp(types[i].name, input->datatype)) return types[i].bytes;
    return 0;
}

/* Elements, or -1 when the shape is wrong.  Computed in 128 bits, where no overflow
 * goes unnoticed. */
static i64 judge_elements(const Input *input)
{
    __extension__ __int128 product = 1;
    if (input->n_shape > VX_RANK_MAX) return -1;
    for (size_t i = 0; i < input->n_shape; i++) {
        if (input->shape[i] < 0) return -1;
        if (!input->shape[i]) product = 0;
    }
    for (size_t i = 0; i < input->n_shape; i++) {
        product *= input->shape[i];
        if (product > INT64_MAX / 8) return -1;
    }
    return (i64)product;
}

static size_t judge_values(const Contents *contents, const char *type)
{
    size_t all = contents->n_bool_contents + contents->n_int_contents +
                 contents->n_int64_contents + contents->n_uint_contents +
                 contents->n_uint64_contents + contents->n_fp32_contents +
                 contents->n_fp64_contents + contents->n_bytes_contents;
    bool is_int =
        !strcmp(type, "INT8") || !strcmp(type, "INT16") || !strcmp(type, "INT32");
    bool is_uint =
        !strcmp(type, "UINT8") || !strcmp(type, "UINT16") || !strcmp(type, "UINT32");
    size_t right = is_int                    ? contents->n_int_contents
                   : is_uint                 ? contents->n_uint_contents
                   : !strcmp(type, "BOOL")   ? contents->n_bool_contents
                   : !strcmp(type, "INT64")  ? contents->n_int64_contents
                   : !strcmp(type, "UINT64") ? contents->n_uint64_contents
                   : !strcmp(type, "FP32")   ? contents->n_fp32_contents
                   : !strcmp(type, "FP64")   ? contents->n_fp64_contents
                                             : SIZE_MAX;
    if (right != all) return SIZE_MAX;
    for (size_t i = 0; i < contents->n_int_contents; i++) {
        i32 value = contents->int_contents[i];
        if (!strcmp(type, "INT8") && value != (i8)value) return SIZE_MAX;
        if (!strcmp(type, "INT16") && value != (i16)value) return SIZE_MAX;
    }
    for (size_t i = 0; i < contents->n_uint_contents; i++) {
        u32 value = contents->uint_contents[i];
        if (!strcmp(type, "UINT8") && value != (u8)value) return SIZE_MAX;
        if (!strcmp(type, "UINT16") && value != (u16)value) return SIZE_MAX;
    }
    return right;
}

static bool judge_count(const Parameter *value)
{
    int kind = value ? (int)value->parameter_choice_case : 0;
    return kind == 5 || (kind == 2 && value->int64_param >= 0);
}

/* The shared memory parameters of a tensor; of equal keys the last one. */
struct place {
    const Parameter *said[4]; /* in the order of place_keys */
    bool there[4];
};
static const char *const place_keys[4] = {"shared_memory_region",
                                          "shared_memory_byte_size",
                                          "shared_memory_offset", "classification"};

static bool judge_key(struct place *place, const char *key, const Parameter *value)
{
    for (int k = 0; k < 4; k++) {
        if (strcmp(key, place_keys[k])) continue;
        place->said[k] = value;
        place->there[k] = true;
        return true;
    }
    return strncmp(key, "shared_memory_", 14) != 0;
}

static u64 place_number(const Parameter *value)
{
    if (!value) return 0;
    return value->parameter_choice_case == 5 ? value->uint64_param
                                             : (u64)value->int64_param;
}

static bool judge_place(const struct place *place)
{
    if (place->there[3]) return false;
    if (!place->there[0]) return !place->there[1] && !place->there[2];
    const Parameter *region = place->said[0];
    if (!region || (int)region->parameter_choice_case != 3) return false;
    size_t length = strlen(region->string_param);
    if (!length || length >= VX_WIRE_NAME_BYTES) return false;
    return place->there[1] && judge_count(place->said[1]) &&
           (!place->there[2] || judge_count(place->said[2]));
}

static bool input_place(const Input *input, struct place *place)
{
    *place = (struct place){0};
    for (size_t i = 0; i < input->n_parameters; i++)
        if (!judge_key(place, input->parameters[i]->key, input->parameters[i]->value))
            return false;
    return judge_place(place);
}

static bool
output_place(const Inference__ModelInferRequest__InferRequestedOutputTensor *output,
             struct place *place)
{
    *place = (struct place){0};
    for (size_t i = 0; i < output->n_parameters; i++)
        if (!judge_key(place, output->parameters[i]->key, output->parameters[i]->value))
            return false;
    return judge_place(place);
}

/* Which raw entry is the input's: only inputs outside shared memory have one. */
static size_t raw_index(const Request *request, size_t index)
{
    size_t raw = 0;
    for (size_t i = 0; i < index; i++) {
        struct place place;
        if (input_place(request->inputs[i], &place)) raw += !place.there[0];
    }
    return raw;
}

static bool judge_input(const Request *request, size_t index)
{
    const Input *input = request->inputs[index];
    struct place place;
    i64 elements = judge_elements(input);
    size_t bytes = judge_type(input), length = strlen(input->name);
    if (!bytes || elements < 0 || !length || length >= VX_WIRE_NAME_BYTES) return false;
    for (size_t i = 0; i < index; i++)
        if (!strcmp(request->inputs[i]->name, input->name)) return false;
    if (!input_place(input, &place)) return false;
    if (place.there[0])
        return !input->contents && place_number(place.said[1]) == (u64)elements * bytes;
    if (!request->n_raw_input_contents)
        return input->contents
                   ? judge_values(input->contents, input->datatype) == (size_t)elements
                   : !elements;
    size_t raw = raw_index(request, index);
    return !input->contents && raw < request->n_raw_input_contents &&
           request->raw_input_contents[raw].len == (size_t)elements * bytes;
}

/* "", or 32 lower-case digits of which one is not 0. */
static bool judge_ref(const char *text)
{
    size_t length = strlen(text);
    return !length || (length == 32 && strspn(text, "0123456789abcdef") == 32 &&
                       strspn(text, "0") < 32);
}

/* Three sizes, 1 to the range of coordinates, with an x between them. */
static bool judge_shape(const char *text)
{
    for (int axis = 0; axis < 3; axis++) {
        char *end;
        if (*text < '0' || *text > '9') return false;
        unsigned long long size = strtoull(text, &end, 10);
        if (size < 1 || size > 131072 || *end != (axis < 2 ? 'x' : 0)) return false;
        text = end + 1;
    }
    return true;
}

/* Whether one letter more, less, another, or two swapped make `a` of `b`; by trying all. */
static bool judge_near(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    if (!*a && !*b) return true;
    bool swapped = *a && *b && a[0] == b[1] && a[1] == b[0] && !strcmp(a + 2, b + 2);
    return swapped || (*a && !strcmp(a + 1, b)) || (*b && !strcmp(a, b + 1)) ||
           (*a && *b && !strcmp(a + 1, b + 1));
}

static bool judge_misspelt(const char *key)
{
    char bare[VX_NAME_BYTES];
    size_t length = 0;
    for (; *key && length < sizeof bare - 1; key++)
        if (!strspn(key, "_-"))
            bare[length++] = (char)(*key >= 'A' && *key <= 'Z' ? *key + 32 : *key);
    bare[length] = '\0';
    return judge_near(bare, "priority") || judge_near(bare, "timeout") ||
           judge_near(bare, "timing") || judge_near(bare, "spatialshape") ||
           judge_near(bare, "coordsref");
}

static bool judge_parameter(const char *key, const Parameter *value)
{
    int kind = value ? (int)value->parameter_choice_case : 0;
    if (!strcmp(key, "priority") || !strcmp(key, "timeout")) return judge_count(value);
    if (!strcmp(key, "timing"))
        return kind == 1 || (kind == 3 && !strcmp(value->string_param, "layers"));
    if (!strcmp(key, "coords_ref")) return kind == 3 && judge_ref(value->string_param);
    if (!strcmp(key, "spatial_shape"))
        return kind == 3 && judge_shape(value->string_param);
    if (!strcmp(key, "triton_enable_empty_final_response")) return kind == 1;
    if (!strncmp(key, "triton_", 7)) return false;
    if (!strcmp(key, "sequence_id")) return kind == 2 || kind == 3 || kind == 5;
    if (!strcmp(key, "sequence_start") || !strcmp(key, "sequence_end")) return kind == 1;
    return kind >= 1 && kind <= 4 && !judge_misspelt(key);
}

static bool judge_version(const char *version)
{
    if (strspn(version, "0123456789") != strlen(version)) return false;
    return !version[0] || (strlen(version) < 19 && strtoll(version, NULL, 10) > 0);
}

static bool judge_outputs(const Request *request)
{
    if (request->n_outputs > VX_REQUEST_OUTPUTS_MAX) return false;
    for (size_t i = 0; i < request->n_outputs; i++) {
        const Inference__ModelInferRequest__InferRequestedOutputTensor *output =
            request->outputs[i];
        if (!output->name[0] || strlen(output->name) >= VX_WIRE_NAME_BYTES) return false;
        for (size_t j = 0; j < i; j++)
            if (!strcmp(request->outputs[j]->name, output->name)) return false;
        struct place place;
        if (!output_place(output, &place)) return false;
    }
    return true;
}

bool judge_request(const Request *request)
{
    if (!request->model_name[0] || strlen(request->model_name) >= VX_WIRE_NAME_BYTES)
        return false;
    if (strlen(request->id) >= VX_REQUEST_ID_BYTES) return false;
    if (!judge_version(request->model_version) || !judge_outputs(request)) return false;
    size_t raws = request->n_raw_input_contents;
    if (request->n_inputs > VX_INPUTS_MAX) return false;
    if (raws && raws != raw_index(request, request->n_inputs)) return false;
    for (size_t i = 0; i < request->n_inputs; i++)
        if (!judge_input(request, i)) return false;
    for (size_t i = 0; i < request->n_parameters; i++) {
        bool last = true;
        for (size_t j = i + 1; j < request->n_parameters; j++)
            last =
                last && strcmp(request->parameters[i]->key, request->parameters[j]->key);
        if (last &&
            !judge_parameter(request->parameters[i]->key, request->parameters[i]->value))
            return false;
    }
    return true;
}

/* ------- content ------- */

/* Element `at` of the typed contents as bytes. */
static void check_element(const Input *input, i64 at, const u8 *memory, size_t bytes)
{
    const Contents *contents = input->contents;
    u64 value = 0;
    if (contents->n_bool_contents) value = contents->bool_contents[at] != 0;
    if (contents->n_int_contents) value = (u64)contents->int_contents[at];
    if (contents->n_int64_contents) value = (u64)contents->int64_contents[at];
    if (contents->n_uint_contents) value = contents->uint_contents[at];
    if (contents->n_uint64_contents) value = contents->uint64_contents[at];
    if (contents->n_fp32_contents) memcpy(&value, &contents->fp32_contents[at], 4);
    if (contents->n_fp64_contents) memcpy(&value, &contents->fp64_contents[at], 8);
    ck_assert(!memcmp(memory + (size_t)at * bytes, &value, bytes));
}

static void check_place(const struct vx_request_region *region, const struct place *place)
{
    ck_assert_str_eq(region->name, place->there[0] ? place->said[0]->string_param : "");
    ck_assert_uint_eq(region->bytes, place_number(place->said[1]));
    ck_assert_uint_eq(region->offset, place_number(place->said[2]));
}

u64 judge_in_regions;

void judge_check(const Request *oracle, const struct parse *parse)
{
    const struct vx_request *request = &parse->request;
    ck_assert_str_eq(request->model, oracle->model_name);
    ck_assert_str_eq(request->id, oracle->id);
    ck_assert_int_eq(request->version, strtoll(oracle->model_version, NULL, 10));
    ck_assert_int_eq(request->inputs_count, (i32)oracle->n_inputs);
    ck_assert_int_eq(request->outputs_count, (i32)oracle->n_outputs);
    for (size_t i = 0; i < oracle->n_outputs; i++) {
        ck_assert_str_eq(request->outputs[i], oracle->outputs[i]->name);
        struct place place;
        ck_assert(output_place(oracle->outputs[i], &place));
        check_place(&request->outputs_region[i], &place);
    }
    for (size_t i = 0; i < oracle->n_inputs; i++) {
        const struct vx_request_tensor *tensor = &request->inputs[i];
        const Input *input = oracle->inputs[i];
        size_t bytes = judge_type(input);
        ck_assert_str_eq(tensor->name, input->name);
        ck_assert_str_eq(vx_wire_type_name(tensor->type), input->datatype);
        ck_assert_int_eq(tensor->rank, (i32)input->n_shape);
        for (i32 d = 0; d < tensor->rank; d++)
            ck_assert_int_eq(tensor->shape[d], input->shape[d]);
        ck_assert_int_eq(tensor->elements, judge_elements(input));
        struct place place;
        ck_assert(input_place(input, &place));
        check_place(&tensor->region, &place);
        if (place.there[0]) {
            ck_assert_uint_eq(tensor->place.bytes, 0);
            judge_in_regions++;
            continue;
        }
        ck_assert_uint_eq(tensor->place.bytes, (size_t)tensor->elements * bytes);
        const u8 *memory = parse_memory(parse, (i32)i);
        if (oracle->n_raw_input_contents && tensor->place.bytes)
            ck_assert(!memcmp(memory,
                              oracle->raw_input_contents[raw_index(oracle, i)].data,
                              tensor->place.bytes));
        else
            for (i64 at = 0; at < tensor->elements; at++)
                check_element(input, at, memory, bytes);
    }
}
