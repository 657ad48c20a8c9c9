/* The shared arena and the IPC channel, which connect the front with its workers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/ipc/channel.h"
#include "server/ipc/shared.h"
#include "server/sched/sched.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------- shared ------- */

START_TEST(slots_are_apart_and_seen_by_the_worker)
{
    struct vx_shared *front, *worker;
    struct vx_place a, b;
    ck_assert(!vx_shared_open(1 << 20, NULL, &front).fault);
    ck_assert(!vx_shared_map(dup(vx_shared_fd(front)), NULL, &worker).fault);
    const struct vx_slots *slots = vx_shared_slots(front);
    ck_assert(slots->take(slots->context, 5000, &a) &&
              slots->take(slots->context, 100, &b));
    memset(slots->memory(slots->context, &a), 'a', a.bytes);
    memset(slots->memory(slots->context, &b), 'b', b.bytes);
    const u8 *seen = vx_shared_view(worker, a.offset, a.bytes);
    for (u64 i = 0; i < a.bytes; i++) ck_assert_int_eq(seen[i], 'a');
    ck_assert_int_eq(vx_shared_view(worker, b.offset, b.bytes)[0], 'b');
    ck_assert_uint_ge(vx_shared_used(front), 5100);
    slots->give(slots->context, &a);
    slots->give(slots->context, &b);
    slots->give(slots->context, &b); /* a second give has no effect */
    ck_assert_uint_eq(vx_shared_used(front), 0);
    vx_shared_close(&worker);
    vx_shared_close(&front);
}
END_TEST

START_TEST(a_full_arena_says_no_and_recovers)
{
    struct vx_shared *front;
    struct vx_place slot, none;
    ck_assert(!vx_shared_open(1 << 20, NULL, &front).fault);
    const struct vx_slots *slots = vx_shared_slots(front);
    ck_assert(slots->take(slots->context, 1 << 20, &slot));
    ck_assert(!slots->take(slots->context, 1, &none));
    ck_assert(slots->take(slots->context, 0, &none)); /* zero bytes always fit */
    slots->give(slots->context, &slot);
    ck_assert(slots->take(slots->context, 1, &slot));
    slots->give(slots->context, &slot);
    ck_assert(!slots->take(slots->context, (1 << 20) + 1, &none));
    vx_shared_close(&front);
}
END_TEST

START_TEST(views_outside_are_none_and_the_file_cannot_shrink)
{
    struct vx_shared *front;
    ck_assert(!vx_shared_open(1 << 20, NULL, &front).fault);
    ck_assert_ptr_nonnull(vx_shared_view(front, (1 << 20) - 8, 8));
    ck_assert_ptr_null(vx_shared_view(front, (1 << 20) - 8, 9));
    ck_assert_ptr_null(vx_shared_view(front, UINT64_MAX, 1));
    ck_assert_ptr_null(vx_shared_view(front, 8, UINT64_MAX));
    ck_assert_int_eq(ftruncate(vx_shared_fd(front), 0), -1);
    vx_shared_close(&front);
}
END_TEST

/* ------- channel ------- */

START_TEST(messages_arrive_whole_and_the_end_is_known)
{
    static union vx_message in;
    int fds[2];
    size_t bytes;
    ck_assert(!vx_channel_pair(fds).fault);
    ck_assert(!vx_channel_receive(fds[0], &in, &bytes).fault);
    ck_assert_uint_eq(bytes, 0); /* the front's end does not wait */
    struct vx_message_done done = {.head = {VX_MESSAGE_DONE, 3, 77}, .items_count = 3};
    done.items[0].why = done.items[2].why = -1;
    vx_done_add_why(&done, 1, "a sentence");
    size_t expected = offsetof(struct vx_message_done, items) +
                      3 * sizeof(struct vx_done_item) + sizeof(struct vx_why);
    ck_assert_uint_eq(vx_message_done_bytes(&done), expected);
    ck_assert(!vx_channel_send(fds[1], &done.head, expected).fault);
    ck_assert(!vx_channel_receive(fds[0], &in, &bytes).fault);
    ck_assert_uint_eq(bytes, expected);
    ck_assert_uint_eq(in.head.serial, 77);
    ck_assert_str_eq(vx_done_why(&in.done, 0)->text, "");
    ck_assert_str_eq(vx_done_why(&in.done, 1)->text, "a sentence");
    ck_assert_str_eq(vx_done_why(&in.done, 2)->text, "");
    close(fds[1]);
    ck_assert_int_eq(vx_status_code(vx_channel_receive(fds[0], &in, &bytes)),
                     VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(vx_status_code(vx_channel_send(fds[0], &done.head, expected)),
                     VX_CODE_UNAVAILABLE);
    close(fds[0]);
}
END_TEST

START_TEST(a_short_message_is_refused)
{
    static union vx_message in;
    int fds[2];
    size_t bytes;
    ck_assert(!vx_channel_pair(fds).fault);
    struct vx_message_head head = {.kind = VX_MESSAGE_LOADED};
    ck_assert_int_eq(send(fds[1], &head, sizeof head, 0), sizeof head);
    ck_assert_int_eq(vx_status_code(vx_channel_receive(fds[0], &in, &bytes)),
                     VX_CODE_INTERNAL);
    ck_assert_int_eq(send(fds[1], &head, 3, 0), 3);
    ck_assert_int_eq(vx_status_code(vx_channel_receive(fds[0], &in, &bytes)),
                     VX_CODE_INTERNAL);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

/* The counts in a DONE are checked against its size: every mismatch is refused. */
static const struct {
    i32 items_count, whys_count, why;
    int extra; /* bytes beyond those that the counts require */
    bool open; /* a sentence without its NUL */
    bool fine;
} dones[] = {
    {2, 1, 0, 0, false, true},
    {VX_BATCH_ITEMS_MAX, VX_BATCH_ITEMS_MAX, VX_BATCH_ITEMS_MAX - 1, 0, false, true},
    {2, 1, 0, -1, false, false},
    {2, 1, 0, 1, false, false},
    {2, 1, 0, 0, true, false},
    {2, 1, 1, 0, false, false},
    {2, 1, -2, 0, false, false},
    {2, 3, 0, 0, false, false},
    {2, -1, -1, 0, false, false},
    {0, 0, -1, 0, false, false},
    {-1, 0, -1, 0, false, false},
};

START_TEST(a_done_that_lies_is_refused)
{
    static union vx_message in;
    static struct vx_message_done done;
    int fds[2];
    size_t bytes;
    ck_assert(!vx_channel_pair(fds).fault);
    memset(&done, 0, sizeof done);
    done.head.kind = VX_MESSAGE_DONE;
    done.items_count = dones[_i].items_count;
    done.whys_count = dones[_i].whys_count;
    size_t items = offsetof(struct vx_message_done, items);
    size_t whole = vx_message_done_bytes(&done);
    /* Negative counts have no size: no record is whole for them. */
    if (done.items_count < 0 || done.whys_count < 0) whole = items;
    for (i32 i = 0; i < done.items_count; i++) done.items[i].why = -1;
    done.items[0].why = dones[_i].why;
    if (dones[_i].open) memset((u8 *)&done + whole - VX_WHY_BYTES, 'x', VX_WHY_BYTES);
    ssize_t sent = (ssize_t)whole + dones[_i].extra;
    ck_assert_int_eq(send(fds[1], &done, (size_t)sent, 0), sent);
    enum vx_code code = vx_status_code(vx_channel_receive(fds[0], &in, &bytes));
    ck_assert_int_eq(code, dones[_i].fine ? VX_CODE_OK : VX_CODE_INTERNAL);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_noticed)
{
    int fds[2];
    ck_assert(!vx_channel_pair(fds).fault);
    static struct vx_message_load load = {.head = {.kind = VX_MESSAGE_LOAD}};
    /* Every message that can be under way fits ... */
    struct vx_message_head unload = {.kind = VX_MESSAGE_UNLOAD};
    for (int i = 0; i < VX_INSTANCES_MAX; i++)
        ck_assert(!vx_channel_send(fds[0], &unload, sizeof unload).fault);
    ck_assert(!vx_channel_send(fds[0], &load.head, sizeof load).fault);
    static struct vx_message_run run = {.head = {.kind = VX_MESSAGE_RUN},
                                        .items_count = VX_BATCH_ITEMS_MAX};
    for (int i = 0; i < VX_WORKER_DEPTH; i++)
        ck_assert(!vx_channel_send(fds[0], &run.head, sizeof run).fault);
    /* ... and a flood ends in an error status instead of blocking. */
    vx_status st = VX_OK;
    for (int i = 0; i < 100000 && !st.fault; i++)
        st = vx_channel_send(fds[0], &load.head, sizeof load);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_UNAVAILABLE);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server parts");
    TCase *shared = tcase_create("shared");
    tcase_add_test(shared, slots_are_apart_and_seen_by_the_worker);
    tcase_add_test(shared, a_full_arena_says_no_and_recovers);
    tcase_add_test(shared, views_outside_are_none_and_the_file_cannot_shrink);
    suite_add_tcase(suite, shared);
    TCase *channel = tcase_create("channel");
    tcase_add_test(channel, messages_arrive_whole_and_the_end_is_known);
    tcase_add_test(channel, a_short_message_is_refused);
    tcase_add_loop_test(channel, a_done_that_lies_is_refused, 0, (int)VX_COUNT(dones));
    tcase_add_test(channel, a_peer_that_does_not_read_is_noticed);
    suite_add_tcase(suite, channel);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
