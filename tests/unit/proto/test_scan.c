/* The scanner: fields cut at any byte, and every way in which bytes are not a message.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "proto/scan.h"
#include "tests/unit/proto/codec_harness.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct wire wire;

START_TEST(fields_are_the_same_over_any_cut)
{
    struct dice dice = {7};
    wire_write(
        &wire,
        "1'one' 2:300 3#200 4'' !2d01020304 !310102030405060708 2:-1 536870911'last'");
    for (size_t piece = 0; piece < 40; piece++) {
        static const struct vx_scan_field expected[] = {
            {1, VX_SCAN_BYTES, 3},   {2, VX_SCAN_VARINT, 0},
            {3, VX_SCAN_BYTES, 200}, {4, VX_SCAN_BYTES, 0},
            {5, VX_SCAN_FIXED32, 4}, {6, VX_SCAN_FIXED64, 8},
            {2, VX_SCAN_VARINT, 0},  {536870911, VX_SCAN_BYTES, 4},
        };
        struct cut cut;
        struct vx_scan scan;
        struct vx_scan_field field;
        u8 value[200];
        cut_open(&cut, wire.bytes, wire.length, piece, &dice);
        vx_scan_init(&scan, &cut.spans);
        for (size_t i = 0; i < VX_COUNT(expected); i++) {
            ck_assert(!vx_scan_field(&scan, &field).fault);
            ck_assert_uint_eq(field.number, expected[i].number);
            ck_assert_int_eq(field.type, expected[i].type);
            ck_assert_uint_eq(field.bytes, expected[i].bytes);
            struct vx_scan before = scan;
            vx_scan_copy(&scan, value, field.bytes);
            if (i == 0) ck_assert(!memcmp(value, "one", 3));
            if (i == 2)
                for (size_t k = 0; k < 200; k++)
                    ck_assert_uint_eq(value[k], (u8)(k * 7 + 1));
            if (i == 7) ck_assert(!memcmp(value, "last", 4));
            /* A copied scan resumes at its position; skipping is copying to nowhere. */
            vx_scan_copy(&before, NULL, field.bytes);
            ck_assert_uint_eq(vx_scan_left(&before), vx_scan_left(&scan));
        }
        ck_assert_uint_eq(vx_scan_left(&scan), 0);
        cut_close(&cut);
    }
}
END_TEST

static const struct {
    const char *bytes, *sentence;
} bad[] = {
    {"!80", "ends"},
    {"!08", "ends"},
    {"!0880", "ends"},
    {"!0a", "ends"},
    {"!0a80", "ends"},
    {"!0a05aabb", "longer"},
    {"!0a01", "longer"},
    {"!09aabbccddeeff00", "longer"},
    {"!0daabbcc", "longer"},
    {"!0b", "group"},
    {"!0c", "group"},
    {"!00", "field number"},
    {"!02", "field number"},
    {"!8080808010", "field number"},
    {"!ffffffffffffffffff7f01", "field number"},
    {"!0affffffffffffffffff01", "longer"},
    {"!0affffffff0f", "longer"},
    {"!08ffffffffffffffffffff01", "10 bytes"},
    {"!ffffffffffffffffffff01", "10 bytes"},
};

START_TEST(bytes_that_are_no_message_are_refused)
{
    struct dice dice = {7};
    wire_write(&wire, bad[_i].bytes);
    for (size_t piece = 0; piece < 3; piece++) {
        struct cut cut;
        struct vx_scan scan;
        struct vx_scan_field field;
        cut_open(&cut, wire.bytes, wire.length, piece, &dice);
        vx_scan_init(&scan, &cut.spans);
        vx_status status = vx_scan_field(&scan, &field);
        ck_assert_msg(vx_status_code(status) == VX_CODE_INVALID_ARGUMENT, "%s",
                      bad[_i].bytes);
        ck_assert_msg(strstr(vx_status_text(status, NULL), bad[_i].sentence) != NULL,
                      "%s: %s", bad[_i].bytes, vx_status_text(status, NULL));
        cut_close(&cut);
    }
}
END_TEST

START_TEST(wire_types_6_and_7_are_refused)
{
    for (u8 type = 6; type <= 7; type++) {
        u8 tag = (u8)(1 << 3 | type);
        struct vx_span span = {&tag, 1};
        struct vx_scan scan;
        struct vx_scan_field field;
        vx_scan_init(&scan, &(struct vx_spans){&span, 1, 1});
        ck_assert_int_eq(vx_status_code(vx_scan_field(&scan, &field)),
                         VX_CODE_INVALID_ARGUMENT);
    }
}
END_TEST

START_TEST(nothing_has_no_fields)
{
    struct vx_span empty[2] = {{NULL, 0}, {NULL, 0}};
    struct vx_scan scan;
    vx_scan_init(&scan, &(struct vx_spans){NULL, 0, 0});
    ck_assert_uint_eq(vx_scan_left(&scan), 0);
    vx_scan_init(&scan, &(struct vx_spans){empty, 2, 0});
    ck_assert_uint_eq(vx_scan_left(&scan), 0);
    vx_scan_copy(&scan, NULL, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan");
    TCase *tcase = tcase_create("scan");
    tcase_add_test(tcase, fields_are_the_same_over_any_cut);
    tcase_add_loop_test(tcase, bytes_that_are_no_message_are_refused, 0, VX_COUNT(bad));
    tcase_add_test(tcase, wire_types_6_and_7_are_refused);
    tcase_add_test(tcase, nothing_has_no_fields);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
