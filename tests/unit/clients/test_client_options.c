/* Which numbers options take: decimal ones, and nothing else that strtod takes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/number.h"
#include "clients/cli/view.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    bool real, whole; /* whether an option of that kind takes it */
    double number;
} numbers[] = {
    {"1", true, true, 1},          {"-3", true, true, -3},
    {"+2", true, true, 2},         {"0", true, true, 0},
    {"0.25", true, false, 0.25},   {".5", true, false, 0.5},
    {"5.", true, false, 5},        {"1e2", true, false, 100},
    {"1E-12", true, false, 1e-12}, {"2.3e-308", true, false, 2.3e-308},
    {"0x1", false, false, 0},      {"-0X1p3", false, false, 0},
    {"nan", false, false, 0},      {"inf", false, false, 0},
    {"1e-320", false, false, 0}, /* below the normal numbers */
    {"1e-400", false, false, 0},   {"1e400", false, false, 0},
    {"1e9", false, false, 0}, /* beyond the range */
    {" 1", false, false, 0},       {"1 ", false, false, 0},
    {"1e", false, false, 0},       {"1,5", false, false, 0},
    {".", false, false, 0},        {"-", false, false, 0},
    {"", false, false, 0},
};

START_TEST(options_take_decimal_numbers)
{
    double real = -7;
    int64_t whole = -7;
    const struct option options[] = {
        {"real", 'r', "R", OPTION_REAL, &real, {-1000, 1000}, "a number"},
        {"whole", 'w', "W", OPTION_INT, &whole, {-1000, 1000}, "a whole number"}};
    const struct command command = {
        .name = "test", .options = options, .options_count = 2};
    for (int kind = 0; kind < 2; kind++) {
        char name[] = "test", flag[] = "-r", text[16];
        char *words[] = {name, flag, text};
        const bool good = kind ? numbers[_i].whole : numbers[_i].real;
        int code = CLI_DONE;
        if (kind) flag[1] = 'w';
        strcpy(text, numbers[_i].text);
        ck_assert_msg(options_parse(&command, 3, words, &code) == good, "%s %s", flag,
                      text);
        ck_assert_int_eq(code, good ? CLI_DONE : CLI_USAGE);
        ck_assert((kind ? (double)whole : real) == (good ? numbers[_i].number : -7));
    }
}
END_TEST

START_TEST(a_number_ends_where_it_does)
{
    double number;
    ck_assert_str_eq(number_read("40,25", &number), ",25");
    ck_assert(number == 40);
    ck_assert_ptr_null(number_read(",25", &number));
}
END_TEST

/* Subnormal sizes would make infinite coordinates. */
START_TEST(a_size_is_positive_and_normal)
{
    const double good[] = {1, 0.05, 2.3e-308, 1e299};
    const double bad[] = {0, -1, 1e-320, 1e300, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert(number_is_size(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert(!number_is_size(bad[i]));
}
END_TEST

static const struct {
    const char *view, *size;
    bool taken;
} views[] = {
    {"40,25", "1600x1000", true}, {"-55.5,-89", "16x4096", true},
    {"40, 25", NULL, false},      {"0x10,25", NULL, false},
    {"nan,25", NULL, false},      {"40,90", NULL, false},
    {NULL, "1600x1000.5", false}, {NULL, "15x100", false},
    {NULL, "100x0x20", false},    {NULL, "0x100x100", false},
    {NULL, "100x 100", false},
};

START_TEST(views_take_decimal_numbers)
{
    const struct command command = {.name = "test"};
    struct view_options options = VIEW_OPTIONS;
    struct render_view view;
    options.view = views[_i].view;
    options.size = views[_i].size;
    ck_assert_int_eq(view_read(&command, &options, &view),
                     views[_i].taken ? CLI_DONE : CLI_USAGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_options");
    TCase *tcase = tcase_create("options");
    tcase_add_loop_test(tcase, options_take_decimal_numbers, 0,
                        sizeof numbers / sizeof *numbers);
    tcase_add_test(tcase, a_number_ends_where_it_does);
    tcase_add_test(tcase, a_size_is_positive_and_normal);
    tcase_add_loop_test(tcase, views_take_decimal_numbers, 0,
                        sizeof views / sizeof *views);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
