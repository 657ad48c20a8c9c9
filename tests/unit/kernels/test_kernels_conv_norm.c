/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/35_conv_norm.h"
#include "kernels/kernel.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>

/* The reference against the definition, in whole numbers: layer norm of two channels without
 * eps gives -1 and 1, so every type holds every number exactly. */

#define N       7
#define V       3
#define STRIDE  4 /* of neighbours */
#define CI      16
#define CO      16
#define ROW_OUT (CO + 16)
#define C       2
#define BETWEEN 5 /* what lies between rows, and where no row of the order is */

struct layer {
    i32 in[N][CI], weight[V][CI][C], bias[C], residual[N][C], scale[C], shift[C];
    i32 nbr[N][STRIDE];
};

static void fill(struct voxels_random *random, i32 *values, i64 count, i32 most)
{
    for (i64 e = 0; e < count; e++) values[e] = voxels_between(random, -most, most);
}

static void layer_make(struct layer *layer)
{
    struct voxels_random random = {23};
    fill(&random, layer->in[0], N * CI, 3);
    fill(&random, layer->weight[0][0], V * CI * C, 2);
    fill(&random, layer->bias, C, 4);
    fill(&random, layer->residual[0], N * C, 4);
    fill(&random, layer->scale, C, 3);
    fill(&random, layer->shift, C, 3);
    for (i32 i = 0; i < N; i++)
        for (i32 v = 0; v < STRIDE; v++)
            layer->nbr[i][v] = voxels_between(&random, -1, N - 1);
}

static i32 sum_of(const struct layer *layer, bool residual, i32 row, i32 column)
{
    i32 sum = layer->bias[column] + (residual ? layer->residual[row][column] : 0);
    for (i32 v = 0; v < V; v++)
        for (i32 c = 0; c < CI && layer->nbr[row][v] >= 0; c++)
            sum += layer->in[layer->nbr[row][v]][c] * layer->weight[v][c][column];
    return sum;
}

/* What comes out for a row and a column; relu at the end. */
static i32 truth(const struct layer *layer, bool residual, i32 row, i32 column)
{
    const i32 mine = sum_of(layer, residual, row, column);
    const i32 other = sum_of(layer, residual, row, 1 - column);
    ck_assert_int_ne(mine, other); /* else the norm divides by 0: another seed */
    const i32 x = (mine > other ? 1 : -1) * layer->scale[column] + layer->shift[column];
    return x > 0 ? x : 0;
}

static void write_all(const struct layer *layer, enum vx_number type, void *in,
                      void *weight, void *residual)
{
    for (i32 i = 0; i < N; i++) {
        for (i32 k = 0; k < CI; k++)
            vx_number_ref_write(in, type, i * CI + k, layer->in[i][k]);
        for (i32 c = 0; c < C; c++)
            vx_number_ref_write(residual, type, i * CO + c, layer->residual[i][c]);
    }
    for (i32 v = 0; v < V; v++)
        for (i32 k = 0; k < CI; k++)
            for (i32 c = 0; c < C; c++)
                vx_number_ref_write(weight, type, (v * CI + k) * CO + c,
                                    layer->weight[v][k][c]);
}

START_TEST(test_rows)
{
    static const enum vx_number types[] = {VX_NUMBER_F16, VX_NUMBER_BF16, VX_NUMBER_F32,
                                           VX_NUMBER_TF32};
    static u32 in[N * CI], weight[V * CI * CO], residual[N * CO], out[N * ROW_OUT];
    /* Row 4 is not in the order. */
    static const i32 order[N] = {6, 0, -1, 3, 1, 5, 2};
    const enum vx_number type = types[_i % 4];
    const bool has_residual = _i / 4 % 2, has_order = _i / 8;
    f32 bias[CO] = {0}, scale[C], shift[C];
    struct layer layer;
    layer_make(&layer);
    write_all(&layer, type, in, weight, residual);
    for (i32 c = 0; c < C; c++) {
        bias[c] = (f32)layer.bias[c];
        scale[c] = (f32)layer.scale[c];
        shift[c] = (f32)layer.shift[c];
    }
    for (i32 e = 0; e < N * ROW_OUT; e++) vx_number_ref_write(out, type, e, BETWEEN);
    const struct vx_conv_norm_args args = {
        .conv = {.n = N,
                 .v = V,
                 .words = 1,
                 .nbr_stride = STRIDE,
                 .ci = CI,
                 .co = CO,
                 .in_stride = CI,
                 .residual_stride = CO,
                 .out_stride = ROW_OUT,
                 .groups = 1,
                 .used = C,
                 .nbr = layer.nbr[0],
                 .order = has_order ? order : NULL,
                 .in = in,
                 .weight = weight,
                 .bias = bias,
                 .residual = has_residual ? residual : NULL,
                 .out = out},
        .norm = {.n = N,
                 .c = C,
                 .cp = CO,
                 .activation = VX_ACTIVATION_RELU,
                 .weight = scale,
                 .bias = shift}};
    vx_kernel_find("conv_norm")->ref(&args, type);
    for (i32 i = 0; i < N; i++)
        for (i32 o = 0; o < ROW_OUT; o++) {
            const f64 got = vx_number_ref_read(out, type, i * ROW_OUT + o);
            i32 expected = o < C ? truth(&layer, has_residual, i, o) : 0;
            if (o >= CO || (has_order && i == 4)) expected = BETWEEN;
            ck_assert_double_eq(got, expected);
        }
}
END_TEST

/* A layer may take the tile that it has without a norm: each is a tile of both. */
START_TEST(test_tiles)
{
    const struct vx_kernel_spec *norm = vx_kernel_find("conv_norm");
    const struct vx_kernel_spec *conv = vx_kernel_find("conv_masked");
    const struct vx_caps caps = {.arch = 90, .shared_block = 232448};
    const struct vx_conv_norm_args args = {
        .conv = {.n = 1000, .co = 64, .groups = 1, .blocks = 132}};
    ck_assert(norm->tiles == conv->tiles);
    ck_assert_int_eq(norm->tiles_count, conv->tiles_count);
    ck_assert_uint_eq(norm->types, conv->types);
    for (i32 t = 0; t < norm->tiles_count; t++) {
        const struct vx_tile *tile = &norm->tiles[t];
        ck_assert_int_eq(norm->fits(tile, VX_NUMBER_F16, &caps),
                         conv->fits(tile, VX_NUMBER_F16, &caps));
        ck_assert_uint_eq(norm->grid(tile, &args).x, conv->grid(tile, &args.conv).x);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_conv_norm");
    TCase *tcase = tcase_create("kernels_conv_norm");
    tcase_add_loop_test(tcase, test_rows, 0, 16);
    tcase_add_test(tcase, test_tiles);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
