/* Streams: order, clients that do not read, ends from either side.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_harness.h"

#include <grpc/grpc.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct rpc_server_options defaults;

/* Sixteen in one iteration must fit; a client that does not read fills the outbox. */
static void send_sixteen(struct rpc_server *server, struct vx_call *call)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    for (u8 i = 0; i < VX_STREAM_SENDS_MAX; i++) ck_assert(vx_rpc_send(rpc, call, &i, 1));
    call->answered = true;
    vx_rpc_finish(rpc, &call);
}

START_TEST(server_stream_keeps_order)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = send_sixteen});
    grpc_channel *channel = rpc_channel_open(server);
    for (i32 turn = 0; turn < 20; turn++) {
        struct rpc_client client;
        struct rpc_result result = {0};
        rpc_client_open(&client, channel, RPC_WATCH, 0);
        rpc_client_send(&client, "", 0);
        rpc_client_half_close(&client);
        for (u8 i = 0; i < VX_STREAM_SENDS_MAX; i++) {
            ck_assert(rpc_client_receive(&client, &result));
            ck_assert_uint_eq(result.length, 1);
            ck_assert_uint_eq(result.bytes[0], i);
        }
        ck_assert(!rpc_client_receive(&client, &result));
        rpc_client_close(&client, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    }
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

static atomic_int flood_fitted;

static void send_flood(struct rpc_server *server, struct vx_call *call)
{
    static u8 big[1 << 20];
    struct vx_rpc *rpc = rpc_server_rpc(server);
    i32 fitted = 0;
    while (fitted < 1000 && vx_rpc_send(rpc, call, big, sizeof big)) fitted++;
    atomic_store(&flood_fitted, fitted);
}

START_TEST(slow_reader_fills_the_outbox_and_may_leave)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = send_flood});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_WATCH, 0);
    rpc_client_send(&client, "", 0);
    VX_WAIT_UNTIL(atomic_load(&flood_fitted));
    ck_assert_int_ge(atomic_load(&flood_fitted), VX_STREAM_SENDS_MAX);
    ck_assert_int_lt(atomic_load(&flood_fitted), 1000);
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    rpc_server_wait_idle(server); /* `gone` made the loop end it */
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(bidi_stream_echoes_until_half_close)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_REFLECTION, 0);
    for (u8 i = 0; i < 40; i++) {
        ck_assert(rpc_client_send(&client, &i, 1));
        ck_assert(rpc_client_receive(&client, &result));
        ck_assert_uint_eq(result.length, 1);
        ck_assert_uint_eq(result.bytes[0], i);
    }
    rpc_client_half_close(&client);
    ck_assert(!rpc_client_receive(&client, &result));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);
    struct rpc_seen seen;
    rpc_server_seen(server, &seen);
    ck_assert_int_eq(seen.message_ends, 1);
    ck_assert_int_eq(seen.gone, 0);

    rpc_client_open(&client, channel, RPC_REFLECTION,
                    0); /* disconnects during a receive */
    ck_assert(rpc_client_send(&client, "x", 1));
    ck_assert(rpc_client_receive(&client, &result));
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    rpc_server_wait_idle(server);
    rpc_result_clear(&result);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The loop ends the stream while the next message is being received. */
static void finish_while_receiving(struct rpc_server *server, struct vx_call *call)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    vx_rpc_receive(rpc, call);
    call->answered = true;
    vx_rpc_finish(rpc, &call);
}

START_TEST(bidi_stream_may_be_ended_in_mid_receive)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = finish_while_receiving});
    grpc_channel *channel = rpc_channel_open(server);
    for (i32 turn = 0; turn < 100; turn++) {
        struct rpc_client client;
        struct rpc_result result = {0};
        rpc_client_open(&client, channel, RPC_REFLECTION, 0);
        rpc_client_send(&client, "x", 1);
        rpc_client_send(&client, "y", 1); /* may meet a stream that has ended */
        rpc_client_close(&client, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    }
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(oversized_stream_message_ends_the_stream)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 *body = calloc(1, VX_QUESTION_BYTES_MAX + 1);
    for (i32 first = 0; first < 2; first++) {
        struct rpc_client client;
        struct rpc_result result = {0};
        rpc_client_open(&client, channel, RPC_REFLECTION, 0);
        if (!first) {
            ck_assert(rpc_client_send(&client, "x", 1));
            ck_assert(rpc_client_receive(&client, &result));
        }
        rpc_client_send(&client, body, VX_QUESTION_BYTES_MAX + 1);
        rpc_client_close(&client, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
        rpc_result_clear(&result);
    }
    free(body);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The longest header that is asked for; it counts with the client's others. */
static char long_header[8300];

static void ask_with_header(grpc_channel *channel, const char *path, size_t length,
                            struct rpc_result *result)
{
    const char *before = rpc_traceparent;
    struct rpc_client client;
    memset(long_header, 'v', length);
    long_header[length] = '\0';
    rpc_traceparent = long_header;
    rpc_client_open(&client, channel, path, 0);
    rpc_client_send(&client, "x", 1);
    rpc_client_half_close(&client);
    (void)rpc_client_receive(&client, result);
    rpc_client_close(&client, result);
    rpc_traceparent = before;
}

/* 768 Watches with the longest headers kept 26 MB for as long as their clients liked. */
START_TEST(calls_that_last_have_no_long_headers)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    static const char *const lasting[] = {RPC_WATCH, RPC_REFLECTION};
    struct rpc_result result = {0};
    for (size_t i = 0; i < VX_COUNT(lasting); i++) {
        ask_with_header(channel, lasting[i], 7000, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
        ask_with_header(channel, lasting[i], 8200, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
        ck_assert_ptr_nonnull(strstr(result.text, "expected at most 8192 bytes"));
        rpc_result_clear(&result);
    }
    ask_with_header(channel, RPC_LIVE, 8200, &result); /* it ends at once */
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_streams");
    TCase *tests = tcase_create("rpc_streams");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, server_stream_keeps_order);
    tcase_add_test(tests, slow_reader_fills_the_outbox_and_may_leave);
    tcase_add_test(tests, bidi_stream_echoes_until_half_close);
    tcase_add_test(tests, bidi_stream_may_be_ended_in_mid_receive);
    tcase_add_test(tests, oversized_stream_message_ends_the_stream);
    tcase_add_test(tests, calls_that_last_have_no_long_headers);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
