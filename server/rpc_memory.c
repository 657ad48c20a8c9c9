/* rpc_memory - the heap of gRPC: what is free of it is given back twice a second.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc_private.h"

#include "engine/base/clock.h"

#include <malloc.h>

/* Given back when no less than this came in since then... */
#define WORTH_BYTES (16u << 20)
/* ... for the last time after so many looks in a row in each of which no more than this came: who
 * sends a little all the time is not held up for it, and what came last is free by then. */
#define QUIET_BYTES (8u << 20)
#define QUIET_LOOKS 4
#define LOOK_NS     (VX_NS_PER_S / 2)
/* What a call leaves behind, beside its message. */
#define CALL_BYTES (16u << 10)

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
    if (!worth) return VX_NEVER; /* whoever brings more wakes this thread */
    malloc_trim(0);
    if (memory->quiet < QUIET_LOOKS) return memory->look_ns;
    memory->given = weight;
    return VX_NEVER;
}
