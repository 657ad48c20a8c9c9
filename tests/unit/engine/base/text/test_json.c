/* The JSON reader: what it takes, what it refuses and with which sentence, and its memory
 * bound.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/text/json.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) u8 block[1 << 16];
static struct vx_arena arena;

static const struct vx_json *parse_good(const char *text)
{
    struct vx_why why = {{0}};
    const struct vx_json *root;
    vx_arena_init(&arena, block, sizeof block);
    vx_status status = vx_json_parse(text, strlen(text), &arena, &why, &root);
    ck_assert_msg(!status.fault, "%s: %s", text, why.text);
    return root;
}

START_TEST(values_of_every_kind)
{
    const struct vx_json *root = parse_good(
        " {\"a\": [1, -2.5, true, false, null, \"t\"],\n \"b\": {}, \"c\": 1e3}\n");
    ck_assert_int_eq(root->kind, VX_JSON_OBJECT);
    ck_assert_int_eq(root->count, 3);
    const struct vx_json *list = vx_json_find(root, "a"), *child = list->first;
    ck_assert_int_eq(list->count, 6);
    ck_assert_int_eq(child->number, 1);
    child = child->next;
    ck_assert_int_eq(child->kind, VX_JSON_F64);
    ck_assert(child->real == -2.5);
    child = child->next;
    ck_assert(child->kind == VX_JSON_BOOL && child->boolean);
    child = child->next;
    ck_assert(child->kind == VX_JSON_BOOL && !child->boolean);
    child = child->next;
    ck_assert_int_eq(child->kind, VX_JSON_NULL);
    child = child->next;
    ck_assert_str_eq(child->text, "t");
    ck_assert_ptr_null(child->next);
    const struct vx_json *b = vx_json_find(root, "b");
    ck_assert_int_eq(b->kind, VX_JSON_OBJECT);
    ck_assert_int_eq(b->line, 2);
    ck_assert_int_eq(b->column, 7);
    ck_assert_ptr_null(vx_json_find(b, "x"));
    ck_assert(vx_json_find(root, "c")->real == 1000.0);
    ck_assert_ptr_null(vx_json_find(root, "aa"));
}
END_TEST

START_TEST(members_keep_the_order_of_the_file)
{
    const struct vx_json *root = parse_good("{\"z\":0,\"m\":1,\"a\":2,\"k\":3}");
    i64 expected = 0;
    VX_JSON_EACH(member, root) ck_assert_int_eq(member->number, expected++);
    ck_assert_int_eq(expected, 4);
}
END_TEST

static const struct {
    const char *text;
    const char *expected;
} texts[] = {
    {"\"\"", ""},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
    {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
     "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f"},
    {"\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"",
     "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
};

START_TEST(texts_are_decoded)
{
    const struct vx_json *root = parse_good(texts[_i].text);
    ck_assert_str_eq(root->text, texts[_i].expected);
    ck_assert_int_eq(root->count, (i32)strlen(texts[_i].expected));
}
END_TEST

static const struct {
    const char *text;
    enum vx_json_kind kind;
    i64 number;
    f64 real;
} numbers[] = {
    {"0", VX_JSON_I64, 0, 0},
    {"-0", VX_JSON_I64, 0, 0},
    {"9223372036854775807", VX_JSON_I64, INT64_MAX, 0},
    {"-9223372036854775808", VX_JSON_I64, INT64_MIN, 0},
    {"9223372036854775808", VX_JSON_F64, 0, 9223372036854775808.0},
    {"-9223372036854775809", VX_JSON_F64, 0, -9223372036854775808.0},
    {"0.1", VX_JSON_F64, 0, 0.1},
    {"1E+2", VX_JSON_F64, 0, 100},
    {"-1.5e-3", VX_JSON_F64, 0, -0.0015},
    {"1e-400", VX_JSON_F64, 0, 0},
    {"1.7976931348623157e308", VX_JSON_F64, 0, 1.7976931348623157e308},
};

START_TEST(numbers_are_exact)
{
    const struct vx_json *root = parse_good(numbers[_i].text);
    ck_assert_int_eq(root->kind, numbers[_i].kind);
    if (root->kind == VX_JSON_I64)
        ck_assert_int_eq(root->number, numbers[_i].number);
    else
        ck_assert(root->real == numbers[_i].real);
}
END_TEST

/* Each with the sentence that the user sees. */
static const struct {
    const char *text;
    const char *why;
} bad[] = {
    {"", "line 1, column 1: expected a value, got the end of the text"},
    {"  \n ", "line 2, column 2: expected a value, got the end of the text"},
    {"nul", "line 1, column 1: expected a value, got 'n'"},
    {"{} x", "line 1, column 4: expected nothing after the value, got 'x'"},
    {"[1,]", "line 1, column 4: expected a value, got ']' (JSON has no trailing comma)"},
    {"[1,\r\n\t ]",
     "line 2, column 3: expected a value, got ']' (JSON has no trailing comma)"},
    {"[1,}", "line 1, column 4: expected a value, got '}' (JSON has no trailing comma)"},
    {"]", "line 1, column 1: expected a value, got ']'"},
    {"{\"a\":}", "line 1, column 6: expected a value, got '}'"},
    {"[1 2]", "line 1, column 4: expected ',' or ']', got '2'"},
    {"[1", "line 1, column 3: expected ',' or ']', got the end of the text"},
    {"{\"a\":1,}",
     "line 1, column 8: expected '\"', got '}' (JSON has no trailing comma)"},
    {"// a\n{}", "line 1, column 1: expected a value, got '/' (JSON has no comments)"},
    {"\xef\xbb\xbf{}",
     "line 1, column 1: expected a value, got byte 0xef (JSON has no byte order mark)"},
    {"\xff\xfe{",
     "line 1, column 1: expected a value, got byte 0xff (a byte order mark of UTF-16? "
     "JSON is UTF-8)"},
    {"{ /* a */ }", "line 1, column 3: expected '\"', got '/' (JSON has no comments)"},
    {"{\"a\"//\n:1}",
     "line 1, column 5: expected ':' after a key, got '/' (JSON has no comments)"},
    {"[1, // a\n2]",
     "line 1, column 5: expected a value, got '/' (JSON has no comments)"},
    {"[1 // a\n]",
     "line 1, column 4: expected ',' or ']', got '/' (JSON has no comments)"},
    {"{} // a", "line 1, column 4: expected nothing after the value, got '/' (JSON has "
                "no comments)"},
    {"-/", "line 1, column 2: expected a digit, got '/'"},
    {"{\"a\" 1}", "line 1, column 6: expected ':' after a key, got '1'"},
    {"{\"a\":1 \"b\":2}", "line 1, column 8: expected ',' or '}', got '\"'"},
    {"{a:1}", "line 1, column 2: expected '\"', got 'a'"},
    {"{\"a\":1,\n\"b\":2,\n\"a\":3}",
     "line 3, column 5: expected a new key, got \"a\" again, already on line 1"},
    {"{\"\\u0061\":1,\"a\":3}",
     "line 1, column 17: expected a new key, got \"a\" again, already on line 1"},
    {"01", "line 1, column 2: expected nothing after the value, got '1'"},
    {"-", "line 1, column 2: expected a digit, got the end of the text"},
    {"+1", "line 1, column 1: expected a value, got '+'"},
    {"1.", "line 1, column 3: expected a digit after '.', got the end of the text"},
    {".5", "line 1, column 1: expected a value, got '.'"},
    {"1e", "line 1, column 3: expected a digit in the exponent, got the end of the text"},
    {"1e999", "line 1, column 1: expected a number that fits a double, got 1e999"},
    {"NaN", "line 1, column 1: expected a value, got 'N'"},
    {"\"abc",
     "line 1, column 5: expected '\"' at the end of a text, got the end of the text"},
    {"\"abc\\",
     "line 1, column 6: expected one of \" \\ / b f n r t u after a backslash, got the "
     "end of the text"},
    {"\"a\tb\"",
     "line 1, column 3: expected an escape in place of a control character in a text, "
     "got byte 0x09"},
    {"\"\\x\"",
     "line 1, column 3: expected one of \" \\ / b f n r t u after a backslash, got 'x'"},
    {"\"\\u12g4\"",
     "line 1, column 6: expected four hexadecimal digits after \\u, got 'g'"},
    {"\"\\u0000\"", "line 1, column 7: expected no NUL inside a text, got '0'"},
    {"\"\\udc00\"", "line 1, column 8: expected a high surrogate before the low one just "
                    "read, got '\"'"},
    {"\"\\ud800\"",
     "line 1, column 8: expected a low surrogate (\\udc00 to \\udfff), got '\"'"},
    {"\"\\ud800\\u0041\"",
     "line 1, column 14: expected a low surrogate (\\udc00 to \\udfff), got '\"'"},
    {"\"\xff\"", "line 1, column 2: expected valid UTF-8, got byte 0xff"},
    {"\"\x80\"", "line 1, column 2: expected valid UTF-8, got byte 0x80"},
    {"\"\xc0\xaf\"", "line 1, column 2: expected valid UTF-8, got byte 0xc0"},
    {"\"\xe0\x9f\xbf\"", "line 1, column 2: expected valid UTF-8, got byte 0xe0"},
    {"\"\xed\xa0\x80\"", "line 1, column 2: expected valid UTF-8, got byte 0xed"},
    {"\"\xf0\x8f\xbf\xbf\"", "line 1, column 2: expected valid UTF-8, got byte 0xf0"},
    {"\"\xf4\x90\x80\x80\"", "line 1, column 2: expected valid UTF-8, got byte 0xf4"},
    {"\"\xe2\x82", "line 1, column 2: expected valid UTF-8, got byte 0xe2"},
};

START_TEST(bad_text_is_refused_with_its_place)
{
    struct vx_why why = {{0}};
    const struct vx_json *root;
    vx_arena_init(&arena, block, sizeof block);
    /* An exact copy on the heap, so that ASan sees a read past the end. */
    size_t bytes = strlen(bad[_i].text);
    char *copy = vx_alloc(bytes);
    memcpy(copy, bad[_i].text, bytes);
    vx_status status = vx_json_parse(copy, bytes, &arena, &why, &root);
    vx_free(copy);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(root);
    ck_assert_str_eq(why.text, bad[_i].why);
}
END_TEST

START_TEST(depth_is_limited)
{
    char text[2 * VX_JSON_DEPTH_MAX + 3] = "";
    struct vx_why why = {{0}};
    const struct vx_json *root;
    for (int extra = 0; extra < 2; extra++) {
        size_t depth = (size_t)(VX_JSON_DEPTH_MAX + extra);
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        vx_arena_init(&arena, block, sizeof block);
        vx_status status = vx_json_parse(text, 2 * depth, &arena, &why, &root);
        ck_assert_int_eq(vx_status_code(status),
                         extra ? VX_CODE_INVALID_ARGUMENT : VX_CODE_OK);
    }
    ck_assert_str_eq(
        why.text,
        "line 1, column 33: expected at most 32 lists and objects inside each other, "
        "got '['");
}
END_TEST

START_TEST(long_numbers_are_refused)
{
    char text[VX_JSON_NUMBER_BYTES_MAX + 2];
    struct vx_why why = {{0}};
    const struct vx_json *root;
    memset(text, '1', sizeof text);
    vx_arena_init(&arena, block, sizeof block);
    ck_assert(!vx_json_parse(text, VX_JSON_NUMBER_BYTES_MAX, &arena, &why, &root).fault);
    ck_assert(
        vx_json_parse(text, VX_JSON_NUMBER_BYTES_MAX + 1, &arena, &why, &root).fault);
    ck_assert_str_eq(
        why.text,
        "line 1, column 1: expected a number of at most 100 characters, got '1'");
}
END_TEST

/* The texts that need the most memory per byte, repeated; the arena is exactly what
 * vx_json_arena_bytes says. */
static const char *const dear[] = {"0,",        "\"\",", "[],",          "{},",
                                   "{\"\":0},", "[[]],", "\"a\\u0041\","};

START_TEST(the_arena_bound_holds)
{
    char text[4096];
    struct vx_why why = {{0}};
    const struct vx_json *root;
    size_t piece = strlen(dear[_i]), used = 0;
    text[used++] = '[';
    for (; used + piece + 1 < sizeof text; used += piece)
        memcpy(text + used, dear[_i], piece);
    text[used - 1] = ']';
    size_t bytes = vx_json_arena_bytes(used);
    u8 *memory = vx_alloc(bytes);
    ck_assert_ptr_nonnull(memory);
    vx_arena_init(&arena, memory, bytes);
    vx_status status = vx_json_parse(text, used, &arena, &why, &root);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_free(memory);
}
END_TEST

START_TEST(a_full_arena_is_said)
{
    struct vx_why why = {{0}};
    const struct vx_json *root;
    const char *text = "{\"a\": [1, \"text\", {\"b\": 2}]}";
    vx_arena_init(&arena, block, sizeof block);
    ck_assert(!vx_json_parse(text, strlen(text), &arena, &why, &root).fault);
    size_t enough = arena.used;
    for (size_t bytes = 0; bytes < enough; bytes += 8) {
        vx_arena_init(&arena, block, bytes);
        vx_status status = vx_json_parse(text, strlen(text), &arena, &why, &root);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_ptr_null(root);
    }
}
END_TEST

START_TEST(a_whole_number_may_be_written_as_a_double)
{
    struct vx_why why = {{0}};
    const struct vx_json *root =
        parse_good("{\"a\": 3.0, \"b\": -2e2, \"c\": 3.5, \"d\": 1e300, \"e\": \"3\", "
                   "\"f\": 9007199254740994.0}");
    i64 number = -1;
    ck_assert(!vx_json_check_kind(vx_json_find(root, "a"), VX_JSON_I64, &why).fault);
    ck_assert(!vx_json_read_i64(vx_json_find(root, "a"), 1, 3, &why, &number).fault);
    ck_assert_int_eq(number, 3);
    ck_assert(!vx_json_read_i64(vx_json_find(root, "b"), -200, 0, &why, &number).fault);
    ck_assert_int_eq(number, -200);
    for (const char *key = "cdef"; *key; key++) {
        const struct vx_json *value = vx_json_find(root, (char[]){*key, '\0'});
        ck_assert(vx_json_check_kind(value, VX_JSON_I64, &why).fault);
        ck_assert(vx_json_read_i64(value, INT64_MIN, INT64_MAX, &why, &number).fault);
    }
    ck_assert_int_eq(number, -200);
}
END_TEST

START_TEST(readers_say_what_they_expected)
{
    struct vx_why why = {{0}};
    const struct vx_json *root =
        parse_good("{\"port\": \"x\",\n \"n\": 7, \"r\": 2.5, \"b\": true,"
                   " \"long\": \"abcdef\", \"none\": null}");
    i64 number = -1;
    f64 real = -1;
    bool boolean = false;
    const char *text;
    char name[4];
    ck_assert(vx_json_read_i64(vx_json_find(root, "port"), 0, 9, &why, &number).fault);
    ck_assert_str_eq(
        why.text,
        "line 1, column 10: \"port\": expected an integer from 0 to 9, got \"x\"");
    ck_assert(vx_json_read_i64(vx_json_find(root, "n"), 0, 6, &why, &number).fault);
    ck_assert_str_eq(why.text,
                     "line 2, column 7: \"n\": expected an integer from 0 to 6, got 7");
    ck_assert(vx_json_read_i64(vx_json_find(root, "r"), 0, 6, &why, &number).fault);
    ck_assert_str_eq(
        why.text, "line 2, column 15: \"r\": expected an integer from 0 to 6, got 2.5");
    ck_assert_int_eq(number, -1);
    ck_assert(!vx_json_read_i64(vx_json_find(root, "n"), 7, 7, &why, &number).fault);
    ck_assert_int_eq(number, 7);
    ck_assert(!vx_json_read_f64(vx_json_find(root, "n"), 0, 9, &why, &real).fault);
    ck_assert(real == 7.0);
    ck_assert(vx_json_read_f64(vx_json_find(root, "r"), 0, 2, &why, &real).fault);
    ck_assert(vx_json_read_bool(vx_json_find(root, "n"), &why, &boolean).fault);
    ck_assert_str_eq(why.text, "line 2, column 7: \"n\": expected true or false, got 7");
    ck_assert(!vx_json_read_bool(vx_json_find(root, "b"), &why, &boolean).fault);
    ck_assert(boolean);
    ck_assert(vx_json_read_text(vx_json_find(root, "none"), &why, &text).fault);
    ck_assert(
        vx_json_read_name(vx_json_find(root, "long"), &why, name, sizeof name).fault);
    ck_assert_str_eq(why.text,
                     "line 2, column 39: \"long\": expected a text of 1 to 3 bytes, got "
                     "\"abcdef\"");
    ck_assert(
        !vx_json_read_name(vx_json_find(root, "port"), &why, name, sizeof name).fault);
    ck_assert_str_eq(name, "x");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");
    tcase_add_test(tcase, values_of_every_kind);
    tcase_add_test(tcase, members_keep_the_order_of_the_file);
    tcase_add_loop_test(tcase, texts_are_decoded, 0, VX_COUNT(texts));
    tcase_add_loop_test(tcase, numbers_are_exact, 0, VX_COUNT(numbers));
    tcase_add_loop_test(tcase, bad_text_is_refused_with_its_place, 0, VX_COUNT(bad));
    tcase_add_test(tcase, depth_is_limited);
    tcase_add_test(tcase, long_numbers_are_refused);
    tcase_add_loop_test(tcase, the_arena_bound_holds, 0, VX_COUNT(dear));
    tcase_add_test(tcase, a_full_arena_is_said);
    tcase_add_test(tcase, a_whole_number_may_be_written_as_a_double);
    tcase_add_test(tcase, readers_say_what_they_expected);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
