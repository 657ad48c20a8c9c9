/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace/record_ring.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <string.h>

vx_status vx_record_ring_open(struct vx_record_ring *ring)
{
    memset(ring, 0, sizeof *ring);
    ring->slots = vx_alloc_zero(sizeof *ring->slots * VX_RECORD_RING_SLOTS);
    VX_ENSURE(ring->slots, RESOURCE_EXHAUSTED, "no memory for spans");
    return VX_OK;
}

void vx_record_ring_close(struct vx_record_ring *ring)
{
    vx_free(ring->slots);
    ring->slots = NULL;
}

static struct vx_record *ring_slot(const struct vx_record_ring *ring, u64 number)
{
    return &ring->slots[number % VX_RECORD_RING_SLOTS];
}

struct vx_record *vx_record_ring_begin(struct vx_record_ring *ring)
{
    u64 given = atomic_load_explicit(&ring->given, memory_order_relaxed);
    /* Acquire: the taker has read the slot before it is written again. */
    u64 taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    VX_ASSERT(given - taken <= VX_RECORD_RING_SLOTS);
    if (given - taken == VX_RECORD_RING_SLOTS) return NULL;
    struct vx_record *record = ring_slot(ring, given);
    memset(record, 0, sizeof *record);
    return record;
}

void vx_record_ring_end(struct vx_record_ring *ring)
{
    /* Release: the record is whole before it is seen. */
    atomic_fetch_add_explicit(&ring->given, 1, memory_order_release);
}

i32 vx_record_ring_count(const struct vx_record_ring *ring)
{
    /* `taken` first: it never overtakes `given`. */
    u64 taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    u64 given = atomic_load_explicit(&ring->given, memory_order_acquire);
    return (i32)(given - taken);
}

const struct vx_record *vx_record_ring_at(const struct vx_record_ring *ring, i32 i)
{
    VX_ASSERT(i >= 0);
    VX_ASSERT(i < vx_record_ring_count(ring));
    return ring_slot(ring,
                     atomic_load_explicit(&ring->taken, memory_order_relaxed) + (u64)i);
}

void vx_record_ring_drop(struct vx_record_ring *ring, i32 count)
{
    VX_ASSERT(count <= vx_record_ring_count(ring));
    atomic_fetch_add_explicit(&ring->taken, (u64)count, memory_order_release);
}
