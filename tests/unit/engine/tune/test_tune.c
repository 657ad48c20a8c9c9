/* Shapes, tuning tables and picks, in memory and as files.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/pick.h"
#include "engine/tune/shapes.h"
#include "engine/tune/table.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH   "0123456789ab"
#define HEADER "voxeld-tune 1 fake\n"

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
        {"voxeld-tune 2 fake\n", "line 1"},
        {"voxeld-tune 1 fake", "line 1"},
        {"voxeld-tune 1 \n", "line 1"},
        {"voxeld-tune 1 NVIDIA H200\n", "NVIDIA H200"},
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
        {HEADER HASH " 16 16 27 FP16 0 3 masked 1 5\n", "bit length"},
        {HEADER HASH " 16 16 27 FP16 32 3 masked 1 5\n", "bit length"},
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
        " 16 16 27 TF32 9 3 explicit 0 7\n" HASH " 32 16 27 BF16 8 3 masked 4 8\n");
    char line[VX_TUNE_LINE_BYTES];
    static const char *const rows[] = {HASH " 16 16 27 TF32 9 3 explicit 0 7\n",
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
        const int length = VX_TUNE_LINE_BYTES - 1 - (int)strlen("voxeld-tune 1 ") + extra;
        memset(device, 'd', (size_t)length);
        device[length] = '\0';
        (void)snprintf(text, sizeof text, "voxeld-tune 1 %s\n", device);
        ck_assert_ptr_null(vx_tune_table_open("fake", &why, &table).fault);
        vx_status status = vx_tune_table_parse(table, "t", text, strlen(text), &why);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
        const char *says = extra ? "a line of at most 255 bytes" : "the device \"fake\"";
        ck_assert_msg(strstr(why.text, says) != NULL, "%s", why.text);
        vx_tune_table_close(&table);
    }
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

START_TEST(test_fill)
{
    ck_assert_int_eq(vx_tune_fill(0), 3); /* not known: as for a surface */
    ck_assert_int_eq(vx_tune_fill(0.47), 3);
    ck_assert_int_eq(vx_tune_fill(13.25 / 27), 3);
    ck_assert_int_eq(vx_tune_fill(1.0 / 27), 0);
    ck_assert_int_eq(vx_tune_fill(1), VX_TUNE_FILLS - 1);
}
END_TEST

/* --- picks --- */

static const struct vx_caps *caps_of(const char *arch)
{
    const struct vx_caps *caps = vx_arch_caps(arch);
    ck_assert_ptr_nonnull(caps);
    return caps;
}

static struct vx_conv_problem problem_of(i64 n, i32 edge, i32 ci, i32 co)
{
    return (struct vx_conv_problem){.n = n,
                                    .kernel = {edge, edge, edge},
                                    .v = edge * edge * edge,
                                    .ci = ci,
                                    .co = co,
                                    .type = VX_NUMBER_F16};
}

static struct vx_pick pick_of(const struct vx_tune_table *table)
{
    struct vx_pick pick = {.caps = caps_of("sm_90a"), .table = table, .device = "fake"};
    for (int i = 1; i < VX_CONV_ALGORITHMS_COUNT; i++)
        memcpy(pick.hashes[i], HASH, sizeof HASH);
    return pick;
}

/* A row for an algorithm and tile, as text. */
static void row_text(const struct vx_conv_problem *problem,
                     const struct vx_conv_choice *choice, i64 ns, char *text)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    struct vx_tune_row row;
    vx_tune_row_make(problem, &row);
    memcpy(row.hash, HASH, sizeof HASH);
    row.algorithm = choice->algorithm;
    if (spec->tiles) row.tile = spec->tiles[choice->tile];
    row.ns = ns;
    vx_tune_row_print(&row, text);
}

/* A tile that fits but is not the cheapest: only a table can have chosen it. */
static struct vx_conv_choice dear_choice(const struct vx_conv_problem *problem)
{
    const struct vx_caps *caps = caps_of("sm_90a");
    struct vx_conv_choice cheap, dear = {VX_CONV_AUTO, -1};
    struct vx_pick pick = pick_of(NULL);
    ck_assert(!vx_pick_conv(&pick, problem, &cheap));
    const struct vx_kernel_spec *spec = vx_conv_spec(cheap.algorithm);
    for (i32 tile = 0; tile < spec->tiles_count; tile++) {
        struct vx_conv_choice choice = {cheap.algorithm, tile};
        if (tile != cheap.tile && vx_conv_fits(problem, &choice, caps)) dear = choice;
    }
    ck_assert_int_ge(dear.tile, 0);
    return dear;
}

/* True when an algorithm with the layer's own order of sums can run the problem. */
static bool may_run(const struct vx_conv_problem *problem, const struct vx_caps *caps)
{
    struct vx_conv_choice choice;
    for (int i = 1; i < VX_CONV_ALGORITHMS_COUNT; i++)
        if (vx_conv_exact(problem, (enum vx_conv_algorithm)i) &&
            vx_pick_cheapest(problem, (enum vx_conv_algorithm)i, caps, &choice))
            return true;
    return false;
}

static void check_pick(const struct vx_pick *pick, const struct vx_conv_problem *problem)
{
    struct vx_conv_choice choice, cheap;
    ck_assert(!vx_pick_conv(pick, problem, &choice));
    bool pinned = pick->algorithm != VX_CONV_AUTO &&
                  vx_pick_cheapest(problem, pick->algorithm, pick->caps, &cheap);
    ck_assert(choice.algorithm != VX_CONV_AUTO);
    if (pinned) ck_assert_int_eq(choice.algorithm, pick->algorithm);
    if (pinned) ck_assert_int_eq(choice.tile, cheap.tile);
    /* When no algorithm can run so many rows, the choice has the layer's order or is pinned. */
    if (!pinned && choice.algorithm != pick->algorithm)
        ck_assert(vx_conv_exact(problem, choice.algorithm));
    if (pinned || may_run(problem, pick->caps))
        ck_assert(vx_conv_fits(problem, &choice, pick->caps));
}

START_TEST(test_pick_always_answers)
{
    static const i64 sizes[] = {1, 2, 31, 192, 1000, 64160, 4113056, VX_VOXELS_MAX};
    static const i32 channels[] = {16, 48, 64, 256, 512, 1024, 2048};
    static const char *const archs[] = {"sm_75", "sm_80",  "sm_86",  "sm_87",
                                        "sm_89", "sm_90a", "sm_100", "sm_120"};
    static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                           VX_NUMBER_TF32};
    struct vx_pick pick = pick_of(NULL);
    pick.algorithm = (enum vx_conv_algorithm)_i;
    for (size_t i = 0; i < VX_COUNT(sizes) * VX_COUNT(channels); i++)
        for (size_t arch = 0; arch < VX_COUNT(archs); arch++)
            for (size_t k = 0; k < VX_COUNT(types) * 4; k++) {
                const i32 c = channels[i % VX_COUNT(channels)];
                struct vx_conv_problem problem =
                    problem_of(sizes[i / VX_COUNT(channels)], (i32)(k / 4) * 2 + 1, c, c);
                problem.type = types[k % 4];
                pick.caps = caps_of(archs[arch]);
                check_pick(&pick, &problem);
            }
}
END_TEST

START_TEST(test_pick_row)
{
    struct vx_conv_problem problem = problem_of(64160, 3, 128, 128);
    const struct vx_conv_choice dear = dear_choice(&problem);
    struct vx_conv_choice choice;
    char text[VX_TUNE_LINE_BYTES];
    row_text(&problem, &dear, 1000, text);
    struct vx_tune_table *table = table_of(text);
    struct vx_pick pick = pick_of(table);
    static const struct {
        i64 n;
        bool found;
    } cases[] = {{64160, true},   {1 << 15, true},        {(1 << 16) - 1, true},
                 {1 << 16, true}, {(1 << 18) - 1, true},  {1 << 18, false},
                 {1 << 13, true}, {(1 << 13) - 1, false}, {1, false}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        problem.n = cases[i].n;
        ck_assert_int_eq(vx_pick_conv(&pick, &problem, &choice), cases[i].found);
        if (!cases[i].found) continue;
        ck_assert_int_eq(choice.algorithm, dear.algorithm);
        ck_assert_int_eq(choice.tile, dear.tile);
    }
    problem.n = 64160;
    problem.fill = 0.2; /* another eighth */
    ck_assert(!vx_pick_conv(&pick, &problem, &choice));
    problem.fill = 0;
    problem.type = VX_NUMBER_BF16;
    ck_assert(!vx_pick_conv(&pick, &problem, &choice));
    problem.type = VX_NUMBER_F16;
    snprintf(pick.device, sizeof pick.device, "another");
    ck_assert(!vx_pick_conv(&pick, &problem, &choice));
    snprintf(pick.device, sizeof pick.device, "fake");
    memcpy(pick.hashes[dear.algorithm], "ffffffffffff", VX_TUNE_HASH_BYTES);
    ck_assert(!vx_pick_conv(&pick, &problem, &choice)); /* the kernel has changed */
    vx_tune_table_close(&table);
}
END_TEST

/* Of two sizes that are equally near, the larger one; of one size, the fastest row that
 * keeps the order of sums. */
START_TEST(test_pick_order)
{
    struct vx_conv_problem problem = problem_of(1 << 16, 3, 128, 128);
    struct vx_conv_problem above = problem, below = problem;
    const struct vx_conv_choice dear = dear_choice(&problem);
    struct vx_conv_choice cheap, choice, split = {VX_CONV_MASKED_SPLIT, 0};
    char text[3 * VX_TUNE_LINE_BYTES];
    struct vx_pick pick = pick_of(NULL);
    ck_assert(!vx_pick_conv(&pick, &problem, &cheap));
    above.n *= 2;
    below.n /= 2;
    row_text(&below, &cheap, 10, text);
    row_text(&above, &dear, 40, text + strlen(text));
    ck_assert(vx_pick_cheapest(&problem, VX_CONV_MASKED_SPLIT, pick.caps, &split));
    ck_assert(!vx_conv_exact(&problem, VX_CONV_MASKED_SPLIT));
    row_text(&above, &split, 1, text + strlen(text));
    struct vx_tune_table *table = table_of(text);
    pick.table = table;
    ck_assert(vx_pick_conv(&pick, &problem, &choice));
    ck_assert_int_eq(choice.algorithm, dear.algorithm);
    ck_assert_int_eq(choice.tile, dear.tile);
    pick.algorithm = VX_CONV_MASKED_SPLIT; /* pinned: its row counts */
    ck_assert(vx_pick_conv(&pick, &problem, &choice));
    ck_assert_int_eq(choice.algorithm, VX_CONV_MASKED_SPLIT);
    ck_assert_int_eq(choice.tile, split.tile);
    vx_tune_table_close(&table);
}
END_TEST

/* A row whose tile is no longer in the search space is ignored. */
START_TEST(test_pick_lost_tile)
{
    struct vx_conv_problem problem = problem_of(64160, 3, 128, 128);
    struct vx_tune_table *table =
        table_of(HASH " 128 128 27 FP16 16 3 masked 7777,1,1,1,1,1,1,1 5\n");
    struct vx_pick pick = pick_of(table);
    struct vx_conv_choice choice;
    ck_assert(!vx_pick_conv(&pick, &problem, &choice));
    vx_tune_table_close(&table);
}
END_TEST

static Suite *tune_suite(void)
{
    Suite *suite = suite_create("tune");
    TCase *shapes = tcase_create("shapes");
    tcase_add_loop_test(shapes, test_shell_counts, 0, 8);
    tcase_add_loop_test(shapes, test_shell_points, 0, 8);
    tcase_add_test(shapes, test_shape_parse);
    suite_add_tcase(suite, shapes);
    TCase *table = tcase_create("table");
    tcase_add_loop_test(table, test_table_refuses, 0, 30);
    tcase_add_test(table, test_table_sorts_and_replaces);
    tcase_add_test(table, test_table_file);
    tcase_add_test(table, test_table_full);
    tcase_add_test(table, test_table_nearly_full);
    tcase_add_test(table, test_longest_line);
    tcase_add_test(table, test_table_not_renamed);
    tcase_add_test(table, test_fill);
    suite_add_tcase(suite, table);
    TCase *pick = tcase_create("pick");
    tcase_add_loop_test(pick, test_pick_always_answers, 0, VX_CONV_ALGORITHMS_COUNT);
    tcase_add_test(pick, test_pick_row);
    tcase_add_test(pick, test_pick_order);
    tcase_add_test(pick, test_pick_lost_tile);
    suite_add_tcase(suite, pick);
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
