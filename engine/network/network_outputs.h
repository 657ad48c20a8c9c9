/* network_outputs - the part "outputs" of network.json.
 *
 * An output is the result of any layer.  If that lies on another set than the request's,
 * its rows mean nothing without their coordinates, which are an output of their own:
 *
 *   "outputs": [{"layer": "head"},
 *               {"layer": "down2", "name": "coarse", "coords": "coarse_xyz"},
 *               {"layer": "down2_class"}]
 *
 * Outputs on one set share its coordinates, so one of them has to name it.  Without
 * "coords" it has the name of the first output on the set, with _coords behind it.
 *
 * Private to network.c.
 *
 * Owner    the network owns the result.
 * Thread   any; pure.
 * Limits   VX_NETWORK_OUTPUTS_MAX outputs.
 * Fails    INVALID_ARGUMENT with a why that names the line, what was expected and what
 *          was found.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_OUTPUTS_H
#define VX_ENGINE_MODEL_NETWORK_OUTPUTS_H

#include "engine/base/text/json.h"
#include "engine/network/network.h"

/* Fills outputs and coords; inputs, layers and sets must be filled already. */
VX_MUST_USE vx_status vx_network_parse_outputs(struct vx_network *network,
                                               const struct vx_json *root,
                                               struct vx_why *why);

#endif
