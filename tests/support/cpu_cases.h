/* cpu_cases - the ways the CPU device can multiply on this machine, for tests that try them all.
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

#include "engine/cpu/cpu.h"

/* Every vector width that runs here, then the BLAS if there is one.  False after the last. */
bool cpu_case_open(i32 index, i32 threads, struct vx_cpu **cpu);

#endif
