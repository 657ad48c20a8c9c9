/* gpu/texts - the texts of kernels/, embedded in the binary by embed.cmake.
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

/* `name` is what an #include says: "kernels/device.h", and "stdint.h" for the stand-ins of
 * kernels/rtc/, which a compiler without a C library is given. */
struct vx_text {
    const char *name;
    const char *data; /* ends with a NUL behind its bytes */
    size_t bytes;
};

extern const struct vx_text vx_texts[]; /* sorted by name */
extern const i32 vx_texts_count;

#endif
