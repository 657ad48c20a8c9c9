/* backend_cpu - the CPU's table of backend functions (engine/model/backend.h).
 *
 * A batch runs whole, request by request, before submit returns (exec.h).  Only an item
 * that asks for the places of its outputs stops it; collect then goes on, and a batch that
 * was submitted behind it waits.
 *
 * Owner    the engine.
 * Thread   load: the loading thread; the rest: device.
 * Limits   options.device_bytes for activations, cache_bytes for geometries.
 * Fails    open: as vx_engine_open.  An item: as exec.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_BACKEND_CPU_H
#define VX_ENGINE_CPU_BACKEND_CPU_H

#include "engine/model/backend.h"

extern const struct vx_backend vx_backend_cpu;

#endif
