/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/geometry.h"
#include "tests/support/geometry_rig.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_open(3, (size_t)256 << 20);
}

static void check_all_kernels(i32 *coords, i64 n)
{
    struct vx_geometry *geometry = rig_hold(coords, n);
    for (size_t k = 0; k < RIG_KERNELS; k++) {
        const struct vx_map *map = rig_map(geometry, rig_kernels[k]);
        ck_assert_int_eq(map->v, rig_kernels[k].kernel[0] * rig_kernels[k].kernel[1] *
                                     rig_kernels[k].kernel[2]);
        rig_check_map(coords, n, map);
    }
    vx_geometry_drop(rig.cache, &geometry);
    ck_assert_ptr_null(geometry);
}

START_TEST(test_maps_of_a_shell)
{
    static const i64 expected[] = {192, 848, 3840};
    i32 res = 8 << _i;
    i64 n = voxels_shell(res, NULL);
    ck_assert_int_eq(n, expected[_i]);
    i32 *coords = vx_alloc((size_t)n * 16);
    voxels_shell(res, coords);
    check_all_kernels(coords, n); /* already sorted */
    voxels_shuffle(&(struct voxels_random){7}, coords, n);
    check_all_kernels(coords, n);
    vx_free(coords);
}
END_TEST

START_TEST(test_neighbors_of_the_benchmark_shell)
{
    i64 n = voxels_shell(64, NULL);
    ck_assert_int_eq(n, 15192);
    i32 *coords = vx_alloc((size_t)n * 16);
    voxels_shell(64, coords);
    struct vx_geometry *geometry = rig_hold(coords, n);
    const struct vx_map *map = rig_map(geometry, rig_kernels[1]);
    ck_assert_double_eq_tol((f64)map->pairs / (f64)n, 12.586, 0.001);
    rig_check_map(coords, n, map);
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(coords);
}
END_TEST

START_TEST(test_maps_of_a_scan)
{
    i64 n = 20000;
    i32 *coords = vx_alloc((size_t)n * 16);
    struct voxels_random random = {(u64)_i + 1};
    voxels_scan(&random, n, coords);
    if (_i) /* several samples in one set: neighbours never cross */
        for (i64 i = 0; i < n; i++)
            coords[i * 4] = voxels_between(&random, 0, VX_SAMPLE_MAX);
    check_all_kernels(coords, n);
    vx_free(coords);
}
END_TEST

/* All corners and edges of the range: nothing may wrap around into the next axis or sample. */
START_TEST(test_maps_at_the_limits)
{
    static const i32 ends[] = {VX_AXIS_MIN, VX_AXIS_MIN + 1, -1,
                               0,           VX_AXIS_MAX - 1, VX_AXIS_MAX};
    static const i32 samples[] = {0, 1, VX_SAMPLE_MAX};
    i32 coords[3 * 6 * 6 * 6 * 4];
    i64 n = 0;
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 6 * 6 * 6; i++, n++)
            memcpy(coords + n * 4,
                   (i32[]){samples[s], ends[i / 36], ends[i / 6 % 6], ends[i % 6]}, 16);
    check_all_kernels(coords, n);
    voxels_shuffle(&(struct voxels_random){3}, coords, n);
    check_all_kernels(coords, n);
}
END_TEST

/* Boxes of voxels that touch one end of one axis and nothing else: that end alone must cause the
 * careful neighbour lookup.  At the least x of sample 0 the key of a neighbour wraps around to the
 * largest of all, and the lookups after it would find nothing. */
START_TEST(test_maps_at_one_end)
{
    static const i32 samples[] = {0, 1, VX_SAMPLE_MAX};
    const i32 axis = _i / 2, end = _i % 2 ? VX_AXIS_MAX - 3 : VX_AXIS_MIN;
    i32 coords[3 * 64 * 4];
    for (i32 i = 0; i < 3 * 64; i++) {
        i32 at[4] = {samples[i / 64], i / 16 % 4, i / 4 % 4, i % 4};
        at[axis + 1] += end;
        memcpy(coords + i * 4, at, sizeof at);
    }
    check_all_kernels(coords, 3 * 64);
    voxels_shuffle(&(struct voxels_random){5}, coords, 3 * 64);
    check_all_kernels(coords, 3 * 64);
}
END_TEST

/* Rows are ascending but for one place, wherever the work is divided: the set is not sorted. */
START_TEST(test_one_fall)
{
    static const i64 places[] = {1, 4095, 4096, 4097, 8192, 9999};
    i64 n = 10000;
    i32 *coords = vx_alloc_zero((size_t)n * 16);
    for (i64 i = 0; i < n; i++)
        coords[i * 4 + 3] = (i32)(i < places[_i] ? i + 20000 : i - 5000);
    struct vx_geometry *geometry = rig_hold(coords, n);
    rig_check_map(coords, n, rig_map(geometry, rig_kernels[1]));
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(coords);
}
END_TEST

START_TEST(test_dense_block)
{
    static i32 coords[12 * 12 * 12 * 4];
    for (i32 i = 0; i < 12 * 12 * 12; i++)
        memcpy(coords + i * 4, (i32[]){5, i / 144 - 6, i / 12 % 12 - 6, i % 12 - 6}, 16);
    check_all_kernels(coords, 12 * 12 * 12);
}
END_TEST

START_TEST(test_nothing_and_one)
{
    const i32 row[4] = {511, -7, 0, 9};
    struct vx_geometry *none = rig_hold(NULL, 0);
    const struct vx_map *map = rig_map(none, rig_kernels[1]);
    ck_assert_int_eq(map->n, 0);
    ck_assert_int_eq(map->pairs, 0);
    ck_assert_ptr_nonnull(map->nbr);
    struct vx_geometry *one = rig_hold(row, 1);
    map = rig_map(one, rig_kernels[1]);
    ck_assert_int_eq(map->pairs, 1);
    rig_check_map(row, 1, map);
    vx_geometry_drop(rig.cache, &none);
    vx_geometry_drop(rig.cache, &one);
    none = rig_hold(row, 0);
    ck_assert(vx_geometry_was_hit(none));
    vx_geometry_drop(rig.cache, &none);
}
END_TEST

START_TEST(test_three_columns_are_sample_0)
{
    const i32 three[] = {1, 2, 3, 4, 5, 6};
    const i32 four[] = {0, 1, 2, 3, 0, 4, 5, 6};
    struct vx_geometry *a, *b;
    /* Their coords_refs differ, so both are kept; their voxels are the same. */
    const struct vx_coords_view view = rig_view(three, 2, 3);
    ck_assert_ptr_null(vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &a).fault);
    b = rig_hold(four, 2);
    ck_assert_ptr_ne(a, b);
    rig_check_map(four, 2, rig_map(a, rig_kernels[1]));
    rig_check_map(four, 2, rig_map(b, rig_kernels[1]));
    /* Held by the coords_ref of the other, they are one geometry. */
    struct vx_coords_view other = view;
    struct vx_geometry *c;
    other.coords_ref = rig_view(four, 2, 4).coords_ref;
    ck_assert_ptr_null(vx_geometry_hold(rig.cache, rig.cpu, &other, &rig.why, &c).fault);
    ck_assert_ptr_eq(b, c);
    vx_geometry_drop(rig.cache, &c);
    vx_geometry_drop(rig.cache, &a);
    vx_geometry_drop(rig.cache, &b);
}
END_TEST

static void check_refused(const i32 *coords, i64 n, i32 columns, const char *sentence)
{
    struct vx_geometry *geometry;
    struct vx_geometry_stats before, after;
    const struct vx_coords_view view = rig_view(coords, n, columns);
    vx_geometry_stats_get(rig.cache, &before);
    vx_status status = vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(vx_status_text(status, &rig.why), sentence);
    ck_assert_ptr_null(geometry);
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(before.bytes, after.bytes); /* nothing is left behind */
}

START_TEST(test_out_of_range)
{
    static const struct {
        i32 columns;
        i32 rows[12];
        const char *sentence;
    } cases[] = {
        {4,
         {0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 1},
         "coords row 1, column 0 (the sample index): expected 0 to 511, got "
         "-1"},
        {4,
         {0, 0, 0, 0, 0, 0, 0, 1, 512, 131072, 0, 0},
         "coords row 2, column 0 (the sample index): expected 0 to 511, got "
         "512"},
        {4,
         {0, 0, 0, 131072, -5, 0, 0, 1, 0, 0, 0, 2},
         "coords row 0, column 3 (a voxel coordinate): expected -131072 to 131071, got "
         "131072; subtract a common origin from all coordinates"},
        {4,
         {0, -2147483647 - 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2},
         "coords row 0, column 1 (a voxel coordinate): expected -131072 to 131071, got "
         "-2147483648; subtract a common origin from all coordinates"},
        {3,
         {0, 0, 0, 1, 2147483647, 3},
         "coords row 1, column 1 (a voxel coordinate): expected -131072 to 131071, got "
         "2147483647; subtract a common origin from all coordinates"},
        {3,
         {-131073, 0, 0, 1, 2, 3},
         "coords row 0, column 0 (a voxel coordinate): expected -131072 to 131071, got "
         "-131073; subtract a common origin from all coordinates"},
    };
    i64 n = cases[_i].columns == 4 ? 3 : 2;
    check_refused(cases[_i].rows, n, cases[_i].columns, cases[_i].sentence);
}
END_TEST

/* One step beyond each end of each column, and nothing else; the end itself is good. */
START_TEST(test_one_beyond_each_end)
{
    const i32 field = _i / 2;
    const i32 least = field ? VX_AXIS_MIN : 0, most = field ? VX_AXIS_MAX : VX_SAMPLE_MAX;
    const i32 end = _i % 2 ? most : least, beyond = _i % 2 ? end + 1 : end - 1;
    char sentence[160];
    for (i32 columns = field ? 3 : 4; columns <= 4; columns++) {
        i32 coords[3 * 4] = {0};
        const i32 column = field + columns - 4;
        for (i32 i = 0; i < 3; i++) coords[i * columns + columns - 1] = i;
        coords[1 * columns + column] = end;
        const struct vx_coords_view view = rig_view(coords, 3, columns);
        struct vx_geometry *geometry;
        ck_assert_ptr_null(
            vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry).fault);
        vx_geometry_drop(rig.cache, &geometry);
        coords[1 * columns + column] = beyond;
        (void)snprintf(sentence, sizeof sentence,
                       "coords row 1, column %d (%s): expected %d to %d, got %d%s",
                       column, field ? "a voxel coordinate" : "the sample index", least,
                       most, beyond,
                       field ? "; subtract a common origin from all coordinates" : "");
        check_refused(coords, 3, columns, sentence);
    }
}
END_TEST

/* The first of many bad rows, whichever thread meets one first. */
START_TEST(test_first_bad_row_of_many)
{
    i64 n = 100000;
    i32 *coords = vx_alloc_zero((size_t)n * 16);
    for (i64 i = 0; i < n; i++) coords[i * 4 + 1] = (i32)i;
    for (i64 i = 54321; i < n; i++) coords[i * 4 + 2] = 1 << 20;
    check_refused(
        coords, n, 4,
        "coords row 54321, column 2 (a voxel coordinate): expected -131072 "
        "to 131071, got 1048576; subtract a common origin from all coordinates");
    vx_free(coords);
}
END_TEST

START_TEST(test_duplicates)
{
    static const struct {
        i32 rows[20];
        const char *sentence;
    } cases[] = {
        {{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 9, 9, 9, 0, 9, 9, 9},
         "coords rows 0 and 1 are the same voxel (sample 0, last three columns 1, 2, 3); "
         "each voxel "
         "may appear "
         "once"},
        /* The pair whose second row comes first, though the other pair begins earlier. */
        {{7, -1, -2, -3, 0, 5, 5, 5, 0, 5, 5, 5, 7, -1, -2, -3, 0, 0, 0, 0},
         "coords rows 1 and 2 are the same voxel (sample 0, last three columns 5, 5, 5); "
         "each voxel "
         "may appear "
         "once"},
        {{7, -1, -2, -3, 0, 0, 5, 5, 0, 1, 5, 5, 7, -1, -2, -3, 7, -1, -2, -3},
         "coords rows 0 and 3 are the same voxel (sample 7, last three columns -1, -2, "
         "-3); each "
         "voxel may "
         "appear once"},
    };
    check_refused(cases[_i].rows, 5, 4, cases[_i].sentence);
}
END_TEST

START_TEST(test_first_duplicate_of_many)
{
    i64 n = 60000;
    i32 *coords = vx_alloc((size_t)n * 16);
    char sentence[256];
    struct voxels_random random = {(u64)_i + 11};
    voxels_scan(&random, n, coords);
    /* Rows from 30000 on repeat rows before 30000 in another order; row 30000 comes first. */
    for (i64 i = n / 2; i < n; i++)
        memcpy(coords + i * 4, coords + (i * 7919 % (n / 2)) * 4, 16);
    i64 first = n / 2 * 7919 % (n / 2);
    const i32 *at = coords + first * 4;
    (void)snprintf(sentence, sizeof sentence,
                   "coords rows %d and %d are the same voxel (sample %d, last three "
                   "columns %d, %d, %d); each "
                   "voxel may appear once",
                   (int)first, (int)(n / 2), at[0], at[1], at[2], at[3]);
    for (int again = 0; again < 3; again++) check_refused(coords, n, 4, sentence);
    vx_free(coords);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry");
    TCase *cases = tcase_create("geometry");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, rig_close);
    tcase_add_loop_test(cases, test_maps_of_a_shell, 0, 3);
    tcase_add_test(cases, test_neighbors_of_the_benchmark_shell);
    tcase_add_loop_test(cases, test_maps_of_a_scan, 0, 2);
    tcase_add_test(cases, test_maps_at_the_limits);
    tcase_add_loop_test(cases, test_maps_at_one_end, 0, 6);
    tcase_add_loop_test(cases, test_one_fall, 0, 6);
    tcase_add_test(cases, test_dense_block);
    tcase_add_test(cases, test_nothing_and_one);
    tcase_add_test(cases, test_three_columns_are_sample_0);
    tcase_add_loop_test(cases, test_out_of_range, 0, 6);
    tcase_add_loop_test(cases, test_one_beyond_each_end, 0, 8);
    tcase_add_test(cases, test_first_bad_row_of_many);
    tcase_add_loop_test(cases, test_duplicates, 0, 3);
    tcase_add_loop_test(cases, test_first_duplicate_of_many, 0, 2);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
