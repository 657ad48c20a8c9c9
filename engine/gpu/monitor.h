/* gpu/monitor - what a GPU's driver, and its vendor's monitoring library, say of the device:
 * its id, memory, utilisation, power and energy.
 *
 * NVML (libnvidia-ml) answers slowly: on an H200 power takes 1 us, energy 2.4 ms and at times
 * 16, utilisation at times 2.4 ms.  So a thread of its own asks it each second, in the worker,
 * where a library that hangs takes no other device with it; whoever reads the numbers takes
 * the last ones.  Memory is the driver's to say and costs 7 us.  Without the library, or on
 * another vendor's device, the rest is not known, and that is all.
 *
 *   VX_TRY(vx_gpu_monitor_open(gpu, library, why, &monitor));
 *   vx_gpu_monitor_get(monitor, &stats.gpu);
 *   vx_gpu_monitor_close(&monitor);
 *
 * Owner    the caller; the GPU is closed after it.
 * Thread   device.
 * Limits   one thread each.
 * Fails    open: RESOURCE_EXHAUSTED.  A library that is not there is no failure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MONITOR_H
#define VX_ENGINE_GPU_MONITOR_H

#include "engine/engine.h"
#include "engine/gpu/gpu.h"

struct vx_gpu_monitor;

/* `library`: path of NVML; NULL = the system's. */
VX_MUST_USE vx_status vx_gpu_monitor_open(struct vx_gpu *gpu, const char *library,
                                          struct vx_why *why,
                                          struct vx_gpu_monitor **monitor);
void vx_gpu_monitor_close(struct vx_gpu_monitor **monitor);
void vx_gpu_monitor_get(struct vx_gpu_monitor *monitor, struct vx_gpu_stats *stats);

#endif
