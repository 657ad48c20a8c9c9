/* What gRPC's read buffers keep: those of a busy connection all of it, and the pages of one that
 * rests, or of each where there are many, go back to the system, though never a byte beside what a
 * read did not fill.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"
#include "server/base/peer.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUFFERS  8
#define DIRT     0xa7
#define PAGE     4096
#define HELLO    33 /* bytes of the greeting, and of SETTINGS behind it */
#define GREETING 24
#define FRAME    9
#define UNKNOWN  0xfe
/* So many connections keep 8 buffers each before the sum is used up. */
#define KEEPERS 8

/* 8 buffers of 64 KiB as malloc gives them: other bytes lie between them, and none begins with
 * a page. */
#define APART 48
static u8 *memory;
static struct iovec pieces[BUFFERS];
#define MEMORY_BYTES (BUFFERS * (RIG_BUFFER_BYTES + APART) + PAGE)

static void buffers_dirty(void)
{
    memset(memory, DIRT, MEMORY_BYTES);
    for (i32 i = 0; i < BUFFERS; i++)
        pieces[i] = (struct iovec){
            memory + APART + (size_t)i * (RIG_BUFFER_BYTES + APART), RIG_BUFFER_BYTES};
}

/* Reads behind the first `used` bytes of the buffers. */
static ssize_t read_behind(i32 i, size_t used)
{
    struct iovec left[BUFFERS];
    memcpy(left, pieces, sizeof left);
    i32 first = 0;
    for (; used >= left[first].iov_len; first++) used -= left[first].iov_len;
    left[first].iov_base = (u8 *)left[first].iov_base + used;
    left[first].iov_len -= used;
    struct msghdr message = {.msg_iov = left + first,
                             .msg_iovlen = (size_t)(BUFFERS - first)};
    return vx_rpc_govern_read(rig_ours[i], &message, 0);
}

static void expect_nothing(ssize_t got)
{
    ck_assert_int_eq(got, -1);
    ck_assert_int_eq(errno, EAGAIN);
}

/* Whether all of it is as it was, from buffer `first` on. */
static bool is_dirty(i32 first)
{
    const u8 *begin = (first < BUFFERS ? (u8 *)pieces[first].iov_base : memory) - APART;
    for (const u8 *at = begin; at < memory + MEMORY_BYTES; at++)
        if (*at != DIRT) return false;
    return true;
}

/* The whole pages of each buffer from `first` on are gone, and nothing else is. */
static void expect_given(i32 first)
{
    for (i32 i = first; i < BUFFERS; i++) {
        const u8 *begin = pieces[i].iov_base, *end = begin + RIG_BUFFER_BYTES;
        for (const u8 *at = begin - APART; at < end; at++) {
            const u8 *page = (const u8 *)((uintptr_t)at / PAGE * PAGE);
            u8 want = page >= begin && page + PAGE <= end ? 0 : DIRT;
            ck_assert_msg(*at == want, "buffer %d, byte %td: %d", i, at - begin, *at);
        }
    }
}

/* A connection whose buffers are all in use, and of which so many bytes were read. */
static i32 keeper(void)
{
    i32 i = rig_connect();
    buffers_dirty();
    rig_greet(i);
    const struct raw_frame settings = {RAW_SETTINGS, 0, 0, NULL, 0};
    ck_assert(raw_send(rig_theirs[i], &settings));
    ck_assert_int_eq(read_behind(i, 0), HELLO);
    return i;
}

/* With so many no connection keeps more while it is busy than while it rests. */
#define MANY 200

static void many_connect(void)
{
    for (i32 i = 0; i < MANY; i++) (void)rig_connect();
}

static void many_keep(void)
{
    many_connect();
    for (i32 k = 0; k < KEEPERS; k++) {
        i32 i = keeper();
        expect_nothing(read_behind(i, HELLO));
        ck_assert(k == KEEPERS - 1 || is_dirty(1));
    }
}

static void setup(void)
{
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    ck_assert(memory != MAP_FAILED);
    rig_open(0);
}

static void teardown(void)
{
    rig_close();
    munmap(memory, MEMORY_BYTES);
}

/* As 1,000 idle connections that had sent 1 MB each did: +550 MB.  _i: bytes of a frame before
 * the end, which leave less than the head of one at the end of the buffer. */
START_TEST(many_give_their_buffers_back)
{
    many_keep();
    i32 i = keeper();
    size_t used = HELLO + (size_t)_i;
    const struct raw_frame data = {RAW_DATA, 0, 1, NULL, (size_t)_i - FRAME};
    ck_assert(!_i || raw_send(rig_theirs[i], &data));
    for (size_t at = HELLO; at < used;) at += (size_t)read_behind(i, at);
    ssize_t filled = read_behind(i, used);
    ck_assert_int_eq(filled, RIG_BUFFER_BYTES - (ssize_t)used);
    expect_given(1);
    /* The buffer that has bytes is full of frames that say nothing. */
    const u8 *at = (const u8 *)pieces[0].iov_base + used, *end = at + filled;
    while (at < end) {
        ck_assert_int_ge(end - at, FRAME);
        size_t payload = (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2];
        ck_assert_uint_le(payload, 16384);
        ck_assert_int_eq(at[3], UNKNOWN);
        ck_assert(!at[4] && !at[5] && !at[6] && !at[7] && !at[8]);
        at += FRAME + payload;
    }
    ck_assert_ptr_eq(at, end);
    /* gRPC asks again, and once is enough. */
    expect_nothing(read_behind(i, RIG_BUFFER_BYTES));
    expect_nothing(read_behind(i, RIG_BUFFER_BYTES));
    /* Buffers that gRPC makes after that are new ones. */
    buffers_dirty();
    expect_nothing(read_behind(i, 0));
    expect_given(1);
}
END_TEST

/* Within a frame nothing may be put in front of its rest. */
START_TEST(no_frame_is_torn)
{
    many_keep();
    i32 i = keeper();
    ck_assert_int_eq(write(rig_theirs[i], "\0\0\x8", 3), 3);
    ck_assert_int_eq(read_behind(i, HELLO), 3);
    expect_nothing(read_behind(i, HELLO + 3));
    expect_given(1);
    ck_assert_int_eq(write(rig_theirs[i],
                           "\6\0\0\0\0\0"
                           "12345678",
                           14),
                     14);
    ck_assert_int_eq(read_behind(i, HELLO + 3), 14);
    ck_assert(!memcmp((u8 *)pieces[0].iov_base + HELLO + 3,
                      "\6\0\0\0\0\0"
                      "12345678",
                      14));
}
END_TEST

/* A client's first frame is its SETTINGS: with another one in front gRPC closed clients that sent these
 * later than the greeting. */
START_TEST(nothing_stands_before_settings)
{
    many_keep();
    i32 i = rig_connect();
    buffers_dirty();
    rig_greet(i);
    ck_assert_int_eq(read_behind(i, 0), GREETING);
    expect_nothing(read_behind(i, GREETING));
    expect_given(1);
}
END_TEST

/* What a connection kept counts until it reads on, or ends. */
START_TEST(who_leaves_keeps_nothing)
{
    many_keep();
    rig_end(MANY);
    rig_end(MANY + 1);
    expect_nothing(read_behind(keeper(), HELLO));
    ck_assert(is_dirty(1));
}
END_TEST

/* What is left of a buffer of which so many bytes are used. */
static struct iovec rest_of(i32 buffer, size_t used)
{
    return (struct iovec){(u8 *)pieces[buffer].iov_base + used, RIG_BUFFER_BYTES - used};
}

static ssize_t read_two(i32 i, struct iovec first, struct iovec second)
{
    struct iovec both[] = {first, second};
    return vx_rpc_govern_read(rig_ours[i],
                              &(struct msghdr){.msg_iov = both, .msg_iovlen = 2}, 0);
}

/* A connection of which USED bytes or more were read, frames of no call; returns how many. */
#define USED 60000
static size_t keeper_use(i32 i)
{
    const struct raw_frame data = {RAW_DATA, 0, 1, NULL, 10000};
    size_t at = HELLO, sent = HELLO;
    for (; sent < USED; sent += FRAME + 10000) {
        ck_assert(raw_send(rig_theirs[i], &data));
        while (at < sent + FRAME + 10000) at += (size_t)read_behind(i, at);
    }
    ck_assert_uint_eq(at, sent);
    return at;
}

/* gRPC keeps what is left of two buffers in the opposite order, so the next bytes go into the empty one:
 * 900 connections kept 60 KB each behind a last piece of a buffer. */
START_TEST(what_stands_behind_an_empty_buffer_is_freed)
{
    many_keep();
    i32 i = keeper();
    const size_t used = keeper_use(i);
    const struct raw_frame data = {RAW_DATA, 0, 1, NULL, 100};
    ck_assert(raw_send(rig_theirs[i], &data));
    ck_assert_int_eq(read_two(i, rest_of(1, 0), rest_of(0, used)), FRAME + 100);
    ssize_t all = (ssize_t)(2 * RIG_BUFFER_BYTES - used - FRAME - 100);
    ck_assert_int_eq(read_two(i, rest_of(1, FRAME + 100), rest_of(0, used)), all);
    /* Where one of the frames ends, the next begins, in the other buffer if it must. */
    u8 *filled = malloc((size_t)all);
    size_t first = RIG_BUFFER_BYTES - FRAME - 100;
    memcpy(filled, rest_of(1, FRAME + 100).iov_base, first);
    memcpy(filled + first, rest_of(0, used).iov_base, (size_t)all - first);
    const u8 *at = filled;
    while (at < filled + all) {
        ck_assert_int_ge(filled + all - at, FRAME);
        ck_assert_int_eq(at[3], UNKNOWN);
        at += FRAME + ((size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2]);
    }
    ck_assert_ptr_eq(at, filled + all);
    free(filled);
}
END_TEST

/* A connection that waits, as 900 did between two messages, keeps no more than one that rests. */
START_TEST(who_waits_frees_what_it_brought)
{
    many_keep();
    i32 i = keeper();
    const size_t used = keeper_use(i);
    rig_hold_time(i);
    size_t at = used;
    for (u32 id = 3; id < 9; id += 2) rig_call(i, id);
    for (ssize_t got = 1; vx_rpc_governor_row(rig_governor, i)->waits == VX_RPC_WAIT_NONE;
         at += (size_t)got)
        ck_assert_int_gt(got = read_behind(i, at), 0);
    ck_assert_uint_eq(at, RIG_BUFFER_BYTES);
    expect_nothing(read_behind(i, at));
    expect_given(1);
}
END_TEST

/* What begins in the rest of a used buffer keeps all of it. */
START_TEST(a_message_keeps_what_came_before_it)
{
    i32 i = keeper();
    const size_t used = keeper_use(i);
    const struct raw_frame data = {RAW_DATA, 0, 1, NULL, 100};
    ck_assert(raw_send(rig_theirs[i], &data));
    ck_assert_int_eq(read_two(i, rest_of(1, 0), rest_of(0, used)), FRAME + 100);
    rig_call(i, 3);
    ck_assert(raw_message(rig_theirs[i], 3, 12000, 1000));
    ck_assert_int_gt(read_two(i, rest_of(0, used), rest_of(1, FRAME + 100)), 1000);
    const i64 held = vx_rpc_governor_row(rig_governor, i)->meter.held;
    ck_assert_int_ge(held, RIG_BUFFER_BYTES / 2);
}
END_TEST

/* Small requests, one after the other, in buffers that were given back. */
START_TEST(bytes_that_come_later_do_not_stay)
{
    many_keep();
    i32 i = keeper();
    ck_assert_int_gt(read_behind(i, HELLO), 0);
    size_t used = RIG_BUFFER_BYTES, filled = 0;
    for (i32 k = 0; k < 40 && !filled; k++) {
        const struct raw_frame ping = {RAW_DATA, 0, 1, NULL, 1000};
        ck_assert(raw_send(rig_theirs[i], &ping));
        for (ssize_t got; (got = read_behind(i, used)) > 0; used += (size_t)got)
            if (used + (size_t)got == 2 * RIG_BUFFER_BYTES) filled = used;
    }
    ck_assert_uint_ge(filled, RIG_BUFFER_BYTES + 4096);
    ck_assert_uint_le(filled, RIG_BUFFER_BYTES + 4096 + 1500);
    expect_given(2);
}
END_TEST

/* 64 busy clients lost a quarter of their requests by pages that were made again for each. */
START_TEST(few_keep_all_while_they_are_busy)
{
    for (i32 k = 0; k < 4 * KEEPERS; k++) {
        expect_nothing(read_behind(keeper(), HELLO));
        ck_assert(is_dirty(1));
    }
}
END_TEST

/* How many connections gRPC is told to read. */
static i32 woken(int epoll)
{
    struct epoll_event events[2 * KEEPERS + 2];
    i32 all = 0;
    for (int count; (count = epoll_wait(epoll, events, 1, 0)) > 0; all += count)
        count = vx_rpc_govern_polled(events, count, 2 * KEEPERS + 2);
    return all;
}

/* A connection that brings nothing from one look to the next is made to read, and gives then. */
START_TEST(who_rests_gives)
{
    const i64 look_ns = VX_NS_PER_S / 10;
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    i64 now_ns = vx_clock_ns() + VX_NS_PER_S;
    for (i32 k = 0; k < 2 * KEEPERS; k++) {
        i32 i = keeper();
        ck_assert_int_eq(i, k);
        vx_rpc_govern_watched(epoll, rig_ours[i], &event);
        expect_nothing(read_behind(i, HELLO));
    }
    ck_assert_int_le(vx_rpc_governor_turn(rig_governor, now_ns), now_ns + look_ns);
    ck_assert_int_eq(woken(epoll), 0);
    const struct raw_frame data = {RAW_DATA, 0, 1, NULL, 100};
    ck_assert(raw_send(rig_theirs[1], &data));
    ck_assert_int_eq(read_behind(1, HELLO), FRAME + 100);
    expect_nothing(read_behind(1, HELLO + FRAME + 100));
    (void)vx_rpc_governor_turn(rig_governor, now_ns + look_ns - 1);
    ck_assert_int_eq(woken(epoll), 0);
    (void)vx_rpc_governor_turn(rig_governor, now_ns + look_ns);
    ck_assert_int_eq(woken(epoll), 2 * KEEPERS - 1);
    buffers_dirty();
    ck_assert_int_eq(read_behind(0, HELLO), RIG_BUFFER_BYTES - HELLO);
    expect_given(1);
    expect_nothing(read_behind(0, RIG_BUFFER_BYTES));
    buffers_dirty();
    expect_nothing(read_behind(1, HELLO + FRAME + 100));
    ck_assert(is_dirty(1));
    close(epoll);
}
END_TEST

/* With 200 connections gRPC hears after each 64 KiB that there are no more bytes, and then
 * that there are. */
START_TEST(many_connections_pause)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7}, woken;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    many_connect();
    rig_hold_time(0);
    ck_assert_int_eq(epoll_ctl(epoll, EPOLL_CTL_ADD, rig_ours[0], &event), 0);
    vx_rpc_govern_watched(epoll, rig_ours[0], &event);
    rig_greet(0);
    for (u32 id = 1; id < 21; id += 2) {
        vx_rpc_govern_share(rig_place(0), VX_RPC_SHARE_AWAITED, 1);
        rig_call(0, id);
        ck_assert(raw_message(rig_theirs[0], id, 12000, 12005));
    }
    while (epoll_wait(epoll, &woken, 1, 0) > 0) {
    }
    size_t all = 0, pauses = 0;
    for (buffers_dirty(); rig_unread(0);) {
        ssize_t got = read_behind(0, all % RIG_BUFFER_BYTES);
        if (got > 0) {
            all += (size_t)got;
            vx_rpc_govern_arrived(rig_place(0));
            continue;
        }
        expect_nothing(got);
        ck_assert_int_eq(vx_rpc_governor_row(rig_governor, 0)->waits, VX_RPC_WAIT_NONE);
        ck_assert_int_eq(epoll_wait(epoll, &woken, 1, 1000), 1);
        pauses++;
    }
    ck_assert_uint_gt(all, 120000);
    ck_assert_uint_ge(pauses, 1);
    ck_assert_uint_le(pauses, 2);
    close(epoll);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_buffers");
    TCase *tests = tcase_create("rpc_governor_buffers");
    tcase_add_checked_fixture(tests, setup, teardown);
    for (int bytes = 0; bytes <= 16328; bytes += 16328)
        tcase_add_loop_test(tests, many_give_their_buffers_back, bytes, bytes + 1);
    tcase_add_test(tests, no_frame_is_torn);
    tcase_add_test(tests, nothing_stands_before_settings);
    tcase_add_test(tests, who_leaves_keeps_nothing);
    tcase_add_test(tests, few_keep_all_while_they_are_busy);
    tcase_add_test(tests, who_rests_gives);
    tcase_add_test(tests, what_stands_behind_an_empty_buffer_is_freed);
    tcase_add_test(tests, who_waits_frees_what_it_brought);
    tcase_add_test(tests, a_message_keeps_what_came_before_it);
    tcase_add_test(tests, bytes_that_come_later_do_not_stay);
    tcase_add_test(tests, many_connections_pause);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
