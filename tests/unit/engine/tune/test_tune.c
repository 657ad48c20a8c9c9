/* Shapes, and tuning tables in memory and as files.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/shapes.h"
#include "engine/tune/table.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH     "0123456789ab"
#define HEADER   "voxeld-tune 2 fake\n"
#define HEADER_1 "voxeld-tune 1 fake\n"

/* --- shapes --- */

START_TEST(test_shell_counts)
{
    static const struct {
        i32 res;
        i64 n;
    } cases[] = {{8, 192},     {16, 848},     {32, 3840},     {64, 15192},
                 {128, 64160}, {256, 252392}, {512, 1026536}, {1024, 4113056}};
    ck_assert_int_eq(vx_shape_shell_count(cases[_i].res), cases[_i].n);
    ck_assert_int_eq(vx_shape_res_of(cases[_i].n), cases[_i].res);
}
END_TEST

/* Against the definition, voxel by voxel, in the order of chunks. */
START_TEST(test_shell_points)
{
    static const i32 sizes[] = {1, 2, 3, 5, 8, 16, 33, 258};
    const i32 res = sizes[_i];
    const i64 n = vx_shape_shell_count(res);
    i32 *coords = malloc((size_t)n * 16);
    i64 at = 0;
    vx_shape_shell(res, n, coords);
    for (i32 chunk = 0; chunk < 8; chunk++) {
        const i32 first[3] = {chunk / 4 * 256, chunk / 2 % 2 * 256, chunk % 2 * 256};
        for (i32 x = first[0]; x < res && x < first[0] + 256; x++)
            for (i32 y = first[1]; y < res && y < first[1] + 256; y++)
                for (i32 z = first[2]; z < res && z < first[2] + 256; z++) {
                    const f64 r = res / 2.0;
                    const f64 d = sqrt((x + 0.5 - r) * (x + 0.5 - r) +
                                       (y + 0.5 - r) * (y + 0.5 - r) +
                                       (z + 0.5 - r) * (z + 0.5 - r));
                    if (!(d <= r && d >= r - 1.25)) continue;
                    ck_assert_int_lt(at, n);
                    const i32 *row = coords + 4 * at++;
                    ck_assert(row[0] == 0 && row[1] == x && row[2] == y && row[3] == z);
                }
    }
    ck_assert_int_eq(at, n);
    free(coords);
}
END_TEST

START_TEST(test_shape_parse)
{
    struct vx_shape shape;
    static const char *const bad[] = {
        "",      "8",     "8:",      ":8",      "8:16:",  "0:16",     "8:0",
        "-8:16", "8:16x", "16385:1", "8:16385", "8:16:0", "8:16:1:1", " 8:16"};
    for (size_t i = 0; i < VX_COUNT(bad); i++)
        ck_assert_msg(!vx_shape_parse(bad[i], &shape), "%s", bad[i]);
    ck_assert(vx_shape_parse("256:64", &shape));
    ck_assert(shape.res == 256 && shape.channels == 64 && shape.layers == 1);
    ck_assert(vx_shape_parse("8:1024:16", &shape));
    ck_assert(shape.res == 8 && shape.channels == 1024 && shape.layers == 16);
}
END_TEST

/* --- tables --- */

static struct vx_tune_table *table_of(const char *rows)
{
    struct vx_tune_table *table;
    struct vx_why why = {""};
    char text[4096];
    ck_assert_ptr_null(vx_tune_table_open("fake", &why, &table).fault);
    int used = snprintf(text, sizeof text, HEADER "%s", rows);
    vx_status status = vx_tune_table_parse(table, "t", text, (size_t)used, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    return table;
}

START_TEST(test_table_refuses)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1"},
        {"voxeld-tune 3 fake\n", "line 1"},
        {"voxeld-tune 2 fake", "line 1"},
        {"voxeld-tune 2 \n", "line 1"},
        {"voxeld-tune 2 NVIDIA H200\n", "NVIDIA H200"},
        {HEADER "\n", "line 2"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1 5", "line 2"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1 5\n" HASH "\n", "line 3"},
        {HEADER "0123456789aB 16 16 27 FP16 8 3 masked 1 5\n", "hash"},
        {HEADER "0123456789a 16 16 27 FP16 8 3 masked 1 5\n", "hash"},
        {HEADER HASH " 0 16 27 FP16 8 3 masked 1 5\n", "Ci"},
        {HEADER HASH " 16 16385 27 FP16 8 3 masked 1 5\n", "Co"},
        {HEADER HASH " 16 16 344 FP16 8 3 masked 1 5\n", "V"},
        {HEADER HASH " 16 16 +27 FP16 8 3 masked 1 5\n", "V"},
        {HEADER HASH " 16 16 027 FP16 8 3 masked 1 5\n", "V"},
        {HEADER HASH " 16 16 27 FP64 8 3 masked 1 5\n", "type"},
        {HEADER HASH " 16 16 27 FP16 0 3 masked 1 5\n", "N as"},
        {HEADER HASH " 16 16 27 FP16 2147483648 3 masked 1 5\n", "N as"},
        {HEADER_1 HASH " 16 16 27 FP16 0 3 masked 1 5\n", "bit length"},
        {HEADER_1 HASH " 16 16 27 FP16 32 3 masked 1 5\n", "bit length"},
        {HEADER HASH " 16 16 27 FP16 8 8 masked 1 5\n", "eighth"},
        {HEADER HASH " 16 16 27 FP16 8 3 auto 1 5\n", "algorithm"},
        {HEADER HASH " 16 16 27 FP16 8 3 best 1 5\n", "algorithm"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1,,2 5\n", "tile"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1,2, 5\n", "tile"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1,2,3,4,5,6,7,8,9 5\n", "tile"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 2147483648 5\n", "tile"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1 0\n", "nanoseconds"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1 5 \n", "nanoseconds"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1 5 6\n", "nothing after"},
        {HEADER HASH "  16 16 27 FP16 8 3 masked 1 5\n", "Ci"},
        {HEADER HASH " 16 16 27 FP16 8 3 masked 1 5\r\n", "nanoseconds"},
    };
    struct vx_tune_table *table = table_of(HASH " 16 16 27 FP16 8 3 masked 1 5\n");
    struct vx_why why = {""};
    vx_status status =
        vx_tune_table_parse(table, "t", cases[_i].text, strlen(cases[_i].text), &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, cases[_i].says), "%s: %s", cases[_i].says, why.text);
    ck_assert_int_eq(vx_tune_table_count(table), 1); /* the table keeps its rows */
    vx_tune_table_close(&table);
}
END_TEST

START_TEST(test_table_sorts_and_replaces)
{
    struct vx_tune_table *table = table_of(
        "ffffffffffff 16 16 27 FP16 8 3 masked 1,2 5\n" HASH
        " 32 16 27 BF16 8 3 masked 1,0,2 6\n" HASH
        " 16 16 27 TF32 16 3 explicit 0 7\n" HASH " 32 16 27 BF16 8 3 masked 4 8\n");
    char line[VX_TUNE_LINE_BYTES];
    static const char *const rows[] = {HASH " 16 16 27 TF32 16 3 explicit 0 7\n",
                                       HASH " 32 16 27 BF16 8 3 masked 4 8\n",
                                       "ffffffffffff 16 16 27 FP16 8 3 masked 1,2 5\n"};
    ck_assert_int_eq(vx_tune_table_count(table), 3);
    for (i32 i = 0; i < 3; i++) {
        size_t length = vx_tune_row_print(vx_tune_table_row(table, i), line);
        ck_assert_str_eq(line, rows[i]);
        ck_assert_uint_eq(length, strlen(rows[i]));
    }
    vx_tune_table_close(&table);
}
END_TEST

/* Each N has one class, whose N follow each other; four divide each power of two from 2^10 to 2^18,
 * and a row of version 1 stands in the middle of its bit length. */
START_TEST(test_sizes)
{
    for (i32 size = 1; size <= VX_SIZES_MAX; size++) {
        const i64 first = vx_size_first(size), last = vx_size_last(size);
        ck_assert_int_eq(vx_size_class(first), size);
        ck_assert_int_eq(vx_size_class(last), size);
        ck_assert_int_ge(vx_size_middle(size), first);
        ck_assert_int_le(vx_size_middle(size), last);
        const bool part = first >= 1 << 10 && last < 1 << 18;
        ck_assert_int_eq(last - first + 1,
                         part ? (i64)1 << (vx_bit_length((u64)first) - 3) : first);
    }
    ck_assert_int_eq(vx_size_first(VX_SIZES_MAX + 1), (i64)1 << 31);
    struct vx_tune_table *table;
    struct vx_why why = {""};
    static const char old[] = HEADER_1 HASH " 16 16 27 FP16 1 3 masked 1 5\n" HASH
                                            " 16 16 27 FP16 14 3 masked 1 5\n" HASH
                                            " 16 16 27 FP16 31 3 masked 1 5\n";
    static const i64 firsts[] = {1, 12288, (i64)1 << 30};
    ck_assert_ptr_null(vx_tune_table_open("fake", &why, &table).fault);
    ck_assert(!vx_tune_table_parse(table, "t", old, sizeof old - 1, &why).fault);
    for (i32 i = 0; i < 3; i++)
        ck_assert_int_eq(vx_size_first(vx_tune_table_row(table, i)->size), firsts[i]);
    vx_tune_table_close(&table);
}
END_TEST

/* Eighths are kept as densities: 0 is sparse, all others are of surfaces. */
START_TEST(test_table_densities)
{
    static const struct {
        const char *row, *kept;
        enum vx_density density;
    } cases[] = {{HASH " 16 16 27 FP16 16 0 masked 1 7\n", NULL, VX_DENSITY_SPARSE},
                 {HASH " 16 16 27 FP16 16 3 masked 1 7\n", NULL, VX_DENSITY_SURFACE},
                 {HASH " 16 16 27 FP16 16 1 masked 1 7\n",
                  HASH " 16 16 27 FP16 16 3 masked 1 7\n", VX_DENSITY_SURFACE},
                 {HASH " 16 16 27 FP16 16 7 masked 1 7\n",
                  HASH " 16 16 27 FP16 16 3 masked 1 7\n", VX_DENSITY_SURFACE}};
    char line[VX_TUNE_LINE_BYTES];
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        struct vx_tune_table *table = table_of(cases[i].row);
        const struct vx_tune_row *row = vx_tune_table_row(table, 0);
        ck_assert_int_eq(row->density, cases[i].density);
        vx_tune_row_print(row, line);
        ck_assert_str_eq(line, cases[i].kept ? cases[i].kept : cases[i].row);
        vx_tune_table_close(&table);
    }
    /* Two densities of one problem are two rows, the sparse one first. */
    struct vx_tune_table *both = table_of(HASH " 16 16 27 FP16 16 3 masked 1 7\n" HASH
                                               " 16 16 27 FP16 16 0 masked 1 7\n");
    ck_assert_int_eq(vx_tune_table_count(both), 2);
    ck_assert_int_eq(vx_tune_table_row(both, 0)->density, VX_DENSITY_SPARSE);
    vx_tune_table_close(&both);
}
END_TEST

START_TEST(test_table_file)
{
    char path[] = "/tmp/vx_tune_XXXXXX";
    struct vx_why why = {""};
    struct vx_tune_table *table = table_of(HASH " 16 16 27 FP16 8 3 masked 1 5\n"),
                         *again;
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    ck_assert_ptr_null(vx_tune_table_write(table, path, &why).fault);
    ck_assert_ptr_null(vx_tune_table_open("fake", &why, &again).fault);
    ck_assert_ptr_null(vx_tune_table_read(again, path, &why).fault);
    ck_assert_int_eq(vx_tune_table_count(again), 1);
    ck_assert_int_eq(vx_tune_table_row(again, 0)->ns, 5);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_ptr_null(
        vx_tune_table_read(again, path, &why).fault); /* missing: no rows */
    ck_assert_int_eq(vx_tune_table_count(again), 1);
    vx_status status = vx_tune_table_write(table, "/nowhere/at/all.tune", &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_UNAVAILABLE);
    status = vx_tune_table_read(again, "/tmp", &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    vx_tune_table_close(&again);
    vx_tune_table_close(&table);
    ck_assert_ptr_null(table);
}
END_TEST

START_TEST(test_table_full)
{
    const i32 rows = VX_TUNE_ROWS_MAX + 1;
    char *text = malloc(sizeof HEADER + (size_t)rows * 64);
    size_t used = (size_t)sprintf(text, HEADER);
    struct vx_tune_table *table = table_of("");
    struct vx_why why = {""};
    for (i32 i = 0; i < rows; i++)
        used += (size_t)sprintf(text + used, "%012x 16 16 27 FP16 8 3 masked 1 5\n", i);
    vx_status status = vx_tune_table_parse(table, "t", text, used, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(vx_tune_table_count(table), 0);
    used -= strlen("000000000000 16 16 27 FP16 8 3 masked 1 5\n");
    ck_assert_ptr_null(vx_tune_table_parse(table, "t", text, used, &why).fault);
    ck_assert_int_eq(vx_tune_table_count(table), VX_TUNE_ROWS_MAX);
    vx_tune_table_close(&table);
    free(text);
}
END_TEST

/* A file with more rows than the table has room for changes nothing. */
START_TEST(test_table_nearly_full)
{
    struct vx_tune_table *table = table_of("");
    struct vx_why why = {""};
    struct vx_tune_table *one = table_of(HASH " 16 16 27 FP16 8 3 masked 1 5\n");
    struct vx_tune_row row = *vx_tune_table_row(one, 0);
    vx_tune_table_close(&one);
    for (i32 i = 0; i < VX_TUNE_ROWS_MAX - 1; i++) {
        (void)snprintf(row.hash, sizeof row.hash, "%012x", i);
        ck_assert_ptr_null(vx_tune_table_put(table, &row, &why).fault);
    }
    static const char two[] = HEADER "fffffffffff0 16 16 27 FP16 8 3 masked 1 5\n"
                                     "fffffffffff1 16 16 27 FP16 8 3 masked 1 5\n";
    vx_status status = vx_tune_table_parse(table, "t", two, sizeof two - 1, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(vx_tune_table_count(table), VX_TUNE_ROWS_MAX - 1);
    vx_tune_table_close(&table);
}
END_TEST

/* A line, with its newline, may be one byte shorter than the buffer for it. */
START_TEST(test_longest_line)
{
    char text[2 * VX_TUNE_LINE_BYTES];
    struct vx_why why = {""};
    for (int extra = 0; extra < 2; extra++) {
        struct vx_tune_table *table;
        char device[VX_TUNE_LINE_BYTES];
        const int length = VX_TUNE_LINE_BYTES - 1 - (int)strlen("voxeld-tune 2 ") + extra;
        memset(device, 'd', (size_t)length);
        device[length] = '\0';
        (void)snprintf(text, sizeof text, "voxeld-tune 2 %s\n", device);
        ck_assert_ptr_null(vx_tune_table_open("fake", &why, &table).fault);
        vx_status status = vx_tune_table_parse(table, "t", text, strlen(text), &why);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
        const char *says = extra ? "a line of at most 255 bytes" : "the device \"fake\"";
        ck_assert_msg(strstr(why.text, says) != NULL, "%s", why.text);
        vx_tune_table_close(&table);
    }
}
END_TEST

/* Several hosts may share one table by links. */
START_TEST(test_table_behind_a_link)
{
    char folder[] = "/tmp/vx_tune_XXXXXX", path[64], link[64];
    struct vx_why why = {""};
    struct stat about;
    struct vx_tune_table *table = table_of(HASH " 16 16 27 FP16 8 3 masked 1 5\n");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/a.tune", folder);
    (void)snprintf(link, sizeof link, "%s/link.tune", folder);
    ck_assert_ptr_null(vx_tune_table_write(table, path, &why).fault);
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(symlink(path, link), 0);
    ck_assert_ptr_null(vx_tune_table_write(table, link, &why).fault);
    ck_assert(!lstat(link, &about) && S_ISLNK(about.st_mode));
    ck_assert(!stat(path, &about) && about.st_size > 0);
    ck_assert_int_eq(unlink(link) | unlink(path), 0);
    ck_assert_msg(!rmdir(folder), "something is left in %s", folder);
    vx_tune_table_close(&table);
}
END_TEST

/* A temporary file that cannot be renamed is removed. */
START_TEST(test_table_not_renamed)
{
    char folder[] = "/tmp/vx_tune_XXXXXX", path[64];
    struct vx_why why = {""};
    struct vx_tune_table *table = table_of(HASH " 16 16 27 FP16 8 3 masked 1 5\n");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/a.tune", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    vx_status status = vx_tune_table_write(table, path, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_msg(!rmdir(folder), "something is left in %s", folder);
    vx_tune_table_close(&table);
}
END_TEST

START_TEST(test_density)
{
    static const struct {
        f64 fill;
        enum vx_density density;
    } cases[] = {{0, VX_DENSITY_SURFACE}, /* not known */
                 {13.25 / 27, VX_DENSITY_SURFACE}, {1, VX_DENSITY_SURFACE},
                 {6.3 / 27, VX_DENSITY_SURFACE},   {0.125, VX_DENSITY_SURFACE},
                 {0.1249, VX_DENSITY_SPARSE},      {2.3 / 27, VX_DENSITY_SPARSE},
                 {1.0 / 27, VX_DENSITY_SPARSE}};
    for (size_t i = 0; i < VX_COUNT(cases); i++)
        ck_assert_int_eq(vx_density_of(cases[i].fill), cases[i].density);
    for (int i = 0; i < VX_DENSITIES_COUNT; i++) {
        const enum vx_density density = (enum vx_density)i;
        ck_assert_int_eq(vx_density_of(vx_density_fill(density)), density);
        ck_assert_int_eq(vx_density_of_name(vx_density_name(density)), density);
    }
    ck_assert_int_eq(vx_density_of_name("dense"), VX_DENSITIES_COUNT);
    /* The file's numbers stay: files that are there have 3. */
    ck_assert_int_eq(vx_density_eighth(VX_DENSITY_SURFACE), 3);
    ck_assert_int_eq(vx_density_eighth(VX_DENSITY_SPARSE), 0);
}
END_TEST

/* Rows without neighbours, as many as were asked for, each once, of the density sparse. */
START_TEST(test_noise)
{
    static const i64 counts[] = {0, 1, 2, 1000, 30000};
    const i64 n = counts[_i];
    i32 *rows = malloc((size_t)n * 16 + 1);
    vx_shape_noise(n, rows);
    i32 edge = 1;
    while ((i64)edge * edge * edge < VX_SHAPE_NOISE_OF * n) edge++;
    const size_t cells = (size_t)(edge + 2) * (size_t)(edge + 2) * (size_t)(edge + 2);
    bool *there = calloc(cells, 1);
    const i64 side = edge + 2;
    i64 before = -1, pairs = 0;
    for (i64 i = 0; i < n; i++) {
        const i32 *row = rows + 4 * i;
        const i64 at = ((row[1] + 1) * side + row[2] + 1) * side + row[3] + 1;
        for (int axis = 1; axis < 4; axis++)
            ck_assert(row[axis] >= 0 && row[axis] < edge);
        ck_assert_int_eq(row[0], 0);
        ck_assert_int_gt(at, before); /* by raster: so each once */
        there[before = at] = true;
    }
    for (i64 i = 0; i < n; i++)
        for (i64 k = 0; k < 27; k++) {
            const i32 *row = rows + 4 * i;
            pairs += there[((row[1] + k / 9) * side + row[2] + k / 3 % 3) * side +
                           row[3] + k % 3];
        }
    if (n >= 1000) {
        const f64 fill = (f64)pairs / (27.0 * (f64)n);
        ck_assert_int_eq(vx_density_of(fill), VX_DENSITY_SPARSE);
        ck_assert(fill > 0.05 && fill < 0.06);             /* 1 + 26 / 50 of 27 */
        ck_assert_int_ge(rows[4 * (n - 1) + 1], edge - 2); /* to the end of the cube */
    }
    free(there);
    free(rows);
}
END_TEST

static Suite *tune_suite(void)
{
    Suite *suite = suite_create("tune");
    TCase *shapes = tcase_create("shapes");
    tcase_add_loop_test(shapes, test_shell_counts, 0, 8);
    tcase_add_loop_test(shapes, test_shell_points, 0, 8);
    tcase_add_test(shapes, test_shape_parse);
    tcase_add_test(shapes, test_density);
    tcase_add_loop_test(shapes, test_noise, 0, 5);
    suite_add_tcase(suite, shapes);
    TCase *table = tcase_create("table");
    tcase_add_loop_test(table, test_table_refuses, 0, 30);
    tcase_add_test(table, test_table_sorts_and_replaces);
    tcase_add_test(table, test_sizes);
    tcase_add_test(table, test_table_densities);
    tcase_add_test(table, test_table_file);
    tcase_add_test(table, test_table_full);
    tcase_add_test(table, test_table_nearly_full);
    tcase_add_test(table, test_longest_line);
    tcase_add_test(table, test_table_behind_a_link);
    tcase_add_test(table, test_table_not_renamed);
    suite_add_tcase(suite, table);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(tune_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
