/* All places for streams are taken: who loses one to a newcomer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"
#include "tests/unit/server/rpc/rpc_stream_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 5
/* What is never admitted is asked for so often, each time after some messages of those who
 * have the places: far longer than their last valid request may lie back. */
#define TRIES    100
#define MESSAGES 10
#define IDLE_NS  (5 * VX_NS_PER_S) /* from then on a stream is idle for anybody */
/* From then on one of an origin or a connection with more than its part is. */
#define PAUSE_NS (VX_NS_PER_S / 4)

struct rig {
    struct rpc_server *server;
    char file[128]; /* of the Unix socket */
    u8 body[1024];
    size_t length;
    i64 asked_ns; /* when the first of those that have the places last asked */
};

static struct rig rig_open(void)
{
    struct rig rig = {.length = 0};
    char address[160];
    snprintf(rig.file, sizeof rig.file, "unix:/tmp/test_rpc_stream_places.%d.sock",
             (int)getpid());
    snprintf(address, sizeof address, "127.0.0.1:0,%s", rig.file);
    rig.server = rpc_server_open(
        &(struct rpc_server_options){.address = address, .streams_max = PLACES});
    rig.length = rpc_infer_body(rig.body, sizeof rig.body, "abcd", 4);
    return rig;
}

static grpc_channel *rig_channel(const struct rig *rig)
{
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(rig->server));
    return rpc_channel_to(target);
}

static i32 streams_of(const struct rig *rig)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(rig->server), &counters);
    return counters.streams;
}

/* One request on the stream is answered with its echo. */
static bool is_served(const struct rig *rig, struct rpc_client *client)
{
    struct rpc_result result = {0};
    bool good = rpc_client_send(client, rig->body, rig->length) &&
                rpc_client_receive(client, &result);
    good = good && !rpc_streamed_of(&result).error[0];
    rpc_result_clear(&result);
    return good;
}

static grpc_status_code leave(struct rpc_client *client)
{
    struct rpc_result result = {0};
    rpc_client_half_close(client);
    rpc_client_close(client, &result);
    return result.code;
}

static bool newcomer_is_served(const struct rig *rig, grpc_channel *channel)
{
    struct rpc_client client;
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    bool served = is_served(rig, &client);
    grpc_status_code code = leave(&client);
    ck_assert_int_eq(code, served ? GRPC_STATUS_OK : GRPC_STATUS_RESOURCE_EXHAUSTED);
    return served;
}

/* Those who have the places are idle, which they are after `idle_ns`, only when this machine
 * stood still. */
static void newcomer_is_refused(const struct rig *rig, grpc_channel *channel, i64 idle_ns)
{
    bool served = newcomer_is_served(rig, channel);
    ck_assert(!served || vx_clock_ns() - rig->asked_ns > idle_ns);
}

/* Connections that hold a place each and send requests that are refused, all the time. */
START_TEST(refused_requests_keep_no_place)
{
    struct rig rig = rig_open();
    int fds[PLACES];
    bool served = false;
    for (i32 i = 0; i < PLACES; i++) {
        fds[i] = raw_open(rig.server);
        ck_assert(raw_call(fds[i], 1, RPC_STREAM, NULL));
        ck_assert(raw_message(fds[i], 1, 0, 5));
    }
    grpc_channel *channel = rig_channel(&rig);
    VX_WAIT_UNTIL(streams_of(&rig) == PLACES);
    for (i32 try = 0; try < TRIES && !served; try++) {
        for (i32 k = 0; k < MESSAGES; k++) {
            for (i32 i = 0; i < PLACES; i++) ck_assert(raw_message(fds[i], 1, 0, 5));
            rpc_sleep_ms(5); /* sleep: a moment passes between their messages */
        }
        served = newcomer_is_served(&rig, channel);
    }
    ck_assert(served);
    grpc_channel_destroy(channel);
    for (i32 i = 0; i < PLACES; i++) close(fds[i]);
    rpc_server_wait_idle(rig.server);
    rpc_server_close(rig.server);
}
END_TEST

/* One client has all places, through a connection each, and each stream asks all the time:
 * one of another origin gets one at once, and of the same origin nobody does. */
START_TEST(origins_share_the_places)
{
    struct rig rig = rig_open();
    grpc_channel *channels[PLACES];
    struct rpc_client crowd[PLACES];
    rig.asked_ns = vx_clock_ns();
    for (i32 i = 0; i < PLACES; i++) {
        channels[i] = rig_channel(&rig);
        rpc_client_open(&crowd[i], channels[i], RPC_STREAM, 0);
        ck_assert(is_served(&rig, &crowd[i]));
    }
    grpc_channel *same = rig_channel(&rig), *other = rpc_channel_to(rig.file);
    newcomer_is_refused(&rig, same, IDLE_NS);
    ck_assert(newcomer_is_served(&rig, other));
    i32 lost = 0;
    for (i32 i = 0; i < PLACES; i++) {
        bool served = is_served(&rig, &crowd[i]);
        lost += !served;
        ck_assert_int_eq(leave(&crowd[i]),
                         served ? GRPC_STATUS_OK : GRPC_STATUS_RESOURCE_EXHAUSTED);
        grpc_channel_destroy(channels[i]);
    }
    ck_assert(lost == 1 || vx_clock_ns() - rig.asked_ns > IDLE_NS);
    grpc_channel_destroy(same);
    grpc_channel_destroy(other);
    rpc_server_wait_idle(rig.server);
    rpc_server_close(rig.server);
}
END_TEST

/* Two origins, of which one has one stream more, take none from each other. */
START_TEST(nearly_equal_origins_keep_what_they_have)
{
    struct rig rig = rig_open();
    grpc_channel *near = rpc_channel_to(rig.file), *far = rig_channel(&rig);
    struct rpc_client clients[PLACES];
    rig.asked_ns = vx_clock_ns();
    for (i32 i = 0; i < PLACES; i++) {
        rpc_client_open(&clients[i], i % 2 ? near : far, RPC_STREAM, 0);
        ck_assert(is_served(&rig, &clients[i]));
    }
    newcomer_is_refused(&rig, near, PAUSE_NS);
    newcomer_is_refused(&rig, far, PAUSE_NS);
    for (i32 i = 0; i < PLACES; i++) {
        bool served = is_served(&rig, &clients[i]);
        ck_assert(served || vx_clock_ns() - rig.asked_ns > PAUSE_NS);
        ck_assert_int_eq(leave(&clients[i]),
                         served ? GRPC_STATUS_OK : GRPC_STATUS_RESOURCE_EXHAUSTED);
    }
    grpc_channel_destroy(near);
    grpc_channel_destroy(far);
    rpc_server_wait_idle(rig.server);
    rpc_server_close(rig.server);
}
END_TEST

/* A stream that was never answered makes way before one that was, though it is another
 * origin that has most of them. */
START_TEST(who_was_never_answered_goes_first)
{
    struct rig rig = rig_open();
    grpc_channel *near = rpc_channel_to(rig.file), *far = rig_channel(&rig);
    struct rpc_client clients[PLACES - 1];
    int silent = raw_open(rig.server);
    ck_assert(raw_call(silent, 1, RPC_STREAM, NULL));
    VX_WAIT_UNTIL(streams_of(&rig) == 1);
    rpc_sleep_ms(1100); /* sleep: it is no longer one that has just come */
    rig.asked_ns = vx_clock_ns();
    for (i32 i = 0; i < PLACES - 1; i++) {
        rpc_client_open(&clients[i], near, RPC_STREAM, 0);
        /* With its second answer the server knows that the first one has left. */
        ck_assert(is_served(&rig, &clients[i]) && is_served(&rig, &clients[i]));
    }
    ck_assert(newcomer_is_served(&rig, far));
    for (i32 i = 0; i < PLACES - 1; i++) {
        bool served = is_served(&rig, &clients[i]);
        ck_assert(served || vx_clock_ns() - rig.asked_ns > PAUSE_NS);
        ck_assert_int_eq(leave(&clients[i]),
                         served ? GRPC_STATUS_OK : GRPC_STATUS_RESOURCE_EXHAUSTED);
    }
    close(silent);
    grpc_channel_destroy(near);
    grpc_channel_destroy(far);
    rpc_server_wait_idle(rig.server);
    rpc_server_close(rig.server);
}
END_TEST

/* ------- messages that wait ------- */

#define LARGE_BYTES 900000
#define PART_BYTES  50000

/* Adds what the frames that are here let stream 1 send; they come whole on loopback. */
static void windows_add(int fd, i64 *window)
{
    static u8 bytes[1 << 16];
    static size_t have;
    ssize_t got = recv(fd, bytes + have, sizeof bytes - have, MSG_DONTWAIT);
    size_t at = 0, length = 0;
    have += got > 0 ? (size_t)got : 0;
    for (; have - at >= 9; at += 9 + length) {
        const u8 *head = bytes + at, *more = head + 9;
        length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        if (have - at < 9 + length) break;
        if (head[3] == RAW_WINDOW && head[8] == 1)
            *window += (i64)more[0] << 24 | more[1] << 16 | more[2] << 8 | more[3];
    }
    memmove(bytes, bytes + at, have - at);
    have -= at;
}

static bool is_asked_for(int fd, i64 *window)
{
    windows_add(fd, window);
    return *window >= LARGE_BYTES / 2;
}

static void send_request(int fd)
{
    u8 message[1024 + 5] = {0};
    size_t length = rpc_infer_body(message + 5, 1024, "abcd", 4);
    message[3] = (u8)(length >> 8);
    message[4] = (u8)length;
    struct raw_frame frame = {RAW_DATA, 0, 1, message, length + 5};
    ck_assert(raw_send(fd, &frame));
}

/* Half of four calls are in flight, all of this stream.  It takes no further message before it
 * has a place for it: 60 streams kept 16 MB each, whole, which nobody counted. */
START_TEST(no_message_without_a_place_for_it)
{
    i64 window = 0;
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.calls_max = 4});
    rpc_server_hold(server);
    int fd = raw_open(server);
    ck_assert(raw_call(fd, 1, RPC_STREAM, NULL));
    send_request(fd);
    send_request(fd);
    rpc_wait_in_flight(server, 2);
    ck_assert(raw_message(fd, 1, LARGE_BYTES, PART_BYTES));
    for (i32 i = 0; i < 10; i++) {
        rpc_sleep_ms(10); /* sleep: in which no window may come */
        ck_assert(!is_asked_for(fd, &window));
    }
    rpc_server_release(server);
    VX_WAIT_UNTIL(is_asked_for(fd, &window));
    close(fd);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_stream_places");
    TCase *tests = tcase_create("rpc_stream_places");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, refused_requests_keep_no_place);
    tcase_add_test(tests, origins_share_the_places);
    tcase_add_test(tests, nearly_equal_origins_keep_what_they_have);
    tcase_add_test(tests, who_was_never_answered_goes_first);
    tcase_add_test(tests, no_message_without_a_place_for_it);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
