/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The operators that read one set and write another, or a sample, and the curves of one number,
 * against their references.  Loops over elements abort by hand: ck_assert reports each success
 * through a pipe. */

static void *room(size_t bytes)
{
    void *block = vx_alloc_aligned(bytes ? bytes : 1);
    VX_ASSERT(block);
    memset(block, 0xff, bytes ? bytes : 1); /* NaN: what is not written is detected */
    return block;
}

#define BEHIND 16 /* floats behind a tensor, which nobody may write */

static f32 *floats(i64 count)
{
    return room((size_t)(count + BEHIND) * sizeof(f32));
}

static void check_behind(const char *what, const f32 *values, i64 count)
{
    for (i64 e = 0; e < BEHIND * (i64)sizeof(f32); e++)
        if (((const u8 *)(values + count))[e] != 0xff)
            ck_abort_msg("%s: something is written behind %lld elements", what,
                         (long long)count);
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

/* A map of n rows out of m rows: every fifth row has no neighbour, nor has the last offset of more
 * than one; else half of the entries are there, and any of the m rows. */
static i32 *random_map(i64 n, i64 m, i32 v)
{
    struct voxels_random random = {(u64)(n * 31 + v)};
    i32 *nbr = room((size_t)(n * v) * sizeof *nbr);
    for (i64 e = 0; e < n * v; e++) {
        bool there = e % n % 5 != 3 && (v == 1 || e / n < v - 1);
        if (v > 1 && voxels_next(&random) % 2) there = false;
        nbr[e] = there ? voxels_between(&random, 0, (i32)m - 1) : -1;
    }
    return nbr;
}

static bool same(f32 a, f32 b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void check_same(const char *what, const f32 *got, const f32 *expected, i64 count)
{
    check_behind(what, got, count);
    for (i64 e = 0; e < count; e++)
        if (!same(got[e], expected[e]))
            ck_abort_msg("%s: element %lld of %lld: expected %.9g, got %.9g", what,
                         (long long)e, (long long)count, (f64)expected[e], (f64)got[e]);
}

/* An element before its activation may be off by size * roundings * CPU_ROUND; no activation has a
 * slope of 1.13 or more.  The reference is rounded once, before and after the activation. */
struct comparison {
    const char *what;
    i64 count;
    enum vx_activation activation;
    const f32 *got, *expected, *before, *size;
    f64 roundings;
};

static void compare(const struct comparison *c)
{
    check_behind(c->what, c->got, c->count);
    for (i64 e = 0; e < c->count; e++) {
        f64 x = (f64)c->before[e];
        f64 y = (f64)c->expected[e];
        f64 error = fabs((f64)c->got[e] - y);
        f64 bound = 1.13 * c->roundings * CPU_ROUND * (f64)c->size[e] +
                    cpu_activation_bound(c->activation, x, y) + 2 * CPU_ROUND * fabs(y) +
                    1e-37;
        if (!(error <= bound))
            ck_abort_msg("%s: element %lld of %lld: expected %.9g, got %.9g: off by "
                         "%.3g, bound %.3g",
                         c->what, (long long)e, (long long)c->count, y, (f64)c->got[e],
                         error, bound);
    }
}

static const struct {
    i64 n;
    i32 c;
} shapes[] = {{0, 16}, {1, 1},     {1, 64},   {7, 3},    {7, 17},   {7, 300},
              {1, 17}, {5000, 1},  {5000, 3}, {333, 16}, {640, 17}, {5000, 64},
              {7, 16}, {255, 300}, {64, 7},   {33, 1000}};

static const enum vx_activation activations[] = {
    VX_ACTIVATION_NONE, VX_ACTIVATION_RELU,    VX_ACTIVATION_SILU,
    VX_ACTIVATION_GELU, VX_ACTIVATION_SIGMOID,
};

#define CPUS_MAX 4

/* Opens the CPU of a loop test that goes over shapes and ways to compute; NULL = no such way. */
static struct vx_cpu *loop_cpu(int loop)
{
    struct vx_cpu *cpu;
    return cpu_case_open(loop % CPUS_MAX, 1 + loop / CPUS_MAX % 3, &cpu) ? cpu : NULL;
}
#define LOOPS ((int)VX_COUNT(shapes) * CPUS_MAX)

static void check_row_gather(struct vx_cpu *cpu, i64 n, i32 c, const i32 kernel[3])
{
    const i32 v = kernel[0] * kernel[1] * kernel[2];
    const i64 m = n / 2 + 3;
    const i64 count = n * v * c;
    f32 *in = random_floats(41, m * c);
    f32 *out = floats(count);
    f32 *expected = floats(count);
    i32 *nbr = random_map(n, m, v);
    in[0] = NAN;
    struct vx_row_gather_args args = {.n = n, .v = v, .c = c, .nbr = nbr, .in = in};
    memcpy(args.kernel, kernel, sizeof args.kernel);
    for (int a = 0; a < 2; a++) {
        args.activation = a ? VX_ACTIVATION_RELU : VX_ACTIVATION_NONE;
        args.out = out;
        vx_cpu_row_gather(cpu, &args);
        args.out = expected;
        vx_row_gather_ref(&args);
        check_same("row_gather", out, expected, count); /* nothing is rounded */
    }
    in[0] = 0.5f;
    args.activation = VX_ACTIVATION_SIGMOID; /* of nothing it is 0.5 */
    args.out = out;
    vx_cpu_row_gather(cpu, &args);
    for (i64 e = 0; e < count; e++)
        if (!(out[e] > 0.2f && out[e] < 0.8f))
            ck_abort_msg("row_gather: %g", (f64)out[e]);
    vx_free(in);
    vx_free(out);
    vx_free(expected);
    vx_free(nbr);
}

START_TEST(test_row_gather)
{
    static const i32 kernels[][3] = {{1, 1, 1}, {2, 2, 2}, {1, 3, 2}};
    struct vx_cpu *cpu = loop_cpu(_i);
    if (!cpu) return;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        check_row_gather(cpu, shapes[_i / CPUS_MAX].n, shapes[_i / CPUS_MAX].c,
                         kernels[k]);
    vx_cpu_close(&cpu);
}
END_TEST

/* A sum of at most v numbers has at most v roundings, the mean one more; a maximum none. */
static void check_pool(struct vx_cpu *cpu, i64 n, i32 c, i32 v)
{
    const i64 m = n / 2 + 3;
    f32 *in = random_floats(42, m * c);
    f32 *in_size = absolute_floats(in, m * c);
    i32 *nbr = random_map(n, m, v);
    f32 *results[4];
    for (int r = 0; r < 4; r++) results[r] = floats(n * c);
    for (int mode = VX_POOL_MAX; mode <= VX_POOL_SUM; mode++) {
        enum vx_activation activation = activations[(n + c + mode) % 5];
        struct vx_pool_args args = {
            n, v, c, (enum vx_pool_mode)mode, nbr, in, activation, results[0], 0, 0};
        vx_cpu_pool(cpu, &args);
        args.out = results[1];
        vx_pool_ref(&args);
        args.activation = VX_ACTIVATION_NONE;
        args.out = results[2];
        vx_pool_ref(&args);
        args.in = in_size;
        args.out = results[3];
        vx_pool_ref(&args);
        compare(&(struct comparison){"pool", n * c, activation, results[0], results[1],
                                     results[2], results[3],
                                     mode == VX_POOL_MAX ? 0 : v + 1});
        args = (struct vx_pool_args){.n = n, .v = v, .c = c, .nbr = nbr, .in = in};
        args.mode = (enum vx_pool_mode)mode;
        for (i64 e = 0; e < m * c; e += 7) in[e] = NAN;
        args.out = results[0];
        vx_cpu_pool(cpu, &args);
        args.out = results[1];
        vx_pool_ref(&args);
        for (i64 e = 0; e < n * c; e++)
            if (isnan(results[0][e]) != isnan(results[1][e])) ck_abort_msg("pool: NaN");
        if (mode == VX_POOL_MAX) check_same("max", results[0], results[1], n * c);
        voxels_fill(&(struct voxels_random){42}, in, m * c);
    }
    for (int r = 0; r < 4; r++) vx_free(results[r]);
    vx_free(in);
    vx_free(in_size);
    vx_free(nbr);
}

START_TEST(test_pool)
{
    static const i32 offsets[] = {1, 8, 27};
    struct vx_cpu *cpu = loop_cpu(_i);
    if (!cpu) return;
    for (size_t k = 0; k < VX_COUNT(offsets); k++)
        check_pool(cpu, shapes[_i / CPUS_MAX].n, shapes[_i / CPUS_MAX].c, offsets[k]);
    if (_i < CPUS_MAX) check_pool(cpu, 20, 5, 343);
    vx_cpu_close(&cpu);
}
END_TEST

struct conv_case {
    i64 n, m;
    i32 ci, co, groups, v;
    enum vx_activation activation;
    bool bias;
};

/* Dense over a map of other sets, depthwise, and groups whose columns are fewer than a vector, a
 * whole number of vectors, none, and more than a panel; panels of 128 rows; the last tile short. */
static const struct conv_case conv_cases[] = {
    {0, 5, 8, 8, 2, 8, VX_ACTIVATION_RELU, true},
    {1, 9, 16, 16, 4, 27, VX_ACTIVATION_NONE, true},
    {7, 3, 6, 10, 2, 27, VX_ACTIVATION_SILU, true},
    {7, 2000, 64, 64, 2, 8, VX_ACTIVATION_NONE, false},
    {513, 70, 16, 64, 4, 27, VX_ACTIVATION_RELU, true},
    {700, 701, 300, 300, 4, 3, VX_ACTIVATION_NONE, true},
    {100, 33, 260, 160, 2, 5, VX_ACTIVATION_GELU, true},
    {100, 400, 288, 32, 2, 2, VX_ACTIVATION_NONE, true},
    {600, 90, 128, 128, 32, 27, VX_ACTIVATION_RELU, true},
    {90, 90, 12, 24, 12, 27, VX_ACTIVATION_SIGMOID, true},
    {200, 90, 48, 16, 16, 8, VX_ACTIVATION_NONE, true},
    {5000, 800, 8, 4, 2, 8, VX_ACTIVATION_NONE, true},
    {0, 5, 3, 3, 3, 27, VX_ACTIVATION_RELU, true},
    {1, 1, 17, 17, 17, 27, VX_ACTIVATION_NONE, true},
    {7, 2000, 3, 3, 3, 27, VX_ACTIVATION_SILU, true},
    {5000, 640, 16, 16, 16, 27, VX_ACTIVATION_RELU, true},
    {640, 5000, 64, 64, 64, 27, VX_ACTIVATION_NONE, false},
    {333, 20, 300, 300, 300, 27, VX_ACTIVATION_GELU, true},
    {40, 40, 5, 5, 5, 343, VX_ACTIVATION_NONE, true},
    {100, 2000, 16, 20, 0, 8, VX_ACTIVATION_RELU, true},
    {2000, 100, 20, 64, 1, 27, VX_ACTIVATION_NONE, true},
    {700, 90, 64, 64, 1, 8, VX_ACTIVATION_SILU, true},
};

/* The bound of test_cpu_ops.c: a chain of v * (ci/groups) multiply-adds, and the partial sums of
 * offsets and panels. */
static void check_conv(struct vx_cpu *cpu, const struct conv_case *c)
{
    const i32 depth = c->ci / (c->groups ? c->groups : 1);
    const i64 weights = (i64)c->v * depth * c->co;
    f32 *in = random_floats(1, c->m * c->ci), *weight = random_floats(2, weights);
    f32 *bias = random_floats(3, c->co), *bias_size = absolute_floats(bias, c->co);
    f32 *in_size = absolute_floats(in, c->m * c->ci);
    f32 *weight_size = absolute_floats(weight, weights);
    f32 *results[4];
    for (int r = 0; r < 4; r++) results[r] = floats(c->n * c->co);
    i32 *nbr = random_map(c->n, c->m, c->v);
    struct vx_conv_args args = {c->n,
                                c->v,
                                c->ci,
                                c->co,
                                c->groups,
                                nbr,
                                in,
                                weight,
                                c->bias ? bias : NULL,
                                c->activation,
                                results[0],
                                0,
                                0};
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
    (void)snprintf(what, sizeof what, "conv n %lld m %lld ci %d co %d groups %d on %s",
                   (long long)c->n, (long long)c->m, c->ci, c->co, c->groups,
                   vx_cpu_name(cpu));
    compare(&(struct comparison){what, c->n * c->co, c->activation, results[0],
                                 results[1], results[2], results[3],
                                 2.0 * (c->v * depth + c->v + 2)});
    f32 *all[] = {in,        weight,     bias,       in_size,    weight_size,
                  bias_size, results[0], results[1], results[2], results[3]};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
    vx_free(nbr);
}

START_TEST(test_conv)
{
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 1 + _i % 3, &cpu); i++) {
        check_conv(cpu, &conv_cases[_i]);
        vx_cpu_close(&cpu);
    }
}
END_TEST

/* NaN in one group or channel reaches no other, and a missing neighbour adds nothing. */
START_TEST(test_groups_of_nan)
{
    enum { N = 40, C = 12 };
    static const i32 counts[] = {2, 4, 12};
    struct vx_cpu *cpu;
    f32 *in = random_floats(1, N * C), *weight = random_floats(2, C * C);
    f32 out[N * C];
    i32 nbr[N];
    i32 width = C / counts[_i];
    for (i32 i = 0; i < N; i++) {
        nbr[i] = i % 3 ? i : -1;
        in[i * C + width] = NAN; /* the first channel of the second group */
    }
    for (i32 i = 0; cpu_case_open(i, 1, &cpu); i++) {
        vx_cpu_conv(cpu, &(struct vx_conv_args){N, 1, C, C, counts[_i], nbr, in, weight,
                                                NULL, VX_ACTIVATION_NONE, out, 0, 0});
        for (i32 e = 0; e < N * C; e++)
            if (isnan(out[e]) != (e % C / width == 1 && nbr[e / C] >= 0))
                ck_abort_msg("groups %d: element %d: %g", counts[_i], e, (f64)out[e]);
        vx_cpu_close(&cpu);
    }
    vx_free(in);
    vx_free(weight);
}
END_TEST

/* Both sides have one rounding of the same product.  A line may be rounded twice. */
static void check_mul_and_affine(struct vx_cpu *cpu, i64 n, i32 c)
{
    f32 *a = random_floats(10, n * c), *b = random_floats(11, n * c);
    f32 *out = floats(n * c), *expected = floats(n * c), *size = floats(n * c);
    vx_cpu_mul(cpu, &(struct vx_pair_args){n, c, a, b, VX_ACTIVATION_RELU, out, 0, 0, 0});
    vx_mul_ref(&(struct vx_pair_args){n, c, a, b, VX_ACTIVATION_RELU, expected, 0, 0, 0});
    check_same("mul", out, expected, n * c);
    memcpy(out, a, (size_t)(n * c) * sizeof *out); /* in place */
    vx_cpu_mul(cpu,
               &(struct vx_pair_args){n, c, b, out, VX_ACTIVATION_NONE, out, 0, 0, 0});
    vx_mul_ref(&(struct vx_pair_args){n, c, a, b, VX_ACTIVATION_NONE, expected, 0, 0, 0});
    check_same("mul", out, expected, n * c);
    struct vx_affine_args args = {n, c, -1.7f, 0.3f, a, VX_ACTIVATION_NONE, out};
    vx_cpu_affine(cpu, &args);
    args.out = expected;
    vx_affine_ref(&args);
    for (i64 e = 0; e < n * c; e++) size[e] = 1.7f * fabsf(a[e]) + 0.3f;
    compare(&(struct comparison){"affine", n * c, VX_ACTIVATION_NONE, out, expected,
                                 expected, size, 2});
    f32 *all[] = {a, b, out, expected, size};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
}

START_TEST(test_mul_and_affine)
{
    struct vx_cpu *cpu = loop_cpu(_i);
    if (!cpu) return;
    check_mul_and_affine(cpu, shapes[_i / CPUS_MAX].n, shapes[_i / CPUS_MAX].c);
    vx_cpu_close(&cpu);
}
END_TEST

/* The exponential of x - m, which is in [-2 * scale, 0]: that difference is rounded, which the
 * exponential multiplies by its size; it adds 5 roundings itself; the sum of c such terms, by lanes
 * of at least 4 and at most 16, adds c/4 + 16, and as much as its terms are off; the division and
 * the reference one each.  Below -87.3 an exponential is 0. */
static void check_softmax(struct vx_cpu *cpu, i64 n, i32 c, f32 scale)
{
    f32 *in = random_floats(12, n * c), *out = floats(n * c), *expected = floats(n * c);
    i32 *best = room((size_t)n * sizeof *best), *wanted = room((size_t)n * sizeof *best);
    for (i64 e = 0; e < n * c; e++)
        in[e] = roundf(in[e] * 8) / 8 * scale; /* equal maxima */
    for (i64 i = 0; i < n; i++)
        if (i % 7 == 2) in[i * c + i % c] = i % 2 ? NAN : -INFINITY;
    f64 roundings = 2 * (2 * (f64)scale + 5) + c / 4.0 + 20;
    vx_softmax_ref(&(struct vx_softmax_args){n, c, in, expected});
    vx_argmax_ref(&(struct vx_argmax_args){n, c, in, wanted});
    vx_cpu_argmax(cpu, &(struct vx_argmax_args){n, c, in, best});
    ck_assert_mem_eq(best, wanted, (size_t)n * sizeof *best);
    vx_cpu_softmax(cpu, &(struct vx_softmax_args){n, c, in, out});
    vx_cpu_softmax(cpu, &(struct vx_softmax_args){n, c, in, in}); /* in place */
    check_same("softmax in place", in, out, n * c);
    for (i64 e = 0; e < n * c; e++) {
        f64 y = (f64)expected[e];
        if (isnan(expected[e]) && isnan(out[e])) continue;
        if (!(fabs((f64)out[e] - y) <= roundings * CPU_ROUND * y + 2e-38))
            ck_abort_msg("softmax of %d: expected %.9g, got %.9g", c, y, (f64)out[e]);
    }
    f32 *all[] = {in, out, expected};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
    vx_free(best);
    vx_free(wanted);
}

START_TEST(test_softmax)
{
    struct vx_cpu *cpu = loop_cpu(_i);
    if (!cpu) return;
    for (f32 scale = 1; scale < 100; scale *= 8)
        check_softmax(cpu, shapes[_i / CPUS_MAX].n, shapes[_i / CPUS_MAX].c, scale);
    vx_cpu_close(&cpu);
}
END_TEST

/* How far a curve may be from y.  leaky_relu: both sides round the product once.  softplus: the
 * exponential is off by 4 CPU_ROUND, the series adds 6, the sum and the reference one each; the
 * exponential is 0 below -87.3, and half of it, which the series begins with, where that is
 * subnormal (flush.h).  tanh near 0: 3 and 4 roundings in the two polynomials, 3 around
 * them, and the reference's; from 0.625 on the quotient, at most 0.8 of y, is off by 4 + 3. */
static f64 curve_bound(enum vx_curve curve, f64 y)
{
    if (curve == VX_CURVE_LEAKY_RELU) return 0;
    return 12 * CPU_ROUND * fabs(y) + (curve == VX_CURVE_SOFTPLUS ? 2.4e-38 : 0);
}

/* The whole range of f32, every 8191st number, and special values. */
START_TEST(test_curve)
{
    static const f32 special[] = {
        0.0f,     -0.0f,  INFINITY, -INFINITY, NAN,       1e-40f, -1e-40f, 3.4e38f,
        -3.4e38f, 0.625f, -0.625f,  0.62499f,  -0.62499f, 20.0f,  20.001f, -20.0f,
        87.3f,    -87.3f, -87.31f,  9.0f,      -9.0f,     1e-20f, -1e-20f};
    enum vx_curve curve = (enum vx_curve)_i;
    i64 count = (i64)(UINT64_C(0x100000000) / 8191) + (i64)VX_COUNT(special);
    f32 *in = floats(count), *out = floats(count);
    memcpy(in, special, sizeof special);
    for (i64 e = (i64)VX_COUNT(special); e < count; e++) {
        u32 bits = (u32)((u64)(e - (i64)VX_COUNT(special)) * 8191);
        memcpy(&in[e], &bits, sizeof bits);
    }
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        vx_cpu_curve(cpu, &(struct vx_curve_args){count, 1, curve, 0.01f, in, out});
        for (i64 e = 0; e < count; e++) {
            f64 y = vx_curve_ref_one(curve, (f64)0.01f, (f64)in[e]);
            f32 once = (f32)y;
            if (same(out[e], once)) continue;
            if (!(fabs((f64)out[e] - y) <= curve_bound(curve, y)) ||
                curve == VX_CURVE_LEAKY_RELU)
                ck_abort_msg("curve %d of %.9g: expected %.9g, got %.9g", _i, (f64)in[e],
                             y, (f64)out[e]);
        }
        vx_cpu_close(&cpu);
    }
    vx_free(in);
    vx_free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_sets");
    TCase *cases = tcase_create("cpu_sets");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_row_gather, 0, LOOPS);
    tcase_add_loop_test(cases, test_pool, 0, LOOPS);
    tcase_add_loop_test(cases, test_conv, 0, (int)VX_COUNT(conv_cases));
    tcase_add_loop_test(cases, test_groups_of_nan, 0, 3);
    tcase_add_loop_test(cases, test_mul_and_affine, 0, LOOPS);
    tcase_add_loop_test(cases, test_softmax, 0, LOOPS);
    tcase_add_loop_test(cases, test_curve, 0, 3);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
