/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"
#include "server/control/control.h"
#include "server/rpc/rpc.h"
#include "tests/support/arena_unpack.h"

#include "model_config.pb-c.h"
#include "open_inference.pb-c.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES VX_CONTROL_SCRATCH_BYTES

static struct vx_registry *registry;
static struct vx_front_view view;
static struct vx_arena scratch;
static void *scratch_block;
static u8 answer_bytes[VX_ANSWER_BYTES_MAX];
static struct vx_why why;

static struct vx_instance *add_row(const char *name, i64 version,
                                   enum vx_instance_state state)
{
    struct vx_instance *row =
        vx_registry_row(registry, vx_registry_add(registry, name, version, 1));
    row->state = state;
    row->workers_loaded = state == VX_INSTANCE_READY;
    row->signature = (struct vx_signature){
        .coords_name = "coords",
        .feats_name = "feats",
        .feats_channels = 5,
        .outputs_count = 2,
        .outputs = {{"normals", VX_DTYPE_F32, 3, 0, -1, "", 0, {0}},
                    {"label", VX_DTYPE_BF16, 20, 0, -1, "", 0, {0}}},
        .voxels_max = 1000000,
        .voxels_bound = VX_BOUND_CACHE_BYTES,
        .fp8_layers = 17,
        .batching = {.voxels_max = 4000000,
                     .delay_us = 250,
                     .requests_max = 16,
                     .priority_levels = 2,
                     .default_priority_level = 2,
                     .policies = {{.max_queue_size = 7},
                                  {.timeout_delay = true, .default_timeout_us = 1500},
                                  {.allow_timeout_override = true}}},
        .weights_bytes = 123456};
    row->workers_loaded = 5; /* two workers */
    row->weights_bytes[0] = 123456;
    row->weights_bytes[2] = 1000;
    return row;
}

static void setup(void)
{
    ck_assert_ptr_null(vx_registry_open(&registry).fault);
    scratch_block = malloc(ARENA_BYTES);
    vx_arena_init(&scratch, scratch_block, ARENA_BYTES);
    add_row("normals", 1, VX_INSTANCE_READY);
    struct vx_instance *row = add_row("normals", 2, VX_INSTANCE_READY);
    *row->stats = (struct vx_instance_stats){.inference_count = 10,
                                             .execution_count = 10,
                                             .last_inference_ms = 1700000000123,
                                             .success = {10, 1000},
                                             .fail = {2, 20},
                                             .queue = {10, 300},
                                             .compute_input = {10, 40},
                                             .compute_infer = {10, 600},
                                             .compute_output = {10, 60},
                                             .geometry_hit = {7, 70},
                                             .geometry_miss = {3, 33}};
    row->stats->batches[0] = (struct vx_batch_stats){{10, 40}, {10, 600}, {10, 60}};
    row = add_row("busy", 1, VX_INSTANCE_READY);
    *row->stats = (struct vx_instance_stats){.inference_count = 67, .execution_count = 3};
    row->stats->batches[0].compute_infer = (struct vx_duration){1, 100};
    row->stats->batches[1].compute_infer = (struct vx_duration){1, 150};
    row->stats->batches[VX_BATCH_ITEMS_MAX - 1] =
        (struct vx_batch_stats){{1, 7}, {1, 900}, {1, 8}};
    add_row("loading", 3, VX_INSTANCE_LOADING);
    row = add_row("broken", 1, VX_INSTANCE_UNAVAILABLE);
    strcpy(row->reason, "layer 3: no weights");
    view = (struct vx_front_view){.registry = registry, .ready = true};
}

static void teardown(void)
{
    vx_arena_reset(&scratch);
    free(scratch_block);
    vx_registry_close(&registry);
}

/* Asks with `request` (NULL: empty bytes) and leaves the unpacked answer in *answer. */
static enum vx_code ask(i32 method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *descriptor, void *answer)
{
    u8 bytes[1024];
    struct vx_span span = {0};
    if (request) {
        ck_assert_uint_le(protobuf_c_message_get_packed_size(request), sizeof bytes);
        span = (struct vx_span){bytes, protobuf_c_message_pack(request, bytes)};
    }
    struct vx_control_answer out = {
        .scratch = &scratch, .bytes = answer_bytes, .capacity = sizeof answer_bytes};
    why.text[0] = 0;
    vx_arena_reset(&scratch);
    vx_status status = vx_control_answer(&view, method, span, &out, &why);
    if (status.fault) {
        ck_assert_uint_gt(strlen(vx_status_text(status, &why)), 0);
        return vx_status_code(status);
    }
    ck_assert(!out.later);
    ProtobufCMessage *message =
        arena_unpack(descriptor, answer_bytes, out.length, &scratch);
    ck_assert_ptr_nonnull(message);
    memcpy(answer, &message, sizeof message);
    return VX_CODE_OK;
}

START_TEST(server_lives_and_is_ready_when_the_front_says)
{
    Inference__ServerLiveResponse *live;
    Inference__ServerReadyResponse *ready;
    for (int turn = 0; turn < 2; turn++) {
        view.ready = turn;
        ck_assert_int_eq(ask(VX_METHOD_ID_SERVER_LIVE, NULL,
                             &inference__server_live_response__descriptor, &live),
                         VX_CODE_OK);
        ck_assert(live->live);
        ck_assert_int_eq(ask(VX_METHOD_ID_SERVER_READY, NULL,
                             &inference__server_ready_response__descriptor, &ready),
                         VX_CODE_OK);
        ck_assert_int_eq(ready->ready, turn);
    }
}
END_TEST

START_TEST(server_metadata_advertises_what_is_served)
{
    Inference__ServerMetadataResponse *metadata;
    ck_assert_int_eq(ask(VX_METHOD_ID_SERVER_METADATA, NULL,
                         &inference__server_metadata_response__descriptor, &metadata),
                     VX_CODE_OK);
    ck_assert_str_eq(metadata->name, "voxeld");
    ck_assert_str_eq(metadata->version, VX_VERSION);
    static const char *const extensions[] = {"model_repository",
                                             "model_repository(unload_dependents)",
                                             "schedule_policy",
                                             "model_configuration",
                                             "parameters",
                                             "statistics",
                                             "trace",
                                             "logging"};
    ck_assert_uint_eq(metadata->n_extensions, VX_COUNT(extensions));
    for (size_t i = 0; i < VX_COUNT(extensions); i++)
        ck_assert_str_eq(metadata->extensions[i], extensions[i]);
}
END_TEST

/* How every method about a model answers for a name and a version. */
static const struct {
    const char *name, *version;
    enum vx_code code;       /* of metadata, configuration, statistics */
    enum vx_code ready_code; /* of ModelReady, which is an answer for any name */
    bool ready;
    const char *text;
} lookups[] = {
    {"normals", "", VX_CODE_OK, VX_CODE_OK, true, ""},
    {"normals", "1", VX_CODE_OK, VX_CODE_OK, true, ""},
    {"normals", "2", VX_CODE_OK, VX_CODE_OK, true, ""},
    {"normals", "9", VX_CODE_NOT_FOUND, VX_CODE_OK, false,
     "'normals' version 9 is not found"},
    {"absent", "", VX_CODE_NOT_FOUND, VX_CODE_OK, false,
     "Request for unknown model: 'absent' is not found"},
    {"normals", "x1", VX_CODE_INVALID_ARGUMENT, VX_CODE_INVALID_ARGUMENT, false,
     "version should be an integral value > 0"},
    {"normals", "0", VX_CODE_INVALID_ARGUMENT, VX_CODE_INVALID_ARGUMENT, false,
     "version should be an integral value > 0"},
    {"normals", "-1", VX_CODE_INVALID_ARGUMENT, VX_CODE_INVALID_ARGUMENT, false,
     "version should be an integral value > 0"},
    {"loading", "", VX_CODE_UNAVAILABLE, VX_CODE_OK, false,
     "Request for unknown model: 'loading' version 3 is not at ready state"},
    {"broken", "1", VX_CODE_UNAVAILABLE, VX_CODE_OK, false, "layer 3: no weights"},
};

START_TEST(lookups_of_models)
{
    char *name = (char *)(uintptr_t)lookups[_i].name,
         *version = (char *)(uintptr_t)lookups[_i].version;
    Inference__ModelReadyRequest ready = INFERENCE__MODEL_READY_REQUEST__INIT;
    Inference__ModelMetadataRequest metadata = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    Inference__ModelConfigRequest config = INFERENCE__MODEL_CONFIG_REQUEST__INIT;
    Inference__ModelStatisticsRequest statistics =
        INFERENCE__MODEL_STATISTICS_REQUEST__INIT;
    ready.name = metadata.name = config.name = statistics.name = name;
    ready.version = metadata.version = config.version = statistics.version = version;
    Inference__ModelReadyResponse *answer = NULL;
    ck_assert_int_eq(ask(VX_METHOD_ID_MODEL_READY, &ready.base,
                         &inference__model_ready_response__descriptor, &answer),
                     lookups[_i].ready_code);
    if (lookups[_i].ready_code == VX_CODE_OK)
        ck_assert_int_eq(answer->ready, lookups[_i].ready);
    else
        ck_assert_ptr_nonnull(strstr(why.text, lookups[_i].text));
    const struct {
        i32 method;
        const ProtobufCMessage *request;
        const ProtobufCMessageDescriptor *descriptor;
    } questions[] = {
        {VX_METHOD_ID_MODEL_METADATA, &metadata.base,
         &inference__model_metadata_response__descriptor},
        {VX_METHOD_ID_MODEL_CONFIG, &config.base,
         &inference__model_config_response__descriptor},
        {VX_METHOD_ID_MODEL_STATISTICS, &statistics.base,
         &inference__model_statistics_response__descriptor},
    };
    for (size_t i = 0; i < VX_COUNT(questions); i++) {
        void *ignored;
        ck_assert_int_eq(ask(questions[i].method, questions[i].request,
                             questions[i].descriptor, &ignored),
                         lookups[_i].code);
        ck_assert_ptr_nonnull(strstr(why.text, lookups[_i].text));
    }
}
END_TEST

START_TEST(model_metadata_says_shapes_and_versions)
{
    Inference__ModelMetadataRequest request = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    request.name = "normals";
    Inference__ModelMetadataResponse *metadata;
    ck_assert_int_eq(ask(VX_METHOD_ID_MODEL_METADATA, &request.base,
                         &inference__model_metadata_response__descriptor, &metadata),
                     VX_CODE_OK);
    ck_assert_str_eq(metadata->name, "normals");
    ck_assert_str_eq(metadata->platform, "voxeld");
    ck_assert_uint_eq(metadata->n_versions, 2);
    ck_assert_str_eq(metadata->versions[0], "1");
    ck_assert_str_eq(metadata->versions[1], "2");
    static const struct {
        const char *name, *datatype;
        i64 columns;
    } expected[] = {{"coords", "INT32", 4},
                    {"feats", "FP32", 5},
                    {"normals", "FP32", 3},
                    {"label", "BF16", 20}};
    ck_assert_uint_eq(metadata->n_inputs, 2);
    ck_assert_uint_eq(metadata->n_outputs, 2);
    for (size_t i = 0; i < VX_COUNT(expected); i++) {
        const Inference__ModelMetadataResponse__TensorMetadata *tensor =
            i < 2 ? metadata->inputs[i] : metadata->outputs[i - 2];
        ck_assert_str_eq(tensor->name, expected[i].name);
        ck_assert_str_eq(tensor->datatype, expected[i].datatype);
        ck_assert_uint_eq(tensor->n_shape, 2);
        ck_assert_int_eq(tensor->shape[0], -1);
        ck_assert_int_eq(tensor->shape[1], expected[i].columns);
    }
}
END_TEST

START_TEST(model_config_has_what_perf_analyzer_reads)
{
    Inference__ModelConfigRequest request = INFERENCE__MODEL_CONFIG_REQUEST__INIT;
    request.name = "normals";
    Inference__ModelConfigResponse *response;
    ck_assert_int_eq(ask(VX_METHOD_ID_MODEL_CONFIG, &request.base,
                         &inference__model_config_response__descriptor, &response),
                     VX_CODE_OK);
    const Inference__ModelConfig *config = response->config;
    ck_assert_ptr_nonnull(config);
    ck_assert_str_eq(config->name, "normals");
    ck_assert_str_eq(config->backend, "voxeld");
    ck_assert_int_eq(config->max_batch_size, 0);
    ck_assert_uint_eq(config->n_input, 2);
    ck_assert_str_eq(config->input[0]->name, "coords");
    ck_assert_int_eq(config->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_INT32);
    ck_assert_int_eq(config->input[0]->dims[1], 4);
    ck_assert_str_eq(config->input[1]->name, "feats");
    ck_assert_int_eq(config->input[1]->data_type, INFERENCE__DATA_TYPE__TYPE_FP32);
    ck_assert_int_eq(config->input[1]->dims[0], -1);
    ck_assert_int_eq(config->input[1]->dims[1], 5);
    ck_assert(!config->input[1]->optional);
    ck_assert_uint_eq(config->n_output, 2);
    ck_assert_int_eq(config->output[1]->data_type, INFERENCE__DATA_TYPE__TYPE_BF16);
    ck_assert_int_eq(config->output[1]->dims[1], 20);
    ck_assert_int_eq(config->scheduling_choice_case,
                     INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING);
    ck_assert_uint_eq(config->dynamic_batching->max_queue_delay_microseconds, 250);
    ck_assert_uint_eq(config->dynamic_batching->priority_levels, 2);
    ck_assert_uint_eq(config->dynamic_batching->default_priority_level, 2);
    const Inference__ModelQueuePolicy *policy =
        config->dynamic_batching->default_queue_policy;
    ck_assert_uint_eq(policy->max_queue_size, 7);
    ck_assert_int_eq(policy->timeout_action,
                     INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__REJECT);
    ck_assert_uint_eq(config->dynamic_batching->n_priority_queue_policy, 2);
    ck_assert_uint_eq(config->dynamic_batching->priority_queue_policy[0]->key, 1);
    policy = config->dynamic_batching->priority_queue_policy[0]->value;
    ck_assert_uint_eq(policy->default_timeout_microseconds, 1500);
    ck_assert_int_eq(policy->timeout_action,
                     INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY);
    ck_assert_uint_eq(config->dynamic_batching->priority_queue_policy[1]->key, 2);
    ck_assert(config->dynamic_batching->priority_queue_policy[1]
                  ->value->allow_timeout_override);
    ck_assert_int_eq(config->version_policy->policy_choice_case,
                     INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL);
    ck_assert_uint_eq(config->n_instance_group, 1);
    ck_assert_int_eq(config->instance_group[0]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU);
    ck_assert_int_eq(config->instance_group[0]->count, 2);
    ck_assert_ptr_nonnull(config->model_transaction_policy);
    ck_assert(!config->model_transaction_policy->decoupled);
    ck_assert_uint_eq(config->n_parameters, 6);
    ck_assert_str_eq(config->parameters[4]->key, "fp8_layers");
    ck_assert_str_eq(config->parameters[4]->value->string_value, "17");
    ck_assert_str_eq(config->parameters[5]->key, "voxels_max_bound");
    ck_assert_str_eq(config->parameters[5]->value->string_value, "cache_bytes");
    ck_assert_str_eq(config->parameters[0]->key, "voxels_max");
    ck_assert_str_eq(config->parameters[0]->value->string_value, "1000000");
}
END_TEST

static Inference__ModelStatisticsResponse *statistics_of(const char *name,
                                                         const char *version)
{
    Inference__ModelStatisticsRequest request = INFERENCE__MODEL_STATISTICS_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    request.version = (char *)(uintptr_t)version;
    Inference__ModelStatisticsResponse *response;
    ck_assert_int_eq(ask(VX_METHOD_ID_MODEL_STATISTICS, &request.base,
                         &inference__model_statistics_response__descriptor, &response),
                     VX_CODE_OK);
    return response;
}

static void duration_is(const Inference__StatisticDuration *duration, u64 count, u64 ns)
{
    ck_assert_ptr_nonnull(duration);
    ck_assert_uint_eq(duration->count, count);
    ck_assert_uint_eq(duration->ns, ns);
}

START_TEST(model_statistics_say_what_was_counted)
{
    Inference__ModelStatisticsResponse *response = statistics_of("normals", "2");
    ck_assert_uint_eq(response->n_model_stats, 1);
    const Inference__ModelStatistics *model = response->model_stats[0];
    ck_assert_str_eq(model->name, "normals");
    ck_assert_str_eq(model->version, "2");
    ck_assert_uint_eq(model->last_inference, 1700000000123);
    ck_assert_uint_eq(model->inference_count, 10);
    ck_assert_uint_eq(model->execution_count, 10);
    duration_is(model->inference_stats->success, 10, 1000);
    duration_is(model->inference_stats->fail, 2, 20);
    duration_is(model->inference_stats->queue, 10, 300);
    duration_is(model->inference_stats->compute_input, 10, 40);
    duration_is(model->inference_stats->compute_infer, 10, 600);
    duration_is(model->inference_stats->compute_output, 10, 60);
    duration_is(model->inference_stats->cache_hit, 0, 0); /* of answers; none is kept */
    duration_is(model->inference_stats->cache_miss, 0, 0);
    ck_assert_uint_eq(model->n_batch_stats, 1);
    ck_assert_uint_eq(model->batch_stats[0]->batch_size, 1);
    duration_is(model->batch_stats[0]->compute_infer, 10, 600);
    ck_assert_uint_eq(model->n_memory_usage, 1); /* workers 0 and 2, one device */
    ck_assert_str_eq(model->memory_usage[0]->type, "CPU");
    ck_assert_int_eq(model->memory_usage[0]->id, 0);
    ck_assert_uint_eq(model->memory_usage[0]->byte_size, 124456);
    ck_assert_uint_eq(model->n_response_stats, 0);
}
END_TEST

START_TEST(batches_are_told_apart_by_their_size)
{
    const Inference__ModelStatistics *model = statistics_of("busy", "")->model_stats[0];
    ck_assert_uint_eq(model->n_batch_stats, 3);
    ck_assert_uint_eq(model->batch_stats[0]->batch_size, 1);
    ck_assert_uint_eq(model->batch_stats[1]->batch_size, 2);
    duration_is(model->batch_stats[1]->compute_infer, 1, 150);
    ck_assert_uint_eq(model->batch_stats[2]->batch_size, VX_BATCH_ITEMS_MAX);
    duration_is(model->batch_stats[2]->compute_input, 1, 7);
    duration_is(model->batch_stats[2]->compute_infer, 1, 900);
    duration_is(model->batch_stats[2]->compute_output, 1, 8);
}
END_TEST

START_TEST(model_statistics_of_all)
{
    static const char *const expected[][2] = {
        {"busy", "1"}, {"normals", "1"}, {"normals", "2"}};
    Inference__ModelStatisticsResponse *response = statistics_of("", "");
    ck_assert_uint_eq(response->n_model_stats, VX_COUNT(expected));
    for (size_t i = 0; i < VX_COUNT(expected); i++) {
        ck_assert_str_eq(response->model_stats[i]->name, expected[i][0]);
        ck_assert_str_eq(response->model_stats[i]->version, expected[i][1]);
    }
    ck_assert_uint_eq(statistics_of("normals", "")->n_model_stats, 2);
    /* While it is replaced, a version is told once: by the instance that serves. */
    struct vx_instance *other = add_row("normals", 2, VX_INSTANCE_UNLOADING);
    other->workers_loaded = 0;
    response = statistics_of("normals", "2");
    ck_assert_uint_eq(response->n_model_stats, 1);
    ck_assert_uint_eq(response->model_stats[0]->inference_count, 10);
    ck_assert_uint_ge(response->model_stats[0]->n_memory_usage, 1);
    vx_registry_close(&registry);
    ck_assert_ptr_null(vx_registry_open(&registry).fault);
    view.registry = registry;
    ck_assert_uint_eq(statistics_of("", "")->n_model_stats, 0);
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) add_row("full", i + 1, VX_INSTANCE_READY);
    ck_assert_uint_eq(statistics_of("", "")->n_model_stats, VX_INSTANCES_MAX);
}
END_TEST

START_TEST(what_is_not_served_says_what_to_do)
{
    static const struct {
        i32 method;
        const char *text;
    } refused[] = {
        {VX_METHOD_ID_SYSTEM_SHARED_MEMORY_STATUS,
         "SystemSharedMemoryStatus is not available"},
        {VX_METHOD_ID_SYSTEM_SHARED_MEMORY_REGISTER,
         "SystemSharedMemoryRegister is not available"},
        {VX_METHOD_ID_SYSTEM_SHARED_MEMORY_UNREGISTER,
         "SystemSharedMemoryUnregister is not"},
        {VX_METHOD_ID_CUDA_SHARED_MEMORY_STATUS,
         "CudaSharedMemoryStatus is not available: "},
        {VX_METHOD_ID_CUDA_SHARED_MEMORY_REGISTER,
         "CudaSharedMemoryRegister is not available"},
        {VX_METHOD_ID_CUDA_SHARED_MEMORY_UNREGISTER, "CudaSharedMemoryUnregister is not"},
        {VX_METHOD_ID_TRACE_SETTING, "TraceSetting is not available: "},
    };
    for (size_t i = 0; i < VX_COUNT(refused); i++) {
        ck_assert_int_eq(ask(refused[i].method, NULL, NULL, NULL), VX_CODE_UNIMPLEMENTED);
        ck_assert_ptr_eq(strstr(why.text, refused[i].text), why.text);
    }
}
END_TEST

START_TEST(bytes_that_are_no_question_are_invalid)
{
    static const u8 truncated[] = {0x0a, 0x20, 'n'};
    struct vx_control_answer out = {
        .scratch = &scratch, .bytes = answer_bytes, .capacity = sizeof answer_bytes};
    static const i32 methods[] = {VX_METHOD_ID_SERVER_LIVE, VX_METHOD_ID_MODEL_READY,
                                  VX_METHOD_ID_MODEL_CONFIG,
                                  VX_METHOD_ID_MODEL_STATISTICS};
    for (size_t i = 0; i < VX_COUNT(methods); i++) {
        vx_status status = vx_control_answer(
            &view, methods[i], (struct vx_span){truncated, sizeof truncated}, &out, &why);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    }
}
END_TEST

START_TEST(full_scratch_or_answer_is_an_error)
{
    Inference__ModelStatisticsRequest request = INFERENCE__MODEL_STATISTICS_REQUEST__INIT;
    u8 bytes[16];
    struct vx_span span = {bytes, protobuf_c_message_pack(&request.base, bytes)};
    struct vx_control_answer out = {
        .scratch = &scratch, .bytes = answer_bytes, .capacity = 16};
    vx_status status =
        vx_control_answer(&view, VX_METHOD_ID_MODEL_STATISTICS, span, &out, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    out.capacity = sizeof answer_bytes;
    struct vx_arena small;
    static _Alignas(16) u8 small_block[256];
    vx_arena_init(&small, small_block, sizeof small_block);
    out.scratch = &small;
    status = vx_control_answer(&view, VX_METHOD_ID_MODEL_STATISTICS, span, &out, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    vx_arena_reset(&small);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control");
    TCase *tests = tcase_create("control");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, server_lives_and_is_ready_when_the_front_says);
    tcase_add_test(tests, server_metadata_advertises_what_is_served);
    tcase_add_loop_test(tests, lookups_of_models, 0, (int)VX_COUNT(lookups));
    tcase_add_test(tests, model_metadata_says_shapes_and_versions);
    tcase_add_test(tests, model_config_has_what_perf_analyzer_reads);
    tcase_add_test(tests, model_statistics_say_what_was_counted);
    tcase_add_test(tests, batches_are_told_apart_by_their_size);
    tcase_add_test(tests, model_statistics_of_all);
    tcase_add_test(tests, what_is_not_served_says_what_to_do);
    tcase_add_test(tests, bytes_that_are_no_question_are_invalid);
    tcase_add_test(tests, full_scratch_or_answer_is_an_error);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
