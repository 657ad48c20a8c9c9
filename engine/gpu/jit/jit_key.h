/* gpu/jit_key - finds the sources of a binary, and makes the binary's key from them.
 *
 *   VX_TRY(vx_jit_texts_open(folder, &why, &texts));
 *   VX_TRY(vx_jit_closure_build(&texts, "06_conv_masked.cu", &why, &closure));
 *   vx_jit_key_make(&unit, key);
 *
 * Owner    texts: the caller; a closure points into its texts.
 * Thread   open, close: one; the others only read.
 * Limits   VX_JIT_TEXTS_MAX, VX_JIT_TEXT_BYTES_MAX.
 * Fails    NOT_FOUND no such source or folder; RESOURCE_EXHAUSTED too many or too large.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_JIT_KEY_H
#define VX_ENGINE_GPU_JIT_KEY_H

#include "engine/base/text/sha256.h"
#include "engine/gpu/driver/limits.h"
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/jit/texts.h"

/* Incremented when the compiler's options or the format of a cache entry change, so that
 * older binaries are not found. */
#define VX_JIT_ABI 1

struct vx_jit_texts {
    struct vx_text rows[VX_JIT_TEXTS_MAX];
    i32 count;
    i32 owned; /* so many first rows were read from a folder; the others are embedded */
};

/* A source and all that it includes, each once, in the order of their first inclusion. */
struct vx_jit_closure {
    const struct vx_text *texts[VX_JIT_TEXTS_MAX];
    i32 count;
};

/* All that a binary depends on, except the compiler. */
struct vx_jit_unit {
    const char *arch;
    const struct vx_jit_closure *closure;
    struct vx_jit_wanted wanted;
};

/* `folder` as in vx_jit_options.texts; its files hide embedded ones of the same name. */
VX_MUST_USE vx_status vx_jit_texts_open(const char *folder, struct vx_why *why,
                                        struct vx_jit_texts *texts);
void vx_jit_texts_close(struct vx_jit_texts *texts);
VX_MUST_USE vx_status vx_jit_closure_build(const struct vx_jit_texts *texts,
                                           const char *source, struct vx_why *why,
                                           struct vx_jit_closure *closure);
void vx_jit_closure_hash(const struct vx_jit_closure *closure,
                         u8 digest[VX_SHA256_BYTES]);
/* `digest` is the hash of unit->closure. */
void vx_jit_key_make(const struct vx_jit_unit *unit, const u8 digest[VX_SHA256_BYTES],
                     u8 key[VX_SHA256_BYTES]);

#endif
