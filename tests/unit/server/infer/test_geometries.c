/* Which workers hold which geometry: by hand, and against a simple model at random.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/infer/geometries.h"

#include <check.h>
#include <stdlib.h>

static struct vx_geometries *geometries;

static void set_up(void)
{
    ck_assert(!vx_geometries_open(&geometries).fault);
}

static void tear_down(void)
{
    vx_geometries_close(&geometries);
    ck_assert_ptr_null(geometries);
}

/* Names 1, 2, 3 ... share their low half in groups of eight, so that chains are longer
 * than one. */
static struct vx_coords_ref name(u64 k)
{
    return (struct vx_coords_ref){.low = k / 8, .high = k + 1};
}

/* Of model 4, with half as many voxels on another set. */
static void kept(struct vx_coords_ref coords_ref, i32 worker, i64 voxels, i64 pairs)
{
    const struct vx_geometry_report report = {
        coords_ref, 0, worker, voxels, {4, pairs, voxels + voxels / 2}};
    vx_geometries_kept(geometries, &report);
}

static bool find(struct vx_coords_ref coords_ref, struct vx_geometry_fact *fact)
{
    return vx_geometries_find(geometries, coords_ref, 0, fact);
}

START_TEST(what_a_worker_kept_is_found)
{
    struct vx_geometry_fact fact;
    ck_assert(!find(name(1), &fact));
    kept(name(1), 3, 100, 900);
    kept(name(1), 0, 100, 0);
    ck_assert(!find(name(2), &fact));
    ck_assert(find(name(1), &fact));
    ck_assert_uint_eq(fact.workers, 1u << 3 | 1u);
    ck_assert_int_eq(fact.voxels, 100);
    ck_assert_int_eq(fact.cost.instance, 4);
    ck_assert_int_eq(fact.cost.pairs, 900);
    ck_assert_int_eq(fact.cost.set_voxels, 150);
    const struct vx_geometry_report more = {name(1), 0, 0, 100, {5, 40, 100}};
    vx_geometries_kept(geometries, &more);
    ck_assert(find(name(1), &fact));
    ck_assert_int_eq(fact.cost.instance, 5); /* the latest that has maps */
    ck_assert_int_eq(fact.cost.pairs, 40);
    vx_geometries_gone(geometries, name(1), 3);
    vx_geometries_gone(geometries, name(1), 3);
    ck_assert(find(name(1), &fact));
    ck_assert_uint_eq(fact.workers, 1u);
    vx_geometries_gone(geometries, name(1), 0);
    ck_assert(!find(name(1), &fact));
    ck_assert_int_eq(vx_geometries_count(geometries), 0);
}
END_TEST

START_TEST(what_has_no_name_is_not_kept)
{
    kept((struct vx_coords_ref){0}, 3, 100, 900);
    ck_assert_int_eq(vx_geometries_count(geometries), 0);
}
END_TEST

START_TEST(a_worker_that_is_down_holds_nothing)
{
    struct vx_geometry_fact fact;
    for (u64 k = 0; k < 1000; k++) {
        kept(name(k), (i32)(k % 3), 1, 1);
        if (k % 2) kept(name(k), 5, 1, 1);
    }
    vx_geometries_worker_down(geometries, 1);
    for (u64 k = 0; k < 1000; k++) {
        bool there = k % 3 != 1 || k % 2;
        ck_assert_int_eq(find(name(k), &fact), there);
        if (there) ck_assert_uint_eq(fact.workers & 1u << 1, 0);
    }
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) vx_geometries_worker_down(geometries, w);
    ck_assert_int_eq(vx_geometries_count(geometries), 0);
}
END_TEST

START_TEST(the_one_longest_unused_goes)
{
    struct vx_geometry_fact fact;
    for (u64 k = 0; k < VX_GEOMETRIES_MAX; k++) kept(name(k), 1, (i64)k, 1);
    ck_assert_int_eq(vx_geometries_count(geometries), VX_GEOMETRIES_MAX);
    ck_assert(find(name(0), &fact)); /* a use */
    kept(name(1), 1, 1, 1);          /* and another */
    kept(name(VX_GEOMETRIES_MAX), 1, 7, 1);
    ck_assert_int_eq(vx_geometries_count(geometries), VX_GEOMETRIES_MAX);
    ck_assert(!find(name(2), &fact));
    ck_assert(find(name(0), &fact));
    ck_assert(find(name(1), &fact));
    ck_assert(find(name(3), &fact));
    ck_assert(find(name(VX_GEOMETRIES_MAX), &fact));
    ck_assert_int_eq(fact.voxels, 7);
}
END_TEST

/* An origin that floods the table forgets its own; who reports a known one again has not got it. */
START_TEST(a_flood_forgets_its_own)
{
    struct vx_geometry_fact fact;
    struct vx_geometry_report report = {.origin = 1, .voxels = 5};
    for (u64 k = 0; k < 20; k++) {
        report.coords_ref = name(k);
        vx_geometries_kept(geometries, &report);
    }
    report.origin = 2;
    for (u64 k = 0; k < VX_GEOMETRIES_MAX + 1000; k++) {
        report.coords_ref = name(k);
        vx_geometries_kept(geometries, &report);
    }
    ck_assert_int_eq(vx_geometries_count(geometries), VX_GEOMETRIES_MAX);
    for (u64 k = 0; k < 20; k++) ck_assert(find(name(k), &fact));
    for (u64 k = 20; k < 1020; k++) ck_assert(!find(name(k), &fact));
}
END_TEST

/* ------- against a model: a list in order of use ------- */

#define NAMES 600
/* A table that is full except for this many rows, so that NAMES do not all fit. */
#define ROOM 100

static struct {
    u64 names[NAMES]; /* the most recently used first */
    u32 workers[NAMES];
    int count;
} model;

static int model_find(u64 k)
{
    int at = 0;
    while (at < model.count && model.names[at] != k) at++;
    return at < model.count ? at : -1;
}

static void model_drop(int at)
{
    model.count--;
    for (int i = at; i < model.count; i++) {
        model.names[i] = model.names[i + 1];
        model.workers[i] = model.workers[i + 1];
    }
}

static void model_use(int at)
{
    u64 k = model.names[at];
    u32 workers = model.workers[at];
    for (; at > 0; at--) {
        model.names[at] = model.names[at - 1];
        model.workers[at] = model.workers[at - 1];
    }
    model.names[0] = k;
    model.workers[0] = workers;
}

static void model_kept(u64 k, i32 worker)
{
    int at = model_find(k);
    if (at < 0) {
        if (model.count == ROOM) model.count--;
        at = model.count++;
        model.names[at] = k;
        model.workers[at] = 0;
    }
    model.workers[at] |= 1u << worker;
    model_use(at);
}

static void model_gone(u64 k, i32 worker)
{
    int at = model_find(k);
    if (at < 0) return;
    model.workers[at] &= ~(1u << worker);
    if (!model.workers[at]) model_drop(at);
}

static void check_name(u64 k)
{
    struct vx_geometry_fact fact = {0};
    bool found = find(name(k), &fact);
    int at = model_find(k);
    ck_assert_msg(found == (at >= 0), "name %llu: %d, the model says %d",
                  (unsigned long long)k, found, at >= 0);
    if (at < 0) return;
    ck_assert_uint_eq(fact.workers, model.workers[at]);
    ck_assert_int_eq(fact.voxels, (i64)k);
    model_use(at);
}

START_TEST(any_order_of_words_agrees_with_a_list)
{
    u64 state = (u64)_i * UINT64_C(0x9e3779b97f4a7c15) + 1;
    model.count = 0;
    /* Filled with geometries of worker 15, which are used now and then and stay. */
    for (u64 k = 0; k < VX_GEOMETRIES_MAX - ROOM; k++) kept(name(NAMES + k), 15, 1, 1);
    for (int step = 0; step < 4000; step++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u64 k = state >> 8 & UINT64_MAX, what = state % 16;
        k %= NAMES;
        i32 worker = (i32)(state >> 40) & 3;
        if (step % ROOM == 0) /* the fillers are the most recently used again */
            for (u64 f = 0; f < VX_GEOMETRIES_MAX - ROOM; f++)
                kept(name(NAMES + f), 15, 1, 1);
        if (what < 8) {
            kept(name(k), worker, (i64)k, 1);
            model_kept(k, worker);
        } else if (what < 11) {
            vx_geometries_gone(geometries, name(k), worker);
            model_gone(k, worker);
        } else if (what < 15 || step % 8) {
            check_name(k);
        } else {
            vx_geometries_worker_down(geometries, worker);
            for (int at = model.count - 1; at >= 0; at--)
                model_gone(model.names[at], worker);
        }
        ck_assert_int_eq(vx_geometries_count(geometries),
                         VX_GEOMETRIES_MAX - ROOM + model.count);
    }
    for (u64 k = 0; k < NAMES; k++) check_name(k);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometries");
    TCase *table = tcase_create("table");
    tcase_add_checked_fixture(table, set_up, tear_down);
    tcase_add_test(table, what_a_worker_kept_is_found);
    tcase_add_test(table, what_has_no_name_is_not_kept);
    tcase_add_test(table, a_worker_that_is_down_holds_nothing);
    tcase_add_test(table, the_one_longest_unused_goes);
    tcase_add_test(table, a_flood_forgets_its_own);
    tcase_add_loop_test(table, any_order_of_words_agrees_with_a_list, 1, 9);
    suite_add_tcase(suite, table);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
