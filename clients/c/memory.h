/* memory - the clients' only calls of malloc and free, and pools for small things.
 *
 * A pool holds everything that one answer points to, so that one call frees it and no
 * field needs an owner of its own.  The library runs inside other people's programs: a
 * full memory is a NULL that becomes RESOURCE_EXHAUSTED, never an abort.
 *
 *   struct voxel_pool *pool = voxel_pool_open();
 *   struct thing *thing = voxel_pool_take(pool, sizeof *thing);
 *   voxel_pool_close(pool);
 *
 * Owner    the caller owns memory and pools; a pool with a root belongs to the answer or
 *          info that the root is.
 * Thread   any; a pool is used by one thread at a time.
 * Limits   those of the process.
 * Fails    NULL when memory is full; closing and releasing cannot fail.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_MEMORY_H
#define VOXEL_CLIENTS_C_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for `count` things of `size` bytes.  NULL also if that overflows. */
void *voxel_memory_take(size_t count, size_t size);
/* Memory for tensors: 64-byte aligned, not zeroed. */
void *voxel_memory_take_bytes(size_t bytes);
/* Grows memory to `size` bytes and keeps its content; NULL when memory is full, and the
 * old memory stays valid. */
void *voxel_memory_grow(void *memory, size_t size);
void voxel_memory_give(void *memory);

struct voxel_pool;

struct voxel_pool *voxel_pool_open(void);
/* Memory that is zeroed, aligned to 16 bytes, and valid until the pool closes. */
void *voxel_pool_take(struct voxel_pool *pool, size_t bytes);
/* A copy of `bytes` bytes, with a NUL behind it. */
const char *voxel_pool_take_text(struct voxel_pool *pool, const void *text, size_t bytes);
/* As voxel_memory_take_bytes, valid until the pool closes. */
void *voxel_pool_take_bytes(struct voxel_pool *pool, size_t bytes);
void voxel_pool_close(struct voxel_pool *pool);

/* A root is handed out without its pool: it stores a pointer to the pool in front of
 * itself, so that voxel_answer_free and voxel_info_free find the pool. */
void *voxel_pool_take_root(struct voxel_pool *pool, size_t bytes);
struct voxel_pool *voxel_pool_of_root(void *root);

#endif
