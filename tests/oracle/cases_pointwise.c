/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/10_activation.h"
#include "kernels/12_norm.h"
#include "kernels/13_elementwise.h"
#include "kernels/14_rows.h"
#include "kernels/19_softmax.h"
#include "kernels/20_curve.h"
#include "kernels/35_e4m3_rows.h"
#include "tests/oracle/cases.h"

#include <math.h>

/* Values are 4 at most, and the argument of a curve is 4*4 + 4.  The longest way to an
 * element is a fused multiply-add, exp or erf, an addition and a division: four roundings
 * of 2^-24 of 20.  Near -1 erf cancels in gelu and leaves x times 2^-23, which is less. */
#define SCALE 4.0
#define CURVE (4 * 20 * 0x1p-24)

/* Rows and channels, real and padded. */
struct shape {
    i64 n;
    i32 c, cp;
};

static size_t row_bytes(const struct shape *shape, enum vx_number type)
{
    return (size_t)shape->n * (size_t)shape->cp * (size_t)vx_number_bytes(type);
}

static struct vx_field *out_reals(struct vx_rig *rig, struct vx_trial *trial,
                                  const void *pointer, size_t bytes)
{
    struct vx_field *field = vx_trial_out(rig, trial, pointer, bytes);
    field->kind = VX_FIELD_REAL;
    field->type = trial->kernel.type;
    field->absolute = CURVE;
    return field;
}

/* An output in rows of shape->cp, more than the kernel's: what is behind its channels must not
 * change. */
static struct vx_field *out_rows(struct vx_rig *rig, struct vx_trial *trial,
                                 const void *pointer, const struct shape *shape)
{
    const size_t bytes = row_bytes(shape, trial->kernel.type);
    if (shape->cp == vx_channels_padded(shape->c))
        return out_reals(rig, trial, pointer, bytes);
    void *before = vx_rig_reals(rig, trial->kernel.type, shape->n * shape->cp, SCALE);
    struct vx_field *field = vx_trial_both(trial, pointer, before, bytes);
    field->kind = VX_FIELD_REAL;
    field->type = trial->kernel.type;
    field->absolute = CURVE;
    return field;
}

static void label(struct vx_trial *trial, const struct shape *shape, i32 variant)
{
    vx_trial_label(trial, "N=%lld C=%d of %d, variant %d", (long long)shape->n, shape->c,
                   shape->cp, variant);
}

static void activation_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                            const struct shape *shape, i32 variant)
{
    struct vx_activation_device_args args = {
        .n = shape->n, .cp = shape->cp, .activation = variant % 5};
    const i64 count = shape->n * shape->cp;
    static const f64 odd[] = {0.0, -0.0, 1e-6, -1e-6, 30.0, -30.0, 200.0, -200.0};
    struct vx_trial trial;
    void *in = vx_rig_reals(rig, kernel->type, count, 2 * SCALE);
    for (i64 e = 0; e < count && e < (i64)VX_COUNT(odd); e++)
        vx_number_ref_write(in, kernel->type, count - 1 - e, odd[e]);
    if (count > 100) vx_number_ref_write(in, kernel->type, 17, (f64)NAN);
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    struct vx_field *field =
        vx_trial_both(&trial, &args.out, in, row_bytes(shape, kernel->type));
    field->kind = VX_FIELD_REAL;
    field->type = kernel->type;
    field->absolute = 200 * 0x1p-23;
    vx_trial_same(&trial, &args.in, field);
    vx_trial_run(rig, &trial);
}

static void batch_norm_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                            const struct shape *shape, i32 variant)
{
    const struct shape wide = {shape->n, shape->c, shape->cp + variant % 3 * 16};
    struct vx_batch_norm_device_args args = {
        .n = shape->n, .cp = shape->cp, .activation = variant % 5, .in_stride = wide.cp};
    const size_t floats = (size_t)shape->cp * sizeof(f32);
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    vx_trial_in(&trial, &args.in,
                vx_rig_reals(rig, kernel->type, shape->n * wide.cp, SCALE),
                row_bytes(&wide, kernel->type));
    vx_trial_in(&trial, &args.scale, vx_rig_reals(rig, VX_NUMBER_F32, shape->cp, SCALE),
                floats);
    vx_trial_in(&trial, &args.shift, vx_rig_reals(rig, VX_NUMBER_F32, shape->cp, SCALE),
                floats);
    if (variant % 2) args.out_stride = wide.cp;
    (void)out_rows(rig, &trial, &args.out, variant % 2 ? &wide : shape);
    vx_trial_run(rig, &trial);
}

/* A lane adds at least 8 and at most C/32 values of size SCALE, then lanes are added: that is the
 * number of roundings of 2^-24.  They occur four times (the mean, the squares, their root, the
 * quotient), in a number that is divided by the spread, 4 / sqrt 3, and multiplied by 2. */
static void layer_norm_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                            const struct shape *shape, i32 variant)
{
    struct vx_layer_norm_device_args args = {.n = shape->n,
                                             .c = shape->c,
                                             .cp = shape->cp,
                                             .activation = variant % 5,
                                             .eps = variant % 2 ? 1e-5f : 1e-3f};
    const struct shape wide = {shape->n, shape->c, shape->cp + variant % 3 * 16};
    args.in_stride = wide.cp;
    if (variant % 2) args.out_stride = wide.cp;
    const size_t floats = (size_t)shape->c * sizeof(f32);
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    vx_trial_in(&trial, &args.in,
                vx_rig_reals(rig, kernel->type, shape->n * wide.cp, SCALE),
                row_bytes(&wide, kernel->type));
    if (variant % 3)
        vx_trial_in(&trial, &args.weight, vx_rig_reals(rig, VX_NUMBER_F32, shape->c, 2),
                    floats);
    if (variant % 3 != 1)
        vx_trial_in(&trial, &args.bias, vx_rig_reals(rig, VX_NUMBER_F32, shape->c, 2),
                    floats);
    out_rows(rig, &trial, &args.out, variant % 2 ? &wide : shape)->absolute =
        CURVE + 16 * (shape->c / 32.0 + 16) * 0x1p-24;
    /* Few channels may lie close together, and dividing by their small spread magnifies errors. */
    if (shape->c < 8) trial.fields[trial.count - 1].absolute = 0x1p-12;
    vx_trial_run(rig, &trial);
}

/* add and mul */
static void add_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                     const struct shape *shape, i32 variant)
{
    struct vx_add_device_args args = {
        .n = shape->n, .cp = shape->cp, .activation = variant % 5};
    const i64 count = shape->n * shape->cp;
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    vx_trial_in(&trial, &args.a, vx_rig_reals(rig, kernel->type, count, SCALE),
                row_bytes(shape, kernel->type));
    vx_trial_in(&trial, &args.b, vx_rig_reals(rig, kernel->type, count, SCALE),
                row_bytes(shape, kernel->type));
    out_reals(rig, &trial, &args.out, row_bytes(shape, kernel->type));
    vx_trial_run(rig, &trial);
}

static void affine_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape, i32 variant)
{
    static const f32 scales[] = {1.5f, -4.0f, 0.3f}, shifts[] = {-0.75f, 4.0f};
    struct vx_affine_device_args args = {.n = shape->n,
                                         .c = shape->c,
                                         .cp = shape->cp,
                                         .activation = variant % 5,
                                         .scale = scales[variant % 3],
                                         .shift = shifts[variant % 2]};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    vx_trial_in(&trial, &args.in,
                vx_rig_reals(rig, kernel->type, shape->n * shape->cp, SCALE),
                row_bytes(shape, kernel->type));
    out_reals(rig, &trial, &args.out, row_bytes(shape, kernel->type));
    vx_trial_run(rig, &trial);
}

/* Numbers of size 8, and those at which a curve ends or turns. */
static void curve_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct shape *shape, i32 variant)
{
    struct vx_curve_device_args args = {.n = shape->n,
                                        .cp = shape->cp,
                                        .curve = variant % 3,
                                        .slope = variant < 3 ? 0.01f : -1.5f};
    const i64 count = shape->n * shape->cp;
    static const f64 odd[] = {0.0,   -0.0,  1e-6,  -1e-6, 19.0,  20.0,
                              20.25, -20.0, 200.0, -80.0, 1e-39, -200.0};
    struct vx_trial trial;
    void *in = vx_rig_reals(rig, kernel->type, count, 2 * SCALE);
    for (i64 e = 0; e < count && e < (i64)VX_COUNT(odd); e++)
        vx_number_ref_write(in, kernel->type, count - 1 - e, odd[e]);
    if (count > 100) vx_number_ref_write(in, kernel->type, 17, (f64)NAN);
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    struct vx_field *field =
        vx_trial_both(&trial, &args.out, in, row_bytes(shape, kernel->type));
    field->kind = VX_FIELD_REAL;
    field->type = kernel->type;
    field->absolute = CURVE;
    vx_trial_same(&trial, &args.in, field);
    vx_trial_run(rig, &trial);
}

/* A lane adds at least 8 and at most C/32 exponentials, then 5 times the lanes are added.  An
 * exponential has the rounding of its argument, up to 8, and two of its own; the quotient one.
 * The largest of C results is at most exp(8) / C. */
static f64 softmax_bound(i32 c)
{
    f64 terms = c / 32.0 > 8 ? c / 32.0 : 8;
    return fmin(1, exp(2 * SCALE) / c) * (terms + 5 + 8 + 4) * 0x1p-24;
}

/* softmax in place, and argmax: variants 1 and 2 have rows with NaN, and with infinities.  Whole
 * numbers are often equal, so that the lowest channel must win. */
static void softmax_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                         const struct shape *shape, i32 variant)
{
    struct vx_softmax_device_args args = {.n = shape->n, .c = shape->c, .cp = shape->cp};
    const enum vx_number type = kernel->type;
    const i64 count = shape->n * shape->cp;
    const f64 odd = variant == 1 ? (f64)NAN : (f64)INFINITY;
    struct vx_trial trial;
    struct vx_field *field;
    void *in = vx_rig_reals(rig, type, count, SCALE);
    for (i64 e = 0; e < count && variant == 3; e++)
        vx_number_ref_write(in, type, e, floor(vx_number_ref_read(in, type, e)));
    for (i64 i = 0; i < shape->n && variant % 3; i += 3) {
        vx_number_ref_write(in, type, i * shape->cp + shape->c / 2, odd);
        vx_number_ref_write(in, type, i * shape->cp + shape->c - 1, odd);
    }
    for (i64 e = 0; e < shape->cp && shape->n > 0 && variant == 2; e++)
        vx_number_ref_write(in, type, count - shape->cp + e, -(f64)INFINITY);
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    if (kernel->spec == vx_kernel_find("argmax")) {
        i32 *rows = vx_rig_take(rig, (size_t)shape->n * sizeof *rows);
        for (i64 i = 0; i < shape->n; i++) rows[i] = (i32)(shape->n - 1 - i);
        vx_trial_in(&trial, &args.in, in, row_bytes(shape, type));
        if (variant % 2)
            vx_trial_in(&trial, &args.rows, rows, (size_t)shape->n * sizeof *rows);
        vx_trial_out(rig, &trial, &args.out, (size_t)shape->n * sizeof(i32));
    } else {
        field = vx_trial_both(&trial, &args.out, in, row_bytes(shape, type));
        field->kind = VX_FIELD_REAL;
        field->type = type;
        field->absolute = softmax_bound(shape->c);
        vx_trial_same(&trial, &args.in, field);
    }
    vx_trial_run(rig, &trial);
}

static void concat_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct shape *shape, i32 variant)
{
    static const i32 more[] = {0, 1, 3, 16, 7, 64, 33, 20};
    struct vx_concat_device_args args = {.n = shape->n, .inputs_count = 1 + variant % 8};
    /* In every second variant, where it may be, the first input is in its place. */
    const bool there = shape->c % 16 == 0 && variant % 2;
    struct vx_trial trial;
    i32 channels = 0;
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    for (i32 k = 0; k < args.inputs_count; k++) {
        struct vx_concat_device_input *input = &args.inputs[k];
        input->c = k ? more[(k + variant) % 8] + 1 : shape->c;
        input->cp = vx_channels_padded(input->c) + variant % 3 * 16;
        channels += input->c;
        if (there && !k) continue;
        const struct shape one = {shape->n, input->c, input->cp};
        vx_trial_in(&trial, &input->data,
                    vx_rig_reals(rig, kernel->type, shape->n * input->cp, SCALE),
                    row_bytes(&one, kernel->type));
    }
    args.cp = vx_channels_padded(channels);
    const struct shape all = {shape->n, channels, args.cp};
    if (there) {
        (void)vx_trial_both(&trial, &args.out,
                            vx_rig_reals(rig, kernel->type, shape->n * args.cp, SCALE),
                            row_bytes(&all, kernel->type));
    } else {
        vx_trial_out(rig, &trial, &args.out, row_bytes(&all, kernel->type));
    }
    vx_trial_run(rig, &trial);
}

static i32 *permutation(struct vx_rig *rig, i64 n)
{
    i32 *rows = vx_rig_take(rig, (size_t)n * sizeof *rows);
    for (i64 i = 0; i < n; i++) {
        i64 other = vx_rig_below(rig, i + 1);
        rows[i] = rows[other];
        rows[other] = (i32)i;
    }
    return rows;
}

/* One side has the request's type and any alignment; the other has the device's type. */
static void rows_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                      const struct shape *shape, i32 variant)
{
    static const enum vx_number numbers[] = {VX_NUMBER_F32, VX_NUMBER_F16,
                                             VX_NUMBER_BF16};
    struct vx_rows_args args = {
        .n = shape->n, .c = shape->c, .cp = shape->cp, .number = numbers[variant % 3]};
    const enum vx_number number = numbers[variant % 3];
    const bool in = kernel->spec == vx_kernel_find("rows_in");
    const i64 count = shape->n * shape->c;
    const size_t request = (size_t)count * (size_t)vx_number_bytes(number);
    const enum vx_number from = in ? number : kernel->type;
    struct vx_trial trial;
    struct vx_field *field;
    i64 from_count = in ? count : shape->n * shape->cp;
    void *data = vx_rig_reals(rig, from, from_count, SCALE);
    static const f64 odd[] = {1e9, -1e9, 3e-6, -1e-7, 65519.0, 65520.0, 1e-39, (f64)NAN};
    for (i64 e = 0; from_count > 200 && e < (i64)VX_COUNT(odd); e++)
        vx_number_ref_write(data, from, from_count - 100 + e, odd[e]);
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    if (variant % 2)
        vx_trial_in(&trial, &args.rows, permutation(rig, shape->n),
                    (size_t)shape->n * sizeof(i32));
    field = vx_trial_in(&trial, &args.in, data,
                        in ? request : row_bytes(shape, kernel->type));
    if (in && variant > 5) field->shift = vx_number_bytes(number);
    field =
        out_reals(rig, &trial, &args.out, in ? row_bytes(shape, kernel->type) : request);
    field->type = in ? kernel->type : number;
    field->absolute = -1; /* only converted: each bit is known */
    if (!in && variant > 5) field->shift = vx_number_bytes(number);
    vx_trial_run(rig, &trial);
}

/* Each bit is known: the middles between two numbers, the smallest, what is beyond the largest. */
static void e4m3_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                      const struct shape *shape, i32 variant)
{
    static const f64 odd[] = {448,      464,      -1e9,    1.0625,      1.1875, 0x1p-10,
                              0x3p-11,  -0x1p-11, 0x1p-40, 0x1.effcp-7, 0,      -0.0,
                              (f64)NAN, 0x1p-6,   240,     -0x1.1p-9};
    const struct shape wide = {shape->n, shape->c, shape->cp + variant % 3 * 16};
    static const f32 scales[] = {1, 0x1p-3f, 0x1p5f, 0x1p8f};
    const f32 scale = scales[variant / 2 % 4];
    struct vx_e4m3_rows_args args = {.n = shape->n,
                                     .cp = shape->cp,
                                     .in_stride = variant % 3 ? wide.cp : 0,
                                     .bytes = variant % 2,
                                     .scale = scale,
                                     .inverse = 1 / scale};
    const i64 count = shape->n * wide.cp;
    void *in = vx_rig_reals(rig, kernel->type, count, SCALE);
    struct vx_trial trial;
    for (i64 e = 0; e < count && e < (i64)VX_COUNT(odd); e++)
        vx_number_ref_write(in, kernel->type, e, odd[e]);
    vx_trial_init(&trial, kernel, &args);
    label(&trial, shape, variant);
    vx_trial_in(&trial, &args.in, in, row_bytes(&wide, kernel->type));
    if (args.bytes) {
        (void)vx_trial_out(rig, &trial, &args.out, (size_t)(shape->n * shape->cp));
    } else {
        struct vx_field *field =
            out_reals(rig, &trial, &args.out, row_bytes(shape, kernel->type));
        field->absolute = -1;
    }
    vx_trial_run(rig, &trial);
}

static const struct {
    const char *name;
    void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                const struct shape *shape, i32 variant);
    i32 variants;
} kernels[] = {
    {"activation", activation_case, 5}, {"batch_norm", batch_norm_case, 5},
    {"layer_norm", layer_norm_case, 6}, {"add", add_case, 5},
    {"concat", concat_case, 8},         {"rows_in", rows_case, 12},
    {"rows_out", rows_case, 12},        {"mul", add_case, 5},
    {"affine", affine_case, 6},         {"curve", curve_case, 6},
    {"softmax", softmax_case, 4},       {"argmax", softmax_case, 4},
    {"e4m3_rows", e4m3_case, 12},
};

void vx_cases_pointwise(struct vx_rig *rig)
{
    static const i64 sizes[] = {0, 1, 33, 257, 31, 32, 255, 256, 1000, 10007};
    static const i32 channels[] = {1,   3,   7,   16,   20,   64,   96,   128,
                                   256, 300, 512, 1000, 1040, 2100, 4100, 16384};
    const size_t count = rig->size == VX_RIG_FULL ? 10 : rig->size == VX_RIG_FAKE ? 4 : 3;
    const struct vx_jit_wanted *kernel = NULL;
    i32 turn = 0;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (size_t s = 0; s < count; s++)
                for (size_t c = 0; c < VX_COUNT(channels); c++) {
                    struct shape shape = {sizes[s], channels[c],
                                          vx_channels_padded(channels[c])};
                    const i64 elements = shape.n * shape.cp;
                    if (elements > 1000000 || (elements > 100000 && turn++ % 3)) continue;
                    if (rig->size != VX_RIG_FULL && elements > 40000) continue;
                    if (rig->size == VX_RIG_SMALL && (c + s) % 3) continue;
                    /* Small shapes run in every variant, large ones in one variant each. */
                    i32 all = elements < 3000 ? kernels[k].variants : 1;
                    if (rig->size == VX_RIG_SMALL) all = 1;
                    for (i32 v = 0; v < all; v++, turn++) {
                        i32 variant = all > 1 ? v : turn % kernels[k].variants;
                        kernels[k].run(rig, kernel, &shape, variant);
                        vx_rig_reset(rig);
                    }
                }
}
