/* blocks - rule "floor" where a library cuts off a block that its shape ends within.
 *
 * Of a convolution whose kernel is its stride, spconv and FlexGEMM make floor(D / stride)
 * voxels along an axis of D, rule "floor" one for each block that has a voxel.  The two
 * agree only where the stride divides D: elsewhere every answer near the upper end is
 * another one, and nothing else shows it.
 *
 *   VX_TRY(vx_blocks_check(network, shapes, why));
 *
 * Owner    nothing; pure.
 * Thread   any.
 * Fails    INVALID_ARGUMENT; the why names the layer, the column and what to write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_NETWORK_BLOCKS_H
#define VX_ENGINE_NETWORK_BLOCKS_H

#include "engine/network/network.h"

/* Whether the library that wrote the layer's weight cuts off such a block.  False while
 * the layout is not known. */
bool vx_blocks_are_cut(const struct vx_layer *layer);
/* `shapes`: of each set of the network; zeros = not bounded, which nothing cuts. */
VX_MUST_USE vx_status vx_blocks_check(const struct vx_network *network, i32 (*shapes)[3],
                                      struct vx_why *why);

#endif
