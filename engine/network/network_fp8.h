/* network_fp8 - FP8 in network.json: the layers that multiply e4m3, and "fp8".
 *
 * A convolution with "fp8_scale" rounds its input and its weights to e4m3 before it
 * multiplies (engine/README.md).  A network with such layers has "fp8" at its top level:
 * data to measure the error on, and the bound of that error.
 *
 * Private to network.c and network_layers.c.
 *
 * Owner    the network.
 * Thread   any; pure.
 * Limits   kernels/e4m3.h.
 * Fails    INVALID_ARGUMENT with a why that names the line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_FP8_H
#define VX_ENGINE_MODEL_NETWORK_FP8_H

#include "engine/network/network_layers.h"

/* Reads "fp8_scale"; the groups of the layer must be known. */
VX_MUST_USE vx_status vx_layer_parse_fp8(const struct vx_layer_reader *reader,
                                         const struct vx_json *object,
                                         struct vx_layer *layer);
/* Reads "fp8", which is there if a layer has a scale; layers and precision must be known. */
VX_MUST_USE vx_status vx_network_parse_fp8(struct vx_network *network,
                                           const struct vx_json *root,
                                           struct vx_why *why);

#endif
