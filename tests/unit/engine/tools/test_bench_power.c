/* The clock and the power of a row: from samples to numbers, and the thread that takes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/thread.h"
#include "engine/tools/bench.h"
#include "tests/support/wait.h"

#define MS VX_NS_PER_MS

static struct vx_bench_sample samples[VX_BENCH_SAMPLES_MAX];

/* One every 10 ms: a clock, and a counter that moves by `step` millijoules every `every`-th. */
static void fill(i32 count, i32 clock_mhz, i64 step, i32 every)
{
    for (i32 i = 0; i < count; i++)
        samples[i] = (struct vx_bench_sample){
            10 * MS * i, {true, true, clock_mhz, 1000000 + i / every * step}};
}

START_TEST(of_none_nothing_is_known)
{
    struct vx_bench_draw draw = vx_bench_power_of(samples, 0);
    ck_assert(!draw.clock_known && !draw.watts_known);
}
END_TEST

START_TEST(a_few_are_too_few)
{
    fill(VX_BENCH_SAMPLES_MIN, 1500, 0, 1);
    ck_assert(!vx_bench_power_of(samples, VX_BENCH_SAMPLES_MIN - 1).clock_known);
    struct vx_bench_draw draw = vx_bench_power_of(samples, VX_BENCH_SAMPLES_MIN);
    ck_assert(draw.clock_known && !draw.watts_known);
    ck_assert_int_eq(draw.clock_mhz, 1500);
}
END_TEST

/* An idle clock in the first half does not count, nor does one reading that is off. */
START_TEST(a_clock_that_rises_has_risen)
{
    static const i32 clocks[] = {345, 345, 345, 600, 1980, 1965, 345, 1980, 1980};
    fill((i32)VX_COUNT(clocks), 0, 0, 1);
    for (i32 i = 0; i < (i32)VX_COUNT(clocks); i++)
        samples[i].reading.clock_mhz = clocks[i];
    struct vx_bench_draw draw = vx_bench_power_of(samples, (i32)VX_COUNT(clocks));
    ck_assert(draw.clock_known);
    ck_assert_int_eq(draw.clock_mhz, 1980);
}
END_TEST

START_TEST(a_reading_without_a_clock_is_left_out)
{
    fill(16, 1200, 0, 1);
    for (i32 i = 0; i < 16; i++)
        if (i % 2) samples[i].reading = (struct vx_gpu_reading){0};
    ck_assert_int_eq(vx_bench_power_of(samples, 16).clock_mhz, 1200);
    ck_assert(!vx_bench_power_of(samples, 6).clock_known);
}
END_TEST

/* 35 J every 50 ms are 700 W, wherever between two changes the first and last reading lie. */
START_TEST(power_is_from_change_to_change)
{
    fill(60, 1980, 35000, 5);
    for (i32 from = 0; from < 10; from++)
        for (i32 count = 40; count <= 50; count++) {
            struct vx_bench_draw draw = vx_bench_power_of(samples + from, count);
            ck_assert(draw.watts_known);
            ck_assert_double_eq_tol(draw.watts, 700, 1e-9);
        }
}
END_TEST

/* Readings without the counter, which an older library lacks, change nothing. */
START_TEST(a_reading_without_energy_is_left_out)
{
    fill(60, 1980, 35000, 5);
    for (i32 i = 0; i < 60; i++)
        if (i % 5 == 2) samples[i].reading = (struct vx_gpu_reading){0};
    ck_assert_double_eq_tol(vx_bench_power_of(samples, 60).watts, 700, 1e-9);
    for (i32 i = 0; i < 60; i++) samples[i].reading.energy_known = false;
    struct vx_bench_draw draw = vx_bench_power_of(samples, 60);
    ck_assert(draw.clock_known && !draw.watts_known);
}
END_TEST

/* The changes are at 50, 100, ... 250 ms: only the last one makes the window 200 ms long. */
START_TEST(a_short_window_has_no_power)
{
    fill(60, 1980, 35000, 5);
    ck_assert(!vx_bench_power_of(samples, 25).watts_known);
    ck_assert(vx_bench_power_of(samples, 26).watts_known);
}
END_TEST

START_TEST(a_counter_that_does_not_move_has_no_power)
{
    fill(200, 1980, 0, 1);
    ck_assert(!vx_bench_power_of(samples, 200).watts_known);
    samples[199].reading.energy_millijoules += 1000; /* one change is no window */
    ck_assert(!vx_bench_power_of(samples, 200).watts_known);
}
END_TEST

START_TEST(a_counter_that_falls_has_no_power)
{
    fill(200, 1980, 35000, 5);
    for (i32 i = 100; i < 200; i++) samples[i].reading.energy_millijoules -= 1000000;
    ck_assert(!vx_bench_power_of(samples, 200).watts_known);
}
END_TEST

START_TEST(every_second_sample_is_enough)
{
    fill(VX_BENCH_SAMPLES_MAX, 1980, 35000, 5);
    i32 left = vx_bench_power_thin(samples, VX_BENCH_SAMPLES_MAX);
    ck_assert_int_eq(left, VX_BENCH_SAMPLES_MAX / 2);
    for (i32 i = 0; i < left; i++) ck_assert_int_eq(samples[i].ns, 20 * MS * i);
    struct vx_bench_draw draw = vx_bench_power_of(samples, left);
    ck_assert_int_eq(draw.clock_mhz, 1980);
    ck_assert_double_eq_tol(draw.watts, 700, 0.5);
    ck_assert_int_eq(vx_bench_power_thin(samples, 1), 1);
}
END_TEST

/* ------- the thread ------- */

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

/* What is known of a row that takes `ns` or longer. */
static struct vx_bench_draw draw_of(struct vx_bench_power *power, i64 ns)
{
    ck_assert(!vx_bench_power_begin(power, &why).fault);
    i64 until = vx_clock_ns() + ns;
    VX_WAIT_UNTIL(vx_clock_ns() >= until);
    return vx_bench_power_end(power);
}

/* On a busy machine a thread may run too seldom in one window; not in each of them. */
static bool all_known(struct vx_bench_power *power, struct vx_bench_draw *draw)
{
    *draw = draw_of(power, 2 * VX_BENCH_POWER_NS);
    return draw->clock_known && draw->watts_known;
}

START_TEST(the_thread_reads_row_after_row)
{
    struct vx_bench_power *power;
    struct vx_bench_draw draw;
    ck_assert(!vx_bench_power_open(gpu, FAKE_NVML, &why, &power).fault);
    ck_assert_ptr_nonnull(power);
    for (int row = 0; row < 2; row++) {
        VX_WAIT_UNTIL(all_known(power, &draw));
        ck_assert_int_eq(draw.clock_mhz, 1755);
        ck_assert_double_gt(draw.watts, 0);
    }
    /* The samples of a row are its own: one that is too short for power has none. */
    VX_WAIT_UNTIL(!draw_of(power, 0).watts_known);
    vx_bench_power_close(&power);
    ck_assert_ptr_null(power);
    vx_bench_power_close(&power);
}
END_TEST

START_TEST(a_library_without_clocks_has_power)
{
    struct vx_bench_power *power;
    ck_assert(!vx_bench_power_open(gpu, FAKE_NVML_OLD, &why, &power).fault);
    struct vx_bench_draw draw = {0};
    VX_WAIT_UNTIL((draw = draw_of(power, 2 * VX_BENCH_POWER_NS)).watts_known);
    ck_assert(!draw.clock_known);
    vx_bench_power_close(&power);
}
END_TEST

START_TEST(without_a_library_nothing_is_known)
{
    static const char *const libraries[] = {NULL, "libnvidia-of-nobody.so", "libc.so.6"};
    for (size_t i = 0; i < VX_COUNT(libraries); i++) {
        struct vx_bench_power *power;
        ck_assert(!vx_bench_power_open(gpu, libraries[i], &why, &power).fault);
        ck_assert_ptr_null(power);
        ck_assert(!vx_bench_power_begin(power, &why).fault);
        struct vx_bench_draw draw = vx_bench_power_end(power);
        ck_assert(!draw.clock_known && !draw.watts_known);
        vx_bench_power_close(&power);
    }
}
END_TEST

/* ------- a row of the bench ------- */

static struct vx_bench bench;

/* Long enough that three warm-ups and two runs have power. */
static vx_status run_long(void *context, struct vx_why *unused)
{
    i64 until = vx_clock_ns() + 100 * MS;
    (void)context;
    (void)unused;
    VX_WAIT_UNTIL(vx_clock_ns() >= until);
    return VX_OK;
}

static vx_status run_badly(void *context, struct vx_why *unused)
{
    (void)context;
    (void)unused;
    VX_FAIL(UNAVAILABLE, "this run fails");
}

static bool row_known(struct vx_bench_row *row)
{
    struct vx_harness_timing timing = {.run = run_long};
    ck_assert(!vx_bench_time(&bench, &timing, row, &why).fault);
    return row->draw.clock_known && row->draw.watts_known;
}

/* A row that fails reads nothing any longer, and the next one is as if it had not been. */
START_TEST(a_row_has_them_after_one_that_failed)
{
    const struct vx_workbench_wanted wanted = {.device = "fake"};
    struct vx_harness_timing timing = {.run = run_badly};
    struct vx_bench_row row = {.what = "test"};
    bench = (struct vx_bench){.json = -1, .runs = 2};
    ck_assert(!vx_workbench_open(&wanted, &why, &bench.bench).fault);
    struct vx_workbench *device = &bench.bench;
    ck_assert(!vx_harness_open(device->set, device->stream, &why, &bench.harness).fault);
    ck_assert(!vx_bench_power_open(device->gpu, FAKE_NVML, &why, &bench.power).fault);
    ck_assert(vx_bench_time(&bench, &timing, &row, &why).fault);
    VX_WAIT_UNTIL(row_known(&row));
    ck_assert_int_eq(row.draw.clock_mhz, 1755);
    ck_assert_double_gt(row.draw.watts, 0);
    vx_harness_close(&bench.harness);
    vx_workbench_close(&bench.bench);
    vx_bench_power_close(&bench.power); /* it needs the device no longer */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_power");
    TCase *pure = tcase_create("samples"), *thread = tcase_create("thread");
    tcase_add_test(pure, of_none_nothing_is_known);
    tcase_add_test(pure, a_few_are_too_few);
    tcase_add_test(pure, a_clock_that_rises_has_risen);
    tcase_add_test(pure, a_reading_without_a_clock_is_left_out);
    tcase_add_test(pure, power_is_from_change_to_change);
    tcase_add_test(pure, a_reading_without_energy_is_left_out);
    tcase_add_test(pure, a_short_window_has_no_power);
    tcase_add_test(pure, a_counter_that_does_not_move_has_no_power);
    tcase_add_test(pure, a_counter_that_falls_has_no_power);
    tcase_add_test(pure, every_second_sample_is_enough);
    suite_add_tcase(suite, pure);
    tcase_add_checked_fixture(thread, setup, teardown);
    tcase_set_timeout(thread, 20);
    tcase_add_test(thread, the_thread_reads_row_after_row);
    tcase_add_test(thread, a_library_without_clocks_has_power);
    tcase_add_test(thread, without_a_library_nothing_is_known);
    tcase_add_test(thread, a_row_has_them_after_one_that_failed);
    suite_add_tcase(suite, thread);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
