/* Repositories that the scan cannot read whole: what may be in the rest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/repository/repository.h"

#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/voxeld-test-XXXXXX";
static struct vx_repository_listing listing;

static void make_repository(void)
{
    static const char *const folders[] = {"m", "m/1", "m/12", "n", "n/2"};
    char path[64];
    strcpy(root + strlen(root) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (size_t i = 0; i < VX_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        ck_assert_int_eq(mkdir(path, 0755), 0);
    }
}

static void remove_repository(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

static const struct vx_repository_odd *odd_find(const char *name)
{
    for (i32 i = 0; i < vx_repository_odds(&listing); i++)
        if (!strcmp(listing.odds[i].name, name)) return &listing.odds[i];
    return NULL;
}

/* The end of the path of a directory that fails after its first two entries. */
static const char *fail_in;

/* In place of libc's. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
struct dirent *readdir(DIR *directory)
{
    static struct dirent *(*real)(DIR *);
    static DIR *failing;
    static int left;
    char link[64], path[256] = "";
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    if (!fail_in) return real(directory);
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(directory));
    ssize_t length = readlink(link, path, sizeof path - 1),
            end = (ssize_t)strlen(fail_in);
    if (length < end || strcmp(path + length - end, fail_in)) return real(directory);
    if (failing != directory) left = 2;
    failing = directory;
    if (left--) return real(directory);
    errno = EIO;
    return NULL;
}

START_TEST(a_link_that_leads_nowhere_may_be_a_model)
{
    static const char *const links[][2] = {{"loop", "loop"}, {"gone", "/none/gone-1"}};
    char path[256];
    struct vx_why why;
    for (size_t i = 2; i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", root, links[i][0]);
        ck_assert_int_eq(symlink(links[i][1], path), 0);
        vx_repository_scan(root, &listing);
        ck_assert_ptr_nonnull(odd_find(links[i][0]));
        ck_assert(odd_find(links[i][0])->model);
        /* A broken link has no model; a directory that cannot be read may have one. */
        ck_assert_int_eq(vx_repository_is_whole(&listing), i == 1);
        ck_assert_int_eq(vx_repository_may_have(&listing, links[i][0], 1), i == 0);
        ck_assert(!vx_repository_may_have(&listing, "m", 2));
    }
    ck_assert_ptr_nonnull(strstr(odd_find("gone")->why.text, "to '/none/gone-1', "));
    ck_assert(vx_repository_why_absent(&listing, "gone", 0, &why)); /* clients get it */
    ck_assert_str_eq(why.text,
                     "model directory 'gone' cannot be read: No such file or directory: "
                     "it is a link to 'gone-1', which is not there");
}
END_TEST

START_TEST(of_more_unread_folders_than_are_kept_any_may_have_the_model)
{
    char path[64];
    for (int i = 0; i <= VX_REPOSITORY_UNREAD_MAX; i++) {
        vx_repository_scan(root, &listing);
        ck_assert_int_eq(listing.unread_count, i);
        ck_assert(!vx_repository_may_have(&listing, "other", 1));
        snprintf(path, sizeof path, "%s/loop%d", root, i);
        ck_assert_int_eq(symlink(path, path), 0);
    }
    vx_repository_scan(root, &listing);
    ck_assert(vx_repository_may_have(&listing, "other", 1));
}
END_TEST

/* The disk fails behind the first entries: 1 = in the repository, 2 = in one of its models. */
START_TEST(a_folder_that_is_read_in_part_is_not_read)
{
    fail_in = _i == 1 ? root : "/m";
    vx_repository_scan(root, &listing);
    fail_in = NULL;
    ck_assert(!vx_repository_is_whole(&listing));
    ck_assert_int_eq(listing.readable, _i == 2);
    ck_assert(vx_repository_may_have(&listing, "m", 2));
    ck_assert_int_eq(vx_repository_may_have(&listing, "n", 3), _i == 1);
    const struct vx_repository_odd *odd = odd_find(_i == 1 ? "" : "m");
    ck_assert_ptr_nonnull(odd);
    ck_assert_ptr_nonnull(strstr(odd->why.text, "Input/output error"));
}
END_TEST

/* Its entries can be listed, but not looked at. */
START_TEST(a_repository_that_may_only_be_listed_has_lost_no_model)
{
    bool is_root = geteuid() == 0;
    ck_assert_int_eq(chmod(root, 0444), 0);
    if (is_root) ck_assert_int_eq(seteuid(10001), 0);
    vx_repository_scan(root, &listing);
    if (is_root) ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(chmod(root, 0755), 0);
    ck_assert_int_eq(listing.count, 0);
    ck_assert(vx_repository_may_have(&listing, "m", 1));
    ck_assert(vx_repository_may_have(&listing, "n", 2));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("repository unread");
    TCase *unread = tcase_create("unread");
    tcase_add_checked_fixture(unread, make_repository, remove_repository);
    tcase_add_test(unread, a_link_that_leads_nowhere_may_be_a_model);
    tcase_add_test(unread, of_more_unread_folders_than_are_kept_any_may_have_the_model);
    tcase_add_loop_test(unread, a_folder_that_is_read_in_part_is_not_read, 1, 3);
    tcase_add_test(unread, a_repository_that_may_only_be_listed_has_lost_no_model);
    suite_add_tcase(suite, unread);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
