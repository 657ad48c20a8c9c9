/* http: clients that are slow, many, or send noise.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/clock.h"
#include "server/http_parse.h"
#include "tests/unit/http_harness.h"

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------- slow ------- */

START_TEST(idle_connection_is_closed)
{
    server_start(&impatient);
    int silent = client_open(), idle = client_open();
    client_send(idle, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_answer(idle, 200, "/x|");
    expect_closed(idle);
    expect_closed(silent);
    close(idle);
    close(silent);
    server_close();
}
END_TEST

START_TEST(unfinished_request_is_told)
{
    server_start(&impatient);
    int fd = client_open();
    client_send(fd, "GET /x HTTP/1.1\r\nHost");
    for (int i = 0; i < 2; i++) { /* dripping bytes does not buy time */
        usleep(60000);
        client_send(fd, "x");
    }
    struct answer answer = client_receive(fd, false);
    ck_assert_int_eq(answer.status, 408);
    expect_closed(fd);
    close(fd);
    server_close();
}
END_TEST

START_TEST(slow_reader_is_cut_and_delays_nobody)
{
    server_start(&impatient);
    int slow = client_open_stalled();
    i64 start_ns = vx_clock_ns();
    expect_serves();
    ck_assert_int_lt(vx_clock_ns() - start_ns, 100 * VX_NS_PER_MS * 4);
    usleep(700000);
    ck_assert_uint_lt(client_drain(slow), 8u * BIG_BYTES);
    close(slow);
    expect_serves();
    server_close();
}
END_TEST

/* ------- many ------- */

START_TEST(longest_idle_connection_makes_room)
{
    server_start(NULL);
    int fds[VX_HTTP_CONNECTIONS_MAX + 3];
    for (size_t i = 0; i < VX_COUNT(fds); i++) {
        fds[i] = client_open();
        client_send(fds[i], "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
        expect_answer(fds[i], 200, "/x|");
        usleep(2000); /* so that "longest" is not a tie of milliseconds */
    }
    for (size_t i = 0; i < 3; i++) expect_closed(fds[i]);
    for (size_t i = 3; i < VX_COUNT(fds); i++) {
        client_send(fds[i], "GET /y HTTP/1.1\r\nHost: h\r\n\r\n");
        expect_answer(fds[i], 200, "/y|");
    }
    for (size_t i = 0; i < VX_COUNT(fds); i++) close(fds[i]);
    server_close();
}
END_TEST

START_TEST(newcomers_wait_while_all_are_busy)
{
    /* Only writing is impatient: 32 megabytes keep a sanitizer busy for a while. */
    static const struct vx_http_timeouts timeouts = {
        .idle_ms = 5000, .request_ms = 5000, .write_ms = 300, .linger_ms = 150};
    server_start(&timeouts);
    int fds[VX_HTTP_CONNECTIONS_MAX];
    for (size_t i = 0; i < VX_COUNT(fds); i++) fds[i] = client_open_stalled();
    usleep(50000); /* until each has been taken */
    int late[3];   /* they connect to the backlog, and are served when the slow are cut */
    for (size_t i = 0; i < VX_COUNT(late); i++) {
        late[i] = client_open();
        client_send(late[i], "GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    struct pollfd wait = {.fd = late[0], .events = POLLIN};
    ck_assert_int_eq(poll(&wait, 1, 50), 0);
    for (size_t i = 0; i < VX_COUNT(late); i++) {
        expect_answer(late[i], 200, "/late|");
        close(late[i]);
    }
    for (size_t i = 0; i < VX_COUNT(fds); i++) close(fds[i]);
    server_close();
}
END_TEST

START_TEST(close_cuts_everybody)
{
    server_start(NULL);
    int idle = client_open(), half = client_open(), stalled = client_open_stalled();
    client_send(idle, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_answer(idle, 200, "/x|");
    client_send(half, "GET /x HT");
    server_close();
    expect_closed(idle);
    expect_closed(half);
    client_drain(stalled);
    close(idle);
    close(half);
    close(stalled);
}
END_TEST

/* ------- random ------- */

static u64 random_state = 20251121;
static u64 random_next(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

/* Fills `bytes` with noise, or with a request that has a few bytes changed. */
static size_t random_request(char *bytes, size_t capacity)
{
    static const char good[] = "GET /v2/health/ready?x=1 HTTP/1.1\r\nHost: h:8002\r\n"
                               "User-Agent: t\r\nConnection: keep-alive\r\n\r\n"
                               "HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
    if (random_next() % 4 == 0) {
        size_t length = 1 + random_next() % (capacity - 1);
        for (size_t i = 0; i < length; i++) bytes[i] = (char)random_next();
        return length;
    }
    memcpy(bytes, good, sizeof good - 1);
    u64 changes = random_next() % 4;
    for (u64 i = 0; i < changes; i++)
        bytes[random_next() % (sizeof good - 1)] = (char)random_next();
    return 1 + random_next() % (sizeof good - 1);
}

START_TEST(parser_survives_random_bytes)
{
    int requests = 0, refusals = 0;
    for (int round = 0; round < 20000; round++) {
        struct vx_http_parser parser;
        vx_http_parser_init(&parser);
        char bytes[512];
        size_t length = random_request(bytes, sizeof bytes);
        char *exact = malloc(length); /* ASan watches its end */
        memcpy(exact, bytes, length);
        for (size_t at = 0; at < length;) {
            size_t piece = 1 + random_next() % (length - at), used = 0;
            enum vx_http_parsed parsed = vx_http_parse(&parser, exact + at, piece, &used);
            ck_assert_uint_le(used, piece);
            at += used;
            if (parsed == VX_HTTP_MORE) ck_assert_uint_eq(used, piece);
            if (parsed == VX_HTTP_REQUEST) {
                requests++;
                ck_assert_uint_gt(used, 0);
                ck_assert_uint_lt(strlen(parser.path) + strlen(parser.query),
                                  VX_HTTP_TARGET_BYTES);
            }
            if (parsed != VX_HTTP_BAD) continue;
            refusals++;
            ck_assert_int_ge(parser.status, 400);
            ck_assert_ptr_nonnull(parser.why);
            break;
        }
        free(exact);
    }
    ck_assert_int_gt(requests, 1000);
    ck_assert_int_gt(refusals, 1000);
}
END_TEST

START_TEST(server_survives_random_bytes)
{
    server_start(&impatient);
    for (int round = 0; round < 300; round++) {
        char bytes[512];
        size_t length = random_request(bytes, sizeof bytes);
        int fd = client_open();
        ck_assert_int_gt(send(fd, bytes, length, MSG_NOSIGNAL), 0);
        if (round % 3 == 0) { /* a third vanishes at once, with a reset */
            struct linger reset = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        } else {
            shutdown(fd, SHUT_WR);
            client_drain(fd);
        }
        close(fd);
    }
    expect_serves();
    server_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_limits");
    TCase *tests = tcase_create("http_limits");
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, idle_connection_is_closed);
    tcase_add_test(tests, unfinished_request_is_told);
    tcase_add_test(tests, slow_reader_is_cut_and_delays_nobody);
    tcase_add_test(tests, longest_idle_connection_makes_room);
    tcase_add_test(tests, newcomers_wait_while_all_are_busy);
    tcase_add_test(tests, close_cuts_everybody);
    tcase_add_test(tests, parser_survives_random_bytes);
    tcase_add_test(tests, server_survives_random_bytes);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
