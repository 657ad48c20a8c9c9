/* utf8: which bytes are characters, what becomes of the others, and that no error sentence
 * has them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/text/sentence.h"
#include "engine/base/utf8.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first and last character of each row of RFC 3629's table, and the bytes beside. */
static const struct {
    const char *text;
    size_t bytes, length;
} characters[] = {
    {"", 0, 0},
    {"\0", 1, 1},
    {"a\x80", 2, 1},
    {"\x7f", 1, 1},
    {"\x80", 1, 0},
    {"\xbf", 1, 0},
    {"\xc0\x80", 2, 0}, /* overlong forms */
    {"\xc1\xbf", 2, 0},
    {"\xc2\x80", 2, 2},
    {"\xdf\xbf", 2, 2},
    {"\xc3", 1, 0},
    {"\xc3\x7f", 2, 0},
    {"\xc3\xc0", 2, 0},
    {"\xe0\x9f\xbf", 3, 0},
    {"\xe0\xa0\x80", 3, 3},
    {"\xe1\x80\x80", 3, 3},
    {"\xec\xbf\xbf", 3, 3},
    {"\xed\x9f\xbf", 3, 3},
    {"\xed\xa0\x80", 3, 0}, /* surrogates */
    {"\xed\xbf\xbf", 3, 0},
    {"\xee\x80\x80", 3, 3},
    {"\xef\xbf\xbf", 3, 3},
    {"\xe2\x82\xac", 2, 0},
    {"\xe2\x82(", 3, 0},
    {"\xf0\x8f\xbf\xbf", 4, 0},
    {"\xf0\x90\x80\x80", 4, 4},
    {"\xf1\x80\x80\x80", 4, 4},
    {"\xf3\xbf\xbf\xbf", 4, 4},
    {"\xf4\x8f\xbf\xbf", 4, 4},
    {"\xf4\x90\x80\x80", 4, 0}, /* above U+10FFFF */
    {"\xf5\x80\x80\x80", 4, 0},
    {"\xff", 1, 0},
    {"\xf0\x90\x80\x80", 3, 0},
};

START_TEST(a_character_is_what_rfc_3629_says)
{
    const char *text = characters[_i].text;
    size_t bytes = characters[_i].bytes, length = characters[_i].length;
    ck_assert_uint_eq(vx_utf8_length(text, bytes), length);
    /* Two strings, embedded in one sentence. */
    char twice[16] = "<", *at = twice + 1;
    for (int i = 0; i < 2; i++, at += bytes) memcpy(at, text, bytes);
    *at++ = '>';
    bool good = bytes == length || (length && (u8)text[length] < 0x80);
    ck_assert_int_eq(vx_utf8_is(twice, (size_t)(at - twice)), good);
}
END_TEST

#define EURO "\xe2\x82\xac"
#define CLEF "\xf0\x9d\x84\x9e"

static const struct {
    const char *text;
    size_t bytes; /* of the buffer */
    const char *expected;
} prints[] = {
    {"", 1, ""},
    {"abc", 4, "abc"}, /* an exact fit */
    {"abc", 3, "ab"},
    {"abc", 1, ""},
    {"caf\xc3\xa9", 6, "caf\xc3\xa9"},
    {"caf\xc3\xa9", 5, "caf"},
    {"\xc3\xa9", 2, ""},
    {"a" EURO, 5, "a" EURO},
    {"a" EURO, 4, "a"},
    {"a" EURO, 3, "a"},
    {"a" EURO, 2, "a"},
    {"a" CLEF, 6, "a" CLEF},
    {"a" CLEF, 5, "a"},
    {"a" CLEF, 4, "a"},
    {"a" CLEF, 3, "a"},
    {EURO EURO, 6, EURO},
    /* Cut, but not inside a character: bytes that are no character stay visible. */
    {"ab\xff"
     "cd",
     4, "ab?"},
    {"ab\x80"
     "cd",
     4, "ab?"},
    {"ab\xe0\x9f"
     "cd",
     5, "ab??"},
    {"ab\xed\xa0"
     "cd",
     5, "ab??"},
    {"a\xc3\xa9\xa9"
     "bc",
     5, "a\xc3\xa9?"},
    /* Not cut: the text itself ends inside a character. */
    {"bad\xc3", 8, "bad?"},
    {"bad\xe2\x82", 8, "bad??"},
    {"bad\xf0\x9d\x84", 8, "bad???"},
    {"bad\xff", 5, "bad?"},
    /* Embedded: a cut by a precision, lone bytes, overlong forms, surrogates. */
    {"'\xc3' and '" EURO "'", 32, "'?' and '" EURO "'"},
    {"<\xe2\x82 \xf0\x9d\x84;", 32, "<?? ???;"},
    {"\x80\xbf" EURO "\xc3\xc3\xa9", 32, "??" EURO "?\xc3\xa9"},
    {"\xc0\xaf|\xe0\x80\xaf|\xf0\x80\x80\xaf", 32, "??|???|????"},
    {"\xed\xa0\x80\xed\xb0\x80", 32, "??????"},
    {"\xe2\x82\xc3\xa9", 32, "??\xc3\xa9"},
};

START_TEST(a_printed_text_is_utf8)
{
    char out[40];
    memset(out, '#', sizeof out);
    vx_utf8_print(out, prints[_i].bytes, "%s", prints[_i].text);
    ck_assert_str_eq(out, prints[_i].expected);
    ck_assert(vx_utf8_is(out, strlen(out)));
    ck_assert_int_eq(out[prints[_i].bytes], '#');
}
END_TEST

static void ck_is_sentence(const struct vx_why *why, const char *expected)
{
    ck_assert_str_eq(why->text, expected);
    ck_assert_msg(vx_utf8_is(why->text, strlen(why->text)), "%s", why->text);
}

/* Whatever bytes a name has and wherever it is cut: by its precision, or by the end. */
START_TEST(a_sentence_is_utf8)
{
    struct vx_why why;
    char expected[VX_WHY_BYTES], longest[VX_WHY_BYTES] = "";
    vx_why_set(&why, "'%.2s' and '%.4s'", "a\xc3\xa9", EURO EURO);
    ck_is_sentence(&why, "'a?' and '" EURO "?'");
    vx_why_set(&why, "directory '%s'", "bad\xff");
    ck_is_sentence(&why, "directory 'bad?'");
    memset(longest, 'x', sizeof longest - 2);
    vx_why_set(&why, "%s\xc3\xa9", longest);
    memcpy(longest + sizeof longest - 4, "...", 4);
    ck_is_sentence(&why, longest);
    memset(expected, 'y', sizeof expected - 4);
    memcpy(expected + sizeof expected - 4, EURO, 4);
    vx_why_set(&why, "%s", expected); /* fits to the last byte */
    ck_is_sentence(&why, expected);
}
END_TEST

START_TEST(a_place_before_or_behind_a_sentence_keeps_it_utf8)
{
    struct vx_why why;
    char dashes[VX_WHY_BYTES], expected[VX_WHY_BYTES + 4];
    vx_why_set(&why, "expected " EURO);
    vx_why_prefix(&why, "layer '%.3s': ", "aa\xc3\xa9");
    ck_is_sentence(&why, "layer 'aa?': expected " EURO);
    vx_why_add(&why, "; \xff");
    ck_is_sentence(&why, "layer 'aa?': expected " EURO "; ?");
    /* The prefix shifts the last character over the end, */
    memset(dashes, '-', sizeof dashes);
    dashes[VX_WHY_BYTES - 5] = '\0';
    vx_why_set(&why, "a%s", EURO);
    vx_why_prefix(&why, "%s: ", dashes);
    snprintf(expected, sizeof expected, "%s:...", dashes);
    ck_is_sentence(&why, expected);
    /* is cut itself, */
    vx_why_set(&why, "inner");
    vx_why_prefix(&why, "%s" EURO EURO ": ", dashes);
    snprintf(expected, sizeof expected, "%s...", dashes);
    ck_is_sentence(&why, expected);
    /* and so does what comes behind it. */
    vx_why_set(&why, "%s", dashes);
    vx_why_add(&why, "ab" CLEF);
    snprintf(expected, sizeof expected, "%sa...", dashes);
    ck_is_sentence(&why, expected);
    why.text[0] = '\0';
    vx_why_prefix(&why, "%s", "alone");
    ck_is_sentence(&why, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("utf8");
    TCase *tests = tcase_create("utf8");
    tcase_add_loop_test(tests, a_character_is_what_rfc_3629_says, 0,
                        (int)VX_COUNT(characters));
    tcase_add_loop_test(tests, a_printed_text_is_utf8, 0, (int)VX_COUNT(prints));
    tcase_add_test(tests, a_sentence_is_utf8);
    tcase_add_test(tests, a_place_before_or_behind_a_sentence_keeps_it_utf8);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
