/* Sets that are made from a request's voxels, and maps between them, against their definitions
 * (engine/set_key.h, engine/map_key.h) carried out voxel by voxel; and how the cache keeps them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/cpu/geometry/room.h"
#include "tests/support/geometry_rig.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N_MAX    2500
#define ROWS_MAX (N_MAX * 343)

static void setup(void)
{
    rig_open(3, (size_t)256 << 20);
}

/* --- the definitions, on lists of (sample, x, y, z) --- */

struct list {
    i64 n;
    i32 (*rows)[4];
};

static i32 floor_divide(i32 a, i32 b)
{
    i32 q = a / b;
    return a % b < 0 ? q - 1 : q;
}

static int compare_rows(const void *a, const void *b)
{
    const i32 *left = a, *right = b;
    for (int i = 0; i < 4; i++)
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* What follows from p along an axis at offset k; false: nothing. */
static bool follows(const struct vx_set_key *key, int axis, i32 p, i32 k, i32 *out)
{
    i32 stride = key->stride[axis], far = k * key->dilation[axis];
    switch (key->rule) {
    case VX_SET_FLOOR: *out = floor_divide(p, stride); return true;
    case VX_SET_SPCONV:
        *out = p + key->padding[axis] - far;
        if (*out % stride) return false;
        *out /= stride;
        return *out >= 0 && *out < key->shape[axis];
    default:
        *out = p * stride - key->padding[axis] + far;
        return *out >= VX_AXIS_MIN && *out <= VX_AXIS_MAX;
    }
}

static struct list derive(const struct list *from, const struct vx_set_key *key)
{
    struct list out = {0, vx_alloc((size_t)ROWS_MAX * sizeof *out.rows)};
    const i32 *kernel = key->kernel;
    for (i64 i = 0; i < from->n; i++)
        for (i32 v = 0; v < kernel[0] * kernel[1] * kernel[2]; v++) {
            i32 at[3] = {v / kernel[2] / kernel[1], v / kernel[2] % kernel[1],
                         v % kernel[2]};
            i32 *row = out.rows[out.n];
            bool good = true;
            row[0] = from->rows[i][0];
            for (int axis = 0; axis < 3; axis++)
                good = good && follows(key, axis, from->rows[i][axis + 1], at[axis],
                                       &row[axis + 1]);
            out.n += good;
        }
    qsort(out.rows, (size_t)out.n, sizeof *out.rows, compare_rows);
    i64 kept = 0;
    for (i64 i = 0; i < out.n; i++)
        if (!i || compare_rows(out.rows[i], out.rows[i - 1]) != 0)
            memmove(out.rows[kept++], out.rows[i], sizeof *out.rows);
    out.n = kept;
    return out;
}

/* Where a sorted copy of a list was in the list. */
struct index {
    i64 n;
    i32 (*rows)[5];
};

static struct index index_of(const struct list *list)
{
    struct index index = {list->n, vx_alloc((size_t)(list->n + 1) * sizeof *index.rows)};
    for (i64 i = 0; i < list->n; i++) {
        memcpy(index.rows[i], list->rows[i], sizeof *list->rows);
        index.rows[i][4] = (i32)i;
    }
    qsort(index.rows, (size_t)index.n, sizeof *index.rows, compare_rows);
    return index;
}

static i32 look_up(const struct index *index, const i32 row[4])
{
    const i32 *found =
        bsearch(row, index->rows, (size_t)index->n, sizeof *index->rows, compare_rows);
    return found ? found[4] : -1;
}

/* The row that `to` reads at offset v, by the definition. */
static i32 neighbour(const struct vx_map_key *key, const struct index *from,
                     const i32 to[4], i32 v)
{
    const i32 *kernel = key->kernel;
    i32 at[3] = {v / kernel[2] / kernel[1], v / kernel[2] % kernel[1], v % kernel[2]};
    i32 row[4] = {to[0]}, child = 0, times = 1;
    for (int axis = 0; axis < 3; axis++) {
        i32 p = to[axis + 1], stride = key->stride[axis];
        i32 far = at[axis] * key->dilation[axis];
        switch (key->kind) {
        case VX_MAP_SUBM:
            row[axis + 1] = p + far - (kernel[axis] - 1) / 2 * key->dilation[axis];
            break;
        case VX_MAP_DOWN: row[axis + 1] = p * stride - key->padding[axis] + far; break;
        case VX_MAP_UP:
            row[axis + 1] = p + key->padding[axis] - far;
            if (row[axis + 1] % stride) return -1;
            row[axis + 1] /= stride;
            break;
        default:
            row[axis + 1] = floor_divide(p, stride);
            child += (p - row[axis + 1] * stride) * times;
            times *= stride;
        }
    }
    i32 found = look_up(from, row);
    return key->kind == VX_MAP_CHILD && found >= 0 ? found * times + child : found;
}

/* --- windows and clouds --- */

static const struct window {
    struct vx_set_key key;
    struct vx_map_key map; /* from 0 to the set */
} windows[] = {
#define ONES                                                                             \
    {                                                                                    \
        1, 1, 1                                                                          \
    }
#define TWOS                                                                             \
    {                                                                                    \
        2, 2, 2                                                                          \
    }
    /* MinkUNet: kernel 2, stride 2 */
    {{.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = TWOS},
     {.kind = VX_MAP_DOWN, .kernel = TWOS, .dilation = ONES, .stride = TWOS}},
    /* MinkowskiEngine's kernel 3, stride 2: centred */
    {{.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = TWOS},
     {.kind = VX_MAP_DOWN,
      .kernel = {3, 3, 3},
      .dilation = ONES,
      .stride = TWOS,
      .padding = ONES}},
    {{.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = {1, 4, 3}},
     {.kind = VX_MAP_DOWN,
      .kernel = {3, 2, 5},
      .dilation = {2, 1, 3},
      .stride = {1, 4, 3},
      .padding = {2, 0, 6}}},
    /* SECOND: kernel 3, stride 2, padding 1 */
    {{.rule = VX_SET_SPCONV,
      .kernel = {3, 3, 3},
      .dilation = ONES,
      .stride = TWOS,
      .padding = ONES,
      .shape = {20, 20, 20}},
     {.kind = VX_MAP_DOWN,
      .kernel = {3, 3, 3},
      .dilation = ONES,
      .stride = TWOS,
      .padding = ONES}},
    /* its last layer: (3, 1, 1), stride (2, 1, 1) */
    {{.rule = VX_SET_SPCONV,
      .kernel = {3, 1, 1},
      .dilation = ONES,
      .stride = {2, 1, 1},
      .shape = {19, 40, 40}},
     {.kind = VX_MAP_DOWN, .kernel = {3, 1, 1}, .dilation = ONES, .stride = {2, 1, 1}}},
    {{.rule = VX_SET_SPCONV,
      .kernel = {4, 3, 2},
      .dilation = {2, 3, 1},
      .stride = {3, 1, 2},
      .padding = {1, 4, 3},
      .shape = {9, 30, 40}},
     {.kind = VX_MAP_DOWN,
      .kernel = {4, 3, 2},
      .dilation = {2, 3, 1},
      .stride = {3, 1, 2},
      .padding = {1, 4, 3}}},
    /* nothing is left: the shape has no place for any candidate but one corner */
    {{.rule = VX_SET_SPCONV,
      .kernel = ONES,
      .dilation = ONES,
      .stride = {64, 64, 64},
      .shape = ONES},
     {.kind = VX_MAP_DOWN, .kernel = ONES, .dilation = ONES, .stride = {64, 64, 64}}},
    /* generative: all children, and a kernel wider than the stride */
    {{.rule = VX_SET_EXPAND, .kernel = TWOS, .dilation = ONES, .stride = TWOS},
     {.kind = VX_MAP_UP, .kernel = TWOS, .dilation = ONES, .stride = TWOS}},
    {{.rule = VX_SET_EXPAND,
      .kernel = {3, 3, 1},
      .dilation = {1, 2, 1},
      .stride = {2, 1, 3},
      .padding = {1, 2, 0}},
     {.kind = VX_MAP_UP,
      .kernel = {3, 3, 1},
      .dilation = {1, 2, 1},
      .stride = {2, 1, 3},
      .padding = {1, 2, 0}}},
};
#define WINDOWS ((int)(sizeof windows / sizeof windows[0]))

/* Different rows in a random order. */
static struct list cloud_make(int kind, u64 seed)
{
    struct voxels_random random = {seed};
    static const i64 counts[] = {1, 2, 300, 2000, 700, 1500};
    struct list list = {0, vx_alloc(N_MAX * sizeof *list.rows)};
    for (i64 i = 0; i < counts[kind]; i++) {
        i32 *row = list.rows[list.n++];
        row[0] = kind == 3 ? (i32)(voxels_next(&random) % 3) * 200 : 0;
        for (int axis = 1; axis < 4; axis++) {
            row[axis] = (i32)(voxels_next(&random) % 40);
            if (kind == 4) row[axis] -= 20; /* on both sides of 0 */
            if (kind == 5)                  /* at both ends of the range, and flat */
                row[axis] = axis == 3                  ? 7
                            : voxels_next(&random) % 2 ? VX_AXIS_MAX - row[axis]
                                                       : VX_AXIS_MIN + row[axis];
        }
    }
    qsort(list.rows, (size_t)list.n, sizeof *list.rows, compare_rows);
    i64 kept = 0;
    for (i64 i = 0; i < list.n; i++)
        if (!i || compare_rows(list.rows[i], list.rows[i - 1]) != 0)
            memmove(list.rows[kept++], list.rows[i], sizeof *list.rows);
    list.n = kept;
    voxels_shuffle(&random, &list.rows[0][0], list.n);
    return list;
}

static i32 rig_set(struct vx_geometry *geometry, const struct vx_set_key *key)
{
    struct vx_geometry_made made = {0};
    vx_status status = vx_geometry_set(geometry, rig.cpu, key, &rig.why, &made);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &rig.why));
    ck_assert(made.exact && made.rows == vx_geometry_rows(geometry, made.number));
    return made.number;
}

static void check_map(const struct vx_map *map, const struct list *from,
                      const struct list *to)
{
    struct index index = index_of(from);
    i64 pairs = 0;
    ck_assert_int_eq(map->n, to->n);
    for (i32 v = 0; v < map->v; v++)
        for (i64 i = 0; i < to->n; i++) {
            i32 expected = neighbour(&map->key, &index, to->rows[i], v);
            ck_assert_msg(map->nbr[v * to->n + i] == expected,
                          "offset %d of row %lld: expected %d, got %d", v, (long long)i,
                          expected, map->nbr[v * to->n + i]);
            pairs += expected >= 0;
        }
    ck_assert_int_eq(map->pairs, pairs);
    vx_free(index.rows);
}

/* A set of a geometry: its number, and its voxels by the definition. */
struct known {
    i32 number;
    const struct list *list;
};

static void check_map_of(struct vx_geometry *geometry, struct vx_map_key key,
                         struct known from, struct known to)
{
    key.from = from.number;
    key.to = to.number;
    check_map(rig_map(geometry, key), from.list, to.list);
}

/* The set's rows and their order, its samples, and every kind of map from and to it. */
START_TEST(test_a_set_and_its_maps)
{
    const struct window *window = &windows[_i % WINDOWS];
    struct list cloud = cloud_make(_i / WINDOWS, (u64)_i);
    struct list expected = derive(&cloud, &window->key);
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
    i32 set = rig_set(geometry, &window->key);
    ck_assert_int_eq(vx_geometry_rows(geometry, set), expected.n);
    i32(*rows)[4] = vx_alloc((size_t)(expected.n + 1) * sizeof *rows);
    vx_geometry_coords(geometry, rig.cpu, set, &rows[0][0]);
    ck_assert_mem_eq(rows, expected.rows, (size_t)expected.n * sizeof *rows);

    struct vx_geometry_samples samples;
    vx_geometry_samples_get(geometry, set, &samples);
    ck_assert_int_eq(samples.starts[samples.count], expected.n);
    for (i32 s = 0; s < samples.count; s++) {
        i64 first = samples.starts[s], end = samples.starts[s + 1];
        ck_assert_int_lt(first, end);
        ck_assert(!s || rows[first - 1][0] != rows[first][0]);
        for (i64 i = first; i < end; i++) {
            ck_assert_int_eq(samples.rows[i], (i32)i);
            ck_assert_int_eq(rows[i][0], rows[first][0]);
        }
    }

    struct vx_map_key back = window->map;
    bool finer = window->key.rule == VX_SET_EXPAND;
    check_map_of(geometry, window->map, (struct known){0, &cloud},
                 (struct known){set, &expected});
    back.kind = finer ? VX_MAP_DOWN : VX_MAP_UP;
    check_map_of(geometry, back, (struct known){set, &expected},
                 (struct known){0, &cloud});
    for (int child = 0; child < 2; child++) {
        struct vx_map_key up = {.kind = child ? VX_MAP_CHILD : VX_MAP_PARENT,
                                .kernel = ONES,
                                .dilation = ONES};
        memcpy(up.stride, window->key.stride, sizeof up.stride);
        if (finer)
            check_map_of(geometry, up, (struct known){0, &cloud},
                         (struct known){set, &expected});
        else
            check_map_of(geometry, up, (struct known){set, &expected},
                         (struct known){0, &cloud});
    }
    const struct vx_map_key near = {.kernel = {3, 3, 3}, .dilation = {1, 2, 1}};
    check_map_of(geometry, near, (struct known){set, &expected},
                 (struct known){set, &expected});
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(cloud.rows);
    vx_free(expected.rows);
    vx_free(rows);
}
END_TEST

/* Five levels down, as a U-net has them: each set from the one before. */
START_TEST(test_a_chain_of_sets)
{
    struct list lists[6] = {cloud_make(4, 9)};
    struct vx_geometry *geometry = rig_hold(&lists[0].rows[0][0], lists[0].n);
    i32 numbers[6] = {0};
    for (int level = 1; level < 6; level++) {
        struct vx_set_key key = windows[0].key;
        lists[level] = derive(&lists[level - 1], &key);
        key.from = numbers[level - 1];
        numbers[level] = rig_set(geometry, &key);
        ck_assert_int_eq(vx_geometry_rows(geometry, numbers[level]), lists[level].n);
    }
    for (int level = 5; level > 0; level--) {
        check_map_of(geometry, windows[0].map,
                     (struct known){numbers[level - 1], &lists[level - 1]},
                     (struct known){numbers[level], &lists[level]});
        struct vx_map_key up = windows[0].map;
        up.kind = VX_MAP_UP;
        check_map_of(geometry, up, (struct known){numbers[level], &lists[level]},
                     (struct known){numbers[level - 1], &lists[level - 1]});
    }
    vx_geometry_drop(rig.cache, &geometry);
    for (int level = 0; level < 6; level++) vx_free(lists[level].rows);
}
END_TEST

/* Asked for again, a set is found and keeps its number; another key makes another one. */
START_TEST(test_a_set_is_kept)
{
    struct list cloud = cloud_make(2, 1);
    struct vx_geometry_stats before, after;
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
    i32 first = rig_set(geometry, &windows[0].key);
    ck_assert_int_eq(rig_set(geometry, &windows[0].key), first);
    struct vx_set_key deeper = windows[0].key;
    deeper.from = first;
    i32 second = rig_set(geometry, &deeper);
    ck_assert_int_ne(second, first);
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_stats_get(rig.cache, &before);
    geometry = rig_hold(&cloud.rows[0][0], cloud.n);
    ck_assert_int_eq(rig_set(geometry, &windows[0].key), first);
    ck_assert_int_eq(rig_set(geometry, &deeper), second);
    ck_assert(vx_geometry_was_hit(geometry));
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(after.hits, before.hits + 3);
    ck_assert_int_eq(after.bytes, before.bytes);
    (void)rig_set(geometry, &windows[3].key);
    ck_assert(!vx_geometry_was_hit(geometry));
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(cloud.rows);
}
END_TEST

/* A U-net of two levels in exactly the room that is computed for it, behind other
 * geometries and beside sets and maps of another network on the same voxels. */
START_TEST(test_room_is_enough)
{
    struct list cloud = cloud_make(2, 5), coarse = derive(&cloud, &windows[0].key);
    const struct vx_map_key down = {
        .kind = VX_MAP_DOWN, .kernel = TWOS, .dilation = ONES, .stride = TWOS, .to = 1};
    const struct vx_map_key near = {
        .kernel = {3, 3, 3}, .dilation = ONES, .from = 1, .to = 1};
    const struct vx_map_key fine = {.kernel = {3, 3, 3}, .dilation = ONES};
    const struct vx_map_key *const maps[] = {&fine, &near, &down};
    const i64 rows[] = {cloud.n, coarse.n}, candidates[] = {0, cloud.n};
    size_t bytes =
        vx_geometry_room(&(struct vx_geometry_need){2, rows, candidates, NULL, maps, 3});
    rig_close();
    rig_open(1, bytes);
    for (i32 round = 0; round < 40; round++) {
        for (i32 i = 0; i < round; i++) {
            struct vx_geometry *other = rig_hold((i32[]){1, i, round, 0}, 1);
            vx_geometry_drop(rig.cache, &other);
        }
        struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
        if (round % 2) { /* another network's, which have to go */
            (void)rig_set(geometry, &windows[2].key);
            vx_geometry_drop(rig.cache, &geometry);
            geometry = rig_hold(&cloud.rows[0][0], cloud.n);
        }
        i32 set = rig_set(geometry, &windows[0].key);
        check_map_of(geometry, fine, (struct known){0, &cloud},
                     (struct known){0, &cloud});
        check_map_of(geometry, near, (struct known){set, &coarse},
                     (struct known){set, &coarse});
        check_map_of(geometry, down, (struct known){0, &cloud},
                     (struct known){set, &coarse});
        vx_geometry_drop(rig.cache, &geometry);
    }
    vx_free(cloud.rows);
    vx_free(coarse.rows);
}
END_TEST

/* Too little room: a sentence with the numbers, and nothing is left behind. */
START_TEST(test_no_room_for_a_set)
{
    rig_close();
    rig_open(1, 8 * 4096);
    struct list cloud = cloud_make(2, 3);
    struct vx_geometry_stats before, after;
    struct vx_geometry *geometry = rig_hold(&cloud.rows[0][0], cloud.n);
    struct vx_geometry_made made = {0};
    vx_geometry_stats_get(rig.cache, &before);
    vx_status status =
        vx_geometry_set(geometry, rig.cpu, &windows[7].key, &rig.why, &made);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(rig.why.text, "cache_bytes is 32768"));
    vx_geometry_stats_get(rig.cache, &after);
    ck_assert_int_eq(after.bytes, before.bytes);
    (void)rig_set(geometry, &windows[0].key);
    vx_geometry_drop(rig.cache, &geometry);
    vx_free(cloud.rows);
}
END_TEST

/* The first voxel outside of a shape, in the order of (sample, x, y, z). */
START_TEST(test_outside)
{
    static const i32 rows[][4] = {{0, 5, 5, 5}, {0, 0, 9, 0}, {1, 0, 0, -1}};
    struct vx_geometry *geometry = rig_hold(&rows[0][0], 3);
    i32 at[4];
    ck_assert_int_eq(vx_geometry_outside(geometry, (i32[]){6, 10, 0}, at), -1);
    ck_assert_int_eq(vx_geometry_outside(geometry, (i32[]){6, 10, 6}, at), 2);
    ck_assert(at[0] == 1 && at[1] == 0 && at[2] == 0 && at[3] == -1);
    ck_assert_int_eq(vx_geometry_outside(geometry, (i32[]){6, 9, 6}, at), 1);
    ck_assert_int_eq(vx_geometry_outside(geometry, (i32[]){5, 10, 0}, at), 0);
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_sets");
    TCase *cases = tcase_create("geometry_sets");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, rig_close);
    tcase_add_loop_test(cases, test_a_set_and_its_maps, 0, 6 * WINDOWS);
    tcase_add_test(cases, test_a_chain_of_sets);
    tcase_add_test(cases, test_a_set_is_kept);
    tcase_add_test(cases, test_room_is_enough);
    tcase_add_test(cases, test_no_room_for_a_set);
    tcase_add_test(cases, test_outside);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
