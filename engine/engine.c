/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include "engine/base/alloc.h"
#include "engine/base/check.h"
#include "engine/base/thread.h"
#include "engine/cpu/cpu.h"
#include "engine/geometry/geometry.h"
#include "engine/model/model.h"
#include "engine/plan/exec.h"

#include <stdio.h>

#define ENGINE_MAGIC 0x7678454eu /* "vxEN" */

/* Less than this holds no useful request and is a unit forgotten in a setting. */
#define DEVICE_BYTES_MIN (1 << 20)

struct vx_engine {
    u32 magic;
    size_t device_bytes;
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    struct vx_exec *exec;
};

static vx_status engine_open_parts(struct vx_engine *engine,
                                   const struct vx_engine_options *options,
                                   struct vx_why *why)
{
    VX_ENSURE_WHY(options->device_bytes >= DEVICE_BYTES_MIN, why, INVALID_ARGUMENT,
                  "the device memory is too small",
                  "device_bytes: expected at least %d, got %zu", DEVICE_BYTES_MIN,
                  options->device_bytes);
    VX_TRY(vx_cpu_open(options->threads, why, &engine->cpu));
    VX_TRY(vx_geometry_open(options->cache_bytes, why, &engine->cache));
    return vx_exec_open(options->device_bytes, engine->cpu, engine->cache, why,
                        &engine->exec);
}

vx_status vx_engine_open(const struct vx_engine_options *options, struct vx_why *why,
                         struct vx_engine **engine)
{
    VX_ON(DEVICE);
    VX_ASSERT(options->kind == VX_DEVICE_CPU);
    *engine = NULL;
    struct vx_engine *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for an engine");
    made->magic = ENGINE_MAGIC;
    made->device_bytes = options->device_bytes;
    vx_status status = engine_open_parts(made, options, why);
    if (status.fault)
        vx_engine_close(&made);
    else
        *engine = made;
    return status;
}

void vx_engine_close(struct vx_engine **engine)
{
    struct vx_engine *it = *engine;
    *engine = NULL;
    if (!it) return;
    VX_ON(DEVICE);
    VX_ASSERT(it->magic == ENGINE_MAGIC);
    it->magic = 0;
    vx_exec_close(&it->exec);
    if (it->cache) vx_geometry_close(&it->cache);
    if (it->cpu) vx_cpu_close(&it->cpu);
    vx_free(it);
}

/* Reads of the engine only what never changes after open: another thread may be running
 * it. */
vx_status vx_engine_load(struct vx_engine *engine, const struct vx_model_source *source,
                         const struct vx_progress *progress, struct vx_why *why,
                         struct vx_model **model)
{
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    const struct vx_model_options options = {engine->device_bytes, progress};
    return vx_model_open(source, &options, why, model);
}

vx_status vx_engine_warm(struct vx_engine *engine, struct vx_model *model,
                         struct vx_why *why)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    for (i32 i = 0; i < model->network->warmup_count; i++) {
        i64 voxels = model->network->warmup[i];
        if (voxels > model->signature.voxels_max)
            continue; /* of the defaults, too many here */
        VX_TRY(vx_exec_warm(engine->exec, model->plan, model->weights, voxels, why));
    }
    return VX_OK;
}

void vx_engine_unload(struct vx_engine *engine, struct vx_model **model)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    vx_model_close(model);
}

void vx_engine_run(struct vx_engine *engine, struct vx_model *model,
                   struct vx_batch *batch)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    for (i32 i = 0; i < batch->items_count; i++)
        vx_exec_run(engine->exec, model->plan, model->weights, &batch->items[i]);
}

void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats)
{
    struct vx_geometry_stats geometry;
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    vx_geometry_stats_get(engine->cache, &geometry);
    *stats = (struct vx_engine_stats){
        .device_bytes = (i64)vx_exec_bytes(engine->exec),
        .device_bytes_used_max = (i64)vx_exec_used_max(engine->exec),
        .cache_bytes = geometry.bytes,
        .cache_bytes_max = geometry.bytes_max,
        .cache_hits = geometry.hits,
        .cache_misses = geometry.misses,
        .cache_evictions = geometry.evictions,
    };
    snprintf(stats->device_name, sizeof stats->device_name, "cpu: %s",
             vx_cpu_name(engine->cpu));
}
