/* mbarrier_sm90 - barriers in shared memory that count arrivals and bytes, and what arrives there.
 *
 * A phase of a barrier ends when all its arrivals and all bytes that it expects have come;
 * then the next one begins.  The parity of a phase is 0, 1, 0, ...: waiting for the parity
 * that the barrier does not have yet waits for the end of the phase.  So a wait for parity
 * 1 on a new barrier returns at once.
 *
 * Owner    -
 * Thread   device code.
 * Limits   sm_90.
 * Fails    never; a wait for a phase that nobody ends waits for ever.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MBARRIER_SM90_CUH
#define VX_KERNELS_MBARRIER_SM90_CUH

#include "kernels/device.h"

VX_DEVICE void vx_mbarrier_open(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
/* Makes opened barriers visible to copies; a barrier of the block must follow. */
VX_DEVICE void vx_mbarrier_opened(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
VX_DEVICE void vx_mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrives, and expects so many bytes of bulk copies before the phase ends. */
VX_DEVICE void vx_mbarrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}
/* Arrives when all cp.async that this thread has started are done. */
VX_DEVICE void vx_mbarrier_arrive_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
                 : "memory");
}
VX_DEVICE void vx_mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra ended;\n"
                 "bra again;\n"
                 "ended:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
/* Copies bytes that lie together, a multiple of 16, and counts them at the barrier. */
VX_DEVICE void vx_copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                            uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

#endif
