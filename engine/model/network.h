/* network - what a model computes: layers, their inputs and shapes, as network.json says.
 *
 * The description is complete and checked once it is parsed: every name is resolved,
 * every shape known, every layer used by an output.  It holds no weights and no decision
 * about how to run.  The file format is engine/README.md's; unknown keys and ops are
 * errors, so that a word spelt wrong is never a default.
 *
 *   VX_TRY(vx_network_read(path, label, &arena, &why, &network));
 *   for (i32 i = 0; i < network->layers_count; i++) ...network->layers[i].channels...
 *
 * Owner    all of it lives in the arena.
 * Thread   any; parse is pure.
 * Limits   engine/base/limits.h, VX_NETWORK_BYTES_MAX; VX_NETWORK_ARENA_BYTES is enough.
 * Fails    NOT_FOUND; INVALID_ARGUMENT, its why naming file, layer, what was expected,
 *          what came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_H
#define VX_ENGINE_MODEL_NETWORK_H

#include "engine/base/arena.h"
#include "engine/base/limits.h"
#include "engine/engine.h"

/* VX_LAYERS_MAX layers of 400 characters, and a quarter more. */
#define VX_NETWORK_BYTES_MAX (512 << 10)
/* The JSON tree, and the layers made of it.  Most of it is never touched. */
#define VX_NETWORK_ARENA_BYTES (24 << 20)

/* Warm-up sizes of one model: one per size class a user cares about. */
#define VX_WARMUP_MAX 16

/* What a network may take when its file says nothing: a shell of 1024^3 voxels'
 * resolution. */
#define VX_NETWORK_VOXELS_DEFAULT (4 << 20)

enum vx_op {
#define VX_ROW(name_, word_, inputs_min_, inputs_max_, keys_) VX_OP_##name_,
#include "engine/model/ops.def"
#undef VX_ROW
    VX_OPS_COUNT
};
const char *vx_op_name(enum vx_op op); /* "subm_conv" */

/* How a convolution's weight lies in the file: layout.h.  UNSAID until the weight's shape is
 * seen, if network.json says none. */
enum vx_layout {
    VX_LAYOUT_UNSAID,
#define VX_ROW(name_, word_, axes_, x_fastest_, letters_) VX_LAYOUT_##name_,
#include "engine/model/layouts.def"
#undef VX_ROW
    VX_LAYOUTS_COUNT
};
const char *vx_layout_name(enum vx_layout layout); /* "spconv" */

/* The tensors a layer can have. */
enum vx_tensor_role {
    VX_TENSOR_WEIGHT,
    VX_TENSOR_BIAS,
    VX_TENSOR_RUNNING_MEAN,
    VX_TENSOR_RUNNING_VAR,
    VX_TENSORS_PER_LAYER,
};
const char *vx_tensor_role_name(enum vx_tensor_role role); /* "running_mean" */

/* As an input of a layer: the features of the request. */
#define VX_LAYER_FEATS (-1)

struct vx_layer {
    const char *name;
    enum vx_op op;
    i32 line; /* in network.json */
    i32 inputs_count;
    i32 inputs[VX_LAYER_INPUTS_MAX]; /* earlier layers, or VX_LAYER_FEATS */
    i32 channels_in;                 /* of the first input */
    i32 channels;                    /* of the result */
    i32 kernel[3], dilation[3];      /* SUBM_CONV */
    i32 v;                           /* SUBM_CONV: kernel offsets */
    enum vx_layout layout;           /* SUBM_CONV */
    bool layout_said;                /* network.json has it */
    bool bias;                       /* SUBM_CONV, LINEAR: has a bias tensor */
    bool affine;                     /* norms: has weight and bias tensors */
    f64 eps;                         /* norms */
    bool eps_said;                   /* network.json has it */
    const char
        *tensors[VX_TENSORS_PER_LAYER]; /* names in the weights file; NULL = has none */
};

/* What a GPU multiplies in, as network.json says; the CPU device always computes in f32.
 * AUTO follows the weights file: FP16 for F16, BF16 for BF16, TF32 for F32 or a mixture. */
enum vx_precision {
    VX_PRECISION_AUTO,
    VX_PRECISION_FP16,
    VX_PRECISION_BF16,
    VX_PRECISION_TF32, /* stored as f32, products of numbers with 10 bits of fraction */
    VX_PRECISION_FP32,
};
const char *vx_precision_name(enum vx_precision precision); /* "fp16" */

struct vx_network_output {
    char name[VX_NAME_BYTES];
    i32 layer;
    enum vx_dtype dtype;
};

struct vx_network {
    const char *label; /* how sentences call the file */
    const char *description;
    char coords_name[VX_NAME_BYTES];
    char feats_name[VX_NAME_BYTES];
    i32 feats_channels;
    struct vx_layer *layers;
    i32 layers_count;
    struct vx_network_output outputs[VX_OUTPUTS_MAX];
    i32 outputs_count;
    enum vx_precision precision;
    bool voxels_max_said; /* the file has limits.voxels_max */
    i64 voxels_max;
    struct vx_batching batching;
    i64 warmup[VX_WARMUP_MAX];
    i32 warmup_count;
    bool
        warmup_said; /* the file has warmup; if not, sizes that do not fit are left out */
};

VX_MUST_USE vx_status vx_network_read(const char *path, const char *label,
                                      struct vx_arena *arena, struct vx_why *why,
                                      const struct vx_network **network);
/* The same from memory. */
struct vx_network_text {
    const char *text;
    size_t bytes;
    const char *label;
};
VX_MUST_USE vx_status vx_network_parse(const struct vx_network_text *source,
                                       struct vx_arena *arena, struct vx_why *why,
                                       const struct vx_network **network);

/* Channels of a layer's result, or of the features. */
i32 vx_network_channels(const struct vx_network *network, i32 layer);
/* How many numbers the layer's tensors hold. */
i64 vx_layer_parameters(const struct vx_layer *layer);

#endif
