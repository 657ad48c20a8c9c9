/* backend_gpu - the GPU's table of backend functions (engine/model/backend.h).
 *
 * open allocates device memory: a block for the rounds (batches.h) and a range for the
 * geometry store (geometry_store.h).  The weights of each model are allocated beside
 * them.  submit puts a batch on a stream and returns, and collect asks for it later, so
 * that the tensors of one batch are copied while the layers of another run.  load, which
 * is not on the device thread, reads files, chooses tiles, compiles and loads kernels;
 * the first step of warm, on the device thread, copies the weights to the device.
 *
 *   vx_engine_open  ->  vx_backend_gpu.open  ->  vx_gpu_open, vx_jit_open, memory, lanes
 *   VX_TRY(vx_gpu_model_kernels(&source, &pick, &why, &wanted));    (voxeld compile)
 *
 * The device sets a flag for bad coordinates, which is copied back with the outputs.  The
 * host then finds the bad rows with the code of the CPU backend, so that the error is the
 * same on every device.
 *
 * Owner    the engine.
 * Thread   load: the loading thread; the rest: device.
 * Limits   options.device_bytes for rounds, cache_bytes for geometries; the device memory
 *          that is left for weights.
 * Fails    open: as gpu.h, jit.h, table.h.  An item: INVALID_ARGUMENT bad coordinates,
 *          RESOURCE_EXHAUSTED with the numbers, FAILED_PRECONDITION a coords_ref that the
 *          store does not have, UNAVAILABLE once the device is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_BACKEND_GPU_H
#define VX_ENGINE_GPU_BACKEND_GPU_H

#include "engine/model/backend.h"

extern const struct vx_backend vx_backend_gpu;

#endif
