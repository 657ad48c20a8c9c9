/* SPDX-License-Identifier: Apache-2.0 */
/* What hip_clang must refuse, by the number of the mistake. */
#include "kernels/device.h"

#include "tests/amd/faults.h"

#ifndef REFUSED
#define REFUSED 1
#endif

VX_KERNEL(64, 1) refused(const struct amd_fault_args args)
{
#if REFUSED == 1
    args.out[0] = (uint32_t)__builtin_amdgcn_s_memrealtime();
#elif REFUSED == 2
    args.out[0] = vx_bits_of_float(__builtin_erff(vx_float_of_bits(args.in[0])));
#elif REFUSED == 3
    asm volatile("v_mov_b32 %0, 1" : "=v"(args.out[vx_thread()]));
#elif REFUSED == 4
    VX_SHARED uint32_t words[16385];
    words[args.place + vx_thread()] = 1;
    vx_barrier();
    args.out[vx_thread()] = words[args.other];
#else
    args.out[0] = no_such_function();
#endif
}
