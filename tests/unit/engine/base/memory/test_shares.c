/* Whose entry of a full cache goes: by hand, and against a list that is searched, at random.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/memory/shares.h"
#include "engine/base/process/alloc.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>

#define ENTRIES 60
#define NONE    VX_SHARES_NONE

static struct vx_shares *shares;
static bool there[ENTRIES]; /* what a cache would have */
static u64 of[ENTRIES];     /* its origin */

static void set_up(void)
{
    for (i32 i = 0; i < ENTRIES; i++) there[i] = false;
    ck_assert(!vx_shares_open(ENTRIES, VX_SHARE_KINDS, &shares).fault);
    vx_alloc_freeze();
}

static void tear_down(void)
{
    vx_alloc_thaw();
    vx_shares_close(&shares);
    ck_assert_ptr_null(shares);
}

static void drop(i32 entry)
{
    there[entry] = false;
    vx_shares_remove(shares, entry);
}

static i32 victim(u64 origin)
{
    return vx_shares_victim(shares, VX_SHARE_ENTRIES, origin, 1);
}

static i64 has(u64 origin)
{
    return vx_shares_has(shares, origin, VX_SHARE_ENTRIES);
}

/* A new entry in use, for which another one goes if all are taken. */
static i32 make(u64 origin)
{
    i32 entry = 0;
    while (entry < ENTRIES && there[entry]) entry++;
    if (entry == ENTRIES) {
        entry = victim(origin);
        ck_assert_int_ne(entry, NONE);
        drop(entry);
    }
    there[entry] = true;
    of[entry] = origin;
    vx_shares_add(shares, entry, origin);
    return entry;
}

static i32 keep(u64 origin)
{
    const i32 entry = make(origin);
    vx_shares_rest(shares, entry);
    return entry;
}

static void touch(i32 entry)
{
    vx_shares_use(shares, entry, of[entry]);
    vx_shares_rest(shares, entry);
}

/* By age alone, and all there is. */
START_TEST(one_origin_has_everything)
{
    ck_assert_int_eq(victim(1), NONE);
    for (i32 i = 0; i < ENTRIES; i++) ck_assert_int_eq(keep(1), i);
    ck_assert_int_eq(vx_shares_origins(shares), 1);
    ck_assert_int_eq(has(1), ENTRIES);
    touch(0);
    touch(2);
    ck_assert_int_eq(victim(1), 1);
    ck_assert_int_eq(victim(1), 1); /* it stays until it is removed */
    drop(1);
    ck_assert_int_eq(victim(1), 3);
    for (i32 i = 3; i < ENTRIES; i++) drop(victim(1));
    ck_assert_int_eq(victim(1), 0);
    drop(0);
    ck_assert_int_eq(victim(1), 2);
    drop(2);
    ck_assert_int_eq(victim(1), NONE);
    ck_assert_int_eq(vx_shares_origins(shares), 0);
}
END_TEST

/* Who floods evicts its own, whether it comes before the other or after it, or both at once. */
START_TEST(a_flood_evicts_its_own)
{
    enum { FEW = 20 };
    i32 few[FEW];
    for (i32 i = 0; i < 200 && _i == 1; i++) (void)keep(7);
    for (i32 i = 0; i < FEW; i++) {
        few[i] = keep(3);
        if (_i == 2) (void)keep(7);
    }
    for (i32 i = 0; i < 500; i++) (void)keep(7);
    for (i32 i = 0; i < FEW; i++) {
        ck_assert(there[few[i]]);
        ck_assert_uint_eq(of[few[i]], 3);
    }
    ck_assert_int_eq(has(7), ENTRIES - FEW);
}
END_TEST

/* Everybody wants everything.  Who gives has more than an equal part, and in the end all have one. */
START_TEST(many_origins_have_equal_parts)
{
    const i64 origins = _i;
    struct voxels_random random = {(u64)_i};
    for (i32 step = 0; step < 5000; step++) {
        const u64 asks = voxels_next(&random) % (u64)origins;
        i32 gives = NONE;
        bool full = true;
        for (i32 i = 0; i < ENTRIES; i++) full = full && there[i];
        if (full) gives = victim(asks);
        if (full)
            ck_assert_int_gt(has(of[gives]) * origins + (of[gives] == asks) * origins,
                             ENTRIES);
        (void)keep(asks);
    }
    for (i64 i = 0; i < origins; i++) ck_assert_int_ge(has((u64)i), ENTRIES / origins);
    ck_assert_int_eq(vx_shares_origins(shares), (i32)origins);
}
END_TEST

START_TEST(equal_parts_give_by_age)
{
    for (i32 i = 0; i < ENTRIES; i++) (void)keep((u64)i); /* one for each */
    touch(0);
    ck_assert_int_eq(victim(99), 1); /* a newcomer */
    ck_assert_int_eq(victim(5), 5);  /* who has as much as all others gives its own */
    drop(1);
    ck_assert_int_eq(victim(99), 2);
    touch(2);
    ck_assert_int_eq(victim(99), 3);
    (void)keep(40);
    ck_assert_int_eq(victim(99), 40); /* the older of its two */
    ck_assert_int_eq(victim(5), 40);
    drop(2);
    ck_assert_int_eq(victim(2), 40);
}
END_TEST

START_TEST(what_is_in_use_does_not_go)
{
    i32 held[30];
    for (i32 i = 0; i < 30; i++) held[i] = make(1);
    ck_assert_int_eq(victim(2), NONE);
    const i32 small = keep(2);
    ck_assert_int_eq(victim(1), small); /* the only one that rests */
    ck_assert_int_eq(victim(3), small);
    vx_shares_rest(shares, held[4]);
    vx_shares_rest(shares, held[3]);
    ck_assert_int_eq(victim(3), held[4]); /* those in use count */
    vx_shares_use(shares, held[4], 1);
    ck_assert_int_eq(victim(3), held[3]);
    vx_shares_use(shares, held[3], 1);
    ck_assert_int_eq(victim(3), small);
    drop(small);
    ck_assert_int_eq(victim(3), NONE);
    drop(held[0]); /* one that is in use may be removed all the same */
    ck_assert_int_eq(has(1), 29);
}
END_TEST

/* Each kind has its own order. */
START_TEST(what_is_short_decides)
{
    const i32 large = keep(1), wide = keep(2);
    i32 first = keep(3);
    for (i32 i = 0; i < 9; i++) (void)keep(3);
    vx_shares_charge(shares, large, VX_SHARE_BYTES, 1000);
    vx_shares_charge(shares, wide, VX_SHARE_SETS, 5);
    vx_shares_charge(shares, wide, VX_SHARE_BYTES, 999);
    vx_shares_charge(shares, first, VX_SHARE_MAPS, 1);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_ENTRIES, 9, 1), first);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 9, 1), large);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_SETS, 9, 1), wide);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_MAPS, 9, 1), first);
    /* Who asks counts with what it wants. */
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 2, 1), large);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 2, 2), wide);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 3, 1000), large);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 3, 1001), first);
    vx_shares_charge(shares, large, VX_SHARE_BYTES, -2);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 9, 1), wide);
    ck_assert_int_eq(vx_shares_has(shares, 1, VX_SHARE_BYTES), 998);
    drop(wide); /* with all that it has */
    ck_assert_int_eq(vx_shares_has(shares, 2, VX_SHARE_BYTES), 0);
    const i32 again = keep(2);
    ck_assert_int_eq(vx_shares_has(shares, 2, VX_SHARE_BYTES), 0);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_SETS, 2, 1), again);
}
END_TEST

START_TEST(an_entry_moves_with_all_that_it_has)
{
    const i32 entry = make(1), other = keep(1);
    vx_shares_charge(shares, entry, VX_SHARE_BYTES, 70);
    vx_shares_move(shares, entry, 2);
    ck_assert_int_eq(has(1), 1);
    ck_assert_int_eq(vx_shares_has(shares, 1, VX_SHARE_BYTES), 0);
    ck_assert_int_eq(vx_shares_has(shares, 2, VX_SHARE_BYTES), 70);
    vx_shares_rest(shares, entry);
    ck_assert_int_eq(vx_shares_victim(shares, VX_SHARE_BYTES, 9, 1), entry);
    ck_assert_int_eq(victim(9), other);
    vx_shares_use(shares, entry, 1); /* use alone takes nothing */
    ck_assert_int_eq(has(2), 1);
    vx_shares_move(shares, entry, 3);
    ck_assert_int_eq(vx_shares_origins(shares), 2);
    vx_shares_move(shares, entry, 1);
    vx_shares_move(shares, entry, 1);
    ck_assert_int_eq(vx_shares_origins(shares), 1);
    ck_assert_int_eq(has(1), 2);
}
END_TEST

/* As many origins as entries, over and over: an origin without an entry is forgotten, so that there
 * is always room for one more. */
START_TEST(origins_live_while_they_have_something)
{
    for (u64 i = 0; i < 10 * ENTRIES; i++) {
        (void)keep(i * ENTRIES); /* one chain */
        ck_assert_int_le(vx_shares_origins(shares), ENTRIES);
        ck_assert_int_eq(has(i * ENTRIES), 1);
    }
    ck_assert_int_eq(vx_shares_origins(shares), ENTRIES);
    ck_assert_int_eq(has(0), 0);
    /* All in use, each moves to yet another one. */
    for (i32 i = 0; i < ENTRIES; i++) vx_shares_use(shares, i, of[i]);
    for (i32 i = 0; i < ENTRIES; i++) vx_shares_move(shares, i, (u64)i + 1);
    ck_assert_int_eq(vx_shares_origins(shares), ENTRIES);
    for (i32 i = 0; i < ENTRIES; i++) drop(i);
    ck_assert_int_eq(vx_shares_origins(shares), 0);
}
END_TEST

/* Who has asked for nothing for long gives first; what others use of it is theirs. */
START_TEST(the_idle_give_first)
{
    const i32 idle[] = {keep(1), keep(1), keep(1)};
    vx_shares_ask(shares, 2, VX_SHARES_IDLE_NS);
    i32 first = keep(2);
    for (i32 i = 0; i < 9; i++) (void)keep(2);
    ck_assert_int_eq(victim(2), first);
    vx_shares_ask(shares, 2, VX_SHARES_IDLE_NS + 1);
    ck_assert_int_eq(victim(2), idle[0]);
    vx_shares_use(shares, idle[0], 2);
    vx_shares_rest(shares, idle[0]);
    ck_assert_int_eq(has(1), 2);
    ck_assert_int_eq(has(2), 11);
    ck_assert_int_eq(victim(2), idle[1]);
    vx_shares_ask(shares, 1, VX_SHARES_IDLE_NS + 1); /* it is back */
    ck_assert_int_eq(victim(2), first);
    ck_assert_int_eq(victim(1), first);
    vx_shares_use(shares, first, 1);
    ck_assert_int_eq(has(2), 11);
    ck_assert_int_eq(has(1), 2);
}
END_TEST

/* ------- against a list that is searched ------- */

static struct {
    bool rests;
    int rested;
    i64 has[VX_SHARE_KINDS];
} model[ENTRIES];
static int model_clock;

static i64 model_has(u64 origin, i32 kind)
{
    i64 sum = 0;
    for (i32 i = 0; i < ENTRIES; i++)
        if (there[i] && of[i] == origin) sum += model[i].has[kind];
    return sum;
}

/* The oldest that rests of the origin; or NONE. */
static i32 model_oldest(u64 origin)
{
    i32 oldest = NONE;
    for (i32 i = 0; i < ENTRIES; i++)
        if (there[i] && of[i] == origin && model[i].rests &&
            (oldest == NONE || model[i].rested < model[oldest].rested))
            oldest = i;
    return oldest;
}

static i32 model_victim(i32 kind, u64 asks, i64 want)
{
    i32 best = NONE;
    i64 most = 0;
    for (i32 i = 0; i < ENTRIES; i++) {
        if (!there[i] || model_oldest(of[i]) != i) continue;
        const i64 now = model_has(of[i], kind);
        if (best == NONE || now > most ||
            (now == most && model[i].rested < model[best].rested)) {
            best = i;
            most = now;
        }
    }
    const i32 own = model_oldest(asks);
    return own != NONE && model_has(asks, kind) + want > most ? own : best;
}

static void step_take(struct voxels_random *random, i32 i, u64 origins)
{
    of[i] = voxels_next(random) % origins;
    there[i] = true;
    vx_shares_add(shares, i, of[i]);
    model[i].rests = false;
    for (i32 kind = 0; kind < VX_SHARE_KINDS; kind++)
        model[i].has[kind] = kind == VX_SHARE_ENTRIES;
}

static void step_change(struct voxels_random *random, i32 i, u64 origins)
{
    const i64 more = (i64)(voxels_next(random) % 100);
    const i32 kind = 1 + (i32)(voxels_next(random) % (VX_SHARE_KINDS - 1));
    switch (voxels_next(random) % 5) {
    case 0: drop(i); break;
    case 1:
        if (model[i].rests) break;
        of[i] = voxels_next(random) % origins;
        vx_shares_move(shares, i, of[i]);
        break;
    case 2:
        vx_shares_charge(shares, i, (enum vx_share)kind, more - model[i].has[kind]);
        model[i].has[kind] = more;
        break;
    default:
        if (model[i].rests)
            vx_shares_use(shares, i, voxels_next(random) % origins);
        else
            vx_shares_rest(shares, i);
        model[i].rests = !model[i].rests;
        model[i].rested = ++model_clock;
    }
}

START_TEST(any_sequence_agrees_with_a_search)
{
    static const u64 of_origins[] = {1, 2, 3, 7, 20, 60, 300};
    const u64 origins = of_origins[_i];
    struct voxels_random random = {5 + (u64)_i};
    for (int step = 0; step < 20000; step++) {
        const i32 i = (i32)(voxels_next(&random) % ENTRIES);
        if (there[i])
            step_change(&random, i, origins);
        else
            step_take(&random, i, origins);
        const i32 kind = step % VX_SHARE_KINDS;
        const u64 asks = voxels_next(&random) % (origins + 1);
        const i64 want = (i64)(voxels_next(&random) % 40);
        ck_assert_int_eq(vx_shares_victim(shares, (enum vx_share)kind, asks, want),
                         model_victim(kind, asks, want));
        ck_assert_int_eq(vx_shares_has(shares, asks, (enum vx_share)kind),
                         model_has(asks, kind));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shares");
    TCase *tcase = tcase_create("shares");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, one_origin_has_everything);
    tcase_add_loop_test(tcase, a_flood_evicts_its_own, 0, 3);
    tcase_add_loop_test(tcase, many_origins_have_equal_parts, 1, 9);
    tcase_add_test(tcase, equal_parts_give_by_age);
    tcase_add_test(tcase, what_is_in_use_does_not_go);
    tcase_add_test(tcase, what_is_short_decides);
    tcase_add_test(tcase, an_entry_moves_with_all_that_it_has);
    tcase_add_test(tcase, origins_live_while_they_have_something);
    tcase_add_test(tcase, the_idle_give_first);
    tcase_add_loop_test(tcase, any_sequence_agrees_with_a_search, 0, 7);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
