/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/cpu/geometry/geometry.h"
#include "tests/support/geometry_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_open(3, (size_t)256 << 20);
}

START_TEST(test_hits)
{
    i32 rows[] = {0, 1, 2, 3, 0, 1, 2, 4};
    struct vx_geometry_stats stats;
    struct vx_geometry *geometry = rig_hold(rows, 2);
    const struct vx_map *map = rig_map(geometry, rig_kernels[1]);
    ck_assert(!vx_geometry_was_hit(geometry));
    ck_assert_ptr_eq(rig_map(geometry, rig_kernels[1]), map);
    vx_geometry_drop(rig.cache, &geometry);
    geometry = rig_hold(rows, 2);
    ck_assert(vx_geometry_was_hit(geometry));
    ck_assert_ptr_eq(rig_map(geometry, rig_kernels[1]), map);
    ck_assert(vx_geometry_was_hit(geometry));
    (void)rig_map(geometry, rig_kernels[2]);
    ck_assert(!vx_geometry_was_hit(geometry)); /* a map had to be built */
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.misses, 3);
    ck_assert_int_eq(stats.hits, 3);
    ck_assert_int_eq(stats.evictions, 0);
    ck_assert_int_gt(stats.bytes, 0);
    ck_assert_int_le(stats.bytes, stats.bytes_max);
    /* The same voxels in another order are another geometry: rows are identified by position. */
    i32 turned[] = {0, 1, 2, 4, 0, 1, 2, 3};
    geometry = rig_hold(turned, 2);
    ck_assert(!vx_geometry_was_hit(geometry));
    rig_check_map(turned, 2, rig_map(geometry, rig_kernels[1]));
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

/* When all hashes are equal, only the full comparison tells sets apart. */
START_TEST(test_collisions)
{
    struct vx_geometry *held[50];
    i32 rows[50][8];
    vx_geometry_weaken(rig.cache, 0);
    for (int round = 0; round < 2; round++) {
        for (i32 i = 0; i < 50; i++) {
            memcpy(rows[i], (i32[]){0, i, 0, 0, 0, 0, i + 1, i % 2}, sizeof rows[i]);
            held[i] = rig_hold(rows[i], 2);
            ck_assert_int_eq(vx_geometry_was_hit(held[i]), round);
            rig_check_map(rows[i], 2, rig_map(held[i], rig_kernels[1]));
            for (i32 j = 0; j < i; j++) ck_assert_ptr_ne(held[i], held[j]);
        }
        for (i32 i = 0; i < 50; i++) vx_geometry_drop(rig.cache, &held[i]);
    }
}
END_TEST

START_TEST(test_eviction_oldest_first)
{
    /* Four sets of 3 rows with one map each take 2 pages a set: 8 pages hold them, a fifth set
     * throws out the one that was used least recently. */
    struct vx_geometry_stats stats;
    rig_close();
    rig_open(1, 8 * 4096);
    i32 rows[12] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2};
    for (i32 i = 0; i < 4; i++) {
        rows[1] = i;
        struct vx_geometry *geometry = rig_hold(rows, 3);
        (void)rig_map(geometry, rig_kernels[1]);
        vx_geometry_drop(rig.cache, &geometry);
    }
    rows[1] = 0; /* 0 is used again: 1 is now the oldest */
    struct vx_geometry *geometry = rig_hold(rows, 3);
    ck_assert(vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
    rows[1] = 4;
    geometry = rig_hold(rows, 3);
    (void)rig_map(geometry, rig_kernels[1]);
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.evictions, 1);
    ck_assert_int_eq(stats.bytes, stats.bytes_max);
    static const struct {
        i32 x;
        bool hit;
    } then[] = {{0, true}, {2, true}, {3, true}, {4, true}, {1, false}};
    for (size_t i = 0; i < VX_COUNT(then); i++) {
        rows[1] = then[i].x;
        geometry = rig_hold(rows, 3);
        ck_assert_int_eq(vx_geometry_was_hit(geometry), then[i].hit);
        vx_geometry_drop(rig.cache, &geometry);
    }
}
END_TEST

START_TEST(test_too_large)
{
    rig_close();
    rig_open(2, 16 * 4096);
    i64 n = 10000;
    i32 *coords = vx_alloc_zero((size_t)n * 16);
    struct vx_geometry *geometry, *held;
    const struct vx_map *map;
    struct vx_geometry_stats stats;
    for (i64 i = 0; i < n; i++) coords[i * 4 + 3] = (i32)i;
    const struct vx_coords_view view = rig_view(coords, n, 4);
    vx_status status = vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(geometry);
    /* The set fits, its map does not: the set stays held and can be dropped. */
    held = rig_hold(coords, 300);
    status = vx_geometry_map(held, rig.cpu, &rig_kernels[7], &rig.why, &map);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(map);
    rig_check_map(coords, 300, rig_map(held, rig_kernels[1]));
    /* A map of a held set is never discarded. */
    status = vx_geometry_map(held, rig.cpu, &rig_kernels[9], &rig.why, &map);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    rig_check_map(coords, 300, rig_map(held, rig_kernels[1]));
    vx_geometry_drop(rig.cache, &held);
    /* Another network's map of the same set is discarded to make room for this one's. */
    coords[0] = 1;
    held = rig_hold(coords, 64);
    (void)rig_map(held, rig_kernels[6]);
    vx_geometry_drop(rig.cache, &held);
    held = rig_hold(coords, 64);
    ck_assert(vx_geometry_was_hit(held));
    static const size_t others[] = {1, 2, 3, 4, 5, 9};
    for (size_t k = 0; k < VX_COUNT(others); k++)
        rig_check_map(coords, 64, rig_map(held, rig_kernels[others[k]]));
    vx_geometry_drop(rig.cache, &held);
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_ge(stats.evictions, 2);
    vx_free(coords);
}
END_TEST

/* 49 pages of 48 never fit, and nothing is discarded for them.  33 fit, though a block of 64 does
 * not: what they need is discarded, and no more. */
START_TEST(test_never_fits)
{
    rig_close();
    rig_open(1, 48 * 4096);
    i64 n = 49 * 4096 / 12 - 1;
    i32 *coords = vx_alloc_zero((size_t)n * 16);
    struct vx_geometry *geometry;
    struct vx_geometry_stats stats;
    for (i64 i = 0; i < n; i++) coords[i * 4 + 3] = (i32)i;
    for (i32 i = 0; i < 40; i++) {
        geometry = rig_hold((i32[]){0, i, 0, 0}, 1);
        vx_geometry_drop(rig.cache, &geometry);
    }
    const struct vx_coords_view view = rig_view(coords, n, 4);
    vx_status status = vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.evictions, 0);
    ck_assert_int_eq(stats.bytes, 40 * 4096);
    ck_assert_str_eq(rig.why.text,
                     "the geometry needs 200700 bytes more in the geometry cache, "
                     "cache_bytes is 196608");
    geometry = rig_hold(coords, 33 * 4096 / 12 - 1);
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.evictions, 40 + 33 - 48);
    ck_assert_int_eq(stats.bytes, 48 * 4096);
    for (i32 i = 0; i <= 48 - 33; i++) { /* the last that were used stay */
        geometry = rig_hold((i32[]){0, 39 - i, 0, 0}, 1);
        ck_assert_int_eq(vx_geometry_was_hit(geometry), i < 48 - 33);
        vx_geometry_drop(rig.cache, &geometry);
    }
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
        struct vx_geometry *geometry = rig_hold(row, 1);
        ck_assert(!vx_geometry_was_hit(geometry));
        vx_geometry_drop(rig.cache, &geometry);
    }
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.evictions, 100);
    ck_assert_int_eq(stats.bytes, VX_GEOMETRY_ENTRIES_MAX * 4096);
}
END_TEST

/* The same voxels in ever new shapes, as many as there are entries for sets and more: the geometry
 * gives up sets of its own, and another one stays. */
START_TEST(test_ever_new_shapes)
{
    const i32 row[4] = {0, 1, 2, 3};
    struct vx_geometry_stats stats;
    struct vx_set_key key = {.kernel = {3, 3, 3},
                             .dilation = {1, 1, 1},
                             .stride = {2, 2, 2},
                             .padding = {1, 1, 1},
                             .shape = {0, 100, 100},
                             .rule = VX_SET_SPCONV};
    struct vx_geometry *other = rig_hold((i32[]){0, 8, 8, 8}, 1);
    vx_geometry_drop(rig.cache, &other);
    const i32 shapes = VX_GEOMETRY_SETS_MAX + 100;
    for (i32 i = 0; i < shapes; i++) {
        struct vx_geometry *geometry = rig_hold(row, 1);
        struct vx_geometry_made made = {0};
        key.shape[0] = 10 + i;
        ck_assert(!vx_geometry_set(geometry, rig.cpu, &key, &rig.why, &made).fault);
        ck_assert_int_eq(vx_geometry_rows(geometry, made.number), 4);
        vx_geometry_drop(rig.cache, &geometry);
    }
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.evictions,
                     (shapes - 1) / VX_GEOMETRY_OWN_SETS * VX_GEOMETRY_OWN_SETS);
    other = rig_hold((i32[]){0, 8, 8, 8}, 1);
    ck_assert(vx_geometry_was_hit(other));
    vx_geometry_drop(rig.cache, &other);
}
END_TEST

/* As many maps as there are entries, all in use: one more is refused and discards nothing.  The
 * others can still be used, and a map that is dropped makes room. */
START_TEST(test_more_maps_than_entries)
{
    i32 row[4] = {0, 0, 0, 0};
    struct vx_geometry_stats before, after;
    struct vx_geometry *bare = rig_hold((i32[]){0, 8, 8, 8}, 1);
    struct vx_geometry *geometry, *other = rig_hold((i32[]){0, 7, 7, 7}, 1);
    const struct vx_map *map;
    (void)rig_map(other, rig_kernels[1]);
    geometry = rig_hold(row, 1);
    for (i32 i = 1; i < VX_GEOMETRY_MAPS_MAX; i++)
        (void)rig_map(geometry,
                      (struct vx_map_key){.kernel = {3, 3, 1},
                                          .dilation = {1 + i % 1000, 1 + i / 1000, 1}});
    vx_geometry_stats_get(rig.cache, &before);
    for (int again = 0; again < 3; again++) {
        vx_status status =
            vx_geometry_map(geometry, rig.cpu, &rig_kernels[1], &rig.why, &map);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_ptr_nonnull(
            strstr(rig.why.text, "neighbour maps may be in use at once"));
        ck_assert_ptr_null(map);
    }
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(after.bytes, before.bytes);
    ck_assert_int_eq(after.misses, before.misses);
    ck_assert_int_eq(after.evictions, 0);
    /* The oldest set is discarded first, though it has no map that would free an entry. */
    vx_geometry_drop(rig.cache, &bare);
    vx_geometry_drop(rig.cache, &other);
    rig_check_map(row, 1, rig_map(geometry, rig_kernels[1]));
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(after.evictions, 2);
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

START_TEST(test_open_refuses)
{
    struct vx_geometry_cache *none = (struct vx_geometry_cache *)1;
    ck_assert_int_eq(vx_status_code(vx_geometry_open(4095, &rig.why, &none)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(vx_status_code(vx_geometry_open((size_t)1 << 62, &rig.why, &none)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(none);
}
END_TEST

/* What a coords_ref alone finds, and what it does not. */
static vx_status hold_named(struct vx_coords_ref name, i64 n,
                            struct vx_geometry **geometry)
{
    const struct vx_coords_view view = {NULL, n, 4, name, 0};
    return vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, geometry);
}

static void check_unknown(struct vx_coords_ref name, i64 n)
{
    struct vx_geometry *none;
    struct vx_geometry_stats before, after;
    vx_geometry_stats_get(rig.cache, &before);
    ck_assert_int_eq(vx_status_code(hold_named(name, n, &none)),
                     VX_CODE_FAILED_PRECONDITION);
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(after.misses, before.misses + 1);
    ck_assert_int_eq(after.hits, before.hits);
    ck_assert_ptr_nonnull(strstr(rig.why.text, "is not in the device's cache"));
    ck_assert_ptr_null(none);
}

START_TEST(test_name_alone)
{
    i32 rows[] = {0, 1, 2, 3, 0, 1, 2, 4, 0, 5, 5, 5};
    const struct vx_coords_ref name = rig_view(rows, 3, 4).coords_ref;
    struct vx_geometry_stats before, after;
    struct vx_geometry *geometry, *again;
    check_unknown(name, 3);
    geometry = rig_hold(rows, 3);
    ck_assert(vx_geometry_kept(geometry));
    const struct vx_map *map = rig_map(geometry, rig_kernels[1]);
    /* While the geometry is held, and after. */
    ck_assert_ptr_null(hold_named(name, 3, &again).fault);
    ck_assert_ptr_eq(again, geometry);
    vx_geometry_drop(rig.cache, &again);
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_stats_get(rig.cache, &before);
    ck_assert_ptr_null(hold_named(name, 3, &geometry).fault);
    ck_assert(vx_geometry_was_hit(geometry));
    ck_assert(vx_geometry_kept(geometry));
    ck_assert_ptr_eq(rig_map(geometry, rig_kernels[1]), map);
    ck_assert(vx_geometry_was_hit(geometry));
    /* Another model's map is made of the geometry itself. */
    rig_check_map(rows, 3, rig_map(geometry, rig_kernels[6]));
    ck_assert(!vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(after.hits, before.hits + 2);
    ck_assert_int_eq(after.misses, before.misses + 1);
    ck_assert_ptr_null(hold_named(name, 3, &geometry).fault);
    rig_check_map(rows, 3, rig_map(geometry, rig_kernels[6]));
    ck_assert(vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
    /* Another number of voxels is the client's mistake; an unknown coords_ref is not found. */
    for (i64 n = 2; n <= 4; n += 2) {
        char said[64];
        ck_assert_int_eq(vx_status_code(hold_named(name, n, &geometry)),
                         VX_CODE_INVALID_ARGUMENT);
        (void)snprintf(said, sizeof said, "of 3 voxels, the request has %d", (int)n);
        ck_assert_ptr_nonnull(strstr(rig.why.text, said));
        ck_assert_ptr_null(geometry);
    }
    check_unknown((struct vx_coords_ref){name.high, name.low}, 3);
    check_unknown((struct vx_coords_ref){name.low, name.high ^ 1}, 3);
}
END_TEST

/* A stale or wrong coords_ref beside coordinates changes nothing about the answer. */
START_TEST(test_wrong_name)
{
    i32 a[] = {0, 1, 2, 3, 0, 1, 2, 4}, b[] = {0, 1, 2, 3, 0, 1, 2, 5};
    struct vx_coords_view view = rig_view(a, 2, 4);
    struct vx_geometry *first = rig_hold(a, 2), *second;
    view.rows = b;
    ck_assert_ptr_null(
        vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &second).fault);
    ck_assert_ptr_ne(first, second);
    rig_check_map(a, 2, rig_map(first, rig_kernels[1]));
    rig_check_map(b, 2, rig_map(second, rig_kernels[1]));
    vx_geometry_drop(rig.cache, &first);
    vx_geometry_drop(rig.cache, &second);
    /* One coords_ref, two sets: a reference is ambiguous and is not answered. */
    check_unknown(view.coords_ref, 2);
}
END_TEST

/* Bad coordinates whose packed bits are those of good ones are still refused. */
START_TEST(test_alias)
{
    i32 good[] = {0, 1, 2, 3}, bad[4];
    struct vx_coords_view view = rig_view(good, 1, 4);
    struct vx_geometry *geometry = rig_hold(good, 1);
    vx_geometry_drop(rig.cache, &geometry);
    view.rows = bad;
    for (int column = 0; column < 4; column++)
        for (int bit = 9; bit < 32; bit++) {
            memcpy(bad, good, sizeof bad);
            bad[column] = (i32)((u32)bad[column] ^ UINT32_C(1) << bit);
            vx_status status =
                vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry);
            if (!status.fault) { /* in range: another set */
                ck_assert(!vx_geometry_was_hit(geometry));
                vx_geometry_drop(rig.cache, &geometry);
            } else {
                ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
            }
        }
}
END_TEST

START_TEST(test_no_name)
{
    i32 rows[] = {0, 1, 2, 3, 0, 1, 2, 4};
    const struct vx_coords_view view = {rows, 2, 4, {0, 0}, 0};
    struct vx_geometry_stats stats;
    struct vx_geometry *a, *b;
    for (int round = 0; round < 2; round++) {
        ck_assert_ptr_null(
            vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &a).fault);
        ck_assert_ptr_null(
            vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &b).fault);
        ck_assert_ptr_ne(a, b);
        ck_assert(!vx_geometry_kept(a));
        ck_assert(!vx_geometry_was_hit(b));
        rig_check_map(rows, 2, rig_map(a, rig_kernels[1]));
        rig_check_map(rows, 2, rig_map(b, rig_kernels[1]));
        vx_geometry_drop(rig.cache, &a);
        vx_geometry_drop(rig.cache, &b);
        vx_geometry_stats_get(rig.cache, &stats);
        ck_assert_int_eq(stats.bytes, 0);
    }
    ck_assert_int_eq(stats.hits, 0);
    ck_assert_int_eq(stats.evictions, 0);
}
END_TEST

/* Every coords_ref equal: coordinates are still told apart; a coords_ref alone is refused. */
START_TEST(test_names_that_collide)
{
    i32 a[] = {0, 1, 2, 3}, b[] = {0, 1, 2, 4};
    struct vx_geometry *geometry;
    vx_geometry_weaken(rig.cache, 0);
    geometry = rig_hold(a, 1);
    vx_geometry_drop(rig.cache, &geometry);
    ck_assert_ptr_null(hold_named(rig_view(a, 1, 4).coords_ref, 1, &geometry).fault);
    vx_geometry_drop(rig.cache, &geometry);
    geometry = rig_hold(b, 1);
    ck_assert(!vx_geometry_was_hit(geometry));
    rig_check_map(b, 1, rig_map(geometry, rig_kernels[1]));
    vx_geometry_drop(rig.cache, &geometry);
    check_unknown(rig_view(a, 1, 4).coords_ref, 1);
    check_unknown(rig_view(b, 1, 4).coords_ref, 1);
    geometry = rig_hold(a, 1);
    ck_assert(vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

START_TEST(test_name_after_eviction)
{
    i32 rows[12] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2};
    const struct vx_coords_ref name = rig_view(rows, 3, 4).coords_ref;
    struct vx_geometry *geometry;
    rig_close();
    rig_open(1, 4 * 4096);
    geometry = rig_hold(rows, 3);
    vx_geometry_drop(rig.cache, &geometry);
    ck_assert_ptr_null(hold_named(name, 3, &geometry).fault);
    vx_geometry_drop(rig.cache, &geometry);
    for (i32 i = 1; i <= 4; i++) {
        rows[1] = i;
        geometry = rig_hold(rows, 3);
        vx_geometry_drop(rig.cache, &geometry);
    }
    check_unknown(name, 3);
    rows[1] = 0;
    geometry = rig_hold(rows, 3);
    ck_assert(!vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
    ck_assert_ptr_null(hold_named(name, 3, &geometry).fault);
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_cache");
    TCase *cases = tcase_create("geometry_cache");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, rig_close);
    tcase_add_test(cases, test_hits);
    tcase_add_test(cases, test_collisions);
    tcase_add_test(cases, test_name_alone);
    tcase_add_test(cases, test_wrong_name);
    tcase_add_test(cases, test_alias);
    tcase_add_test(cases, test_no_name);
    tcase_add_test(cases, test_names_that_collide);
    tcase_add_test(cases, test_name_after_eviction);
    tcase_add_test(cases, test_eviction_oldest_first);
    tcase_add_test(cases, test_ever_new_shapes);
    tcase_add_test(cases, test_too_large);
    tcase_add_test(cases, test_never_fits);
    tcase_add_test(cases, test_more_sets_than_entries);
    tcase_add_test(cases, test_more_maps_than_entries);
    tcase_add_test(cases, test_open_refuses);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
