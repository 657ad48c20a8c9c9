/* Operators on rows that are parts of longer ones: the bits of the same rows side by side,
 * and nothing written between them; their references likewise.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/cpu/device/cpu.h"
#include "tests/support/cpu_cases.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define ROWS   75
#define WIDEST 70 /* channels */
#define V      5
#define SPARE  9 /* more elements in a row, at most */
#define ROOM   (ROWS * (V * WIDEST + SPARE))

static const i32 widths[] = {1, 5, 16, 32, 33, 64, WIDEST};

/* Rows of both inputs, side by side and apart, and what comes out of each. */
static f32 in[2][ROOM], apart[2][ROOM], out[ROOM], out_apart[ROOM];
static f32 weight[V * WIDEST * WIDEST], bias[WIDEST], scale[WIDEST];
static i32 nbr[V * ROWS];

/* The strides of a run: 0, or more than there are channels. */
struct strides {
    i32 a, b, out;
};

struct run {
    struct vx_cpu *cpu; /* NULL: the reference */
    i32 c;
    const f32 *a, *b;
    f32 *to;
    struct strides strides;
};

/* Channels of a row of the result. */
static i32 same(i32 c)
{
    return c;
}
static i32 blocks(i32 c)
{
    return V * c;
}

static struct vx_conv_args conv_args(const struct run *it, i32 groups)
{
    return (struct vx_conv_args){.n = ROWS,
                                 .v = V,
                                 .ci = it->c,
                                 .co = it->c,
                                 .groups = groups,
                                 .nbr = nbr,
                                 .in = it->a,
                                 .weight = weight,
                                 .bias = bias,
                                 .activation = VX_ACTIVATION_SILU,
                                 .out = it->to,
                                 .in_stride = it->strides.a,
                                 .out_stride = it->strides.out};
}

static void conv_run(const struct run *it, i32 groups)
{
    const struct vx_conv_args args = conv_args(it, groups);
    if (it->cpu)
        vx_cpu_conv(it->cpu, &args);
    else
        vx_conv_explicit_ref(&args);
}

static void run_conv(const struct run *it)
{
    conv_run(it, 1);
}

/* Of odd widths, where two do not divide them, it is the same as above. */
static void run_groups(const struct run *it)
{
    conv_run(it, it->c % 2 ? 1 : 2);
}

static void run_depthwise(const struct run *it)
{
    conv_run(it, it->c);
}

static void run_linear(const struct run *it)
{
    const struct vx_linear_args args = {.n = ROWS,
                                        .ci = it->c,
                                        .co = it->c,
                                        .in = it->a,
                                        .weight = weight,
                                        .bias = bias,
                                        .activation = VX_ACTIVATION_RELU,
                                        .out = it->to,
                                        .in_stride = it->strides.a,
                                        .out_stride = it->strides.out};
    if (it->cpu)
        vx_cpu_linear(it->cpu, &args);
    else
        vx_linear_ref(&args);
}

static void run_batch_norm(const struct run *it)
{
    const struct vx_batch_norm_args args = {.n = ROWS,
                                            .c = it->c,
                                            .in = it->a,
                                            .scale = scale,
                                            .shift = bias,
                                            .activation = VX_ACTIVATION_GELU,
                                            .out = it->to,
                                            .in_stride = it->strides.a,
                                            .out_stride = it->strides.out};
    if (it->cpu)
        vx_cpu_batch_norm(it->cpu, &args);
    else
        vx_batch_norm_ref(&args);
}

static void run_layer_norm(const struct run *it)
{
    const struct vx_layer_norm_args args = {.n = ROWS,
                                            .c = it->c,
                                            .eps = 1e-5f,
                                            .in = it->a,
                                            .weight = scale,
                                            .bias = bias,
                                            .activation = VX_ACTIVATION_SILU,
                                            .out = it->to,
                                            .in_stride = it->strides.a,
                                            .out_stride = it->strides.out};
    if (it->cpu)
        vx_cpu_layer_norm(it->cpu, &args);
    else
        vx_layer_norm_ref(&args);
}

static struct vx_pair_args pair_args(const struct run *it)
{
    return (struct vx_pair_args){.n = ROWS,
                                 .c = it->c,
                                 .a = it->a,
                                 .b = it->b,
                                 .activation = VX_ACTIVATION_RELU,
                                 .out = it->to,
                                 .a_stride = it->strides.a,
                                 .b_stride = it->strides.b,
                                 .out_stride = it->strides.out};
}

static void run_add(const struct run *it)
{
    const struct vx_pair_args args = pair_args(it);
    if (it->cpu)
        vx_cpu_add(it->cpu, &args);
    else
        vx_add_ref(&args);
}

static void run_mul(const struct run *it)
{
    const struct vx_pair_args args = pair_args(it);
    if (it->cpu)
        vx_cpu_mul(it->cpu, &args);
    else
        vx_mul_ref(&args);
}

static void run_gather(const struct run *it)
{
    const struct vx_row_gather_args args = {.n = ROWS,
                                            .v = V,
                                            .c = it->c,
                                            .kernel = {1, V, 1},
                                            .nbr = nbr,
                                            .in = it->a,
                                            .activation = VX_ACTIVATION_SIGMOID,
                                            .out = it->to,
                                            .in_stride = it->strides.a,
                                            .out_stride = it->strides.out};
    if (it->cpu)
        vx_cpu_row_gather(it->cpu, &args);
    else
        vx_row_gather_ref(&args);
}

static void pool_run(const struct run *it, enum vx_pool_mode mode)
{
    const struct vx_pool_args args = {.n = ROWS,
                                      .v = V,
                                      .c = it->c,
                                      .mode = mode,
                                      .nbr = nbr,
                                      .in = it->a,
                                      .activation = VX_ACTIVATION_RELU,
                                      .out = it->to,
                                      .in_stride = it->strides.a,
                                      .out_stride = it->strides.out};
    if (it->cpu)
        vx_cpu_pool(it->cpu, &args);
    else
        vx_pool_ref(&args);
}

static void run_max(const struct run *it)
{
    pool_run(it, VX_POOL_MAX);
}
static void run_avg(const struct run *it)
{
    pool_run(it, VX_POOL_AVG);
}

static const struct {
    const char *name;
    void (*run)(const struct run *it);
    i32 (*wide)(i32 c);
} operators[] = {
    {"conv", run_conv, same},
    {"groups", run_groups, same},
    {"depthwise", run_depthwise, same},
    {"linear", run_linear, same},
    {"batch_norm", run_batch_norm, same},
    {"layer_norm", run_layer_norm, same},
    {"add", run_add, same},
    {"mul", run_mul, same},
    {"row_gather", run_gather, blocks},
    {"max_pool", run_max, same},
    {"avg_pool", run_avg, same},
};

static f32 number(i32 e)
{
    return (f32)(e * 37 % 101 - 50) / 16;
}

static void numbers_make(i32 c, const struct strides *strides)
{
    const i32 stride[] = {strides->a, strides->b};
    for (i32 e = 0; e < V * WIDEST * WIDEST; e++) weight[e] = number(e + 3) / 8;
    for (i32 e = 0; e < WIDEST; e++) bias[e] = number(e), scale[e] = number(e + 7);
    for (i32 e = 0; e < V * ROWS; e++) nbr[e] = e % 3 ? e * 31 % ROWS : -1;
    for (i32 k = 0; k < 2; k++)
        for (i32 e = 0; e < ROWS * c; e++) {
            in[k][e] = number(e + k * 1000);
            apart[k][e / c * stride[k] + e % c] = in[k][e];
        }
}

static void check(struct vx_cpu *cpu, i32 operator, i32 c)
{
    const i32 wide = operators[operator].wide(c);
    const struct strides strides = {c + 3, c + SPARE, wide + 5};
    /* 1, 2: only what comes in, or goes out, lies apart. */
    for (i32 which = 1; which <= 3; which++) {
        struct strides mine = {0, 0, 0};
        if (which & 1) mine.a = strides.a, mine.b = strides.b;
        if (which & 2) mine.out = strides.out;
        numbers_make(c, &strides);
        memset(out, 0x11, sizeof out);
        memset(out_apart, 0x11, sizeof out_apart);
        operators[operator].run(&(struct run){cpu, c, in[0], in[1], out, {0, 0, 0}});
        operators[operator].run(&(struct run){cpu, c, which & 1 ? apart[0] : in[0],
                                              which & 1 ? apart[1] : in[1], out_apart,
                                              mine});
        const i32 stride = mine.out ? mine.out : wide;
        for (i32 i = 0; i < ROWS; i++)
            ck_assert_msg(!memcmp(out_apart + i * stride, out + i * wide,
                                  (size_t)wide * sizeof *out),
                          "%s: %d channels, row %d", operators[operator].name, c, i);
        f32 untouched;
        memset(&untouched, 0x11, sizeof untouched);
        for (i32 e = 0; e < ROOM; e++)
            if (e >= ROWS * stride || e % stride >= wide)
                ck_assert_msg(!memcmp(&out_apart[e], &untouched, sizeof untouched),
                              "%s: %d channels, element %d", operators[operator].name, c,
                              e);
    }
}

START_TEST(parts_have_the_bits_of_rows)
{
    struct vx_cpu *cpu;
    for (i32 index = 0; cpu_case_open(index, 2, &cpu); index++) {
        for (size_t w = 0; w < VX_COUNT(widths); w++) check(cpu, _i, widths[w]);
        vx_cpu_close(&cpu);
    }
}
END_TEST

START_TEST(references_know_parts)
{
    for (size_t w = 0; w < VX_COUNT(widths); w++) check(NULL, _i, widths[w]);
}
END_TEST

/* Of three inputs the middle one is there already; the last is part of other rows. */
START_TEST(a_concat_leaves_what_is_there)
{
    f32 expected[ROWS * 12];
    struct vx_cpu *cpu;
    struct vx_why why = {""};
    ck_assert(!vx_cpu_open(2, &why, &cpu).fault);
    for (i32 e = 0; e < ROWS * 12; e++) in[0][e] = number(e);
    for (i32 i = 0; i < ROWS; i++)
        for (i32 c = 0; c < 12; c++) {
            f32 *to = &expected[i * 12 + c];
            *to = -1;
            if (c < 3) *to = in[0][i * 3 + c];
            if (c >= 8) *to = in[0][i * 7 + c - 8];
        }
    for (i32 turn = 0; turn < 2; turn++) {
        for (i32 e = 0; e < ROWS * 12; e++) out[e] = -1;
        const struct vx_concat_args args = {
            .n = ROWS,
            .inputs = {{in[0], 3, 0}, {NULL, 5, 12}, {in[0], 4, 7}},
            .inputs_count = 3,
            .out = out};
        if (turn)
            vx_concat_ref(&args);
        else
            vx_cpu_concat(cpu, &args);
        ck_assert_mem_eq(out, expected, sizeof expected);
    }
    vx_cpu_close(&cpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_strides");
    TCase *tcase = tcase_create("cpu_strides");
    tcase_add_loop_test(tcase, parts_have_the_bits_of_rows, 0, VX_COUNT(operators));
    tcase_add_loop_test(tcase, references_know_parts, 0, VX_COUNT(operators));
    tcase_add_test(tcase, a_concat_leaves_what_is_there);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
