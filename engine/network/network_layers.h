/* network_layers - the part "layers" of network.json, and functions for its other parts.
 *
 * Private to network.c, which reads the rest of the file.
 *
 * Owner    the result lives in the network's arena.
 * Thread   any; pure.
 * Limits   engine/base/limits.h.
 * Fails    INVALID_ARGUMENT with a why that names the line, the layer, what was expected
 *          and what was found; RESOURCE_EXHAUSTED when the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_LAYERS_H
#define VX_ENGINE_MODEL_NETWORK_LAYERS_H

#include "engine/base/text/json.h"
#include "engine/network/network.h"

/* Fills network->layers; feats_name and feats_channels must be filled already. */
VX_MUST_USE vx_status vx_network_parse_layers(struct vx_network *network,
                                              const struct vx_json *list,
                                              struct vx_arena *arena, struct vx_why *why);
/* The index of a layer by name, or -1. */
i32 vx_network_find(const struct vx_network *network, const char *name);
/* "; the nearest is ...": the nearest to `name` among the first `below` layers and,
 * unless all layers are searched, the features.  Writes to `out` (VX_NEAREST_BYTES) and
 * returns it. */
const char *vx_network_nearest(const struct vx_network *network, i32 below,
                               const char *name, char *out);

/* A list of known words. */
struct vx_words {
    const char *const *list; /* NULLs are skipped */
    size_t count;
};
/* Checks that `object` is an object with known keys only. */
VX_MUST_USE vx_status vx_network_check_keys(const struct vx_json *object,
                                            const struct vx_words *known,
                                            struct vx_why *why);
/* Finds a member, which must exist and have that kind. */
VX_MUST_USE vx_status vx_network_need(const struct vx_json *object, const char *key,
                                      enum vx_json_kind kind, struct vx_why *why,
                                      const struct vx_json **member);

#endif
