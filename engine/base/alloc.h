/* alloc - the only door to the heap, and the lock on it.
 *
 * Memory is sized at start.  A thread on the request path freezes itself once it is up;
 * an allocation on it is then our mistake and panics, so that flat memory is a checked
 * claim.
 *
 *   struct table *table = vx_alloc_zero(sizeof *table);
 *   vx_alloc_freeze();            (this thread is serving from here on)
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
/* On a 64-byte line, for what vector units read. */
VX_MUST_USE void *vx_alloc_aligned(size_t bytes);
void vx_free(void *pointer);

/* From here on this thread may not allocate.  vx_alloc_thaw ends it: at shutdown, and for
 * work that is no request's and gives back all it takes.  True when it was frozen. */
void vx_alloc_freeze(void);
bool vx_alloc_thaw(void);

#endif
