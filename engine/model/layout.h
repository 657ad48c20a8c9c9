/* layout - how a convolution's weight lies in its file, by the library that wrote it.
 *
 * Libraries agree on what a submanifold convolution is (the row at p reads the rows at
 * p + offset) and on nothing about its tensor: the order of the axes, which axis of the
 * kernel runs fastest, what a kernel of one offset looks like.  Each mistake fits the shape
 * and answers wrong.  So a layout is said by name, or follows from the shape where only
 * one reading exists; everything else is refused.  engine/README.md has the table.
 *
 *   VX_TRY(vx_layout_settle(layer, tensor, why));
 *   struct vx_strides strides = vx_layout_strides(layer);
 *   in[vx_layout_offset(layer, v) * strides.v + ci * strides.ci + co * strides.co]
 *
 * Owner    nothing; pure.
 * Thread   any.
 * Limits   those of network.h.
 * Fails    INVALID_ARGUMENT, with what to say in network.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_LAYOUT_H
#define VX_ENGINE_MODEL_LAYOUT_H

#include "engine/model/network.h"
#include "engine/model/safetensors.h"

/* Numbers from one (offset, input channel, output channel) to the next in the file. */
struct vx_strides {
    size_t v, ci, co;
};

bool vx_layout_find(const char *word, enum vx_layout *layout);
/* "\"spconv\", \"torchsparse\", ...": all words, for a sentence. */
const char *vx_layout_words(void);

/* Whether a bias has the shape that the layer's layout writes; of other ops: a vector of
 * the layer's channels. */
bool vx_layout_fits_vector(const struct vx_layer *layer, const struct vx_tensor *tensor);

/* Gives a SUBM_CONV its layout by the shape of its weight, if it says none: one reading is
 * taken, several are refused.  A layout that is said is checked against the shape. */
VX_MUST_USE vx_status vx_layout_settle(struct vx_layer *layer,
                                       const struct vx_tensor *weight,
                                       struct vx_why *why);

/* Of a settled SUBM_CONV. */
struct vx_strides vx_layout_strides(const struct vx_layer *layer);
/* Where the file has the offset v = (kx * Ky + ky) * Kz + kz. */
i32 vx_layout_offset(const struct vx_layer *layer, i32 v);

#endif
