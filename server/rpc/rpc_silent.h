/* rpc_silent - connections that have sent nothing yet, oldest first.
 *
 * Owner    the caller: a member of each connection is its place in the list.
 * Thread   accept.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_SILENT_H
#define VX_SERVER_RPC_SILENT_H

#include "server/base/peer.h"

struct vx_rpc_silent {
    struct vx_rpc_silent *next, *previous;
    i64 since_ns;
    u16 origin; /* struct vx_peer */
};
struct vx_rpc_silents {
    struct vx_rpc_silent *first, *last;
    i32 of[VX_PEER_ORIGINS];
};
void vx_rpc_silent_add(struct vx_rpc_silents *silents, struct vx_rpc_silent *one);
void vx_rpc_silent_remove(struct vx_rpc_silents *silents, struct vx_rpc_silent *one);
/* Which one goes for a new connection: of the oldest, one of the origin that has most. */
struct vx_rpc_silent *vx_rpc_silent_least(const struct vx_rpc_silents *silents);
/* Whether vx_rpc_silent_least's may go for a newcomer of `origin`, which is a crowd: it is of the
 * same origin, or of one that has at least two more silent ones. */
bool vx_rpc_silent_goes(const struct vx_rpc_silents *silents, u16 origin);

#endif
