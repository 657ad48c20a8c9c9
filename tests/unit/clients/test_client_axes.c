/* The columns of coords: put into a model's order, and seen as x, y and z again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "clients/c/limits.h"
#include "clients/cli/axes.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 2

/* Voxels (10, 20, 30) and (11, 22, 33) of a file, of sizes 1, 2 and 3. */
struct rig {
    int32_t coords[ROWS][4];
    struct cloud cloud;
};

static void rig_init(struct rig *rig, bool named)
{
    const int32_t coords[ROWS][4] = {{0, 10, 20, 30}, {5, 11, 22, 33}};
    memcpy(rig->coords, coords, sizeof coords);
    rig->cloud = (struct cloud){.count = ROWS,
                                .coords = rig->coords[0],
                                .axes = "xyz",
                                .named = named,
                                .size = {1, 2, 3},
                                .stride = "1x2/3x4"};
}

/* In every order the column of a letter has what the file has on that axis. */
START_TEST(a_ply_is_put_into_every_order_and_back)
{
    static const char *const orders[] = {"xyz", "xzy", "yxz", "yzx", "zxy", "zyx"};
    static const char *const strides[] = {"1x2/3x4", "1x4x2/3", "2/3x1x4",
                                          "2/3x4x1", "4x1x2/3", "4x2/3x1"};
    const int32_t file[ROWS][3] = {{10, 20, 30}, {11, 22, 33}};
    struct rig rig, whole;
    struct cloud seen;
    struct voxel_error error;
    rig_init(&rig, true);
    rig_init(&whole, true);
    cloud_place(&rig.cloud, orders[_i]);
    ck_assert_str_eq(rig.cloud.axes, orders[_i]);
    ck_assert_str_eq(rig.cloud.stride, strides[_i]);
    for (int row = 0; row < ROWS; row++) {
        ck_assert_int_eq(rig.coords[row][0], whole.coords[row][0]);
        for (int k = 0; k < 3; k++)
            ck_assert_int_eq(rig.coords[row][1 + k], file[row][orders[_i][k] - 'x']);
    }
    for (int k = 0; k < 3; k++)
        ck_assert_double_eq(rig.cloud.size[k], orders[_i][k] - 'x' + 1);
    ck_assert_int_eq(cloud_see(&rig.cloud, &seen, &error), VOXEL_OK);
    ck_assert_mem_eq(seen.coords, whole.coords, sizeof whole.coords);
    ck_assert_mem_eq(seen.size, whole.cloud.size, sizeof seen.size);
    ck_assert_str_eq(seen.stride, whole.cloud.stride);
    ck_assert_str_eq(seen.axes, "xyz");
    cloud_unsee(&rig.cloud, &seen);
}
END_TEST

/* Columns without names are sent as they are, and seen by the order. */
START_TEST(columns_of_numpy_stay)
{
    const int32_t sees[ROWS][4] = {{0, 30, 10, 20}, {5, 33, 11, 22}};
    struct rig rig, whole;
    struct cloud seen;
    struct voxel_error error;
    rig_init(&rig, false);
    rig_init(&whole, false);
    cloud_place(&rig.cloud, "yzx");
    ck_assert_mem_eq(rig.coords, whole.coords, sizeof rig.coords);
    ck_assert_str_eq(rig.cloud.stride, whole.cloud.stride);
    ck_assert_int_eq(cloud_see(&rig.cloud, &seen, &error), VOXEL_OK);
    ck_assert_mem_eq(seen.coords, sees, sizeof sees);
    ck_assert_mem_eq(rig.coords, whole.coords, sizeof rig.coords);
    ck_assert_double_eq(seen.size[0], 3);
    ck_assert_str_eq(seen.stride, "4x1x2/3");
    cloud_unsee(&rig.cloud, &seen);
}
END_TEST

START_TEST(what_no_order_is)
{
    static const char *const bad[] = {"",     "x",    "xy",  "xyy",
                                      "xyzx", "bxyz", "XYZ", "zyx "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!voxel_axes_are_order(bad[i]), "%s", bad[i]);
    ck_assert(voxel_axes_are_order("zyx") && voxel_axes_are_order("xyz"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_axes");
    TCase *tcase = tcase_create("client_axes");
    tcase_add_loop_test(tcase, a_ply_is_put_into_every_order_and_back, 0, 6);
    tcase_add_test(tcase, columns_of_numpy_stay);
    tcase_add_test(tcase, what_no_order_is);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
