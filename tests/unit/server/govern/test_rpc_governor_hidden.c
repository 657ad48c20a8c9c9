/* Calls that gRPC keeps and does not report, as their message has not come: they never stop
 * the reading of what ends them, and who keeps too many of them is closed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/govern/rpc_govern_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HIDDEN_ALL 1024 /* as in rpc_govern_hidden.c */
#define STEP_NS    (VX_NS_PER_S / 100)

static struct vx_rpc_govern *row(i32 i)
{
    return vx_rpc_governor_row(rig_governor, i);
}

/* Headers of so many calls, or their messages, in one write. */
static void send_frames(i32 i, u8 type, u32 first, u32 count)
{
    static u8 out[64 << 10];
    static const u8 message[5] = {0};
    size_t used = 0, body = type == RAW_DATA ? sizeof message : 15;
    for (u32 id = first; id < first + 2 * count; id += 2) {
        u8 flags = type == RAW_DATA ? RAW_END_STREAM : RAW_END_HEADERS;
        u8 head[] = {0, 0, (u8)body, type, flags, 0, 0, (u8)(id >> 8), (u8)id};
        memcpy(out + used, head, sizeof head);
        memset(out + used + sizeof head, 0, body);
        used += sizeof head + body;
    }
    ck_assert_int_eq(write(rig_theirs[i], out, used), (ssize_t)used);
}

static i32 connect_hiding_from(u16 origin, u32 calls)
{
    i32 i = rig_connect_from(origin);
    rig_greet(i);
    send_frames(i, RAW_HEADERS, 1, calls);
    rig_read_all(i);
    return i;
}

/* As it is when the machine is slow: the connection waits for nothing. */
static void rest(i32 i)
{
    row(i)->filled_ns -= VX_NS_PER_S;
    rig_read_all(i);
    ck_assert_int_eq(row(i)->waits, VX_RPC_WAIT_NONE);
}

static i32 connect_hiding(u32 calls)
{
    return connect_hiding_from(0, calls);
}

/* 10 ms: what the accept thread does, and gRPC, to which whole calls arrive.  Reads know the real
 * time, so that ours is not behind it, however slow the machine is. */
static void step(i32 i, i64 *now_ns)
{
    *now_ns += STEP_NS;
    if (*now_ns < vx_clock_ns()) *now_ns = vx_clock_ns();
    vx_rpc_governor_turn(rig_governor, *now_ns);
    u64 before = row(i)->meter.finished;
    rig_read_all(i);
    for (u64 k = before; k < row(i)->meter.finished; k++)
        vx_rpc_govern_arrived(rig_place(i));
}

static const struct {
    i32 others; /* connections with two hidden calls each, which are never closed */
    u32 calls;
    bool rest; /* they wait for nothing */
} crowds[] = {{0, 60, false},   {0, 300, false},    {0, 1000, false}, {200, 1000, false},
              {700, 20, false}, {700, 1000, false}, {700, 1000, true}};

/* A client sends the headers of many small calls and then their messages, all at once: each
 * is read soon, however many calls others hide. */
START_TEST(headers_before_messages_are_read)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i < crowds[_i].others; i++) {
        connect_hiding(2);
        if (crowds[_i].rest) rest(i);
    }
    i32 one = connect_hiding(crowds[_i].calls);
    send_frames(one, RAW_DATA, 1, crowds[_i].calls);
    for (i32 i = 0; i < 100 && row(one)->meter.finished < crowds[_i].calls; i++)
        step(one, &now_ns);
    ck_assert_uint_eq(row(one)->meter.finished, crowds[_i].calls);
    ck_assert(!rig_is_closed(one));
    ck_assert_int_eq(row(one)->hidden, 0);
    rig_close();
}
END_TEST

/* 200 connections of one address hide eight calls each, and wait for turns; one of another address
 * sends headers of eight, waits for longer than any of those may, and sends the messages: it is
 * neither stopped nor closed. */
START_TEST(another_address_is_not_kept_waiting_by_a_crowd)
{
    i64 now_ns = vx_clock_ns();
    i32 waiting = 0;
    rig_open(0);
    for (i32 i = 0; i < 200; i++) connect_hiding_from(1, 8);
    for (i32 i = 0; i < 200; i++) {
        step(i, &now_ns);
        waiting += vx_rpc_govern_hides(row(i));
    }
    ck_assert_int_gt(waiting, 0);
    i32 one = connect_hiding_from(2, 8);
    for (i32 i = 0; i < 80; i++) {
        step(one, &now_ns);
        ck_assert(!vx_rpc_govern_hides(row(one)));
    }
    ck_assert_int_eq(row(one)->hidden, 8);
    ck_assert(!rig_is_closed(one));
    send_frames(one, RAW_DATA, 1, 8);
    for (i32 i = 0; i < 10; i++) step(one, &now_ns);
    ck_assert_uint_eq(row(one)->meter.finished, 8);
    rig_close();
}
END_TEST

/* Forty connections send headers only, as many as are read: they do not get beyond the
 * bounds, those that had their say are closed, and a client among them is served. */
START_TEST(who_hides_too_many_is_closed)
{
    i64 now_ns = vx_clock_ns(), most = 0;
    i32 closed = 0;
    rig_open(0);
    for (i32 i = 0; i < 40; i++) connect_hiding(1500);
    i32 one = connect_hiding(200);
    send_frames(one, RAW_DATA, 1, 200);
    for (i32 turn = 0; turn < 800; turn++) {
        step(one, &now_ns);
        for (i32 i = 0; i < 40; i++) {
            if (rig_has_ended(i)) continue;
            rig_read_all(i);
            if (rig_is_closed(i)) rig_end(i);
        }
        i64 hidden = 0;
        for (i32 i = 0; i < 40; i++) hidden += rig_has_ended(i) ? 0 : row(i)->hidden;
        most = hidden > most ? hidden : most;
    }
    for (i32 i = 0; i < 40; i++) closed += rig_has_ended(i);
    ck_assert_int_ge(most, HIDDEN_ALL);
    ck_assert_int_le(most, 4 * HIDDEN_ALL);
    ck_assert_int_gt(closed, 20);
    ck_assert(!rig_is_closed(one));
    ck_assert_uint_eq(row(one)->meter.finished, 200);
    rig_close();
}
END_TEST

/* Streams that have asked nothing yet hide nothing: gRPC has reported them. */
START_TEST(streams_without_a_request_are_known)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i < 40; i++) connect_hiding(2);
    i32 calls = connect_hiding(3), streams = connect_hiding(3);
    for (i32 k = 0; k < 3; k++) {
        vx_rpc_govern_arrived(rig_place(streams));
        vx_rpc_govern_share(rig_place(streams), VX_RPC_SHARE_STREAMS, 1);
        vx_rpc_govern_share(rig_place(streams), VX_RPC_SHARE_UNHEARD, 1);
    }
    ck_assert_int_eq(row(streams)->hidden, 0);
    ck_assert_int_eq(row(calls)->hidden, 3);
    for (i32 look = 0; look < 12; look++) {
        now_ns += VX_NS_PER_S / 2;
        vx_rpc_governor_turn(rig_governor, now_ns);
    }
    ck_assert_int_eq(row(calls)->cut, VX_RPC_CUT_LATE);
    ck_assert(!rig_is_closed(streams));
    rig_close();
}
END_TEST

static const u8 block[10000] = {0, 1, 'a', 0x7f, 0x8b, 0x4d}; /* one text */

/* Large headers count as several calls. */
START_TEST(large_headers_weigh_more)
{
    struct raw_frame headers = {RAW_HEADERS, RAW_END_HEADERS, 1, block, sizeof block};
    rig_open(0);
    i32 one = rig_connect();
    rig_greet(one);
    ck_assert(raw_send(rig_theirs[one], &headers));
    rig_read_all(one);
    ck_assert(!rig_is_closed(one));
    ck_assert_int_eq(row(one)->hidden, 2);
    send_frames(one, RAW_DATA, 1, 1);
    rig_read_all(one);
    ck_assert_int_eq(row(one)->hidden, 0);
    rig_close();
}
END_TEST

/* Until a message of the call is whole, whether gRPC has reported the call or not; and so does
 * a block of which only a part has come. */
START_TEST(headers_weigh_until_a_message_is_whole)
{
    struct raw_frame headers = {RAW_HEADERS, RAW_END_HEADERS, 1, block, sizeof block};
    struct raw_frame open = {RAW_HEADERS, 0, 3, block, sizeof block};
    rig_open(0);
    i32 one = rig_connect();
    rig_greet(one);
    ck_assert(raw_send(rig_theirs[one], &headers));
    rig_read_all(one);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, 1);
    ck_assert_int_eq(row(one)->hidden, 1);
    ck_assert(raw_message(rig_theirs[one], 1, 20, 5));
    rig_read_all(one);
    ck_assert_int_eq(row(one)->meter.unfinished, 1);
    ck_assert_int_eq(row(one)->hidden, 1);
    ck_assert(raw_send(rig_theirs[one], &open)); /* and a call without a byte */
    rig_read_all(one);
    ck_assert_int_eq(row(one)->hidden, 3);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_hidden");
    TCase *tests = tcase_create("rpc_governor_hidden");
    tcase_add_loop_test(tests, headers_before_messages_are_read, 0, VX_COUNT(crowds));
    tcase_add_test(tests, another_address_is_not_kept_waiting_by_a_crowd);
    tcase_add_test(tests, who_hides_too_many_is_closed);
    tcase_add_test(tests, streams_without_a_request_are_known);
    tcase_add_test(tests, large_headers_weigh_more);
    tcase_add_test(tests, headers_weigh_until_a_message_is_whole);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
