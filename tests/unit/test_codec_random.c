/* The codec against protobuf-c: every cut, every truncation, and random damage.
 *
 * protobuf-c unpacks the flattened message, and `judge` says from that, in its own words, what the
 * codec must do: accept or refuse, and with which content.  The codec may be stricter only where
 * protobuf-c does not look: texts that are not UTF-8 or hold a NUL, and tags out of range.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "open_inference.pb-c.h"
#include "tests/unit/codec_harness.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED      UINT64_C(20261121)
#define MUTATIONS 100000
#define SCRATCH_SMALL                                                                    \
    ((size_t)1 << 18) /* the messages here are small; poisoning 40 MiB is slow */

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;
typedef Inference__InferTensorContents Contents;
typedef Inference__InferParameter Parameter;

static const char *const seeds[] = {
    "1'conv' 2'7' 3'id-1' 4{1'priority' 2{5:3}} 4{1'timeout' 2{2:1500}} 5{1'coords' "
    "2'INT32' 3[3 4]} "
    "5{1'feats' 2'FP32' 3[3 4]} 6{1'out'} 7#48 7#48",
    "7#12 7#6 4{1'timing' 2{1:1}} 5{1'a' 2'INT32' 3[3]} 5{1'b' 2'BF16' 3:3} 1'm' "
    "4{1'triton_enable_empty_final_response' 2{1:0}}",
    "1'm' 4{1'coords_ref' 2{3'0123456789abcdef00f0000000000001'}} 4{1'timing' 2{1:1}} "
    "5{1'feats' 2'FP32' 3[3 4]} 7#48",
    "1'm' 4{1'coords_ref' 2{3''}} 5{1'coords' 2'INT32' 3[2 3]} 5{1'feats' 2'FP16' 3[2 "
    "4]} "
    "7#24 7#16",
    "1'm' 5{1'a' 2'INT8' 3[3] 5{2[1 -1 100]}} 5{1'b' 2'FP64' 3[1] 5{7d[2.5]}} "
    "5{1'c' 2'BOOL' 3[2] 5{1[0 1]}} 5{1'd' 2'UINT64' 3[1] 5{5:77}}",
    "1'm' 5{1'coords' 2'INT32' 3[0 4]} 5{1'feats' 2'FP16' 3[0 9] 4{1'mine' 2{2:1}}} 7#0 "
    "7#0 "
    "6{1'out' 2{1'mine' 2{1:1}}} 6{1'two'} 4{1'sequence_id' 2{2:0}} 9'unknown' 15:3",
};

static struct wire wire;
static struct parse parse;

/* ------- the judge ------- */

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

/* Elements, or -1 when the shape is wrong.  In 128 bits, where nothing overflows unseen. */
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

static bool judge_input(const Request *request, size_t index)
{
    const Input *input = request->inputs[index];
    i64 elements = judge_elements(input);
    size_t bytes = judge_type(input), length = strlen(input->name);
    if (!bytes || elements < 0 || !length || length >= VX_WIRE_NAME_BYTES) return false;
    for (size_t i = 0; i < index; i++)
        if (!strcmp(request->inputs[i]->name, input->name)) return false;
    for (size_t i = 0; i < input->n_parameters; i++)
        if (strstr(input->parameters[i]->key, "shared_memory_") ==
                input->parameters[i]->key ||
            !strcmp(input->parameters[i]->key, "classification"))
            return false;
    if (!request->n_raw_input_contents)
        return input->contents
                   ? judge_values(input->contents, input->datatype) == (size_t)elements
                   : !elements;
    return !input->contents &&
           request->raw_input_contents[index].len == (size_t)elements * bytes;
}

static bool judge_count(const Parameter *value)
{
    int kind = value ? (int)value->parameter_choice_case : 0;
    return kind == 5 || (kind == 2 && value->int64_param >= 0);
}

/* "", or 32 lower-case digits of which one is not 0. */
static bool judge_ref(const char *text)
{
    size_t length = strlen(text);
    return !length || (length == 32 && strspn(text, "0123456789abcdef") == 32 &&
                       strspn(text, "0") < 32);
}

static bool judge_parameter(const char *key, const Parameter *value)
{
    int kind = value ? (int)value->parameter_choice_case : 0;
    if (!strcmp(key, "priority") || !strcmp(key, "timeout")) return judge_count(value);
    if (!strcmp(key, "timing")) return kind == 1;
    if (!strcmp(key, "coords_ref")) return kind == 3 && judge_ref(value->string_param);
    if (!strcmp(key, "triton_enable_empty_final_response")) return true;
    if (!strncmp(key, "triton_", 7)) return false;
    if (strncmp(key, "sequence_", 9)) return true;
    return !((kind == 1 && value->bool_param) || (kind == 2 && value->int64_param) ||
             (kind == 3 && value->string_param[0]) || (kind == 5 && value->uint64_param));
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
        for (size_t j = 0; j < output->n_parameters; j++)
            if (!strncmp(output->parameters[j]->key, "shared_memory_", 14) ||
                !strcmp(output->parameters[j]->key, "classification"))
                return false;
    }
    return true;
}

static bool judge(const Request *request)
{
    if (!request->model_name[0] || strlen(request->model_name) >= VX_WIRE_NAME_BYTES)
        return false;
    if (strlen(request->id) >= VX_REQUEST_ID_BYTES) return false;
    if (!judge_version(request->model_version) || !judge_outputs(request)) return false;
    size_t raws = request->n_raw_input_contents;
    if (request->n_inputs > VX_INPUTS_MAX || (raws && raws != request->n_inputs))
        return false;
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

static void check_content(const Request *oracle)
{
    const struct vx_request *request = &parse.request;
    ck_assert_str_eq(request->model, oracle->model_name);
    ck_assert_str_eq(request->id, oracle->id);
    ck_assert_int_eq(request->version, strtoll(oracle->model_version, NULL, 10));
    ck_assert_int_eq(request->inputs_count, (i32)oracle->n_inputs);
    ck_assert_int_eq(request->outputs_count, (i32)oracle->n_outputs);
    for (size_t i = 0; i < oracle->n_outputs; i++)
        ck_assert_str_eq(request->outputs[i], oracle->outputs[i]->name);
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
        ck_assert_uint_eq(tensor->slot.bytes, (size_t)tensor->elements * bytes);
        const u8 *memory = parse_memory(&parse, (i32)i);
        if (oracle->n_raw_input_contents && tensor->slot.bytes)
            ck_assert(
                !memcmp(memory, oracle->raw_input_contents[i].data, tensor->slot.bytes));
        else
            for (i64 at = 0; at < tensor->elements; at++)
                check_element(input, at, memory, bytes);
    }
}

/* What only the codec looks at. */
static bool is_stricter(const char *text)
{
    return strstr(text, "UTF-8") || strstr(text, "NUL") || strstr(text, "field number");
}

static u64 accepted, refused, stricter;

static void check_against_oracle(const u8 *bytes, size_t length,
                                 const struct vx_spans *spans)
{
    Request *oracle = inference__model_infer_request__unpack(NULL, length, bytes);
    parse_run(&parse, spans);
    bool fine = oracle && judge(oracle);
    const char *text = parse_text(&parse);
    if (!parse.status.fault) {
        ck_assert_msg(fine, "accepted what the oracle refuses (%d)", oracle != NULL);
        check_content(oracle);
        accepted++;
    } else {
        enum vx_code code = vx_status_code(parse.status);
        ck_assert(code == VX_CODE_INVALID_ARGUMENT || code == VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_uint_gt(strlen(text), 10);
        ck_assert_msg(!fine || is_stricter(text), "refused what the oracle accepts: %s",
                      text);
        if (fine) stricter++;
        refused++;
    }
    parse_end(&parse);
    if (oracle) inference__model_infer_request__free_unpacked(oracle, NULL);
}

static void set_up(void)
{
    parse_scratch_bytes = SCRATCH_SMALL;
    accepted = refused = stricter = 0;
    memset(&parse, 0, sizeof parse);
    wire_write(&wire, seeds[0]);
}

START_TEST(every_cut_gives_the_same_request)
{
    struct dice dice = {SEED};
    wire_write(&wire, seeds[_i]);
    for (int round = 0; round < 500; round++) {
        struct cut cut;
        cut_open(&cut, wire.bytes, wire.length, round < 10 ? 1 : 1 + (size_t)round % 60,
                 &dice);
        check_against_oracle(wire.bytes, wire.length, &cut.spans);
        cut_close(&cut);
    }
    ck_assert_uint_eq(accepted, 500);
}
END_TEST

START_TEST(every_truncation_agrees)
{
    wire_write(&wire, seeds[_i]);
    for (size_t length = 0; length < wire.length; length++) {
        struct dice dice = {SEED};
        struct cut cut;
        for (size_t piece = 0; piece <= 1; piece++) {
            cut_open(&cut, wire.bytes, length, piece, &dice);
            check_against_oracle(wire.bytes, length, &cut.spans);
            cut_close(&cut);
        }
    }
    ck_assert_uint_gt(refused, wire.length);
}
END_TEST

static size_t mutate(struct dice *dice, u8 *bytes, size_t length)
{
    for (u64 left = 1 + dice_roll(dice, 4); left; left--) {
        size_t at = (size_t)dice_roll(dice, length), run = 1 + (size_t)dice_roll(dice, 8);
        size_t from = (size_t)dice_roll(dice, length);
        if (run > length - at) run = length - at;
        if (run > length - from) run = length - from;
        switch (dice_roll(dice, 5)) {
        case 0: bytes[at] = (u8)dice_roll(dice, 256); break;
        case 1: bytes[at] ^= (u8)(1 << dice_roll(dice, 8)); break;
        case 2: bytes[at] = (u8)(bytes[at] + dice_roll(dice, 5) - 2); break;
        case 3: memmove(bytes + at, bytes + from, run); break;
        default: /* takes bytes out */
            if (length - run < 8) break;
            memmove(bytes + at, bytes + at + run, length - at - run);
            length -= run;
        }
    }
    return length;
}

START_TEST(random_damage_agrees)
{
    struct dice dice = {SEED + (u64)_i};
    static u8 bytes[WIRE_BYTES_MAX];
    wire_write(&wire, seeds[_i]);
    for (int round = 0; round < MUTATIONS / (int)VX_COUNT(seeds); round++) {
        memcpy(bytes, wire.bytes, wire.length);
        size_t length = mutate(&dice, bytes, wire.length);
        struct cut cut;
        cut_open(&cut, bytes, length, (size_t)dice_roll(&dice, 30), &dice);
        check_against_oracle(bytes, length, &cut.spans);
        cut_close(&cut);
    }
    printf("seed %llu: %llu accepted, %llu refused, %llu of them fine to protobuf-c\n",
           (unsigned long long)(SEED + (u64)_i), (unsigned long long)accepted,
           (unsigned long long)refused, (unsigned long long)stricter);
    ck_assert_uint_gt(accepted, 100);
    ck_assert_uint_gt(refused, 1000);
}
END_TEST

/* Small parts in great number: protobuf-c's records must end at the arena, in little time. */
static const char *const floods[] = {"2a00",     "2200",        "3200", "2a022a00",
                                     "3a00",     "7a00",        "7801", "22040a001200",
                                     "2a021200", "2a042a021001"};

START_TEST(floods_end_at_a_limit)
{
    parse_scratch_bytes = VX_INFER_SCRATCH_BYTES;
    wire_write(&wire, "1'm'");
    struct wire *part = calloc(1, sizeof *part);
    char notation[64];
    snprintf(notation, sizeof notation, "!%s", floods[_i]);
    wire_write(part, notation);
    size_t count = (VX_INFER_REST_BYTES_MAX - 64) / part->length;
    u8 *bytes = malloc(wire.length + count * part->length);
    memcpy(bytes, wire.bytes, wire.length);
    for (size_t i = 0; i < count; i++)
        memcpy(bytes + wire.length + i * part->length, part->bytes, part->length);
    parse_flat(&parse, bytes, wire.length + count * part->length);
    enum vx_code code = vx_status_code(parse.status);
    ck_assert_msg(code == VX_CODE_INVALID_ARGUMENT || code == VX_CODE_RESOURCE_EXHAUSTED,
                  "%s: %d", notation, code);
    parse_end(&parse);
    free(bytes);
    free(part);
}
END_TEST

/* One byte over the limit of the rest is refused before anything is unpacked; the largest rest that
 * is legal and honest is served by the scratch memory it was sized for: a million floats. */
START_TEST(the_rest_has_a_limit)
{
    parse_scratch_bytes = VX_INFER_SCRATCH_BYTES;
    size_t floats = (VX_INFER_REST_BYTES_MAX - 64) / 4;
    struct wire *inner = calloc(1, sizeof *inner);
    u8 *bytes = calloc(1, VX_INFER_REST_BYTES_MAX + 1);
    struct wire *head = calloc(1, sizeof *head);
    wire_write(inner, "1'x' 2'FP32'");
    wire_add_varint(inner, 3 << 3);
    wire_add_varint(inner, floats);
    wire_write(head, "1'm'");
    /* input { name type shape contents { fp32_contents } }: lengths from the inside out */
    u64 list = floats * 4, contents = 1 + 4 + list,
        input = inner->length + 1 + 4 + contents;
    wire_add_varint(head, 5 << 3 | 2);
    wire_add_varint(head, input);
    wire_add(head, inner->bytes, inner->length);
    wire_add_varint(head, 5 << 3 | 2);
    wire_add_varint(head, contents);
    wire_add_varint(head, 6 << 3 | 2);
    wire_add_varint(head, list);
    memcpy(bytes, head->bytes, head->length);
    parse_flat(&parse, bytes, head->length + list);
    ck_assert_msg(!parse.status.fault, "%s", parse_text(&parse));
    ck_assert_uint_eq(parse.request.inputs[0].slot.bytes, list);
    parse_end(&parse);
    /* The whole message as one unknown field of just too many bytes. */
    memset(bytes, 0, VX_INFER_REST_BYTES_MAX + 1);
    head->length = 0;
    wire_add_varint(head, 9 << 3 | 2);
    wire_add_varint(head, VX_INFER_REST_BYTES_MAX + 1 - 5);
    memcpy(bytes, head->bytes, head->length);
    ck_assert_uint_eq(head->length, 5);
    parse_flat(&parse, bytes, VX_INFER_REST_BYTES_MAX + 1);
    ck_assert_int_eq(vx_status_code(parse.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(parse_text(&parse), "4194304 bytes, got 4194305"));
    parse_end(&parse);
    free(inner);
    free(head);
    free(bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec against protobuf-c");
    TCase *tcase = tcase_create("random");
    int seeds_count = (int)VX_COUNT(seeds);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, every_cut_gives_the_same_request, 0, seeds_count);
    tcase_add_loop_test(tcase, every_truncation_agrees, 0, seeds_count);
    tcase_add_loop_test(tcase, random_damage_agrees, 0, seeds_count);
    tcase_add_loop_test(tcase, floods_end_at_a_limit, 0, (int)VX_COUNT(floods));
    tcase_add_test(tcase, the_rest_has_a_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
