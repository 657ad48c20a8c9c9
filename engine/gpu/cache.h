/* gpu/cache - compiled binaries on disk, named by what they were made of.
 *
 * A directory of ours with one file per binary: header, log, image.  A file is written
 * beside its name, synced and renamed, so that a reader sees all of it or nothing; what is
 * damaged all the same is removed, and the binary built again.  A binary is code that will
 * run, so a directory that others may write is refused.
 *
 *   VX_TRY(vx_cache_open(directory, bytes, &why, &cache));
 *   if (!vx_cache_get(cache, name, &binary)) { compile; vx_cache_put(cache, name, &binary); }
 *   vx_cache_trim(cache);
 *   vx_cache_close(&cache);
 *
 * Owner    the caller owns cache and every binary that get gave it.
 * Thread   get, put: any number at once; open, trim, close: one.
 * Limits   bytes of the directory, kept by trim: the longest unused entries go.
 * Fails    FAILED_PRECONDITION a directory that others may write; else never: a directory
 *          that cannot be used is logged once, and get finds nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_CACHE_H
#define VX_ENGINE_GPU_CACHE_H

#include "engine/gpu/jit_compile.h"

struct vx_cache;

/* 64 hex digits, a dash, the compiler's word, ".kernel", NUL. */
#define VX_CACHE_NAME_BYTES (64 + 1 + VX_COMPILER_WORD_BYTES + 8)

/* `directory` NULL = no cache: get finds nothing, put keeps nothing. */
VX_MUST_USE vx_status vx_cache_open(const char *directory, i64 bytes, struct vx_why *why,
                                    struct vx_cache **cache);
void vx_cache_close(struct vx_cache **cache);
bool vx_cache_get(struct vx_cache *cache, const char *name, struct vx_binary *binary);
void vx_cache_put(struct vx_cache *cache, const char *name,
                  const struct vx_binary *binary);
void vx_cache_trim(struct vx_cache *cache);

/* The compilers whose binaries lie here, newest version first; how many. */
i32 vx_cache_words(struct vx_cache *cache,
                   char words[VX_JIT_COMPILERS_MAX][VX_COMPILER_WORD_BYTES]);
/* Of a binary whose content (vx_jit_key_make) is `key` and that `word` made. */
void vx_cache_name_make(const u8 key[VX_SHA256_BYTES], const char *word,
                        char name[VX_CACHE_NAME_BYTES]);

#endif
