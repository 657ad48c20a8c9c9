/* access_connections - the buckets of connections, by the connection's number.
 *
 * Owner    access.
 * Thread   under access's lock.
 * Limits   the number at open.
 * Fails    open: RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_CONNECTIONS_H
#define VX_SERVER_ACCESS_CONNECTIONS_H

#include "engine/base/status.h"
#include "server/access/access_limit.h"

struct vx_access_connection {
    u64 number; /* 0 = free */
    struct vx_access_bucket buckets[VX_ACCESS_UNITS];
    i32 next; /* of the same head, or free; -1 = the last */
};

struct vx_access_connections {
    struct vx_access_connection *rows;
    i32 *heads;
    u32 mask; /* heads - 1 */
    i32 free;
    i32 count;
};

VX_MUST_USE vx_status vx_access_connections_open(struct vx_access_connections *all,
                                                 i32 connections_max);
void vx_access_connections_close(struct vx_access_connections *all);
/* NULL: it has none. */
struct vx_access_connection *vx_access_connections_find(struct vx_access_connections *all,
                                                        u64 number);
/* Adds one, with full buckets; NULL: there is no room. */
struct vx_access_connection *
vx_access_connections_add(struct vx_access_connections *all, u64 number,
                          const struct vx_access_limit limits[VX_ACCESS_UNITS],
                          i64 now_ns);
void vx_access_connections_remove(struct vx_access_connections *all, u64 number);

#endif
