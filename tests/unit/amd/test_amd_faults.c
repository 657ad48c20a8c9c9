/* Kernels with a mistake are reported by the fibers, for the right reason; the same kernels
 * without it run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/faults.h"
#include "tests/amd/rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS AMD_FAULT_THREADS
#define FAILED  719 /* hipErrorLaunchFailure */
#define SEEDS   12

static struct amd_image wave64, wave32;

struct
try {
    const struct amd_image *image;
    const char *arch, *kernel;
    u32 place, other; /* arguments */
    u32 shared;       /* bytes of dynamic shared memory */
    i32 seed;
    u32 out[THREADS];
    char why[256];
};

static struct try try_of(const char *kernel)
{
    return (struct try){.image = &wave64, .arch = "gfx942", .kernel = kernel, .seed = 1};
}

/* Runs the kernel on a device of its own; the code of the launch or of the wait. */
static int run(struct try *it)
{
    struct amd_rig rig;
    char settings[64];
    (void)snprintf(settings, sizeof settings, "arch=%s seed=%d", it->arch, it->seed);
    amd_rig_open(&rig, settings);
    u32 *in = amd_rig_memory(&rig, THREADS * sizeof *in);
    u32 *out = amd_rig_memory(&rig, THREADS * sizeof *out);
    for (u32 i = 0; i < THREADS; i++) in[i] = i * 2654435761u;
    struct amd_fault_args args = {in, out, it->place, it->other};
    int code = amd_rig_run(&rig, &(struct amd_run){.image = it->image,
                                                   .kernel = it->kernel,
                                                   .args = &args,
                                                   .threads = THREADS,
                                                   .shared = it->shared});
    memcpy(it->out, out, sizeof it->out);
    (void)snprintf(it->why, sizeof it->why, "%s", rig.why());
    amd_rig_free(&rig, in);
    amd_rig_free(&rig, out);
    amd_rig_close(&rig);
    return code;
}

static void ck_reported(struct try *it, const char *part)
{
    int code = run(it);
    ck_assert_msg(code == FAILED, "%s: code %d, \"%s\"", it->kernel, code, it->why);
    ck_assert_msg(strstr(it->why, part) != NULL, "%s: \"%s\" lacks \"%s\"", it->kernel,
                  it->why, part);
}

static bool exchanged(const struct try *it)
{
    for (u32 i = 0; i < THREADS; i++)
        if (it->out[i] != (i + 77) % THREADS * 2654435761u) return false;
    return true;
}

/* --- barriers --- */

START_TEST(test_barrier_orders)
{
    struct try it = try_of(_i ? "address_in_32_bits" : "exchange");
    for (it.seed = 0; it.seed < SEEDS; it.seed++) {
        ck_assert_int_eq(run(&it), 0);
        ck_assert_msg(exchanged(&it), "%s, seed %d", it.kernel, it.seed);
    }
}
END_TEST

START_TEST(test_missing_barrier)
{
    struct try it = try_of("exchange_without_barrier");
    i32 wrong = 0;
    for (it.seed = 1; it.seed <= SEEDS; it.seed++) {
        ck_assert_int_eq(run(&it), 0);
        wrong += !exchanged(&it);
    }
    ck_assert_int_gt(wrong, SEEDS / 2);
}
END_TEST

START_TEST(test_barrier_of_some)
{
    struct try it = try_of("barrier_of_some");
    it.place = 40;
    ck_reported(&it, "40 of 128 threads reach it");
    it.place = THREADS;
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[THREADS - 1], 2);
}
END_TEST

START_TEST(test_other_barriers)
{
    struct try it = try_of("two_barriers");
    ck_reported(&it, "at different barriers");
    it = try_of("barrier_and_ballot");
    it.place = 10;
    ck_reported(&it, "diverged lanes");
    it.place = 64;
    ck_assert_int_eq(run(&it), 0);
}
END_TEST

/* --- waves --- */

/* in[i] is odd where i is. */
START_TEST(test_lanes_of_a_wave)
{
    struct try it = try_of("wave_count");
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[0], 32);
    it.kernel = "wave_count_of_32"; /* right on 32 lanes, wrong on 64 */
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_ne(it.out[0], 32);
    it.image = &wave32;
    it.arch = "gfx1100";
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[0], 16);
    it.kernel = "wave_count";
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[0], 16);
}
END_TEST

START_TEST(test_diverged)
{
    struct try it = try_of("diverged");
    it.place = 10;
    ck_reported(&it, "diverged lanes at operations of the wave: lane 0 waits at ballot");
    it.place = 64;
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[3], 0xaaaaaaaau);
    it.place = 0;
    it.other = 70; /* modulo the lanes: 6 */
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[64], 70 * 2654435761u);
}
END_TEST

START_TEST(test_shuffle_from_nobody)
{
    struct try it = try_of("shuffle_after_leaving");
    it.place = 32;
    it.other = 40;
    ck_reported(&it, "reads from lane 40, which has left");
    it.other = 31;
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[70], (64 + 31) * 2654435761u);
}
END_TEST

/* --- memory --- */

START_TEST(test_static_overrun)
{
    struct try it = try_of("static_write");
    it.place = it.other = 99;
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[0], 7);
    it.place = 100; /* the first word that it does not have */
    ck_reported(&it, "shared memory that it does not have");
    it = try_of("static_write");
    it.other = 5000; /* reads count too */
    ck_reported(&it, "shared memory that it does not have");
}
END_TEST

START_TEST(test_dynamic_overrun)
{
    struct try it = try_of("dynamic_write");
    it.shared = 400;
    it.place = it.other = 99;
    ck_assert_int_eq(run(&it), 0);
    ck_assert_uint_eq(it.out[0], 7);
    it.place = 100;
    ck_reported(&it, "writes beyond its shared memory");
    it.place = 1024; /* on the next page */
    ck_reported(&it, "shared memory that it does not have");
}
END_TEST

/* All of it, and one byte more. */
START_TEST(test_shared_bytes)
{
    struct try it = try_of("dynamic_write");
    it.shared = 65536;
    it.place = it.other = 16383;
    ck_assert_int_eq(run(&it), 0);
    it.shared = 65537;
    ck_assert_int_eq(run(&it), 1);
    it = try_of("exchange"); /* 512 bytes of its own */
    it.shared = 65536 - 512;
    ck_assert_int_eq(run(&it), 0);
    it.shared += 4;
    ck_assert_int_eq(run(&it), 1);
}
END_TEST

START_TEST(test_garbage)
{
    struct try it = try_of("untouched");
    u32 zeros = 0;
    it.shared = THREADS * 4;
    ck_assert_int_eq(run(&it), 0);
    for (u32 i = 0; i < THREADS; i++) zeros += it.out[i] == 0;
    ck_assert_uint_lt(zeros, 3);
}
END_TEST

START_TEST(test_device_overrun)
{
    struct try it = try_of("device_write");
    it.place = THREADS - 1;
    ck_assert_int_eq(run(&it), 0);
    it.place = THREADS; /* the buffer ends with its page */
    ck_reported(&it, "thread 0 accesses memory that is not there");
}
END_TEST

/* --- texts that hip_clang must refuse --- */

START_TEST(test_refused)
{
    static const struct {
        const char *define, *part;
    } rows[] = {
        {"-DREFUSED=1", "llvm.amdgcn.s.memrealtime: an intrinsic that is not known"},
        {"-DREFUSED=2", "erff: AMD's compiler has no such function"},
        {"-DREFUSED=3", "inline assembly"},
        {"-DREFUSED=4", "bytes of shared memory in a block"},
        {"-DREFUSED=5", "error:"}, /* of clang itself */
    };
    char words[4096];
    const char *const defines[] = {rows[_i].define, NULL};
    amd_rig_refused(&(struct amd_text){"tests/amd/refused.cu", "gfx942", defines}, words,
                    sizeof words);
    ck_assert_msg(strstr(words, rows[_i].part) != NULL, "\"%s\" lacks \"%s\"", words,
                  rows[_i].part);
}
END_TEST

static void compile_all(void)
{
    wave64 = amd_rig_compile(&(struct amd_text){"tests/amd/faults.cu", "gfx942", NULL});
    wave32 = amd_rig_compile(&(struct amd_text){"tests/amd/faults.cu", "gfx1100", NULL});
}

int main(void)
{
    Suite *suite = suite_create("amd_faults");
    TCase *tcase = tcase_create("faults");
    tcase_set_timeout(tcase, 60);
    tcase_add_unchecked_fixture(tcase, compile_all, NULL);
    tcase_add_loop_test(tcase, test_barrier_orders, 0, 2);
    tcase_add_test(tcase, test_missing_barrier);
    tcase_add_test(tcase, test_barrier_of_some);
    tcase_add_test(tcase, test_other_barriers);
    tcase_add_test(tcase, test_lanes_of_a_wave);
    tcase_add_test(tcase, test_diverged);
    tcase_add_test(tcase, test_shuffle_from_nobody);
    tcase_add_test(tcase, test_static_overrun);
    tcase_add_test(tcase, test_dynamic_overrun);
    tcase_add_test(tcase, test_shared_bytes);
    tcase_add_test(tcase, test_garbage);
    tcase_add_test(tcase, test_device_overrun);
    tcase_add_loop_test(tcase, test_refused, 0, 5);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
