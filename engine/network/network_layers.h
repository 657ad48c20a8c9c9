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

/* Keys of a layer; ops.def says which op has which. */
enum vx_layer_key {
    KEY_NAME = 1 << 0,
    KEY_OP = 1 << 1,
    KEY_INPUT = 1 << 2,
    KEY_INPUTS = 1 << 3,
    KEY_CHANNELS = 1 << 4,
    KEY_KERNEL = 1 << 5,
    KEY_DILATION = 1 << 6,
    KEY_BIAS = 1 << 7,
    KEY_LAYOUT = 1 << 8,
    KEY_TENSORS = 1 << 9,
    KEY_AFFINE = 1 << 10,
    KEY_EPS = 1 << 11,
    KEY_STRIDE = 1 << 12,
    KEY_PADDING = 1 << 13,
    KEY_RULE = 1 << 14,
    KEY_OF = 1 << 15,
    KEY_ONTO = 1 << 16,
    KEY_GROUPS = 1 << 17,
    KEY_SLOPE = 1 << 18,
    KEY_SCALE = 1 << 19,
    KEY_SHIFT = 1 << 20,
    KEY_OCCUPANCY = 1 << 21,
    KEY_KEEP = 1 << 22,
    KEY_TOP = 1 << 23,
    KEY_MODE = 1 << 24,
    KEY_SHAPE = 1 << 25,
    KEY_FOLD = 1 << 26,
    KEY_FP8_SCALE = 1 << 27,
};
#define KEYS_COMMON (KEY_NAME | KEY_OP | KEY_INPUT | KEY_INPUTS)
#define KEYS_WINDOW (KEY_KERNEL | KEY_STRIDE | KEY_PADDING | KEY_DILATION | KEY_RULE)
#define KEYS_CONV                                                                        \
    (KEY_CHANNELS | KEY_GROUPS | KEY_BIAS | KEY_LAYOUT | KEY_TENSORS | KEY_FP8_SCALE)

/* State while layers are read. */
struct vx_layer_reader {
    struct vx_network *network;
    struct vx_arena *arena;
    struct vx_why *why;
    u32 keys; /* of the layer's op */
};

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

/* Reads the layer's kernel and what belongs to it: stride, padding, dilation, rule, `of`,
 * `onto`, `occupancy`, `keep` and `top` (network_kernel.c). */
VX_MUST_USE vx_status vx_layer_parse_kernel(const struct vx_layer_reader *reader,
                                            const struct vx_json *object,
                                            struct vx_layer *layer);
/* Fills the names of the layer's tensors: PyTorch's, or those in `named`, which may be NULL
 * (network_tensors.c). */
VX_MUST_USE vx_status vx_layer_parse_tensors(const struct vx_layer_reader *reader,
                                             const struct vx_json *named,
                                             struct vx_layer *layer);
/* Reads one integer for all axes, or three, for columns 1 to 3 of coords. */
struct vx_axes_key {
    const char *name;
    i32 least, most;
};
VX_MUST_USE vx_status vx_network_parse_axes(const struct vx_json *value,
                                            const struct vx_axes_key *key,
                                            struct vx_why *why, i32 axes[3]);
/* Finds or makes the set of the layer's result; its inputs, channels and kernel must be
 * known (network_sets.c). */
VX_MUST_USE vx_status vx_layer_settle_set(const struct vx_layer_reader *reader,
                                          struct vx_layer *layer);

/* Ops whose result only an output reads (network_dense.c): fails if `layer` is one. */
VX_MUST_USE vx_status vx_layer_check_read(const struct vx_layer_reader *reader,
                                          const struct vx_json *name, i32 layer);
/* Reads what TO_DENSE has; fills and checks its shape, once its set is known. */
VX_MUST_USE vx_status vx_layer_parse_dense(const struct vx_layer_reader *reader,
                                           const struct vx_json *object,
                                           struct vx_layer *layer);
VX_MUST_USE vx_status vx_layer_settle_dense(const struct vx_layer_reader *reader,
                                            struct vx_layer *layer);

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
/* The same for a text that must be one of `words`, which the error names. */
VX_MUST_USE vx_status vx_network_need_word(const struct vx_json *object, const char *key,
                                           const char *words, struct vx_why *why,
                                           const struct vx_json **member);

#endif
