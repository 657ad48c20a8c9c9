/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"
#include "engine/geometry/geometry.h"
#include "kernels/01_coord_hash.h"
#include "kernels/02_neighbor_map.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_BYTES ((size_t)256 << 20)

static struct vx_cpu *cpu;
static struct vx_geometry_cache *cache;
static struct vx_why why;

static void setup_with(i32 threads, size_t bytes)
{
    ck_assert_ptr_null(vx_cpu_open(threads, &why, &cpu).fault);
    ck_assert_ptr_null(vx_geometry_open(bytes, &why, &cache).fault);
}

static void setup(void)
{
    setup_with(3, CACHE_BYTES);
}

static void teardown(void)
{
    vx_geometry_close(&cache);
    vx_cpu_close(&cpu);
}

static struct vx_geometry *hold(const i32 *coords, i64 n)
{
    struct vx_geometry *geometry;
    const struct vx_coords_view view = {coords, n, 4};
    vx_status status = vx_geometry_hold(cache, cpu, &view, &why, &geometry);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    return geometry;
}

static const struct vx_map *map_of(struct vx_geometry *geometry, struct vx_map_key key)
{
    const struct vx_map *map;
    vx_status status = vx_geometry_map(geometry, cpu, &key, &why, &map);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    return map;
}

/* Every entry of a map against the reference, and the reference's own hash of the rows. */
static void check_map(const i32 *coords, i64 n, const struct vx_map *map)
{
    size_t slots = (size_t)2 << vx_bit_length((u64)n);
    size_t entries = (size_t)(map->v * n);
    struct vx_coord_hash_args hash = {
        .n = n,
        .columns = 4,
        .coords = coords,
        .slots_count = slots,
        .keys = vx_alloc((size_t)n * sizeof(u64)),
        .slots_key = vx_alloc(slots * sizeof(u64)),
        .slots_row = vx_alloc(slots * sizeof(i32)),
    };
    i32 *nbr = vx_alloc(entries * sizeof *nbr);
    vx_coord_hash_ref(&hash);
    ck_assert_int_eq(hash.bad_row, -1);
    ck_assert_int_eq(hash.second, -1);
    struct vx_neighbor_map_args args = {.keys = hash.keys,
                                        .slots_key = hash.slots_key,
                                        .slots_row = hash.slots_row,
                                        .slots_count = slots,
                                        .n = n,
                                        .nbr = nbr};
    memcpy(args.kernel, map->key.kernel, sizeof args.kernel);
    memcpy(args.dilation, map->key.dilation, sizeof args.dilation);
    vx_neighbor_map_ref(&args);
    i64 pairs = 0;
    for (size_t e = 0; e < entries; e++) pairs += nbr[e] >= 0;
    ck_assert_int_eq(map->pairs, pairs);
    ck_assert_int_eq(map->n, n);
    ck_assert_mem_eq(map->nbr, nbr, entries * sizeof *nbr);
    vx_free(hash.keys);
    vx_free(hash.slots_key);
    vx_free(hash.slots_row);
    vx_free(nbr);
}

static const struct vx_map_key kernels[] = {
    {{1, 1, 1}, {1, 1, 1}},          {{3, 3, 3}, {1, 1, 1}},   {{3, 1, 1}, {1, 1, 1}},
    {{1, 1, 3}, {1, 1, 1}},          {{1, 1, 3}, {1, 1, 2}},   {{3, 3, 3}, {2, 2, 2}},
    {{5, 5, 5}, {1, 1, 1}},          {{7, 7, 7}, {1, 1, 1}},   {{3, 5, 1}, {3, 1, 1}},
    {{5, 1, 5}, {1, 1, 3}},          {{343, 1, 1}, {1, 1, 1}}, {{1, 1, 343}, {1, 1, 1}},
    {{3, 3, 3}, {1024, 1024, 1024}},
};

static void check_all_kernels(i32 *coords, i64 n)
{
    struct vx_geometry *geometry = hold(coords, n);
    for (size_t k = 0; k < VX_COUNT(kernels); k++) {
        const struct vx_map *map = map_of(geometry, kernels[k]);
        ck_assert_int_eq(map->v, kernels[k].kernel[0] * kernels[k].kernel[1] *
                                     kernels[k].kernel[2]);
        check_map(coords, n, map);
    }
    vx_geometry_drop(cache, &geometry);
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
    struct vx_geometry *geometry = hold(coords, n);
    const struct vx_map *map = map_of(geometry, kernels[1]);
    ck_assert_double_eq_tol((f64)map->pairs / (f64)n, 12.586, 0.001);
    check_map(coords, n, map);
    vx_geometry_drop(cache, &geometry);
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
    struct vx_geometry *none = hold(NULL, 0);
    const struct vx_map *map = map_of(none, kernels[1]);
    ck_assert_int_eq(map->n, 0);
    ck_assert_int_eq(map->pairs, 0);
    ck_assert_ptr_nonnull(map->nbr);
    struct vx_geometry *one = hold(row, 1);
    map = map_of(one, kernels[1]);
    ck_assert_int_eq(map->pairs, 1);
    check_map(row, 1, map);
    vx_geometry_drop(cache, &none);
    vx_geometry_drop(cache, &one);
    none = hold(row, 0);
    ck_assert(vx_geometry_was_hit(none));
    vx_geometry_drop(cache, &none);
}
END_TEST

START_TEST(test_three_columns_are_sample_0)
{
    const i32 three[] = {1, 2, 3, 4, 5, 6};
    const i32 four[] = {0, 1, 2, 3, 0, 4, 5, 6};
    struct vx_geometry *a, *b;
    ck_assert_ptr_null(
        vx_geometry_hold(cache, cpu, &(struct vx_coords_view){three, 2, 3}, &why, &a)
            .fault);
    b = hold(four, 2);
    ck_assert_ptr_eq(a, b);
    ck_assert(!vx_geometry_was_hit(a)); /* held all the time since the miss */
    vx_geometry_drop(cache, &a);
    vx_geometry_drop(cache, &b);
}
END_TEST

static void check_refused(const i32 *coords, i64 n, i32 columns, const char *sentence)
{
    struct vx_geometry *geometry;
    struct vx_geometry_stats before, after;
    const struct vx_coords_view view = {coords, n, columns};
    vx_geometry_stats_get(cache, &before);
    vx_status status = vx_geometry_hold(cache, cpu, &view, &why, &geometry);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(vx_status_text(status, &why), sentence);
    ck_assert_ptr_null(geometry);
    vx_geometry_stats_get(cache, &after);
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
         "coords row 1, column 0 (sample): expected 0 to 511, got -1"},
        {4,
         {0, 0, 0, 0, 0, 0, 0, 1, 512, 131072, 0, 0},
         "coords row 2, column 0 (sample): expected 0 to 511, got 512"},
        {4,
         {0, 0, 0, 131072, -5, 0, 0, 1, 0, 0, 0, 2},
         "coords row 0, column 3 (z): expected -131072 to 131071, got 131072"},
        {4,
         {0, -2147483647 - 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2},
         "coords row 0, column 1 (x): expected -131072 to 131071, got -2147483648"},
        {3,
         {0, 0, 0, 1, 2147483647, 3},
         "coords row 1, column 1 (y): expected -131072 to 131071, got 2147483647"},
        {3,
         {-131073, 0, 0, 1, 2, 3},
         "coords row 0, column 0 (x): expected -131072 to 131071, got -131073"},
    };
    i64 n = cases[_i].columns == 4 ? 3 : 2;
    check_refused(cases[_i].rows, n, cases[_i].columns, cases[_i].sentence);
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
        "coords row 54321, column 2 (y): expected -131072 to 131071, got 1048576");
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
         "coords rows 0 and 1 are the same voxel (sample 0, x 1, y 2, z 3); each voxel "
         "may appear "
         "once"},
        /* The pair that is complete first, though the other begins earlier. */
        {{7, -1, -2, -3, 0, 5, 5, 5, 0, 5, 5, 5, 7, -1, -2, -3, 0, 0, 0, 0},
         "coords rows 1 and 2 are the same voxel (sample 0, x 5, y 5, z 5); each voxel "
         "may appear "
         "once"},
        {{7, -1, -2, -3, 0, 0, 5, 5, 0, 1, 5, 5, 7, -1, -2, -3, 7, -1, -2, -3},
         "coords rows 0 and 3 are the same voxel (sample 7, x -1, y -2, z -3); each "
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
    (void)snprintf(
        sentence, sizeof sentence,
        "coords rows %d and %d are the same voxel (sample %d, x %d, y %d, z %d); each "
        "voxel may appear once",
        (int)first, (int)(n / 2), at[0], at[1], at[2], at[3]);
    for (int again = 0; again < 3; again++) check_refused(coords, n, 4, sentence);
    vx_free(coords);
}
END_TEST

START_TEST(test_hits)
{
    i32 rows[] = {0, 1, 2, 3, 0, 1, 2, 4};
    struct vx_geometry_stats stats;
    struct vx_geometry *geometry = hold(rows, 2);
    const struct vx_map *map = map_of(geometry, kernels[1]);
    ck_assert(!vx_geometry_was_hit(geometry));
    ck_assert_ptr_eq(map_of(geometry, kernels[1]), map);
    vx_geometry_drop(cache, &geometry);
    geometry = hold(rows, 2);
    ck_assert(vx_geometry_was_hit(geometry));
    ck_assert_ptr_eq(map_of(geometry, kernels[1]), map);
    ck_assert(vx_geometry_was_hit(geometry));
    (void)map_of(geometry, kernels[2]);
    ck_assert(!vx_geometry_was_hit(geometry)); /* a map had to be built */
    vx_geometry_drop(cache, &geometry);
    vx_geometry_stats_get(cache, &stats);
    ck_assert_int_eq(stats.misses, 3);
    ck_assert_int_eq(stats.hits, 3);
    ck_assert_int_eq(stats.evictions, 0);
    ck_assert_int_gt(stats.bytes, 0);
    ck_assert_int_le(stats.bytes, stats.bytes_max);
    /* The same voxels in another order are another geometry: rows are named by place. */
    i32 turned[] = {0, 1, 2, 4, 0, 1, 2, 3};
    geometry = hold(turned, 2);
    ck_assert(!vx_geometry_was_hit(geometry));
    check_map(turned, 2, map_of(geometry, kernels[1]));
    vx_geometry_drop(cache, &geometry);
}
END_TEST

/* With every content hash equal, only the full compare tells sets apart. */
START_TEST(test_collisions)
{
    struct vx_geometry *held[50];
    i32 rows[50][8];
    vx_geometry_weaken(cache, 0);
    for (int round = 0; round < 2; round++) {
        for (i32 i = 0; i < 50; i++) {
            memcpy(rows[i], (i32[]){0, i, 0, 0, 0, 0, i + 1, i % 2}, sizeof rows[i]);
            held[i] = hold(rows[i], 2);
            ck_assert_int_eq(vx_geometry_was_hit(held[i]), round);
            check_map(rows[i], 2, map_of(held[i], kernels[1]));
            for (i32 j = 0; j < i; j++) ck_assert_ptr_ne(held[i], held[j]);
        }
        for (i32 i = 0; i < 50; i++) vx_geometry_drop(cache, &held[i]);
    }
}
END_TEST

START_TEST(test_eviction_oldest_first)
{
    /* Four sets of 3 rows with one map each take 2 pages a set: 8 pages hold them, a fifth set
     * throws out the one that was used least recently. */
    struct vx_geometry_stats stats;
    teardown();
    setup_with(1, 8 * 4096);
    i32 rows[12] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2};
    for (i32 i = 0; i < 4; i++) {
        rows[1] = i;
        struct vx_geometry *geometry = hold(rows, 3);
        (void)map_of(geometry, kernels[1]);
        vx_geometry_drop(cache, &geometry);
    }
    rows[1] = 0; /* 0 is used again: 1 is now the oldest */
    struct vx_geometry *geometry = hold(rows, 3);
    ck_assert(vx_geometry_was_hit(geometry));
    vx_geometry_drop(cache, &geometry);
    rows[1] = 4;
    geometry = hold(rows, 3);
    (void)map_of(geometry, kernels[1]);
    vx_geometry_drop(cache, &geometry);
    vx_geometry_stats_get(cache, &stats);
    ck_assert_int_eq(stats.evictions, 1);
    ck_assert_int_eq(stats.bytes, stats.bytes_max);
    static const struct {
        i32 x;
        bool hit;
    } then[] = {{0, true}, {2, true}, {3, true}, {4, true}, {1, false}};
    for (size_t i = 0; i < VX_COUNT(then); i++) {
        rows[1] = then[i].x;
        geometry = hold(rows, 3);
        ck_assert_int_eq(vx_geometry_was_hit(geometry), then[i].hit);
        vx_geometry_drop(cache, &geometry);
    }
}
END_TEST

START_TEST(test_too_large)
{
    teardown();
    setup_with(2, 16 * 4096);
    i64 n = 10000;
    i32 *coords = vx_alloc_zero((size_t)n * 16);
    struct vx_geometry *geometry, *held;
    const struct vx_map *map;
    struct vx_geometry_stats stats;
    for (i64 i = 0; i < n; i++) coords[i * 4 + 3] = (i32)i;
    const struct vx_coords_view view = {coords, n, 4};
    vx_status status = vx_geometry_hold(cache, cpu, &view, &why, &geometry);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(geometry);
    /* The set fits, its map does not: the set stays held and can be dropped. */
    held = hold(coords, 300);
    status = vx_geometry_map(held, cpu, &kernels[7], &why, &map);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(map);
    check_map(coords, 300, map_of(held, kernels[1]));
    /* What a held set needs is never thrown out. */
    status = vx_geometry_map(held, cpu, &kernels[9], &why, &map);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    check_map(coords, 300, map_of(held, kernels[1]));
    vx_geometry_drop(cache, &held);
    /* Another network's map of the same set makes room for this one's. */
    coords[0] = 1;
    held = hold(coords, 64);
    (void)map_of(held, kernels[6]);
    vx_geometry_drop(cache, &held);
    held = hold(coords, 64);
    ck_assert(vx_geometry_was_hit(held));
    static const size_t others[] = {1, 2, 3, 4, 5, 9};
    for (size_t k = 0; k < VX_COUNT(others); k++)
        check_map(coords, 64, map_of(held, kernels[others[k]]));
    vx_geometry_drop(cache, &held);
    vx_geometry_stats_get(cache, &stats);
    ck_assert_int_ge(stats.evictions, 2);
    vx_free(coords);
}
END_TEST

/* More sets than entries: the table turns over and nothing leaks. */
START_TEST(test_more_sets_than_entries)
{
    i32 row[4] = {0, 0, 0, 0};
    struct vx_geometry_stats stats;
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX + 100; i++) {
        row[1] = i;
        struct vx_geometry *geometry = hold(row, 1);
        ck_assert(!vx_geometry_was_hit(geometry));
        vx_geometry_drop(cache, &geometry);
    }
    vx_geometry_stats_get(cache, &stats);
    ck_assert_int_eq(stats.evictions, 100);
    ck_assert_int_eq(stats.bytes, VX_GEOMETRY_ENTRIES_MAX * 4096);
}
END_TEST

START_TEST(test_open_refuses)
{
    struct vx_geometry_cache *none = (struct vx_geometry_cache *)1;
    ck_assert_int_eq(vx_status_code(vx_geometry_open(4095, &why, &none)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(vx_status_code(vx_geometry_open((size_t)1 << 62, &why, &none)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(none);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry");
    TCase *cases = tcase_create("geometry");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_maps_of_a_shell, 0, 3);
    tcase_add_test(cases, test_neighbors_of_the_benchmark_shell);
    tcase_add_loop_test(cases, test_maps_of_a_scan, 0, 2);
    tcase_add_test(cases, test_maps_at_the_limits);
    tcase_add_test(cases, test_dense_block);
    tcase_add_test(cases, test_nothing_and_one);
    tcase_add_test(cases, test_three_columns_are_sample_0);
    tcase_add_loop_test(cases, test_out_of_range, 0, 6);
    tcase_add_test(cases, test_first_bad_row_of_many);
    tcase_add_loop_test(cases, test_duplicates, 0, 3);
    tcase_add_loop_test(cases, test_first_duplicate_of_many, 0, 2);
    tcase_add_test(cases, test_hits);
    tcase_add_test(cases, test_collisions);
    tcase_add_test(cases, test_eviction_oldest_first);
    tcase_add_test(cases, test_too_large);
    tcase_add_test(cases, test_more_sets_than_entries);
    tcase_add_test(cases, test_open_refuses);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
