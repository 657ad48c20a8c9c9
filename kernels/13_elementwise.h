/* 13_elementwise - add, mul, affine, concat, and conversion between the three float types.
 *
 * Math     add      out[i,c] = act(a[i,c] + b[i,c])
 *          mul      out[i,c] = act(a[i,c] * b[i,c])
 *          affine   out[i,c] = act(in[i,c] * scale + shift), scale and shift two numbers
 *          concat   out[i,:] = inputs[0][i,:] | inputs[1][i,:] | ...
 *          convert  to[e]    = from[e] rounded to the nearest, ties to even
 * Shapes   a, b, in, out (N,C); inputs[k] (N,Ck), out (N, sum of Ck); from, to (count)
 * Types    add, mul, affine and concat f32.  convert: F32, F16 or BF16 to any of them; to itself is a
 *          copy.  Device: add, mul, affine and concat in VX_TYPE (F32, F16, BF16; TF32 as
 *          F32), rows of Cp channels; computed in f32, one rounding.
 * Idea     Nothing to compute: as fast as memory.  Values beyond the target's range
 *          become infinity, small ones subnormal, and NaN stays NaN (quiet, its top bits
 *          kept), so that a NaN in a request is a NaN in its answer.
 * Steps    1 read   2 write.
 * Tiles    any split of the elements is legal.  Device: pointwise.h.
 * Cost     bytes: what is read plus what is written.
 * Limits   at most VX_CONCAT_INPUTS_MAX inputs; concat and convert: out overlaps no
 *          input.  Device: Cp a multiple of 16; concat packs the real channels without
 *          the padding and writes 0 behind them, as affine does, whose shift might leave
 *          infinity there; an input of concat that is already in out (data NULL) begins at
 *          a multiple of 16 channels and ends at one, or is the last; convert is part of
 *          14_rows.
 * Order    elements are independent.
 * Oracle   13_elementwise_ref.c, tests/unit/engine/cpu/device/test_cpu_ops.c (mul, affine:
 *          test_cpu_sets.c); device: 13_elementwise_device_ref.c.
 * Source   IEEE 754-2019 (binary32, binary16); bfloat16 is the upper half of binary32.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_ELEMENTWISE_H
#define VX_KERNELS_ELEMENTWISE_H

#include "kernels/activation.h"
#include "kernels/number.h"

#include <stdint.h>

#define VX_CONCAT_INPUTS_MAX 8

/* Of add and mul. */
struct vx_pair_args {
    int64_t n;
    int32_t c;
    const float *a; /* (N, C) */
    const float *b; /* (N, C) */
    enum vx_activation activation;
    float *out; /* (N, C); may be a or b */
    /* Elements from a row to the next; 0: C. */
    int32_t a_stride, b_stride, out_stride;
};

struct vx_affine_args {
    int64_t n;
    int32_t c;
    float scale, shift;
    const float *in; /* (N, C) */
    enum vx_activation activation;
    float *out; /* (N, C); may be in */
};

struct vx_concat_input {
    /* (N, C); NULL: it is in its columns of out, which are left alone */
    const float *data;
    int32_t c;
    int32_t stride; /* elements from a row to the next; 0: C */
};
struct vx_concat_args {
    int64_t n;
    struct vx_concat_input inputs[VX_CONCAT_INPUTS_MAX];
    int32_t inputs_count;
    float *out; /* (N, sum of C) */
};

/* Of add and mul. */
struct vx_add_device_args {
    int64_t n;
    int32_t cp;
    int32_t activation; /* enum vx_activation */
    const void *a;      /* (N, Cp) */
    const void *b;      /* (N, Cp) */
    void *out;          /* (N, Cp); may be a or b */
};

struct vx_affine_device_args {
    int64_t n;
    int32_t c, cp;      /* real channels, and those of a row */
    int32_t activation; /* enum vx_activation */
    float scale, shift;
    const void *in; /* (N, Cp) */
    void *out;      /* (N, Cp); may be in */
};

struct vx_concat_device_input {
    const void
        *data;     /* (N, cp); NULL: it is in its columns of out, which are left alone */
    int32_t c, cp; /* real channels, and those of a row */
};
struct vx_concat_device_args {
    int64_t n;
    struct vx_concat_device_input inputs[VX_CONCAT_INPUTS_MAX];
    int32_t inputs_count;
    int32_t cp; /* of out: at least the sum of the inputs' c */
    void *out;  /* (N, cp) */
};

struct vx_convert_args {
    int64_t count;
    enum vx_number from_type;
    const void *from;
    enum vx_number to_type;
    void *to;
};

void vx_add_ref(const struct vx_pair_args *args);
void vx_mul_ref(const struct vx_pair_args *args);
void vx_affine_ref(const struct vx_affine_args *args);
void vx_concat_ref(const struct vx_concat_args *args);
void vx_convert_ref(const struct vx_convert_args *args);

#endif
