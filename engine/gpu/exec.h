/* exec - the GPU behind the engine's table of functions (engine/plan/backend.h).
 *
 * One stream, one block of device memory, taken at open, for whatever a request needs;
 * the weights of each model beside it.  A request is put on the stream as a whole and
 * waited for once.  Loading (any thread but the device's) reads files, chooses tiles,
 * compiles and loads kernels; `prepare`, on the device thread, moves the weights.
 *
 *   vx_engine_open  ->  vx_backend_gpu.open  ->  vx_gpu_open, vx_jit_open, one block
 *   VX_TRY(vx_gpu_model_kernels(&source, &pick, &why, &wanted));    (voxeld compile)
 *
 * Coordinates that are bad raise a flag that comes back with the answers; the host then
 * looks for the rows with the CPU's own code, so that the sentence is the same on every
 * device.
 *
 * Owner    the engine.
 * Thread   load: the loading thread; the rest: device.
 * Limits   options.device_bytes for requests; what is free beside it for weights.
 * Fails    open: as gpu.h, jit.h, table.h.  run: INVALID_ARGUMENT bad coordinates,
 *          RESOURCE_EXHAUSTED with the numbers, UNAVAILABLE once the device is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_EXEC_H
#define VX_ENGINE_GPU_EXEC_H

#include "engine/gpu/model_kernels.h"
#include "engine/model/model.h"
#include "engine/plan/backend.h"

struct vx_gpu_model; /* a model's part on the device */

/* The kernels that a model launches on a device that is described by `pick`, up to the
 * voxels that its file says; needs no device.  `wanted` may hold those of other models. */
VX_MUST_USE vx_status vx_gpu_model_kernels(const struct vx_model_source *source,
                                           const struct vx_pick *pick, struct vx_why *why,
                                           struct vx_gpu_wanted *wanted);

#endif
