/* Header blocks in the meter: how large they may be, and which end the connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_meter.h"

#include "tests/unit/server/govern/hpack_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { HEADERS = 1, CONTINUATION = 9 };
enum { END_HEADERS = 4, PRIORITY = 32 };

/* A frame's type and its flags in one number. */
#define KIND(type_, flags_) ((u32)(type_) | (u32)(flags_) << 8)

struct client {
    struct vx_h2_stream rows[8];
    struct vx_h2_meter meter;
    u8 id; /* of the last block */
};

static struct client *client_make(void)
{
    static const u8 preface[VX_H2_PREFACE_BYTES];
    struct client *client = calloc(1, sizeof *client);
    vx_h2_meter_init(&client->meter, client->rows, 8, 1000);
    vx_h2_meter_walk(&client->meter, preface, sizeof preface);
    return client;
}

/* The bytes as one frame, a few at a time. */
static void send(struct client *client, u32 kind, const u8 *bytes, size_t count)
{
    enum { PIECE = 1000 };
    u8 head[] = {0, (u8)(count >> 8), (u8)count, (u8)kind, (u8)(kind >> 8), 0, 0, 0, 1};
    if (kind == KIND(HEADERS, END_HEADERS)) head[8] = client->id += 2;
    vx_h2_meter_walk(&client->meter, head, sizeof head);
    for (size_t at = 0; at < count; at += PIECE)
        vx_h2_meter_walk(&client->meter, bytes + at,
                         count - at < PIECE ? count - at : PIECE);
}

static void send_block(struct client *client, const struct hpack_block *block)
{
    send(client, KIND(HEADERS, END_HEADERS), block->bytes, block->length);
}

/* A field with a name and a value of so many characters. */
static void field(struct hpack_block *block, u32 first, size_t name, size_t value)
{
    static const u8 text[4000] = {'a'};
    hpack_byte(block, first);
    hpack_text(block, text, name, false);
    hpack_text(block, text, value, false);
}

#define KEPT    0x40
#define LITERAL 0x00
#define NEWEST  (0x80 | (VX_HPACK_STATIC_COUNT + 1))

/* A name that an earlier block has brought is counted in each field that points to it, and
 * each block by itself. */
START_TEST(decoded_bytes_have_a_limit)
{
    enum { NAME = 4000, TIMES = 7 };
    u32 rest = VX_H2_BLOCK_DECODED_MAX - TIMES * (NAME + VX_HPACK_FIELD_BYTES);
    for (u32 over = 0; over < 2; over++) {
        struct hpack_block *block = calloc(1, sizeof *block);
        struct client *client = client_make();
        field(block, KEPT, NAME, 0);
        send_block(client, block);
        block->length = 0;
        for (u32 i = 0; i < TIMES; i++) hpack_byte(block, NEWEST);
        field(block, LITERAL, 1, rest - VX_HPACK_FIELD_BYTES - 1);
        for (u32 i = 0; i < 3; i++) send_block(client, block);
        ck_assert_int_eq(client->meter.fault, VX_H2_SOUND);
        block->length = 0;
        for (u32 i = 0; i < TIMES; i++) hpack_byte(block, NEWEST);
        field(block, LITERAL, 1, rest - VX_HPACK_FIELD_BYTES - 1 + over);
        send_block(client, block);
        ck_assert_int_eq(client->meter.fault, over ? VX_H2_BLOCK_LONG : VX_H2_SOUND);
        free(client);
        free(block);
    }
}
END_TEST

/* The frames of a block count together, and not what stands before its fields. */
START_TEST(frames_of_a_block_count_together)
{
    u32 most = VX_H2_BLOCK_DECODED_MAX / (VX_HPACK_FIELD_BYTES + 1);
    for (u32 over = 0; over < 2; over++) {
        struct hpack_block *block = calloc(1, sizeof *block);
        struct client *client = client_make();
        for (u32 i = 0; i < 5; i++) hpack_byte(block, 0xff);
        for (u32 i = 0; i < most + over; i++) field(block, LITERAL, 1, 0);
        size_t half = block->length / 2;
        send(client, KIND(HEADERS, PRIORITY), block->bytes, half);
        ck_assert_int_eq(client->meter.fault, VX_H2_SOUND);
        send(client, KIND(CONTINUATION, END_HEADERS), block->bytes + half,
             block->length - half);
        ck_assert_int_eq(client->meter.fault, over ? VX_H2_BLOCK_LONG : VX_H2_SOUND);
        free(client);
        free(block);
    }
}
END_TEST

/* By gRPC's count, 8 KiB with 32 bytes for each field: all that it takes is taken, whatever
 * the number of fields. */
START_TEST(what_grpc_takes_is_taken)
{
    enum { GRPC_MAX = 8192, GRPC_FIELD = 32 };
    for (u32 fields = 3; fields <= GRPC_MAX / GRPC_FIELD; fields++) {
        struct hpack_block *block = calloc(1, sizeof *block);
        struct client *client = client_make();
        u32 texts = GRPC_MAX - fields * GRPC_FIELD;
        for (u32 i = 0; i < fields; i++)
            field(block, LITERAL, texts / fields + (i < texts % fields), 0);
        send_block(client, block);
        ck_assert_int_eq(client->meter.fault, VX_H2_SOUND);
        ck_assert_uint_eq(client->meter.hpack.decoded,
                          texts + fields * VX_HPACK_FIELD_BYTES);
        free(client);
        free(block);
    }
}
END_TEST

/* What gRPC may go on behind, reading otherwise than we do. */
START_TEST(broken_blocks)
{
    static const struct {
        u8 flags, bytes[8];
        u32 count;
        enum vx_h2_fault fault;
    } blocks[] = {
        {END_HEADERS, {0x82, 0x40, 1, 'a', 1, 'b'}, 6, VX_H2_SOUND},
        {END_HEADERS, {0}, 0, VX_H2_SOUND},
        {END_HEADERS, {0x82, 0x40, 1, 'a', 1}, 5, VX_H2_BLOCK_BROKEN}, /* half a field */
        {END_HEADERS, {0x82, 0xff}, 2, VX_H2_BLOCK_BROKEN},
        {END_HEADERS, {0x82, 0x40}, 2, VX_H2_BLOCK_BROKEN},
        {0, {0x82, 0x40, 1, 'a', 1}, 5, VX_H2_SOUND}, /* the rest is to come */
        {END_HEADERS | PRIORITY, {0, 0, 0, 0, 0}, 5, VX_H2_SOUND},
        {END_HEADERS | PRIORITY, {0, 0, 0, 0}, 4, VX_H2_BLOCK_BROKEN},
        {PRIORITY, {0}, 0, VX_H2_BLOCK_BROKEN},
        {END_HEADERS, {0x00, 1, 'a', 0x81, 0x1f}, 5, VX_H2_SOUND},
        {END_HEADERS, {0x00, 1, 'a', 0x81, 0x1e}, 5, VX_H2_BLOCK_BROKEN}, /* padding */
        {0, {0x00, 1, 'a', 0x81, 0x1e}, 5, VX_H2_BLOCK_BROKEN},
    };
    for (size_t i = 0; i < VX_COUNT(blocks); i++) {
        struct client *client = client_make();
        send(client, KIND(HEADERS, blocks[i].flags), blocks[i].bytes, blocks[i].count);
        ck_assert_msg(client->meter.fault == blocks[i].fault, "row %zu", i);
        free(client);
    }
}
END_TEST

/* The first fault counts, wherever the bytes are cut: these come at once. */
START_TEST(too_large_and_then_broken)
{
    static const u8 broken[] = {0x00, 1, 'a', 0x81, 0x1e};
    struct hpack_block *block = calloc(1, sizeof *block);
    struct client *client = client_make();
    field(block, KEPT, 4000, 0);
    send_block(client, block);
    block->length = 0;
    for (u32 i = 0; i < 9; i++) hpack_byte(block, NEWEST);
    for (size_t i = 0; i < sizeof broken; i++) hpack_byte(block, broken[i]);
    send_block(client, block);
    ck_assert_int_eq(client->meter.fault, VX_H2_BLOCK_LONG);
    free(client);
    free(block);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("h2_blocks");
    TCase *tests = tcase_create("h2_blocks");
    tcase_add_test(tests, decoded_bytes_have_a_limit);
    tcase_add_test(tests, frames_of_a_block_count_together);
    tcase_add_test(tests, what_grpc_takes_is_taken);
    tcase_add_test(tests, broken_blocks);
    tcase_add_test(tests, too_large_and_then_broken);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
