/* buddy - hands out power-of-two pieces of a range of offsets; touches none of the bytes.
 *
 * Lowest offset first, so that a long-running process keeps to the pages it already has.
 * Used for the arena shared with the workers and for the geometry cache.
 *
 *   VX_TRY(vx_buddy_open(bytes, unit, &buddy));
 *   if (!vx_buddy_take(buddy, need, &offset)) ...full...
 *   vx_buddy_give(buddy, offset);
 *
 * Owner    the caller; metadata is two to four bytes per unit, allocated at open.
 * Thread   one at a time: the caller locks.
 * Limits   the range is rounded down to whole units, 2^40 at most; a piece is what was
 * asked (at least one unit) rounded up to a power of two, and aligned to its own size.
 * Fails    open: INVALID_ARGUMENT for a unit that is no power of two or a range without
 * one unit, RESOURCE_EXHAUSTED without memory.  take returns false when no piece is free.
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
/* Whether take would find a piece when all were free. */
bool vx_buddy_could(const struct vx_buddy *buddy, u64 bytes);
u64 vx_buddy_used(const struct vx_buddy *buddy);    /* bytes in pieces that are out */
u64 vx_buddy_largest(const struct vx_buddy *buddy); /* free piece; 0 = none is free */
/* What take takes for so many bytes. */
u64 vx_buddy_piece(u64 unit, u64 bytes);

#endif
