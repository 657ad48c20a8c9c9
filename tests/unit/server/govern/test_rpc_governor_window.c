/* Who sends more than HTTP/2's flow control lets it, on connections that nothing else reads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/govern/rpc_govern_private.h"
#include "server/rpc/rpc_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* WINDOW_UPDATE of a stream, 0 = the connection, by 70,000; the reserved bit is set. */
#define UPDATE(id_)                                                                      \
    {                                                                                    \
        0, 0, 4, 8, 0, 0, 0, 0, (id_), 0x80, 1, 0x11, 0x70                               \
    }
#define UPDATE_BYTES 70000

static i64 *window_of(i32 i)
{
    return &vx_rpc_governor_row(rig_governor, i)->meter.window;
}

/* Writes to the client, as gRPC does, in pieces. */
static void rig_write(i32 i, const u8 *bytes, size_t count, size_t piece)
{
    for (size_t at = 0; at < count; at += piece) {
        size_t left = count - at;
        struct iovec part = {(void *)(uintptr_t)(bytes + at),
                             left < piece ? left : piece};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        ck_assert_int_eq(vx_rpc_govern_write(rig_ours[i], &message, 0),
                         (ssize_t)part.iov_len);
    }
}

/* A connection whose window has `left` bytes, after the beginning of a message. */
static i32 half(i64 left)
{
    const size_t bytes = 1000;
    i32 one = rig_connect();
    *window_of(one) = (i64)bytes + VX_H2_PREFIX_BYTES + left;
    rig_greet(one);
    rig_call(one, 1);
    ck_assert(raw_message(rig_theirs[one], 1, 65000, bytes + VX_H2_PREFIX_BYTES));
    rig_read_all(one);
    ck_assert_int_eq(*window_of(one), left);
    return one;
}

START_TEST(a_new_connection_has_the_first_window)
{
    struct vx_h2_meter meter;
    struct vx_h2_stream streams[1];
    vx_h2_meter_init(&meter, streams, 1, 1 << 20);
    ck_assert_int_eq(meter.window, 65535);
}
END_TEST

/* The last byte of the window is the client's, the next one is not. */
START_TEST(more_than_the_window_ends_a_connection)
{
    rig_open(0);
    i32 within = half(5000), beyond = half(4999);
    ck_assert(raw_rest(rig_theirs[within], 1, 5000));
    ck_assert(raw_rest(rig_theirs[beyond], 1, 5000));
    rig_read_all(within);
    rig_read_all(beyond);
    ck_assert(!rig_is_closed(within));
    ck_assert_int_eq(*window_of(beyond), -1);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, beyond)->cut, VX_RPC_CUT_WINDOW);
    rig_close();
}
END_TEST

/* DATA of a stream that is over, or never was, is of the connection's window, too. */
START_TEST(data_of_no_stream_counts)
{
    rig_open(0);
    i32 one = half(100);
    ck_assert(raw_rest(rig_theirs[one], 7, 60));
    rig_read_all(one);
    ck_assert(!rig_is_closed(one));
    ck_assert(raw_rest(rig_theirs[one], 9, 60));
    rig_read_all(one);
    ck_assert(rig_is_closed(one));
    rig_close();
}
END_TEST

/* An update of the connection counts however it is cut; one of a stream does not. */
START_TEST(updates_that_we_send_count)
{
    static const u8 connection[] = UPDATE(0), stream[] = UPDATE(1);
    const size_t piece = (size_t)_i + 1;
    rig_open(0);
    i32 one = half(0), other = half(0);
    rig_write(one, connection, sizeof connection, piece);
    rig_write(other, stream, sizeof stream, piece);
    ck_assert_int_eq(*window_of(one), UPDATE_BYTES);
    ck_assert_int_eq(*window_of(other), 0);
    ck_assert(raw_rest(rig_theirs[one], 1, 60000));
    ck_assert(raw_rest(rig_theirs[other], 1, 1));
    rig_read_all(one);
    rig_read_all(other);
    ck_assert(!rig_is_closed(one));
    ck_assert(rig_is_closed(other));
    rig_close();
}
END_TEST

/* ------- windows of streams ------- */

/* A connection of which each stream has a window of so many bytes; the first has begun a message with
 * none of them left. */
static i32 spent(i64 window)
{
    i32 one = rig_connect();
    vx_rpc_governor_row(rig_governor, one)->meter.stream_window = window;
    rig_greet(one);
    for (u32 id = 1; id <= 3; id += 2) rig_call(one, id);
    ck_assert(raw_message(rig_theirs[one], 1, 65000, (size_t)window));
    rig_read_all(one);
    ck_assert(!rig_is_closed(one));
    return one;
}

/* Those that are open then, and those that come: once, and not for SETTINGS of the client's own. */
START_TEST(streams_have_more_when_the_client_has_confirmed_it)
{
    struct vx_h2_stream streams[1], *stream;
    struct vx_h2_meter meter;
    vx_h2_meter_init(&meter, streams, 1, 1 << 20);
    ck_assert_int_eq(meter.stream_window, 65535);
    rig_open(0);
    i32 one = spent(1000);
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    stream = vx_h2_meter_stream(&row->meter, 1);
    for (u8 ack = 0; ack < 3; ack++) {
        const struct raw_frame settings = {.type = RAW_SETTINGS, .flags = ack > 0};
        ck_assert(raw_send(rig_theirs[one], &settings));
        rig_read_all(one);
        ck_assert_int_eq(stream->credit, ack ? 131072 - 65535 : 0);
        ck_assert_int_eq(row->meter.stream_window, 1000 + stream->credit);
    }
    rig_close();
}
END_TEST

START_TEST(more_than_a_streams_window_ends_a_connection)
{
    rig_open(0);
    i32 within = spent(1000), beyond = spent(1000);
    ck_assert(raw_rest(rig_theirs[within], 3, 1000)); /* each has its own */
    ck_assert(raw_rest(rig_theirs[beyond], 1, 1));
    rig_read_all(within);
    rig_read_all(beyond);
    ck_assert(!rig_is_closed(within));
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, beyond)->cut, VX_RPC_CUT_WINDOW);
    rig_close();
}
END_TEST

START_TEST(updates_of_a_stream_are_its_own)
{
    static const u8 connection[] = UPDATE(0), first[] = UPDATE(1);
    const size_t piece = (size_t)_i + 1;
    rig_open(0);
    i32 one = spent(1000), other = spent(1000);
    rig_write(one, first, sizeof first, piece);
    rig_write(other, connection, sizeof connection, piece);
    ck_assert(raw_rest(rig_theirs[one], 1, 60000));
    ck_assert(raw_rest(rig_theirs[other], 1, 1));
    rig_read_all(one);
    rig_read_all(other);
    ck_assert(!rig_is_closed(one));
    ck_assert(rig_is_closed(other));
    rig_close();
}
END_TEST

/* One may use its update before we count it, and end in the same breath. */
START_TEST(a_stream_that_ends_owes_nothing)
{
    static const u8 first[] = UPDATE(1);
    const struct raw_frame reset = {.type = RAW_RESET, .id = 1, .length = 4};
    rig_open(0);
    for (i32 ends = 0; ends < 2; ends++) {
        i32 one = spent(1000);
        struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
        row->writing++; /* another thread */
        ck_assert(raw_rest(rig_theirs[one], 1, 20));
        if (ends) ck_assert(raw_send(rig_theirs[one], &reset));
        rig_read_all(one);
        ck_assert(!rig_is_closed(one));
        row->writing--;
        rig_write(one, first, sizeof first, sizeof first);
        ck_assert(!rig_is_closed(one));
        ck_assert_int_eq(row->meter.overdrawn, 0);
    }
    rig_close();
}
END_TEST

/* While a write goes on, its update may have come before we count it. */
START_TEST(a_write_that_goes_on_is_waited_for)
{
    static const u8 connection[] = UPDATE(0), nothing[VX_H2_HEAD_BYTES] = {0};
    rig_open(0);
    for (i32 updates = 0; updates < 2; updates++) {
        i32 one = half(10);
        struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
        row->writing++; /* another thread */
        ck_assert(raw_rest(rig_theirs[one], 1, 20));
        rig_read_all(one);
        ck_assert(!rig_is_closed(one));
        if (updates) rig_write(one, connection, sizeof connection, sizeof connection);
        row->writing--;
        ck_assert(!rig_is_closed(one));
        rig_write(one, nothing, sizeof nothing, sizeof nothing);
        ck_assert(rig_is_closed(one) == !updates);
    }
    rig_close();
}
END_TEST

/* A TLS session sends records one by one, and says of several that none was sent. */
START_TEST(what_a_session_keeps_is_waited_for)
{
    rig_open(0);
    for (i32 secure = 0; secure < 2; secure++) {
        i32 one = half(10);
        struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
        row->writing++;
        ck_assert(raw_rest(rig_theirs[one], 1, 20));
        rig_read_all(one);
        row->writing--;
        row->windows.ahead = 100;
        row->session = secure ? (void *)row : NULL; /* only asked for */
        pthread_mutex_lock(&vx_rpc_govern_lock);
        vx_rpc_govern_judge_window(row);
        pthread_mutex_unlock(&vx_rpc_govern_lock);
        row->session = NULL;
        row->windows.ahead = 0;
        ck_assert(rig_is_closed(one) == !secure);
    }
    rig_close();
}
END_TEST

/* gRPC counts it, too, as long as it has the call. */
START_TEST(data_behind_the_end_of_a_stream_counts)
{
    const struct raw_frame end = {.type = RAW_DATA, .flags = RAW_END_STREAM, .id = 1};
    rig_open(0);
    i32 one = spent(1000);
    ck_assert(raw_send(rig_theirs[one], &end));
    ck_assert(raw_rest(rig_theirs[one], 1, 1));
    rig_read_all(one);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, one)->cut, VX_RPC_CUT_WINDOW);
    rig_close();
}
END_TEST

/* ------- what is lent ------- */

enum {
    FIRST = VX_H2_WINDOW_BYTES,
    LENT = VX_H2_STREAM_WINDOW_BYTES - FIRST,
    FRAME = 16384
};

/* Whether the client hears once that its connection has more. */
static bool hears_of_more(i32 one)
{
    static const u8 more[] = {
        0, 0, 4, 8, 0, 0, 0, 0, 0, 0, LENT >> 16, LENT >> 8 & 255, LENT & 255};
    u8 got[2 * sizeof more];
    ssize_t bytes = recv(rig_theirs[one], got, sizeof got, MSG_DONTWAIT);
    ck_assert(bytes < 0 || bytes == sizeof more);
    if (bytes > 0) ck_assert_mem_eq(got, more, sizeof more);
    return bytes > 0;
}

/* gRPC writes a frame of a type that nobody knows, which the client reads. */
static void writes(i32 one)
{
    static const u8 frame[VX_H2_HEAD_BYTES] = {[3] = 77};
    u8 got[sizeof frame];
    rig_write(one, frame, sizeof frame, sizeof frame);
    ck_assert_int_eq(read(rig_theirs[one], got, sizeof got), sizeof got);
}

/* A connection with the beginning of a message of so many bytes. */
static i32 begun(u32 length)
{
    i32 one = rig_connect();
    *window_of(one) = FIRST;
    rig_greet(one);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, 1);
    rig_call(one, 1);
    ck_assert(raw_message(rig_theirs[one], 1, length, VX_H2_PREFIX_BYTES));
    rig_read_all(one);
    return one;
}

START_TEST(a_message_that_needs_more_than_the_first_window_has_it_once)
{
    rig_open(0);
    i32 fits = begun(FIRST - VX_H2_PREFIX_BYTES);
    i32 needs = begun(FIRST - VX_H2_PREFIX_BYTES + 1);
    writes(fits);
    writes(needs);
    ck_assert(!hears_of_more(fits));
    ck_assert(hears_of_more(needs));
    ck_assert_int_eq(*window_of(fits), FIRST - VX_H2_PREFIX_BYTES);
    ck_assert_int_eq(*window_of(needs), FIRST - VX_H2_PREFIX_BYTES + LENT);
    writes(needs);
    ck_assert(!hears_of_more(needs));
    rig_close();
}
END_TEST

/* gRPC is never given a frame that its own window does not have; the rest comes when it has written a
 * larger one. */
START_TEST(gRPC_is_given_no_more_than_its_window)
{
    static const u8 update[] = UPDATE(0);
    const i64 lines = (FIRST + LENT - VX_H2_PREFIX_BYTES) / FRAME;
    rig_open(0);
    i32 one = begun(1 << 20);
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    writes(one);
    ck_assert(hears_of_more(one));
    for (i64 i = 0; i < lines; i++) ck_assert(raw_rest(rig_theirs[one], 1, FRAME));
    rig_read_all(one);
    ck_assert_int_eq(row->waits, VX_RPC_WAIT_WINDOW);
    ck_assert_int_ge(row->meter.window - row->lent, 0);
    ck_assert_int_le(row->meter.window - row->lent, FRAME);
    ck_assert_int_gt(rig_unread(one), (i32)LENT - FRAME);
    writes(one); /* not a window */
    ck_assert_int_eq(row->waits, VX_RPC_WAIT_WINDOW);
    rig_write(one, update, sizeof update, sizeof update);
    ck_assert_int_eq(row->waits, VX_RPC_WAIT_NONE);
    rig_read_all(one);
    ck_assert_int_eq(rig_unread(one), 0);
    ck_assert(!rig_is_closed(one));
    rig_close();
}
END_TEST

/* A read that is going on was told of no bound. */
START_TEST(nothing_is_lent_while_a_read_goes_on)
{
    rig_open(0);
    i32 one = begun(1 << 20);
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    row->users++; /* another thread */
    writes(one);
    ck_assert(!hears_of_more(one));
    row->users--;
    writes(one);
    ck_assert(hears_of_more(one));
    rig_close();
}
END_TEST

/* One byte may be given, and 16 KiB of a frame are to come. */
START_TEST(gRPC_is_not_given_bytes_one_by_one)
{
    rig_open(0);
    i32 one = begun(1 << 20);
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    writes(one);
    ck_assert(hears_of_more(one));
    for (i32 i = 0; i < 3; i++)
        ck_assert(raw_rest(rig_theirs[one], 1, i < 2 ? FRAME : FRAME - 8));
    rig_read_all(one);
    ck_assert_int_eq(row->meter.window - row->lent, FRAME + 2);
    ck_assert_int_eq(row->waits, VX_RPC_WAIT_WINDOW);
    ck_assert_int_gt(rig_unread(one), FRAME / 2);
    rig_close();
}
END_TEST

/* A connection whose client has used up what it was lent. */
static i32 used_up(void)
{
    const i64 lines = (FIRST + LENT - VX_H2_PREFIX_BYTES) / FRAME;
    i32 one = begun(1 << 20);
    writes(one);
    ck_assert(hears_of_more(one));
    for (i64 i = 0; i < lines; i++) ck_assert(raw_rest(rig_theirs[one], 1, FRAME));
    rig_read_all(one);
    return one;
}

/* A client that breaks the window of a stream: gRPC does not count that in the connection's, and writes no
 * larger one. */
START_TEST(who_waits_for_long_is_closed)
{
    enum { LOOKS = 20 };
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    i32 one = used_up();
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    for (i32 look = 0; look <= LOOKS; look++) {
        ck_assert_int_eq(row->waits, VX_RPC_WAIT_WINDOW);
        ck_assert(!rig_is_closed(one));
        now_ns += VX_NS_PER_S;
        vx_rpc_governor_turn(rig_governor, now_ns);
    }
    ck_assert_int_eq(row->cut, VX_RPC_CUT_WINDOW);
    rig_close();
}
END_TEST

/* Its client reads nothing, so gRPC cannot say that it may send more; nor does it wait for us. */
START_TEST(who_does_not_read_is_not_closed_for_it)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    i32 one = used_up();
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    row->windows.ahead = 100;
    ck_assert(!vx_rpc_govern_waits_for_us(row));
    for (i32 look = 0; look < 40; look++) {
        now_ns += VX_NS_PER_S;
        vx_rpc_governor_turn(rig_governor, now_ns);
        ck_assert_int_eq(row->waits, VX_RPC_WAIT_WINDOW);
        ck_assert_int_ne(row->cut, VX_RPC_CUT_WINDOW);
        /* Its call may make room for others, once it has been slow for a look. */
        ck_assert(!look || vx_rpc_govern_is_due(rig_place(one), false));
    }
    row->windows.ahead = 0;
    rig_close();
}
END_TEST

/* At each look it waits, by chance, and has brought something since the last. */
START_TEST(who_waits_again_and_again_goes_on)
{
    static const u8 update[] = {0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, FRAME >> 8, 0};
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    i32 one = used_up();
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    for (i32 look = 0; look < 40; look++) {
        now_ns += VX_NS_PER_S;
        vx_rpc_governor_turn(rig_governor, now_ns);
        ck_assert_int_eq(row->waits, VX_RPC_WAIT_WINDOW);
        rig_write(one, update, sizeof update, sizeof update);
        ck_assert(raw_rest(rig_theirs[one], 1, FRAME));
        rig_read_all(one);
    }
    ck_assert_int_eq(row->cut, VX_RPC_CUT_NONE);
    ck_assert(!rig_is_closed(one));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_window");
    TCase *tests = tcase_create("rpc_governor_window");
    tcase_add_test(tests, a_new_connection_has_the_first_window);
    tcase_add_test(tests, more_than_the_window_ends_a_connection);
    tcase_add_test(tests, data_of_no_stream_counts);
    tcase_add_loop_test(tests, updates_that_we_send_count, 0, 13);
    tcase_add_test(tests, a_write_that_goes_on_is_waited_for);
    tcase_add_test(tests, streams_have_more_when_the_client_has_confirmed_it);
    tcase_add_test(tests, more_than_a_streams_window_ends_a_connection);
    tcase_add_loop_test(tests, updates_of_a_stream_are_its_own, 0, 13);
    tcase_add_test(tests, a_stream_that_ends_owes_nothing);
    tcase_add_test(tests, a_message_that_needs_more_than_the_first_window_has_it_once);
    tcase_add_test(tests, gRPC_is_given_no_more_than_its_window);
    tcase_add_test(tests, what_a_session_keeps_is_waited_for);
    tcase_add_test(tests, data_behind_the_end_of_a_stream_counts);
    tcase_add_test(tests, nothing_is_lent_while_a_read_goes_on);
    tcase_add_test(tests, gRPC_is_not_given_bytes_one_by_one);
    tcase_add_test(tests, who_does_not_read_is_not_closed_for_it);
    tcase_add_test(tests, who_waits_for_long_is_closed);
    tcase_add_test(tests, who_waits_again_and_again_goes_on);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
