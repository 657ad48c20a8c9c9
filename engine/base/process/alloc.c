/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"

#include "engine/base/process/check.h"

#include <stdlib.h>

#define CACHE_LINE_BYTES 64

static _Thread_local bool frozen;

void *vx_alloc(size_t bytes)
{
    VX_ASSERT(!frozen);
    return malloc(bytes ? bytes : 1);
}

void *vx_alloc_zero(size_t bytes)
{
    VX_ASSERT(!frozen);
    return calloc(1, bytes ? bytes : 1);
}

void *vx_alloc_aligned(size_t bytes)
{
    VX_ASSERT(!frozen);
    if (bytes > SIZE_MAX - CACHE_LINE_BYTES) return NULL;
    return aligned_alloc(CACHE_LINE_BYTES,
                         vx_round_up(bytes ? bytes : 1, CACHE_LINE_BYTES));
}

void vx_free(void *pointer)
{
    free(pointer);
}

void vx_alloc_freeze(void)
{
    frozen = true;
}

bool vx_alloc_thaw(void)
{
    bool was = frozen;
    frozen = false;
    return was;
}
