/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/upload.h"

#include "engine/base/process/check.h"

/* The alignment of a description. */
#define PART_ALIGN 64

bool vx_gpu_upload_fits(const struct vx_gpu_upload *upload, size_t bytes)
{
    size_t left = upload->used < upload->bytes ? upload->bytes - upload->used : 0;
    return bytes + PART_ALIGN <= left / 2;
}

void *vx_gpu_upload_take(struct vx_gpu_upload *upload, size_t bytes, size_t *at)
{
    *at = vx_round_up(upload->used, PART_ALIGN);
    upload->used = *at + bytes;
    VX_ASSERT(upload->used <= upload->bytes);
    return upload->host + *at;
}

vx_status vx_gpu_upload_send(const struct vx_gpu_queue *queue,
                             const struct vx_gpu_upload *upload, size_t at,
                             struct vx_why *why)
{
    return vx_gpu_copy_in(
        vx_kernel_set_gpu(queue->set), queue->stream,
        &(struct vx_gpu_copy){upload->device + at, upload->host + at, upload->used - at},
        why);
}
