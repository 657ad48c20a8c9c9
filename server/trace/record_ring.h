/* record_ring - records from the loop to the exporter's thread, without a lock.
 *
 * One thread gives and one takes.  The giver never waits: without a free slot it gets
 * NULL, and the caller counts what is lost.
 *
 *   loop       record = vx_record_ring_begin(&ring); ...fill in...; vx_record_ring_end(&ring);
 *   exporter   n = vx_record_ring_count(&ring); vx_record_ring_at(&ring, 0 .. n - 1);
 *              vx_record_ring_drop(&ring, n);
 *
 * Owner    the exporter; open before its thread starts, close when that is joined.
 * Thread   begin and end: one, the loop.  at and drop: one, the exporter's.  count: any.
 * Limits   VX_RECORD_RING_SLOTS records.
 * Fails    open: RESOURCE_EXHAUSTED without memory.  begin: NULL when full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RECORD_RING_H
#define VX_SERVER_RECORD_RING_H

#include "server/trace/record.h"

#include <stdatomic.h>

/* 8 MB.  At 10,000 requests a second the exporter may be away for 0.4 s; a collector that
 * is away for longer than that costs spans, and never memory. */
#define VX_RECORD_RING_SLOTS 4096
_Static_assert((VX_RECORD_RING_SLOTS & (VX_RECORD_RING_SLOTS - 1)) == 0,
               "counts that wrap keep their slots");

struct vx_record_ring {
    struct vx_record *slots;
    /* Records ever.  Each is written by one side, and on a cache line of its own. */
    _Alignas(64) _Atomic u64 given;
    _Alignas(64) _Atomic u64 taken;
};

VX_MUST_USE vx_status vx_record_ring_open(struct vx_record_ring *ring);
void vx_record_ring_close(struct vx_record_ring *ring);

/* A zeroed record to fill in; NULL = full. */
struct vx_record *vx_record_ring_begin(struct vx_record_ring *ring);
void vx_record_ring_end(struct vx_record_ring *ring);

/* Records that wait. */
i32 vx_record_ring_count(const struct vx_record_ring *ring);
/* Record number i of those that wait, the oldest first. */
const struct vx_record *vx_record_ring_at(const struct vx_record_ring *ring, i32 i);
/* Frees the oldest `count`. */
void vx_record_ring_drop(struct vx_record_ring *ring, i32 count);

#endif
