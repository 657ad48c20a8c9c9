/* The objects of the regions' tests are removed with their test, however it ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/server/regions/regions_rig.h"

#include "tests/support/wait.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static bool there(const char *key)
{
    int fd = shm_open(key, O_RDONLY, 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* The loop's index is the signal, and it is sent to the whole group, as Check does. */
START_TEST(a_test_that_is_killed_leaves_no_object)
{
    int up[2];
    char byte, key[64];
    ck_assert(!pipe(up));
    pid_t tester = fork();
    ck_assert_int_ge(tester, 0);
    if (!tester) {
        signal(SIGTERM, SIG_DFL); /* Check has a handler of its own */
        setpgid(0, 0);
        rig_set_up("unix");
        rig_object("killed", 100);
        rig_object("too", 100);
        if (write(up[1], "", 1) != 1) abort();
        for (;;) pause();
    }
    ck_assert_int_eq(read(up[0], &byte, 1), 1);
    for (i32 i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "/vx-regions-%d-%s", (int)tester, i ? "too" : "killed");
        ck_assert(there(key));
    }
    ck_assert(!killpg(tester, _i));
    ck_assert_int_eq(waitpid(tester, NULL, 0), tester);
    for (i32 i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "/vx-regions-%d-%s", (int)tester, i ? "too" : "killed");
        VX_WAIT_UNTIL_MSG(!there(key), "%s is still there", key);
    }
}
END_TEST

int main(void)
{
    static const int signals[] = {SIGKILL, SIGTERM};
    Suite *suite = suite_create("regions_rig");
    TCase *tests = tcase_create("objects");
    tcase_set_timeout(tests, 60);
    for (size_t i = 0; i < VX_COUNT(signals); i++)
        tcase_add_loop_test(tests, a_test_that_is_killed_leaves_no_object, signals[i],
                            signals[i] + 1);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
