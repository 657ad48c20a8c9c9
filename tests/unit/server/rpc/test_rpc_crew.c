/* How many threads take calls: the rule alone, and a server that is alone, busy and alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_crew.h"
#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define THREADS 4
#define CLIENTS 6
#define BYTES   2000000
/* gRPC draws one of the queues for each: hardly ever none of them is given the first. */
#define CHANNELS 24

START_TEST(a_thread_is_busy_from_seven_tenths_on)
{
    struct vx_rpc_watch watch = {0};
    i64 now_ns = 5 * VX_NS_PER_S, used_ns = 4 * VX_NS_PER_S;
    ck_assert(!vx_rpc_crew_is_busy(&watch, now_ns, used_ns)); /* the first look */
    for (i64 tenths = 0; tenths <= 10; tenths++) {
        now_ns += 10 * VX_NS_PER_MS;
        used_ns += tenths * VX_NS_PER_MS;
        ck_assert(vx_rpc_crew_is_busy(&watch, now_ns, used_ns) == (tenths >= 7));
    }
}
END_TEST

START_TEST(one_is_enough_below_four_tenths_of_all)
{
    struct vx_rpc_watch watch = {0};
    i64 now_ns = VX_NS_PER_S, used_ns = 0;
    ck_assert(vx_rpc_crew_is_idle(&watch, now_ns, used_ns));
    for (i64 tenths = 0; tenths <= 40; tenths++) { /* of four threads */
        now_ns += VX_NS_PER_S;
        used_ns += tenths * VX_NS_PER_S / 10;
        ck_assert(vx_rpc_crew_is_idle(&watch, now_ns, used_ns) == (tenths < 4));
    }
}
END_TEST

START_TEST(a_look_is_due_after_its_time)
{
    struct vx_rpc_watch watch = {.since_ns = 100};
    ck_assert(!vx_rpc_crew_is_due(&watch, 199, 100));
    ck_assert(vx_rpc_crew_is_due(&watch, 200, 100));
}
END_TEST

static struct {
    struct rpc_server *server;
    atomic_bool over;
} load;

static void *load_run(void *context)
{
    grpc_channel *channel = rpc_channel_open(load.server);
    for (u32 i = 0; !load.over; i++) rpc_infer_echo(channel, BYTES, i);
    grpc_channel_destroy(channel);
    return context;
}

static i32 crew_of(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.crew;
}

static void load_until_joined(void)
{
    pthread_t clients[CLIENTS];
    load.over = false;
    for (i32 i = 0; i < CLIENTS; i++)
        ck_assert(!pthread_create(&clients[i], NULL, load_run, NULL));
    VX_WAIT_UNTIL(crew_of(load.server) > 1);
    load.over = true;
    for (i32 i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
}

static bool is_alone_after_a_call(grpc_channel *channel)
{
    rpc_infer_echo(channel, 100, 1);
    rpc_sleep_ms(20); /* sleep: the pause is what makes the load small */
    return crew_of(load.server) == 1;
}

static void ask_until_alone(void)
{
    grpc_channel *channel = rpc_channel_open(load.server);
    VX_WAIT_UNTIL(is_alone_after_a_call(channel));
    for (u32 i = 0; i < 100; i++) rpc_infer_echo(channel, BYTES, i);
    grpc_channel_destroy(channel);
}

/* Twice: threads that have left join again. */
START_TEST(threads_join_under_load_and_leave)
{
    load.server = rpc_server_open(&(struct rpc_server_options){.threads = THREADS});
    ck_assert_int_eq(crew_of(load.server), 1);
    for (i32 turn = 0; turn < 2; turn++) {
        load_until_joined();
        ask_until_alone();
    }
    rpc_server_wait_idle(load.server);
    rpc_server_close(load.server);
}
END_TEST

static atomic_int queue_of_last;

static void tell_queue(struct rpc_server *server, struct vx_call *call)
{
    queue_of_last = vx_rpc_record_of(call)->queue;
    rpc_server_echo(server, call);
}

/* A channel whose calls go to the first queue, as long as that has some armed. */
static grpc_channel *channel_of_the_first(void)
{
    for (i32 i = 0; i < CHANNELS; i++) {
        grpc_channel *channel = rpc_channel_open(load.server);
        rpc_infer_echo(channel, 100, 1);
        if (queue_of_last == 0) return channel;
        grpc_channel_destroy(channel);
    }
    return rpc_channel_open(load.server);
}

static bool others_have_calls(void)
{
    struct vx_rpc *rpc = rpc_server_rpc(load.server);
    i32 records = 0;
    pthread_mutex_lock(&rpc->lock);
    for (i32 i = 1; i < THREADS; i++) records += rpc->queues[i].records;
    pthread_mutex_unlock(&rpc->lock);
    return records > 0;
}

/* What was armed on the others is used up by a client that is alone, and they leave gRPC.  The
 * calls after that find those of the first. */
START_TEST(a_client_alone_has_one_thread_after_others_had_all)
{
    load.server = rpc_server_open(
        &(struct rpc_server_options){.threads = THREADS, .on_call = tell_queue});
    for (i32 turn = 0; turn < 2; turn++) {
        load_until_joined();
        grpc_channel *channel = channel_of_the_first();
        VX_WAIT_UNTIL(is_alone_after_a_call(channel) && !others_have_calls());
        rpc_infer_echo(channel, 100, 1);
        grpc_channel_destroy(channel);
    }
    rpc_server_wait_idle(load.server);
    rpc_server_close(load.server);
}
END_TEST

/* Others do not wait while a large message is decoded.  A call of it takes far less than the
 * second after which they leave, unless this machine stands still. */
START_TEST(threads_join_for_a_large_message)
{
    load.server = rpc_server_open(&(struct rpc_server_options){.threads = THREADS});
    grpc_channel *channel = rpc_channel_open(load.server);
    i32 crew = 1;
    for (i32 i = 0; i < 100 && crew == 1; i++) {
        rpc_infer_echo(channel, 5 << 20, 1);
        crew = crew_of(load.server);
    }
    ck_assert_int_eq(crew, THREADS);
    grpc_channel_destroy(channel);
    rpc_server_wait_idle(load.server);
    rpc_server_close(load.server);
}
END_TEST

/* The threads that never joined end, too, and so do those that have. */
START_TEST(it_closes_with_any_number)
{
    load.server = rpc_server_open(&(struct rpc_server_options){.threads = THREADS});
    if (_i) load_until_joined();
    rpc_server_wait_idle(load.server);
    rpc_server_close(load.server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_crew");
    TCase *tests = tcase_create("rpc_crew");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_thread_is_busy_from_seven_tenths_on);
    tcase_add_test(tests, one_is_enough_below_four_tenths_of_all);
    tcase_add_test(tests, a_look_is_due_after_its_time);
    tcase_add_test(tests, threads_join_under_load_and_leave);
    tcase_add_test(tests, a_client_alone_has_one_thread_after_others_had_all);
    tcase_add_test(tests, threads_join_for_a_large_message);
    tcase_add_loop_test(tests, it_closes_with_any_number, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
