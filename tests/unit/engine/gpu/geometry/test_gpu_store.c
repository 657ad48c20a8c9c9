/* The device's geometry store: coords_refs, holds, which entries are discarded, and that every byte
 * is returned.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/geometry/geometry_store.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define UNIT  4096
#define UNITS 64

static struct vx_gpu *gpu;
static struct vx_gpu_store *store;

static void set_up(void)
{
    struct vx_why why = {{0}};
    vx_thread_enter(VX_ROLE_DEVICE);
    vx_fake_set(&(struct vx_fake_settings){.memory_bytes = 1 << 20});
    ck_assert(
        !vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &gpu).fault);
    vx_status status = vx_gpu_store_open(gpu, UNITS * UNIT + 100, &why, &store);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_alloc_freeze();
}

static void tear_down(void)
{
    vx_alloc_thaw();
    vx_gpu_store_close(&store);
    ck_assert_ptr_null(store);
    ck_assert_uint_eq(vx_fake_memory_used(), 0);
    vx_gpu_close(&gpu);
}

static struct vx_gpu_store_name name_of(u64 number)
{
    return (struct vx_gpu_store_name){{number, 1}, {5, 6}, {0}};
}

static struct vx_gpu_geometry *make(u64 number, size_t units)
{
    const struct vx_gpu_store_want want = {name_of(number), 0, (i64)number, 4,
                                           units * UNIT};
    return vx_gpu_store_make(store, &want);
}

static struct vx_gpu_geometry *hold(u64 number)
{
    const struct vx_gpu_store_name name = name_of(number);
    return vx_gpu_store_hold(store, &name, 0);
}

static void drop(struct vx_gpu_geometry *geometry)
{
    vx_gpu_store_drop(store, &geometry);
    ck_assert_ptr_null(geometry);
}

static struct vx_gpu_store_stats stats(void)
{
    struct vx_gpu_store_stats it;
    vx_gpu_store_stats_get(store, &it);
    return it;
}

START_TEST(a_name_is_both_halves)
{
    struct vx_gpu_geometry *one = make(1, 1);
    struct vx_gpu_store_name other = name_of(1);
    ck_assert_int_eq(one->n, 1);
    ck_assert_ptr_eq(hold(1), one);
    ck_assert_ptr_null(hold(2));
    other.maps.high++;
    ck_assert_ptr_null(vx_gpu_store_hold(store, &other, 0));
    other = name_of(1);
    other.coords_ref.high++;
    ck_assert_ptr_null(vx_gpu_store_hold(store, &other, 0));
    ck_assert_int_eq(stats().hits, 0); /* the caller says which holds count */
    vx_gpu_store_count(store, true);
    vx_gpu_store_count(store, false);
    vx_gpu_store_count(store, false);
    ck_assert_int_eq(stats().hits, 1);
    ck_assert_int_eq(stats().misses, 2);
    ck_assert_int_eq(stats().bytes_max, UNITS * UNIT);
    drop(one);
    drop(one);
}
END_TEST

START_TEST(the_least_recently_used_goes_first)
{
    for (u64 i = 0; i < 4; i++) drop(make(i, UNITS / 4));
    drop(hold(0)); /* 1 is now the oldest */
    struct vx_gpu_geometry *two = hold(2);
    drop(make(4, UNITS / 4));
    ck_assert_ptr_null(hold(1));
    drop(make(5, UNITS / 4));
    ck_assert_ptr_null(hold(3)); /* 2 is held */
    ck_assert_int_eq(stats().evictions, 2);
    drop(two);
    drop(make(6, UNITS / 2)); /* two are discarded, but their blocks must be adjacent */
    ck_assert_ptr_nonnull(two = hold(6));
    drop(two);
    ck_assert_int_eq(stats().bytes, UNITS * UNIT);
}
END_TEST

START_TEST(what_is_held_stays)
{
    struct vx_gpu_geometry *all[4];
    for (u64 i = 0; i < 4; i++) all[i] = make(i, UNITS / 4);
    ck_assert_ptr_null(make(9, 1));
    ck_assert_int_eq(stats().evictions, 0);
    drop(all[2]);
    ck_assert_ptr_null(make(9, UNITS)); /* discards all that is not held */
    ck_assert_ptr_null(hold(2));
    ck_assert_ptr_null(make(9, UNITS + 1)); /* never fits */
    struct vx_gpu_geometry *small = make(9, 1);
    ck_assert_ptr_nonnull(small);
    drop(small);
    for (u64 i = 0; i < 4; i++)
        if (i != 2) drop(all[i]);
    drop(hold(9));
    ck_assert_ptr_null(make(10, UNITS + 1));
    ck_assert_ptr_nonnull(small = hold(9)); /* that discarded nothing */
    drop(small);
}
END_TEST

START_TEST(what_is_forgotten_is_found_no_more)
{
    struct vx_gpu_geometry *it = make(1, 4), *again;
    ck_assert_ptr_eq(hold(1), it);
    vx_gpu_store_forget(store, it);
    vx_gpu_store_forget(store, it);
    ck_assert(it->gone);
    ck_assert_ptr_null(hold(1));
    again = make(1, 4); /* in addition to the one that is still in use */
    ck_assert_ptr_ne(again, it);
    ck_assert_ptr_ne(again->memory, it->memory);
    ck_assert_int_eq(stats().bytes, 8 * UNIT);
    drop(it);
    ck_assert_int_eq(stats().bytes, 8 * UNIT);
    drop(it);
    ck_assert_int_eq(stats().bytes, 4 * UNIT);
    drop(again);
    ck_assert_ptr_eq(hold(1), again);
    drop(again);
    ck_assert_int_eq(stats().evictions, 0);
}
END_TEST

START_TEST(orders_live_with_their_geometry)
{
    const struct vx_gpu_store_order a = {0, 1, 2 * UNIT, 0}, b = {0, 3, UNIT, 0},
                                    c = {1, 1, 1, 0};
    struct vx_gpu_geometry *it = make(1, 1), *other = make(2, 1);
    ck_assert_ptr_null(vx_gpu_store_order_find(store, it, &a));
    void *memory = vx_gpu_store_order_make(store, it, &a);
    ck_assert_ptr_nonnull(memory);
    ck_assert_ptr_eq(vx_gpu_store_order_find(store, it, &a), memory);
    /* Models of other precisions want more, or less, beside the same order. */
    struct vx_gpu_store_order more = a;
    more.bytes += 256;
    ck_assert_ptr_null(vx_gpu_store_order_find(store, it, &more));
    ck_assert_ptr_null(vx_gpu_store_order_find(store, it, &b));
    ck_assert_ptr_null(vx_gpu_store_order_find(store, other, &a));
    ck_assert_ptr_ne(vx_gpu_store_order_make(store, it, &b), memory);
    ck_assert_ptr_nonnull(vx_gpu_store_order_make(store, it, &c));
    ck_assert_int_eq(stats().bytes, 6 * UNIT);
    const struct vx_gpu_store_order large = {2, 1, UNITS * UNIT, 0};
    ck_assert_ptr_null(vx_gpu_store_order_make(store, it, &large));
    drop(it);
    drop(other);
    drop(make(3, UNITS)); /* discards both, with their orders */
    ck_assert_int_eq(stats().bytes, UNITS * UNIT);
    ck_assert_int_eq(stats().evictions, 2);
}
END_TEST

/* Blocks are powers of two, so a range whose size is not one has no block of its own size. */
START_TEST(what_can_never_fit_throws_nothing_out)
{
    const struct vx_gpu_store_order large = {0, 1, 33 * UNIT, 0};
    struct vx_why why = {{0}};
    vx_alloc_thaw();
    vx_gpu_store_close(&store);
    ck_assert(!vx_gpu_store_open(gpu, 48 * UNIT, &why, &store).fault);
    vx_alloc_freeze();
    for (u64 i = 0; i < 40; i++) drop(make(i, 1));
    ck_assert_ptr_null(make(99, 33));
    ck_assert_ptr_null(make(99, 48));
    ck_assert_int_eq(stats().evictions, 0);
    struct vx_gpu_geometry *held = hold(39);
    ck_assert_ptr_null(vx_gpu_store_order_make(store, held, &large));
    drop(held);
    ck_assert_int_eq(stats().bytes, 40 * UNIT);
    ck_assert_int_eq(stats().evictions, 0);
    drop(make(99, 32)); /* the largest there can be */
    ck_assert_int_eq(stats().evictions, 32);
}
END_TEST

static void open_large(void)
{
    struct vx_why why = {{0}};
    vx_alloc_thaw();
    vx_gpu_store_close(&store);
    vx_gpu_close(&gpu);
    vx_fake_set(&(struct vx_fake_settings){0});
    ck_assert(
        !vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &gpu).fault);
    ck_assert(!vx_gpu_store_open(gpu, (size_t)1 << 30, &why, &store).fault);
    vx_alloc_freeze();
}

/* More geometries than entries, each with all its orders: the oldest are discarded. */
START_TEST(entries_and_orders_are_few)
{
    open_large();
    drop(make(VX_GPU_STORE_ENTRIES + 99, 1)); /* the oldest has no order */
    for (u64 i = 0; i < VX_GPU_STORE_ENTRIES + 10; i++) {
        struct vx_gpu_geometry *it = make(i, 1);
        ck_assert_ptr_nonnull(it);
        for (i32 j = 0; j < 5; j++) {
            const struct vx_gpu_store_order order = {j, 1, 1, 0};
            ck_assert_ptr_nonnull(vx_gpu_store_order_make(store, it, &order));
        }
        for (i32 j = 0; j < 5; j++) {
            const struct vx_gpu_store_order order = {j, 1, 1, 0};
            ck_assert_ptr_nonnull(vx_gpu_store_order_find(store, it, &order));
        }
        drop(it);
    }
    ck_assert_ptr_null(hold(VX_GPU_STORE_ENTRIES + 99));
    ck_assert_int_ge(stats().evictions, VX_GPU_STORE_ENTRIES / 6);
    struct vx_gpu_geometry *last = hold(VX_GPU_STORE_ENTRIES + 9);
    ck_assert_ptr_nonnull(last);
    drop(last);
    ck_assert_ptr_null(hold(0));
}
END_TEST

/* ------- shares ------- */

static struct vx_gpu_geometry *make_of(u64 origin, u64 number, size_t units)
{
    const struct vx_gpu_store_want want = {name_of(number), origin, (i64)number, 4,
                                           units * UNIT};
    return vx_gpu_store_make(store, &want);
}

static i32 count_kept(u64 first, u64 count)
{
    i32 kept = 0;
    for (u64 i = first; i < first + count; i++) {
        const struct vx_gpu_store_name name = name_of(i);
        struct vx_gpu_geometry *it = vx_gpu_store_hold(store, &name, 1);
        kept += it != NULL;
        vx_gpu_store_drop(store, &it);
    }
    return kept;
}

/* An origin that floods the store, with entries or with orders, evicts its own; in any order. */
START_TEST(a_flood_evicts_its_own)
{
    const bool with_orders = _i >= 2, before = _i % 2;
    open_large();
    for (u64 i = 0; i < 6000; i++) {
        if (i == (before ? 5000 : 0))
            for (u64 j = 0; j < 20; j++) drop(make_of(1, 10000 + j, 1));
        struct vx_gpu_geometry *it = make_of(2, i, 1);
        ck_assert_ptr_nonnull(it);
        for (i32 j = 0; j < 20 && with_orders; j++) {
            const struct vx_gpu_store_order order = {j, 1, 1, 2};
            ck_assert_ptr_nonnull(vx_gpu_store_order_make(store, it, &order));
        }
        drop(it);
    }
    ck_assert_int_ge(stats().evictions, 1900);
    ck_assert_int_eq(count_kept(10000, 20), 20);
}
END_TEST

/* Of 64 units one origin has 16 in small pieces, the other floods with larger ones. */
START_TEST(bytes_are_shared_out)
{
    for (u64 i = 0; i < 16; i++) drop(make_of(1, 100 + i, 1));
    for (u64 i = 0; i < 90; i++) drop(make_of(2, i, 1 + i % 8));
    ck_assert_int_eq(count_kept(100, 16), 16);
    /* With orders, as many bytes. */
    struct vx_gpu_geometry *it = make_of(2, 99, 1);
    for (i32 j = 0; j < 12; j++) {
        const struct vx_gpu_store_order order = {j, 1, 2 * UNIT, 2};
        ck_assert_ptr_nonnull(vx_gpu_store_order_make(store, it, &order));
    }
    drop(it);
    for (u64 i = 0; i < 90; i++) drop(make_of(2, i, 1 + i % 8));
    ck_assert_int_eq(count_kept(100, 16), 16);
    /* The other may have as much, and no more. */
    for (u64 i = 0; i < 90; i++) drop(make_of(1, 200 + i, 4));
    ck_assert_int_ge(count_kept(200, 90), 8);
    i32 left = 0;
    for (u64 i = 0; i < 90; i++) left += count_kept(i, 1);
    ck_assert_int_ge(left, 4);
}
END_TEST

/* Who uses another's entry takes nothing of it; who adds an order to it has it. */
START_TEST(who_builds_on_it_has_it)
{
    const struct vx_gpu_store_name name = name_of(100);
    const struct vx_gpu_store_order order = {0, 1, 32 * UNIT, 2};
    for (u64 i = 0; i < 16; i++) drop(make_of(1, 100 + i, 1));
    struct vx_gpu_geometry *it = vx_gpu_store_hold(store, &name, 2);
    drop(it);
    for (u64 i = 0; i < 90; i++) drop(make_of(2, i, 4));
    ck_assert_int_eq(count_kept(100, 16), 16);
    it = vx_gpu_store_hold(store, &name, 2);
    ck_assert_ptr_nonnull(vx_gpu_store_order_make(store, it, &order));
    drop(it);
    for (u64 i = 0; i < 16; i++) drop(make_of(3, 300 + i, 1));
    drop(make_of(3, 400, 4)); /* the other now has most */
    ck_assert_int_eq(count_kept(100, 1), 0);
    ck_assert_int_eq(count_kept(101, 15), 15);
}
END_TEST

/* The store against a list of what it must contain, for random sequences of calls. */
START_TEST(any_sequence_keeps_count)
{
    enum { NAMES = 24 };
    struct vx_test_random random = {9 + (u64)_i};
    struct vx_gpu_geometry *held[NAMES] = {NULL};
    for (i32 step = 0; step < 4000; step++) {
        u64 number = vx_test_next(&random) % NAMES;
        struct vx_gpu_geometry **at = &held[number];
        if (*at) {
            ck_assert_int_eq((*at)->n, (i64)number);
            const struct vx_gpu_store_order order = {(i32)(step % 3), 1, UNIT, 0};
            if (vx_test_next(&random) % 2 && !(*at)->gone &&
                !vx_gpu_store_order_find(store, *at, &order))
                (void)vx_gpu_store_order_make(store, *at, &order);
            if (vx_test_next(&random) % 8 == 0) vx_gpu_store_forget(store, *at);
            vx_gpu_store_drop(store, at);
            continue;
        }
        *at = hold(number);
        if (!*at) *at = make(number, 1 + vx_test_next(&random) % 8);
        for (u64 i = 0; *at && i < NAMES; i++)
            ck_assert(i == number || !held[i] || held[i]->memory != (*at)->memory);
    }
    ck_assert_int_gt(stats().evictions, 20);
    for (i32 i = 0; i < NAMES; i++) {
        if (!held[i]) held[i] = hold((u64)i);
        if (held[i]) vx_gpu_store_forget(store, held[i]);
        vx_gpu_store_drop(store, &held[i]);
    }
    ck_assert_int_eq(stats().bytes, 0);
}
END_TEST

START_TEST(what_cannot_be_taken_is_refused)
{
    struct vx_gpu_store *none;
    struct vx_why why = {{0}};
    vx_alloc_thaw();
    ck_assert_int_eq(vx_status_code(vx_gpu_store_open(gpu, 100, &why, &none)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, "cache_bytes: expected at least 4096, got 100");
    ck_assert_int_eq(vx_status_code(vx_gpu_store_open(gpu, 1 << 20, &why, &none)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(why.text, "cache_bytes: 1048576 bytes are more than") != NULL,
                  "%s", why.text);
    ck_assert_ptr_null(none);
    vx_alloc_freeze();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_store");
    TCase *tcase = tcase_create("gpu_store");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_name_is_both_halves);
    tcase_add_test(tcase, the_least_recently_used_goes_first);
    tcase_add_test(tcase, what_is_held_stays);
    tcase_add_test(tcase, what_can_never_fit_throws_nothing_out);
    tcase_add_test(tcase, what_is_forgotten_is_found_no_more);
    tcase_add_test(tcase, orders_live_with_their_geometry);
    tcase_add_test(tcase, entries_and_orders_are_few);
    tcase_add_loop_test(tcase, any_sequence_keeps_count, 0, 8);
    tcase_add_loop_test(tcase, a_flood_evicts_its_own, 0, 4);
    tcase_add_test(tcase, bytes_are_shared_out);
    tcase_add_test(tcase, who_builds_on_it_has_it);
    tcase_add_test(tcase, what_cannot_be_taken_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
