/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/gpu/run/backend_gpu.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/geometry.h"
#include "engine/gpu/driver/monitor.h"
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/model/model_tune.h"
#include "engine/gpu/run/batches.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DEVICE_MAGIC 0x76784744u /* "vxGD" */

struct device {
    u32 magic;
    enum vx_gpu_vendor vendor;
    struct vx_gpu *gpu;
    struct vx_jit *jit;
    struct vx_kernel_set *set;
    struct vx_pick pick;
    struct vx_tune_table *table; /* NULL = none; tuning changes it, under table_lock */
    pthread_mutex_t table_lock;
    const char *table_path;
    char table_file[4096]; /* table_path, if the setting names a folder; PATH_MAX */
    enum vx_tune_mode tune;
    struct vx_gpu_tune_counts tuned;
    void *block;  /* device memory of all rounds */
    void *pinned; /* the host memory of requests, if it is page-locked */
    struct vx_gpu_monitor *monitor;
    struct vx_gpu_batches batches;
};

static enum vx_gpu_vendor vendor_of(enum vx_device_kind kind)
{
    if (kind == VX_DEVICE_CUDA) return VX_GPU_CUDA;
    if (kind == VX_DEVICE_HIP) return VX_GPU_HIP;
    VX_ASSERT(kind == VX_DEVICE_FAKE);
    return VX_GPU_FAKE;
}

static i32 gpu_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why)
{
    const struct vx_gpu_options options = {.vendor = vendor_of(kind), .library = driver};
    return vx_gpu_count(&options, why);
}

/* A folder has one table per device name: nvidia-h200.tune for "NVIDIA H200". */
static const char *table_of_folder(struct device *device, const char *path)
{
    struct stat about;
    if (!path || stat(path, &about) || !S_ISDIR(about.st_mode)) return path;
    size_t bytes = sizeof device->table_file;
    int length =
        snprintf(device->table_file, bytes, "%s/%s.tune", path, vx_gpu_name(device->gpu));
    if (length < 0 || (size_t)length >= bytes) return NULL;
    for (char *at = device->table_file + strlen(path) + 1; *at; at++) {
        if (*at == ' ' || *at == '/') *at = '-'; /* "Radeon RX 7900 XT/7900 XTX" */
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at - 'A' + 'a');
    }
    return device->table_file;
}

static vx_status open_kernels(struct device *device,
                              const struct vx_gpu_settings *settings, struct vx_why *why)
{
    const struct vx_jit_options jit = {
        .arch = vx_gpu_arch(device->gpu),
        .directory = settings->kernel_cache,
        .cache_bytes = settings->kernel_cache_bytes,
        .compiler = settings->compiler,
        .texts = settings->kernel_texts,
    };
    const char *name = vx_gpu_name(device->gpu);
    VX_TRY(vx_jit_open(&jit, why, &device->jit));
    VX_TRY(vx_kernel_set_open(device->gpu, device->jit, why, &device->set));
    vx_pick_init(&device->pick, device->jit, vx_gpu_caps(device->gpu), name);
    device->pick.algorithm = settings->algorithm;
    device->tune = settings->tune;
    device->table_path = table_of_folder(device, settings->tune_table);
    if (!device->table_path && device->tune == VX_TUNE_TABLE) return VX_OK;
    VX_TRY(vx_tune_table_open(name, why, &device->table));
    device->pick.table = device->table;
    if (!device->table_path) return VX_OK;
    return vx_tune_table_read(device->table, device->table_path, why);
}

static vx_status open_block(struct device *device, size_t bytes, struct vx_why *why)
{
    size_t have = 0, total = 0;
    vx_status status = vx_gpu_alloc(device->gpu, bytes, why, &device->block);
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED &&
        !vx_gpu_memory_info(device->gpu, NULL, &have, &total).fault)
        vx_why_set(why,
                   "device_bytes: %zu bytes are more than %s has free: %zu of %zu bytes",
                   bytes, vx_gpu_name(device->gpu), have, total);
    device->batches.room.block = device->block;
    device->batches.room.bytes = bytes;
    device->batches.room.usual = bytes < VX_GPU_BRIEF_PARTS * VX_GPU_BRIEF_BYTES
                                     ? bytes
                                     : bytes - VX_GPU_BRIEF_BYTES;
    return status;
}

/* Page-locks the host memory of requests.  Without this, copies are only slower. */
static void open_host(struct device *device, const struct vx_gpu_settings *settings)
{
    struct vx_why why = {{0}};
    if (!settings->host) return;
    vx_status status =
        vx_gpu_host_pin(device->gpu, settings->host, settings->host_bytes, &why);
    if (status.fault) {
        VX_LOG(GPU_PIN, VX_LOG_TEXT("why", vx_status_text(status, &why)));
        return;
    }
    device->pinned = settings->host;
    device->batches.room.host =
        vx_gpu_host_reach(device->gpu, settings->host, settings->host_bytes);
}

/* The explicit convolution multiplies with the vendor's library if there is one. */
static void open_blas(struct device *device)
{
    for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++) {
        struct vx_gpu_queue *queue = &device->batches.slots[i].lane.queue;
        struct vx_why why = {{0}};
        vx_status status = vx_blas_gpu_open(device->gpu, NULL, &why, &queue->blas);
        VX_LOG(GPU_BLAS, VX_LOG_TEXT("used", queue->blas ? "yes" : "no"),
               VX_LOG_TEXT("why", status.fault ? vx_status_text(status, &why) : ""));
    }
}

static vx_status open_parts(struct device *device,
                            const struct vx_engine_options *options, struct vx_why *why)
{
    static const struct vx_gpu_settings nothing_said;
    const struct vx_gpu_settings *settings = options->gpu ? options->gpu : &nothing_said;
    device->vendor = vendor_of(options->kind);
    const struct vx_gpu_options gpu = {
        .vendor = device->vendor, .index = settings->index, .library = settings->driver};
    if (device->vendor == VX_GPU_FAKE && settings->lose_launch)
        vx_fake_set(&(struct vx_fake_settings){.lose_launch = settings->lose_launch});
    struct vx_gpu_room *room = &device->batches.room;
    VX_TRY(vx_cpu_open(options->threads, why, &room->cpu));
    VX_TRY(vx_geometry_open(options->cache_bytes, why, &room->cache));
    VX_TRY(vx_gpu_open(&gpu, why, &device->gpu));
    room->gpu = device->gpu;
    VX_TRY(open_kernels(device, settings, why));
    VX_TRY(open_block(device, options->device_bytes, why));
    VX_TRY(vx_gpu_store_open(device->gpu, options->cache_bytes, why, &room->store));
    VX_TRY(vx_gpu_batches_open(&device->batches, device->set, why));
    if (settings->algorithm == VX_CONV_EXPLICIT) open_blas(device);
    open_host(device, settings);
    return vx_gpu_monitor_open(device->gpu, NULL, why, &device->monitor);
}

static void gpu_close(void **context)
{
    struct device *it = *context;
    *context = NULL;
    if (!it) return;
    VX_ON(DEVICE);
    VX_ASSERT(it->magic == DEVICE_MAGIC);
    it->magic = 0;
    struct vx_gpu_room *room = &it->batches.room;
    vx_gpu_monitor_close(&it->monitor);
    vx_gpu_batches_close(&it->batches);
    if (it->pinned) vx_gpu_host_unpin(it->gpu, it->pinned);
    vx_gpu_store_close(&room->store);
    if (it->block) vx_gpu_free(it->gpu, &it->block);
    vx_kernel_set_close(&it->set);
    vx_jit_close(&it->jit);
    vx_gpu_close(&it->gpu);
    vx_tune_table_close(&it->table);
    pthread_mutex_destroy(&it->table_lock);
    if (room->cache) vx_geometry_close(&room->cache);
    if (room->cpu) vx_cpu_close(&room->cpu);
    vx_free(it);
}

static vx_status gpu_open(const struct vx_engine_options *options, struct vx_why *why,
                          void **context)
{
    struct device *made = *context = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a device");
    made->magic = DEVICE_MAGIC;
    pthread_mutex_init(&made->table_lock, NULL);
    vx_status status = open_parts(made, options, why);
    if (status.fault) gpu_close(context);
    return status;
}

static struct vx_gpu_tuner tuner_of(struct device *device)
{
    return (struct vx_gpu_tuner){
        .device = {device->set, device->jit,
                   device->batches.slots[0].lane.streams[0].main},
        .table = device->table,
        .lock = &device->table_lock,
        .bytes = device->batches.room.bytes,
        .counts = &device->tuned,
    };
}

/* On the loading thread: reads only what does not change after open, and the table
 * under its lock. */
static vx_status gpu_load(void *context, const struct vx_model_source *source,
                          const struct vx_progress *progress, struct vx_why *why,
                          struct vx_model **model)
{
    struct device *device = context;
    const struct vx_gpu_load load = {.gpu = device->gpu,
                                     .pick = &device->pick,
                                     .tune = device->tune,
                                     .tuner = tuner_of(device),
                                     .bytes = device->batches.room.usual};
    VX_ASSERT(device->magic == DEVICE_MAGIC);
    return vx_gpu_model_open(&load, source, progress, why, model);
}

/* Measures one candidate of a problem that the table lacks, and writes the table after
 * the last one.  A failed write is only logged: the next start measures again. */
static vx_status warm_tune(struct device *device, struct vx_model *model,
                           struct vx_why *why)
{
    struct vx_gpu_tuner tuner = tuner_of(device);
    struct vx_gpu_tune *tune = &model->gpu->tune;
    struct vx_why mine = {{0}};
    tuner.voxels_max = model->signature.voxels_max;
    VX_TRY(vx_gpu_tune_step(tune, &tuner, model->gpu->choices, why));
    if (vx_gpu_tune_more(tune) || !device->table_path) return VX_OK;
    bool frozen = vx_alloc_thaw();
    vx_status status = vx_tune_table_write(device->table, device->table_path, &mine);
    if (frozen) vx_alloc_freeze();
    if (status.fault)
        VX_LOG(TUNE_FAILED, VX_LOG_TEXT("why", vx_status_text(status, &mine)));
    return VX_OK;
}

static vx_status warm_upload(struct device *device, struct vx_model *model,
                             struct vx_why *why)
{
    return vx_gpu_weights_upload(model->gpu->weights,
                                 &device->batches.slots[0].lane.queue, why);
}

static void gpu_unload(void *context, struct vx_model **model)
{
    struct device *device = context;
    VX_ON(DEVICE);
    VX_ASSERT(!vx_gpu_batches_use(&device->batches, *model));
    vx_gpu_model_close(device->gpu, model);
}

static void gpu_submit(void *context, struct vx_model *model, struct vx_batch *batch)
{
    struct device *device = context;
    struct vx_why why = {{0}};
    VX_ON(DEVICE);
    VX_ASSERT(device->magic == DEVICE_MAGIC);
    vx_status status = VX_OK;
    if (!vx_gpu_weights_there(model->gpu->weights)) { /* the model was not warmed up */
        vx_gpu_batches_drain(&device->batches);
        status = warm_upload(device, model, &why);
    }
    if (status.fault)
        vx_gpu_batches_refuse(&device->batches, batch, status, &why);
    else
        vx_gpu_batches_submit(&device->batches, model, batch);
}

static struct vx_batch *gpu_collect(void *context, bool wait)
{
    struct device *device = context;
    return vx_gpu_batches_collect(&device->batches, wait);
}

static void gpu_place(void *context, struct vx_batch *batch, i32 item)
{
    struct device *device = context;
    (void)batch;
    (void)item;
    vx_gpu_batches_placed(&device->batches);
}

static vx_status warm_run(struct device *device, struct vx_model *model, i64 n,
                          struct vx_why *why)
{
    i32 *coords;
    VX_TRY(vx_warm_coords_open(n, why, &coords));
    struct vx_item item = {
        .coords = coords, .coords_columns = 4, .voxels = n, .warms = true};
    vx_warm_shape(model->plan->sets[0].shape, n, item.shape);
    vx_gpu_batches_run(&device->batches, model, &item);
    vx_warm_coords_close(&coords, n);
    /* What features of zeros make of sets that follow from logits says nothing about
     * requests: too many voxels, or logits that are no numbers, are no reason to refuse
     * the model. */
    const enum vx_code code = vx_status_code(item.status);
    const bool made_up = model->plan->stages_count > 1;
    if (made_up &&
        (code == VX_CODE_RESOURCE_EXHAUSTED || code == VX_CODE_INVALID_ARGUMENT))
        return VX_OK;
    if (item.status.fault && why) *why = item.why;
    return vx_warm_ended(model, n, item.status, why);
}

/* One step: uploads the weights, or else measures the next candidate, or else runs the
 * next warm-up size. */
static vx_status gpu_warm(void *context, struct vx_model *model, struct vx_why *why,
                          struct vx_warm *warm)
{
    struct device *device = context;
    struct vx_gpu_tune *tune = &model->gpu->tune;
    i64 sizes[VX_WARMUP_MAX];
    i32 sizes_count = vx_warm_sizes(model, sizes);
    VX_ON(DEVICE);
    /* A measurement needs the device for itself. */
    vx_gpu_batches_drain(&device->batches);
    if (!vx_gpu_weights_there(model->gpu->weights)) {
        VX_TRY(warm_upload(device, model, why));
    } else if (vx_gpu_tune_more(tune)) {
        VX_TRY(warm_tune(device, model, why));
    } else if (model->warmed < sizes_count) {
        VX_TRY(warm_run(device, model, sizes[model->warmed], why));
        model->warmed++;
    }
    warm->tuning = vx_gpu_tune_more(tune);
    warm->done = warm->tuning ? tune->done : model->warmed;
    warm->total = warm->tuning ? tune->count : sizes_count;
    warm->more = warm->done < warm->total;
    return VX_OK;
}

static void gpu_stats(const void *context, struct vx_engine_stats *stats)
{
    static const char *const words[] = {"cuda", "hip", "fake"};
    const struct device *device = context;
    const struct vx_gpu_room *room = &device->batches.room;
    struct vx_gpu_store_stats geometry;
    struct vx_jit_counts kernels;
    vx_gpu_store_stats_get(room->store, &geometry);
    vx_jit_counts_get(device->jit, &kernels);
    *stats = (struct vx_engine_stats){
        .device_bytes = (i64)room->bytes,
        .device_bytes_used_max = (i64)room->used_max,
        .cache_bytes = geometry.bytes,
        .cache_bytes_max = geometry.bytes_max,
        .cache_hits = geometry.hits,
        .cache_misses = geometry.misses,
        .cache_evictions = geometry.evictions,
        .kernels_compiled = kernels.compiled,
        .kernels_cached = kernels.cached,
        .kernels_ns = kernels.build_ns,
        .tune_measured = device->tuned.measured,
        .tune_rejected = device->tuned.rejected,
    };
    snprintf(stats->device_name, sizeof stats->device_name, "%s: %.100s",
             words[device->vendor], vx_gpu_name(device->gpu));
    vx_gpu_monitor_get(device->monitor, &stats->gpu);
}

static bool gpu_lost(const void *context, struct vx_why *why)
{
    const struct device *device = context;
    return vx_gpu_lost(device->gpu, why);
}

static i32 gpu_numa_node(const void *context)
{
    const struct device *device = context;
    return vx_gpu_numa_node(device->gpu);
}

/* --- memory of other processes --- */

/* Faults the pages in first, because the driver blocks every other call while it locks
 * pages: on an H200, 4 ms for 64 MiB of resident pages and 60 ms for untouched ones.  If
 * the system has no MADV_POPULATE_WRITE, the driver faults them in. */
static vx_status gpu_pin(void *context, void *memory, size_t bytes, struct vx_why *why)
{
    struct device *device = context;
    (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
    return vx_gpu_host_pin(device->gpu, memory, bytes, why);
}

static void gpu_unpin(void *context, void *memory)
{
    struct device *device = context;
    vx_gpu_host_unpin(device->gpu, memory);
}

static vx_status gpu_import(void *context, const u8 handle[VX_IPC_HANDLE_BYTES],
                            size_t bytes, struct vx_why *why, void **memory)
{
    struct device *device = context;
    _Static_assert(VX_IPC_HANDLE_BYTES == VX_GPU_IPC_BYTES, "one handle");
    return vx_gpu_import(device->gpu, handle, bytes, why, memory);
}

static void gpu_release(void *context, void **memory)
{
    struct device *device = context;
    vx_gpu_release(device->gpu, memory);
}

const struct vx_backend vx_backend_gpu = {
    .devices = gpu_devices,
    .open = gpu_open,
    .close = gpu_close,
    .load = gpu_load,
    .warm = gpu_warm,
    .unload = gpu_unload,
    .submit = gpu_submit,
    .collect = gpu_collect,
    .place = gpu_place,
    .stats = gpu_stats,
    .lost = gpu_lost,
    .numa_node = gpu_numa_node,
    .pin = gpu_pin,
    .unpin = gpu_unpin,
    .import = gpu_import,
    .release = gpu_release,
};
