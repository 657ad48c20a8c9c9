/* blas - finds a BLAS at run time and sets the core type that OpenBLAS uses.
 *
 * OpenBLAS picks its code by a table of known processors.  It takes a processor that is
 * too new for the installed release for a Prescott, at a fifth of the speed.  So this
 * module chooses the core type from the processor's features before it loads the library,
 * and reads it back afterwards.  OPENBLAS_CORETYPE in the environment has precedence.
 *
 *   vx_blas_open(&blas);
 *   if (blas.sgemm) ...
 *
 * Owner    the library stays loaded until the process ends: it cannot be unloaded safely.
 * Thread   open: before other threads read the environment.  sgemm: any number of threads
 *          at once; each call runs on its caller's thread only.
 * Fails    never: without a library, or with one whose sum of a row depends on the row's
 *          place, sgemm is NULL and our own loops do the work.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_BLAS_H
#define VX_ENGINE_CPU_BLAS_H

#include "engine/base/types.h"

struct vx_blas {
    /* cblas_sgemm; order, transposes and sizes are ints. */
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
