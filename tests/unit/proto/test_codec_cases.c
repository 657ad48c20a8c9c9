/* The codec, request side: what it accepts, what it refuses and with which sentence, and
 * that no slot stays taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/proto/codec_harness.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A good request in its pieces; N = 3, C = 4. */
#define COORDS "5{1'coords' 2'INT32' 3[3 4]} "
#define FEATS  "5{1'feats' 2'FP32' 3[3 4]} "
/* Eight outputs. */
#define EIGHT(n_)                                                                        \
    "6{1'" n_ "1'} 6{1'" n_ "2'} 6{1'" n_ "3'} 6{1'" n_ "4'} "                           \
    "6{1'" n_ "5'} 6{1'" n_ "6'} 6{1'" n_ "7'} 6{1'" n_ "8'} "
#define TENSORS COORDS FEATS "7#48 7#48 "
#define GOOD    "1'conv' " TENSORS

static struct wire wire;
static struct parse parse;

static void parse_notation(const char *notation)
{
    wire_write(&wire, notation);
    memset(&parse, 0, sizeof parse);
    parse_flat(&parse, wire.bytes, wire.length);
}

static const struct vx_request *parse_good(const char *notation)
{
    parse_notation(notation);
    ck_assert_msg(!parse.status.fault, "%s: %s", notation, parse_text(&parse));
    return &parse.request;
}

static void check_counted(i32 input, size_t bytes)
{
    const u8 *memory = parse_memory(&parse, input);
    ck_assert_uint_eq(parse.request.inputs[input].place.bytes, bytes);
    for (size_t i = 0; i < bytes; i++) ck_assert_uint_eq(memory[i], (u8)(i * 7 + 1));
}

START_TEST(a_request_becomes_a_value)
{
    const struct vx_request *request =
        parse_good("1'conv' 2'7' 3'id-1' 4{1'priority' 2{5:3}} 4{1'timeout' 2{2:1500}} "
                   "4{1'timing' 2{1:1}} " TENSORS "6{1'out'} 6{1'coords'}");
    ck_assert_str_eq(request->model, "conv");
    ck_assert_int_eq(request->version, 7);
    ck_assert_str_eq(request->id, "id-1");
    ck_assert_uint_eq(request->priority, 3);
    ck_assert_int_eq(request->timeout_us, 1500);
    ck_assert(request->timing && !request->layers);
    ck_assert_int_eq(request->inputs_count, 2);
    ck_assert_str_eq(request->inputs[0].name, "coords");
    ck_assert_int_eq(request->inputs[0].type, VX_WIRE_INT32);
    ck_assert_int_eq(request->inputs[0].rank, 2);
    ck_assert_int_eq(request->inputs[0].shape[0], 3);
    ck_assert_int_eq(request->inputs[0].shape[1], 4);
    ck_assert_int_eq(request->inputs[0].elements, 12);
    ck_assert_str_eq(request->inputs[1].name, "feats");
    ck_assert_int_eq(request->inputs[1].type, VX_WIRE_FP32);
    ck_assert_int_eq(request->outputs_count, 2);
    ck_assert_str_eq(request->outputs[0], "out");
    ck_assert_str_eq(request->outputs[1], "coords");
    check_counted(0, 48);
    check_counted(1, 48);
    parse_end(&parse);
}
END_TEST

START_TEST(defaults_are_what_the_contract_says)
{
    const struct vx_request *request = parse_good(GOOD);
    ck_assert_int_eq(request->version, 0);
    ck_assert_str_eq(request->id, "");
    ck_assert_uint_eq(request->priority, 0);
    ck_assert_int_eq(request->timeout_us, 0);
    ck_assert(!request->timing);
    ck_assert_int_eq(request->outputs_count, 0);
    parse_end(&parse);
}
END_TEST

START_TEST(fields_come_in_any_order)
{
    const struct vx_request *request = parse_good(
        "7#48 6{1'out'} " FEATS "9'unknown' 7#0 5{3[0] 2'UINT8' 1'none'} 3'z' 1'old' "
        "15:7 1'conv'");
    ck_assert_str_eq(request->model, "conv");
    ck_assert_str_eq(request->id, "z");
    ck_assert_str_eq(request->inputs[0].name, "feats");
    ck_assert_str_eq(request->inputs[1].name, "none");
    check_counted(0, 48);
    ck_assert_uint_eq(request->inputs[1].place.bytes, 0);
    parse_end(&parse);
}
END_TEST

/* Requests that are valid though unusual. */
static const char *const fine[] = {
    "1'conv' 5{1'coords' 2'INT32' 3[0 4]} 5{1'feats' 2'FP32' 3[0 4]} 7#0 7#0",
    "1'conv' 5{1'coords' 2'INT32' 3[0 4]} 5{1'feats' 2'FP32' 3[0 4]}", /* typed, and nothing in it */
    "1'conv' 5{1'coords' 2'INT32' 3:3 3:4} " FEATS "7#48 7#48", /* shape not packed */
    "1'conv' 5{1's' 2'INT8'} 7#1", /* rank 0 is one element */
    "1'conv' 5{1'a' 2'BF16' 3[2]} 5{1'b' 2'FP16' 3[3]} 7#4 7#6",
    "1'conv' 5{1'a' 2'UINT8' 3[1 1 1 1 1 1 1 2]} 7#2",
    "1'conv'", /* no inputs: the model's signature decides */
    "1'conv' 3@255 5{1@127 2'INT8' 3[1]} 7#1 6{1@127}",
    "1'conv' 5{1'coords' 2'INT32' 3[3 4] 4{1'mine' 2{2:3}}} " FEATS
    "7#48 7#48 6{1'out' 4{} 2{1'mine' 2{2:3}}}",
    "1'\xe2\x82\xac' " TENSORS,
    /* as many inputs and outputs as there may be */
    "1'm' 5{1'1' 2'INT8' 3[1]} 5{1'2' 2'INT8' 3[1]} 5{1'3' 2'INT8' 3[1]} "
    "5{1'4' 2'INT8' 3[1]} 5{1'5' 2'INT8' 3[1]} 5{1'6' 2'INT8' 3[1]} 5{1'7' 2'INT8' 3[1]} "
    "5{1'8' 2'INT8' 3[1]} 7#1 7#1 7#1 7#1 7#1 7#1 7#1 7#1",
    "1'conv' " TENSORS EIGHT("a") EIGHT("b"),
};

START_TEST(unusual_requests_are_fine)
{
    const char *notation = fine[_i];
    parse_good(notation);
    parse_end(&parse);
}
END_TEST

#define INVALID      VX_CODE_INVALID_ARGUMENT
#define EXHAUSTED    VX_CODE_RESOURCE_EXHAUSTED
#define INPUT(rest_) "1'm' 5{1'x' " rest_ "} "

static const struct {
    const char *notation;
    enum vx_code code;
    const char *sentence;
} bad[] = {
    {"", INVALID, "model_name"},
    {TENSORS, INVALID, "model_name"},
    {"1'' " TENSORS, INVALID, "model_name"},
    {"1@128 " TENSORS, INVALID, "at most 127 bytes, got 128"},
    {GOOD "3@256", INVALID, "at most 255 bytes, got 256"},
    {GOOD "2'x'", INVALID,
     "failed to get model version from specified version string 'x' (details: "},
    {GOOD "2'0'", INVALID, "version should be an integral value > 0"},
    {GOOD "2'-1'", INVALID, "version should be an integral value > 0"},
    {GOOD "2'+1'", INVALID, "version string '+1'"},
    {GOOD "2' 1'", INVALID, "version string ' 1'"},
    {GOOD "2'1.0'", INVALID, "version string '1.0'"},
    {GOOD "2'1.5'", INVALID, "version string '1.5'"},
    {GOOD "2'v1'", INVALID, "version string 'v1'"},
    {GOOD "2'1 '", INVALID, "version string '1 '"},
    {GOOD "2'0x1'", INVALID, "version string '0x1'"},
    {GOOD "2'18446744073709551617'", INVALID, "version string '18446744073709551617'"},
    {GOOD "2'9223372036854775808'", INVALID, "version string '9223372036854775808'"},
    /* texts */
    {"1x636fc3 " TENSORS, INVALID, "UTF-8"},
    {GOOD "3xff", INVALID, "UTF-8"},
    {GOOD "3x610062", INVALID, "NUL"},
    {"1'm' 5{1xc080 2'INT8' 3[1]} 7#1", INVALID, "UTF-8"},
    {"1'm' 5{1xeda080 2'INT8' 3[1]} 7#1", INVALID, "UTF-8"},
    {"1'm' 5{1xf4908080 2'INT8' 3[1]} 7#1", INVALID, "UTF-8"},
    {"1'm' 5{1x780079 2'INT8' 3[1]} 7#1", INVALID, "NUL"},
    {"1'm' 5{1'x' 2x494e543800 3[1]} 7#1", INVALID, "NUL"},
    {GOOD "6{1xfe}", INVALID, "UTF-8"},
    {GOOD "4{1xfe 2{1:1}}", INVALID, "UTF-8"},
    /* inputs */
    {"1'm' 5{2'INT8' 3[1]} 7#1", INVALID, "input 0 has no name"},
    {"1'm' 5{1@128 2'INT8' 3[1]} 7#1", INVALID, "at most 127 bytes, got 128"},
    {INPUT("2'FP12' 3[3 4]") "7#48", INVALID, "'FP12'"},
    {INPUT("2'int32' 3[3 4]") "7#48", INVALID, "'int32'"},
    {INPUT("3[3 4]") "7#48", INVALID, "input 'x'"},
    {INPUT("2'BYTES' 3[1]") "7#5", INVALID, "BYTES"},
    {"1'm' " COORDS COORDS "7#48 7#48", INVALID, "input 'coords' appears twice"},
    {"1'm' 5{1'1'} 5{1'2'} 5{1'3'} 5{1'4'} 5{1'5'} 5{1'6'} 5{1'7'} 5{1'8'} 5{1'9'}",
     INVALID, "at most 8 inputs, got more"},
    {INPUT("2'INT8' 3[1 1 1 1 1 1 1 1 1]") "7#1", INVALID, "at most 8 dimensions, got 9"},
    {INPUT("2'INT8' 3[-1 4]") "7#4", INVALID, "-1"},
    {INPUT("2'INT8' 3[0 -9223372036854775808]") "7#0", INVALID, "-9223372036854775808"},
    {INPUT("2'INT32' 3[4611686018427387904 4]") "7#0", INVALID, "input 'x'"},
    {INPUT("2'INT32' 3[4294967296 4294967296]") "7#0", INVALID,
     "[4294967296,4294967296]"},
    {INPUT("2'FP64' 3[9223372036854775807]") "7#0", INVALID, "input 'x'"},
    {INPUT("2'FP64' 3[2305843009213693952]") "7#0", INVALID, "input 'x'"},
    {INPUT("2'INT8' 3[1152921504606846975]") "7#0", INVALID,
     "expected 1152921504606846975, got 0"},
    /* raw entries */
    {"1'm' " COORDS "7#44", INVALID,
     "input byte size mismatch for input 'coords', expected 48, got 44"},
    {"1'm' " COORDS "7#52", INVALID, "[3,4] of INT32"},
    {"1'm' " COORDS FEATS "7#48", INVALID, "raw_input_contents"},
    {"1'm' " COORDS "7#48 7#48", INVALID, "raw_input_contents"},
    {"1'm' 7#48", INVALID, "raw_input_contents"},
    {"1'm' 7#0 7#0 7#0 7#0 7#0 7#0 7#0 7#0", INVALID, "expected 0 entries"},
    {"1'm' 7#0 7#0 7#0 7#0 7#0 7#0 7#0 7#0 7#0", INVALID,
     "more entries than a request may have inputs"},
    {"1'm' " COORDS "7:3", INVALID, "raw_input_contents"},
    {INPUT("2'INT8' 3[1] 5{2[1]}") "7#1", INVALID,
     "contents field must not be specified when using raw_input_contents for 'x' for "
     "model 'm'"},
    {INPUT("2'INT8' 3[1] 5{}") "7#1", INVALID,
     "contents field must not be specified when using raw_input_contents for 'x' for "
     "model 'm'"},
    /* typed contents */
    {INPUT("2'INT32' 3[3 4]"), INVALID, "input 'x'"},
    {INPUT("2'INT32' 3[3] 5{2[1 2]}"), INVALID, "3 values in int_contents, got 2"},
    {INPUT("2'INT32' 3[3] 5{2[1 2 3 4]}"), INVALID, "3 values in int_contents, got 4"},
    {INPUT("2'INT32' 3[3] 5{}"), INVALID, "3 values in int_contents, got 0"},
    {INPUT("2'INT32' 3[2] 5{3[1 2]}"), INVALID, "int_contents"},
    {INPUT("2'INT32' 3[2] 5{2[1 2] 6f[1]}"), INVALID, "fp32_contents"},
    {INPUT("2'INT32' 3[0] 5{6f[1]}"), INVALID, "fp32_contents"},
    {INPUT("2'INT32' 3[2] 5{2[1 2] 8'x'}"), INVALID, "bytes_contents"},
    {INPUT("2'INT8' 3[2] 5{2[1 128]}"), INVALID, "element 1"},
    {INPUT("2'INT8' 3[1] 5{2[-129]}"), INVALID, "-129"},
    {INPUT("2'INT16' 3[1] 5{2[32768]}"), INVALID, "32768"},
    {INPUT("2'UINT8' 3[1] 5{4[256]}"), INVALID, "256"},
    {INPUT("2'UINT16' 3[1] 5{4[65536]}"), INVALID, "65536"},
    {INPUT("2'FP16' 3[1] 5{6f[1]}"), INVALID, "raw_input_contents"},
    {INPUT("2'BF16' 3[1] 5{6f[1]}"), INVALID, "raw_input_contents"},
    {INPUT("2'FP16' 3[1]"), INVALID, "raw_input_contents"},
    /* a later input fails after an earlier one has taken its slot */
    {"1'm' 5{1'a' 2'INT8' 3[1] 5{2[1]}} 5{1'b' 2'INT8' 3[1] 5{2[300]}}", INVALID, "300"},
    /* outputs */
    {GOOD "6{}", INVALID, "output 0 has no name"},
    {GOOD "6{1@128}", INVALID, "at most 127 bytes, got 128"},
    {GOOD "6{1'out'} 6{1'out'}", INVALID, "output 'out' appears twice"},
    {GOOD EIGHT("a") EIGHT("b") "6{1'c'}", INVALID, "at most 16 outputs, got 17"},
    /* bytes that are not a message */
    {GOOD "!0b", INVALID, "group"},
    {GOOD "!0c", INVALID, "group"},
    {GOOD "!0e", INVALID, ""},
    {GOOD "!00", INVALID, ""},
    {GOOD "!0200", INVALID, ""},
    {GOOD "!7a", INVALID, ""},
    {GOOD "!7aff", INVALID, ""},
    {GOOD "!7a05", INVALID, ""},
    {GOOD "!7affffffff7f", INVALID, ""},
    {GOOD "!7affffffffffffffffff01", INVALID, ""},
    {GOOD "!78ffffffffffffffffffff01", INVALID, ""},
    {GOOD "!3affffffff07", INVALID, ""},
    {GOOD "!79aabb", INVALID, ""},
    {GOOD "!7daabb", INVALID, ""},
    {GOOD "!808080808001", INVALID, ""},
    {GOOD "5xff", INVALID, ""},
    {GOOD "1:3", INVALID, ""},
    {GOOD "5{1:3}", INVALID, ""},
    {GOOD "5{!0b}", INVALID, ""},
    {GOOD "5{5{6xaabb}}", INVALID, ""},
    {GOOD "5{3xff}", INVALID, ""},
};

START_TEST(bad_requests_are_refused_with_a_sentence)
{
    parse_notation(bad[_i].notation);
    ck_assert_msg(vx_status_code(parse.status) == bad[_i].code, "%s: %s: %s",
                  bad[_i].notation, vx_code_name(vx_status_code(parse.status)),
                  parse_text(&parse));
    ck_assert_msg(strstr(parse_text(&parse), bad[_i].sentence) != NULL,
                  "%s: '%s' lacks '%s'", bad[_i].notation, parse_text(&parse),
                  bad[_i].sentence);
    ck_assert_uint_gt(strlen(parse_text(&parse)), 15);
    for (i32 i = 0; i < VX_INPUTS_MAX; i++)
        ck_assert_uint_eq(parse.request.inputs[i].place.bytes, 0);
    parse_end(&parse);
}
END_TEST

START_TEST(errors_name_the_id)
{
    parse_notation("3'trace-9' 1'conv' " COORDS "7#44");
    ck_assert(parse.status.fault);
    ck_assert_str_eq(parse.request.id, "trace-9");
    parse_notation("3'trace-9' 1'conv' " COORDS "!7a");
    ck_assert(parse.status.fault);
    ck_assert_str_eq(parse.request.id, "trace-9");
    /* An id that cannot be returned is left out, and so is an earlier one. */
    static const char *const left_out[] = {
        "1'conv' 3xff",   "1'conv' 3x610062", ("3@256 1'conv' " COORDS "7#44"),
        "3'a' 3@256 7:1", "3'a' 3:7 7:1",     "3'a' 3xff 7:1"};
    for (size_t i = 0; i < VX_COUNT(left_out); i++) {
        parse_notation(left_out[i]);
        ck_assert(parse.status.fault);
        ck_assert_str_eq(parse.request.id, "");
        ck_assert_int_eq(parse.request.inputs_count, 0);
    }
    parse_notation("3@255 7:1");
    ck_assert_uint_eq(strlen(parse.request.id), 255);
}
END_TEST

static const struct {
    const char *type, *contents;
    size_t bytes;
    u8 expected[16];
} typed[] = {
    {"BOOL", "1[1 0 7]", 3, {1, 0, 1}},
    {"BOOL", "1:0 1:1 1[0]", 3, {0, 1, 0}},
    {"INT8", "2[1 -1 -128]", 3, {1, 0xff, 0x80}},
    {"INT8", "2:127 2:-2 2:0", 3, {0x7f, 0xfe, 0}},
    {"UINT8", "4[1 255 0]", 3, {1, 0xff, 0}},
    {"INT16", "2[1 -1 -32768]", 6, {1, 0, 0xff, 0xff, 0, 0x80}},
    {"UINT16", "4[1 65535 256]", 6, {1, 0, 0xff, 0xff, 0, 1}},
    {"INT32", "2[1 -1 -2147483648]", 12, {1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0x80}},
    {"UINT32", "4[1 4294967295 2]", 12, {1, 0, 0, 0, 255, 255, 255, 255, 2, 0, 0, 0}},
    {"FP32", "6f[1 -2 0.5]", 12, {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f}},
};

START_TEST(typed_contents_go_into_slots)
{
    char notation[256];
    snprintf(notation, sizeof notation, "1'm' 5{1'x' 2'%s' 3[3] 5{%s}}", typed[_i].type,
             typed[_i].contents);
    parse_good(notation);
    ck_assert_uint_eq(parse.request.inputs[0].place.bytes, typed[_i].bytes);
    ck_assert(!memcmp(parse_memory(&parse, 0), typed[_i].expected, typed[_i].bytes));
    parse_end(&parse);
}
END_TEST

START_TEST(typed_contents_of_64_bits)
{
    static const i64 integers[] = {1, -1};
    static const f64 reals[] = {1.5, -2.25};
    parse_good("1'm' 5{1'i' 2'INT64' 3[2] 5{3[1 -1]}} 5{1'u' 2'UINT64' 3[2] 5{5[1 "
               "18446744073709551615]}} 5{1'd' 2'FP64' 3[2] 5{7d[1.5 -2.25]}}");
    ck_assert(!memcmp(parse_memory(&parse, 0), integers, 16));
    ck_assert(!memcmp(parse_memory(&parse, 1), integers, 16));
    ck_assert(!memcmp(parse_memory(&parse, 2), reals, 16));
    parse_end(&parse);
}
END_TEST

START_TEST(a_full_arena_is_said_and_leaves_nothing_taken)
{
    static const char *const requests[] = {
        GOOD, "1'm' 5{1'a' 2'INT8' 3[1] 5{2[1]}} 5{1'b' 2'INT8' 3[1] 5{2[1]}}"};
    for (size_t i = 0; i < VX_COUNT(requests); i++) {
        wire_write(&wire, requests[i]);
        for (i32 full_at = 1; full_at <= 2; full_at++) {
            parse = (struct parse){.heap.full_at = full_at};
            parse_flat(&parse, wire.bytes, wire.length);
            ck_assert_int_eq(vx_status_code(parse.status), EXHAUSTED);
            ck_assert_ptr_nonnull(strstr(parse_text(&parse), "try again later"));
            parse_end(&parse);
        }
    }
}
END_TEST

/* Inputs of 12 and 80 bytes: blocks of 16 and 128. */
START_TEST(inputs_that_never_fit_are_not_to_be_tried_again)
{
    const u64 arenas[] = {143, 144};
    wire_write(&wire, "1'm' 5{1'a' 2'INT8' 3[12]} 5{1'b' 2'INT32' 3[20]} "
                      "7'0123456789ab' "
                      "7'0123456789012345678901234567890123456789"
                      "0123456789012345678901234567890123456789'");
    for (size_t i = 0; i < VX_COUNT(arenas); i++) {
        parse = (struct parse){.heap.full_at = 2, .heap.arena = arenas[i]};
        parse_flat(&parse, wire.bytes, wire.length);
        ck_assert_int_eq(vx_status_code(parse.status), EXHAUSTED);
        ck_assert_str_eq(parse_text(&parse),
                         i ? "no room for 80 bytes of input 'b' in the memory for "
                             "tensors in flight; try again later"
                           : "the inputs of this request need 144 bytes, in blocks of "
                             "powers of two, and arena_bytes is 143: send fewer voxels");
        parse_end(&parse);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec cases");
    TCase *tcase = tcase_create("codec");
    tcase_add_test(tcase, a_request_becomes_a_value);
    tcase_add_test(tcase, defaults_are_what_the_contract_says);
    tcase_add_test(tcase, fields_come_in_any_order);
    tcase_add_loop_test(tcase, unusual_requests_are_fine, 0, VX_COUNT(fine));
    tcase_add_loop_test(tcase, bad_requests_are_refused_with_a_sentence, 0,
                        VX_COUNT(bad));
    tcase_add_test(tcase, errors_name_the_id);
    tcase_add_loop_test(tcase, typed_contents_go_into_slots, 0, VX_COUNT(typed));
    tcase_add_test(tcase, typed_contents_of_64_bits);
    tcase_add_test(tcase, a_full_arena_is_said_and_leaves_nothing_taken);
    tcase_add_test(tcase, inputs_that_never_fit_are_not_to_be_tried_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
