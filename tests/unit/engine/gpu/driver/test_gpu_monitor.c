/* gpu/monitor: the id, what the driver says, what NVML says, and what is left when there is none.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/thread.h"
#include "engine/gpu/driver/monitor.h"
#include "engine/gpu/driver/nvml.h"
#include "tests/support/wait.h"

#include <string.h>

static struct vx_gpu *gpu;
static struct vx_why why;

static void setup(void)
{
    const struct vx_gpu_options options = {.vendor = VX_GPU_FAKE};
    vx_thread_enter(VX_ROLE_DEVICE);
    ck_assert(!vx_gpu_open(&options, &why, &gpu).fault);
}

static void teardown(void)
{
    vx_gpu_close(&gpu);
}

/* Asks until the library has answered. */
static struct vx_gpu_stats wait_for(struct vx_gpu_monitor *monitor, i64 energy_mj)
{
    struct vx_gpu_stats stats = {0};
    VX_WAIT_UNTIL((vx_gpu_monitor_get(monitor, &stats), stats.energy_mj >= energy_mj));
    return stats;
}

START_TEST(library_and_driver_are_read)
{
    struct vx_gpu_monitor *monitor;
    ck_assert(!vx_gpu_monitor_open(gpu, FAKE_NVML, &why, &monitor).fault);
    struct vx_gpu_stats stats = wait_for(monitor, 5000);
    ck_assert_str_eq(stats.uuid, "GPU-fafafafa-fafa-fafa-fafa-fafafafafafa");
    ck_assert(stats.utilization_known && stats.power_known);
    ck_assert_int_eq(stats.utilization, 42);
    ck_assert_int_eq(stats.power_mw, 312500);
    ck_assert_int_eq(stats.power_limit_mw, 700000);
    ck_assert_int_eq(stats.energy_mj % 1000, 0);
    ck_assert_int_gt(stats.memory_bytes, 0);
    i64 used = stats.memory_bytes_used;
    void *memory;
    ck_assert(!vx_gpu_alloc(gpu, 1 << 20, &why, &memory).fault);
    vx_gpu_monitor_get(monitor, &stats);
    ck_assert_int_ge(stats.memory_bytes_used, used + (1 << 20));
    vx_gpu_free(gpu, &memory);
    /* It goes on polling by itself. */
    ck_assert_int_ge(wait_for(monitor, 6000).energy_mj, 6000);
    vx_gpu_monitor_close(&monitor);
    ck_assert_ptr_null(monitor);
    vx_gpu_monitor_close(&monitor);
}
END_TEST

/* Opens the monitor, waits for one reading, and closes it in less than half of its sleep of a
 * second. */
static bool closes_at_once(void)
{
    struct vx_gpu_monitor *monitor;
    ck_assert(!vx_gpu_monitor_open(gpu, FAKE_NVML, &why, &monitor).fault);
    (void)wait_for(monitor, 1);
    i64 begin_ns = vx_clock_ns();
    vx_gpu_monitor_close(&monitor);
    return vx_clock_ns() - begin_ns < VX_NS_PER_S / 2;
}

/* On a busy machine one or two closes may take long; a close that waits for the end of the sleep
 * always does. */
START_TEST(its_close_does_not_sleep_it_out)
{
    VX_WAIT_UNTIL(closes_at_once());
}
END_TEST

START_TEST(without_the_library_the_driver_is_read)
{
    static const char *const libraries[] = {NULL, "libnvidia-of-nobody.so", "libc.so.6"};
    for (size_t i = 0; i < VX_COUNT(libraries); i++) {
        struct vx_gpu_monitor *monitor;
        struct vx_gpu_stats stats;
        ck_assert(!vx_gpu_monitor_open(gpu, libraries[i], &why, &monitor).fault);
        vx_gpu_monitor_get(monitor, &stats);
        ck_assert_uint_eq(strlen(stats.uuid), 40);
        ck_assert_int_gt(stats.memory_bytes, 0);
        ck_assert(!stats.utilization_known && !stats.power_known);
        vx_gpu_monitor_close(&monitor);
    }
}
END_TEST

/* A reading is asked for now: each has a joule more than the one before. */
START_TEST(a_reading_is_of_now)
{
    struct vx_nvml nvml;
    ck_assert(vx_nvml_find(&nvml, gpu, FAKE_NVML) && vx_nvml_start(&nvml));
    struct vx_gpu_reading first = vx_nvml_read(&nvml), second = vx_nvml_read(&nvml);
    ck_assert(first.clock_known && first.energy_known);
    ck_assert_int_eq(first.clock_mhz, 1755);
    ck_assert_int_eq(second.energy_millijoules, first.energy_millijoules + 1000);
    vx_nvml_end(&nvml);
}
END_TEST

/* What an older library lacks is unknown; all else is as with a newer one. */
START_TEST(an_older_library_has_the_rest)
{
    struct vx_gpu_monitor *monitor;
    struct vx_nvml nvml;
    ck_assert(vx_nvml_find(&nvml, gpu, FAKE_NVML_OLD) && vx_nvml_start(&nvml));
    struct vx_gpu_reading now = vx_nvml_read(&nvml);
    ck_assert(!now.clock_known && now.energy_known);
    vx_nvml_end(&nvml);
    ck_assert(!vx_gpu_monitor_open(gpu, FAKE_NVML_OLD, &why, &monitor).fault);
    struct vx_gpu_stats stats = wait_for(monitor, 5000);
    ck_assert(stats.utilization_known && stats.power_known);
    vx_gpu_monitor_close(&monitor);
}
END_TEST

/* Every function but those that find the device may be missing. */
START_TEST(a_library_with_little_has_little)
{
    struct vx_nvml nvml;
    ck_assert(vx_nvml_find(&nvml, gpu, FAKE_NVML) && vx_nvml_start(&nvml));
    const struct vx_nvml_calls all = nvml.call;
    nvml.call.energy = NULL;
    ck_assert(!vx_nvml_stats(&nvml).power_known &&
              vx_nvml_stats(&nvml).utilization_known);
    ck_assert(vx_nvml_read(&nvml).clock_known && !vx_nvml_read(&nvml).energy_known);
    nvml.call = all;
    nvml.call.power = NULL;
    nvml.call.utilization = NULL;
    ck_assert(!vx_nvml_stats(&nvml).power_known &&
              !vx_nvml_stats(&nvml).utilization_known);
    nvml.call = all;
    nvml.call.power_limit = NULL;
    ck_assert(!vx_nvml_stats(&nvml).power_known);
    nvml.call = all;
    vx_nvml_end(&nvml);
}
END_TEST

START_TEST(a_device_of_nobody_is_not_started)
{
    struct vx_nvml nvml;
    ck_assert(vx_nvml_find(&nvml, gpu, FAKE_NVML));
    nvml.bus[0] = '0';
    ck_assert(!vx_nvml_start(&nvml));
    ck_assert(!vx_nvml_find(&nvml, gpu, NULL)); /* NVIDIA's own is not for the fake */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_monitor");
    TCase *tests = tcase_create("gpu_monitor");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, library_and_driver_are_read);
    tcase_add_test(tests, its_close_does_not_sleep_it_out);
    tcase_add_test(tests, without_the_library_the_driver_is_read);
    tcase_add_test(tests, a_reading_is_of_now);
    tcase_add_test(tests, an_older_library_has_the_rest);
    tcase_add_test(tests, a_library_with_little_has_little);
    tcase_add_test(tests, a_device_of_nobody_is_not_started);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
