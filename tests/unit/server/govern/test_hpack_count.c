/* Header blocks: what they cost when they are decoded, and how much that may be.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_meter.h"

#include "tests/unit/server/govern/hpack_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define NEWEST (VX_HPACK_STATIC_COUNT + 1)

static void walk(struct vx_hpack_count *count, const struct hpack_block *block,
                 size_t piece)
{
    vx_hpack_begin(count);
    for (size_t at = 0; at < block->length; at += piece) {
        size_t left = block->length - at;
        vx_hpack_walk(count, block->bytes + at, left < piece ? left : piece);
    }
}

/* ------- the examples of RFC 7541 ------- */

/* A block, the texts that it has when decoded, and the table behind it: its size and the
 * lengths of its entries, newest first. */
struct example {
    const char *bytes; /* in hex; an empty one: another connection begins */
    u32 texts, fields, used;
    u32 entries[5];
};

static const struct example examples[] = {
    {"", 0, 0, 0, {0}},
    {"400a637573746f6d2d6b65790d637573746f6d2d686561646572", 23, 1, 55, {23}}, /* C.2.1 */
    {"", 0, 0, 0, {0}},
    {"040c2f73616d706c652f70617468", 17, 1, 0, {0}}, /* C.2.2 */
    {"100870617373776f726406736563726574", 14, 1, 0, {0}},
    {"82", 10, 1, 0, {0}},
    {"", 0, 0, 0, {0}},
    {"828684410f7777772e6578616d706c652e636f6d", 52, 4, 57, {25}}, /* C.3 */
    {"828684be58086e6f2d6361636865", 73, 5, 110, {21, 25}},
    {"828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
     85,
     5,
     164,
     {22, 21, 25}},
    {"", 0, 0, 0, {0}},
    {"828684418cf1e3c2e5f23a6ba0ab90f4ff", 52, 4, 57, {25}}, /* C.4: Huffman */
    {"828684be5886a8eb10649cbf", 73, 5, 110, {21, 25}},
    {"828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", 85, 5, 164, {22, 21, 25}},
    {"", 0, 0, 0, {0}},
    {"3fe101", 0, 0, 0, {0}}, /* C.5: a table of 256 bytes */
    {"4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a3231"
     "20474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
     94,
     4,
     222,
     {31, 33, 20, 10}},
    {"4803333037c1c0bf", 94, 4, 222, {10, 31, 33, 20}},
    {"88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a6970"
     "7738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167"
     "653d333630303b2076657273696f6e3d31",
     180,
     6,
     215,
     {66, 20, 33}},
    {"", 0, 0, 0, {0}},
    {"3fe101", 0, 0, 0, {0}}, /* C.6: the same, Huffman */
    {"488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad17"
     "1863c78f0b97c8e9ae82ae43d3",
     94,
     4,
     222,
     {31, 33, 20, 10}},
    {"4883640effc1c0bf", 94, 4, 222, {10, 31, 33, 20}},
    {"88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6"
     "c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
     180,
     6,
     215,
     {66, 20, 33}},
};

static void from_hex(struct hpack_block *block, const char *hex)
{
    block->length = 0;
    for (; *hex; hex += 2) {
        char byte[3] = {hex[0], hex[1]};
        hpack_byte(block, (u32)strtoul(byte, NULL, 16));
    }
}

static void expect(const struct vx_hpack_count *count, const struct example *example)
{
    struct vx_hpack_field field;
    u32 entries = 0;
    for (; example->entries[entries]; entries++) {
        ck_assert(vx_hpack_table_find(&count->table, NEWEST + entries, &field));
        ck_assert_uint_eq(field.name + field.value, example->entries[entries]);
    }
    ck_assert_uint_eq(count->table.count, entries);
    ck_assert_uint_eq(count->table.used, example->used);
    ck_assert_uint_eq(count->decoded,
                      example->texts + example->fields * VX_HPACK_FIELD_BYTES);
    ck_assert(vx_hpack_is_whole(count));
    ck_assert(!count->broken);
}

START_TEST(examples_of_the_standard)
{
    struct hpack_block *block = calloc(1, sizeof *block);
    for (size_t piece = 1; piece < 130; piece++) {
        struct vx_hpack_count count;
        for (size_t i = 0; i < VX_COUNT(examples); i++) {
            if (!*examples[i].bytes) vx_hpack_init(&count);
            from_hex(block, examples[i].bytes);
            walk(&count, block, piece);
            expect(&count, &examples[i]);
        }
    }
    free(block);
}
END_TEST

/* ------- numbers ------- */

/* Zeros behind a number, as many as gRPC takes, change nothing: the 130 bytes are text, and
 * what follows are fields. */
START_TEST(zeros_behind_a_number)
{
    static const u8 text[130] = {0x82, 0x82};
    struct hpack_block *block = calloc(1, sizeof *block);
    for (u32 zeros = 0; zeros < 20; zeros++) {
        struct vx_hpack_count count;
        vx_hpack_init(&count);
        *block = (struct hpack_block){.zeros = zeros};
        hpack_number(block, 0x20, 5, 200); /* the table's size */
        hpack_byte(block, 0x40);
        hpack_text(block, (const u8 *)"x", 1, false);
        hpack_text(block, text, sizeof text, false);
        hpack_number(block, 0x0, 4, 17); /* accept-language */
        hpack_text(block, text, 0, false);
        for (u32 i = 0; i < 9; i++) hpack_byte(block, 0x82);
        for (size_t piece = 1; piece < 12; piece++) {
            vx_hpack_init(&count);
            walk(&count, block, piece);
            ck_assert_uint_eq(count.decoded,
                              131 + 15 + 9 * 10 + 11 * VX_HPACK_FIELD_BYTES);
            ck_assert_uint_eq(count.table.bytes, 200);
            ck_assert_uint_eq(count.table.used, 163);
            ck_assert(vx_hpack_is_whole(&count));
        }
    }
    free(block);
}
END_TEST

/* The largest number that gRPC takes, and larger ones; places where nothing is. */
START_TEST(large_numbers)
{
    static const struct {
        u8 bytes[16];
        u32 count, fields;
        bool whole;
    } blocks[] = {
        {{0xff, 0x80, 0xff, 0xff, 0xff, 0x0f}, 6, 1, true}, /* 2^32 - 1 */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 9, 1, true},
        {{0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}, 8, 0, false},
        {{0x00, 0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f, 0x82, 0x82}, 9, 0, false},
        {{0x80}, 1, 1, true}, /* no place */
        {{0x40, 0}, 2, 0, false},
        {{0x40, 0, 0}, 3, 1, true}, /* texts without a character */
        {{0x41}, 1, 0, false},
        {{0x0f}, 1, 0, false},
        {{0xc0, 0x7f, 0x10}, 3, 1, false}, /* beyond the table, and a name there */
    };
    for (size_t i = 0; i < VX_COUNT(blocks); i++) {
        struct vx_hpack_count count;
        vx_hpack_init(&count);
        vx_hpack_walk(&count, blocks[i].bytes, blocks[i].count);
        ck_assert_msg(vx_hpack_is_whole(&count) == blocks[i].whole, "row %zu", i);
        ck_assert_uint_eq(count.decoded, blocks[i].fields * VX_HPACK_FIELD_BYTES);
        ck_assert(!count.broken);
    }
}
END_TEST

/* From a broken text on nothing is read. */
START_TEST(broken_text)
{
    static const u8 bytes[] = {0x82, 0x00, 1, 'a', 0x81, 0x00, 0x82, 0x82};
    for (size_t piece = 1; piece <= sizeof bytes; piece++) {
        struct hpack_block block = {.length = sizeof bytes};
        struct vx_hpack_count count;
        memcpy(block.bytes, bytes, sizeof bytes);
        vx_hpack_init(&count);
        walk(&count, &block, piece);
        ck_assert(count.broken);
        ck_assert_uint_le(count.decoded, 12 + 2 * VX_HPACK_FIELD_BYTES);
    }
}
END_TEST

/* ------- random blocks, and a table of texts beside ours ------- */

struct kept {
    u8 name[96], value[2048];
    u32 name_length, value_length, bytes;
    bool binary;
};

struct encoder {
    struct kept entries[200]; /* newest first */
    u32 count, bytes;
    u64 decoded;
    struct hpack_block block;
};

static void encoder_fit(struct encoder *encoder, u32 most)
{
    u32 used = 0, kept = 0;
    while (kept < encoder->count && used + encoder->entries[kept].bytes <= most)
        used += encoder->entries[kept++].bytes;
    encoder->count = kept;
}

static void encoder_keep(struct encoder *encoder, const struct kept *one)
{
    encoder_fit(encoder, one->bytes > encoder->bytes ? 0 : encoder->bytes - one->bytes);
    if (one->bytes > encoder->bytes) return;
    memmove(encoder->entries + 1, encoder->entries, encoder->count * sizeof *one);
    encoder->entries[0] = *one;
    encoder->count++;
}

static u32 random_text(u8 *text, u32 most)
{
    u32 length = hpack_random(hpack_random(20) ? 16 : most);
    for (u32 i = 0; i < length; i++) text[i] = (u8)(1 + hpack_random(255));
    return length;
}

/* A value of a binary field as it is written; the field has its decoded length. */
static void write_binary(struct encoder *encoder, struct kept *one)
{
    u8 text[sizeof one->value + 4] = {0};
    u32 bytes = hpack_random(hpack_random(20) ? 16 : 1024), length = (bytes * 8 + 5) / 6;
    one->value_length = bytes;
    if (hpack_random(2)) {
        length = bytes + 1; /* as it is, behind a zero */
    } else {
        memset(text, 'A', length);
        while (length % 4 && hpack_random(2)) text[length++] = '=';
    }
    hpack_text(&encoder->block, text, length, hpack_random(2));
}

static void write_value(struct encoder *encoder, struct kept *one)
{
    if (one->binary) {
        write_binary(encoder, one);
        return;
    }
    one->value_length = random_text(one->value, sizeof one->value);
    hpack_text(&encoder->block, one->value, one->value_length, hpack_random(2));
}

static void write_name(struct encoder *encoder, struct kept *one)
{
    one->name_length = random_text(one->name, sizeof one->name - 4);
    one->binary = !hpack_random(3);
    if (one->binary) memcpy(one->name + one->name_length, "-bin", 4);
    if (one->binary) one->name_length += 4;
    hpack_text(&encoder->block, one->name, one->name_length, hpack_random(2));
}

static void write_literal(struct encoder *encoder)
{
    struct kept one = {0};
    bool keep = hpack_random(3), known = encoder->count && hpack_random(3);
    u32 place = known ? hpack_random(encoder->count) : 0;
    if (known) one = encoder->entries[place];
    hpack_number(&encoder->block,
                 keep              ? 0x40
                 : hpack_random(2) ? 0x10
                                   : 0,
                 keep ? 6 : 4, known ? NEWEST + place : 0);
    if (!known) write_name(encoder, &one);
    write_value(encoder, &one);
    one.bytes = one.name_length + one.value_length + VX_HPACK_ENTRY_BYTES;
    encoder->decoded += one.bytes - VX_HPACK_ENTRY_BYTES + VX_HPACK_FIELD_BYTES;
    if (keep) encoder_keep(encoder, &one);
}

static void write_field(struct encoder *encoder)
{
    u32 kind = hpack_random(10), place = hpack_random(encoder->count + 1);
    encoder->block.zeros = hpack_random(5) ? 0 : hpack_random(5);
    if (kind == 0) {
        encoder->bytes = hpack_random(2) ? VX_HPACK_TABLE_BYTES
                                         : hpack_random(VX_HPACK_TABLE_BYTES + 1);
        hpack_number(&encoder->block, 0x20, 5, encoder->bytes);
        encoder_fit(encoder, encoder->bytes);
    } else if (kind < 5 && place < encoder->count) {
        hpack_number(&encoder->block, 0x80, 7, NEWEST + place);
        encoder->decoded +=
            encoder->entries[place].bytes - VX_HPACK_ENTRY_BYTES + VX_HPACK_FIELD_BYTES;
    } else {
        write_literal(encoder);
    }
}

static void expect_same(const struct vx_hpack_count *count, const struct encoder *encoder)
{
    struct vx_hpack_field field;
    ck_assert_uint_eq(count->decoded, encoder->decoded);
    ck_assert_uint_eq(count->table.count, encoder->count);
    for (u32 i = 0; i < encoder->count; i++) {
        ck_assert(vx_hpack_table_find(&count->table, NEWEST + i, &field));
        ck_assert_uint_eq(field.name, encoder->entries[i].name_length);
        ck_assert_uint_eq(field.value, encoder->entries[i].value_length);
        ck_assert_int_eq(field.binary, encoder->entries[i].binary);
    }
    ck_assert(vx_hpack_is_whole(count));
    ck_assert(!count->broken);
}

START_TEST(random_blocks)
{
    struct encoder *encoder = calloc(1, sizeof *encoder);
    for (u32 connection = 0; connection < 40; connection++) {
        struct vx_hpack_count count;
        vx_hpack_init(&count);
        encoder->count = 0;
        encoder->bytes = VX_HPACK_TABLE_BYTES;
        for (u32 i = 0; i < 60; i++) {
            encoder->block.length = encoder->decoded = 0;
            for (u32 fields = hpack_random(20); fields; fields--) write_field(encoder);
            walk(&count, &encoder->block, 1 + hpack_random(hpack_random(2) ? 9 : 5000));
            expect_same(&count, encoder);
        }
    }
    free(encoder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hpack_count");
    TCase *tests = tcase_create("hpack_count");
    tcase_add_test(tests, examples_of_the_standard);
    tcase_add_test(tests, zeros_behind_a_number);
    tcase_add_test(tests, large_numbers);
    tcase_add_test(tests, broken_text);
    tcase_add_test(tests, random_blocks);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
