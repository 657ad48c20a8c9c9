/* backend - what the engine asks of a kind of device: one table of functions each.
 *
 * engine.c knows models and nothing of devices; a backend knows one device.  There are
 * two: the CPU (backend_cpu.c), and every GPU behind the driver table of engine/gpu/gpu.h
 * (engine/gpu/exec.c).
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
 * Thread   load, pin, unpin: the main thread too, while the device thread runs other
 *          models; the rest: device.
 * Limits   the device memory of the options.
 * Fails    as engine.h; submit: in each item's status, which comes in as VX_OK, or as a fault
 *          for an item that is answered already.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_BACKEND_H
#define VX_ENGINE_PLAN_BACKEND_H

#include "engine/engine.h"
#include "engine/model/network.h"

struct vx_backend {
    vx_status (*open)(const struct vx_engine_options *options, struct vx_why *why,
                      void **device);
    void (*close)(void **device); /* NULL is closed already */
    vx_status (*load)(void *device, const struct vx_model_source *source,
                      const struct vx_progress *progress, struct vx_why *why,
                      struct vx_model **model);
    /* The next piece of making a loaded model ready; `warm` comes in as zeros, and the
     * model remembers how far it is (model->warmed).  A warm-up runs N voxels that nobody
     * sent: a flat sheet, features of zero, no outputs. */
    vx_status (*warm)(void *device, struct vx_model *model, struct vx_why *why,
                      struct vx_warm *warm);
    void (*unload)(void *device, struct vx_model **model);
    /* Items have been through vx_item_begin; some may have nothing to run (vx_item_runs),
     * and are answered without work.  At most VX_ENGINE_BATCHES_MAX are under way. */
    void (*submit)(void *device, struct vx_model *model, struct vx_batch *batch);
    /* One that has ended, NULL when none has and `wait` is false.  Something is under
     * way. */
    struct vx_batch *(*collect)(void *device, bool wait);
    void (*stats)(const void *device, struct vx_engine_stats *stats);
    bool (*lost)(const void *device, struct vx_why *why);
    /* The NUMA node that the device is near; -1 = none, or not known. */
    i32 (*numa_node)(const void *device);
    /* Memory of other processes; NULL, all four, where there is nothing to do for it. */
    vx_status (*pin)(void *device, void *memory, size_t bytes, struct vx_why *why);
    void (*unpin)(void *device, void *memory);
    vx_status (*import)(void *device, const u8 handle[VX_IPC_HANDLE_BYTES], size_t bytes,
                        struct vx_why *why, void **memory);
    void (*release)(void *device, void **memory);
};

extern const struct vx_backend vx_backend_cpu;
extern const struct vx_backend vx_backend_gpu;

/* What the front promises about an item; a promise broken is our mistake, not a client's:
 * asserts.  Clears what run fills. */
void vx_item_begin(struct vx_item *item);
/* Not one that is answered already, nor an empty cloud, whose answer is empty. */
static inline bool vx_item_runs(const struct vx_item *item)
{
    return item->voxels > 0 && !item->status.fault;
}
/* The coordinates (n, 4) of a flat sheet: as many neighbours as the surfaces that are
 * served, not the many of a solid. */
void vx_warm_coords(i32 *rows, i64 n);
/* The same in memory of their own. */
VX_MUST_USE vx_status vx_warm_coords_open(i64 n, struct vx_why *why, i32 **rows);
void vx_warm_coords_close(i32 **rows, i64 n);
/* The warm-up sizes that a model takes on this device: the defaults may be too many. */
i32 vx_warm_sizes(const struct vx_model *model, i64 sizes[VX_WARMUP_MAX]);

#endif
