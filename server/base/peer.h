/* peer - who is at the other end of a connection, as the kernel reports it.
 *
 * Owner    a value.
 * Thread   any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_PEER_H
#define VX_SERVER_PEER_H

#include "engine/base/types.h"

/* Connections are counted for each origin: an IPv4 address, an IPv6 network of 64 bits, or a
 * process that connects over a Unix socket.  Origins that have connections have different
 * numbers (rpc_origins.h); one that comes back may have another. */
#define VX_PEER_ORIGIN_BITS 14
#define VX_PEER_ORIGINS     (1 << VX_PEER_ORIGIN_BITS)

enum vx_peer_kind {
    VX_PEER_REMOTE, /* TCP, from another host or not known */
    VX_PEER_LOCAL,  /* TCP over the loopback: some process of this host */
    VX_PEER_UNIX,   /* a Unix socket: uid and gid of the process that connected */
};

struct vx_peer {
    u64 connection; /* a number that no other connection of this process ever has; 0 = none */
    enum vx_peer_kind kind;
    u32 uid, gid; /* of VX_PEER_UNIX */
    u64 source;   /* the address, network or process itself */
    u16 origin;   /* its number, less than VX_PEER_ORIGINS */
};

#endif
