/* The texts of header blocks: how many characters they have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/hpack_text.h"

#include "tests/unit/server/govern/hpack_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Bytes, in pieces of a size, as a text. */
static struct vx_hpack_text walk(const u8 *bytes, size_t count, bool huffman,
                                 size_t piece)
{
    struct vx_hpack_text text;
    vx_hpack_text_begin(&text, huffman, (u32)count);
    for (size_t at = 0; at < count; at += piece) {
        size_t left = count - at, taken = left < piece ? left : piece;
        /* What lies behind the text is not its own. */
        size_t seen = left < piece ? left + 3 : piece;
        ck_assert_uint_eq(vx_hpack_text_walk(&text, bytes + at, seen), taken);
    }
    ck_assert_uint_eq(text.left, 0);
    return text;
}

/* Every character, alone and among others, whole and cut. */
START_TEST(characters_are_counted)
{
    u8 plain[300], coded[2000] = {0};
    for (u32 i = 0; i < 3000; i++) {
        u32 length = i < 256 ? 1 : hpack_random(sizeof plain);
        for (u32 at = 0; at < length; at++)
            plain[at] = (u8)(i < 256 ? i : hpack_random(i % 2 ? 256 : 128));
        size_t count = hpack_huffman(plain, length, coded);
        struct vx_hpack_text text = walk(coded, count, true, 1 + i % 7);
        ck_assert_uint_eq(text.length, length);
        ck_assert(!text.broken);
        text = walk(plain, length, false, 1 + i % 7);
        ck_assert_uint_eq(text.length, length);
        ck_assert(!text.broken);
    }
}
END_TEST

START_TEST(text_that_no_encoder_writes)
{
    static const struct {
        u8 bytes[5];
        u32 count;
        bool broken;
    } texts[] = {
        {{0x1f}, 1, false},                   /* 'a', three ones */
        {{0x1e}, 1, true},                    /* a zero in the padding */
        {{0x18}, 1, true},                    /* zeros */
        {{0xff}, 1, true},                    /* eight ones */
        {{0x07, 0xff}, 2, true},              /* '0', eleven */
        {{0xfe, 0x3f}, 2, false},             /* '!', six */
        {{0xfe, 0x3e}, 2, true},              /* and a zero */
        {{0xff, 0xff, 0xff, 0xf3}, 4, false}, /* a line's end: 30 bits, and two ones */
        {{0xff, 0xff, 0xff, 0xff}, 4, true},  /* the end of the text, as a code */
        {{0xff, 0xff, 0xff, 0xf0}, 4, true},  /* and two zeros */
        {{0xff, 0xff, 0xff, 0xff, 0xff}, 5, true},
    };
    for (size_t i = 0; i < VX_COUNT(texts); i++) {
        for (u32 piece = 1; piece <= texts[i].count; piece++) {
            struct vx_hpack_text text = walk(texts[i].bytes, texts[i].count, true, piece);
            ck_assert_msg(text.broken == texts[i].broken, "row %zu", i);
            text = walk(texts[i].bytes, texts[i].count, false, piece);
            ck_assert(!text.broken);
            ck_assert_uint_eq(text.length, texts[i].count);
        }
    }
}
END_TEST

START_TEST(names_of_binary_values)
{
    static const struct {
        const char *name;
        bool binary;
    } names[] = {{"trace-bin", true}, {"-bin", true},  {"bin", false},
                 {"", false},         {"-bi", false},  {"trace-bin-", false},
                 {"-bin0", false},    {"-Bin", false}, {"x-binn", false}};
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        const u8 *name = (const u8 *)names[i].name;
        u8 coded[64] = {0};
        size_t length = strlen(names[i].name), count = hpack_huffman(name, length, coded);
        struct vx_hpack_text text = walk(coded, count, true, 1);
        ck_assert_msg(vx_hpack_text_is_binary(&text) == names[i].binary, "row %zu", i);
        text = walk(name, length, false, 2);
        ck_assert_msg(vx_hpack_text_is_binary(&text) == names[i].binary, "row %zu", i);
    }
}
END_TEST

/* Base64 with and without its padding, or bytes as they are behind a zero. */
START_TEST(binary_values)
{
    static const struct {
        const char *text;
        u32 length, bytes;
    } values[] = {{"", 0, 0},     {"AAAA", 4, 3},  {"AA", 2, 1},
                  {"AA==", 4, 1}, {"AAA=", 4, 2},  {"AAAAAAA", 7, 5},
                  {"=A=A", 4, 3}, {"====", 4, 0},  {"\0abc", 4, 3},
                  {"\0", 1, 0},   {"\0ab=", 4, 3}, {"AAAAAA==", 8, 4}};
    for (size_t i = 0; i < VX_COUNT(values); i++) {
        const u8 *plain = (const u8 *)values[i].text;
        u8 coded[64] = {0};
        size_t count = hpack_huffman(plain, values[i].length, coded);
        struct vx_hpack_text text = walk(coded, count, true, 1);
        ck_assert_msg(vx_hpack_text_binary(&text) == values[i].bytes, "row %zu", i);
        text = walk(plain, values[i].length, false, 3);
        ck_assert_msg(vx_hpack_text_binary(&text) == values[i].bytes, "row %zu", i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hpack_text");
    TCase *tests = tcase_create("hpack_text");
    tcase_add_test(tests, characters_are_counted);
    tcase_add_test(tests, text_that_no_encoder_writes);
    tcase_add_test(tests, names_of_binary_values);
    tcase_add_test(tests, binary_values);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
