/* upload - descriptions that are too large for the arguments of a launch.
 *
 * They are written to page-locked host memory and copied to device memory of the same
 * size, from the front.
 *
 *   if (!vx_gpu_upload_fits(&upload, bytes)) ...launch one by one
 *   args = vx_gpu_upload_take(&upload, bytes, &at);
 *   ...write args...
 *   VX_TRY(vx_gpu_upload_send(&queue, &upload, at, &why));
 *   ...launch with (upload.device + at)...
 *
 * Owner    the caller owns both memories, and sets `used` to 0 when the stream has passed
 *          all earlier work.
 * Thread   device; send only puts a copy on the stream.
 * Limits   take asserts that it fits.
 * Fails    send: as vx_gpu_copy_in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_UPLOAD_H
#define VX_ENGINE_GPU_UPLOAD_H

#include "engine/gpu/geometry/map.h"

struct vx_gpu_upload {
    u8 *host;
    u8 *device;
    size_t bytes, used;
    bool reached; /* kernels read `host`, too: for what each reads once (gpu.h: reach) */
};
#define VX_GPU_UPLOAD_BYTES (256 << 10)
/* The part of it for a join: the descriptions of M pieces with K maps and lists take at most
 * K * (M * 64 + 576) bytes. */
#define VX_GPU_JOIN_UPLOAD (96 << 10)

/* False if half of the room that is left is too little: the rest is for what follows. */
bool vx_gpu_upload_fits(const struct vx_gpu_upload *upload, size_t bytes);
/* Where the host writes them; they fit.  *at: their offset. */
void *vx_gpu_upload_take(struct vx_gpu_upload *upload, size_t bytes, size_t *at);
/* Copies what was taken since `at`. */
VX_MUST_USE vx_status vx_gpu_upload_send(const struct vx_gpu_queue *queue,
                                         const struct vx_gpu_upload *upload, size_t at,
                                         struct vx_why *why);

#endif
