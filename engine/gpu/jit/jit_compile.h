/* gpu/jit_compile - the run-time compiler: makes a binary and its report from sources.
 *
 * NVRTC is opened with dlopen and compiles for the real architecture, so that the driver
 * has nothing left to compile.  Sources and headers are passed in memory.  The compilers
 * for AMD, in jit_amd.h, run in processes of their own.
 *
 *   VX_TRY(vx_compiler_open(path, &why, &compiler));
 *   VX_TRY(vx_compiler_run(&compiler, &unit, &why, &binary));
 *   vx_binary_close(&binary);
 *
 * Owner    the caller's structs; the library stays loaded until the process ends.
 * Thread   run: any number of threads at once.
 * Limits   VX_JIT_IMAGE_BYTES_MAX, VX_JIT_LOG_BYTES_MAX.
 * Fails    UNAVAILABLE no compiler; INTERNAL it refuses a source (`why` quotes the log).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_JIT_COMPILE_H
#define VX_ENGINE_GPU_JIT_COMPILE_H

#include "engine/gpu/jit/jit_key.h"

/* The compiler's name, such as "nvrtc-13.0". */
#define VX_COMPILER_WORD_BYTES 32
#define VX_COMPILER_PATH_BYTES 512

/* Log and image in one block, as they lie in a cache entry. */
struct vx_binary {
    u8 *block;
    size_t log_bytes; /* a multiple of 16, zeros behind the text */
    size_t image_bytes;
};
static inline const char *vx_binary_log(const struct vx_binary *binary)
{
    return (const char *)binary->block;
}
static inline const void *vx_binary_image(const struct vx_binary *binary)
{
    return binary->block + binary->log_bytes;
}
/* Allocates a zeroed block: `log` characters and a NUL, then the image and a NUL. */
VX_MUST_USE vx_status vx_binary_open(size_t log, size_t image, struct vx_binary *binary);
void vx_binary_close(struct vx_binary *binary);

struct vx_compiler {
    char word[VX_COMPILER_WORD_BYTES]; /* empty = no compiler */
    vx_status (*compile)(const struct vx_compiler *compiler,
                         const struct vx_jit_unit *unit, struct vx_why *why,
                         struct vx_binary *binary);
    /* For AMD: clang, or hipRTC's library. */
    char path[VX_COMPILER_PATH_BYTES];
    bool hiprtc;
    /* NVRTC: */
    void *library;
    int (*version)(int *, int *);
    int (*open)(void **, const char *, const char *, int, const char *const *,
                const char *const *);
    int (*run)(void *, int, const char *const *);
    int (*log_bytes)(void *, size_t *);
    int (*log)(void *, char *);
    int (*image_bytes)(void *, size_t *);
    int (*image)(void *, char *);
    int (*close)(void **);
};

VX_MUST_USE vx_status vx_compiler_open(const char *path, struct vx_why *why,
                                       struct vx_compiler *compiler);
/* The compiler of the fake driver: its image is a text that names what was wanted. */
void vx_compiler_fake(struct vx_compiler *compiler);
VX_MUST_USE vx_status vx_compiler_run(const struct vx_compiler *compiler,
                                      const struct vx_jit_unit *unit, struct vx_why *why,
                                      struct vx_binary *binary);
/* Fails with the first error line of a compiler's log, and logs the whole of it. */
VX_MUST_USE vx_status vx_compiler_refuse(const struct vx_jit_unit *unit, const char *log,
                                         struct vx_why *why);

#endif
