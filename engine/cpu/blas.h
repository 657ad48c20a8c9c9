/* blas - a BLAS found at run time, told which core it runs on.
 *
 * OpenBLAS picks its code by a table of known processors; one that is too new for the installed
 * release is taken for a Prescott and runs at a fifth of its speed.  So the core type is chosen
 * here from what the processor can do, before the library is loaded, and read back afterwards.
 * OPENBLAS_CORETYPE in the environment wins.
 *
 *   vx_blas_open(&blas);
 *   if (blas.sgemm) ...
 *
 * Owner    the library stays loaded until the process ends: it cannot be unloaded safely.
 * Thread   open: once, before other threads read the environment.  sgemm: any number at
 *          once, each call runs on its caller's thread alone.
 * Fails    never: without a library, or with one that sums a row differently in another
 *          place, sgemm is NULL and our own loops do the work.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_BLAS_H
#define VX_ENGINE_CPU_BLAS_H

#include "engine/base/types.h"

struct vx_blas {
    /* The C interface of BLAS, in which order, transposes and sizes are ints. */
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, f32 alpha,
                  const f32 *a, int lda, const f32 *b, int ldb, f32 beta, f32 *c,
                  int ldc);
    char name[64]; /* "OpenBLAS SkylakeX"; empty without a library */
};

void vx_blas_open(struct vx_blas *blas);

/* c (m,n) = a (m,k) . b (k,n), all row-major and dense. */
struct vx_blas_product {
    i32 m, n, k;
    const f32 *a, *b;
    f32 *c;
};
void vx_blas_multiply(const struct vx_blas *blas, const struct vx_blas_product *product);

#endif
