/* A request in exactly the room that is computed for it, whatever the cache held before and beside
 * another one in use: blocks move, and all sets and maps are what they are where there is ample
 * room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/cpu/geometry/keys.h"
#include "engine/cpu/geometry/room.h"
#include "tests/support/geometry_rig.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define ONES {1, 1, 1}
#define TWOS {2, 2, 2}
/* clang-format on */

#define N    3000
#define SETS 5
#define MAPS 9

/* Set 0, two levels, what a generative layer makes of the second, and the samples. */
static const struct vx_set_key set_keys[SETS] = {
    {.rule = VX_SET_REQUEST},
    {.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = TWOS},
    {.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = TWOS, .from = 1},
    {.rule = VX_SET_EXPAND, .kernel = TWOS, .dilation = ONES, .stride = TWOS, .from = 2},
    {.rule = VX_SET_SAMPLES, .kernel = ONES, .dilation = ONES, .stride = ONES},
};

static const struct vx_map_key map_keys[MAPS] = {
    {.kernel = {5, 5, 5}, .dilation = ONES},
    {.kernel = {3, 3, 3}, .dilation = ONES, .from = 3, .to = 3},
    {.kernel = {3, 3, 3}, .dilation = {2, 2, 2}},
    {.kernel = {3, 3, 3}, .dilation = ONES, .from = 1, .to = 1},
    {.kind = VX_MAP_DOWN, .kernel = TWOS, .dilation = ONES, .stride = TWOS, .to = 1},
    {.kind = VX_MAP_PARENT, .kernel = ONES, .dilation = ONES, .stride = TWOS, .from = 1},
    {.kind = VX_MAP_ORDER, .kernel = ONES, .dilation = ONES, .stride = {4, 2, 4}},
    {.kind = VX_MAP_SAMPLE, .kernel = ONES, .dilation = ONES, .stride = ONES, .from = 4},
    {.kernel = {1, 1, 3}, .dilation = ONES, .from = 2, .to = 2},
};

struct request {
    i64 n;
    i32 coords[N * 4];
};

/* Different voxels of 3 samples, mixed. */
static void request_make(struct request *request, i64 n, i32 shift)
{
    struct voxels_random random = {(u64)n};
    request->n = n;
    voxels_scan(&random, n, request->coords);
    for (i64 i = 0; i < n; i++) {
        request->coords[i * 4] = (i32)(i % 3);
        request->coords[i * 4 + 1] += shift;
    }
    voxels_shuffle(&random, request->coords, n);
}

/* What a network gets of a request. */
struct built {
    struct vx_geometry *geometry;
    i32 sets[SETS];
    const struct vx_map *maps[MAPS];
};

/* Of a network that has no maps the room is that of its largest set while it is made. */
static i32 maps_wanted = MAPS;

/* Gets the sets and maps; false: one was refused.  `rise`: the smallest maps first. */
static bool build(const struct request *request, bool rise, struct built *built)
{
    const struct vx_coords_view view = rig_view(request->coords, request->n, 4);
    *built = (struct built){0};
    if (vx_geometry_hold(rig.cache, rig.cpu, &view, &rig.why, &built->geometry).fault)
        return false;
    for (i32 i = 1; i < SETS; i++) {
        struct vx_set_key key = set_keys[i];
        struct vx_geometry_made made = {0};
        key.from = built->sets[key.from];
        if (vx_geometry_set(built->geometry, rig.cpu, &key, &rig.why, &made).fault)
            return false;
        built->sets[i] = made.number;
    }
    for (i32 i = 0; i < maps_wanted; i++) {
        const i32 at = rise ? MAPS - 1 - i : i;
        struct vx_map_key key = map_keys[at];
        key.from = built->sets[key.from];
        key.to = built->sets[key.to];
        if (vx_geometry_map(built->geometry, rig.cpu, &key, &rig.why, &built->maps[at])
                .fault)
            return false;
    }
    return true;
}

/* What they are, copied. */
struct truth {
    i64 rows[SETS];
    i32 *coords[SETS], *numbers[SETS];
    i32 *nbr[MAPS];
    i64 pairs[MAPS];
};

static i32 *copy_of(const i32 *from, i64 count)
{
    i32 *to = vx_alloc((size_t)(count + 1) * sizeof *to);
    memcpy(to, from, (size_t)count * sizeof *to);
    return to;
}

static i32 *coords_of(const struct built *built, i32 set)
{
    const i64 rows = vx_geometry_rows(built->geometry, built->sets[set]);
    i32 *coords = vx_alloc((size_t)(rows + 1) * 16);
    vx_geometry_coords(built->geometry, rig.cpu, built->sets[set], coords);
    return coords;
}

static void truth_make(const struct request *request, struct truth *truth)
{
    struct built built;
    rig_open(3, (size_t)256 << 20);
    ck_assert(build(request, false, &built));
    for (i32 i = 0; i < SETS; i++) {
        truth->rows[i] = vx_geometry_rows(built.geometry, built.sets[i]);
        truth->coords[i] = coords_of(&built, i);
        truth->numbers[i] = copy_of(vx_geometry_keys(built.geometry, built.sets[i])->rows,
                                    truth->rows[i]);
    }
    for (i32 i = 0; i < MAPS; i++) {
        truth->pairs[i] = built.maps[i]->pairs;
        truth->nbr[i] = copy_of(built.maps[i]->nbr, built.maps[i]->v * built.maps[i]->n);
    }
    vx_geometry_drop(rig.cache, &built.geometry);
    rig_close();
}

static void truth_free(struct truth *truth)
{
    for (i32 i = 0; i < SETS; i++) vx_free(truth->coords[i]), vx_free(truth->numbers[i]);
    for (i32 i = 0; i < MAPS; i++) vx_free(truth->nbr[i]);
}

static void truth_check(const struct truth *truth, const struct built *built)
{
    for (i32 i = 0; i < SETS; i++) {
        const struct vx_keys *keys = vx_geometry_keys(built->geometry, built->sets[i]);
        const size_t rows = (size_t)truth->rows[i];
        ck_assert_int_eq(keys->n, truth->rows[i]);
        ck_assert_mem_eq(keys->rows, truth->numbers[i], rows * 4);
        i32 *coords = coords_of(built, i);
        ck_assert_mem_eq(coords, truth->coords[i], rows * 16);
        vx_free(coords);
    }
    for (i32 i = 0; i < maps_wanted; i++) {
        const struct vx_map *map = built->maps[i];
        ck_assert_int_eq(map->pairs, truth->pairs[i]);
        ck_assert_mem_eq(map->nbr, truth->nbr[i], (size_t)(map->v * map->n) * 4);
    }
}

/* The room of a request whose sets have these rows. */
static size_t room_of(const struct truth *truth, bool rise)
{
    const struct vx_map_key *maps[MAPS];
    i64 candidates[SETS] = {0};
    for (i32 i = 0; i < MAPS; i++) maps[i] = &map_keys[rise ? MAPS - 1 - i : i];
    for (i32 i = 1; i < SETS; i++) candidates[i] = truth->rows[set_keys[i].from];
    candidates[3] *= 8;
    candidates[4] = 3;
    return vx_geometry_room(&(struct vx_geometry_need){.sets_count = SETS,
                                                       .rows = truth->rows,
                                                       .candidates = candidates,
                                                       .maps = maps,
                                                       .maps_count = maps_wanted});
}

/* Other requests, of one page each and larger, before or behind one that is in use. */
static void others(struct voxels_random *random, i32 count)
{
    i32 coords[1000 * 4] = {0};
    for (i32 i = 0; i < count; i++) {
        const bool small = voxels_between(random, 0, 3);
        const i64 n = small ? 1 : voxels_between(random, 2, 1000);
        for (i32 at = 0; at < n; at++)
            coords[at * 4 + 2] = voxels_between(random, -100000, 100000), /* 20 bits */
                coords[at * 4 + 3] = at;
        struct vx_geometry *other = rig_hold(coords, n);
        if (!voxels_between(random, 0, 2))
            (void)rig_map(other, rig_kernels[voxels_between(random, 0, 5)]);
        vx_geometry_drop(rig.cache, &other);
    }
}

static struct request asked, beside;
static struct truth asked_truth, beside_truth;

static void setup(void)
{
    request_make(&asked, N, 0);
    request_make(&beside, 700, 1000);
    truth_make(&asked, &asked_truth);
    truth_make(&beside, &beside_truth);
}

static void teardown(void)
{
    truth_free(&asked_truth);
    truth_free(&beside_truth);
}

/* Alone in the room that is computed, behind more and more others, in both orders of maps; and
 * again, as a hit. */
START_TEST(room_is_enough)
{
    struct voxels_random random = {(u64)_i + 1};
    struct built built;
    maps_wanted = _i < 6 ? MAPS : 0;
    rig_open(3, room_of(&asked_truth, _i & 1));
    for (i32 round = 0; round < 20; round++) {
        others(&random, round * 3);
        ck_assert_msg(build(&asked, _i & 1, &built), "%s", rig.why.text);
        truth_check(&asked_truth, &built);
        vx_geometry_drop(rig.cache, &built.geometry);
        ck_assert_msg(build(&asked, _i & 1, &built), "%s", rig.why.text);
        ck_assert(vx_geometry_was_hit(built.geometry));
        truth_check(&asked_truth, &built);
        vx_geometry_drop(rig.cache, &built.geometry);
        if (!(round % 3))
            vx_geometry_forget(rig.cache, rig_view(asked.coords, N, 4).coords_ref);
    }
    rig_close();
}
END_TEST

/* The room is no more than is needed: a page less is too little, and nothing is left behind. */
START_TEST(a_page_less_is_too_little)
{
    struct vx_geometry_stats stats;
    struct built built;
    rig_open(3, room_of(&asked_truth, _i) - 4096);
    ck_assert(!build(&asked, _i, &built));
    ck_assert_ptr_nonnull(
        strstr(rig.why.text, "more in the geometry cache; cache_bytes"));
    if (built.geometry) vx_geometry_drop(rig.cache, &built.geometry);
    vx_geometry_forget(rig.cache, rig_view(asked.coords, N, 4).coords_ref);
    vx_geometry_stats_get(rig.cache, &stats);
    ck_assert_int_eq(stats.bytes, 0);
    rig_close();
}
END_TEST

/* Beside a request in use, whose blocks lie anywhere between others': they move, too. */
START_TEST(room_is_enough_beside_another)
{
    struct voxels_random random = {(u64)_i + 1};
    struct built built, held;
    size_t own = 0;
    maps_wanted = _i < 6 ? MAPS : 0;
    for (i32 i = 0; i < SETS; i++)
        own += vx_round_up(vx_geometry_set_bytes(beside_truth.rows[i]), 4096);
    for (i32 i = 0; i < maps_wanted; i++)
        own += vx_round_up(
            vx_geometry_map_bytes(&map_keys[i], beside_truth.rows[map_keys[i].to]), 4096);
    rig_open(3, room_of(&asked_truth, _i & 1) + own);
    for (i32 round = 0; round < 12; round++) {
        others(&random, round * 5);
        ck_assert_msg(build(&beside, round & 1, &held), "%s", rig.why.text);
        others(&random, round * 5);
        ck_assert_msg(build(&asked, _i & 1, &built), "%s", rig.why.text);
        truth_check(&asked_truth, &built);
        truth_check(&beside_truth, &held);
        vx_geometry_drop(rig.cache, &built.geometry);
        truth_check(&beside_truth, &held);
        vx_geometry_drop(rig.cache, &held.geometry);
        if (round % 3)
            vx_geometry_forget(rig.cache, rig_view(asked.coords, N, 4).coords_ref);
        if (round % 4)
            vx_geometry_forget(rig.cache, rig_view(beside.coords, 700, 4).coords_ref);
    }
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_pack");
    TCase *cases = tcase_create("geometry_pack");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, room_is_enough, 0, 10);
    tcase_add_loop_test(cases, a_page_less_is_too_little, 0, 2);
    tcase_add_loop_test(cases, room_is_enough_beside_another, 0, 10);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
