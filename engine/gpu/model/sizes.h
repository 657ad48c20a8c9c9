/* sizes - sums of bytes that stay at SIZE_MAX when they overflow.
 *
 *   at = vx_add_line(at, bytes);      and rounds up to what divides device memory
 *
 * Owner    -
 * Thread   any; pure.
 * Limits   none.
 * Fails    never; SIZE_MAX fits nowhere.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_SIZES_H
#define VX_ENGINE_GPU_SIZES_H

#include "engine/gpu/geometry/map.h"

static inline size_t vx_add_bytes(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static inline size_t vx_add_line(size_t a, size_t b)
{
    if (b > SIZE_MAX - VX_GPU_LINE_BYTES) return SIZE_MAX;
    return vx_add_bytes(a, vx_round_up(b, VX_GPU_LINE_BYTES));
}

#endif
