/* jit - compiles kernel sources to device binaries, and caches them on disk by hash.
 *
 * The sources in kernels/ are embedded in the program.  A device binary is named by the
 * SHA-256 of all that it depends on: the sources in include order, the sorted macros, the
 * compiler and its version, the architecture, the ABI number.  A binary that is not in
 * the cache is compiled on separate compile threads: by NVRTC (opened with dlopen), or for
 * AMD by clang or hipRTC in a process; with a filled cache no compiler is needed.
 *
 *   VX_TRY(vx_jit_open(&options, &why, &jit));
 *   VX_TRY(vx_jit_build(jit, wanted, count, progress, &why));   (in parallel)
 *   VX_TRY(vx_jit_get(jit, &wanted[0], &why, &image));          (from memory or disk)
 *   vx_jit_close(&jit);
 *
 * A cache entry is a file of mode 0600 in our directory of mode 0700.  It is written
 * under a temporary name, synced and renamed, and has its length, a checksum and the
 * compiler's log.  A damaged entry is logged, removed and built again.  A cache that
 * cannot be written is logged once, and the binary is used from memory.  If the cache
 * exceeds its bound, the entries that were used least recently are removed.
 *
 * Owner    the caller owns jit; images live until close.
 * Thread   one at a time: the loading thread.  build makes threads and joins them.
 * Limits   engine/gpu/driver/limits.h: entries, threads, bytes.
 * Fails    UNAVAILABLE no compiler and not in the cache; INTERNAL the compiler refuses a
 *          source (`why` quotes its log); FAILED_PRECONDITION a cache directory that
 *          others may write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_JIT_H
#define VX_ENGINE_GPU_JIT_H

#include "engine/device.h"
#include "kernels/kernel.h"

struct vx_jit;

struct vx_jit_options {
    const char *arch;      /* "sm_80" "sm_90a" "gfx942" "gfx1100" ... "fake" */
    const char *directory; /* of the cache; NULL = none, compile each time */
    i64 cache_bytes;       /* bound of the directory; 0 = VX_JIT_CACHE_BYTES_DEFAULT */
    const char *compiler;  /* path of libnvrtc, or AMD's clang; NULL = search */
    const char *texts; /* a folder to read kernels from; NULL = embedded (developers) */
    i32 threads;       /* compilers at once; 0 = as many as cores */
};

/* One binary: a source with a type and a tile.  All kernels of the source share it. */
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
/* Reads or compiles all wanted binaries, in parallel; duplicates are built once.
 * `progress` counts binaries. */
VX_MUST_USE vx_status vx_jit_build(struct vx_jit *jit, const struct vx_jit_wanted *wanted,
                                   i32 count, const struct vx_progress *progress,
                                   struct vx_why *why);
VX_MUST_USE vx_status vx_jit_get(struct vx_jit *jit, const struct vx_jit_wanted *wanted,
                                 struct vx_why *why, struct vx_jit_image *image);
/* SHA-256 of a kernel's sources, 64 hex digits; tuning results belong to this hash. */
void vx_jit_source_hash(const struct vx_jit *jit, const struct vx_kernel_spec *spec,
                        char hash[65]);
/* Counts since open.  Any thread. */
struct vx_jit_counts {
    i64 compiled, cached; /* binaries that were compiled, and that were found on disk */
    i64 build_ns;         /* wall time of the builds that did either */
};
void vx_jit_counts_get(const struct vx_jit *jit, struct vx_jit_counts *counts);
/* The properties of one device of an architecture, for choices that are made without a
 * device; NULL = unknown architecture. */
const struct vx_caps *vx_arch_caps(const char *arch);
/* "sm_75, sm_80, ..., gfx1200", for a sentence; static. */
const char *vx_arch_names(void);

#endif
