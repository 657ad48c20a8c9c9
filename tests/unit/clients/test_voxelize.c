/* Points to voxels, 16-bit floats, the made-up cloud, and the percentiles of a
 * measurement.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/cloud.h"
#include "clients/cli/convert.h"
#include "clients/cli/load.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

START_TEST(float_points_fall_into_voxels)
{
    double xyz[] = {0.05, 0.05, 0.05, -0.01, 0.0,  0.0, 0.09, 0.01,     0.02,
                    NAN,  0,    0,    0.3,   0.71, 2.0, 0,    INFINITY, 0};
    float feats[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct points points = {.count = 6, .xyz = xyz, .feats = feats, .channels = 2};
    struct cloud cloud;
    ck_assert_int_eq(cloud_make(&points, 0.1, &cloud, NULL), VOXEL_OK);
    ck_assert_int_eq(cloud.count, 3);
    ck_assert_int_eq(cloud.merged, 1);
    ck_assert_int_eq(cloud.dropped, 2);
    ck_assert(!cloud.whole);
    /* Voxels are in the order of their first points; 0.3 is a corner of voxel 3 though
     * 0.3/0.1 < 3. */
    const int32_t expected[3][4] = {{0, 0, 0, 0}, {0, -1, 0, 0}, {0, 3, 7, 20}};
    ck_assert_mem_eq(cloud.coords, expected, sizeof expected);
    /* Points 0 and 2 share a voxel: it has their mean. */
    ck_assert(cloud.feats[0] == 3.0f);
    ck_assert(cloud.feats[1] == 4.0f);
    ck_assert(cloud.feats[4] == 9.0f);
    cloud_fini(&cloud);
}
END_TEST

START_TEST(corners_survive_floats)
{
    /* Corners of voxels as a float file stores them, for sizes that no float
     * represents exactly. */
    static const double sizes[] = {0.1, 0.05, 0.2, 0.3, 1.0 / 3};
    double xyz[3 * 2001];
    struct points points = {.count = 2001, .xyz = xyz};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int i = 0; i <= 2000; i++)
            for (int k = 0; k < 3; k++)
                xyz[3 * i + k] = (double)(float)((i - 1000) * sizes[s]);
        struct cloud cloud;
        ck_assert_int_eq(cloud_make(&points, sizes[s], &cloud, NULL), VOXEL_OK);
        ck_assert_int_eq(cloud.count, 2001);
        for (int i = 0; i <= 2000; i++)
            ck_assert_int_eq(cloud.coords[4 * i + 2], i - 1000);
        cloud_fini(&cloud);
    }
}
END_TEST

START_TEST(integers_are_coordinates)
{
    double xyz[] = {-2147483648.0, 5, 2147483647.0, 3, 4, 5, 3, 4, 5, 3, 4, 5};
    int32_t sample[] = {0, 0, 0, 1};
    struct points points = {.count = 4, .xyz = xyz, .sample = sample, .whole = true};
    struct cloud cloud;
    struct voxel_error error;
    /* Rows 1 and 2 are one voxel: an error in a file of voxels. */
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(
        error.text,
        "rows 1 and 2 are the same voxel (sample 0, axes 3, 4, 5): expected each voxel "
        "once; with --voxel SIZE rows are points and are merged");
    ck_assert_ptr_null(cloud.coords);
    /* In a file of points they are merged and counted. */
    ck_assert_int_eq(cloud_make(&points, 1, &cloud, &error), VOXEL_OK);
    ck_assert_int_eq(cloud.count, 3);
    ck_assert_int_eq(cloud.merged, 1);
    cloud_fini(&cloud);
    sample[2] = 1;
    points.count = 3;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, NULL), VOXEL_OK);
    ck_assert(cloud.whole);
    ck_assert_int_eq(cloud.count,
                     3); /* the same place in another sample is another voxel */
    ck_assert_int_eq(cloud.coords[1], INT32_MIN);
    ck_assert_int_eq(cloud.coords[3], INT32_MAX);
    ck_assert_int_eq(cloud.coords[8], 1);
    cloud_fini(&cloud);
    /* With a size the rows are points in some unit. */
    points.count = 2;
    ck_assert_int_eq(cloud_make(&points, 2, &cloud, NULL), VOXEL_OK);
    ck_assert(!cloud.whole);
    ck_assert_int_eq(cloud.coords[5], 1);
    ck_assert_int_eq(cloud.coords[7], 2);
    cloud_fini(&cloud);
}
END_TEST

START_TEST(a_size_is_needed_and_bounded)
{
    double xyz[] = {0.5, 1e30, 0};
    struct points points = {.count = 1, .xyz = xyz};
    struct cloud cloud;
    struct voxel_error error;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "--voxel SIZE (1 if they are voxels already)"), "%s",
                  error.text);
    points.size_idle = true;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "the voxel_size of a .npz is not used to place"),
                  "%s", error.text);
    for (int k = 0; k < 3; k++) points.voxel_size[k] = 0.1;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "point 0: column 1 (y of a .ply) gives voxel 1e+31"),
                  "%s", error.text);
    ck_assert_ptr_null(cloud.coords);
    points.count = 0;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, &error), VOXEL_OK);
    ck_assert_int_eq(cloud.count, 0);
    cloud_fini(&cloud);
}
END_TEST

/* Integers are voxels: with such a size none would have a neighbour, and the answer would
 * be wrong without a word. */
START_TEST(integers_take_no_size_below_1)
{
    double xyz[] = {0, 0, 0, 0, 0, 1};
    struct points points = {.count = 2, .xyz = xyz, .whole = true};
    struct cloud cloud;
    struct voxel_error error;
    ck_assert_int_eq(cloud_make(&points, 0.07, &cloud, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text,
                     "the positions are integers, so --voxel 0.07 would put neighbours "
                     "14.3 voxels apart: voxels need no --voxel, and for integers in a "
                     "unit it is at least 1");
    ck_assert_ptr_null(cloud.coords);
    ck_assert_int_eq(cloud_make(&points, 0.999, &cloud, NULL), VOXEL_INVALID_ARGUMENT);
    static const double sizes[] = {0, 1, 1.5};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(cloud_make(&points, sizes[i], &cloud, &error), VOXEL_OK);
        cloud_fini(&cloud);
    }
    points.whole = false;
    ck_assert_int_eq(cloud_make(&points, 0.07, &cloud, &error), VOXEL_OK);
    cloud_fini(&cloud);
}
END_TEST

START_TEST(what_is_no_number_is_counted)
{
    double xyz[] = {0, 0, 0, NAN, 0, 0, 0, INFINITY, 0, 1, 0, 0, 1, 0, 0};
    float feats[] = {1, NAN, 2, 3, 4, 5, -INFINITY, INFINITY, 6, 7};
    struct points points = {.count = 5, .xyz = xyz, .feats = feats, .channels = 2};
    struct cloud cloud;
    struct voxel_error error;
    ck_assert_int_eq(cloud_make(&points, 1, &cloud, &error), VOXEL_OK);
    ck_assert_int_eq(cloud.count, 2);
    ck_assert_int_eq(cloud.dropped, 2);
    ck_assert_int_eq(cloud.feats_odd, 2);
    cloud_fini(&cloud);
    /* Nothing left to ask about, as from a file of other positions. */
    points.xyz += 3;
    points.feats = NULL;
    points.count = 2;
    ck_assert_int_eq(cloud_make(&points, 1, &cloud, &error), VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text,
                     "none of the 2 points has a position: all are NaN or infinite");
    ck_assert_ptr_null(cloud.coords);
}
END_TEST

/* Voxels on a line, `step` apart, of which `pairs` have another beside them. */
static const struct {
    int count, step, pairs;
    bool scattered;
} lines[] = {
    {CLOUD_SCATTER_MIN, 2, 0, true},
    {CLOUD_SCATTER_MIN - 1, 2, 0, false}, /* too few to tell */
    {CLOUD_SCATTER_MIN, 1, 0, false},
    {CLOUD_SCATTER_MIN, 2, 1, false}, /* three of 65 are more than one in 100 */
    {1000, 3, 4, true},
    {1000, 3, 6, false},
    {300000, 3, 0, true}, /* more than are looked at */
    {300000, 1, 0, false},
};

START_TEST(voxels_without_neighbours_are_scattered)
{
    const int count = lines[_i].count + lines[_i].pairs;
    double *xyz = calloc((size_t)count, 3 * sizeof *xyz);
    int32_t *sample = calloc((size_t)count, sizeof *sample);
    for (int i = 0; i < count; i++) {
        const int pair = i - lines[_i].count; /* at a corner of an earlier one */
        for (int k = 0; k < 3; k++) xyz[3 * i + k] = pair < 0 ? 0 : 1;
        xyz[3 * i] = pair < 0 ? i * lines[_i].step : pair * 4 * lines[_i].step + 1;
    }
    struct points points = {.count = count, .xyz = xyz, .sample = sample, .whole = true};
    struct cloud cloud;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, NULL), VOXEL_OK);
    ck_assert_int_eq(cloud.scattered, lines[_i].scattered);
    cloud_fini(&cloud);
    /* The voxels of another sample are no neighbours. */
    for (int i = 0; i < count; i++) sample[i] = i % 2;
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, NULL), VOXEL_OK);
    if (lines[_i].step == 1 && !lines[_i].pairs)
        ck_assert_int_eq(cloud.scattered, count >= CLOUD_SCATTER_MIN);
    cloud_fini(&cloud);
    free(xyz);
    free(sample);
}
END_TEST

/* The ends of int32 have no voxel beyond them. */
START_TEST(voxels_at_the_ends_are_looked_at)
{
    double xyz[3 * CLOUD_SCATTER_MIN];
    struct points points = {.count = CLOUD_SCATTER_MIN, .xyz = xyz, .whole = true};
    struct cloud cloud;
    for (int i = 0; i < CLOUD_SCATTER_MIN; i++) {
        xyz[3 * i] = i % 2 ? INT32_MAX : INT32_MIN;
        xyz[3 * i + 1] = xyz[3 * i + 2] = 2.0 * i;
    }
    ck_assert_int_eq(cloud_make(&points, 0, &cloud, NULL), VOXEL_OK);
    ck_assert(cloud.scattered);
    cloud_fini(&cloud);
}
END_TEST

static int compare_rows(const void *a, const void *b)
{
    return memcmp(a, b, 4 * sizeof(int32_t));
}

START_TEST(shell_has_distinct_voxels)
{
    static const int64_t counts[] = {0, 1, 7, 200, 10000, 100001};
    static const int32_t any[3] = {0};
    struct cloud cloud;
    ck_assert_int_eq(cloud_make_shell(counts[_i], any, &cloud, NULL), VOXEL_OK);
    ck_assert_int_eq(cloud.count, counts[_i]);
    qsort(cloud.coords, (size_t)cloud.count, 4 * sizeof(int32_t), compare_rows);
    for (int64_t i = 1; i < cloud.count; i++)
        ck_assert_int_ne(compare_rows(&cloud.coords[4 * i - 4], &cloud.coords[4 * i]), 0);
    cloud_fini(&cloud);
    ck_assert_int_eq(cloud_make_shell(-1, any, &cloud, NULL), VOXEL_INVALID_ARGUMENT);
}
END_TEST

/* Detectors have low grids, and networks of two axes flat ones. */
START_TEST(shell_fits_the_shape)
{
    static const struct {
        int64_t count;
        int32_t shape[3];
        bool fits;
    } cases[] = {{10000, {41, 100, 88}, true}, {10000, {41, 1600, 1408}, true},
                 {200, {10, 9, 11}, true},     {90, {10, 9, 1}, true},
                 {91, {10, 9, 1}, false},      {300, {1, 300, 1}, true},
                 {7, {2, 2, 2}, true},         {9, {2, 2, 2}, false},
                 {10000, {99, 99, 99}, true},  {0, {1, 1, 1}, true}};
    struct cloud cloud;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        enum voxel_code code =
            cloud_make_shell(cases[c].count, cases[c].shape, &cloud, NULL);
        ck_assert_int_eq(code, cases[c].fits ? VOXEL_OK : VOXEL_INVALID_ARGUMENT);
        if (code) continue;
        ck_assert_int_eq(cloud_check_shape(&cloud, cases[c].shape, NULL), VOXEL_OK);
        qsort(cloud.coords, (size_t)cloud.count, 4 * sizeof(int32_t), compare_rows);
        for (int64_t i = 1; i < cloud.count; i++)
            ck_assert_int_ne(compare_rows(&cloud.coords[4 * i - 4], &cloud.coords[4 * i]),
                             0);
        cloud_fini(&cloud);
    }
    static const int32_t any[3] = {0}, low[3] = {50, 50, 9};
    ck_assert_int_eq(cloud_make_shell(1000, any, &cloud, NULL), VOXEL_OK);
    ck_assert_int_eq(cloud_check_shape(&cloud, any, NULL), VOXEL_OK);
    ck_assert_int_eq(cloud_check_shape(&cloud, low, NULL), VOXEL_INVALID_ARGUMENT);
    cloud_fini(&cloud);
}
END_TEST

START_TEST(halves_round_trip)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float wide = convert_from_half((uint16_t)bits);
        if (isnan(wide))
            ck_assert(isnan(convert_from_half(convert_to_half(wide))));
        else
            ck_assert_uint_eq(convert_to_half(wide), bits);
        wide = convert_from_bfloat((uint16_t)bits);
        if (isnan(wide))
            ck_assert(isnan(convert_from_bfloat(convert_to_bfloat(wide))));
        else
            ck_assert_uint_eq(convert_to_bfloat(wide), bits);
    }
}
END_TEST

static const struct {
    float value;
    uint16_t half;
    uint16_t bfloat;
} roundings[] = {
    {1.0f + 0x1p-11f, 0x3c00, 0x3f80}, /* a tie goes to even */
    {1.0f + 0x3p-11f, 0x3c02, 0x3f80},
    {1.0f + 0x1p-8f, 0x3c04, 0x3f80},
    {1.0f + 0x3p-8f, 0x3c0c, 0x3f82},
    {65504.0f, 0x7bff, 0x4780},
    {65519.9f, 0x7bff, 0x4780},
    {65520.0f, 0x7c00, 0x4780},
    {1e30f, 0x7c00, 0x714a},
    {-0x1p-24f, 0x8001, 0xb380},
    {0x1p-25f, 0x0000, 0x3300}, /* half the smallest: the even one is 0 */
    {0x1.8p-25f, 0x0001, 0x3340},
    {0x1.ffep-15f, 0x0400, 0x3880}, /* up into the normal range */
};

START_TEST(halves_round_to_nearest_even)
{
    ck_assert_uint_eq(convert_to_half(roundings[_i].value), roundings[_i].half);
    ck_assert_uint_eq(convert_to_bfloat(roundings[_i].value), roundings[_i].bfloat);
}
END_TEST

START_TEST(percentiles_are_nearest_ranks)
{
    int64_t ns[1000];
    struct load_result result = {.latency_ns = ns, .answered = 1000};
    for (int i = 0; i < 1000; i++) ns[i] = i + 1;
    ck_assert_int_eq(load_percentile(&result, 0.5), 500);
    ck_assert_int_eq(load_percentile(&result, 0.9), 900);
    ck_assert_int_eq(load_percentile(&result, 0.999), 999);
    ck_assert_int_eq(load_percentile(&result, 1.0), 1000);
    ck_assert(load_mean(&result) == 500.5);
    result.answered = 1;
    ck_assert_int_eq(load_percentile(&result, 0.5), 1);
    result.answered = 0;
    ck_assert_int_eq(load_percentile(&result, 0.99), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("voxelize");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, float_points_fall_into_voxels);
    tcase_add_test(tcase, corners_survive_floats);
    tcase_add_test(tcase, integers_are_coordinates);
    tcase_add_test(tcase, a_size_is_needed_and_bounded);
    tcase_add_test(tcase, integers_take_no_size_below_1);
    tcase_add_test(tcase, what_is_no_number_is_counted);
    tcase_add_loop_test(tcase, voxels_without_neighbours_are_scattered, 0,
                        sizeof lines / sizeof *lines);
    tcase_add_test(tcase, voxels_at_the_ends_are_looked_at);
    tcase_add_loop_test(tcase, shell_has_distinct_voxels, 0, 6);
    tcase_add_test(tcase, shell_fits_the_shape);
    tcase_add_test(tcase, halves_round_trip);
    tcase_add_loop_test(tcase, halves_round_to_nearest_even, 0,
                        sizeof roundings / sizeof *roundings);
    tcase_add_test(tcase, percentiles_are_nearest_ranks);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
