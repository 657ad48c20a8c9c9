/* Measuring and its oracle, on the fake device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/log.h"
#include "engine/gpu/fake/fake.h"
#include "engine/tools/bench.h"
#include "engine/tune/measure.h"
#include "engine/tune/oracle.h"
#include "kernels/06_conv_masked.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct vx_workbench bench;

static void good(vx_status status, const struct vx_why *why)
{
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, why));
}

static void set_up(void)
{
    const struct vx_workbench_wanted wanted = {.device = "fake"};
    struct vx_why why = {""};
    good(vx_workbench_open(&wanted, &why, &bench), &why);
}

static void tear_down(void)
{
    vx_workbench_close(&bench);
}

static struct vx_conv_problem problem_of(i64 n, i32 edge, i32 channels,
                                         enum vx_number type)
{
    return (struct vx_conv_problem){.n = n,
                                    .kernel = {edge, edge, edge},
                                    .v = edge * edge * edge,
                                    .ci = channels,
                                    .co = channels,
                                    .type = type};
}

/* --- pure --- */

/* The bounds must detect one missing neighbour of 13, and a sum that was kept in 16 bits. */
START_TEST(test_bounds)
{
    static const i32 channels[] = {16, 64, 256, 1024, 2048};
    for (size_t i = 0; i < VX_COUNT(channels); i++) {
        const i32 ci = channels[i];
        const f64 neighbour = 1 / sqrt(27.0); /* spread of one neighbour's part */
        struct vx_oracle_bounds f16 = vx_oracle_bounds(VX_NUMBER_F16, 27, ci);
        struct vx_oracle_bounds bf16 = vx_oracle_bounds(VX_NUMBER_BF16, 27, ci);
        struct vx_oracle_bounds full = vx_oracle_bounds(VX_NUMBER_F32, 27, ci);
        ck_assert_double_lt(2 * (f16.round + f16.sum), neighbour / 2);
        ck_assert_double_lt(f16.nmse, neighbour * neighbour / 100);
        ck_assert_double_lt(full.nmse, f16.nmse);
        ck_assert_double_lt(f16.nmse, bf16.nmse);
        ck_assert_double_eq(f16.sum, bf16.sum);
        ck_assert_double_eq(f16.round, 1.0 / 2048);
        ck_assert_double_eq(bf16.round, 1.0 / 256);
    }
}
END_TEST

START_TEST(test_union)
{
    /* 5 blocks of one word, then of two. */
    static const u32 one[] = {1, 2, 4, 4, 8}, two[] = {1, 1, 2, 0, 0, 0};
    ck_assert_int_eq(vx_bench_union(one, 5, 1, 32), 5 * 32);
    ck_assert_int_eq(vx_bench_union(one, 5, 1, 64), (2 + 1 + 1) * 64);
    ck_assert_int_eq(vx_bench_union(one, 5, 1, 128), (3 + 1) * 128);
    ck_assert_int_eq(vx_bench_union(two, 3, 2, 64), 3 * 64);
    ck_assert_int_eq(vx_bench_union(two, 0, 2, 64), 0);
}
END_TEST

START_TEST(test_quantile)
{
    static const f64 sorted[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    ck_assert_double_eq(vx_harness_quantile(sorted, 11, 0.5), 6);
    ck_assert_double_eq(vx_harness_quantile(sorted, 11, 0.1), 2);
    ck_assert_double_eq(vx_harness_quantile(sorted, 11, 0.9), 10);
    ck_assert_double_eq(vx_harness_quantile(sorted, 1, 0.9), 1);
}
END_TEST

START_TEST(test_candidates)
{
    const struct vx_caps *caps = vx_arch_caps("sm_90a");
    const struct vx_conv_problem problem = problem_of(64160, 3, 128, VX_NUMBER_F16);
    struct vx_measure_want want = {.mode = VX_TUNE_ALL};
    struct vx_conv_choice all[VX_MEASURE_CANDIDATES_MAX], few[VX_MEASURE_CANDIDATES_MAX];
    i32 count = vx_measure_candidates(&want, &problem, caps, all);
    ck_assert_int_gt(count, 1);
    for (i32 i = 0; i < count; i++) {
        ck_assert(vx_conv_exact(&problem, all[i].algorithm));
        ck_assert(vx_conv_fits(&problem, &all[i], caps));
        if (i)
            ck_assert(vx_conv_cost(&problem, &all[i - 1], caps) <=
                      vx_conv_cost(&problem, &all[i], caps));
    }
    want.mode = VX_TUNE_AUTO;
    i32 best = vx_measure_candidates(&want, &problem, caps, few);
    ck_assert_int_eq(
        best, count < VX_MEASURE_CANDIDATES_AUTO ? count : VX_MEASURE_CANDIDATES_AUTO);
    for (i32 i = 0; i < best; i++) ck_assert_int_eq(few[i].tile, all[i].tile);
    want.algorithm =
        VX_CONV_MASKED_SPLIT; /* pinned: not in the layer's order, but runs */
    best = vx_measure_candidates(&want, &problem, caps, few);
    ck_assert_int_gt(best, 0);
    for (i32 i = 0; i < best; i++)
        ck_assert_int_eq(few[i].algorithm, VX_CONV_MASKED_SPLIT);
}
END_TEST

START_TEST(test_device_words)
{
    enum vx_gpu_vendor vendor;
    i32 index;
    static const char *const bad[] = {"",        "cuda:", "cuda:x", "cuda:-1", "cuda:0x",
                                      "cuda:64", "cud:0", "gpu",    "fake0",   ":0"};
    for (size_t i = 0; i < VX_COUNT(bad); i++)
        ck_assert_msg(!vx_workbench_device(bad[i], &vendor, &index), "%s", bad[i]);
    ck_assert(vx_workbench_device("cuda:3", &vendor, &index));
    ck_assert(vendor == VX_GPU_CUDA && index == 3);
    ck_assert(vx_workbench_device("fake", &vendor, &index));
    ck_assert(vendor == VX_GPU_FAKE && index == 0);
}
END_TEST

/* --- on the fake device --- */

static struct vx_measure_report report;

static void measure(const struct vx_conv_problem *problem,
                    const struct vx_measure_want *want, struct vx_tune_table *table)
{
    const struct vx_measure_device device = {bench.set, bench.jit, bench.stream};
    struct vx_measure *it;
    struct vx_why why = {""};
    good(vx_measure_open(&device, want, &why, &it), &why);
    good(vx_measure_ready(it, problem, NULL, &why), &why);
    good(vx_measure_conv(it, problem, &why, &report), &why);
    good(vx_measure_keep(bench.jit, &report, table, &why), &why);
    vx_measure_close(&it);
    ck_assert_ptr_null(it);
}

static const struct {
    i64 n;
    i32 edge, channels;
    enum vx_number type;
    enum vx_conv_algorithm algorithm;
} measured[] = {
    {192, 3, 16, VX_NUMBER_F16, VX_CONV_AUTO},
    {40, 3, 32, VX_NUMBER_BF16, VX_CONV_AUTO},
    {1, 3, 16, VX_NUMBER_F32, VX_CONV_AUTO},
    {65, 1, 48, VX_NUMBER_TF32, VX_CONV_AUTO},
    {70, 3, 16, VX_NUMBER_F16, VX_CONV_MASKED_SPLIT},
    {70, 3, 16, VX_NUMBER_F16, VX_CONV_PAIRS_LIST},
    {70, 5, 16, VX_NUMBER_F16, VX_CONV_EXPLICIT},
};

START_TEST(test_measure)
{
    const struct vx_conv_problem problem = problem_of(
        measured[_i].n, measured[_i].edge, measured[_i].channels, measured[_i].type);
    const struct vx_measure_want want = {.mode = VX_TUNE_AUTO,
                                         .algorithm = measured[_i].algorithm};
    struct vx_tune_table *table;
    struct vx_conv_choice choice;
    struct vx_pick pick;
    struct vx_why why = {""};
    good(vx_tune_table_open(vx_gpu_name(bench.gpu), &why, &table), &why);
    measure(&problem, &want, table);
    ck_assert_int_gt(report.count, 0);
    ck_assert_int_eq(report.rejected, 0);
    ck_assert_int_ge(report.best, 0);
    ck_assert(report.results[report.best].final);
    ck_assert_int_ge(report.pairs, problem.n); /* every voxel is its own neighbour */
    for (i32 i = 0; i < report.count; i++) ck_assert_double_gt(report.results[i].ns, 0);
    /* The choice that was measured is the one that is picked. */
    vx_pick_init(&pick, bench.jit, vx_gpu_caps(bench.gpu), vx_gpu_name(bench.gpu));
    pick.table = table;
    pick.algorithm = want.algorithm;
    ck_assert(vx_pick_conv(&pick, &problem, &choice));
    i32 picked = 0;
    while (report.results[picked].choice.algorithm != choice.algorithm ||
           report.results[picked].choice.tile != choice.tile)
        ck_assert_int_lt(++picked, report.count);
    ck_assert_double_eq(report.results[picked].ns, report.results[report.best].ns);
    vx_tune_table_close(&table);
}
END_TEST

/* One wrong element in any row is detected, and so is one that is not written. */
START_TEST(test_oracle_sees)
{
    const struct vx_conv_problem problem = problem_of(192, 3, 16, VX_NUMBER_F16);
    const struct vx_measure_want want = {.mode = VX_TUNE_AUTO};
    struct vx_conv_choice choices[VX_MEASURE_CANDIDATES_MAX];
    struct vx_measure_device device = {bench.set, bench.jit, bench.stream};
    struct vx_measure *it;
    struct vx_harness *stand;
    struct vx_oracle *oracle;
    struct vx_oracle_verdict verdict;
    struct vx_why why = {""};
    u16 element;
    good(vx_measure_open(&device, &want, &why, &it), &why);
    good(vx_measure_ready(it, &problem, NULL, &why), &why);
    ck_assert_int_gt(
        vx_measure_candidates(&want, &problem, vx_gpu_caps(bench.gpu), choices), 0);
    good(vx_harness_open(bench.set, bench.stream, &why, &stand), &why);
    good(vx_harness_load(stand, &problem, NULL, &why), &why);
    good(vx_harness_use(stand, &choices[0], &why), &why);
    good(vx_harness_run(stand, stand->out, &why), &why);
    good(vx_oracle_open(stand, &why, &oracle), &why);
    good(vx_oracle_compare(oracle, stand, &why, &verdict), &why);
    ck_assert(verdict.right && verdict.same);
    u8 *at = (u8 *)stand->out + 2 * (100 * 16 + 5);
    good(vx_gpu_copy_out(bench.gpu, bench.stream, &(struct vx_gpu_copy){&element, at, 2},
                         &why),
         &why);
    good(vx_gpu_stream_wait(bench.gpu, bench.stream, &why), &why);
    static const struct {
        u16 flip;
        bool right;
    } flips[] = {{1, true}, {0x0200, false}, {0x8000, false}, {0x7fff, false}};
    for (size_t i = 0; i < VX_COUNT(flips); i++) {
        u16 wrong = flips[i].flip == 0x7fff ? 0x7fff : (u16)(element ^ flips[i].flip);
        good(vx_gpu_copy_in(bench.gpu, bench.stream, &(struct vx_gpu_copy){at, &wrong, 2},
                            &why),
             &why);
        good(vx_oracle_compare(oracle, stand, &why, &verdict), &why);
        ck_assert(!verdict.same);
        ck_assert_int_eq(verdict.right, flips[i].right);
    }
    /* An oracle with a wrong answer of its own is refused: here all of it is poison. */
    vx_oracle_close(&oracle);
    good(vx_oracle_poison(stand, &why), &why);
    vx_status status = vx_oracle_open(stand, &why, &oracle);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INTERNAL);
    ck_assert_ptr_null(oracle);
    vx_harness_close(&stand);
    vx_measure_close(&it);
}
END_TEST

/* A kernel that computes what its reference does, but flips one bit of one element when
 * it gets block masks, as MASKED does. */
static u16 planted_flip;

static void planted_ref(const void *pointer, enum vx_number type)
{
    const struct vx_conv_device_args *args = pointer;
    vx_conv_spec(VX_CONV_MASKED)->ref(args, type);
    if (args->block_masks) ((u16 *)args->out)[args->n * args->co - 1] ^= planted_flip;
}

static const struct vx_kernel_spec *planted_find(const char *name)
{
    static struct vx_kernel_spec planted;
    if (strcmp(name, vx_conv_spec(VX_CONV_MASKED)->name) != 0)
        return vx_kernel_find(name);
    planted = *vx_conv_spec(VX_CONV_MASKED);
    planted.ref = planted_ref;
    return &planted;
}

/* A wrong tile is rejected, logged and never becomes a row; so is a tile with different bits. */
START_TEST(test_measure_rejects)
{
    static const u16 flips[] = {0x4000, 0x0001};
    const struct vx_conv_problem problem = problem_of(70, 3, 16, VX_NUMBER_F16);
    const struct vx_measure_want want = {.mode = VX_TUNE_ALL};
    struct vx_tune_table *table;
    struct vx_why why = {""};
    u64 logged = vx_log_count(VX_EVENT_TUNE_REJECTED);
    planted_flip = flips[_i];
    vx_fake_set(&(struct vx_fake_settings){.find = planted_find});
    good(vx_tune_table_open(vx_gpu_name(bench.gpu), &why, &table), &why);
    measure(&problem, &want, table);
    ck_assert_int_gt(report.rejected, 0);
    ck_assert_int_lt(report.rejected, report.count);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TUNE_REJECTED) - logged,
                      (u64)report.rejected);
    for (i32 i = 0; i < report.count; i++) {
        const struct vx_measure_result *result = &report.results[i];
        bool masked = result->choice.algorithm == VX_CONV_MASKED;
        ck_assert_int_eq(result->right, !masked);
        if (!masked) continue;
        ck_assert(result->ns == 0 && !result->final && !result->same);
        ck_assert_int_eq(result->worst > 1, planted_flip == 0x4000);
    }
    for (i32 i = 0; i < vx_tune_table_count(table); i++)
        ck_assert(vx_tune_table_row(table, i)->algorithm != VX_CONV_MASKED);
    vx_tune_table_close(&table);
    vx_fake_set(&(struct vx_fake_settings){.fail_call = 0});
}
END_TEST

/* Whichever call of the driver fails, its error is returned and nothing leaks. */
START_TEST(test_measure_torture)
{
    const struct vx_measure_device device = {bench.set, bench.jit, bench.stream};
    const struct vx_measure_want want = {.mode = VX_TUNE_AUTO};
    const struct vx_conv_problem problem = problem_of(8, 3, 16, VX_NUMBER_F16);
    const size_t before = vx_fake_memory_used();
    bool failed = true;
    for (i64 call = 1; failed; call += call < 60 ? 1 : 97) {
        struct vx_measure *it;
        struct vx_why why = {""};
        good(vx_measure_open(&device, &want, &why, &it), &why);
        good(vx_measure_ready(it, &problem, NULL, &why), &why);
        vx_fake_set(&(struct vx_fake_settings){.fail_call = call, .fail_code = 2});
        vx_status status = vx_measure_conv(it, &problem, &why, &report);
        failed = status.fault != NULL;
        if (failed) ck_assert(why.text[0]);
        vx_fake_set(&(struct vx_fake_settings){.fail_call = 0});
        vx_measure_close(&it);
        ck_assert_uint_eq(vx_fake_memory_used(), before);
    }
}
END_TEST

/* A device that is lost in the middle: it is reported once, and closing does not wait for it. */
START_TEST(test_measure_lost)
{
    const struct vx_measure_device device = {bench.set, bench.jit, bench.stream};
    const struct vx_measure_want want = {.mode = VX_TUNE_AUTO};
    const struct vx_conv_problem problem = problem_of(8, 3, 16, VX_NUMBER_F16);
    struct vx_measure *it;
    struct vx_why why = {""};
    good(vx_measure_open(&device, &want, &why, &it), &why);
    good(vx_measure_ready(it, &problem, NULL, &why), &why);
    vx_fake_set(&(struct vx_fake_settings){.lose_launch = 20});
    vx_status status = vx_measure_conv(it, &problem, &why, &report);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_UNAVAILABLE);
    ck_assert(vx_gpu_lost(bench.gpu, &why));
    vx_measure_close(&it);
    ck_assert_ptr_null(it);
}
END_TEST

START_TEST(test_measure_needs_mode)
{
    const struct vx_measure_device device = {bench.set, bench.jit, bench.stream};
    const struct vx_measure_want want = {.mode = VX_TUNE_TABLE};
    struct vx_measure *it;
    struct vx_why why = {""};
    vx_status status = vx_measure_open(&device, &want, &why, &it);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(it);
}
END_TEST

/* Of two clouds the fastest is the one with the least mean, among those that were measured twice on
 * either and are right on both. */
START_TEST(test_join)
{
    static struct vx_measure_report all, one;
    static const struct {
        f64 first, second, mean;
        bool right, finals[2];
    } cases[] = {{10, 40, 20, true, {true, true}},
                 {20, 5, 10, true, {true, false}},
                 {4, 4, 4, true, {false, false}},
                 {2, 2, 2, false, {true, true}}};
    all.count = one.count = (i32)VX_COUNT(cases);
    for (i32 i = 0; i < all.count; i++) {
        const struct vx_conv_choice choice = {VX_CONV_MASKED, i};
        all.results[i] = (struct vx_measure_result){.choice = choice,
                                                    .right = true,
                                                    .final = cases[i].finals[0],
                                                    .ns = cases[i].first};
        one.results[i] = (struct vx_measure_result){.choice = choice,
                                                    .right = cases[i].right,
                                                    .final = cases[i].finals[1],
                                                    .ns = cases[i].second};
    }
    vx_measure_join(&one, 1, &all);
    ck_assert_int_eq(all.best, 1);
    ck_assert_int_eq(all.rejected, 1);
    for (i32 i = 0; i < all.count; i++)
        ck_assert_double_eq_tol(all.results[i].ns, cases[i].mean, 1.5);
    vx_measure_join(&one, 2, &all); /* weighs a third */
    ck_assert_double_eq_tol(all.results[0].ns, 26, 1.5);
}
END_TEST

static Suite *measure_suite(void)
{
    Suite *suite = suite_create("measure");
    TCase *pure = tcase_create("pure");
    tcase_add_test(pure, test_bounds);
    tcase_add_test(pure, test_union);
    tcase_add_test(pure, test_quantile);
    tcase_add_test(pure, test_candidates);
    tcase_add_test(pure, test_device_words);
    tcase_add_test(pure, test_join);
    suite_add_tcase(suite, pure);
    TCase *device = tcase_create("device");
    tcase_set_timeout(device, 30); /* references in C, run a hundred times each */
    tcase_add_checked_fixture(device, set_up, tear_down);
    tcase_add_loop_test(device, test_measure, 0, (int)VX_COUNT(measured));
    tcase_add_test(device, test_oracle_sees);
    tcase_add_loop_test(device, test_measure_rejects, 0, 2);
    tcase_add_test(device, test_measure_torture);
    tcase_add_test(device, test_measure_lost);
    tcase_add_test(device, test_measure_needs_mode);
    suite_add_tcase(suite, device);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(measure_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
