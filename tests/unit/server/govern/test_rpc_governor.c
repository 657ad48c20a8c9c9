/* The governor's own rules, on connections that nothing else reads: how much room
 * incomplete messages have, and when memory is returned to the system.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/base/host.h"
#include "server/govern/rpc_govern_private.h"
#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The same values as in rpc_govern_cost.c. */
#define CONNECTION_BYTES (32 << 10)
#define CALL_BYTES       (8 << 10)
#define ROOM_PART        8

/* ------- room for halves of messages ------- */

/* Each connection takes some of it, and so does each call that has arrived and not
 * ended, but an eighth always stays. */
START_TEST(room_is_less_beside_connections_and_calls)
{
    static const i32 beside[] = {0, 7, 15, 23, 27, 100};
    static const i32 calls[] = {0, 1, 9};
    i32 others = beside[_i], streams = calls[_i % (i32)VX_COUNT(calls)];
    rig_open(0);
    i32 one = rig_connect();
    for (i32 i = 0; i < others; i++) rig_connect();
    for (i32 i = 0; others && i < streams; i++) {
        if (!i) rig_greet(1);
        rig_call(1, (u32)(2 * i + 1));
        rig_read_all(1);
        vx_rpc_govern_arrived(rig_place(1));
        vx_rpc_govern_share(rig_place(1), VX_RPC_SHARE_AWAITED, 1);
    }
    if (others && streams > 1) { /* one call that the server has ended */
        vx_rpc_govern_share(rig_place(1), VX_RPC_SHARE_ARRIVED, -1);
        streams--;
    }
    i64 weight =
        (i64)(others + 1) * CONNECTION_BYTES + (i64)(others ? streams : 0) * CALL_BYTES;
    i64 room = RIG_RECEIVE_BYTES_MAX - weight;
    if (room < RIG_RECEIVE_BYTES_MAX / ROOM_PART)
        room = RIG_RECEIVE_BYTES_MAX / ROOM_PART;
    ck_assert_int_eq(vx_rpc_govern_room(rig_governor), room);
    i64 held = rig_fill_with_half(one); /* a buffer that has begun counts as half of it */
    ck_assert_int_ge(held, room);
    ck_assert_int_le(held, room + RIG_BUFFER_BYTES / 2);
    rig_close();
}
END_TEST

static void turns(i32 count_of_looks, i64 *now_ns)
{
    for (i32 i = 0; i < count_of_looks; i++) {
        *now_ns += VX_NS_PER_S / 2;
        vx_rpc_governor_turn(rig_governor, *now_ns);
    }
}

/* A message lies beyond the room, and its client brings no more of it; the others have
 * filled the room.  Each of them gets a turn. */
START_TEST(who_brings_nothing_lets_others_go_on)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    rig_connect();
    rig_fill_with_half(0);
    turns(1, &now_ns);
    rig_read_all(0);
    for (i32 i = 1; i < 4; i++) {
        rig_connect();
        rig_fill_with_half(i);
    }
    bool went[4] = {false};
    for (i32 look = 0; look < 3; look++) {
        turns(1, &now_ns);
        i32 going = -1;
        for (i32 i = 1; i < 4; i++)
            if (vx_rpc_governor_row(rig_governor, i)->waits == VX_RPC_WAIT_NONE)
                going = i;
        ck_assert_int_ge(going, 1);
        ck_assert(!went[going]);
        went[going] = true;
        /* It reads what there is.  A byte that arrives while others are read gives it
         * no priority. */
        rig_read_all(going);
        now_ns += VX_NS_PER_S / 100;
        vx_rpc_governor_turn(rig_governor, now_ns);
        ck_assert(raw_rest(rig_theirs[going], 1, 1));
        rig_read_all(going);
    }
    rig_close();
}
END_TEST

/* So many bytes of a message come, as far as they are read. */
static void message_bring(i32 i, u32 id, size_t bytes)
{
    for (rig_read_all(i); bytes && !rig_unread(i); rig_read_all(i)) {
        const size_t piece = bytes < 16384 ? bytes : 16384;
        ck_assert(raw_rest(rig_theirs[i], id, piece));
        bytes -= piece;
    }
}

/* A call with a message of which so many bytes come. */
static void call_begin(i32 i, u32 id, u32 length, size_t bytes)
{
    rig_call(i, id);
    vx_rpc_govern_share(rig_place(i), VX_RPC_SHARE_AWAITED, 1);
    ck_assert(raw_message(rig_theirs[i], id, length, 1000));
    message_bring(i, id, bytes - 1000);
}

/* A connection with two calls whose messages have begun, so that it does not go beyond the room. */
static i32 two_begin(u32 length)
{
    const i32 one = rig_connect();
    rig_greet(one);
    call_begin(one, 1, 2000, 1000);
    call_begin(one, 3, length, 1000);
    return one;
}

/* Waits for room with what comes of its second message. */
static struct vx_rpc_govern *two_wait(i32 i, size_t bytes)
{
    struct vx_rpc_govern *one = vx_rpc_governor_row(rig_governor, i);
    message_bring(i, 3, bytes);
    ck_assert_int_eq(one->waits, VX_RPC_WAIT_BYTES);
    ck_assert_int_gt(rig_unread(i), 0);
    return one;
}

/* Each holds less than a buffer, and more than its small part: those that stall while others wait
 * for room are closed. */
START_TEST(many_small_halves_make_room)
{
    enum { HOLDERS = 8 };
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i < HOLDERS; i++) {
        rig_connect();
        rig_greet(i);
        call_begin(i, 1, 60001, 60000);
        ck_assert_int_eq(rig_unread(i), 0);
    }
    const i32 waiting = two_begin(4 << 20);
    two_wait(waiting, 800000);
    for (i32 look = 0; look < 10; look++) {
        turns(1, &now_ns);
        message_bring(waiting, 3, 100000);
        for (i32 i = 0; look < 5 && i < HOLDERS; i++) ck_assert(!rig_is_closed(i));
    }
    for (i32 i = 0; i < HOLDERS; i++)
        ck_assert_int_eq(vx_rpc_governor_row(rig_governor, i)->cut, VX_RPC_CUT_STILL);
    ck_assert(!rig_is_closed(waiting));
    rig_close();
}
END_TEST

/* There is none, but what owners may add. */
static void room_take(void)
{
    rig_governor->held = vx_rpc_govern_room(rig_governor);
}

/* What it asks for while it has let no turn pass, as in rpc_govern_turn.c. */
static i64 asks_for(const struct vx_rpc_govern *one)
{
    return one->meter.announced - one->meter.came + (64 << 10);
}

/* Of one little is left, of the other much.  When the former has let a turn pass, the latter is
 * before it after half of the time. */
START_TEST(who_lets_a_turn_pass_waits_for_longer)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    const i32 i = two_begin(10000), k = two_begin(1 << 20);
    room_take();
    struct vx_rpc_govern *little = two_wait(i, 5000), *much = two_wait(k, 5000);
    vx_rpc_governor_turn(rig_governor, now_ns);
    ck_assert_ptr_eq(rig_governor->owner, little);
    rig_read_all(i); /* and brings no more */
    now_ns += VX_NS_PER_S / 100;
    vx_rpc_governor_turn(rig_governor, now_ns);
    ck_assert_ptr_eq(rig_governor->owner, much);
    rig_read_all(k);
    rig_governor->owner = NULL; /* as when a message is whole */
    room_take();
    two_wait(i, 1);
    two_wait(k, 1);
    much->queued_ns = now_ns - _i * VX_NS_PER_S / 4;
    little->queued_ns = now_ns - VX_NS_PER_S * asks_for(little) / asks_for(much);
    vx_rpc_governor_turn(rig_governor, now_ns);
    ck_assert_ptr_eq(rig_governor->owner, _i < 2 ? little : much);
    rig_close();
}
END_TEST

/* ------- connections that end ------- */

/* Calls of a connection that has ended still arrive: they may not count as a newcomer's. */
START_TEST(an_ended_connection_is_known_as_such)
{
    rig_open(1200);
    rig_connect();
    ck_assert(vx_rpc_govern_lives(rig_place(0)));
    ck_assert(!vx_rpc_govern_lives((struct vx_rpc_place){rig_place(0).descriptor, 0}));
    vx_rpc_govern_end(vx_rpc_governor_row(rig_governor, 0));
    ck_assert(!vx_rpc_govern_lives(rig_place(0)));
    vx_rpc_govern_begin(vx_rpc_governor_row(rig_governor, 0), rig_place(0), 0);
    ck_assert(vx_rpc_govern_lives(rig_place(0)));
    rig_close();
}
END_TEST

/* ------- memory is given back ------- */

#define LOOK_NS (VX_NS_PER_S / 2)
#define WORTH   (16 << 20)

/* So many bytes of whole messages arrive. */
static void bring(i32 i, i64 bytes)
{
    for (; bytes > 0; bytes -= 16384) {
        ck_assert(
            raw_send(rig_theirs[i], &(struct raw_frame){.type = 0xbe, .length = 16375}));
        struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, i);
        row->work = 2000; /* not what is tested here */
        rig_read_all(i);
    }
}

/* Resident pages; 0 where another allocator stands in for glibc's. */
static i64 resident_bytes(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    long all, resident;
    FILE *file = fopen("/proc/self/statm", "re");
    ck_assert(file && fscanf(file, "%ld %ld", &all, &resident) == 2);
    fclose(file);
    return (i64)resident * sysconf(_SC_PAGESIZE);
#endif
}

/* Free memory between blocks that are in use: only malloc_trim returns that. */
static void *leave_free(void)
{
    static void *blocks[4096];
    for (size_t i = 0; i < VX_COUNT(blocks); i++) {
        blocks[i] = malloc(16 << 10);
        memset(blocks[i], 1, 16 << 10);
    }
    void *last = blocks[VX_COUNT(blocks) - 1];
    for (size_t i = 0; i + 1 < VX_COUNT(blocks); i++) free(blocks[i]);
    return last;
}

/* What a connection was kept with is free when it has ended. */
START_TEST(memory_is_given_back_after_connections)
{
    struct vx_rpc_memory memory = {0};
    i64 now_ns = 100 * VX_NS_PER_S;
    rig_open(0);
    for (i32 i = 0; i < 600; i++) rig_connect();
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns), VX_NEVER);
    for (i32 i = 0; i < 600; i++) rig_end(i);
    now_ns += LOOK_NS;
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns), now_ns + LOOK_NS);
    rig_close();
}
END_TEST

START_TEST(memory_is_given_back_while_much_comes)
{
    struct vx_rpc_memory memory = {0};
    i64 now_ns = 100 * VX_NS_PER_S;
    rig_open(0);
    i32 one = rig_connect();
    rig_greet(one);
    rig_read_all(one);
    /* Nothing has arrived: nothing is due. */
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns), VX_NEVER);
    bring(one, WORTH - (64 << 10));
    now_ns += LOOK_NS;
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns), VX_NEVER);
    bring(one, 128 << 10);
    /* Not before the next check... */
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns + 1),
                     now_ns + LOOK_NS);
    void *last = leave_free();
    i64 before = resident_bytes();
    now_ns += LOOK_NS;
    /* ... then at each check, until four in a row returned little. */
    for (i32 look = 1; look <= 4; look++, now_ns += LOOK_NS) {
        i64 until_ns = vx_rpc_memory_turn(&memory, rig_governor, now_ns);
        ck_assert_int_eq(until_ns, look < 4 ? now_ns + LOOK_NS : VX_NEVER);
        if (look == 1 && before) ck_assert_int_lt(resident_bytes(), before - (48 << 20));
    }
    free(last);
    /* As much again has to arrive. */
    bring(one, WORTH - (1 << 20));
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns), VX_NEVER);
    bring(one, 1 << 20);
    now_ns += LOOK_NS;
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, rig_governor, now_ns), now_ns + LOOK_NS);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor");
    TCase *tests = tcase_create("rpc_governor");
    tcase_add_loop_test(tests, room_is_less_beside_connections_and_calls, 0, 6);
    tcase_add_test(tests, who_brings_nothing_lets_others_go_on);
    tcase_add_test(tests, many_small_halves_make_room);
    for (int quarter = 1; quarter < 4; quarter += 2)
        tcase_add_loop_test(tests, who_lets_a_turn_pass_waits_for_longer, quarter,
                            quarter + 1);
    tcase_add_test(tests, an_ended_connection_is_known_as_such);
    tcase_add_test(tests, memory_is_given_back_while_much_comes);
    tcase_add_test(tests, memory_is_given_back_after_connections);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
