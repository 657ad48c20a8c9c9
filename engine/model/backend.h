/* backend - the table of functions that each kind of device implements for the engine.
 *
 * engine.c knows models but no device; a backend knows one kind of device.  There are
 * two: the CPU (backend_cpu.c), and all GPUs, through the driver table of
 * engine/gpu/driver/gpu.h (engine/gpu/run/backend_gpu.c).
 *
 *   const struct vx_backend *backend = &vx_backend_cpu;
 *   VX_TRY(backend->open(&options, &why, &device));
 *   VX_TRY(backend->load(device, &source, progress, &why, &model));
 *   while (warm.more) VX_TRY(backend->warm(device, model, &why, &warm));
 *   backend->submit(device, model, batch);
 *   batch = backend->collect(device, true);
 *   backend->unload(device, &model);
 *   backend->close(&device);
 *
 * Owner    the engine owns device and models.
 * Thread   load, pin, unpin: also the main thread, while the device thread runs other
 *          models; the rest: device.
 * Limits   device_bytes and cache_bytes of the options.
 * Fails    as engine.h; submit: in each item's status.  An item that has failed already
 *          comes in with its fault and is not run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_BACKEND_H
#define VX_ENGINE_PLAN_BACKEND_H

#include "engine/batch.h"
#include "engine/device.h"
#include "engine/network/network.h"

struct vx_model;

struct vx_backend {
    /* How many there are, without opening one; as vx_engine_devices. */
    i32 (*devices)(enum vx_device_kind kind, const char *driver, struct vx_why *why);
    vx_status (*open)(const struct vx_engine_options *options, struct vx_why *why,
                      void **device);
    void (*close)(void **device); /* *device becomes NULL and may be NULL */
    vx_status (*load)(void *device, const struct vx_model_source *source,
                      const struct vx_progress *progress, struct vx_why *why,
                      struct vx_model **model);
    /* The next step of a model's warm-up; model->warmed counts the steps.  *warm comes in
     * as zeros.  A warm-up runs a made-up request of N voxels: a flat sheet, features of
     * zero, no outputs. */
    vx_status (*warm)(void *device, struct vx_model *model, struct vx_why *why,
                      struct vx_warm *warm);
    void (*unload)(void *device, struct vx_model **model);
    /* vx_item_begin has run on each item.  Items with nothing to run (vx_item_runs) are
     * skipped.  At most VX_ENGINE_BATCHES_MAX batches are under way. */
    void (*submit)(void *device, struct vx_model *model, struct vx_batch *batch);
    /* A batch that has ended; NULL when none has and `wait` is false, or when none can go
     * on before an item that asks is placed.  Called only while one is under way, also from a
     * report of a CPU's progress (device.h). */
    struct vx_batch *(*collect)(void *device, bool wait);
    /* The places of an item that has asked (vx_item_ask) are there, or its status is why
     * it gets none.  NULL for a device that loads no model whose items ask. */
    void (*place)(void *device, struct vx_batch *batch, i32 item);
    void (*stats)(const void *device, struct vx_engine_stats *stats);
    bool (*lost)(const void *device, struct vx_why *why);
    /* The NUMA node nearest to the device; -1 = none or unknown. */
    i32 (*numa_node)(const void *device);
    /* Memory of other processes; all four are NULL for a device without use for it. */
    vx_status (*pin)(void *device, void *memory, size_t bytes, struct vx_why *why);
    void (*unpin)(void *device, void *memory);
    vx_status (*import)(void *device, const u8 handle[VX_IPC_HANDLE_BYTES], size_t bytes,
                        struct vx_why *why, void **memory);
    void (*release)(void *device, void **memory);
};

/* Prepares an item: clears the fields marked `out`, and asserts what the front guarantees
 * about the others, because a wrong one is our mistake and not a client's. */
void vx_item_begin(struct vx_item *item);
/* False for an item that has failed already, and for N = 0, whose answer is empty. */
static inline bool vx_item_runs(const struct vx_item *item)
{
    return item->voxels > 0 && !item->status.fault;
}
/* The rows of an item's outputs on other sets are known: it asks for their places, once,
 * and its batch does not end before it has them.  The backend has filled `rows`. */
void vx_item_ask(struct vx_batch *batch, struct vx_item *item);
/* Gives an item that wants it the text about what its layers took: one of the batch that is
 * there, or a further one.  Without room for it the item has none. */
void vx_item_say_taken(struct vx_batch *batch, struct vx_item *item, const char *text);
/* Writes the coordinates (n, 4) of a flat sheet, whose voxels have about as many
 * neighbours as those of the surfaces in real requests; a solid would have many more. */
void vx_warm_coords(i32 *rows, i64 n);
/* The same in new memory: the caller frees it with vx_warm_coords_close(rows, n). */
VX_MUST_USE vx_status vx_warm_coords_open(i64 n, struct vx_why *why, i32 **rows);
void vx_warm_coords_close(i32 **rows, i64 n);
/* The spatial shape of a request with that sheet: the network's (`own`), larger where the
 * sheet is; zeros if the network has none. */
void vx_warm_shape(const i32 own[3], i64 n, i32 shape[3]);
/* The warm-up sizes that fit this device; returns their number. */
i32 vx_warm_sizes(const struct vx_model *model, i64 sizes[VX_WARMUP_MAX]);
/* What is left of the status of a warm-up with n voxels: VX_OK where a default size does not fit,
 * which then is skipped; else the sentence says that nobody asked for them. */
vx_status vx_warm_ended(const struct vx_model *model, i64 n, vx_status status,
                        struct vx_why *why);

#endif
