/* rpc_memory - the heap of gRPC: kept while messages come, given back when they do not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc_private.h"

#include "engine/base/clock.h"

#include <malloc.h>

/* Given back when no more than this came in since the last look... */
#define QUIET_BYTES (8u << 20)
/* ... and no less than this since it was given back last: who sends a little all the time is
 * not held up for it. */
#define WORTH_BYTES (16u << 20)
#define LOOK_NS     (VX_NS_PER_S / 2)
/* What a call leaves behind, beside its message. */
#define CALL_BYTES (16u << 10)

/* A received body is a thousand pieces of 64 KiB.  By default glibc maps and unmaps the
 * large ones and gives the heap's end back to the kernel after each request, and the next
 * one pays for every page again: measured 1.86 -> 2.2-2.5 GB/s on 1 MiB bodies over TCP. */
void vx_rpc_memory_open(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
}

/* Free memory was needed once, by a crowd or by an attack that is over. */
i64 vx_rpc_memory_turn(struct vx_rpc_memory *memory, struct vx_rpc_governor *governor,
                       i64 now_ns)
{
    if (now_ns < memory->look_ns) return memory->look_ns;
    u64 bytes, calls;
    vx_rpc_governor_total(governor, &bytes, &calls);
    u64 weight = bytes + calls * CALL_BYTES;
    bool quiet = weight - memory->seen < QUIET_BYTES;
    bool worth = weight - memory->given >= WORTH_BYTES;
    memory->seen = weight;
    memory->look_ns = now_ns + LOOK_NS;
    if (!worth) return VX_NEVER; /* whoever brings more wakes this thread */
    if (!quiet) return memory->look_ns;
    malloc_trim(0);
    memory->given = weight;
    return VX_NEVER;
}
