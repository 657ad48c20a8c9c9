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
    struct vx_batch *batches[VX_ENGINE_BATCHES_MAX]; /* under way, in no order */
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

/* True if an item has asked, and has not been placed. */
static bool engine_asks(const struct vx_engine *engine)
{
    for (i32 b = 0; b < engine->under_way; b++) {
        const struct vx_batch *batch = engine->batches[b];
        for (i32 i = 0; i < batch->items_count; i++) {
            enum vx_asking asking = batch->items[i].asking;
            if (asking == VX_ASKING_OPEN || asking == VX_ASKING_TOLD) return true;
        }
    }
    return false;
}

vx_status vx_engine_warm_step(struct vx_engine *engine, struct vx_model *model,
                              struct vx_why *why, struct vx_warm *warm)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    VX_ASSERT(model->magic == VX_MODEL_MAGIC);
    VX_ASSERT(!engine_asks(engine));
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
    batch->aside = false;
    batch->taken_count = 0;
    batch->open = 0;
    batch->next = NULL;
    engine->batches[engine->under_way++] = batch;
    engine->backend->submit(engine->device, model, batch);
}

struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    if (!engine->under_way) return NULL;
    struct vx_batch *batch = engine->backend->collect(engine->device, wait);
    VX_ASSERT(batch || !wait || engine_asks(engine));
    if (!batch) return NULL;
    for (i32 i = 0; i < engine->under_way; i++)
        if (engine->batches[i] == batch)
            engine->batches[i] = engine->batches[engine->under_way - 1];
    engine->under_way--;
    return batch;
}

void vx_engine_run(struct vx_engine *engine, struct vx_model *model,
                   struct vx_batch *batch)
{
    VX_ASSERT(!engine->under_way); /* else collect could return another batch */
    for (i32 i = 0; i < batch->items_count; i++) VX_ASSERT(!batch->items[i].asks);
    vx_engine_submit(engine, model, batch);
    VX_ASSERT(vx_engine_collect(engine, true) == batch);
}

bool vx_engine_asked(struct vx_engine *engine, struct vx_asked *asked)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    asked->count = 0;
    for (i32 b = 0; b < engine->under_way && !asked->count; b++) {
        struct vx_batch *batch = engine->batches[b];
        asked->batch = batch;
        for (i32 i = 0; i < batch->items_count && batch->open; i++) {
            if (batch->items[i].asking != VX_ASKING_OPEN) continue;
            batch->items[i].asking = VX_ASKING_TOLD;
            batch->open--;
            asked->items[asked->count++] = i;
        }
    }
    return asked->count > 0;
}

void vx_engine_place(struct vx_engine *engine, struct vx_batch *batch, i32 item)
{
    VX_ON(DEVICE);
    VX_ASSERT(engine->magic == ENGINE_MAGIC);
    VX_ASSERT(item >= 0);
    VX_ASSERT(item < batch->items_count);
    struct vx_item *it = &batch->items[item];
    VX_ASSERT(it->asking == VX_ASKING_TOLD);
    for (i32 o = 0; o < VX_OUTPUTS_MAX && !it->status.fault; o++)
        VX_ASSERT(!(it->asks >> o & 1) || !it->rows[o] || it->outputs[o]);
    it->asking = VX_ASKING_PLACED;
    engine->backend->place(engine->device, batch, item);
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
