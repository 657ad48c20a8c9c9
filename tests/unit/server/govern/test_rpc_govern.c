/* What a connection may cost: which connections are paused, which make room, and which
 * are closed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_meter.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct vx_rpc_counters counters_of(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters;
}

static u64 cuts_of(struct rpc_server *server, enum vx_rpc_cut why)
{
    return counters_of(server).connections_cut[why];
}

static u64 cuts_all(struct rpc_server *server)
{
    u64 all = 0;
    for (i32 why = 1; why < VX_RPC_CUTS_COUNT; why++)
        all += cuts_of(server, (enum vx_rpc_cut)why);
    return all;
}

static void end(struct rpc_server *server)
{
    rpc_server_wait_idle(server);
    grpc_channel *channel = rpc_channel_open(server);
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}

/* Messages of one connection that exceed the room all complete: the window of one opens when that of
 * another is used. */
START_TEST(messages_of_one_connection_take_turns)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receive_bytes_max = 1 << 20});
    int fd = raw_open(server);
    struct raw_windows windows = raw_windows_after(4 * 505);
    for (u32 id = 1; id <= 5; id += 2) {
        ck_assert(raw_call(fd, id, RPC_INFER, NULL));
        ck_assert(raw_message(fd, id, 540000, 500));
    }
    VX_WAIT_UNTIL(counters_of(server).receiving == 3);
    size_t left[RAW_STREAMS_MAX] = {539505, 539505, 539505};
    ck_assert(raw_large_rests(fd, left, &windows));
    ck_assert_int_eq(windows.open_most, 1);
    VX_WAIT_UNTIL(counters_of(server).refused_bad == 3); /* zeros are no request */
    VX_WAIT_UNTIL(counters_of(server).receiving == 0);
    close(fd);
    end(server);
}
END_TEST

/* A call whose message waits for that and leaves, from whatever place, delays no other call. */
START_TEST(who_leaves_holds_up_nobody)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receive_bytes_max = 1 << 20});
    int fd = raw_open(server);
    struct raw_windows windows = raw_windows_after(4 * 505);
    i32 in_flight = 4;
    for (u32 i = 0; i < 4; i++) {
        ck_assert(raw_call(fd, 2 * i + 1, RPC_INFER, NULL));
        ck_assert(raw_message(fd, 2 * i + 1, 540000, 500));
        rpc_wait_in_flight(server, (i32)i + 1);
    }
    for (i32 i = 3; i > 0; i--) { /* _i: which calls leave, a bit each */
        if (!(_i >> (i - 1) & 1)) continue;
        ck_assert(raw_send(
            fd, &(struct raw_frame){RAW_RESET, 0, 2 * (u32)i + 1, "\0\0\0\x8", 4}));
        rpc_wait_in_flight(server, --in_flight);
    }
    size_t left[RAW_STREAMS_MAX] = {0};
    for (i32 i = 0; i < 4; i++)
        if (!i || !(_i >> (i - 1) & 1)) left[i] = 539505;
    ck_assert(raw_large_rests(fd, left, &windows));
    rpc_wait_in_flight(server, 0);
    ck_assert_uint_ge(counters_of(server).refused_bad, (u64)in_flight);
    close(fd);
    end(server);
}
END_TEST

/* One client sends only headers and takes all calls; another client's call still has a
 * place. */
START_TEST(idle_calls_make_room_for_others)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 8});
    int fd = raw_open(server);
    for (u32 i = 0; i < 100; i++) ck_assert(raw_call(fd, 2 * i + 1, RPC_INFER, NULL));
    VX_WAIT_UNTIL(counters_of(server).refused_full >= 100 - 8 - 64);
    grpc_channel *channel = rpc_channel_open(server);
    for (u32 i = 0; i < 20; i++) rpc_infer_echo(channel, 1000, i);
    grpc_channel_destroy(channel);
    close(fd);
    end(server);
}
END_TEST

START_TEST(idle_watches_make_room_for_others)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 8, .on_call = NULL});
    int fd = raw_open(server);
    for (u32 i = 0; i < 100; i++)
        ck_assert(raw_call(fd, 2 * i + 1, RPC_REFLECTION, NULL));
    VX_WAIT_UNTIL(counters_of(server).refused_full > 0);
    grpc_channel *channel = rpc_channel_open(server);
    for (u32 i = 0; i < 20; i++) rpc_infer_echo(channel, 1000, i);
    grpc_channel_destroy(channel);
    close(fd);
    end(server);
}
END_TEST

/* Incomplete messages fill the room and stall: small requests pass, and so does a
 * large one. */
START_TEST(halves_do_not_keep_others_out)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receive_bytes_max = 1 << 20});
    int fds[4];
    for (i32 i = 0; i < 4; i++) {
        fds[i] = raw_open(server);
        ck_assert(raw_call(fds[i], 1, i & 1 ? RPC_STREAM : RPC_INFER, NULL));
        raw_large_message(fds[i], 1, 700000,
                          600000); /* less is missing than of the large one */
    }
    grpc_channel *channel = rpc_channel_open(server);
    for (u32 i = 0; i < 20; i++) rpc_infer_echo(channel, 1000, i);
    rpc_infer_echo(channel, 2 << 20, 7);
    grpc_channel_destroy(channel);
    for (i32 i = 0; i < 4; i++) close(fds[i]);
    end(server);
}
END_TEST

/* One connection with incomplete messages on many streams, of which each has its first window, fills
 * the room alone and what lies beyond it. */
START_TEST(halves_of_one_connection_end_it)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receive_bytes_max = 820 << 10});
    int fd = raw_open(server);
    struct raw_windows windows = raw_windows_after(RAW_STREAMS_MAX * 500);
    size_t left[RAW_STREAMS_MAX];
    for (u32 i = 0; i < RAW_STREAMS_MAX; i++) {
        ck_assert(raw_call(fd, 2 * i + 1, RPC_STREAM, NULL));
        ck_assert(raw_message(fd, 2 * i + 1, 4 << 20, 500));
        left[i] = 60000;
    }
    (void)raw_large_rests(fd, left, &windows);
    raw_expect_end(fd);
    /* The reason it is closed for depends on which check comes first. */
    VX_WAIT_UNTIL(cuts_all(server) == 1);
    end(server);
}
END_TEST

/* A message on a stream has a time limit of its own.  The same limit holds for the
 * preface, so it is generous. */
START_TEST(message_of_a_stream_has_its_time)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receive_ns_max = 5 * VX_NS_PER_S});
    int idle = raw_open(server), slow = raw_open(server);
    ck_assert(raw_call(idle, 1, RPC_STREAM, NULL));
    ck_assert(raw_call(slow, 1, RPC_STREAM, NULL));
    ck_assert(raw_message(slow, 1, 1000, 100));
    raw_expect_end(slow);
    VX_WAIT_UNTIL(cuts_of(server, VX_RPC_CUT_LATE) == 1);
    VX_WAIT_UNTIL(counters_of(server).connections == 1); /* the silent one stays */
    close(idle);
    end(server);
}
END_TEST

static bool send_reset(int fd, u32 turn)
{
    return raw_call(fd, 2 * turn + 1, RPC_INFER, NULL) &&
           raw_send(fd, &(struct raw_frame){RAW_RESET, 0, 2 * turn + 1, "\0\0\0\x8", 4});
}

static bool send_ping(int fd, u32 turn)
{
    (void)turn;
    return raw_send(fd, &(struct raw_frame){.type = RAW_PING, .flags = 1, .length = 8});
}

static bool send_settings(int fd, u32 turn)
{
    (void)turn;
    return raw_send(fd, &(struct raw_frame){.type = RAW_SETTINGS, .flags = 1});
}

static bool send_empty(int fd, u32 turn)
{
    if (!turn && !raw_call(fd, 1, RPC_INFER, NULL)) return false;
    return raw_send(fd, &(struct raw_frame){.type = RAW_DATA, .id = 1});
}

static bool send_unknown(int fd, u32 turn)
{
    return raw_send(fd,
                    &(struct raw_frame){.type = 0xbe, .id = turn & 0xff, .length = 4});
}

static bool (*const floods[])(int fd, u32 turn) = {send_reset, send_ping, send_settings,
                                                   send_empty, send_unknown};

/* Beside each flood a well-behaved client is served, and the flood's connection is
 * closed. */
START_TEST(floods_are_closed_and_nobody_else)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    grpc_channel *channel = rpc_channel_open(server);
    rpc_infer_echo(channel, 1000, 0);
    int fd = raw_open(server);
    for (u32 turn = 0; floods[_i](fd, turn); turn++)
        if (turn % 4096 == 0) rpc_infer_echo(channel, 1000, turn);
    raw_expect_end(fd);
    VX_WAIT_UNTIL(cuts_of(server, VX_RPC_CUT_FLOOD) == 1);
    rpc_infer_echo(channel, 1000, 1);
    VX_WAIT_UNTIL(counters_of(server).connections == 1);
    grpc_channel_destroy(channel);
    end(server);
}
END_TEST

START_TEST(header_block_without_end_is_closed)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    int fd = raw_open(server);
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_HEADERS, 0, 1, NULL, 16384}));
    struct raw_frame more = {.type = 9, .id = 1, .length = 16384};
    for (i32 i = 0; i < 100 && raw_send(fd, &more); i++) {
    }
    raw_expect_end(fd);
    VX_WAIT_UNTIL(cuts_of(server, VX_RPC_CUT_HEADERS) == 1);
    end(server);
}
END_TEST

/* A client that is merely fast is served completely. */
START_TEST(honest_haste_is_not_closed)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client clients[48];
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    for (i32 turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < VX_COUNT(clients); i++) {
            rpc_client_open(&clients[i], channel, RPC_INFER, 0);
            if (i % 3 == 2) rpc_client_cancel(&clients[i]);
        }
        for (size_t i = 0; i < VX_COUNT(clients); i++) {
            if (i % 3 != 2) ck_assert(rpc_client_send(&clients[i], body, length));
            if (i % 3 != 2) rpc_client_half_close(&clients[i]);
            if (i % 3 != 2) ck_assert(rpc_client_receive(&clients[i], &result));
            rpc_client_close(&clients[i], &result);
            ck_assert_int_eq(result.code,
                             i % 3 == 2 ? GRPC_STATUS_CANCELLED : GRPC_STATUS_OK);
            rpc_result_clear(&result);
        }
    }
    ck_assert_uint_eq(counters_of(server).connections_ever, 1);
    grpc_channel_destroy(channel);
    end(server);
}
END_TEST

#define CALLS (VX_H2_STREAMS_MAX / 3 * 4 + 100)

/* What the server has sent to one client, and which of its calls that ended. */
struct heard {
    u8 bytes[1 << 16];
    size_t have;
    bool over[CALLS + 1];
    u32 over_count;
};

static void hear_frame(struct heard *heard, const u8 *head)
{
    u32 call =
        ((u32)head[5] << 24 | (u32)head[6] << 16 | (u32)head[7] << 8 | head[8]) / 2;
    bool last = head[3] == RAW_HEADERS && head[4] & RAW_END_STREAM;
    if (!(last || head[3] == RAW_RESET) || call > CALLS || heard->over[call]) return;
    heard->over[call] = true;
    heard->over_count++;
}

static void hear(struct heard *heard, int fd)
{
    ssize_t got;
    while ((got = recv(fd, heard->bytes + heard->have, sizeof heard->bytes - heard->have,
                       MSG_DONTWAIT)) > 0) {
        size_t at = 0, length = 0;
        heard->have += (size_t)got;
        for (; heard->have - at >= 9; at += 9 + length) {
            const u8 *head = heard->bytes + at;
            length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
            if (heard->have - at < 9 + length) break;
            hear_frame(heard, head);
        }
        memmove(heard->bytes, heard->bytes + at, heard->have - at);
        heard->have -= at;
    }
}

/* A call that is answered before its message is whole is over, though its client never
 * ends it: it no longer counts as open, as silent, or as holding bytes.  At most 1,024 are
 * under way, as gRPC tells its clients. */
START_TEST(calls_that_were_answered_are_over)
{
    static struct heard heard;
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    int fd = raw_open(server);
    heard = (struct heard){.have = 0};
    for (u32 i = 0; i < CALLS; i++) {
        bool whole = i % 4 == 0; /* so many whole ones are no flood */
        ck_assert(raw_call(fd, 2 * i + 1, RPC_INFER, "1n"));
        /* Together less than the connection's first window, 65,535: no window update
         * is needed. */
        if (whole || _i) ck_assert(raw_message(fd, 2 * i + 1, 16, whole ? 21 : 6));
        VX_WAIT_UNTIL((hear(&heard, fd), heard.over_count + 1024 > i) ||
                      cuts_all(server));
    }
    ck_assert(raw_call(fd, 2 * CALLS + 1, RPC_STREAM, NULL));
    VX_WAIT_UNTIL((hear(&heard, fd), counters_of(server).streams == 1) ||
                  cuts_all(server));
    ck_assert_uint_eq(cuts_all(server), 0);
    close(fd);
    end(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_govern");
    TCase *tests = tcase_create("rpc_govern");
    tcase_set_timeout(tests, 2 * VX_WAIT_SECONDS);
    tcase_add_test(tests, messages_of_one_connection_take_turns);
    tcase_add_loop_test(tests, who_leaves_holds_up_nobody, 0, 8);
    tcase_add_test(tests, idle_calls_make_room_for_others);
    tcase_add_test(tests, idle_watches_make_room_for_others);
    tcase_add_test(tests, halves_do_not_keep_others_out);
    tcase_add_test(tests, halves_of_one_connection_end_it);
    tcase_add_test(tests, message_of_a_stream_has_its_time);
    tcase_add_loop_test(tests, floods_are_closed_and_nobody_else, 0, VX_COUNT(floods));
    tcase_add_test(tests, header_block_without_end_is_closed);
    tcase_add_test(tests, honest_haste_is_not_closed);
    tcase_add_loop_test(tests, calls_that_were_answered_are_over, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
