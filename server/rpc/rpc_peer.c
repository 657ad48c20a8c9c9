/* rpc_peer - who is at the other end of a connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/rpc/rpc_private.h"

#include "engine/base/process/check.h"

#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

i32 vx_rpc_descriptor_of(const char *peer)
{
    if (!peer || strncmp(peer, "fd:", 3) || !peer[3] || strlen(peer + 3) > 9) return -1;
    i32 number = 0;
    for (const char *digit = peer + 3; *digit; digit++) {
        if (*digit < '0' || *digit > '9') return -1;
        number = number * 10 + (*digit - '0');
    }
    return number;
}

bool vx_rpc_peer_in_group(int fd, u32 gid)
{
    gid_t groups[VX_RPC_GROUPS_MAX];
    socklen_t bytes = sizeof groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes)) return false;
    for (size_t i = 0; i < bytes / sizeof *groups; i++)
        if (groups[i] == gid) return true;
    return false;
}

static bool is_loopback(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)at;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (at->ss_family != AF_INET6) return false;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)at)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(in6) ||
           (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127);
}

/* An IPv4 address, or the network of an IPv6 one. */
static u64 source_of_address(const struct sockaddr_storage *at)
{
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)at)->sin6_addr;
    u64 network;
    u32 host;
    if (at->ss_family == AF_INET)
        return ((const struct sockaddr_in *)at)->sin_addr.s_addr;
    if (at->ss_family != AF_INET6) return 0;
    memcpy(&network, in6->s6_addr, sizeof network);
    memcpy(&host, in6->s6_addr + 12, sizeof host);
    return IN6_IS_ADDR_V4MAPPED(in6) ? host : network;
}

/* A process of another pid namespace has no number here, and says 0: then its user is all that is
 * known.  The highest bits keep users, processes and IPv4 addresses apart. */
static u64 source_of_process(const struct ucred *who)
{
    return who->pid > 0 ? (u64)1 << 62 | (u64)who->pid : (u64)1 << 63 | who->uid;
}

struct vx_peer vx_rpc_peer_of(int fd, bool is_unix)
{
    struct vx_peer peer = {.kind = VX_PEER_REMOTE};
    if (is_unix) {
        struct ucred who;
        socklen_t bytes = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes)) return peer;
        return (struct vx_peer){.kind = VX_PEER_UNIX,
                                .uid = who.uid,
                                .gid = who.gid,
                                .source = source_of_process(&who)};
    }
    struct sockaddr_storage here, there;
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    if (getpeername(fd, (struct sockaddr *)&there, &there_bytes)) return peer;
    peer.source = source_of_address(&there);
    if (!getsockname(fd, (struct sockaddr *)&here, &here_bytes) && is_loopback(&here) &&
        is_loopback(&there))
        peer.kind = VX_PEER_LOCAL;
    return peer;
}

void vx_rpc_peer_name(int fd, const struct vx_peer *peer, char name[VX_RPC_PEER_BYTES])
{
    struct sockaddr_storage there;
    socklen_t bytes = sizeof there;
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE], port[8];
    if (peer->kind == VX_PEER_UNIX)
        snprintf(name, VX_RPC_PEER_BYTES, "unix uid %u", peer->uid);
    else if (getpeername(fd, (struct sockaddr *)&there, &bytes) ||
             getnameinfo((struct sockaddr *)&there, bytes, host, sizeof host, port,
                         sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(name, VX_RPC_PEER_BYTES, "unknown");
    else
        snprintf(name, VX_RPC_PEER_BYTES, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
                 port);
}
