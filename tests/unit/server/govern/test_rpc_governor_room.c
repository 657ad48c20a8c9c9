/* The room of unfinished messages, shared out among origins: who has more than its part adds
 * nothing where another wants some, and what stands makes way, whether its next bytes lie there
 * or not.
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

/* With ten connections and a call each the room is some 690 KB.  A byte keeps a buffer of 64. */
enum { CROWD = 1, GATEWAY, OTHER, MANY = 9, MESSAGE = 300000, PIECE = 16384 };
enum { ALL = MESSAGE + VX_H2_PREFIX_BYTES, BEGUN = 6, LAST = MANY - 1 };
#define STEP_NS (VX_NS_PER_S / 100)
/* So many connections of an origin have a small part whatever it holds. */
#define SMALL_PARTS 16

static struct vx_rpc_govern *row_of(i32 i)
{
    return vx_rpc_governor_row(rig_governor, i);
}

/* A connection with a message that has begun; it need not be read. */
static i32 begin(u16 origin)
{
    const i32 i = rig_connect_from(origin);
    rig_greet(i);
    rig_call(i, 1);
    vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_AWAITED, 1);
    ck_assert(raw_message(rig_theirs[i], 1, MESSAGE, BEGUN));
    rig_read_all(i);
    return i;
}

static void crowd_begin(void)
{
    for (i32 i = 0; i < MANY; i++) {
        ck_assert_int_eq(begin(CROWD), i);
        ck_assert_int_eq(rig_unread(i), 0);
    }
}

/* Brings what is left, as far as it is read. */
static void bring(i32 i, size_t *left)
{
    rig_read_all(i);
    while (*left && !rig_unread(i)) {
        const size_t piece = *left < PIECE ? *left : PIECE;
        ck_assert(raw_rest(rig_theirs[i], 1, piece));
        *left -= piece;
        rig_read_all(i);
    }
}

static void turn(i64 *now_ns)
{
    *now_ns += STEP_NS;
    vx_rpc_governor_turn(rig_governor, *now_ns);
}

/* All of its message comes, in turns. */
static void finish(i32 i, size_t left, i64 *now_ns)
{
    for (i32 turns = 0; turns < 300 && row_of(i)->meter.unfinished; turns++) {
        turn(now_ns);
        bring(i, &left);
    }
    ck_assert_uint_eq(row_of(i)->meter.finished, 1);
}

/* A connection of the gateway that waits for room. */
static i32 gateway_begin(size_t *left)
{
    const i32 one = begin(GATEWAY);
    *left = ALL - BEGUN;
    bring(one, left);
    ck_assert_int_eq(row_of(one)->waits, VX_RPC_WAIT_BYTES);
    ck_assert_int_gt(rig_unread(one), 0);
    return one;
}

/* The gateway waits for room, within its part of it, while the crowd has more than its own.  Then
 * its message is whole: there is room. */
static void gateway_waits(i64 *now_ns)
{
    size_t left;
    crowd_begin();
    const i32 one = gateway_begin(&left);
    finish(one, left, now_ns);
}

START_TEST(an_origin_over_its_part_adds_nothing_where_another_wants_room)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    gateway_waits(&now_ns);
    rig_governor->holders_of[CROWD] += SMALL_PARTS; /* others have them */
    const i32 next = begin(CROWD);
    ck_assert_int_eq(row_of(next)->waits, VX_RPC_WAIT_BYTES);
    ck_assert_int_gt(rig_unread(next), 0);
    /* Not in turns, either. */
    for (i32 i = 0; i < 50; i++) {
        turn(&now_ns);
        rig_read_all(next);
    }
    ck_assert_int_gt(rig_unread(next), 0);
    /* Others may. */
    ck_assert_int_eq(rig_unread(begin(OTHER)), 0);
    /* Nobody has wanted any for 5 s. */
    now_ns += 5 * VX_NS_PER_S;
    turn(&now_ns);
    rig_read_all(next);
    ck_assert_int_eq(rig_unread(next), 0);
    rig_close();
}
END_TEST

/* What has begun goes on in turns, else nothing of it would end. */
START_TEST(what_has_begun_has_turns)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    gateway_waits(&now_ns);
    size_t left = ALL - BEGUN;
    bring(0, &left);
    ck_assert_int_eq(row_of(0)->waits, VX_RPC_WAIT_BYTES);
    finish(0, left, &now_ns);
    rig_close();
}
END_TEST

/* An origin alone has all room, as have many connections of it. */
START_TEST(an_origin_alone_has_all)
{
    rig_open(0);
    crowd_begin();
    ck_assert_int_eq(rig_unread(begin(CROWD)), 0);
    ck_assert_int_eq(rig_unread(begin(CROWD)), 0);
    rig_close();
}
END_TEST

/* What an origin wants counts for others, but not of one over its part that only holds. */
START_TEST(an_origin_is_bound_by_another_within_its_part)
{
    i64 now_ns = 100 * VX_NS_PER_S;
    rig_open(0);
    crowd_begin();
    const i32 one = begin(GATEWAY), other = begin(OTHER);
    rig_governor->turn_ns = now_ns;
    ck_assert(vx_rpc_govern_is_over(row_of(0)) && !vx_rpc_govern_is_over(row_of(one)));
    ck_assert(vx_rpc_govern_may_want(row_of(0)));
    vx_rpc_govern_stood_set(row_of(0), rig_governor->held_of[CROWD]);
    ck_assert(!vx_rpc_govern_may_want(row_of(0)));
    vx_rpc_govern_want(row_of(0), now_ns);
    ck_assert_int_eq(rig_governor->wanted_ns, 0);
    vx_rpc_govern_want(row_of(one), now_ns);
    ck_assert(vx_rpc_govern_is_bound(row_of(0)) &&
              !vx_rpc_govern_is_bound(row_of(other)));
    for (i32 i = 0; i < MANY; i++) rig_end(i);
    for (i32 i = 0; i < 6; i++) begin(GATEWAY);
    ck_assert(vx_rpc_govern_is_over(row_of(one)) && !vx_rpc_govern_is_bound(row_of(one)));
    vx_rpc_govern_want(row_of(other), now_ns);
    ck_assert(vx_rpc_govern_is_bound(row_of(one)));
    for (i32 i = 0; i < 6; i++) begin(OTHER);
    ck_assert(vx_rpc_govern_is_over(row_of(other)) &&
              vx_rpc_govern_is_bound(row_of(other)));
    rig_close();
}
END_TEST

/* Whatever it ended: an origin that ends its messages each second, and begins anew, had all room. */
START_TEST(parts_are_equal_whatever_is_ended)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    crowd_begin();
    const i32 ends = rig_connect_from(CROWD);
    rig_greet(ends);
    for (u32 id = 1; id < 40; id += 2) {
        rig_call(ends, id);
        vx_rpc_govern_share(rig_place(ends), VX_RPC_SHARE_AWAITED, 1);
        ck_assert(raw_message(rig_theirs[ends], id, PIECE, PIECE + VX_H2_PREFIX_BYTES));
        rig_read_all(ends);
    }
    ck_assert_uint_eq(row_of(ends)->meter.finished, 20);
    ck_assert(!vx_rpc_govern_is_over(row_of(0)));
    const i32 one = begin(GATEWAY);
    ck_assert_int_gt(rig_governor->held_of[CROWD], vx_rpc_govern_room(rig_governor) / 2);
    ck_assert(vx_rpc_govern_is_over(row_of(0)) && vx_rpc_govern_is_over(row_of(ends)));
    ck_assert(!vx_rpc_govern_is_over(row_of(one)));
    turn(&now_ns);
    rig_close();
}
END_TEST

/* What stands is what a connection holds that brings little in six checks in a row; an origin only
 * holds when more than half of what it has stands. */
START_TEST(what_brings_nothing_for_3_s_stands)
{
    rig_open(0);
    const i32 one = begin(GATEWAY), other = begin(GATEWAY);
    const i64 *stood = &rig_governor->stood_of[GATEWAY];
    for (i32 i = 0; i < 5; i++) vx_rpc_govern_stood_look(row_of(one), true);
    ck_assert_int_eq(*stood, 0);
    vx_rpc_govern_stood_look(row_of(one), false);
    for (i32 i = 0; i < 5; i++) vx_rpc_govern_stood_look(row_of(one), true);
    ck_assert_int_eq(*stood, 0);
    vx_rpc_govern_stood_look(row_of(one), true);
    ck_assert_int_eq(*stood, row_of(one)->meter.held);
    ck_assert(!vx_rpc_govern_only_holds(row_of(one))); /* half of it */
    for (i32 i = 0; i < 6; i++) vx_rpc_govern_stood_look(row_of(other), true);
    ck_assert_int_eq(*stood, rig_governor->held_of[GATEWAY]);
    ck_assert(vx_rpc_govern_only_holds(row_of(one)));
    vx_rpc_govern_stood_look(row_of(one), false);
    ck_assert_int_eq(*stood, row_of(other)->meter.held);
    rig_end(other);
    ck_assert_int_eq(*stood, 0);
    rig_close();
}
END_TEST

/* Others want room, and the crowd only holds what it has: it gets no turn, though it has begun. */
START_TEST(who_only_holds_has_no_turn)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    gateway_waits(&now_ns);
    size_t left = ALL - BEGUN;
    bring(0, &left);
    for (i32 i = 0; i < MANY; i++)
        for (i32 k = 0; k < 6; k++) vx_rpc_govern_stood_look(row_of(i), true);
    const i32 unread = rig_unread(0);
    ck_assert_int_gt(unread, 0);
    for (i32 i = 0; i < 50; i++) {
        turn(&now_ns);
        ck_assert_ptr_null(rig_governor->owner);
        ck_assert_ptr_null(rig_governor->beyond);
        rig_read_all(0);
    }
    ck_assert_int_eq(rig_unread(0), unread);
    rig_close();
}
END_TEST

/* One with small requests beside a large one of the same origin, which has all room. */
START_TEST(few_connections_are_never_held_up)
{
    rig_open(0);
    const i32 large = begin(GATEWAY), other = begin(OTHER);
    ck_assert_int_eq(rig_unread(other), 0);
    rig_governor->held_of[GATEWAY] +=
        RIG_RECEIVE_BYTES_MAX; /* which the large one holds */
    rig_governor->held += RIG_RECEIVE_BYTES_MAX;
    ck_assert(vx_rpc_govern_is_over(row_of(large)));
    for (i32 i = 1; i < SMALL_PARTS; i++) ck_assert_int_eq(rig_unread(begin(GATEWAY)), 0);
    ck_assert_int_gt(rig_unread(begin(GATEWAY)), 0);
    rig_governor->held_of[GATEWAY] -= RIG_RECEIVE_BYTES_MAX;
    rig_close();
}
END_TEST

/* Three of the gateway's wait, and those that have turns do not read.  Of the crowd those go that
 * bring nothing, the oldest first, until there is room for turns: whether they wait for us, since
 * their next bytes lie there, or not, and whether messages of others end meanwhile. */
START_TEST(what_stands_makes_way)
{
    const bool unread = _i == 1, others_end = _i == 2;
    i32 closed = 0, waiting[3];
    size_t left;
    rig_open(0);
    crowd_begin();
    for (i32 i = 0; unread && i < MANY; i++) {
        left = ALL - BEGUN;
        bring(i, &left);
        ck_assert_int_eq(row_of(i)->waits, VX_RPC_WAIT_BYTES);
        ck_assert_int_gt(rig_unread(i), 0);
    }
    for (i32 i = 0; i < 3; i++) waiting[i] = gateway_begin(&left);
    /* What owners may add is used as well, and what lies beyond. */
    rig_governor->held += RIG_RECEIVE_BYTES_MAX / 4;
    i64 now_ns =
        vx_clock_ns(); /* what has begun before is not younger, however slow this is */
    for (i32 i = 0; i < 290; i++) {
        if (i == 240) /* not after some seconds yet */
            for (i32 k = 0; k < MANY; k++) ck_assert(!rig_is_closed(k));
        if (others_end) rig_governor->freed_ns = now_ns;
        turn(&now_ns);
    }
    for (i32 i = 0; i < MANY; i++) {
        closed += rig_is_closed(i);
        /* One of those that have turns in vain may go first. */
        if (!unread) ck_assert_int_eq(rig_is_closed(i), closed == i + 1);
    }
    ck_assert_int_gt(closed, 0);
    ck_assert_int_lt(closed, MANY);
    for (i32 i = 0; i < 3; i++)
        ck_assert(!rig_is_closed(waiting[i]) ||
                  rig_governor->beyond == row_of(waiting[i]));
    rig_close();
}
END_TEST

/* Brings a third of each message, as far as it is read in two seconds of turns. */
static void crowd_fill(i64 *now_ns)
{
    size_t left[MANY];
    for (i32 i = 0; i < MANY; i++) left[i] = MESSAGE / 3;
    for (i32 k = 0; k < 200; k++) {
        for (i32 i = 0; i < MANY; i++)
            if (!rig_is_closed(i)) bring(i, &left[i]);
        turn(now_ns);
    }
}

/* A gateway with several messages at once, which are more than its part: the crowd, whose next bytes
 * lie there, makes way, and all of them end. */
START_TEST(who_comes_with_much_beside_a_crowd_is_served)
{
    enum { CALLS = 3, LENGTH = 110000 };
    size_t left = LENGTH + VX_H2_PREFIX_BYTES - BEGUN;
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    crowd_begin();
    crowd_fill(&now_ns);
    ck_assert_int_le(vx_rpc_govern_room_owner(rig_governor), 0);
    const i32 one = rig_connect_from(GATEWAY);
    rig_greet(one);
    vx_rpc_govern_share(rig_place(one), VX_RPC_SHARE_AWAITED, CALLS);
    for (u32 id = 1; id < 2 * CALLS; id += 2) {
        rig_call(one, id);
        ck_assert(raw_message(rig_theirs[one], id, LENGTH, BEGUN));
    }
    rig_read_all(one);
    for (i32 i = 0; i < 300 && row_of(one)->meter.finished < CALLS; i++) {
        rig_read_all(one);
        while (left && !rig_unread(one)) {
            const size_t piece = left < PIECE ? left : PIECE;
            for (u32 id = 1; id < 2 * CALLS; id += 2)
                ck_assert(raw_rest(rig_theirs[one], id, piece));
            left -= piece;
            rig_read_all(one);
        }
        turn(&now_ns);
        for (i32 k = 0; k < MANY; k++)
            if (!rig_has_ended(k) && rig_is_closed(k)) rig_end(k);
        ck_assert(!rig_is_closed(one));
    }
    ck_assert_uint_eq(row_of(one)->meter.finished, CALLS);
    rig_close();
}
END_TEST

/* It lies beyond the room, which is used, and only the last byte is not there: it goes after two
 * seconds, since others wait. */
START_TEST(who_lacks_a_byte_beyond_the_room_goes)
{
    size_t left = ALL - BEGUN - 1;
    rig_open(0);
    crowd_begin();
    rig_governor->held += 2 * RIG_RECEIVE_BYTES_MAX;
    const i32 one = begin(GATEWAY);
    i64 now_ns = vx_clock_ns();
    for (i32 i = 0; i < 100 && left; i++) {
        turn(&now_ns);
        bring(one, &left);
    }
    ck_assert_uint_eq(left, 0);
    ck_assert_int_eq(rig_unread(one), 0);
    ck_assert_ptr_eq(rig_governor->beyond, row_of(one));
    size_t rest;
    gateway_begin(&rest);
    for (i32 i = 0; i < 120; i++) turn(&now_ns);
    ck_assert(rig_is_closed(one) || rig_governor->beyond_slow > 0);
    for (i32 i = 0; i < 100; i++) turn(&now_ns);
    ck_assert(rig_is_closed(one));
    rig_close();
}
END_TEST

/* A call whose message waits for room is due where it is a crowd's. */
START_TEST(what_waits_for_room_is_due_in_a_crowd)
{
    size_t left;
    rig_open(0);
    crowd_begin();
    const i32 one = gateway_begin(&left);
    ck_assert(!vx_rpc_govern_is_due(rig_place(one), false));
    ck_assert(vx_rpc_govern_is_due(rig_place(one), true));
    rig_close();
}
END_TEST

/* Its address has less than its part, and it brings 50 KB/s: nobody needs its place. */
START_TEST(who_is_slow_within_its_part_stays)
{
    size_t left = ALL - BEGUN;
    rig_open(0);
    crowd_begin();
    const i32 one = begin(GATEWAY);
    i64 now_ns = vx_clock_ns();
    for (i32 i = 0; i < 400; i++) {
        const size_t piece = i < 20 ? 3000 : 500;
        if (!rig_unread(LAST)) ck_assert(raw_rest(rig_theirs[LAST], 1, PIECE));
        if (!rig_unread(one)) {
            ck_assert(raw_rest(rig_theirs[one], 1, piece));
            left -= piece;
        }
        turn(&now_ns);
        for (i32 k = 0; k <= one; k++) rig_read_all(k);
        ck_assert(!rig_is_closed(one));
    }
    ck_assert_int_gt(vx_rpc_govern_holds(row_of(one)), vx_rpc_govern_small(row_of(one)));
    finish(one, left, &now_ns);
    rig_close();
}
END_TEST

/* Turns are given while little of ended connections is not free yet, and not while much is. */
START_TEST(who_leaves_with_little_stops_no_turn)
{
    const bool much = _i;
    size_t left;
    rig_open(0);
    crowd_begin();
    const i32 one = gateway_begin(&left);
    for (i32 i = 0; i < (much ? 3 : 1); i++) rig_end(i);
    /* There is no room all the same. */
    rig_governor->held += 256 << 10;
    vx_rpc_governor_turn(rig_governor, rig_governor->going.over_ns - 1);
    ck_assert_int_eq(
        rig_governor->owner == row_of(one) || rig_governor->beyond == row_of(one), !much);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_room");
    TCase *tests = tcase_create("rpc_governor_room");
    tcase_add_test(tests, an_origin_over_its_part_adds_nothing_where_another_wants_room);
    tcase_add_test(tests, what_has_begun_has_turns);
    tcase_add_test(tests, an_origin_alone_has_all);
    tcase_add_test(tests, an_origin_is_bound_by_another_within_its_part);
    tcase_add_test(tests, few_connections_are_never_held_up);
    tcase_add_test(tests, parts_are_equal_whatever_is_ended);
    tcase_add_test(tests, what_brings_nothing_for_3_s_stands);
    tcase_add_test(tests, who_only_holds_has_no_turn);
    tcase_add_loop_test(tests, what_stands_makes_way, 0, 3);
    tcase_add_test(tests, who_comes_with_much_beside_a_crowd_is_served);
    tcase_add_test(tests, who_lacks_a_byte_beyond_the_room_goes);
    tcase_add_test(tests, what_waits_for_room_is_due_in_a_crowd);
    tcase_add_test(tests, who_is_slow_within_its_part_stays);
    tcase_add_loop_test(tests, who_leaves_with_little_stops_no_turn, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
