/* ModelStreamInfer: order, errors inside the stream, limits, and the end of the server.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/rpc/rpc_stream_client.h"

#include "engine/base/process/clock.h"
#include "server/rpc/rpc_private.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHUTTING_DOWN                                                                    \
    "GRPC server is shutting down and has stopped accepting new requests"

static const struct rpc_server_options defaults;

static const size_t sizes[] = {0, 1, 23, 4096, 4097, 70000, 300000, 2 << 20};

/* The same request by ModelInfer and in a stream: the same bytes, but wrapped in a
 * field. */
START_TEST(answers_are_those_of_unary_calls)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 *tensor = malloc((2 << 20) + 1), *body = malloc((2 << 20) + 1024);
    struct rpc_client client;
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (size_t i = 0; i < VX_COUNT(sizes); i++) {
        rpc_fill(tensor, sizes[i], (u32)i + 5);
        size_t length = rpc_infer_body(body, (2 << 20) + 1024, tensor, sizes[i]);
        struct rpc_result unary = {0}, streamed = {0};
        rpc_unary(channel, RPC_INFER, body, length, &unary);
        ck_assert_int_eq(unary.code, GRPC_STATUS_OK);
        ck_assert(rpc_client_send(&client, body, length));
        ck_assert(rpc_client_receive(&client, &streamed));
        struct rpc_streamed answer = rpc_streamed_of(&streamed);
        ck_assert_str_eq(answer.error, "");
        ck_assert_uint_eq(answer.response_bytes, unary.length);
        ck_assert(!memcmp(answer.response, unary.bytes, unary.length));
        rpc_result_clear(&unary);
        rpc_result_clear(&streamed);
    }
    struct rpc_result result = {0};
    ck_assert(rpc_client_half_close(&client));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    struct vx_rpc_counters counters;
    rpc_server_wait_idle(server);
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.calls[VX_METHOD_ID_MODEL_STREAM_INFER], 1);
    struct rpc_seen seen;
    rpc_server_seen(server, &seen);
    ck_assert_str_eq(seen.traceparent,
                     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    free(tensor);
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The loop answers eight at a time, in reverse order. */
#define GROUP 8
static struct vx_call *kept[GROUP];
static i32 kept_count;

static void answer_backwards(struct rpc_server *server, struct vx_call *call)
{
    kept[kept_count++] = call;
    if (kept_count < GROUP) return;
    while (kept_count) rpc_server_echo(server, kept[--kept_count]);
}

START_TEST(answers_keep_the_order_of_the_requests)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = answer_backwards});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 *tensor = malloc(400000), *body = malloc(401000);
    rpc_fill(tensor, 400000, 3);
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (i32 group = 0; group < 20; group++) {
        for (i32 i = 0; i < GROUP; i++) {
            char id[32];
            snprintf(id, sizeof id, "%d", group * GROUP + i);
            /* Sender threads write large answers, the loop writes small ones. */
            size_t bytes = group % 4 ? (size_t)(i + 1) : (size_t)(i + 1) * 45000;
            ck_assert(rpc_client_send(
                &client, body, rpc_infer_body_of(body, 401000, id, tensor, bytes)));
        }
        for (i32 i = 0; i < GROUP; i++) {
            ck_assert(rpc_client_receive(&client, &result));
            char id[32];
            snprintf(id, sizeof id, "%d", group * GROUP + i);
            ck_assert_str_eq(rpc_streamed_of(&result).id, id);
        }
    }
    ck_assert(rpc_client_half_close(&client));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_server_wait_idle(server);
    free(tensor);
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The kind of request number `i` of a thousand. */
enum { GOOD, GARBAGE, SHORT };
static i32 kind_of(i32 i)
{
    return i % 7 == 3 ? GARBAGE : i % 11 == 5 ? SHORT : GOOD;
}

static size_t thousand_body(u8 *body, size_t room, i32 i, const char *id)
{
    u8 tensor[64];
    rpc_fill(tensor, sizeof tensor, (u32)i);
    size_t length = rpc_infer_body_of(body, room, id, tensor, sizeof tensor);
    if (kind_of(i) == GARBAGE) memset(body, 0xff, length);
    if (kind_of(i) == SHORT) { /* the tensor says 63 bytes, its shape 64 */
        body[length - sizeof tensor - 1] = sizeof tensor - 1;
        length--;
    }
    return length;
}

static void thousand_check(const struct rpc_result *result, i32 i, const char *id)
{
    struct rpc_streamed answer = rpc_streamed_of(result);
    if (kind_of(i) == GOOD) {
        const u8 *echo;
        size_t echo_bytes;
        u8 tensor[64];
        rpc_fill(tensor, sizeof tensor, (u32)i);
        ck_assert_str_eq(answer.error, "");
        const struct rpc_result inner = {.bytes = (u8 *)(uintptr_t)answer.response,
                                         .length = answer.response_bytes};
        ck_assert(rpc_infer_tensor(&inner, &echo, &echo_bytes));
        ck_assert_uint_eq(echo_bytes, sizeof tensor);
        ck_assert(!memcmp(echo, tensor, sizeof tensor));
    }
    if (kind_of(i) == SHORT) ck_assert(strstr(answer.error, "expected 64, got 63"));
    if (kind_of(i) == GARBAGE) ck_assert_uint_gt(strlen(answer.error), 10);
    ck_assert_str_eq(answer.id, kind_of(i) == GARBAGE ? "" : id);
}

START_TEST(thousand_requests_with_bad_ones_among_them)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 body[1024];
    char id[32];
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (i32 sent = 0, got = 0; got < 1000;) {
        if (sent < 1000 && sent - got < 40) {
            snprintf(id, sizeof id, "request-%d", sent);
            size_t length = thousand_body(body, sizeof body, sent, id);
            ck_assert(rpc_client_send(&client, body, length));
            sent++;
            continue;
        }
        ck_assert(rpc_client_receive(&client, &result));
        snprintf(id, sizeof id, "request-%d", got);
        thousand_check(&result, got++, id);
    }
    ck_assert(rpc_client_half_close(&client));
    ck_assert(!rpc_client_receive(&client, &result));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    u64 bad = 0;
    for (i32 i = 0; i < 1000; i++) bad += kind_of(i) != GOOD;
    ck_assert_uint_eq(counters.refused_bad, bad);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

static void fail_all(struct rpc_server *server, struct vx_call *call)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    for (i32 i = 0; i < call->request.inputs_count; i++)
        rpc_server_slot_give(server, &call->request.inputs[i].place);
    struct vx_why why;
    /* Half a character, as it may end a sentence that quotes and cuts a string. */
    vx_why_set(&why, "no such thing as 'caf\xc3'");
    call->answered = true;
    vx_rpc_fail(rpc, &call, vx_status_of_code(VX_CODE_NOT_FOUND), &why);
}

START_TEST(errors_of_the_loop_travel_inside)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = fail_all});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 body[1024];
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (i32 i = 0; i < 3; i++) {
        size_t length = rpc_infer_body_of(body, sizeof body, "mine", "abcd", 4);
        ck_assert(rpc_client_send(&client, body, length));
        ck_assert(rpc_client_receive(&client, &result));
        struct rpc_streamed answer = rpc_streamed_of(&result);
        ck_assert_str_eq(answer.error, "no such thing as 'caf?'");
        ck_assert_str_eq(answer.id, "mine");
        ck_assert_str_eq(answer.model, "echo");
    }
    ck_assert(rpc_client_half_close(&client));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* Good, bad, good: the first is answered, the second ends the stream, the third gets
 * the error. */
START_TEST(strict_stream_ends_with_the_first_error)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 body[1024];
    for (i32 turn = 0; turn < 50; turn++) {
        struct rpc_client client;
        struct rpc_result result = {0};
        bool held = turn % 2;
        if (held) rpc_server_hold(server);
        rpc_client_open_strict(&client, channel);
        for (i32 i = 0; i < 3; i++) {
            size_t length = rpc_infer_body_of(body, sizeof body, "x", "abcd", 4);
            if (i == 1) memset(body, 0xff, length);
            rpc_client_send(&client, body, length);
        }
        if (held) rpc_sleep_ms(2); /* sleep: at random, the second has arrived or not */
        if (held) rpc_server_release(server);
        ck_assert(rpc_client_receive(&client, &result));
        ck_assert_str_eq(rpc_streamed_of(&result).id, "x");
        ck_assert(!rpc_client_receive(&client, &result));
        rpc_client_close(&client, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert(strstr(result.text, "not valid protobuf"));
        rpc_result_clear(&result);
        rpc_server_wait_idle(server);
    }
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(half_close_waits_for_all_answers)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (i32 i = 0; i < 30; i++) ck_assert(rpc_client_send(&client, body, length));
    ck_assert(rpc_client_half_close(&client));
    rpc_wait_seen(server, 30, 0);
    rpc_server_release(server);
    for (i32 i = 0; i < 30; i++) ck_assert(rpc_client_receive(&client, &result));
    ck_assert(!rpc_client_receive(&client, &result));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);

    rpc_client_open(&client, channel, RPC_STREAM, 0); /* no request at all */
    ck_assert(rpc_client_half_close(&client));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);
    rpc_wait_seen(server, 30, 0);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* The 65th message stays in the network until an answer has left. */
START_TEST(requests_of_a_stream_are_bounded)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 128});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (i32 i = 0; i < VX_STREAM_REQUESTS_MAX + 10; i++)
        ck_assert(rpc_client_send(&client, body, length));
    rpc_wait_in_flight(server, VX_STREAM_REQUESTS_MAX);
    rpc_sleep_ms(50); /* sleep: in which no other may arrive */
    rpc_wait_seen(server, VX_STREAM_REQUESTS_MAX, 0);
    rpc_server_release(server);
    for (i32 i = 0; i < VX_STREAM_REQUESTS_MAX + 10; i++)
        ck_assert(rpc_client_receive(&client, &result));
    rpc_client_half_close(&client);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);
    rpc_result_clear(&result);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* With four calls, one stream has two, since half are for streams, and two more
 * streams have one each.  Then a stream waits, unlike a call, which is refused; and it
 * may end while it waits. */
START_TEST(full_server_makes_streams_wait)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 4});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client clients[3];
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    for (i32 turn = 1; turn <= 20; turn++) {
        rpc_server_hold(server);
        for (i32 c = 0; c < 3; c++) {
            rpc_client_open(&clients[c], channel, RPC_STREAM, 0);
            for (i32 i = 0; i < 5; i++)
                ck_assert(rpc_client_send(&clients[c], body, length));
            rpc_wait_in_flight(server, 2 + c);
        }
        rpc_result_clear(&result);
        rpc_unary(channel, RPC_INFER, body, length, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
        rpc_sleep_ms(turn % 5);         /* sleep: at random */
        rpc_client_cancel(&clients[1]); /* waits */
        rpc_client_close(&clients[1], &result);
        rpc_server_release(server);
        for (i32 c = 0; c < 3; c += 2) {
            for (i32 i = 0; i < 5; i++)
                ck_assert(rpc_client_receive(&clients[c], &result));
            ck_assert(rpc_client_half_close(&clients[c]));
            rpc_client_close(&clients[c], &result);
            ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        }
        rpc_server_wait_idle(server);
    }
    rpc_result_clear(&result);
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(one_stream_too_many_is_refused)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.streams_max = 2});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client clients[3];
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    for (i32 c = 0; c < 3; c++) {
        rpc_client_open(&clients[c], channel, RPC_STREAM, 0);
        if (c == 2) break;
        ck_assert(rpc_client_send(&clients[c], body, length));
        ck_assert(rpc_client_receive(&clients[c], &result));
    }
    rpc_client_close(&clients[2], &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(result.text, "the server has 2 streams open, its limit "
                                  "(streams_max); end one, or use ModelInfer");
    rpc_result_clear(&result);
    rpc_infer_echo(channel, 100, 1); /* idle streams block no call */
    for (i32 c = 0; c < 2; c++) {
        ck_assert(rpc_client_half_close(&clients[c]));
        rpc_client_close(&clients[c], &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    }
    rpc_server_wait_idle(server);
    rpc_client_open(&clients[0], channel, RPC_STREAM, 0);
    ck_assert(rpc_client_half_close(&clients[0]));
    rpc_client_close(&clients[0], &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

static void do_refuse(struct rpc_server *server)
{
    vx_rpc_refuse(rpc_server_rpc(server));
}

START_TEST(drain_answers_what_is_under_way_and_refuses_inside)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client busy, idle, late;
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body_of(body, sizeof body, "mine", "abcd", 4);
    rpc_client_open(&idle, channel, RPC_STREAM, 0);
    ck_assert(rpc_client_send(&idle, body, length));
    ck_assert(rpc_client_receive(&idle, &result));
    rpc_server_hold(server);
    rpc_client_open(&busy, channel, RPC_STREAM, 0);
    ck_assert(rpc_client_send(&busy, body, length));
    rpc_wait_seen(server, 2, 0);
    rpc_server_do(server, do_refuse);
    ck_assert(rpc_client_send(&busy, body, length));
    ck_assert(rpc_client_send(&idle, body, length));
    ck_assert(rpc_client_receive(&idle, &result));
    ck_assert_str_eq(rpc_streamed_of(&result).error, SHUTTING_DOWN);
    ck_assert_str_eq(rpc_streamed_of(&result).id, "mine");
    rpc_client_open(&late, channel, RPC_STREAM, 0);
    rpc_client_close(&late, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_UNAVAILABLE);
    ck_assert_str_eq(result.text, SHUTTING_DOWN);
    rpc_result_clear(&result);
    rpc_server_release(server);
    ck_assert(rpc_client_receive(&busy, &result));
    ck_assert_str_eq(rpc_streamed_of(&result).error, "");
    ck_assert(rpc_client_receive(&busy, &result));
    ck_assert_str_eq(rpc_streamed_of(&result).error, SHUTTING_DOWN);
    rpc_result_clear(&result);
    rpc_wait_in_flight(server, 0); /* two streams are open, and the drain is over */
    rpc_server_close(server);
    rpc_client_close(&busy, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_UNAVAILABLE);
    rpc_client_close(&idle, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_UNAVAILABLE);
    grpc_channel_destroy(channel);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_infer_stream");
    TCase *tests = tcase_create("rpc_infer_stream");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, answers_are_those_of_unary_calls);
    tcase_add_test(tests, answers_keep_the_order_of_the_requests);
    tcase_add_test(tests, thousand_requests_with_bad_ones_among_them);
    tcase_add_test(tests, errors_of_the_loop_travel_inside);
    tcase_add_test(tests, strict_stream_ends_with_the_first_error);
    tcase_add_test(tests, half_close_waits_for_all_answers);
    tcase_add_test(tests, requests_of_a_stream_are_bounded);
    tcase_add_test(tests, full_server_makes_streams_wait);
    tcase_add_test(tests, one_stream_too_many_is_refused);
    tcase_add_test(tests, drain_answers_what_is_under_way_and_refuses_inside);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
