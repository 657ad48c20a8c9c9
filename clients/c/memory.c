/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Enough for the names and shapes of one answer; a larger answer takes more blocks. */
#define POOL_BLOCK_BYTES 4096
#define POOL_ALIGN       16

struct pool_block {
    struct pool_block *next;
    size_t bytes;
    size_t used;
    size_t pad;
};

struct voxel_pool {
    struct pool_block *blocks; /* the newest first; small things come from it */
};

void *voxel_memory_take(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

void *voxel_memory_take_bytes(size_t bytes)
{
    if (bytes > SIZE_MAX - 64) return NULL;
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

void *voxel_memory_grow(void *memory, size_t size)
{
    return realloc(memory, size ? size : 1);
}

void voxel_memory_give(void *memory)
{
    free(memory);
}

struct voxel_pool *voxel_pool_open(void)
{
    return voxel_memory_take(1, sizeof(struct voxel_pool));
}

static struct pool_block *pool_add_block(struct voxel_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(struct pool_block) - 64) return NULL;
    struct pool_block *block = voxel_memory_take_bytes(sizeof *block + bytes);
    if (!block) return NULL;
    *block = (struct pool_block){.bytes = bytes};
    /* A large block holds one thing; the block for small things stays first. */
    if (pool->blocks && bytes > POOL_BLOCK_BYTES) {
        block->next = pool->blocks->next;
        pool->blocks->next = block;
    } else {
        block->next = pool->blocks;
        pool->blocks = block;
    }
    return block;
}

void *voxel_pool_take(struct voxel_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX - POOL_ALIGN) return NULL;
    bytes = (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    struct pool_block *block = pool->blocks;
    if (!block || bytes > block->bytes - block->used) {
        block = pool_add_block(pool, bytes > POOL_BLOCK_BYTES ? bytes : POOL_BLOCK_BYTES);
        if (!block) return NULL;
    }
    uint8_t *at = (uint8_t *)(block + 1) + block->used;
    block->used += bytes;
    memset(at, 0, bytes);
    return at;
}

const char *voxel_pool_take_text(struct voxel_pool *pool, const void *text, size_t bytes)
{
    if (bytes == SIZE_MAX) return NULL;
    char *copy = voxel_pool_take(pool, bytes + 1);
    if (copy && bytes) memcpy(copy, text, bytes);
    return copy;
}

void *voxel_pool_take_bytes(struct voxel_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX - 64) return NULL;
    size_t room = bytes + 64;
    if (room <= POOL_BLOCK_BYTES) room = POOL_BLOCK_BYTES + 1; /* a block of its own */
    if (!pool->blocks && !pool_add_block(pool, POOL_BLOCK_BYTES)) return NULL;
    struct pool_block *block = pool_add_block(pool, room);
    if (!block) return NULL;
    uintptr_t at = (uintptr_t)(block + 1);
    return (uint8_t *)(block + 1) + ((64 - at % 64) % 64);
}

void voxel_pool_close(struct voxel_pool *pool)
{
    if (!pool) return;
    for (struct pool_block *block = pool->blocks, *next; block; block = next) {
        next = block->next;
        voxel_memory_give(block);
    }
    voxel_memory_give(pool);
}

void *voxel_pool_take_root(struct voxel_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX - POOL_ALIGN) return NULL;
    uint8_t *at = voxel_pool_take(pool, bytes + POOL_ALIGN);
    if (!at) return NULL;
    memcpy(at, &pool, sizeof pool);
    return at + POOL_ALIGN;
}

struct voxel_pool *voxel_pool_of_root(void *root)
{
    struct voxel_pool *pool;
    memcpy(&pool, (uint8_t *)root - POOL_ALIGN, sizeof pool);
    return pool;
}
