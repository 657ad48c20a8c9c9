/* Header blocks: how many fields they have, and how many they may have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_meter.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Fields of one byte, in pieces of any size, are counted without being decoded. */
START_TEST(fields_of_a_block_are_counted)
{
    static const struct {
        u8 bytes[24];
        u32 count, fields;
    } blocks[] = {
        {{0x82, 0x86, 0x84}, 3, 3},                      /* of the table */
        {{0xff, 0x80, 0x01, 0x82}, 4, 2},                /* a long index */
        {{0x40, 1, 'a', 2, 'b', 'c', 0x82}, 7, 2},       /* kept, a new name */
        {{0x41, 0, 0x10, 0, 0x81, 0xff}, 6, 2},          /* empty texts, Huffman */
        {{0x3f, 0x22, 0x82}, 3, 2},                      /* a table's size */
        {{0x0f, 0x01, 3, 0x82, 0x82, 0x82, 0x82}, 7, 2}, /* text like fields */
        {{0, 1, 'x', 0x7f, 0x01, 0x82, 0x82}, 7, 1},     /* 128 bytes to come */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x82},
         9,
         2}, /* too large a number */
    };
    for (size_t i = 0; i < VX_COUNT(blocks); i++) {
        for (u32 piece = 1; piece <= blocks[i].count; piece++) {
            struct vx_hpack_count count;
            vx_hpack_begin(&count);
            for (u32 at = 0; at < blocks[i].count; at += piece) {
                u32 left = blocks[i].count - at;
                vx_hpack_walk(&count, blocks[i].bytes + at, left < piece ? left : piece);
            }
            ck_assert_msg(count.fields == blocks[i].fields, "row %zu: %u fields", i,
                          count.fields);
        }
    }
}
END_TEST

/* The meter counts all frames of a block together, and not what stands before its fields. */
START_TEST(a_block_has_so_many_fields)
{
    enum { FIRST = 100 };
    static const u8 priority[5] = {0};
    for (u32 over = 0; over < 2; over++) {
        struct vx_h2_stream rows[4];
        struct vx_h2_meter meter;
        u8 bytes[1024] = {0};
        size_t length = VX_H2_PREFACE_BYTES;
        u32 more = VX_H2_FIELDS_MAX - FIRST + over;
        u8 begin[] = {0, 0, sizeof priority + FIRST, 1, 0x20, 0, 0, 0, 1};
        u8 go_on[] = {0, 0, (u8)more, 9, 4, 0, 0, 0, 1};
        memcpy(bytes + length, begin, sizeof begin);
        length += sizeof begin + sizeof priority;
        memset(bytes + length, 0x82, FIRST);
        length += FIRST;
        memcpy(bytes + length, go_on, sizeof go_on);
        length += sizeof go_on;
        memset(bytes + length, 0x82, more);
        length += more;
        vx_h2_meter_init(&meter, rows, 4, 1000);
        vx_h2_meter_walk(&meter, bytes, length);
        ck_assert_int_eq(meter.fault, over ? VX_H2_BLOCK_LONG : VX_H2_SOUND);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hpack_count");
    TCase *tests = tcase_create("hpack_count");
    tcase_add_test(tests, fields_of_a_block_are_counted);
    tcase_add_test(tests, a_block_has_so_many_fields);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
