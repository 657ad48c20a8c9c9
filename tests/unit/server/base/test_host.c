/* What is derived from the machine: its processors, its limit of open files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/base/host.h"

#include <check.h>
#include <stdlib.h>
#include <sys/resource.h>

START_TEST(rpc_threads_follow_the_processors_unless_said)
{
    static const i32 table[][2] = {{1, 2}, {2, 2}, {8, 2}, {15, 3}, {16, 4}, {128, 4}};
    struct vx_config config;
    vx_config_defaults(&config);
    for (size_t i = 0; i < VX_COUNT(table); i++)
        ck_assert_int_eq(vx_host_rpc_threads(&config, table[i][0]), table[i][1]);
    config.rpc_threads = 3;
    ck_assert_int_eq(vx_host_rpc_threads(&config, 128), 3);
}
END_TEST

START_TEST(nothing_spins_where_processors_are_few)
{
    struct vx_config config;
    vx_config_defaults(&config);
    config.spin_us = 70;
    ck_assert_int_eq(vx_host_spin_ns(&config, 7), 0);
    ck_assert_int_eq(vx_host_spin_ns(&config, 8), 70 * VX_NS_PER_US);
    config.spin_us = 0;
    ck_assert_int_eq(vx_host_spin_ns(&config, 64), 0);
    ck_assert_int_ge(vx_host_processors(), 1);
}
END_TEST

START_TEST(files_are_as_many_as_allowed)
{
    struct rlimit limit, now;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (i32 i = 0; i < 2; i++) {
        vx_host_raise_files();
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
        ck_assert(now.rlim_max == limit.rlim_max);
        ck_assert(now.rlim_cur == now.rlim_max || now.rlim_cur >= 1 << 18);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host");
    TCase *tcase = tcase_create("host");
    tcase_add_test(tcase, rpc_threads_follow_the_processors_unless_said);
    tcase_add_test(tcase, nothing_spins_where_processors_are_few);
    tcase_add_test(tcase, files_are_as_many_as_allowed);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
