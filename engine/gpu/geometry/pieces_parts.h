/* pieces_parts - what pieces.c and join.c share: descriptions that are copied to the device.
 *
 * Owner    the caller.
 * Thread   device.
 * Limits   the room of the upload.
 * Fails    RESOURCE_EXHAUSTED: it has too little room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_PIECES_PARTS_H
#define VX_ENGINE_GPU_PIECES_PARTS_H

#include "engine/gpu/geometry/pieces.h"
#include "kernels/15_geometry_join.h"

/* A description where the host writes it, and where a launch reads its copy. */
struct vx_gpu_piece_part {
    void *host;
    void *device;
};

VX_MUST_USE vx_status vx_gpu_piece_part(struct vx_gpu_upload *upload, size_t bytes,
                                        struct vx_why *why,
                                        struct vx_gpu_piece_part *part);
/* Divides the blocks of a launch among the pieces by their chunks; returns the blocks. */
u32 vx_gpu_piece_shares(struct vx_kernel_set *set, const i64 *chunks, i32 count,
                        struct vx_join_share *shares);

#endif
