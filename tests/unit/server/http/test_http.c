/* http: what is answered, what is refused with which sentence, and where it listens.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/http/http_parse.h"
#include "tests/unit/server/http/http_harness.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------- polite ------- */

START_TEST(get_and_get_again)
{
    server_start(NULL);
    int fd = client_open();
    for (int i = 0; i < 3; i++) {
        client_send(fd, "GET /a%20b?x=1&y=?z HTTP/1.1\r\nHost: localhost\r\n\r\n");
        struct answer answer = client_receive(fd, false);
        ck_assert_int_eq(answer.status, 200);
        ck_assert_ptr_nonnull(strstr(answer.head, "\r\nContent-Type: text/x-test\r\n"));
        ck_assert_ptr_nonnull(strstr(answer.head, "\r\nConnection: keep-alive\r\n"));
        ck_assert_ptr_nonnull(strstr(answer.head, "\r\nCache-Control: no-store\r\n"));
        /* Nothing in the HTML and nothing from elsewhere: only the port's own files. */
        const char *policy = strstr(answer.head, "\r\nContent-Security-Policy: ");
        ck_assert_ptr_nonnull(policy);
        ck_assert_ptr_nonnull(strstr(policy, ": default-src 'none'; script-src 'self';"));
        ck_assert_ptr_null(strstr(policy, "unsafe"));
        ck_assert_uint_eq(answer.body_bytes, strlen("/a%20b|x=1&y=?z"));
        ck_assert_mem_eq(answer.body, "/a%20b|x=1&y=?z", answer.body_bytes);
    }
    client_send(fd, "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(fd, 404, "");
    close(fd);
    server_close();
}
END_TEST

/* As a client sends it to a proxy (RFC 9112, 3.2.2). */
START_TEST(absolute_targets_are_paths)
{
    static const char *const rows[][2] = {
        {"http://x/metrics", "/metrics|"}, {"HTTP://h:8002/a?b=/c", "/a|b=/c"},
        {"http://[::1]:8002", "/|"},       {"http://h?x", "/|x"},
        {"/http://x/y", "/http://x/y|"},
    };
    server_start(NULL);
    int fd = client_open();
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        char text[128];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 rows[i][0]);
        client_send(fd, text);
        expect_answer(fd, 200, rows[i][1]);
    }
    close(fd);
    server_close();
}
END_TEST

START_TEST(head_has_no_body)
{
    server_start(NULL);
    int fd = client_open();
    client_send(fd, "HEAD /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    struct answer answer = client_receive(fd, true);
    ck_assert_int_eq(answer.status, 200);
    ck_assert_uint_eq(answer.body_bytes, BIG_BYTES);
    client_send(fd, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(fd, 200, "/x|");
    close(fd);
    server_close();
}
END_TEST

static const struct {
    const char *request;
    bool stays;
} lives[] = {
    {"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", true},
    {"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", false},
    {"GET /x HTTP/1.0\r\n\r\n", false},
    {"GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
    {"GET /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", true},
    {"GET /x HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
     true},
};

START_TEST(connection_lives_as_asked)
{
    server_start(NULL);
    int fd = client_open();
    client_send(fd, lives[_i].request);
    expect_answer(fd, 200, "/x|");
    if (lives[_i].stays) {
        client_send(fd, lives[_i].request);
        expect_answer(fd, 200, "/x|");
    } else {
        expect_closed(fd);
    }
    close(fd);
    server_close();
}
END_TEST

START_TEST(pipelined_and_torn)
{
    server_start(NULL);
    int fd = client_open();
    client_send(fd, "GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /2?q "
                    "HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    "GET /3 HTTP/1.1\r\nHo");
    expect_answer(fd, 200, "/1|");
    expect_answer(fd, 200, "/2|q");
    client_send(fd, "st: localhost\r\n\r\n");
    expect_answer(fd, 200, "/3|");
    static const char request[] = "GET /torn?q HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (size_t i = 0; i < sizeof request - 1; i++) {
        char byte[2] = {request[i], '\0'};
        client_send(fd, byte);
        if (i % 4 == 0) usleep(1000); /* sleep: so that it mostly arrives in parts */
    }
    expect_answer(fd, 200, "/torn|q");
    /* More than one read of the server: 300 requests, answered in order. */
    static char many[300 * 64];
    size_t length = 0;
    for (int i = 0; i < 300; i++)
        length += (size_t)snprintf(many + length, sizeof many - length,
                                   "GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i);
    client_send(fd, many);
    for (int i = 0; i < 300; i++) {
        char body[16];
        snprintf(body, sizeof body, "/%d|", i);
        expect_answer(fd, 200, body);
    }
    shutdown(fd, SHUT_WR);
    expect_closed(fd);
    close(fd);
    server_close();
}
END_TEST

START_TEST(half_closed_client_gets_its_answer)
{
    server_start(NULL);
    int fd = client_open();
    client_send(fd, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    shutdown(fd, SHUT_WR);
    struct answer answer = client_receive(fd, false);
    ck_assert_uint_eq(answer.body_bytes, BIG_BYTES);
    size_t right = 0;
    while (right < BIG_BYTES && answer.body[right] == 'b') right++;
    ck_assert_uint_eq(right, BIG_BYTES);
    expect_closed(fd);
    close(fd);
    server_close();
}
END_TEST

/* ------- rude ------- */

static char long_target[4096], long_headers[3 * VX_HTTP_HEAD_BYTES_MAX];

static const struct {
    const char *request;
    int status;
    const char *sentence; /* part of the body */
} refused[] = {
    {"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405,
     "only GET and HEAD are supported here; send inference requests to the gRPC port "
     "(--grpc)"},
    {"DELETE /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "only GET and HEAD"},
    {"CONNECT h:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "only GET and HEAD"},
    {"GET /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 413,
     "with a body"},
    {"GET /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     413, "with a body"},
    {"GET /x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     ""},
    {"GET /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "not an HTTP/1.1 request"},
    {"GET /x HTTP/1.1\r\nbad header\r\n\r\n", 400, "not an HTTP/1.1 request"},
    {"GET  HTTP/1.1\r\n\r\n", 400, "not an HTTP/1.1 request"},
    {"get /x HTTP/1.1\r\n\r\n", 400, "not an HTTP/1.1 request"},
    {"\x16\x03\x01\x02\x01\x01", 400, "not an HTTP/1.1 request"}, /* TLS hello */
    {"GET /x HTTP/2.0\r\n\r\n", 505, "HTTP/1.1"},
    {"GET /x HTTP/9.9\r\n\r\n", 505, "HTTP/1.1"},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1"},
    {long_target, 414, "too long"},
    {long_headers, 431, "headers are too long"},
};

static void fill_long(void)
{
    memset(long_target, 'x', sizeof long_target - 1);
    memcpy(long_target, "GET /", 5);
    memset(long_headers, 'x', sizeof long_headers - 1);
    static const char start[] = "GET /x HTTP/1.1\r\nHost: localhost\r\nX-Long: ";
    memcpy(long_headers, start, sizeof start - 1);
}

START_TEST(bad_requests_are_refused)
{
    fill_long();
    server_start(NULL);
    int fd = client_open();
    client_send(fd, refused[_i].request);
    struct answer answer = client_receive(fd, false);
    ck_assert(!answer.is_eof);
    ck_assert_int_eq(answer.status, refused[_i].status);
    ck_assert_ptr_nonnull(strstr(answer.head, "\r\nConnection: close\r\n"));
    ck_assert_int_eq(strstr(answer.head, "\r\nAllow: GET, HEAD\r\n") != NULL,
                     refused[_i].status == 405);
    answer.body[answer.body_bytes] = '\0';
    ck_assert_msg(strstr(answer.body, refused[_i].sentence) != NULL, "%s", answer.body);
    shutdown(fd, SHUT_WR);
    expect_closed(fd);
    close(fd);
    expect_serves();
    server_close();
}
END_TEST

/* The answer must arrive although nobody reads the body: no reset before it is sent. */
START_TEST(refusal_is_read_before_the_end)
{
    server_start(NULL);
    int fd = client_open();
    client_send(fd,
                "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n");
    static char body[500000];
    memset(body, 'x', sizeof body);
    ck_assert_int_eq(send(fd, body, sizeof body, MSG_NOSIGNAL), (ssize_t)sizeof body);
    usleep(50000); /* sleep: until the server has answered, most probably */
    struct answer answer = client_receive(fd, false);
    ck_assert_int_eq(answer.status, 405);
    close(fd);
    server_close();
}
END_TEST

START_TEST(a_flood_behind_a_refusal_is_cut)
{
    server_start(NULL);
    int fd = client_open();
    client_send(
        fd, "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n");
    static char body[65536];
    size_t sent = 0;
    for (ssize_t now; (now = send(fd, body, sizeof body, MSG_NOSIGNAL)) > 0;) {
        sent += (size_t)now;
        ck_assert_uint_lt(sent, 64u << 20);
    }
    close(fd);
    expect_serves();
    server_close();
}
END_TEST

/* ------- addresses ------- */

static const struct {
    const char *address, *sentence; /* NULL: it opens */
} addresses[] = {
    {"127.0.0.1:0", NULL},
    {"localhost:0", NULL},
    {"0.0.0.0:0", NULL},
    {"", "expected HOST:PORT"},
    {"127.0.0.1", "expected HOST:PORT"},
    {"127.0.0.1:", "expected HOST:PORT"},
    {":8002", "expected HOST:PORT"},
    {"127.0.0.1:65536", "expected HOST:PORT"},
    {"127.0.0.1:99999999999999999999", "expected HOST:PORT"},
    {"127.0.0.1:-1", "expected HOST:PORT"},
    {"127.0.0.1: 1", "expected HOST:PORT"},
    {"127.0.0.1:80a", "expected HOST:PORT"},
    {"::1:80", "expected HOST:PORT"},
    {"[]:80", "expected HOST:PORT"},
    {"[zz]:80", "expected a host of this machine"},
    {"1.2.3.4.5:80", "expected a host of this machine"},
    {"192.0.2.1:0", "http: cannot listen on '192.0.2.1:0': "}, /* not ours: TEST-NET-1 */
};

START_TEST(addresses_are_checked)
{
    server_open(addresses[_i].address, NULL);
    if (addresses[_i].sentence) {
        ck_assert(server.status.fault);
        ck_assert_ptr_null(server.http);
        ck_assert_msg(strstr(server.why.text, addresses[_i].sentence) != NULL, "%s",
                      server.why.text);
    } else {
        ck_assert_msg(!server.status.fault, "%s", server.why.text);
        expect_serves();
    }
    server_close();
}
END_TEST

START_TEST(taken_port_is_unavailable)
{
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    ck_assert_int_eq(bind(taken, (struct sockaddr *)&address, bytes), 0);
    ck_assert_int_eq(listen(taken, 1), 0);
    getsockname(taken, (struct sockaddr *)&address, &bytes);
    char text[32];
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(address.sin_port));
    server_open(text, NULL);
    ck_assert_int_eq(vx_status_code(server.status), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(server.why.text, "Address already in use"));
    server_close();
    close(taken);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http");
    TCase *tests = tcase_create("http");
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, get_and_get_again);
    tcase_add_test(tests, absolute_targets_are_paths);
    tcase_add_test(tests, head_has_no_body);
    tcase_add_loop_test(tests, connection_lives_as_asked, 0, (int)VX_COUNT(lives));
    tcase_add_test(tests, pipelined_and_torn);
    tcase_add_test(tests, half_closed_client_gets_its_answer);
    tcase_add_loop_test(tests, bad_requests_are_refused, 0, (int)VX_COUNT(refused));
    tcase_add_test(tests, refusal_is_read_before_the_end);
    tcase_add_test(tests, a_flood_behind_a_refusal_is_cut);
    tcase_add_loop_test(tests, addresses_are_checked, 0, (int)VX_COUNT(addresses));
    tcase_add_test(tests, taken_port_is_unavailable);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
