/* rpc_govern_going - what connections had that have ended, until it is free.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/rpc_govern_private.h"

#include "engine/base/process/clock.h"

/* gRPC has freed what an ended connection held after so long.  Until then nobody else gets a
 * turn if it is much: with the 500 ms of a check, of eight clients with 9 MB each of which some
 * vanished in the middle, the others waited for up to 500 ms. */
#define HELD_NS   (50 * VX_NS_PER_MS)
#define MUCH_PART 8
/* Our threads have done with its whole messages after so long: a room full of them is decoded in less. */
#define WHOLE_NS VX_NS_PER_S

static void going_add(struct vx_rpc_going *going, i64 bytes, i64 over_ns)
{
    if (!going->bytes) going->over_ns = over_ns;
    going->bytes += bytes;
}

void vx_rpc_govern_going_add(const struct vx_rpc_govern *govern)
{
    struct vx_rpc_governor *governor = govern->governor;
    const i64 now_ns = vx_clock_ns();
    going_add(&governor->going, govern->meter.held, now_ns + HELD_NS);
    going_add(&governor->whole_going, govern->meter.whole, now_ns + WHOLE_NS);
}

/* Soon there is room without a turn.  A crowd that comes and goes with a byte each may not keep
 * the others waiting. */
bool vx_rpc_govern_going_is_much(const struct vx_rpc_governor *governor)
{
    return governor->going.bytes > governor->receive_bytes_max / MUCH_PART;
}

/* Returns when that is to be looked at. */
static i64 going_forget(struct vx_rpc_going *going, i64 *all, i64 now_ns)
{
    if (!going->bytes) return VX_NEVER;
    if (now_ns < going->over_ns) return going->over_ns;
    *all -= going->bytes;
    going->bytes = 0;
    return VX_NEVER;
}

i64 vx_rpc_govern_going_forget(struct vx_rpc_governor *governor, i64 now_ns)
{
    const i64 held_ns = going_forget(&governor->going, &governor->held, now_ns);
    const i64 whole_ns = going_forget(&governor->whole_going, &governor->whole, now_ns);
    return held_ns < whole_ns ? held_ns : whole_ns;
}
