/* What a Watch keeps for as long as it lasts, and how long a question about health may be.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/control/health.h"
#include "server/infer/view.h"
#include "server/rpc/rpc_private.h"
#include "tests/unit/server/rpc/rpc_harness.h"

#include "health.pb-c.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 1000
#define CHECK      "/grpc.health.v1.Health/Check"

/* Used on the loop only. */
static struct vx_health *health;
static struct vx_registry *registry;
static struct vx_front_view view;
static struct vx_arena scratch;
static _Alignas(16) u8 scratch_block[1 << 20];

/* The client waits for its answer, so the call is still there afterwards. */
static void on_call(struct rpc_server *unused, struct vx_call *call)
{
    (void)unused;
    const struct vx_rpc_record *record = vx_rpc_record_of(call);
    vx_arena_reset(&scratch);
    ck_assert_uint_gt(call->message.bytes, NAME_BYTES);
    const bool watches = call->method == VX_METHOD_ID_HEALTH_WATCH;
    const bool is_long = call->message.bytes > 1024;
    ck_assert(vx_health_on_call(health, &view, call, &scratch));
    if (is_long || !watches) return; /* it has ended */
    ck_assert_ptr_null(record->payload);
    ck_assert_uint_eq(GRPC_SLICE_LENGTH(record->flat), 0);
    ck_assert_uint_eq(call->message.bytes, 0);
}

static void on_gone(struct rpc_server *unused, struct vx_call *call)
{
    (void)unused;
    call->is_gone = false; /* set by the harness; health sets its own */
    if (!call->answered) vx_health_on_gone(health, call);
}

static void do_open(struct rpc_server *of)
{
    vx_arena_init(&scratch, scratch_block, sizeof scratch_block);
    ck_assert_ptr_null(vx_registry_open(&registry).fault);
    view = (struct vx_front_view){.registry = registry, .ready = true};
    ck_assert_ptr_null(vx_health_open(rpc_server_rpc(of), &health).fault);
}

static void do_close(struct rpc_server *unused)
{
    (void)unused;
    vx_health_close(&health);
    vx_registry_close(&registry);
}

/* 768 Watches of a name of 16,000 bytes kept 12 MB of messages that nobody reads again. */
START_TEST(a_watch_keeps_no_message)
{
    static char name[NAME_BYTES + 1];
    static u8 bytes[1024];
    Grpc__Health__V1__HealthCheckRequest request =
        GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct rpc_client client;
    struct rpc_result result = {0};
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.on_call = on_call, .on_gone = on_gone});
    rpc_server_do(server, do_open);
    grpc_channel *channel = rpc_channel_open(server);
    memset(name, 'n', NAME_BYTES);
    request.service = name;
    size_t length = protobuf_c_message_pack(&request.base, bytes);
    rpc_client_open(&client, channel, RPC_WATCH, 0);
    ck_assert(rpc_client_send(&client, bytes, length));
    ck_assert(rpc_client_half_close(&client));
    ck_assert(rpc_client_receive(&client, &result));
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    rpc_result_clear(&result);
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_do(server, do_close);
    rpc_server_close(server);
}
END_TEST

/* They are read as they come: 900 clients with 8,000 unknown fields each kept all others waiting. */
START_TEST(a_long_question_is_refused)
{
    static u8 request[16000];
    const size_t lengths[] = {1024, 1025, 1025, sizeof request};
    struct rpc_result result;
    struct rpc_server *server = rpc_server_open(
        &(struct rpc_server_options){.on_call = on_call, .on_gone = on_gone});
    rpc_server_do(server, do_open);
    grpc_channel *channel = rpc_channel_open(server);
    for (size_t i = 0; i < sizeof request; i++) request[i] = i % 2 ? 0 : 0x10;
    for (size_t i = 0; i < VX_COUNT(lengths); i++) {
        rpc_unary(channel, i == 1 ? RPC_WATCH : CHECK, request, lengths[i], &result);
        ck_assert_int_eq(result.code, i ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_OK);
        ck_assert(!i || strstr(result.text, "at most 1024 bytes, got 1"));
        rpc_result_clear(&result);
    }
    rpc_server_wait_idle(server);
    grpc_channel_destroy(channel);
    rpc_server_do(server, do_close);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("health_watch");
    TCase *tests = tcase_create("health_watch");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_watch_keeps_no_message);
    tcase_add_test(tests, a_long_question_is_refused);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
