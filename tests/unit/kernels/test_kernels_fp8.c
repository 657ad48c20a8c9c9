/* Numbers of 8 bits: the references, against their definition and values worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/types.h"
#include "kernels/06_conv_masked.h"
#include "kernels/29_weight_tile.h"
#include "kernels/35_e4m3_rows.h"
#include "kernels/e4m3.h"
#include "kernels/kernel.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void run(const char *name, const void *args, enum vx_number type)
{
    vx_kernel_find(name)->ref(args, type);
}

/* What a byte means, from the definition. */
static f64 meaning(i32 byte)
{
    const i32 exponent = byte >> 3 & 15, fraction = byte & 7;
    const f64 size =
        exponent ? ldexp(1 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6);
    return byte & 128 ? -size : size;
}

START_TEST(test_every_byte)
{
    for (i32 byte = 0; byte < 256; byte++) {
        if ((byte & 127) == 127) {
            ck_assert(isnan(vx_e4m3_value((u8)byte)));
            continue;
        }
        ck_assert_double_eq((f64)vx_e4m3_value((u8)byte), meaning(byte));
        ck_assert_int_eq(vx_e4m3_of((f32)meaning(byte)), byte);
    }
}
END_TEST

/* Halfway between two numbers the one with an even fraction, beside it the nearer one. */
START_TEST(test_every_middle)
{
    for (i32 byte = 0; byte < 255; byte++) {
        if ((byte & 127) >= 126) continue;
        const f32 low = (f32)meaning(byte), high = (f32)meaning(byte + 1);
        const f32 middle = (low + high) / 2;
        ck_assert_int_eq(vx_e4m3_of(middle), byte & 1 ? byte + 1 : byte);
        ck_assert_int_eq(vx_e4m3_of(nextafterf(middle, low)), byte);
        ck_assert_int_eq(vx_e4m3_of(nextafterf(middle, high)), byte + 1);
        ck_assert_float_eq(vx_e4m3_round(nextafterf(middle, high)), high);
    }
}
END_TEST

START_TEST(test_beyond)
{
    static const f32 large[] = {448, 449, 480, 1e30f, INFINITY};
    for (size_t i = 0; i < VX_COUNT(large); i++) {
        ck_assert_int_eq(vx_e4m3_of(large[i]), 0x7e);
        ck_assert_int_eq(vx_e4m3_of(-large[i]), 0xfe);
    }
    ck_assert_int_eq(vx_e4m3_of(NAN) & 0x7f, 0x7f);
    ck_assert(isnan(vx_e4m3_round(NAN)));
    ck_assert_int_eq(vx_e4m3_of(0x1p-30f), 0);
    ck_assert_int_eq(vx_e4m3_of(-0x1p-30f), 0x80);
}
END_TEST

START_TEST(test_scale)
{
    ck_assert_float_eq(vx_e4m3_scale(448), 1);
    ck_assert_float_eq(vx_e4m3_scale(nextafterf(448, 449)), 2);
    ck_assert_float_eq(vx_e4m3_scale(224), 0.5f);
    ck_assert_float_eq(vx_e4m3_scale(1), 0x1p-8f);
    ck_assert_float_eq(vx_e4m3_scale(0), 1);
    ck_assert_float_eq(vx_e4m3_scale(1e-38f), 0x1p-60f);
    ck_assert_float_eq(vx_e4m3_scale(3e38f), 0x1p60f);
    for (f32 most = 1e-10f; most < 1e10f; most *= 1.37f) {
        const f32 scale = vx_e4m3_scale(most);
        ck_assert_float_le(most / scale, VX_E4M3_MOST);
        ck_assert_float_gt(most / scale, VX_E4M3_MOST / 2);
    }
}
END_TEST

/* Rows of 16 of 32 elements, as bytes and as numbers of a type. */
START_TEST(test_rows)
{
    static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                           VX_NUMBER_TF32};
    const enum vx_number type = types[_i];
    enum { N = 3, CP = 16, STRIDE = 32 };
    f32 in[N * STRIDE], out[N * CP];
    u8 bytes[N * CP + 1];
    memset(in, 0x7f, sizeof in); /* between the rows: nothing finite */
    for (i32 row = 0; row < N; row++)
        for (i32 c = 0; c < CP; c++)
            vx_number_ref_write(in, type, row * STRIDE + c, (row - 1) * (1 + c / 16.0));
    bytes[N * CP] = 0x55;
    struct vx_e4m3_rows_args args = {.n = N,
                                     .cp = CP,
                                     .in_stride = STRIDE,
                                     .bytes = 1,
                                     .scale = 0x1p-3f,
                                     .inverse = 8,
                                     .in = in,
                                     .out = bytes};
    run("e4m3_rows", &args, type);
    args.bytes = 0;
    args.out = out;
    run("e4m3_rows", &args, type);
    ck_assert_int_eq(bytes[N * CP], 0x55);
    for (i32 row = 0; row < N; row++)
        for (i32 c = 0; c < CP; c++) {
            /* Of 16 steps between 1 and 2 the even ones stay; ties go to even eighths. */
            const i32 eighths = (c + (c / 2 & 1)) / 2;
            const f64 expected = (row - 1) * (1 + eighths / 8.0);
            const i32 at = row * CP + c;
            ck_assert_double_eq((f64)vx_e4m3_value(bytes[at]) / 8, expected);
            ck_assert_double_eq(vx_number_ref_read(out, type, at), expected);
        }
}
END_TEST

/* 65504 / 256 rounds up to 256, and 256 * 256 is no number of F16. */
START_TEST(test_rows_stay_numbers)
{
    const f64 large[] = {65504, -65504, (f64)INFINITY, (f64)-INFINITY};
    u16 in[16], out[16];
    for (i32 c = 0; c < 16; c++) vx_number_ref_write(in, VX_NUMBER_F16, c, large[c % 4]);
    const struct vx_e4m3_rows_args args = {
        .n = 1, .cp = 16, .scale = 256, .inverse = 1 / 256.0f, .in = in, .out = out};
    run("e4m3_rows", &args, VX_NUMBER_F16);
    for (i32 c = 0; c < 16; c++)
        ck_assert_double_eq(vx_number_ref_read(out, VX_NUMBER_F16, c),
                            c % 2 ? -65504 : 65504);
}
END_TEST

/* Every number of (2, 80, 16) is its own index, so that its place can be looked up. */
START_TEST(test_weight_tile)
{
    enum { V = 2, CI = 80, CO = 16, BLOCKS = 2 };
    static u16 in[V * CI * CO], out[V * BLOCKS * CO * 64 + 1];
    for (i32 i = 0; i < V * CI * CO; i++) in[i] = (u16)(i + 1);
    memset(out, 0x55, sizeof out);
    const struct vx_weight_tile_args args = {
        .v = V, .ci = CI, .co = CO, .number_bytes = 2, .in = in, .out = out};
    run("weight_tile", &args, VX_NUMBER_F32);
    for (i32 v = 0; v < V; v++)
        for (i32 ci = 0; ci < BLOCKS * 64; ci++)
            for (i32 co = 0; co < CO; co++) {
                i32 chunk = ci % 64 / 8 ^ co % 8;
                i32 at = ((v * BLOCKS + ci / 64) * CO + co) * 64 + chunk * 8 + ci % 8;
                i32 expected = ci < CI ? (v * CI + ci) * CO + co + 1 : 0;
                ck_assert_int_eq(out[at], expected);
            }
    ck_assert_uint_eq(out[V * BLOCKS * CO * 64], 0x5555);
    ck_assert_int_eq(vx_weight_tile_blocks(64, 2), 1);
    ck_assert_int_eq(vx_weight_tile_blocks(65, 2), 2);
}
END_TEST

/* Every byte of (2, 144, 16) is known by its place. */
START_TEST(test_weight_tile_bytes)
{
    enum { V = 2, CI = 144, CO = 16, BLOCKS = 2, LINE = 128 };
    static u8 in[V * CI * CO], out[V * BLOCKS * CO * LINE + 1];
    for (i32 i = 0; i < V * CI * CO; i++) in[i] = (u8)(i % 251 + 1);
    memset(out, 0x55, sizeof out);
    const struct vx_weight_tile_args args = {
        .v = V, .ci = CI, .co = CO, .number_bytes = 1, .in = in, .out = out};
    run("weight_tile", &args, (enum vx_number)0);
    for (i32 v = 0; v < V; v++)
        for (i32 ci = 0; ci < BLOCKS * LINE; ci++)
            for (i32 co = 0; co < CO; co++) {
                const i32 chunk = ci % LINE / 16 ^ co % 8;
                const i32 at =
                    ((v * BLOCKS + ci / LINE) * CO + co) * LINE + chunk * 16 + ci % 16;
                const i32 place = (v * CI + ci) * CO + co;
                ck_assert_int_eq(out[at], ci < CI ? place % 251 + 1 : 0);
            }
    ck_assert_int_eq(out[V * BLOCKS * CO * LINE], 0x55);
    ck_assert_int_eq(vx_weight_tile_blocks(128, 1), 1);
    ck_assert_int_eq(vx_weight_tile_blocks(129, 1), 2);
}
END_TEST

/* Two rows, two offsets: 2 * (1.5 * 3) and so on, times the scale of the column, then bias,
 * residual and activation, of one chain and of two groups. */
START_TEST(test_conv)
{
    enum { N = 2, V = 2, CI = 32, CO = 16 };
    static u8 in[N * CI], weight[V * CI * CO];
    static f32 scale[CO], bias[CO], partial[V * N * CO];
    u16 out[N * CO], residual[N * CO];
    const i32 nbr[N * 4] = {0, 1, -1, -1, 1, -1, -1, -1};
    memset(in, 0, sizeof in);
    memset(weight, 0, sizeof weight);
    for (i32 row = 0; row < N; row++) in[row * CI + 5] = vx_e4m3_of(row ? -2.0f : 1.5f);
    for (i32 v = 0; v < V; v++)
        for (i32 o = 0; o < CO; o++)
            weight[(v * CI + 5) * CO + o] = vx_e4m3_of((f32)(v + 1 + o % 8));
    for (i32 o = 0; o < CO; o++) {
        scale[o] = o % 2 ? 0.5f : 0.25f;
        bias[o] = (f32)o;
    }
    for (i32 e = 0; e < N * CO; e++) vx_number_ref_write(residual, VX_NUMBER_F16, e, 8);
    struct vx_conv_device_args args = {.n = N,
                                       .v = V,
                                       .words = 1,
                                       .nbr_stride = 4,
                                       .ci = CI,
                                       .co = CO,
                                       .in_stride = CI,
                                       .residual_stride = CO,
                                       .out_stride = CO,
                                       .groups = 1,
                                       .activation = VX_ACTIVATION_RELU,
                                       .nbr = nbr,
                                       .in = in,
                                       .weight = weight,
                                       .bias = bias,
                                       .residual = residual,
                                       .out = out,
                                       .scale = scale};
    run("conv_masked", &args, VX_NUMBER_E4M3);
    args.groups = V;
    args.partial = partial;
    run("conv_masked", &args, VX_NUMBER_E4M3);
    for (i32 o = 0; o < CO; o++) {
        const f64 first = (f64)scale[o] * 1.5 * (1 + o % 8);
        const f64 second = (f64)scale[o] * -2.0 * (2 + o % 8);
        const f64 lower = (f64)scale[o] * -2.0 * (1 + o % 8);
        ck_assert_double_eq(vx_number_ref_read(out, VX_NUMBER_F16, o),
                            fmax(0, first + second + o + 8));
        ck_assert_double_eq(vx_number_ref_read(out, VX_NUMBER_F16, CO + o),
                            fmax(0, lower + o + 8));
        ck_assert_double_eq((f64)partial[o], first);
        ck_assert_double_eq((f64)partial[N * CO + o], second);
        ck_assert_double_eq((f64)partial[CO + o], lower);
        ck_assert_double_eq((f64)partial[N * CO + CO + o], 0);
    }
}
END_TEST

/* Only tiles whose line has 128 numbers of 8 bits, and only on Hopper. */
START_TEST(test_tiles)
{
    const struct vx_kernel_spec *spec = vx_kernel_find("conv_masked");
    const struct vx_caps hopper = {.arch = 90, .shared_block = 227 * 1024};
    const struct vx_caps ampere = {.arch = 80, .shared_block = 163 * 1024};
    i32 bytes = 0;
    for (i32 i = 0; i < spec->tiles_count; i++) {
        const struct vx_tile *tile = &spec->tiles[i];
        const bool fits = spec->fits(tile, VX_NUMBER_E4M3, &hopper);
        ck_assert(!spec->fits(tile, VX_NUMBER_E4M3, &ampere));
        ck_assert(!fits || !spec->fits(tile, VX_NUMBER_F16, &hopper));
        if (!fits) continue;
        bytes++;
        ck_assert_int_eq(tile->values[2], 128);
        ck_assert_int_le(spec->shared(tile, VX_NUMBER_E4M3), hopper.shared_block);
    }
    ck_assert_int_eq(bytes, 11);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels of numbers of 8 bits");
    TCase *cases = tcase_create("fp8");
    tcase_add_test(cases, test_every_byte);
    tcase_add_test(cases, test_every_middle);
    tcase_add_test(cases, test_beyond);
    tcase_add_test(cases, test_scale);
    tcase_add_loop_test(cases, test_rows, 0, 4);
    tcase_add_test(cases, test_rows_stay_numbers);
    tcase_add_test(cases, test_weight_tile);
    tcase_add_test(cases, test_weight_tile_bytes);
    tcase_add_test(cases, test_conv);
    tcase_add_test(cases, test_tiles);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
