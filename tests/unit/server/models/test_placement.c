/* Placement rules, and which workers they choose.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/models/placement.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct vx_placement_devices devices = {
    .count = 4, .names = {"cpu", "cuda:0", "cuda:1", "cpu"}};

static struct vx_placement placement;

/* Workers as bits, by their devices above. */
static const struct {
    const char *text, *model;
    u32 workers;
} picks[] = {
    {"", "m", 15},
    {" ; ", "m", 15},
    {"m=cuda:0", "m", 2},
    {"m=cuda:0", "other", 15},
    {"m = cuda:1 , cuda:0 ", "m", 6},
    {"m=cpu", "m", 9}, /* both that have this device */
    {"m=all", "m", 15},
    {"m=1", "m", 4}, /* the least filled */
    {"m=2", "m", 6},
    {"m=3", "m", 7}, /* of equal ones the first */
    {"m=16", "m", 15},
    {"*=1", "m", 4},
    {"m=cuda:0;*=1", "m", 2},
    {"*=1;m=cuda:0", "m", 2},
    {"normals=cuda:0,cuda:1; big=2; *=all", "big", 6},
    {"normals=cuda:0,cuda:1; big=2; *=all", "normals", 6},
    {"normals=cuda:0,cuda:1; big=2; *=all", "x", 15},
};

START_TEST(a_rule_picks_its_workers)
{
    static const struct vx_placement_load load = {4, {500, 300, 100, 500}};
    struct vx_why why = {""};
    vx_status status = vx_placement_parse(picks[_i].text, &devices, &why, &placement);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_uint_eq(vx_placement_pick(&placement, picks[_i].model, &load),
                      picks[_i].workers);
}
END_TEST

static const struct {
    const char *text, *why;
} bad[] = {
    {"m", "placement: expected NAME=DEVICES or NAME=COUNT, got 'm'"},
    {"=1",
     "placement: expected NAME=DEVICES or NAME=COUNT with a name of 1 to 127 bytes, "
     "got ''"},
    {"m=", "placement: expected devices from --device, a number of devices from 1 to 16, "
           "or all, got ''"},
    {"m=0", "placement: expected devices from --device, a number of devices from 1 to "
            "16, or all, got '0'"},
    {"m=17", "placement: expected devices from --device, a number of devices from 1 to "
             "16, or all, got '17'"},
    {"m=-1", "placement: expected devices from --device, a number of devices from 1 to "
             "16, or all, got '-1'"},
    {"m=99999999999999999999",
     "placement: expected devices from --device, a number of devices from 1 to 16, or "
     "all, got '99999999999999999999'"},
    {"m=cuda:0,cuda:7", "placement: expected devices from --device, a number of devices "
                        "from 1 to 16, or all, got 'cuda:7'"},
    {"m=cuda:0,", "placement: expected devices from --device, a number of devices from 1 "
                  "to 16, or all, got ''"},
    {"m=cuda:0,2", "placement: expected devices from --device, a number of devices from "
                   "1 to 16, or all, got '2'"},
    {"m=1; m=2", "placement: expected one rule for each model, got two for 'm'"},
    {"*=1; *=2", "placement: expected one rule for each model, got two for '*'"},
};

START_TEST(a_bad_rule_is_refused_with_a_sentence)
{
    struct vx_why why = {""};
    vx_status status = vx_placement_parse(bad[_i].text, &devices, &why, &placement);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, bad[_i].why);
}
END_TEST

/* Of `auto` each machine has its own number of devices. */
START_TEST(a_rule_wants_no_more_devices_than_there_are)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"m=4", ""},
        {"m=all; n=cuda:0", ""},
        {"a=1; m=5",
         "placement: expected for 'm' at most the 4 of --device, or all, got 5"},
    };
    struct vx_placement_devices open = devices;
    open.open = true;
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct vx_why why = {""};
        ck_assert(!vx_placement_parse(rows[i].text, &devices, NULL, &placement).fault);
        ck_assert(!vx_placement_check(&placement, &open, NULL).fault);
        ck_assert(vx_placement_check(&placement, &devices, &why).fault ? *rows[i].why
                                                                       : !*rows[i].why);
        ck_assert_str_eq(why.text, rows[i].why);
    }
}
END_TEST

START_TEST(as_many_rules_as_the_limit)
{
    char text[8 * VX_PLACEMENT_RULES_MAX + 16] = "";
    for (int i = 0; i < VX_PLACEMENT_RULES_MAX; i++) {
        char rule[] = "aa=1;";
        rule[0] = (char)('a' + i / 26);
        rule[1] = (char)('a' + i % 26);
        strcat(text, rule);
    }
    ck_assert(!vx_placement_parse(text, &devices, NULL, &placement).fault);
    ck_assert_int_eq(placement.rules_count, VX_PLACEMENT_RULES_MAX);
    strcat(text, "zz=1");
    ck_assert_int_eq(vx_status_code(vx_placement_parse(text, &devices, NULL, &placement)),
                     VX_CODE_INVALID_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement");
    TCase *tcase = tcase_create("rules");
    tcase_add_loop_test(tcase, a_rule_picks_its_workers, 0, VX_COUNT(picks));
    tcase_add_loop_test(tcase, a_bad_rule_is_refused_with_a_sentence, 0, VX_COUNT(bad));
    tcase_add_test(tcase, a_rule_wants_no_more_devices_than_there_are);
    tcase_add_test(tcase, as_many_rules_as_the_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
