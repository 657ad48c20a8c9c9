/* Connections: which connection each call belongs to, when one has ended, how many there
 * may be, and that a connection that has ended leaves no descriptor behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/server/rpc/rpc_harness.h"

#include "engine/base/process/check.h"
#include "tests/support/wait.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                              "\0\0\0\4\0\0\0\0"; /* + 1: an empty SETTINGS frame */
#define PREFACE_BYTES 24

/* ------- what the server sent ------- */

#define ENDED_MAX 16384
static struct {
    pthread_mutex_t lock;
    struct vx_peer peer; /* of the last call */
    i32 ended_count;
    u64 ended[ENDED_MAX];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_disconnected(void *server, u64 connection)
{
    (void)server;
    pthread_mutex_lock(&said.lock);
    for (i32 i = 0; i < said.ended_count; i++) VX_ASSERT(said.ended[i] != connection);
    VX_ASSERT(connection && said.ended_count < ENDED_MAX);
    said.ended[said.ended_count++] = connection;
    pthread_mutex_unlock(&said.lock);
}

static void on_call(struct rpc_server *server, struct vx_call *call)
{
    pthread_mutex_lock(&said.lock);
    said.peer = call->peer;
    pthread_mutex_unlock(&said.lock);
    rpc_server_echo(server, call);
}

static i32 ended_count(void)
{
    pthread_mutex_lock(&said.lock);
    i32 count = said.ended_count;
    pthread_mutex_unlock(&said.lock);
    return count;
}

static struct vx_peer ask(grpc_channel *channel)
{
    struct rpc_result result;
    rpc_unary(channel, RPC_LIVE, "", 0, &result);
    ck_assert_msg(result.code == GRPC_STATUS_OK, "%s", result.text);
    rpc_result_clear(&result);
    pthread_mutex_lock(&said.lock);
    struct vx_peer peer = said.peer;
    pthread_mutex_unlock(&said.lock);
    return peer;
}

static struct vx_rpc_counters counters_of(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters;
}

#define wait_connections(server, count)                                                  \
    VX_WAIT_UNTIL(counters_of(server).connections == (count))

/* ------- raw clients ------- */

static const char *unix_address(void)
{
    static char address[100];
    snprintf(address, sizeof address, "unix:/tmp/test_rpc_accept.%d.sock", (int)getpid());
    return address;
}

static const char *address_of(int i)
{
    return i ? unix_address() : NULL;
}

/* errno, or 0 and a connected socket. */
static int raw_try(struct rpc_server *server, int *fd)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((u16)rpc_server_port(server))};
    snprintf(un.sun_path, sizeof un.sun_path, "%s", unix_address() + strlen("unix:"));
    bool tcp = rpc_server_port(server) != 0;
    *fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(*fd, 0);
    struct timeval patience = {.tv_sec = VX_WAIT_SECONDS};
    setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const struct sockaddr *at = tcp ? (struct sockaddr *)&in : (struct sockaddr *)&un;
    if (!connect(*fd, at, tcp ? sizeof in : sizeof un)) return 0;
    int error = errno;
    close(*fd);
    *fd = -1;
    return error;
}

static int raw_connect(struct rpc_server *server)
{
    int fd, error = raw_try(server, &fd);
    ck_assert_msg(!error, "cannot connect: %s", strerror(error));
    return fd;
}

static void raw_say(int fd, const void *bytes, size_t count)
{
    ck_assert_int_eq(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

/* Waits until the other side has closed; false when it does not. */
static bool raw_ends(int fd)
{
    char bytes[512];
    ssize_t got;
    do got = recv(fd, bytes, sizeof bytes, 0);
    while (got > 0);
    return !got || errno == ECONNRESET;
}

static bool raw_hears(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) == 1;
}

/* ------- identity ------- */

START_TEST(calls_have_the_identity_of_their_connection)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.address = address_of(_i),
                                                     .on_call = on_call,
                                                     .on_disconnected = on_disconnected});
    grpc_channel *first = rpc_channel_open(server), *second = rpc_channel_open(server);
    struct vx_peer peer = ask(first);
    /* gRPC reports "fd:N" for a call on a descriptor that it was given: if that
     * changed, no call would have a connection. */
    ck_assert_uint_ne(peer.connection, 0);
    ck_assert_int_eq(peer.kind, _i ? VX_PEER_UNIX : VX_PEER_LOCAL);
    ck_assert_uint_eq(peer.uid, _i ? getuid() : 0);
    ck_assert_uint_eq(peer.gid, _i ? getgid() : 0);
    struct vx_peer other = ask(second), again = ask(first);
    ck_assert_uint_ne(other.connection, peer.connection);
    ck_assert_uint_eq(again.connection, peer.connection);
    ck_assert_int_eq(counters_of(server).connections, 2);
    ck_assert(vx_rpc_connection_lives(rpc_server_rpc(server), peer.connection));
    ck_assert(!vx_rpc_connection_lives(rpc_server_rpc(server), 0));
    rpc_infer_echo(first, 1 << 20, 1);
    ck_assert_int_eq(ended_count(), 0);
    grpc_channel_destroy(first);
    wait_connections(server, 1);
    ck_assert(!vx_rpc_connection_lives(rpc_server_rpc(server), peer.connection));
    ck_assert(vx_rpc_connection_lives(rpc_server_rpc(server), other.connection));
    VX_WAIT_UNTIL(ended_count() == 1);
    ck_assert_uint_eq(said.ended[0], peer.connection);
    ask(second);
    rpc_server_close(server); /* the second is still there */
    ck_assert_int_eq(ended_count(), 2);
    ck_assert_uint_eq(said.ended[1], other.connection);
    grpc_channel_destroy(second);
}
END_TEST

static int raw_greet(struct rpc_server *server)
{
    int fd = raw_connect(server);
    raw_say(fd, preface, sizeof preface);
    ck_assert(raw_hears(fd)); /* the server's SETTINGS */
    return fd;
}

/* HTTP/2 has no half-closed connections: a client that will send nothing more has
 * ended, for gRPC and for us. */
START_TEST(half_closed_has_ended)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){
        .address = address_of(_i), .on_disconnected = on_disconnected});
    int fd = raw_greet(server);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    ck_assert(raw_ends(fd));
    wait_connections(server, 0);
    close(fd);
    rpc_server_close(server);
    ck_assert_int_eq(ended_count(), 1);
}
END_TEST

/* ------- limits ------- */

START_TEST(one_connection_too_many)
{
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.address = address_of(_i), .connections_max = 3});
    int fds[3];
    for (i32 i = 0; i < 3; i++) fds[i] = raw_greet(server);
    int more = raw_connect(server);
    ck_assert(raw_ends(more));
    close(more);
    struct vx_rpc_counters counters = counters_of(server);
    /* If all this took a second, the first one makes way for the next newcomer. */
    const i32 cut = (i32)counters.connections_cut[VX_RPC_CUT_IDLE];
    wait_connections(server, 3 - cut);
    ck_assert_uint_eq(counters.connections_ever, 4);
    ck_assert_uint_eq(counters.connections_refused, 1);
    close(fds[!cut]);
    wait_connections(server, 2);
    fds[!cut] = raw_greet(server);
    for (i32 i = 0; i < 3; i++) close(fds[i]);
    wait_connections(server, 0);
    rpc_server_close(server);
}
END_TEST

/* True when the client that sends was in time: the machine may be too slow for that. */
static bool silence_turn(const char *address, i64 patience_ns)
{
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.address = address, .receive_ns_max = patience_ns});
    int speaks = raw_connect(server), half = raw_connect(server);
    i64 begin_ns = vx_clock_ns();
    int silent = raw_connect(server);
    (void)!send(speaks, preface, 7, MSG_NOSIGNAL);
    (void)!send(half, preface, PREFACE_BYTES - 1, MSG_NOSIGNAL);
    rpc_sleep_ms(5); /* sleep: so that it most probably arrives in two parts */
    (void)!send(speaks, preface + 7, sizeof preface - 7, MSG_NOSIGNAL);
    ck_assert(raw_ends(silent));
    ck_assert_int_ge(vx_clock_ns() - begin_ns, patience_ns);
    ck_assert(raw_ends(half));
    bool in_time = raw_hears(speaks);
    wait_connections(server, in_time);
    /* sleep: in which it must not be cut: gRPC's own pings check it */
    rpc_sleep_ms(2 * patience_ns / VX_NS_PER_MS);
    ck_assert_int_eq(counters_of(server).connections, in_time);
    close(speaks);
    close(half);
    close(silent);
    rpc_server_close(server);
    return in_time;
}

START_TEST(silence_ends)
{
    i64 patience_ns = 200 * VX_NS_PER_MS;
    while (!silence_turn(address_of(_i), patience_ns)) patience_ns *= 2;
}
END_TEST

/* Replaces the system's function: counts the calls that failed. */
static atomic_int accepts_failed;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int got = (int)syscall(SYS_accept4, fd, address, length, flags);
    if (got < 0 && errno == EMFILE) atomic_fetch_add(&accepts_failed, 1);
    return got;
}

/* The server retries now and then, and not all the time. */
START_TEST(no_descriptor_left)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.address = address_of(_i)});
    int filled[64] = {0};
    struct rlimit limit, low;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int client = raw_connect(server);
    raw_say(client, preface, sizeof preface);
    ck_assert(raw_hears(client));
    int late = fcntl(client, F_DUPFD_CLOEXEC, 0); /* the next client uses this number */
    low = (struct rlimit){(rlim_t)late + 8, limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    size_t count = 0;
    while (count < VX_COUNT(filled) && (filled[count] = dup(0)) >= 0) count++;
    ck_assert_uint_lt(count, VX_COUNT(filled));
    close(late);
    i64 begin_ns = vx_clock_ns(); /* before the first try */
    late = raw_connect(server);   /* the kernel accepts, the server cannot */
    raw_say(late, preface, sizeof preface);
    VX_WAIT_UNTIL(atomic_load(&accepts_failed) >= 5); /* 100 ms between them */
    ck_assert_int_ge(vx_clock_ns() - begin_ns, 400 * VX_NS_PER_MS);
    while (count) close(filled[--count]);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert(raw_hears(late));
    close(late);
    close(client);
    wait_connections(server, 0);
    rpc_server_close(server);
}
END_TEST

/* ------- they come and go ------- */

/* Descriptors of this process from `first` on; the largest of them. */
static i32 descriptors(int first, int *largest)
{
    DIR *directory = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(directory);
    i32 count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd < first || fd == dirfd(directory)) continue;
        count++;
        if (largest && fd > *largest) *largest = fd;
    }
    closedir(directory);
    return count;
}

static void come_and_go(struct rpc_server *server, i32 i)
{
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    u8 noise[64];
    int fd = raw_connect(server);
    switch (i % 6) { /* 0: sends nothing */
    case 1: raw_say(fd, garbage, sizeof garbage - 1); break;
    case 2: raw_say(fd, preface, 1 + (size_t)i % (PREFACE_BYTES - 1)); break;
    case 3: raw_say(fd, preface, PREFACE_BYTES); break;
    case 4:
        rpc_fill(noise, sizeof noise, (u32)i);
        raw_say(fd, preface, PREFACE_BYTES);
        raw_say(fd, noise, sizeof noise);
        break;
    case 5: {
        struct linger at_once = {1, 0};
        raw_say(fd, preface, sizeof preface);
        ck_assert(raw_hears(fd));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        break;
    }
    }
    if (i % 12 == 1)
        ck_assert(raw_ends(fd)); /* nothing to wait for: the server hangs up */
    close(fd);
}

START_TEST(nothing_is_left)
{
    enum { RAW = 3000, CHANNELS = 60 };
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.address = address_of(_i), .on_call = on_call});
    grpc_channel *channel = rpc_channel_open(server);
    ask(channel);
    i32 before = descriptors(0, NULL);
    for (i32 i = 0; i < RAW; i++) come_and_go(server, i);
    for (i32 i = 0; i < CHANNELS; i++) {
        grpc_channel *one = rpc_channel_open(server);
        ask(one);
        grpc_channel_destroy(one);
    }
    wait_connections(server, 1);
    VX_WAIT_UNTIL(descriptors(0, NULL) ==
                  before); /* gRPC closes its own a moment later */
    ask(channel);
    ck_assert_uint_eq(counters_of(server).connections_ever, RAW + CHANNELS + 1);
    ck_assert_uint_eq(counters_of(server).connections_refused, 0);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* A call that arrives late is matched by its descriptor's number: that must not be the
 * next connection's. */
START_TEST(numbers_do_not_come_again_soon)
{
    enum { CONNECTIONS = 300 };
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_cur < 2048 ? limit.rlim_cur : 2048;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int window = (int)limit.rlim_cur / 2, before = 0;
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    for (i32 i = 0; i < CONNECTIONS; i++) {
        int now = 0, fd = raw_greet(server);
        ck_assert_int_eq(descriptors(window, &now), 1);
        ck_assert_int_gt(now, before);
        before = now;
        close(fd);
        wait_connections(server, 0);
        VX_WAIT_UNTIL(!descriptors(window, NULL));
    }
    rpc_server_close(server);
}
END_TEST

static void stop(struct rpc_server *server)
{
    vx_rpc_stop_accepting(rpc_server_rpc(server));
}

START_TEST(stopped_refuses_and_goes_on)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.address = address_of(_i)});
    grpc_channel *channel = rpc_channel_open(server);
    static u8 body[4096];
    size_t length = rpc_infer_body(body, sizeof body, preface, sizeof preface);
    int silent = raw_connect(server), fd;
    rpc_server_hold(server);
    struct rpc_client client;
    rpc_client_open(&client, channel, RPC_INFER, 0);
    ck_assert(rpc_client_send(&client, body, length));
    ck_assert(rpc_client_half_close(&client));
    rpc_wait_seen(server, 1, 0);
    rpc_server_do(server, stop);
    int error = raw_try(server, &fd);
    ck_assert_msg(error == ECONNREFUSED || (_i && error == ENOENT), "%s",
                  strerror(error));
    ck_assert(raw_ends(silent)); /* gRPC never gets it */
    ck_assert_int_eq(counters_of(server).in_flight, 1);
    struct rpc_result result = {0};
    rpc_server_release(server);
    ck_assert(rpc_client_receive(&client, &result));
    rpc_result_clear(&result);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    grpc_channel_destroy(channel);
    close(silent);
    rpc_server_close(server);
}
END_TEST

/* Clients keep connecting while the server closes: none may be passed to gRPC after
 * its shutdown, which would wait for it, and each end is reported once. */
static void *crowd_run(void *context)
{
    char byte;
    int fd;
    for (i32 i = 0; i < ENDED_MAX / 8 && !raw_try(context, &fd); i++) {
        (void)!send(fd, preface, sizeof preface, MSG_NOSIGNAL);
        if (i % 2) (void)!recv(fd, &byte, 1, 0);
        close(fd);
    }
    return NULL;
}

START_TEST(a_crowd_at_the_end)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){
        .address = address_of(_i), .on_disconnected = on_disconnected});
    pthread_t crowd[4];
    for (size_t i = 0; i < VX_COUNT(crowd); i++)
        ck_assert_int_eq(pthread_create(&crowd[i], NULL, crowd_run, server), 0);
    VX_WAIT_UNTIL(ended_count() >= 100);
    rpc_server_do(server, stop);
    for (size_t i = 0; i < VX_COUNT(crowd); i++) pthread_join(crowd[i], NULL);
    struct vx_rpc_counters counters = counters_of(server);
    rpc_server_close(server);
    ck_assert_uint_le((u64)ended_count(), counters.connections_ever);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_accept");
    TCase *tests = tcase_create("rpc_accept");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, calls_have_the_identity_of_their_connection, 0, 2);
    tcase_add_loop_test(tests, half_closed_has_ended, 0, 2);
    tcase_add_loop_test(tests, one_connection_too_many, 0, 2);
    tcase_add_loop_test(tests, silence_ends, 0, 2);
    tcase_add_loop_test(tests, no_descriptor_left, 0, 2);
    tcase_add_loop_test(tests, nothing_is_left, 0, 2);
    tcase_add_test(tests, numbers_do_not_come_again_soon);
    tcase_add_loop_test(tests, stopped_refuses_and_goes_on, 0, 2);
    tcase_add_loop_test(tests, a_crowd_at_the_end, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
