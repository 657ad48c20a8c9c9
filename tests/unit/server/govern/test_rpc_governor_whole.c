/* Messages that are whole and wait for us.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/govern/rpc_govern_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Two of these are more than the room and what turns add. */
enum { HALF = 640000, PIECE = 16384, BEGUN = 6, LASTS = 2 };
#define STEP_NS (VX_NS_PER_S / 100)
#define LOOK_NS (VX_NS_PER_S / 2)

static i64 now_ns;

static void whole_rig_open(void)
{
    rig_open(0);
    rig_lags = true;
    now_ns = vx_clock_ns();
}

static const struct vx_rpc_govern *row(i32 i)
{
    return vx_rpc_governor_row(rig_governor, i);
}

static void looks(i32 count)
{
    for (i32 look = 0; look < count; look++)
        vx_rpc_governor_turn(rig_governor, now_ns += LOOK_NS);
}

/* A connection whose first call has begun a message. */
static i32 begins(void)
{
    i32 one = rig_connect();
    rig_greet(one);
    rig_call(one, 1);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, 1);
    ck_assert(raw_message(rig_theirs[one], 1, HALF, BEGUN));
    return one;
}

/* So many bytes more of it are sent, and read in turns. */
static void brings(i32 one, size_t left)
{
    for (size_t part; left; left -= part) {
        part = left < PIECE ? left : PIECE;
        ck_assert(raw_rest(rig_theirs[one], 1, part));
        rig_read_all(one);
        for (i32 turn = 0; turn < 9 && rig_unread(one); turn++) {
            vx_rpc_governor_turn(rig_governor, now_ns += STEP_NS);
            rig_read_all(one);
        }
    }
}

static i32 has_whole(void)
{
    i32 one = begins();
    brings(one, HALF + VX_H2_PREFIX_BYTES - BEGUN);
    ck_assert_uint_eq(row(one)->meter.finished, 1);
    ck_assert_int_eq(row(one)->meter.whole, HALF);
    return one;
}

static void resets(i32 one)
{
    const struct raw_frame reset = {RAW_RESET, 0, 1, (const u8 *)"\0\0\0\10", 4};
    ck_assert(raw_send(rig_theirs[one], &reset));
    rig_read_all(one);
}

/* They take room until they are received; nobody is closed for it.  Each second one message goes on beyond
 * the room, and no more: they would wait for us one after the other. */
START_TEST(what_waits_for_us_takes_room)
{
    whole_rig_open();
    i32 ones[2] = {has_whole(), has_whole()}, lasts[LASTS];
    ck_assert(vx_rpc_govern_lags(rig_governor));
    for (i32 k = 0; k < LASTS; k++) {
        lasts[k] = begins();
        ck_assert(raw_rest(rig_theirs[lasts[k]], 1, 6 * PIECE));
        rig_read_all(lasts[k]);
        ck_assert_int_gt(rig_unread(lasts[k]), 0);
    }
    for (i32 turn = 0; turn < 9; turn++)
        vx_rpc_governor_turn(rig_governor, now_ns += STEP_NS);
    ck_assert_ptr_null(rig_governor->beyond);
    for (i32 look = 0; look < 40; look++) {
        looks(1);
        for (i32 k = 0; k < LASTS; k++) rig_read_all(lasts[k]);
        for (i32 k = 0; k < LASTS; k++) ck_assert(!rig_is_closed(lasts[k]));
    }
    ck_assert((rig_unread(lasts[0]) > 0) != (rig_unread(lasts[1]) > 0));
    for (i32 k = 0; k < 2; k++) rig_receive(ones[k]);
    ck_assert(!vx_rpc_govern_lags(rig_governor));
    for (i32 k = 0; k < LASTS; k++) {
        rig_read_all(lasts[k]);
        ck_assert_int_eq(rig_unread(lasts[k]), 0);
    }
    rig_close();
}
END_TEST

/* A thread of ours has what its client has reset since. */
START_TEST(a_reset_frees_nothing_that_we_have)
{
    whole_rig_open();
    i32 one = has_whole();
    resets(one);
    ck_assert_int_eq(row(one)->meter.streams_count, 0);
    ck_assert_int_eq(rig_governor->whole, HALF);
    vx_rpc_govern_received(rig_place(one), HALF);
    ck_assert_int_eq(rig_governor->whole, 0);
    rig_close();
}
END_TEST

/* gRPC may have dropped it: then the call ends without it. */
START_TEST(what_was_dropped_is_forgotten_with_its_call)
{
    whole_rig_open();
    i32 one = has_whole();
    vx_rpc_govern_arrived(rig_place(one)); /* so it is no longer unseen */
    resets(one);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, 1); /* another call */
    ck_assert_int_eq(rig_governor->whole, HALF);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, -1);
    ck_assert_int_eq(rig_governor->whole, HALF);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, -1);
    ck_assert_int_eq(rig_governor->whole, 0);
    rig_close();
}
END_TEST

/* Also where its client keeps a call that awaits its message. */
START_TEST(what_was_dropped_is_forgotten_in_time)
{
    whole_rig_open();
    i32 one = has_whole();
    resets(one);
    looks(3);
    ck_assert_int_eq(rig_governor->whole, HALF);
    looks(1);
    ck_assert_int_eq(rig_governor->whole, 0);
    rig_close();
}
END_TEST

/* Our threads have it for a moment after its connection has ended. */
START_TEST(what_has_ended_takes_room_for_a_moment)
{
    whole_rig_open();
    i32 one = has_whole(), other = rig_connect();
    rig_greet(other);
    const i64 ended_ns = vx_clock_ns();
    rig_end(one);
    vx_rpc_governor_turn(rig_governor, ended_ns + VX_NS_PER_S / 2);
    ck_assert_int_eq(rig_governor->whole, HALF);
    vx_rpc_governor_turn(rig_governor, vx_clock_ns() + VX_NS_PER_S + STEP_NS);
    ck_assert_int_eq(rig_governor->whole, 0);
    rig_close();
}
END_TEST

/* gRPC writes to a client that reads nothing, until the system takes no more. */
static void is_unread(i32 one)
{
    static u8 answer[1 << 20];
    struct iovec piece = {answer, sizeof answer};
    const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    answer[1] = 64, answer[8] = 7; /* DATA of 16,384 bytes, and so on */
    ck_assert_int_gt(vx_rpc_govern_write(rig_ours[one], &message, MSG_DONTWAIT), 0);
    ck_assert(vx_rpc_govern_is_blocked(row(one)));
}

/* What we have ended and cannot tell, since its client reads nothing, counts as whole: that client goes,
 * if room is short for it. */
START_TEST(who_reads_nothing_does_not_lag_for_us)
{
    whole_rig_open();
    i32 ones[2] = {has_whole(), has_whole()};
    looks(20);
    ck_assert(!rig_is_closed(ones[0]) && !rig_is_closed(ones[1]));
    is_unread(ones[0]);
    looks(8);
    ck_assert(!rig_is_closed(ones[0]));
    looks(1);
    ck_assert(rig_is_closed(ones[0]) && !rig_is_closed(ones[1]));
    rig_close();
}
END_TEST

START_TEST(who_reads_nothing_may_stay_where_room_is_free)
{
    whole_rig_open();
    i32 one = has_whole();
    is_unread(one);
    looks(20);
    ck_assert(!rig_is_closed(one));
    i32 other = has_whole();
    looks(1);
    ck_assert(rig_is_closed(one) && !rig_is_closed(other));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_whole");
    TCase *tests = tcase_create("rpc_governor_whole");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, what_waits_for_us_takes_room);
    tcase_add_test(tests, a_reset_frees_nothing_that_we_have);
    tcase_add_test(tests, what_was_dropped_is_forgotten_with_its_call);
    tcase_add_test(tests, what_was_dropped_is_forgotten_in_time);
    tcase_add_test(tests, what_has_ended_takes_room_for_a_moment);
    tcase_add_test(tests, who_reads_nothing_does_not_lag_for_us);
    tcase_add_test(tests, who_reads_nothing_may_stay_where_room_is_free);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
