/* gpu/monitor - a GPU's id, memory, utilisation, power and energy.
 *
 * Utilisation, power and energy come from NVML (nvml.h), which is slow: on an H200,
 * power takes 1 us, energy 2.4 ms and at times 16 ms, utilisation at times 2.4 ms.  A
 * separate thread therefore asks it every second, and readers get the last numbers.  The
 * thread is in the worker, so that a library that hangs affects no other device.  Without
 * the library, or with another vendor's device, these numbers are not known.  Memory
 * comes from the driver, which takes 7 us.
 *
 *   VX_TRY(vx_gpu_monitor_open(gpu, library, why, &monitor));
 *   vx_gpu_monitor_get(monitor, &stats.gpu);
 *   vx_gpu_monitor_close(&monitor);
 *
 * Owner    the caller; close it before the GPU.
 * Thread   device.
 * Limits   one thread each.
 * Fails    open: RESOURCE_EXHAUSTED.  A missing library is no failure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MONITOR_H
#define VX_ENGINE_GPU_MONITOR_H

#include "engine/device.h"
#include "engine/gpu/driver/gpu.h"

struct vx_gpu_monitor;

/* `library`: path of NVML; NULL = the system's. */
VX_MUST_USE vx_status vx_gpu_monitor_open(struct vx_gpu *gpu, const char *library,
                                          struct vx_why *why,
                                          struct vx_gpu_monitor **monitor);
void vx_gpu_monitor_close(struct vx_gpu_monitor **monitor);
void vx_gpu_monitor_get(struct vx_gpu_monitor *monitor, struct vx_gpu_stats *stats);

#endif
