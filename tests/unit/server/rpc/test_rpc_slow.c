/* Clients that are too slow: they are cut after a time, and no other client is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* No test takes this long, and none waits for it: the loop is given a later time. */
#define LIMIT_NS (3600 * VX_NS_PER_S)
/* More than gRPC's windows and the kernel's loopback buffers can hold. */
#define LARGE_BYTES (24 << 20)

static i64 cut_now_ns;

static void cut_then(struct rpc_server *server)
{
    vx_rpc_cut_slow(rpc_server_rpc(server), cut_now_ns);
}

static void cut(struct rpc_server *server, i64 now_ns)
{
    cut_now_ns = now_ns;
    rpc_server_do(server, cut_then);
}

static struct rpc_server *server_open(void)
{
    return rpc_server_open(&(struct rpc_server_options){.receive_ns_max = LIMIT_NS,
                                                        .send_ns_max = LIMIT_NS});
}

static void cuts(struct rpc_server *server, u64 receiving, u64 sending)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.cut_receiving, receiving);
    ck_assert_uint_eq(counters.cut_sending, sending);
}

static bool receives(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.receiving == 1;
}

/* No other call waits for it in the meantime. */
START_TEST(body_that_does_not_come_is_cut)
{
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client slow;
    struct rpc_result result = {0};
    rpc_client_open(&slow, channel, RPC_INFER, 0);
    rpc_wait_in_flight(server, 1);
    VX_WAIT_UNTIL(receives(server));
    rpc_infer_echo(channel, 100, 1);
    rpc_wait_in_flight(server, 1); /* the server also knows it is sent */
    i64 late_ns = vx_clock_ns() + LIMIT_NS + 1;
    cut(server, vx_clock_ns());
    cuts(server, 0, 0); /* not yet */
    cut(server, late_ns);
    cut(server, late_ns); /* a second time has no effect */
    cuts(server, 1, 0);
    rpc_client_close(&slow, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    ck_assert(strstr(result.text, "took longer than 3600000 ms to arrive"));
    rpc_result_clear(&result);
    rpc_infer_echo(channel, 100, 2);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* A call whose answer is not ready waits for the server, so it is not cut, however
 * long it takes. */
START_TEST(call_that_waits_for_the_loop_is_not_cut)
{
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    rpc_client_open(&client, channel, RPC_INFER, 0);
    ck_assert(rpc_client_send(&client, body, length));
    ck_assert(rpc_client_half_close(&client));
    rpc_wait_seen(server, 1, 0);
    cut(server, vx_clock_ns() + 2 * LIMIT_NS);
    cuts(server, 0, 0);
    rpc_server_release(server);
    ck_assert(rpc_client_receive(&client, &result));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* True once its answer was being sent; before that the client does not read it either. */
static bool sending_was_cut(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    ck_assert_int_eq(rpc_server_slots_out(server), 1);
    cut(server, vx_clock_ns() + 2 * LIMIT_NS);
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.cut_sending;
}

/* Its answer is in the arena until the call is cut. */
START_TEST(answer_that_is_not_read_is_cut)
{
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 *tensor = malloc(LARGE_BYTES), *body = malloc(LARGE_BYTES + 1024);
    ck_assert(tensor && body);
    rpc_fill(tensor, LARGE_BYTES, 7);
    size_t length = rpc_infer_body(body, LARGE_BYTES + 1024, tensor, LARGE_BYTES);
    rpc_client_open(&client, channel, RPC_INFER, 0);
    ck_assert(rpc_client_send(&client, body, length));
    ck_assert(rpc_client_half_close(&client));
    rpc_wait_seen(server, 1, 0);
    VX_WAIT_UNTIL(sending_was_cut(server));
    cuts(server, 0, 1);
    rpc_server_wait_idle(server); /* the slot is back, the answer unread */
    rpc_client_close(&client, &result);
    ck_assert_int_ne(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    free(tensor);
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* ------- clients that read nothing at all ------- */

/* More than the kernel's buffers hold, and no more than a connection may have. */
static u8 unread[7 << 20];

static void on_call(struct rpc_server *server, struct vx_call *call)
{
    if (call->method == VX_METHOD_ID_SERVER_LIVE)
        vx_rpc_reply(rpc_server_rpc(server), &call, unread, sizeof unread);
    else
        rpc_server_echo(server, call);
}

static void on_refused(void *server, const struct vx_rpc_refusal *refusal)
{
    (void)server;
    ck_assert_ptr_nonnull(refusal->method);
}

static void ask_live(int fd, u32 id)
{
    ck_assert(raw_call(fd, id, RPC_LIVE, NULL));
    ck_assert(raw_message(fd, id, 0, 5));
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_DATA, RAW_END_STREAM, id, NULL, 0}));
}

/* The system itself ends a connection that has read nothing for 20 s, on a machine that
 * is so slow. */
static i64 blocked_ns;
static bool is_late(void)
{
    return vx_clock_ns() - blocked_ns > 10 * VX_NS_PER_S;
}

/* gRPC writes the answer, and not just frames of its own.  An answer that is cut before is
 * never written: then the connection is not blocked. */
static bool answer_comes(int fd)
{
    int bytes = 0;
    ck_assert_int_eq(ioctl(fd, FIONREAD, &bytes), 0);
    return bytes > 1024;
}

static struct rpc_server *server_open_blocked(i32 streams_max, int *fd)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 16,
                                                     .streams_max = streams_max,
                                                     .send_ns_max = LIMIT_NS,
                                                     .on_call = on_call,
                                                     .on_refused = on_refused});
    u8 most[4] = {0x7f, 0, 0, 0}, windows[6] = {0, 4, 0x7f, 0, 0, 0};
    struct raw_frame open = {RAW_SETTINGS, 0, 0, windows, sizeof windows};
    struct raw_frame wide = {RAW_WINDOW, 0, 0, most, sizeof most};
    blocked_ns = vx_clock_ns();
    *fd = raw_open_small(server);
    ck_assert(raw_send(*fd, &open) && raw_send(*fd, &wide));
    ask_live(*fd, 1);
    VX_WAIT_UNTIL(answer_comes(*fd));
    return server;
}

static bool cut_so_often(struct rpc_server *server, u64 sending)
{
    struct vx_rpc_counters counters;
    cut(server, vx_clock_ns() + 2 * LIMIT_NS);
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.cut_sending == sending;
}

static u64 cut_unread(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.connections_cut[VX_RPC_CUT_UNREAD];
}

/* Only `others` are connected, by our cut or, if it came too late, by the system's. */
static bool unread_is_gone(struct rpc_server *server, i32 others, bool late)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.connections == others && (late || cut_unread(server) == 1);
}

/* A refusal is cut as an answer is, also that of a method which is not there.  What gRPC
 * has begun to write stays with it, so in the end the connection is closed. */
START_TEST(connection_that_reads_nothing_after_a_cut_is_closed)
{
    int fd;
    struct vx_rpc_counters counters;
    struct rpc_server *server = server_open_blocked(1, &fd);
    i64 began_ns = vx_clock_ns();
    VX_WAIT_UNTIL(cut_so_often(server, 1));
    ck_assert(raw_call(fd, 3, "/no.Such/Method", NULL));
    VX_WAIT_UNTIL(cut_so_often(server, 2));
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_int_eq(counters.in_flight, 1);
    cut(server, vx_clock_ns() + 2 * LIMIT_NS + 5 * VX_NS_PER_S); /* not yet */
    bool soon = vx_clock_ns() - began_ns < 4 * VX_NS_PER_S;
    rpc_sleep_ms(20); /* sleep: nothing is to happen */
    ck_assert(!soon || !cut_unread(server));
    cut(server, vx_clock_ns() + 2 * LIMIT_NS + 15 * VX_NS_PER_S);
    bool late = is_late();
    rpc_wait_in_flight(server, 0);
    VX_WAIT_UNTIL(unread_is_gone(server, 0, late));
    close(fd);
    rpc_server_close(server);
}
END_TEST

/* Every record has such a call, or the connection is closed already. */
static bool records_are_gone(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    /* calls_max, VX_RPC_SMALL_RESERVED, VX_RPC_REFUSALS_MAX, twice streams_max */
    return counters.unknown_methods >= 16 + 64 + 64 + 4 || cut_unread(server) ||
           is_late();
}

/* Refused calls keep their records until the refusal is sent.  Those of one connection
 * were all that there are: a stream, which needs one for each request, waited for ever. */
START_TEST(refusals_that_are_not_read_keep_no_one_out)
{
    int fd;
    u8 body[1024];
    struct rpc_client client;
    struct rpc_result result = {0};
    struct rpc_server *server = server_open_blocked(4, &fd);
    grpc_channel *channel = rpc_channel_open(server);
    VX_WAIT_UNTIL(cut_so_often(server, 1)); /* the socket is full */
    for (u32 i = 0, id = 3; i < 1000 && raw_call(fd, id, "/no.Such/Method", NULL); i++)
        id += 2;
    VX_WAIT_UNTIL(records_are_gone(server));
    bool late = is_late();
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    ck_assert(rpc_client_send(&client, body, length));
    ck_assert(rpc_client_half_close(&client));
    ck_assert(rpc_client_receive(&client, &result));
    rpc_result_clear(&result);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    VX_WAIT_UNTIL(unread_is_gone(server, 1, late));
    grpc_channel_destroy(channel);
    close(fd);
    rpc_server_close(server);
}
END_TEST

/* ------- places ------- */

/* No window lets an answer through. */
static int open_shut(struct rpc_server *server)
{
    u8 windows[6] = {0, 4, 0, 0, 0, 0};
    int fd = raw_open(server);
    ck_assert(
        raw_send(fd, &(struct raw_frame){RAW_SETTINGS, 0, 0, windows, sizeof windows}));
    return fd;
}

static bool live_is_served(grpc_channel *channel)
{
    struct rpc_result result = {0};
    rpc_unary(channel, RPC_LIVE, "", 0, &result);
    bool served = result.code == GRPC_STATUS_OK;
    rpc_result_clear(&result);
    return served;
}

/* On a machine that is so slow that the first have been unread for long enough, some have
 * made room already. */
static bool all_have_come(struct rpc_server *server, i32 calls)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.in_flight + (i32)counters.refused_full >= calls;
}

/* So many connections with 16 calls, and then with one, have all places that there are for
 * calls_max, small calls and who has few. */
START_TEST(calls_whose_answers_are_not_read_make_room)
{
    enum { MANY = 3, ONE = 32 };
    int fds[MANY + ONE];
    struct vx_rpc_counters counters;
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){
        .calls_max = 16, .connections_max = 64, .send_ns_max = LIMIT_NS});
    grpc_channel *channel = rpc_channel_open(server);
    for (i32 i = 0, calls = 0; i < MANY + ONE; i++) {
        fds[i] = open_shut(server);
        for (u32 k = 0; k < (i < MANY ? 16 : 1); k++, calls++)
            ask_live(fds[i], 2 * k + 1);
        VX_WAIT_UNTIL(all_have_come(server, calls));
    }
    VX_WAIT_UNTIL(live_is_served(channel));
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_int_gt(counters.connections, MANY + ONE); /* a dead one ends after 80 s */
    grpc_channel_destroy(channel);
    for (i32 i = 0; i < MANY + ONE; i++) close(fds[i]);
    rpc_server_close(server);
}
END_TEST

/* Longer than an answer must be unread to make room, which here none may do. */
static void sleep_past_unread(void)
{
    rpc_sleep_ms(400); /* sleep: nothing is to happen */
}

/* Each of so many connections has one call, as the new one would have.  One address may have three
 * quarters of the places beyond calls_max. */
START_TEST(who_has_as_few_calls_keeps_them)
{
    enum { ALL = 16 + 64 * 3 / 4 }; /* calls_max, and that of VX_RPC_SMALL_RESERVED */
    int fds[ALL];
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){
        .calls_max = 16, .connections_max = 128, .send_ns_max = LIMIT_NS});
    grpc_channel *channel = rpc_channel_open(server);
    for (i32 i = 0; i < ALL; i++) {
        fds[i] = open_shut(server);
        ask_live(fds[i], 1);
        rpc_wait_in_flight(server, i + 1);
    }
    sleep_past_unread();
    ck_assert(!live_is_served(channel));
    rpc_wait_in_flight(server, ALL);
    grpc_channel_destroy(channel);
    for (i32 i = 0; i < ALL; i++) close(fds[i]);
    rpc_server_close(server);
}
END_TEST

/* A stream with a request, whose answer no window lets through. */
static void open_unread_stream(int fd, u32 id)
{
    u8 message[1024] = {0};
    size_t length = rpc_infer_body(message + 5, sizeof message - 5, "abcd", 4);
    message[3] = (u8)(length >> 8);
    message[4] = (u8)length;
    ck_assert(raw_call(fd, id, RPC_STREAM, NULL));
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_DATA, 0, id, message, length + 5}));
}

/* False: it was refused. */
static bool stream_is_served(grpc_channel *channel)
{
    u8 body[1024];
    struct rpc_client client;
    struct rpc_result result = {0};
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    if (rpc_client_send(&client, body, length)) (void)rpc_client_half_close(&client);
    if (rpc_client_receive(&client, &result)) rpc_result_clear(&result);
    rpc_client_close(&client, &result);
    bool served = result.code == GRPC_STATUS_OK;
    rpc_result_clear(&result);
    return served;
}

/* They are neither idle nor cut, for LIMIT_NS. */
START_TEST(streams_whose_answers_are_not_read_make_room)
{
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.streams_max = 4, .send_ns_max = LIMIT_NS});
    grpc_channel *channel = rpc_channel_open(server);
    int fd = open_shut(server);
    for (u32 i = 0; i < 4; i++) open_unread_stream(fd, 2 * i + 1);
    rpc_wait_seen(server, 4, 0);
    VX_WAIT_UNTIL(stream_is_served(channel));
    grpc_channel_destroy(channel);
    close(fd);
    rpc_server_close(server);
}
END_TEST

/* They wait for us. */
START_TEST(streams_whose_requests_run_make_no_room)
{
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.streams_max = 4, .send_ns_max = LIMIT_NS});
    grpc_channel *channel = rpc_channel_open(server);
    int fd = open_shut(server);
    rpc_server_hold(server);
    for (u32 i = 0; i < 4; i++) open_unread_stream(fd, 2 * i + 1);
    rpc_wait_seen(server, 4, 0);
    sleep_past_unread();
    ck_assert(!stream_is_served(channel));
    rpc_server_release(server);
    grpc_channel_destroy(channel);
    close(fd);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_slow");
    TCase *tcase = tcase_create("slow");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, body_that_does_not_come_is_cut);
    tcase_add_test(tcase, call_that_waits_for_the_loop_is_not_cut);
    tcase_add_test(tcase, answer_that_is_not_read_is_cut);
    tcase_add_test(tcase, connection_that_reads_nothing_after_a_cut_is_closed);
    tcase_add_test(tcase, refusals_that_are_not_read_keep_no_one_out);
    tcase_add_test(tcase, calls_whose_answers_are_not_read_make_room);
    tcase_add_test(tcase, who_has_as_few_calls_keeps_them);
    tcase_add_test(tcase, streams_whose_answers_are_not_read_make_room);
    tcase_add_test(tcase, streams_whose_requests_run_make_no_room);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
