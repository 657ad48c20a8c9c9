/* engine - runs networks on one device; the only engine header the server sees.
 *
 * An engine is one device with its memory, its geometry cache and its threads.  A model
 * is a network made ready for that device.  A batch is a list of independent requests,
 * each a slice of host memory in and out; each item ends with its own status, so a bad
 * request fails alone.
 *
 *   struct vx_engine *engine;
 *   VX_TRY(vx_engine_open(&options, &why, &engine));
 *   VX_TRY(vx_engine_load(engine, &source, &why, &model));
 *   VX_TRY(vx_engine_warm(engine, model, &why));
 *   vx_engine_run(engine, model, &batch);
 *   vx_engine_unload(engine, &model);
 *   vx_engine_close(&engine);
 *
 * Owner    the caller owns engine and model; a batch is borrowed until collected.
 * Thread   open, close: the device thread.  load: the main thread, while the device
 *          thread runs other models.  warm, run, unload: the device thread.  describe: any.
 * Limits   engine/base/limits.h; memory is what the options say, taken at open.
 * Fails    INVALID_ARGUMENT for what a model file or request says, DATA_LOSS for damaged
 *          files, RESOURCE_EXHAUSTED for what does not fit, NOT_FOUND for a missing file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_ENGINE_H
#define VX_ENGINE_ENGINE_H

#include "engine/base/content.h"
#include "engine/base/limits.h"
#include "engine/base/status.h"

struct vx_engine;
struct vx_model;

enum vx_dtype {
    VX_DTYPE_NONE, /* zero is "not said" */
    VX_DTYPE_F32,
    VX_DTYPE_F16,
    VX_DTYPE_BF16,
    VX_DTYPE_I32,
};

size_t vx_dtype_bytes(enum vx_dtype dtype); /* bytes of one element; 0 for NONE */
const char *
vx_dtype_name(enum vx_dtype dtype); /* "FP32" "FP16" "BF16" "INT32", as on the wire */

/* How requests of a model wait: the words and meanings of Triton's ModelQueuePolicy. */
struct vx_queue_policy {
    i64 default_timeout_us; /* of a request that says none; 0 = for ever */
    i64 max_queue_size;     /* requests of this level waiting; 0 = queue_max only */
    bool timeout_delay;     /* timeout_action DELAY: behind all others; else REJECT */
    bool allow_timeout_override; /* a request's own `timeout` counts, if it is shorter */
};
struct vx_batching {
    i64 voxels_max;             /* most voxels in one device batch */
    i64 pairs_max;              /* most (row, offset) pairs, as estimated; 0 = no bound */
    i64 delay_us;               /* how long a batch may wait for company */
    i32 requests_max;           /* 1 .. VX_BATCH_ITEMS_MAX; 1 = batching is off */
    i32 priority_levels;        /* 0 = one, whatever requests say */
    i32 default_priority_level; /* of a request that says none; 1 = highest */
    struct vx_queue_policy policies[VX_PRIORITY_LEVELS_MAX + 1]; /* [0] the default's */
};

/* What a model takes and gives: all the front needs to know.  Plain data: it crosses the
 * process border in one message.  Every model takes coords (N,4) or (N,3) and feats (N,
 * feats_channels). */
struct vx_output {
    char name[VX_NAME_BYTES];
    enum vx_dtype dtype; /* of the answer: (N, channels) row-major */
    i32 channels;
};
struct vx_signature {
    char coords_name[VX_NAME_BYTES];
    char feats_name[VX_NAME_BYTES];
    i32 feats_channels;
    i32 outputs_count;
    struct vx_output outputs[VX_OUTPUTS_MAX];
    i64 voxels_max;    /* most voxels in one request */
    i64 weights_bytes; /* on the device */
    i32 layers_count;  /* as written in network.json */
    struct vx_batching batching;
};

/* Where a model is: DIR/network.json and DIR/VERSION/weights.safetensors. */
struct vx_model_source {
    const char *directory;
    i32 version;
};

/* FAKE is for tests: device memory is the host's and kernels are their references. */
enum vx_device_kind { VX_DEVICE_CPU, VX_DEVICE_CUDA, VX_DEVICE_HIP, VX_DEVICE_FAKE };

/* How a convolution is computed on a GPU: engine/gpu/conv.h says what each does. */
enum vx_conv_algorithm {
    VX_CONV_AUTO, /* the tuned table's, else the cost model's, for each layer and size */
    VX_CONV_EXPLICIT,
    VX_CONV_IMPLICIT,
    VX_CONV_MASKED,
    VX_CONV_IMPLICIT_SPLIT,
    VX_CONV_MASKED_SPLIT,
    VX_CONV_PAIRS_LIST,
    VX_CONV_ALGORITHMS_COUNT,
};
const char *vx_conv_name(enum vx_conv_algorithm algorithm); /* "masked_split" */
enum vx_conv_algorithm vx_conv_of_name(const char *name);   /* COUNT = no such name */

enum vx_tune_mode {
    VX_TUNE_TABLE, /* look up, else the cost model; measure nothing */
    VX_TUNE_AUTO,  /* at load, measure the few candidates that the model ranks first */
    VX_TUNE_ALL,   /* at load, measure every candidate that fits */
};

/* What a GPU needs to be told; strings are borrowed until close, NULL = the default. */
struct vx_gpu_settings {
    i32 index;                /* of the device, as the driver counts */
    const char *driver;       /* path of libcuda; NULL = searched */
    const char *compiler;     /* path of libnvrtc; NULL = searched */
    const char *kernel_cache; /* directory of compiled kernels; NULL = none */
    i64 kernel_cache_bytes;   /* its bound; 0 = the default */
    const char *kernel_texts; /* a folder to read kernels from, for developers */
    const char *tune_table;   /* file of tuning results, or a folder of them, one
                                 DEVICE.tune each; NULL = none */
    enum vx_tune_mode tune;
    enum vx_conv_algorithm algorithm; /* pinned, or AUTO */
    void *host; /* memory that requests lie in, to be page-locked; NULL = none */
    size_t host_bytes;
    i64 lose_launch; /* FAKE, for tests: this launch loses the device; 0 = none */
};

/* report(context, done, total) is called step by step from the thread that is inside. */
struct vx_progress {
    void (*report)(void *context, i64 done, i64 total);
    void *context;
};

struct vx_engine_options {
    enum vx_device_kind kind;
    const struct vx_gpu_settings *gpu; /* NULL for the CPU */
    i32 threads;         /* CPU device: 0 = all cores this process may use */
    size_t device_bytes; /* activations and workspaces; reserved at open, touched when
                            needed */
    size_t
        cache_bytes; /* geometry cache; of a CPU also the room to build one, so that a larger one is
                            refused */
    /* CPU device: maps and layers of a request that are done, of its batch; report NULL = nobody
     * asks.  A GPU's batches do not keep the device thread. */
    struct vx_progress running;
};

/* Of an item's memory: what lies on the device itself, in memory of another process
 * (vx_engine_import).  A bit each. */
#define VX_ITEM_COORDS    1u
#define VX_ITEM_FEATS     2u
#define VX_ITEM_OUTPUT(o) (4u << (o))

/* One request of a batch.  Rows of outputs are in the order of the rows of coords. */
struct vx_item {
    const i32 *coords; /* (voxels, coords_columns) row-major; NULL = those that `content`
                          names, FAILED_PRECONDITION when they are not in the cache */
    struct vx_content content;     /* their name; zeros = none, and nothing is kept */
    i32 coords_columns;            /* 4: sample x y z; 3: x y z, sample 0 */
    i64 voxels;                    /* N >= 0 */
    const void *feats;             /* (voxels, feats_channels) of feats_dtype */
    enum vx_dtype feats_dtype;     /* F32, F16 or BF16 */
    void *outputs[VX_OUTPUTS_MAX]; /* (voxels, channels) each; NULL = not wanted */
    u32 on_device;                 /* VX_ITEM_*: not host memory; GPUs only */
    bool coords_change; /* another process may write coords while they are read:
                                      they are copied once, and the copy is what is checked,
                                      used and spoken of; GPUs only, and without a name */
    vx_status
        status; /* in: a fault here, and the item is not run but answered with it; out:
                         of this item alone */
    struct vx_why why;  /* out: its sentence */
    i64 convert_ns;     /* out: input conversion (Triton's compute_input) */
    i64 geometry_ns;    /* out: keys, hash, maps, or the cache look-up */
    i64 compute_ns;     /* out: layers */
    i64 output_ns;      /* out: output conversion */
    i64 pairs;          /* out: (row, offset) pairs of the first convolution's map */
    bool geometry_hit;  /* out: every map came from the cache */
    bool geometry_kept; /* out: the cache has it under `content` now */
};
/* Items, and what they point to, are borrowed from submit until the batch is collected. */
struct vx_batch {
    struct vx_item *items;
    i32 items_count;
    i64 device_ns; /* out: from submit to the end, without waiting for other batches */
    struct vx_batch *next; /* the engine's */
};
/* Batches that a device works on at once: while one computes, the other's tensors are on
 * their way in or out. */
#define VX_ENGINE_BATCHES_MAX 2

/* What the driver and its monitoring library say of a GPU, a second old at most. */
#define VX_UUID_BYTES 48
struct vx_gpu_stats {
    char uuid
        [VX_UUID_BYTES]; /* "GPU-8f1e...", as the vendor's tools write it; "" = none */
    i64 memory_bytes, memory_bytes_used; /* of the whole device, by all processes */
    bool utilization_known;
    bool power_known;
    i32 utilization; /* percent */
    i64 power_mw, power_limit_mw, energy_mj;
};

/* What the engine holds, for metrics and for people. */
struct vx_engine_stats {
    char device_name[VX_NAME_BYTES]; /* "AMD EPYC, 2 threads, AVX-512" */
    i64 device_bytes, device_bytes_used_max;
    i64 cache_bytes, cache_bytes_max;
    i64 cache_hits, cache_misses, cache_evictions;
    /* Of a GPU: kernel binaries that were compiled, and that were found on disk; and how
     * long loads waited for both. */
    i64 kernels_compiled, kernels_cached, kernels_ns;
    /* Of tuning at load: candidates that were measured, and those whose answer was wrong. */
    i64 tune_measured, tune_rejected;
    i32 numa_node; /* vx_engine_numa_node; -1 = near none, or not known */
    struct vx_gpu_stats gpu;
};

VX_MUST_USE vx_status vx_engine_open(const struct vx_engine_options *options,
                                     struct vx_why *why, struct vx_engine **engine);
void vx_engine_close(struct vx_engine **engine);

VX_MUST_USE vx_status vx_engine_load(struct vx_engine *engine,
                                     const struct vx_model_source *source,
                                     const struct vx_progress *progress,
                                     struct vx_why *why, struct vx_model **model);
/* Makes the model ready on the device thread, one piece a call, so that batches of other
 * models run in between: its weights are uploaded, one candidate of tuning is measured, one
 * warm-up size is run (on a CPU one layer of it).  A piece waits for the batches that are
 * under way. */
struct vx_warm {
    bool more;   /* pieces are left; else the model is ready */
    bool tuning; /* what is counted: convolutions that are tuned; else warm-up steps */
    i64 done, total; /* of what is counted */
};
VX_MUST_USE vx_status vx_engine_warm_step(struct vx_engine *engine,
                                          struct vx_model *model, struct vx_why *why,
                                          struct vx_warm *warm);
/* All pieces, for who serves nobody meanwhile. */
VX_MUST_USE vx_status vx_engine_warm(struct vx_engine *engine, struct vx_model *model,
                                     struct vx_why *why);
void vx_engine_unload(struct vx_engine *engine, struct vx_model **model);
const struct vx_signature *vx_model_signature(const struct vx_model *model);
/* What loads, and may still not be what was trained: one note a line, "" = nothing. */
const char *vx_model_notes(const struct vx_model *model);

/* A batch never fails as a whole: each item carries its own status, and its answer is the
 * same, bit for bit, alone or in any batch.
 *
 * submit puts it to work, at most VX_ENGINE_BATCHES_MAX at once, and returns; collect
 * answers a batch that has ended, in the order of their ends, or NULL: at once, or with
 * `wait` only when none is under way.  load and warm and unload of models may happen
 * between; warm waits for what is under way, unload asserts that nothing of the model
 * is.  Device thread. */
bool vx_engine_has_room(const struct vx_engine *engine); /* for one more batch */
i32 vx_engine_under_way(const struct vx_engine *engine); /* submitted, not collected */
void vx_engine_submit(struct vx_engine *engine, struct vx_model *model,
                      struct vx_batch *batch);
struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait);
/* Both, for who has one batch. */
void vx_engine_run(struct vx_engine *engine, struct vx_model *model,
                   struct vx_batch *batch);
/* Device thread. */
void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats);

/* Memory of other processes, for items to lie in.
 *
 * pin brings pages of this host in and locks them for DMA, while other threads run batches,
 * which wait for the locking; without it copies are slower, and that is all.  Fails
 * UNIMPLEMENTED on a CPU, which has no need, RESOURCE_EXHAUSTED, or as the driver says of
 * memory that it cannot lock.  Main or device thread; unpin: the same, when no batch uses it.
 *
 * import opens device memory that another process has made a handle of (cuIpcGetMemHandle,
 * hipIpcGetMemHandle): INVALID_ARGUMENT when the handle is none of this device or has
 * fewer bytes than said, UNIMPLEMENTED on a CPU.  Device thread; release when no batch
 * uses it. */
#define VX_IPC_HANDLE_BYTES 64
VX_MUST_USE vx_status vx_engine_pin(struct vx_engine *engine, void *memory, size_t bytes,
                                    struct vx_why *why);
void vx_engine_unpin(struct vx_engine *engine, void *memory);
VX_MUST_USE vx_status vx_engine_import(struct vx_engine *engine,
                                       const u8 handle[VX_IPC_HANDLE_BYTES], size_t bytes,
                                       struct vx_why *why, void **memory);
void vx_engine_release(struct vx_engine *engine, void **memory);

/* True when the device is gone (a sticky error of a GPU) and `why` says how: the process
 * must end and be started anew.  Device thread. */
bool vx_engine_lost(const struct vx_engine *engine, struct vx_why *why);

/* The NUMA node that the device is near (base/numa.h); -1 = none, or not known. */
i32 vx_engine_numa_node(const struct vx_engine *engine);

/* Devices of a kind that its driver counts, without opening one; 0 when there is no
 * driver or no device, and `why` then says what was tried.  Loads the driver: not for a
 * process that must not (the front).  `driver`: as in vx_gpu_settings. */
i32 vx_engine_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why);

/* The tools that need no server: compile, tune, bench, devices.  `arguments[0]` is the
 * tool's name; prints for people, returns the exit code (2 = usage). */
int vx_engine_tool(int count, char **arguments);

/* Reads and checks a model without a device: for `voxeld check`.  A table for people is
 * written to `text` (cut to fit): layer, op, shape, parameters.  Allocates and frees; not
 * for serving. */
VX_MUST_USE vx_status vx_model_describe(const struct vx_model_source *source,
                                        struct vx_why *why,
                                        struct vx_signature *signature, char *text,
                                        size_t text_bytes);

#endif
