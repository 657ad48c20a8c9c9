/* Kernels whose rows may be parts of longer rows: they make the same bits as with rows of their
 * own, read nothing between the rows, and leave what is there alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "kernels/04_conv_gather.h"
#include "kernels/07_conv_reduce.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/16_row_gather.h"
#include "kernels/17_pool.h"
#include "kernels/18_group_norm.h"
#include "kernels/30_sample_pool.h"
#include "kernels/kernel.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N      7
#define V      4
#define CI     16
#define CO     32
#define GROUPS 2
/* Elements from a row to the next where rows are parts. */
#define WIDE_IN       48
#define WIDE_OUT      80
#define WIDE_RESIDUAL 64

static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                       VX_NUMBER_TF32};
#define TYPES 4

/* -1: no neighbour. */
static const i32 nbr[N * V] = {0, 1, -1, 3, -1, -1, -1, -1, 6, 5, 4, 3,  2, -1,
                               1, 0, 5,  5, 5,  -1, 2,  3,  4, 6, 0, -1, 6, 1};
static const u32 masks[N] = {11, 0, 15, 13, 7, 15, 13};
static f32 bias[CO], scale[CO], partial[GROUPS * N * CO];

/* What a kernel reads and writes: `in` and `residual` of known numbers, all else NaN. */
struct rows {
    enum vx_number type;
    i32 in_stride, residual_stride, out_stride;
    void *in, *residual, *out, *weight;
};

static void *rows_make(enum vx_number type, i64 count)
{
    void *made = vx_alloc((size_t)(count + 1) * (size_t)vx_number_bytes(type));
    for (i64 e = 0; e <= count; e++) vx_number_ref_write(made, type, e, NAN);
    return made;
}

static void *rows_filled(enum vx_number type, const i32 size[2], i32 stride, i32 seed)
{
    void *made = rows_make(type, (i64)size[0] * stride);
    for (i32 i = 0; i < size[0]; i++)
        for (i32 c = 0; c < size[1]; c++)
            vx_number_ref_write(made, type, (i64)i * stride + c,
                                (f64)((i * 31 + c * 7 + seed) % 23 - 11) / 4);
    return made;
}

static struct rows rows_open(enum vx_number type, bool wide)
{
    struct rows rows = {.type = type,
                        .in_stride = wide ? WIDE_IN : CI,
                        .residual_stride = wide ? WIDE_RESIDUAL : CO,
                        .out_stride = wide ? WIDE_OUT : CO};
    rows.in = rows_filled(type, (i32[]){N, CI}, rows.in_stride, 1);
    rows.residual = rows_filled(type, (i32[]){N, CO}, rows.residual_stride, 2);
    rows.weight = rows_filled(type, (i32[]){V * CI, CO}, CO, 3);
    rows.out = rows_make(type, N * WIDE_OUT);
    for (i32 o = 0; o < CO; o++) bias[o] = (f32)(o % 5), scale[o] = (f32)(o % 3 - 1);
    for (i32 e = 0; e < GROUPS * N * CO; e++) partial[e] = (f32)(e % 29 - 14) / 2;
    return rows;
}

static void rows_close(struct rows *rows)
{
    vx_free(rows->in);
    vx_free(rows->residual);
    vx_free(rows->weight);
    vx_free(rows->out);
}

/* --- the kernels --- */

/* Rows that a kernel writes, so many channels of each, and from a row to the next. */
struct written {
    i32 rows, channels, stride;
};

static struct vx_conv_device_args conv_args(const struct rows *rows)
{
    return (struct vx_conv_device_args){.n = N,
                                        .v = V,
                                        .words = 1,
                                        .nbr_stride = V,
                                        .ci = CI,
                                        .co = CO,
                                        .in_stride = rows->in_stride,
                                        .residual_stride = rows->residual_stride,
                                        .out_stride = rows->out_stride,
                                        .groups = 1,
                                        .activation = VX_ACTIVATION_RELU,
                                        .used = CO - 5,
                                        .nbr = nbr,
                                        .masks = masks,
                                        .in = rows->in,
                                        .weight = rows->weight,
                                        .bias = bias,
                                        .residual = rows->residual,
                                        .out = rows->out};
}

static void run(const char *name, const void *args, enum vx_number type)
{
    vx_kernel_find(name)->ref(args, type);
}

static struct written run_masked(const struct rows *rows)
{
    const struct vx_conv_device_args args = conv_args(rows);
    run("conv_masked", &args, rows->type);
    return (struct written){N, CO, rows->out_stride};
}

static struct written run_reduce(const struct rows *rows)
{
    struct vx_conv_device_args args = conv_args(rows);
    args.groups = GROUPS;
    args.partial = partial;
    run("conv_reduce", &args, rows->type);
    return (struct written){N, CO, rows->out_stride};
}

static struct written run_pair_reduce(const struct rows *rows)
{
    const struct vx_pair_reduce_args args = {.n = N,
                                             .v = V,
                                             .nbr_stride = V,
                                             .co = CO,
                                             .residual_stride = rows->residual_stride,
                                             .out_stride = rows->out_stride,
                                             .used = CO - 5,
                                             .places = nbr,
                                             .partial = partial,
                                             .bias = bias,
                                             .residual = rows->residual,
                                             .out = rows->out};
    run("pair_reduce", &args, rows->type);
    return (struct written){N, CO, rows->out_stride};
}

static struct written run_batch_norm(const struct rows *rows)
{
    const struct vx_batch_norm_device_args args = {.n = N,
                                                   .cp = CI,
                                                   .in = rows->in,
                                                   .scale = scale,
                                                   .shift = bias,
                                                   .out = rows->out,
                                                   .in_stride = rows->in_stride,
                                                   .out_stride = rows->out_stride};
    run("batch_norm", &args, rows->type);
    return (struct written){N, CI, rows->out_stride};
}

static struct written run_pool(const struct rows *rows)
{
    const struct vx_pool_device_args args = {.n = N,
                                             .v = V,
                                             .nbr_stride = V,
                                             .c = CI - 3,
                                             .cp = CI,
                                             .mode = VX_POOL_AVG,
                                             .nbr = nbr,
                                             .in = rows->in,
                                             .out = rows->out,
                                             .in_stride = rows->in_stride,
                                             .out_stride = rows->out_stride};
    run("pool", &args, rows->type);
    return (struct written){N, CI, rows->out_stride};
}

/* Two blocks of 15 channels from rows of 16. */
static struct written run_row_gather(const struct rows *rows)
{
    const struct vx_row_gather_device_args args = {.n = N,
                                                   .v = 2,
                                                   .c = CI - 1,
                                                   .kernel = {1, 2, 1},
                                                   .blocks = 1,
                                                   .nbr_stride = V,
                                                   .in_cp = rows->in_stride,
                                                   .cp = CO,
                                                   .nbr = nbr,
                                                   .in = rows->in,
                                                   .out = rows->out,
                                                   .out_stride = rows->out_stride};
    run("row_gather", &args, rows->type);
    return (struct written){N, CO, rows->out_stride};
}

static struct written run_layer_norm(const struct rows *rows)
{
    const struct vx_layer_norm_device_args args = {.n = N,
                                                   .c = CI - 3,
                                                   .cp = CI,
                                                   .eps = 1,
                                                   .in = rows->in,
                                                   .weight = scale,
                                                   .out = rows->out,
                                                   .in_stride = rows->in_stride,
                                                   .out_stride = rows->out_stride};
    run("layer_norm", &args, rows->type);
    return (struct written){N, CI, rows->out_stride};
}

/* One sample, of all rows, in the order of `order`. */
static const i32 starts[] = {0, N}, count[] = {1}, order[N] = {3, 1, 0, 6, 5, 2, 4};
#define SLOTS 4

static struct written run_group_norm(const struct rows *rows)
{
    f64 sums[SLOTS * CI], mean[GROUPS], scales[GROUPS];
    struct vx_group_norm_device_args args = {.n = N,
                                             .samples_max = 1,
                                             .c = CI,
                                             .cp = CI,
                                             .groups = GROUPS,
                                             .eps = 1,
                                             .starts = starts,
                                             .count = count,
                                             .rows = order,
                                             .in = rows->in,
                                             .partial = sums,
                                             .mean = mean,
                                             .scale = scales,
                                             .out = rows->out,
                                             .in_stride = rows->in_stride};
    ck_assert_int_le(vx_sample_slots(N, 1), SLOTS);
    for (args.squares = 0; args.squares < 2; args.squares++) {
        run("group_sums", &args, rows->type);
        run("group_means", &args, rows->type);
    }
    run("group_apply", &args, rows->type);
    return (struct written){N, CI, CI};
}

static struct written run_sample_pool(const struct rows *rows)
{
    static const i32 places[] = {0};
    f64 sums[SLOTS * CI];
    const struct vx_sample_pool_args args = {.n = N,
                                             .samples_max = 1,
                                             .c = CI,
                                             .cp = CI,
                                             .mode = VX_POOL_SUM,
                                             .starts = starts,
                                             .count = count,
                                             .rows = order,
                                             .places = places,
                                             .in = rows->in,
                                             .partial = sums,
                                             .out = rows->out,
                                             .in_stride = rows->in_stride};
    run("sample_chunks", &args, rows->type);
    run("sample_pool", &args, rows->type);
    return (struct written){1, CI, CI};
}

static struct written (*const kernels[])(const struct rows *) = {
    run_masked, run_reduce,     run_pair_reduce, run_batch_norm, run_layer_norm,
    run_pool,   run_row_gather, run_group_norm,  run_sample_pool};

static bool same(const struct rows *a, i64 at, const struct rows *b, i64 there)
{
    const size_t bytes = (size_t)vx_number_bytes(a->type);
    return !memcmp((u8 *)a->out + (size_t)at * bytes,
                   (u8 *)b->out + (size_t)there * bytes, bytes);
}

START_TEST(test_parts_of_rows)
{
    struct rows own = rows_open(types[_i % TYPES], false);
    struct rows wide = rows_open(types[_i % TYPES], true);
    const struct written a = kernels[_i / TYPES](&own), b = kernels[_i / TYPES](&wide);
    for (i64 at = 0; at < N * WIDE_OUT; at++) {
        const i64 row = at / b.stride, c = at % b.stride, there = row * a.stride + c;
        if (row >= b.rows || c >= b.channels) {
            ck_assert(isnan(vx_number_ref_read(wide.out, wide.type, at)));
            continue;
        }
        ck_assert(!isnan(vx_number_ref_read(own.out, own.type, there)));
        ck_assert(same(&wide, at, &own, there));
    }
    rows_close(&own);
    rows_close(&wide);
}
END_TEST

/* A residual in place: the same rows are read and written. */
START_TEST(test_in_place)
{
    struct rows own = rows_open(types[_i], false), wide = rows_open(types[_i], true);
    struct vx_conv_device_args args = conv_args(&own);
    run("conv_masked", &args, own.type);
    args = conv_args(&wide);
    args.out_stride = args.residual_stride;
    args.out = wide.residual;
    run("conv_masked", &args, wide.type);
    for (i32 i = 0; i < N; i++)
        for (i32 c = 0; c < WIDE_RESIDUAL; c++) {
            const f64 got =
                vx_number_ref_read(wide.residual, wide.type, (i64)i * WIDE_RESIDUAL + c);
            if (c >= CO)
                ck_assert(isnan(got));
            else
                ck_assert_double_eq(
                    got, vx_number_ref_read(own.out, own.type, (i64)i * CO + c));
        }
    rows_close(&own);
    rows_close(&wide);
}
END_TEST

START_TEST(test_gather_to_a_panel)
{
    struct rows own = rows_open(types[_i], false), wide = rows_open(types[_i], true);
    const struct rows *both[] = {&own, &wide};
    const size_t bytes =
        (size_t)((N - 1) * V * CI + 1) * (size_t)vx_number_bytes(types[_i]);
    void *panels[2];
    for (i32 k = 0; k < 2; k++) {
        panels[k] = rows_make(types[_i], (N - 1) * V * CI);
        run("conv_gather",
            &(struct vx_conv_gather_args){.first = 1,
                                          .rows = N - 1,
                                          .v = V,
                                          .nbr_stride = V,
                                          .ci = CI,
                                          .in_stride = both[k]->in_stride,
                                          .nbr = nbr,
                                          .in = both[k]->in,
                                          .panel = panels[k]},
            types[_i]);
    }
    ck_assert(!memcmp(panels[0], panels[1], bytes));
    for (i64 e = 0; e < (N - 1) * V * CI; e++)
        ck_assert(!isnan(vx_number_ref_read(panels[1], types[_i], e)));
    vx_free(panels[0]);
    vx_free(panels[1]);
    rows_close(&own);
    rows_close(&wide);
}
END_TEST

/* An input of a concat that is in out already is left alone, the first or the last; the others
 * and the padding are written, and theirs is not read. */
START_TEST(test_concat_in_place)
{
    const enum vx_number type = types[_i % TYPES];
    static const i32 channels[] = {16, 3, 13, 20}, begins[] = {0, 16, 19, 32};
    const i32 cp = 64, there = _i / TYPES ? 3 : 0;
    void *inputs[4], *out = rows_filled(type, (i32[]){N, cp}, cp, 9);
    struct vx_concat_device_args args = {.n = N, .inputs_count = 4, .cp = cp, .out = out};
    for (i32 k = 0; k < 4; k++) {
        inputs[k] = rows_filled(type, (i32[]){N, channels[k]}, WIDE_IN, k);
        args.inputs[k] = (struct vx_concat_device_input){k == there ? NULL : inputs[k],
                                                         channels[k], WIDE_IN};
    }
    run("concat", &args, type);
    void *before = rows_filled(type, (i32[]){N, cp}, cp, 9);
    for (i32 i = 0; i < N; i++)
        for (i32 c = 0; c < cp; c++) {
            const i32 k = c < 16 ? 0 : c < 19 ? 1 : c < 32 ? 2 : 3;
            f64 expected = 0;
            if (c < begins[k] + channels[k])
                expected =
                    vx_number_ref_read(inputs[k], type, i * WIDE_IN + c - begins[k]);
            if (k == there && c < begins[k] + channels[k])
                expected = vx_number_ref_read(before, type, i * cp + c);
            ck_assert_double_eq(vx_number_ref_read(out, type, i * cp + c), expected);
        }
    for (i32 k = 0; k < 4; k++) vx_free(inputs[k]);
    vx_free(out);
    vx_free(before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_strides");
    TCase *cases = tcase_create("kernels_strides");
    tcase_add_loop_test(cases, test_parts_of_rows, 0, (int)VX_COUNT(kernels) * TYPES);
    tcase_add_loop_test(cases, test_in_place, 0, TYPES);
    tcase_add_loop_test(cases, test_gather_to_a_panel, 0, TYPES);
    tcase_add_loop_test(cases, test_concat_in_place, 0, 2 * TYPES);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
