/* The word that a person probably meant.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/text/typed.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

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
    {"ker", "kernel"},
    {"ke", NULL},
    {"repo", "repository"}, /* the others go on from it */
    {"toke", "token"},      /* a letter less; of token_admin, much is missing */
    {"tls", NULL},          /* any of the two */
    {"mod", "module.b1.weight"},
};

START_TEST(mistakes_of_typing_and_prefixes)
{
    static const char *const known[] = {"channels",
                                        NULL,
                                        "kernel",
                                        "b2.weight",
                                        "module.b1.weight",
                                        "repository_poll_ms",
                                        "repository",
                                        "repository_x",
                                        "token",
                                        "token_admin",
                                        "tls_cert",
                                        "tls_key"};
    const char *nearest = vx_nearest_word(cases[_i].name, known, VX_COUNT(known));
    ck_assert_pstr_eq(nearest, cases[_i].nearest);
}
END_TEST

/* A list that has no room ends behind a whole word and says how many are missing. */
START_TEST(a_list_says_what_it_leaves_out)
{
    static const char *const known[30] = {"aaaaaaaa", NULL, "bbbbbbbb", "cccccccc"};
    const char *many[30];
    char text[VX_NEAREST_BYTES];
    ck_assert_str_eq(vx_nearest_text("x", known, VX_COUNT(known), text),
                     "; known: aaaaaaaa, bbbbbbbb, cccccccc");
    for (size_t i = 0; i < VX_COUNT(many); i++) many[i] = "aaaaaaaa";
    ck_assert_str_eq(
        vx_nearest_text("x", many, VX_COUNT(many), text),
        "; known: aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, "
        "aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, aaaaaaaa, "
        "and 17 more");
    /* Where all have room, none is kept for a number. */
    vx_nearest_text("x", many, 15, text);
    ck_assert_msg(!strstr(text, "more") && strlen(text) == 157, "%s", text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("typed");
    TCase *tests = tcase_create("typed");
    tcase_add_loop_test(tests, mistakes_of_typing_and_prefixes, 0, VX_COUNT(cases));
    tcase_add_test(tests, a_list_says_what_it_leaves_out);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
