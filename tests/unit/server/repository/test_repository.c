/* The repository scan: what is listed, what is reported as odd, and what counts as a
 * change.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/repository/repository.h"

#include "engine/base/process/clock.h"
#include "engine/base/utf8.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    make_file("n/5", "no version: it is no directory");
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
    ck_assert_int_eq(listing.odds_count, 4); /* and a note about m */
    ck_assert(!odd_find("empty")->model && odd_find("flat")->model);
    ck_assert_str_eq(
        odd_find("flat")->why.text,
        "'flat' has no version: expected a directory with a number, with "
        "flat/1/weights.safetensors in it, got weights.safetensors beside it");
    ck_assert_str_eq(odd_find("named")->why.text,
                     "'named' has no version: expected a directory with a number, with "
                     "named/1/weights.safetensors in it; there is 'v1'");
    ck_assert(vx_repository_why_absent(&listing, "flat", 0, &why));
    ck_assert_str_eq(why.text, odd_find("flat")->why.text);
    ck_assert(!vx_repository_why_absent(&listing, "empty", 0, &why));
    ck_assert(!vx_repository_why_absent(&listing, "m", 0, &why));
}
END_TEST

START_TEST(a_number_that_is_no_version_is_told_what_is_wrong_with_it)
{
    static const struct {
        const char *name, *expected, *came;
    } cases[] = {
        {"001", "a number without zeros before it", "; there is '001'"},
        {"0", "a number from 1 on", "; there is '0'"},
        {"3000000000", "a number up to 2147483647", "; there is '3000000000'"},
        {"v1", "a number", "; there is 'v1'"},
        {"a", "a number", "; there is 'a' and 1 more"}, /* v1 is still there */
    };
    char path[64], text[256];
    make_folder("z");
    make_file("z/network.json", "{}");
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        snprintf(path, sizeof path, "z/%s", cases[i].name);
        make_folder(path);
        vx_repository_scan(root, &listing);
        snprintf(text, sizeof text,
                 "'z' has no version: expected a directory with %s, with "
                 "z/1/weights.safetensors in it%s",
                 cases[i].expected, cases[i].came);
        ck_assert_ptr_nonnull(odd_find("z"));
        ck_assert_str_eq(odd_find("z")->why.text, text);
        ck_assert(odd_find("z")->model);
        snprintf(path, sizeof path, "%s/z/%s", root, cases[i].name);
        if (cases[i].name[0] != 'v') ck_assert_int_eq(rmdir(path), 0);
    }
}
END_TEST

/* root may read everything, so the scan runs as another user. */
START_TEST(a_directory_that_may_not_be_read_may_be_a_model)
{
    static const char *const closed[] = {"x", "lost+found"};
    char path[256];
    bool is_root = geteuid() == 0;
    ck_assert_int_eq(chmod(root, 0755), 0);
    for (size_t i = 0; i < VX_COUNT(closed); i++) {
        make_folder(closed[i]);
        snprintf(path, sizeof path, "%s/%s", root, closed[i]);
        ck_assert_int_eq(chmod(path, 0), 0);
    }
    if (is_root) ck_assert_int_eq(seteuid(10001), 0);
    vx_repository_scan(root, &listing);
    if (is_root) ck_assert_int_eq(seteuid(0), 0);
    for (size_t i = 0; i < VX_COUNT(closed); i++) {
        snprintf(path, sizeof path, "%s/%s", root, closed[i]);
        ck_assert_int_eq(chmod(path, 0755), 0);
        ck_assert_ptr_nonnull(odd_find(closed[i]));
        ck_assert_ptr_nonnull(
            strstr(odd_find(closed[i])->why.text, "cannot be read: Permission denied"));
    }
    ck_assert(odd_find("x")->model && !odd_find("lost+found")->model);
    ck_assert(!vx_repository_is_whole(&listing));
    ck_assert(vx_repository_may_have(&listing, "x", 1));
    ck_assert(!vx_repository_may_have(&listing, "m", 2));
}
END_TEST

START_TEST(what_is_no_model_makes_room_for_what_is)
{
    char name[32];
    for (int i = 0; i < VX_REPOSITORY_ODDS_MAX; i++) {
        snprintf(name, sizeof name, "zz%02d", i);
        make_folder(name);
    }
    vx_repository_scan(root, &listing);
    struct vx_repository_odd *odd = vx_repository_add_odd(&listing, "flat");
    odd->model = true;
    for (int i = 0; i < VX_REPOSITORY_ODDS_MAX - 1; i++)
        vx_repository_add_odd(&listing, "hollow");
    ck_assert_ptr_nonnull(odd_find("flat"));
}
END_TEST

/* m has 007, -3, draft and a number of more than 31 bits beside versions 1 and 12. */
START_TEST(what_is_no_version_beside_one_is_noted)
{
    vx_repository_scan(root, &listing);
    ck_assert_int_eq(listing.odds_count, 2);
    ck_assert_str_eq(listing.odds[0].name, "empty"); /* notes come last */
    ck_assert(listing.odds[1].note && !listing.odds[1].model);
    ck_assert_str_eq(vx_repository_note(&listing, "m"),
                     "'m' has the directory '-3' and 3 more, not served: expected a "
                     "version number from 1 to 2147483647 without leading zeros");
    ck_assert_str_eq(vx_repository_note(&listing, "n"), "");
    static const char *const silent[] = {"n/.git", "n/.ipynb_checkpoints",
                                         "n/__pycache__", "n/lost+found"};
    for (size_t i = 0; i < VX_COUNT(silent); i++) make_folder(silent[i]);
    make_file("n/README", "a file");
    vx_repository_scan(root, &listing);
    ck_assert_str_eq(vx_repository_note(&listing, "n"), "");
    make_folder("n/v2");
    vx_repository_scan(root, &listing);
    ck_assert_ptr_nonnull(
        strstr(vx_repository_note(&listing, "n"), "the directory 'v2', not served"));
}
END_TEST

START_TEST(a_note_hides_nothing_that_is_not_served)
{
    char name[32];
    for (int i = 0; i < 2 * VX_REPOSITORY_ODDS_MAX; i++) {
        snprintf(name, sizeof name, "a%02d", i);
        make_folder(name);
        snprintf(name, sizeof name, "a%02d/1", i);
        make_folder(name);
        snprintf(name, sizeof name, "a%02d/v2", i);
        make_folder(name);
    }
    vx_repository_scan(root, &listing);
    ck_assert_int_eq(listing.odds_count, 2 * VX_REPOSITORY_ODDS_MAX + 2);
    ck_assert_str_eq(vx_repository_problem(&listing), listing.odds[0].why.text);
    ck_assert_str_eq(listing.odds[0].name, "empty");
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
    ck_assert_int_eq(listing.odds_count, 2 * VX_REPOSITORY_ODDS_MAX + 2);
    ck_assert_int_eq(vx_repository_odds(&listing), VX_REPOSITORY_ODDS_MAX);
}
END_TEST

/* Which entries do not fit must not depend on the file system's order. */
/* Answers and pages with such a name would be unreadable, and no request can contain it. */
START_TEST(a_name_that_is_not_utf8_is_no_model_and_no_version)
{
    make_folder("caf\xc3\xa9"); /* any character may be in a name */
    make_folder("caf\xc3\xa9/1");
    make_folder("bad\xff");
    make_folder("bad\xff/1");
    make_file("bad\xff/network.json", "{}");
    make_file("bad\xff/1/weights.safetensors", "x");
    make_file("READ\xff", "a file");
    make_folder("n/v\xc3");
    vx_repository_scan(root, &listing);
    ck_assert_int_eq(listing.count, 4);
    ck_assert_ptr_nonnull(entry_find("caf\xc3\xa9", 1));
    ck_assert_ptr_null(entry_find("bad\xff", 1));
    ck_assert_int_eq(listing.odds_count, 4); /* empty, bad, and notes about m and n */
    ck_assert(odd_find("bad?")->model); /* the server is not ready: it has network.json */
    ck_assert_str_eq(odd_find("bad?")->why.text,
                     "the model directory 'bad?' is ignored: expected a name in UTF-8, "
                     "got other bytes, shown as '?'");
    ck_assert_ptr_nonnull(
        strstr(vx_repository_note(&listing, "n"), "the directory 'v?', not served"));
    for (i32 i = 0; i < vx_repository_odds(&listing); i++) {
        const struct vx_repository_odd *odd = &listing.odds[i];
        ck_assert(vx_utf8_is(odd->name, strlen(odd->name)));
        ck_assert(vx_utf8_is(odd->why.text, strlen(odd->why.text)));
    }
}
END_TEST

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

/* cp -p over a file of the same size, whose time an image's build or rsync has fixed. */
START_TEST(a_file_with_the_old_times_size_and_inode_is_another)
{
    char path[256], directory[256];
    struct stat before, after;
    struct vx_why why = {""};
    snprintf(path, sizeof path, "%s/m/1/weights.safetensors", root);
    snprintf(directory, sizeof directory, "%s/m", root);
    ck_assert_int_eq(stat(path, &before), 0);
    vx_repository_scan(root, &listing);
    u64 old = entry_find("m", 1)->fingerprint;
    do { /* file times have a resolution of milliseconds */
        make_file("m/1/weights.safetensors", "y");
        const struct timespec times[] = {before.st_atim, before.st_mtim};
        ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
        ck_assert_int_eq(stat(path, &after), 0);
    } while (!memcmp(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim));
    ck_assert_int_eq(before.st_size, after.st_size);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim), 0);
    ck_assert(vx_repository_check(directory, 1, old, &why).fault);
    vx_repository_scan(root, &listing);
    ck_assert_uint_ne(entry_find("m", 1)->fingerprint, old);
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
    /* True in every mode, and nothing of it is cut. */
    ck_assert_ptr_nonnull(strstr(why.text,
                                 "): SIGHUP loads the new ones; so does the next "
                                 "poll with --model-control poll, and a load by "
                                 "name with explicit"));
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
    ck_assert(listing.cut && !vx_repository_is_whole(&listing));
    ck_assert(!vx_repository_may_have(&listing, "m", 2)); /* before the last listed */
    ck_assert(!vx_repository_may_have(&listing, "n", 3));
    ck_assert(vx_repository_may_have(&listing, "n", 100 + VX_LISTING_MAX));
    ck_assert(vx_repository_may_have(&listing, "o", 1));
    /* m/1, m/12 and n/2 come first: of the others the highest are omitted. */
    ck_assert_int_eq(listing.entries[VX_LISTING_MAX - 1].version,
                     100 + VX_LISTING_MAX - 4);
    ck_assert_int_eq(listing.odds_count, 3); /* and 'empty', and a note about m */
    ck_assert_ptr_nonnull(
        strstr(vx_repository_problem(&listing), "the others are ignored"));
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
    Suite *suite = suite_create("repository");
    TCase *repository = tcase_create("repository");
    tcase_add_checked_fixture(repository, make_repository, remove_repository);
    tcase_add_test(repository, a_scan_lists_versions_and_says_what_is_odd);
    tcase_add_test(repository,
                   all_that_is_odd_is_said_and_what_looks_like_a_model_is_known);
    tcase_add_test(repository, a_version_is_a_number_as_people_write_it);
    tcase_add_test(repository, a_number_that_is_no_version_is_told_what_is_wrong_with_it);
    tcase_add_test(repository, a_directory_that_may_not_be_read_may_be_a_model);
    tcase_add_test(repository, what_is_no_model_makes_room_for_what_is);
    tcase_add_test(repository, what_is_no_version_beside_one_is_noted);
    tcase_add_test(repository, a_note_hides_nothing_that_is_not_served);
    tcase_add_test(repository, more_odd_things_than_are_kept_are_counted);
    tcase_add_test(repository, a_name_that_is_not_utf8_is_no_model_and_no_version);
    tcase_add_test(repository, a_listing_is_in_order);
    tcase_add_test(repository, a_change_on_disk_changes_the_fingerprint);
    tcase_add_test(repository, a_file_with_the_old_times_size_and_inode_is_another);
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
