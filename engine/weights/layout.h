/* layout - the order in which a library writes a convolution's weight to a file.
 *
 * Libraries agree that offset k of a kernel reads one row for each output row, also in
 * inverse and transposed convolutions (engine/map_key.h), but not on the weight: the
 * order of the axes, the fastest axis of the kernel, the shape for a kernel of one offset
 * or for groups.  A wrong layout often fits the shape, and then the answers are wrong.
 * So network.json names the layout, or the shape allows only one layout and is not that of
 * a dense layer of PyTorch; every other weight is refused.  So is a layout whose library has no such layer, or computes it
 * otherwise than this one would.  engine/README.md has the table.
 *
 *   VX_TRY(vx_layout_settle(layer, tensor, why));
 *   struct vx_strides strides = vx_layout_strides(layer);
 *   in[vx_layout_offset(layer, v) * strides.v + ci * strides.ci + co * strides.co +
 *      co / (channels / groups) * strides.group]          (ci within the group)
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
 * channel of a group, output channel.  `group` is added to it from group to group. */
struct vx_strides {
    size_t v, ci, co, group;
};

/* Whether a bias or norm tensor has the right shape: (channels), or also (1, channels)
 * for a convolution with layout minkowski and for an instance norm. */
bool vx_layout_fits_vector(const struct vx_layer *layer, const struct vx_tensor *tensor);

/* Decides the layout of a convolution.  A layout given in network.json is checked against
 * the layer and the shape of the weight.  Otherwise the shape decides; a shape that
 * allows several different layouts, PyTorch's dense one among them, or none that a library
 * writes, is refused. */
VX_MUST_USE vx_status vx_layout_settle(struct vx_layer *layer,
                                       const struct vx_tensor *weight,
                                       struct vx_why *why);

/* Of a convolution after vx_layout_settle. */
struct vx_strides vx_layout_strides(const struct vx_layer *layer);
/* The index, among the file's offsets, of our offset v = (kx * Ky + ky) * Kz + kz. */
i32 vx_layout_offset(const struct vx_layer *layer, i32 v);

#endif
