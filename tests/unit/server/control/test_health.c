/* Health and reflection as clients see them over gRPC; the test changes the registry.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/server/rpc/rpc_harness.h"

#include "proto/control.h"
#include "server/control/health.h"
#include "server/control/reflection.h"
#include "server/infer/view.h"
#include "tests/support/wait.h"

#include "health.pb-c.h"
#include "reflection.pb-c.h"

#include <grpc/grpc.h>

#include <stdlib.h>
#include <string.h>

#define HEALTH_CHECK     "/grpc.health.v1.Health/Check"
#define LIST             "/grpc.health.v1.Health/List"
#define REFLECTION_ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
#define SERVING          GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING      GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN                                                                  \
    GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

/* Used on the loop only. */
static struct vx_health *health;
static struct vx_registry *registry;
static struct vx_front_view view;
static struct vx_arena scratch;
static _Alignas(16) u8 scratch_block[1 << 20];
static i32 streams;

static struct rpc_server *server;
static grpc_channel *channel;

static void on_call(struct rpc_server *unused, struct vx_call *call)
{
    (void)unused;
    vx_arena_reset(&scratch);
    ck_assert(vx_health_on_call(health, &view, call, &scratch));
}

static void on_gone(struct rpc_server *unused, struct vx_call *call)
{
    (void)unused;
    call->is_gone = false; /* set by the harness; health sets its own */
    if (!call->answered) vx_health_on_gone(health, call);
}

static void add_ready(const char *name, i64 version)
{
    struct vx_instance *row =
        vx_registry_row(registry, vx_registry_add(registry, name, version, 1));
    row->state = VX_INSTANCE_READY;
    row->workers_loaded = 1;
}

static void do_open(struct rpc_server *of)
{
    vx_arena_init(&scratch, scratch_block, sizeof scratch_block);
    ck_assert_ptr_null(vx_registry_open(&registry).fault);
    view = (struct vx_front_view){.registry = registry, .ready = true};
    add_ready("normals", 1);
    add_ready("normals", 2);
    add_ready("labels", 1);
    ck_assert_ptr_null(vx_health_open(rpc_server_rpc(of), &health).fault);
}

static void do_close(struct rpc_server *unused)
{
    (void)unused;
    vx_health_close(&health);
    vx_registry_close(&registry);
}

static void setup(void)
{
    server = rpc_server_open(
        &(struct rpc_server_options){.on_call = on_call, .on_gone = on_gone});
    rpc_server_do(server, do_open);
    channel = rpc_channel_open(server);
}

static void teardown(void)
{
    grpc_channel_destroy(channel);
    rpc_server_do(server, do_close);
    rpc_server_close(server);
}

static void do_labels_load(struct rpc_server *unused)
{
    (void)unused;
    i32 labels;
    struct vx_why why;
    ck_assert_ptr_null(vx_registry_find(registry, "labels", 0, &why, &labels).fault);
    vx_registry_row(registry, labels)->state = VX_INSTANCE_LOADING;
    view.ready =
        false; /* as the front says when a model without an older version loads */
    vx_health_step(health, &view);
}

static void do_drain(struct rpc_server *unused)
{
    (void)unused;
    view.ready = false;
    view.draining = true;
    vx_health_step(health, &view);
}

static void do_ready(struct rpc_server *unused)
{
    (void)unused;
    view.ready = true;
    view.draining = false;
    vx_health_step(health, &view);
}

static void do_add_late(struct rpc_server *unused)
{
    (void)unused;
    add_ready("late", 1);
    vx_health_step(health, &view);
}

static void do_streams(struct rpc_server *unused)
{
    (void)unused;
    streams = vx_health_streams(health);
}

static void wait_streams(i32 expected)
{
    VX_WAIT_UNTIL_MSG((rpc_server_do(server, do_streams), streams == expected),
                      "%d streams, expected %d", streams, expected);
}

static size_t pack_name(const char *service, u8 *bytes, size_t room)
{
    Grpc__Health__V1__HealthCheckRequest request =
        GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)(uintptr_t)service;
    ck_assert_uint_le(protobuf_c_message_get_packed_size(&request.base), room);
    return protobuf_c_message_pack(&request.base, bytes);
}

static int status_of(const struct rpc_result *result)
{
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, result->length,
                                                        result->bytes);
    ck_assert_ptr_nonnull(response);
    int status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    return status;
}

/* What Check answers: a status, or minus the gRPC code. */
static int check(const char *service)
{
    u8 bytes[512];
    struct rpc_result result;
    rpc_unary(channel, HEALTH_CHECK, bytes, pack_name(service, bytes, sizeof bytes),
              &result);
    int status = result.code == GRPC_STATUS_OK ? status_of(&result) : -(int)result.code;
    rpc_result_clear(&result);
    return status;
}

START_TEST(check_knows_server_service_and_models)
{
    static const char *const known[] = {"", "inference.GRPCInferenceService", "normals",
                                        "labels"};
    for (size_t i = 0; i < VX_COUNT(known); i++)
        ck_assert_int_eq(check(known[i]), SERVING);
    ck_assert_int_eq(check("absent"), -(int)GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(check("normals/1"), -(int)GRPC_STATUS_NOT_FOUND);
    rpc_server_do(server, do_labels_load);
    ck_assert_int_eq(check(""), NOT_SERVING);
    ck_assert_int_eq(check("labels"), NOT_SERVING);
    ck_assert_int_eq(check("normals"), SERVING); /* serves while another model loads */
}
END_TEST

START_TEST(check_says_not_serving_while_draining)
{
    static const char *const known[] = {"", "inference.GRPCInferenceService", "normals",
                                        "labels"};
    rpc_server_do(server, do_drain);
    for (size_t i = 0; i < VX_COUNT(known); i++)
        ck_assert_int_eq(check(known[i]), NOT_SERVING);
}
END_TEST

START_TEST(check_refuses_what_is_no_request)
{
    struct rpc_result result;
    rpc_unary(channel, HEALTH_CHECK, "\x0a\x7fxy", 4, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
    rpc_result_clear(&result);
}
END_TEST

START_TEST(list_has_every_name_once)
{
    static const char *const expected[] = {"", "inference.GRPCInferenceService", "labels",
                                           "normals"};
    struct rpc_result result;
    rpc_unary(channel, LIST, "", 0, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    Grpc__Health__V1__HealthListResponse *response =
        grpc__health__v1__health_list_response__unpack(NULL, result.length, result.bytes);
    ck_assert_ptr_nonnull(response);
    ck_assert_uint_eq(response->n_statuses, VX_COUNT(expected));
    for (size_t i = 0; i < VX_COUNT(expected); i++) {
        ck_assert_str_eq(response->statuses[i]->key, expected[i]);
        ck_assert_int_eq((int)response->statuses[i]->value->status, SERVING);
    }
    grpc__health__v1__health_list_response__free_unpacked(response, NULL);
    rpc_result_clear(&result);
}
END_TEST

static void watch_open(struct rpc_client *client, const char *service)
{
    u8 bytes[512];
    rpc_client_open(client, channel, RPC_WATCH, 0);
    ck_assert(rpc_client_send(client, bytes, pack_name(service, bytes, sizeof bytes)));
    ck_assert(rpc_client_half_close(client));
}

static int watch_next(struct rpc_client *client)
{
    struct rpc_result result = {0};
    ck_assert(rpc_client_receive(client, &result));
    int status = status_of(&result);
    rpc_result_clear(&result);
    return status;
}

START_TEST(watch_is_told_every_change)
{
    struct rpc_client all, model, unknown;
    struct rpc_result result = {0};
    watch_open(&all, "");
    ck_assert_int_eq(watch_next(&all), SERVING);
    watch_open(&model, "normals");
    ck_assert_int_eq(watch_next(&model), SERVING);
    watch_open(&unknown, "late");
    ck_assert_int_eq(watch_next(&unknown), SERVICE_UNKNOWN);
    wait_streams(3);
    rpc_server_do(server, do_add_late); /* a name that was unknown is registered */
    ck_assert_int_eq(watch_next(&unknown), SERVING);
    rpc_server_do(server, do_drain);
    ck_assert_int_eq(watch_next(&all), NOT_SERVING);
    ck_assert_int_eq(watch_next(&model), NOT_SERVING);
    ck_assert_int_eq(watch_next(&unknown), NOT_SERVING);
    rpc_client_cancel(&model);
    rpc_client_close(&model, &result);
    wait_streams(2);
    rpc_server_do(server, do_ready);
    ck_assert_int_eq(watch_next(&all), SERVING);
    rpc_client_cancel(&all);
    rpc_client_close(&all, &result);
    wait_streams(1);
    teardown(); /* ends the stream that is left */
    rpc_client_close(&unknown, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_UNAVAILABLE);
    setup();
}
END_TEST

static void do_add_longest(struct rpc_server *unused)
{
    (void)unused;
    char name[VX_NAME_BYTES] = {0};
    add_ready(memset(name, 'n', sizeof name - 1), 1);
}

START_TEST(watch_of_a_name_too_long_stays_unknown)
{
    char name[400] = {0};
    rpc_server_do(server, do_add_longest); /* the longest name, cut to its limit */
    memset(name, 'n', sizeof name - 1);
    struct rpc_client client;
    struct rpc_result result = {0};
    watch_open(&client, name);
    ck_assert_int_eq(watch_next(&client), SERVICE_UNKNOWN);
    rpc_client_cancel(&client);
    rpc_client_close(&client, &result);
    wait_streams(0);
}
END_TEST

START_TEST(watchers_that_come_and_go_leave_nothing)
{
    struct rpc_result result = {0};
    for (i32 turn = 0; turn < 60; turn++) {
        struct rpc_client client;
        watch_open(&client, turn % 2 ? "normals" : "");
        if (turn % 3) ck_assert_int_eq(watch_next(&client), SERVING);
        rpc_client_cancel(&client);
        rpc_client_close(&client, &result);
    }
    wait_streams(0);
    rpc_server_wait_idle(server);
}
END_TEST

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
#define REQUEST(name_)                                                                   \
    GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name_
#define RESPONSE(name_)                                                                  \
    GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name_

static reflection_response *reflect(struct rpc_client *client, int question,
                                    const char *text)
{
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    Grpc__Reflection__V1__ExtensionRequest extension =
        GRPC__REFLECTION__V1__EXTENSION_REQUEST__INIT;
    request.host = "here";
    request.message_request_case = question;
    if (question == (int)REQUEST(FILE_CONTAINING_EXTENSION))
        request.file_containing_extension = &extension;
    else
        request.list_services = (char *)(uintptr_t)text;
    u8 bytes[512];
    ck_assert(
        rpc_client_send(client, bytes, protobuf_c_message_pack(&request.base, bytes)));
    struct rpc_result result = {0};
    ck_assert(rpc_client_receive(client, &result));
    reflection_response *response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, result.length,
                                                                 result.bytes);
    ck_assert_ptr_nonnull(response);
    ck_assert_str_eq(response->valid_host, "here");
    ck_assert_int_eq((int)response->original_request->message_request_case, question);
    rpc_result_clear(&result);
    return response;
}

static void reflection_is_error(struct rpc_client *client, int question, const char *text,
                                int code)
{
    reflection_response *response = reflect(client, question, text);
    ck_assert_int_eq((int)response->message_response_case, (int)RESPONSE(ERROR_RESPONSE));
    ck_assert_int_eq(response->error_response->error_code, code);
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

static size_t reflection_files(struct rpc_client *client, int question, const char *text)
{
    reflection_response *response = reflect(client, question, text);
    ck_assert_int_eq((int)response->message_response_case,
                     (int)RESPONSE(FILE_DESCRIPTOR_RESPONSE));
    size_t count = response->file_descriptor_response->n_file_descriptor_proto;
    for (size_t i = 0; i < count; i++) /* each file begins with its name */
        ck_assert_uint_eq(
            response->file_descriptor_response->file_descriptor_proto[i].data[0], 0x0a);
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
    return count;
}

START_TEST(reflection_answers_on_one_stream)
{
    static const char *const services[] = {"inference.GRPCInferenceService",
                                           "grpc.health.v1.Health",
                                           "grpc.reflection.v1.ServerReflection",
                                           "grpc.reflection.v1alpha.ServerReflection"};
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, _i ? REFLECTION_ALPHA : RPC_REFLECTION, 0);
    reflection_response *response = reflect(&client, REQUEST(LIST_SERVICES), "*");
    ck_assert_int_eq((int)response->message_response_case,
                     (int)RESPONSE(LIST_SERVICES_RESPONSE));
    ck_assert_uint_eq(response->list_services_response->n_service, VX_COUNT(services));
    for (size_t i = 0; i < VX_COUNT(services); i++) {
        bool found = false;
        for (size_t k = 0; k < VX_COUNT(services); k++)
            found = found || !strcmp(response->list_services_response->service[k]->name,
                                     services[i]);
        ck_assert_msg(found, "%s", services[i]);
    }
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
    ck_assert_uint_eq(reflection_files(&client, REQUEST(FILE_CONTAINING_SYMBOL),
                                       "inference.GRPCInferenceService"),
                      2); /* and the file that it imports */
    ck_assert_uint_ge(
        reflection_files(&client, REQUEST(FILE_BY_FILENAME), "health.proto"), 1);
    reflection_is_error(&client, REQUEST(FILE_CONTAINING_SYMBOL), "inference.Nothing", 5);
    reflection_is_error(&client, REQUEST(FILE_BY_FILENAME), "nothing.proto", 5);
    reflection_is_error(&client, REQUEST(FILE_CONTAINING_EXTENSION), "", 5);
    reflection_is_error(&client, REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE),
                        "inference.Nothing", 5);
    response = reflect(&client, REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE),
                       "inference.ModelInferRequest");
    ck_assert_int_eq((int)response->message_response_case,
                     (int)RESPONSE(ALL_EXTENSION_NUMBERS_RESPONSE));
    ck_assert_str_eq(response->all_extension_numbers_response->base_type_name,
                     "inference.ModelInferRequest");
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
    reflection_is_error(&client, 0, "", 12);
    wait_streams(1);
    rpc_client_half_close(&client);
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_OK);
    wait_streams(0);
}
END_TEST

START_TEST(reflection_ends_on_what_is_no_request)
{
    struct rpc_client client;
    struct rpc_result result = {0};
    rpc_client_open(&client, channel, RPC_REFLECTION, 0);
    ck_assert(rpc_client_send(&client, "\x0a\x7fxy", 4));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
    wait_streams(0);
}
END_TEST

START_TEST(reflection_refuses_a_long_question)
{
    static char name[VX_REFLECTION_BYTES_MAX];
    u8 bytes[2 * VX_REFLECTION_BYTES_MAX];
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct rpc_client client;
    struct rpc_result result = {0};
    memset(name, 'x', sizeof name - 1);
    request.message_request_case = REQUEST(FILE_BY_FILENAME);
    request.file_by_filename = name;
    rpc_client_open(&client, channel, RPC_REFLECTION, 0);
    reflection_is_error(&client, REQUEST(FILE_BY_FILENAME), "nothing.proto", 5);
    ck_assert(
        rpc_client_send(&client, bytes, protobuf_c_message_pack(&request.base, bytes)));
    rpc_client_close(&client, &result);
    ck_assert_int_eq(result.code, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert(strstr(result.text, "reflection request of at most 4096 bytes, got 4098"));
    wait_streams(0);
}
END_TEST

/* Not the oldest of all, which is another client's only one. */
START_TEST(of_too_many_reflections_the_oldest_ends)
{
    grpc_channel *other = rpc_channel_open(server);
    static struct rpc_client clients[VX_REFLECTIONS_MAX + 2], watcher;
    struct rpc_result result = {0};
    watch_open(&watcher, "");
    for (i32 i = 0; i < VX_REFLECTIONS_MAX + 2; i++) {
        rpc_client_open(&clients[i], i ? channel : other, RPC_REFLECTION, 0);
        reflection_is_error(&clients[i], REQUEST(FILE_BY_FILENAME), "nothing.proto", 5);
    }
    wait_streams(1 + VX_REFLECTIONS_MAX);
    for (i32 i = 0; i < VX_REFLECTIONS_MAX + 2; i++) {
        bool ends = i == 1 || i == 2;
        if (!ends) rpc_client_half_close(&clients[i]);
        rpc_client_close(&clients[i], &result);
        ck_assert_int_eq(result.code, ends ? GRPC_STATUS_RESOURCE_EXHAUSTED : 0);
        ck_assert(!ends || strstr(result.text, "the limit of 16 reflection streams"));
        rpc_result_clear(&result);
    }
    rpc_client_cancel(&watcher);
    rpc_client_close(&watcher, &result);
    grpc_channel_destroy(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("health");
    TCase *tests = tcase_create("health");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, check_knows_server_service_and_models);
    tcase_add_test(tests, check_says_not_serving_while_draining);
    tcase_add_test(tests, check_refuses_what_is_no_request);
    tcase_add_test(tests, list_has_every_name_once);
    tcase_add_test(tests, watch_is_told_every_change);
    tcase_add_test(tests, watch_of_a_name_too_long_stays_unknown);
    tcase_add_test(tests, watchers_that_come_and_go_leave_nothing);
    tcase_add_loop_test(tests, reflection_answers_on_one_stream, 0, 2);
    tcase_add_test(tests, reflection_ends_on_what_is_no_request);
    tcase_add_test(tests, reflection_refuses_a_long_question);
    tcase_add_test(tests, of_too_many_reflections_the_oldest_ends);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
