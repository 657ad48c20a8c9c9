/* 19_softmax - softmax over the channels of a voxel, and the channel with the largest number.
 *
 * Math     softmax  out[i,c] = exp(in[i,c] - m) / sum over d of exp(in[i,d] - m)
 *                   m        = max over d of in[i,d]
 *          argmax   out[i]   = the least c with in[i,c] = m; the least c where in[i,c] is
 *                              NaN, if any is
 * Shapes   softmax in, out (N,C)  argmax in (N,C), out (N) i32, on a device also
 *          rows (N), and then out[rows[i]] is that of row i
 * Types    f32; the reference of softmax computes in f64 and rounds once.  Device: in and
 *          out of softmax VX_TYPE (F32, F16, BF16; TF32 as F32) in rows of Cp channels, C of
 *          them real; computed in f32, one rounding.
 * Idea     Less its maximum no exponent is above 0: nothing overflows, and the sum is at
 *          least 1.  A row is passed over three times while it is in cache.  argmax needs
 *          no softmax before it.  Device: a row belongs to a group of 2 to 32 lanes, which
 *          join what each has found by shuffles.
 * Steps    softmax  1 maximum   2 exponentials and their sum   3 divide
 *          argmax   1 maximum   2 the first channel that has it
 * Tiles    rows.  Device: pointwise.h.
 * Cost     flops about 20 per element (argmax 2); bytes 8*N*C (argmax 4*N*(C + 1)).
 * Limits   C >= 1.  A row with NaN or +infinity, or of -infinity alone, becomes NaN, as in
 *          torch.  An exponential below 1e-38 is 0.  Device: Cp a multiple of 16 and at
 *          least C; padding is not read, softmax writes 0 there.
 * Order    a row's sum depends on C alone (device: on C, Cp and the size of the type).
 * Oracle   19_softmax_ref.c, tests/unit/engine/cpu/device/test_cpu_sets.c; device:
 *          19_softmax_device_ref.c, tests/oracle/cases_pointwise.c.
 * Source   torch.softmax, torch.argmax with dim 1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_SOFTMAX_H
#define VX_KERNELS_SOFTMAX_H

#include <stdint.h>

struct vx_softmax_args {
    int64_t n;
    int32_t c;
    const float *in; /* (N, C) */
    float *out;      /* (N, C); may be in */
};

struct vx_argmax_args {
    int64_t n;
    int32_t c;
    const float *in; /* (N, C) */
    int32_t *out;    /* (N) */
};

/* Of softmax and argmax. */
struct vx_softmax_device_args {
    int64_t n;
    int32_t c, cp;  /* real channels, and those of a row */
    const void *in; /* (N, Cp) */
    void *out;      /* softmax: (N, Cp), may be in; argmax: (N) i32 */
    /* argmax: the row of out for each row of in, (N), none twice; NULL: the same */
    const int32_t *rows;
};

void vx_softmax_ref(const struct vx_softmax_args *args);
void vx_argmax_ref(const struct vx_argmax_args *args);

#endif
