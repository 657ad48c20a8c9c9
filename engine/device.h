/* device - the settings of a device, and what is reported of one.
 *
 * Owner    values; strings and pointers are borrowed as each field says.
 * Thread   any.
 * Limits   engine/base/limits.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_DEVICE_H
#define VX_ENGINE_DEVICE_H

#include "engine/base/limits.h"
#include "engine/base/status.h"

/* FAKE, for tests: device memory is host memory, kernels are their references. */
enum vx_device_kind { VX_DEVICE_CPU, VX_DEVICE_CUDA, VX_DEVICE_HIP, VX_DEVICE_FAKE };

/* How a GPU computes a convolution; engine/gpu/conv/conv.h describes each algorithm. */
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
    const char *driver;       /* path of libcuda or libamdhip64; NULL = search */
    const char *compiler;     /* path of libnvrtc, or AMD's compiler; NULL = search */
    const char *kernel_cache; /* directory of compiled kernels; NULL = no cache */
    i64 kernel_cache_bytes;   /* most bytes of the cache; 0 = the default, 1 GiB */
    const char *kernel_texts; /* folder to read kernel texts from; NULL = the built-in */
    const char *tune_table; /* tuning results: file, or folder of DEVICE.tune; or NULL */
    enum vx_tune_mode tune;
    enum vx_conv_algorithm algorithm; /* for every layer; AUTO = the engine chooses */
    /* Host memory that holds requests: page-locked at open, unlocked at close; copies are
     * slower if the driver refuses.  Kernels may read and write small requests in it until
     * their batch has ended.  NULL = none. */
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
    /* CPU device only: the maps and layers that the running request has done, and the same numbers
     * again while one of them goes on.  The report may submit, place, unload and collect without
     * waiting: a brief batch can end there.  A GPU's batches do not occupy the device thread. */
    struct vx_progress running;
};

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
    i32 numa_node; /* as vx_engine_numa_node */
    i32 threads;   /* that share a CPU device's work; a brief batch has one. GPU: 0 */
    struct vx_gpu_stats gpu; /* zeros for the CPU */
};

/* Of a handle that one process gives another for device memory; CUDA and HIP alike. */
#define VX_IPC_HANDLE_BYTES 64

/* State of a model's warm-up after a step. */
struct vx_warm {
    bool more;   /* steps are left; false = the model is ready */
    bool tuning; /* done and total count convolutions to tune; else warm-up steps */
    i64 done, total;
};

/* "masked[128,64,64,4,8,1,1,2] sparse: stem conv1; implicit[64,64,64,4,4,1,1,3]: head": the
 * layers by what computed them, in the order of the first of each. */
struct vx_taken {
    char text[VX_TAKEN_BYTES];
};

#endif
