/* ModelStreamInfer: clients that disconnect, that do not read, that come by the thousand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/rpc/rpc_stream_client.h"

#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct rpc_server_options defaults;

static u32 random_next(u32 *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Counts that must not grow. */
struct census {
    i32 descriptors, records, lends, slots;
};

static i32 descriptors_open(void)
{
    i32 count = 0;
    DIR *folder = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* As many as there are threads that take calls. */
static i32 records_armed(const struct vx_rpc *rpc)
{
    i32 armed = 0;
    for (i32 i = 0; i < rpc->options.threads; i++)
        for (i32 method = 0; method <= VX_METHODS_COUNT; method++)
            armed += atomic_load(&rpc->queues[i].armed[method]);
    return armed;
}

static struct census census_make(struct rpc_server *server)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    rpc_server_wait_idle(server);
    struct census census = {.descriptors = descriptors_open(),
                            .slots = rpc_server_slots_out(server)};
    pthread_mutex_lock(&rpc->lock);
    census.records = rpc->records_count - rpc->free_count - records_armed(rpc);
    census.lends = rpc->lends_out;
    pthread_mutex_unlock(&rpc->lock);
    return census;
}

/* Once all is quiet only armed records are taken, which wait for calls. */
static void census_check(struct rpc_server *server, const struct census *before)
{
    struct census now;
    VX_WAIT_UNTIL_MSG((now = census_make(server),
                       now.records == before->records && !now.lends && !now.slots &&
                           now.descriptors <= before->descriptors),
                      "%d records, before %d; %d lends; %d slots; %d descriptors, "
                      "before %d",
                      now.records, before->records, now.lends, now.slots, now.descriptors,
                      before->descriptors);
}

/* The loop keeps some requests for a while and forgets none. */
static struct vx_call *kept[128];
static i32 kept_count;
static u32 loop_seed = 9;

static void release_kept(struct rpc_server *server)
{
    while (kept_count) rpc_server_echo(server, kept[--kept_count]);
}

static void answer_at_random(struct rpc_server *server, struct vx_call *call)
{
    if (call->method != VX_METHOD_ID_MODEL_STREAM_INFER) {
        rpc_server_echo(server, call);
        return;
    }
    u32 dice = random_next(&loop_seed);
    kept[kept_count++] = call;
    if (dice % 8 > 4 || kept_count == VX_COUNT(kept)) {
        release_kept(server);
    } else if (dice % 8 < 3) {
        i32 one = (i32)(random_next(&loop_seed) % (u32)kept_count);
        call = kept[one];
        kept[one] = kept[--kept_count];
        rpc_server_echo(server, call);
    }
}

static void fail_call(struct rpc_server *server, struct vx_call *call)
{
    for (i32 i = 0; i < call->request.inputs_count; i++)
        rpc_server_slot_give(server, &call->request.inputs[i].place);
    call->answered = true;
    vx_rpc_fail(rpc_server_rpc(server), &call, vx_status_of_code(VX_CODE_CANCELLED),
                NULL);
}

/* As in infer: a waiting request ends now, a running one ends later and finds its
 * client gone. */
static void drop_gone(struct rpc_server *server, struct vx_call *call)
{
    if (call->answered) return;
    for (i32 i = 0; i < kept_count; i++) {
        if (kept[i] != call) continue;
        kept[i] = kept[--kept_count];
        fail_call(server, call);
        return;
    }
    ck_abort_msg("a call that nobody has is gone");
}

static const struct rpc_server_options random_loop = {.on_call = answer_at_random,
                                                      .on_gone = drop_gone,
                                                      .calls_max = 48,
                                                      .streams_max = 64};

/* One stream: some requests, some answers, and then it ends, in one of five ways. */
static void stream_turn(grpc_channel *channel, u32 *seed, u8 *body)
{
    struct rpc_client client;
    struct rpc_result result = {0};
    u8 tensor[9000];
    rpc_fill(tensor, sizeof tensor, *seed);
    rpc_client_open(&client, channel, RPC_STREAM, random_next(seed) % 9 ? 0 : 3);
    i32 sends = (i32)(random_next(seed) % 6);
    bool open = true;
    for (i32 i = 0; i < sends && open; i++) {
        size_t bytes = random_next(seed) % sizeof tensor;
        size_t length = rpc_infer_body(body, 10000, tensor, bytes);
        if (random_next(seed) % 10 == 0) length /= 2;
        open = rpc_client_send(&client, body, length);
    }
    u32 way = random_next(seed) % 5;
    if (way == 0) rpc_client_cancel(&client);
    if (way == 1) rpc_client_half_close(&client);
    if (way == 2) rpc_sleep_ms(random_next(seed) % 3); /* sleep: at random */
    if (way == 3 && open && sends) rpc_client_half_close(&client);
    /* Half-closed streams may wait for requests that the loop keeps until more arrive. */
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    rpc_result_clear(&result);
}

/* The connection and what gRPC allocates for the first call are no leak. */
static struct census warm(struct rpc_server *server, grpc_channel *channel)
{
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    rpc_client_half_close(&client);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    return census_make(server);
}

/* How much reaches the loop before its stream is dropped depends on the machine. */
static bool loop_saw(struct rpc_server *server, i32 infers, i32 gone)
{
    struct rpc_seen seen;
    rpc_server_seen(server, &seen);
    return seen.infers >= infers && seen.gone >= gone;
}

/* A thousand streams, and more until the loop has seen enough of each kind. */
START_TEST(cancellation_at_any_moment_leaves_nothing)
{
    struct rpc_server *server = rpc_server_open(&random_loop);
    grpc_channel *channel = rpc_channel_open(server);
    u8 *body = malloc(10000);
    struct census before = warm(server, channel);
    u32 seed = 41;
    for (i32 turn = 0; turn < 1000 || !loop_saw(server, 300, 30); turn++)
        stream_turn(channel, &seed, body);
    rpc_server_do(server, release_kept);
    census_check(server, &before);
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

#define STREAMS 10000

/* Keeps requests of four bytes and answers those of five. */
static void keep_four(struct rpc_server *server, struct vx_call *call)
{
    if (call->request.inputs[0].place.bytes == 4)
        kept[kept_count++] = call;
    else
        rpc_server_echo(server, call);
}

/* A third is dropped at once, a third with a request under way, a third ends in order.
 * The first with a request is dropped when the loop has it, the others at any moment. */
START_TEST(ten_thousand_streams_leave_nothing)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){
        .on_call = keep_four, .on_gone = drop_gone, .streams_max = 64});
    grpc_channel *channel = rpc_channel_open(server);
    u8 body[1024];
    struct census before = warm(server, channel);
    for (i32 turn = 0; turn < STREAMS; turn++) {
        struct rpc_client client;
        struct rpc_result result = {0};
        size_t bytes = turn % 3 == 1 ? 4 : 5;
        size_t length = rpc_infer_body(body, sizeof body, "abcde", bytes);
        rpc_client_open(&client, channel, RPC_STREAM, 0);
        if (turn % 3) ck_assert(rpc_client_send(&client, body, length));
        if (turn == 1) rpc_wait_seen(server, 1, 0);
        if (turn % 3 == 2) {
            ck_assert(rpc_client_receive(&client, &result));
            ck_assert(rpc_client_half_close(&client));
        } else {
            rpc_client_cancel(&client);
        }
        rpc_client_close(&client, &result);
        ck_assert_int_eq(result.code,
                         turn % 3 == 2 ? GRPC_STATUS_OK : GRPC_STATUS_CANCELLED);
        rpc_result_clear(&result);
    }
    census_check(server, &before);
    ck_assert(loop_saw(server, STREAMS / 3 + 1, 1));
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* No test takes this long, and none waits for it: the loop is given a later time. */
#define LIMIT_NS (3600 * VX_NS_PER_S)
/* More than gRPC's windows and the kernel's loopback buffers can hold. */
#define LARGE_BYTES (24 << 20)

static void cut(struct rpc_server *server)
{
    vx_rpc_cut_slow(rpc_server_rpc(server), vx_clock_ns() + LIMIT_NS);
}

/* True once the answer was being sent; before that the client does not read it either. */
static bool was_cut(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    ck_assert_int_eq(rpc_server_slots_out(server), 3);
    rpc_server_do(server, cut);
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.cut_sending;
}

/* Three answers are in the arena until the stream is cut; an idle stream is not cut. */
START_TEST(client_that_never_reads_is_cut)
{
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){
        .receive_ns_max = LIMIT_NS, .send_ns_max = LIMIT_NS});
    grpc_channel *channel = rpc_channel_open(server), *other = rpc_channel_open(server);
    struct rpc_client client, idle;
    struct rpc_result result = {0};
    struct vx_rpc_counters counters;
    u8 *tensor = malloc(LARGE_BYTES), *body = malloc(LARGE_BYTES + 1024);
    ck_assert(tensor && body);
    rpc_fill(tensor, LARGE_BYTES, 7);
    size_t length = rpc_infer_body(body, LARGE_BYTES + 1024, tensor, LARGE_BYTES);
    rpc_client_open(&idle, other, RPC_STREAM, 0);
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    for (i32 i = 0; i < 3; i++) ck_assert(rpc_client_send(&client, body, length));
    rpc_wait_seen(server, 3, 0);
    VX_WAIT_UNTIL(was_cut(server));
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    ck_assert_uint_eq(counters.cut_sending, 1);
    ck_assert_uint_eq(counters.cut_receiving, 0);
    rpc_wait_in_flight(server, 0); /* the slots are back, the answers unread */
    VX_WAIT_UNTIL(!rpc_server_slots_out(server));
    rpc_client_close(&client, &result);
    ck_assert_int_ne(result.code, GRPC_STATUS_OK);
    ck_assert(rpc_client_half_close(&idle));
    rpc_client_close(&idle, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_server_wait_idle(server);
    free(tensor);
    free(body);
    grpc_channel_destroy(channel);
    grpc_channel_destroy(other);
    rpc_server_close(server);
}
END_TEST

/* True when three requests reach the loop before the deadline; false: the machine was
 * too slow. */
static bool deadline_turn(i64 deadline_ms)
{
    struct rpc_server *server = rpc_server_open(&defaults);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    struct rpc_seen seen;
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    rpc_server_hold(server);
    rpc_client_open(&client, channel, RPC_STREAM, deadline_ms);
    for (i32 i = 0; i < 3; i++) rpc_client_send(&client, body, length);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    rpc_server_seen(server, &seen);
    bool in_time = seen.infers == 3;
    if (in_time) rpc_wait_seen(server, 3, 3); /* each of them is cancelled */
    if (in_time) ck_assert_int_le(seen.deadline_left_ns, 2 * deadline_ms * VX_NS_PER_MS);
    rpc_server_release(server);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
    return in_time;
}

START_TEST(deadline_of_the_stream_ends_its_requests)
{
    i64 deadline_ms = 250;
    while (!deadline_turn(deadline_ms)) deadline_ms *= 2;
}
END_TEST

/* Streams and calls from several clients, with few calls for all of them. */
#define STRESS_THREADS 3
#define STRESS_TURNS   120
struct stress {
    pthread_t thread;
    grpc_channel *channel;
    u32 seed;
};

static void *stress_run(void *context)
{
    struct stress *stress = context;
    u8 *body = malloc(10000);
    for (i32 turn = 0; turn < STRESS_TURNS; turn++) {
        struct rpc_result result = {0};
        stream_turn(stress->channel, &stress->seed, body);
        rpc_unary(stress->channel, RPC_LIVE, "ok", 2, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
    }
    free(body);
    return NULL;
}

START_TEST(everything_at_once_leaves_nothing)
{
    struct rpc_server_options options = random_loop;
    options.calls_max = 4;
    struct rpc_server *server = rpc_server_open(&options);
    struct stress stress[STRESS_THREADS];
    for (u32 i = 0; i < STRESS_THREADS; i++) {
        stress[i] = (struct stress){.channel = rpc_channel_open(server), .seed = 7 + i};
        ck_assert_int_eq(pthread_create(&stress[i].thread, NULL, stress_run, &stress[i]),
                         0);
    }
    for (i32 i = 0; i < STRESS_THREADS; i++) {
        pthread_join(stress[i].thread, NULL);
        grpc_channel_destroy(stress[i].channel);
    }
    rpc_server_do(server, release_kept);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

static void keep_call(struct rpc_server *server, struct vx_call *call)
{
    (void)server;
    (void)call;
}

/* Requests that the loop still has; it gives back their slots itself. */
START_TEST(close_ends_streams_the_loop_still_has)
{
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.on_call = keep_call, .calls_max = 16});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client clients[3];
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "", 0);
    for (i32 c = 0; c < 3; c++) {
        rpc_client_open(&clients[c], channel, RPC_STREAM, 0);
        for (i32 i = 0; i < 4 * c; i++)
            ck_assert(rpc_client_send(&clients[c], body, length));
        rpc_wait_in_flight(server, 4 * c); /* four requests of the last stream wait */
    }
    rpc_server_close(server);
    for (i32 c = 0; c < 3; c++) {
        struct rpc_result result = {0};
        rpc_client_close(&clients[c], &result);
        ck_assert_msg(result.code == GRPC_STATUS_UNAVAILABLE ||
                          result.code == GRPC_STATUS_CANCELLED,
                      "%d: %d %s", c, result.code, result.text);
    }
    grpc_channel_destroy(channel);
}
END_TEST

/* The server closes while clients are active. */
START_TEST(close_in_mid_flight_leaves_nothing)
{
    for (i32 turn = 0; turn < 20; turn++) {
        struct rpc_server *server = rpc_server_open(&defaults);
        grpc_channel *channel = rpc_channel_open(server);
        struct rpc_client clients[4];
        u8 body[1024];
        size_t length = rpc_infer_body(body, sizeof body, "", 0);
        if (turn % 2) rpc_server_hold(server);
        for (i32 c = 0; c < 4; c++) {
            rpc_client_open(&clients[c], channel, RPC_STREAM, 0);
            for (i32 i = 0; i < c * 3; i++) rpc_client_send(&clients[c], body, length);
        }
        if (turn % 3) rpc_sleep_ms(turn % 4); /* sleep: at random */
        rpc_server_close(server);
        for (i32 c = 0; c < 4; c++) {
            struct rpc_result result = {0};
            rpc_client_close(&clients[c], &result);
            ck_assert_int_ne(result.code, GRPC_STATUS_OK);
        }
        grpc_channel_destroy(channel);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_stream_leaving");
    TCase *tests = tcase_create("rpc_stream_leaving");
    tcase_set_timeout(tests, 180);
    tcase_add_test(tests, cancellation_at_any_moment_leaves_nothing);
    tcase_add_test(tests, ten_thousand_streams_leave_nothing);
    tcase_add_test(tests, client_that_never_reads_is_cut);
    tcase_add_test(tests, deadline_of_the_stream_ends_its_requests);
    tcase_add_test(tests, everything_at_once_leaves_nothing);
    tcase_add_test(tests, close_ends_streams_the_loop_still_has);
    tcase_add_test(tests, close_in_mid_flight_leaves_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
