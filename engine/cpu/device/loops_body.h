/* loops_body - the code of the inner loops, for any vector width.
 *
 * The including file defines VX_LANES, the number of floats in a vector, VX_TILE_VECTORS,
 * the most vectors of columns in a register tile, and VX_TILE_ROWS(vectors), the rows of
 * a tile with so many vectors.  The code is compiled with -ffp-contract=fast, so that a
 * product and a sum become one instruction if there is one; else it follows IEEE.
 *
 * Every element of a result is one chain of operations in an order that depends on its
 * row only, so its bits do not depend on the rows that share its register tile.
 *
 * Thread   any; pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_LOOPS_BODY_H
#define VX_ENGINE_CPU_LOOPS_BODY_H

#include "engine/cpu/device/loops.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef f32 vf __attribute__((vector_size(VX_LANES * 4), aligned(4), may_alias));
typedef i32 vi __attribute__((vector_size(VX_LANES * 4), aligned(4), may_alias));
typedef u32 vu __attribute__((vector_size(VX_LANES * 4), aligned(4), may_alias));

#define LINE_FLOATS 16 /* floats of a cache line */

/* One register tile: `rows` pairs by `vectors` vectors of columns. */
INLINE void multiply_tile(const struct vx_product *product, i64 first, int rows,
                          int vectors)
{
    const f32 *in[8];
    vf sum[8][4];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        in[r] = product->in + product->in_rows[first + r] * product->in_stride;
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++) sum[r][c] = (vf){0};
    }
    const f32 *weight = product->weight;
    for (i64 k = 0; k < product->depth; k++) {
        vf w[4];
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++) w[c] = *(const vf *)(weight + c * VX_LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vf x = in[r][k] - (vf){0};
#pragma GCC unroll 4
            for (int c = 0; c < vectors; c++) sum[r][c] += x * w[c];
        }
        weight += product->weight_stride;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        f32 *out = product->out + product->out_rows[first + r] * product->out_stride;
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++) *(vf *)(out + c * VX_LANES) += sum[r][c];
    }
}

/* Prefetches the rows of the next register tile, which may lie anywhere in memory. */
INLINE void multiply_prefetch(const struct vx_product *product, i64 first, int rows)
{
    for (i64 p = first; p < first + rows && p < product->pairs; p++) {
        const f32 *in = product->in + product->in_rows[p] * product->in_stride;
        for (i32 k = 0; k < product->depth; k += LINE_FLOATS) __builtin_prefetch(in + k);
    }
}

INLINE void multiply_columns(const struct vx_product *product, int vectors)
{
    const int rows = VX_TILE_ROWS(vectors);
    i64 p = 0;
    for (; p + rows <= product->pairs; p += rows) {
        multiply_prefetch(product, p + rows, rows);
        multiply_tile(product, p, rows, vectors);
    }
    for (; p + 4 <= product->pairs; p += 4) multiply_tile(product, p, 4, vectors);
    for (; p + 2 <= product->pairs; p += 2) multiply_tile(product, p, 2, vectors);
    for (; p < product->pairs; p++) multiply_tile(product, p, 1, vectors);
}

static void multiply(const struct vx_product *product)
{
    struct vx_product part = *product;
    while (part.columns > 0) {
        int vectors = part.columns / VX_LANES;
        if (vectors > VX_TILE_VECTORS) vectors = VX_TILE_VECTORS;
        switch (vectors) {
        case 1: multiply_columns(&part, 1); break;
        case 2: multiply_columns(&part, 2); break;
#if VX_TILE_VECTORS >= 3
        case 3: multiply_columns(&part, 3); break;
#endif
#if VX_TILE_VECTORS >= 4
        case 4: multiply_columns(&part, 4); break;
#endif
        default: return; /* columns are a multiple of lanes */
        }
        part.columns -= vectors * VX_LANES;
        part.weight += vectors * VX_LANES;
        part.out += vectors * VX_LANES;
    }
}

/* A vector from `count` floats or more; of fewer, zeros behind them. */
INLINE vf vector_load(const f32 *from, i64 count)
{
    if (count >= VX_LANES) return *(const vf *)from;
    f32 part[VX_LANES] = {0};
    memcpy(part, from, (size_t)count * sizeof *from);
    return *(const vf *)part;
}

/* Stores the first `count` floats of a vector. */
INLINE void vector_store(f32 *to, i64 count, vf value)
{
    if (count >= VX_LANES)
        *(vf *)to = value;
    else
        memcpy(to, &value, (size_t)count * sizeof *to);
}

INLINE vf pick(vi mask, vf yes, vf no)
{
    return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}

INLINE vf absolute(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

/* exp(x) for x <= 0; 0 below -87.3, where the result would be subnormal; NaN stays NaN.
 *
 *   x = n ln 2 + r   with |r| <= ln 2 / 2
 *   exp(r)           by its Taylor series up to r^7 / 7!; the rest is below 6e-9 */
INLINE vf exp_negative(vf x)
{
    /* 1.5 * 2^23: adding it rounds to an integer in the low bits. */
    const f32 round = 12582912.0f;
    vi tiny = x < -87.3f;
    x = pick(tiny, (vf){0} - 87.3f, x);
    vf shifted = x * 1.44269504f + round;
    vf n = shifted - round;
    vf r = x - n * 0.693359375f; /* ln 2 in two parts; n times the first is exact */
    r = r + n * 2.12194440e-4f;
    vf p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vu exponent = (vu)shifted - 0x4b400000u; /* the bits of `round` */
    vf y = (vf)((vu)p + (exponent << 23));
    y = pick(x <= 0.0f, y, x); /* false for NaN */
    return pick(tiny, (vf){0}, y);
}

/* 1 / (1 + exp(-x)); exp only of negative numbers: no overflow, no cancellation. */
INLINE vf sigmoid(vf x)
{
    vf e = exp_negative((vf){0} - absolute(x));
    vf y = 1.0f / (1.0f + e);
    return pick(x < 0.0f, e * y, y);
}

/* x * Phi(x).  With z = |x| / sqrt 2:
 *
 *   1 - Phi(|x|) = erfc(z) / 2 = exp(-z^2) * h(z)
 *
 * h is a polynomial in 1 / (1 + z/2), fitted for z in [0, 9.4]: relative error 3e-8. */
INLINE vf gelu(vf x)
{
    vf a = absolute(x);
    vf t = 1.0f / (1.0f + 0.35355339f * a);
    vf h = t * -0.02696225978434086f + 0.12900149822235107f;
    h = h * t - 0.21408109366893768f;
    h = h * t + 0.10211891680955887f;
    h = h * t + 0.015229553915560246f;
    h = h * t + 0.08723940700292587f;
    h = h * t + 0.12599191069602966f;
    h = h * t + 0.14033137261867523f;
    h = h * t + 0.1411348283290863f;
    h = h * t - 4.138776603213046e-06f;
    vf tail = h * exp_negative(a * a * -0.5f);
    return x * pick(x < 0.0f, tail, 1.0f - tail);
}

INLINE vf curve(enum vx_activation activation, vf x)
{
    switch (activation) {
    case VX_ACTIVATION_RELU: return pick(x < 0.0f, (vf){0}, x);
    case VX_ACTIVATION_SILU: return x * sigmoid(x);
    case VX_ACTIVATION_GELU: return gelu(x);
    case VX_ACTIVATION_SIGMOID: return sigmoid(x);
    default: return x;
    }
}

INLINE void activate_as(enum vx_activation activation, const f32 *in, f32 *out, i64 count)
{
    i64 e = 0;
    for (; e + VX_LANES <= count; e += VX_LANES)
        *(vf *)(out + e) = curve(activation, *(const vf *)(in + e));
    if (e == count) return;
    /* The same code for the rest: an element's bits do not depend on its place. */
    f32 last[VX_LANES] = {0};
    memcpy(last, in + e, (size_t)(count - e) * sizeof *in);
    *(vf *)last = curve(activation, *(const vf *)last);
    memcpy(out + e, last, (size_t)(count - e) * sizeof *out);
}

static void activate(enum vx_activation activation, const f32 *in, f32 *out, i64 count)
{
    switch (activation) {
    case VX_ACTIVATION_NONE:
        if (in != out) memcpy(out, in, (size_t)count * sizeof *out);
        break;
    case VX_ACTIVATION_RELU: activate_as(VX_ACTIVATION_RELU, in, out, count); break;
    case VX_ACTIVATION_SILU: activate_as(VX_ACTIVATION_SILU, in, out, count); break;
    case VX_ACTIVATION_GELU: activate_as(VX_ACTIVATION_GELU, in, out, count); break;
    case VX_ACTIVATION_SIGMOID: activate_as(VX_ACTIVATION_SIGMOID, in, out, count); break;
    }
}

static void scale_shift(const f32 *in, const f32 *scale, const f32 *shift, f32 *out,
                        i32 c)
{
    for (i32 e = 0; e < c; e++) out[e] = in[e] * scale[e] + shift[e];
}

/* The sum of in - center, or of its square, over a row: by lanes, then over the lanes. */
INLINE f32 row_sum(const f32 *in, i32 c, f32 center, bool squared)
{
    vf lanes = {0};
    f32 sum = 0;
    i32 e = 0;
    for (; e + VX_LANES <= c; e += VX_LANES) {
        vf x = *(const vf *)(in + e) - center;
        if (squared) x *= x;
        lanes += x;
    }
    for (; e < c; e++)
        sum += squared ? (in[e] - center) * (in[e] - center) : in[e] - center;
    for (int lane = 0; lane < VX_LANES; lane++) sum += lanes[lane];
    return sum;
}

static void layer_norm(const struct vx_norm_row *norm, const f32 *in, f32 *out)
{
    f32 mean = row_sum(in, norm->c, 0, false) / (f32)norm->c;
    /* A second pass around the mean corrects its rounding error, which matters when the
     * mean is large. */
    mean += row_sum(in, norm->c, mean, false) / (f32)norm->c;
    f32 variance = row_sum(in, norm->c, mean, true) / (f32)norm->c;
    f32 scale = 1.0f / sqrtf(variance + norm->eps);
    for (i32 e = 0; e < norm->c; e++) out[e] = (in[e] - mean) * scale;
    if (norm->weight)
        for (i32 e = 0; e < norm->c; e++) out[e] *= norm->weight[e];
    if (norm->bias)
        for (i32 e = 0; e < norm->c; e++) out[e] += norm->bias[e];
}

static void add(const f32 *a, const f32 *b, f32 *out, i64 count)
{
    for (i64 e = 0; e < count; e++) out[e] = a[e] + b[e];
}

static void mul(const f32 *a, const f32 *b, f32 *out, i64 count)
{
    for (i64 e = 0; e < count; e++) out[e] = a[e] * b[e];
}

static void affine(const struct vx_affine_args *args, i64 begin, i64 end)
{
    const f32 scale = args->scale;
    const f32 shift = args->shift;
    for (i64 e = begin; e < end; e++) args->out[e] = args->in[e] * scale + shift;
}

/* log(1 + e) for 0 <= e <= 1; NaN stays NaN.
 *
 *   s = e / (2 + e)                   at most 1/3
 *   log(1 + e) = 2 artanh(s)          its series up to s^15 / 15; the rest is below 2e-9 */
INLINE vf log_of_1_plus(vf e)
{
    vf s = e / (2.0f + e);
    vf z = s * s;
    vf p = z * (1.0f / 15) + 1.0f / 13;
    p = p * z + 1.0f / 11;
    p = p * z + 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    s += s;
    return s * (p * z) + s;
}

/* max(x, 0) + log(1 + exp(-|x|)): beyond 20 the logarithm is lost in the rounding of x. */
INLINE vf softplus(vf x)
{
    vf y = log_of_1_plus(exp_negative((vf){0} - absolute(x)));
    return pick(x > 0.0f, x + y, y);
}

/* Near 0, where 1 - exp(-2|x|) would cancel, five levels of Lambert's continued fraction
 * x/(1 + x^2/(3 + x^2/(5 + x^2/(7 + x^2/9)))): relative error below 2e-9 for |x| < 0.625. */
INLINE vf hyperbolic_tangent(vf x)
{
    vf a = absolute(x);
    vf z = x * x;
    vf near = x * ((z + 105.0f) * z + 945.0f) / ((z * 15.0f + 420.0f) * z + 945.0f);
    vf e = exp_negative(a * -2.0f);
    vf far = 1.0f - (e + e) / (1.0f + e);
    far = pick(x < 0.0f, (vf){0} - far, far);
    return pick(a < 0.625f, near, far);
}

INLINE vf curve_of(enum vx_curve kind, f32 slope, vf x)
{
    switch (kind) {
    case VX_CURVE_LEAKY_RELU: return pick(x > 0.0f, x, x * slope);
    case VX_CURVE_SOFTPLUS: return softplus(x);
    default: return hyperbolic_tangent(x);
    }
}

INLINE void curve_as(enum vx_curve kind, const struct vx_curve_args *args, i64 begin,
                     i64 end)
{
    for (i64 e = begin; e < end; e += VX_LANES) {
        i64 count = end - e;
        vector_store(args->out + e, count,
                     curve_of(kind, args->slope, vector_load(args->in + e, count)));
    }
}

static void curve_run(const struct vx_curve_args *args, i64 begin, i64 end)
{
    switch (args->curve) {
    case VX_CURVE_LEAKY_RELU: curve_as(VX_CURVE_LEAKY_RELU, args, begin, end); break;
    case VX_CURVE_SOFTPLUS: curve_as(VX_CURVE_SOFTPLUS, args, begin, end); break;
    case VX_CURVE_TANH: curve_as(VX_CURVE_TANH, args, begin, end); break;
    }
}

/* The largest of a row; NaN if there is one. */
INLINE f32 row_max(const f32 *in, i32 c)
{
    vf lanes = (vf){0} - INFINITY;
    f32 most = -INFINITY;
    i32 e = 0;
    for (; e + VX_LANES <= c; e += VX_LANES) {
        vf x = *(const vf *)(in + e);
        lanes = pick((x > lanes) | (x != x), x, lanes);
    }
    for (; e < c; e++)
        if (in[e] > most || in[e] != in[e]) most = in[e];
    for (int lane = 0; lane < VX_LANES; lane++)
        if (lanes[lane] > most || lanes[lane] != lanes[lane]) most = lanes[lane];
    return most;
}

static void softmax(const f32 *in, f32 *out, i32 c)
{
    f32 most = row_max(in, c);
    vf lanes = {0};
    for (i32 e = 0; e < c; e += VX_LANES) {
        vf y = exp_negative(vector_load(in + e, c - e) - most);
        vector_store(out + e, c - e, y);
        lanes += vector_load(out + e, c - e); /* behind the last channel zeros */
    }
    f32 sum = 0;
    for (int lane = 0; lane < VX_LANES; lane++) sum += lanes[lane];
    for (i32 e = 0; e < c; e++) out[e] /= sum;
}

static i32 argmax(const f32 *in, i32 c)
{
    f32 most = row_max(in, c);
    i32 e = 0;
    while (e < c - 1 && in[e] != most && in[e] == in[e]) e++;
    return e;
}

#include "engine/cpu/device/loops_convert_body.h"
#include "engine/cpu/device/loops_gather_body.h"

static bool here(void);

const struct vx_loops VX_LOOPS = {
    .name = VX_LOOPS_NAME,
    .lanes = VX_LANES,
    .here = here,
    .multiply = multiply,
    .activate = activate,
    .scale_shift = scale_shift,
    .layer_norm = layer_norm,
    .add = add,
    .mul = mul,
    .affine = affine,
    .curve = curve_run,
    .e4m3_round = e4m3_round,
    .softmax = softmax,
    .argmax = argmax,
    .pool = pool,
    .depthwise = depthwise,
    .blend = blend,
    .columns = columns,
    .normalize = normalize,
    .f16_to_f32 = f16_to_f32,
    .bf16_to_f32 = bf16_to_f32,
    .f32_to_f16 = f32_to_f16,
    .f32_to_bf16 = f32_to_bf16,
};

#endif
