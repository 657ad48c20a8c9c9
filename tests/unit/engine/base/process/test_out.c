/* Files that are written whole or not at all, and what must not be replaced by one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/out.h"

#include <check.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[32], paths[4][64];

static void make_folder(void)
{
    static const char *const names[] = {"file", "link", "pipe", "none/file"};
    snprintf(folder, sizeof folder, "/tmp/test_out_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
}

/* Fails if something is left beside them. */
static void remove_folder(void)
{
    for (int i = 0; i < 3; i++) unlink(paths[i]);
    ck_assert_msg(!rmdir(folder), "something is left in %s", folder);
}

static int write_text(const char *path, const char *text, int flags)
{
    struct vx_out out;
    int error = vx_out_open(&out, path, 0640, flags);
    if (!error) error = vx_out_put(&out, text, strlen(text));
    return vx_out_end(&out, error);
}

static void expect_text(const char *path, const char *text)
{
    char got[64] = "";
    int file = open(path, O_RDONLY | O_NONBLOCK);
    ck_assert_int_ge(file, 0);
    ck_assert_int_ge(read(file, got, sizeof got - 1), 0);
    close(file);
    ck_assert_str_eq(got, text);
}

START_TEST(a_file_is_replaced_and_keeps_its_mode)
{
    struct stat before, after;
    umask(022);
    ck_assert_int_eq(write_text(paths[0], "one", 0), 0);
    ck_assert(!stat(paths[0], &before) && (before.st_mode & 0777) == 0640);
    ck_assert_int_eq(chmod(paths[0], 0604), 0);
    ck_assert_int_eq(write_text(paths[0], "2", 0), 0);
    ck_assert(!stat(paths[0], &after) && (after.st_mode & 0777) == 0604);
    ck_assert(before.st_ino != after.st_ino);
    expect_text(paths[0], "2");
}
END_TEST

START_TEST(a_failure_leaves_the_old_file)
{
    struct vx_out out;
    ck_assert_int_eq(write_text(paths[0], "one", 0), 0);
    ck_assert_int_eq(vx_out_open(&out, paths[0], 0600, 0), 0);
    ck_assert_int_eq(vx_out_put(&out, "two", 3), 0);
    ck_assert_int_eq(vx_out_end(&out, ECANCELED), ECANCELED);
    ck_assert_int_eq(vx_out_end(&out, 0), 0); /* nothing more to do */
    expect_text(paths[0], "one");
    ck_assert_int_eq(write_text(paths[3], "x", 0), ENOENT);
    ck_assert_int_eq(write_text(folder, "x", 0), EISDIR);
}
END_TEST

START_TEST(a_link_stays)
{
    struct stat about;
    ck_assert_int_eq(symlink(paths[0], paths[1]), 0); /* to nothing yet */
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(write_text(paths[1], i ? "two" : "one", 0), 0);
        ck_assert(!lstat(paths[1], &about) && S_ISLNK(about.st_mode));
        expect_text(paths[0], i ? "two" : "one");
    }
}
END_TEST

START_TEST(a_pipe_stays)
{
    struct stat about;
    char got[8] = "";
    ck_assert_int_eq(mkfifo(paths[2], 0600), 0);
    ck_assert_int_eq(write_text(paths[2], "x", O_NONBLOCK), ENXIO); /* nobody reads */
    int reader = open(paths[2], O_RDONLY | O_NONBLOCK);
    ck_assert_int_eq(write_text(paths[2], "one", 0), 0);
    ck_assert_int_eq(read(reader, got, sizeof got), 3);
    close(reader);
    ck_assert(!stat(paths[2], &about) && S_ISFIFO(about.st_mode));
}
END_TEST

START_TEST(a_device_stays)
{
    struct stat about;
    ck_assert_int_eq(symlink("/dev/full", paths[1]), 0);
    ck_assert_int_eq(write_text(paths[1], "x", 0), ENOSPC);
    ck_assert_int_eq(write_text("/dev/full", "x", 0), ENOSPC);
    ck_assert_int_eq(write_text("/dev/null", "x", 0), 0);
    ck_assert(!stat("/dev/full", &about) && S_ISCHR(about.st_mode));
    ck_assert(!stat("/dev/null", &about) && S_ISCHR(about.st_mode));
}
END_TEST

/* What a shell has redirected is neither replaced nor cut off. */
START_TEST(an_open_descriptor_is_written_into)
{
    char name[64];
    struct stat before, after;
    ck_assert_int_eq(write_text(paths[0], "log ", 0), 0);
    int file = open(paths[0], O_WRONLY | O_APPEND);
    ck_assert(file >= 0 && !fstat(file, &before));
    snprintf(name, sizeof name, "/dev/fd/%d", file);
    ck_assert_int_eq(write_text(name, "ready", 0), 0);
    close(file);
    ck_assert(!stat(paths[0], &after) && before.st_ino == after.st_ino);
    expect_text(paths[0], "log ready");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("out");
    TCase *tests = tcase_create("out");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, a_file_is_replaced_and_keeps_its_mode);
    tcase_add_test(tests, a_failure_leaves_the_old_file);
    tcase_add_test(tests, a_link_stays);
    tcase_add_test(tests, a_pipe_stays);
    tcase_add_test(tests, a_device_stays);
    tcase_add_test(tests, an_open_descriptor_is_written_into);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
