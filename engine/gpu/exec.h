/* exec - the GPU behind the engine's table of functions (engine/plan/backend.h).
 *
 * Device memory is taken at open: a block for whatever rounds need (batches.h), a range for
 * the geometries that are remembered (geometry_store.h); the weights of each model beside
 * them.  A batch is put on a stream as a whole and asked for later, so that one batch's
 * tensors travel while the other's layers run.  Loading (any thread but the device's) reads
 * files, chooses tiles, compiles and loads kernels; `prepare`, on the device thread, moves
 * the weights.
 *
 *   vx_engine_open  ->  vx_backend_gpu.open  ->  vx_gpu_open, vx_jit_open, memory, lanes
 *   VX_TRY(vx_gpu_model_kernels(&source, &pick, &why, &wanted));    (voxeld compile)
 *
 * Coordinates that are bad raise a flag that comes back with the answers; the host then
 * looks for the rows with the CPU's own code, so that the sentence is the same on every
 * device.
 *
 * Owner    the engine.
 * Thread   load: the loading thread; the rest: device.
 * Limits   options.device_bytes for rounds, cache_bytes for geometries; what is free beside
 *          them for weights.
 * Fails    open: as gpu.h, jit.h, table.h.  An item: INVALID_ARGUMENT bad coordinates,
 *          RESOURCE_EXHAUSTED with the numbers, FAILED_PRECONDITION a geometry that is not
 *          known, UNAVAILABLE once the device is lost.
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
