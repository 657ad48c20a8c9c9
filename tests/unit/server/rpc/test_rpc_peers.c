/* The peer of a connection: its groups, and that any thread may query it while
 * connections come and go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/rpc/rpc_origins.h"
#include "server/rpc/rpc_private.h"
#include "server/rpc/rpc_silent.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_harness.h"

#include <arpa/inet.h>
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    struct vx_peer peer; /* of the last call */
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_call(struct rpc_server *server, struct vx_call *call)
{
    pthread_mutex_lock(&said.lock);
    said.peer = call->peer;
    pthread_mutex_unlock(&said.lock);
    rpc_server_echo(server, call);
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

/* By two addresses: the loopback and a Unix socket. */
static struct rpc_server *server_open(char *file, size_t room)
{
    char list[200];
    snprintf(file, room, "unix:/tmp/test_rpc_peers.%d.sock", (int)getpid());
    snprintf(list, sizeof list, "127.0.0.1:0,%s", file);
    return rpc_server_open(
        &(struct rpc_server_options){.address = list, .on_call = on_call});
}

/* Over TCP an origin is an address; two connections of the test's own, to a listener. */
static u64 source_from(int listener, const struct sockaddr_in *to, const char *from)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    ck_assert_int_eq(inet_pton(AF_INET, from, &here.sin_addr), 1);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(client, (const struct sockaddr *)&here, sizeof here), 0);
    ck_assert_int_eq(connect(client, (const struct sockaddr *)to, sizeof *to), 0);
    int ours = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(ours, 0);
    u64 source = vx_rpc_peer_of(ours, false).source;
    close(ours);
    close(client);
    return source;
}

START_TEST(an_origin_is_an_address_or_a_process)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pair[2];
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    u64 first = source_from(listener, &at, "127.0.0.1");
    ck_assert_uint_eq(source_from(listener, &at, "127.0.0.1"), first);
    for (i32 i = 2; i < 50; i++) {
        char host[INET_ADDRSTRLEN];
        snprintf(host, sizeof host, "127.%d.0.%d", i % 3, i);
        ck_assert_uint_ne(source_from(listener, &at, host), first);
    }
    close(listener);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    u64 own = vx_rpc_peer_of(pair[0], true).source;
    ck_assert_uint_eq(vx_rpc_peer_of(pair[1], true).source, own);
    close(pair[0]);
    close(pair[1]);
    i32 same = 0;
    for (i32 i = 0; i < 4; i++) {
        pid_t child = fork();
        if (!child) { /* its own pair has its own credentials */
            bool fails = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0;
            _exit(fails || vx_rpc_peer_of(pair[0], true).source == own);
        }
        int code = 1;
        ck_assert_int_eq(waitpid(child, &code, 0), child);
        same += code != 0;
    }
    ck_assert_int_eq(same, 0);
}
END_TEST

/* Each has its own number while it has connections, however many there are; which one is different
 * at each start. */
START_TEST(no_two_origins_share_a_number)
{
    enum { MANY = 4096 };
    static struct vx_rpc_origins origins;
    static u16 numbers[MANY];
    static bool taken[VX_PEER_ORIGINS];
    for (u32 i = 0; i < MANY; i++) {
        numbers[i] = vx_rpc_origins_take(&origins, i);
        ck_assert_uint_lt(numbers[i], VX_PEER_ORIGINS);
        ck_assert(!taken[numbers[i]]);
        taken[numbers[i]] = true;
    }
    /* A second connection has the first one's, also where numbers before it are free again. */
    for (u32 i = 0; i < MANY; i += 2) vx_rpc_origins_give(&origins, numbers[i]);
    for (u32 i = 1; i < MANY; i += 2)
        ck_assert_uint_eq(vx_rpc_origins_take(&origins, i), numbers[i]);
    /* It keeps the number until both have ended; then another one may have it. */
    for (i32 k = 0; k < 2; k++)
        for (u32 i = 1; i < MANY; i += 2) {
            ck_assert_int_eq(origins.rows[numbers[i]].connections, 2 - k);
            vx_rpc_origins_give(&origins, numbers[i]);
        }
    u16 again = vx_rpc_origins_take(&origins, 1);
    ck_assert_int_eq(origins.rows[again].connections, 1);
    ck_assert(!vx_rpc_origins_are_free(&origins));
    vx_rpc_origins_give(&origins, again);
    ck_assert(vx_rpc_origins_are_free(&origins));
}
END_TEST

/* Which silent connection goes: of the oldest, the first of the origin that has most. */
START_TEST(of_silent_connections_the_crowd_goes)
{
    static const u16 origins[] = {7, 3, 5, 3, 5, 3};
    static struct vx_rpc_silents silents;
    struct vx_rpc_silent all[VX_COUNT(origins)];
    ck_assert_ptr_null(vx_rpc_silent_least(&silents));
    for (size_t i = 0; i < VX_COUNT(origins); i++) {
        all[i] = (struct vx_rpc_silent){.origin = origins[i]};
        vx_rpc_silent_add(&silents, &all[i]);
    }
    /* Of 3 there are three: one goes for another of it, or of an origin with one or none. */
    ck_assert(vx_rpc_silent_goes(&silents, 9) && vx_rpc_silent_goes(&silents, 7));
    ck_assert(!vx_rpc_silent_goes(&silents, 5) && vx_rpc_silent_goes(&silents, 3));
    static const i32 order[] = {1, 2, 3, 0, 4, 5}; /* of as many, the older one */
    for (size_t i = 0; i < VX_COUNT(order); i++) {
        struct vx_rpc_silent *least = vx_rpc_silent_least(&silents);
        ck_assert_msg(least == &all[order[i]], "%zu: %d", i, (int)(least - all));
        vx_rpc_silent_remove(&silents, least);
    }
    ck_assert_ptr_null(silents.first);
    ck_assert_ptr_null(silents.last);
    ck_assert(!vx_rpc_silent_goes(&silents, 9));
}
END_TEST

START_TEST(groups_are_the_kernels_word)
{
    enum { WANTED = 100 };
    gid_t groups[WANTED];
    for (u32 i = 0; i < WANTED; i++) groups[i] = 70000 + i;
    int count = WANTED;
    if (setgroups(WANTED, groups)) { /* only root may */
        count = getgroups(WANTED, groups);
        if (count <= 0) {
            printf(
                "SKIPPED groups: no root, and this user has no group beside its own\n");
            return;
        }
    }
    char file[100], tcp[64];
    struct rpc_server *server = server_open(file, sizeof file);
    struct vx_rpc *rpc = rpc_server_rpc(server);
    snprintf(tcp, sizeof tcp, "127.0.0.1:%d", rpc_server_port(server));
    grpc_channel *near = rpc_channel_to(file), *far = rpc_channel_to(tcp);
    u64 unix_connection = ask(near).connection, tcp_connection = ask(far).connection;
    ck_assert(unix_connection && tcp_connection);
    for (int i = 0; i < count; i++) {
        ck_assert(vx_rpc_connection_in_group(rpc, unix_connection, groups[i]));
        ck_assert(!vx_rpc_connection_in_group(rpc, tcp_connection, groups[i]));
        ck_assert(!vx_rpc_connection_in_group(rpc, 0, groups[i]));
    }
    ck_assert(!vx_rpc_connection_in_group(rpc, unix_connection, 69999));
    grpc_channel_destroy(near);
    VX_WAIT_UNTIL(!vx_rpc_connection_lives(rpc, unix_connection));
    ck_assert(!vx_rpc_connection_in_group(rpc, unix_connection, groups[0]));
    grpc_channel_destroy(far);
    rpc_server_close(server);
}
END_TEST

static atomic_bool asking, asked_one_that_lives;

static void *asks(void *context)
{
    struct vx_rpc *rpc = context;
    for (u64 i = 1; atomic_load(&asking); i = i % 64 + 1) {
        if (vx_rpc_connection_lives(rpc, i)) atomic_store(&asked_one_that_lives, true);
        vx_rpc_connection_in_group(rpc, i, 1);
    }
    return NULL;
}

/* The result is for ThreadSanitizer to judge. */
START_TEST(any_thread_may_ask)
{
    char file[100];
    struct rpc_server *server = server_open(file, sizeof file);
    pthread_t thread;
    atomic_store(&asking, true);
    ck_assert(!pthread_create(&thread, NULL, asks, rpc_server_rpc(server)));
    for (u64 i = 1; i <= 40; i++) {
        grpc_channel *channel = rpc_channel_to(file);
        ck_assert_uint_eq(ask(channel).connection, i);
        if (i == 1) VX_WAIT_UNTIL(atomic_load(&asked_one_that_lives));
        grpc_channel_destroy(channel);
    }
    atomic_store(&asking, false);
    ck_assert(!pthread_join(thread, NULL));
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_peers");
    TCase *tests = tcase_create("rpc_peers");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, groups_are_the_kernels_word);
    tcase_add_test(tests, an_origin_is_an_address_or_a_process);
    tcase_add_test(tests, no_two_origins_share_a_number);
    tcase_add_test(tests, of_silent_connections_the_crowd_goes);
    tcase_add_test(tests, any_thread_may_ask);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
