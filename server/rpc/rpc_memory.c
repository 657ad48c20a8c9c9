/* rpc_memory - gives memory back to the system: what is free of gRPC's heap, up to twice a
 * second, and what decoding a message took.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/clock.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory is given back at each check while no less than this has come in since the last
 * pause. */
#define WORTH_BYTES (16u << 20)
/* The pause begins after so many checks in a row with less than this each.  So a client
 * that sends a little all the time is not slowed down by the work, and what came last is
 * free by then. */
#define QUIET_BYTES (8u << 20)
#define QUIET_LOOKS 4
#define LOOK_NS     (VX_NS_PER_S / 2)
/* What a call leaves in the heap, beside its message. */
#define CALL_BYTES (16u << 10)

/* What an honest message takes is far less than this. */
#define SCRATCH_KEPT (1u << 20)

/* Best effort: if it fails, the memory is only kept.  Messages of a million fields that are
 * refused took 40 MB of each thread for good. */
void vx_rpc_memory_give_scratch(struct vx_arena *scratch)
{
    if (scratch->used <= SCRATCH_KEPT) return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = (size_t)(scratch->block + SCRATCH_KEPT + page - 1) / page * page;
    size_t end = (size_t)(scratch->block + scratch->used) / page * page;
    if (end > from) (void)madvise((void *)from, end - from, MADV_DONTNEED);
}

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
    memory->quiet = quiet ? memory->quiet + 1 : 0;
    if (!worth) return VX_NEVER; /* a connection that brings more wakes this thread */
    malloc_trim(0);
    if (memory->quiet < QUIET_LOOKS) return memory->look_ns;
    memory->given = weight;
    return VX_NEVER;
}
