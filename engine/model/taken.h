/* taken - which algorithm each layer of a request took, in words.
 *
 * Layers that are computed in the same way stand together: a network of a hundred layers has
 * three or four ways.
 *
 *   layers[count++] = (struct vx_taken_layer){name, key};
 *   vx_taken_print(layers, count, &how, &taken);
 *   "masked[128,64,64,4,8,1,1,2] sparse: stem conv1; implicit[64,64,64,4,4,1,1,3]: head"
 *
 * Names stand as they are in network.json, with a space between two.
 *
 * Owner    the caller owns all memory.
 * Thread   any; pure.
 * Limits   VX_LAYERS_MAX layers; names without room are left out, and the text ends with
 *          " ...".
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_TAKEN_H
#define VX_ENGINE_MODEL_TAKEN_H

#include "engine/batch.h"

struct vx_taken_layer {
    const char *name;
    u32 key; /* equal for layers that are computed in the same way */
};
/* Writes what a key stands for. */
#define VX_TAKEN_HOW_BYTES 128
struct vx_taken_how {
    void (*print)(const void *context, u32 key, char text[VX_TAKEN_HOW_BYTES]);
    const void *context;
};
void vx_taken_print(const struct vx_taken_layer *layers, i32 count,
                    const struct vx_taken_how *how, struct vx_taken *taken);

#endif
