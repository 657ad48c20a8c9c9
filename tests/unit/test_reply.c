/* Replies to wire bytes: prefixes byte by byte, and zeros that must be written all the same.
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

/* A choice of a oneof is there even when it is zero; an empty reply is empty. */
START_TEST(zeros_of_parameters_are_written_and_empty_texts_are_not)
{
    static struct vx_reply reply = {.version = 1, .parameters_count = 3};
    u8 head[VX_REPLY_HEAD_BYTES_MAX];
    reply.parameters[0] = (struct vx_reply_parameter){"i", VX_PARAMETER_I64, 0, ""};
    reply.parameters[1] = (struct vx_reply_parameter){"b", VX_PARAMETER_BOOL, 0, ""};
    reply.parameters[2] = (struct vx_reply_parameter){"t", VX_PARAMETER_TEXT, 0, ""};
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

int main(void)
{
    Suite *suite = suite_create("reply");
    TCase *tcase = tcase_create("reply");
    tcase_add_test(tcase, a_raw_prefix_is_a_tag_and_a_length);
    tcase_add_test(tcase, zeros_of_parameters_are_written_and_empty_texts_are_not);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
