/* The meter of HTTP/2 frames: whole messages that wait in gRPC, by their streams; messages in
 * small frames.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_whole.h"

#include <check.h>
#include <stdlib.h>

#define STREAMS     4
#define BUFFER      8192
#define MESSAGE_MAX 1000

enum { DATA, HEADERS, RST_STREAM = 3, END_STREAM = 1, END_HEADERS = 4 };

static struct vx_h2_stream rows[STREAMS];
static struct vx_h2_meter meter;

static void frame(u8 type, u8 flags, u8 id, u8 length)
{
    u8 bytes[9 + 255] = {0, 0, length, type, flags, 0, 0, 0, id};
    if (type == HEADERS) bytes[9] = 0x82;
    vx_h2_meter_walk(&meter, bytes, 9u + length);
}

static void pinned(u8 flags, u8 id)
{
    vx_h2_meter_buffer(&meter, BUFFER);
    frame(DATA, flags, id, 5); /* a message of no bytes */
}

/* Two streams, of which gRPC has given us the first message each. */
static void begin(void)
{
    vx_h2_meter_init(&meter, rows, STREAMS, MESSAGE_MAX);
    vx_h2_meter_walk(&meter, (const u8 *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     VX_H2_PREFACE_BYTES);
    for (u8 id = 1; id <= 3; id += 2) {
        frame(HEADERS, END_HEADERS, id, 1);
        frame(DATA, 0, id, 5);
    }
}

/* Messages of a stream that is read, which lie beside others, take nothing from what those of
 * the other stream keep. */
START_TEST(messages_that_are_taken_leave_those_of_others)
{
    begin();
    for (i32 i = 1; i <= 50; i++) {
        pinned(0, 1);
        for (i32 k = 0; k < 20; k++) frame(DATA, 0, 3, 5);
        for (i32 k = 0; k < 20; k++) vx_h2_meter_taken(&meter);
        ck_assert_int_eq(meter.waiting, i);
        ck_assert_int_eq(vx_h2_meter_waste(&meter), i * (BUFFER - 5));
    }
    for (i32 i = 0; i < 50; i++) vx_h2_meter_taken(&meter);
    ck_assert_int_eq(meter.waiting, 0);
    ck_assert_int_eq(vx_h2_meter_waste(&meter), 0);
}
END_TEST

static void sent(u8 type, u8 flags, u8 id)
{
    u8 bytes[9] = {0, 0, 0, type, flags, 0, 0, 0, id};
    vx_h2_meter_sent(&meter, bytes, sizeof bytes);
}

/* What waits on a stream is gone with it: either side resets it, or both have ended it. */
START_TEST(a_stream_that_is_over_keeps_nothing)
{
    begin();
    pinned(0, 1);
    frame(RST_STREAM, 0, 1, 4);
    ck_assert_int_eq(meter.waiting, 0);
    pinned(0, 3);
    sent(RST_STREAM, 0, 3);
    ck_assert_int_eq(meter.waiting, 0);
    begin();
    pinned(0, 1);
    pinned(END_STREAM, 3);
    frame(DATA, 0, 3, 5); /* after its end: gRPC takes none */
    ck_assert_int_eq(meter.waiting, 2);
    sent(HEADERS, END_HEADERS, 3);
    ck_assert_int_eq(meter.waiting, 2);
    sent(HEADERS, END_HEADERS | END_STREAM, 3);
    ck_assert_int_eq(meter.waiting, 1);
    ck_assert_int_eq(vx_h2_meter_waste(&meter), BUFFER - 5);
    ck_assert_int_eq(meter.streams_count, 1);
}
END_TEST

/* Whichever side is the first; or either resets it. */
START_TEST(a_stream_is_over_when_both_sides_have_ended_it)
{
    begin();
    pinned(0, 1);
    pinned(END_STREAM, 1);
    vx_h2_meter_taken(&meter);
    vx_h2_meter_taken(&meter);
    vx_h2_meter_taken(&meter); /* one more than it knows of */
    ck_assert_int_eq(meter.waiting, 0);
    ck_assert_int_eq(meter.streams_count, 2);
    sent(DATA, 0, 1);
    ck_assert_int_eq(meter.streams_count, 2);
    sent(HEADERS, END_HEADERS | END_STREAM, 1);
    ck_assert_int_eq(meter.streams_count, 1);
    sent(HEADERS, END_HEADERS | END_STREAM, 3);
    ck_assert_int_eq(meter.streams_count, 1);
    pinned(END_STREAM, 3);
    ck_assert_int_eq(meter.streams_count, 0);
    begin();
    pinned(END_STREAM, 1);
    frame(RST_STREAM, 0, 1, 4);
    pinned(END_STREAM, 3);
    sent(RST_STREAM, 0, 3);
    ck_assert_int_eq(meter.streams_count, 0);
}
END_TEST

static void large_begin(i64 message_bytes_max)
{
    vx_h2_meter_init(&meter, rows, STREAMS, message_bytes_max);
    vx_h2_meter_walk(&meter, (const u8 *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     VX_H2_PREFACE_BYTES);
}

/* A message of VX_H2_MESSAGE_WHOLE bytes in one frame. */
static void large_comes(u8 id)
{
    static u8 bytes[VX_H2_HEAD_BYTES + VX_H2_PREFIX_BYTES + VX_H2_MESSAGE_WHOLE];
    const u32 length = VX_H2_PREFIX_BYTES + VX_H2_MESSAGE_WHOLE;
    bytes[0] = length >> 16, bytes[1] = (u8)(length >> 8), bytes[2] = (u8)length;
    bytes[8] = id;
    bytes[VX_H2_HEAD_BYTES + 2] = VX_H2_MESSAGE_WHOLE >> 16;
    vx_h2_meter_walk(&meter, bytes, sizeof bytes);
}

/* A large message that is whole counts until it is received, also when its stream is over. */
START_TEST(a_whole_message_counts_until_it_is_received)
{
    large_begin(2 * VX_H2_MESSAGE_WHOLE);
    for (u8 id = 1; id <= 5; id += 2) {
        frame(HEADERS, END_HEADERS, id, 1);
        large_comes(id);
    }
    ck_assert_int_eq(meter.whole, 3 * VX_H2_MESSAGE_WHOLE);
    vx_h2_whole_received(&meter, VX_H2_MESSAGE_WHOLE + 1); /* there is none */
    ck_assert_int_eq(meter.whole, 3 * VX_H2_MESSAGE_WHOLE);
    vx_h2_whole_received(&meter, VX_H2_MESSAGE_WHOLE);
    ck_assert_int_eq(meter.whole, 2 * VX_H2_MESSAGE_WHOLE);
    large_comes(1); /* the next message of a stream, too */
    ck_assert_int_eq(meter.whole, 3 * VX_H2_MESSAGE_WHOLE);
    frame(RST_STREAM, 0, 3, 4);
    sent(RST_STREAM, 0, 5);
    frame(RST_STREAM, 0, 1, 4);
    ck_assert_int_eq(meter.whole, 3 * VX_H2_MESSAGE_WHOLE); /* we may have them */
    ck_assert_int_eq(meter.orphans, 3);
    vx_h2_whole_received(&meter, VX_H2_MESSAGE_WHOLE);
    ck_assert_int_eq(meter.whole, 2 * VX_H2_MESSAGE_WHOLE);
    vx_h2_whole_orphans(&meter, 2);
    ck_assert_int_eq(meter.whole, 2 * VX_H2_MESSAGE_WHOLE);
    vx_h2_whole_orphans(&meter, 1);
    ck_assert_int_eq(meter.whole, VX_H2_MESSAGE_WHOLE);
    vx_h2_whole_received(&meter,
                         VX_H2_MESSAGE_WHOLE - 1); /* of which the mean was kept */
    ck_assert_int_eq(meter.whole, 0);
    vx_h2_whole_received(&meter, VX_H2_MESSAGE_WHOLE);
    ck_assert(!meter.whole && !meter.orphans && !meter.orphaned);
}
END_TEST

/* gRPC drops one that is too large, and no thread of ours ever has it. */
START_TEST(a_message_that_is_too_large_does_not_wait_for_us)
{
    large_begin(VX_H2_MESSAGE_WHOLE - 1);
    frame(HEADERS, END_HEADERS, 1, 1);
    large_comes(1);
    ck_assert_uint_eq(meter.finished, 1);
    ck_assert_int_eq(meter.whole, 0);
}
END_TEST

/* Frames with bytes of a message are an eighth of a unit, others are one. */
START_TEST(small_frames_of_a_message_cost_little)
{
    begin();
    u64 before = meter.work + 1; /* two frames have begun a unit */
    frame(DATA, 0, 1, 4);
    for (i32 i = 0; i < 800; i++) frame(DATA, 0, 3, 1);
    ck_assert_uint_ge(meter.work, before + 99);
    ck_assert_uint_le(meter.work, before + 101);
    before = meter.work;
    for (i32 i = 0; i < 800; i++) frame(DATA, 0, 1, 0);
    ck_assert_uint_eq(meter.work, before + 800);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("h2_waiting");
    TCase *tests = tcase_create("h2_waiting");
    tcase_add_test(tests, messages_that_are_taken_leave_those_of_others);
    tcase_add_test(tests, a_stream_that_is_over_keeps_nothing);
    tcase_add_test(tests, a_stream_is_over_when_both_sides_have_ended_it);
    tcase_add_test(tests, a_whole_message_counts_until_it_is_received);
    tcase_add_test(tests, a_message_that_is_too_large_does_not_wait_for_us);
    tcase_add_test(tests, small_frames_of_a_message_cost_little);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
