/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/types.h"
#include "kernels/13_elementwise.h"
#include "kernels/16_row_gather.h"
#include "kernels/17_pool.h"
#include "kernels/19_softmax.h"
#include "kernels/20_curve.h"
#include "kernels/24_conv_group.h"
#include "kernels/36_conv_narrow.h"
#include "kernels/01_coord_hash.h"
#include "kernels/31_voxelize.h"
#include "kernels/32_devoxelize.h"
#include "kernels/kernel.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* The device's references of the operators of networks of several levels, by hand or against their
 * definition in long double. */

static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                       VX_NUMBER_TF32};
#define TYPES 4
static const enum vx_number narrow_types[] = {VX_NUMBER_F16, VX_NUMBER_BF16,
                                              VX_NUMBER_TF32};
#define CP 16

static void run(const char *name, const void *args, enum vx_number type)
{
    vx_kernel_find(name)->ref(args, type);
}

/* `count` numbers of rows of `c`, spread to rows of CP with NaN behind each, and a row of NaN at the
 * end. */
static void *rows_of(const f64 *numbers, i64 count, i32 c, enum vx_number type)
{
    const i64 rows = count / c;
    void *made = vx_alloc((size_t)((rows + 1) * CP) * (size_t)vx_number_bytes(type));
    for (i64 e = 0; e < (rows + 1) * CP; e++) {
        bool real = e / CP < rows && e % CP < c;
        vx_number_ref_write(made, type, e,
                            real ? numbers[e / CP * c + e % CP] : (f64)NAN);
    }
    return made;
}

/* A number of size 1, a rounding to the type away. */
static bool is_near(f64 got, f64 expected, enum vx_number type)
{
    static const f64 steps[] = {[VX_NUMBER_F32] = 0x1p-23,
                                [VX_NUMBER_F16] = 0x1p-10,
                                [VX_NUMBER_BF16] = 0x1p-7,
                                [VX_NUMBER_TF32] = 0x1p-23};
    if (isnan(expected)) return isnan(got);
    return got == expected ||
           fabs(got - expected) <= steps[type] * fabs(expected) + 0x1p-24;
}

/* The real channels are as expected, behind them there are zeros; the row of NaN behind the last is
 * as it was. */
static void check_rows(const void *out, const f64 *expected, i64 count, i32 c,
                       enum vx_number type)
{
    const i64 rows = count / c;
    for (i64 e = 0; e < (rows + 1) * CP; e++) {
        f64 should = 0;
        if (e / CP == rows)
            should = (f64)NAN;
        else if (e % CP < c)
            should = expected[e / CP * c + e % CP];
        f64 got = vx_number_ref_read(out, type, e);
        if (!is_near(got, should, type))
            ck_abort_msg("row %d channel %d: expected %g, got %g", (int)(e / CP),
                         (int)(e % CP), should, got);
    }
}

START_TEST(test_affine)
{
    static const f64 in[] = {1, -2, 4, 0, (f64)NAN, -8};
    static const f64 expected[] = {1, 0, 7, 0, (f64)NAN, 0};
    const enum vx_number type = types[_i];
    void *rows = rows_of(in, 6, 3, type);
    run("affine",
        &(struct vx_affine_device_args){2, 3, CP, VX_ACTIVATION_RELU, 2, -1, rows, rows},
        type);
    check_rows(rows, expected, 6, 3, type);
    vx_free(rows);
}
END_TEST

/* torch.nn.LeakyReLU(0.25), Softplus(), Tanh() of numbers that every type holds. */
START_TEST(test_curves)
{
    static const f64 in[] = {-2, 3, 0, -0.5, 20.25, -8, (f64)NAN, (f64)INFINITY};
    static const f64 expected[][8] = {
        {-0.5, 3, 0, -0.125, 20.25, -2, (f64)NAN, (f64)INFINITY},
        {0.12692801104297263, 3.0485873515737421, 0.69314718055994531,
         0.47407698418010669, 20.25, 0.00033540637289566238, (f64)NAN, (f64)INFINITY},
        {-0.96402758007581690, 0.99505475368673046, 0, -0.46211715726000975, 1,
         -0.99999977492967588, (f64)NAN, 1},
    };
    const enum vx_number type = types[_i / 3];
    f64 full[CP], should[CP];
    for (i32 e = 0; e < CP; e++) {
        full[e] = in[e % 8];
        should[e] = expected[_i % 3][e % 8];
    }
    void *rows = rows_of(full, CP, CP, type);
    run("curve", &(struct vx_curve_device_args){1, CP, _i % 3, 0.25f, rows, rows}, type);
    check_rows(rows, should, CP, CP, type);
    vx_free(rows);
}
END_TEST

/* exp(0), exp(-log 2) and so on: 4/7, 2/7, 1/7; then equal numbers, and what becomes NaN. */
START_TEST(test_softmax)
{
    const f64 l = log(2);
    const f64 in[] = {200 + 2 * l, 200 + l, 200,           -3, -3, -3, 1, (f64)NAN,
                      0,           1,       (f64)INFINITY, 0};
    const f64 no = (f64)NAN;
    const f64 expected[] = {4 / 7.0, 2 / 7.0, 1 / 7.0, 1 / 3.0, 1 / 3.0, 1 / 3.0,
                            no,      no,      no,      no,      no,      no};
    const enum vx_number type = types[_i];
    void *rows = rows_of(in, 12, 3, type);
    run("softmax", &(struct vx_softmax_device_args){4, 3, CP, rows, rows, NULL}, type);
    /* In f16 and bf16 200 + log 2 is rounded by up to half a unit, which exp makes relative. */
    for (i32 e = 0; e < 3; e++) {
        f64 unit = type == VX_NUMBER_F16 ? 0.0625 : type == VX_NUMBER_BF16 ? 0.5 : 2e-5;
        ck_assert_double_eq_tol(vx_number_ref_read(rows, type, e), expected[e], unit);
        vx_number_ref_write(rows, type, e, expected[e]);
    }
    check_rows(rows, expected, 12, 3, type);
    vx_free(rows);
}
END_TEST

START_TEST(test_argmax)
{
    const f64 no = (f64)NAN;
    static const i32 expected[] = {1, 0, 2, 1, 0, 0};
    const f64 in[] = {1,
                      3,
                      2,
                      5,
                      5,
                      -1,
                      -4,
                      -3,
                      -2,
                      1,
                      no,
                      no,
                      no,
                      7,
                      no,
                      -(f64)INFINITY,
                      -(f64)INFINITY,
                      -(f64)INFINITY};
    const enum vx_number type = types[_i];
    void *rows = rows_of(in, 18, 3, type);
    i32 out[7] = {-7, -7, -7, -7, -7, -7, -7};
    run("argmax", &(struct vx_softmax_device_args){6, 3, CP, rows, out, NULL}, type);
    for (i32 i = 0; i < 6; i++) ck_assert_int_eq(out[i], expected[i]);
    ck_assert_int_eq(out[6], -7);
    /* Each to a row of its own. */
    static const i32 to[] = {3, 0, 5, 1, 2, 4};
    run("argmax", &(struct vx_softmax_device_args){6, 3, CP, rows, out, to}, type);
    for (i32 i = 0; i < 6; i++) ck_assert_int_eq(out[to[i]], expected[i]);
    vx_free(rows);
}
END_TEST

/* --- through a map --- */

/* Two rows of 2 x 1 x 2 blocks of one channel: offsets 0 2 1 3 of the map are blocks 0 1 2 3. */
START_TEST(test_space_to_channel)
{
    static const f64 in[] = {10, 20, 30};
    static const i32 nbr[] = {0, 1, 2, -1, 7, -1, -1, -1, 1, 7};
    static const f64 expected[] = {10, 30, 20, 0, 0, 0, 0, 20};
    const enum vx_number type = types[_i];
    void *from = rows_of(in, 3, 1, type), *to = rows_of(expected, 8, 4, type);
    for (i32 e = 0; e < 2 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("row_gather",
        &(struct vx_row_gather_device_args){.n = 2,
                                            .v = 4,
                                            .c = 1,
                                            .kernel = {2, 1, 2},
                                            .blocks = 1,
                                            .nbr_stride = 5,
                                            .in_cp = CP,
                                            .cp = CP,
                                            .nbr = nbr,
                                            .in = from,
                                            .out = to},
        type);
    check_rows(to, expected, 8, 4, type);
    vx_free(from);
    vx_free(to);
}
END_TEST

/* Parents of three children with two channels; an empty row has sigmoid(0). */
START_TEST(test_channel_to_space)
{
    static const f64 in[] = {0, 0, 0, 0, 1000, -1000, -1000, 1000, 0, 0, 0, 0};
    static const i32 nbr[] = {2, 3, -1, 0};
    static const f64 expected[] = {1, 0, 0, 1, 0.5, 0.5, 0.5, 0.5};
    const enum vx_number type = types[_i];
    void *from = rows_of(in, 12, 6, type), *to = rows_of(expected, 8, 2, type);
    for (i32 e = 0; e < 4 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("row_gather",
        &(struct vx_row_gather_device_args){.n = 4,
                                            .v = 1,
                                            .c = 2,
                                            .kernel = {1, 1, 1},
                                            .blocks = 3,
                                            .nbr_stride = 1,
                                            .in_cp = CP,
                                            .cp = CP,
                                            .activation = VX_ACTIVATION_SIGMOID,
                                            .nbr = nbr,
                                            .in = from,
                                            .out = to},
        type);
    check_rows(to, expected, 8, 2, type);
    vx_free(from);
    vx_free(to);
}
END_TEST

/* Three points in voxel 1, in any order, and one in voxel 3; a point of none; sigmoid(0) of
 * voxels without points. */
START_TEST(test_voxelize)
{
    static const f64 in[] = {1, 2, 100, 200, 3, 4, 5, 6, 1000, -1000};
    static const i32 nbr[] = {1, 9, -1, 9, 1, 9, 1, 9, 3, 9}, order[] = {3, 0, 2, 4, 1};
    static const u64 words[] = {1, 4, 1, 1, 3};
    static const f64 plain[] = {0, 0, 3, 4, 0, 0, 1000, -1000};
    static const f64 curved[] = {0.5, 0.5, 0.952574126822433, 0.982013790037908, 0.5, 0.5,
                                 1,   0};
    const enum vx_number type = types[_i % TYPES];
    const f64 *expected = _i < TYPES ? plain : curved;
    void *from = rows_of(in, 10, 2, type), *to = rows_of(plain, 8, 2, type);
    u64 made[6] = {9, 9, 9, 9, 9, 77};
    run("voxel_words", &(struct vx_voxel_words_args){5, 4, 2, nbr, made}, type);
    ck_assert_mem_eq(made, words, sizeof words);
    ck_assert_uint_eq(made[5], 77);
    for (i32 e = 0; e < 4 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("voxel_mean",
        &(struct vx_voxelize_device_args){
            .n = 5,
            .m = 4,
            .c = 2,
            .cp = CP,
            .activation = _i < TYPES ? VX_ACTIVATION_NONE : VX_ACTIVATION_SIGMOID,
            .order = order,
            .words = words,
            .in = from,
            .out = to},
        type);
    check_rows(to, expected, 8, 2, type);
    vx_free(from);
    vx_free(to);
}
END_TEST

/* Stride 2x1x4: (-1, 0, 5) lies half way along x and 1/4 of the way along z, with 3/8 of row 2,
 * 3/8 of row 0 and 1/8 of row 3, divided by 7/8; (4, 7, 8) lies on row 1; the third has none. */
START_TEST(test_devoxelize)
{
    static const f64 in[] = {7, 16, 28, 56};
    const u64 keys[] = {vx_key_pack(0, -1, 0, 5), vx_key_pack(0, 4, 7, 8),
                        vx_key_pack(1, 0, 0, 0)};
    static const i32 rows[] = {2, 0, 1};
    static const i32 nbr[] = {1, 0,  0,  0, 0, 0,  0, 0, 9, -1, -1, -1, -1, -1,
                              2, -1, -1, 9, 2, -1, 1, 1, 0, 3,  1,  1,  9};
    static const f64 expected[] = {16, 0, (3 * 28 + 3 * 7 + 56) / 7.0};
    const enum vx_number type = types[_i];
    void *from = rows_of(in, 4, 1, type), *to = rows_of(expected, 3, 1, type);
    for (i32 e = 0; e < 3 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("devoxelize",
        &(struct vx_devoxelize_device_args){.n = 3,
                                            .c = 1,
                                            .cp = CP,
                                            .nbr_stride = 9,
                                            .stride = {2, 1, 4},
                                            .keys = keys,
                                            .rows = rows,
                                            .nbr = nbr,
                                            .in = from,
                                            .out = to},
        type);
    check_rows(to, expected, 3, 1, type);
    vx_free(from);
    vx_free(to);
}
END_TEST

/* Two neighbours, one, none, NaN. */
START_TEST(test_pool)
{
    static const f64 in[] = {-4, 1, -2, 8, (f64)NAN, -1};
    static const i32 nbr[] = {0, 1, -1, 9, -1, 0, -1, 9, -1, -1, -1, 9, 1, -1, 2, 9};
    static const struct {
        i32 mode, activation;
        f64 expected[8];
    } cases[] = {
        {VX_POOL_MAX, VX_ACTIVATION_NONE, {-2, 8, -4, 1, 0, 0, (f64)NAN, 8}},
        {VX_POOL_SUM, VX_ACTIVATION_NONE, {-6, 9, -4, 1, 0, 0, (f64)NAN, 7}},
        {VX_POOL_AVG, VX_ACTIVATION_NONE, {-3, 4.5, -4, 1, 0, 0, (f64)NAN, 3.5}},
        {VX_POOL_AVG, VX_ACTIVATION_RELU, {0, 4.5, 0, 1, 0, 0, (f64)NAN, 3.5}},
    };
    const enum vx_number type = types[_i / 4];
    const f64 *expected = cases[_i % 4].expected;
    void *from = rows_of(in, 6, 2, type), *to = rows_of(expected, 8, 2, type);
    for (i32 e = 0; e < 4 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("pool",
        &(struct vx_pool_device_args){4, 3, 4, 2, CP, cases[_i % 4].mode,
                                      cases[_i % 4].activation, nbr, from, to, 0, 0},
        type);
    check_rows(to, expected, 8, 2, type);
    vx_free(from);
    vx_free(to);
}
END_TEST

/* Two groups of two channels to three: channel o of group g is the sum of its inputs, times o + 1,
 * at offset 0 and minus that at offset 1; then bias 10 * g and a residual of 1. */
START_TEST(test_conv_group)
{
    static const f64 in[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const i32 nbr[] = {0, -1, 0, 1, -1, -1};
    static const f64 expected[] = {4, 7,  10,  18, 25, 32, -7, -15, -23,
                                   3, -5, -13, 1,  1,  1,  11, 11,  11};
    const enum vx_number type = types[_i];
    void *from = rows_of(in, 8, 4, type), *to = rows_of(expected, 18, 6, type);
    f64 weights[2 * 2 * 6], ones[18];
    f32 bias[CP];
    for (i32 e = 0; e < 24; e++) weights[e] = (e < 12 ? 1 : -1) * (e % 3 + 1);
    for (i32 e = 0; e < 18; e++) ones[e] = 1;
    for (i32 e = 0; e < CP; e++) bias[e] = e < 3 ? 0 : e < 6 ? 10 : NAN;
    void *weight = rows_of(weights, 24, 6, type), *residual = rows_of(ones, 18, 6, type);
    for (i32 e = 0; e < 3 * CP; e++) vx_number_ref_write(to, type, e, 99);
    struct vx_conv_group_args args = {.n = 3,
                                      .v = 2,
                                      .nbr_stride = 2,
                                      .groups = 2,
                                      .cig = 2,
                                      .cog = 3,
                                      .in_cp = CP,
                                      .cp = CP,
                                      .nbr = nbr,
                                      .in = from,
                                      .weight = weight,
                                      .bias = bias,
                                      .residual = residual,
                                      .out = to};
    run("conv_group", &args, type);
    check_rows(to, expected, 18, 6, type);
    args.out = residual;
    args.activation = VX_ACTIVATION_RELU;
    run("conv_group", &args, type);
    f64 risen[18];
    for (i32 e = 0; e < 18; e++) risen[e] = expected[e] > 0 ? expected[e] : 0;
    check_rows(residual, risen, 18, 6, type);
    vx_free(from);
    vx_free(to);
    vx_free(weight);
    vx_free(residual);
}
END_TEST

/* Depthwise: each channel has its own weight. */
START_TEST(test_conv_depthwise)
{
    static const f64 in[] = {1, 2, 3, 4, 5, 6};
    static const f64 weights[] = {1, 10, 100, 0.5, 0.25, -1};
    static const i32 nbr[] = {0, 1, 1, -1};
    static const f64 expected[] = {3, 21.25, 294, 4, 50, 600};
    const enum vx_number type = types[_i];
    void *from = rows_of(in, 6, 3, type), *to = rows_of(expected, 6, 3, type);
    void *weight = rows_of(weights, 6, 3, type);
    for (i32 e = 0; e < 2 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("conv_group",
        &(struct vx_conv_group_args){.n = 2,
                                     .v = 2,
                                     .nbr_stride = 2,
                                     .groups = 3,
                                     .cig = 1,
                                     .cog = 1,
                                     .in_cp = CP,
                                     .cp = CP,
                                     .nbr = nbr,
                                     .in = from,
                                     .weight = weight,
                                     .out = to},
        type);
    check_rows(to, expected, 6, 3, type);
    vx_free(from);
    vx_free(to);
    vx_free(weight);
}
END_TEST

/* Two channels to three: channel o is the sum of a neighbour's channels, times o + 1, at offset 0 and
 * minus that at offset 1; then bias 10 * o and a residual of 1.  Rows of weights behind Ci are not
 * read, nor columns of the result behind its padding written. */
START_TEST(test_conv_narrow)
{
    static const f64 in[] = {1, 2, 3, 4, 5, 6};
    static const i32 nbr[] = {0, -1, 7, 7, 2, 1, 7, 7, -1, -1, 7, 7};
    static const f64 expected[] = {4, 17, 30, 5, 19, 33, 1, 11, 21};
    const enum vx_number type = narrow_types[_i];
    void *from = rows_of(in, 6, 2, type), *to = rows_of(expected, 9, 3, type);
    f64 weights[2 * 3 * 3], ones[9];
    f32 bias[CP];
    for (i32 e = 0; e < 18; e++)
        weights[e] = e / 3 % 3 == 2 ? (f64)NAN : (e < 9 ? 1 : -1) * (e % 3 + 1);
    for (i32 e = 0; e < 9; e++) ones[e] = 1;
    for (i32 e = 0; e < CP; e++) bias[e] = e < 3 ? (f32)(10 * e) : NAN;
    void *weight = rows_of(weights, 18, 3, type), *residual = rows_of(ones, 9, 3, type);
    for (i32 e = 0; e < 3 * CP; e++) vx_number_ref_write(to, type, e, 99);
    run("conv_narrow",
        &(struct vx_conv_narrow_args){.n = 3,
                                      .v = 2,
                                      .nbr_stride = 4,
                                      .ci = 2,
                                      .weight_rows = 3,
                                      .co = 3,
                                      .cp = CP,
                                      .in_stride = CP,
                                      .out_stride = CP,
                                      .residual_stride = CP,
                                      .blocks = 1,
                                      .nbr = nbr,
                                      .in = from,
                                      .weight = weight,
                                      .bias = bias,
                                      .residual = residual,
                                      .out = to},
        type);
    check_rows(to, expected, 9, 3, type);
    vx_free(from);
    vx_free(to);
    vx_free(weight);
    vx_free(residual);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_operators");
    TCase *cases = tcase_create("kernels_operators");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_affine, 0, TYPES);
    tcase_add_loop_test(cases, test_curves, 0, 3 * TYPES);
    tcase_add_loop_test(cases, test_softmax, 0, TYPES);
    tcase_add_loop_test(cases, test_argmax, 0, TYPES);
    tcase_add_loop_test(cases, test_space_to_channel, 0, TYPES);
    tcase_add_loop_test(cases, test_channel_to_space, 0, TYPES);
    tcase_add_loop_test(cases, test_pool, 0, 4 * TYPES);
    tcase_add_loop_test(cases, test_voxelize, 0, 2 * TYPES);
    tcase_add_loop_test(cases, test_devoxelize, 0, TYPES);
    tcase_add_loop_test(cases, test_conv_group, 0, TYPES);
    tcase_add_loop_test(cases, test_conv_depthwise, 0, TYPES);
    tcase_add_loop_test(cases, test_conv_narrow, 0, (int)VX_COUNT(narrow_types));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
