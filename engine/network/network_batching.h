/* network_batching - the parts "limits" and "batching" of network.json.
 *
 * They say how requests of a model are put into batches and how they wait.  Keys that
 * Triton's ModelDynamicBatching has, too, have its names and meanings:
 *
 *   "batching": {"voxels_max": 500000, "delay_us": 200, "requests_max": 32,
 *                "priority_levels": 2, "default_priority_level": 2,
 *                "default_queue_policy": {"max_queue_size": 100},
 *                "priority_queue_policy": {"1": {"timeout_action": "DELAY",
 *                                                "default_timeout_microseconds": 50000}}}
 *
 * Without default_queue_policy a request's own `timeout` counts.  In a policy that is
 * written, allow_timeout_override defaults to false, as in Triton.  A level without a
 * policy of its own has the default policy.
 *
 * Private to network.c.
 *
 * Owner    the network owns the result.
 * Thread   any; pure.
 * Limits   engine/base/limits.h.
 * Fails    INVALID_ARGUMENT with a why that names the line, the key, what was expected
 *          and what was found.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_BATCHING_H
#define VX_ENGINE_MODEL_NETWORK_BATCHING_H

#include "engine/base/text/json.h"
#include "engine/network/network.h"

/* Fills voxels_max, voxels_max_said, samples_max and batching. */
VX_MUST_USE vx_status vx_network_parse_limits(struct vx_network *network,
                                              const struct vx_json *root,
                                              struct vx_why *why);

#endif
