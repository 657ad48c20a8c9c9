/* top - of each sample the rows with the largest logits, on the device.
 *
 * All rows of all requests on a set are sorted together: by key, then by sample and falling
 * logit, then by request; the first rows of each sample are marked.
 *
 *   VX_TRY(vx_gpu_top_build(&queue, &upload, &levels, set, &why));
 *   vx_gpu_top_kept(&levels, set)[row] ...                    (device, in the scratch)
 *
 * Owner    the scratch of the levels' stage; in use until the stream has passed the last
 *          reader of `kept`.
 * Thread   device; build only puts copies and launches on the stream.
 * Limits   as levels.h; `set` is KEEP with top.
 * Fails    as vx_kernel_launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_TOP_H
#define VX_ENGINE_GPU_TOP_H

#include "engine/gpu/geometry/levels.h"

/* Bytes of the scratch for so many rows of the set that it is made from. */
size_t vx_gpu_top_bytes(i64 rows);
VX_MUST_USE vx_status vx_gpu_top_build(const struct vx_gpu_queue *queue,
                                       struct vx_gpu_upload *upload,
                                       const struct vx_gpu_levels *levels, i32 set,
                                       struct vx_why *why);
const u32 *vx_gpu_top_kept(const struct vx_gpu_levels *levels, i32 set);

#endif
