/* Picks: which row of a table, or which tile of the cost model, a convolution gets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/tune/pick.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define HASH   "0123456789ab"
#define HEADER "voxeld-tune 2 fake\n"

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
    } cases[] = {{64160, true},   {1 << 15, true},       {(1 << 16) - 1, true},
                 {1 << 16, true}, {(1 << 18) - 1, true}, {1 << 18, false},
                 {14336, true},   {14335, false},        {1, false}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        problem.n = cases[i].n;
        ck_assert_int_eq(vx_pick_conv(&pick, &problem, &choice), cases[i].found);
        if (!cases[i].found) continue;
        ck_assert_int_eq(choice.algorithm, dear.algorithm);
        ck_assert_int_eq(choice.tile, dear.tile);
    }
    problem.n = 64160;
    /* A density that was not measured has the choice of surfaces, or of none at all. */
    problem.fill = 1.0 / 27;
    ck_assert(vx_pick_conv(&pick, &problem, &choice));
    ck_assert_int_eq(choice.tile, dear.tile);
    problem.n = 1;
    struct vx_conv_choice plain;
    ck_assert(!vx_pick_conv(&pick, &problem, &choice));
    problem.fill = 0;
    ck_assert(!vx_pick_conv(&pick, &problem, &plain));
    ck_assert_mem_eq(&choice, &plain, sizeof plain);
    problem.n = 64160;
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

/* Rows of each density are found by the fill; those of a sparse cloud, even of a size two
 * powers of two away, before those of surfaces. */
START_TEST(test_pick_density)
{
    struct vx_conv_problem problem = problem_of(64160, 3, 128, 128);
    struct vx_conv_problem sparse = problem;
    const struct vx_conv_choice dear = dear_choice(&problem);
    struct vx_conv_choice cheap, choice;
    char text[2 * VX_TUNE_LINE_BYTES];
    struct vx_pick pick = pick_of(NULL);
    sparse.fill = vx_density_fill(VX_DENSITY_SPARSE);
    ck_assert(!vx_pick_conv(&pick, &problem, &cheap));
    row_text(&problem, &cheap, 10, text);
    sparse.n *= 4;
    row_text(&sparse, &dear, 40, text + strlen(text));
    struct vx_tune_table *table = table_of(text);
    pick.table = table;
    static const struct {
        i64 n;
        f64 fill;
        bool dear;
    } cases[] = {
        {64160, 0, false},       {64160, 0.47, false},         {64160, 1, false},
        {64160, 0.125, false},   {64160, 0.12, true},          {64160, 1.0 / 27, true},
        {64160 * 4, 0.05, true}, {(1 << 15) - 1, 0.05, false}, {64160 * 16, 0.05, true},
        {1 << 15, 0.05, false},  {57344, 0.05, true},          {57343, 0.05, false}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        problem.n = cases[i].n;
        problem.fill = cases[i].fill;
        ck_assert(vx_pick_conv(&pick, &problem, &choice));
        ck_assert_int_eq(choice.tile, cases[i].dear ? dear.tile : cheap.tile);
    }
    vx_tune_table_close(&table);
}
END_TEST

/* A layer without a row takes that of the square layer with its columns, which is no measurement of
 * it, unless it has many more or fewer channels in. */
START_TEST(test_pick_like)
{
    struct vx_conv_problem problem = problem_of(64160, 3, 128, 128);
    const struct vx_conv_choice dear = dear_choice(&problem);
    struct vx_conv_choice choice;
    char text[VX_TUNE_LINE_BYTES];
    row_text(&problem, &dear, 1000, text);
    struct vx_tune_table *table = table_of(text);
    struct vx_pick pick = pick_of(table);
    static const struct {
        i32 ci;
        bool like;
    } cases[] = {{16, false}, {32, true}, {256, true}, {512, true}, {528, false}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        problem.ci = cases[i].ci;
        ck_assert(!vx_pick_conv(&pick, &problem, &choice));
        ck_assert_int_eq(choice.tile == dear.tile, cases[i].like);
    }
    pick.device[0] = 0; /* another device's table */
    problem.ci = 256;
    ck_assert(!vx_pick_conv(&pick, &problem, &choice));
    ck_assert_int_ne(choice.tile, dear.tile);
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

int main(void)
{
    Suite *suite = suite_create("pick");
    TCase *pick = tcase_create("pick");
    tcase_add_loop_test(pick, test_pick_always_answers, 0, VX_CONV_ALGORITHMS_COUNT);
    tcase_add_test(pick, test_pick_row);
    tcase_add_test(pick, test_pick_order);
    tcase_add_test(pick, test_pick_density);
    tcase_add_test(pick, test_pick_like);
    tcase_add_test(pick, test_pick_lost_tile);
    suite_add_tcase(suite, pick);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
