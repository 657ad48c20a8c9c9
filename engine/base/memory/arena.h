/* arena - a bump allocator over one block; everything in it is freed together.
 *
 *   struct vx_arena arena;
 *   vx_arena_init(&arena, block, bytes);
 *   struct layer *layers = vx_arena_take(&arena, n * sizeof *layers);
 *   if (!layers) VX_FAIL(RESOURCE_EXHAUSTED, "...");
 *   vx_arena_reset(&arena);
 *
 * Owner    the caller owns the block; single allocations are not freed.
 * Thread   one at a time.
 * Limits   a full arena returns NULL and never grows.  Allocations are 16-byte aligned
 *          and zeroed.
 * Fails    NULL when full.  Under ASan free space is poisoned and each allocation is
 *          followed by a red zone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_ARENA_H
#define VX_ENGINE_BASE_ARENA_H

#include "engine/base/types.h"

struct vx_arena {
    u8 *block;
    size_t bytes;
    size_t used;
    size_t used_max; /* high-water mark, for sizing */
};

void vx_arena_init(struct vx_arena *arena, void *block, size_t bytes);
VX_MUST_USE void *vx_arena_take(struct vx_arena *arena, size_t bytes);
/* count * size bytes; NULL when the product overflows or does not fit. */
VX_MUST_USE void *vx_arena_take_array(struct vx_arena *arena, size_t count, size_t size);
/* A copy with a NUL at the end. */
VX_MUST_USE char *vx_arena_copy_text(struct vx_arena *arena, const char *text,
                                     size_t length);
/* Frees everything in the arena. */
void vx_arena_reset(struct vx_arena *arena);

#endif
