/* Where tensors lie, on the wire: the parameters of a request as protobuf-c reads them,
 * raw entries exactly for the tensors that lie in no region, and answers whose outputs
 * lie in regions.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"
#include "clients/c/region.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define ROWS  3000
#define BYTES 100000

static int32_t coords[ROWS * 4];
static float feats[ROWS];
static uint8_t memory[BYTES];

static const struct voxel_region system_region = {
    .key = "/voxel-1", .name = "voxel-1", .bytes = BYTES, .memory = memory};
static const struct voxel_region device_region = {
    .key = "/voxel-2", .name = "voxel-2", .bytes = BYTES};

static Inference__ModelInferRequest *pack_and_read(const struct voxel_request *request)
{
    struct voxel_message message;
    struct voxel_error error;
    ck_assert_msg(voxel_message_pack(request, &message, &error) == VOXEL_OK, "%s",
                  error.text);
    uint8_t *all = voxel_memory_take_bytes(message.bytes);
    size_t used = 0;
    for (size_t i = 0; i < message.pieces_count; i++) {
        memcpy(all + used, message.pieces[i].data, message.pieces[i].bytes);
        used += message.pieces[i].bytes;
    }
    ck_assert_uint_eq(used, message.bytes);
    Inference__ModelInferRequest *read =
        inference__model_infer_request__unpack(NULL, message.bytes, all);
    ck_assert_ptr_nonnull(read);
    voxel_memory_give(all);
    voxel_message_fini(&message);
    return read;
}

static struct voxel_request request_make(struct voxel_tensor inputs[2])
{
    inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, ROWS, 4, coords);
    inputs[1] = voxel_tensor_make("feats", VOXEL_FP32, ROWS, 1, feats);
    return (struct voxel_request){
        .model = "normals", .inputs = inputs, .inputs_count = 2};
}

START_TEST(inputs_in_a_region_have_parameters_and_no_raw_entry)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    inputs[0].region = &system_region; /* at its start: no offset is sent */
    Inference__ModelInferRequest *read = pack_and_read(&request);
    ck_assert_uint_eq(read->n_raw_input_contents, 1);
    ck_assert_uint_eq(read->raw_input_contents[0].len, sizeof feats);
    ck_assert_uint_eq(read->inputs[0]->n_parameters, 2);
    ck_assert_str_eq(read->inputs[0]->parameters[0]->key, "shared_memory_region");
    ck_assert_str_eq(read->inputs[0]->parameters[0]->value->string_param, "voxel-1");
    ck_assert_str_eq(read->inputs[0]->parameters[1]->key, "shared_memory_byte_size");
    ck_assert_int_eq(read->inputs[0]->parameters[1]->value->int64_param,
                     (int64_t)sizeof coords);
    ck_assert_uint_eq(read->inputs[1]->n_parameters, 0);
    ck_assert_uint_eq(read->n_parameters, 0);
    inference__model_infer_request__free_unpacked(read, NULL);

    inputs[1].region = &device_region;
    inputs[1].region_offset = 512;
    read = pack_and_read(&request);
    ck_assert_uint_eq(read->n_raw_input_contents, 0);
    ck_assert_uint_eq(read->inputs[1]->n_parameters, 3);
    ck_assert_str_eq(read->inputs[1]->parameters[0]->value->string_param, "voxel-2");
    ck_assert_str_eq(read->inputs[1]->parameters[2]->key, "shared_memory_offset");
    ck_assert_int_eq(read->inputs[1]->parameters[2]->value->int64_param, 512);
    inference__model_infer_request__free_unpacked(read, NULL);
}
END_TEST

START_TEST(outputs_in_a_region_are_asked_for_there)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    const char *outputs[] = {"b", "a"};
    const struct voxel_place places[] = {
        {.output = "a", .bytes = 600, .region = &system_region, .region_offset = 1024},
        {.output = "c", .bytes = 800, .region = &device_region},
        {.output = "d", .memory = memory, .bytes = 4},
    };
    request.places = places;
    request.places_count = 3;
    /* No output is named: those with a place in a region are requested. */
    Inference__ModelInferRequest *read = pack_and_read(&request);
    ck_assert_uint_eq(read->n_outputs, 2);
    ck_assert_str_eq(read->outputs[0]->name, "a");
    ck_assert_uint_eq(read->outputs[0]->n_parameters, 3);
    ck_assert_str_eq(read->outputs[0]->parameters[0]->value->string_param, "voxel-1");
    ck_assert_int_eq(read->outputs[0]->parameters[1]->value->int64_param, 600);
    ck_assert_int_eq(read->outputs[0]->parameters[2]->value->int64_param, 1024);
    ck_assert_str_eq(read->outputs[1]->name, "c");
    ck_assert_uint_eq(read->outputs[1]->n_parameters, 2);
    ck_assert_uint_eq(read->n_raw_input_contents, 2);
    inference__model_infer_request__free_unpacked(read, NULL);
    /* Named outputs come first, and once. */
    request.outputs = outputs;
    request.outputs_count = 2;
    read = pack_and_read(&request);
    ck_assert_uint_eq(read->n_outputs, 3);
    ck_assert_str_eq(read->outputs[0]->name, "b");
    ck_assert_uint_eq(read->outputs[0]->n_parameters, 0);
    ck_assert_str_eq(read->outputs[1]->name, "a");
    ck_assert_uint_eq(read->outputs[1]->n_parameters, 3);
    ck_assert_str_eq(read->outputs[2]->name, "c");
    inference__model_infer_request__free_unpacked(read, NULL);
}
END_TEST

/* Places that are not wholly inside their region. */
static const struct {
    size_t offset, bytes;
    bool output;
} outside[] = {
    {BYTES - sizeof coords + 1, 0, false},
    {BYTES + 1, 0, false},
    {SIZE_MAX, 0, false},
    {0, BYTES + 1, true},
    {1, BYTES, true},
    {SIZE_MAX, 2, true},
};

START_TEST(piece_outside_its_region_never_leaves)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    struct voxel_message message;
    struct voxel_error error;
    struct voxel_place place = {
        .output = "a", .bytes = outside[_i].bytes, .region = &system_region};
    if (outside[_i].output) {
        place.region_offset = outside[_i].offset;
        request.places = &place;
        request.places_count = 1;
    } else {
        inputs[0].region = &system_region;
        inputs[0].region_offset = outside[_i].offset;
    }
    ck_assert_int_eq(voxel_message_pack(&request, &message, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "do not fit a region of 100000"), "%s", error.text);
    voxel_message_fini(&message);
}
END_TEST

/* A tensor without bytes fits right behind the last byte, but not one byte further. */
START_TEST(nothing_fits_at_the_end_of_a_region)
{
    struct voxel_message message;
    struct voxel_error error;
    struct voxel_place place = {.output = "a", .region = &system_region};
    const struct voxel_request request = {
        .model = "m", .places = &place, .places_count = 1};
    for (size_t beyond = 0; beyond < 2; beyond++) {
        place.region_offset = system_region.bytes + beyond;
        ck_assert_int_eq(voxel_message_pack(&request, &message, &error),
                         beyond ? VOXEL_INVALID_ARGUMENT : VOXEL_OK);
        voxel_message_fini(&message);
    }
}
END_TEST

/* One output a, FP32 [rows], with `bytes` of it in the answer. */
static enum voxel_code answer_read(int64_t rows, size_t bytes,
                                   const struct voxel_place *place,
                                   struct voxel_answer **answer,
                                   struct voxel_error *error)
{
    Inference__ModelInferResponse__InferOutputTensor output =
        INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
    Inference__ModelInferResponse__InferOutputTensor *outputs[] = {&output};
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    ProtobufCBinaryData raw = {bytes, (uint8_t *)feats};
    output.name = (char *)(uintptr_t) "a";
    output.datatype = (char *)(uintptr_t) "FP32";
    output.shape = &rows;
    output.n_shape = 1;
    response.outputs = outputs;
    response.n_outputs = 1;
    response.raw_output_contents = &raw;
    response.n_raw_output_contents = 1;
    size_t packed_bytes = inference__model_infer_response__get_packed_size(&response);
    uint8_t *packed = voxel_memory_take_bytes(packed_bytes);
    inference__model_infer_response__pack(&response, packed);
    const struct voxel_span span = {packed, packed_bytes};
    const struct voxel_spans spans = {&span, 1};
    const struct voxel_wanted wanted = {.places = place, .places_count = 1};
    enum voxel_code code = voxel_answer_parse(&spans, &wanted, answer, error);
    voxel_memory_give(packed);
    return code;
}

START_TEST(empty_entry_means_that_it_lies_there)
{
    struct voxel_answer *answer;
    struct voxel_error error;
    struct voxel_place place = {
        .output = "a", .bytes = 400, .region = &system_region, .region_offset = 64};
    ck_assert_int_eq(answer_read(100, 0, &place, &answer, &error), VOXEL_OK);
    ck_assert_ptr_eq(answer->outputs[0].data, memory + 64);
    ck_assert_uint_eq(answer->outputs[0].bytes, 400);
    ck_assert_ptr_eq(answer->outputs[0].region, &system_region);
    voxel_answer_free(answer);
    place.region = &device_region;
    ck_assert_int_eq(answer_read(100, 0, &place, &answer, &error), VOXEL_OK);
    ck_assert_ptr_null(answer->outputs[0].data);
    ck_assert_uint_eq(answer->outputs[0].bytes, 400);
    ck_assert_ptr_eq(answer->outputs[0].region, &device_region);
    voxel_answer_free(answer);
    /* An output of no rows. */
    ck_assert_int_eq(answer_read(0, 0, &place, &answer, &error), VOXEL_OK);
    ck_assert_uint_eq(answer->outputs[0].bytes, 0);
    voxel_answer_free(answer);
}
END_TEST

START_TEST(server_that_sends_it_nevertheless_is_understood)
{
    struct voxel_answer *answer;
    struct voxel_error error;
    struct voxel_place place = {
        .output = "a", .bytes = 400, .region = &system_region, .region_offset = 64};
    for (int i = 0; i < 100; i++) feats[i] = (float)i;
    ck_assert_int_eq(answer_read(100, 400, &place, &answer, &error), VOXEL_OK);
    ck_assert_ptr_eq(answer->outputs[0].data, memory + 64);
    ck_assert_mem_eq(memory + 64, feats, 400);
    voxel_answer_free(answer);
    place.region = &device_region;
    ck_assert_int_eq(answer_read(100, 400, &place, &answer, &error), VOXEL_INTERNAL);
    ck_assert_str_eq(error.text,
                     "the server sent output 'a' in the answer; expected it in its "
                     "region of device memory");
}
END_TEST

START_TEST(answer_that_cannot_be_there_is_refused)
{
    struct voxel_answer *answer;
    struct voxel_error error;
    struct voxel_place place = {.output = "a", .bytes = 396, .region = &system_region};
    /* The answer claims more bytes than the place has. */
    ck_assert_int_eq(answer_read(100, 0, &place, &answer, &error), VOXEL_INTERNAL);
    ck_assert_int_eq(answer_read(INT64_MAX, 0, &place, &answer, &error), VOXEL_INTERNAL);
    ck_assert_int_eq(answer_read(100, 400, &place, &answer, &error), VOXEL_OUT_OF_RANGE);
    ck_assert_int_eq(answer_read(99, 392, &place, &answer, &error), VOXEL_INTERNAL);
    /* The answer may claim no bytes for a place that the server cannot have written
     * to. */
    place = (struct voxel_place){.output = "a", .memory = memory, .bytes = 400};
    ck_assert_int_eq(answer_read(100, 0, &place, &answer, &error), VOXEL_INTERNAL);
    ck_assert_ptr_null(answer);
}
END_TEST

START_TEST(registrations_are_what_protobuf_reads)
{
    uint8_t bytes[256];
    struct voxel_writer w = {.out = bytes, .room = sizeof bytes};
    voxel_region_pack_register(&system_region, &w);
    Inference__SystemSharedMemoryRegisterRequest *read =
        inference__system_shared_memory_register_request__unpack(NULL, w.used, bytes);
    ck_assert_ptr_nonnull(read);
    ck_assert_str_eq(read->name, "voxel-1");
    ck_assert_str_eq(read->key, "/voxel-1");
    ck_assert_uint_eq(read->offset, 0);
    ck_assert_uint_eq(read->byte_size, BYTES);
    inference__system_shared_memory_register_request__free_unpacked(read, NULL);
    w.used = 0;
    voxel_region_pack_unregister(&device_region, &w);
    Inference__CudaSharedMemoryUnregisterRequest *gone =
        inference__cuda_shared_memory_unregister_request__unpack(NULL, w.used, bytes);
    ck_assert_ptr_nonnull(gone);
    ck_assert_str_eq(gone->name, "voxel-2");
    inference__cuda_shared_memory_unregister_request__free_unpacked(gone, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_place");
    TCase *cases = tcase_create("place");
    tcase_add_test(cases, inputs_in_a_region_have_parameters_and_no_raw_entry);
    tcase_add_test(cases, outputs_in_a_region_are_asked_for_there);
    tcase_add_loop_test(cases, piece_outside_its_region_never_leaves, 0,
                        sizeof outside / sizeof *outside);
    tcase_add_test(cases, nothing_fits_at_the_end_of_a_region);
    tcase_add_test(cases, empty_entry_means_that_it_lies_there);
    tcase_add_test(cases, server_that_sends_it_nevertheless_is_understood);
    tcase_add_test(cases, answer_that_cannot_be_there_is_refused);
    tcase_add_test(cases, registrations_are_what_protobuf_reads);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
