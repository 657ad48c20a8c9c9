/* http_harness - the admin port on a loop of its own, and a raw client for it.
 *
 *   server_start(NULL);
 *   int fd = client_open();
 *   client_send(fd, "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
 *   expect_answer(fd, 200, "/x|");
 *   server_close();
 *
 * The handler answers "PATH|QUERY", /big with BIG_BYTES of 'b', /none with 404.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_HTTP_HARNESS_H
#define VX_TESTS_UNIT_HTTP_HARNESS_H

#include "server/http/http.h"

#include <pthread.h>
#include <semaphore.h>
#include <uv.h>

#define BIG_BYTES   (1024 * 1024)
#define PATIENCE_MS 300000 /* a test that waits this long has failed */

struct server {
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t stop;
    sem_t is_up;
    const char *address;
    const struct vx_http_timeouts *timeouts;
    i32 connections_max; /* set before the server opens */
    struct vx_http *http;
    vx_status status;
    struct vx_why why;
    i32 port;
    int leftovers; /* handles still open after the loop ended */
};
extern struct server server;
extern const struct vx_http_timeouts impatient;

/* Opens the server, or leaves an error status; either way server_close ends it. */
void server_open(const char *address, const struct vx_http_timeouts *timeouts);
void server_start(const struct vx_http_timeouts *timeouts);
void server_close(void);

struct answer {
    int status;
    char head[1024];
    char *body; /* of the last answer only: it is static */
    size_t body_bytes;
    bool is_eof; /* no answer: the server has closed */
};

int client_open(void);
/* The same, from 127.0.0.`last`. */
int client_open_from(int last);
/* A client that asks for megabytes and reads nothing. */
int client_open_stalled(void);
void client_send(int fd, const char *text);
/* Reads one answer; bytes after it stay in the socket. */
struct answer client_receive(int fd, bool head_only);
/* Reads until the server closes; returns the number of bytes. */
size_t client_drain(int fd);
void expect_answer(int fd, int status, const char *body);
void expect_closed(int fd);
/* Checks that a new client is answered. */
void expect_serves(void);

#endif
