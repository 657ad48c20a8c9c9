/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server/http/http_harness.h"

#include "engine/base/process/thread.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------- the server, on a loop of its own ------- */

struct server server;
const struct vx_http_timeouts impatient = {
    .idle_ms = 150, .request_ms = 150, .write_ms = 300, .linger_ms = 150};

/* For servers whose time limits are not tested: no machine is this slow. */
static const struct vx_http_timeouts patient = {.idle_ms = 2 * PATIENCE_MS,
                                                .request_ms = 2 * PATIENCE_MS,
                                                .write_ms = 2 * PATIENCE_MS,
                                                .linger_ms = 2 * PATIENCE_MS};

static void server_handler(void *context, const struct vx_http_request *request,
                           struct vx_http_reply *reply)
{
    ck_assert_ptr_eq(context, &server);
    if (!strcmp(request->path, "/big")) {
        memset(reply->body, 'b', BIG_BYTES);
        reply->length = BIG_BYTES;
        ck_assert_uint_ge(reply->capacity, BIG_BYTES);
    } else if (!strcmp(request->path, "/none")) {
        reply->status = 404;
    } else {
        reply->content_type = "text/x-test";
        reply->length = (size_t)snprintf(reply->body, reply->capacity, "%s|%s",
                                         request->path, request->query);
    }
}

static void server_on_stop(uv_async_t *async)
{
    vx_http_close(&server.http);
    ck_assert_ptr_null(server.http);
    uv_close((uv_handle_t *)async, NULL);
}

static void server_main(void *context)
{
    (void)context;
    uv_loop_init(&server.loop);
    uv_async_init(&server.loop, &server.stop, server_on_stop);
    server.status =
        vx_http_open(&(struct vx_http_options){.loop = &server.loop,
                                               .address = server.address,
                                               .handler = server_handler,
                                               .context = &server,
                                               .connections_max = server.connections_max},
                     &server.why, &server.http);
    if (!server.status.fault) {
        server.port = vx_http_port(server.http);
        vx_http_timeouts_set(server.http, server.timeouts ? server.timeouts : &patient);
    }
    sem_post(&server.is_up);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    server.leftovers = uv_loop_close(&server.loop);
}

void server_open(const char *address, const struct vx_http_timeouts *timeouts)
{
    server.address = address;
    server.timeouts = timeouts;
    sem_init(&server.is_up, 0, 0);
    ck_assert(!vx_thread_open(&server.thread, VX_ROLE_LOOP, server_main, NULL).fault);
    sem_wait(&server.is_up);
}

void server_close(void)
{
    uv_async_send(&server.stop);
    pthread_join(server.thread, NULL);
    ck_assert_int_eq(server.leftovers, 0);
}

void server_start(const struct vx_http_timeouts *timeouts)
{
    server_open("127.0.0.1:0", timeouts);
    ck_assert_msg(!server.status.fault, "%s", server.why.text);
    ck_assert_int_gt(server.port, 0);
}

/* ------- the client ------- */

int client_open(void)
{
    return client_open_from(1);
}

int client_open_from(int last)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7f000000u + (u32)last)};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((u16)server.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

void client_send(int fd, const char *text)
{
    ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

struct answer client_receive(int fd, bool head_only)
{
    static char body[BIG_BYTES];
    struct answer answer = {.body = body};
    size_t length = 0;
    while (!strstr(answer.head, "\r\n\r\n")) {
        ck_assert_uint_lt(length, sizeof answer.head - 1);
        ssize_t got = recv(fd, answer.head + length, 1, 0);
        ck_assert_msg(got >= 0 || errno == ECONNRESET, "no answer: %s", strerror(errno));
        if (got <= 0) {
            ck_assert_msg(length == 0, "cut: %s", answer.head);
            answer.is_eof = true;
            return answer;
        }
        length++;
    }
    ck_assert_msg(sscanf(answer.head, "HTTP/1.1 %d ", &answer.status) == 1, "%s",
                  answer.head);
    const char *said = strstr(answer.head, "\r\nContent-Length: ");
    ck_assert_ptr_nonnull(said);
    answer.body_bytes = strtoul(said + 18, NULL, 10);
    ck_assert_uint_le(answer.body_bytes, sizeof body);
    for (size_t have = 0; !head_only && have < answer.body_bytes;) {
        ssize_t got = recv(fd, body + have, answer.body_bytes - have, 0);
        ck_assert_msg(got > 0, "body cut after %zu of %zu", have, answer.body_bytes);
        have += (size_t)got;
    }
    return answer;
}

void expect_answer(int fd, int status, const char *body)
{
    struct answer answer = client_receive(fd, false);
    ck_assert(!answer.is_eof);
    ck_assert_int_eq(answer.status, status);
    ck_assert_uint_eq(answer.body_bytes, strlen(body));
    ck_assert_mem_eq(answer.body, body, strlen(body));
}

void expect_closed(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, 0);
    ck_assert_msg(got == 0 || (got < 0 && errno == ECONNRESET), "still open: %zd", got);
}

void expect_serves(void)
{
    int fd = client_open();
    client_send(fd, "GET /well HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_answer(fd, 200, "/well|");
    close(fd);
}

int client_open_stalled(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((u16)server.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    /* Several requests, so that their answers do not fit the kernel's buffers. */
#define BIG "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"
    static const char all[] = BIG BIG BIG BIG BIG BIG BIG BIG;
    (void)!send(fd, all, sizeof all - 1, MSG_NOSIGNAL); /* it may be cut already */
    return fd;
}

size_t client_drain(int fd)
{
    static char bytes[65536];
    size_t all = 0;
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) all += (size_t)got;
    return all;
}
