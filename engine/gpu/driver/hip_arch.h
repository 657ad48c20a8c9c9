/* gpu/hip_arch - which architecture an AMD GPU has: gfx90a, gfx942, gfx1100, ...
 *
 * HIP itself tells it only in a struct whose layout changes between releases.  The kernel
 * driver lists its devices in the system's folders with the number gfx_target_version,
 * and the device is found there by its place on the PCI bus, since HIP may count in
 * another order and may hide devices.  A container can lack these folders: then the name
 * is read from the struct, at the two offsets where releases 5 and 6 have it, and taken
 * only if it reads as a name and agrees with the device's major and minor number.
 *
 *   i32 version = vx_hip_arch_of_bus("", "0000:c1:00.0");      (90402)
 *   vx_hip_arch_name(version, name);                           ("gfx942")
 *
 * Owner    values.
 * Thread   any.
 * Limits   VX_HIP_NODES_MAX nodes of the kernel driver's list.
 * Fails    0 = not known.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_HIP_ARCH_H
#define VX_ENGINE_GPU_HIP_ARCH_H

#include "engine/gpu/driver/driver.h"

#define VX_HIP_NODES_MAX 256

/* gfx_target_version of the node on this bus; `root` is put before /sys. */
i32 vx_hip_arch_of_bus(const char *root, const char *bus);
/* The one gfx_target_version that all listed GPUs have; 0 = none is listed, or several. */
i32 vx_hip_arch_of_all(const char *root);
/* "gfx90a:sramecc+:xnack-" is 90010.  0 = not a name. */
i32 vx_hip_arch_parse(const char *name);
/* 90010 is "gfx90a". */
void vx_hip_arch_name(i32 version, char name[VX_ARCH_BYTES]);
/* The lanes of a wave for which kernels are compiled (VX_WAVE of kernels/device.h). */
i32 vx_hip_arch_wave(i32 version);
/* gcnArchName of hipDeviceProp_t, which `library` fills for the device. */
i32 vx_hip_arch_of_struct(void *library, int device);

#endif
