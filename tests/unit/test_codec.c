/* Requests from wire bytes, however they are cut; what is refused has its sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/codec_sample.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED      UINT64_C(20261121)
#define SPANS_MAX 4096

typedef Inference__ModelInferRequest Request;

/* ------- good messages ------- */

static struct vx_span span_list[SPANS_MAX];

/* Cuts a message at random places; pieces may be empty.  most = 1: every byte its own
 * span. */
static struct vx_spans cut(const u8 *bytes, size_t length, u64 most)
{
    struct vx_spans spans = {span_list, 0, length};
    for (size_t at = 0; at < length;) {
        size_t piece = most == 1 ? 1 : codec_random_below(most + 1);
        if (piece > length - at) piece = length - at;
        ck_assert_uint_lt(spans.count, SPANS_MAX);
        span_list[spans.count++] = (struct vx_span){bytes + at, piece};
        at += piece;
    }
    return spans;
}

START_TEST(any_cut_gives_the_same_request)
{
    struct codec_sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    codec_random_state = SEED;
    codec_sample_init(&s);
    size_t length = codec_sample_pack(&s, message);
    for (int i = 0; i < 2000; i++) {
        struct vx_spans spans = cut(message, length, i == 0 ? 1 : 2 + (u64)i % 90);
        ck_assert_msg(!codec_parse(&spans, &why, &request).fault, "%s", why.text);
        codec_check_sample(&request);
        codec_give_back(&request);
    }
}
END_TEST

/* Field 7 first, then the rest in reverse: the wire promises no order between fields. */
START_TEST(fields_may_come_in_any_order)
{
    struct codec_sample s;
    u8 rest[MESSAGE_BYTES], raws[MESSAGE_BYTES], message[2 * MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    codec_sample_init(&s);
    s.request.n_raw_input_contents = 0;
    size_t rest_bytes = codec_sample_pack(&s, rest);
    Request only = INFERENCE__MODEL_INFER_REQUEST__INIT;
    only.n_raw_input_contents = 2;
    only.raw_input_contents = s.raws;
    size_t raw_bytes = inference__model_infer_request__pack(&only, raws);
    memcpy(message, raws, raw_bytes);
    memcpy(message + raw_bytes, rest, rest_bytes);
    ck_assert(!codec_parse_flat(message, raw_bytes + rest_bytes, &why, &request).fault);
    codec_check_sample(&request);
    codec_give_back(&request);
}
END_TEST

START_TEST(typed_contents_land_as_raw_bytes)
{
    struct codec_sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    i32 ints[12];
    float floats[6];
    codec_sample_init(&s);
    for (int i = 0; i < 12; i++) ints[i] = i - 6;
    for (int i = 0; i < 6; i++) floats[i] = (float)i / 3;
    s.contents[0].n_int_contents = 12;
    s.contents[0].int_contents = ints;
    s.contents[1].n_fp32_contents = 6;
    s.contents[1].fp32_contents = floats;
    s.inputs[0].contents = &s.contents[0];
    s.inputs[1].contents = &s.contents[1];
    s.request.n_raw_input_contents = 0;
    size_t length = codec_sample_pack(&s, message);
    ck_assert_msg(!codec_parse_flat(message, length, &why, &request).fault, "%s",
                  why.text);
    ck_assert_int_eq(
        memcmp(codec_slots_view(NULL, &request.inputs[0].slot), ints, sizeof ints), 0);
    ck_assert_int_eq(
        memcmp(codec_slots_view(NULL, &request.inputs[1].slot), floats, sizeof floats),
        0);
    codec_give_back(&request);
    /* A narrow type takes the low bytes, and refuses what does not fit. */
    s.inputs[0].datatype = "INT8";
    length = codec_sample_pack(&s, message);
    ck_assert(!codec_parse_flat(message, length, &why, &request).fault);
    ck_assert_int_eq(((i8 *)codec_slots_view(NULL, &request.inputs[0].slot))[0], -6);
    ck_assert_uint_eq(request.inputs[0].slot.bytes, 12);
    codec_give_back(&request);
    ints[5] = 200;
    length = codec_sample_pack(&s, message);
    ck_assert_int_eq(vx_status_code(codec_parse_flat(message, length, &why, &request)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(why.text, "element 5 must fit INT8, got 200"));
}
END_TEST

START_TEST(no_rows_need_no_slot)
{
    struct codec_sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    i64 none[2] = {0, 4}, none_wide[2] = {0, INT64_MAX};
    codec_sample_init(&s);
    s.inputs[0].shape = none;
    s.inputs[1].shape = none_wide; /* nothing times anything is nothing */
    s.raws[0].len = s.raws[1].len = 0;
    size_t length = codec_sample_pack(&s, message);
    ck_assert_msg(!codec_parse_flat(message, length, &why, &request).fault, "%s",
                  why.text);
    ck_assert_int_eq(request.inputs[0].elements + request.inputs[1].elements, 0);
    ck_assert_int_eq(codec_slots_out, 0);
}
END_TEST

/* ------- refused messages ------- */

static i64 bad_shape[16];

static void shape_set(struct codec_sample *s, size_t n, i64 first, i64 second)
{
    for (size_t i = 0; i < n; i++) bad_shape[i] = i ? second : first;
    s->inputs[0].shape = bad_shape;
    s->inputs[0].n_shape = n;
}

static char long_name[300];

static void key_set(struct codec_sample *s, const char *key, int kind)
{
    s->entry.key = (char *)(uintptr_t)key;
    s->parameter.parameter_choice_case = kind;
    s->parameter.uint64_param = 1; /* overlays all numbers */
}

static void bad_no_model(struct codec_sample *s)
{
    s->request.model_name = "";
}
static void bad_long_model(struct codec_sample *s)
{
    memset(long_name, 'x', sizeof long_name - 1);
    s->request.model_name = long_name;
}
static void bad_utf8(struct codec_sample *s)
{
    s->request.model_name = "\xff\xfe";
}
static void bad_overlong_utf8(struct codec_sample *s)
{
    s->inputs[0].name = "\xc0\x80";
}
static void bad_version(struct codec_sample *s)
{
    s->request.model_version = "1.5";
}
static void bad_version_negative(struct codec_sample *s)
{
    s->request.model_version = "-1";
}
static void bad_version_huge(struct codec_sample *s)
{
    s->request.model_version = "99999999999999999999";
}
static void bad_type(struct codec_sample *s)
{
    s->inputs[1].datatype = "FP31";
}
static void bad_bytes_type(struct codec_sample *s)
{
    s->inputs[1].datatype = "BYTES";
}
static void bad_rank(struct codec_sample *s)
{
    shape_set(s, VX_RANK_MAX + 1, 1, 1);
}
static void bad_negative(struct codec_sample *s)
{
    shape_set(s, 2, -1, 4);
}
static void bad_product(struct codec_sample *s)
{
    shape_set(s, 2, INT64_MAX / 2, 4);
}
static void bad_product_bytes(struct codec_sample *s)
{
    shape_set(s, 2, INT64_MAX / 16, 8);
}
static void bad_short(struct codec_sample *s)
{
    s->raws[0].len = 44;
}
static void bad_twice(struct codec_sample *s)
{
    s->inputs[1].name = "coords";
}
static void bad_raw_count(struct codec_sample *s)
{
    s->request.n_raw_input_contents = 1;
}
static void bad_mixed(struct codec_sample *s)
{
    s->inputs[1].contents = &s->contents[1];
}
static void bad_nothing(struct codec_sample *s)
{
    s->request.n_raw_input_contents = 0;
}
static void bad_typed_count(struct codec_sample *s)
{
    s->request.n_raw_input_contents = 0;
    s->inputs[0].contents = &s->contents[0];
    s->inputs[1].contents = &s->contents[1];
}
static void bad_timing(struct codec_sample *s)
{
    key_set(s, "timing", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
}
static void bad_priority(struct codec_sample *s)
{
    key_set(s, "priority", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
    s->parameter.int64_param = -1;
}
static void bad_priority_missing(struct codec_sample *s)
{
    s->entry.key = "priority";
    s->entry.value = NULL;
}
static void bad_reserved(struct codec_sample *s)
{
    key_set(s, "triton_other", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM);
}
static void bad_sequence(struct codec_sample *s)
{
    key_set(s, "sequence_id", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
}

static const struct {
    void (*change)(struct codec_sample *);
    const char *text;
} refusals[] = {
    {bad_no_model, "model_name is missing"},
    {bad_long_model, "model_name: expected at most 127 bytes, got 299"},
    {bad_utf8, "expected UTF-8"},
    {bad_overlong_utf8, "expected UTF-8"},
    {bad_version, "specified version string '1.5'"},
    {bad_version_negative, "'-1'"},
    {bad_version_huge, "'99999999999999999999'"},
    {bad_type, "got 'FP31'"},
    {bad_bytes_type, "got BYTES"},
    {bad_rank, "at most 8 dimensions, got 9"},
    {bad_negative, "dimension 0 must be 0 or more, got -1"},
    {bad_product, "does not fit 64 bits"},
    {bad_product_bytes, "does not fit 64 bits"},
    {bad_short, "input byte size mismatch for input 'coords', expected 48, got 44"},
    {bad_twice, "'coords' is there twice"},
    {bad_raw_count,
     "expected 2 entries in raw_input_contents, one for each input, got 1"},
    {bad_mixed, "contents field must not be specified when using raw_input_contents"},
    {bad_nothing, "neither raw_input_contents nor contents"},
    {bad_typed_count, "expected 12 values in int_contents, got 0"},
    {bad_timing, "'timing': expected bool_param"},
    {bad_priority, "'priority': expected int64_param or uint64_param"},
    {bad_priority_missing, "'priority': expected"},
    {bad_reserved, "reserved, got 'triton_other'"},
    {bad_sequence, "keep no state"},
};

START_TEST(a_refusal_has_its_sentence)
{
    struct codec_sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    codec_sample_init(&s);
    refusals[_i].change(&s);
    vx_status st =
        codec_parse_flat(message, codec_sample_pack(&s, message), &why, &request);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(vx_status_text(st, &why), refusals[_i].text), "got: %s",
                  vx_status_text(st, &why));
}
END_TEST

START_TEST(a_full_arena_leaves_no_slot_taken)
{
    struct codec_sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    codec_sample_init(&s);
    codec_slot_limit = 50; /* coords fit, feats do not */
    vx_status st =
        codec_parse_flat(message, codec_sample_pack(&s, message), &why, &request);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(why.text, "24 bytes of input 'feats'"));
}
END_TEST

START_TEST(a_rest_beyond_its_limits_is_refused_not_served_by_memory)
{
    size_t length = VX_INFER_REST_BYTES_MAX + 2;
    u8 *message = malloc(length);
    struct vx_request request;
    struct vx_why why;
    /* Empty inputs, two bytes each: the most members a message can have. */
    for (size_t i = 0; i < length; i += 2) {
        message[i] = 5 << 3 | 2;
        message[i + 1] = 0;
    }
    ck_assert_int_eq(vx_status_code(codec_parse_flat(message, length, &why, &request)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(
        vx_status_code(codec_parse_flat(message, length - 2, &why, &request)),
        VX_CODE_RESOURCE_EXHAUSTED);
    vx_status st = codec_parse_flat(message, 2000, &why, &request);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    free(message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec");
    TCase *tcase = tcase_create("codec");
    tcase_add_checked_fixture(tcase, codec_set_up, codec_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, any_cut_gives_the_same_request);
    tcase_add_test(tcase, fields_may_come_in_any_order);
    tcase_add_test(tcase, typed_contents_land_as_raw_bytes);
    tcase_add_test(tcase, no_rows_need_no_slot);
    tcase_add_loop_test(tcase, a_refusal_has_its_sentence, 0, (int)VX_COUNT(refusals));
    tcase_add_test(tcase, a_full_arena_leaves_no_slot_taken);
    tcase_add_test(tcase, a_rest_beyond_its_limits_is_refused_not_served_by_memory);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
