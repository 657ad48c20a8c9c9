/* cores - how many cores this process may use at once.
 *
 * The smaller of its affinity mask and of the CPU quotas of the control groups it is in: in a
 * container with a quota of 2 on a machine of 64 cores, 64 threads would be stopped most of the
 * time.
 *
 * Thread   any.  Reads files: not for serving.
 * Fails    never: what cannot be read does not limit.  At least 1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_CORES_H
#define VX_ENGINE_CPU_CORES_H

#include "engine/base/types.h"

i32 vx_cores_usable(void);

/* The cores that a quota lets run, rounded up: cgroup v2's "MAX PERIOD" or "max PERIOD" in one
 * text, or v1's two numbers as "QUOTA PERIOD".  0 = no limit, or not understood. */
i32 vx_cores_of_quota(const char *text);

/* The name of the processor, or of the architecture where the kernel tells no more. */
void vx_cores_name(char *name, size_t bytes);

#endif
