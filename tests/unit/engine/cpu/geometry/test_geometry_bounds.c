/* Sets that are larger than they may be, or than the cache: what is known when, and that nobody else
 * loses anything; and that who makes a large set says all the time that it goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/cpu/geometry/derive.h"
#include "engine/cpu/geometry/predict.h"
#include "kernels/01_coord_hash.h"
#include "tests/support/geometry_rig.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_BYTES ((size_t)4 << 20)
#define KEPT        60
#define KEPT_ROWS   5400 /* 64 KiB each, in whole pages */
#define N           1000

static void set_up(void)
{
    rig_open(1, CACHE_BYTES);
}

#define ONES                                                                             \
    {                                                                                    \
        1, 1, 1                                                                          \
    }
#define TWOS                                                                             \
    {                                                                                    \
        2, 2, 2                                                                          \
    }
#define THREES                                                                           \
    {                                                                                    \
        3, 3, 3                                                                          \
    }
#define FOURS                                                                            \
    {                                                                                    \
        4, 4, 4                                                                          \
    }

/* Every rule, with one candidate a row and with many; `each`: the most candidates of a row. */
static const struct rule {
    struct vx_set_key key;
    i64 each;
} rules[] = {
    {{.rule = VX_SET_EXPAND, .kernel = FOURS, .dilation = ONES, .stride = FOURS}, 1},
    {{.rule = VX_SET_EXPAND, .kernel = TWOS, .dilation = {3, 1, 1}, .stride = {2, 4, 5}},
     1},
    {{.rule = VX_SET_EXPAND, .kernel = THREES, .dilation = ONES, .stride = TWOS}, 8},
    {{.rule = VX_SET_EXPAND, .kernel = {4, 1, 1}, .dilation = {2, 1, 1}, .stride = FOURS},
     2},
    {{.rule = VX_SET_EXPAND, .kernel = THREES, .dilation = ONES, .stride = ONES}, 27},
    {{.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = TWOS}, 8},
    {{.rule = VX_SET_SPCONV,
      .kernel = THREES,
      .dilation = ONES,
      .stride = TWOS,
      .padding = ONES,
      .shape = {40, 40, 40}},
     27},
    {{.rule = VX_SET_SAMPLES, .kernel = ONES, .dilation = ONES, .stride = ONES}, 0},
};
#define RULES ((int)VX_COUNT(rules))

/* N voxels, dense or scattered, of one sample or several. */
static void cloud_make(int kind, i32 (*rows)[4])
{
    struct voxels_random random = {(u64)kind + 1};
    for (i32 i = 0; i < N; i++) {
        const i32 at = kind == 1 ? i * 37 : i;
        rows[i][0] = kind == 2 ? at % 5 : 0;
        rows[i][1] = at % 10 * (kind == 1 ? 3 : 1);
        rows[i][2] = at / 10 % 10;
        rows[i][3] = at / 100;
    }
    voxels_shuffle(&random, &rows[0][0], N);
}

static struct vx_geometry_stats stats_now(void)
{
    struct vx_geometry_stats stats;
    vx_geometry_stats_get(rig.cache, &stats);
    return stats;
}

/* Exactly its rows are enough, and one less is not, and leaves nothing behind.  What is certain
 * before the set is made is never more than it has. */
START_TEST(the_bound_is_exact)
{
    const struct vx_set_key *key = &rules[_i / 3].key;
    i32 rows[N][4];
    cloud_make(_i % 3, rows);
    struct vx_geometry *geometry = rig_hold(&rows[0][0], N);
    struct vx_geometry_made all = {0}, made;
    ck_assert(!vx_geometry_set(geometry, rig.cpu, key, &rig.why, &all).fault);
    ck_assert(all.number && all.exact);
    ck_assert_int_eq(all.rows, vx_geometry_rows(geometry, all.number));
    if (rules[_i / 3].each) {
        bool exact;
        const struct vx_keys *from = vx_geometry_keys(geometry, 0);
        const i64 count = vx_derive_count(rig.cpu, from, key);
        const i64 least = vx_derive_rows_least(key, count, &exact);
        ck_assert_int_le(least, all.rows);
        ck_assert_int_eq(exact, rules[_i / 3].each == 1);
        ck_assert_int_eq(least, (count - 1) / rules[_i / 3].each + 1);
        if (exact) ck_assert_int_eq(least, all.rows);
    }
    /* One that was made under another bound is refused, too. */
    made = (struct vx_geometry_made){.rows_max = all.rows - 1, .number = 7};
    ck_assert(vx_geometry_set(geometry, rig.cpu, key, &rig.why, &made).fault ||
              all.rows == 1);
    if (all.rows > 1) ck_assert_int_eq(made.number, 0);
    vx_geometry_drop(rig.cache, &geometry);
    for (i64 less = 0; less < 2 && all.rows > less; less++) {
        rig_close();
        set_up();
        geometry = rig_hold(&rows[0][0], N);
        const i64 bytes = stats_now().bytes;
        made = (struct vx_geometry_made){.rows_max = all.rows - less};
        vx_status status = vx_geometry_set(geometry, rig.cpu, key, &rig.why, &made);
        ck_assert_int_eq(status.fault != NULL, less);
        if (less) {
            ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
            ck_assert_int_eq(made.number, 0);
            ck_assert_int_eq(stats_now().bytes, bytes);
            ck_assert_int_gt(made.rows, made.rows_max);
        }
        ck_assert(made.exact ? made.rows == all.rows : less && made.rows <= all.rows);
        vx_geometry_drop(rig.cache, &geometry);
    }
}
END_TEST

/* Geometries of others, which fill the cache. */
static void others_keep(struct vx_coords_view views[KEPT], i32 (*rows)[4])
{
    for (i32 k = 0; k < KEPT; k++) {
        for (i32 i = 0; i < KEPT_ROWS; i++) {
            rows[i][0] = k + 1;
            rows[i][1] = i % 100;
            rows[i][2] = i / 100 % 100;
            rows[i][3] = i / 10000;
        }
        struct vx_geometry *geometry = rig_hold(&rows[0][0], KEPT_ROWS);
        views[k] = rig_view(&rows[0][0], KEPT_ROWS, 4);
        views[k].rows = NULL;
        vx_geometry_drop(rig.cache, &geometry);
    }
}

static i32 others_lost(const struct vx_coords_view views[KEPT])
{
    i32 lost = 0;
    for (i32 k = 0; k < KEPT; k++) {
        struct vx_geometry *geometry;
        vx_status status =
            vx_geometry_hold(rig.cache, rig.cpu, &views[k], &rig.why, &geometry);
        lost += status.fault != NULL;
        if (!status.fault) vx_geometry_drop(rig.cache, &geometry);
    }
    return lost;
}

/* What asks for too much: children and kept voxels that exceed a bound of their own; sets whose rows
 * have many candidates, far above it; and, without a bound, more than the whole cache, more than the
 * half of it, where the first of two blocks would fit, and more than VX_VOXELS_MAX. */
static const struct refusal {
    const char *says; /* NULL: rows_max */
    struct vx_set_key key;
    i64 rows_max, rows;
    bool logits, exact;
} refusals[] = {
    {NULL,
     {.rule = VX_SET_EXPAND, .kernel = FOURS, .dilation = ONES, .stride = FOURS},
     .rows_max = N * 64 - 1,
     .rows = N * 64,
     .exact = true},
    {NULL,
     {.rule = VX_SET_LIVE, .kernel = FOURS, .dilation = ONES, .stride = FOURS},
     .rows_max = N * 64 - 1,
     .rows = N * 64,
     .logits = true,
     .exact = true},
    {NULL,
     {.rule = VX_SET_KEEP, .kernel = ONES, .dilation = ONES, .stride = ONES},
     .rows_max = N - 1,
     .rows = N,
     .logits = true,
     .exact = true},
    {NULL,
     {.rule = VX_SET_KEEP, .kernel = ONES, .dilation = ONES, .stride = ONES, .top = 500},
     .rows_max = 499,
     .rows = 500,
     .logits = true,
     .exact = true},
    {NULL,
     {.rule = VX_SET_EXPAND, .kernel = THREES, .dilation = ONES, .stride = ONES},
     .rows_max = N - 1,
     .rows = N},
    {NULL,
     {.rule = VX_SET_FLOOR, .kernel = ONES, .dilation = ONES, .stride = TWOS},
     .rows_max = N / 8 - 1,
     .rows = N / 8},
    {"needs 24576024 bytes more in the geometry cache, cache_bytes is 4194304",
     {.rule = VX_SET_EXPAND,
      .kernel = {16, 8, 8},
      .dilation = ONES,
      .stride = {16, 8, 8}},
     .rows = N * 1024,
     .exact = true},
    {"needs 4608024 bytes more in the geometry cache, cache_bytes is 4194304",
     {.rule = VX_SET_EXPAND,
      .kernel = {12, 4, 4},
      .dilation = ONES,
      .stride = {12, 4, 4}},
     .rows = N * 192,
     .exact = true},
    {"needs 4176024 bytes more in the geometry cache; cache_bytes is 4194304, of which",
     {.rule = VX_SET_EXPAND,
      .kernel = {58, 3, 1},
      .dilation = ONES,
      .stride = {58, 3, 1}},
     .rows = N * 174,
     .exact = true},
    {"1176490000 candidates for the voxels of a set, expected at most 1073741824",
     {.rule = VX_SET_EXPAND,
      .kernel = {343, 343, 10},
      .dilation = ONES,
      .stride = {343, 343, 10}},
     .rows = INT64_C(1176490) * N,
     .exact = true},
};

static vx_status ask(struct vx_geometry *geometry, const struct refusal *it,
                     const f32 *logits, struct vx_geometry_made *made)
{
    *made = (struct vx_geometry_made){.rows_max = it->rows_max};
    if (!it->logits) return vx_geometry_set(geometry, rig.cpu, &it->key, &rig.why, made);
    const struct vx_geometry_prediction prediction = {it->key, logits};
    return vx_geometry_predict(geometry, rig.cpu, &prediction, &rig.why, made);
}

START_TEST(who_is_refused_takes_nothing)
{
    const struct refusal *it = &refusals[_i];
    struct vx_coords_view views[KEPT];
    i32(*rows)[4] = vx_alloc(CACHE_BYTES);
    f32 *logits = vx_alloc((size_t)N * 64 * sizeof *logits);
    struct vx_geometry_made made;
    for (i32 i = 0; i < N * 64; i++) logits[i] = 1;
    others_keep(views, rows);
    cloud_make(0, rows);
    struct vx_geometry *geometry = rig_hold(&rows[0][0], N), *beside;
    ck_assert(!vx_geometry_hold(rig.cache, rig.cpu, &views[0], &rig.why, &beside).fault);
    ck_assert_int_eq(others_lost(views), 0);
    const struct vx_geometry_stats before = stats_now();
    vx_status status = ask(geometry, it, logits, &made);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    if (it->says)
        ck_assert_msg(strstr(rig.why.text, it->says) != NULL, "%s", rig.why.text);
    ck_assert_int_eq(made.number, 0);
    ck_assert_int_eq(made.rows, it->rows);
    ck_assert_int_eq(made.exact, it->exact);
    ck_assert_int_eq(stats_now().evictions, before.evictions);
    ck_assert_int_eq(stats_now().bytes, before.bytes);
    ck_assert_int_eq(others_lost(views), 0);
    vx_geometry_drop(rig.cache, &geometry);
    vx_geometry_drop(rig.cache, &beside);
    vx_free(logits);
    vx_free(rows);
}
END_TEST

/* --- who makes a large set says that it goes on --- */

/* Rows, candidates or keys that may pass between two reports. */
#define SILENT_MAX (1 << 18)
#define MANY       (1 << 20)

static i64 told;

static void on_told(void *context)
{
    (void)context;
    told++;
}

/* Between two reports of a pass over so many rows there are at most SILENT_MAX; the first chunk of a
 * pass is not reported. */
static void expect_told(const char *what, i64 rows)
{
    ck_assert_msg(told >= (rows - 1) / SILENT_MAX, "%s of %lld rows: told %lld times",
                  what, (long long)rows, (long long)told);
    told = 0;
}

static struct vx_keys keys_open(i64 n)
{
    return (struct vx_keys){n, vx_alloc((size_t)(n + 1) * sizeof(u64)),
                            vx_alloc((size_t)(n + 1) * sizeof(i32))};
}

static void keys_close(struct vx_keys *keys)
{
    vx_free(keys->keys);
    vx_free(keys->rows);
}

/* A line of voxels, whose rows run backwards. */
static struct vx_keys line_open(i64 n)
{
    struct vx_keys line = keys_open(n);
    for (i64 i = 0; i < n; i++) {
        line.keys[i] = vx_key_pack(0, (i32)(i / 1024), (i32)(i % 1024), 0);
        line.rows[i] = (i32)(n - 1 - i);
    }
    line.keys[n] = VX_KEY_EMPTY;
    line.rows[n] = 0;
    return line;
}

START_TEST(passes_over_keys_tell)
{
    static u32 counts[VX_KEYS_PIECES_MAX][1 << VX_KEYS_DIGIT_BITS];
    const struct vx_set_key key = {
        .rule = VX_SET_EXPAND, .kernel = TWOS, .dilation = ONES, .stride = TWOS};
    struct vx_keys from = line_open(MANY / 8), made = keys_open(MANY),
                   scratch = keys_open(MANY), set = keys_open(MANY);
    struct vx_keys_scan scan;
    vx_cpu_tell(rig.cpu, on_told, NULL);
    ck_assert_int_eq(vx_derive_count(rig.cpu, &from, &key), MANY);
    expect_told("vx_derive_count", MANY);
    vx_derive_fill(rig.cpu, &from, &key, &made, &scan);
    expect_told("vx_derive_fill", 2 * MANY);
    /* 3 fields of 1, 8 + 11 and 0 bits: two digits, of which each is counted and moved. */
    vx_keys_sort(
        rig.cpu, &scan,
        &(struct vx_keys_sort){.set = made, .scratch = scratch, .counts = counts});
    expect_told("vx_keys_sort", 4 * MANY - 4 * SILENT_MAX);
    ck_assert_int_eq(vx_derive_unique_count(rig.cpu, &made), MANY);
    expect_told("vx_derive_unique_count", MANY);
    vx_derive_unique(rig.cpu, &made, &set);
    expect_told("vx_derive_unique", 2 * MANY);
    for (i64 i = 1; i < MANY; i++) ck_assert_uint_lt(set.keys[i - 1], set.keys[i]);
    vx_keys_copy(rig.cpu, scratch.keys, set.keys, MANY * sizeof *set.keys);
    expect_told("vx_keys_copy", MANY);
    ck_assert(!memcmp(scratch.keys, set.keys, MANY * sizeof *set.keys));
    keys_close(&from);
    keys_close(&made);
    keys_close(&scratch);
    keys_close(&set);
}
END_TEST

START_TEST(passes_over_logits_tell)
{
    const struct vx_set_key live = {
        .rule = VX_SET_LIVE, .kernel = TWOS, .dilation = ONES, .stride = TWOS};
    const struct vx_set_key top = {.rule = VX_SET_KEEP,
                                   .kernel = ONES,
                                   .dilation = ONES,
                                   .stride = ONES,
                                   .top = 1000};
    struct vx_keys few = line_open(MANY / 8), many = line_open(MANY);
    f32 *logits = vx_alloc(MANY * sizeof *logits);
    for (i64 i = 0; i < MANY; i++) logits[i] = (f32)(i % 1001) - 500;
    struct vx_predict predict = {&few, &live, logits};
    struct vx_keys_scan scan;
    i64 index;
    i32 child;
    vx_cpu_tell(rig.cpu, on_told, NULL);
    ck_assert(!vx_predict_nan(rig.cpu, &predict, &index, &child));
    expect_told("vx_predict_nan", MANY);
    struct vx_keys made = keys_open(vx_predict_count(rig.cpu, &predict));
    expect_told("vx_predict_count", MANY);
    vx_predict_fill(rig.cpu, &predict, &made, &scan);
    expect_told("vx_predict_fill", 2 * MANY);
    predict = (struct vx_predict){&many, &top, logits};
    ck_assert_int_eq(vx_predict_count(rig.cpu, &predict), 1000);
    made.n = 1000;
    told = 0;
    vx_predict_fill(rig.cpu, &predict, &made, &scan); /* three digits, and what stays */
    expect_told("vx_predict_fill of the largest", 4 * MANY);
    keys_close(&few);
    keys_close(&many);
    keys_close(&made);
    vx_free(logits);
}
END_TEST

/* A warm-up's shape may end behind the range of coordinates: no voxel is beyond that. */
START_TEST(a_shape_ends_where_coordinates_do)
{
    const i32 last[4] = {0, VX_AXIS_MAX, 0, 0};
    const struct vx_set_key key = {.rule = VX_SET_SPCONV,
                                   .kernel = {3, 1, 1},
                                   .dilation = ONES,
                                   .stride = ONES,
                                   .padding = {2, 0, 0},
                                   .shape = {VX_AXIS_MAX + 3, 1, 1}};
    struct vx_geometry_made made = {0};
    struct vx_geometry *geometry = rig_hold(last, 1);
    ck_assert(!vx_geometry_set(geometry, rig.cpu, &key, &rig.why, &made).fault);
    ck_assert_int_eq(made.rows, 1);
    vx_geometry_drop(rig.cache, &geometry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("geometry_bounds");
    TCase *cases = tcase_create("geometry_bounds");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, rig_close);
    tcase_add_loop_test(cases, the_bound_is_exact, 0, 3 * RULES);
    tcase_add_loop_test(cases, who_is_refused_takes_nothing, 0, (int)VX_COUNT(refusals));
    tcase_add_test(cases, a_shape_ends_where_coordinates_do);
    tcase_add_test(cases, passes_over_keys_tell);
    tcase_add_test(cases, passes_over_logits_tell);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
