/* network - what a model computes: layers, their inputs and shapes, as network.json says.
 *
 * Once parsed, the description is complete and checked: every name is resolved, every
 * shape is known, and an output needs every layer.  It holds no weights and does not say
 * how to run.  engine/README.md describes the file.  Unknown keys and ops are errors, so
 * that a misspelt word never means a default.
 *
 *   VX_TRY(vx_network_read(path, label, &arena, &why, &network));
 *   for (i32 i = 0; i < network->layers_count; i++) ...network->layers[i].channels...
 *
 * Owner    everything lives in the arena.
 * Thread   any; parse is pure.
 * Limits   engine/base/limits.h, VX_NETWORK_BYTES_MAX; an arena of VX_NETWORK_ARENA_BYTES
 *          is enough.
 * Fails    NOT_FOUND; DATA_LOSS when the file cannot be read; INVALID_ARGUMENT with a why
 *          that names the file, the layer, what was expected and what was found;
 *          RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NETWORK_H
#define VX_ENGINE_MODEL_NETWORK_H

#include "engine/base/limits.h"
#include "engine/base/memory/arena.h"
#include "engine/network/sets.h"
#include "engine/signature.h"
#include "kernels/17_pool.h"

/* VX_LAYERS_MAX layers of 400 characters, plus a quarter. */
#define VX_NETWORK_BYTES_MAX (512 << 10)
/* Room for the JSON tree and the layers made from it; most pages are never touched. */
#define VX_NETWORK_ARENA_BYTES (24 << 20)

/* Warm-up sizes of one model: one for each size class that users care about. */
#define VX_WARMUP_MAX 16

/* limits.voxels_max when the file does not set it: about the surface of a solid at a
 * resolution of 1024^3. */
#define VX_NETWORK_VOXELS_DEFAULT (4 << 20)

enum vx_op {
#define VX_ROW(name_, word_, inputs_min_, inputs_max_, keys_) VX_OP_##name_,
#include "engine/network/ops.def"
#undef VX_ROW
    VX_OPS_COUNT
};
const char *vx_op_name(enum vx_op op); /* "subm_conv" */
/* True for the four ops with a kernel of weights: SUBM_CONV, SPARSE_CONV, INVERSE_CONV,
 * TRANSPOSED_CONV. */
bool vx_op_is_conv(enum vx_op op);
/* True for VOXELIZE and DEVOXELIZE, between points and the voxels that they lie in: the
 * stride leads from the set of the points to that of the voxels. */
bool vx_op_is_points(enum vx_op op);
/* True for BATCH_NORM, LAYER_NORM, GROUP_NORM and INSTANCE_NORM. */
bool vx_op_is_norm(enum vx_op op);

/* The order of a convolution's weight in the file (layout.h).  UNSAID when network.json
 * does not set it, until the shape of the weight decides. */
enum vx_layout {
    VX_LAYOUT_UNSAID,
#define VX_ROW(name_, word_, axes_, x_fastest_, letters_) VX_LAYOUT_##name_,
#include "engine/network/layouts.def"
#undef VX_ROW
    VX_LAYOUTS_COUNT
};
/* Layouts below are named by a library, the others by letters. */
#define VX_LAYOUT_LETTERS (VX_LAYOUT_FLEXGEMM + 1)
const char *vx_layout_name(enum vx_layout layout); /* "spconv" */
bool vx_layout_find(const char *word, enum vx_layout *layout);
/* All words, quoted, for an error sentence: "spconv", "torchsparse", ... */
const char *vx_layout_words(void);

/* The tensors a layer can have. */
enum vx_tensor_role {
    VX_TENSOR_WEIGHT,
    VX_TENSOR_BIAS,
    VX_TENSOR_RUNNING_MEAN,
    VX_TENSOR_RUNNING_VAR,
    VX_TENSORS_PER_LAYER,
};
const char *vx_pool_mode_name(enum vx_pool_mode mode);     /* "max" */
const char *vx_tensor_role_name(enum vx_tensor_role role); /* "running_mean" */

/* In place of a layer: the features of the request; and no layer at all. */
#define VX_LAYER_FEATS (-1)
#define VX_LAYER_NONE  (-2)

struct vx_layer {
    const char *name;
    enum vx_op op;
    i32 line; /* in network.json */
    i32 inputs_count;
    i32 inputs[VX_LAYER_INPUTS_MAX]; /* earlier layers, or VX_LAYER_FEATS */
    i32 channels_in;                 /* of the first input */
    i32 channels;                    /* of the result */
    /* Of the result: index in network->sets.  Of TO_DENSE: of its input. */
    i32 set;
    i32 stage; /* of its set and its inputs, the largest: sets.h */
    /* Convolutions, pools, ops between children and parents or points and voxels, else 0.
     * An INVERSE_CONV has those of the layer that it undoes. */
    i32 kernel[3], dilation[3], stride[3], padding[3];
    i32 v; /* number of kernel offsets */
    enum vx_set_rule
        rule;   /* how its set follows from its input's; REQUEST = it does not */
    i32 of;     /* the layer that this one undoes, or NONE */
    i32 onto;   /* a layer on the set that this one computes, FEATS, or NONE = children */
    i32 by;     /* LIVE, KEEP: the layer of the logits, else NONE */
    i32 top;    /* KEEP: the voxels of a sample that stay; 0 = those above 0 */
    i32 groups; /* of channels: convolutions and GROUP_NORM; 1 = dense */
    enum vx_layout layout;  /* convolutions */
    bool layout_said;       /* network.json sets it */
    bool bias;              /* convolutions, LINEAR: has a bias tensor */
    f32 fp8_scale;          /* convolutions: of their input as e4m3; 0 = not FP8 */
    enum vx_pool_mode mode; /* GLOBAL_POOL */
    bool trilinear;         /* DEVOXELIZE: else nearest */
    i32 shape[3];           /* TO_DENSE */
    bool fold;              /* TO_DENSE: channels and x are one dimension */
    f64 slope;              /* LEAKY_RELU: of negative numbers */
    f64 scale, shift;       /* AFFINE */
    bool affine;            /* norms: has weight and bias tensors */
    f64 eps;                /* norms */
    bool eps_said;          /* network.json sets it */
    const char *tensors[VX_TENSORS_PER_LAYER]; /* names in the file; NULL = has none */
};

/* True for ARGMAX and TO_DENSE, whose results only outputs read. */
bool vx_op_is_last(enum vx_op op);
/* The dimensions of a TO_DENSE behind the samples; returns how many: 4, folded 3. */
i32 vx_layer_dense_dims(const struct vx_layer *layer, i32 dims[VX_OUTPUT_DIMS_MAX]);

/* The type in which a GPU multiplies, as network.json sets it; the CPU computes in f32.
 * AUTO follows the weights: FP16 for F16, BF16 for BF16, TF32 for F32 or a mixture. */
enum vx_precision {
    VX_PRECISION_AUTO,
    VX_PRECISION_FP16,
    VX_PRECISION_BF16,
    VX_PRECISION_TF32, /* stored as f32, multiplied with 10 bits of fraction */
    VX_PRECISION_FP32,
};
const char *vx_precision_name(enum vx_precision precision); /* "fp16" */

/* The layers that multiply e4m3 (fp8_scale), and the error that they may make. */
struct vx_network_fp8 {
    i32 layers_count;         /* 0 = the rest is empty */
    char data[VX_NAME_BYTES]; /* a file beside network.json: coords and feats, in .npz */
    f64 nmse_max;             /* of each output, on the data */
};

struct vx_network_output {
    char name[VX_NAME_BYTES];
    i32 layer;
    enum vx_dtype dtype;
    i32 coords; /* index in network->coords; -1 on set 0, and of a dense tensor */
};
/* An output with the coordinates of a set: behind the others in a model's signature. */
struct vx_network_coords {
    char name[VX_NAME_BYTES];
    i32 set;
};

struct vx_network {
    const char *label; /* the file's name in error sentences */
    const char *description;
    char coords_name[VX_NAME_BYTES];
    /* Columns 1 to 3 of coords, "zyx"; "" = not said.  No layer reads it. */
    char axes[4];
    char feats_name[VX_NAME_BYTES];
    i32 feats_channels;
    struct vx_layer *layers;
    i32 layers_count;
    struct vx_set sets[VX_SETS_MAX]; /* [0]: the voxels of the request */
    i32 sets_count;
    struct vx_network_output outputs[VX_NETWORK_OUTPUTS_MAX];
    i32 outputs_count;
    struct vx_network_coords coords[VX_NETWORK_OUTPUTS_MAX]; /* of sets with outputs */
    i32 coords_count;
    enum vx_precision precision;
    struct vx_network_fp8 fp8;
    bool voxels_max_said; /* the file sets limits.voxels_max */
    i64 voxels_max;
    i32 samples_max; /* limits.samples: of a request that wants a dense output */
    struct vx_batching batching;
    i64 warmup[VX_WARMUP_MAX];
    i32 warmup_count;
    bool warmup_said; /* the file sets warmup; else sizes that do not fit are skipped */
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

/* From here on no layer rounds to e4m3; network->fp8 stays, so that both can be compared. */
void vx_network_leave_fp8(const struct vx_network *network);

/* The rows that a layer reads in place of its own row.  False: none, it reads the row that
 * it writes.  Of VOXELIZE: the row of the result to which each row of its input goes. */
bool vx_layer_map(const struct vx_network *network, const struct vx_layer *layer,
                  struct vx_map_key *key);
/* The second map of VOXELIZE, the order in which it reads its rows.  False: another op. */
bool vx_layer_order(const struct vx_network *network, const struct vx_layer *layer,
                    struct vx_map_key *key);
/* The set of a layer's result, or of the features. */
i32 vx_network_set(const struct vx_network *network, i32 layer);
/* Channels of a layer's result, or of the features. */
i32 vx_network_channels(const struct vx_network *network, i32 layer);
/* The number of values in all tensors of the layer. */
i64 vx_layer_parameters(const struct vx_layer *layer);

#endif
