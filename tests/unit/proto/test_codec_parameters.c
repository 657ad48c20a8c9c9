/* The parameters of requests and of tensors: accepted with the right type and meaning,
 * else refused with a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/proto/codec_harness.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A good request in its pieces; N = 3, C = 4. */
#define COORDS  "5{1'coords' 2'INT32' 3[3 4]} "
#define FEATS   "5{1'feats' 2'FP32' 3[3 4]} "
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

/* Parameters that are valid though unusual. */
static const char *const fine[] = {
    GOOD "4{1'triton_enable_empty_final_response' 2{1:0}}",
    GOOD "4{1'mine' 2{3'x'}} 4{1'other' 2{!210000000000000840}} 4{1'n' 2{2:-9}} "
         "4{2{1:1}}",
    GOOD "4{1'headers' 2{3'x'}} 4{1'binary_data_output' 2{1:1}}",
    /* there are no sequences here: ignored, as Triton does for such models */
    GOOD "4{1'sequence_id' 2{2:0}} 4{1'sequence_start' 2{1:0}} 4{1'sequence_id' 2{3''}}",
    GOOD "4{1'sequence_id' 2{2:7}} 4{1'sequence_start' 2{1:1}} 4{1'sequence_end' 2{1:1}}",
    GOOD "4{1'sequence_id' 2{3'a'}}",
    GOOD "4{1'sequence_id' 2{5:1}} 4{1'sequence_mine' 2{2:1}}",
    GOOD "4{1'priority' 2{5:18446744073709551615}}",
    GOOD "2'1'",
    GOOD "2'9223372036854775807'",
    GOOD "4{1'priority' 2{2:0}} 4{1'timeout' 2{5:18446744073709551615}}",
    GOOD
    "4{1'priority' 2{2:-1}} 4{1'priority' 2{2:1}}", /* of equal keys the last one counts */
    GOOD "4{1'time' 2{2:1}} 4{1'out' 2{2:1}} 4{1'shape' 2{3'x'}} 4{1'ref' 2{3'x'}}",
    GOOD "4{1'timer' 2{2:1}} 4{1'priorities' 2{2:1}} 4{1'' 2{2:1}} 4{1'tim' 2{2:1}}",
};

START_TEST(unusual_parameters_are_fine)
{
    parse_good(fine[_i]);
    parse_end(&parse);
}
END_TEST

#define INVALID      VX_CODE_INVALID_ARGUMENT
#define EXHAUSTED    VX_CODE_RESOURCE_EXHAUSTED
#define INPUT(rest_) "1'm' 5{1'x' " rest_ "} "

/* Four bytes in shared memory. */
#define REGION           "4{1'shared_memory_region' 2{3'r'}} "
#define BYTES(value_)    "4{1'shared_memory_byte_size' 2{" value_ "}} "
#define SHM_INPUT(rest_) INPUT("2'INT8' 3[4] " rest_)

static const struct {
    const char *notation;
    enum vx_code code;
    const char *sentence;
} bad[] = {
    {GOOD "6{1'out' 2{1'classification' 2{2:3}}}", INVALID, "classification"},
    /* shared memory */
    {GOOD "6{1'out' 2{1'classification' 2{2:3}} 2{1'shared_memory_region' 2{3'r'}}}",
     INVALID,
     "output 'out' has both 'shared_memory_region' and 'classification' parameters"},
    {GOOD "6{1'out' 2{1'shared_memory_region' 2{3'r'}}}", INVALID,
     "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
     "parameter for output 'out'"},
    {SHM_INPUT(REGION), INVALID,
     "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
     "parameter for input 'x'"},
    {SHM_INPUT(REGION "4{1'shared_memory_offset' 2{2:0}}"), INVALID,
     "'shared_memory_byte_size' must be specified"},
    {SHM_INPUT("4{1'shared_memory_byte_size' 2{2:4}}") "7#4", INVALID,
     "'shared_memory_byte_size' can not be specified without 'shared_memory_region' "
     "parameter for input 'x'"},
    {SHM_INPUT("4{1'shared_memory_offset' 2{2:4}}") "7#4", INVALID,
     "'shared_memory_offset' can not be specified without 'shared_memory_region'"},
    {GOOD "6{1'out' 2{1'shared_memory_byte_size' 2{2:4}}}", INVALID,
     "'shared_memory_byte_size' can not be specified without 'shared_memory_region' "
     "parameter for output 'out'"},
    {SHM_INPUT("4{1'shared_memory_region' 2{2:1}} " BYTES("2:4")), INVALID,
     "invalid value type for 'shared_memory_region' parameter for input 'x', expected "
     "string_param, got int64_param"},
    {SHM_INPUT("4{1'shared_memory_region'} " BYTES("2:4")), INVALID,
     "expected string_param, got none"},
    {SHM_INPUT("4{1'shared_memory_region' 2{3''}} " BYTES("2:4")), INVALID,
     "expected 1 to 127 bytes, got 0"},
    {SHM_INPUT("4{1'shared_memory_region' 2{3@128}} " BYTES("2:4")), INVALID,
     "expected 1 to 127 bytes, got 128"},
    {SHM_INPUT(REGION BYTES("2:-4")), INVALID,
     "input 'x': parameter 'shared_memory_byte_size': expected int64_param or "
     "uint64_param, 0 or more, got -4"},
    {SHM_INPUT(REGION BYTES("3'4'")), INVALID,
     "input 'x': parameter 'shared_memory_byte_size': expected int64_param or "
     "uint64_param, got string_param"},
    {SHM_INPUT(REGION "4{1'shared_memory_byte_size'}"), INVALID, "got none"},
    {SHM_INPUT(REGION BYTES("2:4") "4{1'shared_memory_offset' 2{2:-1}}"), INVALID,
     "'shared_memory_offset': expected int64_param or uint64_param, 0 or more, got -1"},
    {SHM_INPUT(REGION BYTES("2:4") "4{1'shared_memory_offset' 2{1:1}}"), INVALID,
     "got bool_param"},
    {SHM_INPUT(REGION BYTES("2:4") "4{1'shared_memory_size' 2{2:1}}"), INVALID,
     "got 'shared_memory_size'"},
    {SHM_INPUT(REGION BYTES("2:4") "4{1'classification' 2{2:1}}"), INVALID,
     "input 'x' has both"},
    {SHM_INPUT(REGION BYTES("2:3")), INVALID,
     "input byte size mismatch for input 'x', expected 4, got 3"},
    {SHM_INPUT(REGION BYTES("2:5")), INVALID,
     "input byte size mismatch for input 'x', expected 4, got 5"},
    {SHM_INPUT(REGION BYTES("5:18446744073709551615")), INVALID,
     "expected 4, got 18446744073709551615"},
    {SHM_INPUT(REGION BYTES("2:4") "5{2[1 2 3 4]}"), INVALID,
     "unexpected 'content' provided when using shared memory for input tensor 'x' for "
     "model 'm'"},
    {SHM_INPUT(REGION BYTES("2:4")) "7#4", INVALID,
     "expected 0 entries in raw_input_contents, one for each input that is not in shared "
     "memory, got 1"},
    {SHM_INPUT(REGION BYTES("2:4")) FEATS COORDS "7#48", INVALID,
     "expected 2 entries in raw_input_contents, one for each input that is not"},
    {SHM_INPUT(REGION BYTES("2:4")) FEATS "7#4 7#48", INVALID, "expected 1 entries"},
    {SHM_INPUT(REGION BYTES("2:4")) FEATS "7#47", INVALID, "expected 48, got 47"},
    {SHM_INPUT(REGION BYTES("2:4")) FEATS, INVALID,
     "'feats' has neither raw_input_contents nor contents"},
    {SHM_INPUT(REGION BYTES("2:4")) "5{1'y' 2'INT8' 3[1] 5{2[1]}} " FEATS "7#48 7#1",
     INVALID, "contents field must not be specified when using raw_input_contents"},
    /* parameters */
    {GOOD "4{1'mine' 2{5:9}}", INVALID, "'mine': expected bool_param, int64_param"},
    {GOOD "4{1'mine'}", INVALID, "got none"},
    {GOOD "4{}", INVALID, "parameter ''"},
    {GOOD "4{1'triton_enable_empty_final_response' 2{2:1}}", INVALID,
     "'triton_enable_empty_final_response': expected bool_param, got int64_param"},
    {GOOD "4{1'priority' 2{2:-1}}", INVALID, "priority"},
    {GOOD "4{1'priority' 2{3'1'}}", INVALID, "priority"},
    {GOOD "4{1'priority'}", INVALID, "priority"},
    {GOOD "4{1'priority' 2{}}", INVALID, "priority"},
    {GOOD "4{1'priority' 2{2:1}} 4{1'priority' 2{2:-1}}", INVALID, "priority"},
    {GOOD "4{1'timeout' 2{2:-5}}", INVALID, "-5"},
    {GOOD "4{1'timeout' 2{1:1}}", INVALID, "timeout"},
    {GOOD "4{1'timing' 2{2:1}}", INVALID, "timing"},
    {GOOD "4{1'timing' 2{3'layer'}}", INVALID, "expected true, false or \"layers\""},
    {GOOD "4{1'timing'}", INVALID, "timing"},
    {GOOD "4{1'coords_ref' 2{2:1}}", INVALID, "'coords_ref': expected string_param"},
    {GOOD "4{1'coords_ref' 2{1:1}}", INVALID, "'coords_ref': expected string_param"},
    {GOOD "4{1'coords_ref'}", INVALID, "'coords_ref': expected string_param"},
    {GOOD "4{1'coords_ref' 2{3'x'}}", INVALID, "32 digits of lower-case hexadecimal"},
    {GOOD "4{1'coords_ref' 2{3'0123456789abcdef0123456789abcde'}}", INVALID,
     "hexadecimal"},
    {GOOD "4{1'coords_ref' 2{3'0123456789abcdef0123456789abcdef0'}}", INVALID,
     "got 33 bytes that begin with '0123'"}, /* a name is a secret: no more of it is repeated */
    {GOOD "4{1'coords_ref' 2{3'0123456789ABCDEF0123456789abcdef'}}", INVALID,
     "lower-case"},
    {GOOD "4{1'coords_ref' 2{3'00000000000000000000000000000000'}}", INVALID,
     "got 32 zeros, which is never one"},
    {GOOD "4{1'coords_ref' 2{3@3000}}", INVALID, "coords_ref"},
    {GOOD "4{1'spatial_shape' 2{2:8}}", INVALID,
     "'spatial_shape': expected string_param"},
    {GOOD "4{1'spatial_shape'}", INVALID, "'spatial_shape': expected string_param"},
    {GOOD "4{1'spatial_shape' 2{3''}}", INVALID,
     "'spatial_shape': expected three sizes of 1 to 131072, as in \"1440x1440x40\", got "
     "''"},
    {GOOD "4{1'spatial_shape' 2{3'8x8'}}", INVALID, "got '8x8'"},
    {GOOD "4{1'spatial_shape' 2{3'8x8x'}}", INVALID, "got '8x8x'"},
    {GOOD "4{1'spatial_shape' 2{3'8x8x8x8'}}", INVALID, "got '8x8x8x8'"},
    {GOOD "4{1'spatial_shape' 2{3'8x8x8 '}}", INVALID, "got '8x8x8 '"},
    {GOOD "4{1'spatial_shape' 2{3'8,8,8'}}", INVALID, "got '8,8,8'"},
    {GOOD "4{1'spatial_shape' 2{3'8x-8x8'}}", INVALID, "got '8x-8x8'"},
    {GOOD "4{1'spatial_shape' 2{3'0x8x8'}}", INVALID, "got '0x8x8'"},
    {GOOD "4{1'spatial_shape' 2{3'8x8x131073'}}", INVALID, "got '8x8x131073'"},
    {GOOD "4{1'spatial_shape' 2{3'18446744073709551624x8x8'}}", INVALID, "got '18446744"},
    {GOOD "4{1'spatial_shape' 2{3@3000}}", INVALID, "spatial_shape"},
    {GOOD "4{1'timout' 2{2:1}}", INVALID,
     "parameter 'timout': expected 'timeout', or a key of your own that is less like it"},
    {GOOD "4{1'Timing' 2{1:1}}", INVALID, "expected 'timing'"},
    {GOOD "4{1'prioirty' 2{2:1}}", INVALID, "expected 'priority'"},
    {GOOD "4{1'spatialShapes' 2{3'x'}}", INVALID, "expected 'spatial_shape'"},
    {GOOD "4{1'coords-ref' 2{3''}}", INVALID, "expected 'coords_ref'"},
    {GOOD "4{1'triton_final_response' 2{1:1}}", INVALID, "triton_final_response"},
    {GOOD "4{1'triton_' 2{1:1}}", INVALID, "'triton_'"},
    {GOOD "4{1'sequence_id' 2{1:1}}", INVALID,
     "'sequence_id': expected int64_param or string_param, got bool_param"},
    {GOOD "4{1'sequence_id'}", INVALID, "'sequence_id'"},
    {GOOD "4{1'sequence_start' 2{2:1}}", INVALID,
     "'sequence_start': expected bool_param, got int64_param"},
    {GOOD "4{1'sequence_end' 2{3'x'}}", INVALID, "'sequence_end': expected bool_param"},
    {GOOD "4{1'priority' 2{1:1}}", INVALID, "'priority': expected int64_param or"},
    {GOOD "4{1'priority' 2{!210000000000000840}}", INVALID, "got double_param"},
    {GOOD "4{1'timeout' 2{3'5'}}", INVALID, "got string_param"},
};

START_TEST(bad_parameters_are_refused_with_a_sentence)
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

START_TEST(tensors_may_lie_in_regions)
{
    const struct vx_request *request =
        parse_good("1'm' 5{1'a' 2'INT8' 3[4] " REGION BYTES(
            "2:4") "} " FEATS
                   "5{1'b' 2'FP16' 3[2] " BYTES(
                       "5:4") "4{1'shared_memory_offset' 2{2:64}} "
                              "4{1'shared_memory_region' 2{3'old'}} "
                              "4{1'shared_memory_region' 2{3'two'}}} " COORDS
                              "7#48 6{1'first'} 7#48 6{1'out' 2{1'shared_memory_offset' "
                              "2{5:4096}} "
                              "2{1'shared_memory_region' 2{3'r'}} "
                              "2{1'shared_memory_byte_size' 2{2:100}}}");
    static const struct {
        const char *name;
        u64 offset, bytes;
    } expected[] = {{"r", 0, 4}, {"", 0, 0}, {"two", 64, 4}, {"", 0, 0}};
    for (i32 i = 0; i < 4; i++) {
        const struct vx_request_tensor *input = &request->inputs[i];
        ck_assert_str_eq(input->region.name, expected[i].name);
        ck_assert_uint_eq(input->region.offset, expected[i].offset);
        ck_assert_uint_eq(input->region.bytes, expected[i].bytes);
    }
    ck_assert_uint_eq(request->inputs[0].place.bytes + request->inputs[2].place.bytes, 0);
    check_counted(1, 48); /* the first entry is of the second input */
    check_counted(3, 48);
    ck_assert_str_eq(request->outputs_region[0].name, "");
    ck_assert_str_eq(request->outputs_region[1].name, "r");
    ck_assert_uint_eq(request->outputs_region[1].offset, 4096);
    ck_assert_uint_eq(request->outputs_region[1].bytes, 100);
    parse_end(&parse);
}
END_TEST

START_TEST(regions_go_with_typed_contents_and_with_nothing)
{
    parse_good(SHM_INPUT(REGION BYTES("2:4")) "5{1'y' 2'INT8' 3[2] 5{2[5 6]}}");
    ck_assert(!memcmp(parse_memory(&parse, 1), (u8[]){5, 6}, 2));
    parse_end(&parse);
    parse_good(SHM_INPUT(REGION BYTES("2:4")));
    ck_assert_int_eq(parse.heap.takes, 0);
    parse_end(&parse);
    parse_good(INPUT("2'INT8' 3[0] " REGION BYTES("2:0")));
    ck_assert_str_eq(parse.request.inputs[0].region.name, "r");
    parse_end(&parse);
}
END_TEST

static const struct {
    const char *parameters;
    bool named;
    struct vx_coords_ref ref;
} refs[] = {
    {"", false, {0, 0}},
    {"4{1'coords_ref' 2{3''}}", true, {0, 0}},
    {"4{1'coords_ref' 2{3'0123456789abcdeffedcba9876543210'}}",
     true,
     {0xfedcba9876543210, 0x0123456789abcdef}},
    /* of two the last one counts */
    {"4{1'coords_ref' 2{3'nonsense'}} 4{1'coords_ref' 2{3''}}", true, {0, 0}},
};

/* priority and timeout, on the wire and in the parsed request */
static const struct {
    const char *parameters;
    u64 priority;
    i64 timeout_us;
} counts[] = {
    {"4{1'priority' 2{2:7}} 4{1'timeout' 2{2:1500}}", 7, 1500},
    {"4{1'priority' 2{5:7}} 4{1'timeout' 2{5:1500}}", 7, 1500},
    {"4{1'timeout' 2{5:9223372036854775807}}", 0, INT64_MAX},
    {"4{1'timeout' 2{5:9223372036854775808}}", 0, INT64_MAX}, /* longer than all time */
    {"4{1'priority' 2{5:18446744073709551615}}", UINT64_MAX, 0},
    {"4{1'priority' 2{2:1}} 4{1'timeout' 2{2:2}} 4{1'priority' 2{2:3}}", 3, 2},
    {"4{1'priority' 2{2:1}} 4{1'priority' 2{2:2}} 4{1'priority' 2{2:3}}", 3, 0},
};

START_TEST(counts_are_what_was_said)
{
    char notation[512];
    snprintf(notation, sizeof notation, "%s %s", GOOD, counts[_i].parameters);
    parse_good(notation);
    ck_assert_uint_eq(parse.request.priority, counts[_i].priority);
    ck_assert_int_eq(parse.request.timeout_us, counts[_i].timeout_us);
    parse_end(&parse);
}
END_TEST

START_TEST(a_request_may_have_a_shape_of_its_own)
{
    static const i32 zeros[3] = {0}, given[3] = {1, 131072, 40};
    parse_good(GOOD);
    ck_assert(!memcmp(parse.request.shape, zeros, sizeof zeros));
    parse_end(&parse);
    parse_good(GOOD "4{1'spatial_shape' 2{3'1x131072x40'}}");
    ck_assert(!memcmp(parse.request.shape, given, sizeof given));
    parse_end(&parse);
}
END_TEST

START_TEST(there_is_a_largest_number_of_parameters)
{
    char notation[4096];
    int length = snprintf(notation, sizeof notation, "%s ", GOOD);
    for (int i = 0; i <= VX_PARAMETERS_MAX; i++) {
        parse_notation(notation);
        ck_assert_msg(!parse.status.fault, "%d: %s", i, parse_text(&parse));
        parse_end(&parse);
        length += snprintf(notation + length, sizeof notation - (size_t)length,
                           "4{1'p%d' 2{1:1}} ", i);
    }
    parse_notation(notation);
    ck_assert_int_eq(vx_status_code(parse.status), INVALID);
    ck_assert_ptr_nonnull(
        strstr(parse_text(&parse), "expected at most 64 parameters, got 65"));
    parse_end(&parse);
}
END_TEST

/* The limit on names, shapes and parameters, to the byte: here an unknown field. */
START_TEST(names_have_a_largest_size)
{
    enum { HEAD = 1 + 3 }; /* tag, length */
    wire_write(&wire, GOOD);
    size_t rest = wire.length - 2 * (1 + 1 + 48), all = wire.length;
    u8 *bytes = calloc(1, VX_INFER_NAMES_BYTES_MAX + 4096);
    memcpy(bytes, wire.bytes, wire.length);
    for (size_t more = 0; more < 2; more++) {
        size_t filler = VX_INFER_NAMES_BYTES_MAX - rest - HEAD + more;
        u8 *at = bytes + all;
        *at++ = 15 << 3 | 2;
        for (u64 left = filler; at < bytes + all + HEAD; left >>= 7)
            *at++ = (u8)(left & 0x7f) | (left > 0x7f ? 0x80 : 0);
        memset(&parse, 0, sizeof parse);
        parse_flat(&parse, bytes, all + HEAD + filler);
        ck_assert_int_eq(vx_status_code(parse.status), more ? EXHAUSTED : VX_CODE_OK);
        if (more)
            ck_assert_ptr_nonnull(strstr(parse_text(&parse),
                                         "at most 1048576 bytes of names, shapes and "
                                         "parameters, got more"));
        parse_end(&parse);
    }
    free(bytes);
}
END_TEST

START_TEST(a_geometry_may_be_named)
{
    char notation[512];
    snprintf(notation, sizeof notation, "%s %s", GOOD, refs[_i].parameters);
    parse_good(notation);
    ck_assert_int_eq(parse.request.coords_named, refs[_i].named);
    ck_assert(vx_coords_ref_equal(parse.request.coords_ref, refs[_i].ref));
    ck_assert(!vx_coords_ref_there(parse.request.sent_ref)); /* rpc reports that */
    parse_end(&parse);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec parameters");
    TCase *tcase = tcase_create("parameters");
    tcase_add_loop_test(tcase, unusual_parameters_are_fine, 0, VX_COUNT(fine));
    tcase_add_loop_test(tcase, bad_parameters_are_refused_with_a_sentence, 0,
                        VX_COUNT(bad));
    tcase_add_test(tcase, tensors_may_lie_in_regions);
    tcase_add_test(tcase, regions_go_with_typed_contents_and_with_nothing);
    tcase_add_loop_test(tcase, a_geometry_may_be_named, 0, VX_COUNT(refs));
    tcase_add_loop_test(tcase, counts_are_what_was_said, 0, VX_COUNT(counts));
    tcase_add_test(tcase, a_request_may_have_a_shape_of_its_own);
    tcase_add_test(tcase, there_is_a_largest_number_of_parameters);
    tcase_add_test(tcase, names_have_a_largest_size);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
