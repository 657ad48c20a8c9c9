/* The arena between connections: who reads keeps an answer while others lack room, who does not
 * loses it, and who is beyond its part takes no block.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"
#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MB           ((u64)1 << 20)
#define ANSWER_BYTES (24 * MB) /* its slot has 32 MB */
/* An eighth of the slot in 5 s is due. */
#define DUE_BYTES (4 * MB)

/* ------- answers that are read, and that are not ------- */

static struct vx_rpc_place place;

/* Answers any inference with a tensor of ANSWER_BYTES. */
static void on_call(struct rpc_server *server, struct vx_call *call)
{
    struct vx_rpc *rpc = rpc_server_rpc(server);
    const struct vx_slots *slots = rpc->options.slots;
    struct vx_place output;
    struct vx_reply reply = {.version = 1, .outputs_count = 1};
    reply.outputs[0].bytes = ANSWER_BYTES;
    place = vx_rpc_place_of(vx_rpc_record_of(call));
    rpc_server_slot_give(server, &call->request.inputs[0].place);
    ck_assert(vx_rpc_may_take(call, vx_slot_bytes(ANSWER_BYTES)));
    ck_assert(slots->take(slots->context, ANSWER_BYTES, &output));
    call->answered = true;
    vx_rpc_reply_infer(rpc, &call, &reply, &output);
}

static struct rpc_server *server_open(void)
{
    return rpc_server_open(&(struct rpc_server_options){
        .arena_bytes = 256 * MB, .send_ns_max = 3600 * VX_NS_PER_S, .on_call = on_call});
}

/* With windows that end nowhere: what it does not read stays in the sockets. */
static int ask(struct rpc_server *server)
{
    u8 most[4] = {0x7f, 0, 0, 0}, windows[6] = {0, 4, 0x7f, 0xff, 0xff, 0xff};
    u8 message[1024] = {0};
    size_t length = rpc_infer_body(message + 5, sizeof message - 5, "abcd", 4);
    int fd = raw_open_small(server);
    message[3] = (u8)(length >> 8);
    message[4] = (u8)length;
    ck_assert(
        raw_send(fd, &(struct raw_frame){RAW_SETTINGS, 0, 0, windows, sizeof windows}));
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_WINDOW, 0, 0, most, sizeof most}));
    ck_assert(raw_call(fd, 1, RPC_INFER, NULL));
    ck_assert(raw_send(
        fd, &(struct raw_frame){RAW_DATA, RAW_END_STREAM, 1, message, length + 5}));
    return fd;
}

static i64 now_ns;

static void do_look(struct rpc_server *server)
{
    vx_rpc_cut_slow(rpc_server_rpc(server), now_ns);
}

/* A second later.  Somebody found no room meanwhile. */
static u64 look(struct rpc_server *server)
{
    struct vx_rpc_counters counters;
    now_ns += VX_NS_PER_S;
    rpc_server_lack(server);
    rpc_server_do(server, do_look);
    vx_rpc_counters_get(rpc_server_rpc(server), &counters);
    return counters.cut_sending;
}

static bool is_sent(struct rpc_server *server)
{
    const struct vx_rpc *rpc = rpc_server_rpc(server);
    for (i32 i = 0; i < rpc->records_count; i++)
        if (atomic_load(&rpc->records[i].wire) == VX_RPC_SENDING) return true;
    return false;
}

static u64 read_so_far;

static void take(int fd, u64 bytes)
{
    static u8 into[65536];
    for (u64 end = read_so_far + bytes; read_so_far < end;) {
        u64 left = end - read_so_far;
        ssize_t got = read(fd, into, left < sizeof into ? left : sizeof into);
        ck_assert_int_gt(got, 0);
        read_so_far += (u64)got;
    }
    VX_WAIT_UNTIL(vx_rpc_govern_reading(place).read >= read_so_far);
}

/* Looks once a second while the client reads `each_s` bytes in each, until the answer is cut.
 * Returns the looks, or `most`. */
static i32 looks_until_cut(struct rpc_server *server, int fd, u64 each_s, i32 most)
{
    i32 looks = 0;
    while (looks < most && !look(server)) {
        take(fd, each_s);
        looks++;
    }
    return looks;
}

static int open_answered(struct rpc_server *server)
{
    int fd = ask(server);
    VX_WAIT_UNTIL(is_sent(server));
    read_so_far = 0;
    now_ns = vx_clock_ns();
    take(fd, 1); /* it is being written */
    return fd;
}

static void close_all(struct rpc_server *server, int fd)
{
    close(fd);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}

/* 24 MB, of which a fifth of what is due in 5 s comes each second, and a little more.  When such
 * a reader had to be ready after 5 s, one of 40 MB on a line of 50 Mbit/s never was. */
START_TEST(who_reads_steadily_keeps_the_answer)
{
    struct rpc_server *server = server_open();
    int fd = open_answered(server);
    ck_assert_int_eq(looks_until_cut(server, fd, DUE_BYTES / 5 + 4096, 20), 20);
    /* It stops: 5 s and a look later others get the memory. */
    i32 more = looks_until_cut(server, fd, 0, 20);
    ck_assert_int_ge(more, 4);
    ck_assert_int_le(more, 10);
    close_all(server, fd);
}
END_TEST

/* A byte a second is no reading, nor is four fifths of what is due. */
START_TEST(who_reads_too_slowly_loses_it)
{
    static const u64 each_s[] = {0, 1, DUE_BYTES / 5 * 3 / 4};
    struct rpc_server *server = server_open();
    int fd = open_answered(server);
    i32 looks = looks_until_cut(server, fd, each_s[_i], 20);
    ck_assert_int_ge(looks, 5);
    ck_assert_int_le(looks, 11);
    close_all(server, fd);
}
END_TEST

/* Where nobody lacks room, send_ms_max alone counts. */
START_TEST(without_lack_it_may_stay_unread)
{
    struct rpc_server *server = server_open();
    int fd = open_answered(server);
    for (i32 i = 0; i < 20; i++) {
        now_ns += VX_NS_PER_S;
        rpc_server_do(server, do_look);
    }
    now_ns -= VX_NS_PER_S;
    ck_assert_uint_eq(look(server),
                      1); /* the first lack ends it at once: it was unread */
    close_all(server, fd);
}
END_TEST

/* ------- parts ------- */

static u64 tensors_of(struct rpc_server *server)
{
    struct vx_rpc_governor *governor =
        vx_rpc_accept_governor(rpc_server_rpc(server)->accept);
    pthread_mutex_lock(&vx_rpc_govern_lock);
    u64 tensors = governor->tensors;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return tensors;
}

/* What was counted when a call was refused, and its client had not read that. */
static _Atomic u64 tensors_refused;

static void on_refused(void *server, const struct vx_rpc_refusal *refusal)
{
    ck_assert_int_eq(refusal->code, VX_CODE_RESOURCE_EXHAUSTED);
    tensors_refused = tensors_of(server);
}

static const struct rpc_server_options shared = {.arena_bytes = 4 * MB,
                                                 .on_refused = on_refused};
static u8 body[3 * MB], tensor[2 * MB];

static void infer(grpc_channel *channel, size_t bytes, struct rpc_result *result)
{
    rpc_unary(channel, RPC_INFER, body, rpc_infer_body(body, sizeof body, tensor, bytes),
              result);
}

/* Two of 2 MB would have all of 4 MB, and half of three quarters is its part. */
START_TEST(who_is_beyond_its_part_takes_no_block)
{
    struct rpc_server *server = rpc_server_open(&shared);
    grpc_channel *first = rpc_channel_open(server), *second = rpc_channel_open(server);
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_server_hold(server);
    rpc_client_open(&client, first, RPC_INFER, 0);
    ck_assert(rpc_client_send(&client, body,
                              rpc_infer_body(body, sizeof body, tensor, sizeof tensor)));
    ck_assert(rpc_client_half_close(&client));
    rpc_wait_seen(server, 1, 0);
    infer(second, sizeof tensor, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(result.text, "no room for 2097152 bytes of tensors: "));
    rpc_result_clear(&result);
    ck_assert_int_eq(rpc_server_slots_ever(server), 1); /* the first one's */
    ck_assert_uint_eq(tensors_refused, sizeof tensor);
    rpc_server_release(server);
    ck_assert(rpc_client_receive(&client, &result));
    rpc_client_close(&client, &result);
    rpc_result_clear(&result);
    infer(second, sizeof tensor, &result); /* now it may */
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    grpc_channel_destroy(first);
    grpc_channel_destroy(second);
    rpc_server_wait_idle(server);
    VX_WAIT_UNTIL(!tensors_of(server));
    rpc_server_close(server);
}
END_TEST

#define SLOTS_MAX 1024
static struct vx_place taken[SLOTS_MAX];
static i32 taken_count;

static void do_take_all(struct rpc_server *server)
{
    const struct vx_slots *slots = rpc_server_rpc(server)->options.slots;
    while (slots->take(slots->context, 1, &taken[taken_count]))
        ck_assert_int_lt(++taken_count, SLOTS_MAX);
}

/* What found no room is counted for nobody. */
START_TEST(who_finds_no_room_has_nothing)
{
    struct rpc_server *server = rpc_server_open(&shared);
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_result result = {0};
    rpc_server_do(server, do_take_all);
    rpc_server_slot_give(server, &taken[--taken_count]);
    infer(channel, 4, &result); /* one is left */
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    rpc_result_clear(&result);
    VX_WAIT_UNTIL(rpc_server_slots_out(server) == taken_count);
    rpc_server_do(server, do_take_all);
    tensors_refused = 1;
    infer(channel, 4, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(result.text, "no room for 4 bytes of input"));
    rpc_result_clear(&result);
    ck_assert_uint_eq(tensors_refused, 0);
    while (taken_count) rpc_server_slot_give(server, &taken[--taken_count]);
    grpc_channel_destroy(channel);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_arena");
    TCase *tcase = tcase_create("arena");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, who_reads_steadily_keeps_the_answer);
    tcase_add_loop_test(tcase, who_reads_too_slowly_loses_it, 0, 3);
    tcase_add_test(tcase, without_lack_it_may_stay_unread);
    tcase_add_test(tcase, who_is_beyond_its_part_takes_no_block);
    tcase_add_test(tcase, who_finds_no_room_has_nothing);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
