/* The governor's own rules on connections that nothing else reads: calls that gRPC
 * refuses, that the server resets, or that never arrive; and streams of each origin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A call that is answered before its message is whole holds none of the message's
 * bytes any more, whatever the client sends. */
START_TEST(what_we_reset_gives_its_room_back)
{
    u8 reset[] = {0, 0, 4, RAW_RESET, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    struct iovec pieces[] = {{reset, 5}, {reset + 5, sizeof reset - 5}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = VX_COUNT(pieces)};
    rig_open(0);
    i32 one = rig_connect(), other = rig_connect();
    i64 room = rig_fill_with_half(one);
    ck_assert_int_eq(vx_rpc_govern_write(rig_ours[one], &message, 0), sizeof reset);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, one)->meter.held, 0);
    rig_read_all(one); /* the rest belongs to no call */
    ck_assert_int_eq(rig_unread(one), 0);
    ck_assert_int_eq(rig_fill_with_half(other), room);
    rig_close();
}
END_TEST

static size_t put_head(u8 *out, u8 type, u32 id, u8 length)
{
    u8 ends = type == RAW_HEADERS ? RAW_END_STREAM : 0; /* nothing follows them */
    u8 head[] = {0, 0, length, type, RAW_END_HEADERS | ends, 0, 0, (u8)(id >> 8), (u8)id};
    memcpy(out, head, sizeof head);
    return sizeof head;
}

/* Reads are sized for the rest of a message while a frame of it is under way: here
 * headers of calls arrive instead, more than a connection may begin. */
static void flood_with_calls(i32 i, u32 calls)
{
    static u8 out[64 << 10];
    u8 message[5] = {0, 0, 4, 0, 0}; /* 256 KiB */
    rig_greet(i);
    rig_call(i, 1);
    size_t length = put_head(out, RAW_DATA, 1, 100);
    memcpy(out + length, message, sizeof message);
    ck_assert_int_eq(write(rig_theirs[i], out, length + 99), (ssize_t)length + 99);
    rig_read_all(i);
    length = 1; /* the rest of that frame */
    for (u32 k = 1; k <= calls; k++)
        length += put_head(out + length, RAW_HEADERS, 2 * k + 1, 0);
    ck_assert_int_eq(write(rig_theirs[i], out, length), (ssize_t)length);
    rig_read_all(i);
}

/* gRPC ends the calls with ids up to 2 * `calls` + 1, but the first. */
static void refuse_calls(i32 i, u32 calls)
{
    for (u32 k = 1; k <= calls; k++) {
        u8 end[VX_H2_HEAD_BYTES];
        struct iovec piece = {end, put_head(end, RAW_HEADERS, 2 * k + 1, 0)};
        const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        ck_assert_int_eq(vx_rpc_govern_write(rig_ours[i], &message, 0), sizeof end);
        u8 heard[sizeof end];
        ck_assert_int_eq(read(rig_theirs[i], heard, sizeof heard), sizeof heard);
    }
}

/* A busy server has not taken a message that is here: its call is not one that waits for its client,
 * though another of the connection does. */
START_TEST(a_message_that_is_here_is_not_overdue)
{
    rig_open(0);
    i32 one = rig_connect();
    rig_greet(one);
    for (u32 id = 1; id <= 3; id += 2) rig_call(one, id);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, 2);
    rig_read_all(one);
    ck_assert(vx_rpc_govern_is_due(rig_place(one), false));
    ck_assert(raw_message(rig_theirs[one], 1, 100, 105));
    rig_read_all(one);
    ck_assert(!vx_rpc_govern_is_due(rig_place(one), false));
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, -1); /* it is taken */
    ck_assert(vx_rpc_govern_is_due(rig_place(one), false));
    rig_close();
}
END_TEST

/* Calls that were read and never arrive pause their own connection, and no other. */
START_TEST(calls_that_never_arrive_are_their_own)
{
    rig_open(0);
    i32 cut = rig_connect(), many = rig_connect(), good = rig_connect();
    for (i32 i = cut; i <= good; i++) rig_hold_time(i);
    flood_with_calls(cut, 2000);
    ck_assert(rig_is_closed(cut)); /* none of its calls arrived */
    vx_rpc_govern_end(vx_rpc_governor_row(rig_governor, cut));
    flood_with_calls(many, 1100);
    ck_assert(!rig_is_closed(many));
    ck_assert_int_gt(vx_rpc_governor_row(rig_governor, many)->unseen, 1024);
    /* A connection without such calls is read, and waits when it has some of its own until
     * one arrives. */
    rig_greet(good);
    rig_call(good, 1);
    rig_read_all(good);
    ck_assert_int_eq(rig_unread(good), 0);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, good)->unseen, 1);
    for (u32 id = 3; id < 7; id += 2) {
        rig_call(good, id);
        rig_read_all(good);
        ck_assert_int_eq(rig_unread(good), 0);
    }
    rig_call(good, 7);
    rig_read_all(good);
    ck_assert_int_gt(rig_unread(good), 0);
    vx_rpc_govern_arrived(rig_place(good));
    rig_read_all(good);
    ck_assert_int_eq(rig_unread(good), 0);
    /* They are written off after a time, when gRPC has ended them, and not while they wait there. */
    i64 now_ns = vx_clock_ns() + RIG_HELD_NS + 20 * VX_NS_PER_S;
    vx_rpc_governor_turn(rig_governor, now_ns);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, many)->unseen, 1101);
    refuse_calls(many, 1100);
    vx_rpc_governor_turn(rig_governor, now_ns + 20 * VX_NS_PER_S);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, many)->unseen, 1);
    /* But not one whose message may still come: gRPC keeps it. */
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, good)->unseen, 3);
    vx_rpc_govern_begin(vx_rpc_governor_row(rig_governor, cut), rig_place(cut), 0);
    rig_close();
}
END_TEST

/* Begins so many calls that do not arrive, and returns how many were read. */
static i64 calls_read(i32 i, u32 calls)
{
    rig_hold_time(i);
    rig_greet(i);
    for (u32 k = 0; k < calls; k++) rig_call(i, 2 * k + 1);
    rig_read_all(i);
    return vx_rpc_governor_row(rig_governor, i)->unseen;
}

/* However many connections another origin has.  The first one brings so many that reads are sized
 * by what a connection may begin. */
START_TEST(each_origin_may_begin_its_part)
{
    enum { CROWD = 100, FEW = 20 };
    i32 crowd[CROWD], few[FEW];
    rig_open(0);
    for (i32 i = 0; i < CROWD; i++) crowd[i] = rig_connect_from(1);
    i32 first = rig_connect_from(2), gateway = rig_connect_from(3);
    ck_assert_int_eq(calls_read(first, 64), 64);
    ck_assert_int_eq(calls_read(gateway, 48), 48);
    ck_assert_int_le(calls_read(crowd[CROWD - 1], 48), 5);
    for (i32 i = 0; i < CROWD; i++) rig_end(crowd[i]);
    for (i32 i = 0; i < FEW; i++) few[i] = rig_connect_from(4);
    /* 512 / 23 of all are more than 512 / 4 / 20 of its origin's. */
    i64 part = calls_read(few[FEW - 1], 60);
    ck_assert_int_ge(part, 22);
    ck_assert_int_lt(part, 60);
    rig_close();
}
END_TEST

/* When too many are on their way, an origin with few of them is read all the same. */
START_TEST(too_many_calls_are_their_origins)
{
    rig_open(0);
    i32 many = rig_connect_from(1), other = rig_connect_from(1);
    i32 gateway = rig_connect_from(2);
    rig_hold_time(many);
    flood_with_calls(many, 1100);
    ck_assert_int_gt(vx_rpc_governor_row(rig_governor, many)->unseen, 1024);
    ck_assert_int_eq(calls_read(gateway, 48), 48);
    ck_assert_int_lt(calls_read(other, 48), 48);
    rig_end(many); /* no origin has too many now */
    rig_call(other, 97);
    rig_read_all(other);
    ck_assert_int_eq(rig_unread(other), 0);
    rig_close();
}
END_TEST

/* What large headers cost is given back with the answers of their calls, and only once. */
START_TEST(answers_give_back_what_headers_cost)
{
    enum { CALLS = 10, PER_CALL = 27, PER_ANSWER = 20 };
    static const u8 block[7000] = {0, 1, 'a', 0x7f, 0xd3, 0x35}; /* one text */
    rig_open(0);
    i32 one = rig_connect();
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    rig_hold_time(one);
    rig_greet(one);
    i64 before = row->work;
    for (u32 i = 0; i < CALLS; i++)
        ck_assert(raw_send(rig_theirs[one],
                           &(struct raw_frame){RAW_HEADERS, RAW_END_HEADERS, 2 * i + 1,
                                               block, sizeof block}));
    rig_read_all(one);
    ck_assert_int_eq(rig_unread(one), 0);
    ck_assert_int_eq(before - row->work, CALLS * PER_CALL);
    for (i32 i = 0; i < CALLS + 2; i++) {
        row->work = 0;
        vx_rpc_govern_answered(rig_place(one), 0);
        ck_assert_int_eq(row->work, PER_ANSWER + (i < CALLS ? PER_CALL : 0));
    }
    rig_close();
}
END_TEST

/* While few calls have not arrived a message is read in large chunks, whatever it
 * contains. */
START_TEST(many_at_once_bring_few_calls_each)
{
    rig_open(0);
    i32 first = rig_connect(), second = rig_connect();
    rig_hold_time(first);
    rig_hold_time(second);
    flood_with_calls(first, 1100);
    ck_assert_int_eq(vx_rpc_governor_row(rig_governor, first)->unseen, 1101);
    for (i32 k = 0; k < 1000; k++) vx_rpc_govern_arrived(rig_place(first));
    flood_with_calls(second, 1100);
    ck_assert(!rig_is_closed(second));
    ck_assert_int_gt(rig_unread(second), 0);
    ck_assert_int_le(vx_rpc_governor_row(rig_governor, second)->unseen, 200);
    rig_close();
}
END_TEST

static enum vx_rpc_wait after_call(i32 i, u32 id, bool whole)
{
    rig_call(i, id);
    if (whole) ck_assert(raw_message(rig_theirs[i], id, 3, 8));
    rig_read_all(i);
    vx_rpc_govern_arrived(rig_place(i));
    return vx_rpc_governor_row(rig_governor, i)->waits;
}

/* After 256 calls without a message gRPC gets the time to end them, though each arrived at
 * once.  Messages that come late count all the same. */
START_TEST(calls_in_vain_are_followed_by_a_rest)
{
    rig_open(0);
    i32 vain = rig_connect(), good = rig_connect();
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, vain);
    rig_hold_time(vain);
    rig_hold_time(good);
    rig_greet(vain);
    rig_greet(good);
    for (u32 k = 0; k < 255; k++)
        ck_assert_int_eq(after_call(vain, 2 * k + 1, false), VX_RPC_WAIT_NONE);
    ck_assert(raw_message(rig_theirs[vain], 1, 3, 8));
    ck_assert_int_eq(after_call(vain, 511, false), VX_RPC_WAIT_NONE);
    ck_assert_int_eq(after_call(vain, 513, false), VX_RPC_WAIT_REST);
    rig_call(vain, 515);
    vx_rpc_govern_arrived(rig_place(vain)); /* does not end it */
    ck_assert_int_eq(row->waits, VX_RPC_WAIT_REST);
    vx_rpc_governor_turn(rig_governor, vx_clock_ns() + VX_NS_PER_S);
    ck_assert_int_eq(row->waits, VX_RPC_WAIT_NONE);
    rig_read_all(vain);
    ck_assert_int_eq(rig_unread(vain), 0);
    /* Messages of calls before the rest buy no calls after it. */
    for (u32 k = 1; k <= 100; k++)
        ck_assert(raw_message(rig_theirs[vain], 2 * k + 1, 3, 8));
    rig_read_all(vain);
    for (u32 k = 0; k < 255; k++)
        ck_assert_int_eq(after_call(vain, 517 + 2 * k, false), VX_RPC_WAIT_NONE);
    ck_assert_int_eq(after_call(vain, 1027, false), VX_RPC_WAIT_REST);
    for (u32 k = 0; k < 1000; k++)
        ck_assert_int_eq(after_call(good, 2 * k + 1, true), VX_RPC_WAIT_NONE);
    rig_close();
}
END_TEST

/* One that brings nothing else rests longer each time; one that has left off, or has brought as many whole
 * messages, begins anew. */
START_TEST(rests_in_a_row_are_longer)
{
    static const i64 long_ms[] = {10, 20, 40, 80, 160, 160};
    rig_open(0);
    const i32 i = rig_connect();
    struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, i);
    rig_hold_time(i);
    rig_greet(i);
    for (u32 k = 0; k <= VX_COUNT(long_ms) + 1; k++) {
        const bool anew = k >= VX_COUNT(long_ms);
        if (k == VX_COUNT(long_ms)) row->rested_ns = vx_clock_ns() - VX_NS_PER_S;
        if (k > VX_COUNT(long_ms)) row->rested_finished -= 256;
        row->vain -= 255; /* as after so many calls without a message */
        ck_assert_int_eq(after_call(i, 2 * k + 1, false), VX_RPC_WAIT_REST);
        ck_assert_int_eq(row->rest_long_ns, (anew ? 10 : long_ms[k]) * VX_NS_PER_MS);
        vx_rpc_governor_turn(rig_governor, vx_clock_ns() + VX_NS_PER_S);
        ck_assert_int_eq(row->waits, VX_RPC_WAIT_NONE);
    }
    rig_close();
}
END_TEST

/* A connection with so many refused calls, whose client reads nothing if it is blocked. */
static i32 connect_refused(i32 calls, bool blocked)
{
    static const u8 zeros[4096];
    i32 i = rig_connect();
    while (calls--) vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_REFUSED, 1);
    while (blocked && write(rig_ours[i], zeros, sizeof zeros) > 0) {
    }
    return i;
}

/* Only while records are scarce: the one that keeps most of them, and no more than it
 * takes; none that reads, and none whose refusals have just come or gone. */
START_TEST(refused_calls_that_are_not_read_close_their_connection)
{
    i64 begin_ns = vx_clock_ns();
    rig_open(0);
    i32 few = connect_refused(1, true), most = connect_refused(100, true);
    i32 reads = connect_refused(200, false), none = connect_refused(0, true);
    i64 late_ns = vx_clock_ns() + VX_NS_PER_S;
    vx_rpc_governor_turn(rig_governor, late_ns);
    ck_assert(!rig_is_closed(most));
    vx_rpc_governor_scarce(rig_governor, true);
    vx_rpc_governor_turn(rig_governor, begin_ns);
    ck_assert(!rig_is_closed(most));
    vx_rpc_governor_turn(rig_governor, late_ns);
    ck_assert(rig_is_closed(most) && !rig_is_closed(few));
    vx_rpc_governor_turn(rig_governor, late_ns); /* gRPC ends them */
    ck_assert(!rig_is_closed(few));
    vx_rpc_governor_turn(rig_governor, late_ns + VX_NS_PER_S);
    ck_assert(rig_is_closed(few)); /* they are scarce all the same */
    ck_assert(!rig_is_closed(reads) && !rig_is_closed(none));
    rig_close();
}
END_TEST

/* Each origin whose streams were answered has a part, and a newcomer. */
START_TEST(origins_have_parts_of_the_streams)
{
    rig_open(0);
    i32 one = rig_connect_from(1), other = rig_connect_from(2),
        mute = rig_connect_from(3);
    for (i32 k = 0; k < 3; k++) {
        vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_STREAMS, 1);
        vx_rpc_govern_share(rig_place(mute), VX_RPC_SHARE_STREAMS, 1);
    }
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_SERVED, 1);
    ck_assert(vx_rpc_govern_has_part(rig_place(one), 6));
    ck_assert(!vx_rpc_govern_has_part(rig_place(one), 5));
    vx_rpc_govern_share(rig_place(other), VX_RPC_SHARE_STREAMS, 1);
    vx_rpc_govern_share(rig_place(other), VX_RPC_SHARE_SERVED, 1);
    ck_assert(!vx_rpc_govern_has_part(rig_place(one), 6));
    rig_end(other);
    ck_assert(vx_rpc_govern_has_part(rig_place(one), 6));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_calls");
    TCase *tests = tcase_create("rpc_governor_calls");
    tcase_add_test(tests, what_we_reset_gives_its_room_back);
    tcase_add_test(tests, a_message_that_is_here_is_not_overdue);
    tcase_add_test(tests, calls_that_never_arrive_are_their_own);
    tcase_add_test(tests, each_origin_may_begin_its_part);
    tcase_add_test(tests, too_many_calls_are_their_origins);
    tcase_add_test(tests, answers_give_back_what_headers_cost);
    tcase_add_test(tests, many_at_once_bring_few_calls_each);
    tcase_add_test(tests, calls_in_vain_are_followed_by_a_rest);
    tcase_add_test(tests, rests_in_a_row_are_longer);
    tcase_add_test(tests, refused_calls_that_are_not_read_close_their_connection);
    tcase_add_test(tests, origins_have_parts_of_the_streams);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
