/* cpu_cases - the ways the CPU device can compute on this machine, and how exact they must be.
 *
 *   for (i32 i = 0; cpu_case_open(i, 2, &cpu); i++) { ...; vx_cpu_close(&cpu); }
 *
 * Owner    the caller closes what it opened.
 * Thread   the test's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_CPU_CASES_H
#define VX_TESTS_SUPPORT_CPU_CASES_H

#include "engine/cpu/device/cpu.h"

/* Every vector width that runs here, then the BLAS if there is one.  False after the last. */
bool cpu_case_open(i32 index, i32 threads, struct vx_cpu **cpu);

/* Half a unit in the last place of 1: what one rounding of an f32 changes at most, relatively. */
#define CPU_ROUND 0x1p-24

/* How far our activation of x may be from y, given x is right.
 *
 * exp of a negative x: the reduced argument is off by at most 0.5 CPU_ROUND absolutely, the Taylor sum
 * adds 2 roundings and 0.1 CPU_ROUND of remainder: 4 CPU_ROUND with room; below -87.3 it is 0, which is off
 * by exp(-87.3) = 1.2e-38.  sigmoid and silu add at most three more roundings and the same again
 * from e/(1+e): 12 CPU_ROUND.  gelu: the fit of its tail is off by 3e-8 = 0.5 CPU_ROUND, its nine
 * multiply-adds by 6 CPU_ROUND, and the rounding of x^2/2 moves the exponent by x^2/2 CPU_ROUND, which exp
 * turns into as much relatively: 20 + x^2/2 CPU_ROUND. */
f64 cpu_activation_bound(enum vx_activation activation, f64 x, f64 y);

#endif
