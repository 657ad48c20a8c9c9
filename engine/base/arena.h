/* arena - a bump allocator over one block; everything in it dies together.
 *
 *   struct vx_arena arena;
 *   vx_arena_init(&arena, block, bytes);
 *   struct layer *layers = vx_arena_take(&arena, n * sizeof *layers);
 *   if (!layers) VX_FAIL(RESOURCE_EXHAUSTED, "...");
 *   vx_arena_reset(&arena);
 *
 * Owner    the block belongs to the caller; nothing taken has a free function.
 * Thread   one at a time.
 * Limits   a full arena gives NULL, never grows.  Pieces are 16-byte aligned and zeroed.
 * Fails    NULL when full.  Under ASan free space is poisoned and pieces carry a red
 * zone.
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
/* count * size with the overflow checked: NULL when it does not fit. */
VX_MUST_USE void *vx_arena_take_array(struct vx_arena *arena, size_t count, size_t size);
VX_MUST_USE char *vx_arena_copy_text(struct vx_arena *arena, const char *text,
                                     size_t length);
void vx_arena_reset(struct vx_arena *arena);

#endif
