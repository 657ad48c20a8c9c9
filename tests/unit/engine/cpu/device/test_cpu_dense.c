/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "kernels/01_coord_hash.h"
#include "kernels/kernel.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* to_dense against its reference, of which a case is worked out by hand. */

#define BEHIND 16 /* bytes behind the tensor, which nobody may write */

static size_t bytes_of(const struct vx_to_dense_args *args)
{
    return (size_t)args->samples * (size_t)args->c * (size_t)args->shape[0] *
           (size_t)args->shape[1] * (size_t)args->shape[2] *
           (size_t)vx_number_bytes(args->type);
}

/* (2, 2, 1, 2, 3): two voxels of sample 1, their rows swapped; sample 0 has none. */
START_TEST(by_hand)
{
    const u64 keys[] = {vx_key_pack(1, 0, 0, 2), vx_key_pack(1, 0, 1, 0)};
    const i32 rows[] = {1, 0};
    const f32 in[] = {1, 2, 3, 4};
    f32 out[24], expected[24] = {[12 + 2] = 3, [12 + 3] = 1, [18 + 2] = 4, [18 + 3] = 2};
    memset(out, 0xff, sizeof out);
    vx_to_dense_ref(&(struct vx_to_dense_args){.n = 2,
                                               .c = 2,
                                               .samples = 2,
                                               .shape = {1, 2, 3},
                                               .keys = keys,
                                               .rows = rows,
                                               .in = in,
                                               .type = VX_NUMBER_F32,
                                               .out = out});
    ck_assert_mem_eq(out, expected, sizeof out);
}
END_TEST

static const struct {
    i32 samples, c, shape[3], every;
} cases[] = {{1, 1, {1, 1, 1}, 1},     {3, 5, {4, 7, 3}, 2},   {2, 300, {3, 5, 7}, 3},
             {1, 64, {9, 30, 31}, 5},  {5, 1, {2, 2, 2}, 100}, {0, 4, {3, 3, 3}, 1},
             {1, 300, {25, 24, 24}, 1}}; /* some hundred chunks */

START_TEST(as_the_reference)
{
    static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16};
    const i32 *shape = cases[_i / 3].shape, plane = shape[0] * shape[1] * shape[2];
    struct vx_to_dense_args args = {
        .c = cases[_i / 3].c, .samples = cases[_i / 3].samples, .type = types[_i % 3]};
    const i64 most = (i64)args.samples * plane;
    struct vx_cpu *cpu;
    struct vx_why why = {{0}};
    memcpy(args.shape, shape, sizeof args.shape);
    u64 *keys = vx_alloc((size_t)(most + 1) * sizeof *keys);
    i32 *rows = vx_alloc((size_t)(most + 1) * sizeof *rows);
    for (i64 i = 0; i < most; i += cases[_i / 3].every, args.n++)
        keys[args.n] = vx_key_pack(
            (i32)(i / plane), (i32)(i % plane) / shape[1] / shape[2],
            (i32)(i % plane) / shape[2] % shape[1], (i32)(i % plane) % shape[2]);
    for (i64 i = 0; i < args.n; i++) rows[i] = (i32)(args.n - 1 - i);
    f32 *in = vx_alloc((size_t)(args.n * args.c + 1) * sizeof *in);
    voxels_fill(&(struct voxels_random){7}, in, args.n * args.c);
    size_t bytes = bytes_of(&args);
    u8 *out = vx_alloc_aligned(bytes + BEHIND),
       *expected = vx_alloc_aligned(bytes + BEHIND);
    memset(out, 0xff, bytes + BEHIND);
    memset(expected, 0xff, bytes + BEHIND);
    args.keys = keys;
    args.rows = rows;
    args.in = in;
    args.out = expected;
    vx_to_dense_ref(&args);
    args.out = out;
    ck_assert(!vx_cpu_open(2, &why, &cpu).fault);
    vx_cpu_to_dense(cpu, &args);
    vx_cpu_close(&cpu);
    ck_assert(!memcmp(out, expected, bytes + BEHIND));
    vx_free(keys);
    vx_free(rows);
    vx_free(in);
    vx_free(out);
    vx_free(expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_dense");
    TCase *tcase = tcase_create("to_dense");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, by_hand);
    tcase_add_loop_test(tcase, as_the_reference, 0, 3 * (int)VX_COUNT(cases));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
