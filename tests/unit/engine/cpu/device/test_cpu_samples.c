/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* global_pool and group_norm, against their references, and their bits: those of a sample follow
 * from its own rows in their order, whatever lies beside it and however many threads there are.
 * Loops over elements abort by hand: ck_assert reports each success through a pipe. */

#define BEHIND 16 /* floats behind a tensor, which nobody may write */

static f32 *floats(i64 count)
{
    size_t bytes = (size_t)(count + BEHIND) * sizeof(f32);
    f32 *values = vx_alloc_aligned(bytes);
    VX_ASSERT(values);
    memset(values, 0xff, bytes); /* NaN: what is not written is detected */
    return values;
}

static void check_behind(const f32 *values, i64 count)
{
    for (i64 e = 0; e < BEHIND * (i64)sizeof(f32); e++)
        if (((const u8 *)(values + count))[e] != 0xff)
            ck_abort_msg("something is written behind %lld elements", (long long)count);
}

/* Samples whose rows lie in any order among each other. */
struct batch {
    i64 samples, n;
    i64 *starts;
    i32 *rows;
};

static struct batch batch_make(const i32 *sizes, i64 samples)
{
    struct batch batch = {.samples = samples};
    struct voxels_random random = {(u64)samples};
    batch.starts = vx_alloc_zero((size_t)(samples + 1) * sizeof(i64));
    VX_ASSERT(batch.starts);
    for (i64 s = 0; s < samples; s++) batch.starts[s + 1] = batch.n += sizes[s];
    batch.rows = vx_alloc_zero((size_t)(batch.n + 1) * sizeof(i32));
    VX_ASSERT(batch.rows);
    for (i32 r = 0; r < batch.n; r++) {
        i32 other = voxels_between(&random, 0, r);
        batch.rows[r] = batch.rows[other];
        batch.rows[other] = r;
    }
    return batch;
}

static void batch_free(struct batch *batch)
{
    vx_free(batch->starts);
    vx_free(batch->rows);
}

/* A chunk has 64 rows, a sample at most 256 chunks, a round at most 512 samples; of 16384 channels
 * the room holds 64 rows. */
static const struct {
    i32 sizes[6];
    i64 samples;
    i32 repeat; /* of the sizes */
    i32 c;
    i32 groups[3];
} batches[] = {
    {{0}, 0, 1, 3, {1, 3, 3}},
    {{0}, 1, 1, 16, {1, 4, 16}},
    {{1}, 1, 1, 1, {1, 1, 1}},
    {{7}, 1, 1, 17, {1, 17, 17}},
    {{1}, 1, 1, 64, {2, 32, 64}},
    {{0, 5, 0, 1, 3, 0}, 6, 1, 300, {4, 300, 1}},
    {{63, 64, 65, 1, 127, 129}, 6, 1, 16, {4, 2, 16}},
    {{5000}, 1, 1, 64, {32, 1, 64}},
    {{20, 5000}, 2, 1, 3, {3, 1, 1}},
    {{640, 30}, 2, 1, 300, {2, 10, 300}},
    {{333, 64}, 2, 1, 17, {1, 17, 17}},
    {{17000, 16384, 3}, 3, 1, 2, {1, 2, 2}},
    {{2, 0, 3, 70}, 4, 200, 5, {1, 5, 5}},
    {{2, 1, 3}, 3, 11, 16384, {1, 4096, 16384}},
};
#define CPUS_MAX 4
#define LOOPS    ((int)VX_COUNT(batches) * CPUS_MAX)

static struct batch batch_of(int index)
{
    static i32 sizes[4096];
    i64 samples = batches[index].samples * batches[index].repeat;
    for (i64 s = 0; s < samples; s++)
        sizes[s] = batches[index].sizes[s % batches[index].samples];
    return batch_make(sizes, samples);
}

static struct vx_cpu *loop_cpu(int loop)
{
    struct vx_cpu *cpu;
    return cpu_case_open(loop % CPUS_MAX, 1 + loop / CPUS_MAX % 3, &cpu) ? cpu : NULL;
}

static bool is_same(f32 a, f32 b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

/* A maximum is exact.  A sum of n numbers in f64 is off by n 2^-53 of the sum of their absolute
 * values on either side, and each side is rounded once. */
static void check_global_pool(struct vx_cpu *cpu, const struct batch *batch, i32 c)
{
    const i64 count = batch->n * c;
    f32 *in = floats(count), *size_in = floats(count);
    f32 *out = floats(batch->samples * c), *expected = floats(batch->samples * c);
    f32 *size = floats(batch->samples * c);
    voxels_fill(&(struct voxels_random){61}, in, count);
    for (i64 e = 0; e < count; e++) size_in[e] = fabsf(in[e]);
    struct vx_global_pool_args args = {
        batch->samples, c, VX_POOL_SUM, batch->starts, batch->rows, size_in, size};
    vx_global_pool_ref(&args);
    args.in = in;
    for (int mode = VX_POOL_MAX; mode <= VX_POOL_SUM; mode++) {
        args.mode = (enum vx_pool_mode)mode;
        args.out = out;
        vx_cpu_global_pool(cpu, &args);
        check_behind(out, batch->samples * c);
        args.out = expected;
        vx_global_pool_ref(&args);
        for (i64 e = 0; e < batch->samples * c; e++) {
            i64 sample = e / c;
            f64 rows = (f64)(batch->starts[sample + 1] - batch->starts[sample]);
            f64 bound = 2 * CPU_ROUND * fabs((f64)expected[e]);
            if (mode != VX_POOL_AVG) bound += rows * 0x1p-52 * (f64)size[e];
            if (mode == VX_POOL_AVG) bound += 0x1p-52 * (f64)size[e];
            if (mode == VX_POOL_MAX) bound = 0;
            if (!(fabs((f64)out[e] - (f64)expected[e]) <= bound))
                ck_abort_msg("global_pool %d: element %lld: expected %.9g, got %.9g",
                             mode, (long long)e, (f64)expected[e], (f64)out[e]);
        }
    }
    f32 *all[] = {in, size_in, out, expected, size};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
}

START_TEST(test_global_pool)
{
    struct vx_cpu *cpu = loop_cpu(_i);
    if (!cpu) return;
    struct batch batch = batch_of(_i / CPUS_MAX);
    check_global_pool(cpu, &batch, batches[_i / CPUS_MAX].c);
    batch_free(&batch);
    vx_cpu_close(&cpu);
}
END_TEST

/* Numbers of at most 8 whose sums in f64 are off by count 2^-52 of it, divided by a deviation of at
 * least sqrt(eps) = 0.1; one rounding each.  No activation has a slope of 1.13 or more. */
static void check_group_norm(struct vx_cpu *cpu, const struct batch *batch,
                             struct vx_group_norm_args args)
{
    const i64 count = batch->n * args.c;
    const i32 width = args.c / args.groups;
    const enum vx_activation activation = args.activation;
    f32 *in = floats(count), *out = floats(count), *expected = floats(count);
    f32 *before = floats(count);
    voxels_fill(&(struct voxels_random){62}, in, count);
    for (i64 e = 0; e < count; e++) in[e] = 5 + 3 * in[e];
    args.samples = batch->samples;
    args.starts = batch->starts;
    args.rows = batch->rows;
    args.eps = 0.01f;
    args.in = in;
    args.out = out;
    vx_cpu_group_norm(cpu, &args);
    check_behind(out, count);
    args.out = expected;
    vx_group_norm_ref(&args);
    args.activation = VX_ACTIVATION_NONE;
    args.out = before;
    vx_group_norm_ref(&args);
    for (i64 s = 0; s < batch->samples; s++) {
        f64 sum = (f64)(batch->starts[s + 1] - batch->starts[s]) * width * 8 * 0x1p-52;
        for (i64 r = batch->starts[s]; r < batch->starts[s + 1]; r++) {
            for (i64 c = 0; c < args.c; c++) {
                i64 e = (i64)batch->rows[r] * args.c + c;
                f64 x = (f64)before[e], y = (f64)expected[e];
                f64 weight = args.weight ? fabs((f64)args.weight[c]) : 1;
                f64 bound = 1.13 * (CPU_ROUND * fabs(x) + weight * sum / 0.1) +
                            cpu_activation_bound(activation, x, y) +
                            2 * CPU_ROUND * fabs(y) + 1e-37;
                if (!(fabs((f64)out[e] - y) <= bound))
                    ck_abort_msg("group_norm of %d: row %d channel %d: expected %.9g, "
                                 "got %.9g, bound %.3g",
                                 args.groups, (int)(e / args.c), (int)c, y, (f64)out[e],
                                 bound);
            }
        }
    }
    args.activation = activation;
    args.in = args.out = in; /* in place */
    vx_cpu_group_norm(cpu, &args);
    ck_assert_mem_eq(in, out, (size_t)count * sizeof *in);
    f32 *all[] = {in, out, expected, before};
    for (size_t i = 0; i < VX_COUNT(all); i++) vx_free(all[i]);
}

START_TEST(test_group_norm)
{
    static const enum vx_activation activations[] = {
        VX_ACTIVATION_NONE, VX_ACTIVATION_SILU, VX_ACTIVATION_RELU};
    struct vx_cpu *cpu = loop_cpu(_i);
    if (!cpu) return;
    struct batch batch = batch_of(_i / CPUS_MAX);
    const i32 c = batches[_i / CPUS_MAX].c;
    f32 *weight = floats(c), *bias = floats(c);
    voxels_fill(&(struct voxels_random){63}, weight, c);
    voxels_fill(&(struct voxels_random){64}, bias, c);
    for (int k = 0; k < 3; k++) {
        check_group_norm(cpu, &batch,
                         (struct vx_group_norm_args){
                             .c = c,
                             .groups = batches[_i / CPUS_MAX].groups[k],
                             .weight = k ? weight : NULL,
                             .bias = k == 2 ? bias : NULL,
                             .activation = activations[k],
                         });
    }
    vx_free(weight);
    vx_free(bias);
    batch_free(&batch);
    vx_cpu_close(&cpu);
}
END_TEST

/* 300 rows of three samples, and the sample of each row. */
enum { FEW_CHANNELS = 12, FEW_ROWS = 300 };
static struct batch few_make(i32 sample[FEW_ROWS])
{
    static const i32 sizes[] = {100, 150, 50};
    struct batch batch = batch_make(sizes, 3);
    for (i32 s = 0; s < 3; s++)
        for (i64 r = batch.starts[s]; r < batch.starts[s + 1]; r++)
            sample[batch.rows[r]] = s;
    return batch;
}

/* A mean of 10^6 times the spread loses no digit. */
START_TEST(test_group_norm_of_large_mean)
{
    static f32 in[FEW_ROWS * FEW_CHANNELS], out[FEW_ROWS * FEW_CHANNELS];
    static f32 expected[FEW_ROWS * FEW_CHANNELS];
    i32 sample[FEW_ROWS];
    struct batch batch = few_make(sample);
    struct vx_cpu *cpu;
    voxels_fill(&(struct voxels_random){65}, in, VX_COUNT(in));
    for (size_t e = 0; e < VX_COUNT(in); e++) in[e] = 1e6f + 4 * in[e];
    struct vx_group_norm_args args = {.samples = 3,
                                      .c = FEW_CHANNELS,
                                      .groups = 3,
                                      .eps = 1e-5f,
                                      .starts = batch.starts,
                                      .rows = batch.rows,
                                      .in = in};
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        args.out = out;
        vx_cpu_group_norm(cpu, &args);
        args.out = expected;
        vx_group_norm_ref(&args);
        for (size_t e = 0; e < VX_COUNT(in); e++)
            if (!(fabsf(out[e] - expected[e]) <=
                  2 * (f32)CPU_ROUND * fabsf(out[e]) + 1e-9f))
                ck_abort_msg("expected %.9g, got %.9g", (f64)expected[e], (f64)out[e]);
        vx_cpu_close(&cpu);
    }
    batch_free(&batch);
}
END_TEST

/* NaN in the first, a middle or the last chunk fills its own group of its own sample, and its own
 * channel of a pool. */
START_TEST(test_nan)
{
    static const i32 places[] = {100, 170, 249}; /* sample 1 */
    enum { C = FEW_CHANNELS };
    static f32 in[FEW_ROWS * C], out[FEW_ROWS * C];
    f32 pooled[3 * C];
    i32 sample[FEW_ROWS];
    struct batch batch = few_make(sample);
    struct vx_cpu *cpu;
    voxels_fill(&(struct voxels_random){65}, in, FEW_ROWS * C);
    in[batch.rows[places[_i]] * C + 5] = NAN; /* group 1 */
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        const struct vx_group_norm_args args = {.samples = 3,
                                                .c = C,
                                                .groups = 3,
                                                .starts = batch.starts,
                                                .rows = batch.rows,
                                                .in = in,
                                                .out = out};
        vx_cpu_group_norm(cpu, &args);
        for (i32 e = 0; e < FEW_ROWS * C; e++)
            if (isnan(out[e]) != (sample[e / C] == 1 && e % C / 4 == 1))
                ck_abort_msg("row %d channel %d: %g", e / C, e % C, (f64)out[e]);
        for (int mode = VX_POOL_MAX; mode <= VX_POOL_SUM; mode++) {
            vx_cpu_global_pool(
                cpu, &(struct vx_global_pool_args){3, C, (enum vx_pool_mode)mode,
                                                   batch.starts, batch.rows, in, pooled});
            for (i32 e = 0; e < 3 * C; e++)
                ck_assert_int_eq(isnan(pooled[e]), e == C + 5);
        }
        vx_cpu_close(&cpu);
    }
    batch_free(&batch);
}
END_TEST

/* What is compared of a sample: three pools, and a norm of its rows in their order. */
struct answer {
    f32 *pools, *norm;
};

static struct answer answer_of(struct vx_cpu *cpu, const struct batch *batch, i64 sample,
                               const f32 *features, i32 c)
{
    const i64 first = batch->starts[sample];
    const i64 n = batch->starts[sample + 1] - first;
    const size_t row = (size_t)c * sizeof(f32);
    f32 *in = floats(batch->n * c), *out = floats(batch->n * c);
    f32 *pools = floats(batch->samples * c);
    struct answer answer = {floats((i64)3 * c), floats(n * c)};
    voxels_fill(&(struct voxels_random){(u64)batch->n}, in, batch->n * c);
    for (i64 r = 0; r < n; r++)
        memcpy(in + (i64)batch->rows[first + r] * c, features + r * c, row);
    for (int mode = VX_POOL_MAX; mode <= VX_POOL_SUM; mode++) {
        vx_cpu_global_pool(
            cpu, &(struct vx_global_pool_args){batch->samples, c, (enum vx_pool_mode)mode,
                                               batch->starts, batch->rows, in, pools});
        memcpy(answer.pools + mode * c, pools + sample * c, row);
    }
    vx_cpu_group_norm(cpu, &(struct vx_group_norm_args){
                               batch->samples, c, c % 4 ? 1 : 4, 1e-5f, batch->starts,
                               batch->rows, in, NULL, NULL, VX_ACTIVATION_GELU, out});
    for (i64 r = 0; r < n; r++)
        memcpy(answer.norm + r * c, out + (i64)batch->rows[first + r] * c, row);
    vx_free(in);
    vx_free(out);
    vx_free(pools);
    return answer;
}

static void check_bits(struct vx_cpu *cpu, const struct batch *batch, i64 sample,
                       const f32 *features, const struct answer *alone)
{
    const i64 n = batch->starts[sample + 1] - batch->starts[sample];
    static const i32 c = 20;
    struct answer got = answer_of(cpu, batch, sample, features, c);
    for (i64 e = 0; e < 3 * c; e++)
        if (!is_same(got.pools[e], alone->pools[e]))
            ck_abort_msg("%s: sample of %d rows: pool %d has other bits",
                         vx_cpu_name(cpu), (int)n, (int)(e / c));
    for (i64 e = 0; e < n * c; e++)
        if (!is_same(got.norm[e], alone->norm[e]))
            ck_abort_msg("%s: sample of %d rows: norm has other bits in row %d",
                         vx_cpu_name(cpu), (int)n, (int)(e / c));
    vx_free(got.pools);
    vx_free(got.norm);
}

/* In the upper half of the channels numbers cancel each other that span more digits than f64 has:
 * what is left are the roundings of the sums, which another order of the rows would change. */
static void features_fill(f32 *features, i64 n, i32 c)
{
    voxels_fill(&(struct voxels_random){66}, features, n * c);
    for (i64 r = 0; r < n / 2; r++) {
        for (i32 e = c / 2; e < c; e++) {
            features[r * c + e] *= ldexpf(1, (i32)(r * 7919 % 61));
            features[(n - 1 - r) * c + e] = -features[r * c + e];
        }
    }
}

START_TEST(test_bits)
{
    static const i32 sizes[] = {1, 63, 64, 65, 700, 5000, 17001};
    static const i32 threads[] = {1, 2, 5};
    const i32 n = sizes[_i];
    const i32 company[] = {300, 1, 0, n, 2000};
    struct batch one = batch_make(&n, 1);
    struct batch many = batch_make(company, 5);
    f32 *features = floats((i64)n * 20);
    struct vx_cpu *cpu;
    features_fill(features, n, 20);
    for (i32 which = 0; cpu_case_open(which, 1, &cpu); which++) {
        struct answer alone = answer_of(cpu, &one, 0, features, 20);
        vx_cpu_close(&cpu);
        for (size_t t = 0; t < VX_COUNT(threads); t++) {
            ck_assert(cpu_case_open(which, threads[t], &cpu));
            check_bits(cpu, &one, 0, features, &alone);
            check_bits(cpu, &many, 3, features, &alone);
            vx_cpu_close(&cpu);
        }
        vx_free(alone.pools);
        vx_free(alone.norm);
    }
    vx_free(features);
    batch_free(&one);
    batch_free(&many);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_samples");
    TCase *cases = tcase_create("cpu_samples");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_global_pool, 0, LOOPS);
    tcase_add_loop_test(cases, test_group_norm, 0, LOOPS);
    tcase_add_test(cases, test_group_norm_of_large_mean);
    tcase_add_loop_test(cases, test_nan, 0, 3);
    tcase_add_loop_test(cases, test_bits, 0, 7);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
