/* jit - kernel texts to device binaries: compiled once, kept on disk by content.
 *
 * The texts of kernels/ are embedded in the binary.  A binary is named by the SHA-256 of
 * everything that decides it: the texts in include order, the sorted macros, the compiler
 * and its version, the architecture, the ABI number.  What is not in the cache is
 * compiled by NVRTC (found with dlopen) on compile threads of its own; with a filled cache
 * no compiler is needed.
 *
 *   VX_TRY(vx_jit_open(&options, &why, &jit));
 *   VX_TRY(vx_jit_build(jit, wanted, count, progress, &why));   (in parallel)
 *   VX_TRY(vx_jit_get(jit, &wanted[0], &why, &image));          (from memory or disk)
 *   vx_jit_close(&jit);
 *
 * A cache entry is a file of mode 0600 in a directory of mode 0700 that is ours, written
 * beside its name, synced and renamed; it carries length, checksum and the compiler's
 * log.  A damaged entry is logged, removed and built again, never fatal; a cache that
 * cannot be written is logged once and the binary used from memory.  The oldest entries
 * go when the cache is over its bound.
 *
 * Owner    the caller owns jit; images live until close.
 * Thread   one at a time: the loading thread.  build makes threads and joins them.
 * Limits   engine/gpu/limits.h: entries, threads, bytes.
 * Fails    NOT_FOUND no compiler and not in the cache; INTERNAL the compiler refuses a
 *          text (the why quotes its log); FAILED_PRECONDITION a cache directory that
 *          others may write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_JIT_H
#define VX_ENGINE_GPU_JIT_H

#include "engine/engine.h"
#include "kernels/kernel.h"

struct vx_jit;

struct vx_jit_options {
    const char *arch;      /* "sm_80" "sm_86" "sm_89" "sm_90a" "sm_100" "fake" */
    const char *directory; /* of the cache; NULL = none, compile each time */
    i64 cache_bytes;       /* bound of the directory; 0 = VX_JIT_CACHE_BYTES_DEFAULT */
    const char *compiler;  /* path of libnvrtc; NULL = the search list */
    const char *texts; /* a folder to read kernels from; NULL = embedded (developers) */
    i32 threads;       /* compilers at once; 0 = as many as cores */
};

/* One binary: a text with a type and a tile.  Kernels of one text share it. */
struct vx_jit_wanted {
    const struct vx_kernel_spec *spec;
    const struct vx_tile *tile; /* NULL = the spec has no macros */
    enum vx_number type;        /* 0 when spec->types is 0 */
};
struct vx_jit_image {
    const void *data;
    size_t bytes;
    const char *log; /* the compiler's resource report; "" when there is none */
    bool from_cache;
};

VX_MUST_USE vx_status vx_jit_open(const struct vx_jit_options *options,
                                  struct vx_why *why, struct vx_jit **jit);
void vx_jit_close(struct vx_jit **jit);
/* Makes sure all are there, compiling in parallel what is missing; duplicates are done
 * once.  progress counts binaries. */
VX_MUST_USE vx_status vx_jit_build(struct vx_jit *jit, const struct vx_jit_wanted *wanted,
                                   i32 count, const struct vx_progress *progress,
                                   struct vx_why *why);
VX_MUST_USE vx_status vx_jit_get(struct vx_jit *jit, const struct vx_jit_wanted *wanted,
                                 struct vx_why *why, struct vx_jit_image *image);
/* SHA-256 of a kernel's texts, 64 hex digits: the key under which tuning results hold. */
void vx_jit_source_hash(const struct vx_jit *jit, const struct vx_kernel_spec *spec,
                        char hash[65]);
/* What was done since open.  Any thread. */
struct vx_jit_counts {
    i64 compiled, cached; /* binaries: made, and found on disk */
    i64 build_ns;         /* by the clock, of builds that had any to make or find */
};
void vx_jit_counts_get(const struct vx_jit *jit, struct vx_jit_counts *counts);
/* What an architecture's devices have, for choices made without one; NULL = unknown. */
const struct vx_caps *vx_arch_caps(const char *arch);

#endif
