/* The IPC channel: batches and their answers have the size that their counts require, and
 * valid indices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/ipc/channel.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static union vx_message said, heard;

static enum vx_code sent(size_t bytes)
{
    int fds[2];
    size_t got;
    ck_assert(!vx_channel_pair(fds).fault);
    /* Bypasses our own sender, which would refuse a malformed message. */
    ck_assert_int_eq(send(fds[1], &said, bytes, 0), (ssize_t)bytes);
    enum vx_code code = vx_status_code(vx_channel_receive(fds[0], &heard, &got));
    ck_assert_uint_eq(got, code == VX_CODE_OK ? bytes : 0);
    close(fds[0]);
    close(fds[1]);
    return code;
}

/* Three items, two of which have a sentence. */
static void say_done(void)
{
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_DONE;
    said.done.items_count = 3;
    for (i32 i = 0; i < 3; i++) said.done.items[i].why = -1;
    vx_done_add_why(&said.done, 2, "of the third");
    vx_done_add_why(&said.done, 0, "of the first");
}

START_TEST(a_sentence_is_its_items_own)
{
    say_done();
    ck_assert_int_eq(sent(vx_message_done_bytes(&said.done)), VX_CODE_OK);
    ck_assert_str_eq(vx_done_why(&heard.done, 0)->text, "of the first");
    ck_assert_str_eq(vx_done_why(&heard.done, 1)->text, "");
    ck_assert_str_eq(vx_done_why(&heard.done, 2)->text, "of the third");
}
END_TEST

/* What layers took follows the sentences. */
START_TEST(texts_of_layers_follow_the_sentences)
{
    static struct vx_taken taken[VX_TAKEN_MAX];
    say_done();
    ck_assert_ptr_null(vx_done_taken(&said.done, &said.done.items[0]));
    for (i32 i = 0; i < VX_TAKEN_MAX; i++) {
        memset(taken[i].text, 'a' + i, VX_TAKEN_BYTES - 1);
        vx_done_add_taken(&said.done, &taken[i]);
    }
    said.done.items[0].taken = VX_TAKEN_MAX;
    said.done.items[2].taken = 1;
    const size_t bytes = vx_message_done_bytes(&said.done);
    ck_assert_int_eq(sent(bytes), VX_CODE_OK);
    ck_assert_str_eq(vx_done_taken(&heard.done, &heard.done.items[0]),
                     taken[VX_TAKEN_MAX - 1].text);
    ck_assert_ptr_null(vx_done_taken(&heard.done, &heard.done.items[1]));
    ck_assert_str_eq(vx_done_taken(&heard.done, &heard.done.items[2]), taken[0].text);
    ck_assert_str_eq(vx_done_why(&heard.done, 2)->text, "of the third");
    ck_assert_int_eq(sent(bytes - 1), VX_CODE_INTERNAL);
    *((u8 *)&said + bytes - 1) = 'x'; /* without its NUL */
    ck_assert_int_eq(sent(bytes), VX_CODE_INTERNAL);
    *((u8 *)&said + bytes - 1) = 0;
    said.done.items[1].taken = VX_TAKEN_MAX + 1;
    ck_assert_int_eq(sent(bytes), VX_CODE_INTERNAL);
    said.done.items[1].taken = -1;
    ck_assert_int_eq(sent(bytes), VX_CODE_INTERNAL);
    said.done.items[1].taken = 0;
    for (i32 count = -1; count <= VX_TAKEN_MAX + 1; count++) {
        said.done.taken_count = count;
        ck_assert_int_eq(sent(bytes),
                         count == VX_TAKEN_MAX ? VX_CODE_OK : VX_CODE_INTERNAL);
    }
}
END_TEST

#define DONE(field_) offsetof(struct vx_message_done, field_)
static const struct {
    size_t at;
    i32 value;
    bool sound;
} dones[] = {
    {DONE(items[1].why), -2, false},
    {DONE(items[1].why), -1, true},
    {DONE(items[1].why), 1, true},
    {DONE(items[1].why), 2, false}, /* one past the last */
    {DONE(items[0].why), 2, false},
    {DONE(items[2].why), 2, false},
    {DONE(items[2].why), INT32_MAX, false},
    {DONE(items[2].why), INT32_MIN, false},
    {DONE(items[0].set_voxels), INT32_MAX, true},
    {DONE(items[0].set_voxels) + 4, INT32_MAX, false}, /* the high half */
    {DONE(items[0].set_voxels) + 4, -1, false},
    {DONE(items[2].convert_ns) + 4, 1 << 22, true},
    {DONE(items[2].convert_ns) + 4, 1 << 23, false},
    {DONE(items[0].geometry_ns) + 4, INT32_MAX, false},
    {DONE(items[0].compute_ns) + 4, INT32_MIN, false},
    {DONE(items[1].output_ns) + 4, INT32_MAX, false},
    {DONE(device_ns) + 4, INT32_MAX, false},
    {DONE(items_count), 0, false},
    {DONE(items_count), 2, false},
    {DONE(items_count), -1, false},
    {DONE(items_count), VX_BATCH_ITEMS_MAX + 1, false},
    {DONE(whys_count), 1, false},
    {DONE(whys_count), 3, false},
    {DONE(whys_count), 4, false},
    {DONE(whys_count), -1, false},
};

/* An invalid number, in a record of the right size for the number before. */
START_TEST(an_answer_that_cannot_be_is_refused)
{
    say_done();
    size_t bytes = vx_message_done_bytes(&said.done);
    memcpy((u8 *)&said + dones[_i].at, &dones[_i].value, sizeof dones[_i].value);
    ck_assert_int_eq(sent(bytes), dones[_i].sound ? VX_CODE_OK : VX_CODE_INTERNAL);
    if (!dones[_i].sound) return;
    ck_assert_int_eq(sent(bytes - 1), VX_CODE_INTERNAL);
    ck_assert_int_eq(sent(bytes + 1), VX_CODE_INTERNAL);
}
END_TEST

/* The counts themselves at their limits, in records of the size that they require. */
START_TEST(an_answer_has_as_many_items_as_a_batch)
{
    say_done();
    said.done.whys_count = 0;
    for (i32 i = 0; i < VX_BATCH_ITEMS_MAX; i++)
        said.done.items[i] = (struct vx_done_item){.why = -1};
    for (i32 items = 0; items <= VX_BATCH_ITEMS_MAX; items++) {
        said.done.items_count = items;
        ck_assert_int_eq(sent(vx_message_done_bytes(&said.done)),
                         items ? VX_CODE_OK : VX_CODE_INTERNAL);
    }
    for (i32 i = 0; i < VX_BATCH_ITEMS_MAX; i++) vx_done_add_why(&said.done, i, "each");
    ck_assert_int_eq(sent(vx_message_done_bytes(&said.done)), VX_CODE_OK);
    ck_assert_str_eq(vx_done_why(&heard.done, VX_BATCH_ITEMS_MAX - 1)->text, "each");
    said.done.items_count = VX_BATCH_ITEMS_MAX + 1; /* in a record of that size */
    said.done.whys_count = 0;
    memset((u8 *)&said + offsetof(struct vx_message_done, items), 0xff,
           (VX_BATCH_ITEMS_MAX + 1) * sizeof(struct vx_done_item));
    ck_assert_int_eq(sent(vx_message_done_bytes(&said.done)), VX_CODE_INTERNAL);
    memset(&said, 0, sizeof said); /* one item with two sentences, otherwise valid */
    said.head.kind = VX_MESSAGE_DONE;
    said.done.items_count = 1;
    said.done.whys_count = 1;
    ck_assert_int_eq(sent(vx_message_done_bytes(&said.done)), VX_CODE_OK);
    said.done.whys_count = 2;
    ck_assert_int_eq(sent(vx_message_done_bytes(&said.done)), VX_CODE_INTERNAL);
}
END_TEST

/* ------- places of outputs ------- */

/* Items 0 and 63, with places of every kind. */
static void say_places(void)
{
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_PLACES;
    said.places.items_count = 2;
    said.places.items[1].item = VX_BATCH_ITEMS_MAX - 1;
    said.places.items[0].outputs[1] = (struct vx_place){64, 32, VX_PLACE_ARENA, 0, 0};
    said.places.items[0].outputs[2] = (struct vx_place){0, 8, VX_PLACE_SYSTEM, 1, 0};
    said.places.items[1].outputs[0] =
        (struct vx_place){0, 8, VX_PLACE_DEVICE, VX_REGIONS_MAX, 3};
}

static void say_sizes(void)
{
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_SIZES;
    said.sizes.items_count = 2;
    said.sizes.items[1].item = VX_BATCH_ITEMS_MAX - 1;
    said.sizes.items[1].rows[VX_OUTPUTS_MAX - 1] = VX_VOXELS_MAX;
}

#define PLACES(field_) offsetof(struct vx_message_places, field_), 4
#define SIZES(field_)  offsetof(struct vx_message_sizes, field_), 8
static const struct {
    i32 kind;
    size_t at, bytes;
    i64 value;
    bool sound;
} asks[] = {
    {VX_MESSAGE_PLACES, PLACES(items[0].item), 62, true},
    {VX_MESSAGE_PLACES, PLACES(items[0].item), 63, false}, /* twice */
    {VX_MESSAGE_PLACES, PLACES(items[0].item), -1, false},
    {VX_MESSAGE_PLACES, PLACES(items[1].item), 1, true},
    {VX_MESSAGE_PLACES, PLACES(items[1].item), 0, false},
    {VX_MESSAGE_PLACES, PLACES(items[1].item), VX_BATCH_ITEMS_MAX, false},
    {VX_MESSAGE_PLACES, PLACES(items[1].item), INT32_MIN, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].refused), 1, true},
    {VX_MESSAGE_PLACES, PLACES(items[0].refused), 2, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].refused), -1, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[1].kind), VX_PLACE_NONE, true},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[1].kind), VX_PLACE_SYSTEM, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[1].kind), 4, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[1].kind), -1, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[1].region), 1, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[2].region), VX_REGIONS_MAX, true},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[2].region), 0, false},
    {VX_MESSAGE_PLACES, PLACES(items[0].outputs[2].region), VX_REGIONS_MAX + 1, false},
    {VX_MESSAGE_PLACES, PLACES(items_count), 1, false},
    {VX_MESSAGE_PLACES, PLACES(items_count), 0, false},
    {VX_MESSAGE_PLACES, PLACES(items_count), -1, false},
    {VX_MESSAGE_PLACES, PLACES(items_count), VX_BATCH_ITEMS_MAX + 1, false},
    {VX_MESSAGE_SIZES, SIZES(items[0].item), 62, true},
    {VX_MESSAGE_SIZES, SIZES(items[0].item), 63, false},
    {VX_MESSAGE_SIZES, SIZES(items[0].item), -1, false},
    {VX_MESSAGE_SIZES, SIZES(items[1].item), 0, false},
    {VX_MESSAGE_SIZES, SIZES(items[1].item), VX_BATCH_ITEMS_MAX, false},
    {VX_MESSAGE_SIZES, SIZES(items[1].item), INT64_MAX, false},
    {VX_MESSAGE_SIZES, SIZES(items[0].rows[0]), VX_VOXELS_MAX, true},
    {VX_MESSAGE_SIZES, SIZES(items[0].rows[0]), VX_VOXELS_MAX + INT64_C(1), false},
    {VX_MESSAGE_SIZES, SIZES(items[0].rows[0]), -1, false},
    {VX_MESSAGE_SIZES, SIZES(items[1].rows[VX_OUTPUTS_MAX - 1]), INT64_MIN, false},
    {VX_MESSAGE_SIZES, offsetof(struct vx_message_sizes, items_count), 4, 1, false},
    {VX_MESSAGE_SIZES, offsetof(struct vx_message_sizes, items_count), 4, 0, false},
    {VX_MESSAGE_SIZES, offsetof(struct vx_message_sizes, items_count), 4, -1, false},
};

START_TEST(sizes_and_places_are_in_range)
{
    bool places = asks[_i].kind == VX_MESSAGE_PLACES;
    (places ? say_places : say_sizes)();
    size_t bytes = places ? vx_message_places_bytes(2) : vx_message_sizes_bytes(2);
    ck_assert_int_eq(sent(bytes), VX_CODE_OK);
    memcpy((u8 *)&said + asks[_i].at, &asks[_i].value, asks[_i].bytes);
    ck_assert_int_eq(sent(bytes), asks[_i].sound ? VX_CODE_OK : VX_CODE_INTERNAL);
    if (!asks[_i].sound) return;
    ck_assert_int_eq(sent(bytes - 1), VX_CODE_INTERNAL);
    ck_assert_int_eq(sent(bytes + 1), VX_CODE_INTERNAL);
}
END_TEST

/* As many as a batch has, and no more even in a record of that size. */
START_TEST(sizes_and_places_of_a_whole_batch)
{
    for (i32 count = 0; count <= VX_BATCH_ITEMS_MAX + 1; count++) {
        enum vx_code code =
            count && count <= VX_BATCH_ITEMS_MAX ? VX_CODE_OK : VX_CODE_INTERNAL;
        memset(&said, 0, sizeof said);
        said.head.kind = VX_MESSAGE_SIZES;
        said.sizes.items_count = count;
        for (i32 i = 0; i < count && i < VX_BATCH_ITEMS_MAX; i++)
            said.sizes.items[i].item = i;
        ck_assert_int_eq(sent(vx_message_sizes_bytes(count)), code);
        memset(&said, 0, sizeof said);
        said.head.kind = VX_MESSAGE_PLACES;
        said.places.items_count = count;
        for (i32 i = 0; i < count && i < VX_BATCH_ITEMS_MAX; i++)
            said.places.items[i].item = i;
        ck_assert_int_eq(sent(vx_message_places_bytes(count)), code);
    }
}
END_TEST

/* A process that dies with unread messages resets the socket; what it sent before is
 * received all the same. */
START_TEST(last_words_come_behind_a_reset)
{
    int fds[2];
    size_t got;
    ck_assert(!vx_channel_pair(fds).fault);
    const struct vx_message_head unread = {.kind = VX_MESSAGE_STATS};
    ck_assert(!vx_channel_send(fds[0], &unread, sizeof unread).fault);
    say_done();
    size_t bytes = vx_message_done_bytes(&said.done);
    ck_assert(!vx_channel_send(fds[1], &said.head, bytes).fault);
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_ENDS;
    vx_why_set(&said.ends.why, "it fell out");
    ck_assert(!vx_channel_send(fds[1], &said.head, sizeof said.ends).fault);
    close(fds[1]);
    ck_assert(!vx_channel_receive(fds[0], &heard, &got).fault);
    ck_assert_uint_eq(got, bytes);
    ck_assert(!vx_channel_receive(fds[0], &heard, &got).fault);
    ck_assert_str_eq(heard.ends.why.text, "it fell out");
    ck_assert_int_eq(vx_status_code(vx_channel_receive(fds[0], &heard, &got)),
                     VX_CODE_UNAVAILABLE);
    close(fds[0]);
}
END_TEST

START_TEST(a_sentence_without_an_end_is_refused)
{
    say_done();
    size_t bytes = vx_message_done_bytes(&said.done);
    char *last = (char *)&said + bytes - VX_WHY_BYTES * (_i ? 2 : 1);
    memset(last, 'x', VX_WHY_BYTES - 1);
    last[VX_WHY_BYTES - 1] = '\0';
    ck_assert_int_eq(sent(bytes), VX_CODE_OK);
    last[VX_WHY_BYTES - 1] = 'x';
    ck_assert_int_eq(sent(bytes), VX_CODE_INTERNAL);
}
END_TEST

/* The batches that the front sends are checked against their counts as well. */
START_TEST(a_run_has_the_size_that_it_says)
{
    static const i32 counts[] = {1, VX_BATCH_ITEMS_MAX, 0, -1, VX_BATCH_ITEMS_MAX + 1};
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_RUN;
    said.run.items_count = counts[_i];
    bool sound = _i < 2;
    size_t bytes = vx_message_run_bytes(sound ? counts[_i] : 1);
    ck_assert_int_eq(sent(bytes), sound ? VX_CODE_OK : VX_CODE_INTERNAL);
    ck_assert_int_eq(sent(bytes - 1), VX_CODE_INTERNAL);
    ck_assert_int_eq(sent(offsetof(struct vx_message_run, items)), VX_CODE_INTERNAL);
    if (counts[_i] > VX_BATCH_ITEMS_MAX &&
        vx_message_run_bytes(counts[_i]) <= sizeof said)
        ck_assert_int_eq(sent(vx_message_run_bytes(counts[_i])), VX_CODE_INTERNAL);
}
END_TEST

static const struct {
    i32 shape[3];
    bool sound;
} run_shapes[] = {
    {{0, 0, 0}, true},
    {{1, VX_AXIS_MAX + 1, 40}, true},
    {{0, 1, 1}, false},
    {{1, 0, 1}, false},
    {{1, 1, 0}, false},
    {{-1, 1, 1}, false},
    {{1, 1, VX_AXIS_MAX + 2}, false},
};

START_TEST(a_run_has_three_sizes_or_none)
{
    memset(&said, 0, sizeof said);
    said.head.kind = VX_MESSAGE_RUN;
    said.run.items_count = 2;
    memcpy(said.run.items[1].shape, run_shapes[_i].shape, sizeof run_shapes[_i].shape);
    ck_assert_int_eq(sent(vx_message_run_bytes(2)),
                     run_shapes[_i].sound ? VX_CODE_OK : VX_CODE_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("channel_batches");
    TCase *tests = tcase_create("batches");
    tcase_add_test(tests, a_sentence_is_its_items_own);
    tcase_add_test(tests, texts_of_layers_follow_the_sentences);
    tcase_add_loop_test(tests, an_answer_that_cannot_be_is_refused, 0,
                        (int)VX_COUNT(dones));
    tcase_add_test(tests, an_answer_has_as_many_items_as_a_batch);
    tcase_add_loop_test(tests, sizes_and_places_are_in_range, 0, (int)VX_COUNT(asks));
    tcase_add_test(tests, sizes_and_places_of_a_whole_batch);
    tcase_add_test(tests, last_words_come_behind_a_reset);
    tcase_add_loop_test(tests, a_sentence_without_an_end_is_refused, 0, 2);
    tcase_add_loop_test(tests, a_run_has_the_size_that_it_says, 0, 5);
    tcase_add_loop_test(tests, a_run_has_three_sizes_or_none, 0,
                        (int)VX_COUNT(run_shapes));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
