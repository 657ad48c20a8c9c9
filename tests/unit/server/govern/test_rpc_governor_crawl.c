/* Many connections that each bring a little of a large message, whenever it is read: what
 * they hold together, and whether a client that does not crawl comes through.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/rpc/rpc_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>

#define ROOM_PART 8 /* as in rpc_govern_cost.c */

#define CRAWLERS    24
#define CRAWL_BYTES (64 << 10)
#define CRAWL_TURNS 15 /* 430 KB/s: enough not to count as standing still */

/* Each of them brings a little more every 150 ms, when the last of it has been read. */
static void crawl(i32 turn)
{
    for (i32 i = 0; i < CRAWLERS; i++) {
        if (rig_has_ended(i)) continue;
        rig_read_all(i);
        if (turn % CRAWL_TURNS == i % CRAWL_TURNS && !rig_unread(i))
            ck_assert(raw_rest(rig_theirs[i], 1, CRAWL_BYTES));
    }
}

static void crawl_begin(void)
{
    for (i32 i = 0; i < CRAWLERS; i++) {
        rig_connect();
        rig_greet(i);
        rig_call(i, 1);
        vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_AWAITED, 1);
        ck_assert(raw_message(rig_theirs[i], 1, 32 << 20, CRAWL_BYTES));
    }
}

/* 10 ms, and what the accept thread does in them. */
static void step(i64 *now_ns)
{
    *now_ns += VX_NS_PER_S / 100;
    vx_rpc_governor_turn(rig_governor, *now_ns);
    for (i32 i = 0; i < CRAWLERS; i++)
        if (!rig_has_ended(i) && rig_is_closed(i)) rig_end(i);
}

/* What is held of all messages but the largest, which may lie beyond the room. */
static i64 held_beside_one(void)
{
    i64 held = 0, most = 0;
    for (i32 i = 0; i < CRAWLERS; i++) {
        if (rig_has_ended(i)) continue;
        i64 one = vx_rpc_governor_row(rig_governor, i)->meter.held;
        held += one;
        most = one > most ? one : most;
    }
    return held - most;
}

/* A turn brings little, and many turns no more: owners add a quarter in all. */
START_TEST(many_that_crawl_stay_in_the_room)
{
    i64 now_ns = vx_clock_ns(), most = 0;
    rig_open(0);
    crawl_begin();
    for (i32 turn = 0; turn < 1000; turn++) {
        crawl(turn);
        step(&now_ns);
        i64 held = held_beside_one();
        most = held > most ? held : most;
    }
    ck_assert_int_gt(most, RIG_RECEIVE_BYTES_MAX / 4);
    ck_assert_int_le(most, RIG_RECEIVE_BYTES_MAX + 2 * RIG_RECEIVE_BYTES_MAX / ROOM_PART);
    rig_close();
}
END_TEST

/* The place beyond the room is not kept by one that crawls: a client that brings its
 * message as fast as it is read gets it. */
START_TEST(who_crawls_does_not_keep_the_place_beyond_the_room)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    crawl_begin();
    for (i32 turn = 0; turn < 200; turn++) {
        crawl(turn);
        step(&now_ns);
    }
    i32 fast = rig_connect(), closed = 0;
    const struct vx_h2_meter *meter = &vx_rpc_governor_row(rig_governor, fast)->meter;
    rig_greet(fast);
    rig_call(fast, 1);
    vx_rpc_govern_share(rig_place(fast), VX_RPC_SHARE_AWAITED, 1);
    i64 left = 31 << 20;
    ck_assert(raw_message(rig_theirs[fast], 1, (u32)left, 1000));
    left -= 1000 - 5;
    for (i32 turn = 0; turn < 10000 && !meter->finished; turn++) {
        for (rig_read_all(fast); left && !rig_unread(fast); rig_read_all(fast)) {
            i64 part = left < CRAWL_BYTES ? left : CRAWL_BYTES;
            ck_assert(raw_rest(rig_theirs[fast], 1, (size_t)part));
            left -= part;
        }
        crawl(turn);
        step(&now_ns);
    }
    for (i32 i = 0; i < CRAWLERS; i++) closed += rig_has_ended(i);
    ck_assert_uint_eq(meter->finished, 1);
    ck_assert(!rig_is_closed(fast));
    ck_assert_int_gt(closed, 0);
    ck_assert_int_lt(closed, CRAWLERS / 2);
    rig_close();
}
END_TEST

/* One client after another sends a message of 20 KB that has less to come than a larger one,
 * whenever the last is whole: the larger one gets its turns all the same. */
START_TEST(who_has_waited_for_long_gets_a_turn)
{
    i64 now_ns = vx_clock_ns();
    u32 id = 1;
    rig_open(0);
    crawl_begin();
    for (i32 turn = 0; turn < 100; turn++) {
        crawl(turn);
        step(&now_ns);
    }
    i32 large = rig_connect(), small = rig_connect();
    const struct vx_h2_meter *meter = &vx_rpc_governor_row(rig_governor, large)->meter;
    const struct vx_h2_meter *others = &vx_rpc_governor_row(rig_governor, small)->meter;
    rig_greet(large);
    rig_greet(small);
    rig_call(large, 1);
    ck_assert(raw_message(rig_theirs[large], 1, 100 << 10, (100 << 10) + 5));
    for (i32 turn = 0; turn < 800 && !meter->finished; turn++) {
        rig_read_all(large);
        if (!rig_unread(small) && !others->unfinished) {
            rig_call(small, id);
            ck_assert(raw_message(rig_theirs[small], id, 20 << 10, (20 << 10) + 5));
            id += 2;
        }
        rig_read_all(small);
        crawl(turn);
        step(&now_ns);
    }
    ck_assert_uint_eq(meter->finished, 1);
    ck_assert_uint_ge(others->finished, 1);
    rig_close();
}
END_TEST

/* 60 connections of one address with a byte of a message each, and one elsewhere with several
 * messages: all of the former's buffers are more than the room.  Its part stays free, and where
 * nobody goes on, those go that bring nothing. */
START_TEST(a_crowd_that_brings_nothing_is_not_all_room)
{
    enum { CROWD = 1, OTHER, MANY = 60, MESSAGE = 60000, CALLS = 2, PIECE = 8000 };
    size_t left = CALLS * (MESSAGE + VX_H2_PREFIX_BYTES - 1000);
    i64 now_ns;
    i32 closed = 0;
    rig_open(0);
    i32 one = rig_connect_from(OTHER);
    rig_greet(one);
    for (u32 id = 1; id < 2 * CALLS; id += 2) {
        rig_call(one, id);
        ck_assert(raw_message(rig_theirs[one], id, MESSAGE, 1000));
    }
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, CALLS);
    rig_read_all(one);
    for (i32 i = 0; i < MANY; i++) {
        const i32 other = rig_connect_from(CROWD);
        rig_greet(other);
        rig_call(other, 1);
        vx_rpc_govern_share(rig_place(other), VX_RPC_SHARE_AWAITED, 1);
        ck_assert(raw_message(rig_theirs[other], 1, MESSAGE, 6));
        rig_read_all(other);
    }
    now_ns = vx_clock_ns();
    /* Its messages come piece by piece, in turns. */
    for (i32 i = 0; i < 6000 && (left || rig_unread(one)); i++) {
        const size_t of_call = left / CALLS, piece = of_call < PIECE ? of_call : PIECE;
        if (!rig_unread(one) && left) {
            for (u32 id = 1; id < 2 * CALLS; id += 2)
                ck_assert(raw_rest(rig_theirs[one], id, piece));
            left -= CALLS * piece;
        }
        now_ns += VX_NS_PER_S / 100;
        vx_rpc_governor_turn(rig_governor, now_ns);
        for (i32 k = one + 1; k <= one + MANY; k++)
            if (!rig_has_ended(k) && rig_is_closed(k)) rig_end(k);
        rig_read_all(one);
    }
    ck_assert(!rig_is_closed(one));
    ck_assert_uint_eq(vx_rpc_governor_row(rig_governor, one)->meter.finished, CALLS);
    for (i32 k = one + 1; k <= one + MANY; k++) closed += rig_has_ended(k);
    ck_assert_int_lt(closed, MANY);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_crawl");
    TCase *tests = tcase_create("rpc_governor_crawl");
    tcase_add_test(tests, many_that_crawl_stay_in_the_room);
    tcase_add_test(tests, who_crawls_does_not_keep_the_place_beyond_the_room);
    tcase_add_test(tests, who_has_waited_for_long_gets_a_turn);
    tcase_add_test(tests, a_crowd_that_brings_nothing_is_not_all_room);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
