/* rpc_regions - the tensors of a request that lie in regions: references taken, coordinates
 * copied where they must be, and all of it given back.
 *
 * Coordinates are checked and used afterwards, and the client may write them in between: so
 * what is checked is a copy.  A worker with a GPU copies them itself; for others, and for a
 * geometry that gets a name, they are copied here, into a slot, and are from then on as if
 * they had come in the message.
 *
 *   VX_TRY(vx_rpc_regions_take(&rpc->options, call, &why));
 *   ...
 *   vx_rpc_regions_give(regions, call);
 *
 * Owner    the call holds the references.
 * Thread   any; a call is one thread's at a time.
 * Limits   the arena; those of regions.h.
 * Fails    as vx_regions_use; UNIMPLEMENTED where none are served, RESOURCE_EXHAUSTED no slot,
 *          FAILED_PRECONDITION a region that its client has cut.  Then nothing is taken any
 *          more, the slots of the request neither.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_REGIONS_H
#define VX_SERVER_RPC_REGIONS_H

#include "server/rpc.h"

VX_MUST_USE vx_status vx_rpc_regions_take(const struct vx_rpc_options *options,
                                          struct vx_call *call, struct vx_why *why);
/* Nothing for a call that holds none; `regions` may be NULL then. */
void vx_rpc_regions_give(struct vx_regions *regions, struct vx_call *call);

/* All that a request holds on its way in: its inputs' slots and these references.  Again is
 * nothing. */
void vx_rpc_tensors_give(const struct vx_slots *slots, struct vx_regions *regions,
                         struct vx_call *call);

/* Coordinates can only be an input of this form, whatever the model calls them: no second
 * one would be admitted. */
static inline bool vx_rpc_is_coords(const struct vx_request_tensor *input)
{
    return input->type == VX_WIRE_INT32 && input->rank == 2 &&
           (input->shape[1] == 3 || input->shape[1] == 4) && input->shape[0] > 0;
}

#endif
