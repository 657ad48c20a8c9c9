/* Large messages are decoded by readers: others of their queue are answered meanwhile, and what comes
 * of a message is the same.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_stream_client.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define LARGE 8192 /* bytes of a tensor whose message a reader decodes */

/* A reader that decodes a large tensor waits at its slot until the test lets it go on. */
static atomic_int inside, held;

static void on_slot(size_t bytes)
{
    if (bytes < LARGE) return;
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&held)) sched_yield();
}

/* One queue: what a thread of it waits for, all wait for. */
static struct rpc_server *server_open(void)
{
    atomic_store(&inside, 0);
    atomic_store(&held, 1);
    return rpc_server_open(&(struct rpc_server_options){
        .threads = 1, .reader_bytes = LARGE, .on_slot = on_slot});
}

static void *ask_large(void *context)
{
    grpc_channel *channel = rpc_channel_open(context);
    rpc_infer_echo(channel, LARGE, 7);
    grpc_channel_destroy(channel);
    return NULL;
}

START_TEST(small_ones_do_not_wait)
{
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_result result = {0};
    pthread_t large;
    ck_assert_int_eq(pthread_create(&large, NULL, ask_large, server), 0);
    VX_WAIT_UNTIL(atomic_load(&inside) == 1);
    rpc_unary(channel, RPC_LIVE, "", 0, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_infer_echo(channel, 100, 3);
    atomic_store(&held, 0);
    ck_assert_int_eq(pthread_join(large, NULL), 0);
    grpc_channel_destroy(channel);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

START_TEST(what_is_wrong_is_said)
{
    static u8 garbage[2 * LARGE];
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_result result = {0};
    rpc_fill(garbage, sizeof garbage, 5);
    rpc_unary(channel, RPC_INFER, garbage, sizeof garbage, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_str_ne(result.text, "");
    rpc_result_clear(&result);
    grpc_channel_destroy(channel);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

/* Before its message is decoded, or just then: no slot stays. */
START_TEST(who_leaves_meanwhile_leaves_nothing)
{
    static u8 tensor[LARGE], body[2 * LARGE];
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    const size_t length = rpc_infer_body(body, sizeof body, tensor, sizeof tensor);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, _i ? RPC_STREAM : RPC_INFER, 60000);
    ck_assert(rpc_client_send(&client, body, length));
    VX_WAIT_UNTIL(atomic_load(&inside) == 1);
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_CANCELLED);
    rpc_infer_echo(channel, 100, 3); /* behind the cancellation, on the same connection */
    atomic_store(&held, 0);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

static void *release_later(void *unused)
{
    rpc_sleep_ms(100); /* sleep: the end of the server begins meanwhile */
    atomic_store(&held, 0);
    return unused;
}

/* The end of the server waits for a reader. */
START_TEST(the_end_waits_for_it)
{
    static u8 tensor[LARGE], body[2 * LARGE];
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    const size_t length = rpc_infer_body(body, sizeof body, tensor, sizeof tensor);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_INFER, 60000);
    ck_assert(rpc_client_send(&client, body, length));
    VX_WAIT_UNTIL(atomic_load(&inside) == 1);
    pthread_t later;
    ck_assert_int_eq(pthread_create(&later, NULL, release_later, NULL), 0);
    rpc_server_close(server);
    ck_assert_int_eq(atomic_load(&held), 0);
    ck_assert_int_eq(pthread_join(later, NULL), 0);
    rpc_client_close(&client, &result);
    ck_assert(result.code == GRPC_STATUS_OK || result.code == GRPC_STATUS_UNAVAILABLE);
    grpc_channel_destroy(channel);
}
END_TEST

/* Large and small ones by turns: answers come in the order of the requests. */
START_TEST(a_stream_keeps_its_order)
{
    static u8 tensor[LARGE], body[2 * LARGE];
    struct rpc_server *server = server_open();
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    atomic_store(&held, 0);
    rpc_client_open(&client, channel, RPC_STREAM, 60000);
    for (i32 i = 0; i < 8; i++) {
        char id[8] = {(char)('a' + i), 0};
        const size_t length =
            rpc_infer_body_of(body, sizeof body, id, tensor, i % 2 ? 10 : sizeof tensor);
        ck_assert(rpc_client_send(&client, body, length));
    }
    ck_assert(rpc_client_half_close(&client));
    for (i32 i = 0; i < 8; i++) {
        ck_assert(rpc_client_receive(&client, &result));
        const struct rpc_streamed answer = rpc_streamed_of(&result);
        ck_assert_str_eq(answer.error, "");
        ck_assert_int_eq(answer.id[0], 'a' + i);
        rpc_result_clear(&result);
    }
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    ck_assert_int_eq(atomic_load(&inside), 4);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_read");
    TCase *tcase = tcase_create("rpc_read");
    tcase_add_test(tcase, small_ones_do_not_wait);
    tcase_add_test(tcase, what_is_wrong_is_said);
    tcase_add_loop_test(tcase, who_leaves_meanwhile_leaves_nothing, 0, 2);
    tcase_add_test(tcase, the_end_waits_for_it);
    tcase_add_test(tcase, a_stream_keeps_its_order);
    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
