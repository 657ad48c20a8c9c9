/* set_key - how the voxels of a set follow from those of the set that it is made from.
 *
 * A set is a list of active voxels of one request.  Set 0 is what the client sent.  With p
 * a voxel of the set `from`, and k an offset of the kernel, 0 to kernel - 1 along each
 * axis, the voxels of the new set are
 *
 *   FLOOR    floor(p / stride)                                    MinkowskiEngine
 *   SPCONV   (p + padding - k * dilation) / stride, for every k for which every axis
 *            divides and the result lies in 0 .. shape - 1        spconv
 *   EXPAND   p * stride - padding + k * dilation, for every k     a generative layer
 *   SAMPLES  0, 0, 0                                              a global pool
 *
 * each of them once, in the sample of p.  A voxel beyond the range of coordinates
 * (VX_AXIS_MIN, VX_AXIS_MAX) does not exist.
 *
 * Owner    a value; all fields count when two keys are compared with memcmp.
 * Thread   any.
 * Limits   at most VX_KERNEL_OFFSETS_MAX offsets; the network's reader checks it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_SET_KEY_H
#define VX_ENGINE_SET_KEY_H

#include "engine/base/types.h"

enum vx_set_rule {
    VX_SET_REQUEST, /* set 0; every other field is 0 */
    VX_SET_FLOOR,   /* kernel and dilation 1, padding and shape 0 */
    VX_SET_SPCONV,
    VX_SET_EXPAND,  /* shape 0 */
    VX_SET_SAMPLES, /* kernel, dilation and stride 1, padding and shape 0 */
};

struct vx_set_key {
    i32 kernel[3];
    i32 dilation[3];
    i32 stride[3];
    i32 padding[3];
    i32 shape[3]; /* voxels along x y z of the new set */
    enum vx_set_rule rule;
    i32 from; /* a set before this one */
};

#endif
