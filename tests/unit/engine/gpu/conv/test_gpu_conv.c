/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/gpu/conv/conv.h"
#include "engine/gpu/fake/fake.h"
#include "kernels/06_conv_masked.h"
#include "kernels/13_elementwise.h"
#include "tests/support/device_rig.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* --- the explicit product in slices of rows --- */

/* With 343 offsets, so many channels make a row of the panel just longer than half a megabyte: a
 * panel of 256 MB then holds 256 rows, and 520 rows are three panels. */
#define OFFSETS     343
#define ROWS        520
#define PANEL_ROWS  256
#define LAUNCHES    (2 * ((ROWS + PANEL_ROWS - 1) / PANEL_ROWS)) /* gather, multiply */
#define COLUMNS     16
#define COLUMNS_OF  13 /* of them real */
#define FULL        3  /* channels of a row that are not zero */
#define GUARD_BYTES 4096
#define GUARD_WORD  0x7fff7fffu

static i32 channels_of(enum vx_number type)
{
    return type == VX_NUMBER_F32 ? 384 : 768;
}

/* The layer, in whole numbers that every type holds. */
struct layer {
    enum vx_number type;
    i32 ci;
    i32 nbr[ROWS][(OFFSETS + 3) / 4 * 4];
    i32 channel[ROWS][FULL]; /* where a row is not zero */
    i32 value[ROWS][FULL];
    i32 bias[COLUMNS], residual[ROWS][COLUMNS];
};

static i32 weight_of(const struct layer *layer, i32 v, i32 c, i32 o)
{
    return ((v * layer->ci + c) * 7 + o * 3) % 5 - 2;
}

static void layer_make(struct layer *layer, enum vx_number type)
{
    struct voxels_random random = {(u64)type + 17};
    memset(layer, 0, sizeof *layer);
    layer->type = type;
    layer->ci = channels_of(type);
    for (i32 i = 0; i < ROWS; i++) {
        for (i32 v = 0; v < (i32)VX_COUNT(layer->nbr[0]); v++)
            layer->nbr[i][v] = v < OFFSETS && voxels_between(&random, 0, 49) == 0
                                   ? voxels_between(&random, 0, ROWS - 1)
                                   : -1;
        for (i32 k = 0; k < FULL; k++) {
            layer->channel[i][k] =
                k * (layer->ci / FULL) + voxels_between(&random, 0, layer->ci / FULL - 1);
            layer->value[i][k] = voxels_between(&random, 1, 3);
        }
        for (i32 o = 0; o < COLUMNS; o++)
            layer->residual[i][o] = voxels_between(&random, -50, 50);
    }
    for (i32 o = 0; o < COLUMNS; o++) layer->bias[o] = 3 * o - 20;
}

static f64 layer_at(const struct layer *layer, i32 i, i32 o, bool residual)
{
    i32 sum = layer->bias[o] + (residual ? layer->residual[i][o] : 0);
    for (i32 v = 0; v < OFFSETS; v++) {
        i32 j = layer->nbr[i][v];
        for (i32 k = 0; j >= 0 && k < FULL; k++)
            sum += layer->value[j][k] * weight_of(layer, v, layer->channel[j][k], o);
    }
    return o < COLUMNS_OF && sum > 0 ? sum : 0; /* relu */
}

/* The product of a panel as the kernel's header defines it, skipping zeros: nearly all of 70
 * million numbers are zeros, and the reference would take minutes. */
static void product_run(const void *given, enum vx_number type)
{
    const struct vx_conv_device_args *a = given;
    const size_t bytes = (size_t)vx_number_bytes(type);
    static const u8 zeros[4];
    VX_ASSERT(a->v == 1);
    VX_ASSERT(!a->nbr);
    VX_ASSERT(!a->partial);
    VX_ASSERT(a->in_stride == a->ci);
    for (i64 i = 0; i < a->n; i++) {
        f64 sums[COLUMNS] = {0};
        for (i64 c = 0; c < a->ci; c++) {
            if (!memcmp((const u8 *)a->in + (size_t)(i * a->ci + c) * bytes, zeros,
                        bytes))
                continue;
            for (i32 o = 0; o < a->co; o++)
                sums[o] += vx_number_ref_read(a->in, type, i * a->ci + c) *
                           vx_number_ref_read(a->weight, type, c * a->co + o);
        }
        for (i32 o = 0; o < a->co; o++) {
            f64 sum = sums[o] + (f64)a->bias[o];
            if (a->residual)
                sum += vx_number_ref_read(a->residual, type, i * a->residual_stride + o);
            sum = vx_activation_ref_one((enum vx_activation)a->activation, sum);
            vx_number_ref_write(a->out, type, i * a->out_stride + o,
                                o < a->used ? sum : 0);
        }
    }
}

static const struct vx_kernel_spec *find(const char *name)
{
    static struct vx_kernel_spec product;
    if (strcmp(name, "conv_masked") != 0) return vx_kernel_find(name);
    product = *vx_kernel_find(name);
    product.ref = product_run;
    return &product;
}

static void *put_tensor(const struct layer *layer, i64 count,
                        f64 (*at)(const struct layer *, i64))
{
    const size_t bytes = (size_t)count * (size_t)vx_number_bytes(layer->type);
    void *host = device_rig_take(bytes);
    for (i64 e = 0; e < count; e++)
        vx_number_ref_write(host, layer->type, e, at(layer, e));
    return device_rig_put(host, bytes);
}

static f64 in_at(const struct layer *layer, i64 e)
{
    i32 i = (i32)(e / layer->ci), c = (i32)(e % layer->ci);
    for (i32 k = 0; k < FULL; k++)
        if (layer->channel[i][k] == c) return layer->value[i][k];
    return 0;
}

static f64 weight_at(const struct layer *layer, i64 e)
{
    i64 row = e / COLUMNS;
    return weight_of(layer, (i32)(row / layer->ci), (i32)(row % layer->ci),
                     (i32)(e % COLUMNS));
}

static f64 residual_at(const struct layer *layer, i64 e)
{
    i64 row = e / COLUMNS;
    return layer->residual[row][e % COLUMNS];
}

static void *put_guarded(size_t bytes)
{
    u8 *at = device_rig_give(bytes + GUARD_BYTES);
    device_rig_check(vx_gpu_fill(
        device_rig.bench.gpu, device_rig.bench.stream,
        &(struct vx_gpu_words){at + bytes, GUARD_WORD, GUARD_BYTES}, &device_rig.why));
    return at;
}

static void check_guard(const void *at, size_t bytes)
{
    const u32 *guard = device_rig_get((const u8 *)at + bytes, GUARD_BYTES);
    for (size_t w = 0; w < GUARD_BYTES / 4; w++) ck_assert_uint_eq(guard[w], GUARD_WORD);
}

enum residual { NONE, APART, IN_PLACE, RESIDUALS };

/* Every panel uses its own rows of the map, of the residual and of the answer. */
START_TEST(test_explicit_in_panels)
{
    static struct layer layer;
    const enum residual residual = (enum residual)_i;
    const enum vx_number type = residual == APART ? VX_NUMBER_F32 : VX_NUMBER_F16;
    struct vx_jit_wanted wanted[VX_CONV_KERNELS_MAX];
    device_rig_open();
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    layer_make(&layer, type);
    const struct vx_conv_problem problem = {.n = ROWS,
                                            .kernel = {7, 7, 7},
                                            .v = OFFSETS,
                                            .ci = layer.ci,
                                            .co = COLUMNS,
                                            .type = type};
    struct vx_conv_choice choice = {.algorithm = VX_CONV_EXPLICIT};
    while (!vx_conv_fits(&problem, &choice, vx_gpu_caps(device_rig.bench.gpu)))
        choice.tile++;
    const i32 count = vx_conv_kernels(&problem, &choice, wanted);
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    const size_t workspace = vx_conv_workspace(&problem, &choice);
    const size_t bytes = (size_t)ROWS * COLUMNS * (size_t)vx_number_bytes(type);
    f32 bias[COLUMNS];
    for (i32 o = 0; o < COLUMNS; o++) bias[o] = (f32)layer.bias[o];
    const struct vx_gpu_map map = {.v = OFFSETS,
                                   .groups = 1,
                                   .nbr_stride = (i32)VX_COUNT(layer.nbr[0]),
                                   .nbr = device_rig_put(layer.nbr, sizeof layer.nbr)};
    struct vx_conv_operands operands = {
        .map = &map,
        .in = put_tensor(&layer, (i64)ROWS * layer.ci, in_at),
        .weight = put_tensor(&layer, (i64)OFFSETS * layer.ci * COLUMNS, weight_at),
        .bias = device_rig_put(bias, sizeof bias),
        .out = put_guarded(bytes),
        .activation = VX_ACTIVATION_RELU,
        .channels = COLUMNS_OF,
        .workspace = put_guarded(workspace)};
    void *beside = put_tensor(&layer, (i64)ROWS * COLUMNS, residual_at);
    if (residual == IN_PLACE) operands.out = beside;
    if (residual != NONE) operands.residual = beside;
    const i64 before = vx_fake_launches();
    device_rig_check(
        vx_conv_launch(&device_rig.queue, &problem, &choice, &operands, &device_rig.why));
    ck_assert_int_eq(vx_fake_launches() - before, LAUNCHES);
    const void *out = device_rig_get(operands.out, bytes);
    for (i32 i = 0; i < ROWS; i++)
        for (i32 o = 0; o < COLUMNS; o++) {
            f64 expected = layer_at(&layer, i, o, residual != NONE);
            f64 got = vx_number_ref_read(out, type, (i64)i * COLUMNS + o);
            if (got != expected)
                ck_abort_msg("row %d column %d: expected %g, got %g", i, o, expected,
                             got);
        }
    if (residual != IN_PLACE) check_guard(operands.out, bytes);
    check_guard(operands.workspace, workspace);
    device_rig_close();
}
END_TEST

/* --- which order, how many groups, what fits --- */

START_TEST(test_orders_at_their_channels)
{
    static const struct {
        i32 kernel[3], ci;
        enum vx_conv_order order;
        i32 groups; /* of a split */
        enum vx_number type;
    } cases[] = {
        {{3, 3, 3}, 512, VX_CONV_ORDER_CHAIN, 3, VX_NUMBER_F16},
        {{3, 3, 3}, 1008, VX_CONV_ORDER_CHAIN, 3, VX_NUMBER_F16},
        {{3, 3, 3}, 1008, VX_CONV_ORDER_CHAIN, 3, VX_NUMBER_BF16},
        {{3, 3, 3}, 1008, VX_CONV_ORDER_CHAIN, 3, VX_NUMBER_E4M3},
        {{3, 3, 3}, 1024, VX_CONV_ORDER_PLANES, 3, VX_NUMBER_E4M3},
        {{3, 3, 3}, 496, VX_CONV_ORDER_CHAIN, 3, VX_NUMBER_F32},
        {{3, 3, 3}, 512, VX_CONV_ORDER_PLANES, 3, VX_NUMBER_F32},
        {{3, 3, 3}, 1008, VX_CONV_ORDER_PLANES, 3, VX_NUMBER_TF32},
        {{3, 3, 3}, 1024, VX_CONV_ORDER_COLUMNS, 9, VX_NUMBER_TF32},
        {{3, 3, 3}, 1024, VX_CONV_ORDER_COLUMNS, 9, VX_NUMBER_F16},
        {{1, 3, 3}, 512, VX_CONV_ORDER_CHAIN, 1, VX_NUMBER_F16},
        {{1, 3, 3}, 1024, VX_CONV_ORDER_COLUMNS, 3, VX_NUMBER_F16},
        {{1, 1, 3}, 1024, VX_CONV_ORDER_CHAIN, 1, VX_NUMBER_F16},
        {{5, 1, 1}, 1024, VX_CONV_ORDER_COLUMNS, 5, VX_NUMBER_F16},
        {{1, 1, 1}, 2048, VX_CONV_ORDER_CHAIN, 1, VX_NUMBER_F16},
    };
    const i32 *kernel = cases[_i].kernel;
    const struct vx_conv_problem problem = {.n = 1000,
                                            .kernel = {kernel[0], kernel[1], kernel[2]},
                                            .v = kernel[0] * kernel[1] * kernel[2],
                                            .ci = cases[_i].ci,
                                            .co = 64,
                                            .type = cases[_i].type};
    const bool chain = cases[_i].order == VX_CONV_ORDER_CHAIN;
    ck_assert_int_eq(vx_conv_order_of(&problem), cases[_i].order);
    for (i32 a = VX_CONV_AUTO + 1; a < VX_CONV_ALGORITHMS_COUNT; a++) {
        const enum vx_conv_algorithm algorithm = (enum vx_conv_algorithm)a;
        const bool split =
            algorithm == VX_CONV_IMPLICIT_SPLIT || algorithm == VX_CONV_MASKED_SPLIT;
        const bool one = algorithm == VX_CONV_IMPLICIT || algorithm == VX_CONV_MASKED;
        const bool pairs = algorithm == VX_CONV_PAIRS_LIST;
        ck_assert_int_eq(vx_conv_groups(&problem, algorithm), split   ? cases[_i].groups
                                                              : pairs ? problem.v
                                                                      : 1);
        ck_assert_int_eq(vx_conv_exact(&problem, algorithm), chain ? one : split);
        ck_assert_int_eq(vx_conv_of_name(vx_conv_name(algorithm)), algorithm);
    }
    ck_assert_int_eq(vx_conv_of_name("none of them"), VX_CONV_ALGORITHMS_COUNT);
}
END_TEST

/* Whether some tile that streams fits: the kernel's arithmetic of addresses ends there. */
static bool some_stream_fits(const struct vx_conv_problem *problem)
{
    const struct vx_caps hopper = {.arch = 90, .processors = 132, .shared_block = 232448};
    const struct vx_kernel_spec *spec = vx_conv_spec(VX_CONV_MASKED);
    for (i32 t = 0; t < spec->tiles_count; t++) {
        const struct vx_conv_choice choice = {VX_CONV_MASKED, t};
        if (vx_conv_tiled(&choice) && vx_conv_fits(problem, &choice, &hopper))
            return true;
    }
    return false;
}

START_TEST(test_streams_count_in_31_bits)
{
    struct vx_conv_problem problem = {
        .kernel = {3, 3, 3}, .v = 27, .ci = 64, .co = 64, .type = VX_NUMBER_F16};
    problem.n = 16 << 20; /* 16 bytes: 8 of a row of 64 channels, 128 of one of 1024 */
    ck_assert(some_stream_fits(&problem));
    problem.strides = (struct vx_conv_strides){.in = 1024};
    ck_assert(!some_stream_fits(&problem));
    problem.strides = (struct vx_conv_strides){.out = 1024};
    ck_assert(!some_stream_fits(&problem));
    problem.strides = (struct vx_conv_strides){.residual = 1024};
    ck_assert(!some_stream_fits(&problem));
    problem.n--;
    ck_assert(some_stream_fits(&problem));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_conv");
    TCase *tests = tcase_create("gpu_conv");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_explicit_in_panels, 0, RESIDUALS);
    tcase_add_loop_test(tests, test_orders_at_their_channels, 0, 15);
    tcase_add_test(tests, test_streams_count_in_31_bits);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
