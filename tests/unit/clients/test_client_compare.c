/* How far two results are apart: numbers, labels, rows in another order, voxels that only
 * one of them has, dense tensors.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/memory.h"
#include "clients/cli/compare.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int32_t four[4][4] = {
    {0, 1, 2, 3}, {0, 1, 2, 4}, {0, 9, 0, -5}, {1, 0, 0, 0}};

static struct compare_tensor on_voxels(const int32_t *coords, const float *numbers,
                                       int64_t rows, int64_t columns)
{
    return (struct compare_tensor){.rank = 2,
                                   .shape = {rows, columns},
                                   .rows = rows,
                                   .columns = columns,
                                   .numbers = numbers,
                                   .coords = coords};
}

static struct comparison compare(const struct compare_tensor *a,
                                 const struct compare_tensor *b, float *errors)
{
    struct comparison found;
    struct voxel_error error;
    ck_assert_int_eq(compare_tensors(a, b, errors, &found, &error), VOXEL_OK);
    return found;
}

START_TEST(equal_numbers_are_within_any_bound)
{
    const float cells[8] = {1, -2, 3, 0, 0, 0, 7, -8};
    const struct compare_tensor a = on_voxels(four[0], cells, 4, 2);
    float errors[4] = {5, 5, 5, 5};
    const struct comparison found = compare(&a, &a, errors);
    ck_assert(compare_within(&found, 0));
    ck_assert_double_eq(found.largest, 8);
    ck_assert_double_eq(found.worst, 0);
    ck_assert_double_eq(found.nmse, 0);
    ck_assert_int_eq(found.row, -1);
    ck_assert_int_eq(found.decades[0], 8);
    for (int i = 0; i < 4; i++) ck_assert(errors[i] == 0);
}
END_TEST

/* NaN everywhere is no proof, though NaN equals NaN; one number is one. */
START_TEST(numbers_that_are_never_finite_are_within_no_bound)
{
    const float left[2][2] = {{NAN, INFINITY}, {NAN, 1}};
    for (int i = 0; i < 2; i++) {
        const struct compare_tensor a = on_voxels(four[0], left[i], 2, 1);
        const struct comparison found = compare(&a, &a, NULL);
        ck_assert_int_eq(found.finite, i);
        ck_assert_int_eq(found.blank, !i);
        ck_assert_int_eq(compare_within(&found, 1e9), i);
        ck_assert_double_eq(found.relative, 0);
    }
    const struct compare_tensor none = on_voxels(four[0], left[0], 0, 1);
    const struct comparison found = compare(&none, &none, NULL);
    ck_assert(!found.blank && compare_within(&found, 0));
}
END_TEST

START_TEST(the_worst_element_has_its_place_and_its_share)
{
    const float left[8] = {1, -2, 3, 0, 0, 0, 7, -8};
    const float right[8] = {1, -2, 3.5f, 0, 0, 0, 7, -7};
    const struct compare_tensor a = on_voxels(four[0], left, 4, 2);
    const struct compare_tensor b = on_voxels(four[0], right, 4, 2);
    float errors[4];
    const struct comparison found = compare(&a, &b, errors);
    ck_assert_double_eq(found.worst, 1);
    ck_assert_double_eq(found.relative, 1.0 / 8);
    ck_assert_double_eq(found.nmse, (0.25 + 1) / (1 + 4 + 9 + 49 + 64));
    ck_assert_int_eq(found.row, 3);
    ck_assert_int_eq(found.other, 3);
    ck_assert_int_eq(found.column, 1);
    ck_assert(errors[0] == 0 && errors[1] == 0.0625f && errors[3] == 0.125f);
    ck_assert(compare_within(&found, 0.125));
    ck_assert(!compare_within(&found, 0.124));
}
END_TEST

START_TEST(rows_are_matched_by_their_voxels)
{
    static const int order[4] = {2, 0, 3, 1};
    const float left[4] = {1, 2, 3, 4};
    int32_t coords[4][4];
    float right[4];
    for (int i = 0; i < 4; i++) {
        memcpy(coords[i], four[order[i]], sizeof coords[i]);
        right[i] = left[order[i]];
    }
    const struct compare_tensor a = on_voxels(four[0], left, 4, 1);
    const struct compare_tensor b = on_voxels(coords[0], right, 4, 1);
    struct comparison found = compare(&a, &b, NULL);
    ck_assert_double_eq(found.worst, 0);
    right[2] += 2; /* row 3 of A */
    found = compare(&a, &b, NULL);
    ck_assert_double_eq(found.worst, 2);
    ck_assert_int_eq(found.row, 3);
    ck_assert_int_eq(found.other, 2);
}
END_TEST

START_TEST(missing_voxels_are_counted_and_never_within)
{
    const int32_t other[3][4] = {{0, 1, 2, 4}, {0, 1, 2, 5}, {1, 0, 0, 0}};
    const float left[4] = {1, 2, 3, 4};
    const float right[3] = {2, 9, 4};
    const struct compare_tensor a = on_voxels(four[0], left, 4, 1);
    const struct compare_tensor b = on_voxels(other[0], right, 3, 1);
    float errors[4];
    const struct comparison found = compare(&a, &b, errors);
    ck_assert_int_eq(found.only_a, 2);
    ck_assert_int_eq(found.only_b, 1);
    ck_assert_int_eq(found.rows, 2);
    ck_assert_double_eq(found.worst, 0);
    ck_assert(!compare_within(&found, 1e9));
    ck_assert(isinf(errors[0]) && errors[1] == 0 && isinf(errors[2]) && errors[3] == 0);
}
END_TEST

START_TEST(a_voxel_that_comes_twice_is_matched_once_each)
{
    const int32_t twice[2][4] = {{0, 1, 2, 3}, {0, 1, 2, 3}};
    const float cells[4] = {5, 6, 0, 0};
    const struct compare_tensor a = on_voxels(twice[0], cells, 2, 1);
    const struct compare_tensor b = on_voxels(four[0], cells, 4, 1);
    const struct comparison found = compare(&a, &b, NULL);
    ck_assert_int_eq(found.only_a, 1);
    ck_assert_int_eq(found.only_b, 3);
}
END_TEST

START_TEST(numbers_that_are_not_finite)
{
    static const struct {
        float a, b;
        bool equal;
    } cases[] = {{NAN, NAN, true},
                 {INFINITY, INFINITY, true},
                 {-INFINITY, -INFINITY, true},
                 {NAN, 1, false},
                 {1, NAN, false},
                 {INFINITY, -INFINITY, false},
                 {INFINITY, 3e38f, false},
                 {NAN, INFINITY, false}};
    const float left[2] = {2, cases[_i].a};
    const float right[2] = {2, cases[_i].b};
    const struct compare_tensor a = on_voxels(four[0], left, 2, 1);
    const struct compare_tensor b = on_voxels(four[0], right, 2, 1);
    const struct comparison found = compare(&a, &b, NULL);
    ck_assert_int_eq(compare_within(&found, 1e9), cases[_i].equal);
    ck_assert_int_eq(found.decades[COMPARE_DECADES - 1], !cases[_i].equal);
    ck_assert_int_eq(found.row, cases[_i].equal ? -1 : 1);
    ck_assert_double_eq(found.largest, 2);
    ck_assert_int_eq(isinf(found.nmse) != 0, !cases[_i].equal);
}
END_TEST

START_TEST(a_layer_of_zeros_has_no_small_error)
{
    const float zeros[2] = {0, 0};
    const float right[2] = {0, 1e-30f};
    const struct compare_tensor a = on_voxels(four[0], zeros, 2, 1);
    const struct compare_tensor b = on_voxels(four[0], right, 2, 1);
    struct comparison found = compare(&a, &a, NULL);
    ck_assert_double_eq(found.relative, 0);
    found = compare(&a, &b, NULL);
    ck_assert(isinf(found.relative) && isinf(found.nmse));
}
END_TEST

START_TEST(errors_are_counted_by_decades)
{
    /* Shares of 1, the largest; powers of two are exact in all of this. */
    const float left[5] = {1, 0, 0, 0, 0};
    const float right[5] = {1, 0x1p-2f, 0x1p-10f, 0x1p-40f, 2};
    const int64_t expected[COMPARE_DECADES] = {
        [0] = 1, [1] = 1, [7] = 1, [10] = 1, [11] = 1};
    const int32_t coords[5][4] = {{0}, {1}, {2}, {3}, {4}};
    const struct compare_tensor a = on_voxels(coords[0], left, 5, 1);
    const struct compare_tensor b = on_voxels(coords[0], right, 5, 1);
    const struct comparison found = compare(&a, &b, NULL);
    for (int i = 0; i < COMPARE_DECADES; i++)
        ck_assert_msg(found.decades[i] == expected[i], "%s", compare_decade_name(i));
}
END_TEST

START_TEST(labels_are_compared_by_count)
{
    const int64_t left[4] = {1, 2, 3, 4};
    const int64_t right[4] = {1, 7, 3, -4};
    struct compare_tensor a = on_voxels(four[0], NULL, 4, 1);
    struct compare_tensor b = a;
    float errors[4];
    a.labels = left;
    b.labels = right;
    struct comparison found = compare(&a, &b, errors);
    ck_assert(found.labels);
    ck_assert_int_eq(found.wrong, 2);
    ck_assert_double_eq(found.relative, 0.5);
    ck_assert_int_eq(found.row, 1);
    ck_assert(errors[0] == 0 && errors[1] == 1 && errors[2] == 0 && errors[3] == 1);
    ck_assert(compare_within(&found, 0.5));
    ck_assert(!compare_within(&found, 0.4));
    b.labels = NULL; /* numbers against labels are no comparison */
    b.numbers = (const float[4]){1, 2, 3, 4};
    found = compare(&a, &b, errors);
    ck_assert(found.kinds && !found.shapes && found.labels && isinf(errors[3]));
    ck_assert(!compare_within(&found, 1e9));
    found = compare(&b, &a, NULL);
    ck_assert(found.kinds && !found.shapes && !found.labels);
}
END_TEST

START_TEST(empty_sets_are_equal_and_missing_from_others)
{
    const float cells[4] = {1, 2, 3, 4};
    const int32_t none[1][4];
    const struct compare_tensor empty = on_voxels(none[0], cells, 0, 1);
    const struct compare_tensor full = on_voxels(four[0], cells, 4, 1);
    struct comparison found = compare(&empty, &empty, NULL);
    ck_assert(compare_within(&found, 0));
    found = compare(&empty, &full, NULL);
    ck_assert_int_eq(found.only_b, 4);
    found = compare(&full, &empty, NULL);
    ck_assert_int_eq(found.only_a, 4);
    ck_assert_int_eq(found.rows, 0);
}
END_TEST

START_TEST(dense_tensors_are_compared_number_by_number)
{
    const float left[12] = {[5] = 4};
    const float right[12] = {[5] = 4, [11] = 1};
    struct compare_tensor a = {
        .rank = 5, .shape = {1, 2, 2, 1, 3}, .rows = 12, .columns = 1, .numbers = left};
    struct compare_tensor b = {
        .rank = 4, .shape = {1, 4, 1, 3}, .rows = 12, .columns = 1, .numbers = right};
    struct comparison found = compare(&a, &b, NULL);
    ck_assert_double_eq(found.relative, 0.25);
    ck_assert_int_eq(found.row, 11);
    b.rows = 11;
    found = compare(&a, &b, NULL);
    ck_assert(found.shapes);
    b = on_voxels(four[0], right, 4, 3); /* a dense one against one on voxels */
    found = compare(&a, &b, NULL);
    ck_assert(found.shapes);
}
END_TEST

START_TEST(other_channels_are_another_shape)
{
    const float cells[8] = {0};
    float errors[4];
    const struct compare_tensor a = on_voxels(four[0], cells, 4, 2);
    const struct compare_tensor b = on_voxels(four[0], cells, 4, 1);
    const struct comparison found = compare(&a, &b, errors);
    ck_assert(found.shapes && isinf(errors[0]));
    ck_assert(!compare_within(&found, 1e9));
}
END_TEST

static Suite *compare_suite(void)
{
    Suite *suite = suite_create("client_compare");
    TCase *tcase = tcase_create("compare");
    tcase_add_test(tcase, equal_numbers_are_within_any_bound);
    tcase_add_test(tcase, numbers_that_are_never_finite_are_within_no_bound);
    tcase_add_test(tcase, the_worst_element_has_its_place_and_its_share);
    tcase_add_test(tcase, rows_are_matched_by_their_voxels);
    tcase_add_test(tcase, missing_voxels_are_counted_and_never_within);
    tcase_add_test(tcase, a_voxel_that_comes_twice_is_matched_once_each);
    tcase_add_loop_test(tcase, numbers_that_are_not_finite, 0, 8);
    tcase_add_test(tcase, a_layer_of_zeros_has_no_small_error);
    tcase_add_test(tcase, errors_are_counted_by_decades);
    tcase_add_test(tcase, labels_are_compared_by_count);
    tcase_add_test(tcase, empty_sets_are_equal_and_missing_from_others);
    tcase_add_test(tcase, dense_tensors_are_compared_number_by_number);
    tcase_add_test(tcase, other_channels_are_another_shape);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(compare_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
