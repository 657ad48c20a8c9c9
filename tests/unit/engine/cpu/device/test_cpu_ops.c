/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loops over elements abort by hand: ck_assert reports each success through a pipe. */

static f32 *floats(i64 count)
{
    f32 *values = vx_alloc_aligned((size_t)(count ? count : 1) * sizeof *values);
    VX_ASSERT(values);
    return values;
}

static f32 *random_floats(u64 seed, i64 count)
{
    f32 *values = floats(count);
    voxels_fill(&(struct voxels_random){seed}, values, count);
    return values;
}

static f32 *absolute_floats(const f32 *values, i64 count)
{
    f32 *absolute = floats(count);
    for (i64 e = 0; e < count; e++) absolute[e] = fabsf(values[e]);
    return absolute;
}

/* One tensor against its reference: `error` bounds how far an element before its activation may be
 * off. */
struct comparison {
    const char *what;
    i64 count;
    enum vx_activation activation;
    const f32 *got;
    const f32 *expected; /* after the activation */
    const f32 *before;   /* the reference before the activation */
    const f32 *size;     /* sums of absolute values: what errors are relative to */
    f64 roundings; /* an element before its activation is off by size * roundings * CPU_ROUND */
};

/* The slope of every activation is below 1.13.  The reference itself is rounded once, before and
 * after the activation. */
static void compare(const struct comparison *c)
{
    f64 square = 0;
    f64 square_error = 0;
    f64 square_bound = 0;
    for (i64 e = 0; e < c->count; e++) {
        f64 x = (f64)c->before[e];
        f64 y = (f64)c->expected[e];
        f64 error = fabs((f64)c->got[e] - y);
        f64 bound = 1.13 * c->roundings * CPU_ROUND * (f64)c->size[e] +
                    cpu_activation_bound(c->activation, x, y) + 2 * CPU_ROUND * fabs(y) +
                    1e-37;
        if (error > bound)
            ck_abort_msg("%s: element %lld of %lld: expected %.9g, got %.9g: off by "
                         "%.3g, bound %.3g",
                         c->what, (long long)e, (long long)c->count, y, (f64)c->got[e],
                         error, bound);
        square += y * y;
        square_error += error * error;
        square_bound += bound * bound;
    }
    /* Rounding errors have no common direction: their squares add up to a small part of what the
     * worst case would be.  A quarter in every element is already a bias.  Of a few elements one
     * may be unlucky. */
    ck_assert_msg(c->count < 100 || square_error <= square_bound / 16, "%s: NMSE %.3g",
                  c->what, square > 0 ? square_error / square : square_error);
}

enum pattern { SOME, EMPTY, FULL, ONE_OFFSET };

struct conv_case {
    i64 n;
    i32 ci, co, v;
    enum pattern pattern;
    enum vx_activation activation;
    bool bias;
};

/* Tiles are 32 to 512 rows, register tiles 6 or 8, vectors 4 to 16, panels 64 columns of 128 rows:
 * each has a case at, below and above. */
static const struct conv_case conv_cases[] = {
    {0, 3, 5, 27, SOME, VX_ACTIVATION_NONE, true},
    {1, 1, 1, 27, FULL, VX_ACTIVATION_NONE, true},
    {1, 64, 64, 27, FULL, VX_ACTIVATION_RELU, false},
    {31, 7, 20, 27, SOME, VX_ACTIVATION_NONE, true},
    {32, 20, 7, 27, SOME, VX_ACTIVATION_SILU, true},
    {33, 64, 3, 27, SOME, VX_ACTIVATION_GELU, true},
    {511, 3, 16, 27, SOME, VX_ACTIVATION_RELU, true},
    {512, 16, 48, 3, FULL, VX_ACTIVATION_SIGMOID, true},
    {513, 1, 64, 27, SOME, VX_ACTIVATION_NONE, false},
    {100, 64, 64, 27, EMPTY, VX_ACTIVATION_RELU, true},
    {100, 64, 64, 27, EMPTY, VX_ACTIVATION_NONE, false},
    {100, 5, 65, 27, ONE_OFFSET, VX_ACTIVATION_NONE, true},
    {200, 129, 130, 5, SOME, VX_ACTIVATION_NONE, true},
    {150, 300, 64, 3, SOME, VX_ACTIVATION_GELU, true},
    {40, 33, 257, 27, SOME, VX_ACTIVATION_NONE, true},
    {64, 3, 4, 343, SOME, VX_ACTIVATION_NONE, true},
    {10007, 7, 20, 27, SOME, VX_ACTIVATION_SILU, true},
    {10007, 4, 32, 1, FULL, VX_ACTIVATION_RELU, true},
    {20, 2000, 8, 1, FULL, VX_ACTIVATION_NONE, true},
    {20, 8, 2000, 1, FULL, VX_ACTIVATION_NONE, true},
};

static i32 *pattern_nbr(const struct conv_case *c)
{
    struct voxels_random random = {(u64)c->n + 5};
    i64 count = c->n * c->v;
    i32 *nbr = vx_alloc((size_t)(count ? count : 1) * sizeof *nbr);
    VX_ASSERT(nbr);
    for (i64 e = 0; e < count; e++) {
        bool there = c->pattern == FULL;
        if (c->pattern == SOME) there = voxels_next(&random) % 2;
        if (c->pattern == ONE_OFFSET) there = e / c->n == 3;
        nbr[e] = there ? voxels_between(&random, 0, (i32)c->n - 1) : -1;
    }
    return nbr;
}

/* Every result of a convolution is a sum of at most v * ci products and a bias, each multiply-add
 * rounded, partial sums of offsets and panels rounded once more: fewer than 2 (v*ci + v + 2)
 * roundings of numbers that are at most the sum of absolute values.  In f32 a chain of k roundings
 * is off by k ROUND of that at worst. */
static void check_conv(struct vx_cpu *cpu, const struct conv_case *c)
{
    i64 in_count = c->n * c->ci;
    i64 out_count = c->n * c->co;
    i64 weight_count = (i64)c->v * c->ci * c->co;
    f32 *in = random_floats(1, in_count);
    f32 *weight = random_floats(2, weight_count);
    f32 *bias = random_floats(3, c->co);
    f32 *in_size = absolute_floats(in, in_count);
    f32 *weight_size = absolute_floats(weight, weight_count);
    f32 *bias_size = absolute_floats(bias, c->co);
    f32 *results[4];
    for (int r = 0; r < 4; r++) results[r] = floats(out_count);
    /* An element that an operator does not write must be detected. */
    memset(results[0], 0xff, (size_t)out_count * sizeof(f32));
    i32 *nbr = pattern_nbr(c);
    struct vx_conv_args args = {
        .n = c->n,
        .v = c->v,
        .ci = c->ci,
        .co = c->co,
        .nbr = nbr,
        .in = in,
        .weight = weight,
        .bias = c->bias ? bias : NULL,
        .activation = c->activation,
        .out = results[0],
    };
    vx_cpu_conv(cpu, &args);
    args.out = results[1];
    vx_conv_explicit_ref(&args);
    args.activation = VX_ACTIVATION_NONE;
    args.out = results[2];
    vx_conv_explicit_ref(&args);
    args.in = in_size;
    args.weight = weight_size;
    args.bias = c->bias ? bias_size : NULL;
    args.out = results[3];
    vx_conv_explicit_ref(&args);
    char what[200];
    (void)snprintf(what, sizeof what, "conv n %lld ci %d co %d v %d on %s",
                   (long long)c->n, c->ci, c->co, c->v, vx_cpu_name(cpu));
    f64 roundings = 2.0 * (c->v * c->ci + c->v + 2);
    compare(&(struct comparison){what, out_count, c->activation, results[0], results[1],
                                 results[2], results[3], roundings});
    f32 *all[] = {in,        weight,     bias,       in_size,    weight_size,
                  bias_size, results[0], results[1], results[2], results[3]};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
    vx_free(nbr);
}

START_TEST(test_conv)
{
    struct vx_cpu *cpu;
    i32 tried = 0;
    for (; cpu_case_open(tried, 2, &cpu); tried++) {
        check_conv(cpu, &conv_cases[_i]);
        vx_cpu_close(&cpu);
    }
    ck_assert_int_ge(tried, 1);
}
END_TEST

/* A linear layer has the error bound of a convolution; the reference is its own. */
static void check_linear(struct vx_cpu *cpu, const struct conv_case *c)
{
    f32 *in = random_floats(4, c->n * c->ci);
    f32 *weight = random_floats(5, (i64)c->ci * c->co);
    f32 *bias = random_floats(6, c->co);
    f32 *in_size = absolute_floats(in, c->n * c->ci);
    f32 *weight_size = absolute_floats(weight, (i64)c->ci * c->co);
    f32 *bias_size = absolute_floats(bias, c->co);
    f32 *results[4];
    for (int r = 0; r < 4; r++) results[r] = floats(c->n * c->co);
    memset(results[0], 0xff, (size_t)(c->n * c->co) * sizeof(f32));
    struct vx_linear_args args = {
        c->n,          c->ci,      c->co, in, weight, c->bias ? bias : NULL,
        c->activation, results[0], 0,     0};
    vx_cpu_linear(cpu, &args);
    args.out = results[1];
    vx_linear_ref(&args);
    args.activation = VX_ACTIVATION_NONE;
    args.out = results[2];
    vx_linear_ref(&args);
    args.in = in_size;
    args.weight = weight_size;
    args.bias = c->bias ? bias_size : NULL;
    args.out = results[3];
    vx_linear_ref(&args);
    compare(&(struct comparison){"linear", c->n * c->co, c->activation, results[0],
                                 results[1], results[2], results[3], 2.0 * (c->ci + 3)});
    f32 *all[] = {in,        weight,     bias,       in_size,    weight_size,
                  bias_size, results[0], results[1], results[2], results[3]};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
}

START_TEST(test_linear)
{
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        check_linear(cpu, &conv_cases[_i]);
        vx_cpu_close(&cpu);
    }
}
END_TEST

static const enum vx_activation activations[] = {
    VX_ACTIVATION_NONE, VX_ACTIVATION_RELU,    VX_ACTIVATION_SILU,
    VX_ACTIVATION_GELU, VX_ACTIVATION_SIGMOID,
};

static const struct {
    i64 n;
    i32 c;
} shapes[] = {{0, 4},    {1, 1},    {1, 7},    {31, 3},   {33, 20},   {1, 16385},
              {255, 64}, {256, 64}, {257, 64}, {3, 1000}, {10007, 7}, {16384, 1}};

static void check_norms(struct vx_cpu *cpu, i64 n, i32 c, enum vx_activation activation)
{
    i64 count = n * c;
    f32 *in = random_floats(7, count);
    f32 *scale = random_floats(8, c);
    f32 *shift = random_floats(9, c);
    f32 *out = floats(count);
    f32 *expected = floats(count);
    f32 *before = floats(count);
    f32 *size = floats(count);
    struct vx_batch_norm_args batch = {n, c, in, scale, shift, activation, out, 0, 0};
    vx_cpu_batch_norm(cpu, &batch);
    batch.out = expected;
    vx_batch_norm_ref(&batch);
    batch.activation = VX_ACTIVATION_NONE;
    batch.out = before;
    vx_batch_norm_ref(&batch);
    for (i64 e = 0; e < count; e++)
        size[e] = fabsf(in[e] * scale[e % c]) + fabsf(shift[e % c]);
    /* A product and a sum. */
    compare(&(struct comparison){"batch_norm", count, activation, out, expected, before,
                                 size, 2});
    for (int affine = 0; affine < 3; affine++) {
        struct vx_layer_norm_args layer = {.n = n, .c = c, .eps = 1e-5f, .in = in};
        layer.weight = affine ? scale : NULL;
        layer.bias = affine == 2 ? shift : NULL;
        layer.activation = activation;
        layer.out = out;
        vx_cpu_layer_norm(cpu, &layer);
        layer.out = expected;
        vx_layer_norm_ref(&layer);
        layer.activation = VX_ACTIVATION_NONE;
        layer.out = before;
        vx_layer_norm_ref(&layer);
        /* The mean is off by two roundings of numbers below 1 (the second pass around it leaves no
         * more), each squared difference by a few, the variance by c/4 + 5 roundings of itself at
         * worst, its root by half of that; then four operations.  Divided by the deviation, a
         * difference below 2 is at most 2 / sqrt(eps + variance). */
        for (i64 e = 0; e < count; e++) {
            f32 deviation = 1.0f;
            if (c < 16) { /* with few channels the variance may be small */
                f32 least = INFINITY, most = -INFINITY;
                for (i32 k = 0; k < c; k++) {
                    least = fminf(least, in[e / c * c + k]);
                    most = fmaxf(most, in[e / c * c + k]);
                }
                f32 half = (most - least) / 2; /* the variance is at least 2 half^2 / c */
                deviation = fminf(1.0f, sqrtf(2 * half * half / (f32)c + 1e-5f));
            } else {
                deviation = 0.25f; /* of 16 and more numbers spread over [-1, 1) */
            }
            f32 weight = affine ? fabsf(scale[e % c]) : 1.0f;
            size[e] = 2.0f / deviation * weight + (affine == 2 ? fabsf(shift[e % c]) : 0);
        }
        compare(&(struct comparison){"layer_norm", count, activation, out, expected,
                                     before, size, c / 8.0 + 16});
    }
    f32 *all[] = {in, scale, shift, out, expected, before, size};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
}

START_TEST(test_norms)
{
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 3, &cpu); i++) {
        check_norms(cpu, shapes[_i].n, shapes[_i].c, activations[_i % 5]);
        vx_cpu_close(&cpu);
    }
}
END_TEST

/* A mean a thousand times the spread: what one pass of sums of squares would lose. */
START_TEST(test_layer_norm_of_large_mean)
{
    f32 in[64], out[64], expected[64];
    struct voxels_random random = {12};
    for (int e = 0; e < 64; e++) in[e] = 1000.0f + voxels_unit(&random);
    struct vx_layer_norm_args args = {1,   64, 1e-5f, in, NULL, NULL, VX_ACTIVATION_NONE,
                                      out, 0,  0};
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 1, &cpu); i++) {
        args.out = out;
        vx_cpu_layer_norm(cpu, &args);
        args.out = expected;
        vx_layer_norm_ref(&args);
        /* The mean is known to one rounding of 1000, 6e-5, in differences of about 0.6. */
        for (int e = 0; e < 64; e++)
            ck_assert_float_eq_tol(out[e], expected[e],
                                   1000.0f * (f32)CPU_ROUND / 0.5f * 1.5f);
        vx_cpu_close(&cpu);
    }
}
END_TEST

static void check_add_and_concat(struct vx_cpu *cpu, i64 n, i32 c)
{
    f32 *a = random_floats(10, n * c);
    f32 *b = random_floats(11, n * c);
    f32 *out = floats(n * c * 2 + n);
    f32 *expected = floats(n * c * 2 + n);
    struct vx_pair_args add = {n, c, a, b, VX_ACTIVATION_RELU, out, 0, 0, 0};
    vx_cpu_add(cpu, &add);
    add.out = expected;
    vx_add_ref(&add);
    /* One rounding on both sides. */
    ck_assert_mem_eq(out, expected, (size_t)(n * c) * sizeof *out);
    struct vx_concat_args concat = {.n = n,
                                    .inputs = {{a, c, 0}, {b, 1, 0}, {b, c, 0}},
                                    .inputs_count = 3,
                                    .out = out};
    vx_cpu_concat(cpu, &concat);
    concat.out = expected;
    vx_concat_ref(&concat);
    ck_assert_mem_eq(out, expected, (size_t)(n * (2 * c + 1)) * sizeof *out);
    /* In place: out may be an input of add. */
    memcpy(out, a, (size_t)(n * c) * sizeof *out);
    add = (struct vx_pair_args){n, c, b, out, VX_ACTIVATION_NONE, out, 0, 0, 0};
    vx_cpu_add(cpu, &add);
    add = (struct vx_pair_args){n, c, a, b, VX_ACTIVATION_NONE, expected, 0, 0, 0};
    vx_add_ref(&add);
    ck_assert_mem_eq(out, expected, (size_t)(n * c) * sizeof *out);
    vx_free(a);
    vx_free(b);
    vx_free(out);
    vx_free(expected);
}

START_TEST(test_add_and_concat)
{
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        check_add_and_concat(cpu, shapes[_i].n, shapes[_i].c);
        vx_cpu_close(&cpu);
    }
}
END_TEST

START_TEST(test_open)
{
    struct vx_cpu *cpu;
    struct vx_why why;
    ck_assert_int_eq(vx_status_code(vx_cpu_open(-1, &why, &cpu)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(cpu);
    ck_assert_int_eq(vx_status_code(vx_cpu_open(VX_CPU_THREADS_MAX + 1, &why, &cpu)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(cpu);
    ck_assert_ptr_null(vx_cpu_open(0, &why, &cpu).fault);
    ck_assert_int_ge(vx_cpu_threads(cpu), 1);
    ck_assert_ptr_nonnull(strstr(vx_cpu_name(cpu), "thread"));
    ck_assert_uint_lt(strlen(vx_cpu_name(cpu)), VX_NAME_BYTES);
    vx_cpu_close(&cpu);
    ck_assert_ptr_null(cpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_ops");
    TCase *cases = tcase_create("cpu_ops");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_conv, 0, (int)VX_COUNT(conv_cases));
    tcase_add_loop_test(cases, test_linear, 0, (int)VX_COUNT(conv_cases));
    tcase_add_loop_test(cases, test_norms, 0, (int)VX_COUNT(shapes));
    tcase_add_test(cases, test_layer_norm_of_large_mean);
    tcase_add_loop_test(cases, test_add_and_concat, 0, (int)VX_COUNT(shapes));
    tcase_add_test(cases, test_open);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
