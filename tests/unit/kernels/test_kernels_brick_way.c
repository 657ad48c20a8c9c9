/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/03_brick_index.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The way of a search through the table of bricks: it is complete, and short for bricks that lie in
 * any pattern.  A wave waits for the longest of its lanes' searches. */

#define SEED 0x123456789abcdef1ull

/* However full a table is, a search meets each slot once before it meets one again. */
START_TEST(test_the_way_meets_each_slot_once)
{
    enum { SLOTS_MOST = 1 << 12 };
    static u8 met[SLOTS_MOST];
    const u64 slots_count = (u64[]){VX_BRICK_GROUP, 16, 64, SLOTS_MOST}[_i];
    struct voxels_random random = {1};
    for (i32 trial = 0; trial < 50; trial++) {
        const u64 key = vx_brick_key(0, voxels_between(&random, -1000, 1000),
                                     voxels_between(&random, -1000, 1000), trial);
        const struct vx_brick_way way = vx_brick_way(key, slots_count, SEED);
        u32 slot = way.start;
        memset(met, 0, sizeof met);
        for (u64 step = 0; step < slots_count; step++) {
            ck_assert_uint_lt(slot, slots_count);
            ck_assert_uint_eq(met[slot]++, 0);
            slot = vx_brick_next(slot, way, slots_count);
        }
    }
}
END_TEST

/* Bricks of a box, each there with a likelihood, `every` bricks apart along each axis; `room` is how
 * many slots a brick has at least: 2 if each has one voxel. */
struct pattern {
    const char *name;
    i32 edge, every;
    f32 likely;
    i32 room;
};
static const struct pattern patterns[] = {
    {"1 % of the voxels", 56, 1, 0.474f, 3},
    {"0.1 % of the voxels", 120, 1, 0.062f, 2},
    {"every brick", 46, 1, 1, 2},
    {"every second brick along each axis", 46, 2, 1, 2},
    {"every eighth brick along each axis", 46, 8, 1, 2},
};

struct searches {
    u64 slots_count;
    struct vx_brick_slot *slots;
    i64 count, sum; /* of searches, and of the pairs of slots that they loaded */
    i32 most;       /* pairs of one search */
};

static void search(struct searches *searches, u64 key, bool insert)
{
    const struct vx_brick_way way = vx_brick_way(key, searches->slots_count, SEED);
    u32 slot = way.start;
    i32 probes = 1;
    for (; searches->slots[slot].key && searches->slots[slot].key != key; probes++)
        slot = vx_brick_next(slot, way, searches->slots_count);
    if (insert) searches->slots[slot].key = key;
    const i32 pairs = (probes + 1) / 2;
    searches->count++;
    searches->sum += pairs;
    if (pairs > searches->most) searches->most = pairs;
}

/* Every brick of the pattern, in the order of x, y, z. */
static i64 keys_of(const struct pattern *pattern, u64 *keys)
{
    struct voxels_random random = {7};
    const i32 edge = pattern->edge, step = 4 * pattern->every;
    i64 count = 0;
    for (i32 at = 0; at < edge * edge * edge; at++) {
        if (voxels_unit(&random) >= 2 * pattern->likely - 1) continue;
        keys[count++] = vx_brick_key(0, at / edge / edge * step, at / edge % edge * step,
                                     at % edge * step);
    }
    return count;
}

/* Bricks are inserted, then all of them and all beside them are looked up.  When a group without
 * room went into the next line of slots, the bricks of 1 % of the voxels took 2.3 pairs in the mean
 * and 30 at most. */
START_TEST(test_searches_are_short)
{
    const struct pattern *pattern = &patterns[_i];
    const i64 most = (i64)pattern->edge * pattern->edge * pattern->edge;
    u64 *keys = vx_alloc((size_t)most * sizeof *keys);
    const i64 count = keys_of(pattern, keys);
    struct searches searches = {.slots_count = VX_BRICK_GROUP};
    while ((i64)searches.slots_count < pattern->room * count) searches.slots_count *= 2;
    searches.slots = vx_alloc_zero(searches.slots_count * sizeof *searches.slots);
    for (i64 i = 0; i < count; i++) search(&searches, keys[i], true);
    for (i64 i = 0; i < count; i++)
        for (i32 v = 0; v < 27; v++) {
            const u64 key = vx_brick_beside(keys[i], v / 9 - 1, v / 3 % 3 - 1, v % 3 - 1);
            if (key) search(&searches, key, false);
        }
    if (searches.sum * 2 > searches.count * 3 || searches.most > 14)
        ck_abort_msg(
            "%s: expected 1.5 pairs of slots a search and 14 at most, got %.2f and %d",
            pattern->name, (f64)searches.sum / (f64)searches.count, searches.most);
    vx_free(searches.slots);
    vx_free(keys);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_brick_way");
    TCase *tcase = tcase_create("way");
    tcase_add_loop_test(tcase, test_the_way_meets_each_slot_once, 0, 4);
    tcase_add_loop_test(tcase, test_searches_are_short, 0,
                        sizeof patterns / sizeof *patterns);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
