/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for the tests of the stand-in's own behaviour. */
#include "kernels/device.h"

#include "tests/amd/faults.h"

VX_KERNEL(AMD_FAULT_THREADS, 1) add(const struct amd_fault_args args)
{
    args.out[vx_thread()] += args.place;
}

/* Ends when somebody writes to in[0]. */
VX_KERNEL(AMD_FAULT_THREADS, 1) wait_for_word(const struct amd_fault_args args)
{
    const volatile uint32_t *word = args.in;
    while (!word[0]) continue;
    args.out[vx_thread()] = word[0];
}
