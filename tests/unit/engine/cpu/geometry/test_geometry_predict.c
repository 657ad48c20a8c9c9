/* Sets by logits on the CPU: rows and their order against the definition, on few voxels and
 * on more than one thread's share; the first NaN; what the last drop frees; and the room
 * that stages need.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/cpu/geometry/room.h"
#include "tests/support/geometry_rig.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_MAX 20000

static void set_up(void)
{
    rig_open(3, (size_t)64 << 20);
}

/* Different voxels of several samples, in any order, and numbers beside them. */
struct cloud {
    i64 n;
    i32 (*rows)[4];
    f32 *logits;
    i32 children;
};

/* Logits have few values, so that many are equal. */
static struct cloud cloud_make(u64 seed, i64 n, i32 children)
{
    struct voxels_random random = {seed};
    struct cloud cloud = {n, vx_alloc((size_t)n * sizeof *cloud.rows),
                          vx_alloc((size_t)(n * children) * sizeof(f32)), children};
    for (i64 i = 0; i < n; i++) {
        i32 *row = cloud.rows[i], at = (i32)i;
        row[0] = at % 3 * 100;
        row[1] = at / 3 % 40 - 20;
        row[2] = at / 120 % 30 - (i32)(seed % 2) * 10;
        row[3] = at / 3600;
    }
    voxels_shuffle(&random, &cloud.rows[0][0], n);
    for (i64 i = 0; i < n * children; i++)
        cloud.logits[i] = (f32)((i32)(voxels_next(&random) % 9) - 4) / 4;
    return cloud;
}

static void cloud_free(struct cloud *cloud)
{
    vx_free(cloud->rows);
    vx_free(cloud->logits);
}

static int compare_rows(const void *a, const void *b)
{
    const i32 *left = a, *right = b;
    for (int field = 0; field < 4; field++)
        if (left[field] != right[field]) return left[field] < right[field] ? -1 : 1;
    return 0;
}

/* The definition, in the plainest way; returns the rows, ascending. */
static i64 expect_children(const struct cloud *cloud, const i32 stride[3], i32 (*rows)[4])
{
    i64 count = 0;
    for (i64 i = 0; i < cloud->n; i++)
        for (i32 x = 0; x < stride[0]; x++)
            for (i32 y = 0; y < stride[1]; y++)
                for (i32 z = 0; z < stride[2]; z++) {
                    i32 child = x + stride[0] * (y + stride[1] * z);
                    if (!(cloud->logits[i * cloud->children + child] > 0)) continue;
                    i32 *row = rows[count++];
                    row[0] = cloud->rows[i][0];
                    row[1] = cloud->rows[i][1] * stride[0] + x;
                    row[2] = cloud->rows[i][2] * stride[1] + y;
                    row[3] = cloud->rows[i][3] * stride[2] + z;
                }
    qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    return count;
}

/* For each voxel those that come before it; slow, for small clouds. */
static i64 expect_top(const struct cloud *cloud, i32 top, i32 (*rows)[4])
{
    i64 count = 0;
    for (i64 i = 0; i < cloud->n; i++) {
        i64 ahead = 0;
        for (i64 j = 0; j < cloud->n; j++) {
            if (cloud->rows[j][0] != cloud->rows[i][0] || i == j) continue;
            bool equal = cloud->logits[j] == cloud->logits[i];
            bool first = compare_rows(cloud->rows[j], cloud->rows[i]) < 0;
            ahead += equal ? first : cloud->logits[j] > cloud->logits[i];
        }
        if (ahead < top) memcpy(rows[count++], cloud->rows[i], sizeof *rows);
    }
    qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    return count;
}

static struct vx_geometry_prediction live(const struct cloud *cloud, i32 x, i32 y, i32 z)
{
    return (struct vx_geometry_prediction){{.rule = VX_SET_LIVE,
                                            .kernel = {x, y, z},
                                            .dilation = {1, 1, 1},
                                            .stride = {x, y, z},
                                            .by = 3},
                                           cloud->logits};
}

static struct vx_geometry_prediction keep(const struct cloud *cloud, i32 top)
{
    return (struct vx_geometry_prediction){{.rule = VX_SET_KEEP,
                                            .kernel = {1, 1, 1},
                                            .dilation = {1, 1, 1},
                                            .stride = {1, 1, 1},
                                            .by = 3,
                                            .top = top},
                                           cloud->logits};
}

static i32 predict(struct vx_geometry *geometry,
                   const struct vx_geometry_prediction *prediction)
{
    struct vx_geometry_made made = {0};
    i32 voxel[4], child;
    ck_assert(!vx_geometry_find_nan(geometry, rig.cpu, prediction, voxel, &child));
    vx_status status =
        vx_geometry_predict(geometry, rig.cpu, prediction, &rig.why, &made);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &rig.why));
    ck_assert_int_gt(made.number, 0);
    return made.number;
}

static void check_rows(struct vx_geometry *geometry, i32 set, const i32 (*rows)[4],
                       i64 count)
{
    i32(*got)[4] = vx_alloc((size_t)(count + 1) * sizeof *got);
    ck_assert_int_eq(vx_geometry_rows(geometry, set), count);
    vx_geometry_coords(geometry, rig.cpu, set, &got[0][0]);
    ck_assert_mem_eq(got, rows, (size_t)count * sizeof *got);
    vx_free(got);
}

static const i64 sizes[] = {1, 2, 500, N_MAX};

START_TEST(children_with_a_logit_above_0)
{
    static const i32 strides[][3] = {{2, 2, 2}, {1, 1, 1}, {3, 1, 2}};
    const i32 *s = strides[_i % 3];
    i64 n = sizes[_i / 3];
    struct cloud cloud = cloud_make((u64)_i, n, s[0] * s[1] * s[2]);
    i32(*rows)[4] = vx_alloc((size_t)(n * cloud.children) * sizeof *rows);
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], n);
    const struct vx_geometry_prediction it = live(&cloud, s[0], s[1], s[2]);
    i64 count = expect_children(&cloud, s, rows);
    check_rows(geometry, predict(geometry, &it), (const i32(*)[4])rows, count);
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(rows);
    cloud_free(&cloud);
}
END_TEST

START_TEST(voxels_that_are_kept)
{
    static const i32 ones[3] = {1, 1, 1}, tops[] = {0, 1, 2, 3, 60, 166, 167, 1 << 30};
    i32 top = tops[_i];
    struct cloud cloud = cloud_make(5, top ? 500 : N_MAX, 1);
    i32(*rows)[4] = vx_alloc((size_t)cloud.n * sizeof *rows);
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
    const struct vx_geometry_prediction it = keep(&cloud, top);
    i64 count = top ? expect_top(&cloud, top, rows) : expect_children(&cloud, ones, rows);
    check_rows(geometry, predict(geometry, &it), (const i32(*)[4])rows, count);
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(rows);
    cloud_free(&cloud);
}
END_TEST

/* Every bit pattern has its place: all orders of magnitude, both infinities, both zeros,
 * which are equal. */
START_TEST(the_largest_of_any_numbers)
{
    static const f32 values[] = {-INFINITY, -3e38f, -1,     -1e-40f, -0.0f,
                                 0,         1e-45f, 1e-40f, 0.5f,    INFINITY};
    struct cloud cloud = cloud_make(9, 400, 1);
    struct voxels_random random = {77};
    i32(*rows)[4] = vx_alloc((size_t)cloud.n * sizeof *rows);
    for (i64 i = 0; i < cloud.n; i++)
        cloud.logits[i] = values[voxels_next(&random) % VX_COUNT(values)];
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
    for (i32 top = 1; top <= 134; top += 7) {
        const struct vx_geometry_prediction it = keep(&cloud, top);
        i64 count = expect_top(&cloud, top, rows);
        check_rows(geometry, predict(geometry, &it), (const i32(*)[4])rows, count);
    }
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(rows);
    cloud_free(&cloud);
}
END_TEST

START_TEST(children_beyond_the_range_do_not_exist)
{
    static const i32 rows[2][4] = {{0, VX_AXIS_MAX, 0, 0}, {0, VX_AXIS_MIN / 2, 0, 0}};
    static const i32 expected[2][4] = {{0, VX_AXIS_MIN, 0, 0},
                                       {0, VX_AXIS_MIN + 1, 0, 0}};
    f32 logits[4] = {1, 1, 1, 1};
    struct cloud cloud = {2, NULL, logits, 2};
    const struct vx_geometry_prediction it = live(&cloud, 2, 1, 1);
    struct vx_geometry *geometry = rig_hold(&rows[0][0], 2);
    check_rows(geometry, predict(geometry, &it), expected, 2);
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

/* The first by sample, x, y, z, wherever its row is, and its first such child. */
START_TEST(the_first_that_is_no_number)
{
    struct cloud cloud = cloud_make(3, N_MAX, 4);
    const struct vx_geometry_prediction it = live(&cloud, 2, 2, 1);
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], N_MAX);
    i32 voxel[4], child;
    i64 first = -1;
    ck_assert(!vx_geometry_find_nan(geometry, rig.cpu, &it, voxel, &child));
    for (i64 at = 19; at < N_MAX; at += 1777) {
        cloud.logits[at * 4 + at % 4] = (f32)NAN;
        cloud.logits[at * 4 + 3] = -(f32)NAN;
        if (first < 0 || compare_rows(cloud.rows[at], cloud.rows[first]) < 0) first = at;
        ck_assert(vx_geometry_find_nan(geometry, rig.cpu, &it, voxel, &child));
        ck_assert_mem_eq(voxel, cloud.rows[first], sizeof voxel);
        ck_assert_int_eq(child, first % 4);
    }
    vx_geometry_drop(rig.cache, &geometry);
    cloud_free(&cloud);
}
END_TEST

static i64 cached_bytes(void)
{
    struct vx_geometry_stats stats;
    vx_geometry_stats_get(rig.cache, &stats);
    return stats.bytes;
}

static i32 set_of(struct vx_geometry *geometry, const struct vx_set_key *key)
{
    struct vx_geometry_made made = {0};
    vx_status status = vx_geometry_set(geometry, rig.cpu, key, &rig.why, &made);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &rig.why));
    return made.number;
}

/* Sets by logits, sets and maps made from them are gone after the drop; static ones stay,
 * and a request that made only what passes is a hit. */
START_TEST(what_depends_on_features_passes)
{
    static const struct vx_set_key coarse = {.rule = VX_SET_FLOOR,
                                             .kernel = {1, 1, 1},
                                             .dilation = {1, 1, 1},
                                             .stride = {2, 2, 2}};
    struct vx_map_key subm = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}};
    struct cloud cloud = cloud_make(1, 3000, 1);
    const struct vx_geometry_prediction it = keep(&cloud, 0);
    i64 kept = 0, rows = 0;
    for (i32 round = 0; round < 4; round++) {
        struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
        struct vx_set_key made = coarse;
        i32 fixed = set_of(geometry, &coarse), set = predict(geometry, &it);
        made.from = set;
        i32 below = set_of(geometry, &made);
        ck_assert_int_ne(below, fixed);
        ck_assert_int_ne(set, fixed);
        ck_assert_int_eq(set_of(geometry, &made), below); /* once in a request */
        subm.from = subm.to = 0;
        (void)rig_map(geometry, subm);
        subm.from = subm.to = below;
        (void)rig_map(geometry, subm);
        ck_assert_int_eq(vx_geometry_was_hit(geometry), round > 0);
        i64 mine = vx_geometry_rows(geometry, set);
        ck_assert(!round || mine != rows); /* other logits, other rows */
        rows = mine;
        i64 held = cached_bytes();
        vx_geometry_drop(rig.cache, &geometry);
        ck_assert_int_lt(cached_bytes(), held);
        if (round) ck_assert_int_eq(cached_bytes(), kept);
        kept = cached_bytes();
        for (i64 i = 0; i < 100 * (round + 1); i++) cloud.logits[i] = 1;
    }
    cloud_free(&cloud);
}
END_TEST

/* Exactly the room that is computed for a request of two stages is enough, whatever the
 * cache held before: a large map of stage 0 is held while the set of stage 1 is made. */
START_TEST(room_for_stages_is_enough)
{
    struct vx_map_key fine = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}},
                      late = {
                          .kernel = {3, 3, 3}, .dilation = {1, 1, 1}, .from = 1, .to = 1};
    const struct vx_map_key *const maps[] = {&late, &fine};
    struct cloud cloud = cloud_make(2, 700, 8);
    const i64 rows[] = {700, 5600}, candidates[] = {0, 5600};
    const i32 stages[] = {0, 1};
    for (i64 i = 0; i < 5600; i++) cloud.logits[i] = 1; /* as many as there can be */
    const struct vx_geometry_prediction it = live(&cloud, 2, 2, 2);
    size_t bytes = vx_geometry_room(
        &(struct vx_geometry_need){2, rows, candidates, stages, maps, 2});
    rig_close();
    rig_open(1, bytes);
    for (i32 round = 0; round < 30; round++) {
        for (i32 i = 0; i < round; i++) {
            struct vx_geometry *other = rig_hold((i32[]){1, i, round, 0}, 1);
            vx_geometry_drop(rig.cache, &other);
        }
        struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
        (void)rig_map(geometry, fine);
        i32 set = predict(geometry, &it);
        ck_assert_int_eq(vx_geometry_rows(geometry, set), 5600);
        struct vx_map_key key = late;
        key.from = key.to = set;
        (void)rig_map(geometry, key);
        vx_geometry_drop(rig.cache, &geometry);
    }
    cloud_free(&cloud);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_predict");
    TCase *cases = tcase_create("geometry_predict");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, rig_close);
    tcase_add_loop_test(cases, children_with_a_logit_above_0, 0, 3 * VX_COUNT(sizes));
    tcase_add_loop_test(cases, voxels_that_are_kept, 0, 8);
    tcase_add_test(cases, the_largest_of_any_numbers);
    tcase_add_test(cases, children_beyond_the_range_do_not_exist);
    tcase_add_test(cases, the_first_that_is_no_number);
    tcase_add_test(cases, what_depends_on_features_passes);
    tcase_add_test(cases, room_for_stages_is_enough);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
