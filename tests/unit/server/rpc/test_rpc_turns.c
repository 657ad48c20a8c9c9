/* Messages of streams take turns with what other connections bring.
 *
 * One rpc thread serves all of it, and stands in on_refused while clients fill their
 * sockets, so the order in which it refuses wrong requests depends on nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_turn.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MANY    200
#define STREAMS 4
/* More messages than a thread handles before it reads connections (MESSAGES_PER_READ in
 * rpc_turn.c), for the few times that it does so before it comes to the one that waits. */
#define FEW 50

static atomic_int refused, refused_of_one, refused_before_last;
static atomic_bool hold;
static sem_t held, go;

/* Two wrong requests, which are refused with different words. */
enum from { CROWD, ONE };
static const u8 wrong[][2] = {[CROWD] = {0x0a, 0x7f}, [ONE] = {0xff, 0xff}};

static void on_refused(void *context, const struct vx_rpc_refusal *refusal)
{
    (void)context;
    bool of_one = strstr(refusal->text, "varint") != NULL;
    if (of_one) atomic_store(&refused_before_last, atomic_load(&refused));
    atomic_fetch_add(of_one ? &refused_of_one : &refused, 1);
    if (!atomic_exchange(&hold, false)) return;
    sem_post(&held);
    sem_wait(&go);
}

/* Sends that many wrong requests at once. */
static void send_wrong(int fd, u32 id, enum from from, i32 count)
{
    const u8 one[] = {0, 0, 0, 0, 2, wrong[from][0], wrong[from][1]};
    u8 all[MANY * sizeof one];
    ck_assert_int_le(count, MANY);
    for (i32 i = 0; i < count; i++) memcpy(all + (size_t)i * sizeof one, one, sizeof one);
    ck_assert(raw_send(
        fd, &(struct raw_frame){RAW_DATA, 0, id, all, (size_t)count * sizeof one}));
}

/* A client that takes all answers, whether it reads them or not, and whose frames do not
 * wait for the acknowledgement of earlier ones. */
static int open_wide(struct rpc_server *server)
{
    static const u8 windows[] = {0, 4, 0x7f, 0xff, 0xff, 0xff};
    static const u8 more[] = {0x7f, 0, 0, 0};
    int fd = raw_open(server), now = 1;
    ck_assert_int_eq(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now), 0);
    ck_assert(
        raw_send(fd, &(struct raw_frame){RAW_SETTINGS, 0, 0, windows, sizeof windows}));
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_WINDOW, 0, 0, more, sizeof more}));
    return fd;
}

/* A stream whose first request has been refused: gRPC knows its connection. */
static void begin(int fd, u32 id, const char *path, enum from from)
{
    atomic_int *counted = from == ONE ? &refused_of_one : &refused;
    int before = atomic_load(counted);
    ck_assert(raw_call(fd, id, path, NULL));
    send_wrong(fd, id, from, 1);
    VX_WAIT_UNTIL(atomic_load(counted) == before + 1);
}

static struct rpc_server *open_one_thread(void)
{
    refused = refused_of_one = refused_before_last = 0;
    hold = false;
    ck_assert_int_eq(sem_init(&held, 0, 0), 0);
    ck_assert_int_eq(sem_init(&go, 0, 0), 0);
    return rpc_server_open(
        &(struct rpc_server_options){.threads = 1, .on_refused = on_refused});
}

/* The thread stands still from the next refusal on, which this request causes. */
static void stand(int fd, u32 id)
{
    atomic_store(&hold, true);
    send_wrong(fd, id, CROWD, 1);
    while (sem_wait(&held)) {
    }
}

/* The server's socket has everything: loopback, too, delivers when a processor is free. */
static bool is_delivered(int fd)
{
    int left = 1;
    ck_assert_int_eq(ioctl(fd, SIOCOUTQ, &left), 0);
    return !left;
}

START_TEST(a_stream_of_requests_lets_others_be_read)
{
    struct rpc_server *server = open_one_thread();
    int crowd = open_wide(server), one = open_wide(server);
    begin(one, 1, RPC_INFER, ONE);
    begin(crowd, 1, RPC_STREAM, CROWD);
    stand(crowd, 1);
    send_wrong(crowd, 1, CROWD, MANY);
    ck_assert(raw_call(one, 3, RPC_INFER, NULL));
    send_wrong(one, 3, ONE, 1);
    int before = atomic_load(&refused);
    VX_WAIT_UNTIL(is_delivered(crowd) && is_delivered(one));
    sem_post(&go);
    VX_WAIT_UNTIL(atomic_load(&refused_of_one) == 2);
    ck_assert_int_le(atomic_load(&refused_before_last) - before, FEW);
    VX_WAIT_UNTIL(atomic_load(&refused) == before + MANY);
    close(crowd);
    close(one);
    rpc_server_close(server);
}
END_TEST

START_TEST(connections_take_turns_and_not_their_streams)
{
    struct rpc_server *server = open_one_thread();
    int crowd = open_wide(server), one = open_wide(server);
    begin(one, 1, RPC_STREAM, ONE);
    for (i32 i = 0; i < STREAMS; i++) begin(crowd, (u32)(2 * i + 1), RPC_STREAM, CROWD);
    stand(crowd, 1);
    for (i32 i = 0; i < STREAMS; i++) send_wrong(crowd, (u32)(2 * i + 1), CROWD, MANY);
    send_wrong(one, 1, ONE, MANY);
    int before = atomic_load(&refused);
    VX_WAIT_UNTIL(is_delivered(crowd) && is_delivered(one));
    sem_post(&go);
    VX_WAIT_UNTIL(atomic_load(&refused_of_one) == MANY + 1);
    ck_assert_int_le(atomic_load(&refused_before_last) - before, MANY + FEW);
    VX_WAIT_UNTIL(atomic_load(&refused) == before + STREAMS * MANY);
    close(crowd);
    close(one);
    rpc_server_close(server);
}
END_TEST

/* ------- the rule by itself ------- */

/* How often the queue is asked before a message is handled. */
static i32 asked(struct vx_rpc_turn *turn, bool event)
{
    i32 count = 0;
    for (struct vx_call *call = vx_rpc_turn_take(turn); !call; count++) {
        vx_rpc_turn_asked(turn, event);
        call = vx_rpc_turn_take(turn);
        ck_assert_int_lt(count, 100);
    }
    return count;
}

START_TEST(connections_are_read_between_messages)
{
    struct vx_call call = {0};
    struct vx_rpc_turn turn = {0};
    i32 reads = 0;
    ck_assert_ptr_null(vx_rpc_turn_take(&turn));
    for (i32 i = 0; i < 2 * FEW; i++) {
        vx_call_turns_add(&turn.streams, &call);
        i32 count = asked(&turn, false);
        ck_assert_int_ge(count, 1); /* other events come first */
        reads += count > 1;
    }
    ck_assert_int_gt(reads, 2);
    ck_assert_int_lt(reads, FEW);
}
END_TEST

/* A message causes three events at most.  More are handled for each, or others would never
 * be read. */
START_TEST(streams_go_on_beside_events_without_end)
{
    struct vx_call call = {0};
    struct vx_rpc_turn turn = {0};
    i32 events = 0, messages = 4 * FEW;
    for (i32 i = 0; i < messages; i++) {
        vx_call_turns_add(&turn.streams, &call);
        events += asked(&turn, true);
    }
    ck_assert_int_gt(events, 3 * messages);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_turns");
    TCase *tests = tcase_create("rpc_turns");
    tcase_add_test(tests, a_stream_of_requests_lets_others_be_read);
    tcase_add_test(tests, connections_take_turns_and_not_their_streams);
    tcase_add_test(tests, connections_are_read_between_messages);
    tcase_add_test(tests, streams_go_on_beside_events_without_end);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
