/* Clients that disconnect, deadlines that pass, servers that stop: nothing may be left
 * behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <grpc/grpc.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHUTTING_DOWN                                                                    \
    "GRPC server is shutting down and has stopped accepting new requests"

static const struct rpc_server_options defaults;

/* None of them sends its message, so that no call waits for another. */
START_TEST(cancelled_before_decode_leaves_nothing)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client clients[3];
    for (size_t i = 0; i < VX_COUNT(clients); i++) {
        rpc_client_open(&clients[i], channel, RPC_INFER, 0);
        rpc_wait_in_flight(server, (i32)i + 1);
    }
    struct vx_rpc_counters counters;
    VX_WAIT_UNTIL((vx_rpc_counters_get(rpc_server_rpc(server), &counters),
                   counters.receiving == 3));
    struct rpc_result result = {0};
    static const size_t order[] = {1, 0, 2};
    for (size_t i = 0; i < VX_COUNT(order); i++) {
        rpc_client_cancel(&clients[order[i]]);
        rpc_client_close(&clients[order[i]], &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_CANCELLED);
        rpc_wait_in_flight(server, 2 - (i32)i);
    }
    rpc_server_wait_idle(server);
    rpc_wait_seen(server, 0, 0); /* the loop never saw them */
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(cancelled_after_decode_is_told_once)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    struct rpc_client clients[8];
    for (size_t i = 0; i < VX_COUNT(clients); i++) {
        rpc_client_open(&clients[i], channel, RPC_INFER, 0);
        rpc_client_send(&clients[i], body, length);
        rpc_client_half_close(&clients[i]);
    }
    rpc_wait_seen(server, VX_COUNT(clients), 0);
    struct rpc_result result = {0};
    for (size_t i = 0; i < VX_COUNT(clients); i++) {
        rpc_client_cancel(&clients[i]);
        rpc_client_close(&clients[i], &result);
    }
    rpc_wait_seen(server, VX_COUNT(clients), VX_COUNT(clients));
    ck_assert_int_eq(rpc_server_slots_out(server), VX_COUNT(clients));
    rpc_server_release(server); /* answers calls of clients that are gone */
    rpc_server_wait_idle(server);
    rpc_wait_seen(server, VX_COUNT(clients), VX_COUNT(clients));
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(client_that_vanishes_in_mid_message_leaves_nothing)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    for (i32 i = 0; i < 5; i++) {
        int fd = raw_open(server);
        ck_assert(raw_call(fd, 1, RPC_INFER, NULL));
        ck_assert(raw_message(fd, 1, 1 << 20, 5 + (size_t)i * 1600));
        rpc_wait_in_flight(server, 1);
        close(fd);
        rpc_server_wait_idle(server);
    }
    rpc_wait_seen(server, 0, 0);
    grpc_channel *channel = rpc_channel_open(server);
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(deadline_that_has_passed_is_answered_unread)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    int fd = raw_open(server);
    ck_assert(raw_call(fd, 1, RPC_INFER, "0n"));
    ck_assert(raw_message(fd, 1, 1 << 20, 100));
    char answer[4096];
    size_t length = 0;
    bool found = false;
    /* The server's text or, when its timer was faster, gRPC's "Deadline Exceeded";
     * unencoded in the trailers. */
    while (!found) {
        ssize_t got = recv(fd, answer + length, sizeof answer - length, 0);
        ck_assert_int_gt(got, 0);
        length += (size_t)got;
        ck_assert_uint_lt(length, sizeof answer);
        found = memmem(answer, length, "grpc-status", 11) &&
                memmem(answer, length, "eadline", 7);
    }
    close(fd);
    rpc_server_wait_idle(server);
    rpc_wait_seen(server, 0, 0);
    rpc_server_close(server);
}
END_TEST

static void do_refuse(struct rpc_server *server)
{
    vx_rpc_refuse(rpc_server_rpc(server));
}

static void do_stop_accepting(struct rpc_server *server)
{
    vx_rpc_stop_accepting(rpc_server_rpc(server));
}

START_TEST(drain_refuses_then_lets_calls_end)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_INFER, 0);
    rpc_client_send(&client, body, length);
    rpc_client_half_close(&client);
    rpc_wait_seen(server, 1, 0);

    rpc_server_do(server, do_refuse);
    rpc_unary(channel, RPC_INFER, body, length, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_UNAVAILABLE);
    ck_assert_str_eq(result.text, SHUTTING_DOWN);
    rpc_result_clear(&result);
    rpc_unary(channel, RPC_LIVE, "ok", 2, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);

    rpc_server_do(server, do_stop_accepting);
    rpc_unary(channel, RPC_LIVE, "ok", 2, &result);
    ck_assert_int_ne(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_server_release(server);
    ck_assert(rpc_client_receive(&client, &result));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_wait_seen(server, 1, 0);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The thread that waits for the last answer sleeps in between: it is notified once the
 * counters are right. */
START_TEST(drain_is_told_of_each_end)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct vx_rpc_counters counters;
    struct rpc_client clients[2];
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_infer_echo(channel, 100, 1);
    rpc_server_wait_idle(server);
    ck_assert_int_eq(rpc_server_told(server), 0); /* no stop is under way */
    rpc_server_hold(server);
    for (i32 i = 0; i < 2; i++) {
        rpc_client_open(&clients[i], channel, RPC_INFER, 0);
        rpc_client_send(&clients[i], body, length);
        rpc_client_half_close(&clients[i]);
    }
    rpc_wait_seen(server, 3, 0);
    rpc_server_do(server, do_stop_accepting);
    ck_assert_int_eq(rpc_server_told(server), 0);
    rpc_server_release(server);
    VX_WAIT_UNTIL(rpc_server_told(server) >= 2);
    ck_assert_int_eq(rpc_server_told(server), 2);
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_int_eq(counters.in_flight, 0);
    for (i32 i = 0; i < 2; i++) {
        ck_assert(rpc_client_receive(&clients[i], &result));
        rpc_client_close(&clients[i], &result);
        rpc_result_clear(&result);
    }
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The loop drops these calls when it closes: it gives back the slots itself, and the
 * calls are cut. */
static void keep_call(struct rpc_server *server, struct vx_call *call)
{
    (void)server;
    (void)call;
}

START_TEST(close_ends_calls_the_loop_still_has)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = keep_call});
    grpc_channel *channel = rpc_channel_open(server);
    static const char *const paths[] = {RPC_LIVE, RPC_WATCH, RPC_REFLECTION, RPC_INFER,
                                        RPC_INFER};
    struct rpc_client clients[VX_COUNT(paths)];
    for (size_t i = 0; i < VX_COUNT(paths); i++) {
        rpc_client_open(&clients[i], channel, paths[i], 0);
        if (i < 3) rpc_client_send(&clients[i], "x", 1);
        if (i < 3) rpc_client_half_close(&clients[i]);
        rpc_wait_in_flight(server, (i32)i + 1);
    }
    rpc_server_close(server);
    for (size_t i = 0; i < VX_COUNT(paths); i++) {
        struct rpc_result result = {0};
        rpc_client_close(&clients[i], &result);
        ck_assert_msg(result.code == GRPC_STATUS_UNAVAILABLE ||
                          result.code == GRPC_STATUS_CANCELLED,
                      "%zu: %d %s", i, result.code, result.text);
    }
    grpc_channel_destroy(channel);
}
END_TEST

/* Everything at once: sizes, cancellations, deadlines and bad bodies from several
 * clients. */
#define STRESS_THREADS 3
#define STRESS_TURNS   60
struct stress {
    pthread_t thread;
    grpc_channel *channel;
    u32 seed;
    i32 good;
};

static u32 stress_random(struct stress *stress)
{
    stress->seed = stress->seed * 1664525u + 1013904223u;
    return stress->seed >> 8;
}

static void stress_turn(struct stress *stress, u8 *body)
{
    struct rpc_client client;
    struct rpc_result result = {0};
    size_t bytes = stress_random(stress) % 200000;
    size_t length = rpc_infer_body(body, 300000, body + 256, bytes);
    u32 kind = stress_random(stress) % 8;
    rpc_client_open(&client, stress->channel, RPC_INFER, kind == 1 ? 1 : 0);
    if (kind == 2) length /= 2; /* a body cut short */
    if (kind == 3) rpc_client_cancel(&client);
    if (rpc_client_send(&client, body, length)) rpc_client_half_close(&client);
    if (kind == 4) rpc_client_cancel(&client);
    if (rpc_client_receive(&client, &result) && kind >= 5) stress->good++;
    if (kind == 5) rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    if (kind >= 6) ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
}

static void *stress_run(void *context)
{
    struct stress *stress = context;
    u8 *body = calloc(1, 300000);
    for (i32 turn = 0; turn < STRESS_TURNS; turn++) stress_turn(stress, body);
    free(body);
    return NULL;
}

START_TEST(everything_at_once_leaves_nothing)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receive_bytes_max = 100000});
    struct stress stress[STRESS_THREADS];
    for (u32 i = 0; i < STRESS_THREADS; i++) {
        stress[i] = (struct stress){.channel = rpc_channel_open(server), .seed = 77 + i};
        ck_assert_int_eq(pthread_create(&stress[i].thread, NULL, stress_run, &stress[i]),
                         0);
    }
    for (i32 i = 0; i < STRESS_THREADS; i++) {
        pthread_join(stress[i].thread, NULL);
        ck_assert_int_gt(stress[i].good, 0);
        grpc_channel_destroy(stress[i].channel);
    }
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_leaving");
    TCase *tests = tcase_create("rpc_leaving");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, cancelled_before_decode_leaves_nothing);
    tcase_add_test(tests, cancelled_after_decode_is_told_once);
    tcase_add_test(tests, client_that_vanishes_in_mid_message_leaves_nothing);
    tcase_add_test(tests, deadline_that_has_passed_is_answered_unread);
    tcase_add_test(tests, drain_refuses_then_lets_calls_end);
    tcase_add_test(tests, drain_is_told_of_each_end);
    tcase_add_test(tests, close_ends_calls_the_loop_still_has);
    tcase_add_test(tests, everything_at_once_leaves_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
