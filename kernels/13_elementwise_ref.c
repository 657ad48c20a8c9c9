/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/13_elementwise.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Element c of row i, where rows may be longer than C. */
static int64_t element(const struct vx_pair_args *args, int32_t stride, int64_t i,
                       int64_t c)
{
    return i * (stride ? stride : args->c) + c;
}

static void pair_ref(const struct vx_pair_args *args, int product)
{
    for (int64_t i = 0; i < args->n; i++)
        for (int64_t c = 0; c < args->c; c++) {
            double a = (double)args->a[element(args, args->a_stride, i, c)];
            double b = (double)args->b[element(args, args->b_stride, i, c)];
            args->out[element(args, args->out_stride, i, c)] =
                (float)vx_activation_ref_one(args->activation, product ? a * b : a + b);
        }
}

void vx_add_ref(const struct vx_pair_args *args)
{
    pair_ref(args, 0);
}

void vx_mul_ref(const struct vx_pair_args *args)
{
    pair_ref(args, 1);
}

void vx_affine_ref(const struct vx_affine_args *args)
{
    for (int64_t e = 0; e < args->n * args->c; e++) {
        double y = (double)args->in[e] * (double)args->scale + (double)args->shift;
        args->out[e] = (float)vx_activation_ref_one(args->activation, y);
    }
}

void vx_concat_ref(const struct vx_concat_args *args)
{
    float *out = args->out;
    for (int64_t i = 0; i < args->n; i++)
        for (int32_t k = 0; k < args->inputs_count; k++)
            for (int32_t c = 0; c < args->inputs[k].c; c++, out++) {
                const struct vx_concat_input *in = &args->inputs[k];
                if (in->data) *out = in->data[i * (in->stride ? in->stride : in->c) + c];
            }
}

/* A 16-bit float: its exponent and fraction bits define everything else. */
struct half_format {
    int exponent_bits, fraction_bits;
};
static const struct half_format f16_format = {5, 10};
static const struct half_format bf16_format = {8, 7};

/* A normal number has the same fields in a double, with more bits in each.  The fake
 * device reads nearly all of its numbers here: inline, so that each format is compiled
 * with its own constants and a normal number needs no call. */
static inline double half_to_double(uint16_t bits, struct half_format format)
{
    int exponent_max = (1 << format.exponent_bits) - 1;
    int exponent = bits >> format.fraction_bits & exponent_max;
    int fraction = bits & ((1 << format.fraction_bits) - 1);
    int bias = exponent_max / 2;
    double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == exponent_max)
        return sign * (fraction ? (double)NAN : (double)INFINITY);
    if (exponent == 0)
        return sign * fraction * ldexp(1.0, 1 - bias - format.fraction_bits);
    uint64_t wide = (uint64_t)(bits >> 15) << 63 |
                    (uint64_t)(exponent - bias + DBL_MAX_EXP - 1) << (DBL_MANT_DIG - 1) |
                    (uint64_t)fraction << (DBL_MANT_DIG - 1 - format.fraction_bits);
    double value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t half_of_double(double value, struct half_format format)
{
    int exponent_max = (1 << format.exponent_bits) - 1;
    int bias = exponent_max / 2;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    (void)frexp(value, &exponent); /* |value| = f * 2^exponent, f in [0.5, 1) */
    int biased = exponent - 1 + bias;
    if (value == 0.0) return sign;
    if (isinf(value)) return (uint16_t)(sign | exponent_max << format.fraction_bits);
    if (biased < 1) biased = 1; /* subnormal: the same step as the smallest normal */
    /* rint rounds ties to even; a carry out of the fraction goes into the exponent. */
    double steps = rint(ldexp(fabs(value), bias + format.fraction_bits - biased));
    if (steps >= ldexp(2.0, format.fraction_bits)) {
        steps /= 2;
        biased++;
    }
    if (biased >= exponent_max)
        return (uint16_t)(sign | exponent_max << format.fraction_bits);
    int whole = (int)steps;
    if (whole < 1 << format.fraction_bits) return (uint16_t)(sign | whole);
    return (uint16_t)(sign | biased << format.fraction_bits |
                      (whole - (1 << format.fraction_bits)));
}

/* A NaN as f32, made quiet, with its sign and its top bits of fraction; 0 if no NaN. */
static uint32_t nan_read(const void *from, enum vx_number type, int64_t e)
{
    uint32_t bits;
    if (type == VX_NUMBER_F32) {
        memcpy(&bits, (const float *)from + e, sizeof bits);
        return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : 0;
    }
    bits = ((const uint16_t *)from)[e];
    if (type == VX_NUMBER_BF16)
        return (bits & 0x7fffu) > 0x7f80u ? bits << 16 | 0x00400000u : 0;
    if ((bits & 0x7fffu) <= 0x7c00u) return 0;
    return (bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13;
}

static void nan_write(const struct vx_convert_args *args, int64_t e, uint32_t bits)
{
    uint16_t *half = (uint16_t *)args->to + e;
    if (args->to_type == VX_NUMBER_F32) memcpy((float *)args->to + e, &bits, sizeof bits);
    if (args->to_type == VX_NUMBER_BF16) *half = (uint16_t)(bits >> 16);
    if (args->to_type == VX_NUMBER_F16)
        *half = (uint16_t)((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
}

static double number_read(const void *from, enum vx_number type, int64_t e)
{
    if (type == VX_NUMBER_F16)
        return half_to_double(((const uint16_t *)from)[e], f16_format);
    if (type == VX_NUMBER_BF16)
        return half_to_double(((const uint16_t *)from)[e], bf16_format);
    return (double)((const float *)from)[e];
}

void vx_convert_ref(const struct vx_convert_args *args)
{
    if (args->from_type == args->to_type) {
        size_t bytes =
            args->from_type == VX_NUMBER_F32 ? sizeof(float) : sizeof(uint16_t);
        memcpy(args->to, args->from, (size_t)args->count * bytes);
        return;
    }
    for (int64_t e = 0; e < args->count; e++) {
        uint32_t nan_bits = nan_read(args->from, args->from_type, e);
        if (nan_bits) {
            nan_write(args, e, nan_bits);
            continue;
        }
        double value = number_read(args->from, args->from_type, e);
        if (args->to_type == VX_NUMBER_F32)
            ((float *)args->to)[e] = (float)value;
        else
            ((uint16_t *)args->to)[e] = half_of_double(
                value, args->to_type == VX_NUMBER_F16 ? f16_format : bf16_format);
    }
}

double vx_number_ref_read(const void *from, enum vx_number type, int64_t e)
{
    return number_read(from, vx_number_stored(type), e);
}

void vx_number_ref_read_row(const void *from, enum vx_number type, int64_t e,
                            int32_t count, double *row)
{
    type = vx_number_stored(type);
    for (int32_t k = 0; k < count; k++) row[k] = number_read(from, type, e + k);
}

void vx_number_ref_write(void *to, enum vx_number type, int64_t e, double value)
{
    enum vx_number stored = vx_number_stored(type);
    struct vx_convert_args args = {.to_type = stored, .to = to};
    if (isnan(value))
        nan_write(&args, e, 0x7fc00000u);
    else if (stored == VX_NUMBER_F32)
        ((float *)to)[e] = (float)value;
    else
        ((uint16_t *)to)[e] =
            half_of_double(value, stored == VX_NUMBER_F16 ? f16_format : bf16_format);
}
