/* Points to voxels and back, against the references, which are worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/cpu/device/cpu.h"
#include "kernels/01_coord_hash.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND 16 /* numbers behind a result, which nobody may write */

/* Three points of voxel 1, of which one stands first; voxel 0 has none, one point no voxel. */
START_TEST(means_by_hand)
{
    const i32 order[] = {3, 1, 0, 2}, voxels[] = {1, -1, 1, 1};
    const f32 in[] = {1, 2, 100, 200, 3, 4, 5, 6};
    f32 out[4] = {9, 9, 9, 9};
    const f32 expected[4] = {0, 0, 3, 4};
    vx_voxelize_ref(&(struct vx_voxelize_args){
        .n = 4, .m = 2, .c = 2, .order = order, .voxels = voxels, .in = in, .out = out});
    ck_assert_mem_eq(out, expected, sizeof out);
}
END_TEST

/* Stride 2x1x4: the point (-1, 0, 5) lies half way from corner -1 to 0 of x, on corner 0 of y,
 * and 1/4 of the way from corner 1 to 2 of z.  Of the four that count, one has no voxel. */
START_TEST(corners_by_hand)
{
    const u64 keys[] = {vx_key_pack(3, -1, 0, 5)};
    const i32 rows[] = {0}, voxels[8] = {2, -1, 1, 1, 0, 3, 1, 1};
    const f32 in[] = {10, 99, 100, 1000};
    f32 out[1];
    vx_devoxelize_ref(&(struct vx_devoxelize_args){.n = 1,
                                                   .c = 1,
                                                   .stride = {2, 1, 4},
                                                   .keys = keys,
                                                   .rows = rows,
                                                   .voxels = voxels,
                                                   .in = in,
                                                   .out = out});
    /* 3/8 of row 2, 3/8 of row 0, 1/8 of row 3, divided by 7/8 */
    ck_assert(fabs((f64)out[0] - (37.5 + 3.75 + 125) / (0.875 + 1e-8)) < 1e-4);
}
END_TEST

static const struct {
    i64 n, m;
    i32 c, run; /* points of one voxel */
} cases[] = {{0, 3, 5, 1},       {1, 1, 1, 1},      {700, 700, 3, 1},  {5000, 40, 7, 200},
             {9000, 2, 1, 8000}, {800, 250, 64, 4}, {600, 77, 129, 9}, {40, 5, 3000, 10}};

struct points {
    i64 n, m;
    i32 c, *order, *voxels, *corners, *rows;
    u64 *keys;
    f32 *points, *in;
};

/* Points whose voxels come in runs, some with none; keys are any. */
static void points_open(i32 index, struct points *it)
{
    struct voxels_random random = {(u64)index + 3};
    *it = (struct points){.n = cases[index].n, .m = cases[index].m, .c = cases[index].c};
    size_t n = (size_t)it->n + 1, c = (size_t)it->c;
    it->order = vx_alloc(n * sizeof(i32));
    it->voxels = vx_alloc(n * sizeof(i32));
    it->corners = vx_alloc(n * VX_CORNERS * sizeof(i32));
    it->rows = vx_alloc(n * sizeof(i32));
    it->keys = vx_alloc(n * sizeof(u64));
    it->points = vx_alloc(n * c * sizeof(f32));
    it->in = vx_alloc((size_t)it->m * c * sizeof(f32));
    voxels_fill(&random, it->points, it->n * it->c);
    voxels_fill(&random, it->in, it->m * it->c);
    for (i64 i = 0; i < it->n; i++) {
        it->rows[i] = it->order[i] = (i32)(it->n - 1 - i);
        it->keys[i] = vx_key_pack(0, voxels_between(&random, -50, 48),
                                  voxels_between(&random, 0, 98), -(i32)i);
        i64 voxel = i / cases[index].run;
        it->voxels[it->order[i]] = voxel % 7 == 3 || voxel >= it->m ? -1 : (i32)voxel;
    }
    for (i64 i = 0; i < it->n * VX_CORNERS; i++)
        it->corners[i] = voxels_between(&random, -2, (i32)it->m - 1);
    for (i64 i = 0; i < it->n * VX_CORNERS; i++)
        if (it->corners[i] < 0) it->corners[i] = -1;
}

static void points_close(struct points *it)
{
    vx_free(it->order);
    vx_free(it->voxels);
    vx_free(it->corners);
    vx_free(it->rows);
    vx_free(it->keys);
    vx_free(it->points);
    vx_free(it->in);
}

static f32 *result_open(i64 count)
{
    f32 *out = vx_alloc((size_t)(count + BEHIND) * sizeof *out);
    memset(out, 0xff, (size_t)(count + BEHIND) * sizeof *out);
    return out;
}

/* f64 sums, one rounding: another order of f64 sums moves less than that. */
START_TEST(means_are_those_of_the_reference)
{
    struct points it;
    struct vx_cpu *cpu;
    points_open(_i, &it);
    i64 count = it.m * it.c;
    f32 *expected = result_open(count);
    struct vx_voxelize_args args = {.n = it.n,
                                    .m = it.m,
                                    .c = it.c,
                                    .order = it.order,
                                    .voxels = it.voxels,
                                    .in = it.points,
                                    .out = expected};
    vx_voxelize_ref(&args);
    for (i32 i = 0; cpu_case_open(i, 1 + i % 3, &cpu); i++) {
        args.out = result_open(count);
        vx_cpu_voxelize(cpu, &args);
        vx_cpu_close(&cpu);
        for (i64 e = 0; e < count; e++)
            ck_assert(fabs((f64)args.out[e] - (f64)expected[e]) <=
                      2 * CPU_ROUND * fabs((f64)expected[e]) + 1e-12);
        ck_assert_mem_eq(args.out + count, expected + count, BEHIND * sizeof(f32));
        vx_free(args.out);
    }
    vx_free(expected);
    points_close(&it);
}
END_TEST

/* 29 roundings of a weighted sum of numbers between -1 and 1 (network_oracle_points.c), before
 * the activation, whose slope is at most 1.2. */
START_TEST(points_are_those_of_the_reference)
{
    static const enum vx_activation activations[] = {
        VX_ACTIVATION_NONE, VX_ACTIVATION_RELU, VX_ACTIVATION_SILU};
    static const i32 strides[][3] = {{1, 1, 1}, {2, 3, 4096}, {16, 16, 16}};
    struct points it;
    struct vx_cpu *cpu;
    points_open(_i / 3, &it);
    i64 count = it.n * it.c;
    f32 *expected = result_open(count);
    struct vx_devoxelize_args args = {.n = it.n,
                                      .c = it.c,
                                      .keys = it.keys,
                                      .rows = it.rows,
                                      .voxels = it.corners,
                                      .in = it.in,
                                      .activation = activations[_i % 3],
                                      .out = expected};
    memcpy(args.stride, strides[_i % 3], sizeof args.stride);
    vx_devoxelize_ref(&args);
    for (i32 i = 0; cpu_case_open(i, 1 + i % 3, &cpu); i++) {
        args.out = result_open(count);
        vx_cpu_devoxelize(cpu, &args);
        vx_cpu_close(&cpu);
        for (i64 e = 0; e < count; e++) {
            f64 y = (f64)expected[e];
            ck_assert(fabs((f64)args.out[e] - y) <=
                      1.2 * 32 * CPU_ROUND +
                          cpu_activation_bound(args.activation, 1.0, y));
        }
        ck_assert_mem_eq(args.out + count, expected + count, BEHIND * sizeof(f32));
        vx_free(args.out);
    }
    vx_free(expected);
    points_close(&it);
}
END_TEST

/* A row of weight 0 may be infinite: it is not read. */
START_TEST(a_corner_without_weight_is_not_read)
{
    const u64 keys[] = {vx_key_pack(0, 4, -8, 12)};
    const i32 rows[] = {0}, voxels[8] = {0, 1, 1, 1, 1, 1, 1, 1};
    const f32 in[] = {2.5f, INFINITY};
    f32 out[1];
    struct vx_cpu *cpu;
    struct vx_why why = {{0}};
    ck_assert(!vx_cpu_open(1, &why, &cpu).fault);
    vx_cpu_devoxelize(cpu, &(struct vx_devoxelize_args){.n = 1,
                                                        .c = 1,
                                                        .stride = {4, 4, 4},
                                                        .keys = keys,
                                                        .rows = rows,
                                                        .voxels = voxels,
                                                        .in = in,
                                                        .out = out});
    vx_cpu_close(&cpu);
    ck_assert(fabs((f64)out[0] - 2.5) < 1e-6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_points");
    TCase *tcase = tcase_create("cpu_points");
    tcase_add_test(tcase, means_by_hand);
    tcase_add_test(tcase, corners_by_hand);
    tcase_add_loop_test(tcase, means_are_those_of_the_reference, 0, VX_COUNT(cases));
    tcase_add_loop_test(tcase, points_are_those_of_the_reference, 0, 3 * VX_COUNT(cases));
    tcase_add_test(tcase, a_corner_without_weight_is_not_read);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
