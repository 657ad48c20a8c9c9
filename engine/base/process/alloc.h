/* alloc - the only functions that use the heap; a thread that serves may not call them.
 *
 * All memory is taken at start.  A thread on the request path freezes itself once it is
 * up; from then on an allocation on it is a bug and panics.  So it is checked, not only
 * claimed, that serving does not allocate.
 *
 *   struct table *table = vx_alloc_zero(sizeof *table);
 *   vx_alloc_freeze();            (this thread serves from here on)
 *
 * Owner    the caller; vx_free takes NULL.
 * Thread   any; freezing is per thread.
 * Fails    NULL when the system has no memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_ALLOC_H
#define VX_ENGINE_BASE_ALLOC_H

#include "engine/base/types.h"

VX_MUST_USE void *vx_alloc(size_t bytes);
VX_MUST_USE void *vx_alloc_zero(size_t bytes);
/* Aligned to 64 bytes, for data that vector units read. */
VX_MUST_USE void *vx_alloc_aligned(size_t bytes);
void vx_free(void *pointer);

/* After freeze the calling thread may not allocate, until vx_alloc_thaw: at shutdown, or
 * around work outside any request that frees all it allocates.  thaw returns whether the
 * thread was frozen. */
void vx_alloc_freeze(void);
bool vx_alloc_thaw(void);

#endif
