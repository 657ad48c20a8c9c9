/* Addresses: what is one, what is taken, and a unix socket that serves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/rpc_harness.h"

#include "engine/base/thread.h"

#include <check.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct {
    const char *address;
    enum vx_code code;
} addresses[] = {
    {"", VX_CODE_INVALID_ARGUMENT},
    {"127.0.0.1", VX_CODE_INVALID_ARGUMENT},
    {"127.0.0.1:", VX_CODE_INVALID_ARGUMENT},
    {"127.0.0.1:65536", VX_CODE_INVALID_ARGUMENT},
    {"127.0.0.1:12x", VX_CODE_INVALID_ARGUMENT},
    {"127.0.0.1:-1", VX_CODE_INVALID_ARGUMENT},
    {":8001", VX_CODE_INVALID_ARGUMENT},
    {"::1:8001", VX_CODE_INVALID_ARGUMENT},
    {"[::1:8001", VX_CODE_INVALID_ARGUMENT},
    {"unix:", VX_CODE_INVALID_ARGUMENT},
    {"999.1.1.1:8001", VX_CODE_INVALID_ARGUMENT},
    {"203.0.113.1:8001", VX_CODE_UNAVAILABLE}, /* not an address of this machine */
    {"unix:/no/such/directory/socket", VX_CODE_UNAVAILABLE},
    {"127.0.0.1:0", VX_CODE_OK},
    {"[::1]:0", VX_CODE_OK},
    {"localhost:0", VX_CODE_OK},
};

static vx_status open_at(const char *address, struct vx_why *why, struct vx_rpc **rpc)
{
    static struct vx_mailbox arrivals, gone;
    static const struct vx_slots slots;
    vx_mailbox_init(&arrivals, NULL, NULL);
    vx_mailbox_init(&gone, NULL, NULL);
    return vx_rpc_open(&(struct vx_rpc_options){.address = address,
                                                .threads = 1,
                                                .calls_max = 4,
                                                .receiving_max = 1,
                                                .message_bytes_max = 1 << 20,
                                                .slots = &slots,
                                                .arrivals = &arrivals,
                                                .gone = &gone},
                       why, rpc);
}

START_TEST(addresses_are_checked)
{
    vx_thread_enter(VX_ROLE_LOOP);
    struct vx_why why = {{0}};
    struct vx_rpc *rpc = NULL;
    vx_status status = open_at(addresses[_i].address, &why, &rpc);
    ck_assert_msg(vx_status_code(status) == addresses[_i].code, "%s: %s",
                  addresses[_i].address, vx_status_text(status, &why));
    if (status.fault) {
        ck_assert_ptr_null(rpc);
        ck_assert_ptr_nonnull(strstr(why.text, addresses[_i].address));
    } else {
        ck_assert_int_gt(vx_rpc_port(rpc), 0);
        vx_rpc_close(&rpc);
    }
}
END_TEST

START_TEST(taken_port_says_so)
{
    vx_thread_enter(VX_ROLE_LOOP);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    struct vx_why why = {{0}};
    struct vx_rpc *rpc = NULL;
    ck_assert_int_eq(vx_status_code(open_at(address, &why, &rpc)), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why.text, "Address already in use"));
    close(fd);
}
END_TEST

START_TEST(unix_socket_serves)
{
    char address[108], path[100];
    snprintf(path, sizeof path, "/tmp/test_rpc.%d.sock", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", path);
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.address = address});
    ck_assert_int_eq(rpc_server_port(server), 0);
    grpc_channel *channel = rpc_channel_open(server);
    rpc_infer_echo(channel, 1 << 20, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_listen");
    TCase *tests = tcase_create("rpc_listen");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, addresses_are_checked, 0, (int)VX_COUNT(addresses));
    tcase_add_test(tests, taken_port_says_so);
    tcase_add_test(tests, unix_socket_serves);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
