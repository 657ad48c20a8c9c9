/* cores - keeps memory out of core dumps.
 *
 *   vx_core_leave_out(block, bytes);          after mmap: no core has these pages
 *
 * What clients send lies in a few large mappings: the arena, clients' regions, activations
 * of the CPU device, neighbour maps.  A core without them still has every stack and the
 * heap, so it shows where a process crashed.  The heap may hold pieces of messages, and it
 * holds weights: without core_dumps there is no core at all.
 *
 * Owner    the mapping's; the mark goes with munmap.
 * Thread   any.
 * Limits   whole pages.
 * Fails    never: a kernel that refuses the mark writes a larger core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_CORES_H
#define VX_ENGINE_BASE_CORES_H

#include "engine/base/types.h"

#include <sys/mman.h>

static inline void vx_core_leave_out(void *pages, size_t bytes)
{
    (void)madvise(pages, bytes, MADV_DONTDUMP);
}

#endif
