/* The channel: what a worker says of itself and of its models is checked like anything from
 * outside.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/channel.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static union vx_message said, heard;

/* What a worker with a model of two outputs says. */
static void say_nothing_odd(void)
{
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_LOADED;
    struct vx_signature *signature = &said.loaded.signature;
    *signature = (struct vx_signature){
        .coords_name = "coords",
        .feats_name = "feats",
        .feats_channels = 4,
        .outputs_count = 2,
        .outputs = {{"a", VX_DTYPE_F32, 1}, {"b", VX_DTYPE_I32, VX_CHANNELS_MAX}},
        .voxels_max = VX_VOXELS_MAX,
        .weights_bytes = 1,
        .batching = {.voxels_max = VX_VOXELS_MAX,
                     .pairs_max = (i64)VX_KERNEL_OFFSETS_MAX * VX_VOXELS_MAX,
                     .delay_us = 10 * 1000 * 1000,
                     .requests_max = VX_BATCH_ITEMS_MAX,
                     .priority_levels = VX_PRIORITY_LEVELS_MAX,
                     .default_priority_level = VX_PRIORITY_LEVELS_MAX}};
    signature->batching.policies[VX_PRIORITY_LEVELS_MAX] = (struct vx_queue_policy){
        .default_timeout_us = INT64_C(86400000000), .max_queue_size = INT32_MAX};
}

static enum vx_code sent(size_t bytes)
{
    int fds[2];
    size_t got;
    ck_assert(!vx_channel_pair(fds).fault);
    ck_assert(!vx_channel_send(fds[1], &said.head, bytes).fault);
    enum vx_code code = vx_status_code(vx_channel_receive(fds[0], &heard, &got));
    if (code == VX_CODE_OK) ck_assert_uint_eq(got, bytes);
    close(fds[0]);
    close(fds[1]);
    return code;
}

/* A field of a signature, and what no worker says there. */
#define FIELD(field_)                                                                    \
    offsetof(struct vx_signature, field_), sizeof(((struct vx_signature *)0)->field_)
#define POLICY(level_, field_)                                                           \
    offsetof(struct vx_signature, batching.policies[level_]) +                           \
        offsetof(struct vx_queue_policy, field_),                                        \
        sizeof(i64)
static const struct {
    size_t at, bytes;
    i64 value;
} lies[] = {
    {FIELD(feats_channels), 0},
    {FIELD(feats_channels), VX_CHANNELS_MAX + 1},
    {FIELD(outputs_count), -1},
    {FIELD(outputs_count), VX_OUTPUTS_MAX + 1},
    {FIELD(outputs[0].dtype), VX_DTYPE_NONE},
    {FIELD(outputs[1].dtype), VX_DTYPE_I32 + 1},
    {FIELD(outputs[1].dtype), -1},
    {FIELD(outputs[1].channels), 0},
    {FIELD(outputs[1].channels), VX_CHANNELS_MAX + 1},
    {FIELD(voxels_max), -1},
    {FIELD(voxels_max), (i64)VX_VOXELS_MAX + 1},
    {FIELD(weights_bytes), -1},
    {FIELD(batching.voxels_max), -1},
    {FIELD(batching.voxels_max), (i64)VX_VOXELS_MAX + 1},
    {FIELD(batching.pairs_max), -1},
    {FIELD(batching.pairs_max), INT64_MAX},
    {FIELD(batching.delay_us), -1},
    {FIELD(batching.delay_us), INT64_MAX},
    {FIELD(batching.requests_max), 0},
    {FIELD(batching.requests_max), VX_BATCH_ITEMS_MAX + 1},
    {FIELD(batching.priority_levels), -1},
    {FIELD(batching.priority_levels), VX_PRIORITY_LEVELS_MAX + 1},
    {FIELD(batching.default_priority_level), -1},
    {FIELD(batching.default_priority_level), VX_PRIORITY_LEVELS_MAX + 1},
    {POLICY(0, default_timeout_us), -1},
    {POLICY(VX_PRIORITY_LEVELS_MAX, default_timeout_us), INT64_MAX},
    {POLICY(VX_PRIORITY_LEVELS_MAX, max_queue_size), -1},
};

START_TEST(a_signature_that_no_model_has_is_refused)
{
    say_nothing_odd();
    ck_assert_int_eq(sent(sizeof said.loaded), VX_CODE_OK);
    u8 *field = (u8 *)&said.loaded.signature + lies[_i].at;
    i32 narrow = (i32)lies[_i].value;
    if (lies[_i].bytes == sizeof narrow)
        memcpy(field, &narrow, sizeof narrow);
    else
        memcpy(field, &lies[_i].value, sizeof lies[_i].value);
    ck_assert_int_eq(sent(sizeof said.loaded), VX_CODE_INTERNAL);
    said.loaded.code = VX_CODE_DATA_LOSS; /* then there is no signature to look at */
    ck_assert_int_eq(sent(sizeof said.loaded), VX_CODE_OK);
}
END_TEST

/* The last place of a text is its NUL's, or a place that nobody reads. */
static const struct {
    i32 kind;
    size_t bytes, at, text_bytes;
} texts[] = {
    {VX_MESSAGE_LOADED, sizeof(struct vx_message_loaded),
     offsetof(struct vx_message_loaded, signature.coords_name), VX_NAME_BYTES},
    {VX_MESSAGE_LOADED, sizeof(struct vx_message_loaded),
     offsetof(struct vx_message_loaded, signature.feats_name), VX_NAME_BYTES},
    {VX_MESSAGE_LOADED, sizeof(struct vx_message_loaded),
     offsetof(struct vx_message_loaded, signature.outputs[1].name), VX_NAME_BYTES},
    {VX_MESSAGE_LOADED, sizeof(struct vx_message_loaded),
     offsetof(struct vx_message_loaded, why), VX_WHY_BYTES},
    {VX_MESSAGE_UP, sizeof(struct vx_message_up),
     offsetof(struct vx_message_up, stats.device_name), VX_NAME_BYTES},
    {VX_MESSAGE_STATED, sizeof(struct vx_message_up),
     offsetof(struct vx_message_up, stats.device_name), VX_NAME_BYTES},
    {VX_MESSAGE_ENDS, sizeof(struct vx_message_ends),
     offsetof(struct vx_message_ends, why), VX_WHY_BYTES},
};

START_TEST(a_text_without_an_end_is_refused)
{
    say_nothing_odd();
    said.head.kind = texts[_i].kind;
    if (texts[_i].kind != VX_MESSAGE_LOADED)
        memset((u8 *)&said + sizeof said.head, 0, texts[_i].bytes - sizeof said.head);
    u8 *text = (u8 *)&said + texts[_i].at;
    memset(text, 'x', texts[_i].text_bytes - 1);
    text[texts[_i].text_bytes - 1] = '\0';
    ck_assert_int_eq(sent(texts[_i].bytes), VX_CODE_OK);
    text[texts[_i].text_bytes - 1] = 'x';
    ck_assert_int_eq(sent(texts[_i].bytes), VX_CODE_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("channel");
    TCase *tests = tcase_create("checks");
    tcase_add_loop_test(tests, a_signature_that_no_model_has_is_refused, 0,
                        (int)VX_COUNT(lies));
    tcase_add_loop_test(tests, a_text_without_an_end_is_refused, 0, (int)VX_COUNT(texts));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
