/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/types.h"
#include "kernels/04_conv_explicit.h"
#include "kernels/13_elementwise.h"
#include "kernels/16_row_gather.h"
#include "kernels/17_pool.h"
#include "kernels/18_group_norm.h"
#include "kernels/19_softmax.h"
#include "kernels/20_curve.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The references of the operators of several sets, against values worked out by hand or computed
 * here from the definition. */

#define NONE VX_ACTIVATION_NONE

/* Block w of a row comes from offset v: x is fastest in w, z in v. */
START_TEST(test_row_gather_order)
{
    static const struct {
        i32 kernel[3];
        i32 offsets[8]; /* of blocks 0, 1, ... */
    } cases[] = {
        {{2, 2, 2}, {0, 4, 2, 6, 1, 5, 3, 7}},
        {{2, 1, 3}, {0, 3, 1, 4, 2, 5}},
        {{1, 3, 2}, {0, 2, 4, 1, 3, 5}},
        {{1, 1, 1}, {0}},
    };
    const i32 *kernel = cases[_i].kernel;
    i32 v = kernel[0] * kernel[1] * kernel[2];
    f32 in[16], out[2 * 16];
    i32 nbr[2 * 8];
    for (i32 e = 0; e < 16; e++) {
        i32 row = e / 2;
        in[e] = (f32)(row * 10 + e % 2 + 1);
    }
    for (i32 k = 0; k < v; k++) {
        nbr[2 * k] = k; /* row 0 has every neighbour, row 1 one */
        nbr[2 * k + 1] = k == v - 1 ? 0 : -1;
    }
    struct vx_row_gather_args args = {
        .n = 2, .v = v, .c = 2, .nbr = nbr, .in = in, .out = out};
    memcpy(args.kernel, kernel, sizeof args.kernel);
    vx_row_gather_ref(&args);
    for (i32 w = 0; w < v; w++) {
        i32 offset = cases[_i].offsets[w];
        f32 only = offset == v - 1 ? 1 : 0;
        ck_assert_float_eq(out[2 * w], (f32)(offset * 10 + 1));
        ck_assert_float_eq(out[2 * w + 1], (f32)(offset * 10 + 2));
        ck_assert_float_eq(out[2 * v + 2 * w], only);
        ck_assert_float_eq(out[2 * v + 2 * w + 1], 2 * only);
    }
}
END_TEST

/* Two parents of two children with two channels each: the matrix (2,4) read as (4,2). */
START_TEST(test_channel_to_space)
{
    static const f32 in[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const i32 nbr[] = {3, 0, -1, 1, 1};
    static const f32 expected[] = {7, 8, 1, 2, 0.5f, 0.5f, 3, 4, 3, 4};
    f32 out[10];
    struct vx_row_gather_args args = {.n = 5,
                                      .v = 1,
                                      .c = 2,
                                      .kernel = {1, 1, 1},
                                      .nbr = nbr,
                                      .in = in,
                                      .activation = VX_ACTIVATION_SIGMOID,
                                      .out = out};
    vx_row_gather_ref(&args);
    for (i32 e = 0; e < 10; e++) {
        f64 y = e / 2 == 2 ? 0.5 : 1 / (1 + exp(-(f64)expected[e]));
        ck_assert_double_eq_tol((f64)out[e], y, 1e-7); /* an empty row has act(0) */
    }
}
END_TEST

/* Four rows out of three rows in: two neighbours, one, none, NaN. */
static const i32 pool_nbr[] = {0, -1, -1, 1, 1, 0, -1, 2, -1, -1, -1, -1};
static const f32 pool_in[] = {-4, 1, -2, 8, NAN, -1};

START_TEST(test_pool_by_hand)
{
    static const struct {
        enum vx_pool_mode mode;
        enum vx_activation activation;
        f32 expected[8];
    } cases[] = {
        {VX_POOL_MAX, NONE, {-2, 8, -4, 1, 0, 0, NAN, 8}},
        {VX_POOL_SUM, NONE, {-6, 9, -4, 1, 0, 0, NAN, 7}},
        {VX_POOL_AVG, NONE, {-3, 4.5f, -4, 1, 0, 0, NAN, 3.5f}},
        {VX_POOL_AVG, VX_ACTIVATION_RELU, {0, 4.5f, 0, 1, 0, 0, NAN, 3.5f}},
    };
    f32 out[8];
    vx_pool_ref(&(struct vx_pool_args){4, 3, 2, cases[_i].mode, pool_nbr, pool_in,
                                       cases[_i].activation, out, 0, 0});
    for (i32 e = 0; e < 8; e++) {
        if (isnan(cases[_i].expected[e]))
            ck_assert(isnan(out[e]));
        else
            ck_assert_float_eq(out[e], cases[_i].expected[e]);
    }
}
END_TEST

/* NaN first, in the middle and last. */
START_TEST(test_max_of_nan)
{
    static const i32 nbr[] = {0, 1, 2};
    f32 in[3] = {-5, 7, 3};
    f32 out;
    in[_i] = NAN;
    vx_pool_ref(&(struct vx_pool_args){1, 3, 1, VX_POOL_MAX, nbr, in, NONE, &out, 0, 0});
    ck_assert(isnan(out));
    const i64 starts[] = {0, 3};
    vx_global_pool_ref(
        &(struct vx_global_pool_args){1, 1, VX_POOL_MAX, starts, nbr, in, &out});
    ck_assert(isnan(out));
}
END_TEST

START_TEST(test_global_pool_by_hand)
{
    static const i64 starts[] = {0, 2, 2, 5};
    static const i32 rows[] = {4, 0, 1, 3, 2};
    static const f32 in[] = {-1, 2, -3, 4, -5, 6, -7, 8, -9, 10};
    static const f32 expected[][6] = {
        {-1, 10, 0, 0, -3, 8}, {-5, 6, 0, 0, -5, 6}, {-10, 12, 0, 0, -15, 18}};
    f32 out[6];
    vx_global_pool_ref(&(struct vx_global_pool_args){3, 2, (enum vx_pool_mode)_i, starts,
                                                     rows, in, out});
    ck_assert_mem_eq(out, expected[_i], sizeof out);
}
END_TEST

/* Sample 0 has rows 2 and 0, sample 1 row 1.  Channels 0 and 1 of sample 0 hold 1, 3, 5, 7: mean 4
 * and variance 5; channels 2 and 3 hold 2, 2, 2, 2. */
START_TEST(test_group_norm_by_hand)
{
    static const i64 starts[] = {0, 2, 3};
    static const i32 rows[] = {2, 0, 1};
    static const f32 in[] = {1, 3, 2, 2, 10, 20, -1, -3, 5, 7, 2, 2};
    static const f32 weight[] = {1, 2, 3, 4}, bias[] = {0.5f, 0, -1, 6};
    f32 out[12];
    struct vx_group_norm_args args = {.samples = 2,
                                      .c = 4,
                                      .groups = 2,
                                      .eps = 4,
                                      .starts = starts,
                                      .rows = rows,
                                      .in = in,
                                      .out = out};
    vx_group_norm_ref(&args);
    /* sqrt(5 + 4) = 3; sample 1: sqrt(25 + 4) and sqrt(1 + 4) */
    const f64 a = 5 / sqrt(29), b = 1 / sqrt(5);
    const f64 plain[] = {-1, -1 / 3.0, 0, 0, -a, a, b, -b, 1 / 3.0, 1, 0, 0};
    for (i32 e = 0; e < 12; e++) ck_assert_double_eq_tol((f64)out[e], plain[e], 1e-7);
    args.weight = weight;
    args.bias = bias;
    args.activation = VX_ACTIVATION_RELU;
    vx_group_norm_ref(&args);
    for (i32 e = 0; e < 12; e++) {
        f64 y = plain[e] * (f64)weight[e % 4] + (f64)bias[e % 4];
        ck_assert_double_eq_tol((f64)out[e], y < 0 ? 0 : y, 1e-6);
    }
    /* instance norm: channel 0 of sample 0 is 1 and 5, so -1 and 1 when eps is 0 */
    args = (struct vx_group_norm_args){.samples = 1,
                                       .c = 4,
                                       .groups = 4,
                                       .starts = starts,
                                       .rows = rows,
                                       .in = in,
                                       .out = out};
    out[4] = -77;
    vx_group_norm_ref(&args);
    ck_assert_float_eq(out[0], -1);
    ck_assert_float_eq(out[1], -1);
    ck_assert_float_eq(out[8], 1);
    ck_assert_float_eq(out[9], 1);
    ck_assert_float_eq(out[4], -77); /* a row of no sample */
}
END_TEST

START_TEST(test_softmax_by_hand)
{
    static const f32 infinity = (f32)INFINITY;
    const f32 three = (f32)log(3.0);
    const struct {
        f32 in[3];
        f64 expected[3];
    } cases[] = {
        {{0, three, -infinity}, {0.25, 0.75, 0}},
        {{1000, 1000, 1000}, {1 / 3.0, 1 / 3.0, 1 / 3.0}},
        {{-3e38f, 3e38f, 0}, {0, 1, 0}},
        {{1, NAN, 2}, {NAN, NAN, NAN}},
        {{infinity, 0, 0}, {NAN, NAN, NAN}},
        {{-infinity, -infinity, -infinity}, {NAN, NAN, NAN}},
    };
    f32 out[3];
    memcpy(out, cases[_i].in, sizeof out);
    vx_softmax_ref(&(struct vx_softmax_args){1, 3, out, out});
    for (i32 e = 0; e < 3; e++) {
        if (isnan(cases[_i].expected[e]))
            ck_assert(isnan(out[e]));
        else
            ck_assert_double_eq_tol((f64)out[e], cases[_i].expected[e], 1e-7);
    }
    vx_softmax_ref(&(struct vx_softmax_args){3, 1, cases[0].in, out});
    ck_assert_float_eq(out[0], 1); /* of one channel */
    ck_assert_float_eq(out[1], 1);
}
END_TEST

START_TEST(test_argmax_by_hand)
{
    static const f32 infinity = (f32)INFINITY;
    static const f32 in[][4] = {{1, 3, 3, 2},      {-5, -4, -3, -2}, {7, 7, 7, 7},
                                {1, NAN, 9, NAN},  {NAN, 1, 2, 3},   {0, 1, 2, NAN},
                                {-1, -1, -0.0f, 0}};
    static const i32 expected[] = {1, 3, 0, 1, 0, 3, 2, 0, 2};
    f32 all[9][4];
    i32 out[9];
    memcpy(all, in, sizeof in);
    for (i32 e = 0; e < 4; e++) {
        all[7][e] = -infinity;
        all[8][e] = e < 2 ? -infinity : infinity;
    }
    vx_argmax_ref(&(struct vx_argmax_args){9, 4, all[0], out});
    ck_assert_mem_eq(out, expected, sizeof out);
}
END_TEST

START_TEST(test_curves_by_hand)
{
    static const struct {
        enum vx_curve curve;
        f64 slope, x, y;
    } cases[] = {
        {VX_CURVE_LEAKY_RELU, 0.25, -2, -0.5},
        {VX_CURVE_LEAKY_RELU, 0.25, 2, 2},
        {VX_CURVE_LEAKY_RELU, -3, -2, 6},
        {VX_CURVE_SOFTPLUS, 0, 0, 0.693147180559945309},
        {VX_CURVE_SOFTPLUS, 0, 1, 1.31326168751822283},
        {VX_CURVE_SOFTPLUS, 0, -40, 4.24835425529158900e-18},
        {VX_CURVE_SOFTPLUS, 0, 19, 19.0000000056027964},
        {VX_CURVE_SOFTPLUS, 0, 20.5, 20.5},
        {VX_CURVE_SOFTPLUS, 0, 1e30, 1e30},
        {VX_CURVE_TANH, 0, 1, 0.761594155955764888},
        {VX_CURVE_TANH, 0, -0.5, -0.462117157260009758},
        {VX_CURVE_TANH, 0, 1e-9, 1e-9},
        {VX_CURVE_TANH, 0, -100, -1},
    };
    f64 y = vx_curve_ref_one(cases[_i].curve, cases[_i].slope, cases[_i].x);
    ck_assert_double_eq_tol(y, cases[_i].y, 1e-14 * fabs(cases[_i].y));
    ck_assert(isnan(vx_curve_ref_one(cases[_i].curve, cases[_i].slope, (f64)NAN)));
    f32 x[2] = {(f32)cases[_i].x, 3};
    vx_curve_ref(
        &(struct vx_curve_args){2, 1, cases[_i].curve, (f32)cases[_i].slope, x, x});
    ck_assert_double_eq_tol((f64)x[0], cases[_i].y, 1e-7 * fabs(cases[_i].y));
    ck_assert_float_ne(x[1], 0);
}
END_TEST

START_TEST(test_mul_and_affine_by_hand)
{
    static const f32 a[] = {1, -2, 3, 4}, b[] = {5, 6, -7, 0.5f};
    static const f32 products[] = {5, 0, 0, 2}, lines[] = {3, -3, 7, 9};
    f32 out[4];
    vx_mul_ref(&(struct vx_pair_args){2, 2, a, b, VX_ACTIVATION_RELU, out, 0, 0, 0});
    ck_assert_mem_eq(out, products, sizeof out);
    vx_affine_ref(&(struct vx_affine_args){2, 2, 2, 1, a, NONE, out});
    ck_assert_mem_eq(out, lines, sizeof out);
}
END_TEST

/* One output row from rows 2 and 0 of three: two groups of two channels to one, then depthwise. */
START_TEST(test_groups_by_hand)
{
    static const i32 nbr[] = {2, -1, 0};
    static const f32 in[] = {1, 2, 3, 4, NAN, NAN, NAN, NAN, 5, 6, 7, 8};
    static const f32 weight[] = {1, 10, 2, 20, 1e9f, 1e9f, 1e9f, 1e9f, 3, 30, 4, 40};
    static const f32 bias[] = {0.5f, -1};
    static const f32 expected[] = {5 * 1 + 6 * 2 + 1 * 3 + 2 * 4 + 0.5f,
                                   7 * 10 + 8 * 20 + 3 * 30 + 4 * 40 - 1};
    f32 out[4];
    struct vx_conv_args args = {1, 3, 4, 2, 2, nbr, in, weight, bias, NONE, out, 0, 0};
    vx_conv_explicit_ref(&args);
    ck_assert_mem_eq(out, expected, sizeof expected);
    static const f32 each[] = {5 * 1 + 1 * 3, 6 * 10 + 2 * 30, 7 * 2 + 3 * 4,
                               8 * 20 + 4 * 40};
    args = (struct vx_conv_args){1, 3, 4, 4, 4, nbr, in, weight, NULL, NONE, out, 0, 0};
    vx_conv_explicit_ref(&args);
    ck_assert_mem_eq(out, each, sizeof each);
}
END_TEST

/* Groups are the dense convolution whose weights between groups are zero; 0 and 1 are dense.  The
 * numbers are small integers, so every sum is exact. */
START_TEST(test_groups_are_blocks)
{
    enum { N = 5, M = 7, V = 3, CI = 12, CO = 24 };
    static const i32 counts[] = {0, 1, 2, 3, 4, 6, 12};
    static f32 in[M * CI], dense[V * CI * CO], weight[V * CI * CO];
    static f32 out[N * CO], expected[N * CO];
    static i32 nbr[V * N];
    i32 groups = counts[_i] ? counts[_i] : 1;
    i32 depth = CI / groups;
    for (i32 e = 0; e < M * CI; e++) in[e] = (f32)(e * 7 % 11 - 5);
    for (i32 e = 0; e < V * N; e++) nbr[e] = e % 4 == 3 ? -1 : e * 3 % M;
    for (i32 e = 0; e < V * depth * CO; e++) weight[e] = (f32)(e * 5 % 13 - 6);
    for (i32 e = 0; e < V * CI * CO; e++) {
        i32 o = e % CO, ci = e / CO % CI, v = e / CO / CI;
        dense[e] = ci / depth == o / (CO / groups)
                       ? weight[(v * depth + ci % depth) * CO + o]
                       : 0;
    }
    struct vx_conv_args args = {N,     V,    CI,   CO,       0, nbr, in,
                                dense, NULL, NONE, expected, 0, 0};
    vx_conv_explicit_ref(&args);
    args = (struct vx_conv_args){N,      V,    CI,   CO,  counts[_i], nbr, in,
                                 weight, NULL, NONE, out, 0,          0};
    vx_conv_explicit_ref(&args);
    ck_assert_mem_eq(out, expected, sizeof out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_sets");
    TCase *cases = tcase_create("kernels_sets");
    tcase_add_loop_test(cases, test_row_gather_order, 0, 4);
    tcase_add_test(cases, test_channel_to_space);
    tcase_add_loop_test(cases, test_pool_by_hand, 0, 4);
    tcase_add_loop_test(cases, test_max_of_nan, 0, 3);
    tcase_add_loop_test(cases, test_global_pool_by_hand, 0, 3);
    tcase_add_test(cases, test_group_norm_by_hand);
    tcase_add_loop_test(cases, test_softmax_by_hand, 0, 6);
    tcase_add_test(cases, test_argmax_by_hand);
    tcase_add_loop_test(cases, test_curves_by_hand, 0, 13);
    tcase_add_test(cases, test_mul_and_affine_by_hand);
    tcase_add_test(cases, test_groups_by_hand);
    tcase_add_loop_test(cases, test_groups_are_blocks, 0, 7);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
