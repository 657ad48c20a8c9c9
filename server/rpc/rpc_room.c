/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_accept_private.h"

#include "engine/base/process/clock.h"

static void end_silent(struct vx_rpc_accept *accept, struct vx_rpc_silent *least)
{
    vx_rpc_connection_refused(accept);
    vx_rpc_secure_note(accept, vx_rpc_connection_of(least), VX_TLS_CROWDED,
                       "others wanted its place");
    vx_rpc_connection_end(accept, vx_rpc_connection_of(least));
}

bool vx_rpc_room(struct vx_rpc_accept *accept, const struct vx_peer *peer)
{
    struct vx_rpc_silent *least = vx_rpc_silent_least(&accept->silents);
    i32 left = accept->rows_count - accept->connections, few = accept->rows_count / 16;
    bool last = left <= few / 4;
    bool crowd = last && vx_rpc_governor_is_crowd(accept->governor, peer->origin);
    bool goes =
        least && (crowd ? vx_rpc_silent_goes(&accept->silents, peer->origin) : !left);
    if (goes) end_silent(accept, least);
    if (goes || left > few || (least && !last)) return accept->free;
    bool made = vx_rpc_governor_crowded(accept->governor, peer->origin, vx_clock_ns());
    return (made || !crowd) && accept->free;
}
