/* The governor's own rules, on connections that nobody else reads: how much room halves of messages
 * have, which connection goes for a new one, parts of the arena, and when memory is given back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/clock.h"
#include "server/host.h"
#include "server/rpc_private.h"
#include "tests/unit/rpc_raw.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO             "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define CONNECTIONS_MAX   1024
#define RECEIVE_BYTES_MAX (1 << 20)
/* As in rpc_govern_cost.c. */
#define CONNECTION_BYTES (32 << 10)
#define CALL_BYTES       (8 << 10)
#define ROOM_PART        8

/* Pairs of sockets: ours is what the governor reads, theirs what a client writes. */
static struct vx_rpc_governor *governor;
static int ours[CONNECTIONS_MAX], theirs[CONNECTIONS_MAX];
static i32 count;

static void on_bell(void *context)
{
    (void)context;
}

static void open_governor(u64 arena_bytes)
{
    struct vx_rpc_options options = {.message_bytes_max = 64 << 20,
                                     .receive_bytes_max = RECEIVE_BYTES_MAX,
                                     .receive_ns_max = 60 * VX_NS_PER_S,
                                     .arena_bytes = arena_bytes};
    vx_host_raise_files();
    ck_assert_ptr_null(
        vx_rpc_governor_open(&options, CONNECTIONS_MAX, on_bell, NULL, &governor).fault);
    count = 0;
}

static struct vx_rpc_place place_of(i32 i)
{
    return (struct vx_rpc_place){ours[i], (u64)i + 1};
}

/* The number of a new connection. */
static i32 connect_one(void)
{
    int pair[2];
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ours[count] = pair[0];
    theirs[count] = pair[1];
    vx_rpc_govern_begin(vx_rpc_governor_row(governor, count), place_of(count));
    return count++;
}

static void close_governor(void)
{
    for (i32 i = 0; i < count; i++) {
        vx_rpc_govern_end(vx_rpc_governor_row(governor, i));
        close(ours[i]);
        close(theirs[i]);
    }
    vx_rpc_governor_close(&governor);
}

static bool is_closed(i32 i)
{
    return vx_rpc_governor_row(governor, i)->cut != VX_RPC_CUT_NONE;
}

/* As gRPC does, until there is nothing, or nothing that may be read now. */
static void read_all(i32 i)
{
    static u8 bytes[1 << 16];
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    while (vx_rpc_govern_read(ours[i], &message, 0) > 0)
        message = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1};
}

static i32 unread(i32 i)
{
    int left = 0;
    ck_assert_int_eq(ioctl(ours[i], FIONREAD, &left), 0);
    return left;
}

static void greet(i32 i)
{
    ck_assert_int_eq(write(theirs[i], HELLO, sizeof HELLO - 1), sizeof HELLO - 1);
}

static void call(i32 i, u32 id)
{
    struct raw_frame headers = {RAW_HEADERS, RAW_END_HEADERS, id, NULL, 14};
    ck_assert(raw_send(theirs[i], &headers));
}

/* A call with a message of 32 MiB, as much of it as is read; bytes that were. */
static i64 fill_with_half(i32 i)
{
    greet(i);
    call(i, 1);
    ck_assert(raw_message(theirs[i], 1, 32 << 20, 1000));
    for (read_all(i); !unread(i); read_all(i)) ck_assert(raw_rest(theirs[i], 1, 16384));
    return vx_rpc_governor_row(governor, i)->meter.held;
}

/* ------- room for halves of messages ------- */

/* Each connection takes of it, and each call that has arrived and not ended, but an eighth always
 * stays. */
START_TEST(room_is_less_beside_connections_and_calls)
{
    static const i32 beside[] = {0, 7, 15, 23, 27, 100};
    static const i32 calls[] = {0, 1, 9};
    i32 others = beside[_i], streams = calls[_i % (i32)VX_COUNT(calls)];
    open_governor(0);
    i32 one = connect_one();
    for (i32 i = 0; i < others; i++) connect_one();
    for (i32 i = 0; others && i < streams; i++) {
        if (!i) greet(1);
        call(1, (u32)(2 * i + 1));
        read_all(1);
        vx_rpc_govern_arrived(place_of(1));
    }
    if (others && streams > 1) { /* one that we have ended, whatever its client says */
        vx_rpc_govern_share(place_of(1), VX_RPC_SHARE_ARRIVED, -1);
        streams--;
    }
    i64 weight =
        (i64)(others + 1) * CONNECTION_BYTES + (i64)(others ? streams : 0) * CALL_BYTES;
    i64 room = RECEIVE_BYTES_MAX - weight;
    if (room < RECEIVE_BYTES_MAX / ROOM_PART) room = RECEIVE_BYTES_MAX / ROOM_PART;
    ck_assert_int_eq(fill_with_half(one), room);
    close_governor();
}
END_TEST

/* Who is answered before its message is whole holds nothing of it any more, whatever it says. */
START_TEST(what_we_reset_gives_its_room_back)
{
    u8 reset[] = {0, 0, 4, RAW_RESET, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    struct iovec pieces[] = {{reset, 5}, {reset + 5, sizeof reset - 5}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = VX_COUNT(pieces)};
    open_governor(0);
    i32 one = connect_one(), other = connect_one();
    i64 room = fill_with_half(one);
    ck_assert_int_eq(vx_rpc_govern_write(ours[one], &message, 0), sizeof reset);
    ck_assert_int_eq(vx_rpc_governor_row(governor, one)->meter.held, 0);
    read_all(one); /* the rest is for nobody */
    ck_assert_int_eq(unread(one), 0);
    ck_assert_int_eq(fill_with_half(other), room);
    close_governor();
}
END_TEST

static size_t put_head(u8 *out, u8 type, u32 id, u8 length)
{
    u8 head[] = {0, 0, length, type, RAW_END_HEADERS, 0, 0, (u8)(id >> 8), (u8)id};
    memcpy(out, head, sizeof head);
    return sizeof head;
}

/* Reads are sized for the rest of a message while a frame of it is under way: what comes are heads
 * of calls, more than a connection may bring. */
static void flood_with_calls(i32 i, u32 calls)
{
    static u8 out[64 << 10];
    u8 message[5] = {0, 0, 4, 0, 0}; /* 256 KiB */
    greet(i);
    call(i, 1);
    size_t length = put_head(out, RAW_DATA, 1, 100);
    memcpy(out + length, message, sizeof message);
    ck_assert_int_eq(write(theirs[i], out, length + 99), (ssize_t)length + 99);
    read_all(i);
    length = 1; /* the rest of that frame */
    for (u32 k = 1; k <= calls; k++)
        length += put_head(out + length, RAW_HEADERS, 2 * k + 1, 0);
    ck_assert_int_eq(write(theirs[i], out, length), (ssize_t)length);
    read_all(i);
}

/* Calls that were read and never arrive hold up their own connection, and nobody else. */
START_TEST(calls_that_never_arrive_are_their_own)
{
    open_governor(0);
    i32 cut = connect_one(), many = connect_one(), good = connect_one();
    flood_with_calls(cut, 2000);
    ck_assert(is_closed(cut)); /* what it brought never got anywhere */
    vx_rpc_govern_end(vx_rpc_governor_row(governor, cut));
    flood_with_calls(many, 1100);
    ck_assert(!is_closed(many));
    ck_assert_int_gt(vx_rpc_governor_row(governor, many)->unseen, 1024);
    /* One that has none is read, and then waits for those that it brought. */
    greet(good);
    call(good, 1);
    read_all(good);
    ck_assert_int_eq(unread(good), 0);
    ck_assert_int_eq(vx_rpc_governor_row(governor, good)->unseen, 1);
    call(good, 3);
    read_all(good);
    ck_assert_int_gt(unread(good), 0);
    vx_rpc_govern_arrived(place_of(good));
    read_all(good);
    ck_assert_int_eq(unread(good), 0);
    /* Its own time gives them back. */
    vx_rpc_governor_turn(governor, vx_clock_ns() + 20 * VX_NS_PER_S);
    ck_assert_int_eq(vx_rpc_governor_row(governor, good)->unseen, 0);
    ck_assert_int_eq(vx_rpc_governor_row(governor, many)->unseen, 0);
    vx_rpc_govern_begin(vx_rpc_governor_row(governor, cut), place_of(cut));
    close_governor();
}
END_TEST

/* While few calls are unseen a message is read in large pieces, whatever comes in it. */
START_TEST(many_at_once_bring_few_calls_each)
{
    open_governor(0);
    i32 first = connect_one(), second = connect_one();
    flood_with_calls(first, 1100);
    ck_assert_int_eq(vx_rpc_governor_row(governor, first)->unseen, 1101);
    for (i32 k = 0; k < 1000; k++) vx_rpc_govern_arrived(place_of(first));
    flood_with_calls(second, 1100);
    ck_assert(!is_closed(second));
    ck_assert_int_gt(unread(second), 0);
    ck_assert_int_le(vx_rpc_governor_row(governor, second)->unseen, 200);
    close_governor();
}
END_TEST

static void turns(i32 count_of_looks, i64 *now_ns)
{
    for (i32 i = 0; i < count_of_looks; i++) {
        *now_ns += VX_NS_PER_S / 2;
        vx_rpc_governor_turn(governor, *now_ns);
    }
}

/* A half of a small message fills the room, and its rest is the least of all: it goes on first, as
 * long as it brings something. */
START_TEST(who_brings_nothing_lets_others_go_on)
{
    i64 now_ns = vx_clock_ns();
    open_governor(0);
    for (i32 i = 0; i < 3; i++) {
        connect_one();
        fill_with_half(i);
    }
    bool went[3] = {false};
    for (i32 look = 0; look < 3; look++) {
        turns(1, &now_ns);
        i32 going = -1;
        for (i32 i = 0; i < 3; i++)
            if (vx_rpc_governor_row(governor, i)->waits == VX_RPC_WAIT_NONE) going = i;
        ck_assert_int_ge(going, 0);
        ck_assert(!went[going]);
        went[going] = true;
        /* It reads what there is.  A byte that comes when others go on gives it no claim. */
        read_all(going);
        now_ns += VX_NS_PER_S / 100;
        vx_rpc_governor_turn(governor, now_ns);
        ck_assert(raw_rest(theirs[going], 1, 1));
        read_all(going);
    }
    close_governor();
}
END_TEST

/* However many hold little each: who stands still while others wait for room is closed. */
START_TEST(many_small_halves_make_room)
{
    i64 now_ns = vx_clock_ns();
    open_governor(0);
    i32 holders = 24;
    for (i32 i = 0; i <= holders; i++) connect_one();
    for (i32 i = 0; i < holders; i++) {
        greet(i);
        call(i, 1);
        ck_assert(raw_message(theirs[i], 1, 60001, 60000 - 5));
        read_all(i);
    }
    greet(holders);
    call(holders, 1);
    ck_assert(raw_message(theirs[holders], 1, 100000, 80000));
    read_all(holders);
    ck_assert_int_eq(vx_rpc_governor_row(governor, holders)->waits, VX_RPC_WAIT_BYTES);
    i32 closed = 0;
    for (i32 look = 0; look < 20; look++) {
        turns(1, &now_ns);
        for (i32 i = 0; i < holders; i++) read_all(i);
    }
    for (i32 i = 0; i < holders; i++) closed += is_closed(i);
    ck_assert_int_gt(closed, 0);
    ck_assert(!is_closed(holders));
    close_governor();
}
END_TEST

/* ------- which connection goes for a new one ------- */

enum what { SILENT, GREETED, SPOKEN, CALLED };

static void make(i32 i, enum what what)
{
    if (what == SILENT) return;
    greet(i);
    if (what == SPOKEN) return; /* what it said has not been read */
    read_all(i);
    for (u32 id = 1; what == CALLED && id <= 3; id += 2) {
        call(i, id);
        read_all(i);
    }
}

/* When places are few, a call that we have ended does not keep a connection. */
START_TEST(ended_calls_keep_no_place)
{
    open_governor(0);
    for (i32 i = 0; i < 2; i++) {
        make(connect_one(), CALLED);
        for (i32 call_of = 0; call_of < 2; call_of++) vx_rpc_govern_arrived(place_of(i));
        vx_rpc_governor_row(governor, i)->active_ns -= 10 * VX_NS_PER_S;
    }
    vx_rpc_governor_crowded(governor);
    ck_assert(!is_closed(0) && !is_closed(1));
    vx_rpc_govern_share(place_of(1), VX_RPC_SHARE_ARRIVED, -2);
    vx_rpc_governor_crowded(governor);
    ck_assert(!is_closed(0) && is_closed(1));
    close_governor();
}
END_TEST

/* Of 513 connections that have begun no call, of 1024 places, one goes at once: the oldest that has
 * said nothing, else the oldest that has only greeted, else the oldest whose words are unread. */
START_TEST(of_fresh_connections_the_least_goes)
{
    static const struct {
        enum what first[4], others;
        i32 going;
    } cases[] = {
        {{SILENT, SILENT, SILENT, SILENT}, SILENT, 0},
        {{CALLED, SPOKEN, GREETED, SILENT}, SILENT, 3},
        {{SPOKEN, CALLED, GREETED, GREETED}, GREETED, 2},
        {{GREETED, SPOKEN, SPOKEN, SILENT}, SPOKEN, 3},
        {{CALLED, SPOKEN, SPOKEN, SPOKEN}, SPOKEN, 1},
        {{CALLED, CALLED, CALLED, GREETED}, SPOKEN, 3},
    };
    open_governor(0);
    i32 fresh = 0;
    for (i32 i = 0; fresh < CONNECTIONS_MAX / 2; i++) {
        enum what what =
            i < (i32)VX_COUNT(cases[0].first) ? cases[_i].first[i] : cases[_i].others;
        connect_one();
        make(i, what);
        fresh += what != CALLED;
        ck_assert(!is_closed(i));
    }
    for (i32 i = 0; i < count; i++) ck_assert_msg(!is_closed(i), "%d went early", i);
    i32 before = count;
    connect_one();
    for (i32 i = 0; i < before; i++)
        ck_assert_msg(is_closed(i) == (i == cases[_i].going), "case %d: connection %d",
                      _i, i);
    close_governor();
}
END_TEST

/* ------- parts of the arena ------- */

START_TEST(arena_has_a_part_for_each)
{
    open_governor(1200);
    for (i32 i = 0; i < 4; i++) connect_one();
    ck_assert(vx_rpc_govern_take(place_of(0), 1200)); /* alone: all of it */
    vx_rpc_govern_give(place_of(0), 700);             /* 500 */
    ck_assert(vx_rpc_govern_take(place_of(1), 100));  /* 600 of 1200 are not crowded */
    /* Of 900 each of two has 450. */
    ck_assert(!vx_rpc_govern_take(place_of(0), 1));
    ck_assert(!vx_rpc_govern_take(place_of(1), 351));
    ck_assert(vx_rpc_govern_take(place_of(1), 350));
    /* Of three, 300; who is no more than that finds something. */
    ck_assert(!vx_rpc_govern_take(place_of(2), 301));
    ck_assert(vx_rpc_govern_take(place_of(2), 250));
    ck_assert(!vx_rpc_govern_take(place_of(1), 1));
    ck_assert(vx_rpc_govern_take(place_of(2), 50));
    /* Nothing is counted of what was refused: all of it comes back, and one is alone again. */
    vx_rpc_govern_give(place_of(1), 450);
    vx_rpc_govern_give(place_of(2), 300);
    ck_assert(vx_rpc_govern_take(place_of(0), 700));
    /* A connection that ends gives what it has. */
    ck_assert(!vx_rpc_govern_take(place_of(3), 601));
    vx_rpc_govern_end(vx_rpc_governor_row(governor, 0));
    vx_rpc_govern_give(place_of(0), 1200);
    ck_assert(vx_rpc_govern_take(place_of(3), 1200));
    vx_rpc_govern_begin(vx_rpc_governor_row(governor, 0), place_of(0));
    close_governor();
}
END_TEST

/* Who took much while few had some has more than its part once many have. */
START_TEST(arena_is_hoarded_by_who_came_first)
{
    open_governor(1200);
    for (i32 i = 0; i < 4; i++) connect_one();
    ck_assert(vx_rpc_govern_take(place_of(0), 600));
    ck_assert(vx_rpc_govern_take(place_of(1), 200));
    ck_assert(vx_rpc_govern_take(place_of(2), 100));
    for (i32 i = 0; i < 4; i++) ck_assert(!vx_rpc_govern_hoards(place_of(i)));
    ck_assert(
        vx_rpc_govern_take(place_of(3), 1)); /* more than three quarters are taken */
    for (i32 i = 0; i < 4; i++) ck_assert(vx_rpc_govern_hoards(place_of(i)) == !i);
    vx_rpc_govern_give(place_of(0), 400);
    ck_assert(!vx_rpc_govern_hoards(place_of(0)));
    close_governor();
}
END_TEST

/* ------- memory is given back ------- */

#define LOOK_NS (VX_NS_PER_S / 2)
#define WORTH   (16 << 20)

/* So many bytes of whole messages come. */
static void bring(i32 i, i64 bytes)
{
    for (; bytes > 0; bytes -= 16384) {
        ck_assert(
            raw_send(theirs[i], &(struct raw_frame){.type = 0xbe, .length = 16375}));
        struct vx_rpc_govern *row = vx_rpc_governor_row(governor, i);
        row->work = 2000; /* what comes is no subject here */
        read_all(i);
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

/* Free memory between blocks that are in use: nobody but malloc_trim gives that back. */
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

START_TEST(memory_is_given_back_while_much_comes)
{
    struct vx_rpc_memory memory = {0};
    i64 now_ns = 100 * VX_NS_PER_S;
    open_governor(0);
    i32 one = connect_one();
    greet(one);
    read_all(one);
    /* Nothing has come: nothing is due. */
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, governor, now_ns), VX_NEVER);
    bring(one, WORTH - (64 << 10));
    now_ns += LOOK_NS;
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, governor, now_ns), VX_NEVER);
    bring(one, 128 << 10);
    /* Not before the next look... */
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, governor, now_ns + 1), now_ns + LOOK_NS);
    void *last = leave_free();
    i64 before = resident_bytes();
    now_ns += LOOK_NS;
    /* ... then at each, until four in a row brought little. */
    for (i32 look = 1; look <= 4; look++, now_ns += LOOK_NS) {
        i64 until_ns = vx_rpc_memory_turn(&memory, governor, now_ns);
        ck_assert_int_eq(until_ns, look < 4 ? now_ns + LOOK_NS : VX_NEVER);
        if (look == 1 && before) ck_assert_int_lt(resident_bytes(), before - (48 << 20));
    }
    free(last);
    /* As much again has to come. */
    bring(one, WORTH - (1 << 20));
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, governor, now_ns), VX_NEVER);
    bring(one, 1 << 20);
    now_ns += LOOK_NS;
    ck_assert_int_eq(vx_rpc_memory_turn(&memory, governor, now_ns), now_ns + LOOK_NS);
    close_governor();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor");
    TCase *tests = tcase_create("rpc_governor");
    tcase_add_loop_test(tests, room_is_less_beside_connections_and_calls, 0, 6);
    tcase_add_test(tests, what_we_reset_gives_its_room_back);
    tcase_add_test(tests, calls_that_never_arrive_are_their_own);
    tcase_add_test(tests, many_at_once_bring_few_calls_each);
    tcase_add_test(tests, who_brings_nothing_lets_others_go_on);
    tcase_add_test(tests, many_small_halves_make_room);
    tcase_add_test(tests, ended_calls_keep_no_place);
    tcase_add_test(tests, arena_is_hoarded_by_who_came_first);
    tcase_add_loop_test(tests, of_fresh_connections_the_least_goes, 0, 6);
    tcase_add_test(tests, arena_has_a_part_for_each);
    tcase_add_test(tests, memory_is_given_back_while_much_comes);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
