/* network_layers - the "layers" part of network.json, and what its other parts share.
 *
 * Private to network.c, which reads the rest of the file.
 *
 * Owner    what is made lives in the arena of the network.
 * Thread   any; pure.
 * Limits   engine/base/limits.h.
 * Fails    INVALID_ARGUMENT, its why naming line, layer, what was expected, what came;
 *          RESOURCE_EXHAUSTED when the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_LAYERS_H
#define VX_ENGINE_MODEL_NETWORK_LAYERS_H

#include "engine/base/json.h"
#include "engine/model/network.h"

/* Fills network->layers; feats_name and feats_channels must be known. */
VX_MUST_USE vx_status vx_network_parse_layers(struct vx_network *network,
                                              const struct vx_json *list,
                                              struct vx_arena *arena, struct vx_why *why);
/* A layer by name, or -1. */
i32 vx_network_find(const struct vx_network *network, const char *name);
/* "; the nearest is ..." among the layers above `below`, for a name that is none of them.
 */
const char *vx_network_nearest(const struct vx_network *network, i32 below,
                               const char *name, char *out);

/* A list of known words. */
struct vx_words {
    const char *const *list; /* NULLs are holes */
    size_t count;
};
/* `object` is an object with none but the known keys. */
VX_MUST_USE vx_status vx_network_check_keys(const struct vx_json *object,
                                            const struct vx_words *known,
                                            struct vx_why *why);
/* The member, of that kind, must be there. */
VX_MUST_USE vx_status vx_network_need(const struct vx_json *object, const char *key,
                                      enum vx_json_kind kind, struct vx_why *why,
                                      const struct vx_json **member);

#endif
