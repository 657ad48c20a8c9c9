/* Which connection is closed for a new one, on connections that nothing else reads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/govern/governor_rig.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

enum what { SILENT, GREETED, SPOKEN, CALLED };

static void make(i32 i, enum what what)
{
    if (what == SILENT) return;
    rig_greet(i);
    if (what == SPOKEN) return; /* what it sent has not been read */
    rig_read_all(i);
    for (u32 id = 1; what == CALLED && id <= 3; id += 2) {
        rig_call(i, id);
        rig_read_all(i);
    }
}

/* When places are few, a connection is not kept for a call that the server has ended. */
START_TEST(ended_calls_keep_no_place)
{
    rig_open(0);
    for (i32 i = 0; i < 2; i++) {
        make(rig_connect(), CALLED);
        for (i32 call_of = 0; call_of < 2; call_of++) vx_rpc_govern_arrived(rig_place(i));
        vx_rpc_governor_row(rig_governor, i)->asked_ns -= 10 * VX_NS_PER_S;
    }
    vx_rpc_governor_crowded(rig_governor, 0, vx_clock_ns());
    ck_assert(!rig_is_closed(0) && !rig_is_closed(1));
    vx_rpc_govern_share(rig_place(1), VX_RPC_SHARE_ARRIVED, -2);
    vx_rpc_governor_crowded(rig_governor, 0, vx_clock_ns());
    ck_assert(!rig_is_closed(0) && rig_is_closed(1));
    rig_close();
}
END_TEST

/* First one without a call, then those whose calls last as long as they like or wait for their
 * message, then one that has not read an answer; none with a call that waits for us, and none
 * that has just asked. */
START_TEST(calls_that_wait_for_their_client_keep_no_place)
{
    enum { BUSY, UNREAD, LASTING, AWAITS, IDLE, ASKS };
    static const i32 order[] = {IDLE, LASTING, AWAITS, UNREAD};
    rig_open(0);
    for (i32 i = BUSY; i <= ASKS; i++) {
        make(rig_connect(), CALLED);
        if (i != IDLE && i != ASKS) vx_rpc_govern_arrived(rig_place(i));
        if (i != ASKS) vx_rpc_governor_row(rig_governor, i)->asked_ns -= 10 * VX_NS_PER_S;
    }
    vx_rpc_govern_share(rig_place(UNREAD), VX_RPC_SHARE_ENDED, 1);
    vx_rpc_govern_share(rig_place(LASTING), VX_RPC_SHARE_IDLE, 1);
    vx_rpc_govern_share(rig_place(AWAITS), VX_RPC_SHARE_AWAITED, 1);
    /* However long the test takes. */
    vx_rpc_governor_row(rig_governor, ASKS)->asked_ns += VX_WAIT_SECONDS * VX_NS_PER_S;
    for (size_t i = 0; i < VX_COUNT(order); i++) {
        ck_assert(!rig_is_closed(order[i]));
        vx_rpc_governor_crowded(rig_governor, 0, vx_clock_ns());
        ck_assert(rig_is_closed(order[i]));
    }
    vx_rpc_governor_crowded(rig_governor, 0, vx_clock_ns());
    ck_assert(!rig_is_closed(BUSY) && !rig_is_closed(ASKS));
    rig_close();
}
END_TEST

/* A crowd has 900 of 1024 places and asks now and then.  A newcomer from elsewhere takes a place
 * of it, however often it asks; one of its own after 1 s without a request, or gets none; no
 * small origin loses one to it. */
START_TEST(a_crowd_makes_way)
{
    enum { CROWD, SMALL, NEW, CROWDED = 900 };
    static const struct {
        i32 newcomer, idle_ms, goes; /* -1: none */
    } cases[] = {
        /* 5 waits for us: it goes only where nobody has asked nothing for long. */
        {NEW, 1, 5}, {NEW, 101, 7}, {SMALL, 101, 7}, {CROWD, 999, -1}, {CROWD, 1001, 7},
    };
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i <= CROWDED; i++) {
        make(rig_connect_from(i < CROWDED ? CROWD : SMALL), CALLED);
        vx_rpc_governor_row(rig_governor, i)->asked_ns =
            now_ns - (i == CROWDED ? 4000 : cases[_i].idle_ms) * VX_NS_PER_MS;
    }
    vx_rpc_governor_row(rig_governor, 5)->asked_ns -= VX_NS_PER_MS / 2; /* the longest */
    rig_call(5, 5);
    vx_rpc_governor_row(rig_governor, 7)->asked_ns -= VX_NS_PER_MS / 4;
    ck_assert(vx_rpc_governor_crowded(rig_governor, (u16)cases[_i].newcomer, now_ns) ==
              (cases[_i].goes >= 0));
    ck_assert(vx_rpc_governor_is_crowd(rig_governor, (u16)cases[_i].newcomer) ==
              (cases[_i].newcomer == CROWD));
    for (i32 i = 0; i <= CROWDED; i++)
        ck_assert_msg(rig_is_closed(i) == (cases[_i].goes == i), "case %d, connection %d",
                      _i, i);
    rig_close();
}
END_TEST

/* Of two crowds the larger one asks all the time: one of the smaller goes that has asked nothing
 * for 100 ms. */
START_TEST(the_crowd_that_asks_less_makes_way)
{
    enum { BUSY, CALM, NEW, ALTERNATE = 900, ALL = 950 };
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 i = 0; i < ALL; i++) {
        const bool calm = i < ALTERNATE && i % 2;
        make(rig_connect_from(calm ? CALM : BUSY), CALLED);
        vx_rpc_governor_row(rig_governor, i)->asked_ns =
            now_ns - (calm ? 101 : 99) * VX_NS_PER_MS;
    }
    vx_rpc_governor_row(rig_governor, 3)->asked_ns -= VX_NS_PER_MS;
    ck_assert(vx_rpc_governor_crowded(rig_governor, NEW, now_ns));
    for (i32 i = 0; i < ALL; i++)
        ck_assert_msg(rig_is_closed(i) == (i == 3), "connection %d", i);
    rig_close();
}
END_TEST

/* 16 origins share all places alike, and ask all the time.  A newcomer from elsewhere gets a
 * place of them, and so do its next connections, up to a quarter of its part, which is 1024 / 17;
 * they get none of each other's. */
START_TEST(equal_origins_make_way_for_another)
{
    enum { ORIGINS = 16, NEW = ORIGINS, OWN = 15, FULL = RIG_CONNECTIONS_MAX - OWN };
    i64 now_ns = vx_clock_ns();
    i32 closed = 0;
    rig_open(0);
    for (i32 i = 0; i < FULL; i++) {
        make(rig_connect_from((u16)(i % ORIGINS)), CALLED);
        vx_rpc_governor_row(rig_governor, i)->asked_ns = now_ns;
    }
    ck_assert(!vx_rpc_governor_crowded(rig_governor, 3, now_ns));
    ck_assert(vx_rpc_governor_is_crowd(rig_governor, 3));
    ck_assert(!vx_rpc_governor_is_crowd(rig_governor, NEW));
    for (i32 i = 0; i < OWN; i++) {
        ck_assert(vx_rpc_governor_crowded(rig_governor, NEW, now_ns));
        rig_connect_from(NEW);
    }
    ck_assert(!vx_rpc_governor_crowded(rig_governor, NEW, now_ns));
    for (i32 i = 0; i < FULL; i++) closed += rig_is_closed(i);
    ck_assert_int_eq(closed, OWN);
    rig_close();
}
END_TEST

/* With 1024 places, of 513 connections that have begun no call one is closed at once:
 * the oldest that has sent nothing, else the oldest that has only sent its preface,
 * else the oldest whose bytes are unread, if it has waited for 2 s. */
START_TEST(of_fresh_connections_the_least_goes)
{
    static const struct {
        enum what first[4], others;
        i32 going; /* -1: none */
        bool waited;
    } cases[] = {
        {{SILENT, SILENT, SILENT, SILENT}, SILENT, 0, false},
        {{CALLED, SPOKEN, GREETED, SILENT}, SILENT, 3, false},
        {{SPOKEN, CALLED, GREETED, GREETED}, GREETED, 2, false},
        {{GREETED, SPOKEN, SPOKEN, SILENT}, SPOKEN, 3, false},
        {{CALLED, SPOKEN, SPOKEN, SPOKEN}, SPOKEN, -1, false},
        {{CALLED, SPOKEN, SPOKEN, SPOKEN}, SPOKEN, 1, true},
        {{CALLED, SPOKEN, GREETED, SPOKEN}, SPOKEN, 2, true},
        {{CALLED, CALLED, CALLED, GREETED}, SPOKEN, 3, false},
    };
    rig_open(0);
    i32 fresh = 0;
    for (i32 i = 0; fresh < RIG_CONNECTIONS_MAX / 2; i++) {
        enum what what =
            i < (i32)VX_COUNT(cases[0].first) ? cases[_i].first[i] : cases[_i].others;
        rig_connect();
        make(i, what);
        fresh += what != CALLED;
        ck_assert(!rig_is_closed(i));
    }
    for (i32 i = 0; i < rig_count; i++)
        ck_assert_msg(!rig_is_closed(i), "%d went early", i);
    i32 before = rig_count;
    for (i32 i = 0; cases[_i].waited && i < before; i++)
        vx_rpc_governor_row(rig_governor, i)->begun_ns -= 3 * VX_NS_PER_S;
    rig_connect();
    for (i32 i = 0; i < before; i++)
        ck_assert_msg(rig_is_closed(i) == (i == cases[_i].going),
                      "case %d: connection %d", _i, i);
    rig_close();
}
END_TEST

/* One call is enough for a place. */
START_TEST(a_call_ends_the_beginning)
{
    rig_open(0);
    const i32 one = rig_connect();
    const struct vx_rpc_govern *row = vx_rpc_governor_row(rig_governor, one);
    make(one, GREETED);
    ck_assert(row->fresh);
    rig_call(one, 1);
    rig_read_all(one);
    ck_assert(!row->fresh);
    rig_close();
}
END_TEST

/* Of 513 connections those of the origin that has most go, though others are older and
 * have sent nothing since the preface. */
START_TEST(of_fresh_connections_the_crowd_goes)
{
    enum { FIRST, SECOND, CROWD, OTHER, NEW };
    static const u16 origins[] = {FIRST, SECOND, SECOND, CROWD, OTHER};
    rig_open(0);
    for (i32 i = 0; i < RIG_CONNECTIONS_MAX / 2; i++) {
        rig_connect_from(i < (i32)VX_COUNT(origins) ? origins[i] : CROWD);
        make(i, i == 3 ? SPOKEN : GREETED);
    }
    for (i32 i = 0; i < RIG_CONNECTIONS_MAX / 4; i++) {
        rig_connect_from((u16)(NEW + i));
        make(rig_count - 1, GREETED);
    }
    for (i32 i = 0; i < 5; i++)
        ck_assert_msg(!rig_is_closed(i), "connection %d of origin %d", i, origins[i]);
    i32 closed = 0;
    for (i32 i = 5; i < RIG_CONNECTIONS_MAX / 2; i++) closed += rig_is_closed(i);
    ck_assert_int_eq(closed, RIG_CONNECTIONS_MAX / 4);
    rig_close();
}
END_TEST

/* 513 connections of which one is another address's: it keeps its place, however old it is, while the
 * crowd's are not heard. */
START_TEST(of_fresh_connections_the_few_stay)
{
    enum { FEW, CROWD };
    rig_open(0);
    for (i32 i = 0; i < RIG_CONNECTIONS_MAX / 2 + 1; i++) {
        make(rig_connect_from(i ? CROWD : FEW), i ? SPOKEN : GREETED);
        if (!i) vx_rpc_governor_row(rig_governor, i)->begun_ns -= 10 * VX_NS_PER_S;
    }
    for (i32 i = 0; i < rig_count; i++) ck_assert(!rig_is_closed(i));
    rig_close();
}
END_TEST

/* What was closed takes no place of others, though gRPC has not ended it yet: of 512
 * connections one after the other is closed, and as many come. */
START_TEST(of_fresh_connections_the_closed_count_no_more)
{
    rig_open(0);
    for (i32 i = 0; i < RIG_CONNECTIONS_MAX / 2; i++) {
        rig_connect();
        make(i, GREETED);
    }
    for (i32 i = 0; i < RIG_CONNECTIONS_MAX / 4; i++) {
        ck_assert_int_eq(write(rig_theirs[i], "no frame of HTTP/2", 18), 18);
        rig_read_all(i);
        ck_assert(rig_is_closed(i));
        rig_connect();
        make(rig_count - 1, GREETED);
    }
    for (i32 i = RIG_CONNECTIONS_MAX / 4; i < rig_count; i++)
        ck_assert_msg(!rig_is_closed(i), "connection %d of %d", i, rig_count);
    rig_close();
}
END_TEST

/* gRPC writes: a whole frame of SETTINGS, or all of it but the last byte. */
static void settings_write(i32 i, size_t count)
{
    u8 frame[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0};
    struct iovec piece = {frame, count};
    const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ck_assert_int_eq(vx_rpc_govern_write(rig_ours[i], &message, 0), (ssize_t)count);
}

/* What its client reads to the end. */
static size_t client_read(i32 i, u8 *bytes, size_t room)
{
    size_t count = 0;
    for (ssize_t got = 1; got > 0; count += (size_t)(got > 0 ? got : 0))
        got = read(rig_theirs[i], bytes + count, room - count);
    return count;
}

/* A client may be sending its next call when its place goes to another.  It hears which calls have begun
 * here, and sends that one again; a client that is closed for what it did hears nothing, nor one that
 * has heard nothing else, nor one that would hear it within a frame. */
START_TEST(who_makes_way_hears_which_calls_have_begun)
{
    enum { IDLE, FAULTY, UNGREETED, WITHIN, SETTINGS_BYTES = 15 };
    static const u8 goaway[17] = {0, 0, 8, 7, [12] = 3};
    static const size_t written[] = {SETTINGS_BYTES, SETTINGS_BYTES, 0,
                                     SETTINGS_BYTES - 1};
    u8 bytes[64];
    rig_open(0);
    for (i32 i = IDLE; i <= WITHIN; i++) {
        make(rig_connect(), CALLED); /* of the ids 1 and 3 */
        if (written[i]) settings_write(i, written[i]);
        if (i == FAULTY) {
            ck_assert_int_eq(write(rig_theirs[i], "\x7f\xff\xff\1\4\0\0\0\5", 9), 9);
            for (i32 part = 0; part < 5 && !rig_is_closed(i); part++) {
                static u8 block[8192];
                ck_assert_int_eq(write(rig_theirs[i], block, sizeof block), sizeof block);
                rig_read_all(i);
            }
        } else {
            vx_rpc_governor_row(rig_governor, i)->asked_ns -= 10 * VX_NS_PER_S;
            ck_assert(vx_rpc_governor_crowded(rig_governor, 0, vx_clock_ns()));
        }
        ck_assert(rig_is_closed(i));
        size_t count = client_read(i, bytes, sizeof bytes);
        size_t farewell = i == IDLE ? sizeof goaway : 0;
        ck_assert_uint_eq(count, written[i] + farewell);
        ck_assert_mem_eq(bytes + written[i], goaway, farewell);
    }
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_places");
    TCase *tests = tcase_create("rpc_governor_places");
    tcase_add_test(tests, ended_calls_keep_no_place);
    tcase_add_test(tests, calls_that_wait_for_their_client_keep_no_place);
    tcase_add_loop_test(tests, a_crowd_makes_way, 0, 5);
    tcase_add_test(tests, the_crowd_that_asks_less_makes_way);
    tcase_add_test(tests, equal_origins_make_way_for_another);
    tcase_add_loop_test(tests, of_fresh_connections_the_least_goes, 0, 8);
    tcase_add_test(tests, a_call_ends_the_beginning);
    tcase_add_test(tests, of_fresh_connections_the_crowd_goes);
    tcase_add_test(tests, of_fresh_connections_the_few_stay);
    tcase_add_test(tests, of_fresh_connections_the_closed_count_no_more);
    tcase_add_test(tests, who_makes_way_hears_which_calls_have_begun);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
