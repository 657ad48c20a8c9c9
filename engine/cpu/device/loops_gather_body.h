/* loops_gather_body - the part of loops_body.h whose loops take rows from any place.
 *
 * loops_body.h includes it, behind what both use.  A column is one chain of operations
 * over the rows, in their order.  Several vectors of columns go side by side, so that one
 * addition need not wait for the one before.
 *
 * Thread   any; pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_LOOPS_GATHER_BODY_H
#define VX_ENGINE_CPU_LOOPS_GATHER_BODY_H

#define GATHER_VECTORS 4 /* side by side: the latency of an addition */

/* Where the next vector of columns begins.  The last columns of a row that is no whole
 * number of vectors are computed twice rather than one by one: so out may not be in. */
INLINE i32 gather_next(i32 e, i32 c, i32 lanes)
{
    return e + lanes > c ? c - lanes : e;
}

/* `vectors` vectors of columns from column e on; 0: a row that is shorter than one. */
INLINE void pool_columns(enum vx_pool_mode mode, const struct vx_gathered *gathered,
                         i32 e, int vectors, f32 *out)
{
    vf value[GATHER_VECTORS];
    const int n = vectors ? vectors : 1;
    const i64 count = vectors ? VX_LANES : gathered->c;
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) value[k] = (vf){0};
    for (i32 p = 0; p < gathered->count; p++) {
        const f32 *in = gathered->in + gathered->rows[p] * gathered->stride + e;
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            vf x = vector_load(in + k * VX_LANES, count);
            if (mode == VX_POOL_MAX)
                value[k] = p ? pick((x > value[k]) | (x != x), x, value[k]) : x;
            else
                value[k] += x;
        }
    }
    f32 divisor = gathered->count ? (f32)gathered->count : 1.0f;
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        if (mode == VX_POOL_AVG) value[k] /= divisor;
        vector_store(out + e + k * VX_LANES, count, value[k]);
    }
}

INLINE void pool_as(enum vx_pool_mode mode, const struct vx_gathered *gathered, f32 *out)
{
    const i32 c = gathered->c;
    i32 e = 0;
    if (c < VX_LANES) {
        pool_columns(mode, gathered, 0, 0, out);
        return;
    }
    for (; e + GATHER_VECTORS * VX_LANES <= c; e += GATHER_VECTORS * VX_LANES)
        pool_columns(mode, gathered, e, GATHER_VECTORS, out);
    for (; e < c; e += VX_LANES)
        pool_columns(mode, gathered, gather_next(e, c, VX_LANES), 1, out);
}

static void pool(enum vx_pool_mode mode, const struct vx_gathered *gathered, f32 *out)
{
    switch (mode) {
    case VX_POOL_MAX: pool_as(VX_POOL_MAX, gathered, out); break;
    case VX_POOL_AVG: pool_as(VX_POOL_AVG, gathered, out); break;
    case VX_POOL_SUM: pool_as(VX_POOL_SUM, gathered, out); break;
    }
}

INLINE void depthwise_columns(const struct vx_gathered *gathered, i32 e, int vectors,
                              f32 *out)
{
    vf sum[GATHER_VECTORS];
    const int n = vectors ? vectors : 1;
    const i64 count = vectors ? VX_LANES : gathered->c;
    const f32 *bias = gathered->bias ? gathered->bias + e : NULL;
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        sum[k] = bias ? vector_load(bias + k * VX_LANES, count) : (vf){0};
    for (i32 p = 0; p < gathered->count; p++) {
        const f32 *in = gathered->in + gathered->rows[p] * gathered->stride + e;
        const f32 *weight =
            gathered->weight + (i64)gathered->offsets[p] * gathered->c + e;
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            sum[k] += vector_load(in + k * VX_LANES, count) *
                      vector_load(weight + k * VX_LANES, count);
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) vector_store(out + e + k * VX_LANES, count, sum[k]);
}

static void depthwise(const struct vx_gathered *gathered, f32 *out)
{
    const i32 c = gathered->c;
    i32 e = 0;
    if (c < VX_LANES) {
        depthwise_columns(gathered, 0, 0, out);
        return;
    }
    for (; e + GATHER_VECTORS * VX_LANES <= c; e += GATHER_VECTORS * VX_LANES)
        depthwise_columns(gathered, e, GATHER_VECTORS, out);
    for (; e < c; e += VX_LANES)
        depthwise_columns(gathered, gather_next(e, c, VX_LANES), 1, out);
}

INLINE void blend_columns(const struct vx_gathered *gathered, i32 e, int vectors,
                          f32 *out)
{
    vf sum[GATHER_VECTORS];
    const int n = vectors ? vectors : 1;
    const i64 count = vectors ? VX_LANES : gathered->c;
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) sum[k] = (vf){0};
    for (i32 p = 0; p < gathered->count; p++) {
        const f32 *in = gathered->in + gathered->rows[p] * gathered->stride + e;
        const vf share = gathered->shares[p] - (vf){0};
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            sum[k] += vector_load(in + k * VX_LANES, count) * share;
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) vector_store(out + e + k * VX_LANES, count, sum[k]);
}

static void blend(const struct vx_gathered *gathered, f32 *out)
{
    const i32 c = gathered->c;
    i32 e = 0;
    if (c < VX_LANES) {
        blend_columns(gathered, 0, 0, out);
        return;
    }
    for (; e + GATHER_VECTORS * VX_LANES <= c; e += GATHER_VECTORS * VX_LANES)
        blend_columns(gathered, e, GATHER_VECTORS, out);
    for (; e < c; e += VX_LANES)
        blend_columns(gathered, gather_next(e, c, VX_LANES), 1, out);
}

/* A register of f64 holds half as many numbers as one of f32. */
#define WIDE_LANES (VX_LANES / 2)
typedef f32 hf __attribute__((vector_size(WIDE_LANES * 4), aligned(4), may_alias));
typedef f64 vd __attribute__((vector_size(WIDE_LANES * 8), aligned(8), may_alias));
typedef i64 vl __attribute__((vector_size(WIDE_LANES * 8), aligned(8), may_alias));

INLINE vd wide_load(const f32 *from, i64 count)
{
    if (count >= WIDE_LANES) return __builtin_convertvector(*(const hf *)from, vd);
    f32 part[WIDE_LANES] = {0};
    memcpy(part, from, (size_t)count * sizeof *from);
    return __builtin_convertvector(*(const hf *)part, vd);
}

INLINE vd wide_read(const f64 *from, i64 count)
{
    if (count >= WIDE_LANES) return *(const vd *)from;
    f64 part[WIDE_LANES] = {0};
    memcpy(part, from, (size_t)count * sizeof *from);
    return *(const vd *)part;
}

INLINE void wide_write(f64 *to, i64 count, vd value)
{
    memcpy(to, &value, (size_t)(count < WIDE_LANES ? count : WIDE_LANES) * sizeof *to);
}

INLINE vd wide_max(vd most, vd x)
{
    vl take = (x > most) | (x != x);
    return (vd)(((vl)x & take) | ((vl)most & ~take));
}

INLINE void columns_at(enum vx_column_kind kind, const struct vx_columns *of, i32 e,
                       int vectors, f64 *out)
{
    vd value[GATHER_VECTORS], center[GATHER_VECTORS];
    const int n = vectors ? vectors : 1;
    const i64 count = vectors ? WIDE_LANES : of->c;
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        value[k] = (vd){0};
        if (kind == VX_COLUMN_MAX) value[k] -= (f64)INFINITY;
        if (kind == VX_COLUMN_SQUARES)
            center[k] = wide_read(of->center + e + k * WIDE_LANES, count);
    }
    for (i64 r = 0; r < of->count; r++) {
        const f32 *in = of->in + (i64)of->rows[r] * of->c + e;
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            vd x = wide_load(in + k * WIDE_LANES, count);
            if (kind == VX_COLUMN_SQUARES) x -= center[k];
            if (kind == VX_COLUMN_SQUARES) x *= x;
            if (kind == VX_COLUMN_MAX)
                value[k] = wide_max(value[k], x);
            else
                value[k] += x;
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) wide_write(out + e + k * WIDE_LANES, count, value[k]);
}

INLINE void columns_as(enum vx_column_kind kind, const struct vx_columns *of, f64 *out)
{
    i32 e = 0;
    if (of->c < WIDE_LANES) {
        columns_at(kind, of, 0, 0, out);
        return;
    }
    for (; e + GATHER_VECTORS * WIDE_LANES <= of->c; e += GATHER_VECTORS * WIDE_LANES)
        columns_at(kind, of, e, GATHER_VECTORS, out);
    for (; e < of->c; e += WIDE_LANES)
        columns_at(kind, of, gather_next(e, of->c, WIDE_LANES), 1, out);
}

static void columns(const struct vx_columns *of, f64 *out)
{
    switch (of->kind) {
    case VX_COLUMN_SUM: columns_as(VX_COLUMN_SUM, of, out); break;
    case VX_COLUMN_SQUARES: columns_as(VX_COLUMN_SQUARES, of, out); break;
    case VX_COLUMN_MAX: columns_as(VX_COLUMN_MAX, of, out); break;
    }
}

static void normalize(const struct vx_normalized *row, const f32 *in, f32 *out)
{
    for (i32 e = 0; e < row->c; e += WIDE_LANES) {
        i64 count = row->c - e;
        vd x = wide_load(in + e, count) - wide_read(row->center + e, count);
        x *= wide_read(row->scale + e, count);
        if (row->shift) x += wide_load(row->shift + e, count);
        hf y = __builtin_convertvector(x, hf);
        memcpy(out + e, &y,
               (size_t)(count < WIDE_LANES ? count : WIDE_LANES) * sizeof *out);
    }
}

#endif
