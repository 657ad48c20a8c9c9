/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/cpu_cases.h"

#include "engine/base/process/check.h"
#include "engine/cpu/device/device.h"

#include <math.h>

bool cpu_case_open(i32 index, i32 threads, struct vx_cpu **cpu)
{
    const struct vx_loops *all[] = {
        &vx_loops_any,
#ifdef __x86_64__
        &vx_loops_avx2,
        &vx_loops_avx512,
#endif
    };
    struct vx_why why = {0};
    struct vx_cpu_choice choice = {.threads = threads, .multiplier = VX_MULTIPLIER_LOOPS};
    i32 count = 0;
    for (size_t i = 0; i < VX_COUNT(all); i++) {
        if (!all[i]->here()) continue;
        if (count++ == index) choice.loops = all[i];
    }
    if (index > count) return false;
    if (index == count) choice.multiplier = VX_MULTIPLIER_BLAS;
    vx_status status = vx_cpu_open_as(&choice, &why, cpu);
    VX_ASSERT(!status.fault || choice.multiplier == VX_MULTIPLIER_BLAS);
    return !status.fault;
}

f64 cpu_activation_bound(enum vx_activation activation, f64 x, f64 y)
{
    const f64 underflow = 2e-36; /* |x| exp(-87.3) */
    switch (activation) {
    case VX_ACTIVATION_SILU:
    case VX_ACTIVATION_SIGMOID: return 12 * CPU_ROUND * fabs(y) + underflow;
    case VX_ACTIVATION_GELU: return (20 + x * x / 2) * CPU_ROUND * fabs(y) + underflow;
    default: return 0;
    }
}
