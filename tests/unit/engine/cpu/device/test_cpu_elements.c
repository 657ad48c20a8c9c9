/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/cpu/device/cpu.h"
#include "tests/support/cpu_cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Activations and conversions over all the numbers there are.  Loops over elements abort by hand:
 * ck_assert reports each success through a pipe. */

static f32 *floats(i64 count)
{
    f32 *values = vx_alloc_aligned((size_t)count * sizeof *values);
    VX_ASSERT(values);
    return values;
}

static const enum vx_activation activations[] = {
    VX_ACTIVATION_NONE, VX_ACTIVATION_RELU,    VX_ACTIVATION_SILU,
    VX_ACTIVATION_GELU, VX_ACTIVATION_SIGMOID,
};

static u32 bits_of(f32 value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The same bits, or both NaN. */
static bool same(f32 a, f32 b)
{
    return (isnan(a) && isnan(b)) || bits_of(a) == bits_of(b);
}

/* The whole range of f32, every 4093rd number, and special values. */
START_TEST(test_activation)
{
    static const f32 special[] = {0.0f,      -0.0f,   INFINITY, -INFINITY, NAN,
                                  1e-40f,    -1e-40f, 3.4e38f,  -3.4e38f,  87.3f,
                                  -87.3f,    88.8f,   -88.8f,   13.3f,     -13.3f,
                                  -87.2999f, 1e-20f,  -1e-20f,  5.5f,      -5.5f};
    enum vx_activation activation = activations[_i];
    i64 count = (i64)(UINT64_C(0x100000000) / 4093) + (i64)VX_COUNT(special);
    f32 *in = floats(count);
    f32 *out = floats(count);
    memcpy(in, special, sizeof special);
    for (i64 e = (i64)VX_COUNT(special); e < count; e++) {
        u32 bits = (u32)((u64)(e - (i64)VX_COUNT(special)) * 4093);
        memcpy(&in[e], &bits, sizeof bits);
    }
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        const struct vx_activation_args args = {count, 1, activation, in, out};
        vx_cpu_activation(cpu, &args);
        for (i64 e = 0; e < count; e++) {
            f64 x = (f64)in[e];
            f64 y = vx_activation_ref_one(activation, x);
            if (isnan(y) || isinf(y)) {
                if (!same(out[e], (f32)y))
                    ck_abort_msg("%s: %g: expected %g, got %g", vx_cpu_name(cpu), x, y,
                                 (f64)out[e]);
                continue;
            }
            f64 bound = cpu_activation_bound(activation, x, y);
            if (fabs((f64)out[e] - y) > bound)
                ck_abort_msg("%s: %.9g: expected %.9g, got %.9g, bound %.3g",
                             vx_cpu_name(cpu), x, y, (f64)out[e], bound);
        }
        vx_cpu_close(&cpu);
    }
    vx_free(in);
    vx_free(out);
}
END_TEST

enum { HALVES = 65536, TYPES = 2 }; /* F16, BF16 */

/* Before a device is open, which flushes subnormal numbers in this thread. */
static void half_expect(const u16 *from, f32 wide[TYPES][HALVES],
                        u16 to[TYPES][TYPES][HALVES])
{
    for (int type = 0; type < TYPES; type++) {
        struct vx_convert_args args = {HALVES, (enum vx_number)(VX_NUMBER_F16 + type),
                                       from, VX_NUMBER_F32, wide[type]};
        vx_convert_ref(&args);
        for (int to_type = 0; to_type < TYPES; to_type++) {
            args.to_type = (enum vx_number)(VX_NUMBER_F16 + to_type);
            args.to = to[type][to_type];
            vx_convert_ref(&args);
        }
    }
}

/* Every 16-bit number to all three types: exact. */
START_TEST(test_convert_from_16_bits)
{
    static u16 from[HALVES], to[HALVES], to_expected[TYPES][TYPES][HALVES];
    static f32 wide[HALVES], wide_expected[TYPES][HALVES];
    for (u32 e = 0; e < HALVES; e++) from[e] = (u16)e;
    half_expect(from, wide_expected, to_expected);
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        for (int type = 0; type < TYPES; type++) {
            struct vx_convert_args args = {HALVES, (enum vx_number)(VX_NUMBER_F16 + type),
                                           from, VX_NUMBER_F32, wide};
            vx_cpu_convert(cpu, &args);
            ck_assert_mem_eq(wide, wide_expected[type], sizeof wide);
            for (int to_type = 0; to_type < TYPES; to_type++) {
                args.to_type = (enum vx_number)(VX_NUMBER_F16 + to_type);
                args.to = to;
                vx_cpu_convert(cpu, &args);
                ck_assert_mem_eq(to, to_expected[type][to_type], sizeof to);
            }
        }
        vx_cpu_close(&cpu);
    }
}
END_TEST

/* Every 16-bit number, the two neighbours of each boundary between numbers, and a spread of all
 * f32: exact, ties to even. */
START_TEST(test_convert_from_f32)
{
    enum { COUNT = 6 * 65536 };
    f32 *from = floats(COUNT);
    u16 *to = vx_alloc(COUNT * sizeof *to);
    u16 *expected = vx_alloc(COUNT * sizeof *expected);
    enum vx_number type = _i ? VX_NUMBER_BF16 : VX_NUMBER_F16;
    for (u32 e = 0; e < 65536; e++) {
        u32 middle = e << 16 | 0x8000; /* between two bf16 */
        u16 half[2] = {(u16)e, (u16)(e + 1)};
        f32 two[2];
        vx_convert_ref(
            &(struct vx_convert_args){2, VX_NUMBER_F16, half, VX_NUMBER_F32, two});
        for (u32 d = 0; d < 3; d++) {
            u32 bits = middle + d - 1;
            memcpy(&from[e * 6 + d], &bits, sizeof bits);
        }
        f32 between = two[0] / 2 + two[1] / 2;
        from[e * 6 + 3] = between;
        from[e * 6 + 4] = nextafterf(between, INFINITY);
        from[e * 6 + 5] = nextafterf(between, -INFINITY);
    }
    struct vx_cpu *cpu;
    struct vx_convert_args args = {COUNT, VX_NUMBER_F32, from, type, expected};
    vx_convert_ref(&args); /* it computes, and an open device flushes subnormal numbers */
    args.to = to;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        vx_cpu_convert(cpu, &args);
        for (i64 e = 0; e < COUNT; e++)
            if (to[e] != expected[e])
                ck_abort_msg("%s: %.9g: expected %04x, got %04x", vx_cpu_name(cpu),
                             (f64)from[e], (unsigned)expected[e], (unsigned)to[e]);
        vx_cpu_close(&cpu);
    }
    vx_free(from);
    vx_free(to);
    vx_free(expected);
}
END_TEST

/* However many there are: each is converted, and nothing is written behind the last. */
START_TEST(test_convert_counts)
{
    static const i64 counts[] = {0,     1,     1023,  1024,  1025,
                                 16383, 16384, 16385, 17409, 40000};
    static u16 from[40000], to[40001];
    for (i32 e = 0; e < 40000; e++) from[e] = (u16)(0x3c00 + e % 1024); /* 1 to 2 */
    struct vx_cpu *cpu;
    for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) {
        for (size_t c = 0; c < VX_COUNT(counts); c++) {
            memset(to, 0x55, sizeof to);
            vx_cpu_convert(cpu, &(struct vx_convert_args){counts[c], VX_NUMBER_F16, from,
                                                          VX_NUMBER_BF16, to});
            for (i64 e = 0; e < counts[c]; e++) {
                u16 expected;
                vx_convert_ref(&(struct vx_convert_args){1, VX_NUMBER_F16, &from[e],
                                                         VX_NUMBER_BF16, &expected});
                if (to[e] != expected) ck_abort_msg("%d of %d", (int)e, (int)counts[c]);
            }
            ck_assert_uint_eq(to[counts[c]], 0x5555);
        }
        vx_cpu_close(&cpu);
    }
}
END_TEST

START_TEST(test_convert_by_hand)
{
    static const struct {
        f32 from;
        u16 f16, bf16;
    } cases[] = {{1.0f, 0x3c00, 0x3f80},          {-2.0f, 0xc000, 0xc000},
                 {65504.0f, 0x7bff, 0x4780},      {65520.0f, 0x7c00, 0x4780},
                 {65519.996f, 0x7bff, 0x4780},    {1e9f, 0x7c00, 0x4e6e},
                 {5.9604645e-8f, 0x0001, 0x3380}, {2.9802322e-8f, 0x0000, 0x3300},
                 {8.9406967e-8f, 0x0002, 0x33c0}, {0.0f, 0x0000, 0x0000},
                 {-0.0f, 0x8000, 0x8000},         {INFINITY, 0x7c00, 0x7f80},
                 {1.00390625f, 0x3c04, 0x3f80},   {1.01171875f, 0x3c0c, 0x3f82}};
    struct vx_cpu *cpu;
    ck_assert(cpu_case_open(0, 1, &cpu));
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        u16 got[2], expected[2];
        for (int type = 0; type < 2; type++) {
            struct vx_convert_args args = {1, VX_NUMBER_F32, &cases[i].from,
                                           type ? VX_NUMBER_BF16 : VX_NUMBER_F16,
                                           &got[type]};
            vx_cpu_convert(cpu, &args);
            args.to = &expected[type];
            vx_convert_ref(&args);
        }
        ck_assert_uint_eq(got[0], cases[i].f16);
        ck_assert_uint_eq(got[1], cases[i].bf16);
        ck_assert_mem_eq(got, expected, sizeof got);
    }
    vx_cpu_close(&cpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_elements");
    TCase *cases = tcase_create("cpu_elements");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_activation, 0, (int)VX_COUNT(activations));
    tcase_add_test(cases, test_convert_from_16_bits);
    tcase_add_loop_test(cases, test_convert_from_f32, 0, 2);
    tcase_add_test(cases, test_convert_counts);
    tcase_add_test(cases, test_convert_by_hand);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
