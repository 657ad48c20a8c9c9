/* A server that was away comes up: the client finds it between calls, by itself.
 *
 * gRPC's own periodic retry of connections, every 5 s, is switched off: each connection
 * seen here is the client's doing. The server is a socket that is bound and does not
 * listen, so it refuses connections until it listens.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/voxel.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/* An empty SETTINGS frame: with it the connection is established. */
static const char settings[9] = {0, 0, 0, 4};

static int port_bind(char address[64])
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(port, 0);
    ck_assert_int_eq(bind(port, (struct sockaddr *)&name, bytes), 0);
    ck_assert_int_eq(getsockname(port, (struct sockaddr *)&name, &bytes), 0);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(name.sin_port));
    return port;
}

/* A connection that a client has made and sent its preface in. */
static int client_accept(int port)
{
    char came[sizeof preface] = "";
    int one = accept(port, NULL, NULL);
    ck_assert_int_ge(one, 0);
    ck_assert_int_eq(recv(one, came, sizeof preface - 1, MSG_WAITALL),
                     sizeof preface - 1);
    ck_assert_str_eq(came, preface);
    return one;
}

static void on_answer(void *context, struct voxel_answer *answer,
                      const struct voxel_error *error)
{
    ck_assert_ptr_null(answer);
    *(enum voxel_code *)context = error->code;
}

/* Blocking, or polled. */
static enum voxel_code ask(struct voxel_client *client, bool polled)
{
    struct voxel_answer *answer;
    struct voxel_error error;
    const struct voxel_request request = {.model = "m"};
    enum voxel_code code = VOXEL_OK;
    if (!polled) return voxel_infer(client, &request, &answer, &error);
    ck_assert_int_eq(voxel_infer_async(client, &request, on_answer, &code, &error),
                     VOXEL_OK);
    ck_assert_int_eq(voxel_client_poll(client, -1), 1);
    return code;
}

START_TEST(a_server_that_comes_up_is_found_between_calls)
{
    char address[64];
    struct voxel_client *client;
    struct voxel_error error;
    const struct voxel_options options = {.deadline_us = 100000};
    setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "0", 1);
    int port = port_bind(address);
    ck_assert_int_eq(voxel_client_open(address, &options, &client, &error), VOXEL_OK);
    ck_assert_int_ne(ask(client, _i), VOXEL_OK);
    ck_assert_int_eq(listen(port, 8), 0);
    int one = client_accept(port);
    ck_assert_int_eq(write(one, settings, sizeof settings), sizeof settings);
    /* It is established, nobody answers in it, it ends: the client opens the next one
     * in the same way. */
    enum voxel_code code;
    while ((code = ask(client, _i)) == VOXEL_UNAVAILABLE)
        usleep(1000); /* sleep: between two checks */
    ck_assert_int_eq(code, VOXEL_DEADLINE_EXCEEDED);
    close(one);
    struct pollfd next = {.fd = port, .events = POLLIN};
    while (poll(&next, 1, 0) == 0) ck_assert_int_ne(ask(client, _i), VOXEL_OK);
    close(client_accept(port));
    close(port);
    voxel_client_close(client);
}
END_TEST

START_TEST(an_absent_server_is_unavailable)
{
    struct voxel_client *client;
    struct voxel_error error;
    bool live;
    ck_assert_int_eq(voxel_client_open("unix:/no/such/socket", NULL, &client, &error),
                     VOXEL_OK);
    ck_assert_int_eq(voxel_server_live(client, &live, &error), VOXEL_UNAVAILABLE);
    ck_assert_uint_gt(strlen(error.text), 0);
    voxel_client_close(client);
    static const char *const wrong[] = {"", "localhost", NULL, "http://a:1",
                                        "https://a:1"};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(voxel_client_open(wrong[i], NULL, &client, &error),
                         VOXEL_INVALID_ARGUMENT);
        ck_assert_ptr_null(client);
    }
    const struct voxel_options many = {.threads = VOXEL_THREADS_MAX + 1};
    ck_assert_int_eq(voxel_client_open("a:1", &many, &client, NULL),
                     VOXEL_INVALID_ARGUMENT);
}
END_TEST

/* Closing does not wait for a connection that never comes. */
START_TEST(a_client_of_an_absent_server_closes)
{
    char address[64];
    struct voxel_client *client;
    int port = port_bind(address);
    for (int round = 0; round < 20; round++) {
        ck_assert_int_eq(voxel_client_open(address, NULL, &client, NULL), VOXEL_OK);
        for (int call = 0; call < round % 3; call++)
            ck_assert_int_eq(ask(client, _i), VOXEL_UNAVAILABLE);
        voxel_client_close(client);
    }
    close(port);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client connect");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_server_that_comes_up_is_found_between_calls, 0, 2);
    tcase_add_test(tcase, an_absent_server_is_unavailable);
    tcase_add_loop_test(tcase, a_client_of_an_absent_server_closes, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
