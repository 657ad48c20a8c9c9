/* Large messages: those of calls that take none, and the one that lies beyond the room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/rpc/rpc_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#define PART 16384

static const struct vx_rpc_govern *row_of(i32 i)
{
    return vx_rpc_governor_row(rig_governor, i);
}

static void looks(i32 count, i64 *now_ns)
{
    for (i32 i = 0; i < count; i++) {
        *now_ns += VX_NS_PER_S / 2;
        vx_rpc_governor_turn(rig_governor, *now_ns);
    }
}

/* ------- whose call is no inference ------- */

static void large_begin(i32 *one, u32 length)
{
    *one = rig_connect();
    rig_greet(*one);
    rig_call(*one, 1);
    ck_assert(raw_message(rig_theirs[*one], 1, length, 1000));
    rig_read_all(*one);
    ck_assert(raw_rest(rig_theirs[*one], 1, PART));
    rig_read_all(*one);
}

/* gRPC reports a small call with its message, however large that is. */
START_TEST(no_large_message_without_an_inference)
{
    i64 now_ns = vx_clock_ns();
    i32 one;
    rig_open(0);
    large_begin(&one, VX_H2_MESSAGE_LONG);
    ck_assert_int_eq(row_of(one)->waits, VX_RPC_WAIT_ASKED);
    ck_assert_int_gt(rig_unread(one), PART);
    looks(9, &now_ns);
    rig_read_all(one);
    ck_assert(!rig_is_closed(one));
    ck_assert_int_gt(rig_unread(one), PART);
    looks(2, &now_ns);
    ck_assert_int_eq(row_of(one)->cut, VX_RPC_CUT_LARGE);
    rig_close();
}
END_TEST

START_TEST(a_message_that_is_not_large_needs_none)
{
    i64 now_ns = vx_clock_ns();
    i32 one;
    rig_open(0);
    large_begin(&one, VX_H2_MESSAGE_LONG - 1);
    ck_assert_int_eq(rig_unread(one), 0);
    looks(20, &now_ns);
    ck_assert(!rig_is_closed(one));
    rig_close();
}
END_TEST

static const enum vx_rpc_share takers[] = {VX_RPC_SHARE_AWAITED, VX_RPC_SHARE_STREAMS};

START_TEST(an_inference_that_arrives_takes_one)
{
    i64 now_ns = vx_clock_ns();
    i32 one;
    rig_open(0);
    large_begin(&one, VX_H2_MESSAGE_LONG);
    vx_rpc_govern_share(rig_place(one), takers[_i], 1);
    ck_assert_int_eq(row_of(one)->waits, VX_RPC_WAIT_NONE);
    rig_read_all(one);
    ck_assert_int_eq(rig_unread(one), 0);
    looks(20, &now_ns);
    ck_assert_int_ne(row_of(one)->cut, VX_RPC_CUT_LARGE);
    rig_close();
}
END_TEST

/* Its call was refused: our reset is the end of the message. */
START_TEST(a_reset_call_needs_none)
{
    i32 one;
    rig_open(0);
    large_begin(&one, VX_H2_MESSAGE_LONG);
    static u8 reset[13] = {0, 0, 4, 3, 0, 0, 0, 0, 1};
    struct iovec piece = {reset, sizeof reset};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ck_assert_int_eq(vx_rpc_govern_write(rig_ours[one], &message, 0), sizeof reset);
    ck_assert_int_eq(row_of(one)->waits, VX_RPC_WAIT_NONE);
    rig_read_all(one);
    ck_assert_int_eq(rig_unread(one), 0);
    rig_close();
}
END_TEST

/* ------- beyond the room ------- */

#define BEYOND_BYTES (8 << 20)

/* Brings so much of the message, as fast as it is read. */
static void bring(i32 one, i64 bytes, i64 *now_ns)
{
    for (i32 turn = 0; bytes > 0 && turn < 4000; turn++) {
        rig_read_all(one);
        if (rig_unread(one)) {
            *now_ns += VX_NS_PER_S / 100;
            vx_rpc_governor_turn(rig_governor, *now_ns);
        } else {
            ck_assert(raw_rest(rig_theirs[one], 1, PART));
            bytes -= PART;
        }
    }
}

/* Two inferences, of which one begins a message that is larger than the room. */
static void two_calls_begin(i32 i)
{
    ck_assert_int_eq(rig_connect(), i);
    rig_greet(i);
    rig_call(i, 1);
    rig_call(i, 3);
    vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_AWAITED, 2);
    ck_assert(raw_message(rig_theirs[i], 1, 32 << 20, 1000));
}

/* One connection after the other brings much of a message, and begins another one. */
START_TEST(another_message_does_not_give_the_place_beyond_away)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i < 3; i++) {
        two_calls_begin(i);
        bring(i, BEYOND_BYTES, &now_ns);
        ck_assert(raw_message(rig_theirs[i], 3, 32 << 20, 1000));
        rig_read_all(i);
    }
    ck_assert_int_ge(row_of(0)->meter.held, BEYOND_BYTES - 2 * PART);
    i64 held = 0;
    for (i32 i = 1; i < 3; i++) held += row_of(i)->meter.held;
    ck_assert_int_le(held, 2 * RIG_RECEIVE_BYTES_MAX);
    rig_close();
}
END_TEST

/* Small messages beside it come through, and when it is gone the next one has the place. */
START_TEST(the_place_beyond_is_free_when_its_message_is_gone)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i < 2; i++) {
        two_calls_begin(i);
    }
    bring(0, BEYOND_BYTES, &now_ns);
    ck_assert(raw_message(rig_theirs[0], 3, 3000, 1000));
    rig_read_all(0);
    ck_assert_int_eq(row_of(0)->meter.unfinished, 2);
    ck_assert(raw_rest(rig_theirs[0], 3, 3000 - 1000 + 5));
    rig_read_all(0);
    ck_assert_uint_eq(row_of(0)->meter.finished, 1);
    bring(0, BEYOND_BYTES, &now_ns); /* it still has no limit */
    ck_assert_int_ge(row_of(0)->meter.held, 2 * BEYOND_BYTES - 2 * PART);
    struct raw_frame reset = {3, 0, 1, NULL, 4};
    ck_assert(raw_send(rig_theirs[0], &reset));
    rig_read_all(0);
    bring(1, BEYOND_BYTES, &now_ns);
    ck_assert_int_ge(row_of(1)->meter.held, BEYOND_BYTES - 2 * PART);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_large");
    TCase *tests = tcase_create("rpc_governor_large");
    tcase_add_test(tests, no_large_message_without_an_inference);
    tcase_add_test(tests, a_message_that_is_not_large_needs_none);
    tcase_add_loop_test(tests, an_inference_that_arrives_takes_one, 0,
                        (int)VX_COUNT(takers));
    tcase_add_test(tests, a_reset_call_needs_none);
    tcase_add_test(tests, another_message_does_not_give_the_place_beyond_away);
    tcase_add_test(tests, the_place_beyond_is_free_when_its_message_is_gone);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
