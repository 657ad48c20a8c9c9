/* The small answers of the protocol, packed by protobuf-c and read by the client.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/info_wire.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(model_metadata_parses)
{
    typedef Inference__ModelMetadataResponse__TensorMetadata Tensor;
    int64_t shape[2] = {-1, 4};
    Tensor tensor = INFERENCE__MODEL_METADATA_RESPONSE__TENSOR_METADATA__INIT;
    Tensor *tensors[] = {&tensor};
    tensor.name = (char *)(uintptr_t) "coords";
    tensor.datatype = (char *)(uintptr_t) "INT32";
    tensor.n_shape = 2;
    tensor.shape = shape;
    char *versions[] = {(char *)(uintptr_t) "1", (char *)(uintptr_t) "2"};
    Inference__ModelMetadataResponse message = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    message.name = (char *)(uintptr_t) "normals";
    message.platform = (char *)(uintptr_t) "voxeld";
    message.n_versions = 2;
    message.versions = versions;
    message.n_inputs = message.n_outputs = 1;
    message.inputs = message.outputs = tensors;
    uint8_t packed[512];
    size_t bytes = inference__model_metadata_response__pack(&message, packed);
    struct voxel_model_info *info;
    ck_assert_int_eq(voxel_model_info_parse(packed, bytes, &info, NULL), VOXEL_OK);
    ck_assert_str_eq(info->name, "normals");
    ck_assert_int_eq(info->versions_count, 2);
    ck_assert_str_eq(info->versions[1], "2");
    ck_assert_int_eq(info->inputs_count, 1);
    ck_assert_int_eq(info->inputs[0].type, VOXEL_INT32);
    ck_assert_int_eq(info->inputs[0].shape[0], -1);
    ck_assert_int_eq(info->outputs[0].shape[1], 4);
    voxel_info_free(info);
    for (size_t cut = 1; cut < bytes; cut++) {
        uint8_t *part = malloc(cut);
        memcpy(part, packed, cut);
        if (voxel_model_info_parse(part, cut, &info, NULL) != VOXEL_OK)
            ck_assert_ptr_null(info);
        voxel_info_free(info);
        free(part);
    }
}
END_TEST

START_TEST(statistics_parse_and_list_models)
{
    Inference__StatisticDuration queue = INFERENCE__STATISTIC_DURATION__INIT;
    Inference__InferStatistics infer = INFERENCE__INFER_STATISTICS__INIT;
    Inference__ModelStatistics model = INFERENCE__MODEL_STATISTICS__INIT;
    Inference__ModelStatistics *models[] = {&model, &model};
    Inference__ModelStatisticsResponse message =
        INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    queue.count = 5;
    queue.ns = 1ull << 40;
    infer.queue = infer.cache_miss = &queue;
    model.name = (char *)(uintptr_t) "normals";
    model.version = (char *)(uintptr_t) "1";
    model.inference_count = 9;
    model.inference_stats = &infer;
    message.n_model_stats = 2;
    message.model_stats = models;
    uint8_t packed[512];
    size_t bytes = inference__model_statistics_response__pack(&message, packed);
    struct voxel_statistics *statistics;
    struct voxel_models *list;
    ck_assert_int_eq(voxel_statistics_parse(packed, bytes, &statistics, NULL), VOXEL_OK);
    ck_assert_int_eq(statistics->models_count, 2);
    ck_assert_uint_eq(statistics->models[1].inference_count, 9);
    ck_assert_uint_eq(statistics->models[1].queue.ns, 1ull << 40);
    ck_assert_uint_eq(statistics->models[1].cache_miss.count, 5);
    ck_assert_uint_eq(statistics->models[1].success.count, 0);
    ck_assert_int_eq(voxel_models_from_statistics(statistics, &list, NULL), VOXEL_OK);
    voxel_info_free(statistics);
    ck_assert_int_eq(list->models_count, 2);
    ck_assert_str_eq(list->models[0].name, "normals");
    ck_assert_str_eq(list->models[0].state, "READY");
    voxel_info_free(list);
    ck_assert_int_ne(voxel_statistics_parse(packed, bytes - 1, &statistics, NULL),
                     VOXEL_OK);
    ck_assert_ptr_null(statistics);
}
END_TEST

START_TEST(flags_and_server_metadata_parse)
{
    bool flag = false;
    struct voxel_server_info *info;
    struct voxel_models *models;
    ck_assert_int_eq(voxel_flag_parse("\x08\x01", 2, &flag, NULL), VOXEL_OK);
    ck_assert(flag);
    ck_assert_int_eq(voxel_flag_parse("", 0, &flag, NULL), VOXEL_OK);
    ck_assert(!flag);
    ck_assert_int_eq(voxel_flag_parse("\x08", 1, &flag, NULL), VOXEL_INTERNAL);
    static const char server[] = "\x0a\x02vx\x12\x01"
                                 "1\x1a\x01p\x1a\x01q";
    ck_assert_int_eq(voxel_server_info_parse(server, sizeof server - 1, &info, NULL),
                     VOXEL_OK);
    ck_assert_str_eq(info->name, "vx");
    ck_assert_int_eq(info->extensions_count, 2);
    ck_assert_str_eq(info->extensions[1], "q");
    voxel_info_free(info);
    static const char index[] = "\x0a\x0a\x0a\x01m\x12\x01"
                                "3\x1a\x02UP";
    ck_assert_int_eq(voxel_models_parse(index, sizeof index - 1, &models, NULL),
                     VOXEL_OK);
    ck_assert_str_eq(models->models[0].version, "3");
    ck_assert_str_eq(models->models[0].state, "UP");
    ck_assert_str_eq(models->models[0].reason, "");
    voxel_info_free(models);
}
END_TEST

START_TEST(limits_parse)
{
    static const struct {
        const char *bytes;
        size_t count;
        int64_t most;
        int32_t shape[3];
        const char *bound, *axes;
    } cases[] = {
#define CASE(bytes_, ...) {bytes_, sizeof bytes_ - 1, __VA_ARGS__}
        CASE("\x0a\x00", 0, {0, 0, 0}, "", ""), /* no parameters */
        CASE("\x0a\x15\x72\x13\x0a\x0avoxels_max\x12\x05\x0a\x03"
             "900",
             900, {0, 0, 0}, "", ""),
        CASE("\x0a\x23\x72\x21\x0a\x10voxels_max_bound\x12\x0d\x0a\x0b"
             "cache_bytes",
             0, {0, 0, 0}, "cache_bytes", ""),
        CASE("\x0a\x1b\x72\x19\x0a\x0dspatial_shape\x12\x08\x0a\x06"
             "41x2x3",
             0, {41, 2, 3}, "", ""),
        CASE("\x0a\x1b\x72\x19\x0a\x0dspatial_shape\x12\x08\x0a\x06"
             "41x0x3",
             0, {0, 0, 0}, "", ""), /* no shape */
        CASE("\x0a\x0f\x72\x0d\x0a\x04"
             "axes\x12\x05\x0a\x03"
             "zyx",
             0, {0, 0, 0}, "", "zyx"),
        CASE("\x0a\x0f\x72\x0d\x0a\x04"
             "axes\x12\x05\x0a\x03"
             "zzx",
             0, {0, 0, 0}, "", ""), /* no axes */
        CASE("\x0a\x12\x72\x10\x0a\x0cvoxels_max_2\x12\x00", 0, {0, 0, 0}, "", ""),
#undef CASE
    };
    struct voxel_model_limits limits;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(
            voxel_model_limits_parse(cases[i].bytes, cases[i].count, &limits, NULL),
            VOXEL_OK);
        ck_assert_int_eq(limits.voxels_max, cases[i].most);
        ck_assert_mem_eq(limits.spatial_shape, cases[i].shape,
                         sizeof limits.spatial_shape);
        ck_assert_str_eq(limits.bound, cases[i].bound);
        ck_assert_str_eq(limits.axes, cases[i].axes);
    }
    ck_assert_int_eq(voxel_model_limits_parse("", 0, &limits, NULL), VOXEL_INTERNAL);
    ck_assert_int_eq(voxel_model_limits_parse("\x0a\x02\x72\x05", 4, &limits, NULL),
                     VOXEL_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_info");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, model_metadata_parses);
    tcase_add_test(tcase, limits_parse);
    tcase_add_test(tcase, statistics_parse_and_list_models);
    tcase_add_test(tcase, flags_and_server_metadata_parse);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
