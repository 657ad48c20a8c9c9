/* Addresses: which are valid, which are in use, lists of them, and the files of Unix
 * sockets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/server/rpc/rpc_harness.h"

#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"

#include <check.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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
    {"unix:/tmp", VX_CODE_UNAVAILABLE}, /* the file exists and is no socket */
    {"unix:0123456789012345678901234567890123456789012345678901234567890123456789"
     "01234567890123456789012345678901234567", /* 108 bytes */
     VX_CODE_INVALID_ARGUMENT},
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
    return vx_rpc_open(&(struct vx_rpc_options){.addresses = address,
                                                .connections_max = 8,
                                                .threads = 1,
                                                .calls_max = 4,
                                                .receive_bytes_max = 1 << 20,
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

/* The sentence names the one bad address of a list, and no socket stays open. */
START_TEST(lists_are_all_or_nothing)
{
    static const struct {
        const char *list, *bad;
        enum vx_code code;
    } cases[] = {
        {"127.0.0.1:0,", "''", VX_CODE_INVALID_ARGUMENT},
        {",127.0.0.1:0", "''", VX_CODE_INVALID_ARGUMENT},
        {"127.0.0.1:0,,[::1]:0", "''", VX_CODE_INVALID_ARGUMENT},
        {"127.0.0.1:0, [::1]:x", "' [::1]:x'", VX_CODE_INVALID_ARGUMENT},
        {"unix:a,127.0.0.1:0,unix:a", "once, got 'unix:a' twice",
         VX_CODE_INVALID_ARGUMENT},
        {"127.0.0.1:7,127.0.0.1:7", "once, got '127.0.0.1:7' twice",
         VX_CODE_INVALID_ARGUMENT},
        {"127.0.0.1:0,unix:/no/such/directory/a", "'unix:/no", VX_CODE_UNAVAILABLE},
        {"a:0,a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a:10,a:11,a:12,a:13,a:14,a:15,a:16",
         "'a:16'", VX_CODE_INVALID_ARGUMENT},
    };
    vx_thread_enter(VX_ROLE_LOOP);
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        struct vx_why why = {{0}};
        struct vx_rpc *rpc = NULL;
        vx_status status = open_at(cases[i].list, &why, &rpc);
        ck_assert_msg(vx_status_code(status) == cases[i].code, "%s: %s", cases[i].list,
                      vx_status_text(status, &why));
        ck_assert_msg(strstr(why.text, cases[i].bad) != NULL, "%s", why.text);
        ck_assert_ptr_null(rpc);
    }
}
END_TEST

static int connect_to(int family, i32 port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((u16)port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT,
                               .sin6_port = htons((u16)port)};
    bool v4 = family == AF_INET;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (!connect(fd, v4 ? (struct sockaddr *)&in : (struct sockaddr *)&in6,
                 v4 ? sizeof in : sizeof in6))
        return fd;
    close(fd);
    return -1;
}

START_TEST(a_name_is_all_its_addresses)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    ck_assert_int_eq(getaddrinfo("localhost", NULL, &hints, &found), 0);
    vx_thread_enter(VX_ROLE_LOOP);
    struct vx_why why = {{0}};
    struct vx_rpc *rpc = NULL;
    vx_status status = open_at("localhost:0", &why, &rpc);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    for (struct addrinfo *at = found; at; at = at->ai_next) {
        int fd = connect_to(at->ai_family, vx_rpc_port(rpc));
        ck_assert_int_ge(fd, 0);
        close(fd);
    }
    freeaddrinfo(found);
    vx_rpc_close(&rpc);
}
END_TEST

START_TEST(a_list_serves_on_all)
{
    char list[300], file[100];
    snprintf(file, sizeof file, "/tmp/test_rpc_list.%d.sock", (int)getpid());
    snprintf(list, sizeof list,
             "unix:%s,127.0.0.1:0,unix-abstract:test_rpc.%d,127.0.0.1:0", file,
             (int)getpid());
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.address = list});
    ck_assert_int_gt(rpc_server_port(server), 0);
    char targets[3][128];
    snprintf(targets[0], sizeof targets[0], "unix:%s", file);
    snprintf(targets[1], sizeof targets[1], "127.0.0.1:%d", rpc_server_port(server));
    snprintf(targets[2], sizeof targets[2], "unix-abstract:test_rpc.%d", (int)getpid());
    for (size_t i = 0; i < VX_COUNT(targets); i++) {
        grpc_channel *channel = rpc_channel_to(targets[i]);
        rpc_infer_echo(channel, 100000, (u32)i);
        grpc_channel_destroy(channel);
    }
    rpc_server_close(server);
    ck_assert_int_ne(access(file, F_OK), 0);
}
END_TEST

START_TEST(a_socket_file_has_one_owner)
{
    char address[108], path[100];
    snprintf(path, sizeof path, "/tmp/test_rpc_file.%d.sock", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", path);
    vx_thread_enter(VX_ROLE_LOOP);
    struct vx_why why = {{0}};
    struct vx_rpc *rpc = NULL, *second = NULL;
    struct stat seen;
    /* A file left behind by a server that was killed. */
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strlen(path) + 1);
    int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(stale, (struct sockaddr *)&at, sizeof at), 0);
    close(stale);
    mode_t mask = umask(0077);
    vx_status status = open_at(address, &why, &rpc);
    umask(mask);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    ck_assert_int_eq(stat(path, &seen), 0);
    ck_assert_int_eq(seen.st_mode & 07777, 0660);
    /* A socket that answers belongs to a running server. */
    ck_assert_int_eq(vx_status_code(open_at(address, &why, &second)),
                     VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why.text, "another server listens there"));
    ck_assert_int_eq(access(path, F_OK), 0);
    vx_rpc_close(&rpc);
    ck_assert_int_ne(access(path, F_OK), 0);
    /* A file that has replaced it is not removed with it. */
    status = open_at(address, &why, &rpc);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    ck_assert_int_eq(unlink(path), 0);
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(file, 0);
    vx_rpc_close(&rpc);
    ck_assert_int_eq(access(path, F_OK), 0);
    /* Nor is a file that is not a socket. */
    ck_assert_int_eq(vx_status_code(open_at(address, &why, &rpc)), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why.text, "a file that is not a socket exists there"));
    ck_assert_int_eq(access(path, F_OK), 0);
    close(file);
    unlink(path);
}
END_TEST

struct starting {
    int lock, fd;
    struct sockaddr_un at;
};

/* Stands for a server that has bound its socket and does not listen yet. */
static void *starts(void *context)
{
    struct starting *other = context;
    rpc_sleep_ms(300); /* sleep: it is about to listen */
    VX_ASSERT(!listen(other->fd, 1));
    close(other->lock);
    return NULL;
}

START_TEST(a_server_that_starts_is_waited_for)
{
    char directory[] = "/tmp/test_rpc_starting.XXXXXX", path[100], address[108];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/socket", directory);
    snprintf(address, sizeof address, "unix:%s", path);
    vx_thread_enter(VX_ROLE_LOOP);
    struct starting other = {.at.sun_family = AF_UNIX};
    memcpy(other.at.sun_path, path, strlen(path) + 1);
    other.lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(other.lock, LOCK_EX), 0);
    other.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(other.fd, (struct sockaddr *)&other.at, sizeof other.at), 0);
    struct stat before, after;
    ck_assert_int_eq(lstat(path, &before), 0);
    pthread_t thread;
    ck_assert(!pthread_create(&thread, NULL, starts, &other));
    struct vx_why why = {{0}};
    struct vx_rpc *rpc = NULL;
    do /* once more when `starts` did not run */
        ck_assert_int_eq(vx_status_code(open_at(address, &why, &rpc)),
                         VX_CODE_UNAVAILABLE);
    while (strstr(why.text, "is locked by another process"));
    ck_assert_ptr_nonnull(strstr(why.text, "another server listens there"));
    ck_assert(!pthread_join(thread, NULL));
    ck_assert_int_eq(lstat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    close(other.fd);
    /* A process that never releases the lock is not waited for either. */
    other.lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(other.lock, LOCK_EX), 0);
    ck_assert_int_eq(vx_status_code(open_at(address, &why, &rpc)), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why.text, "is locked by another process"));
    close(other.lock);
    /* Now it is only a file that was left behind. */
    vx_status status = open_at(address, &why, &rpc);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    vx_rpc_close(&rpc);
    ck_assert_int_eq(rmdir(directory), 0);
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
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_listen");
    TCase *tests = tcase_create("rpc_listen");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, addresses_are_checked, 0, (int)VX_COUNT(addresses));
    tcase_add_test(tests, taken_port_says_so);
    tcase_add_test(tests, lists_are_all_or_nothing);
    tcase_add_test(tests, a_name_is_all_its_addresses);
    tcase_add_test(tests, a_list_serves_on_all);
    tcase_add_test(tests, a_socket_file_has_one_owner);
    tcase_add_test(tests, a_server_that_starts_is_waited_for);
    tcase_add_test(tests, unix_socket_serves);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
