/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/arena.h"

#include "engine/base/process/check.h"

#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define RED_ZONE_BYTES             16
#define POISON(pointer_, bytes_)   ASAN_POISON_MEMORY_REGION((pointer_), (bytes_))
#define UNPOISON(pointer_, bytes_) ASAN_UNPOISON_MEMORY_REGION((pointer_), (bytes_))
#else
#define RED_ZONE_BYTES             0
#define POISON(pointer_, bytes_)   ((void)0)
#define UNPOISON(pointer_, bytes_) ((void)0)
#endif

#define PIECE_ALIGN 16 /* the same as malloc's: enough for any C type */

void vx_arena_init(struct vx_arena *arena, void *block, size_t bytes)
{
    VX_ASSERT(block || !bytes);
    VX_ASSERT(((uintptr_t)block & (PIECE_ALIGN - 1)) == 0);
    *arena = (struct vx_arena){.block = block, .bytes = bytes};
    POISON(block, bytes);
}

void *vx_arena_take(struct vx_arena *arena, size_t bytes)
{
    size_t left = arena->bytes - arena->used;
    if (bytes > left || vx_round_up(bytes, PIECE_ALIGN) + RED_ZONE_BYTES > left)
        return NULL;
    u8 *piece = arena->block + arena->used;
    arena->used += vx_round_up(bytes, PIECE_ALIGN) + RED_ZONE_BYTES;
    if (arena->used > arena->used_max) arena->used_max = arena->used;
    UNPOISON(piece, bytes);
    memset(piece, 0, bytes);
    return piece;
}

void *vx_arena_take_array(struct vx_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (vx_mul_overflows(count, size, &bytes)) return NULL;
    return vx_arena_take(arena, bytes);
}

char *vx_arena_copy_text(struct vx_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? vx_arena_take(arena, length + 1) : NULL;
    if (copy) memcpy(copy, text, length);
    return copy;
}

void vx_arena_reset(struct vx_arena *arena)
{
    POISON(arena->block, arena->bytes);
    arena->used = 0;
}
