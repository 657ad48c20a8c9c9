/* cores - how many cores this process may use at once.
 *
 * That is the size of its affinity mask, or the CPU quota of its control groups if that
 * is smaller.  With a quota of 2 in a container on 64 cores, 64 threads would be stopped
 * most of the time.
 *
 * Thread   any; it reads files, so not while serving.
 * Fails    never: a file that cannot be read sets no limit.  The result is at least 1.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_CPU_CORES_H
#define VX_ENGINE_CPU_CORES_H

#include "engine/base/types.h"

i32 vx_cores_usable(void);

/* The cores that a quota allows, rounded up.  `text` is cgroup v2's "MAX PERIOD" or
 * "max PERIOD", or v1's two numbers as "QUOTA PERIOD".  0 = no limit, or another form. */
i32 vx_cores_of_quota(const char *text);

/* The name of the processor, or of the architecture if the kernel does not tell. */
void vx_cores_name(char *name, size_t bytes);

#endif
