/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server/worker/worker_engine.h"

#include "engine/engine.h"
#include "engine/model/model.h"
#include "server/repository/repository.h"

#include <check.h>
#include <unistd.h>

struct vx_engine {
    struct vx_batch *batches[VX_ENGINE_BATCHES_MAX]; /* oldest first */
    i32 count;
};

static struct vx_engine the_engine;
static struct vx_model models[4];
atomic_int stub_submits, stub_may_end, stub_asked, stub_asked_waiting;
atomic_int stub_pieces_begun, stub_pieces_may_end;
atomic_bool stub_is_lost;
int stub_pieces_of_slow = 1;
char stub_events[256];
static size_t events_count;

static void event(char what)
{
    if (events_count < sizeof stub_events - 1) stub_events[events_count++] = what;
}

vx_status vx_engine_open(const struct vx_engine_options *options, struct vx_why *why,
                         struct vx_engine **engine)
{
    (void)options;
    (void)why;
    *engine = &the_engine;
    return VX_OK;
}

void vx_engine_close(struct vx_engine **engine)
{
    event('x');
    *engine = NULL;
}

vx_status vx_engine_load(struct vx_engine *engine, const struct vx_model_source *source,
                         const struct vx_progress *progress, struct vx_why *why,
                         struct vx_model **model)
{
    (void)engine;
    (void)progress;
    (void)why;
    *model = &models[source->version];
    **model = (struct vx_model){.magic = VX_MODEL_MAGIC,
                                .signature = {.coords_name = "coords",
                                              .feats_channels = 1,
                                              .batching = {.requests_max = 1}}};
    (*model)->signature.samples_max = VX_SAMPLE_MAX + 1;
    (*model)->signature.outputs_count = 3;
    (*model)->signature.outputs[0] =
        (struct vx_output){"out", VX_DTYPE_F32, 1, 0, -1, "", 0, {0}};
    (*model)->signature.outputs[1] =
        (struct vx_output){"far", VX_DTYPE_F32, 1, 1, 2, "2x2x2", 0, {0}};
    (*model)->signature.outputs[2] =
        (struct vx_output){"far_coords", VX_DTYPE_I32, 4, 1, 2, "2x2x2", 0, {0}};
    return VX_OK;
}

/* A warm-up step; those of model 2 take as long as the test wants. */
vx_status vx_engine_warm_step(struct vx_engine *engine, struct vx_model *model,
                              struct vx_why *why, struct vx_warm *warm)
{
    (void)why;
    ck_assert_int_eq(engine->count, 0); /* else an answer would have to wait */
    bool slow = model == &models[2];
    if (slow) {
        atomic_fetch_add(&stub_pieces_begun, 1);
        /* sleep: between two checks, for as long as the test wants */
        while (atomic_load(&stub_pieces_may_end) <= 0) usleep(100);
        atomic_fetch_sub(&stub_pieces_may_end, 1);
    }
    if (stub_pieces_of_slow != STUB_FOR_EVER) event(slow ? 'p' : 'w');
    *warm = (struct vx_warm){
        .more = slow && ++model->warmed < stub_pieces_of_slow,
        .done = model->warmed,
        .total = slow ? stub_pieces_of_slow : 0,
    };
    return VX_OK;
}

void vx_engine_unload(struct vx_engine *engine, struct vx_model **model)
{
    ck_assert_int_eq(engine->count, 0);
    event('u');
    *model = NULL;
}

i32 vx_engine_under_way(const struct vx_engine *engine)
{
    return engine->count;
}

void vx_engine_submit(struct vx_engine *engine, struct vx_model *model,
                      struct vx_batch *batch)
{
    ck_assert_int_lt(engine->count, VX_ENGINE_BATCHES_MAX);
    ck_assert_ptr_nonnull(model);
    engine->batches[engine->count++] = batch;
    event('s');
    atomic_fetch_add(&stub_submits, 1);
}

/* An item of 13 voxels fails; the others return their input. */
static void item_end(struct vx_item *item)
{
    if (item->status.fault) return; /* refused */
    item->status = VX_OK;
    item->pairs = item->coords ? item->coords[0] : -1;
    item->set_voxels = 2 * item->voxels;
    item->geometry_kept = vx_coords_ref_there(item->coords_ref);
    item->geometry_hit = !item->coords;
    if (item->voxels != 13) return;
    vx_why_set(&item->why, "thirteen voxels");
    item->status = vx_status_of_code(VX_CODE_INVALID_ARGUMENT);
}

static bool item_waits(const struct vx_item *item)
{
    return item->asks && item->asking != VX_ASKING_PLACED;
}

/* The oldest batch waits for the places of its items. */
static bool first_waits(const struct vx_engine *engine)
{
    bool waits = false;
    for (i32 i = 0; i < engine->batches[0]->items_count; i++)
        waits = waits || item_waits(&engine->batches[0]->items[i]);
    return waits;
}

/* An output of an item that asks has twice its rows, and its place gets that number. */
bool vx_engine_asked(struct vx_engine *engine, struct vx_asked *asked)
{
    *asked = (struct vx_asked){.count = 0};
    for (i32 b = 0; b < engine->count && !asked->count; b++) {
        asked->batch = engine->batches[b];
        for (i32 i = 0; i < asked->batch->items_count; i++) {
            struct vx_item *item = &asked->batch->items[i];
            if (!item->asks || item->asking != VX_ASKING_NONE) continue;
            item->asking = VX_ASKING_TOLD;
            for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
                if (item->asks >> o & 1) item->rows[o] = 2 * item->voxels;
            asked->items[asked->count++] = i;
        }
    }
    if (asked->count) event('a');
    return asked->count > 0;
}

void vx_engine_place(struct vx_engine *engine, struct vx_batch *batch, i32 item)
{
    struct vx_item *it = &batch->items[item];
    (void)engine;
    ck_assert_int_eq(it->asking, VX_ASKING_TOLD);
    it->asking = VX_ASKING_PLACED;
    event(it->status.fault ? 'r' : 'l');
    for (i32 o = 0; o < VX_OUTPUTS_MAX && !it->status.fault; o++)
        if (it->asks >> o & 1) *(i32 *)it->outputs[o] = (i32)it->rows[o];
}

struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait)
{
    atomic_fetch_add(&stub_asked, 1);
    if (wait) atomic_fetch_add(&stub_asked_waiting, 1);
    if (!engine->count || (!wait && atomic_load(&stub_may_end) <= 0)) return NULL;
    if (first_waits(engine)) return NULL;
    if (!wait) atomic_fetch_sub(&stub_may_end, 1);
    struct vx_batch *batch = engine->batches[0];
    engine->batches[0] = engine->batches[--engine->count];
    for (i32 i = 0; i < batch->items_count; i++) item_end(&batch->items[i]);
    batch->device_ns = 1234;
    event('c');
    return batch;
}

void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats)
{
    *stats = (struct vx_engine_stats){.cache_hits = engine->count};
}

bool vx_engine_lost(const struct vx_engine *engine, struct vx_why *why)
{
    (void)engine;
    if (!atomic_load(&stub_is_lost)) return false;
    vx_why_set(why, "it fell out");
    return true;
}

i32 vx_engine_numa_node(const struct vx_engine *engine)
{
    (void)engine;
    return -1;
}

/* No request here lies in a region (see test_worker_regions.c). */
vx_status vx_engine_pin(struct vx_engine *engine, void *memory, size_t bytes,
                        struct vx_why *why)
{
    (void)engine;
    (void)memory;
    (void)bytes;
    (void)why;
    VX_FAIL(UNIMPLEMENTED, "no memory is pinned here");
}

void vx_engine_unpin(struct vx_engine *engine, void *memory)
{
    (void)engine;
    ck_assert_ptr_null(memory);
}

vx_status vx_engine_import(struct vx_engine *engine, const u8 handle[VX_IPC_HANDLE_BYTES],
                           size_t bytes, struct vx_why *why, void **memory)
{
    (void)engine;
    (void)handle;
    (void)bytes;
    (void)why;
    (void)memory;
    VX_FAIL(UNIMPLEMENTED, "no memory is imported here");
}

void vx_engine_release(struct vx_engine *engine, void **memory)
{
    (void)engine;
    ck_assert_ptr_null(memory);
}

/* The files of a model that needs none are always the expected ones. */
vx_status vx_repository_check(const char *directory, i64 version, u64 fingerprint,
                              struct vx_why *why)
{
    (void)directory;
    (void)version;
    (void)fingerprint;
    (void)why;
    return VX_OK;
}

i32 vx_engine_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why)
{
    (void)kind;
    (void)driver;
    (void)why;
    return 0;
}
