/* Replies to wire bytes: read back by protobuf-c, prefixes byte by byte, and zeros that
 * must be written although they are defaults.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "open_inference.pb-c.h"
#include "proto/codec.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(a_raw_prefix_is_a_tag_and_a_length)
{
    static const struct {
        u64 bytes;
        size_t length;
        u8 expected[VX_RAW_PREFIX_BYTES_MAX];
    } prefixes[] = {
        {0, 2, {0x32, 0}},
        {127, 2, {0x32, 0x7f}},
        {128, 3, {0x32, 0x80, 1}},
        {16 << 20, 5, {0x32, 0x80, 0x80, 0x80, 8}},
        {UINT64_MAX, 11, {0x32, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}},
    };
    u8 out[VX_RAW_PREFIX_BYTES_MAX];
    for (size_t i = 0; i < VX_COUNT(prefixes); i++) {
        size_t length = vx_codec_pack_raw_prefix(prefixes[i].bytes, out, sizeof out);
        ck_assert_uint_eq(length, prefixes[i].length);
        ck_assert(!memcmp(out, prefixes[i].expected, length));
    }
}
END_TEST

/* The chosen field of a oneof is written even when it is zero; an empty reply is
 * empty. */
START_TEST(zeros_of_parameters_are_written_and_empty_texts_are_not)
{
    static struct vx_reply reply = {.version = 1, .parameters_count = 3};
    u8 head[VX_REPLY_HEAD_BYTES_MAX];
    reply.parameters[0] = (struct vx_reply_parameter){"i", VX_PARAMETER_I64, 0, "", NULL};
    reply.parameters[1] =
        (struct vx_reply_parameter){"b", VX_PARAMETER_BOOL, 0, "", NULL};
    reply.parameters[2] =
        (struct vx_reply_parameter){"t", VX_PARAMETER_TEXT, 0, "", NULL};
    size_t length = vx_codec_pack_reply_head(&reply, head, sizeof head);
    Inference__ModelInferResponse *got =
        inference__model_infer_response__unpack(NULL, length, head);
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got->model_name, "");
    ck_assert_int_eq((int)got->parameters[0]->value->parameter_choice_case, 2);
    ck_assert_int_eq((int)got->parameters[1]->value->parameter_choice_case, 1);
    ck_assert_int_eq((int)got->parameters[2]->value->parameter_choice_case, 3);
    inference__model_infer_response__free_unpacked(got, NULL);
}
END_TEST

START_TEST(a_reply_is_what_protobuf_c_reads)
{
    static struct vx_reply reply = {.model = "model",
                                    .version = 12,
                                    .id = "an id",
                                    .outputs_count = 2,
                                    .parameters_count = 5};
    static char layers[VX_TAKEN_BYTES]; /* the longest */
    static const u8 payload[6] = "tensor";
    u8 message[VX_REPLY_HEAD_BYTES_MAX + 64];
    reply.outputs[0] =
        (struct vx_reply_tensor){"normals", VX_WIRE_FP32, 2, {1000000, 3}, 6, NULL, NULL};
    reply.outputs[1] = (struct vx_reply_tensor){"empty", VX_WIRE_FP16,   2,        {0, 3},
                                                0,       "empty_coords", "1/2x2x4"};
    reply.parameters[0] =
        (struct vx_reply_parameter){"queue_ns", VX_PARAMETER_I64, -5, "", NULL};
    reply.parameters[1] =
        (struct vx_reply_parameter){"hit", VX_PARAMETER_BOOL, 1, "", NULL};
    reply.parameters[2] =
        (struct vx_reply_parameter){"device", VX_PARAMETER_TEXT, 0, "cpu:0", NULL};
    reply.parameters[3].kind = VX_PARAMETER_TEXT;
    strcpy(reply.parameters[3].name, "coords_ref");
    vx_coords_ref_print((struct vx_coords_ref){0xfedcba9876543210, 0x0123456789abcdef},
                        reply.parameters[3].text);
    memset(layers, 'x', sizeof layers - 1);
    reply.parameters[4] =
        (struct vx_reply_parameter){"layers", VX_PARAMETER_TEXT, 0, "not this", layers};
    size_t n = vx_codec_pack_reply_head(&reply, message, sizeof message);
    n += vx_codec_pack_raw_prefix(6, message + n, sizeof message - n);
    memcpy(message + n, payload, 6);
    n += 6;
    n += vx_codec_pack_raw_prefix(0, message + n, sizeof message - n);
    Inference__ModelInferResponse *got =
        inference__model_infer_response__unpack(NULL, n, message);
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got->model_name, "model");
    ck_assert_str_eq(got->model_version, "12");
    ck_assert_str_eq(got->id, "an id");
    ck_assert_uint_eq(got->n_parameters, 5);
    ck_assert_str_eq(got->parameters[4]->key, "layers");
    ck_assert_str_eq(got->parameters[4]->value->string_param, layers);
    ck_assert_str_eq(got->parameters[3]->key, "coords_ref");
    ck_assert_str_eq(got->parameters[3]->value->string_param,
                     "0123456789abcdeffedcba9876543210");
    ck_assert_int_eq(got->parameters[0]->value->int64_param, -5);
    ck_assert(got->parameters[1]->value->bool_param);
    ck_assert_str_eq(got->parameters[2]->value->string_param, "cpu:0");
    ck_assert_uint_eq(got->n_outputs, 2);
    ck_assert_str_eq(got->outputs[0]->datatype, "FP32");
    ck_assert_int_eq(got->outputs[0]->shape[0], 1000000);
    ck_assert_int_eq(got->outputs[1]->shape[0], 0);
    ck_assert_uint_eq(got->n_raw_output_contents, 2);
    ck_assert_int_eq(memcmp(got->raw_output_contents[0].data, payload, 6), 0);
    ck_assert_uint_eq(got->outputs[0]->n_parameters, 0);
    ck_assert_uint_eq(got->outputs[1]->n_parameters, 2);
    ck_assert_str_eq(got->outputs[1]->parameters[0]->key, "coords");
    ck_assert_str_eq(got->outputs[1]->parameters[0]->value->string_param, "empty_coords");
    ck_assert_str_eq(got->outputs[1]->parameters[1]->key, "stride");
    ck_assert_str_eq(got->outputs[1]->parameters[1]->value->string_param, "1/2x2x4");
    ck_assert_uint_eq(got->raw_output_contents[1].len, 0);
    inference__model_infer_response__free_unpacked(got, NULL);
}
END_TEST

START_TEST(the_largest_reply_head_fits_its_limit)
{
    static struct vx_reply reply;
    static u8 head[VX_REPLY_HEAD_BYTES_MAX];
    memset(reply.model, 'm', sizeof reply.model - 1);
    memset(reply.id, 'i', sizeof reply.id - 1);
    reply.version = INT64_MAX;
    reply.outputs_count = VX_REQUEST_OUTPUTS_MAX;
    reply.parameters_count = VX_REPLY_PARAMETERS_MAX;
    for (int i = 0; i < VX_REQUEST_OUTPUTS_MAX; i++) {
        struct vx_reply_tensor *tensor = &reply.outputs[i];
        memset(tensor->name, 'o', sizeof tensor->name - 1);
        tensor->type = VX_WIRE_UINT16;
        tensor->rank = VX_RANK_MAX;
        tensor->coords = tensor->name;
        tensor->stride = tensor->name;
        for (int d = 0; d < VX_RANK_MAX; d++) tensor->shape[d] = INT64_MAX;
    }
    for (int i = 0; i < VX_REPLY_PARAMETERS_MAX; i++) {
        struct vx_reply_parameter *parameter = &reply.parameters[i];
        memset(parameter->name, 'p', sizeof parameter->name - 1);
        memset(parameter->text, 't', sizeof parameter->text - 1);
        parameter->kind = VX_PARAMETER_TEXT;
    }
    ck_assert_uint_le(vx_codec_pack_reply_head(&reply, head, sizeof head), sizeof head);
}
END_TEST

START_TEST(a_streamed_answer_is_what_protobuf_c_reads)
{
    static struct vx_reply reply = {.model = "model", .version = 1, .id = "an id"};
    u8 head[VX_REPLY_HEAD_BYTES_MAX], bytes[VX_REPLY_HEAD_BYTES_MAX + 64];
    size_t length = vx_codec_pack_reply_head(&reply, head, sizeof head);
    size_t prefix = vx_codec_pack_stream_prefix(length, bytes, sizeof bytes);
    memcpy(bytes + prefix, head, length);
    Inference__ModelStreamInferResponse *got =
        inference__model_stream_infer_response__unpack(NULL, prefix + length, bytes);
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got->error_message, "");
    ck_assert_str_eq(got->infer_response->id, "an id");
    inference__model_stream_infer_response__free_unpacked(got, NULL);
}
END_TEST

/* The longest value of every field fits; a string that is not UTF-8 is made readable. */
START_TEST(a_streamed_error_is_what_protobuf_c_reads)
{
    static struct vx_request request;
    char text[VX_WHY_BYTES];
    u8 bytes[VX_STREAM_ERROR_BYTES_MAX];
    memset(request.id, 'i', sizeof request.id - 1);
    memset(request.model, 'm', sizeof request.model - 1);
    memset(text, 't', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (i32 turn = 0; turn < 3; turn++) {
        if (turn == 1) memcpy(text + 100, "caf\xc3\xa9", 5);
        if (turn == 2) text[104] = 't'; /* half of the character is left */
        size_t length = vx_codec_pack_stream_error(text, &request, bytes, sizeof bytes);
        Inference__ModelStreamInferResponse *got =
            inference__model_stream_infer_response__unpack(NULL, length, bytes);
        ck_assert_ptr_nonnull(got);
        if (turn == 2) text[103] = '?';
        ck_assert_str_eq(got->error_message, text);
        ck_assert_str_eq(got->infer_response->id, request.id);
        ck_assert_str_eq(got->infer_response->model_name, request.model);
        ck_assert_uint_eq(got->infer_response->n_parameters, 1);
        ck_assert_str_eq(got->infer_response->parameters[0]->key,
                         "triton_final_response");
        ck_assert(got->infer_response->parameters[0]->value->bool_param);
        inference__model_stream_infer_response__free_unpacked(got, NULL);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reply");
    TCase *tcase = tcase_create("reply");
    tcase_add_test(tcase, a_reply_is_what_protobuf_c_reads);
    tcase_add_test(tcase, the_largest_reply_head_fits_its_limit);
    tcase_add_test(tcase, a_streamed_answer_is_what_protobuf_c_reads);
    tcase_add_test(tcase, a_streamed_error_is_what_protobuf_c_reads);
    tcase_add_test(tcase, a_raw_prefix_is_a_tag_and_a_length);
    tcase_add_test(tcase, zeros_of_parameters_are_written_and_empty_texts_are_not);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
