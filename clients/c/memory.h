/* memory - the one place of the clients that asks libc for memory; and pools of small
 * things.
 *
 * A pool holds everything that one answer points to, so that it is freed in one call and
 * no field needs an owner of its own.  Clients are programs of others: a full memory is a
 * NULL that becomes RESOURCE_EXHAUSTED, never an abort.
 *
 *   struct voxel_pool *pool = voxel_pool_open();
 *   struct thing *thing = voxel_pool_take(pool, sizeof *thing);
 *   voxel_pool_close(pool);
 *
 * Owner    a pool: whoever opened it, until it becomes part of an answer.
 * Thread   one at a time.
 * Limits   memory.
 * Fails    NULL when memory is full; closing and releasing cannot fail.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_MEMORY_H
#define VOXEL_CLIENTS_C_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for count things; NULL when full or when the product overflows. */
void *voxel_memory_take(size_t count, size_t size);
/* Not zeroed, 64-byte aligned: tensor bytes. */
void *voxel_memory_take_bytes(size_t bytes);
/* Grows to `size` bytes and keeps what was there; NULL (and the old memory stays) when
 * full. */
void *voxel_memory_grow(void *memory, size_t size);
void voxel_memory_give(void *memory);

struct voxel_pool;

struct voxel_pool *voxel_pool_open(void);
/* Zeroed, aligned for any type, alive until the pool closes. */
void *voxel_pool_take(struct voxel_pool *pool, size_t bytes);
/* A NUL-terminated copy. */
const char *voxel_pool_take_text(struct voxel_pool *pool, const void *text, size_t bytes);
/* 64-byte aligned and not zeroed. */
void *voxel_pool_take_bytes(struct voxel_pool *pool, size_t bytes);
void voxel_pool_close(struct voxel_pool *pool);

/* Some things are handed out alone (voxel_info_free): they remember their pool in front.
 */
void *voxel_pool_take_root(struct voxel_pool *pool, size_t bytes);
struct voxel_pool *voxel_pool_of_root(void *root);

#endif
