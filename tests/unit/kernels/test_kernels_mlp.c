/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "kernels/33_mlp.h"
#include "kernels/kernel.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>

void vx_mlp_ref(const void *args, enum vx_number type);

/* The reference against the definition, in whole numbers: layer norm of two channels without
 * eps gives -1 and 1, so every type holds every number exactly. */

#define N      5
#define CP     16
#define HIDDEN 64
#define CO     16
#define USED   9

struct block {
    i32 in[N][2], scale[2], shift[2];
    i32 up[2][HIDDEN], up_bias[HIDDEN], down[HIDDEN][USED], down_bias[CO];
    i32 residual[N][CO];
};

static void fill(struct voxels_random *random, i32 *values, i64 count, i32 most)
{
    for (i64 e = 0; e < count; e++) values[e] = voxels_between(random, -most, most);
}

static void block_make(struct block *block)
{
    struct voxels_random random = {11};
    fill(&random, block->in[0], N * 2, 9);
    for (i32 i = 0; i < N; i++) block->in[i][1] = block->in[i][0] + (i % 2 ? 4 : -6);
    fill(&random, block->scale, 2, 3);
    fill(&random, block->shift, 2, 3);
    fill(&random, block->up[0], 2 * HIDDEN, 2);
    fill(&random, block->up_bias, HIDDEN, 5);
    fill(&random, block->down[0], HIDDEN * USED, 1);
    fill(&random, block->down_bias, CO, 5);
    fill(&random, block->residual[0], N * CO, 7);
}

/* What comes out for a row and a column. */
static i32 truth(const struct block *block, bool norm, i32 row, i32 column)
{
    i32 x[2] = {block->in[row][0], block->in[row][1]};
    if (norm) {
        const i32 sign = x[0] > x[1] ? 1 : -1;
        x[0] = sign * block->scale[0] + block->shift[0];
        x[1] = -sign * block->scale[1] + block->shift[1];
    }
    i32 sum = block->residual[row][column] + block->down_bias[column];
    for (i32 h = 0; h < HIDDEN; h++) {
        const i32 hidden =
            block->up_bias[h] + x[0] * block->up[0][h] + x[1] * block->up[1][h];
        sum += hidden > 0 ? hidden * block->down[h][column] : 0;
    }
    return sum;
}

static void write(void *to, enum vx_number type, i64 at, i32 value)
{
    vx_number_ref_write(to, type, at, value);
}

START_TEST(test_mlp)
{
    static const enum vx_number types[] = {VX_NUMBER_F16, VX_NUMBER_BF16};
    const enum vx_number type = types[_i % 2];
    const bool norm = _i / 2;
    static u16 in[N * CP], up[CP * HIDDEN], down[HIDDEN * CO], residual[N * CO],
        out[N * CO];
    f32 scale[2], shift[2], up_bias[HIDDEN], down_bias[CO];
    struct block block;
    block_make(&block);
    for (i32 c = 0; c < 2; c++) {
        scale[c] = (f32)block.scale[c], shift[c] = (f32)block.shift[c];
        for (i32 i = 0; i < N; i++) write(in, type, i * CP + c, block.in[i][c]);
        for (i32 h = 0; h < HIDDEN; h++) write(up, type, c * HIDDEN + h, block.up[c][h]);
    }
    for (i32 h = 0; h < HIDDEN; h++) {
        up_bias[h] = (f32)block.up_bias[h];
        for (i32 o = 0; o < USED; o++) write(down, type, h * CO + o, block.down[h][o]);
    }
    for (i32 o = 0; o < CO; o++) {
        down_bias[o] = (f32)block.down_bias[o];
        for (i32 i = 0; i < N; i++)
            write(residual, type, i * CO + o, block.residual[i][o]);
    }
    struct vx_mlp_args args = {
        .norm = {.n = N,
                 .c = norm ? 2 : 0,
                 .cp = CP,
                 .in = in,
                 .weight = scale,
                 .bias = shift},
        .up = {.n = N,
               .in_stride = CP,
               .v = 1,
               .ci = CP,
               .co = HIDDEN,
               .groups = 1,
               .activation = VX_ACTIVATION_RELU,
               .in = in,
               .weight = up,
               .bias = up_bias},
        .down = {.n = N,
                 .residual_stride = CO,
                 .out_stride = CO,
                 .v = 1,
                 .ci = HIDDEN,
                 .co = CO,
                 .groups = 1,
                 .used = USED,
                 .weight = down,
                 .bias = down_bias,
                 .residual = residual,
                 .out = out},
    };
    vx_mlp_ref(&args, type);
    for (i32 i = 0; i < N; i++)
        for (i32 o = 0; o < CO; o++) {
            const f64 got = vx_number_ref_read(out, type, i * CO + o);
            const i32 sum = truth(&block, norm, i, o < USED ? o : 0);
            ck_assert_double_eq(got, o < USED ? sum : 0);
        }
}
END_TEST

START_TEST(test_tiles)
{
    const struct vx_tile *small = vx_mlp_tile(80, 64, 128);
    const struct vx_tile *large = vx_mlp_tile(144, 1024, 16);
    ck_assert_ptr_nonnull(small);
    ck_assert_ptr_nonnull(large);
    ck_assert(small != large);
    ck_assert(vx_mlp_tile(128, 64, 144) == large);
    ck_assert(vx_mlp_tile(256, 64, 256) == large);
    ck_assert_ptr_null(vx_mlp_tile(64, 64, 64));
    ck_assert_ptr_null(vx_mlp_tile(272, 64, 16));
    ck_assert_ptr_null(vx_mlp_tile(128, 80, 16));
    ck_assert(vx_mlp_tile(128, VX_MLP_HIDDEN_MAX, 16) == small);
    ck_assert_ptr_null(vx_mlp_tile(128, VX_MLP_HIDDEN_MAX + VX_MLP_HIDDEN, 16));
    ck_assert_ptr_null(vx_mlp_tile(128, 64, 272));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_mlp");
    TCase *tcase = tcase_create("kernels_mlp");
    tcase_add_loop_test(tcase, test_mlp, 0, 4);
    tcase_add_test(tcase, test_tiles);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
