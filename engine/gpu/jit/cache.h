/* gpu/cache - compiled kernel binaries on disk, named by a hash of their inputs.
 *
 * The directory is ours and has one file per binary: header, log, image.  A file is
 * written under a temporary name, synced and renamed, so that a reader sees a whole file
 * or none.  A damaged file is removed, and its binary is built again.  The binaries are
 * executed, so a directory that others may write is refused.
 *
 *   VX_TRY(vx_cache_open(directory, bytes, &why, &cache));
 *   if (!vx_cache_get(cache, name, &binary)) {
 *       (compile)
 *       vx_cache_put(cache, name, &binary);
 *   }
 *   vx_cache_trim(cache);
 *   vx_cache_close(&cache);
 *
 * Owner    the caller owns the cache and every binary that get returns.
 * Thread   get, put: any number of threads at once; open, trim, close: one thread.
 * Limits   `bytes` for all files: trim removes the entries that were used least recently.
 * Fails    open: FAILED_PRECONDITION a directory that others may write;
 *          RESOURCE_EXHAUSTED.  A directory that cannot be used is logged once, and get
 *          finds nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_CACHE_H
#define VX_ENGINE_GPU_CACHE_H

#include "engine/gpu/jit/jit_compile.h"

struct vx_cache;

/* 64 hex digits, a dash, the compiler's name, ".kernel", NUL. */
#define VX_CACHE_NAME_BYTES (64 + 1 + VX_COMPILER_WORD_BYTES + 8)

/* `directory` NULL = no cache: get finds nothing, put keeps nothing. */
VX_MUST_USE vx_status vx_cache_open(const char *directory, i64 bytes, struct vx_why *why,
                                    struct vx_cache **cache);
void vx_cache_close(struct vx_cache **cache);
bool vx_cache_get(struct vx_cache *cache, const char *name, struct vx_binary *binary);
void vx_cache_put(struct vx_cache *cache, const char *name,
                  const struct vx_binary *binary);
void vx_cache_trim(struct vx_cache *cache);

/* Lists the compilers whose binaries are in the cache, newest version first;
 * returns how many. */
i32 vx_cache_words(struct vx_cache *cache,
                   char words[VX_JIT_COMPILERS_MAX][VX_COMPILER_WORD_BYTES]);
/* Makes a binary's file name from its key (vx_jit_key_make) and its compiler's name. */
void vx_cache_name_make(const u8 key[VX_SHA256_BYTES], const char *word,
                        char name[VX_CACHE_NAME_BYTES]);

#endif
