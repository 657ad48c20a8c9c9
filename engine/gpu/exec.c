/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/gpu/exec.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/cpu/cpu.h"
#include "engine/gpu/fake.h"
#include "engine/gpu/model_launch.h"
#include "engine/gpu/model_load.h"
#include "engine/gpu/model_tune.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DEVICE_MAGIC 0x76784744u /* "vxGD" */

/* Between which the parts of a request are timed. */
enum mark {
    MARK_BEGIN,
    MARK_GEOMETRY,
    MARK_FEATS,
    MARK_LAYERS,
    MARK_OUTPUTS,
    MARKS_COUNT
};

struct device {
    u32 magic;
    enum vx_gpu_vendor vendor;
    struct vx_gpu *gpu;
    struct vx_jit *jit;
    struct vx_kernel_set *set;
    struct vx_gpu_stream *stream;
    struct vx_blas_gpu *blas; /* NULL but where the explicit convolution is pinned */
    struct vx_gpu_event *marks[MARKS_COUNT];
    struct vx_pick pick;
    struct vx_tune_table *table; /* NULL = none; changed by tuning, under the lock */
    pthread_mutex_t table_lock;
    const char *table_path;
    char table_file[4096]; /* the same, when a folder was named; PATH_MAX */
    enum vx_tune_mode tune;
    struct vx_gpu_tune_counts tuned;
    void *block; /* of all requests, one at a time */
    size_t bytes, used_max;
    void *pinned; /* host memory */
    /* For the sentences about bad coordinates. */
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    /* What a request brings back besides its answers. */
    u32 fault[2];
    u64 pairs;
};

static enum vx_gpu_vendor vendor_of(enum vx_device_kind kind)
{
    if (kind == VX_DEVICE_CUDA) return VX_GPU_CUDA;
    if (kind == VX_DEVICE_HIP) return VX_GPU_HIP;
    VX_ASSERT(kind == VX_DEVICE_FAKE);
    return VX_GPU_FAKE;
}

i32 vx_engine_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why)
{
    if (kind == VX_DEVICE_CPU) return 1;
    const struct vx_gpu_options options = {.vendor = vendor_of(kind), .library = driver};
    return vx_gpu_count(&options, why);
}

/* A folder has one table for each kind of device: that of "NVIDIA H200" is
 * nvidia-h200.tune. */
static const char *table_of_folder(struct device *device, const char *path)
{
    struct stat about;
    if (!path || stat(path, &about) || !S_ISDIR(about.st_mode)) return path;
    size_t bytes = sizeof device->table_file;
    int length =
        snprintf(device->table_file, bytes, "%s/%s.tune", path, vx_gpu_name(device->gpu));
    if (length < 0 || (size_t)length >= bytes) return NULL;
    for (char *at = device->table_file + strlen(path); *at; at++) {
        if (*at == ' ') *at = '-';
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
    device->bytes = bytes;
    vx_status status = vx_gpu_alloc(device->gpu, bytes, why, &device->block);
    if (vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED &&
        !vx_gpu_memory_info(device->gpu, NULL, &have, &total).fault)
        vx_why_set(why,
                   "device_bytes: %zu bytes are more than %s has free: %zu of %zu bytes",
                   bytes, vx_gpu_name(device->gpu), have, total);
    return status;
}

/* Copies from memory that is not page-locked are slower, and that is all. */
static void open_host(struct device *device, const struct vx_gpu_settings *settings)
{
    struct vx_why why = {{0}};
    if (!settings->host) return;
    vx_status status =
        vx_gpu_host_pin(device->gpu, settings->host, settings->host_bytes, &why);
    if (status.fault)
        VX_LOG(GPU_PIN, VX_LOG_TEXT("why", vx_status_text(status, &why)));
    else
        device->pinned = settings->host;
}

/* The explicit convolution multiplies with the vendor's library where there is one. */
static void open_blas(struct device *device)
{
    struct vx_why why = {{0}};
    vx_status status =
        vx_blas_gpu_open(device->gpu, device->stream, NULL, &why, &device->blas);
    VX_LOG(GPU_BLAS, VX_LOG_TEXT("used", device->blas ? "yes" : "no"),
           VX_LOG_TEXT("why", status.fault ? vx_status_text(status, &why) : ""));
}

static vx_status open_parts(struct device *device,
                            const struct vx_engine_options *options, struct vx_why *why)
{
    static const struct vx_gpu_settings nothing_said;
    const struct vx_gpu_settings *settings = options->gpu ? options->gpu : &nothing_said;
    device->vendor = vendor_of(options->kind);
    const struct vx_gpu_options gpu = {device->vendor, settings->index, settings->driver};
    if (device->vendor == VX_GPU_FAKE && settings->lose_launch)
        vx_fake_set(&(struct vx_fake_settings){.lose_launch = settings->lose_launch});
    VX_TRY(vx_cpu_open(options->threads, why, &device->cpu));
    VX_TRY(vx_geometry_open(options->cache_bytes, why, &device->cache));
    VX_TRY(vx_gpu_open(&gpu, why, &device->gpu));
    VX_TRY(open_kernels(device, settings, why));
    VX_TRY(vx_gpu_stream_open(device->gpu, why, &device->stream));
    for (int i = 0; i < MARKS_COUNT; i++)
        VX_TRY(vx_gpu_event_open(device->gpu, why, &device->marks[i]));
    if (settings->algorithm == VX_CONV_EXPLICIT) open_blas(device);
    VX_TRY(open_block(device, options->device_bytes, why));
    open_host(device, settings);
    return VX_OK;
}

static void gpu_close(void **context)
{
    struct device *it = *context;
    *context = NULL;
    if (!it) return;
    VX_ON(DEVICE);
    VX_ASSERT(it->magic == DEVICE_MAGIC);
    it->magic = 0;
    if (it->pinned) vx_gpu_host_unpin(it->gpu, it->pinned);
    if (it->block) vx_gpu_free(it->gpu, &it->block);
    for (int i = 0; i < MARKS_COUNT; i++)
        if (it->marks[i]) vx_gpu_event_close(it->gpu, &it->marks[i]);
    vx_blas_gpu_close(&it->blas);
    if (it->stream) vx_gpu_stream_close(it->gpu, &it->stream);
    vx_kernel_set_close(&it->set);
    vx_jit_close(&it->jit);
    vx_gpu_close(&it->gpu);
    vx_tune_table_close(&it->table);
    pthread_mutex_destroy(&it->table_lock);
    if (it->cache) vx_geometry_close(&it->cache);
    if (it->cpu) vx_cpu_close(&it->cpu);
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
        .device = {device->set, device->jit, device->stream},
        .table = device->table,
        .lock = &device->table_lock,
        .bytes = device->bytes,
        .counts = &device->tuned,
    };
}

/* Reads of the device only what never changes after open, and the table under its lock. */
static vx_status gpu_load(void *context, const struct vx_model_source *source,
                          const struct vx_progress *progress, struct vx_why *why,
                          struct vx_model **model)
{
    struct device *device = context;
    const struct vx_gpu_load load = {.pick = &device->pick,
                                     .tune = device->tune,
                                     .tuner = tuner_of(device),
                                     .bytes = device->bytes};
    VX_ASSERT(device->magic == DEVICE_MAGIC);
    return vx_gpu_model_open(&load, source, progress, why, model);
}

/* Measures what the table does not know; a table that cannot be written is one that is
 * measured again. */
static vx_status prepare_tune(struct device *device, struct vx_model *model,
                              const struct vx_progress *progress, struct vx_why *why)
{
    struct vx_gpu_tuner tuner = tuner_of(device);
    tuner.progress = progress;
    struct vx_gpu_tune *tune = &model->gpu->tune;
    struct vx_why mine = {{0}};
    tuner.voxels_max = model->signature.voxels_max;
    if (!tune->count) return VX_OK;
    VX_TRY(vx_gpu_tune_run(tune, &tuner, model->gpu->choices, why));
    tune->count = 0;
    if (!device->table_path) return VX_OK;
    bool frozen = vx_alloc_thaw();
    vx_status status = vx_tune_table_write(device->table, device->table_path, &mine);
    if (frozen) vx_alloc_freeze();
    if (status.fault)
        VX_LOG(TUNE_FAILED, VX_LOG_TEXT("why", vx_status_text(status, &mine)));
    return VX_OK;
}

static vx_status gpu_prepare(void *context, struct vx_model *model,
                             const struct vx_progress *progress, struct vx_why *why)
{
    struct device *device = context;
    struct vx_gpu_weights *weights = model->gpu->weights;
    VX_ON(DEVICE);
    if (vx_gpu_weights_there(weights)) return VX_OK;
    VX_TRY(vx_gpu_weights_upload(weights, device->gpu, device->stream, why));
    return prepare_tune(device, model, progress, why);
}

static void gpu_unload(void *context, struct vx_model **model)
{
    struct device *device = context;
    VX_ON(DEVICE);
    vx_gpu_model_close(device->gpu, model);
}

/* The sentence for what does not fit. */
static vx_status run_check(const struct device *device, const struct vx_model *model,
                           i64 n, struct vx_why *why)
{
    struct vx_gpu_model *gpu = model->gpu;
    i64 fits = model->signature.voxels_max;
    VX_ENSURE_WHY(n <= gpu->choices->voxels_max, why, RESOURCE_EXHAUSTED,
                  "too many voxels for this model",
                  "expected at most %lld voxels, got %lld", (long long)fits,
                  (long long)n);
    vx_gpu_places_make(gpu->choices, n, &gpu->places);
    /* Kernels are ready for as many voxels as the signature says. */
    VX_ENSURE_WHY(n <= fits && gpu->places.bytes <= device->bytes, why,
                  RESOURCE_EXHAUSTED, "the request does not fit in the device memory",
                  "%lld voxels need %zu bytes of device memory (activations, neighbour "
                  "maps, workspaces), it has %zu: at most %lld voxels fit",
                  (long long)n, gpu->places.bytes, device->bytes, (long long)fits);
    return VX_OK;
}

static vx_status mark(struct device *device, enum mark index, struct vx_why *why)
{
    return vx_gpu_event_record(device->gpu, device->marks[index], device->stream, why);
}

static vx_status read_back(struct device *device, const struct vx_gpu_request *request,
                           struct vx_why *why)
{
    device->pairs = 0;
    VX_TRY(vx_gpu_copy_out(
        device->gpu, device->stream,
        &(struct vx_gpu_copy){device->fault, request->index.fault, sizeof device->fault},
        why));
    if (!request->places->maps_count) return VX_OK;
    return vx_gpu_copy_out(device->gpu, device->stream,
                           &(struct vx_gpu_copy){&device->pairs, request->maps[0].pairs,
                                                 sizeof device->pairs},
                           why);
}

/* Puts all of a request on the stream. */
static vx_status run_launch(struct device *device, const struct vx_model *model,
                            const struct vx_item *item, struct vx_why *why)
{
    struct vx_gpu_model *gpu = model->gpu;
    struct vx_gpu_request request = {
        .gpu = device->gpu,
        .queue = {device->set, device->stream, device->blas},
        .choices = gpu->choices,
        .places = &gpu->places,
        .weights = gpu->weights,
        .block = device->block,
        .maps = gpu->maps,
    };
    VX_TRY(mark(device, MARK_BEGIN, why));
    VX_TRY(vx_gpu_request_geometry(&request, item, why));
    VX_TRY(mark(device, MARK_GEOMETRY, why));
    VX_TRY(vx_gpu_request_feats(&request, item, why));
    VX_TRY(mark(device, MARK_FEATS, why));
    VX_TRY(vx_gpu_request_layers(&request, why));
    VX_TRY(mark(device, MARK_LAYERS, why));
    VX_TRY(vx_gpu_request_outputs(&request, item, why));
    VX_TRY(mark(device, MARK_OUTPUTS, why));
    return read_back(device, &request, why);
}

static vx_status run_times(struct device *device, struct vx_item *item)
{
    i64 *const times[] = {&item->geometry_ns, &item->convert_ns, &item->compute_ns,
                          &item->output_ns};
    for (int i = 0; i + 1 < MARKS_COUNT; i++) {
        f64 ns;
        VX_TRY(vx_gpu_event_elapsed(device->gpu, device->marks[i], device->marks[i + 1],
                                    &item->why, &ns));
        *times[i] = (i64)ns;
    }
    return VX_OK;
}

/* The device says that a coordinate is bad; which, the CPU's own check says. */
static vx_status run_bad_coords(struct device *device, struct vx_item *item)
{
    const struct vx_coords_view view = {item->coords, item->voxels, item->coords_columns};
    struct vx_geometry *geometry;
    vx_status status =
        vx_geometry_hold(device->cache, device->cpu, &view, &item->why, &geometry);
    if (vx_status_code(status) == VX_CODE_INVALID_ARGUMENT) return status;
    /* No room to search for it: a coordinate out of range would have been found. */
    VX_ENSURE_WHY(!status.fault, &item->why, INVALID_ARGUMENT,
                  "a voxel appears twice in coords",
                  "a voxel appears twice in coords; each voxel may appear once");
    vx_geometry_drop(device->cache, &geometry);
    VX_FAIL_WHY(&item->why, INTERNAL, "the device refused coordinates that are good",
                "the device refused coordinates that are good (flags %u, %u)",
                device->fault[0], device->fault[1]);
}

/* On return nothing of the item is read or written any more. */
static vx_status run_wait(struct device *device, const struct vx_model *model,
                          const struct vx_item *item, struct vx_why *why)
{
    struct vx_why second = {{0}};
    vx_status status = run_launch(device, model, item, why);
    vx_status waited = vx_gpu_stream_wait(device->gpu, device->stream, &second);
    if (status.fault || !waited.fault) return status;
    if (why) *why = second;
    return waited;
}

static vx_status run_item(struct device *device, struct vx_model *model,
                          struct vx_item *item)
{
    size_t *used_max = &device->used_max;
    if (vx_gpu_lost(device->gpu, &item->why)) VX_FAIL(UNAVAILABLE, "the device is lost");
    VX_TRY(gpu_prepare(device, model, NULL, &item->why));
    VX_TRY(run_check(device, model, item->voxels, &item->why));
    if (model->gpu->places.bytes > *used_max) *used_max = model->gpu->places.bytes;
    VX_TRY(run_wait(device, model, item, &item->why));
    if (device->fault[0] || device->fault[1]) return run_bad_coords(device, item);
    item->pairs = (i64)device->pairs;
    return run_times(device, item);
}

static void gpu_run(void *context, struct vx_model *model, struct vx_item *item)
{
    struct device *device = context;
    VX_ON(DEVICE);
    VX_ASSERT(device->magic == DEVICE_MAGIC);
    VX_ASSERT(item->voxels > 0);
    item->status = run_item(device, model, item);
}

static vx_status gpu_warm(void *context, struct vx_model *model, i64 n,
                          struct vx_why *why)
{
    struct device *device = context;
    size_t bytes = (size_t)n * 4 * sizeof(i32);
    VX_TRY(run_check(device, model, n, why));
    void *coords =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VX_ENSURE_WHY(coords != MAP_FAILED, why, RESOURCE_EXHAUSTED,
                  "no memory for the warm-up's coordinates",
                  "warm-up with %lld voxels needs %zu bytes of memory", (long long)n,
                  bytes);
    vx_warm_coords(coords, n);
    const struct vx_item item = {.coords = coords, .coords_columns = 4, .voxels = n};
    vx_status status = run_wait(device, model, &item, why);
    munmap(coords, bytes);
    return status;
}

static void gpu_stats(const void *context, struct vx_engine_stats *stats)
{
    static const char *const words[] = {"cuda", "hip", "fake"};
    const struct device *device = context;
    struct vx_geometry_stats geometry;
    struct vx_jit_counts kernels;
    vx_geometry_stats_get(device->cache, &geometry);
    vx_jit_counts_get(device->jit, &kernels);
    *stats = (struct vx_engine_stats){
        .device_bytes = (i64)device->bytes,
        .device_bytes_used_max = (i64)device->used_max,
        .cache_bytes = geometry.bytes,
        .cache_bytes_max = geometry.bytes_max,
        .kernels_compiled = kernels.compiled,
        .kernels_cached = kernels.cached,
        .kernels_ns = kernels.build_ns,
        .tune_measured = device->tuned.measured,
        .tune_rejected = device->tuned.rejected,
    };
    snprintf(stats->device_name, sizeof stats->device_name, "%s: %.100s",
             words[device->vendor], vx_gpu_name(device->gpu));
}

static bool gpu_lost(const void *context, struct vx_why *why)
{
    const struct device *device = context;
    return vx_gpu_lost(device->gpu, why);
}

const struct vx_backend vx_backend_gpu = {
    .open = gpu_open,
    .close = gpu_close,
    .load = gpu_load,
    .prepare = gpu_prepare,
    .warm = gpu_warm,
    .unload = gpu_unload,
    .run = gpu_run,
    .stats = gpu_stats,
    .lost = gpu_lost,
};
