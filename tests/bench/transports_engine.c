/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/transports.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"

#include <stdio.h>
#include <string.h>

struct floor {
    const struct transports_options *options;
    struct vx_engine *engine;
    struct vx_model *model;
    struct vx_coords_ref_key key;
};

/* Loading has a thread of its own, as in a worker. */
struct loading {
    struct vx_engine *engine;
    struct vx_model_source source;
    struct vx_model *model;
    vx_status status;
    struct vx_why why;
};

static void load_run(void *context)
{
    struct loading *loading = context;
    loading->status = vx_engine_load(loading->engine, &loading->source, NULL,
                                     &loading->why, &loading->model);
}

static void need(vx_status status, const char *what, const struct vx_why *why)
{
    transports_need(!status.fault, what, vx_status_text(status, why));
}

struct floor *floor_open(const struct transports_options *options)
{
    struct floor *floor = vx_alloc_zero(sizeof *floor);
    struct vx_why why = {""};
    transports_need(floor != NULL, "memory", "none for the engine");
    floor->options = options;
    const struct vx_gpu_settings gpu = {
        .index = transports_device_index(options->device),
        .kernel_cache = options->kernel_cache,
    };
    bool cpu = strcmp(options->device, "cpu") == 0;
    struct vx_engine_options engine = {
        .kind = cpu                                        ? VX_DEVICE_CPU
                : strncmp(options->device, "cuda", 4) == 0 ? VX_DEVICE_CUDA
                                                           : VX_DEVICE_FAKE,
        .gpu = cpu ? NULL : &gpu,
        .device_bytes = (size_t)options->device_bytes,
        .cache_bytes = (size_t)options->cache_bytes,
    };
    vx_coords_ref_key_make(&floor->key);
    vx_thread_enter(VX_ROLE_DEVICE);
    need(vx_engine_open(&engine, &why, &floor->engine), options->device, &why);
    return floor;
}

void floor_close(struct floor *floor)
{
    vx_engine_close(&floor->engine);
    vx_free(floor);
}

void floor_load(struct floor *floor, const char *model, struct subject *subject)
{
    char path[1024];
    pthread_t thread;
    struct vx_why why = {""};
    snprintf(path, sizeof path, "%s/%s", floor->options->repository, model);
    struct loading loading = {.engine = floor->engine,
                              .source = {.directory = path, .version = 1}};
    need(vx_thread_open(&thread, VX_ROLE_MAIN, load_run, &loading), model, NULL);
    pthread_join(thread, NULL);
    need(loading.status, model, &loading.why);
    floor->model = loading.model;
    need(vx_engine_warm(floor->engine, floor->model, &why), model, &why);
    const struct vx_signature *signature = vx_model_signature(floor->model);
    const struct vx_output *output = &signature->outputs[0];
    snprintf(subject->model, sizeof subject->model, "%s", model);
    snprintf(subject->output, sizeof subject->output, "%s", output->name);
    snprintf(subject->coords_name, sizeof subject->coords_name, "%s",
             signature->coords_name);
    snprintf(subject->feats_name, sizeof subject->feats_name, "%s",
             signature->feats_name);
    subject->channels = signature->feats_channels;
    subject->output_bytes = (size_t)output->channels * vx_dtype_bytes(output->dtype);
}

void floor_unload(struct floor *floor)
{
    vx_engine_unload(floor->engine, &floor->model);
}

/* Page-locked where there is a device to lock pages for. */
static u8 *pinned_take(struct floor *floor, size_t bytes)
{
    struct vx_why why = {""};
    u8 *memory = vx_alloc_aligned(transports_aligned(bytes));
    transports_need(memory != NULL, "memory", "none for the tensors");
    memset(memory, 0, transports_aligned(bytes));
    vx_status status =
        vx_engine_pin(floor->engine, memory, transports_aligned(bytes), &why);
    transports_need(!status.fault || vx_status_code(status) == VX_CODE_UNIMPLEMENTED,
                    "page-locking", vx_status_text(status, &why));
    return memory;
}

static void pinned_give(struct floor *floor, u8 *memory)
{
    if (strcmp(floor->options->device, "cpu") != 0)
        vx_engine_unpin(floor->engine, memory);
    vx_free(memory);
}

static void check(struct subject *subject, const u8 *output, struct samples *samples)
{
    if (!subject->known) memcpy(subject->expected, output, subject->output_bytes);
    subject->known = true;
    samples->wrong += memcmp(output, subject->expected, subject->output_bytes) != 0;
}

void floor_measure(struct floor *floor, struct subject *subject, bool named,
                   struct samples *samples)
{
    size_t feats_at = transports_aligned(subject->coords_bytes);
    size_t output_at = feats_at + transports_aligned(subject->feats_bytes);
    u8 *block = pinned_take(floor, output_at + subject->output_bytes);
    memcpy(block, subject->coords, subject->coords_bytes);
    memcpy(block + feats_at, subject->feats, subject->feats_bytes);
    i64 begin = vx_clock_ns();
    for (i64 done = 0; transports_more(floor->options, done, begin); done++) {
        transports_spoil(block + output_at, subject->output_bytes);
        i64 started = vx_clock_ns();
        struct vx_item item = {.coords = (const i32 *)(const void *)block,
                               .coords_columns = 4,
                               .voxels = subject->voxels,
                               .feats = block + feats_at,
                               .feats_dtype = VX_DTYPE_F16,
                               .outputs = {block + output_at}};
        if (named)
            item.coords_ref = vx_coords_ref_of(&floor->key, item.coords, 4, item.voxels);
        struct vx_batch batch = {.items = &item, .items_count = 1};
        vx_engine_run(floor->engine, floor->model, &batch);
        i64 ended = vx_clock_ns();
        need(item.status, subject->model, &item.why);
        check(subject, block + output_at, samples);
        transports_add(floor->options, samples, done, ended - started);
    }
    pinned_give(floor, block);
}
