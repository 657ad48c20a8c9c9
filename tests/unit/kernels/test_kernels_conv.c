/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/04_conv_explicit.h"
#include "kernels/04_conv_gather.h"
#include "kernels/06_conv_masked.h"
#include "kernels/07_conv_reduce.h"
#include "kernels/11_linear.h"
#include "kernels/kernel.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The references of convolutions against their definition.  Numbers are small and whole, so that
 * every type holds them and every order of the sum gives the same: the comparison is exact. */

#define ROWS_MAX 24
#define POISON   0x7fc1dead /* a NaN, in memory that must not be read */

struct shape {
    i32 n, v, ci, co;
};

/* nbr, in, weight, bias, residual as whole numbers; nbr (N,V). */
struct layer {
    struct shape shape;
    i32 *nbr, *in, *weight, *bias, *residual;
};

static i32 *numbers(struct voxels_random *random, i64 count, i32 most)
{
    i32 *made = vx_alloc((size_t)(count + 1) * sizeof *made);
    for (i64 e = 0; e < count; e++) made[e] = voxels_between(random, -most, most);
    return made;
}

/* Row 0 has no neighbour at all, row 1 every one. */
static struct layer layer_make(struct shape shape)
{
    struct voxels_random random = {(u64)shape.v + 3};
    struct layer layer = {.shape = shape};
    const i64 entries = (i64)shape.n * shape.v;
    layer.nbr = numbers(&random, entries, 1);
    for (i64 e = 0; e < entries; e++) {
        bool there = e / shape.v && (e / shape.v == 1 || voxels_between(&random, 0, 2));
        layer.nbr[e] = there ? voxels_between(&random, 0, shape.n - 1) : -1;
    }
    layer.in = numbers(&random, (i64)shape.n * shape.ci, 2);
    layer.weight = numbers(&random, (i64)shape.v * shape.ci * shape.co, 1);
    layer.bias = numbers(&random, shape.co, 9);
    layer.residual = numbers(&random, (i64)shape.n * shape.co, 9);
    return layer;
}

static void layer_end(struct layer *layer)
{
    vx_free(layer->nbr);
    vx_free(layer->in);
    vx_free(layer->weight);
    vx_free(layer->bias);
    vx_free(layer->residual);
}

/* The sum of row i, column o over the offsets [begin, end). */
static i32 sum_of(const struct layer *layer, i32 i, i32 o, i32 begin, i32 end)
{
    const struct shape *s = &layer->shape;
    i32 sum = 0;
    for (i32 v = begin; v < end; v++)
        for (i32 c = 0; layer->nbr[i * s->v + v] >= 0 && c < s->ci; c++)
            sum += layer->in[layer->nbr[i * s->v + v] * s->ci + c] *
                   layer->weight[(v * s->ci + c) * s->co + o];
    return sum;
}

/* Whole numbers as a tensor of a type, one element of poison behind it. */
static void *tensor(const i32 *values, i64 count, enum vx_number type)
{
    void *made = vx_alloc((size_t)(count + 1) * (size_t)vx_number_bytes(type));
    for (i64 e = 0; e < count; e++) vx_number_ref_write(made, type, e, values[e]);
    vx_number_ref_write(made, type, count, NAN);
    return made;
}

static f64 curve(enum vx_activation activation, f64 x)
{
    return activation == VX_ACTIVATION_RELU && x < 0 ? 0 : x;
}

/* --- the CPU's: (V,N) maps, any number of channels --- */

static const struct shape cpu_shapes[] = {{0, 27, 3, 5},  {1, 1, 1, 1},   {7, 27, 3, 5},
                                          {23, 27, 7, 1}, {9, 125, 2, 3}, {5, 343, 1, 2},
                                          {24, 1, 33, 17}};

START_TEST(test_explicit)
{
    const struct shape s = cpu_shapes[_i / 4];
    struct layer layer = layer_make(s);
    const enum vx_activation activation =
        _i & 1 ? VX_ACTIVATION_RELU : VX_ACTIVATION_NONE;
    i32 *turned = vx_alloc((size_t)(s.n * s.v + 1) * 4);
    for (i32 e = 0; e < s.n * s.v; e++) turned[e % s.v * s.n + e / s.v] = layer.nbr[e];
    f32 *in = tensor(layer.in, s.n * s.ci, VX_NUMBER_F32);
    f32 *weight = tensor(layer.weight, s.v * s.ci * s.co, VX_NUMBER_F32);
    f32 *bias = tensor(layer.bias, s.co, VX_NUMBER_F32);
    f32 *out = vx_alloc((size_t)(s.n * s.co + 1) * 4);
    out[s.n * s.co] = -77;
    const struct vx_conv_args args = {
        s.n,        s.v, s.ci, s.co, 0, turned, in, weight, _i & 2 ? bias : NULL,
        activation, out, 0,    0};
    vx_conv_explicit_ref(&args);
    for (i32 e = 0; e < s.n * s.co; e++) {
        i32 sum = sum_of(&layer, e / s.co, e % s.co, 0, s.v);
        if (_i & 2) sum += layer.bias[e % s.co];
        ck_assert_double_eq((f64)out[e], curve(activation, sum));
    }
    ck_assert_double_eq((f64)out[s.n * s.co], -77);
    vx_free(turned);
    vx_free(in);
    vx_free(weight);
    vx_free(bias);
    vx_free(out);
    layer_end(&layer);
}
END_TEST

START_TEST(test_linear)
{
    const struct shape s = {11, 1, 5 + 2 * _i, 3};
    struct layer layer = layer_make(s);
    f32 *in = tensor(layer.in, s.n * s.ci, VX_NUMBER_F32);
    f32 *weight = tensor(layer.weight, s.ci * s.co, VX_NUMBER_F32);
    f32 *bias = tensor(layer.bias, s.co, VX_NUMBER_F32);
    f32 out[11 * 3];
    const struct vx_linear_args args = {
        s.n, s.ci, s.co, in, weight, _i & 1 ? bias : NULL, VX_ACTIVATION_RELU, out, 0, 0};
    vx_linear_ref(&args);
    for (i32 i = 0; i < s.n; i++)
        for (i32 o = 0; o < s.co; o++) {
            i32 sum = _i & 1 ? layer.bias[o] : 0;
            for (i32 c = 0; c < s.ci; c++)
                sum += layer.in[i * s.ci + c] * layer.weight[c * s.co + o];
            ck_assert_double_eq((f64)out[i * s.co + o], curve(VX_ACTIVATION_RELU, sum));
        }
    vx_free(in);
    vx_free(weight);
    vx_free(bias);
    layer_end(&layer);
}
END_TEST

/* The sum is made in double and rounded once: digits that f32 would have lost are there. */
START_TEST(test_sums_in_double)
{
    static const i32 nbr[] = {0};
    static const f32 in[] = {0x1p30f, 1, -0x1p30f}, weight[] = {1, 1, 1};
    static const f32 bias[] = {0x1p-20f};
    f32 out[1];
    vx_conv_explicit_ref(&(struct vx_conv_args){1, 1, 3, 1, 0, nbr, in, weight, bias,
                                                VX_ACTIVATION_NONE, out, 0, 0});
    ck_assert_double_eq((f64)out[0], 1 + 0x1p-20);
    vx_linear_ref(&(struct vx_linear_args){1, 3, 1, in, weight, bias, VX_ACTIVATION_NONE,
                                           out, 0, 0});
    ck_assert_double_eq((f64)out[0], 1 + 0x1p-20);
}
END_TEST

/* A missing neighbour adds no term to the sum, whatever its weight; a neighbour that is there
 * does, also when it is NaN or infinite. */
START_TEST(test_not_finite)
{
    static const i32 nbr[] = {-1, 1, 0, -1}; /* (2,2): offset 0, offset 1 */
    static const f32 in[] = {1, 2}, weight[] = {(f32)INFINITY, 3}; /* row 0: 1 * 3 */
    f32 out[2];
    vx_conv_explicit_ref(&(struct vx_conv_args){2, 2, 1, 1, 0, nbr, in, weight, NULL,
                                                VX_ACTIVATION_NONE, out, 0, 0});
    ck_assert_double_eq((f64)out[0], 3);
    ck_assert(isinf(out[1]) && out[1] > 0);
    static const f32 none[] = {NAN, -2};
    vx_conv_explicit_ref(&(struct vx_conv_args){2, 2, 1, 1, 0, nbr, none, weight, NULL,
                                                VX_ACTIVATION_RELU, out, 0, 0});
    ck_assert(isnan(out[0]));
    ck_assert_double_eq((f64)out[1], 0);
}
END_TEST

/* --- a device's: (N,S) maps, channels by sixteens, every type --- */

static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                       VX_NUMBER_TF32};
static const struct shape shapes[] = {{0, 27, 16, 16},
                                      {1, 1, 16, 16},
                                      {23, 27, 16, 32},
                                      {6, 125, 16, 16},
                                      {5, 343, 16, 16}};

struct device {
    struct layer layer;
    enum vx_number type;
    i32 *nbr;
    u32 *masks;
    void *in, *weight, *residual, *out;
    f32 bias[32];
    struct vx_conv_device_args args;
};

static struct device device_make(struct shape s, enum vx_number type)
{
    struct device device = {.layer = layer_make(s), .type = type};
    const i32 stride = (s.v + 3) / 4 * 4, words = (s.v + 31) / 32;
    device.nbr = vx_alloc((size_t)(s.n * stride + 1) * 4);
    device.masks = vx_alloc_zero((size_t)(s.n * words + 1) * 4);
    for (i32 e = 0; e < s.n * stride; e++)
        device.nbr[e] =
            e % stride < s.v ? device.layer.nbr[e / stride * s.v + e % stride] : -1;
    for (i32 e = 0; e < s.n * s.v; e++)
        if (device.layer.nbr[e] >= 0)
            device.masks[e / s.v * words + e % s.v / 32] |= 1u << e % s.v % 32;
    device.in = tensor(device.layer.in, s.n * s.ci, type);
    device.weight = tensor(device.layer.weight, s.v * s.ci * s.co, type);
    device.residual = tensor(device.layer.residual, s.n * s.co, type);
    device.out = tensor(device.layer.residual, s.n * s.co, type);
    for (i32 o = 0; o < s.co; o++) device.bias[o] = (f32)device.layer.bias[o];
    device.args = (struct vx_conv_device_args){.n = s.n,
                                               .v = s.v,
                                               .words = words,
                                               .nbr_stride = stride,
                                               .ci = s.ci,
                                               .co = s.co,
                                               .in_stride = s.ci,
                                               .residual_stride = s.co,
                                               .out_stride = s.co,
                                               .groups = 1,
                                               .nbr = device.nbr,
                                               .masks = device.masks,
                                               .in = device.in,
                                               .weight = device.weight,
                                               .out = device.out};
    return device;
}

static void device_end(struct device *device)
{
    vx_free(device->nbr);
    vx_free(device->masks);
    vx_free(device->in);
    vx_free(device->weight);
    vx_free(device->residual);
    vx_free(device->out);
    layer_end(&device->layer);
}

static void run(const char *name, const void *args, enum vx_number type)
{
    vx_kernel_find(name)->ref(args, type);
}

/* The layer's output, with the bias, residual, curve and columns of `args`. */
static void check_out(const struct device *device, const struct vx_conv_device_args *args)
{
    const struct shape *s = &device->layer.shape;
    for (i32 e = 0; e < s->n * s->co; e++) {
        const i32 o = e % s->co;
        i32 sum = sum_of(&device->layer, e / s->co, o, 0, s->v);
        if (args->bias) sum += device->layer.bias[o];
        if (args->residual) sum += device->layer.residual[e];
        f64 expected = curve((enum vx_activation)args->activation, sum);
        if (args->used && o >= args->used) expected = 0;
        ck_assert_double_eq(vx_number_ref_read(args->out, device->type, e), expected);
    }
    ck_assert(isnan(vx_number_ref_read(args->out, device->type, s->n * s->co)));
}

/* Bias or none; no residual, one in memory of its own, one in place; all columns or some; an order
 * or none. */
START_TEST(test_masked)
{
    const struct shape s = shapes[_i % 5];
    struct device device = device_make(s, types[_i / 5]);
    i32 order[ROWS_MAX];
    for (i32 i = 0; i < s.n; i++)
        order[i] = (i * 5 + 2) % s.n; /* n is no multiple of 5 but 5 */
    if (s.n == 5) memcpy(order, (i32[]){3, 0, 4, 1, 2}, 20);
    for (i32 variant = 0; variant < 24; variant++) {
        struct vx_conv_device_args args = device.args;
        void *mine = tensor(device.layer.residual, s.n * s.co, device.type);
        args.bias = variant & 1 ? device.bias : NULL;
        args.activation = variant & 2 ? VX_ACTIVATION_RELU : VX_ACTIVATION_NONE;
        args.used = variant & 4 ? s.co - 3 : 0;
        args.order = variant & 1 ? order : NULL;
        args.out = mine;
        if (variant >= 8) args.residual = variant >= 16 ? mine : device.residual;
        run("conv_masked", &args, device.type);
        check_out(&device, &args);
        vx_free(mine);
    }
    device_end(&device);
}
END_TEST

/* V is 1 and there is no map: every row its own. */
START_TEST(test_without_a_map)
{
    struct device device = device_make((struct shape){13, 1, 32, 16}, types[_i]);
    for (i32 i = 0; i < 13; i++) device.layer.nbr[i] = i;
    device.args.nbr = NULL;
    device.args.masks = NULL;
    run("conv_masked", &device.args, device.type);
    check_out(&device, &device.args);
    device_end(&device);
}
END_TEST

static f32 *poisoned(i64 count)
{
    f32 *made = vx_alloc((size_t)(count + 1) * sizeof *made);
    const u32 poison = POISON;
    for (i64 e = 0; e <= count; e++) memcpy(made + e, &poison, sizeof poison);
    return made;
}

/* Sums of groups of offsets, then their reduction.  A group of which a row has nothing may hold
 * anything: with masks it is not read. */
START_TEST(test_split_and_reduce)
{
    static const i32 groups_of[] = {3, 1, 9, 25, 7};
    const struct shape s = shapes[_i % 5];
    struct device device = device_make(s, types[_i / 5]);
    struct vx_conv_device_args args = device.args;
    args.groups = groups_of[_i % 5];
    const i32 span = s.v / args.groups;
    args.partial = poisoned((i64)args.groups * s.n * s.co);
    run("conv_masked", &args, device.type);
    for (i32 e = 0; e < args.groups * s.n * s.co; e++) {
        const i32 g = e / s.co / s.n, i = e / s.co % s.n;
        bool any = false;
        for (i32 v = g * span; v < (g + 1) * span; v++)
            any |= device.layer.nbr[i * s.v + v] >= 0;
        ck_assert_double_eq((f64)args.partial[e],
                            sum_of(&device.layer, i, e % s.co, g * span, (g + 1) * span));
        if (!any) args.partial[e] = NAN; /* a device would not have written it */
    }
    ck_assert(isnan(args.partial[(i64)args.groups * s.n * s.co]));
    for (i32 variant = 0; variant < 16; variant++) {
        void *mine = tensor(device.layer.residual, s.n * s.co, device.type);
        struct vx_conv_device_args reduce = args;
        reduce.bias = variant & 1 ? device.bias : NULL;
        reduce.activation = variant & 2 ? VX_ACTIVATION_RELU : VX_ACTIVATION_NONE;
        reduce.used = variant & 4 ? 5 : 0;
        reduce.out = mine;
        reduce.residual = variant & 8 ? mine : NULL;
        run("conv_reduce", &reduce, device.type);
        check_out(&device, &reduce);
        vx_free(mine);
    }
    /* Without masks every group counts. */
    for (i32 e = 0; e < args.groups * s.n * s.co; e++)
        if (isnan(args.partial[e])) args.partial[e] = 0;
    args.masks = NULL;
    run("conv_reduce", &args, device.type);
    check_out(&device, &args);
    vx_free(args.partial);
    device_end(&device);
}
END_TEST

/* Lists of pairs, here from the last row to the first: `places` has the position of each. */
START_TEST(test_pairs_and_reduce)
{
    const struct shape s = shapes[_i % 5];
    struct device device = device_make(s, types[_i / 5]);
    const i32 stride = device.args.nbr_stride;
    i32 *starts = vx_alloc(((size_t)s.v + 1) * 4), pairs = 0;
    i32 *in_rows = vx_alloc((size_t)(s.n * s.v + 1) * 4);
    i32 *places = vx_alloc((size_t)(s.n * stride + 1) * 4);
    memset(places, 0xff, (size_t)(s.n * stride) * 4);
    for (i32 v = 0; v < s.v; v++) {
        starts[v] = pairs;
        for (i32 i = s.n - 1; i >= 0; i--) {
            if (device.layer.nbr[i * s.v + v] < 0) continue;
            in_rows[pairs] = device.layer.nbr[i * s.v + v];
            places[i * stride + v] = pairs++;
        }
    }
    starts[s.v] = pairs;
    struct vx_conv_device_args args = device.args;
    args.groups = s.v;
    args.starts = starts;
    args.in_rows = in_rows;
    args.partial = poisoned((i64)pairs * s.co);
    run("conv_pairs", &args, device.type);
    ck_assert(isnan(args.partial[(i64)pairs * s.co]));
    for (i32 variant = 0; variant < 16; variant++) {
        void *mine = tensor(device.layer.residual, s.n * s.co, device.type);
        const struct vx_pair_reduce_args reduce = {
            .n = s.n,
            .v = s.v,
            .nbr_stride = stride,
            .co = s.co,
            .residual_stride = s.co,
            .out_stride = s.co,
            .activation = variant & 2 ? VX_ACTIVATION_RELU : VX_ACTIVATION_NONE,
            .used = variant & 4 ? 15 : 0,
            .places = places,
            .partial = args.partial,
            .bias = variant & 1 ? device.bias : NULL,
            .residual = variant & 8 ? mine : NULL,
            .out = mine};
        run("pair_reduce", &reduce, device.type);
        const struct vx_conv_device_args same = {.bias = reduce.bias,
                                                 .residual = reduce.residual,
                                                 .activation = reduce.activation,
                                                 .used = reduce.used,
                                                 .out = mine};
        check_out(&device, &same);
        vx_free(mine);
    }
    vx_free(starts);
    vx_free(in_rows);
    vx_free(places);
    vx_free(args.partial);
    device_end(&device);
}
END_TEST

/* A slice of the panel: each row's neighbours side by side, zeros where there is none. */
START_TEST(test_gather)
{
    const struct shape s = shapes[2 + _i % 3];
    struct device device = device_make(s, types[_i / 3]);
    const i32 first = 1, rows = s.n - 2, k = s.v * s.ci;
    i32 *zeros = vx_alloc_zero((size_t)(rows * k + 1) * 4);
    void *panel = tensor(zeros, rows * k, device.type);
    memset(panel, 0x55, (size_t)(rows * k) * (size_t)vx_number_bytes(device.type));
    const struct vx_conv_gather_args args = {.first = first,
                                             .rows = rows,
                                             .v = s.v,
                                             .nbr_stride = device.args.nbr_stride,
                                             .ci = s.ci,
                                             .in_stride = s.ci,
                                             .nbr = device.nbr,
                                             .in = device.in,
                                             .panel = panel};
    run("conv_gather", &args, device.type);
    for (i32 e = 0; e < rows * k; e++) {
        i32 from = device.layer.nbr[(first + e / k) * s.v + e % k / s.ci];
        ck_assert_double_eq(vx_number_ref_read(panel, device.type, e),
                            from < 0 ? 0 : device.layer.in[from * s.ci + e % s.ci]);
    }
    ck_assert(isnan(vx_number_ref_read(panel, device.type, rows * k)));
    vx_free(zeros);
    vx_free(panel);
    device_end(&device);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_conv");
    TCase *cases = tcase_create("kernels_conv");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_explicit, 0, 4 * (int)VX_COUNT(cpu_shapes));
    tcase_add_loop_test(cases, test_linear, 0, 4);
    tcase_add_test(cases, test_sums_in_double);
    tcase_add_test(cases, test_not_finite);
    tcase_add_loop_test(cases, test_masked, 0, 20);
    tcase_add_loop_test(cases, test_without_a_map, 0, 4);
    tcase_add_loop_test(cases, test_split_and_reduce, 0, 20);
    tcase_add_loop_test(cases, test_pairs_and_reduce, 0, 20);
    tcase_add_loop_test(cases, test_gather, 0, 12);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
