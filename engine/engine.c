/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/run/backend_cpu.h"
#include "engine/gpu/run/backend_gpu.h"
#include "engine/model/model.h"

#define ENGINE_MAGIC 0x7678454eu /* "vxEN" */

/* Less than this holds no useful request: the setting lacks its unit. */
#define DEVICE_BYTES_MIN (1 << 20)

struct vx_engine {
    u32 magic;
    const struct vx_backend *backend;
    void *device; /* the backend's state */
    i32 under_way;
};

static const struct vx_backend *backend_of(enum vx_device_kind kind)
{
    return kind == VX_DEVICE_CPU ? &vx_backend_cpu : &vx_backend_gpu;
}

vx_status vx_engine_open(const struct vx_engine_options *options, struct vx_why *why,
                         struct vx_engine **engine)
{
    VX_ON(DEVICE);
    *engine = NULL;
    VX_ENSURE_WHY(options->device_bytes >= DEVICE_BYTES_MIN, why, INVALID_ARGUMENT,
                  "the device memory is too small",
                  "device_bytes: expected at least %d, got %zu", DEVICE_BYTES_MIN,
                  options->device_bytes);
    struct vx_engine *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for an engine");
    made->magic = ENGINE_MAGIC;
    made->backend = backend_of(options->kind);
    vx_status status = made->backend->open(options, why, &made->device);
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
    it->backend->close(&it->device);
    vx_free(it);
}

vx_status vx_engine_load(struct vx_engine *engine, const struct vx_model_source *source,
                         const struct vx_progress *progress, struct vx_why *why,
                         struct vx_model **model)
{
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    return engine->backend->load(engine->device, source, progress, why, model);
}

vx_status vx_engine_warm_step(struct vx_engine *engine, struct vx_model *model,
                              struct vx_why *why, struct vx_warm *warm)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    *warm = (struct vx_warm){0};
    return engine->backend->warm(engine->device, model, why, warm);
}

vx_status vx_engine_warm(struct vx_engine *engine, struct vx_model *model,
                         struct vx_why *why)
{
    struct vx_warm warm = {.more = true};
    while (warm.more) VX_TRY(vx_engine_warm_step(engine, model, why, &warm));
    return VX_OK;
}

void vx_engine_unload(struct vx_engine *engine, struct vx_model **model)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    if (*model) engine->backend->unload(engine->device, model);
}

bool vx_engine_has_room(const struct vx_engine *engine)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    return engine->under_way < VX_ENGINE_BATCHES_MAX;
}

i32 vx_engine_under_way(const struct vx_engine *engine)
{
    return engine->under_way;
}

void vx_engine_submit(struct vx_engine *engine, struct vx_model *model,
                      struct vx_batch *batch)
{
    VX_ASSERT(vx_engine_has_room(engine));
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    VX_ASSERT(batch->items_count > 0);
    VX_ASSERT(batch->items_count <= VX_BATCH_ITEMS_MAX);
    for (i32 i = 0; i < batch->items_count; i++) vx_item_begin(&batch->items[i]);
    batch->device_ns = 0;
    batch->next = NULL;
    engine->under_way++;
    engine->backend->submit(engine->device, model, batch);
}

struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    if (!engine->under_way) return NULL;
    struct vx_batch *batch = engine->backend->collect(engine->device, wait);
    VX_ASSERT(batch || !wait);
    if (batch) engine->under_way--;
    return batch;
}

void vx_engine_run(struct vx_engine *engine, struct vx_model *model,
                   struct vx_batch *batch)
{
    VX_ASSERT(!engine->under_way); /* else collect could return another batch */
    vx_engine_submit(engine, model, batch);
    VX_ASSERT(vx_engine_collect(engine, true) == batch);
}

void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    engine->backend->stats(engine->device, stats);
    stats->numa_node = vx_engine_numa_node(engine);
}

i32 vx_engine_numa_node(const struct vx_engine *engine)
{
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    return engine->backend->numa_node(engine->device);
}

bool vx_engine_lost(const struct vx_engine *engine, struct vx_why *why)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    return engine->backend->lost(engine->device, why);
}

/* --- memory of other processes --- */

vx_status vx_engine_pin(struct vx_engine *engine, void *memory, size_t bytes,
                        struct vx_why *why)
{
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    VX_ENSURE_WHY(engine->backend->pin, why, UNIMPLEMENTED,
                  "the CPU device does not page-lock memory",
                  "the CPU device does not page-lock memory");
    return engine->backend->pin(engine->device, memory, bytes, why);
}

void vx_engine_unpin(struct vx_engine *engine, void *memory)
{
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    if (engine->backend->unpin) engine->backend->unpin(engine->device, memory);
}

vx_status vx_engine_import(struct vx_engine *engine, const u8 handle[VX_IPC_HANDLE_BYTES],
                           size_t bytes, struct vx_why *why, void **memory)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    *memory = NULL;
    VX_ENSURE_WHY(engine->backend->import, why, UNIMPLEMENTED,
                  "a CPU has no device memory", "a CPU has no device memory");
    return engine->backend->import(engine->device, handle, bytes, why, memory);
}

void vx_engine_release(struct vx_engine *engine, void **memory)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    if (*memory) engine->backend->release(engine->device, memory);
}

i32 vx_engine_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why)
{
    return backend_of(kind)->devices(kind, driver, why);
}
