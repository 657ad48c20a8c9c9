/* Calls that arrive, are answered or refused: rpc as seen by a client and by the loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/server/rpc/rpc_harness.h"

#include "engine/base/process/clock.h"
#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <grpc/grpc.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct rpc_server_options defaults;

START_TEST(unary_echoes)
{
    static const size_t sizes[] = {0, 1, 23, 24, 5000, VX_QUESTION_BYTES_MAX};
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 *body = malloc(VX_QUESTION_BYTES_MAX + 1);
    rpc_fill(body, VX_QUESTION_BYTES_MAX + 1, 1);
    struct rpc_result result;
    for (size_t i = 0; i < VX_COUNT(sizes); i++) {
        rpc_unary(channel, RPC_LIVE, body, sizes[i], &result);
        ck_assert_msg(result.code == GRPC_STATUS_OK, "%d %s", result.code, result.text);
        ck_assert_uint_eq(result.length, sizes[i]);
        ck_assert(!memcmp(result.bytes, body, sizes[i]));
        rpc_result_clear(&result);
    }
    rpc_unary(channel, RPC_LIVE, body, VX_QUESTION_BYTES_MAX + 1, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(result.text, "at most 16384 bytes, got 16385"));
    rpc_result_clear(&result);
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.calls[VX_METHOD_ID_SERVER_LIVE], VX_COUNT(sizes) + 1);
    ck_assert_uint_eq(counters.refused_bad, 1);
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

static const size_t infer_sizes[] = {0, 1, 4095, 4096, 4097, 70000, 1 << 20, 16 << 20};

START_TEST(infer_echoes)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    for (u32 seed = 1; seed <= 3; seed++) {
        rpc_infer_echo(channel, infer_sizes[_i], seed);
        rpc_server_wait_idle(server);
    }
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_ge(counters.bytes_in, 3 * infer_sizes[_i]);
    ck_assert_uint_ge(counters.bytes_out, 3 * infer_sizes[_i]);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(unknown_method_is_unimplemented)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_result result;
    for (i32 i = 0; i < 20; i++) { /* more than are prepared */
        rpc_unary(channel, "/nobody.Knows/This", "x", 1, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_UNIMPLEMENTED);
        ck_assert_ptr_nonnull(strstr(result.text, "unknown method '/nobody.Knows/This'"));
        rpc_result_clear(&result);
    }
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.unknown_methods, 20);
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

START_TEST(bad_bodies_are_refused_alone)
{
    static const struct {
        const char *bytes;
        size_t length;
    } bad[] = {
        {"\x3a\xff\xff\xff\xff\x0f", 6}, /* a tensor longer than the message */
        {"\x0a\x04"
         "ec",
         4}, /* a name cut short */
        {"\xff\xff\xff\xff", 4},
        {"this is not a protobuf message", 30},
    };
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    for (size_t i = 0; i < VX_COUNT(bad); i++) {
        struct rpc_result result;
        rpc_unary(channel, RPC_INFER, bad[i].bytes, bad[i].length, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_uint_gt(strlen(result.text), 0);
        rpc_result_clear(&result);
        rpc_infer_echo(channel, 100, 1);
    }
    rpc_server_wait_idle(server);
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.refused_bad, VX_COUNT(bad));
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

static const char no_whole_message[] = "expected one message, but the client sent none, "
                                       "or only the beginning of one";

START_TEST(call_without_message_is_invalid)
{
    static const char *const paths[] = {RPC_INFER, RPC_LIVE, RPC_WATCH};
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    for (size_t i = 0; i < VX_COUNT(paths); i++) {
        struct rpc_client client;
        struct rpc_result result = {0};
        rpc_client_open(&client, channel, paths[i], 0);
        rpc_client_half_close(&client);
        rpc_client_close(&client, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_str_eq(result.text, no_whole_message);
    }
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* Reads until the server has sent these bytes. */
static void raw_expect(int fd, const char *bytes, size_t count)
{
    static u8 got[1 << 16];
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    for (size_t length = 0; !memmem(got, length, bytes, count);) {
        ck_assert_msg(poll(&ask, 1, VX_WAIT_SECONDS * 1000) == 1, "not sent: %s", bytes);
        ssize_t more = recv(fd, got + length, sizeof got - length, 0);
        ck_assert_msg(more > 0, "the connection ended before: %s", bytes);
        length += (size_t)more;
    }
}

/* The client ends its call in the prefix of a message of 10 bytes, or behind it. */
START_TEST(message_that_is_cut_off_is_invalid)
{
    static const char *const paths[] = {RPC_INFER, RPC_LIVE, RPC_WATCH};
    static const size_t sent[] = {2, 5, 9};
    static const char message[] = "\0\0\0\0\12\12\2ab";
    struct rpc_server *server = rpc_server_open(&defaults);
    int fd = raw_open(server);
    u32 id = 1;
    for (size_t i = 0; i < VX_COUNT(paths); i++)
        for (size_t s = 0; s < VX_COUNT(sent); s++, id += 2) {
            struct raw_frame part = {RAW_DATA, RAW_END_STREAM, id, message, sent[s]};
            ck_assert(raw_call(fd, id, paths[i], NULL) && raw_send(fd, &part));
            raw_expect(fd, no_whole_message, strlen(no_whole_message));
        }
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.refused_bad, VX_COUNT(paths) * VX_COUNT(sent));
    close(fd);
    rpc_server_close(server);
}
END_TEST

START_TEST(message_over_the_limit_is_refused)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.message_bytes_max = 100000});
    grpc_channel *channel = rpc_channel_open(server);
    u8 *body = calloc(1, 200000);
    struct rpc_result result;
    size_t length = rpc_infer_body(body, 200000, body, 99999);
    rpc_unary(channel, RPC_INFER, body, length, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(result.text, "larger than max"));
    rpc_result_clear(&result);
    rpc_server_wait_idle(server);
    rpc_infer_echo(channel, 90000, 1);
    struct rpc_seen seen;
    rpc_server_seen(server, &seen);
    ck_assert_int_eq(seen.infers, 1);
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

#define HELD 4
START_TEST(one_call_too_many_is_refused_unread)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = HELD});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client clients[HELD];
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    for (i32 i = 0; i < HELD; i++) {
        rpc_client_open(&clients[i], channel, RPC_INFER, 0);
        rpc_client_send(&clients[i], body, length);
        rpc_client_half_close(&clients[i]);
    }
    rpc_wait_seen(server, HELD, 0);
    for (i32 i = 0; i < 2 * VX_METHODS_COUNT; i++) {
        rpc_unary(channel, RPC_INFER, body, length, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
        ck_assert_str_eq(
            result.text,
            "the server has 4 calls in flight, its limit (calls_max); try again later");
        rpc_result_clear(&result);
    }
    rpc_unary(channel, RPC_LIVE, "ok", 2, &result); /* a probe is answered all the same */
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    rpc_server_release(server);
    for (i32 i = 0; i < HELD; i++) {
        ck_assert(rpc_client_receive(&clients[i], &result));
        rpc_client_close(&clients[i], &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
    }
    rpc_server_wait_idle(server);
    rpc_infer_echo(channel, 100, 1);
    rpc_wait_seen(server, HELD + 1, 0);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* False: the machine was too slow for the deadline. */
static bool deadline_turn(i64 deadline_ms)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_INFER, deadline_ms);
    rpc_client_send(&client, body, length);
    rpc_client_half_close(&client);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    struct rpc_seen seen;
    rpc_server_seen(server, &seen);
    bool in_time = seen.infers == 1;
    if (in_time) {
        ck_assert_int_le(seen.deadline_left_ns, 2 * deadline_ms * VX_NS_PER_MS);
        ck_assert_str_eq(seen.traceparent,
                         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        rpc_wait_seen(server, 1, 1);
    }
    rpc_server_release(server);
    rpc_server_wait_idle(server);
    rpc_infer_echo(channel, 4, 1);
    rpc_server_seen(server, &seen);
    ck_assert(seen.deadline_left_ns == VX_NEVER);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
    return in_time;
}

START_TEST(deadline_and_trace_reach_the_loop)
{
    i64 deadline_ms = 250;
    while (!deadline_turn(deadline_ms)) deadline_ms *= 2;
}
END_TEST

/* A header that no W3C client sends is ignored. */
START_TEST(a_trace_that_is_too_long_is_left_out)
{
    static char text[VX_TRACEPARENT_BYTES + 2];
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_seen seen;
    rpc_traceparent = text;
    for (size_t length = VX_TRACEPARENT_BYTES - 1; length < sizeof text; length++) {
        memset(text, 'a', length);
        rpc_infer_echo(channel, 100, 1);
        rpc_server_seen(server, &seen);
        ck_assert_str_eq(seen.traceparent, length < VX_TRACEPARENT_BYTES ? text : "");
    }
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* A message a thousandth of the limit on the wire could be a thousand times the limit
 * in memory. */
START_TEST(compressed_body_is_refused_uninflated)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *gzip = rpc_channel_open_gzip(server), *plain = rpc_channel_open(server);
    u8 *body = calloc(1, 1 << 20);
    size_t length = rpc_infer_body(body, 1 << 20, body, 1000000);
    struct rpc_result result;
    static const char *const paths[] = {RPC_INFER, RPC_LIVE};
    for (size_t i = 0; i < VX_COUNT(paths); i++) {
        rpc_unary(gzip, paths[i], body, length, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_UNIMPLEMENTED);
        ck_assert_ptr_nonnull(strstr(result.text, "'gzip' is disabled"));
        rpc_result_clear(&result);
    }
    rpc_infer_echo(plain, 1000, 1);
    rpc_server_wait_idle(server);
    struct rpc_seen seen;
    rpc_server_seen(server, &seen);
    ck_assert_int_eq(seen.infers, 1);
    free(body);
    grpc_channel_destroy(gzip);
    grpc_channel_destroy(plain);
    rpc_server_close(server);
}
END_TEST

/* The test takes every free record, so that only the prepared ones are used, again and
 * again. */
static struct vx_rpc_record *taken[2048];
static i32 taken_count;

/* Else the first queue's thread would find no record for its calls. */
static bool is_armed(struct rpc_server *server)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    i32 missing = 0;
    pthread_mutex_lock(&rpc->lock);
    for (i32 method = 0; method <= VX_METHODS_COUNT; method++)
        missing += vx_rpc_queue_missing(&rpc->queues[0], method);
    pthread_mutex_unlock(&rpc->lock);
    return missing == 0;
}

static void do_starve(struct rpc_server *server)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    struct vx_rpc_record *record;
    atomic_int *armed = &rpc->queues[0].armed[VX_METHOD_ID_SERVER_LIVE];
    do { /* as if each of them were armed, and its call had come */
        atomic_fetch_sub(armed, 1);
        record = vx_rpc_record_take(rpc, 0, VX_METHOD_ID_SERVER_LIVE);
        taken[taken_count++] = record;
    } while (record);
    taken_count--;
    atomic_fetch_add(armed, 1);
}

static void do_feed(struct rpc_server *server)
{
    (void)server;
    while (taken_count) {
        struct vx_rpc_record *record = taken[--taken_count];
        grpc_metadata_array_init(&record->metadata);
        record->flat = grpc_empty_slice();
        atomic_store(&record->references, 1);
        vx_rpc_record_unref(record);
    }
}

START_TEST(starved_pool_serves_on)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 4});
    grpc_channel *channel = rpc_channel_open(server);
    VX_WAIT_UNTIL(is_armed(server));
    rpc_server_do(server, do_starve);
    ck_assert_int_gt(taken_count, 4);
    struct rpc_result result;
    for (i32 turn = 0; turn < 30; turn++) {
        rpc_unary(channel, RPC_LIVE, "ok", 2, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
        rpc_unary(channel, "/nobody.Knows/This", "x", 1, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_UNIMPLEMENTED);
        rpc_result_clear(&result);
        rpc_infer_echo(channel, 100, 1);
    }
    rpc_server_wait_idle(server);
    rpc_server_do(server, do_feed);
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc");
    TCase *tests = tcase_create("rpc");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, unary_echoes);
    tcase_add_loop_test(tests, infer_echoes, 0, (int)VX_COUNT(infer_sizes));
    tcase_add_test(tests, unknown_method_is_unimplemented);
    tcase_add_test(tests, bad_bodies_are_refused_alone);
    tcase_add_test(tests, call_without_message_is_invalid);
    tcase_add_test(tests, message_that_is_cut_off_is_invalid);
    tcase_add_test(tests, message_over_the_limit_is_refused);
    tcase_add_test(tests, one_call_too_many_is_refused_unread);
    tcase_add_test(tests, deadline_and_trace_reach_the_loop);
    tcase_add_test(tests, a_trace_that_is_too_long_is_left_out);
    tcase_add_test(tests, compressed_body_is_refused_uninflated);
    tcase_add_test(tests, starved_pool_serves_on);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
