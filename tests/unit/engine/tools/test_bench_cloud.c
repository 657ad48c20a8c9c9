/* The clouds that a bench is asked for by name and by file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/bench_cloud.h"
#include "engine/tools/npz.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/vx_clouds_XXXXXX";
static char path[64]; /* of the file "scan.npy" in the folder */

static void set_up(void)
{
    strcpy(folder, "/tmp/vx_clouds_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/scan.npy", folder);
}

static void tear_down(void)
{
    static const char *const names[] = {"scan.npy", "scan-2.npy", "scan-4.npy",
                                        "tree.npy"};
    char gone[96];
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        snprintf(gone, sizeof gone, "%s/%s", folder, names[i]);
        (void)unlink(gone);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_array(char kind, i32 size, i64 rows, i64 columns, const void *data)
{
    struct vx_why why = {""};
    const struct vx_npz_array array = {.kind = kind,
                                       .size = size,
                                       .rank = 2,
                                       .shape = {rows, columns},
                                       .data = (void *)(uintptr_t)data};
    vx_status status = vx_npy_write(path, &array, &why);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
}

static void open_list(const char *list, i32 levels, const char *save,
                      struct vx_bench_clouds *clouds)
{
    struct vx_why why = {""};
    const struct vx_bench_clouds_wanted wanted = {list, levels, VX_CLOUD_GIVEN, save};
    vx_status status = vx_bench_clouds_open(&wanted, &why, clouds);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
}

static void refused(const char *list, const char *sentence)
{
    static struct vx_bench_clouds clouds;
    struct vx_why why = {""};
    const struct vx_bench_clouds_wanted wanted = {list, 1, VX_CLOUD_GIVEN, NULL};
    vx_status status = vx_bench_clouds_open(&wanted, &why, &clouds);
    ck_assert(status.fault);
    ck_assert_int_eq(clouds.count, 0);
    ck_assert_msg(strstr(vx_status_text(status, &why), sentence), "%s",
                  vx_status_text(status, &why));
}

static struct vx_bench_clouds clouds;

static void expect(const i32 *rows, i64 n)
{
    ck_assert_int_eq(clouds.list[0].n, n);
    ck_assert(!memcmp(clouds.list[0].coords, rows, (size_t)n * 16));
    vx_bench_clouds_close(&clouds);
}

/* Each type of integer; three columns are axes, four begin with the sample. */
START_TEST(voxels_of_a_file)
{
    static const i16 tiny[] = {1, -2, 3, 4, 5, 6, 1, -2, 3};
    static const i32 small[] = {1, 2, 3, 4, 0, -131072, 131071, 0};
    static const i64 large[] = {7, 8, 9};
    write_array('i', 2, 3, 3, tiny);
    open_list(path, 1, NULL, &clouds);
    ck_assert_str_eq(clouds.list[0].name, "scan");
    expect((const i32[]){0, 1, -2, 3, 0, 4, 5, 6}, 2); /* the third is the first again */
    write_array('i', 4, 2, 4, small);
    open_list(path, 1, NULL, &clouds);
    expect(small, 2);
    write_array('i', 8, 1, 3, large);
    open_list(path, 1, NULL, &clouds);
    expect((const i32[]){0, 7, 8, 9}, 1);
}
END_TEST

/* Points are rounded down to voxels; further columns are something else. */
START_TEST(points_of_a_file)
{
    static const f32 single[] = {0.05f, -0.05f, 0.95f, 9, 1.05f, 0, -1, 9};
    static const f64 number[] = {2.5, 5, 7.5};
    char word[80];
    write_array('f', 4, 2, 4, single);
    snprintf(word, sizeof word, "%s:0.1", path);
    open_list(word, 1, NULL, &clouds);
    expect((const i32[]){0, 0, -1, 9, 0, 10, 0, -10}, 2);
    write_array('f', 8, 1, 3, number);
    snprintf(word, sizeof word, "%s:2.5", path);
    open_list(word, 1, NULL, &clouds);
    expect((const i32[]){0, 1, 2, 3}, 1);
}
END_TEST

START_TEST(names_levels_and_copies)
{
    static const i32 rows[] = {0, 4, 4, 4, 0, 5, 5, 5, 0, 8, 8, 8};
    char list[96];
    write_array('i', 4, 3, 4, rows);
    snprintf(list, sizeof list, "tree,%s", path);
    open_list(list, 3, folder, &clouds);
    ck_assert_int_eq(clouds.count, 6);
    ck_assert_str_eq(clouds.list[0].name, "tree");
    ck_assert_str_eq(clouds.list[4].name, "scan/2");
    ck_assert_str_eq(clouds.list[5].name, "scan/4");
    ck_assert_int_eq(clouds.list[3].n, 3);
    ck_assert_int_eq(clouds.list[4].n, 2);
    vx_bench_clouds_close(&clouds);
    snprintf(list, sizeof list, "%s/scan-2.npy", folder); /* what was saved can be read */
    open_list(list, 1, NULL, &clouds);
    expect((const i32[]){0, 2, 2, 2, 0, 4, 4, 4}, 2);
    snprintf(list, sizeof list, "%s/tree-2.npy", folder);
    ck_assert_int_eq(unlink(list), 0);
    snprintf(list, sizeof list, "%s/tree-4.npy", folder);
    ck_assert_int_eq(unlink(list), 0);
}
END_TEST

START_TEST(all_of_them)
{
    open_list("clouds", 1, NULL, &clouds);
    ck_assert_int_eq(clouds.count, vx_clouds_count());
    vx_bench_clouds_close(&clouds);
}
END_TEST

START_TEST(what_is_refused)
{
    static const i32 rows[] = {0, 0, 131072, 512, 0, 0};
    static const u32 more[] = {1, 2, 3};
    static const f32 points[] = {1, 2, 3, 3e9f, 0, 0, 1, 1, 1};
    char word[80];
    refused("rooms", "expected clouds, torus, cube, plane, tree, room");
    refused("scan.npy:0", "FILE.npy:SIZE, got \"scan.npy:0\"");
    refused("scan.npy:x", "got \"scan.npy:x\"");
    refused("scan.npy:0x1", "got \"scan.npy:0x1\"");
    refused("scan.npy: 1", "got \"scan.npy: 1\"");
    refused("scan.npy:1e-320", "got \"scan.npy:1e-320\"");
    refused("scan.ply", "got \"scan.ply\"");
    refused(path, "scan.npy");
    write_array('i', 4, 2, 3, rows);
    refused(path, "row 0: expected samples 0 to 511 and axes -131072 to 131071");
    write_array('i', 4, 1, 4, rows + 2);
    refused(path, "row 0: expected samples");
    write_array('i', 4, 3, 2, rows);
    refused(path,
            "rows of 3 columns (axes) or 4 (sample, axes), got 2 dimensions of 3 and 2");
    write_array('i', 4, 0, 4, rows);
    refused(path, "expected 1 to");
    write_array('u', 4, 1, 3, more);
    refused(path, "got <u4");
    write_array('f', 4, 1, 3, points);
    refused(path, "as in scan.npy:0.1, got <f4");
    write_array('f', 4, 2, 3, points);
    snprintf(word, sizeof word, "%s:1", path);
    refused(word, "row 1: expected samples 0 to 511 and axes -131072 to 131071 after");
    FILE *file = fopen(path, "wb");
    fputs("no array", file);
    fclose(file);
    refused(path, "damaged");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_cloud");
    TCase *all = tcase_create("bench_cloud");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, voxels_of_a_file);
    tcase_add_test(all, points_of_a_file);
    tcase_add_test(all, names_levels_and_copies);
    tcase_add_test(all, all_of_them);
    tcase_add_test(all, what_is_refused);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
