/* pick - which waiting items of a batch run in its next round, and how that is laid out.
 *
 *   while (!slot->running && vx_gpu_pick(&room, slot)) ...begin the round...
 *
 * Owner    the slot's; the model's `places` are the layout.
 * Thread   device.
 * Limits   as many items as the model's voxels_max, the room and an upload take.
 * Fails    an item that is too large alone: RESOURCE_EXHAUSTED in its status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_PICK_H
#define VX_ENGINE_GPU_PICK_H

#include "engine/gpu/run/batches.h"

/* Picks the members of the next round and lays it out in the model's `places`, as if each
 * of their sets were as large as it can be; false if no item waits. */
bool vx_gpu_pick(const struct vx_gpu_room *room, struct vx_gpu_slot *slot);
/* Lays the round out by the rows and densities that it has now. */
void vx_gpu_pick_places(struct vx_gpu_slot *slot);

static inline i32 vx_gpu_slot_index(const struct vx_gpu_slot *slot,
                                    const struct vx_item *item)
{
    return (i32)(item - slot->batch->items);
}

#endif
