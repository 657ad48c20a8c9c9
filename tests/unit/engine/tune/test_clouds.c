/* The clouds that are measured on: what is in them, their levels, the order of their rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/tune/clouds.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void good(vx_status status)
{
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, NULL));
}

static int by_row(const void *a, const void *b)
{
    const i32 *left = a, *right = b;
    for (int column = 0; column < 4; column++)
        if (left[column] != right[column]) return left[column] < right[column] ? -1 : 1;
    return 0;
}

static i32 *sorted_copy(const struct vx_cloud *cloud)
{
    i32 *rows = malloc((size_t)cloud->n * 16);
    memcpy(rows, cloud->coords, (size_t)cloud->n * 16);
    qsort(rows, (size_t)cloud->n, 16, by_row);
    return rows;
}

/* Counted by another program, in Python; no sine or cosine decides about these. */
static const struct {
    const char *name;
    i64 n;
} exact[] = {{"cube", 262144},   {"plane", 122500},   {"noise5", 104952},
             {"noise1", 112814}, {"noise01", 110062}, {"torus", 145168}};

START_TEST(each_has_distinct_voxels_in_range)
{
    struct vx_cloud cloud, again;
    good(vx_cloud_made(_i, &cloud));
    good(vx_cloud_made(_i, &again));
    ck_assert_str_eq(cloud.name, vx_cloud_name(_i));
    ck_assert_int_gt(cloud.n, 50000);
    ck_assert_int_lt(cloud.n, VX_CLOUD_VOXELS_MAX);
    ck_assert_int_eq(cloud.n, again.n);
    ck_assert(!memcmp(cloud.coords, again.coords, (size_t)cloud.n * 16));
    i32 *rows = sorted_copy(&cloud);
    for (i64 i = 0; i < cloud.n; i++) {
        ck_assert_int_eq(rows[4 * i], 0);
        for (int axis = 1; axis < 4; axis++)
            ck_assert_int_lt(abs(rows[4 * i + axis]), 1024);
        if (i) ck_assert_int_lt(by_row(rows + 4 * (i - 1), rows + 4 * i), 0);
    }
    for (size_t i = 0; i < VX_COUNT(exact); i++)
        if (!strcmp(exact[i].name, cloud.name)) ck_assert_int_eq(cloud.n, exact[i].n);
    free(rows);
    vx_cloud_free(&again);
    vx_cloud_free(&cloud);
}
END_TEST

START_TEST(of_equal_rows_the_first_stays)
{
    static const i32 rows[] = {0, 5, 5, 5, 1, 5, 5, 5,  0, -7,
                               0, 1, 0, 5, 5, 5, 0, -7, 0, 1};
    static const i32 kept[] = {0, 5, 5, 5, 1, 5, 5, 5, 0, -7, 0, 1};
    struct vx_cloud cloud;
    good(vx_cloud_of_rows("given", rows, 5, &cloud));
    ck_assert_int_eq(cloud.n, 3);
    ck_assert(!memcmp(cloud.coords, kept, sizeof kept));
    vx_cloud_free(&cloud);
    good(vx_cloud_of_rows("none", rows, 0, &cloud));
    ck_assert_int_eq(cloud.n, 0);
    vx_cloud_free(&cloud);
}
END_TEST

/* Halves are rounded down, also below zero; the sample stays. */
START_TEST(levels)
{
    static const i32 rows[] = {3, -1, -2, 7, 3, -2, -1, 6, 2, 0, 1, 1};
    static const i32 halves[] = {3, -1, -1, 3, 2, 0, 0, 0};
    struct vx_cloud fine, coarse, coarser;
    good(vx_cloud_of_rows("a_name_as_long_as_a_file", rows, 3, &fine));
    good(vx_cloud_level(&fine, &coarse));
    ck_assert_str_eq(coarse.name, "a_name_as_long_a/2");
    ck_assert_int_eq(coarse.n, 2);
    ck_assert(!memcmp(coarse.coords, halves, sizeof halves));
    good(vx_cloud_level(&coarse, &coarser));
    ck_assert_str_eq(coarser.name, "a_name_as_long_a/4");
    vx_cloud_free(&fine);
    vx_cloud_free(&coarse);
    vx_cloud_free(&coarser);
}
END_TEST

START_TEST(orders)
{
    struct vx_cloud cloud;
    good(vx_cloud_made(1, &cloud)); /* the cube comes sorted */
    i32 *rows = sorted_copy(&cloud);
    const size_t bytes = (size_t)cloud.n * 16;
    good(vx_cloud_arrange(&cloud, VX_CLOUD_GIVEN));
    ck_assert(!memcmp(cloud.coords, rows, bytes));
    good(vx_cloud_arrange(&cloud, VX_CLOUD_SHUFFLED));
    i64 stayed = 0;
    for (i64 i = 0; i < cloud.n; i++)
        stayed += !memcmp(cloud.coords + 4 * i, rows + 4 * i, 16);
    ck_assert_int_lt(stayed, 20); /* of a random order one stays, on average */
    i32 *again = sorted_copy(&cloud);
    ck_assert(!memcmp(again, rows, bytes)); /* none lost */
    good(vx_cloud_arrange(&cloud, VX_CLOUD_SORTED));
    ck_assert(!memcmp(cloud.coords, rows, bytes));
    free(again);
    free(rows);
    vx_cloud_free(&cloud);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clouds");
    TCase *all = tcase_create("clouds");
    tcase_add_loop_test(all, each_has_distinct_voxels_in_range, 0, vx_clouds_count());
    tcase_add_test(all, of_equal_rows_the_first_stays);
    tcase_add_test(all, levels);
    tcase_add_test(all, orders);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
