/* Which connection has the last places when all calls are taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_harness.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CALLS_MAX 256

static struct vx_call *kept[512];
static atomic_int kept_count;

static void keep(struct rpc_server *server, struct vx_call *call)
{
    (void)server;
    kept[kept_count++] = call;
}

static void release(struct rpc_server *server)
{
    while (kept_count) rpc_server_echo(server, kept[--kept_count]);
}

static struct rpc_client clients[512];
static i32 begun;

static struct vx_rpc_counters counters_of(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters;
}

/* One more call; false when it is refused. */
static bool call_stays(struct rpc_server *server, grpc_channel *channel)
{
    struct rpc_client *client = &clients[begun];
    struct vx_rpc_counters before = counters_of(server);
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_client_open(client, channel, RPC_INFER, 0);
    rpc_client_send(client, body, length);
    rpc_client_half_close(client);
    VX_WAIT_UNTIL(counters_of(server).in_flight > before.in_flight ||
                  counters_of(server).refused_full > before.refused_full);
    if (counters_of(server).in_flight > before.in_flight) return true;
    struct rpc_result result = {0};
    rpc_client_close(client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    rpc_result_clear(&result);
    return false;
}

/* Begins calls that stay, `most` or until one is refused; returns how many. */
static i32 fill(struct rpc_server *server, grpc_channel *channel, i32 most)
{
    i32 first = begun;
    while (begun - first < most && call_stays(server, channel)) begun++;
    return begun - first;
}

/* Of 256 calls any connection may have the first three quarters; then each connection
 * has its share; of the 64 beyond, a connection without a call in flight may have all,
 * one with a call half. */
START_TEST(last_places_are_for_who_has_few)
{
    static const struct {
        i32 most, stay;
    } turns[] = {
        {150, 150},      {CALLS_MAX, 85}, /* a third: the newcomer counts too */
        {CALLS_MAX, 21},                  /* all are taken */
        {CALLS_MAX, 2},  {CALLS_MAX, 2},
    };
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.calls_max = CALLS_MAX, .on_call = keep});
    grpc_channel *channels[VX_COUNT(turns)];
    for (size_t i = 0; i < VX_COUNT(turns); i++) {
        channels[i] = rpc_channel_open(server);
        ck_assert_int_eq(fill(server, channels[i], turns[i].most), turns[i].stay);
    }
    for (size_t i = 0; i < VX_COUNT(turns); i++)
        ck_assert_int_eq(fill(server, channels[i], 1), 0);
    struct rpc_result result = {0};
    rpc_server_do(server, release);
    for (i32 i = 0; i < begun; i++) {
        rpc_client_close(&clients[i], &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
    }
    rpc_server_wait_idle(server);
    for (size_t i = 0; i < VX_COUNT(turns); i++) grpc_channel_destroy(channels[i]);
    rpc_server_close(server);
}
END_TEST

/* 13 addresses with 16 begun calls each have three quarters of 256 places and are no crowd, which
 * begins with 17; a gateway that has 17 is one.  Their calls, which have waited for longer than a
 * quarter of a second, make room for its. */
START_TEST(late_calls_make_room_for_a_crowd)
{
    enum { ADDRESSES = 13, EACH = 16, MORE = 60 };
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.calls_max = CALLS_MAX, .on_call = keep});
    int silent[ADDRESSES];
    for (u32 i = 0; i < ADDRESSES; i++) {
        silent[i] = raw_open_from(server, i + 2);
        for (u32 call = 0; call < EACH; call++)
            ck_assert(raw_call(silent[i], 2 * call + 1, RPC_INFER, NULL));
    }
    VX_WAIT_UNTIL(counters_of(server).in_flight == ADDRESSES * EACH);
    /* sleep: calls become late by time alone */
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    grpc_channel *gateway = rpc_channel_open(server);
    u8 body[1024];
    const size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    for (i32 i = 0; i < MORE; i++) {
        rpc_client_open(&clients[i], gateway, RPC_INFER, 0);
        rpc_client_send(&clients[i], body, length);
        rpc_client_half_close(&clients[i]);
        VX_WAIT_UNTIL(kept_count == i + 1);
    }
    rpc_server_do(server, release);
    struct rpc_result result = {0};
    for (i32 i = 0; i < MORE; i++) {
        rpc_client_close(&clients[i], &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
    }
    for (u32 i = 0; i < ADDRESSES; i++) close(silent[i]);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(gateway);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_share");
    TCase *tests = tcase_create("rpc_share");
    tcase_set_timeout(tests, 2 * VX_WAIT_SECONDS);
    tcase_add_test(tests, last_places_are_for_who_has_few);
    tcase_add_test(tests, late_calls_make_room_for_a_crowd);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
