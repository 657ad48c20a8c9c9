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
 *   LIVE     p * stride + k, for every k < stride whose logit is above 0
 *   KEEP     p, if its logit is above 0; with top > 0: if it is among the `top` voxels of
 *            its sample with the largest logits, whatever their sign.  Of equal logits
 *            those of the voxels first by (x, y, z) count as larger.
 *   SAMPLES  0, 0, 0                                              a global pool
 *
 * each of them once, in the sample of p.  A voxel beyond the range of coordinates
 * (VX_AXIS_MIN, VX_AXIS_MAX) does not exist.
 *
 * The logits of LIVE and KEEP are the result of layer `by`, which lies on the set `from`:
 * one for each voxel, or for each child of it; child k is number
 * k_x + stride_x * (k_y + stride_y * k_z).  The voxels of such a set, and of every set that
 * is made from it, are known only when that layer has been computed.
 *
 * Owner    a value; all fields count when two keys are compared with memcmp.
 * Thread   any.
 * Limits   at most VX_KERNEL_OFFSETS_MAX offsets; the network's reader checks it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_SET_KEY_H
#define VX_ENGINE_SET_KEY_H

#include "engine/base/limits.h"
#include "engine/base/types.h"

enum vx_set_rule {
    VX_SET_REQUEST, /* set 0; every other field is 0 */
    VX_SET_FLOOR,   /* kernel and dilation 1, padding and shape 0 */
    VX_SET_SPCONV,
    VX_SET_EXPAND,  /* shape 0 */
    VX_SET_LIVE,    /* kernel as wide as the stride; dilation 1, padding and shape 0 */
    VX_SET_KEEP,    /* kernel, dilation and stride 1, padding and shape 0 */
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
    i32 by;   /* LIVE, KEEP: the layer of the logits; else 0 */
    i32 top;  /* KEEP: see above; 0 = none.  Else 0, but in a warm-up (exec_geometry.c) */
};

/* True if the voxels depend on features. */
static inline bool vx_set_is_predicted(const struct vx_set_key *key)
{
    return key->rule == VX_SET_LIVE || key->rule == VX_SET_KEEP;
}
/* SPCONV: where the coordinates along an axis end.  A warm-up's shape may be larger than the
 * range of coordinates; a model's or a request's is refused. */
static inline i32 vx_set_key_end(const struct vx_set_key *key, int axis)
{
    return key->shape[axis] <= VX_AXIS_MAX ? key->shape[axis] : VX_AXIS_MAX + 1;
}

#endif
