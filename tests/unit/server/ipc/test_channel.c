/* The IPC channel: what a worker reports of itself and of its models is checked like any
 * outside input.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/ipc/channel.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static union vx_message said, heard;

/* A report by a worker that has a model of two outputs. */
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
        .outputs = {{"a", VX_DTYPE_F32, 1, 0, -1, "", 0, {0}},
                    {"b", VX_DTYPE_I32, VX_CHANNELS_MAX, 1, 1, "2x2x2", 0, {0}}},
        .voxels_max = VX_VOXELS_MAX,
        .samples_max = VX_SAMPLE_MAX + 1,
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
    /* Bypasses our own sender, which would refuse a malformed message. */
    ck_assert_int_eq(send(fds[1], &said, bytes, 0), (ssize_t)bytes);
    enum vx_code code = vx_status_code(vx_channel_receive(fds[0], &heard, &got));
    if (code == VX_CODE_OK) ck_assert_uint_eq(got, bytes);
    close(fds[0]);
    close(fds[1]);
    return code;
}

/* A field of a signature, and a value that no worker sends in it. */
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
    {FIELD(outputs[0].coords), 0}, /* set 0 has no coordinates */
    {FIELD(outputs[0].coords), -2},
    {FIELD(outputs[1].coords), -1},
    {FIELD(outputs[1].coords), 2}, /* there are two outputs */
    {FIELD(outputs[1].set), -1},
    {FIELD(outputs[1].set), VX_SETS_MAX},
    {FIELD(outputs[1].set), 0},
    {FIELD(outputs[0].set), -2},
    {FIELD(outputs[0].set), VX_OUTPUT_DENSE}, /* without dimensions */
    {FIELD(outputs[1].dims_count), 3},        /* not dense */
    {FIELD(outputs[1].dims_count), -1},
    {FIELD(shape[0]), 8}, /* the others are 0 */
    {FIELD(shape[2]), 8},
    {FIELD(voxels_max), -1},
    {FIELD(voxels_max), (i64)VX_VOXELS_MAX + 1},
    {FIELD(voxels_bound), -1},
    {FIELD(voxels_bound), VX_BOUND_COUNT},
    {FIELD(samples_max), 0},
    {FIELD(samples_max), VX_SAMPLE_MAX + 2},
    {FIELD(weights_bytes), -1},
    {FIELD(fp8_layers), -1},
    {FIELD(fp8_layers), VX_LAYERS_MAX + 1},
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
    said.loaded.code = VX_CODE_DATA_LOSS; /* then the signature is not checked */
    ck_assert_int_eq(sent(sizeof said.loaded), VX_CODE_OK);
}
END_TEST

/* The last byte of a string is its NUL, or a byte that nobody reads. */
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
    {VX_MESSAGE_MAPPED, sizeof(struct vx_message_mapped),
     offsetof(struct vx_message_mapped, why), VX_WHY_BYTES},
};

START_TEST(a_text_without_an_end_is_refused)
{
    say_nothing_odd();
    said.head.kind = texts[_i].kind;
    if (texts[_i].kind != VX_MESSAGE_LOADED)
        memset((u8 *)&said + sizeof said.head, 0, texts[_i].bytes - sizeof said.head);
    if (texts[_i].kind == VX_MESSAGE_MAPPED) said.mapped.region = 1;
    u8 *text = (u8 *)&said + texts[_i].at;
    memset(text, 'x', texts[_i].text_bytes - 1);
    text[texts[_i].text_bytes - 1] = '\0';
    ck_assert_int_eq(sent(texts[_i].bytes), VX_CODE_OK);
    text[texts[_i].text_bytes - 1] = 'x';
    ck_assert_int_eq(sent(texts[_i].bytes), VX_CODE_INTERNAL);
}
END_TEST

START_TEST(axes_are_an_order_or_nothing)
{
    static const struct {
        char axes[4];
        bool good;
    } cases[] = {{"", true},
                 {"zyx", true},
                 {"xyz", true},
                 {{'z', 'y', 'x', 'w'}, false}, /* without an end */
                 {{'\xff', '\xff', '\xff', '\0'}, false},
                 {"xxy", false},
                 {"xy", false}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        say_nothing_odd();
        memcpy(said.loaded.signature.axes, cases[i].axes, sizeof cases[i].axes);
        ck_assert_int_eq(sent(sizeof said.loaded),
                         cases[i].good ? VX_CODE_OK : VX_CODE_INTERNAL);
    }
}
END_TEST

/* ------- regions ------- */

static void say_map(i32 on_device)
{
    memset(&said, 0, sizeof said);
    said.map = (struct vx_message_map){.head = {.kind = VX_MESSAGE_MAP},
                                       .region = 1,
                                       .on_device = on_device,
                                       .offset = 4096,
                                       .bytes = 1};
}

#define MAP(field_) VX_MESSAGE_MAP, offsetof(struct vx_message_map, field_)
static const struct {
    i32 kind;
    size_t at, bytes;
    i64 value;
    bool sound;
} regions[] = {
    {MAP(region), 4, 0, false},
    {MAP(region), 4, -1, false},
    {MAP(region), 4, VX_REGIONS_MAX, true},
    {MAP(region), 4, VX_REGIONS_MAX + 1, false},
    {MAP(on_device), 4, 2, false},
    {MAP(on_device), 4, -1, false},
    {MAP(bytes), 8, 0, false},
    {MAP(bytes), 8, -1, false},
    {MAP(bytes), 8, INT64_MAX - 4096, true},
    {MAP(bytes), 8, INT64_MAX - 4095, false},
    {MAP(offset), 8, -1, false},
    {MAP(offset), 8, INT64_MAX - 1, true},
    {MAP(offset), 8, INT64_MAX, false},
    {VX_MESSAGE_UNMAP, offsetof(struct vx_message_unmap, region), 4, 0, false},
    {VX_MESSAGE_UNMAP, offsetof(struct vx_message_unmap, region), 4, 1, true},
    {VX_MESSAGE_UNMAP, offsetof(struct vx_message_unmap, region), 4, VX_REGIONS_MAX + 1,
     false},
    {VX_MESSAGE_MAPPED, offsetof(struct vx_message_mapped, region), 4, 0, false},
    {VX_MESSAGE_MAPPED, offsetof(struct vx_message_mapped, region), 4, 7, true},
    {VX_MESSAGE_MAPPED, offsetof(struct vx_message_mapped, region), 4, VX_REGIONS_MAX + 1,
     false},
};

/* A number in a message about a region, and whether it is valid; and the message a
 * byte too short. */
START_TEST(a_region_that_cannot_be_is_refused)
{
    say_map(1);
    said.head.kind = regions[_i].kind;
    size_t bytes = regions[_i].kind == VX_MESSAGE_MAP     ? sizeof said.map
                   : regions[_i].kind == VX_MESSAGE_UNMAP ? sizeof said.unmap
                                                          : sizeof said.mapped;
    if (regions[_i].kind == VX_MESSAGE_MAPPED) said.mapped.why.text[0] = '\0';
    i32 narrow = (i32)regions[_i].value;
    u8 *field = (u8 *)&said + regions[_i].at;
    if (regions[_i].bytes == 4)
        memcpy(field, &narrow, 4);
    else
        memcpy(field, &regions[_i].value, 8);
    ck_assert_int_eq(sent(bytes), regions[_i].sound ? VX_CODE_OK : VX_CODE_INTERNAL);
    ck_assert_int_eq(sent(bytes - 1), VX_CODE_INTERNAL);
    ck_assert_int_eq(sent(bytes + 1), VX_CODE_INTERNAL);
}
END_TEST

/* Descriptors of this process above the standard ones. */
static i32 descriptors_open(void)
{
    i32 count = 0;
    for (int fd = 3; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Sends the message with so many descriptors, which the front never does. */
static void send_many(int fd, size_t bytes, int passed, i32 count)
{
    union {
        struct cmsghdr head;
        u8 room[CMSG_SPACE(16 * sizeof(int))];
    } control = {.head = {0}};
    struct iovec piece = {&said, bytes};
    struct msghdr record = {.msg_iov = &piece, .msg_iovlen = 1};
    if (count) {
        record.msg_control = &control;
        record.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&record);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        for (i32 i = 0; i < count; i++)
            memcpy(CMSG_DATA(rights) + (size_t)i * sizeof(int), &passed, sizeof(int));
    }
    ck_assert_int_eq(sendmsg(fd, &record, 0), (ssize_t)bytes);
}

/* A message that the receiver would refuse ends the sender, not the receiver. */
START_TEST(a_malformed_word_is_its_senders_end)
{
    int fds[2], object = memfd_create("object", MFD_CLOEXEC);
    ck_assert(!vx_channel_pair(fds).fault);
    say_map(1);
    ck_assert(!vx_channel_send(fds[0], &said.head, sizeof said.map).fault);
    say_map(_i != 1);
    said.map.bytes = (u64)1 << 63;
    if (_i == 1)
        (void)vx_channel_send_fd(fds[0], &said.head, sizeof said.map, object).fault;
    else if (_i == 0)
        (void)vx_channel_send(fds[0], &said.head, sizeof said.map).fault;
    else
        (void)vx_channel_send(fds[0], &said.head, sizeof said.map - 1).fault;
}
END_TEST

/* The descriptor comes with a system region, is a new one of the same object, and
 * closes on exec. */
START_TEST(a_system_region_brings_its_object)
{
    int fds[2], passed = -2, object = memfd_create("object", 0);
    struct stat sent_one, got_one;
    size_t got;
    i32 before = descriptors_open();
    ck_assert(!vx_channel_pair(fds).fault);
    say_map(0);
    ck_assert(!vx_channel_send_fd(fds[0], &said.head, sizeof said.map, object).fault);
    ck_assert(!vx_channel_receive_fd(fds[1], &heard, &got, &passed).fault);
    ck_assert_uint_eq(got, sizeof said.map);
    ck_assert_int_eq(memcmp(&heard, &said, got), 0);
    ck_assert_int_ge(passed, 3);
    ck_assert_int_ne(passed, object);
    ck_assert_int_eq(fcntl(passed, F_GETFD), FD_CLOEXEC);
    ck_assert(!fstat(object, &sent_one) && !fstat(passed, &got_one));
    ck_assert_uint_eq(sent_one.st_ino, got_one.st_ino);
    close(passed);
    /* Messages without a descriptor pass as always. */
    said.head.kind = VX_MESSAGE_STATS;
    ck_assert(!vx_channel_send(fds[0], &said.head, sizeof said.head).fault);
    ck_assert(!vx_channel_receive_fd(fds[1], &heard, &got, &passed).fault);
    ck_assert_int_eq(passed, -1);
    ck_assert_uint_eq(got, sizeof said.head);
    close(fds[0]);
    ck_assert_int_eq(vx_status_code(vx_channel_receive_fd(fds[1], &heard, &got, &passed)),
                     VX_CODE_UNAVAILABLE);
    close(fds[1]);
    ck_assert_int_eq(descriptors_open(), before);
    close(object);
}
END_TEST

static const struct {
    i32 kind, on_device, count;
    bool front; /* whether the front receives it */
} wrong[] = {
    {VX_MESSAGE_MAP, 0, 0, false},   {VX_MESSAGE_MAP, 0, 2, false},
    {VX_MESSAGE_MAP, 0, 4, false},   {VX_MESSAGE_MAP, 0, 16, false},
    {VX_MESSAGE_MAP, 1, 1, false},   {VX_MESSAGE_UNMAP, 0, 1, false},
    {VX_MESSAGE_STATS, 0, 1, false}, {VX_MESSAGE_STATS, 0, 16, false},
    {VX_MESSAGE_MAP, 2, 1, false}, /* malformed as well */
    {VX_MESSAGE_MAP, 0, 1, true},    {VX_MESSAGE_STATS, 0, 1, true},
    {VX_MESSAGE_STATS, 0, 16, true},
};

START_TEST(descriptors_that_nobody_asked_for_are_closed)
{
    int fds[2], passed = -1, object = memfd_create("object", 0);
    size_t got;
    ck_assert(!vx_channel_pair(fds).fault);
    i32 before = descriptors_open();
    say_map(wrong[_i].on_device);
    said.head.kind = wrong[_i].kind;
    size_t bytes = wrong[_i].kind == VX_MESSAGE_MAP     ? sizeof said.map
                   : wrong[_i].kind == VX_MESSAGE_UNMAP ? sizeof said.unmap
                                                        : sizeof said.head;
    if (wrong[_i].kind == VX_MESSAGE_UNMAP) said.unmap.region = 1;
    int to = fds[wrong[_i].front], from = fds[!wrong[_i].front];
    send_many(to, bytes, object, wrong[_i].count);
    vx_status status = wrong[_i].front
                           ? vx_channel_receive(from, &heard, &got)
                           : vx_channel_receive_fd(from, &heard, &got, &passed);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INTERNAL);
    ck_assert_int_eq(passed, -1);
    ck_assert_uint_eq(got, 0);
    ck_assert_int_eq(descriptors_open(), before);
    close(fds[0]);
    close(fds[1]);
    close(object);
}
END_TEST

/* What a row has is the product of its dimensions, and not too much. */
START_TEST(a_dense_output_is_checked)
{
    static const struct {
        i32 channels, count, dims[VX_OUTPUT_DIMS_MAX];
        enum vx_code code;
    } rows[] = {{24, 3, {2, 3, 4}, VX_CODE_OK},
                {VX_DENSE_NUMBERS_MAX, 2, {1 << 14, 1 << 14}, VX_CODE_OK},
                {25, 3, {2, 3, 4}, VX_CODE_INTERNAL},
                {0, 3, {2, 0, 4}, VX_CODE_INTERNAL},
                {24, 4, {-1, -1, 6, 4}, VX_CODE_INTERNAL},
                {24, 5, {2, 3, 4, 1}, VX_CODE_INTERNAL},
                {0, 3, {1 << 16, 1 << 16, 1}, VX_CODE_INTERNAL}};
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        say_nothing_odd();
        struct vx_output *output = &said.loaded.signature.outputs[0];
        output->set = VX_OUTPUT_DENSE;
        output->channels = rows[i].channels;
        output->dims_count = rows[i].count;
        memcpy(output->dims, rows[i].dims, sizeof output->dims);
        ck_assert_int_eq(sent(sizeof said.loaded), rows[i].code);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("channel");
    TCase *tests = tcase_create("checks");
    tcase_add_loop_test(tests, a_signature_that_no_model_has_is_refused, 0,
                        (int)VX_COUNT(lies));
    tcase_add_test(tests, a_dense_output_is_checked);
    tcase_add_loop_test(tests, a_text_without_an_end_is_refused, 0, (int)VX_COUNT(texts));
    tcase_add_test(tests, axes_are_an_order_or_nothing);
    tcase_add_loop_test(tests, a_region_that_cannot_be_is_refused, 0,
                        (int)VX_COUNT(regions));
    tcase_add_test(tests, a_system_region_brings_its_object);
    tcase_add_loop_test_raise_signal(tests, a_malformed_word_is_its_senders_end, SIGABRT,
                                     0, 3);
    tcase_add_loop_test(tests, descriptors_that_nobody_asked_for_are_closed, 0,
                        (int)VX_COUNT(wrong));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
