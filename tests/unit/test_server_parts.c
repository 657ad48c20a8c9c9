/* The shared arena, the channel and the repository scan: the front's ties to the system.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/clock.h"
#include "server/channel.h"
#include "server/repository.h"
#include "server/shared.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------- shared ------- */

START_TEST(slots_are_apart_and_seen_by_the_worker)
{
    struct vx_shared *front, *worker;
    struct vx_slot a, b;
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
    slots->give(slots->context, &b); /* given already: nothing happens */
    ck_assert_uint_eq(vx_shared_used(front), 0);
    vx_shared_close(&worker);
    vx_shared_close(&front);
}
END_TEST

START_TEST(a_full_arena_says_no_and_recovers)
{
    struct vx_shared *front;
    struct vx_slot slot, none;
    ck_assert(!vx_shared_open(1 << 20, NULL, &front).fault);
    const struct vx_slots *slots = vx_shared_slots(front);
    ck_assert(slots->take(slots->context, 1 << 20, &slot));
    ck_assert(!slots->take(slots->context, 1, &none));
    ck_assert(slots->take(slots->context, 0, &none)); /* nothing always fits */
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
    ck_assert_uint_eq(in.head.batch, 77);
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

/* What a DONE says of itself is held against its size: every lie is refused. */
static const struct {
    i32 items_count, whys_count, why;
    int extra; /* bytes beyond what the counts say */
    bool open; /* a sentence without an end */
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
    /* Counts below zero have no size; the record then is whole for none. */
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
    /* ... and a flood ends in a status, not in a wait. */
    vx_status st = VX_OK;
    for (int i = 0; i < 100000 && !st.fault; i++)
        st = vx_channel_send(fds[0], &load.head, sizeof load);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_UNAVAILABLE);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

/* ------- repository ------- */

static char root[] = "/tmp/voxeld-test-XXXXXX";

static void make_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void make_folder(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

static struct vx_repository_listing listing;

static const struct vx_repository_entry *entry_find(const char *name, i64 version)
{
    for (i32 i = 0; i < listing.count; i++)
        if (!strcmp(listing.entries[i].name, name) &&
            listing.entries[i].version == version)
            return &listing.entries[i];
    return NULL;
}

static void make_repository(void)
{
    strcpy(root + strlen(root) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    static const char *const folders[] = {"m",       "m/1",  "m/12",  "m/007",
                                          "m/draft", "m/-3", "empty", ".git",
                                          ".git/1",  "n",    "n/2",   "m/99999999999"};
    for (size_t i = 0; i < VX_COUNT(folders); i++) make_folder(folders[i]);
    make_file("README", "not a model");
    make_file("m/network.json", "{}");
    make_file("m/1/weights.safetensors", "x");
}

static void remove_repository(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(a_scan_lists_versions_and_says_what_is_odd)
{
    vx_repository_scan(root, &listing);
    ck_assert(listing.readable);
    ck_assert_int_eq(listing.count, 3);
    ck_assert_ptr_nonnull(entry_find("m", 1));
    ck_assert_ptr_nonnull(entry_find("m", 12));
    ck_assert_ptr_nonnull(entry_find("n", 2));
    ck_assert_ptr_nonnull(
        strstr(vx_repository_problem(&listing), "'empty' has no version"));
}
END_TEST

START_TEST(a_version_is_a_number_as_people_write_it)
{
    static const char *const none[] = {"",    "0",  "01",         "1x",
                                       "1.5", " 1", "1 ",         "-1",
                                       "+1",  "v1", "2147483648", "99999999999999999999"};
    for (size_t i = 0; i < VX_COUNT(none); i++)
        ck_assert_msg(!vx_repository_version(none[i]), "'%s'", none[i]);
    ck_assert_int_eq(vx_repository_version("1"), 1);
    ck_assert_int_eq(vx_repository_version("2147483647"), INT32_MAX);
}
END_TEST

static const struct vx_repository_odd *odd_find(const char *name)
{
    for (i32 i = 0; i < vx_repository_odds(&listing); i++)
        if (!strcmp(listing.odds[i].name, name)) return &listing.odds[i];
    return NULL;
}

START_TEST(all_that_is_odd_is_said_and_what_looks_like_a_model_is_known)
{
    struct vx_why why;
    make_folder("flat");
    make_folder("named");
    make_folder("named/v1");
    make_file("flat/network.json", "{}");
    make_file("flat/weights.safetensors", "x");
    make_file("named/network.json", "{}");
    vx_repository_scan(root, &listing);
    ck_assert_int_eq(listing.odds_count, 3);
    ck_assert(!odd_find("empty")->model && odd_find("flat")->model);
    ck_assert_str_eq(
        odd_find("flat")->why.text,
        "'flat' has no version: expected a directory with a number, with "
        "flat/1/weights.safetensors in it, got weights.safetensors beside it");
    ck_assert_str_eq(odd_find("named")->why.text,
                     "'named' has no version: expected a directory with a number, with "
                     "named/1/weights.safetensors in it");
    ck_assert(vx_repository_why_absent(&listing, "flat", 0, &why));
    ck_assert_str_eq(why.text, odd_find("flat")->why.text);
    ck_assert(!vx_repository_why_absent(&listing, "empty", 0, &why));
    ck_assert(!vx_repository_why_absent(&listing, "m", 0, &why));
}
END_TEST

START_TEST(more_odd_things_than_are_kept_are_counted)
{
    char name[32];
    for (int i = 0; i < 2 * VX_REPOSITORY_ODDS_MAX; i++) {
        snprintf(name, sizeof name, "zz%02d", i);
        make_folder(name);
    }
    vx_repository_scan(root, &listing);
    ck_assert_int_eq(listing.odds_count, 2 * VX_REPOSITORY_ODDS_MAX + 1);
    ck_assert_int_eq(vx_repository_odds(&listing), VX_REPOSITORY_ODDS_MAX);
}
END_TEST

/* What does not find room must not depend on the order that the file system has. */
START_TEST(a_listing_is_in_order)
{
    char name[32];
    for (int i = 40; i > 0; i--) {
        snprintf(name, sizeof name, "o%d", i * 7 % 41);
        make_folder(name);
        snprintf(name, sizeof name, "o%d/1", i * 7 % 41);
        make_folder(name);
        snprintf(name, sizeof name, "n/%d", 100 + i * 7 % 41);
        make_folder(name);
    }
    vx_repository_scan(root, &listing);
    ck_assert_int_eq(listing.count, 83);
    for (i32 e = 1; e < listing.count; e++) {
        const struct vx_repository_entry *a = &listing.entries[e - 1], *b = a + 1;
        int order = strcmp(a->name, b->name);
        ck_assert(order < 0 || (!order && a->version < b->version));
    }
}
END_TEST

START_TEST(a_change_on_disk_changes_the_fingerprint)
{
    vx_repository_scan(root, &listing);
    u64 weights = entry_find("m", 1)->fingerprint,
        other = entry_find("m", 12)->fingerprint;
    vx_repository_scan(root, &listing);
    ck_assert_uint_eq(entry_find("m", 1)->fingerprint, weights);
    make_file("m/1/weights.safetensors", "xyz");
    vx_repository_scan(root, &listing);
    ck_assert_uint_ne(entry_find("m", 1)->fingerprint, weights);
    ck_assert_uint_eq(entry_find("m", 12)->fingerprint, other);
    make_file("m/network.json", "{ }");
    vx_repository_scan(root, &listing);
    ck_assert_uint_ne(entry_find("m", 12)->fingerprint, other);
}
END_TEST

START_TEST(a_worker_sees_that_files_are_others)
{
    char path[256];
    struct vx_why why = {""};
    snprintf(path, sizeof path, "%s/m", root);
    vx_repository_scan(root, &listing);
    u64 fingerprint = entry_find("m", 1)->fingerprint;
    ck_assert_int_eq(entry_find("m", 1)->weights_bytes, 1);
    ck_assert_int_eq(entry_find("m", 12)->weights_bytes, 0);
    ck_assert(!vx_repository_check(path, 1, fingerprint, &why).fault);
    ck_assert(vx_repository_check(path, 12, fingerprint, &why).fault);
    make_file("m/1/weights.safetensors", "yy");
    ck_assert_int_eq(vx_status_code(vx_repository_check(path, 1, fingerprint, &why)),
                     VX_CODE_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(why.text, "changed on disk"));
    ck_assert_ptr_nonnull(strstr(why.text, "1/weights.safetensors"));
    vx_repository_scan(root, &listing);
    fingerprint = entry_find("m", 1)->fingerprint;
    make_file("m/network.json", "{\"format\": 1}");
    ck_assert(vx_repository_check(path, 1, fingerprint, &why).fault);
    strcat(path, "/nowhere");
    ck_assert(vx_repository_check(path, 1, fingerprint, &why).fault);
}
END_TEST

START_TEST(a_listing_says_when_it_began_and_that_it_is_full)
{
    char name[32];
    i64 before = vx_clock_ns();
    for (int i = 0; i < VX_LISTING_MAX; i++) {
        snprintf(name, sizeof name, "n/%d", 100 + i);
        make_folder(name);
    }
    vx_repository_scan(root, &listing);
    ck_assert_int_ge(listing.begun_ns, before);
    ck_assert_int_le(listing.begun_ns, vx_clock_ns());
    ck_assert_int_eq(listing.count, VX_LISTING_MAX);
    ck_assert(!listing.complete);
    /* m/1, m/12 and n/2 come first: of the others the highest are left out. */
    ck_assert_int_eq(listing.entries[VX_LISTING_MAX - 1].version,
                     100 + VX_LISTING_MAX - 4);
    ck_assert_int_eq(listing.odds_count, 2); /* and 'empty' */
    ck_assert_ptr_nonnull(
        strstr(vx_repository_problem(&listing), "the rest is left out"));
    ck_assert(listing.readable);
}
END_TEST

START_TEST(a_repository_without_models_says_what_was_expected)
{
    char path[256];
    snprintf(path, sizeof path, "%s/m/12", root);
    vx_repository_scan(path, &listing);
    ck_assert(listing.readable);
    ck_assert_int_eq(listing.count, 0);
    ck_assert_ptr_nonnull(strstr(vx_repository_problem(&listing),
                                 "has no models: expected NAME/network.json and "
                                 "NAME/1/weights.safetensors in it"));
}
END_TEST

START_TEST(what_can_be_no_repository_is_refused)
{
    char path[256];
    struct vx_why why = {""};
    ck_assert(!vx_repository_expect(root, &why).fault);
    snprintf(path, sizeof path, "%s/m", root);
    ck_assert_int_eq(vx_status_code(vx_repository_expect(path, &why)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(why.text, "is a model's own directory, it has "
                                           "network.json: expected the directory above"));
    snprintf(path, sizeof path, "%s/m/1", root);
    ck_assert_int_eq(vx_status_code(vx_repository_expect(path, &why)),
                     VX_CODE_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "%s/README", root);
    ck_assert_int_eq(vx_status_code(vx_repository_expect(path, &why)), VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why.text, "Not a directory"));
    ck_assert_int_eq(vx_status_code(vx_repository_expect("/nonexistent", &why)),
                     VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(
        strstr(why.text, "repository '/nonexistent' cannot be read: No such file or "
                         "directory; expected a directory with a directory for each"));
}
END_TEST

START_TEST(a_directory_that_cannot_be_read_is_not_an_empty_one)
{
    vx_repository_scan("/nonexistent/models", &listing);
    ck_assert(!listing.readable);
    ck_assert_ptr_nonnull(strstr(vx_repository_problem(&listing), "/nonexistent/models"));
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
    TCase *repository = tcase_create("repository");
    tcase_add_checked_fixture(repository, make_repository, remove_repository);
    tcase_add_test(repository, a_scan_lists_versions_and_says_what_is_odd);
    tcase_add_test(repository,
                   all_that_is_odd_is_said_and_what_looks_like_a_model_is_known);
    tcase_add_test(repository, a_version_is_a_number_as_people_write_it);
    tcase_add_test(repository, more_odd_things_than_are_kept_are_counted);
    tcase_add_test(repository, a_listing_is_in_order);
    tcase_add_test(repository, a_change_on_disk_changes_the_fingerprint);
    tcase_add_test(repository, a_worker_sees_that_files_are_others);
    tcase_add_test(repository, a_listing_says_when_it_began_and_that_it_is_full);
    tcase_add_test(repository, a_directory_that_cannot_be_read_is_not_an_empty_one);
    tcase_add_test(repository, a_repository_without_models_says_what_was_expected);
    tcase_add_test(repository, what_can_be_no_repository_is_refused);
    suite_add_tcase(suite, repository);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
