/* Connections with several messages each at once.
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
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 16384, BEGUN = 6 };
#define STEP_NS (VX_NS_PER_S / 100)

/* One client whose connections have several messages each at once, together more than the room and
 * all that turns may add: they end, one connection after the other, and none is closed. */
START_TEST(several_messages_of_each_connection_end)
{
    enum { CONNECTIONS = 6, CALLS = 4, LENGTH = 110000 };
    i32 ones[CONNECTIONS], finished = 0;
    size_t left[CONNECTIONS][CALLS];
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 k = 0; k < CONNECTIONS; k++) {
        ones[k] = rig_connect();
        rig_greet(ones[k]);
        vx_rpc_govern_share(rig_place(ones[k]), VX_RPC_SHARE_AWAITED, CALLS);
        for (u32 id = 1; id < 2 * CALLS; id += 2) {
            rig_call(ones[k], id);
            ck_assert(raw_message(rig_theirs[ones[k]], id, LENGTH, BEGUN));
            left[k][id / 2] = LENGTH + VX_H2_PREFIX_BYTES - BEGUN;
        }
    }
    for (i32 i = 0; i < 600 && finished < CONNECTIONS; i++) {
        finished = 0;
        for (i32 k = 0; k < CONNECTIONS; k++) {
            rig_read_all(ones[k]);
            for (u32 id = 1; !rig_unread(ones[k]) && id < 2 * CALLS; id += 2) {
                size_t *rest = &left[k][id / 2], piece = *rest < PIECE ? *rest : PIECE;
                if (piece) ck_assert(raw_rest(rig_theirs[ones[k]], id, piece));
                *rest -= piece;
                rig_read_all(ones[k]);
            }
            ck_assert(!rig_is_closed(ones[k]));
            finished +=
                vx_rpc_governor_row(rig_governor, ones[k])->meter.finished == CALLS;
        }
        now_ns += STEP_NS;
        vx_rpc_governor_turn(rig_governor, now_ns);
    }
    ck_assert_int_eq(finished, CONNECTIONS);
    rig_close();
}
END_TEST

/* ------- windows of streams ------- */

enum { LONG = 400000, MORE = 300000, UPDATE = 13, ANSWER = 16384, ANSWERS = 64 };

static size_t update(u8 *bytes, u32 id, u32 more)
{
    const u8 frame[UPDATE] = {0,
                              0,
                              4,
                              8,
                              0,
                              0,
                              0,
                              (u8)(id >> 8),
                              (u8)id,
                              0,
                              (u8)(more >> 16),
                              (u8)(more >> 8),
                              (u8)more};
    memcpy(bytes, frame, UPDATE);
    return UPDATE;
}

/* gRPC writes; returns how much of it the system takes. */
static size_t writes(i32 i, u8 *bytes, size_t count)
{
    struct iovec piece = {bytes, count};
    const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t sent = vx_rpc_govern_write(rig_ours[i], &message, MSG_DONTWAIT);
    ck_assert_int_gt(sent, 0);
    return (size_t)sent;
}

/* gRPC writes something: behind that the connection has more of its window (rpc_govern_lend.c). */
static void lends(i32 one)
{
    static u8 frame[VX_H2_HEAD_BYTES] = {[3] = 77};
    u8 got[sizeof frame + UPDATE];
    ck_assert_uint_eq(writes(one, frame, sizeof frame), sizeof frame);
    ck_assert_int_eq(read(rig_theirs[one], got, sizeof got), sizeof got);
}

/* A client that has begun three messages, two of which exceed the room, and gRPC has opened their
 * windows. */
static i32 open_three(void)
{
    i32 one = rig_connect();
    u8 updates[3 * UPDATE];
    size_t length = 0;
    vx_rpc_governor_row(rig_governor, one)->meter.stream_window =
        LONG + VX_H2_PREFIX_BYTES - MORE;
    rig_greet(one);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, 3);
    for (u32 id = 1; id <= 5; id += 2) {
        rig_call(one, id);
        ck_assert(raw_message(rig_theirs[one], id, LONG, BEGUN));
        length += update(updates + length, id, MORE);
    }
    rig_read_all(one);
    lends(one);
    ck_assert_uint_eq(writes(one, updates, length), length);
    return one;
}

static void ends_message(i32 one, u32 id)
{
    size_t left = LONG + VX_H2_PREFIX_BYTES - BEGUN;
    for (size_t part; left; left -= part) {
        part = left < PIECE ? left : PIECE;
        ck_assert(raw_rest(rig_theirs[one], id, part));
        rig_read_all(one);
    }
}

/* The client hears that it may send so much more on that stream. */
static void hears(i32 one, u32 id, u32 more)
{
    u8 expected[UPDATE], got[UPDATE];
    update(expected, id, more);
    ck_assert_int_eq(read(rig_theirs[one], got, sizeof got), sizeof got);
    ck_assert_mem_eq(got, expected, sizeof got);
}

static void hears_nothing(i32 one)
{
    u8 byte;
    ck_assert_int_eq(read(rig_theirs[one], &byte, 1), -1);
}

START_TEST(windows_open_as_messages_end)
{
    rig_open(0);
    i32 one = open_three();
    const struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    hears(one, 1, MORE);
    hears(one, 3, 1);
    hears(one, 5, 1);
    ck_assert_int_eq(vx_rpc_govern_rest(row), LONG + VX_H2_PREFIX_BYTES - BEGUN);
    ends_message(one, 1);
    hears(one, 3, MORE - 1);
    hears_nothing(one);
    ends_message(one, 3);
    hears(one, 5, MORE - 1);
    hears_nothing(one);
    rig_close();
}
END_TEST

/* What we send comes between two writes of gRPC, never within what it has still to send. */
START_TEST(windows_wait_for_what_gRPC_sends)
{
    static u8 answer[ANSWERS * (VX_H2_HEAD_BYTES + ANSWER)], heard[sizeof answer];
    rig_open(0);
    i32 one = open_three();
    for (u32 id = 1; id <= 5; id += 2) hears(one, id, id == 1 ? MORE : 1);
    for (i32 i = 0; i < ANSWERS; i++) {
        u8 *head = answer + (size_t)i * (VX_H2_HEAD_BYTES + ANSWER);
        head[1] = ANSWER >> 8; /* DATA */
        head[8] = 7;
    }
    size_t sent = writes(one, answer, sizeof answer), got = 0;
    ck_assert_uint_lt(sent, sizeof answer);
    ends_message(one, 1);
    while (got < sizeof answer) {
        ssize_t more = read(rig_theirs[one], heard + got, sizeof answer - got);
        if (more > 0) got += (size_t)more;
        if (sent < sizeof answer)
            sent += writes(one, answer + sent, sizeof answer - sent);
    }
    ck_assert_mem_eq(heard, answer, sizeof answer);
    /* At the end of the last write its client had not read enough. */
    vx_rpc_governor_turn(rig_governor, vx_clock_ns() + VX_NS_PER_S);
    hears(one, 3, MORE - 1);
    hears_nothing(one);
    rig_close();
}
END_TEST

/* Who stands still with an open window keeps the others waiting for a moment only. */
START_TEST(windows_open_beside_who_stands_still)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    i32 one = open_three();
    for (u32 id = 1; id <= 5; id += 2) hears(one, id, id == 1 ? MORE : 1);
    for (i32 look = 0; look <= VX_H2_STILL_LOOKS; look++) {
        now_ns += VX_NS_PER_S;
        vx_rpc_governor_turn(rig_governor, now_ns);
    }
    hears(one, 3, MORE - 1);
    hears_nothing(one);
    rig_close();
}
END_TEST

/* Beside many connections of one address that hold some, one of another has half of it. */
START_TEST(origins_share_the_room_for_windows)
{
    enum { CROWD = 20 };
    rig_open(0);
    for (i32 k = 0; k <= CROWD; k++) {
        i32 one = rig_connect_from(k == CROWD);
        rig_greet(one);
        rig_call(one, 1);
        ck_assert(raw_message(rig_theirs[one], 1, LONG, BEGUN));
        rig_read_all(one);
    }
    const i64 all = RIG_RECEIVE_BYTES_MAX / 2;
    ck_assert_int_eq(vx_rpc_govern_room_windows(vx_rpc_governor_row(rig_governor, CROWD)),
                     all / 2);
    ck_assert_int_eq(vx_rpc_govern_room_windows(vx_rpc_governor_row(rig_governor, 0)),
                     all / (CROWD + 1));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_several");
    TCase *tests = tcase_create("rpc_governor_several");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, several_messages_of_each_connection_end);
    tcase_add_test(tests, origins_share_the_room_for_windows);
    tcase_add_test(tests, windows_open_as_messages_end);
    tcase_add_test(tests, windows_wait_for_what_gRPC_sends);
    tcase_add_test(tests, windows_open_beside_who_stands_still);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
