/* layout - the order in which a library writes a convolution's weight to a file.
 *
 * Libraries agree that the row at p of a submanifold convolution reads the rows at
 * p + offset, but not on its weight: the order of the axes, the fastest axis of the
 * kernel, the shape for a kernel of one offset.  A wrong layout often fits the shape, and
 * then the answers are wrong.  So network.json names the layout, or the shape allows only
 * one layout; every other weight is refused.  engine/README.md has the table.
 *
 *   VX_TRY(vx_layout_settle(layer, tensor, why));
 *   struct vx_strides strides = vx_layout_strides(layer);
 *   in[vx_layout_offset(layer, v) * strides.v + ci * strides.ci + co * strides.co]
 *
 * Owner    nothing; pure.
 * Thread   any.
 * Limits   those of network.h.
 * Fails    INVALID_ARGUMENT; the why says what to write into network.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_LAYOUT_H
#define VX_ENGINE_MODEL_LAYOUT_H

#include "engine/network/network.h"
#include "engine/weights/safetensors.h"

/* The distance in the file, in numbers, between neighbours along each axis: offset, input
 * channel, output channel. */
struct vx_strides {
    size_t v, ci, co;
};

/* False when no layout has this word. */
/* Whether a bias or norm tensor has the right shape: (channels), or also (1, channels)
 * for a convolution with layout minkowski. */
bool vx_layout_fits_vector(const struct vx_layer *layer, const struct vx_tensor *tensor);

/* Decides the layout of a SUBM_CONV.  A layout given in network.json is checked against
 * the shape of the weight.  Otherwise the shape decides; a shape that allows several
 * different layouts is refused. */
VX_MUST_USE vx_status vx_layout_settle(struct vx_layer *layer,
                                       const struct vx_tensor *weight,
                                       struct vx_why *why);

/* Of a SUBM_CONV after vx_layout_settle. */
struct vx_strides vx_layout_strides(const struct vx_layer *layer);
/* The index, among the file's offsets, of our offset v = (kx * Ky + ky) * Kz + kz. */
i32 vx_layout_offset(const struct vx_layer *layer, i32 v);

#endif
