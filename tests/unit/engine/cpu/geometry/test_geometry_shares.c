/* The CPU's cache is shared out: an origin that floods it, with whatever is short, evicts its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/cpu/geometry/geometry.h"
#include "tests/support/geometry_rig.h"

#include <check.h>
#include <stdlib.h>

#define FEW 20

/* Origins. */
enum { GOOD = 3, FLOOD = 8 };

static void setup(void)
{
    rig_open(1, (size_t)256 << 20);
}

static void reopen(size_t pages)
{
    rig_close();
    rig_open(1, pages * 4096);
}

/* The i-th geometry of an origin, by coordinates; `n` voxels. */
static struct vx_geometry *hold(u64 origin, i32 i, i64 n)
{
    static i32 rows[4 * 4096];
    struct vx_geometry *geometry;
    for (i32 row = 0; row < n; row++) {
        rows[4 * row] = (i32)origin;
        rows[4 * row + 1] = i;
        rows[4 * row + 2] = 0;
        rows[4 * row + 3] = row;
    }
    struct vx_coords_view view = rig_view(rows, n, 4);
    view.origin = origin;
    vx_status status = vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &rig.why));
    return geometry;
}

static void keep(u64 origin, i32 i, i64 n)
{
    struct vx_geometry *geometry = hold(origin, i, n);
    (void)rig_map(geometry, rig_kernels[1]);
    vx_geometry_drop(rig.cache, &geometry);
}

/* Those of GOOD, by name alone, with a map that is there. */
static i32 good_count(i64 n)
{
    i32 count = 0;
    for (i32 i = 0; i < FEW; i++) {
        const i32 rows[4] = {GOOD, i, 0, 0};
        struct vx_coords_view view = rig_view(rows, n, 4);
        struct vx_geometry *geometry;
        view.rows = NULL;
        view.origin = GOOD;
        if (vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry).fault)
            continue;
        (void)rig_map(geometry, rig_kernels[1]);
        count += vx_geometry_was_hit(geometry);
        vx_geometry_drop(rig.cache, &geometry);
    }
    return count;
}

static i64 evictions(void)
{
    struct vx_geometry_stats stats;
    vx_geometry_stats_get(rig.cache, &stats);
    return stats.evictions;
}

/* Before it, after it, or both at once. */
START_TEST(test_ever_new_geometries)
{
    const i32 flood = VX_GEOMETRY_ENTRIES_MAX + 900;
    for (i32 i = 0; i < flood && _i == 1; i++) keep(FLOOD, i, 1);
    for (i32 i = 0; i < FEW; i++) {
        keep(GOOD, i, 1);
        if (_i == 2) keep(FLOOD, flood + i, 1);
    }
    for (i32 i = 0; i < flood; i++) keep(FLOOD, 2 * flood + i, 1);
    ck_assert_int_ge(evictions(), FEW);
    ck_assert_int_eq(good_count(1), FEW);
}
END_TEST

/* Few geometries, and many pages: of 256, GOOD has 40. */
START_TEST(test_many_bytes)
{
    reopen(256);
    for (i32 i = 0; i < FEW; i++) keep(GOOD, i, 1);
    for (i32 i = 0; i < 200; i++) keep(FLOOD, i, 1 + i % 7 * 40);
    ck_assert_int_ge(evictions(), 100);
    ck_assert_int_eq(good_count(1), FEW);
    /* GOOD may have as much, which FLOOD then gives. */
    for (i32 i = FEW; i < 200; i++) keep(GOOD, i, 1 + i % 7 * 40);
    struct vx_geometry *geometry = hold(FLOOD, 199, 1 + 199 % 7 * 40);
    ck_assert(vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

/* Geometries with as many sets, or maps, as one may have of its own. */
START_TEST(test_many_sets_and_maps)
{
    for (i32 i = 0; i < FEW; i++) keep(GOOD, i, 1);
    struct vx_set_key key = {.stride = {2, 2, 2}, .rule = VX_SET_FLOOR};
    struct vx_map_key map = {.kernel = {3, 3, 1}, .dilation = {1, 1, 1}};
    const i32 own = _i ? 400 : VX_GEOMETRY_OWN_SETS;
    for (i32 i = 0; i < 50; i++) {
        struct vx_geometry *geometry = hold(FLOOD, i, 1);
        for (i32 j = 0; j < own; j++) {
            struct vx_geometry_made made = {.rows_max = 0};
            key.stride[0] = 2 + j;
            map.dilation[0] = 1 + j;
            if (_i)
                (void)rig_map(geometry, map);
            else
                ck_assert(
                    !vx_geometry_set(geometry, rig.cpu, &key, &rig.why, &made).fault);
        }
        vx_geometry_drop(rig.cache, &geometry);
    }
    ck_assert_int_ge(evictions(), 5);
    ck_assert_int_eq(good_count(1), FEW);
}
END_TEST

/* Use alone takes nothing of another's: with names that somebody gave away, or coordinates that
 * all have, it is as it was. */
START_TEST(test_use_takes_nothing)
{
    for (i32 i = 0; i < FEW; i++) keep(GOOD, i, 1);
    for (i32 i = 0; i < VX_GEOMETRY_ENTRIES_MAX + 900; i++) {
        const i32 rows[4] = {GOOD, i % FEW, 0, 0};
        struct vx_coords_view view = rig_view(rows, 1, 4);
        struct vx_geometry *geometry;
        view.origin = FLOOD;
        ck_assert(
            !vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry).fault);
        ck_assert(vx_geometry_was_hit(geometry));
        vx_geometry_drop(rig.cache, &geometry);
        keep(FLOOD, i, 1);
    }
    ck_assert_int_eq(good_count(1), FEW);
}
END_TEST

/* What another builds on one of GOOD's is in the other's share, with all of that one: GOOD does not
 * give others for it, and loses no more than that one. */
START_TEST(test_who_builds_on_it_has_it)
{
    reopen(256);
    for (i32 i = 0; i < FEW; i++) keep(GOOD, i, 1);
    const i32 rows[4] = {GOOD, 5, 0, 0};
    struct vx_coords_view view = rig_view(rows, 1, 4);
    struct vx_geometry *geometry;
    view.origin = FLOOD;
    ck_assert(!vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &geometry).fault);
    for (i32 j = 0; j < 180; j++)
        (void)rig_map(geometry, (struct vx_map_key){.kernel = {3, 3, 1},
                                                    .dilation = {1 + j, 1, 1}});
    vx_geometry_drop(rig.cache, &geometry);
    ck_assert_int_eq(evictions(), 0);
    for (i32 i = 0; i < 20; i++) keep(7, i, 1); /* a third one needs 40 pages */
    ck_assert_int_eq(evictions(), 1);
    ck_assert_int_eq(good_count(1), FEW - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_shares");
    TCase *cases = tcase_create("geometry_shares");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, rig_close);
    tcase_add_loop_test(cases, test_ever_new_geometries, 0, 3);
    tcase_add_test(cases, test_many_bytes);
    tcase_add_loop_test(cases, test_many_sets_and_maps, 0, 2);
    tcase_add_test(cases, test_use_takes_nothing);
    tcase_add_test(cases, test_who_builds_on_it_has_it);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
