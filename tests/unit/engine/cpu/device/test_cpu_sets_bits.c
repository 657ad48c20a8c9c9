/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/trials.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The property under test: the bits of a row that is made through a map depend on the rows that it
 * reads, in the order of offsets, and never on N or M, on the places of rows, on the other rows, or
 * on the number of threads. */

#define ROWS     701                  /* that are watched: more than a tile, and odd */
#define ROWS_IN  450                  /* that they read */
#define MATES    VX_TRIALS(3301, 901) /* more rows among which to lie are the same code */
#define MATES_IN 2000

static void *room(size_t bytes)
{
    void *block = vx_alloc_aligned(bytes);
    VX_ASSERT(block);
    return block;
}

/* Rows of one set and of another, and what they read of it.  The watched rows are the first ones;
 * `place` and `place_in` say where each lies. */
struct sets {
    i64 n, m;
    i32 v;
    i32 *place, *place_in;
    i32 *nbr;
};

static i32 *places(u64 seed, i64 count)
{
    struct voxels_random random = {seed};
    i32 *place = room((size_t)count * sizeof *place);
    for (i32 i = 0; i < count; i++) {
        i32 other = seed ? voxels_between(&random, 0, i) : i;
        place[i] = place[other];
        place[other] = i;
    }
    return place;
}

/* Seed 0: every row in its place. */
static struct sets sets_make(i64 n, i64 m, i32 v, u64 seed)
{
    struct sets sets = {n, m, v, places(seed, n), places(seed * 3, m), NULL};
    struct voxels_random watched = {17}, others = {seed + 18};
    sets.nbr = room((size_t)(n * v) * sizeof *sets.nbr);
    for (i64 i = 0; i < n; i++) {
        for (i32 k = 0; k < v; k++) {
            struct voxels_random *random = i < ROWS ? &watched : &others;
            bool there = voxels_next(random) % 2 && i % 9 != 4; /* some rows have none */
            i32 row = voxels_between(random, 0, (i32)(i < ROWS ? ROWS_IN : m) - 1);
            sets.nbr[k * n + sets.place[i]] = there ? sets.place_in[row] : -1;
        }
    }
    return sets;
}

static void sets_free(struct sets *sets)
{
    vx_free(sets->place);
    vx_free(sets->place_in);
    vx_free(sets->nbr);
}

enum operator_kind { CONV, ROW_GATHER, POOL, SOFTMAX, CURVE, AFFINE };

struct operation {
    enum operator_kind kind;
    i32 ci, co;
    i32 kernel[3];
    i32 detail; /* groups, mode, curve */
    enum vx_activation activation;
};

static const struct operation operations[] = {
    {CONV, 64, 64, {3, 3, 3}, 1, VX_ACTIVATION_SILU},
    {CONV, 20, 33, {2, 2, 2}, 0, VX_ACTIVATION_NONE},
    {CONV, 64, 64, {3, 3, 3}, 2, VX_ACTIVATION_GELU},
    {CONV, 16, 24, {3, 3, 3}, 4, VX_ACTIVATION_NONE},
    {CONV, 260, 150, {1, 1, 2}, 2, VX_ACTIVATION_RELU},
    {CONV, 64, 64, {3, 3, 3}, 64, VX_ACTIVATION_NONE},
    {CONV, 17, 17, {3, 3, 3}, 17, VX_ACTIVATION_SILU},
    {CONV, 3, 3, {3, 3, 3}, 3, VX_ACTIVATION_RELU},
    {ROW_GATHER, 7, 56, {2, 2, 2}, 0, VX_ACTIVATION_SILU},
    {ROW_GATHER, 33, 33, {1, 1, 1}, 0, VX_ACTIVATION_NONE},
    {POOL, 17, 17, {3, 3, 3}, VX_POOL_AVG, VX_ACTIVATION_SILU},
    {POOL, 3, 3, {2, 2, 2}, VX_POOL_SUM, VX_ACTIVATION_NONE},
    {POOL, 300, 300, {3, 3, 3}, VX_POOL_SUM, VX_ACTIVATION_RELU},
    {POOL, 64, 64, {2, 2, 2}, VX_POOL_MAX, VX_ACTIVATION_GELU},
    {SOFTMAX, 20, 20, {1, 1, 1}, 0, VX_ACTIVATION_NONE},
    {SOFTMAX, 3, 3, {1, 1, 1}, 0, VX_ACTIVATION_NONE},
    {CURVE, 5, 5, {1, 1, 1}, VX_CURVE_SOFTPLUS, VX_ACTIVATION_NONE},
    {CURVE, 3, 3, {1, 1, 1}, VX_CURVE_TANH, VX_ACTIVATION_NONE},
    {CURVE, 1, 1, {1, 1, 1}, VX_CURVE_LEAKY_RELU, VX_ACTIVATION_NONE},
    {AFFINE, 3, 3, {1, 1, 1}, 0, VX_ACTIVATION_SIGMOID},
};

static i32 offsets_of(const struct operation *op)
{
    return op->kernel[0] * op->kernel[1] * op->kernel[2];
}

/* Operators without a map get the rows that one offset names. */
static void run_rows(struct vx_cpu *cpu, const struct operation *op, i64 n, const f32 *in,
                     f32 *out)
{
    if (op->kind == SOFTMAX)
        vx_cpu_softmax(cpu, &(struct vx_softmax_args){n, op->ci, in, out});
    if (op->kind == CURVE)
        vx_cpu_curve(cpu, &(struct vx_curve_args){n, op->ci, (enum vx_curve)op->detail,
                                                  0.1f, in, out});
    if (op->kind == AFFINE)
        vx_cpu_affine(cpu, &(struct vx_affine_args){n, op->ci, 1.7f, -0.3f, in,
                                                    op->activation, out});
}

static void run_map(struct vx_cpu *cpu, const struct operation *op,
                    const struct sets *sets, const f32 *in, f32 *out)
{
    const i64 n = sets->n;
    const i32 v = sets->v, ci = op->ci, co = op->co;
    i64 weights = (i64)v * ci * co;
    f32 *weight = room((size_t)(weights + co) * sizeof *weight);
    f32 *gathered = room((size_t)(n * ci) * sizeof *gathered);
    voxels_fill(&(struct voxels_random){31}, weight, weights + co);
    struct vx_row_gather_args gather = {.n = n,
                                        .v = v,
                                        .c = ci,
                                        .nbr = sets->nbr,
                                        .in = in,
                                        .activation = op->activation};
    gather.out = op->kind == ROW_GATHER ? out : gathered;
    memcpy(gather.kernel, op->kernel, sizeof gather.kernel);
    switch (op->kind) {
    case CONV:
        vx_cpu_conv(cpu, &(struct vx_conv_args){n, v, ci, co, op->detail, sets->nbr, in,
                                                weight, weight + weights, op->activation,
                                                out, 0, 0});
        break;
    case POOL:
        vx_cpu_pool(cpu,
                    &(struct vx_pool_args){n, v, ci, (enum vx_pool_mode)op->detail,
                                           sets->nbr, in, op->activation, out, 0, 0});
        break;
    default: vx_cpu_row_gather(cpu, &gather); run_rows(cpu, op, n, gathered, out);
    }
    vx_free(weight);
    vx_free(gathered);
}

/* The watched rows of the answer, in their order. */
static f32 *run(struct vx_cpu *cpu, const struct operation *op, const struct sets *sets)
{
    const size_t row = (size_t)op->co * sizeof(f32);
    f32 *in = room((size_t)(sets->m * op->ci) * sizeof *in);
    f32 *out = room((size_t)sets->n * row);
    f32 *watched = room(ROWS * row);
    for (i64 j = 0; j < sets->m; j++)
        voxels_fill(&(struct voxels_random){(u64)j * 977 + 5},
                    in + (i64)sets->place_in[j] * op->ci, op->ci);
    run_map(cpu, op, sets, in, out);
    for (i64 i = 0; i < ROWS; i++)
        memcpy(watched + i * op->co, out + (i64)sets->place[i] * op->co, row);
    vx_free(in);
    vx_free(out);
    return watched;
}

static void check_rows(struct vx_cpu *cpu, const struct operation *op,
                       const struct sets *sets, const f32 *alone)
{
    f32 *got = run(cpu, op, sets);
    const size_t row = (size_t)op->co * sizeof *got;
    for (i64 i = 0; i < ROWS; i++)
        if (memcmp(got + i * op->co, alone + i * op->co, row) != 0)
            ck_abort_msg("%s, %d threads: operator %d (%d to %d): row %d of %lld has "
                         "other bits",
                         vx_cpu_name(cpu), vx_cpu_threads(cpu), (int)op->kind, op->ci,
                         op->co, (int)i, (long long)sets->n);
    vx_free(got);
}

START_TEST(test_bits)
{
    static const i32 threads[] = {1, 2, 5};
    const struct operation *op = &operations[_i];
    const i32 v = offsets_of(op);
    struct sets one = sets_make(ROWS, ROWS_IN, v, 0);
    struct sets turned = sets_make(ROWS, ROWS_IN, v, 7);
    struct sets many = sets_make(ROWS + MATES, ROWS_IN + MATES_IN, v, 8);
    struct vx_cpu *cpu;
    for (i32 which = 0; cpu_case_open(which, 1, &cpu); which++) {
        f32 *alone = run(cpu, op, &one);
        vx_cpu_close(&cpu);
        for (size_t t = 0; t < VX_COUNT(threads); t++) {
            ck_assert(cpu_case_open(which, threads[t], &cpu));
            check_rows(cpu, op, &one, alone);
            check_rows(cpu, op, &turned, alone);
            check_rows(cpu, op, &many, alone);
            vx_cpu_close(&cpu);
        }
        vx_free(alone);
    }
    sets_free(&one);
    sets_free(&turned);
    sets_free(&many);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_sets_bits");
    TCase *cases = tcase_create("cpu_sets_bits");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_bits, 0, (int)VX_COUNT(operations));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
