/* access: why a file cannot be opened, for people.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/memory/access.h"

#include "engine/base/types.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRANGER 10001 /* as the container's image has it */

static char root[] = "/tmp/vx-access-XXXXXX", path[sizeof root + 16];
static unsigned owner;

static void set_up(void)
{
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(path, sizeof path, "%s/weights", root);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    owner = geteuid();
    ck_assert_int_eq(chmod(root, 0755), 0);
}

static void tear_down(void)
{
    if (geteuid() != owner) ck_assert_int_eq(seteuid(owner), 0);
    chmod(root, 0755);
    unlink(path);
    rmdir(root);
}

/* A user without access: root becomes another user, anybody else removes the permission. */
static void become_stranger(const char *what)
{
    if (owner)
        ck_assert_int_eq(chmod(what, 0), 0);
    else
        ck_assert_int_eq(seteuid(STRANGER), 0);
}

START_TEST(both_users_are_named)
{
    char room[VX_ACCESS_BYTES], expected[VX_ACCESS_BYTES];
    become_stranger(path);
    ck_assert_int_lt(open(path, O_RDONLY | O_CLOEXEC), 0);
    snprintf(
        expected, sizeof expected,
        "Permission denied: it belongs to user %u and has mode %s, and voxeld runs as "
        "user %u: chmod a+r it",
        owner, owner ? "0000" : "0600", (unsigned)geteuid());
    ck_assert_str_eq(vx_access_text(path, errno, room), expected);
}
END_TEST

START_TEST(what_may_not_be_read_is_permission_denied)
{
    struct vx_why why = {""};
    become_stranger(path);
    ck_assert_int_lt(open(path, O_RDONLY | O_CLOEXEC), 0);
    vx_status status = vx_access_failed(path, "m/network.json", errno, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_PERMISSION_DENIED);
    ck_assert_ptr_nonnull(strstr(why.text, "m/network.json: cannot be opened: Permission "
                                           "denied: it belongs to user"));
    status = vx_access_failed("/nowhere", "m", ENOENT, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_NOT_FOUND);
}
END_TEST

/* Others shall not read what a person has there. */
START_TEST(no_advice_to_open_a_home)
{
    char room[VX_ACCESS_BYTES];
    const char *text = vx_access_text("/root/", EACCES, room);
    ck_assert_msg(strstr(text, ": expected a directory of voxeld's own, not a home") &&
                      !strstr(text, "chmod"),
                  "%s", text);
    ck_assert_ptr_nonnull(strstr(vx_access_text("/usr", EACCES, room), "chmod a+rx it"));
}
END_TEST

/* Not everybody: TOKENS_OPEN and TLS_KEY_OPEN would warn of what was advised. */
START_TEST(a_secret_is_for_its_owner_and_group)
{
    char room[VX_ACCESS_BYTES];
    become_stranger(path);
    ck_assert_int_lt(open(path, O_RDONLY | O_CLOEXEC), 0);
    const char *text = vx_access_secret_text(path, errno, room);
    ck_assert_msg(strstr(text, ": chown it, or chgrp and chmod g+r it") &&
                      !strstr(text, "a+r"),
                  "%s", text);
}
END_TEST

START_TEST(a_directory_above_it_is_told)
{
    char room[VX_ACCESS_BYTES];
    ck_assert_int_eq(chmod(root, 0700), 0);
    become_stranger(root);
    ck_assert_int_lt(open(path, O_RDONLY | O_CLOEXEC), 0);
    ck_assert_ptr_nonnull(strstr(vx_access_text(path, errno, room),
                                 "may not enter one of the directories above it"));
}
END_TEST

START_TEST(other_reasons_are_the_systems)
{
    char room[VX_ACCESS_BYTES];
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("../blobs/5e7a", path), 0);
    ck_assert_str_eq(
        vx_access_text(path, ENOENT, room),
        "No such file or directory: it is a link to '../blobs/5e7a', which is "
        "not there");
    ck_assert_str_eq(vx_access_text("/nowhere", ENOENT, room),
                     "No such file or directory");
}
END_TEST

START_TEST(a_target_elsewhere_is_hidden)
{
    static const char *const sentences[][2] = {
        {"m: it is a link to '/srv/models/5e7a', which is not there",
         "m: it is a link to '5e7a', which is not there"},
        {"m: it is a link to '/5e7a', which is not there",
         "m: it is a link to '5e7a', which is not there"},
        {"m: it is a link to '/srv/mod", "m: it is a link to 'mod"}, /* cut to fit */
        {"m: it is a link to '../blobs/5e7a', which is not there",
         "m: it is a link to '../blobs/5e7a', which is not there"},
        {"expected / in '/a/b'", "expected / in '/a/b'"},
        {"", ""},
    };
    for (size_t i = 0; i < VX_COUNT(sentences); i++) {
        char sentence[VX_ACCESS_BYTES];
        snprintf(sentence, sizeof sentence, "%s", sentences[i][0]);
        vx_access_hide(sentence);
        ck_assert_str_eq(sentence, sentences[i][1]);
    }
}
END_TEST

START_TEST(a_kind_is_what_a_person_sees)
{
    struct stat about;
    ck_assert(!stat(root, &about));
    ck_assert_str_eq(vx_access_kind(&about), "a directory");
    ck_assert(!stat(path, &about));
    ck_assert_str_eq(vx_access_kind(&about), "an empty file");
    ck_assert(!truncate(path, 1) && !stat(path, &about));
    ck_assert_str_eq(vx_access_kind(&about), "a file");
    ck_assert(!unlink(path) && !mkfifo(path, 0600) && !stat(path, &about));
    ck_assert_str_eq(vx_access_kind(&about), "a named pipe");
    ck_assert(!stat("/dev/null", &about));
    ck_assert_str_eq(vx_access_kind(&about), "a device");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access");
    TCase *tcase = tcase_create("access");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, both_users_are_named);
    tcase_add_test(tcase, what_may_not_be_read_is_permission_denied);
    tcase_add_test(tcase, no_advice_to_open_a_home);
    tcase_add_test(tcase, a_secret_is_for_its_owner_and_group);
    tcase_add_test(tcase, a_directory_above_it_is_told);
    tcase_add_test(tcase, other_reasons_are_the_systems);
    tcase_add_test(tcase, a_target_elsewhere_is_hidden);
    tcase_add_test(tcase, a_kind_is_what_a_person_sees);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
