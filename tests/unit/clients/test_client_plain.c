/* Control characters in texts of a server.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/plain.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text, *expected; /* NULL = the text itself */
} cases[] = {
    {"", NULL},
    {"caf\xc3\xa9 \\x1b", NULL},
    {"\xc2\xa0", NULL}, /* a space, no control character */
    {"esc\x1b[31mred", "esc\\x1b[31mred"},
    {"a\nb\tc\rd\x7f", "a\\nb\\tc\\x0dd\\x7f"},
    {"\xc2\x9b"
     "31m\xc3\xa9",
     "\\x9b"
     "31m\xc3\xa9"}, /* CSI as one character */
    {"a\xe2\x80\xae\xe2\x81\xa6\xd8\x9c\xef\xbb\xbf\xe2\x80\xa8",
     "a\\u202e\\u2066\\u061c\\ufeff\\u2028"},
    {"b\xe2\x80\x8a\xe2\x80\xaf\xd8\x9b\xf0\x9f\x98\x80\xe2",
     NULL}, /* their neighbours */
};

START_TEST(control_characters_are_escaped)
{
    char room[PLAIN_BYTES];
    const char *shown = plain_text(cases[_i].text, room);
    if (!cases[_i].expected) ck_assert_ptr_eq(shown, cases[_i].text);
    ck_assert_str_eq(shown, cases[_i].expected ? cases[_i].expected : cases[_i].text);
}
END_TEST

static const struct {
    const char *text;
    int characters, bytes;
} widths[] = {
    {"", 0, 0},
    {"abc", 3, 3},
    {"b\xc3\xa4ume", 5, 6},
    {"\xe2\x82\xac\xf0\x9f\x98\x80", 2, 7},
};

START_TEST(columns_are_characters)
{
    const char *text = widths[_i].text;
    char padded[32];
    ck_assert_int_eq(plain_width(text), widths[_i].characters);
    snprintf(padded, sizeof padded, "%-*s|", plain_pad(text, 8), text);
    ck_assert_int_eq(plain_width(padded), 9);
    ck_assert_uint_eq(strlen(padded),
                      (size_t)(9 + widths[_i].bytes - widths[_i].characters));
}
END_TEST

START_TEST(what_is_too_long_is_cut_before_a_character)
{
    for (size_t shift = 0; shift < 8; shift++) {
        char room[PLAIN_BYTES], text[4 * PLAIN_BYTES + 1] = "\n";
        memset(text + 1, 'x', shift);
        for (size_t i = 0; i < PLAIN_BYTES; i++)
            memcpy(text + 1 + shift + 3 * i, "\xe2\x82\xac", 3);
        const char *shown = plain_text(text, room);
        size_t bytes = strlen(shown);
        ck_assert_uint_lt(bytes, PLAIN_BYTES);
        ck_assert_uint_gt(bytes, PLAIN_BYTES - 16);
        ck_assert_str_eq(shown + bytes - 3, "...");
        ck_assert_uint_eq((bytes - 3 - 2 - shift) % 3, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_plain");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, control_characters_are_escaped, 0,
                        sizeof cases / sizeof *cases);
    tcase_add_loop_test(tcase, columns_are_characters, 0, sizeof widths / sizeof *widths);
    tcase_add_test(tcase, what_is_too_long_is_cut_before_a_character);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
