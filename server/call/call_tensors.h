/* call_tensors - references to the regions of a request, and copies of its coordinates.
 *
 * A request's tensors may lie in regions.  Coordinates are checked first and used later,
 * and the client may change them in between: so the server checks a copy.  A worker with
 * a GPU makes that copy itself.  For other workers, and for a geometry that gets a
 * coords_ref, the coordinates are copied here into a slot; from then on they are treated
 * as if they had come in the message.
 *
 *   VX_TRY(vx_call_tensors_take(&memory, call, &why));
 *   ...
 *   vx_call_tensors_give(slots, regions, call);
 *
 * Owner    the call holds the references.
 * Thread   any; one thread at a time works on a call.
 * Limits   the arena; those of regions.h.
 * Fails    as vx_regions_use; UNIMPLEMENTED if regions are not served, RESOURCE_EXHAUSTED
 *          if there is no free slot or no model serves so many voxels,
 *          FAILED_PRECONDITION for a region that its client has
 *          truncated.  After a failure the call holds neither references nor slots.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CALL_TENSORS_H
#define VX_SERVER_CALL_TENSORS_H

#include <stdatomic.h>

#include "server/call/call.h"

/* Where the tensors of requests lie. */
struct vx_call_memory {
    const struct vx_slots *slots; /* of the arena; thread-safe */
    struct vx_regions *regions;   /* shared memory of clients; NULL = none is served */
    bool coords_in_place; /* every worker checks its own copy of coords in a region */
    /* The most voxels that any model here serves in one request; NULL: who asks for more finds out
     * when it is admitted. */
    const _Atomic i64 *voxels_most;
};

VX_MUST_USE vx_status vx_call_tensors_take(const struct vx_call_memory *memory,
                                           struct vx_call *call, struct vx_why *why);
/* What the slots of its inputs take of the arena. */
u64 vx_call_tensors_bytes(const struct vx_call *call);
/* Gives back all that a request holds before it runs: its inputs' slots and these
 * references.  A second call does nothing.  `regions` may be NULL if the call holds no
 * reference. */
void vx_call_tensors_give(const struct vx_slots *slots, struct vx_regions *regions,
                          struct vx_call *call);

#endif
