/* Requests against a model's signature: what is admitted, and the sentence for each
 * refusal.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/call/admit.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vx_signature signature_make(void)
{
    struct vx_signature s = {.coords_name = "coords",
                             .feats_name = "feats",
                             .feats_channels = 4,
                             .outputs_count = 2,
                             .voxels_max = 1000,
                             .voxels_bound = VX_BOUND_CACHE_BYTES};
    s.outputs[0] = (struct vx_output){"normals", VX_DTYPE_F32, 3, 0, -1, "", 0, {0}};
    s.outputs[1] = (struct vx_output){"score", VX_DTYPE_F16, 1, 0, -1, "", 0, {0}};
    return s;
}

static struct vx_request_tensor tensor_make(const char *name, enum vx_wire_type type,
                                            i64 rows, i64 columns)
{
    struct vx_request_tensor t = {
        .type = type, .rank = 2, .shape = {rows, columns}, .elements = rows * columns};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

static struct vx_request request_make(void)
{
    struct vx_request r = {.model = "m", .inputs_count = 2};
    r.inputs[0] = tensor_make("coords", VX_WIRE_INT32, 10, 4);
    r.inputs[1] = tensor_make("feats", VX_WIRE_FP32, 10, 4);
    return r;
}

static void change_none(struct vx_request *r)
{
    r->timing = true;
}
static void change_order(struct vx_request *r)
{
    struct vx_request_tensor t = r->inputs[0];
    r->inputs[0] = r->inputs[1];
    r->inputs[1] = t;
}
static void change_three(struct vx_request *r)
{
    r->inputs[0].shape[1] = 3;
}
static void change_zero(struct vx_request *r)
{
    r->inputs[0].shape[0] = r->inputs[1].shape[0] = 0;
}
static void change_half(struct vx_request *r)
{
    r->inputs[1].type = VX_WIRE_FP16;
}
static void change_bf16(struct vx_request *r)
{
    r->inputs[1].type = VX_WIRE_BF16;
}
static void change_coords_type(struct vx_request *r)
{
    r->inputs[0].type = VX_WIRE_INT64;
}
static void change_feats_type(struct vx_request *r)
{
    r->inputs[1].type = VX_WIRE_FP64;
}
static void change_rank(struct vx_request *r)
{
    r->inputs[0].rank = 1;
}
static void change_rank_8(struct vx_request *r)
{
    r->inputs[0].rank = 8;
    for (int i = 0; i < 8; i++) r->inputs[0].shape[i] = INT64_MAX;
}
static void change_columns(struct vx_request *r)
{
    r->inputs[0].shape[1] = 5;
}
static void change_channels(struct vx_request *r)
{
    r->inputs[1].shape[1] = 3;
}
static void change_rows(struct vx_request *r)
{
    r->inputs[1].shape[0] = 9;
}
static void change_missing(struct vx_request *r)
{
    r->inputs_count = 1;
}
static void change_none_at_all(struct vx_request *r)
{
    r->inputs_count = 0;
}
static void change_unknown(struct vx_request *r)
{
    r->inputs[r->inputs_count++] = tensor_make("color", VX_WIRE_FP32, 10, 3);
}
static void change_most(struct vx_request *r)
{
    r->inputs[0].shape[0] = r->inputs[1].shape[0] = 1000;
}
static void change_many(struct vx_request *r)
{
    r->inputs[0].shape[0] = r->inputs[1].shape[0] = 1001;
}
static void change_output(struct vx_request *r)
{
    r->outputs_count = 1;
    snprintf(r->outputs[0], sizeof r->outputs[0], "depth");
}
static void change_output_twice(struct vx_request *r)
{
    r->outputs_count = 2;
    snprintf(r->outputs[0], sizeof r->outputs[0], "score");
    snprintf(r->outputs[1], sizeof r->outputs[1], "score");
}

static void change_named(struct vx_request *r)
{
    r->coords_named = true; /* coords are there, and their coords_ref is asked for */
}
static void change_by_name(struct vx_request *r)
{
    r->coords_named = true;
    r->coords_ref = (struct vx_coords_ref){1, 2};
    r->inputs[0] = r->inputs[1];
    r->inputs_count = 1;
}
static void change_both(struct vx_request *r)
{
    r->coords_named = true;
    r->coords_ref = (struct vx_coords_ref){1, 2};
}
static void change_by_name_alone(struct vx_request *r)
{
    change_by_name(r);
    r->inputs_count = 0;
}
static void change_by_name_many(struct vx_request *r)
{
    change_by_name(r);
    r->inputs[0].shape[0] = 1001;
}
static void change_by_name_channels(struct vx_request *r)
{
    change_by_name(r);
    r->inputs[0].shape[1] = 3;
}

static const struct {
    void (*change)(struct vx_request *);
    enum vx_code code;
    const char *text;
} cases[] = {
    {change_none, VX_CODE_OK, ""},
    {change_order, VX_CODE_OK, ""},
    {change_three, VX_CODE_OK, ""},
    {change_zero, VX_CODE_OK, ""},
    {change_half, VX_CODE_OK, ""},
    {change_bf16, VX_CODE_OK, ""},
    {change_named, VX_CODE_OK, ""},
    {change_both, VX_CODE_INVALID_ARGUMENT,
     "input 'coords' and parameter 'coords_ref' are both present"},
    {change_by_name_alone, VX_CODE_INVALID_ARGUMENT,
     "input 'feats' is missing: model 'm' expects 1 input in addition to coords_ref, got "
     "0"},
    {change_by_name_many, VX_CODE_RESOURCE_EXHAUSTED, "at most 1000 voxels"},
    {change_by_name_channels, VX_CODE_INVALID_ARGUMENT,
     "expected shape [N,4], got [10,3]"},
    {change_coords_type, VX_CODE_INVALID_ARGUMENT, "expected datatype INT32, got INT64"},
    {change_feats_type, VX_CODE_INVALID_ARGUMENT,
     "expected datatype FP32, FP16 or BF16, got FP64"},
    {change_rank, VX_CODE_INVALID_ARGUMENT, "got [10]"},
    {change_rank_8, VX_CODE_INVALID_ARGUMENT, "expected shape [N,4]"},
    {change_columns, VX_CODE_INVALID_ARGUMENT, "got [10,5]"},
    {change_channels, VX_CODE_INVALID_ARGUMENT, "expected shape [N,4], got [10,3]"},
    {change_rows, VX_CODE_INVALID_ARGUMENT, "got 10 and 9"},
    {change_missing, VX_CODE_INVALID_ARGUMENT, "input 'feats' is missing"},
    {change_none_at_all, VX_CODE_INVALID_ARGUMENT, "input 'coords' is missing"},
    {change_unknown, VX_CODE_INVALID_ARGUMENT, "unexpected inference input 'color'"},
    {change_most, VX_CODE_OK, ""},
    {change_many, VX_CODE_RESOURCE_EXHAUSTED,
     "at most 1000 voxels in one request, got 1001; send fewer, or this needs a larger "
     "--cache-bytes of its server"},
    {change_output, VX_CODE_INVALID_ARGUMENT,
     "unexpected inference output 'depth' for model 'm': it has 'normals', 'score'"},
    {change_output_twice, VX_CODE_INVALID_ARGUMENT, "'score' is named twice"},
};

START_TEST(a_case_has_its_code_and_sentence)
{
    struct vx_signature signature = signature_make();
    struct vx_request request = request_make();
    struct vx_admitted admitted;
    struct vx_why why = {""};
    cases[_i].change(&request);
    vx_status st = vx_admit("m", &signature, &request, &why, &admitted);
    ck_assert_msg(vx_status_code(st) == cases[_i].code, "got %s",
                  vx_status_text(st, &why));
    ck_assert_msg(strstr(why.text, cases[_i].text), "got %s", why.text);
    if (st.fault) return;
    ck_assert_str_eq(admitted.coords->name, "coords");
    ck_assert_int_eq(admitted.voxels, admitted.feats->shape[0]);
    ck_assert_int_eq(admitted.outputs_count, 2);
}
END_TEST

/* Eight outputs: the sentence names all, unless their names are too long for it. */
static const struct {
    const char *stem;
    const char *ends;
} outputs[] = {
    {"level",
     "'level0', 'level1', 'level2', 'level3', 'level4', 'level5', 'level6', 'level7'"},
    {"a_long_name_for_one_output_of_a_level_",
     "_level_0', 'a_long_name_for_one_output_of_a_level_1'"
     " and others"},
};

START_TEST(all_outputs_are_named_that_have_room)
{
    struct vx_signature signature = signature_make();
    struct vx_request request = request_make();
    struct vx_admitted admitted;
    struct vx_why why = {""};
    signature.outputs_count = VX_NETWORK_OUTPUTS_MAX;
    for (i32 o = 0; o < signature.outputs_count; o++)
        snprintf(signature.outputs[o].name, sizeof signature.outputs[o].name, "%s%d",
                 outputs[_i].stem, o);
    change_output(&request);
    ck_assert(vx_admit("m", &signature, &request, &why, &admitted).fault);
    const char *ends = outputs[_i].ends;
    size_t length = strlen(why.text);
    ck_assert_msg(length >= strlen(ends) &&
                      !strcmp(why.text + length - strlen(ends), ends),
                  "%s", why.text);
}
END_TEST

/* Rows that are known before the request runs: all of them when it has no voxels. */
START_TEST(rows_of_other_sets_are_not_known)
{
    struct vx_signature signature = signature_make();
    struct vx_request request = request_make();
    struct vx_admitted admitted;
    signature.outputs[1].set = 3;
    signature.outputs[1].coords = 1;
    snprintf(signature.outputs[1].stride, VX_SET_STRIDE_BYTES, "2x2x2");
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert_int_eq(admitted.rows[0], 10);
    ck_assert_int_eq(admitted.rows[1], -1);
    for (i32 i = 0; i < request.inputs_count; i++) request.inputs[i].shape[0] = 0;
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert_int_eq(admitted.rows[0], 0);
    ck_assert_int_eq(admitted.rows[1], 0);
    struct vx_reply_tensor tensor = vx_admit_reply_tensor(&signature, 1, 7);
    ck_assert_int_eq(tensor.shape[0], 7);
    ck_assert_str_eq(tensor.stride, "2x2x2");
    ck_assert_ptr_null(tensor.coords); /* it has the coordinates itself */
    signature.outputs[1].coords = 0;
    ck_assert_str_eq(vx_admit_reply_tensor(&signature, 1, 7).coords, "normals");
    ck_assert_ptr_null(vx_admit_reply_tensor(&signature, 0, 7).stride);
}
END_TEST

/* The model's, another, and one for a model that has none. */
START_TEST(a_shape_of_its_own_replaces_the_models)
{
    static const i32 zeros[3] = {0}, shape[3] = {8, 9, 10}, other[3] = {8, 9, 11};
    struct vx_signature signature = signature_make();
    struct vx_request request = request_make();
    struct vx_admitted admitted;
    struct vx_why why = {""};
    memcpy(signature.shape, shape, sizeof shape);
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert(!memcmp(admitted.shape, zeros, sizeof zeros));
    memcpy(request.shape, shape, sizeof shape);
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert(!memcmp(admitted.shape, zeros, sizeof zeros));
    memcpy(request.shape, other, sizeof other);
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert(!memcmp(admitted.shape, other, sizeof other));
    memset(signature.shape, 0, sizeof signature.shape);
    vx_status status = vx_admit("m", &signature, &request, &why, &admitted);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text,
                     "parameter 'spatial_shape': model 'm' has no spatial_shape "
                     "that a request could replace");
}
END_TEST

START_TEST(a_name_stands_for_coords)
{
    struct vx_signature signature = signature_make();
    struct vx_request request = request_make();
    struct vx_admitted admitted;
    change_by_name(&request);
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert_ptr_null(admitted.coords);
    ck_assert_str_eq(admitted.feats->name, "feats");
    ck_assert_int_eq(admitted.voxels, 10);
    ck_assert_int_eq(admitted.outputs_count, 2);
}
END_TEST

START_TEST(outputs_come_in_the_order_asked_for)
{
    struct vx_signature signature = signature_make();
    struct vx_request request = request_make();
    struct vx_admitted admitted;
    request.outputs_count = 2;
    snprintf(request.outputs[0], sizeof request.outputs[0], "score");
    snprintf(request.outputs[1], sizeof request.outputs[1], "normals");
    ck_assert(!vx_admit("m", &signature, &request, NULL, &admitted).fault);
    ck_assert_int_eq(admitted.outputs[0], 1);
    ck_assert_int_eq(admitted.outputs[1], 0);
    struct vx_reply_tensor tensor = vx_admit_reply_tensor(&signature, 1, 10);
    ck_assert_str_eq(tensor.name, "score");
    ck_assert_int_eq(tensor.type, VX_WIRE_FP16);
    ck_assert_uint_eq(tensor.bytes, 20);
    ck_assert_int_eq(tensor.shape[0] * 100 + tensor.shape[1], 1001);
}
END_TEST

static struct vx_reply_tensor answer_make(i64 rows, bool dense)
{
    struct vx_output output = {"score", VX_DTYPE_F16, 1, 0, -1, "", 0, {0}};
    if (dense)
        output = (struct vx_output){"volume", VX_DTYPE_F32, 48, VX_OUTPUT_DENSE,
                                    -1,       "",           4,  {6, 4, 2, 1}};
    struct vx_signature signature = {.outputs_count = 1, .outputs = {output}};
    return vx_admit_reply_tensor(&signature, 0, rows);
}

/* A sample of the dense output has 192 bytes, a voxel of the other 2. */
static const struct {
    i64 samples, voxels;
    u64 others;
    const char *sentence;
} smaller[] = {
    {0, 10, 7, "send fewer voxels, or ask for fewer outputs"},
    {2, 100, 184, "send fewer voxels, or ask for fewer outputs"},
    {2, 100, 183,
     "send fewer samples, numbered from 0: output 'volume' is [2,6,4,2,1] FP32, a row "
     "for "
     "each sample"},
    {1, 0, 0,
     "ask for other outputs: output 'volume' is [1,6,4,2,1] FP32, a row for one sample"},
};

START_TEST(what_makes_a_request_smaller_is_what_is_large_in_it)
{
    char text[VX_ADMIT_SMALLER_BYTES];
    const struct vx_reply_tensor answer[] = {
        answer_make(smaller[_i].voxels, false),
        answer_make(smaller[_i].samples, true),
    };
    ck_assert_str_eq(vx_admit_smaller(answer, 2, smaller[_i].others, text),
                     smaller[_i].sentence);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admit");
    TCase *tcase = tcase_create("table");
    tcase_add_loop_test(tcase, a_case_has_its_code_and_sentence, 0,
                        (int)(sizeof cases / sizeof cases[0]));
    tcase_add_loop_test(tcase, all_outputs_are_named_that_have_room, 0,
                        sizeof outputs / sizeof *outputs);
    tcase_add_test(tcase, rows_of_other_sets_are_not_known);
    tcase_add_test(tcase, a_shape_of_its_own_replaces_the_models);
    tcase_add_test(tcase, a_name_stands_for_coords);
    tcase_add_test(tcase, outputs_come_in_the_order_asked_for);
    tcase_add_loop_test(tcase, what_makes_a_request_smaller_is_what_is_large_in_it, 0,
                        sizeof smaller / sizeof *smaller);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
