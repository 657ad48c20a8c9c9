/* rpc_origins - numbers for the origins of open connections.
 *
 * Origins that have connections have different numbers, as long as there are thousands of them and not
 * more.  By a hash alone an honest client whose number was an attacker's was stopped with it: with
 * 900 addresses of attackers the chance is one in 18.  A number is free again when the last
 * connection of its origin has ended.
 *
 * Owner    the caller; zeros are a table without connections.
 * Thread   accept.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_ORIGINS_H
#define VX_SERVER_RPC_ORIGINS_H

#include "server/base/peer.h"

struct vx_rpc_origins {
    struct vx_rpc_origin {
        u64 source;
        i32 connections;
    } rows[VX_PEER_ORIGINS];
};
/* One more connection from `source` (struct vx_peer); returns its origin. */
u16 vx_rpc_origins_take(struct vx_rpc_origins *origins, u64 source);
/* One of them has ended. */
void vx_rpc_origins_give(struct vx_rpc_origins *origins, u16 origin);
/* Whether all numbers are free. */
bool vx_rpc_origins_are_free(const struct vx_rpc_origins *origins);

#endif
