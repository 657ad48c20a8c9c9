/* Which connections go, of an origin that holds more than its part of the room and only holds it,
 * so that others go on: one check at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/govern/rpc_govern_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>

enum { CROWD = 1, GATEWAY, MANY = 9, MESSAGE = 300000, BEGUN = 6 };
/* More checks than it takes to stand. */
#define LONG 10
/* Later than any check so far. */
#define NOW_NS (1000 * VX_NS_PER_S)

static struct vx_rpc_govern *row_of(i32 i)
{
    return vx_rpc_governor_row(rig_governor, i);
}

/* A connection with a message that has begun, of which some is held. */
static i32 begin(u16 origin)
{
    const i32 i = rig_connect_from(origin);
    rig_greet(i);
    rig_call(i, 1);
    vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_AWAITED, 1);
    ck_assert(raw_message(rig_theirs[i], 1, MESSAGE, BEGUN));
    rig_read_all(i);
    ck_assert_int_gt(row_of(i)->meter.held, 0);
    return i;
}

static void begin_many(u16 origin)
{
    for (i32 i = 0; i < MANY; i++) begin(origin);
}

/* The first ones bring nothing for so long that what they hold stands. */
static void stand(i32 count)
{
    for (i32 i = 0; i < count; i++)
        for (i32 k = 0; k < LONG; k++) vx_rpc_govern_stood_look(row_of(i), true);
}

/* So much of the room is left for turns. */
static void leave_room(i64 bytes)
{
    rig_governor->held += vx_rpc_govern_room_owner(rig_governor) - bytes;
    ck_assert_int_eq(vx_rpc_govern_room_owner(rig_governor), bytes);
}

static i32 closed_count(i32 first)
{
    i32 closed = 0;
    for (i32 i = first; i < first + MANY; i++) closed += rig_is_closed(i);
    return closed;
}

/* Two origins hold as much, together far more than the room: what one has beyond half of the room is
 * too much, though it is half of what all hold. */
START_TEST(a_part_is_one_of_the_room)
{
    rig_open(0);
    begin_many(CROWD);
    begin_many(GATEWAY);
    const i64 held = rig_governor->held_of[CROWD];
    ck_assert_int_eq(held, rig_governor->held_of[GATEWAY]);
    ck_assert_int_gt(2 * held, vx_rpc_govern_room(rig_governor));
    leave_room(0);
    stand(MANY);
    ck_assert(vx_rpc_govern_close_crowds(rig_governor));
    ck_assert_int_gt(closed_count(0), 0);
    ck_assert_int_eq(closed_count(MANY), 0);
    rig_close();
}
END_TEST

/* Their next bytes lie in their sockets, so that they wait for us: they go all the same. */
START_TEST(who_leaves_bytes_in_its_socket_goes)
{
    rig_open(0);
    begin_many(CROWD);
    begin(GATEWAY);
    leave_room(0);
    for (i32 i = 0; i < MANY; i++) {
        ck_assert(raw_rest(rig_theirs[i], 1, MESSAGE / 3));
        rig_read_all(i);
        ck_assert_int_eq(row_of(i)->waits, VX_RPC_WAIT_BYTES);
    }
    leave_room(0);
    ck_assert(!vx_rpc_govern_close_crowds(rig_governor)); /* nothing stands yet */
    stand(MANY / 2);
    ck_assert(!vx_rpc_govern_close_crowds(rig_governor)); /* less than half of it */
    stand(MANY);
    ck_assert(vx_rpc_govern_close_crowds(rig_governor));
    ck_assert_int_gt(closed_count(0), 0);
    rig_close();
}
END_TEST

/* There is some room for turns, but less than they are to have.  What stands goes at the check after
 * another has wanted room, and else stays, for as long as there is any. */
START_TEST(what_stands_goes_once_another_wants_room)
{
    const bool wanted = _i;
    rig_open(0);
    begin_many(CROWD);
    const i32 one = begin(GATEWAY);
    stand(MANY);
    leave_room(1 << 10);
    if (wanted) vx_rpc_govern_want(row_of(one), NOW_NS);
    vx_rpc_governor_turn(rig_governor, NOW_NS);
    ck_assert_int_gt(vx_rpc_govern_room_owner(rig_governor), 0);
    ck_assert_int_eq(closed_count(0) > 0, wanted);
    ck_assert(!rig_is_closed(one));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_crowd");
    TCase *tests = tcase_create("rpc_governor_crowd");
    tcase_add_test(tests, a_part_is_one_of_the_room);
    tcase_add_test(tests, who_leaves_bytes_in_its_socket_goes);
    tcase_add_loop_test(tests, what_stands_goes_once_another_wants_room, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
