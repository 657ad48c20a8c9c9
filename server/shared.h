/* shared - the memory that front and workers share: tensors of requests in flight.
 *
 * The front makes one memfd and hands out slots of it; workers map the same file and read
 * and write the slots that messages name.  A request's bytes are copied in once, before
 * anyone decides which device runs it, so a batch can move to another device when its own
 * dies.
 *
 *   VX_TRY(vx_shared_open(bytes, &why, &shared));          front
 *   VX_TRY(vx_shared_map(fd, &why, &shared));              worker
 *   const struct vx_slots *slots = vx_shared_slots(shared);
 *
 * Owner    the front owns the file and every slot; a slot is owned by one call, then by
 *          gRPC.
 * Thread   slots are taken and given from any thread, under one lock held for the buddy's
 *          few steps.
 * Limits   bytes, fixed at open; pages are touched when first used and then kept.
 * Fails    RESOURCE_EXHAUSTED when the system has no such memory; take is false when
 *          full.
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
u64 vx_shared_used(struct vx_shared *shared); /* in slots that are out; front only */

/* Pages that nobody has touched yet come from these nodes, a bit each: from the one, or
 * from all in turn.  A hint; nothing on a machine with one node. */
void vx_shared_place(const struct vx_shared *shared, u64 nodes);
u64 vx_shared_nodes_of(i32 node); /* -1, a device that is near none: all there are */

/* The slots as the codec wants them; front only. */
const struct vx_slots *vx_shared_slots(struct vx_shared *shared);
/* The bytes at `offset`, or NULL when [offset, offset + bytes) is not all inside. */
u8 *vx_shared_view(const struct vx_shared *shared, u64 offset, u64 bytes);

#endif
