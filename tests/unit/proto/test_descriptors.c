/* What reflection can return: files by name and by every kind of symbol.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "proto/descriptors.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *symbol;
    const char *file; /* the file that declares it; NULL: none */
    i32 count;        /* with its imports */
} symbols[] = {
    {"inference.GRPCInferenceService", "open_inference.proto", 2},
    {"inference.GRPCInferenceService.ModelInfer", "open_inference.proto", 2},
    {"inference.ModelInferRequest", "open_inference.proto", 2},
    {"inference.ModelInferRequest.InferInputTensor", "open_inference.proto", 2},
    {"inference.ModelInferRequest.InferInputTensor.datatype", "open_inference.proto", 2},
    {"inference.ModelConfig", "model_config.proto", 1},
    {"inference.DataType", "model_config.proto", 1},
    {"inference.ModelInstanceGroup.Kind.KIND_CPU", "model_config.proto", 1},
    {"grpc.health.v1.Health", "health.proto", 1},
    {"grpc.health.v1.HealthCheckResponse.ServingStatus", "health.proto", 1},
    {"grpc.reflection.v1.ServerReflection", "reflection.proto", 1},
    {"grpc.reflection.v1alpha.ServerReflection", "reflection_v1alpha.proto", 1},
    {"grpc.reflection.v1", NULL, 0},
    {"inference", NULL, 0},
    {"inference.", NULL, 0},
    {"inference.Model", NULL, 0},
    {"inference.ModelInferRequestX", NULL, 0},
    {"inference.GRPCInferenceService.Nope", NULL, 0},
    {"", NULL, 0},
    {".", NULL, 0},
};

/* A FileDescriptorProto begins with its name: field 1. */
static void check_name(struct vx_span file, const char *name)
{
    ck_assert_int_eq(file.data[0], 0x0a);
    ck_assert_uint_eq(file.data[1], strlen(name));
    ck_assert_int_eq(memcmp(file.data + 2, name, strlen(name)), 0);
}

START_TEST(a_symbol_finds_its_file)
{
    struct vx_descriptor_file files[VX_DESCRIPTOR_FILES_MAX];
    i32 count = vx_descriptors_by_symbol(symbols[_i].symbol, files);
    ck_assert_int_eq(count, symbols[_i].count);
    if (count) check_name(files[0].bytes, symbols[_i].file);
}
END_TEST

START_TEST(a_name_finds_its_file_and_imports)
{
    struct vx_descriptor_file files[VX_DESCRIPTOR_FILES_MAX];
    ck_assert_int_eq(vx_descriptors_by_name("open_inference.proto", files), 2);
    check_name(files[0].bytes, "open_inference.proto");
    check_name(files[1].bytes, "model_config.proto");
    ck_assert_int_eq(vx_descriptors_by_name("model_config.proto", files), 1);
    ck_assert_int_eq(vx_descriptors_by_name("nope.proto", files), 0);
    ck_assert_int_eq(vx_descriptors_by_name("", files), 0);
}
END_TEST

static void on_service(void *context, const char *name)
{
    static const char *const expected[] = {"inference.GRPCInferenceService",
                                           "grpc.health.v1.Health",
                                           "grpc.reflection.v1.ServerReflection",
                                           "grpc.reflection.v1alpha.ServerReflection"};
    for (size_t i = 0; i < VX_COUNT(expected); i++)
        if (!strcmp(expected[i], name)) ++*(int *)context;
}

START_TEST(every_service_is_listed_once)
{
    int known = 0;
    vx_descriptors_services(on_service, &known);
    ck_assert_int_eq(known, 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *tcase = tcase_create("descriptors");
    tcase_add_loop_test(tcase, a_symbol_finds_its_file, 0, (int)VX_COUNT(symbols));
    tcase_add_test(tcase, a_name_finds_its_file_and_imports);
    tcase_add_test(tcase, every_service_is_listed_once);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
