/* Which streams of a connection may send the rest of their messages.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_windows.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS     4
#define MESSAGE_MAX 1000
#define ROOM        1000
#define MORE        500 /* what gRPC opens of a window */

enum { DATA, HEADERS, RST_STREAM = 3, SETTINGS, WINDOW = 8, END_HEADERS = 4 };

static struct vx_h2_stream rows[STREAMS];
static struct vx_h2_meter meter;
static struct vx_h2_windows windows;

/* A frame of fewer than 1,024 bytes; NULL payload: zeros.  Returns its bytes. */
static size_t frame(u8 *bytes, u8 type, u8 id, const u8 *payload, size_t count)
{
    const u8 flags = type == HEADERS ? END_HEADERS : 0;
    const u8 head[VX_H2_HEAD_BYTES] = {
        0, (u8)(count >> 8), (u8)count, type, flags, 0, 0, 0, id};
    memcpy(bytes, head, sizeof head);
    memset(bytes + sizeof head, 0, count);
    if (payload) memcpy(bytes + sizeof head, payload, count);
    return sizeof head + count;
}

static void client(u8 type, u8 id, const u8 *payload, size_t count)
{
    u8 bytes[VX_H2_HEAD_BYTES + 1024];
    vx_h2_meter_walk(&meter, bytes, frame(bytes, type, id, payload, count));
}

/* The client begins a message of that many bytes on each stream: 1, 3, ... */
static void begin(const u32 lengths[STREAMS])
{
    vx_h2_meter_init(&meter, rows, STREAMS, MESSAGE_MAX);
    windows = (struct vx_h2_windows){0};
    vx_h2_meter_walk(&meter, (const u8 *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     VX_H2_PREFACE_BYTES);
    for (i32 i = 0; i < STREAMS; i++) {
        const u8 id = (u8)(2 * i + 1);
        client(HEADERS, id, (const u8 *)"\x82", 1);
        client(DATA, id, (const u8[]){0, 0, 0, (u8)(lengths[i] >> 8), (u8)lengths[i]},
               VX_H2_PREFIX_BYTES);
    }
}

static size_t update(u8 *bytes, u8 id, u32 more)
{
    const u8 number[4] = {0, 0, (u8)(more >> 8), (u8)more};
    return frame(bytes, WINDOW, id, number, sizeof number);
}

/* gRPC opens the window of a stream.  Returns what the client hears. */
static u32 opens(u8 id, u32 more)
{
    u8 bytes[VX_H2_UPDATE_BYTES];
    struct iovec piece = {bytes, update(bytes, id, more)};
    vx_h2_windows_hold(&windows, &meter, &piece, 1, ROOM);
    vx_h2_windows_sent(&windows, sizeof bytes);
    return (u32)bytes[VX_H2_UPDATE_BYTES - 2] << 8 | bytes[VX_H2_UPDATE_BYTES - 1];
}

static bool is_open(u8 id)
{
    return opens(id, 2) == 2;
}

/* The stream whose window is opened now, which has had 1 of `withheld` + 1; 0 = none. */
static u32 next(u32 withheld)
{
    u8 bytes[VX_H2_UPDATE_BYTES], expected[VX_H2_UPDATE_BYTES];
    struct vx_h2_stream *stream = vx_h2_windows_next(&meter, ROOM);
    if (!stream) return 0;
    vx_h2_windows_frame(stream, bytes);
    vx_h2_windows_opened(&meter, stream);
    update(expected, (u8)stream->id, withheld);
    ck_assert_mem_eq(bytes, expected, sizeof bytes);
    return stream->id;
}

START_TEST(as_many_windows_open_as_there_is_room_for)
{
    begin((const u32[]){400, 400, 400, 400});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == MORE);
    ck_assert(opens(5, MORE) == 1 && opens(7, MORE) == 1);
    ck_assert_int_eq(meter.withheld, 2);
    ck_assert_int_eq(meter.barred, 800);
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 5, NULL, 100); /* the window that all have */
    ck_assert_int_eq(meter.barred, 700);
    client(DATA, 1, NULL, 400);
    ck_assert_uint_eq(next(MORE - 1), 5);
    ck_assert_int_eq(meter.barred, 400);
    ck_assert(is_open(5));
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 3, NULL, 400);
    client(DATA, 5, NULL, 300);
    ck_assert_uint_eq(next(MORE - 1), 7);
    ck_assert(!meter.withheld && !meter.barred);
}
END_TEST

/* gRPC adds to a window as the message comes. */
START_TEST(what_is_withheld_adds_up)
{
    begin((const u32[]){900, 900, 1, 1});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == 1);
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == 1);
    ck_assert_int_eq(meter.withheld, 1);
    client(DATA, 1, NULL, 900);
    ck_assert_uint_eq(next(2 * (MORE - 1)), 3);
}
END_TEST

START_TEST(messages_that_fit_all_come)
{
    begin((const u32[]){200, 200, 200, 400});
    for (u8 id = 1; id <= 7; id += 2) ck_assert_uint_eq(opens(id, MORE), MORE);
    ck_assert(!meter.withheld && !meter.barred);
}
END_TEST

/* Beside a large one smaller ones come, but no second large one; none overtakes it. */
START_TEST(one_large_message_comes_beside_smaller_ones)
{
    begin((const u32[]){900, 100, 900, 100});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == MORE);
    ck_assert(opens(5, MORE) == 1 && opens(7, MORE) == 1);
    client(DATA, 3, NULL, 100);
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 1, NULL, 900);
    ck_assert_uint_eq(next(MORE - 1), 5);
    ck_assert_uint_eq(next(MORE - 1), 7);
    ck_assert_uint_eq(next(0), 0);
}
END_TEST

/* A stream that goes on with another large message waits for those that have waited already. */
START_TEST(a_stream_with_many_messages_waits_its_turn)
{
    begin((const u32[]){900, 900, 900, 900});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == 1);
    client(DATA, 1, NULL, 900);
    client(DATA, 1, (const u8[]){0, 0, 0, 900 >> 8, 900 & 255}, VX_H2_PREFIX_BYTES);
    ck_assert(opens(1, MORE) == 1);
    ck_assert_uint_eq(next(MORE - 1), 3);
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 3, NULL, 900);
    ck_assert_uint_eq(next(MORE - 1), 1);
}
END_TEST

/* Two looks, before each of which so many bytes of the stream come. */
static void look_twice(u8 id, size_t bytes)
{
    for (i32 look = 0; look < VX_H2_STILL_LOOKS; look++) {
        client(DATA, id, NULL, bytes);
        vx_h2_windows_look(&meter);
    }
}

/* Who brings nothing, or a byte now and then, keeps nobody waiting, and counts again when it goes
 * on. */
START_TEST(who_stands_still_counts_no_more)
{
    begin((const u32[]){900, 900, 900, 900});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == 1);
    ck_assert(opens(5, MORE) == 1 && opens(7, MORE) == 1);
    look_twice(1, 4);
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 1, NULL, 1);
    vx_h2_windows_look(&meter);
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 1, NULL, 1);
    vx_h2_windows_look(&meter);
    ck_assert(is_open(1));
    ck_assert_uint_eq(next(MORE - 1), 3);
    look_twice(3, 100);
    client(DATA, 1, NULL, 100);
    vx_h2_windows_look(&meter);
    client(DATA, 3, NULL, 700);
    ck_assert_uint_eq(next(0), 0);
    client(DATA, 1, NULL, 790);
    ck_assert_uint_eq(next(MORE - 1), 5);
}
END_TEST

/* By the whole message, a 240th of which is 3, not by what is left of it, where that is 2: too much
 * is left for a second one to come beside it. */
START_TEST(who_hardly_goes_on_counts_no_more)
{
    begin((const u32[]){900, 900, 900, 900});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == 1);
    client(DATA, 1, NULL, 300);
    vx_h2_windows_look(&meter);
    ck_assert_uint_eq(next(0), 0);
    look_twice(1, 3);
    ck_assert_uint_eq(next(MORE - 1), 3);
}
END_TEST

/* What a stream has beside its message is for the next one, whatever comes on others. */
START_TEST(a_message_may_end_while_its_window_is_held)
{
    begin((const u32[]){900, 900, 900, 900});
    ck_assert(opens(1, MORE) == MORE && opens(3, MORE) == 1 && opens(5, MORE) == 1);
    client(DATA, 5, NULL, 900);
    ck_assert_int_eq(meter.barred, 900);
    ck_assert_uint_eq(next(MORE - 1), 5);
    ck_assert_uint_eq(next(0), 0);
    client(RST_STREAM, 3, NULL, 4);
    ck_assert(!meter.withheld && !meter.barred);
}
END_TEST

START_TEST(other_windows_are_as_gRPC_says)
{
    begin((const u32[]){900, 900, 900, 0});
    ck_assert_uint_eq(opens(1, MORE), MORE);
    ck_assert_uint_eq(opens(0, MORE), MORE);
    ck_assert_uint_eq(opens(9, MORE), MORE); /* there is none */
    ck_assert_uint_eq(opens(7, MORE), MORE); /* it has no message */
    ck_assert_uint_eq(opens(3, 1), 1);
    ck_assert_int_eq(meter.withheld, 0);
    ck_assert_uint_eq(opens(3, MORE), 1);
}
END_TEST

/* What gRPC sends, and what the client is to hear of it. */
static size_t wire_make(u8 *sent, u8 *heard)
{
    static const struct {
        u8 id;
        u32 heard;
    } updates[] = {{1, MORE}, {3, 1}, {0, MORE}, {5, 1}, {1, MORE}};
    size_t length = frame(sent, SETTINGS, 0, NULL, 6);
    memcpy(heard, sent, length);
    for (size_t i = 0; i < VX_COUNT(updates); i++) {
        update(heard + length, updates[i].id, updates[i].heard);
        length += update(sent + length, updates[i].id, MORE);
        frame(heard + length, DATA, 1, NULL, i);
        length += frame(sent + length, DATA, 1, NULL, i);
    }
    return length;
}

static void check_heard(const u8 *sent, const u8 *heard, size_t length)
{
    ck_assert_mem_eq(sent, heard, length);
    ck_assert_int_eq(meter.withheld, 2);
    ck_assert_uint_eq(meter.streams[1].withheld, MORE - 1);
    ck_assert_uint_eq(meter.streams[2].withheld, MORE - 1);
    ck_assert_uint_eq(windows.ahead, 0);
}

static const u32 large[STREAMS] = {900, 900, 900, 900};

/* gRPC's pieces lie anywhere. */
START_TEST(in_pieces_it_is_the_same)
{
    u8 sent[256], heard[256];
    const size_t length = wire_make(sent, heard);
    for (size_t a = 0; a <= length; a++)
        for (size_t b = a; b <= length; b++) {
            begin(large);
            wire_make(sent, heard);
            struct iovec pieces[] = {
                {sent, a}, {sent + a, b - a}, {sent + b, length - b}};
            vx_h2_windows_hold(&windows, &meter, pieces, VX_COUNT(pieces), ROOM);
            vx_h2_windows_sent(&windows, length);
            check_heard(sent, heard, length);
        }
}
END_TEST

/* The system takes a part, or nothing, and gRPC sends the rest again. */
START_TEST(what_is_sent_again_is_the_same)
{
    u8 sent[256], heard[256];
    const size_t length = wire_make(sent, heard);
    for (size_t a = 0; a <= length; a++)
        for (size_t b = a; b <= length; b++) {
            const size_t from[] = {0, a, b, length};
            begin(large);
            wire_make(sent, heard);
            for (i32 i = 0; i < 3; i++) {
                struct iovec piece = {sent + from[i], length - from[i]};
                vx_h2_windows_hold(&windows, &meter, &piece, 1, ROOM);
                vx_h2_windows_sent(&windows, from[i + 1] - from[i]);
            }
            check_heard(sent, heard, length);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("h2_windows");
    TCase *tests = tcase_create("h2_windows");
    tcase_add_test(tests, as_many_windows_open_as_there_is_room_for);
    tcase_add_test(tests, what_is_withheld_adds_up);
    tcase_add_test(tests, messages_that_fit_all_come);
    tcase_add_test(tests, one_large_message_comes_beside_smaller_ones);
    tcase_add_test(tests, a_stream_with_many_messages_waits_its_turn);
    tcase_add_test(tests, who_stands_still_counts_no_more);
    tcase_add_test(tests, who_hardly_goes_on_counts_no_more);
    tcase_add_test(tests, a_message_may_end_while_its_window_is_held);
    tcase_add_test(tests, other_windows_are_as_gRPC_says);
    tcase_add_test(tests, in_pieces_it_is_the_same);
    tcase_add_test(tests, what_is_sent_again_is_the_same);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
