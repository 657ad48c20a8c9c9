/* Rounding to e4m3 on the CPU: bit for bit kernels/e4m3.h, for every vector width.  Loops over
 * elements abort by hand: ck_assert reports each success through a pipe.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/e4m3.h"
#include "tests/support/cpu_cases.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same(f32 a, f32 b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void check_rounded(const struct vx_cpu *cpu, const struct vx_e4m3_args *args)
{
    for (i64 e = 0; e < args->n * args->c; e++) {
        const f32 x = args->in[e],
                  expected = vx_e4m3_round(x / args->scale) * args->scale;
        if (!same(args->out[e], expected))
            ck_abort_msg("%s: %.9g with scale %g: expected %.9g, got %.9g",
                         vx_cpu_name(cpu), (f64)x, (f64)args->scale, (f64)expected,
                         (f64)args->out[e]);
    }
}

static f32 of_bits(u32 bits)
{
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every f16, the neighbours of each middle between two numbers of e4m3, special values, and a
 * spread of all f32. */
START_TEST(test_every_number)
{
    static const f32 special[] = {0.0f,    -0.0f,         INFINITY, -INFINITY, NAN,
                                  448.0f,  464.0f,        464.01f,  3.4e38f,   -3.4e38f,
                                  1e-45f,  -1e-40f,       0x1p-9f,  0x1p-10f,  0x1.8p-10f,
                                  0x1p-6f, 0x1.fffffep-7f};
    enum { HALVES = 65536, MIDDLES = 3 * 127, SPREAD = 1 << 20 };
    const i64 count = HALVES + MIDDLES + (i64)VX_COUNT(special) + SPREAD;
    static u16 halves[HALVES];
    f32 *in = vx_alloc_aligned((size_t)count * sizeof *in);
    f32 *out = vx_alloc_aligned((size_t)count * sizeof *out);
    for (u32 e = 0; e < HALVES; e++) halves[e] = (u16)e;
    vx_convert_ref(
        &(struct vx_convert_args){HALVES, VX_NUMBER_F16, halves, VX_NUMBER_F32, in});
    for (i32 b = 0; b < 126; b++) {
        f32 *three = in + HALVES + 3 * (i64)b;
        three[0] = vx_e4m3_value((u8)b) / 2 + vx_e4m3_value((u8)(b + 1)) / 2;
        three[1] = nextafterf(three[0], INFINITY);
        three[2] = nextafterf(three[0], 0);
    }
    memset(in + HALVES + 3 * 126, 0, 3 * sizeof *in);
    memcpy(in + HALVES + MIDDLES, special, sizeof special);
    for (i64 e = 0; e < SPREAD; e++)
        in[HALVES + MIDDLES + (i64)VX_COUNT(special) + e] = of_bits((u32)e * 4093u);
    static const f32 scales[] = {1, 0.5f, 16, 0x1p-60f, 0x1p60f};
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        for (size_t s = 0; s < VX_COUNT(scales); s++) {
            const struct vx_e4m3_args args = {
                .n = count, .c = 1, .scale = scales[s], .in = in, .out = out};
            vx_cpu_e4m3(cpu, &args);
            check_rounded(cpu, &args);
        }
        vx_cpu_close(&cpu);
    }
    vx_free(in);
    vx_free(out);
}
END_TEST

/* Rows of any distance become dense ones, and nothing is written behind the last. */
START_TEST(test_strides)
{
    enum { N = 300, C_MOST = 70, PITCH = C_MOST + 9 };
    static f32 in[N * PITCH], out[N * C_MOST + 1];
    struct vx_test_random random = {5};
    vx_test_fill(&random, in, (size_t)N * PITCH, -500, 500);
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        for (i32 c = 1; c <= C_MOST; c += 1 + c / 4) {
            memset(out, 0x55, sizeof out);
            vx_cpu_e4m3(cpu, &(struct vx_e4m3_args){.n = N,
                                                    .c = c,
                                                    .scale = 0.5f,
                                                    .in = in,
                                                    .out = out,
                                                    .in_stride = PITCH});
            for (i64 row = 0; row < N; row++)
                for (i32 k = 0; k < c; k++) {
                    const f32 expected = vx_e4m3_round(in[row * PITCH + k] * 2) / 2;
                    if (!same(out[row * c + k], expected))
                        ck_abort_msg("%s: row %d, channel %d of %d", vx_cpu_name(cpu),
                                     (int)row, k, c);
                }
            ck_assert(same(out[N * c], of_bits(0x55555555)));
        }
        vx_cpu_close(&cpu);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_fp8");
    TCase *cases = tcase_create("cpu_fp8");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_every_number);
    tcase_add_test(cases, test_strides);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
