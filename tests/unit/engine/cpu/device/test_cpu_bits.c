/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/geometry.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/trials.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The property under test: the bits of a row depend on the operator and the machine, never on N,
 * on the row's position, on the other requests of its batch, or on the number of threads. */

#define VOXELS 700 /* of the request that is watched: more than a tile, and odd */
#define MATES  VX_TRIALS(3301, 901) /* more rows among which to lie are the same code */
#define TOTAL  (VOXELS + MATES)

static void *bytes(size_t count)
{
    void *block = vx_alloc_aligned(count ? count : 1);
    VX_ASSERT(block);
    return block;
}

/* Some voxels with features that belong to the voxel, not to its row. */
struct set {
    i64 n;
    i32 *coords;
    i32 *voxel; /* which voxel of the whole each row is */
};

static struct set whole_make(void)
{
    struct voxels_random random = {21};
    struct set set = {TOTAL, bytes(TOTAL * 16), bytes(TOTAL * 4)};
    voxels_scan(&random, VOXELS, set.coords);
    voxels_scan(&random, MATES, set.coords + VOXELS * 4);
    for (i32 i = 0; i < TOTAL; i++) {
        set.voxel[i] = i;
        set.coords[i * 4] = i < VOXELS ? 3 : 200; /* another request is another sample */
    }
    return set;
}

static struct set set_of(const struct set *whole, const i32 *voxels, i64 n)
{
    struct set set = {n, bytes((size_t)n * 16), bytes((size_t)n * 4)};
    for (i64 i = 0; i < n; i++) {
        set.voxel[i] = voxels[i];
        memcpy(set.coords + i * 4, whole->coords + voxels[i] * 4, 16);
    }
    return set;
}

static void set_free(struct set *set)
{
    vx_free(set->coords);
    vx_free(set->voxel);
}

enum operator_kind { CONV, LINEAR, BATCH_NORM, LAYER_NORM, ACTIVATION, ADD };

struct operation {
    enum operator_kind kind;
    i32 ci, co;
    enum vx_activation activation;
};

static f32 *features(const struct set *set, i32 channels)
{
    f32 *values = bytes((size_t)(set->n * channels) * sizeof *values);
    for (i64 i = 0; i < set->n; i++)
        voxels_fill(&(struct voxels_random){(u64)set->voxel[i] * 977 + 5},
                    values + i * channels, channels);
    return values;
}

static void run_conv(struct vx_cpu *cpu, const struct set *set,
                     const struct vx_conv_args *base)
{
    struct vx_why why;
    struct vx_geometry_cache *cache;
    struct vx_geometry *geometry;
    const struct vx_map *map;
    const struct vx_map_key key = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}};
    const struct vx_coords_view view = {set->coords, set->n, 4, {0, 0}, 0};
    struct vx_conv_args args = *base;
    ck_assert_ptr_null(vx_geometry_open((size_t)16 << 20, &why, &cache).fault);
    ck_assert_ptr_null(vx_geometry_hold(cache, cpu, &view, &why, &geometry).fault);
    ck_assert_ptr_null(vx_geometry_map(geometry, cpu, &key, &why, &map).fault);
    args.v = map->v;
    args.nbr = map->nbr;
    vx_cpu_conv(cpu, &args);
    vx_geometry_drop(cache, &geometry);
    vx_geometry_close(&cache);
}

/* Runs the operator on the set; rows of the answer in the order of the set. */
static f32 *run(struct vx_cpu *cpu, const struct operation *op, const struct set *set)
{
    i32 ci = op->ci;
    i32 co = op->co;
    i64 n = set->n;
    f32 *in = features(set, ci);
    f32 *out = bytes((size_t)(n * co) * sizeof *out);
    f32 *weight = bytes((size_t)(27 * ci * co) * sizeof *weight);
    f32 *bias = bytes((size_t)(ci + co) * sizeof *bias);
    voxels_fill(&(struct voxels_random){31}, weight, (i64)27 * ci * co);
    voxels_fill(&(struct voxels_random){32}, bias, ci + co);
    const struct vx_conv_args conv = {.n = n,
                                      .ci = ci,
                                      .co = co,
                                      .in = in,
                                      .weight = weight,
                                      .bias = bias,
                                      .activation = op->activation,
                                      .out = out};
    const struct vx_linear_args linear = {n,   ci, co, in, weight, bias, op->activation,
                                          out, 0,  0};
    const struct vx_batch_norm_args batch = {n,   ci, in, weight, bias, op->activation,
                                             out, 0,  0};
    const struct vx_layer_norm_args layer = {
        n, ci, 1e-5f, in, weight, bias, op->activation, out, 0, 0};
    const struct vx_activation_args activation = {n, ci, op->activation, in, out};
    const struct vx_pair_args add = {n, ci, in, in, op->activation, out, 0, 0, 0};
    switch (op->kind) {
    case CONV: run_conv(cpu, set, &conv); break;
    case LINEAR: vx_cpu_linear(cpu, &linear); break;
    case BATCH_NORM: vx_cpu_batch_norm(cpu, &batch); break;
    case LAYER_NORM: vx_cpu_layer_norm(cpu, &layer); break;
    case ACTIVATION: vx_cpu_activation(cpu, &activation); break;
    case ADD: vx_cpu_add(cpu, &add); break;
    }
    vx_free(in);
    vx_free(weight);
    vx_free(bias);
    return out;
}

/* Compares the watched request's rows in `set` with the answer it got alone. */
static void check_rows(struct vx_cpu *cpu, const struct operation *op,
                       const struct set *set, const f32 *alone)
{
    f32 *out = run(cpu, op, set);
    size_t row_bytes = (size_t)op->co * sizeof *out;
    i64 compared = 0;
    for (i64 i = 0; i < set->n; i++) {
        if (set->voxel[i] >= VOXELS) continue;
        compared++;
        if (memcmp(out + i * op->co, alone + set->voxel[i] * op->co, row_bytes) != 0)
            ck_abort_msg(
                "%s: operator %d (%d to %d): voxel %d has other bits in row %lld of %lld",
                vx_cpu_name(cpu), (int)op->kind, op->ci, op->co, set->voxel[i],
                (long long)i, (long long)set->n);
    }
    ck_assert_int_ge(compared, 1);
    vx_free(out);
}

static const struct operation operations[] = {
    {CONV, 64, 64, VX_ACTIVATION_SILU},       {CONV, 3, 7, VX_ACTIVATION_NONE},
    {CONV, 20, 33, VX_ACTIVATION_GELU},       {CONV, 130, 70, VX_ACTIVATION_RELU},
    {LINEAR, 64, 64, VX_ACTIVATION_RELU},     {LINEAR, 7, 1, VX_ACTIVATION_SIGMOID},
    {LINEAR, 200, 150, VX_ACTIVATION_GELU},   {BATCH_NORM, 7, 7, VX_ACTIVATION_SILU},
    {LAYER_NORM, 33, 33, VX_ACTIVATION_NONE}, {ACTIVATION, 5, 5, VX_ACTIVATION_GELU},
    {ACTIVATION, 1, 1, VX_ACTIVATION_SILU},   {ADD, 3, 3, VX_ACTIVATION_SIGMOID},
};

static void check_operation(i32 which_cpu, const struct operation *op)
{
    struct vx_cpu *cpu;
    struct set whole = whole_make();
    struct set request = set_of(&whole, whole.voxel, VOXELS);
    if (!cpu_case_open(which_cpu, 1, &cpu)) goto out;
    f32 *alone = run(cpu, op, &request);
    vx_cpu_close(&cpu);
    for (i32 threads = 1; threads <= 3; threads++) {
        struct voxels_random random = {(u64)threads};
        ck_assert(cpu_case_open(which_cpu, threads, &cpu));
        check_rows(cpu, op, &request, alone);
        check_rows(cpu, op, &whole, alone); /* with other requests */
        struct set turned = set_of(&whole, whole.voxel, TOTAL);
        for (i64 i = TOTAL - 1; i > 0; i--) {
            i64 j = voxels_between(&random, 0, (i32)i);
            i32 voxel = turned.voxel[i];
            turned.voxel[i] = turned.voxel[j];
            turned.voxel[j] = voxel;
        }
        struct set shuffled = set_of(&whole, turned.voxel, TOTAL);
        check_rows(cpu, op, &shuffled, alone); /* among them */
        set_free(&turned);
        set_free(&shuffled);
        vx_cpu_close(&cpu);
    }
    vx_free(alone);
out:
    set_free(&whole);
    set_free(&request);
}

START_TEST(test_bits)
{
    for (i32 which_cpu = 0; which_cpu < 4; which_cpu++)
        check_operation(which_cpu, &operations[_i]);
}
END_TEST

/* One voxel without neighbours, by itself and as the last of many. */
START_TEST(test_one_row)
{
    static const struct operation op = {CONV, 64, 20, VX_ACTIVATION_GELU};
    struct vx_cpu *cpu;
    for (i32 which_cpu = 0; cpu_case_open(which_cpu, 2, &cpu); which_cpu++) {
        struct set whole = whole_make();
        struct set one = set_of(&whole, whole.voxel, 1);
        one.coords[1] = whole.coords[1] = VX_AXIS_MAX;
        i32 order[TOTAL];
        for (i32 i = 0; i < TOTAL; i++) order[i] = TOTAL - 1 - i;
        struct set last = set_of(&whole, order, TOTAL);
        f32 *alone = run(cpu, &op, &one);
        f32 *company = run(cpu, &op, &last);
        ck_assert_mem_eq(alone, company + (TOTAL - 1) * op.co,
                         (size_t)op.co * sizeof *alone);
        vx_free(alone);
        vx_free(company);
        set_free(&whole);
        set_free(&one);
        set_free(&last);
        vx_cpu_close(&cpu);
    }
}
END_TEST

/* A brief request passes within a tile, and the watchdog hears of it: the widest takes a second. */
static void count_one(void *context)
{
    ++*(i32 *)context;
}

START_TEST(a_tile_says_that_it_goes_on)
{
    enum { ROWS = 32, OFFSETS = 27, WIDE = 128, LEAST = 2 };
    static f32 in[ROWS * WIDE], weight[OFFSETS * WIDE * WIDE], out[ROWS * WIDE];
    static i32 nbr[OFFSETS * ROWS];
    for (i32 e = 0; e < OFFSETS * ROWS; e++) nbr[e] = e % ROWS;
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        i32 told = 0;
        vx_cpu_tell(cpu, count_one, &told);
        /* One tile, which the caller has; with two groups half of the products. */
        vx_cpu_conv(cpu, &(struct vx_conv_args){.n = ROWS,
                                                .v = OFFSETS,
                                                .ci = WIDE,
                                                .co = WIDE,
                                                .groups = _i,
                                                .nbr = nbr,
                                                .in = in,
                                                .weight = weight,
                                                .out = out});
        ck_assert_int_ge(told, LEAST / _i);
        vx_cpu_tell(cpu, NULL, NULL);
        vx_cpu_close(&cpu);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_bits");
    TCase *cases = tcase_create("cpu_bits");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_bits, 0, (int)VX_COUNT(operations));
    tcase_add_test(cases, test_one_row);
    tcase_add_loop_test(cases, a_tile_says_that_it_goes_on, 1, 3);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
