/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/10_activation.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/14_rows.h"
#include "kernels/kernel.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The references of the kernels that process each row alone, against their definition: in long
 * double, by hand, or by searching all numbers of a type. */

static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                       VX_NUMBER_TF32};
#define TYPES 4

static void run(const char *name, const void *args, enum vx_number type)
{
    vx_kernel_find(name)->ref(args, type);
}

/* --- curves --- */

static f64 curve(i32 activation, f64 given)
{
    const long double x = (long double)given;
    switch (activation) {
    case VX_ACTIVATION_NONE: return given;
    case VX_ACTIVATION_RELU: return given > 0 ? given : 0;
    case VX_ACTIVATION_SILU: return (f64)(x / (1 + expl(-x)));
    case VX_ACTIVATION_GELU: return (f64)(x * erfcl(-x / sqrtl(2)) / 2);
    default: return (f64)(1 / (1 + expl(-x)));
    }
}

/* Two double roundings in the argument of exp or erfc, which is at most x^2/2, change the curve
 * by a relative x^2 of them. */
START_TEST(test_curves)
{
    for (i32 e = -3000; e <= 3000; e++) {
        const f64 x = e / 100.0, y = curve(_i, x);
        ck_assert_double_eq_tol(vx_activation_ref_one((enum vx_activation)_i, x), y,
                                0x1p-52 * (4 + x * x) * fabs(y) + 0x1p-300);
    }
}
END_TEST

/* PyTorch's values at the limits of a curve, and for NaN. */
START_TEST(test_curves_at_their_ends)
{
    static const struct {
        enum vx_activation activation;
        f64 x, y;
    } cases[] = {
        {VX_ACTIVATION_NONE, INFINITY, INFINITY},
        {VX_ACTIVATION_NONE, -INFINITY, -INFINITY},
        {VX_ACTIVATION_RELU, INFINITY, INFINITY},
        {VX_ACTIVATION_RELU, -INFINITY, 0},
        {VX_ACTIVATION_SILU, INFINITY, INFINITY},
        {VX_ACTIVATION_SILU, -1000, 0},
        {VX_ACTIVATION_GELU, INFINITY, INFINITY},
        {VX_ACTIVATION_GELU, -1000, 0},
        {VX_ACTIVATION_SIGMOID, INFINITY, 1},
        {VX_ACTIVATION_SIGMOID, -INFINITY, 0},
    };
    for (size_t i = 0; i < VX_COUNT(cases); i++)
        ck_assert_double_eq(vx_activation_ref_one(cases[i].activation, cases[i].x),
                            cases[i].y);
    for (i32 a = VX_ACTIVATION_NONE; a <= VX_ACTIVATION_SIGMOID; a++)
        ck_assert(isnan(vx_activation_ref_one((enum vx_activation)a, NAN)));
    ck_assert(signbit(vx_activation_ref_one(VX_ACTIVATION_NONE, -0.0)));
}
END_TEST

/* --- numbers of 16 bits: every one of them --- */

struct half {
    enum vx_number type;
    i32 fraction_bits;
    i32 infinity; /* bits of infinity; the largest number is one less */
};
static const struct half halves[] = {{VX_NUMBER_F16, 10, 0x7c00},
                                     {VX_NUMBER_BF16, 7, 0x7f80}};

/* IEEE 754: a fraction and an exponent; exponent 0 has no leading one. */
static f64 half_value(const struct half *half, i32 bits)
{
    const i32 one = 1 << half->fraction_bits, exponent = bits >> half->fraction_bits;
    const i32 bias = (1 << (14 - half->fraction_bits)) - 1;
    const f64 fraction = bits % one;
    if (!exponent) return ldexp(fraction, 1 - bias - half->fraction_bits);
    return ldexp(fraction + one, exponent - bias - half->fraction_bits);
}

static u16 written(const struct half *half, f64 value)
{
    u16 bits[2] = {0x5555, 0x5555};
    vx_number_ref_write(bits, half->type, 0, value);
    ck_assert_uint_eq(bits[1], 0x5555);
    return bits[0];
}

static u16 converted(const struct half *half, f32 value)
{
    u16 bits = 0x5555;
    vx_convert_ref(
        &(struct vx_convert_args){1, VX_NUMBER_F32, &value, half->type, &bits});
    return bits;
}

/* Between two neighbours: the middle rounds to the even one, any other number to the nearer one,
 * and nothing is rounded twice.  Infinity counts as the number behind the largest. */
START_TEST(test_halves)
{
    const struct half *half = &halves[_i];
    for (i32 bits = 0; bits < half->infinity; bits++) {
        const f64 value = half_value(half, bits), next = half_value(half, bits + 1);
        const f64 middle = (value + next) / 2;
        const u16 even = (u16)(bits % 2 ? bits + 1 : bits);
        u16 stored = (u16)bits;
        ck_assert_double_eq(vx_number_ref_read(&stored, half->type, 0), value);
        ck_assert_int_eq(written(half, value), bits);
        ck_assert_uint_eq(written(half, middle), even);
        ck_assert_uint_eq(written(half, -middle), even | 0x8000);
        ck_assert_uint_eq(written(half, nextafter(middle, INFINITY)), (u16)(bits + 1));
        ck_assert_uint_eq(written(half, nextafter(middle, 0)), (u16)bits);
        ck_assert_int_eq(converted(half, (f32)value), bits);
        if ((f64)(f32)middle != middle) continue; /* below the least f32 */
        ck_assert_uint_eq(converted(half, (f32)middle), even);
        ck_assert_uint_eq(converted(half, nextafterf((f32)middle, INFINITY)),
                          (u16)(bits + 1));
        ck_assert_uint_eq(converted(half, -nextafterf((f32)middle, 0)),
                          (u16)bits | 0x8000);
    }
    ck_assert_int_eq(written(half, 1e300), half->infinity);
    ck_assert_int_eq(written(half, -(f64)INFINITY), half->infinity | 0x8000);
    ck_assert_uint_eq(written(half, -0.0), 0x8000);
    ck_assert_uint_eq(written(half, 1e-300), 0);
    u16 infinity = (u16)(half->infinity | 0x8000);
    ck_assert_double_eq(vx_number_ref_read(&infinity, half->type, 0), -(f64)INFINITY);
}
END_TEST

/* NaN stays NaN: it becomes quiet and keeps its sign and as many of its top bits as fit; a
 * conversion to the same type changes nothing. */
START_TEST(test_nan_by_hand)
{
    static const struct {
        enum vx_number from, to;
        u32 bits, expected;
    } cases[] = {
        {VX_NUMBER_F32, VX_NUMBER_F16, 0xffc12345, 0xfe09},
        {VX_NUMBER_F32, VX_NUMBER_BF16, 0xffc12345, 0xffc1},
        {VX_NUMBER_F32, VX_NUMBER_F16, 0x7f800001, 0x7e00},
        {VX_NUMBER_F32, VX_NUMBER_BF16, 0x7f800001, 0x7fc0},
        {VX_NUMBER_F16, VX_NUMBER_F32, 0x7c01, 0x7fc02000},
        {VX_NUMBER_F16, VX_NUMBER_F32, 0xfdff, 0xffffe000},
        {VX_NUMBER_BF16, VX_NUMBER_F32, 0xff81, 0xffc10000},
        {VX_NUMBER_BF16, VX_NUMBER_F16, 0x7f81, 0x7e08},
        {VX_NUMBER_F16, VX_NUMBER_BF16, 0xfc40, 0xffc8},
        {VX_NUMBER_F32, VX_NUMBER_F32, 0x7f800001, 0x7f800001},
        {VX_NUMBER_F16, VX_NUMBER_F16, 0xfc01, 0xfc01},
        {VX_NUMBER_BF16, VX_NUMBER_BF16, 0x7f81, 0x7f81},
        {VX_NUMBER_F32, VX_NUMBER_F16, 0x7f800000, 0x7c00},
        {VX_NUMBER_F16, VX_NUMBER_BF16, 0xfc00, 0xff80},
        {VX_NUMBER_BF16, VX_NUMBER_F16, 0x4780, 0x7c00}, /* 65536 */
    };
    u32 to = 0;
    vx_convert_ref(
        &(struct vx_convert_args){1, cases[_i].from, &cases[_i].bits, cases[_i].to, &to});
    ck_assert_uint_eq(to, cases[_i].expected);
}
END_TEST

/* --- rows of whole numbers and halves, which every type holds --- */

static f64 value_at(i64 e, i32 salt)
{
    return (f64)((e * 37 + salt * 11) % 64 - 32) / 4;
}

/* One element of poison behind it. */
static void *tensor(i64 count, enum vx_number type, i32 salt)
{
    void *made = vx_alloc((size_t)(count + 1) * (size_t)vx_number_bytes(type));
    for (i64 e = 0; e < count; e++) vx_number_ref_write(made, type, e, value_at(e, salt));
    vx_number_ref_write(made, type, count, NAN);
    return made;
}

/* Near enough: one rounding to the type. */
static void check_near(const void *at, enum vx_number type, i64 e, f64 expected)
{
    static const f64 steps[] = {[VX_NUMBER_F32] = 0x1p-23,
                                [VX_NUMBER_F16] = 0x1p-10,
                                [VX_NUMBER_BF16] = 0x1p-7,
                                [VX_NUMBER_TF32] = 0x1p-23};
    ck_assert_double_eq_tol(vx_number_ref_read(at, type, e), expected,
                            steps[type] * fabs(expected) + 0x1p-24);
}

START_TEST(test_activation_rows)
{
    const enum vx_number type = types[_i % TYPES];
    const i32 activation = _i / TYPES, n = 5, cp = 16;
    void *in = tensor(n * cp, type, 1);
    const struct vx_activation_device_args args = {
        .n = n, .cp = cp, .activation = activation, .in = in, .out = in}; /* in place */
    run("activation", &args, type);
    for (i64 e = 0; e < n * cp; e++)
        check_near(in, type, e, curve(activation, value_at(e, 1)));
    ck_assert(isnan(vx_number_ref_read(in, type, n * cp)));
    f32 *wide = tensor(7 * 3, VX_NUMBER_F32, 2);
    vx_activation_ref(
        &(struct vx_activation_args){7, 3, (enum vx_activation)activation, wide, wide});
    for (i64 e = 0; e < 21; e++)
        check_near(wide, VX_NUMBER_F32, e, curve(activation, value_at(e, 2)));
    ck_assert(isnan(wide[21]));
    vx_free(in);
    vx_free(wide);
}
END_TEST

/* Sums and products. */
START_TEST(test_add)
{
    const enum vx_number type = types[_i / 2];
    const bool product = _i % 2;
    const i32 n = 3, cp = 32;
    for (i32 place = 0; place < 3; place++) {
        void *a = tensor(n * cp, type, 1), *b = tensor(n * cp, type, 2),
             *apart = tensor(n * cp, type, 3);
        void *out = place == 0 ? a : place == 1 ? b : apart;
        const struct vx_add_device_args args = {n, cp, VX_ACTIVATION_RELU, a, b, out};
        run(product ? "mul" : "add", &args, type);
        for (i64 e = 0; e < n * cp; e++) {
            f64 x = value_at(e, 1), y = value_at(e, 2);
            if (product)
                check_near(out, type, e, curve(VX_ACTIVATION_RELU, x * y));
            else
                ck_assert_double_eq(vx_number_ref_read(out, type, e),
                                    curve(VX_ACTIVATION_RELU, x + y));
        }
        ck_assert(isnan(vx_number_ref_read(out, type, n * cp)));
        vx_free(a);
        vx_free(b);
        vx_free(apart);
    }
    /* The CPU's: 1 and half a step of it are summed before they are rounded. */
    static const f32 one[] = {1, 0x1p24f}, tiny[] = {0x1p-23f, 3};
    f32 sums[2];
    vx_add_ref(
        &(struct vx_pair_args){1, 2, one, tiny, VX_ACTIVATION_NONE, sums, 0, 0, 0});
    ck_assert_double_eq((f64)sums[0], 1 + 0x1p-23);
    ck_assert_double_eq((f64)sums[1],
                        0x1p24 + 4); /* 2^24 + 3 lies between: to the even */
}
END_TEST

/* Real channels one after the other, zeros behind them; the padding of the inputs is not read. */
START_TEST(test_concat)
{
    const enum vx_number type = types[_i];
    static const i32 channels[] = {3, 16, 1, 20}, padded[] = {16, 16, 16, 32};
    const i32 n = 4, cp = 48;
    struct vx_concat_device_args args = {
        .n = n, .inputs_count = 4, .cp = cp, .out = tensor(n * cp, type, 9)};
    struct vx_concat_args wide = {
        .n = n, .inputs_count = 4, .out = tensor(n * 40, VX_NUMBER_F32, 9)};
    for (i32 k = 0; k < 4; k++) {
        void *data = tensor(n * padded[k], type, k);
        for (i64 e = 0; e < n * padded[k]; e++)
            if (e % padded[k] >= channels[k]) vx_number_ref_write(data, type, e, NAN);
        args.inputs[k] = (struct vx_concat_device_input){data, channels[k], padded[k]};
        wide.inputs[k] = (struct vx_concat_input){
            tensor(n * channels[k], VX_NUMBER_F32, k), channels[k], 0};
    }
    run("concat", &args, type);
    vx_concat_ref(&wide);
    for (i32 i = 0; i < n; i++)
        for (i32 c = 0, k = 0, at = 0; c < cp; c++, at++) {
            while (k < 4 && at == channels[k]) k++, at = 0;
            ck_assert_double_eq(vx_number_ref_read(args.out, type, i * cp + c),
                                k < 4 ? value_at(i * padded[k] + at, k) : 0);
            if (k < 4)
                ck_assert_double_eq((f64)wide.out[i * 40 + c],
                                    value_at(i * channels[k] + at, k));
        }
    ck_assert(isnan(vx_number_ref_read(args.out, type, n * cp)));
    ck_assert(isnan(wide.out[n * 40]));
    for (i32 k = 0; k < 4; k++) {
        vx_free((void *)args.inputs[k].data);
        vx_free((void *)wide.inputs[k].data);
    }
    vx_free(args.out);
    vx_free(wide.out);
}
END_TEST

/* --- norms --- */

START_TEST(test_batch_norm)
{
    const enum vx_number type = types[_i];
    const i32 n = 5, cp = 16, c = 7;
    f32 scale[16] = {0}, shift[16] = {0}, *wide = tensor(n * c, VX_NUMBER_F32, 5);
    for (i32 k = 0; k < c; k++) scale[k] = (f32)(k - 3) / 2, shift[k] = (f32)k * 3 - 8;
    void *in = tensor(n * cp, type, 4);
    const struct vx_batch_norm_device_args args = {
        n, cp, VX_ACTIVATION_RELU, in, scale, shift, in, 0, 0};
    run("batch_norm", &args, type);
    for (i64 e = 0; e < n * cp; e++)
        check_near(in, type, e,
                   curve(VX_ACTIVATION_RELU,
                         value_at(e, 4) * (f64)scale[e % cp] + (f64)shift[e % cp]));
    ck_assert(isnan(vx_number_ref_read(in, type, n * cp)));
    vx_batch_norm_ref(&(struct vx_batch_norm_args){n, c, wide, scale, shift,
                                                   VX_ACTIVATION_SILU, wide, 0, 0});
    for (i64 e = 0; e < n * c; e++)
        check_near(wide, VX_NUMBER_F32, e,
                   curve(VX_ACTIVATION_SILU,
                         value_at(e, 5) * (f64)scale[e % c] + (f64)shift[e % c]));
    vx_free(in);
    vx_free(wide);
}
END_TEST

/* The mean of squared distances from the mean, not divided by one less. */
static f64 layer_norm_at(const f64 *row, i32 c, i32 k, f64 eps)
{
    long double mean = 0, variance = 0;
    for (i32 e = 0; e < c; e++) mean += (long double)row[e] / c;
    for (i32 e = 0; e < c; e++)
        variance += ((long double)row[e] - mean) * ((long double)row[e] - mean) / c;
    return (f64)(((long double)row[k] - mean) / sqrtl(variance + (long double)eps));
}

START_TEST(test_layer_norm)
{
    static const i32 channels[] = {1, 2, 7, 16, 33};
    const i32 c = channels[_i % 5], cp = (c + 15) / 16 * 16, n = 3;
    const enum vx_number type = types[_i / 5];
    for (i32 variant = 0; variant < 4; variant++) {
        const f32 eps = variant & 1 ? 0.5f : 1e-5f;
        f32 weight[48], bias[48], *wide = tensor(n * c, VX_NUMBER_F32, 6);
        void *in = tensor(n * cp, type, 6);
        for (i32 k = 0; k < 48; k++) weight[k] = (f32)(k % 5 + 1), bias[k] = (f32)(k % 3);
        for (i64 e = 0; e < n * cp; e++) /* around a mean that is large beside them */
            vx_number_ref_write(in, type, e,
                                e % cp < c ? value_at(e / cp * c + e % cp, 6) + 64 : NAN);
        const struct vx_layer_norm_device_args args = {n,
                                                       c,
                                                       cp,
                                                       VX_ACTIVATION_RELU,
                                                       eps,
                                                       in,
                                                       variant & 2 ? weight : NULL,
                                                       variant & 2 ? bias : NULL,
                                                       in,
                                                       0,
                                                       0};
        f64 rows[3 * 33];
        for (i32 e = 0; e < n * c; e++) {
            rows[e] = vx_number_ref_read(in, type, e / c * cp + e % c);
            wide[e] = (f32)rows[e];
        }
        run("layer_norm", &args, type);
        vx_layer_norm_ref(&(struct vx_layer_norm_args){
            n, c, eps, wide, args.weight, args.bias, VX_ACTIVATION_RELU, wide, 0, 0});
        for (i32 e = 0; e < n * cp; e++) {
            const i32 k = e % cp;
            f64 y = k < c ? layer_norm_at(rows + e / cp * c, c, k, (f64)eps) : 0;
            if (k < c && args.weight) y = y * (f64)weight[k] + (f64)bias[k];
            check_near(in, type, e, curve(VX_ACTIVATION_RELU, y));
            if (k < c)
                check_near(wide, VX_NUMBER_F32, e / cp * c + k,
                           curve(VX_ACTIVATION_RELU, y));
        }
        ck_assert(isnan(vx_number_ref_read(in, type, n * cp)));
        vx_free(in);
        vx_free(wide);
    }
}
END_TEST

/* --- rows of a request --- */

START_TEST(test_rows)
{
    const enum vx_number type = types[_i % TYPES], number = types[_i / TYPES];
    static const i32 permuted[] = {3, 0, 4, 1, 2}, own[] = {0, 1, 2, 3, 4};
    for (i32 variant = 0; variant < 4; variant++) {
        const i32 n = 5, c = variant & 1 ? 5 : 16, cp = 16;
        const i32 *rows = variant & 2 ? permuted : NULL, *at = rows ? rows : own;
        void *request = tensor(n * c, number, 7), *device = tensor(n * cp, type, 8),
             *back = tensor(n * c, number, 9);
        struct vx_rows_args args = {n, c, cp, (i32)number, rows, request, device};
        run("rows_in", &args, type);
        for (i32 e = 0; e < n * cp; e++)
            ck_assert_double_eq(vx_number_ref_read(device, type, e),
                                e % cp < c ? value_at(at[e / cp] * c + e % cp, 7) : 0);
        ck_assert(isnan(vx_number_ref_read(device, type, n * cp)));
        for (i32 e = 0; e < n * cp; e++)
            if (e % cp >= c) vx_number_ref_write(device, type, e, NAN);
        args.in = device;
        args.out = back;
        run("rows_out", &args, type);
        for (i32 e = 0; e < n * c; e++)
            ck_assert_double_eq(vx_number_ref_read(back, number, e), value_at(e, 7));
        ck_assert(isnan(vx_number_ref_read(back, number, n * c)));
        vx_free(request);
        vx_free(device);
        vx_free(back);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_pointwise");
    TCase *cases = tcase_create("kernels_pointwise");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_curves, VX_ACTIVATION_NONE,
                        VX_ACTIVATION_SIGMOID + 1);
    tcase_add_test(cases, test_curves_at_their_ends);
    tcase_add_loop_test(cases, test_halves, 0, 2);
    tcase_add_loop_test(cases, test_nan_by_hand, 0, 15);
    tcase_add_loop_test(cases, test_activation_rows, 0, 5 * TYPES);
    tcase_add_loop_test(cases, test_add, 0, 2 * TYPES);
    tcase_add_loop_test(cases, test_concat, 0, TYPES);
    tcase_add_loop_test(cases, test_batch_norm, 0, TYPES);
    tcase_add_loop_test(cases, test_layer_norm, 0, 5 * TYPES);
    tcase_add_loop_test(cases, test_rows, 0, 3 * TYPES);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
