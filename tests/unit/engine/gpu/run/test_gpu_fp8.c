/* Layers in FP8 on the fake GPU: which of them multiply numbers of 8 bits, and their answers beside
 * the CPU's with the same rounding and without it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/model/model_load.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 120, CO = 7 };

/* A convolution of so many channels behind a linear layer and before another one; the place
 * for its scale is the %s.  "beside": the rows of "a" are parts of longer ones. */
#define CONV(from_, to_)                                                                 \
    VX_RIG_LINEAR("a", "feats", from_)                                                   \
    VX_RIG_CONV("b", "a", to_, ",\"kernel\":3%s")
#define HEAD_LAYER                                                                       \
    "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"z\",\"channels\":7}],\"outputs\":"    \
    "[{\"layer\":\"y\"}]"

/* The rows in are those of another set: more, then fewer than those out. */
#define DOWN_AND_UP                                                                      \
    VX_RIG_LINEAR("a", "feats", "64")                                                    \
    "{\"name\":\"d\",\"op\":\"sparse_conv\",\"input\":\"a\",\"channels\":64,"            \
    "\"kernel\":2,\"stride\":2,\"rule\":\"floor\"%s},"                                   \
    "{\"name\":\"b\",\"op\":\"inverse_conv\",\"input\":\"d\",\"of\":\"d\",\"channels\":" \
    "96%s}," VX_RIG_OP("relu", "z", "b")

static const struct {
    const char *name, *precision, *layers;
    enum vx_number number; /* what the convolution multiplies */
    enum vx_conv_order order;
} cases[] = {
    {"a chain", "fp16", CONV("64", "64") VX_RIG_OP("relu", "z", "b"), VX_NUMBER_E4M3,
     VX_CONV_ORDER_CHAIN},
    {"columns that no tile divides", "fp16", CONV("32", "50") VX_RIG_OP("gelu", "z", "b"),
     VX_NUMBER_E4M3, VX_CONV_ORDER_CHAIN},
    {"a residual, rows beside others", "fp16",
     CONV("64", "64") "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"b\",\"a\"]},"
                      "{\"name\":\"z\",\"op\":\"concat\",\"inputs\":[\"a\",\"s\"]},",
     VX_NUMBER_E4M3, VX_CONV_ORDER_CHAIN},
    {"planes", "fp16", CONV("1024", "48") VX_RIG_OP("relu", "z", "b"), VX_NUMBER_E4M3,
     VX_CONV_ORDER_PLANES},
    {"one offset", "fp16",
     VX_RIG_LINEAR("a", "feats", "64")
         VX_RIG_CONV("b", "a", "128", ",\"kernel\":1,\"layout\":\"spconv\"%s")
             VX_RIG_OP("silu", "z", "b"),
     VX_NUMBER_E4M3, VX_CONV_ORDER_CHAIN},
    {"down and up again", "fp16", DOWN_AND_UP, VX_NUMBER_E4M3, VX_CONV_ORDER_CHAIN},
    {"down and up again in bf16", "bf16", DOWN_AND_UP, VX_NUMBER_BF16,
     VX_CONV_ORDER_CHAIN},
    {"too few columns for a stream", "fp16", CONV("64", "20") VX_RIG_OP("relu", "z", "b"),
     VX_NUMBER_F16, VX_CONV_ORDER_CHAIN},
    {"half an instruction's terms", "fp16", CONV("48", "64") VX_RIG_OP("relu", "z", "b"),
     VX_NUMBER_F16, VX_CONV_ORDER_CHAIN},
    {"rows of bf16", "bf16", CONV("64", "64") VX_RIG_OP("relu", "z", "b"), VX_NUMBER_BF16,
     VX_CONV_ORDER_CHAIN},
};

static void model_write(const char *layers, const char *precision, bool fp8)
{
    static char list[4096], json[8192];
    const char *scale = fp8 ? ",\"fp8_scale\":0.0078125" : "";
    snprintf(list, sizeof list, layers, scale, scale);
    snprintf(json, sizeof json, VX_RIG_HEAD "%s" HEAD_LAYER "%s}", list,
             fp8 ? ",\"fp8\":{\"data\":\"fp8.npz\",\"nmse_max\":0.5}" : "");
    vx_gpu_rig_write(precision, json, 4);
}

/* The answer of the CPU, which has the same seed for its weights. */
static struct vx_rig_request *cpu_answer(int index, bool fp8)
{
    model_write(cases[index].layers, cases[index].precision, fp8);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(8, N, 4, VX_DTYPE_F32);
    vx_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_engine_unload(vx_rig_engine, &model);
    return request;
}

static f64 nmse(const struct vx_rig_request *a, const struct vx_rig_request *b)
{
    f64 error = 0, power = 0;
    for (i32 e = 0; e < N * CO; e++) {
        const f64 x = (f64)a->outputs[0][e], y = (f64)b->outputs[0][e];
        error += (x - y) * (x - y);
        power += y * y;
    }
    return error / power;
}

/* The rows' own rounding to 16 bits moves some across the middle of two numbers of 8 bits: one
 * in 64 (bf16: one in 8), each by a step, 2^-3 of itself at most, which gives 2^-12 (2^-9).
 * Measured: 4e-6 to 4e-5 (3e-4); without FP8 the answers differ by 1.3e-3 and more. */
START_TEST(the_cpu_rounds_the_same)
{
    const bool wide = cases[_i].number == VX_NUMBER_BF16;
    struct vx_rig_request *rounded = cpu_answer(_i, true);
    struct vx_rig_request *plain = cpu_answer(_i, false);
    struct vx_rig_request *mine = vx_rig_request(8, N, 4, VX_DTYPE_F32);
    model_write(cases[_i].layers, cases[_i].precision, true);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    vx_gpu_rig_run(model, &mine->item);
    ck_assert_msg(!mine->item.status.fault, "%s", mine->item.why.text);
    const f64 same = nmse(mine, rounded), without = nmse(mine, plain);
    ck_assert_msg(same < (wide ? 0x1p-9 : 0x1p-12), "%s: NMSE %g", cases[_i].name, same);
    ck_assert_msg(without > 4 * same && without > 1e-3, "%s: NMSE %g without FP8",
                  cases[_i].name, without);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_free(rounded);
    vx_free(plain);
    vx_free(mine);
}
END_TEST

START_TEST(only_some_layers_multiply_bytes)
{
    struct vx_conv_problem problem;
    model_write(cases[_i].layers, cases[_i].precision, true);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    const struct vx_gpu_choices *choices = model->gpu->choices;
    vx_gpu_problem_make(choices, 1, N, &problem);
    ck_assert_int_eq(problem.type, cases[_i].number);
    ck_assert_int_eq(vx_conv_order_of(&problem), cases[_i].order);
    ck_assert_float_eq(problem.in_scale, 0.0078125f);
    vx_gpu_problem_make(choices, 0, N, &problem); /* the linear layer before it */
    ck_assert_int_eq(problem.type, model->number);
    ck_assert_float_eq(problem.in_scale, 0);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* A request's bits are its own, among others and alone. */
START_TEST(company_changes_no_bits)
{
    model_write(cases[_i].layers, cases[_i].precision, true);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    struct vx_rig_request *alone = vx_rig_request(8, N, 4, VX_DTYPE_F32);
    struct vx_rig_request *other = vx_rig_request(9, 2 * N, 4, VX_DTYPE_F32);
    struct vx_rig_request *among = vx_rig_request(8, N, 4, VX_DTYPE_F32);
    vx_gpu_rig_run(model, &alone->item);
    struct vx_item items[2] = {other->item, among->item};
    struct vx_batch batch = {.items = items, .items_count = 2};
    vx_engine_run(vx_gpu_rig_engine, model, &batch);
    ck_assert_msg(!items[1].status.fault, "%s", items[1].why.text);
    ck_assert(!memcmp(alone->outputs[0], among->outputs[0], N * CO * sizeof(f32)));
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_free(alone);
    vx_free(other);
    vx_free(among);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_fp8");
    TCase *tcase = tcase_create("gpu_fp8");
    const int count = (int)VX_COUNT(cases);
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, the_cpu_rounds_the_same, 0, count);
    tcase_add_loop_test(tcase, only_some_layers_multiply_bytes, 0, count);
    tcase_add_loop_test(tcase, company_changes_no_bits, 0, count);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
