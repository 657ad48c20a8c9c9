/* buddy - a buddy allocator over a range of offsets; it never touches the bytes.
 *
 * It hands out blocks of power-of-two size, lowest offset first, so that a long-running
 * process keeps using the pages it already has.  The arena shared with the workers and
 * the geometry caches use it.  A caller that moves its blocks together takes places itself.
 *
 *   VX_TRY(vx_buddy_open(bytes, unit, &buddy));
 *   if (!vx_buddy_take(buddy, need, &offset)) ...full...
 *   vx_buddy_give(buddy, offset);
 *
 * Owner    the caller; metadata is two to four bytes per unit, allocated at open.
 * Thread   one at a time: the caller locks.
 * Limits   the range is rounded down to whole units, at most 2^40 of them.  A block has
 *          the bytes asked for, at least one unit, rounded up to a power of two, and is
 *          aligned to its own size; what take_at takes is neither.
 * Fails    open: INVALID_ARGUMENT when the unit is not a power of two, or the range holds
 *          no unit or too many; RESOURCE_EXHAUSTED without memory.  take: false when no
 *          block is free.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_BUDDY_H
#define VX_ENGINE_BASE_BUDDY_H

#include "engine/base/status.h"

struct vx_buddy;

VX_MUST_USE vx_status vx_buddy_open(u64 bytes, u64 unit, struct vx_buddy **buddy);
void vx_buddy_close(struct vx_buddy **buddy);
VX_MUST_USE bool vx_buddy_take(struct vx_buddy *buddy, u64 bytes, u64 *offset);
void vx_buddy_give(struct vx_buddy *buddy, u64 offset);
/* Takes the units from `offset` on that hold `bytes`; all of them are free.  They are given
 * by give_at alone, with the same numbers.  That also gives a block of take, with its size. */
void vx_buddy_take_at(struct vx_buddy *buddy, u64 offset, u64 bytes);
void vx_buddy_give_at(struct vx_buddy *buddy, u64 offset, u64 bytes);
/* Whether take would succeed if the whole range were free. */
bool vx_buddy_could(const struct vx_buddy *buddy, u64 bytes);
u64 vx_buddy_used(const struct vx_buddy *buddy);    /* bytes of blocks in use */
u64 vx_buddy_largest(const struct vx_buddy *buddy); /* bytes of the largest free block */
/* The bytes of the block that take hands out for `bytes`. */
u64 vx_buddy_piece(u64 unit, u64 bytes);

#endif
