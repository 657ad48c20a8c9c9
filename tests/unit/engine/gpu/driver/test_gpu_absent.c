/* Device files: what is said of a driver that finds no GPU, when its files are missing, or forbidden
 * to this user.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/gpu/driver/driver.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static char root[VX_TEST_PATH_BYTES];

static const struct {
    void (*fill)(struct vx_driver *driver);
    const char *nodes[2];
    const char *missing, *forbidden;
} vendors[] = {
    {vx_driver_cuda,
     {"/dev/nvidiactl", "/dev/nvidia-uvm"},
     "NVIDIA's kernel driver and its device files",
     "a file that this user may read and write"},
    {vx_driver_hip, {"/dev/kfd", NULL}, "the amdgpu kernel driver", "render or video"},
};

static void set_up(void)
{
    char dev[VX_TEST_PATH_BYTES + 8];
    vx_test_directory(root);
    snprintf(dev, sizeof dev, "%s/dev", root);
    ck_assert(!mkdir(dev, 0755) && !chmod(root, 0755));
}

static void tear_down(void)
{
    vx_test_remove(root);
}

static void node_make(const char *name, mode_t mode)
{
    char path[VX_TEST_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s%s", root, name);
    vx_test_write_file(path, "", 0);
    ck_assert(!chmod(path, mode));
}

static const char *cause(int vendor)
{
    static char text[VX_WHY_BYTES];
    struct vx_driver driver = {.root = root};
    text[0] = '\0';
    vendors[vendor].fill(&driver);
    driver.absent(&driver, text, sizeof text);
    return text;
}

START_TEST(missing)
{
    const char *said = cause(_i);
    ck_assert_msg(strstr(said, vendors[_i].nodes[0]) && strstr(said, "No such file") &&
                      strstr(said, vendors[_i].missing),
                  "%s", said);
}
END_TEST

START_TEST(there)
{
    for (int i = 0; i < 2 && vendors[_i].nodes[i]; i++)
        node_make(vendors[_i].nodes[i], 0600);
    ck_assert_str_eq(cause(_i), "");
}
END_TEST

/* Root may open every file, so a child that is nobody asks. */
START_TEST(forbidden)
{
    const int last = vendors[_i].nodes[1] ? 1 : 0;
    for (int i = 0; i <= last; i++) node_make(vendors[_i].nodes[i], i < last ? 0666 : 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        if (!geteuid() && setuid(NOBODY)) _exit(3);
        const char *said = cause(_i);
        bool good = strstr(said, vendors[_i].nodes[last]) &&
                    strstr(said, "Permission denied") &&
                    strstr(said, vendors[_i].forbidden);
        if (!good) fprintf(stderr, "%s\n", said);
        _exit(good ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

static Suite *absent_suite(void)
{
    Suite *suite = suite_create("gpu_absent");
    TCase *tcase = tcase_create("gpu_absent");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, missing, 0, (int)VX_COUNT(vendors));
    tcase_add_loop_test(tcase, there, 0, (int)VX_COUNT(vendors));
    tcase_add_loop_test(tcase, forbidden, 0, (int)VX_COUNT(vendors));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(absent_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
