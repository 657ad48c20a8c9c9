/* http: clients that are slow, many, or send noise.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/http/http_parse.h"
#include "tests/support/wait.h"
#include "tests/unit/server/http/http_harness.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------- slow ------- */

/* Limits short enough for a test.  A machine may be too slow for them: each retry of a
 * test doubles them, until the client that should be in time is. */
static struct vx_http_timeouts limits;

static void server_start_short(int turn)
{
    i64 ms = (i64)100 << turn;
    limits = (struct vx_http_timeouts){ms, ms, 2 * ms, ms};
    server_start(&limits);
}

static bool is_answered(int fd)
{
    static const char request[] = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n";
    return send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0 &&
           client_receive(fd, false).status == 200;
}

START_TEST(idle_connection_is_closed)
{
    for (bool in_time = false; !in_time; _i++) {
        server_start_short(_i);
        int silent = client_open(), idle = client_open();
        in_time = is_answered(idle);
        if (in_time) expect_closed(idle);
        expect_closed(silent);
        close(idle);
        close(silent);
        server_close();
    }
}
END_TEST

/* A client that sends a byte now and then gets no more time: otherwise it would never
 * be cut. */
START_TEST(unfinished_request_is_told)
{
    for (bool in_time = false; !in_time; _i++) {
        server_start_short(_i);
        int fd = client_open();
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        bool sent = send(fd, "GET /x HTTP/1.1\r\nHost: ", 23, MSG_NOSIGNAL) > 0;
        while (sent && !poll(&answer, 1, 30 << _i))
            sent = send(fd, "x", 1, MSG_NOSIGNAL) > 0;
        in_time = sent && client_receive(fd, false).status == 408;
        if (in_time) expect_closed(fd);
        close(fd);
        server_close();
    }
}
END_TEST

START_TEST(slow_reader_is_cut_and_delays_nobody)
{
    server_start(NULL); /* its limits do not cut it during this test */
    int slow = client_open_stalled();
    expect_serves();
    close(slow);
    server_close();
    for (bool cut = false; !cut; _i++) {
        server_start_short(_i);
        slow = client_open_stalled();
        usleep((
            u32)(400000 << _i)); /* sleep: longer than the limit, if it came to writing */
        size_t got = client_drain(slow);
        cut = got && got < 8u * BIG_BYTES; /* nothing: it was cut before it asked */
        close(slow);
        server_close();
    }
}
END_TEST

/* ------- many ------- */

#define PLACES 16

static void server_start_small(void)
{
    server.connections_max = PLACES;
    server_start(NULL);
}

/* The clients of a flood, which the server may cut at any time. */
static int crowd[4 * PLACES];

static void crowd_close(void)
{
    for (size_t i = 0; i < VX_COUNT(crowd); i++) close(crowd[i]);
}

static void settle(void)
{
    usleep(30000); /* sleep: longer than a newcomer's protection */
}

START_TEST(longest_idle_connection_makes_room)
{
    server_start_small();
    int fds[PLACES + 3];
    for (size_t i = 0; i < VX_COUNT(fds); i++) {
        if (i == PLACES) settle();
        fds[i] = client_open();
        client_send(fds[i], "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
        expect_answer(fds[i], 200, "/x|");
    }
    for (size_t i = 0; i < 3; i++) expect_closed(fds[i]);
    for (size_t i = 3; i < VX_COUNT(fds); i++) {
        client_send(fds[i], "GET /y HTTP/1.1\r\nHost: localhost\r\n\r\n");
        expect_answer(fds[i], 200, "/y|");
    }
    for (size_t i = 0; i < VX_COUNT(fds); i++) close(fds[i]);
    server_close();
}
END_TEST

#define GET_BIG "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"

/* What each client of a crowd sends before it stops sending and reading. */
static const char *const rude[] = {
    "",
    "GET /x HTTP/1.1\r\nHost: localhost\r\n",
    "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    (GET_BIG GET_BIG GET_BIG GET_BIG),
};

/* The time limits are 10 s and more and free no place here: the limits on places must. */
START_TEST(a_crowd_does_not_keep_others_out)
{
    server_start_small();
    for (size_t i = 0; i < VX_COUNT(crowd); i++) {
        crowd[i] = client_open();
        ssize_t sent =
            send(crowd[i], rude[_i], strlen(rude[_i]), MSG_NOSIGNAL | MSG_DONTWAIT);
        ck_assert(sent >= 0 || errno == EPIPE || errno == ECONNRESET);
        if (i % PLACES == 0) expect_serves();
    }
    for (int i = 0; i < 3 * PLACES; i++) expect_serves();
    crowd_close();
    expect_serves();
    server_close();
}
END_TEST

/* A client that pipelines more than it reads gets all answers, in order, once it
 * reads. */
START_TEST(pipelined_requests_wait_for_their_reader)
{
    server_start_small();
    int fd = client_open();
    for (int i = 0; i < 12; i++)
        client_send(fd, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client_send(fd, "GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_serves();
    for (int i = 0; i < 12; i++)
        ck_assert_uint_eq(client_receive(fd, false).body_bytes, BIG_BYTES);
    expect_answer(fd, 200, "/last|");
    close(fd);
    server_close();
}
END_TEST

START_TEST(an_address_makes_room_for_itself)
{
    server_start_small();
    int other = client_open_from(2);
    client_send(other, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(other, 200, "/x|");
    settle(); /* from here on it is the oldest of all */
    for (size_t i = 0; i < VX_COUNT(crowd); i++) {
        crowd[i] = client_open();
        if (i % PLACES == 0) expect_serves();
    }
    expect_serves();
    client_send(other, "GET /y HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(other, 200, "/y|");
    crowd_close();
    close(other);
    server_close();
}
END_TEST

#define FLOOD_KEEPS 64
static atomic_bool flood_ends;

/* Connects as fast as it can, sends nothing, and closes the oldest of its connections. */
static void *flood_main(void *context)
{
    (void)context;
    int fds[FLOOD_KEEPS] = {0};
    static const struct linger reset = {1, 0}; /* its port is free again at once */
    for (size_t i = 0; !flood_ends; i = (i + 1) % FLOOD_KEEPS) {
        if (fds[i]) close(fds[i]);
        fds[i] = client_open();
        setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    for (size_t i = 0; i < FLOOD_KEEPS; i++)
        if (fds[i]) close(fds[i]);
    return NULL;
}

/* False: it was cut, as a connection is that sends nothing while hundreds come after
 * it: this process may not have run in between. */
static bool probe_is_answered(void)
{
    int fd = client_open();
    static const char request[] = "GET /well HTTP/1.1\r\nHost: localhost\r\n\r\n";
    bool sent = send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0;
    bool answered = sent && client_receive(fd, false).status == 200;
    close(fd);
    return answered;
}

START_TEST(probes_pass_through_a_flood)
{
    server_start(NULL);
    pthread_t flood[2];
    int answered = 0, tries = 0;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&flood[i], NULL, flood_main, NULL), 0);
    for (; answered < 100 && tries < 10000; tries++) answered += probe_is_answered();
    flood_ends = true;
    for (int i = 0; i < 2; i++) pthread_join(flood[i], NULL);
    ck_assert_int_eq(answered, 100);
    expect_serves();
    server_close();
}
END_TEST

START_TEST(close_cuts_everybody)
{
    server_start(NULL);
    int idle = client_open(), half = client_open(), stalled = client_open_stalled();
    client_send(idle, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
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

/* Fills `bytes` with noise, or with a request in which a few bytes are changed. */
static size_t random_request(char *bytes, size_t capacity)
{
    static const char good[] =
        "GET /v2/health/ready?x=1 HTTP/1.1\r\nHost: localhost:8002\r\n"
        "User-Agent: t\r\nConnection: keep-alive\r\n\r\n"
        "HEAD / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
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
        char *exact = malloc(length); /* ASan detects a read past its end */
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
        if (round % 3 == 0) { /* a third disconnects at once, with a reset */
            struct linger reset = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        } else {
            shutdown(fd, SHUT_WR);
            client_drain(fd);
        }
        close(fd);
    }
    VX_WAIT_UNTIL(probe_is_answered()); /* the limits are short, for this client too */
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
    tcase_add_loop_test(tests, a_crowd_does_not_keep_others_out, 0, (int)VX_COUNT(rude));
    tcase_add_test(tests, pipelined_requests_wait_for_their_reader);
    tcase_add_test(tests, an_address_makes_room_for_itself);
    tcase_add_test(tests, probes_pass_through_a_flood);
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
