/* engine - runs networks on one device; the only engine header that the server includes.
 *
 * An engine is one device with its memory, its geometry cache and its threads.  A model
 * is a network that was loaded for that device.  A batch is a list of independent
 * requests (items); each item points to its input and output memory and ends with a
 * status of its own, so one bad request fails alone.
 *
 *   struct vx_engine *engine;
 *   VX_TRY(vx_engine_open(&options, &why, &engine));
 *   VX_TRY(vx_engine_load(engine, &source, NULL, &why, &model));
 *   VX_TRY(vx_engine_warm(engine, model, &why));
 *   vx_engine_run(engine, model, &batch);
 *   vx_engine_unload(engine, &model);
 *   vx_engine_close(&engine);
 *
 * A call that fails writes its sentence to `why`, which may be NULL.  A call that makes
 * an object and fails writes NULL in the object's place.
 *
 * Owner    the caller owns engine and models and unloads every model before it closes the
 *          engine; a batch and its memory are borrowed from submit until collect.
 * Thread   open, close, warm, submit, collect, run, unload: the device thread.  load:
 *          any, one at a time; the worker's main thread loads while the device thread
 *          runs other models.  describe, devices: any.
 * Limits   engine/base/limits.h; memory is what the options give, reserved at open.
 * Fails    INVALID_ARGUMENT when a model file or a request is wrong, DATA_LOSS for
 *          damaged files, RESOURCE_EXHAUSTED when something does not fit, NOT_FOUND when
 *          a file, a driver or a device is missing, UNAVAILABLE once a GPU is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_ENGINE_H
#define VX_ENGINE_ENGINE_H

#include "engine/base/status.h"
#include "engine/batch.h"
#include "engine/device.h"
#include "engine/signature.h"

struct vx_engine;
struct vx_model;

/* Opens a device.  The caller owns *engine until vx_engine_close.  Device thread.
 * INVALID_ARGUMENT: a wrong option or tuning table.  NOT_FOUND: no driver or no such
 * device.  FAILED_PRECONDITION: a driver that is too old, a kernel cache that others may
 * write.  RESOURCE_EXHAUSTED: memory or threads are refused. */
VX_MUST_USE vx_status vx_engine_open(const struct vx_engine_options *options,
                                     struct vx_why *why, struct vx_engine **engine);
/* *engine becomes NULL and may be NULL.  No batch is under way, no model loaded. */
void vx_engine_close(struct vx_engine **engine);

/* Reads, checks and plans a model, and lays out its weights.  The caller owns *model
 * until vx_engine_unload.  `progress` may be NULL.  Any thread, one load at a time; it
 * allocates, so the thread must not be frozen (base/alloc.h).
 *
 * NOT_FOUND: a file is missing, or a GPU kernel that is not in the cache has no compiler.
 * INVALID_ARGUMENT, DATA_LOSS: a file is wrong or damaged.  RESOURCE_EXHAUSTED: weights
 * or limits.voxels_max do not fit.  INTERNAL: a kernel does not compile. */
VX_MUST_USE vx_status vx_engine_load(struct vx_engine *engine,
                                     const struct vx_model_source *source,
                                     const struct vx_progress *progress,
                                     struct vx_why *why, struct vx_model **model);
/* Runs the next step of a model's warm-up, so that batches of other models run between
 * the steps: uploads the weights, measures one tuning candidate, or runs one warm-up size
 * (on a CPU one layer of it).  First waits until no batch is under way.  Fails as a
 * request does, or with RESOURCE_EXHAUSTED when the weights no longer fit; the caller
 * then unloads the model.  Device thread. */
VX_MUST_USE vx_status vx_engine_warm_step(struct vx_engine *engine,
                                          struct vx_model *model, struct vx_why *why,
                                          struct vx_warm *warm);
/* All steps at once: for programs that serve nothing meanwhile.  Device thread. */
VX_MUST_USE vx_status vx_engine_warm(struct vx_engine *engine, struct vx_model *model,
                                     struct vx_why *why);
/* *model becomes NULL and may be NULL.  No batch of it is under way.  Device thread. */
void vx_engine_unload(struct vx_engine *engine, struct vx_model **model);

/* A batch never fails as a whole: each item carries its own status.  The bits of an
 * item's answer are the same alone or in any batch.
 *
 * submit starts a batch and returns; the caller has checked has_room.  A CPU runs the
 * whole batch before submit returns, unless an item asks (below).  collect returns a batch
 * that has ended, in the order in which batches end.  It returns NULL at once when none
 * has ended, or, with `wait`, only when none is under way or none can go on without the
 * caller.  load, warm and unload may be called in between: warm waits for the batches
 * under way, of which none may have items that ask, unload asserts that none of them uses
 * the model.  Device thread. */
bool vx_engine_has_room(const struct vx_engine *engine); /* for one more batch */
i32 vx_engine_under_way(const struct vx_engine *engine); /* submitted, not collected */
void vx_engine_submit(struct vx_engine *engine, struct vx_model *model,
                      struct vx_batch *batch);
struct vx_batch *vx_engine_collect(struct vx_engine *engine, bool wait);
/* submit and collect for a caller with one batch, in which no item asks; no other may be
 * under way. */
void vx_engine_run(struct vx_engine *engine, struct vx_model *model,
                   struct vx_batch *batch);

/* Outputs whose size is not known when a request is submitted, because they lie on other
 * sets than its own (vx_item.asks).  Such an item asks for their places as soon as its
 * geometry is there, goes on meanwhile, and waits for them with its results on the device.
 * A batch ends only when all its items that asked have their places, or are refused.
 *
 *   while (vx_engine_asked(engine, &asked))
 *       ...asked.batch->items[asked.items[i]].rows[o]...
 *   item->outputs[o] = place;  (or item->status = refusal)
 *   vx_engine_place(engine, batch, index);
 *   batch = vx_engine_collect(engine, true);
 *
 * asked returns items of one batch that have asked since the last call, each item once;
 * false when there are none.  Before place the caller sets the address of each output of
 * `asks` that has rows, and its bit in on_device; or a status, with which the item then
 * ends.  Both: device thread. */
struct vx_asked {
    struct vx_batch *batch;
    i32 count;
    i32 items[VX_BATCH_ITEMS_MAX]; /* ascending indices in the batch */
};
bool vx_engine_asked(struct vx_engine *engine, struct vx_asked *asked);
void vx_engine_place(struct vx_engine *engine, struct vx_batch *batch, i32 item);
/* Device thread. */
void vx_engine_stats_get(const struct vx_engine *engine, struct vx_engine_stats *stats);

/* Memory of other processes that items may point to.
 *
 * pin loads the pages of host memory and page-locks them for DMA while other threads run
 * batches, whose driver calls wait for the locking.  Without pin, copies are slower and
 * nothing else changes.  `memory` stays the caller's.  UNIMPLEMENTED on a CPU, which does
 * not need it; RESOURCE_EXHAUSTED; or the driver's error for memory that it cannot lock.
 * unpin when no batch uses the memory.  Both: main or device thread.
 *
 * import opens `bytes` of device memory that another process shares by a handle
 * (cuIpcGetMemHandle, hipIpcGetMemHandle).  The caller owns *memory until release, which
 * it calls when no batch uses the memory.  INVALID_ARGUMENT when the handle has fewer
 * bytes or does not belong to this device; UNIMPLEMENTED on a CPU.  Device thread. */
VX_MUST_USE vx_status vx_engine_pin(struct vx_engine *engine, void *memory, size_t bytes,
                                    struct vx_why *why);
void vx_engine_unpin(struct vx_engine *engine, void *memory);
VX_MUST_USE vx_status vx_engine_import(struct vx_engine *engine,
                                       const u8 handle[VX_IPC_HANDLE_BYTES], size_t bytes,
                                       struct vx_why *why, void **memory);
void vx_engine_release(struct vx_engine *engine, void **memory);

/* True when the device is lost (a sticky error of a GPU); `why` then says how.  The
 * process must end and be started again.  Device thread. */
bool vx_engine_lost(const struct vx_engine *engine, struct vx_why *why);

/* The NUMA node nearest to the device (base/numa.h); -1 = none or unknown. */
i32 vx_engine_numa_node(const struct vx_engine *engine);

/* The number of devices of a kind, without opening one; 1 for the CPU.  0 when there is
 * no driver or no device; `why` then says what was tried.  Loads the driver into the
 * process, which the front must not do.  `driver`: as in vx_gpu_settings. */
i32 vx_engine_devices(enum vx_device_kind kind, const char *driver, struct vx_why *why);

/* Says, first in main, that this program hands its arguments to vx_engine_tool: the engine
 * may then start it as a child, for a compiler that must not run in this process.  `program`:
 * its name, for the tools' help; static. */
void vx_engine_has_tools(const char *program);
/* For `voxeld check`, of a model with layers in FP8: runs it on its own data on the CPU, with
 * and without the rounding to e4m3, and writes a table of each output's error for people to
 * `text`, cut to text_bytes.  INVALID_ARGUMENT when an output exceeds fp8.nmse_max (the table
 * is there, too) or the data has another shape; NOT_FOUND without data; else as vx_engine_load
 * and a request.  Opens and closes an engine of its own; the thread becomes the device
 * thread. */
VX_MUST_USE vx_status vx_engine_check_fp8(const struct vx_model_source *source,
                                          struct vx_why *why, char *text,
                                          size_t text_bytes);
/* Runs a tool that needs no server: compile, tune, bench, devices, record.  arguments[0] is the
 * tool's name.  Prints for people; returns the exit code: 0 done, 1 failed, 2 usage. */
int vx_engine_tool(int count, char **arguments);

#endif
