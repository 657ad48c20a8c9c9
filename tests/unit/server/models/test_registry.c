/* Instances by name and version, and the sentences that stock clients know.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/models/registry.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct vx_registry *registry;

static void open_registry(void)
{
    ck_assert(!vx_registry_open(&registry).fault);
}

static void close_registry(void)
{
    vx_registry_close(&registry);
}

static i32 add(const char *name, i64 version, enum vx_instance_state state)
{
    i32 instance = vx_registry_add(registry, name, version, 0);
    ck_assert_int_ge(instance, 0);
    vx_registry_row(registry, instance)->state = state;
    return instance;
}

START_TEST(the_highest_ready_version_answers)
{
    i32 got, one = add("m", 1, VX_INSTANCE_READY), three = add("m", 3, VX_INSTANCE_READY);
    add("m", 7, VX_INSTANCE_LOADING);
    add("other", 9, VX_INSTANCE_READY);
    ck_assert(!vx_registry_pick(registry, "m", 0, NULL, &got).fault);
    ck_assert_int_eq(got, three);
    ck_assert(!vx_registry_pick(registry, "m", 1, NULL, &got).fault);
    ck_assert_int_eq(got, one);
}
END_TEST

/* The most similar name first: it is probably the one that was meant. */
START_TEST(an_unknown_name_tells_what_there_is)
{
    struct vx_why why = {""};
    i32 got;
    add("segment", 1, VX_INSTANCE_READY);
    add("normals", 1, VX_INSTANCE_READY);
    ck_assert(vx_registry_pick(registry, "nromals", 0, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'nromals' is not found: this "
                               "server has 'normals', 'segment'");
    ck_assert(vx_registry_find(registry, "normals", 7, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'normals' version 7 is not "
                               "found: this server has version 1");
    add("normals", 2, VX_INSTANCE_LOADING);
    add("normals", 3, VX_INSTANCE_UNAVAILABLE);
    add("normals", 2, VX_INSTANCE_READY); /* a reload beside its predecessor */
    ck_assert(vx_registry_find(registry, "normals", 7, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'normals' version 7 is not "
                               "found: this server has versions 1, 2, 3");
    for (i32 version = 30; version > 10; version--)
        add("normals", version, VX_INSTANCE_READY);
    ck_assert(vx_registry_find(registry, "normals", 7, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'normals' version 7 is not "
                               "found: this server has versions 1, 2, 3, 11, 12, 13, 14, "
                               "15 and more up to 30");
    add("b", 1, VX_INSTANCE_READY);
    add("c", 1, VX_INSTANCE_READY);
    add("a", 1, VX_INSTANCE_READY);
    ck_assert(vx_registry_find(registry, "segments", 1, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'segments' is not found: this "
                               "server has 'segment', 'normals', 'a', 'b' and more");
    vx_registry_hide_names(registry);
    ck_assert(vx_registry_find(registry, "segments", 1, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'segments' is not found");
    ck_assert(vx_registry_find(registry, "segment", 9, &why, &got).fault);
    ck_assert_ptr_null(strstr(why.text, "normals"));
}
END_TEST

START_TEST(what_is_not_there_or_not_ready_says_so)
{
    struct vx_why why = {""};
    i32 got;
    ck_assert_int_eq(vx_status_code(vx_registry_pick(registry, "m", 0, &why, &got)),
                     VX_CODE_NOT_FOUND);
    ck_assert_str_eq(why.text, "Request for unknown model: 'm' is not found: this server "
                               "has no models");
    i32 row = add("m", 2, VX_INSTANCE_UNAVAILABLE);
    ck_assert(vx_registry_pick(registry, "n", 0, &why, &got).fault);
    ck_assert_str_eq(why.text, "Request for unknown model: 'n' is not found: this server "
                               "has 'm' (not loaded)");
    strcpy(vx_registry_row(registry, row)->reason, "layer 'x'");
    ck_assert_int_eq(vx_status_code(vx_registry_pick(registry, "m", 0, &why, &got)),
                     VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(why.text,
                     "Request for unknown model: 'm' version 2 is not at ready state: "
                     "layer 'x'");
    ck_assert_int_eq(vx_status_code(vx_registry_pick(registry, "m", 5, &why, &got)),
                     VX_CODE_NOT_FOUND);
    ck_assert(!vx_registry_find(registry, "m", 0, &why, &got).fault);
    ck_assert_int_eq(got, row);
}
END_TEST

START_TEST(rows_are_walked_by_name_then_version)
{
    add("b", 2, VX_INSTANCE_READY);
    add("a", 10, VX_INSTANCE_READY);
    add("b", 1, VX_INSTANCE_LOADING);
    add("c", 1, VX_INSTANCE_FREE);
    add("a", 9, VX_INSTANCE_UNAVAILABLE);
    add("a", 9, VX_INSTANCE_READY); /* a reload beside its predecessor */
    static const struct {
        const char *name;
        i64 version;
    } expected[] = {{"a", 9}, {"a", 9}, {"a", 10}, {"b", 1}, {"b", 2}};
    i32 cursor = 0;
    struct vx_instance *row;
    size_t at = 0;
    while ((row = vx_registry_next(registry, &cursor))) {
        ck_assert_uint_lt(at, VX_COUNT(expected));
        ck_assert_str_eq(row->name, expected[at].name);
        ck_assert_int_eq(row->version, expected[at].version);
        at++;
    }
    ck_assert_uint_eq(at, VX_COUNT(expected));
}
END_TEST

static struct vx_instance_stats *stats_of(i32 row)
{
    return vx_registry_row(registry, row)->stats;
}

/* A reload counts with the instance that it replaces, whichever of them ends first; another
 * version, and one that comes when all of its instances have ended, begin with zeros. */
START_TEST(counts_are_of_a_version)
{
    i32 old = add("m", 1, VX_INSTANCE_READY);
    stats_of(old)->success.count = 7;
    i32 new = add("m", 1, VX_INSTANCE_LOADING);
    i32 other = add("m", 2, VX_INSTANCE_READY);
    ck_assert_ptr_eq(stats_of(new), stats_of(old));
    ck_assert_uint_eq(stats_of(other)->success.count, 0);
    vx_registry_row(registry, old)->state = VX_INSTANCE_FREE;
    i32 third = add("n", 1, VX_INSTANCE_READY); /* in the row of the old one */
    ck_assert_int_eq(third, old);
    ck_assert_uint_eq(stats_of(third)->success.count, 0);
    ck_assert_uint_eq(stats_of(new)->success.count, 7);
    vx_registry_row(registry, new)->state = VX_INSTANCE_FREE;
    ck_assert_uint_eq(stats_of(add("m", 1, VX_INSTANCE_LOADING))->success.count, 0);
    ck_assert_uint_eq(stats_of(other)->success.count + stats_of(third)->success.count, 0);
}
END_TEST

/* Instances come, go, and are used again for other versions: a walk has every
 * instance, in order, and seek finds where a version begins. */
START_TEST(the_order_lasts)
{
    static const char *const names[] = {"a", "ab", "b", "c"};
    u32 random = (u32)_i + 1;
    for (i32 step = 0; step < 400; step++) {
        random = random * 1664525 + 1013904223;
        i32 count = 0, cursor = 0, there = 0, number = -1;
        if (random >> 30) {
            add(names[random >> 8 & 3], 1 + (random >> 12 & 7), VX_INSTANCE_READY);
        } else if (vx_registry_end(registry)) {
            number = (i32)(random >> 8) % vx_registry_end(registry);
            vx_registry_row(registry, number)->state = VX_INSTANCE_FREE;
        }
        for (i32 i = 0; i < vx_registry_end(registry); i++)
            there += vx_registry_row(registry, i)->state != VX_INSTANCE_FREE;
        const struct vx_instance *row, *last = NULL;
        while ((row = vx_registry_next(registry, &cursor))) {
            int by_name = last ? strcmp(last->name, row->name) : -1;
            i64 by_version = last && !by_name ? last->version - row->version : -1;
            ck_assert(by_name < 0 ||
                      (!by_name && (by_version < 0 || (!by_version && last < row))));
            if (by_name || by_version) {
                i32 from = vx_registry_seek(registry, row->name, row->version);
                ck_assert_ptr_eq(vx_registry_next(registry, &from), row);
            }
            last = row;
            count++;
        }
        ck_assert_int_eq(count, there);
    }
}
END_TEST

START_TEST(seek_finds_the_place_of_what_is_not_there)
{
    struct vx_instance *row;
    add("b", 2, VX_INSTANCE_READY);
    add("b", 4, VX_INSTANCE_READY);
    i32 cursor = vx_registry_seek(registry, "b", 3);
    ck_assert_ptr_nonnull(row = vx_registry_next(registry, &cursor));
    ck_assert_int_eq(row->version, 4);
    cursor = vx_registry_seek(registry, "a", 9);
    ck_assert_ptr_nonnull(row = vx_registry_next(registry, &cursor));
    ck_assert_int_eq(row->version, 2);
    cursor = vx_registry_seek(registry, "c", 0);
    ck_assert_ptr_null(vx_registry_next(registry, &cursor));
}
END_TEST

START_TEST(readiness_forgives_a_failed_version_beside_a_serving_one)
{
    ck_assert(!vx_registry_all_ready(registry));
    add("m", 1, VX_INSTANCE_READY);
    ck_assert(vx_registry_all_ready(registry));
    add("m", 2, VX_INSTANCE_UNAVAILABLE);
    add("m", 3, VX_INSTANCE_LOADING);
    ck_assert(vx_registry_all_ready(registry));
    add("n", 1, VX_INSTANCE_LOADING);
    ck_assert(!vx_registry_all_ready(registry));
}
END_TEST

START_TEST(a_full_registry_takes_no_more)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) add("m", i + 1, VX_INSTANCE_READY);
    ck_assert_int_eq(vx_registry_add(registry, "m", 1000, 0), -1);
    vx_registry_row(registry, 5)->state = VX_INSTANCE_FREE;
    ck_assert_int_eq(vx_registry_add(registry, "m", 1000, 0), 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("registry");
    TCase *tcase = tcase_create("rows");
    tcase_add_checked_fixture(tcase, open_registry, close_registry);
    tcase_add_test(tcase, the_highest_ready_version_answers);
    tcase_add_test(tcase, what_is_not_there_or_not_ready_says_so);
    tcase_add_test(tcase, an_unknown_name_tells_what_there_is);
    tcase_add_test(tcase, rows_are_walked_by_name_then_version);
    tcase_add_test(tcase, counts_are_of_a_version);
    tcase_add_loop_test(tcase, the_order_lasts, 0, 10);
    tcase_add_test(tcase, seek_finds_the_place_of_what_is_not_there);
    tcase_add_test(tcase, readiness_forgives_a_failed_version_beside_a_serving_one);
    tcase_add_test(tcase, a_full_registry_takes_no_more);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
