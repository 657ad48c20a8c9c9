/* The word that a person probably meant.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/text/typed.h"

#include <check.h>
#include <stdlib.h>

static const struct {
    const char *name, *nearest; /* NULL: none */
} cases[] = {
    {"chanels", "channels"},
    {"kernl", "kernel"},
    {"voxels", NULL},
    {"b1.weight", "module.b1.weight"}, /* and not the one with a digit less wrong */
    {"model.b2.weight", "b2.weight"},
    {"odule.b1.weight", "module.b1.weight"},
    {"", NULL},
};

START_TEST(mistakes_of_typing_and_prefixes)
{
    static const char *const known[] = {"channels", NULL, "kernel", "b2.weight",
                                        "module.b1.weight"};
    const char *nearest = vx_nearest_word(cases[_i].name, known, VX_COUNT(known));
    ck_assert_pstr_eq(nearest, cases[_i].nearest);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("typed");
    TCase *tests = tcase_create("typed");
    tcase_add_loop_test(tests, mistakes_of_typing_and_prefixes, 0, VX_COUNT(cases));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
