/* Slots of answers: lent to gRPC, given back however the answer ends, and what a stream
 * still sends when its client has disconnected.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/rpc/rpc_harness.h"

#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"

#include <grpc/grpc.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLS      4
#define LENDS      (CALLS * VX_REQUEST_OUTPUTS_MAX)
#define BODY_BYTES 200000

static const struct rpc_server_options few = {.calls_max = CALLS};

/* ------- the harness's slots, lent by the test ------- */

static grpc_slice lent[LENDS];
static i32 lent_count, leave;

static bool slot_take(struct vx_rpc *rpc, size_t bytes, struct vx_place *slot)
{
    const struct vx_slots *slots = rpc->options.slots;
    return slots->take(slots->context, bytes, slot);
}

/* Lends all but `leave` of the slots that gRPC may hold at once. */
static void do_lend(struct rpc_server *server)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    while (lent_count < LENDS - leave) {
        struct vx_place slot;
        ck_assert(slot_take(rpc, 1, &slot));
        ck_assert(vx_rpc_lend_slot(rpc, slot, &lent[lent_count]));
        lent_count++;
    }
}

static void lent_drop(void)
{
    grpc_init(); /* gRPC is up, as for its own slices */
    while (lent_count) grpc_slice_unref(lent[--lent_count]);
    grpc_shutdown();
}

START_TEST(there_are_as_many_lends_as_outputs_of_all_calls)
{
    struct rpc_server *server = rpc_server_open(&few);
    struct vx_rpc *rpc = rpc_server_rpc(server);
    struct vx_place slot;
    grpc_slice slice;
    leave = 0;
    rpc_server_do(server, do_lend);
    ck_assert_int_eq(rpc->lends_out, LENDS);
    ck_assert(slot_take(rpc, 1, &slot));
    ck_assert(!vx_rpc_lend_slot(rpc, slot, &slice)); /* and the slot is not gRPC's */
    rpc_server_slot_give(server, &slot);
    lent_drop();
    ck_assert_int_eq(rpc->lends_out, 0);
    rpc_server_do(server, do_lend); /* each lend can be used again */
    lent_drop();
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

/* ------- waiting for the last of them ------- */

static bool waits;

static void *wait_for_lends(void *context)
{
    struct vx_rpc *rpc = context;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 15;
    int error = 0;
    pthread_mutex_lock(&rpc->lock);
    waits = true;
    while (rpc->lends_out && !error)
        error = pthread_cond_timedwait(&rpc->idle, &rpc->lock, &until);
    pthread_mutex_unlock(&rpc->lock);
    return error ? context : NULL;
}

static bool somebody_waits(struct vx_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    bool asleep = waits;
    pthread_mutex_unlock(&rpc->lock);
    return asleep;
}

/* The thread is notified when the last lend ends; it does not poll. */
START_TEST(who_waits_is_told_of_the_last_lend)
{
    struct rpc_server *server = rpc_server_open(&few);
    struct vx_rpc *rpc = rpc_server_rpc(server);
    pthread_t thread;
    void *overslept;
    leave = LENDS - 2;
    rpc_server_do(server, do_lend);
    ck_assert(!pthread_create(&thread, NULL, wait_for_lends, rpc));
    VX_WAIT_UNTIL(somebody_waits(rpc));
    lent_drop();
    ck_assert(!pthread_join(thread, &overslept));
    ck_assert_ptr_null(overslept);
    rpc_server_close(server);
}
END_TEST

/* ------- answers that cannot be sent ------- */

/* A request with a second tensor beside the first, of the same bytes. */
static size_t body_of_two(u8 *body, size_t tensor_bytes)
{
    const u8 varint[3] = {(u8)(tensor_bytes | 0x80), (u8)(tensor_bytes >> 7 | 0x80),
                          (u8)(tensor_bytes >> 14)};
    const u8 input[] = {
        0x2a, 20,        0x0a,      6,         's',  'e',       'c',       'o',      'n',
        'd',  0x12,      5,         'U',       'I',  'N',       'T',       '8',      0x1a,
        3,    varint[0], varint[1], varint[2], 0x3a, varint[0], varint[1], varint[2]};
    u8 *tensor = calloc(1, tensor_bytes);
    size_t at = rpc_infer_body(body, BODY_BYTES, tensor, tensor_bytes);
    memcpy(body + at, input, sizeof input); /* its shape too, and the raw entry's head */
    memcpy(body + at + sizeof input, tensor, tensor_bytes);
    free(tensor);
    return at + sizeof input + tensor_bytes;
}

enum answer_kind { UNARY, STREAM };
static const enum answer_kind kinds[] = {UNARY, STREAM};

/* The status of a call, or the one inside a stream's message. */
static void expect_refused(grpc_channel *channel, enum answer_kind kind, const void *body,
                           size_t length, const char *sentence)
{
    struct rpc_client client;
    struct rpc_result result = {0};
    if (kind == UNARY) {
        rpc_unary(channel, RPC_INFER, body, length, &result);
        ck_assert_msg(strstr(result.text, sentence) != NULL, "%d %s", result.code,
                      result.text);
        rpc_result_clear(&result);
        return;
    }
    rpc_client_open(&client, channel, RPC_STREAM, 0);
    ck_assert(rpc_client_send(&client, body, length));
    ck_assert(rpc_client_receive(&client, &result));
    ck_assert_uint_gt(result.length, strlen(sentence));
    bool found = false;
    for (size_t at = 0; at + strlen(sentence) <= result.length; at++)
        found = found || !memcmp(result.bytes + at, sentence, strlen(sentence));
    ck_assert(found);
    rpc_client_half_close(&client);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
}

/* No lend is left for the first tensor, or for the second: then the first tensor's is
 * given back too. */
START_TEST(an_answer_without_lends_leaves_no_slot)
{
    struct rpc_server *server = rpc_server_open(&few);
    grpc_channel *channel = rpc_channel_open(server);
    u8 *body = malloc(BODY_BYTES);
    size_t length = body_of_two(body, 70000);
    for (size_t k = 0; k < VX_COUNT(kinds); k++) {
        leave = _i;
        rpc_server_do(server, do_lend);
        expect_refused(
            channel, kinds[k], body, length,
            "too many answers wait for clients that do not read them; try again later");
        VX_WAIT_UNTIL(rpc_server_slots_out(server) <= lent_count);
        ck_assert_int_eq(rpc_server_slots_out(server), lent_count);
        lent_drop();
        rpc_server_wait_idle(server);
        rpc_infer_echo(channel, 70000, 1);
        rpc_server_wait_idle(server);
    }
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* Claims that its tensors are as large as gRPC's limit; their bytes are never read. */
static void answer_too_large(struct rpc_server *server, struct vx_call *call)
{
    struct vx_reply reply = {.version = 1, .outputs_count = call->request.inputs_count};
    struct vx_place outputs[VX_REQUEST_OUTPUTS_MAX];
    for (i32 i = 0; i < reply.outputs_count; i++) {
        outputs[i] = call->request.inputs[i].place;
        outputs[i].bytes = VX_MESSAGE_BYTES_MAX / 2;
        reply.outputs[i] = (struct vx_reply_tensor){
            .name = "large", .type = VX_WIRE_UINT8, .bytes = outputs[i].bytes};
    }
    call->answered = true;
    vx_rpc_reply_infer(rpc_server_rpc(server), &call, &reply, outputs);
}

START_TEST(an_answer_that_is_too_large_leaves_no_slot)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.on_call = answer_too_large});
    grpc_channel *channel = rpc_channel_open(server);
    u8 *body = malloc(BODY_BYTES);
    size_t length = body_of_two(body, 70000);
    for (size_t k = 0; k < VX_COUNT(kinds); k++) {
        expect_refused(
            channel, kinds[k], body, length,
            "exceeds gRPC's byte size limit of 2147483647: send fewer voxels, or "
            "ask for fewer outputs");
        rpc_server_wait_idle(server);
    }
    free(body);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

/* ------- streams whose client has disconnected ------- */

static struct vx_call *kept;

static bool kept_sends(struct vx_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    bool busy = vx_rpc_record_of(kept)->outbox.busy;
    pthread_mutex_unlock(&rpc->lock);
    return busy;
}

static void keep_call(struct rpc_server *server, struct vx_call *call)
{
    (void)server;
    kept = call;
}

static void keep_gone(struct rpc_server *server, struct vx_call *call)
{
    (void)server;
    ck_assert_ptr_eq(call, kept);
}

static void do_send(struct rpc_server *server)
{
    static const u8 bytes[1000];
    ck_assert(vx_rpc_send(rpc_server_rpc(server), kept, bytes, sizeof bytes));
}

static void do_finish(struct rpc_server *server)
{
    vx_rpc_finish(rpc_server_rpc(server), &kept);
}

static u64 bytes_out(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.bytes_out;
}

/* The first message that cannot be sent is the last that is tried. */
START_TEST(a_stream_that_broke_swallows)
{
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.on_call = keep_call, .on_gone = keep_gone});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_WATCH, 0);
    rpc_client_send(&client, "", 0);
    rpc_wait_in_flight(server, 1);
    for (struct rpc_seen seen = {0}; !seen.arrivals;) rpc_server_seen(server, &seen);
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    rpc_wait_seen(server, 0, 1);
    struct vx_rpc *rpc = rpc_server_rpc(server);
    rpc_server_do(server, do_send);
    VX_WAIT_UNTIL(!kept_sends(rpc));
    u64 before = bytes_out(server);
    for (i32 i = 0; i < 2 * VX_STREAM_SENDS_MAX; i++) rpc_server_do(server, do_send);
    ck_assert_uint_eq(bytes_out(server), before);
    rpc_server_do(server, do_finish);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_lends");
    TCase *tests = tcase_create("rpc_lends");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, there_are_as_many_lends_as_outputs_of_all_calls);
    tcase_add_test(tests, who_waits_is_told_of_the_last_lend);
    tcase_add_loop_test(tests, an_answer_without_lends_leaves_no_slot, 0, 2);
    tcase_add_test(tests, an_answer_that_is_too_large_leaves_no_slot);
    tcase_add_test(tests, a_stream_that_broke_swallows);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
