/* map_key - which neighbours a convolution reads: the shape of its kernel and how far apart
 * its offsets are.
 *
 * Owner    a value.
 * Thread   any.
 * Limits   vx_map_offsets is at most VX_KERNEL_OFFSETS_MAX; the network's reader checks it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MAP_KEY_H
#define VX_ENGINE_MAP_KEY_H

#include "engine/base/types.h"

struct vx_map_key {
    i32 kernel[3];   /* odd, along x y z */
    i32 dilation[3]; /* >= 1 */
};

/* V, the kernel offsets. */
static inline i32 vx_map_offsets(const struct vx_map_key *key)
{
    return key->kernel[0] * key->kernel[1] * key->kernel[2];
}

#endif
