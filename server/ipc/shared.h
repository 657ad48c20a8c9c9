/* shared - the arena: memory that front and workers share, for tensors in flight.
 *
 * The front creates one memfd and hands out slots of it; workers map the same file and
 * read and write the slots that messages name.  A request's bytes are copied in once,
 * before a device is chosen, so a batch can move to another device when its own fails.
 *
 *   VX_TRY(vx_shared_open(bytes, &why, &shared));          front
 *   VX_TRY(vx_shared_map(fd, &why, &shared));              worker
 *   const struct vx_slots *slots = vx_shared_slots(shared);
 *
 * Owner    the front owns the file and every slot; a slot is owned by one call, then by
 *          gRPC.
 * Thread   slots are taken and given back on any thread, under one lock that is held for
 *          the buddy allocator's few steps.
 * Limits   bytes, fixed at open; a page takes memory from its first use on.
 * Fails    RESOURCE_EXHAUSTED when the system has no such memory; take returns false when
 *          the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SHARED_H
#define VX_SERVER_SHARED_H

#include "proto/codec.h"

struct vx_shared;

VX_MUST_USE vx_status vx_shared_open(u64 bytes, struct vx_why *why,
                                     struct vx_shared **shared);
VX_MUST_USE vx_status vx_shared_map(int fd, struct vx_why *why,
                                    struct vx_shared **shared);
void vx_shared_close(struct vx_shared **shared);

int vx_shared_fd(const struct vx_shared *shared);
u64 vx_shared_bytes(const struct vx_shared *shared);
u64 vx_shared_used(struct vx_shared *shared); /* bytes in taken slots; front only */

/* Places pages that are not touched yet on these NUMA nodes, a bit each: one node is
 * preferred, several are interleaved.  A hint; does nothing on a machine with one
 * node. */
void vx_shared_place(const struct vx_shared *shared, u64 nodes);
u64 vx_shared_nodes_of(i32 node); /* its bit; -1, a device near no node: all nodes */

/* The slot allocator in the codec's form; front only. */
const struct vx_slots *vx_shared_slots(struct vx_shared *shared);
/* The bytes at `offset`, or NULL when [offset, offset + bytes) is not entirely inside. */
u8 *vx_shared_view(const struct vx_shared *shared, u64 offset, u64 bytes);

#endif
