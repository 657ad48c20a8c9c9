/* coherent - words that blocks of one launch tell each other while they run.
 *
 * A word is loaded from where all blocks see it, past whatever a processor keeps for itself, and
 * it is whole: a reader finds it as it was before a store or behind it.  No word says anything of
 * another one.  A reader that waits for a word must not stand in the writer's way: it waits only for
 * blocks that have begun.
 *
 * Owner    -
 * Thread   device code.
 * Limits   words of 32 and 64 bits, at multiples of their size.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_COHERENT_CUH
#define VX_KERNELS_COHERENT_CUH

#include "kernels/device.h"

#if VX_CUDA
VX_DEVICE uint32_t vx_load_now(const uint32_t *at)
{
    return *(const volatile uint32_t *)at;
}
VX_DEVICE uint64_t vx_load_now64(const uint32_t *at)
{
    return *(const volatile uint64_t *)at;
}
VX_DEVICE void vx_store_now(uint32_t *at, uint32_t value)
{
    *(volatile uint32_t *)at = value;
}
#else
VX_DEVICE uint32_t vx_load_now(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}
VX_DEVICE uint64_t vx_load_now64(const uint32_t *at)
{
    return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
}
VX_DEVICE void vx_store_now(uint32_t *at, uint32_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
#endif

#endif
