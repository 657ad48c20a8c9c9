/* rpc_govern_whole - messages that are whole and wait for us, in gRPC or while they are decoded.
 *
 * They take room, and nobody is closed for that: it is our doing.  Whose call a whole message is, gRPC
 * does not tell; it is named by its length when we have done with it.  Where its stream has ended before
 * that, it is an orphan: its client may have reset it, and a thread of ours may have the message all
 * the same: 200 connections with a reset behind each 2 MB made the front grow by 164 MB.  gRPC may also
 * have dropped it, so there are no more orphans than calls that may have one, and none for long.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_whole.h"
#include "server/govern/rpc_govern_private.h"

/* Orphans of a connection are forgotten after so many checks in which we have done with none. */
#define ORPHAN_LOOKS 4
/* A connection goes that has brought us to lag and whose client reads nothing, after so many: what counts as
 * whole may be what we have ended already, and cannot tell it. */
#define UNREAD_LOOKS 8

bool vx_rpc_govern_lags(const struct vx_rpc_governor *governor)
{
    const i64 room = vx_rpc_govern_room_owner(governor);
    return room <= 0 && vx_rpc_govern_is_enough(governor, governor->whole);
}

void vx_rpc_govern_received(struct vx_rpc_place place, size_t bytes)
{
    if (bytes < VX_H2_MESSAGE_WHOLE) return;
    pthread_mutex_lock(&vx_rpc_govern_lock);
    struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    if (govern) {
        const struct vx_h2_meter before = govern->meter;
        govern->whole_still = 0;
        vx_h2_whole_received(&govern->meter, bytes);
        vx_rpc_govern_account_held(govern, &before);
    }
    pthread_mutex_unlock(&vx_rpc_govern_lock);
}

static void orphans_keep(struct vx_rpc_govern *govern, i64 most)
{
    const struct vx_h2_meter before = govern->meter;
    if (before.orphans <= most) return;
    vx_h2_whole_orphans(&govern->meter, (i32)most);
    vx_rpc_govern_account_held(govern, &before);
}

void vx_rpc_govern_orphans_bound(struct vx_rpc_govern *govern)
{
    orphans_keep(govern, govern->unseen + govern->shares[VX_RPC_SHARE_AWAITED] +
                             govern->shares[VX_RPC_SHARE_STREAMS]);
}

void vx_rpc_govern_whole_look(struct vx_rpc_govern *govern)
{
    const bool writes = govern->sent != govern->sent_seen;
    govern->sent_seen = govern->sent;
    govern->whole_still = govern->meter.whole ? govern->whole_still + 1 : 0;
    govern->unsent = govern->meter.whole && !writes ? govern->unsent + 1 : 0;
    vx_rpc_govern_orphans_bound(govern);
    if (govern->whole_still >= ORPHAN_LOOKS) orphans_keep(govern, 0);
    const bool stands =
        govern->whole_still >= UNREAD_LOOKS && govern->unsent >= UNREAD_LOOKS;
    if (stands && vx_rpc_govern_lags(govern->governor) &&
        vx_rpc_govern_is_blocked(govern))
        vx_rpc_govern_close(govern, VX_RPC_CUT_UNREAD);
}

/* Whether as many or more of its calls that await a message have one that is whole and waits for us than do
 * not: whose it is, nothing tells. */
static bool has_whole(const struct vx_rpc_govern *govern)
{
    const i32 awaited = govern->shares[VX_RPC_SHARE_AWAITED];
    return awaited >= 2 * (govern->meter.silent + govern->meter.unfinished);
}

bool vx_rpc_govern_is_due(struct vx_rpc_place place, bool waits_too)
{
    pthread_mutex_lock(&vx_rpc_govern_lock);
    const struct vx_rpc_govern *govern = vx_rpc_govern_of(place);
    bool due = !govern || govern->meter.silent;
    if (govern && govern->shares[VX_RPC_SHARE_AWAITED] && has_whole(govern))
        due = false;
    else if (!due && govern->meter.unfinished)
        due = govern->waits && govern->waits != VX_RPC_WAIT_WINDOW
                  ? waits_too && govern->waits == VX_RPC_WAIT_BYTES
                  : govern->slow;
    pthread_mutex_unlock(&vx_rpc_govern_lock);
    return due;
}
