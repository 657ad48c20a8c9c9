/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/run/backend_cpu.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/geometry.h"
#include "engine/cpu/geometry/room.h"
#include "engine/cpu/run/exec.h"
#include "engine/model/model.h"
#include "engine/model/taken.h"

#include <stdio.h>
#include <string.h>

/* A batch that takes less is not interrupted: who waits for it waits a moment. */
#define LONG_NS (100 * VX_NS_PER_MS)

/* A batch, and how far it is: the items before `at` have ended. */
struct run {
    struct vx_model *model;
    struct vx_batch *batch;
    i32 at;
    i64 begun_ns; /* 0 = it has not */
    bool waits;   /* its next item has no room beside the batch before */
};

struct device {
    size_t bytes, cache_bytes;
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    struct vx_exec *exec;
    /* Submitted batches in their order.  The first one has begun; the second one begins when it has
     * ended, or if it is brief while it goes on. */
    struct run runs[VX_ENGINE_BATCHES_MAX];
    i32 runs_count;
    bool advances; /* an item of the first batch runs: calls come from its report */
};

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

static size_t plan_need(const void *context, i64 n)
{
    return vx_plan_bytes_max(context, n);
}

static size_t geometry_need(const void *context, i64 n)
{
    const struct vx_plan *plan = context;
    i64 rows[VX_SETS_MAX], candidates[VX_SETS_MAX] = {0};
    i32 stages[VX_SETS_MAX];
    vx_sets_rows_max(plan->sets, plan->sets_count, n, rows);
    for (i32 i = 0; i < plan->sets_count; i++) {
        const struct vx_set *set = &plan->sets[i];
        if (i) candidates[i] = vx_set_candidates_max(set, rows[set->key.from]);
        stages[i] = set->stage;
    }
    return vx_geometry_room(&(struct vx_geometry_need){.sets_count = plan->sets_count,
                                                       .rows = rows,
                                                       .candidates = candidates,
                                                       .stages = stages,
                                                       .maps = plan->maps_by_size,
                                                       .maps_count = plan->maps_count});
}

static vx_status cpu_fit(const struct device *device, struct vx_model *model,
                         struct vx_why *why)
{
    char what[VX_PLAN_NEED_BYTES];
    struct vx_model_room room = {.bytes = device->bytes,
                                 .need = plan_need,
                                 .context = model->plan,
                                 .memory = "device memory",
                                 .bound = VX_BOUND_DEVICE_BYTES,
                                 .what = what};
    vx_plan_need_text(model->plan, what);
    VX_TRY(vx_model_fit(model, &room, why));
    room.bytes = device->cache_bytes;
    room.need = geometry_need;
    room.memory = "geometry cache";
    room.bound = VX_BOUND_CACHE_BYTES;
    snprintf(what, sizeof what, "%d maps", model->plan->maps_count);
    return vx_model_fit(model, &room, why);
}

/* Another thread may be using the device, so this reads only fields that never change
 * after open. */
static vx_status cpu_load(void *device, const struct vx_model_source *source,
                          const struct vx_progress *progress, struct vx_why *why,
                          struct vx_model **model)
{
    vx_status status;
    struct vx_model *made;
    *model = NULL;
    VX_TRY(vx_model_begin(source, false, why, &made));
    VX_TRY_OR(status, out, cpu_fit(device, made, why));
    VX_TRY_OR(status, out, vx_model_finish(made, progress, why));
    *model = made;
    return VX_OK;
out:
    vx_model_close(&made);
    return status;
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
        const vx_status status =
            vx_exec_warm(it->exec, model->plan, model->weights, &piece, why);
        VX_TRY(vx_warm_ended(model, piece.voxels, status, why));
        /* The pieces behind one that fails are none. */
        model->warmed += status.fault ? pieces - piece.index : 1;
    }
    warm->done = model->warmed;
    warm->more = warm->done < warm->total;
    return VX_OK;
}

static void cpu_unload(void *device, struct vx_model **model)
{
    const struct device *it = device;
    for (i32 i = 0; i < it->runs_count; i++) VX_ASSERT(it->runs[i].model != *model);
    vx_model_close(model);
}

/* An item that asks: first its geometry, then, when the caller knows what it asks for, its
 * layers, and its outputs once they have places.  False: it waits for the caller. */
static bool asking_advance(struct device *device, const struct run *run,
                           struct vx_item *item)
{
    struct vx_model *model = run->model;
    switch (item->asking) {
    case VX_ASKING_NONE:
        if (!vx_exec_ask(device->exec, model->plan, model->weights, item)) return true;
        vx_item_ask(run->batch, item);
        return false;
    case VX_ASKING_OPEN: return false;
    case VX_ASKING_TOLD:
        vx_exec_go_on(device->exec);
        /* Its places may have come meanwhile: the caller heard of its work. */
        if (item->asking != VX_ASKING_PLACED) return false;
        vx_exec_end(device->exec);
        return true;
    case VX_ASKING_PLACED: vx_exec_end(device->exec); return true;
    }
    return true;
}

static void taken_how(const void *context, u32 key, char text[VX_TAKEN_HOW_BYTES])
{
    const char *const *names = context;
    snprintf(text, VX_TAKEN_HOW_BYTES, "%s", names[key]);
}

/* Which multiplier each product of the model takes: the same for all requests. */
static void say_taken(const struct device *device, const struct run *run,
                      struct vx_item *item)
{
    const struct vx_plan *plan = run->model->plan;
    struct vx_taken_layer layers[VX_LAYERS_MAX];
    struct vx_taken taken;
    const char *names[2] = {vx_cpu_loops_name(device->cpu)};
    i32 count = 0;
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_layer *layer = plan->launches[i].node->layer;
        const bool product = vx_launch_is_product(&plan->launches[i]);
        if (!product && !vx_op_is_conv(plan->launches[i].op)) continue;
        const char *name = names[0]; /* of groups */
        if (product)
            name = vx_cpu_multiplier(device->cpu, layer->channels_in, layer->channels);
        const bool wide = strcmp(name, names[0]) != 0;
        if (wide) names[1] = name;
        layers[count++] = (struct vx_taken_layer){layer->name, wide};
    }
    vx_taken_print(layers, count, &(struct vx_taken_how){taken_how, names}, &taken);
    vx_item_say_taken(run->batch, item, taken.text);
}

/* One request after the other, each on all cores: batching gains a CPU nothing.  Runs the
 * first batch to its end, or to an item that waits for the caller. */
static void cpu_advance(struct device *device)
{
    struct run *run = device->runs;
    if (!run->begun_ns) run->begun_ns = vx_clock_ns();
    i64 begin = vx_clock_ns() - vx_exec_aside_ns(device->exec);
    device->advances = true;
    for (bool goes = true; goes && run->at < run->batch->items_count; run->at += goes) {
        struct vx_item *item = &run->batch->items[run->at];
        VX_ASSERT(!item->coords_change && !item->on_device);
        if (item->asking != VX_ASKING_NONE || (vx_item_runs(item) && item->asks))
            goes = asking_advance(device, run, item);
        else if (vx_item_runs(item))
            vx_exec_run(device->exec, run->model->plan, run->model->weights, item);
        if (goes && item->says_taken && vx_item_runs(item)) say_taken(device, run, item);
    }
    device->advances = false;
    run->batch->device_ns += vx_clock_ns() - vx_exec_aside_ns(device->exec) - begin;
}

static bool first_has_ended(const struct device *device)
{
    return device->runs[0].at == device->runs[0].batch->items_count;
}

static void cpu_submit(void *device, struct vx_model *model, struct vx_batch *batch)
{
    struct device *it = device;
    VX_ASSERT(it->runs_count < VX_ENGINE_BATCHES_MAX);
    it->runs[it->runs_count++] = (struct run){.model = model, .batch = batch};
    if (it->runs_count == 1) cpu_advance(it);
}

/* Runs what it can of a brief batch while an item of the first one goes on: between two pieces of its
 * work, on the device thread alone.  Returns the batch if that was all. */
static struct vx_batch *aside_collect(struct device *device)
{
    if (device->runs_count < 2) return NULL;
    struct run *run = &device->runs[1];
    struct vx_batch *batch = run->batch;
    if (vx_clock_ns() - device->runs[0].begun_ns < LONG_NS) return NULL;
    /* Layers that decide how many voxels there are make no batch that is surely brief. */
    if (!batch->brief || run->waits || run->model->plan->stages_count > 1) return NULL;
    for (; run->at < batch->items_count; run->at++) {
        struct vx_item *item = &batch->items[run->at];
        if (!vx_item_runs(item)) continue;
        if (item->asks) return NULL;
        const i64 aside = vx_exec_aside_ns(device->exec);
        const bool ran = vx_exec_run_aside(device->exec, run->model->plan,
                                           run->model->weights, item, &run->waits);
        batch->device_ns += vx_exec_aside_ns(device->exec) - aside;
        if (!ran) return NULL;
        batch->aside = item->aside = true;
        if (item->says_taken && vx_item_runs(item)) say_taken(device, run, item);
    }
    device->runs_count--;
    return batch;
}

static struct vx_batch *cpu_collect(void *device, bool wait)
{
    struct device *it = device;
    VX_ASSERT(it->runs_count);
    (void)wait; /* it does not end by waiting */
    if (it->advances) return aside_collect(it);
    if (!first_has_ended(it)) cpu_advance(it);
    if (!first_has_ended(it)) return NULL;
    struct vx_batch *batch = it->runs[0].batch;
    it->runs_count--;
    for (i32 i = 0; i < it->runs_count; i++) it->runs[i] = it->runs[i + 1];
    return batch;
}

/* The next collect goes on with the item. */
static void cpu_place(void *device, struct vx_batch *batch, i32 item)
{
    const struct device *it = device;
    VX_ASSERT(it->runs_count);
    VX_ASSERT(it->runs[0].batch == batch);
    VX_ASSERT(it->runs[0].at == item);
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
        .threads = vx_cpu_threads(it->cpu),
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

static i32 cpu_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why)
{
    (void)kind;
    (void)driver;
    (void)why;
    return 1;
}

const struct vx_backend vx_backend_cpu = {
    .devices = cpu_devices,
    .open = cpu_open,
    .close = cpu_close,
    .load = cpu_load,
    .warm = cpu_warm,
    .unload = cpu_unload,
    .submit = cpu_submit,
    .collect = cpu_collect,
    .place = cpu_place,
    .stats = cpu_stats,
    .lost = cpu_lost,
    .numa_node = cpu_numa_node,
};
