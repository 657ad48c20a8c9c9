/* signature - what a model takes, gives and asks of the scheduler: all that the front knows of it.
 *
 * Owner    values; they cross the process boundary as they are.
 * Thread   any.
 * Limits   engine/base/limits.h.
 * Fails    describe alone: as vx_engine_load.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_SIGNATURE_H
#define VX_ENGINE_SIGNATURE_H

#include "engine/base/limits.h"
#include "engine/base/status.h"

#include <string.h>

enum vx_dtype {
    VX_DTYPE_NONE, /* not given */
    VX_DTYPE_F32,
    VX_DTYPE_F16,
    VX_DTYPE_BF16,
    VX_DTYPE_I32,
};

/* Bytes of one element; 0 for NONE. */
size_t vx_dtype_bytes(enum vx_dtype dtype);
/* "FP32" "FP16" "BF16" "INT32", as on the wire, or "none"; static. */
const char *vx_dtype_name(enum vx_dtype dtype);

/* How requests of a model wait.  Names and meanings are those of Triton's
 * ModelQueuePolicy. */
struct vx_queue_policy {
    i64 default_timeout_us; /* for a request without a timeout; 0 = no timeout */
    i64 max_queue_size;     /* waiting requests of this level; 0 = queue_max alone */
    bool timeout_delay;     /* timeout_action: DELAY, behind all others; else REJECT */
    bool allow_timeout_override; /* a request's own `timeout` counts if it is shorter */
};
/* How requests of a model are put into batches: network.json's "batching". */
struct vx_batching {
    i64 voxels_max;             /* in one batch; a larger request runs alone */
    i64 pairs_max;              /* estimated (row, offset) pairs in one; 0 = no bound */
    i64 delay_us;               /* longest time a batch waits for more requests */
    i32 requests_max;           /* 1 .. VX_BATCH_ITEMS_MAX; 1 = batching is off */
    i32 priority_levels;        /* 0 = one level; a request's priority is ignored */
    i32 default_priority_level; /* for a request without a priority; 1 = highest */
    /* By level, each filled in; [0] is the default and holds when there are no levels. */
    struct vx_queue_policy policies[VX_PRIORITY_LEVELS_MAX + 1];
};

/* In place of a set: the output is a dense tensor. */
#define VX_OUTPUT_DENSE (-1)

/* One output of a model: (rows, channels) row-major.  Its rows are those of the request,
 * in its order, or those of another set, ascending by (sample, x, y, z): how many, and at
 * which coordinates, is known only when a request runs.  Such a set has an output with its
 * coordinates: I32, 4 channels, sample x y z in voxels of the set.  A dense tensor has a
 * row for each sample, 1 + the largest number of one: also known only then. */
struct vx_output {
    char name[VX_NAME_BYTES];
    enum vx_dtype dtype;
    i32 channels; /* of a row; of a dense tensor: all its numbers, the product of dims */
    i32 set;      /* 0 = the request's; DENSE; else a number of the network's sets */
    /* The output with the coordinates of its set, itself too; -1 on set 0 and of DENSE. */
    i32 coords;
    char stride[VX_SET_STRIDE_BYTES]; /* of its set, "2x2x2"; "" on set 0 and of DENSE */
    i32 dims_count, dims[VX_OUTPUT_DIMS_MAX]; /* DENSE: C X Y Z, or C*X Y Z; else none */
};
/* Writes the shape with so many rows; returns the number of dimensions. */
static inline i32 vx_output_shape(const struct vx_output *output, i64 rows,
                                  i64 shape[1 + VX_OUTPUT_DIMS_MAX])
{
    shape[0] = rows;
    shape[1] = output->channels;
    for (i32 d = 0; d < output->dims_count; d++) shape[1 + d] = output->dims[d];
    return 1 + (output->dims_count ? output->dims_count : 1);
}
/* What bounds the voxels of a request: what somebody must raise who needs more. */
enum vx_bound {
    VX_BOUND_NETWORK,      /* network.json: limits.voxels_max, or its default */
    VX_BOUND_DEVICE_BYTES, /* a setting of the daemon, as the next one */
    VX_BOUND_CACHE_BYTES,
    VX_BOUND_COUNT,
};
/* As network.json and the settings spell it; static. */
static inline const char *vx_bound_name(enum vx_bound bound)
{
    static const char *const names[VX_BOUND_COUNT] = {"limits.voxels_max", "device_bytes",
                                                      "cache_bytes"};
    return names[bound];
}
/* What a client whose request is too large tells the operator of its server; static. */
static inline const char *vx_bound_remedy(enum vx_bound bound)
{
    static const char *const remedies[VX_BOUND_COUNT] = {
        "a larger limits.voxels_max in the model's network.json",
        "a larger --device-bytes of its server", "a larger --cache-bytes of its server"};
    return remedies[bound];
}

/* Whether the text is an order of the axes x, y and z. */
static inline bool vx_axes_are_order(const char *text)
{
    return strlen(text) == 3 && strchr(text, 'x') && strchr(text, 'y') &&
           strchr(text, 'z');
}

/* The inputs, outputs and limits of a model: all that the front needs to know.  Plain
 * data; it crosses the process border in one message.  Every model takes coords (N, 4) or
 * (N, 3) INT32 and feats (N, feats_channels) FP32, FP16 or BF16. */
struct vx_signature {
    char coords_name[VX_NAME_BYTES];
    char axes[4]; /* columns 1 to 3 of coords, "zyx"; "" = network.json does not say */
    char feats_name[VX_NAME_BYTES];
    i32 feats_channels;
    i32 outputs_count;
    /* As network.json names them; behind them the coordinates of their sets. */
    struct vx_output outputs[VX_OUTPUTS_MAX];
    i64 voxels_max;             /* in one request */
    enum vx_bound voxels_bound; /* what makes it no larger */
    i32 samples_max;            /* in one request that wants a dense output */
    bool predicts; /* features decide how many voxels its sets have, up to limits.sets */
    i32 shape[3];  /* spatial_shape; zeros = it has none, nor may a request */
    i64 weights_bytes; /* on the device */
    i32 layers_count;  /* as written in network.json */
    i32 fp8_layers;    /* of them, those that multiply e4m3 */
    struct vx_batching batching;
};

/* Where a model is: DIR/network.json and DIR/VERSION/weights.safetensors.  Borrowed for
 * the call; version >= 1. */
struct vx_model_source {
    const char *directory;
    i32 version;
    bool leave_fp8; /* load it as if no layer were in FP8, to compare */
};

struct vx_model;

/* The model's own; constant from load to unload.  Any thread. */
const struct vx_signature *vx_model_signature(const struct vx_model *model);
/* Warnings about files that load but may not be what was trained: one a line, "" = none.
 * The model's own.  Any thread. */
const char *vx_model_notes(const struct vx_model *model);

/* Reads and checks a model without a device, for `voxeld check`.  Writes a table for
 * people to `text`, cut to text_bytes: layers, ops, shapes, parameters, notes.  Allocates
 * memory and frees it; not for a thread that serves.  Fails as vx_engine_load. */
VX_MUST_USE vx_status vx_model_describe(const struct vx_model_source *source,
                                        struct vx_why *why,
                                        struct vx_signature *signature, char *text,
                                        size_t text_bytes);

#endif
