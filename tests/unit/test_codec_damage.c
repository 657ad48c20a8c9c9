/* Damaged requests, with protobuf-c as the oracle: where it accepts, the codec must see the same
 * content; where it refuses, the codec must refuse.  And replies, read back by protobuf-c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/codec_sample.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED UINT64_C(20261121)

typedef Inference__ModelInferRequest Request;

/* ------- damaged messages, with protobuf-c as the oracle ------- */

static void compare_with_oracle(const u8 *message, size_t length)
{
    struct vx_request request;
    struct vx_why why;
    Request *oracle = inference__model_infer_request__unpack(NULL, length, message);
    vx_status st = codec_parse_flat(message, length, &why, &request);
    if (!st.fault) {
        ck_assert_msg(oracle, "accepted what protobuf-c refuses");
        ck_assert_str_eq(request.model, oracle->model_name);
        ck_assert_str_eq(request.id, oracle->id);
        ck_assert_uint_eq((size_t)request.inputs_count, oracle->n_inputs);
        for (size_t i = 0; i < oracle->n_raw_input_contents; i++) {
            const struct vx_slot *slot = &request.inputs[i].slot;
            ck_assert_uint_eq(slot->bytes, oracle->raw_input_contents[i].len);
            if (slot->bytes)
                ck_assert_int_eq(memcmp(codec_slots_view(NULL, slot),
                                        oracle->raw_input_contents[i].data, slot->bytes),
                                 0);
        }
        codec_give_back(&request);
    }
    if (oracle) inference__model_infer_request__free_unpacked(oracle, NULL);
}

/* A cut between two fields leaves a shorter message, which may be one; any other cut is
 * refused. */
START_TEST(every_truncation_is_refused_or_a_shorter_message)
{
    struct codec_sample s;
    u8 message[MESSAGE_BYTES];
    struct vx_request request;
    struct vx_why why;
    int accepted = 0;
    codec_sample_init(&s);
    size_t length = codec_sample_pack(&s, message);
    for (size_t cut_at = 0; cut_at < length; cut_at++) {
        /* In memory of exactly its size, so that a read beyond it is seen. */
        u8 *exact = malloc(cut_at ? cut_at : 1);
        memcpy(exact, message, cut_at);
        compare_with_oracle(exact, cut_at);
        if (!codec_parse_flat(exact, cut_at, &why, &request).fault) {
            ck_assert_int_eq(request.inputs_count, 0);
            accepted++;
        }
        free(exact);
    }
    /* Behind model_name, model_version, id and the parameter: before the first input. */
    ck_assert_int_eq(accepted, 4);
}
END_TEST

START_TEST(random_damage_never_disagrees_with_protobuf_c)
{
    struct codec_sample s;
    u8 good[MESSAGE_BYTES], message[MESSAGE_BYTES];
    codec_sample_init(&s);
    size_t length = codec_sample_pack(&s, good);
    codec_random_state = SEED;
    for (int round = 0; round < 100000; round++) {
        memcpy(message, good, length);
        u64 changes = 1 + codec_random_below(6);
        for (u64 i = 0; i < changes; i++)
            message[codec_random_below(length)] = (u8)codec_random_below(256);
        compare_with_oracle(message, length);
    }
}
END_TEST

/* ------- replies ------- */

START_TEST(a_reply_is_what_protobuf_c_reads)
{
    static struct vx_reply reply = {.model = "model",
                                    .version = 12,
                                    .id = "an id",
                                    .outputs_count = 2,
                                    .parameters_count = 3};
    static const u8 payload[6] = "tensor";
    u8 message[VX_REPLY_HEAD_BYTES_MAX + 64];
    reply.outputs[0] =
        (struct vx_reply_tensor){"normals", VX_WIRE_FP32, 2, {1000000, 3}, 6};
    reply.outputs[1] = (struct vx_reply_tensor){"empty", VX_WIRE_FP16, 2, {0, 3}, 0};
    reply.parameters[0] =
        (struct vx_reply_parameter){"queue_ns", VX_PARAMETER_I64, -5, ""};
    reply.parameters[1] = (struct vx_reply_parameter){"hit", VX_PARAMETER_BOOL, 1, ""};
    reply.parameters[2] =
        (struct vx_reply_parameter){"device", VX_PARAMETER_TEXT, 0, "cpu:0"};
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
    ck_assert_uint_eq(got->n_parameters, 3);
    ck_assert_int_eq(got->parameters[0]->value->int64_param, -5);
    ck_assert(got->parameters[1]->value->bool_param);
    ck_assert_str_eq(got->parameters[2]->value->string_param, "cpu:0");
    ck_assert_uint_eq(got->n_outputs, 2);
    ck_assert_str_eq(got->outputs[0]->datatype, "FP32");
    ck_assert_int_eq(got->outputs[0]->shape[0], 1000000);
    ck_assert_int_eq(got->outputs[1]->shape[0], 0);
    ck_assert_uint_eq(got->n_raw_output_contents, 2);
    ck_assert_int_eq(memcmp(got->raw_output_contents[0].data, payload, 6), 0);
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

int main(void)
{
    Suite *suite = suite_create("codec damage");
    TCase *tcase = tcase_create("codec");
    tcase_add_checked_fixture(tcase, codec_set_up, codec_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_truncation_is_refused_or_a_shorter_message);
    tcase_add_test(tcase, random_damage_never_disagrees_with_protobuf_c);
    tcase_add_test(tcase, a_reply_is_what_protobuf_c_reads);
    tcase_add_test(tcase, the_largest_reply_head_fits_its_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
