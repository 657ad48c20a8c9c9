/* engine - runs networks on one device; the only engine header that the server includes.
 *
 * An engine is one device with its memory, its geometry cache and its threads.  A model
 * is a network that was loaded for that device.  A batch is a list of independent
 * requests (items); each item points to its input and output memory and ends with a
 * status of its own, so one bad request fails alone.
 *
 *   struct vx_engine *engine;
 *   VX_TRY(vx_engine_open(&options, &why, &engine));
 *   VX_TRY(vx_engine_load(engine, &source, NULL, &why, &model));
 *   VX_TRY(vx_engine_warm(engine, model, &why));
 *   vx_engine_run(engine, model, &batch);
 *   vx_engine_unload(engine, &model);
 *   vx_engine_close(&engine);
 *
 * A call that fails writes its sentence to `why`, which may be NULL.  A call that makes
 * an object and fails writes NULL in the object's place.
 *
 * Owner    the caller owns engine and models and unloads every model before it closes the
 *          engine; a batch and its memory are borrowed from submit until collect.
 * Thread   open, close, warm, submit, collect, run, unload: the device thread.  load:
 *          any, one at a time; the worker's main thread loads while the device thread
 *          runs other models.  describe, devices: any.
 * Limits   engine/base/limits.h; memory is what the options give, reserved at open.
 * Fails    INVALID_ARGUMENT when a model file or a request is wrong, DATA_LOSS for
 *          damaged files, RESOURCE_EXHAUSTED when something does not fit, NOT_FOUND when
 *          a file, a driver or a device is missing, UNAVAILABLE once a GPU is lost.
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

/* One output of a model. */
struct vx_output {
    char name[VX_NAME_BYTES];
    enum vx_dtype dtype; /* of the answer: (N, channels) row-major */
    i32 channels;
};
/* The inputs, outputs and limits of a model: all that the front needs to know.  Plain
 * data; it crosses the process border in one message.  Every model takes coords (N, 4) or
 * (N, 3) INT32 and feats (N, feats_channels) FP32, FP16 or BF16. */
struct vx_signature {
    char coords_name[VX_NAME_BYTES];
    char feats_name[VX_NAME_BYTES];
    i32 feats_channels;
    i32 outputs_count;
    struct vx_output outputs[VX_OUTPUTS_MAX];
    i64 voxels_max;    /* in one request */
    i64 weights_bytes; /* on the device */
    i32 layers_count;  /* as written in network.json */
    struct vx_batching batching;
};

/* Where a model is: DIR/network.json and DIR/VERSION/weights.safetensors.  Borrowed for
 * the call; version >= 1. */
struct vx_model_source {
    const char *directory;
    i32 version;
};

/* FAKE, for tests: device memory is host memory, kernels are their references. */
enum vx_device_kind { VX_DEVICE_CPU, VX_DEVICE_CUDA, VX_DEVICE_HIP, VX_DEVICE_FAKE };

/* How a GPU computes a convolution; engine/gpu/conv.h describes each algorithm. */
enum vx_conv_algorithm {
    VX_CONV_AUTO, /* for each layer and size: the tuning table's, else the cost model's */
    VX_CONV_EXPLICIT,
    VX_CONV_IMPLICIT,
    VX_CONV_MASKED,
    VX_CONV_IMPLICIT_SPLIT,
    VX_CONV_MASKED_SPLIT,
    VX_CONV_PAIRS_LIST,
    VX_CONV_ALGORITHMS_COUNT,
};
const char *vx_conv_name(enum vx_conv_algorithm algorithm); /* "masked_split"; static */
enum vx_conv_algorithm vx_conv_of_name(const char *name);   /* COUNT = no such name */

enum vx_tune_mode {
    VX_TUNE_TABLE, /* measure nothing: the tuning table decides, else the cost model */
    VX_TUNE_AUTO,  /* at load, measure the candidates that the model ranks first */
    VX_TUNE_ALL,   /* at load, measure every candidate that fits */
};

/* Settings of a GPU.  Strings are borrowed until close; NULL = the default. */
struct vx_gpu_settings {
    i32 index;                /* device number, as the driver counts */
    const char *driver;       /* path of libcuda; NULL = search */
    const char *compiler;     /* path of libnvrtc; NULL = search */
    const char *kernel_cache; /* directory of compiled kernels; NULL = no cache */
    i64 kernel_cache_bytes;   /* most bytes of the cache; 0 = the default, 1 GiB */
    const char *kernel_texts; /* folder to read kernel texts from; NULL = the built-in */
    const char *tune_table; /* tuning results: file, or folder of DEVICE.tune; or NULL */
    enum vx_tune_mode tune;
    enum vx_conv_algorithm algorithm; /* for every layer; AUTO = the engine chooses */
    /* Host memory that holds requests: page-locked at open, unlocked at close; copies are
     * slower if the driver refuses.  NULL = none. */
    void *host;
    size_t host_bytes;
    i64 lose_launch; /* FAKE only: this launch loses the device, from 1; 0 = none */
};

/* Progress of a long call: report(context, done, total) is called on the thread that runs
 * the call, once per step.  report NULL = no reports. */
struct vx_progress {
    void (*report)(void *context, i64 done, i64 total);
    void *context;
};

struct vx_engine_options {
    enum vx_device_kind kind;
    const struct vx_gpu_settings *gpu; /* NULL for the CPU; borrowed for the call */
    i32 threads; /* CPU threads; 0 = as many cores as this process may use */
    /* Activations and workspaces; at least 1 MiB.  A GPU allocates them at open, the CPU
     * reserves address space and touches it when needed. */
    size_t device_bytes;
    /* Geometry cache.  The CPU also builds geometries in it, so it bounds a request. */
    size_t cache_bytes;
    /* CPU device only: the maps and layers that the running request has done.  A GPU's
     * batches do not occupy the device thread. */
    struct vx_progress running;
};

/* vx_item.on_device: one bit for each tensor that lies in device memory, imported from
 * another process (vx_engine_import). */
#define VX_ITEM_COORDS    1u
#define VX_ITEM_FEATS     2u
#define VX_ITEM_OUTPUT(o) (4u << (o))

/* One request of a batch.  Rows of outputs are in the order of the rows of coords.  The
 * caller owns all memory that it points to.  Fields marked `out` are zero unless the item
 * ran; on a GPU the times are those of the whole round. */
struct vx_item {
    /* (voxels, coords_columns) row-major.  NULL = use the geometry that `content` names;
     * FAILED_PRECONDITION when the device does not have it. */
    const i32 *coords;
    struct vx_content content;     /* coords_ref; zeros = none, do not keep it */
    i32 coords_columns;            /* 4: sample x y z; 3: x y z, all of sample 0 */
    i64 voxels;                    /* N, 0 .. VX_VOXELS_MAX */
    const void *feats;             /* (voxels, feats_channels), aligned to an element */
    enum vx_dtype feats_dtype;     /* F32, F16 or BF16 */
    void *outputs[VX_OUTPUTS_MAX]; /* (voxels, channels) each; NULL = not wanted */
    u32 on_device;                 /* VX_ITEM_* bits; GPUs only */
    /* Another process may write coords meanwhile: the engine copies them once, and
     * checks, uses and reports only the copy.  GPUs only, and not with content. */
    bool coords_change;
    vx_status status;   /* in: an item that has failed is not run; out: the item's own */
    struct vx_why why;  /* out: the sentence of status */
    i64 convert_ns;     /* out: input conversion (Triton's compute_input) */
    i64 geometry_ns;    /* out: keys, hash, maps, or the cache look-up */
    i64 compute_ns;     /* out: layers */
    i64 output_ns;      /* out: output conversion */
    i64 pairs;          /* out: (row, offset) pairs of the first convolution's map */
    bool geometry_hit;  /* out: every map came from the cache */
    bool geometry_kept; /* out: the cache now has the geometry under `content` */
};
/* 1 .. VX_BATCH_ITEMS_MAX items.  The engine borrows them, and the memory they point to,
 * from submit until the batch is collected. */
struct vx_batch {
    struct vx_item *items;
    i32 items_count;
    i64 device_ns; /* out: device time; what two batches share counts for one of them */
    struct vx_batch *next; /* the engine's */
};
/* Batches that may be submitted and not yet collected: while a GPU computes one, it
 * copies the tensors of the other. */
#define VX_ENGINE_BATCHES_MAX 2

/* What a GPU's driver and its monitoring library report; at most about a second old. */
#define VX_UUID_BYTES 48
struct vx_gpu_stats {
    char uuid[VX_UUID_BYTES]; /* as the vendor's tools write it: "GPU-8f1e..." */
    i64 memory_bytes, memory_bytes_used; /* of the whole device, by all processes */
    bool utilization_known;
    bool power_known;                        /* power, its limit and energy */
    i32 utilization;                         /* percent */
    i64 power_mw, power_limit_mw, energy_mj; /* milliwatts; millijoules */
};

/* State and counters of an engine, since open. */
struct vx_engine_stats {
    char device_name[VX_NAME_BYTES]; /* "cpu: AMD EPYC, 2 threads, AVX-512" */
    i64 device_bytes, device_bytes_used_max;
    i64 cache_bytes, cache_bytes_max; /* in use; size */
    i64 cache_hits, cache_misses, cache_evictions;
    /* GPU: kernel binaries compiled, binaries found on disk, and the nanoseconds that
     * loads waited for both. */
    i64 kernels_compiled, kernels_cached, kernels_ns;
    /* GPU, tuning at load: candidates measured, and those whose answer was wrong. */
    i64 tune_measured, tune_rejected;
    i32 numa_node;           /* as vx_engine_numa_node */
    struct vx_gpu_stats gpu; /* zeros for the CPU */
};

/* Opens a device.  The caller owns *engine until vx_engine_close.  Device thread.
 * INVALID_ARGUMENT: a wrong option or tuning table.  NOT_FOUND: no driver or no such
 * device.  FAILED_PRECONDITION: a driver that is too old, a kernel cache that others may
 * write.  RESOURCE_EXHAUSTED: memory or threads are refused. */
VX_MUST_USE vx_status vx_engine_open(const struct vx_engine_options *options,
                                     struct vx_why *why, struct vx_engine **engine);
/* *engine becomes NULL and may be NULL.  No batch is under way, no model loaded. */
void vx_engine_close(struct vx_engine **engine);

/* Reads, checks and plans a model, and lays out its weights.  The caller owns *model
 * until vx_engine_unload.  `progress` may be NULL.  Any thread, one load at a time; it
 * allocates, so the thread must not be frozen (base/alloc.h).
 *
 * NOT_FOUND: a file is missing, or a GPU kernel that is not in the cache has no compiler.
 * INVALID_ARGUMENT, DATA_LOSS: a file is wrong or damaged.  RESOURCE_EXHAUSTED: weights
 * or limits.voxels_max do not fit.  INTERNAL: a kernel does not compile. */
VX_MUST_USE vx_status vx_engine_load(struct vx_engine *engine,
                                     const struct vx_model_source *source,
                                     const struct vx_progress *progress,
                                     struct vx_why *why, struct vx_model **model);
/* State of a model's warm-up after a step. */
struct vx_warm {
    bool more;   /* steps are left; false = the model is ready */
    bool tuning; /* done and total count convolutions to tune; else warm-up steps */
    i64 done, total;
};
/* Runs the next step of a model's warm-up, so that batches of other models run between
 * the steps: uploads the weights, measures one tuning candidate, or runs one warm-up size
 * (on a CPU one layer of it).  First waits until no batch is under way.  Fails as a
 * request does, or with RESOURCE_EXHAUSTED when the weights no longer fit; the caller
 * then unloads the model.  Device thread. */
VX_MUST_USE vx_status vx_engine_warm_step(struct vx_engine *engine,
                                          struct vx_model *model, struct vx_why *why,
                                          struct vx_warm *warm);
/* All steps at once: for programs that serve nothing meanwhile.  Device thread. */
VX_MUST_USE vx_status vx_engine_warm(struct vx_engine *engine, struct vx_model *model,
                                     struct vx_why *why);
/* *model becomes NULL and may be NULL.  No batch of it is under way.  Device thread. */
void vx_engine_unload(struct vx_engine *engine, struct vx_model **model);
/* The model's own; constant from load to unload.  Any thread. */
const struct vx_signature *vx_model_signature(const struct vx_model *model);
/* Warnings about files that load but may not be what was trained: one a line, "" = none.
 * The model's own.  Any thread. */
const char *vx_model_notes(const struct vx_model *model);

/* A batch never fails as a whole: each item carries its own status.  The bits of an
 * item's answer are the same alone or in any batch.
 *
 * submit starts a batch and returns; the caller has checked has_room.  A CPU runs the
 * whole batch before submit returns.  collect returns a batch that has ended, in the
 * order in which batches end.  It returns NULL at once when none has ended, or, with
 * `wait`, only when none is under way.  load, warm and unload may be called in between:
 * warm waits for the batches under way, unload asserts that none of them uses the model.
 * Device thread. */
bool vx_engine_has_room(const struct vx_engine *engine); /* for one more batch */
i32 vx_engine_under_way(const struct vx_engine *engine); /* submitted, not collected */
void vx_engine_submit(struct vx_engine *engine, struct vx_model *model,
                      struct vx_batch *batch);
struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait);
/* submit and collect for a caller with one batch; no other may be under way. */
void vx_engine_run(struct vx_engine *engine, struct vx_model *model,
                   struct vx_batch *batch);
/* Device thread. */
void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats);

/* Memory of other processes that items may point to.
 *
 * pin loads the pages of host memory and page-locks them for DMA while other threads run
 * batches, whose driver calls wait for the locking.  Without pin, copies are slower and
 * nothing else changes.  `memory` stays the caller's.  UNIMPLEMENTED on a CPU, which does
 * not need it; RESOURCE_EXHAUSTED; or the driver's error for memory that it cannot lock.
 * unpin when no batch uses the memory.  Both: main or device thread.
 *
 * import opens `bytes` of device memory that another process shares by a handle
 * (cuIpcGetMemHandle, hipIpcGetMemHandle).  The caller owns *memory until release, which
 * it calls when no batch uses the memory.  INVALID_ARGUMENT when the handle has fewer
 * bytes or does not belong to this device; UNIMPLEMENTED on a CPU.  Device thread. */
#define VX_IPC_HANDLE_BYTES 64
VX_MUST_USE vx_status vx_engine_pin(struct vx_engine *engine, void *memory, size_t bytes,
                                    struct vx_why *why);
void vx_engine_unpin(struct vx_engine *engine, void *memory);
VX_MUST_USE vx_status vx_engine_import(struct vx_engine *engine,
                                       const u8 handle[VX_IPC_HANDLE_BYTES], size_t bytes,
                                       struct vx_why *why, void **memory);
void vx_engine_release(struct vx_engine *engine, void **memory);

/* True when the device is lost (a sticky error of a GPU); `why` then says how.  The
 * process must end and be started again.  Device thread. */
bool vx_engine_lost(const struct vx_engine *engine, struct vx_why *why);

/* The NUMA node nearest to the device (base/numa.h); -1 = none or unknown. */
i32 vx_engine_numa_node(const struct vx_engine *engine);

/* The number of devices of a kind, without opening one; 1 for the CPU.  0 when there is
 * no driver or no device; `why` then says what was tried.  Loads the driver into the
 * process, which the front must not do.  `driver`: as in vx_gpu_settings. */
i32 vx_engine_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why);

/* Runs a tool that needs no server: compile, tune, bench, devices.  arguments[0] is the
 * tool's name.  Prints for people; returns the exit code: 0 done, 1 failed, 2 usage. */
int vx_engine_tool(int count, char **arguments);

/* Reads and checks a model without a device, for `voxeld check`.  Writes a table for
 * people to `text`, cut to text_bytes: layers, ops, shapes, parameters, notes.  Allocates
 * memory and frees it; not for a thread that serves.  Fails as vx_engine_load. */
VX_MUST_USE vx_status vx_model_describe(const struct vx_model_source *source,
                                        struct vx_why *why,
                                        struct vx_signature *signature, char *text,
                                        size_t text_bytes);

#endif
