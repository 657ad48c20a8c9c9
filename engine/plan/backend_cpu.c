/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/plan/backend.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/cpu/cpu.h"
#include "engine/geometry/geometry.h"
#include "engine/model/model.h"
#include "engine/plan/exec.h"

#include <stdio.h>
#include <sys/mman.h>

struct device {
    size_t bytes, cache_bytes;
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    struct vx_exec *exec;
    struct vx_batch *first, *last; /* ended batches that wait to be collected */
};

void vx_item_begin(struct vx_item *item)
{
    VX_ASSERT(item->voxels >= 0);
    VX_ASSERT(item->voxels <= VX_VOXELS_MAX);
    VX_ASSERT(item->coords_columns == 3 || item->coords_columns == 4);
    item->convert_ns = item->geometry_ns = item->compute_ns = item->output_ns = 0;
    item->pairs = 0;
    item->geometry_hit = item->geometry_kept = false;
    if (item->status.fault) return;
    item->why.text[0] = '\0';
    if (!item->voxels) return;
    size_t feat_bytes = vx_dtype_bytes(item->feats_dtype);
    VX_ASSERT(item->coords || vx_content_there(item->content));
    /* Coordinates that may change cannot have a coords_ref, the hash of bytes that the
     * front has read. */
    VX_ASSERT(!item->coords_change || (item->coords && !vx_content_there(item->content)));
    VX_ASSERT(item->coords_change || !(item->on_device & VX_ITEM_COORDS));
    VX_ASSERT(item->feats);
    VX_ASSERT(feat_bytes > 0);
    VX_ASSERT((uintptr_t)item->coords % sizeof(i32) == 0);
    VX_ASSERT((uintptr_t)item->feats % feat_bytes == 0);
}

void vx_warm_coords(i32 *rows, i64 n)
{
    i64 edge = 1;
    while (edge * edge < n) edge++;
    for (i64 i = 0; i < n; i++, rows += 4) {
        rows[0] = 0;
        rows[1] = (i32)(i / edge);
        rows[2] = (i32)(i % edge);
        rows[3] = 0;
    }
}

vx_status vx_warm_coords_open(i64 n, struct vx_why *why, i32 **rows)
{
    size_t bytes = (size_t)n * 4 * sizeof **rows;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *rows = NULL;
    VX_ENSURE_WHY(memory != MAP_FAILED, why, RESOURCE_EXHAUSTED,
                  "no memory for the warm-up's coordinates",
                  "warm-up with %lld voxels needs %zu bytes of memory", (long long)n,
                  bytes);
    *rows = memory;
    vx_warm_coords(*rows, n);
    return VX_OK;
}

void vx_warm_coords_close(i32 **rows, i64 n)
{
    munmap(*rows, (size_t)n * 4 * sizeof **rows);
    *rows = NULL;
}

i32 vx_warm_sizes(const struct vx_model *model, i64 sizes[VX_WARMUP_MAX])
{
    i32 count = 0;
    for (i32 i = 0; i < model->network->warmup_count; i++)
        if (model->network->warmup[i] <= model->signature.voxels_max)
            sizes[count++] = model->network->warmup[i];
    return count;
}

static void cpu_close(void **device)
{
    struct device *it = *device;
    *device = NULL;
    if (!it) return;
    vx_exec_close(&it->exec);
    if (it->cache) vx_geometry_close(&it->cache);
    if (it->cpu) vx_cpu_close(&it->cpu);
    vx_free(it);
}

static vx_status cpu_open_parts(struct device *device,
                                const struct vx_engine_options *options,
                                struct vx_why *why)
{
    VX_TRY(vx_cpu_open(options->threads, why, &device->cpu));
    VX_TRY(vx_geometry_open(options->cache_bytes, why, &device->cache));
    VX_TRY(vx_exec_open(options->device_bytes, device->cpu, device->cache, why,
                        &device->exec));
    vx_exec_tell(device->exec, &options->running);
    return VX_OK;
}

static vx_status cpu_open(const struct vx_engine_options *options, struct vx_why *why,
                          void **device)
{
    struct device *made = *device = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a device");
    made->bytes = options->device_bytes;
    made->cache_bytes = options->cache_bytes;
    vx_status status = cpu_open_parts(made, options, why);
    if (status.fault) cpu_close(device);
    return status;
}

/* Another thread may be using the device, so this reads only fields that never change
 * after open. */
static vx_status cpu_load(void *device, const struct vx_model_source *source,
                          const struct vx_progress *progress, struct vx_why *why,
                          struct vx_model **model)
{
    const struct device *it = device;
    const struct vx_model_options options = {it->bytes, it->cache_bytes, progress};
    return vx_model_open(source, &options, why, model);
}

static vx_status cpu_warm(void *device, struct vx_model *model, struct vx_why *why,
                          struct vx_warm *warm)
{
    struct device *it = device;
    i64 sizes[VX_WARMUP_MAX], pieces = vx_exec_warm_pieces(model->plan);
    warm->total = vx_warm_sizes(model, sizes) * pieces;
    if (model->warmed < warm->total) {
        const struct vx_exec_warm_piece piece = {sizes[model->warmed / pieces],
                                                 model->warmed % pieces};
        VX_TRY(vx_exec_warm(it->exec, model->plan, model->weights, &piece, why));
        model->warmed++;
    }
    warm->done = model->warmed;
    warm->more = warm->done < warm->total;
    return VX_OK;
}

static void cpu_unload(void *device, struct vx_model **model)
{
    (void)device;
    vx_model_close(model);
}

/* One request after the other, each on all cores: batching gains a CPU nothing. */
static void cpu_submit(void *device, struct vx_model *model, struct vx_batch *batch)
{
    struct device *it = device;
    i64 begin = vx_clock_ns();
    for (i32 i = 0; i < batch->items_count; i++) {
        struct vx_item *item = &batch->items[i];
        if (!vx_item_runs(item)) continue;
        VX_ASSERT(!item->coords_change && !item->on_device);
        vx_exec_run(it->exec, model->plan, model->weights, item);
    }
    batch->device_ns = vx_clock_ns() - begin;
    *(it->last ? &it->last->next : &it->first) = batch;
    it->last = batch;
}

static struct vx_batch *cpu_collect(void *device, bool wait)
{
    struct device *it = device;
    struct vx_batch *batch = it->first;
    VX_ASSERT(batch);
    (void)wait; /* a submitted batch has ended already */
    it->first = batch->next;
    if (!it->first) it->last = NULL;
    batch->next = NULL;
    return batch;
}

static void cpu_stats(const void *device, struct vx_engine_stats *stats)
{
    const struct device *it = device;
    struct vx_geometry_stats geometry;
    vx_geometry_stats_get(it->cache, &geometry);
    *stats = (struct vx_engine_stats){
        .device_bytes = (i64)vx_exec_bytes(it->exec),
        .device_bytes_used_max = (i64)vx_exec_used_max(it->exec),
        .cache_bytes = geometry.bytes,
        .cache_bytes_max = geometry.bytes_max,
        .cache_hits = geometry.hits,
        .cache_misses = geometry.misses,
        .cache_evictions = geometry.evictions,
    };
    snprintf(stats->device_name, sizeof stats->device_name, "cpu: %s",
             vx_cpu_name(it->cpu));
}

static bool cpu_lost(const void *device, struct vx_why *why)
{
    (void)device;
    (void)why;
    return false;
}

/* None: the CPU device computes on whatever cores the process has. */
static i32 cpu_numa_node(const void *device)
{
    (void)device;
    return -1;
}

const struct vx_backend vx_backend_cpu = {
    .open = cpu_open,
    .close = cpu_close,
    .load = cpu_load,
    .warm = cpu_warm,
    .unload = cpu_unload,
    .submit = cpu_submit,
    .collect = cpu_collect,
    .stats = cpu_stats,
    .lost = cpu_lost,
    .numa_node = cpu_numa_node,
};
