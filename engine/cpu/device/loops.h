/* loops - the inner loops of the CPU operators, compiled once per vector width.
 *
 * loops_body.h, with loops_convert_body.h and loops_gather_body.h, is compiled three times:
 * for AVX-512, for AVX2 and for the compiler's default.  vx_loops_pick returns the widest
 * table that this machine can run.  The loops do not know about threads or tiles of rows.
 *
 *   const struct vx_loops *loops = vx_loops_pick();
 *   loops->multiply(&product);
 *   loops->activate(VX_ACTIVATION_SILU, row, row, channels);
 *
 * Thread   any; pure.
 * Limits   a product has at most VX_PANEL_COLUMNS columns, a multiple of `lanes`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_LOOPS_H
#define VX_ENGINE_CPU_LOOPS_H

#include "engine/base/types.h"
#include "kernels/10_activation.h"
#include "kernels/13_elementwise.h"
#include "kernels/17_pool.h"
#include "kernels/20_curve.h"

/* Columns of one panel of weights: 4 vectors of 16, the widest register tile. */
#define VX_PANEL_COLUMNS 64
/* Rows of one panel: 128 * 64 floats are 32 KiB, the size of a first-level cache. */
#define VX_PANEL_ROWS 128

/* out[out_rows[p], :] += in[in_rows[p], :] . weight for p in [0, pairs). */
struct vx_product {
    i64 pairs;
    const i32 *in_rows;
    const i32 *out_rows; /* no row twice */
    const f32 *in;       /* first channel of row 0 */
    i64 in_stride;
    const f32 *weight; /* (depth, columns) */
    i64 weight_stride;
    i32 depth;
    i32 columns;
    f32 *out;
    i64 out_stride;
};

struct vx_norm_row {
    i32 c;
    f32 eps;
    const f32 *weight; /* NULL: 1 */
    const f32 *bias;   /* NULL: 0 */
};

/* The rows of `in` that one row of a result is made from. */
struct vx_gathered {
    i32 c;
    i32 count;
    const i32 *rows; /* (count) of in */
    const f32 *in;   /* (M, stride), C of each row are read */
    i64 stride;
    const i32 *offsets; /* (count) of weight; depthwise only, as the next two */
    const f32 *weight;  /* (V, C) */
    const f32 *bias;    /* (C) or NULL: 0 */
    const f32 *shares;  /* (count); blend only */
};

/* What is made of each column of some rows, row after row, in f64. */
enum vx_column_kind { VX_COLUMN_SUM, VX_COLUMN_SQUARES, VX_COLUMN_MAX };
struct vx_columns {
    enum vx_column_kind kind;
    i32 c;
    i64 count;         /* >= 1 */
    const i32 *rows;   /* (count) of in */
    const f32 *in;     /* (N, C) */
    const f64 *center; /* (C) the squares are those of in - center */
};

/* out = (in - center) * scale + shift over c channels, in f64. */
struct vx_normalized {
    i32 c;
    const f64 *center, *scale;
    const f32 *shift; /* NULL: 0 */
};

struct vx_loops {
    const char *name;   /* "AVX-512" */
    i32 lanes;          /* floats in a vector */
    bool (*here)(void); /* whether this machine can run it */
    void (*multiply)(const struct vx_product *product);
    void (*activate)(enum vx_activation activation, const f32 *in, f32 *out, i64 count);
    /* out = in * scale + shift over c channels */
    void (*scale_shift)(const f32 *in, const f32 *scale, const f32 *shift, f32 *out,
                        i32 c);
    void (*layer_norm)(const struct vx_norm_row *norm, const f32 *in, f32 *out);
    void (*add)(const f32 *a, const f32 *b, f32 *out, i64 count);
    void (*mul)(const f32 *a, const f32 *b, f32 *out, i64 count);
    void (*affine)(const struct vx_affine_args *args, i64 begin, i64 end);
    void (*curve)(const struct vx_curve_args *args, i64 begin, i64 end);
    /* out = scale * the nearest number of e4m3 of in / scale, a power of two */
    void (*e4m3_round)(f32 scale, const f32 *in, f32 *out, i64 count);
    void (*softmax)(const f32 *in, f32 *out, i32 c); /* out may be in */
    i32 (*argmax)(const f32 *in, i32 c);
    void (*pool)(enum vx_pool_mode mode, const struct vx_gathered *gathered, f32 *out);
    /* out = bias + sum over rows of in[rows[p], :] * weight[offsets[p], :] */
    void (*depthwise)(const struct vx_gathered *gathered, f32 *out);
    /* out = sum over rows of in[rows[p], :] * shares[p] */
    void (*blend)(const struct vx_gathered *gathered, f32 *out);
    void (*columns)(const struct vx_columns *columns, f64 *out);
    void (*normalize)(const struct vx_normalized *row, const f32 *in, f32 *out);
    void (*f16_to_f32)(const u16 *from, f32 *to, i64 count);
    void (*bf16_to_f32)(const u16 *from, f32 *to, i64 count);
    void (*f32_to_f16)(const f32 *from, u16 *to, i64 count);
    void (*f32_to_bf16)(const f32 *from, u16 *to, i64 count);
};

extern const struct vx_loops vx_loops_any;
#ifdef __x86_64__
extern const struct vx_loops vx_loops_avx2;
extern const struct vx_loops vx_loops_avx512;
#endif

/* The widest table that this machine can run. */
const struct vx_loops *vx_loops_pick(void);

#endif
