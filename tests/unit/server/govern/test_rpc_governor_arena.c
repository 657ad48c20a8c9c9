/* The parts of connections and origins in the arena and in what their answers take, and how far a
 * client has read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/govern/governor_rig.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#define MB ((u64)1 << 20)

START_TEST(arena_has_a_part_for_each)
{
    rig_open(1200);
    for (i32 i = 0; i < 4; i++) rig_connect();
    for (i32 i = 0; i < 4; i++) vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_CALLS, 2);
    ck_assert(vx_rpc_govern_take(rig_place(0), 1200)); /* alone: all of it */
    vx_rpc_govern_give(rig_place(0), 700);             /* 500 are left */
    ck_assert(vx_rpc_govern_take(rig_place(1), 100));  /* 600 of 1200: not crowded */
    /* Of 900 each of two connections has 450. */
    ck_assert(!vx_rpc_govern_take(rig_place(0), 1));
    ck_assert(!vx_rpc_govern_take(rig_place(1), 351));
    ck_assert(vx_rpc_govern_take(rig_place(1), 350));
    /* Of three connections each has 300; one that takes no more than that is served. */
    ck_assert(!vx_rpc_govern_take(rig_place(2), 301));
    ck_assert(vx_rpc_govern_take(rig_place(2), 250));
    ck_assert(!vx_rpc_govern_take(rig_place(1), 1));
    ck_assert(vx_rpc_govern_take(rig_place(2), 50));
    /* A refused take counts nothing: all of it comes back, and one connection is alone
     * again. */
    vx_rpc_govern_give(rig_place(1), 450);
    vx_rpc_govern_give(rig_place(2), 300);
    ck_assert(vx_rpc_govern_take(rig_place(0), 700));
    /* A connection that ends gives back what it has. */
    ck_assert(!vx_rpc_govern_take(rig_place(3), 601));
    vx_rpc_govern_end(vx_rpc_governor_row(rig_governor, 0));
    vx_rpc_govern_give(rig_place(0), 1200);
    ck_assert(vx_rpc_govern_take(rig_place(3), 1200));
    vx_rpc_govern_begin(vx_rpc_governor_row(rig_governor, 0), rig_place(0), 0);
    rig_close();
}
END_TEST

/* Beside one of its origin that has far more than a part a connection has little; but not each of many,
 * and no more than that. */
START_TEST(arena_has_little_for_a_few)
{
    enum { HOME, OTHER, FEW = 64 };
    const u64 little = 1200 * MB / 1024;
    rig_open(1200 * MB);
    i32 other = rig_connect_from(OTHER), large = rig_connect_from(HOME);
    ck_assert(vx_rpc_govern_take(rig_place(large), 1000 * MB));
    ck_assert(vx_rpc_govern_take(rig_place(other), 100 * MB));
    for (i32 i = 1; i < FEW; i++) {
        i32 one = rig_connect_from(HOME);
        ck_assert(!vx_rpc_govern_take(rig_place(one), little + 1));
        ck_assert(vx_rpc_govern_take(rig_place(one), little));
        ck_assert(!vx_rpc_govern_take(rig_place(one), 1));
    }
    ck_assert(!vx_rpc_govern_take(rig_place(rig_connect_from(HOME)), 1));
    rig_close();
}
END_TEST

/* However many connections an origin has, one elsewhere has its part, and may have more of them
 * itself. */
START_TEST(arena_has_a_part_for_each_origin)
{
    enum { CROWD = 1, OTHER };
    rig_open(1200);
    for (i32 i = 0; i < 4; i++) {
        rig_connect_from(CROWD);
        ck_assert(vx_rpc_govern_take(rig_place(i), 225));
    }
    i32 one = rig_connect_from(OTHER), two = rig_connect_from(OTHER);
    ck_assert(vx_rpc_govern_take(rig_place(one), 100));
    /* Each of two origins has 450, and the second one's connections 225 each. */
    ck_assert(!vx_rpc_govern_take(rig_place(0), 1));
    i32 more = rig_connect_from(CROWD); /* its own part would be 90 */
    ck_assert(!vx_rpc_govern_take(rig_place(more), 90));
    ck_assert(vx_rpc_govern_take(rig_place(two), 200));
    ck_assert(!vx_rpc_govern_take(rig_place(two), 26));
    ck_assert(vx_rpc_govern_take(rig_place(two), 25));
    for (i32 i = 0; i < 4; i++) ck_assert(vx_rpc_govern_hoards(rig_place(i), false));
    ck_assert(!vx_rpc_govern_hoards(rig_place(one), false));
    ck_assert(!vx_rpc_govern_hoards(rig_place(two), false));
    for (i32 i = 0; i < 3; i++) vx_rpc_govern_give(rig_place(i), 225);
    ck_assert(vx_rpc_govern_take(rig_place(0), 225)); /* half is free again */
    /* Where somebody found no room nobody keeps more than a 64th, which is 18, unread. */
    vx_rpc_govern_give(rig_place(two), 225);
    vx_rpc_govern_give(rig_place(one), 82);
    ck_assert(!vx_rpc_govern_hoards(rig_place(0), false));
    ck_assert(vx_rpc_govern_hoards(rig_place(0), true));
    ck_assert(!vx_rpc_govern_hoards(rig_place(one), true));
    ck_assert(vx_rpc_govern_take(rig_place(one), 1));
    ck_assert(vx_rpc_govern_hoards(rig_place(one), true));
    rig_close();
}
END_TEST

/* What lies in the socket is not read.  Who has nothing in the arena has to read all the same. */
START_TEST(a_reader_is_known_by_what_leaves_the_socket)
{
    u8 bytes[1000] = {0};
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    rig_open(1 << 30);
    rig_connect();
    ck_assert_uint_eq(vx_rpc_govern_reading(rig_place(0)).read, 0);
    ck_assert_uint_eq(vx_rpc_govern_reading(rig_place(0)).due, 256 << 10);
    ck_assert_int_eq(vx_rpc_govern_write(rig_ours[0], &message, 0), sizeof bytes);
    ck_assert_uint_eq(vx_rpc_govern_reading(rig_place(0)).read, 0);
    ck_assert_int_eq(read(rig_theirs[0], bytes, sizeof bytes), sizeof bytes);
    ck_assert_uint_eq(vx_rpc_govern_reading(rig_place(0)).read, sizeof bytes);
    ck_assert(vx_rpc_govern_take(rig_place(0), 64 << 20));
    ck_assert_uint_eq(vx_rpc_govern_reading(rig_place(0)).due, 8 << 20);
    rig_end(0);
    ck_assert_uint_eq(vx_rpc_govern_reading(rig_place(0)).due, 0);
    rig_close();
}
END_TEST

/* The only call of a connection gets more than its part, while a quarter is free. */
START_TEST(an_only_call_may_take_three_quarters)
{
    rig_open(1200);
    for (i32 i = 0; i < 2; i++) rig_connect();
    ck_assert(vx_rpc_govern_take(rig_place(0), 400));
    vx_rpc_govern_share(rig_place(1), VX_RPC_SHARE_CALLS, 2);
    ck_assert(!vx_rpc_govern_take(rig_place(1), 500)); /* its part has 450 */
    vx_rpc_govern_share(rig_place(1), VX_RPC_SHARE_CALLS, -1);
    ck_assert(!vx_rpc_govern_take(rig_place(1), 501));
    ck_assert(vx_rpc_govern_take(rig_place(1), 500));
    rig_close();
}
END_TEST

START_TEST(answers_that_nobody_reads_are_bounded)
{
    rig_open(1200);
    for (u16 i = 0; i < 5; i++) rig_connect_from(i < 3 ? 0 : i);
    /* One connection may have 8 MB; the next byte is too many, a small answer is not. */
    ck_assert(vx_rpc_govern_answer_take(rig_place(0), 4 * MB));
    ck_assert(vx_rpc_govern_answer_take(rig_place(0), 4 * MB));
    ck_assert(!vx_rpc_govern_answer_take(rig_place(0), VX_RPC_ANSWER_SMALL + 1));
    ck_assert(vx_rpc_govern_answer_take(rig_place(0), VX_RPC_ANSWER_SMALL));
    vx_rpc_govern_answer_give(rig_place(0), VX_RPC_ANSWER_SMALL);
    /* Those of one origin together may have half of 32 MB, and another what it leaves free. */
    ck_assert(vx_rpc_govern_answer_take(rig_place(1), 8 * MB));
    ck_assert(!vx_rpc_govern_answer_take(rig_place(2), VX_RPC_ANSWER_SMALL + 1));
    ck_assert(vx_rpc_govern_answer_take(rig_place(2), 1));
    vx_rpc_govern_answer_give(rig_place(2), 1);
    ck_assert(vx_rpc_govern_answer_take(rig_place(3), 8 * MB));
    ck_assert(!vx_rpc_govern_answer_take(rig_place(4), 4 * MB + 1));
    ck_assert(vx_rpc_govern_answer_take(rig_place(4), 4 * MB));
    vx_rpc_govern_answer_give(rig_place(4), 4 * MB);
    /* The bytes of read answers and of an ended connection are free again. */
    vx_rpc_govern_answer_give(rig_place(3), 8 * MB);
    vx_rpc_govern_answer_give(rig_place(0), 4 * MB);
    ck_assert(vx_rpc_govern_answer_take(rig_place(2), 4 * MB));
    vx_rpc_govern_end(vx_rpc_governor_row(rig_governor, 1));
    vx_rpc_govern_answer_give(rig_place(1), 8 * MB); /* its call ends later: no effect */
    ck_assert(vx_rpc_govern_answer_take(rig_place(2), 4 * MB));
    ck_assert(vx_rpc_govern_answer_take(rig_place(0), 4 * MB));
    ck_assert(!vx_rpc_govern_answer_take(rig_place(0), VX_RPC_ANSWER_SMALL + 1));
    vx_rpc_govern_begin(vx_rpc_governor_row(rig_governor, 1), rig_place(1), 0);
    rig_close();
}
END_TEST

/* A connection that took much while few had any has more than its share once many
 * have. */
START_TEST(arena_is_hoarded_by_who_came_first)
{
    rig_open(1200);
    for (i32 i = 0; i < 4; i++) rig_connect();
    ck_assert(vx_rpc_govern_take(rig_place(0), 600));
    ck_assert(vx_rpc_govern_take(rig_place(1), 200));
    ck_assert(vx_rpc_govern_take(rig_place(2), 100));
    for (i32 i = 0; i < 4; i++) ck_assert(!vx_rpc_govern_hoards(rig_place(i), false));
    ck_assert(
        vx_rpc_govern_take(rig_place(3), 1)); /* more than three quarters are taken */
    for (i32 i = 0; i < 4; i++)
        ck_assert(vx_rpc_govern_hoards(rig_place(i), false) == !i);
    vx_rpc_govern_give(rig_place(0), 400);
    ck_assert(!vx_rpc_govern_hoards(rig_place(0), false));
    rig_close();
    rig_open(0); /* the arena is not shared out: no connection has too much */
    for (i32 i = 0; i < 2; i++) rig_connect();
    for (i32 i = 0; i < 2; i++) ck_assert(vx_rpc_govern_take(rig_place(i), 600));
    for (i32 i = 0; i < 2; i++) ck_assert(!vx_rpc_govern_hoards(rig_place(i), false));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_arena");
    TCase *tests = tcase_create("rpc_governor_arena");
    tcase_add_test(tests, arena_has_a_part_for_each);
    tcase_add_test(tests, arena_has_a_part_for_each_origin);
    tcase_add_test(tests, arena_has_little_for_a_few);
    tcase_add_test(tests, a_reader_is_known_by_what_leaves_the_socket);
    tcase_add_test(tests, an_only_call_may_take_three_quarters);
    tcase_add_test(tests, answers_that_nobody_reads_are_bounded);
    tcase_add_test(tests, arena_is_hoarded_by_who_came_first);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
