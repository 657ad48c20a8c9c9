/* The bytes that a geometry takes in the cache: how much is enough, and the refusal where there is
 * less.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/cpu/geometry/room.h"
#include "tests/support/geometry_rig.h"

#include <check.h>
#include <stdlib.h>

static void setup(void)
{
    rig_open(3, (size_t)1 << 20);
}

/* 1, 5 and 8 pages do not all fit in 13: the sentence says what takes the room.  In 14 they do,
 * though no aligned place of 8 is free. */
START_TEST(test_refusal_adds_up)
{
    rig_close();
    rig_open(1, (size_t)(13 + _i) * 4096);
    i32 coords[100 * 4] = {0};
    const struct vx_map *map;
    for (i32 i = 0; i < 100; i++) coords[i * 4 + 3] = i;
    struct vx_geometry *held = rig_hold(coords, 100);
    const struct vx_map_key wide = {.kernel = {7, 7, 1}, .dilation = {1, 1, 1}},
                            wider = {.kernel = {9, 9, 1}, .dilation = {1, 1, 1}};
    (void)rig_map(held, wide);
    vx_status status = vx_geometry_map(held, rig.cpu, &wider, &rig.why, &map);
    if (!_i) {
        ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_str_eq(
            rig.why.text,
            "the geometry needs 32400 bytes more in the geometry cache; cache_bytes is "
            "53248, of which requests in use have 24576");
    } else {
        rig_check_map(coords, 100, rig_map(held, wider));
        rig_check_map(coords, 100, rig_map(held, wide));
    }
    vx_geometry_drop(rig.cache, &held);
}
END_TEST

static size_t room_of(const struct vx_map_key *const *maps, i32 maps_count, i64 n)
{
    return vx_geometry_room(&(struct vx_geometry_need){
        .sets_count = 1, .rows = &n, .maps = maps, .maps_count = maps_count});
}

/* The computed size is enough wherever the set lies: behind any number of pages of other
 * sets, which are discarded to make room for the maps. */
START_TEST(test_room_is_enough)
{
    const struct vx_map_key keys[] = {{.kernel = {5, 5, 5}, .dilation = {1, 1, 1}},
                                      {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}},
                                      {.kernel = {1, 1, 3}, .dilation = {1, 1, 1}}};
    const struct vx_map_key *const maps[] = {&keys[0], &keys[1], &keys[2]};
    const i64 n = 100;
    i32 coords[100 * 4] = {0};
    for (i32 i = 0; i < n; i++) coords[i * 4 + 3] = i;
    ck_assert_uint_eq(room_of(maps, 3, 0), 0);
    ck_assert_uint_eq(room_of(maps, 0, n), 2 * 4096);
    ck_assert_uint_eq(room_of(maps + 1, 1, n), (1 + 3) * 4096);
    size_t bytes = room_of(maps, 3, n);
    ck_assert_uint_eq(bytes, (1 + 13 + 3 + 1) * 4096);
    rig_close();
    rig_open(1, bytes);
    for (size_t before = 0; before <= bytes / 4096; before++) {
        for (i32 i = 0; i < (i32)before; i++) {
            struct vx_geometry *other = rig_hold((i32[]){1, i, (i32)before, 0}, 1);
            vx_geometry_drop(rig.cache, &other);
        }
        coords[1] = (i32)before;
        struct vx_geometry *geometry = rig_hold(coords, n);
        for (i32 i = 0; i < 3; i++) rig_check_map(coords, n, rig_map(geometry, keys[i]));
        vx_geometry_drop(rig.cache, &geometry);
    }
}
END_TEST

/* Whether row b comes behind row a in an order by cells of 4 x 2 x 4 voxels. */
static bool comes_behind(const i32 *a, const i32 *b)
{
    for (int axis = 1; axis < 4; axis++) {
        i32 shift = axis == 2 ? 1 : 2; /* rounds towards minus infinity */
        if (a[axis] >> shift != b[axis] >> shift)
            return a[axis] >> shift < b[axis] >> shift;
    }
    for (int axis = 1; axis < 4; axis++)
        if (a[axis] != b[axis]) return a[axis] < b[axis];
    return false;
}

/* An order takes two blocks more while it is made, and then gives them back. */
START_TEST(test_room_is_enough_to_sort)
{
    const struct vx_map_key key = {.kernel = {1, 1, 1},
                                   .dilation = {1, 1, 1},
                                   .stride = {4, 2, 4},
                                   .kind = VX_MAP_ORDER};
    const struct vx_map_key *const maps[] = {&key};
    enum { N = 100 };
    i32 coords[N * 4] = {0};
    for (i32 i = 0; i < N; i++) { /* each of them once, mixed */
        i32 at = i * 37 % N;
        coords[i * 4 + 1] = at % 10 - 5;
        coords[i * 4 + 2] = at / 10 - 7;
        coords[i * 4 + 3] = at % 7;
    }
    size_t bytes = room_of(maps, 1, N);
    ck_assert_uint_eq(bytes, 4 * 4096);
    rig_close();
    rig_open(3, bytes);
    for (i32 again = 0; again < 2; again++) {
        bool seen[N] = {false};
        struct vx_geometry *geometry = rig_hold(coords, N);
        const struct vx_map *map = rig_map(geometry, key);
        ck_assert_int_eq(map->pairs, N);
        for (i32 i = 0; i < N; i++) {
            ck_assert(!seen[map->nbr[i]]);
            seen[map->nbr[i]] = true;
            if (i)
                ck_assert(
                    comes_behind(&coords[map->nbr[i - 1] * 4], &coords[map->nbr[i] * 4]));
        }
        vx_geometry_drop(rig.cache, &geometry);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_room");
    TCase *cases = tcase_create("geometry_room");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, rig_close);
    tcase_add_loop_test(cases, test_refusal_adds_up, 0, 2);
    tcase_add_test(cases, test_room_is_enough);
    tcase_add_test(cases, test_room_is_enough_to_sort);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
