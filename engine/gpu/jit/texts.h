/* gpu/texts - the sources in kernels/, embedded in the program by embed.cmake.
 *
 * Owner    static data.
 * Thread   any.
 * Limits   VX_JIT_TEXTS_MAX, VX_JIT_TEXT_BYTES_MAX.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_TEXTS_H
#define VX_ENGINE_GPU_TEXTS_H

#include "engine/base/types.h"

/* `name` is the name in an #include: "kernels/device.h", or "stdint.h" for a replacement
 * in kernels/rtc/, since the run-time compiler has no C library. */
struct vx_text {
    const char *name;
    const char *data; /* a NUL follows its bytes */
    size_t bytes;
};

extern const struct vx_text vx_texts[]; /* sorted by path */
extern const i32 vx_texts_count;

#endif
