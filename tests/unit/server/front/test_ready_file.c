/* The line that says where a server listens: old readers match all of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/front/ready_file.h"

#include <check.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *grpc, *said, *end;
} cases[] = {
    {"127.0.0.1:0", "127.0.0.1:7001", ""},
    {"[::1]:8001", "[::1]:7001", ""},
    {"localhost:0,127.0.0.2:9", "localhost:7001", ""},
    {"unix:/run/a.sock", "unix:/run/a.sock", ""},
    {"unix:/run/a.sock,unix:/run/b.sock", "unix:/run/a.sock", ""},
    {"127.0.0.1:0,unix:/run/a.sock", "127.0.0.1:7001", " unix=/run/a.sock"},
    {"unix:/run/a.sock,unix:/run/b.sock,[::1]:0", "[::1]:7001", " unix=/run/a.sock"},
    {"127.0.0.1:0,unix-abstract:name", "127.0.0.1:7001", " unix=@name"},
};

START_TEST(line_is_as_promised)
{
    struct vx_config config;
    vx_config_defaults(&config);
    snprintf(config.grpc, sizeof config.grpc, "%s", cases[_i].grpc);
    snprintf(config.http, sizeof config.http, "127.0.0.1:0");
    snprintf(config.ready_file, sizeof config.ready_file, "/tmp/test_ready_file.%d",
             (int)getpid());
    vx_ready_file_write(&config, strstr(cases[_i].said, "7001") ? 7001 : 0, 7002);
    char line[512] = "", expected[512];
    FILE *file = fopen(config.ready_file, "r");
    ck_assert_ptr_nonnull(file);
    size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    unlink(config.ready_file);
    line[got] = 0;
    snprintf(expected, sizeof expected, "grpc=%s http=127.0.0.1:7002 pid=%d%s\n",
             cases[_i].said, (int)getpid(), cases[_i].end);
    ck_assert_str_eq(line, expected);
}
END_TEST

/* The line of an earlier run names a server that is gone. */
START_TEST(a_plain_file_is_removed_and_nothing_else)
{
    struct vx_config config;
    struct stat there;
    char other[64];
    vx_config_defaults(&config);
    vx_ready_file_remove(&config); /* none is set */
    snprintf(other, sizeof other, "/tmp/test_ready_other.%d", (int)getpid());
    snprintf(config.ready_file, sizeof config.ready_file, "/tmp/test_ready_old.%d",
             (int)getpid());
    vx_ready_file_remove(&config); /* none is there */
    vx_ready_file_write(&config, 7001, 7002);
    vx_ready_file_remove(&config);
    ck_assert(lstat(config.ready_file, &there));
    vx_ready_file_write(&config, 7001, 7002);
    vx_ready_file_end(&config);
    ck_assert(lstat(config.ready_file, &there));
    vx_ready_file_write(&config, 7001, 7002);
    close(open(other, O_CREAT | O_WRONLY, 0600)); /* that of the next server */
    ck_assert(!rename(other, config.ready_file));
    vx_ready_file_end(&config);
    ck_assert(!lstat(config.ready_file, &there));
    unlink(config.ready_file);
    ck_assert(!symlink("/nowhere", config.ready_file));
    vx_ready_file_remove(&config);
    ck_assert(!unlink(config.ready_file));
    ck_assert(!mkfifo(config.ready_file, 0600));
    vx_ready_file_remove(&config);
    ck_assert(!unlink(config.ready_file));
}
END_TEST

/* A waiting program that made a pipe must not wait at one that no longer has a name. */
START_TEST(a_pipe_gets_the_line)
{
    struct vx_config config;
    struct stat about;
    char line[512] = "";
    vx_config_defaults(&config);
    snprintf(config.ready_file, sizeof config.ready_file, "/tmp/test_ready_pipe.%d",
             (int)getpid());
    ck_assert_int_eq(mkfifo(config.ready_file, 0600), 0);
    int reader = open(config.ready_file, O_RDONLY | O_NONBLOCK);
    vx_ready_file_write(&config, 7001, 7002);
    ck_assert_int_gt(read(reader, line, sizeof line - 1), 0);
    close(reader);
    ck_assert(!stat(config.ready_file, &about) && S_ISFIFO(about.st_mode));
    unlink(config.ready_file);
    ck_assert_ptr_nonnull(strstr(line, "http=127.0.0.1:7002 pid="));
}
END_TEST

static const struct {
    const char *path, *said; /* NULL: it can be written */
} places[] = {
    {"", NULL},
    {"/tmp/test_ready_file", NULL},
    {"test_ready_file", NULL}, /* where the test runs */
    {"/nowhere/ready", "ready_file: '/nowhere/ready' cannot be written: No such file or "
                       "directory; expected a "
                       "path in a directory that voxeld may write to"},
    {"/dev/null/ready",
     "ready_file: '/dev/null/ready' cannot be written: Not a directory"},
    {"/dev/null", NULL}, /* written into, no file is made in /dev */
    {"/tmp", "ready_file: expected the path of a file, got the directory '/tmp'"},
};

START_TEST(a_place_that_cannot_be_written_is_said_at_start)
{
    struct vx_config config;
    struct vx_why why = {""};
    vx_config_defaults(&config);
    snprintf(config.ready_file, sizeof config.ready_file, "%s", places[_i].path);
    vx_status st = vx_ready_file_expect(&config, &why);
    ck_assert_msg(!st.fault == !places[_i].said, "%s", why.text);
    if (st.fault)
        ck_assert_msg(strstr(why.text, places[_i].said) == why.text, "%s", why.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ready_file");
    TCase *tests = tcase_create("ready_file");
    tcase_add_loop_test(tests, line_is_as_promised, 0, (int)VX_COUNT(cases));
    tcase_add_test(tests, a_pipe_gets_the_line);
    tcase_add_test(tests, a_plain_file_is_removed_and_nothing_else);
    tcase_add_loop_test(tests, a_place_that_cannot_be_written_is_said_at_start, 0,
                        (int)VX_COUNT(places));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
