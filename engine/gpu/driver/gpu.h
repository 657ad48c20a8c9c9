/* gpu - one GPU: its driver, memory, streams and kernels, and whether it is lost.
 *
 * The vendor's driver is opened with dlopen, so that one program runs with CUDA, with
 * HIP, with both or with neither.  A third driver, `fake`, uses host memory as device
 * memory and runs the kernel's reference at each launch, so that the whole GPU path can
 * be tested on a machine without a GPU.  It also counts calls and can fail the Nth
 * (fake.h).
 *
 *   VX_TRY(vx_gpu_open(&options, &why, &gpu));
 *   VX_TRY(vx_gpu_alloc(gpu, bytes, &why, &memory));
 *   VX_TRY(vx_gpu_launch(gpu, stream, &launch, &why));
 *   VX_TRY(vx_gpu_stream_wait(gpu, stream, &why));
 *   vx_gpu_close(&gpu);
 *
 * A device pointer is a `void *` that the host never dereferences.  A sticky error (an
 * illegal address, an assert, a lost bus) marks the device lost: from then on every call
 * returns UNAVAILABLE with the text of the first error, and the process must end, because
 * its contexts are unusable.
 *
 * Owner    the caller owns gpu and all it makes; close frees what is left.
 * Thread   the thread that opened it (device).  module_load, function_get, memory_info,
 *          host_pin and host_unpin may run on any thread: they make the context current
 *          there.  caps, name, arch, lost: any.
 * Limits   engine/gpu/driver/limits.h.
 * Fails    NOT_FOUND no driver or no such device; FAILED_PRECONDITION a driver too old;
 *          RESOURCE_EXHAUSTED out of device memory (not sticky); UNAVAILABLE lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_GPU_H
#define VX_ENGINE_GPU_GPU_H

#include "engine/base/status.h"
#include "kernels/kernel.h"

struct vx_gpu;
struct vx_gpu_module;   /* a loaded binary */
struct vx_gpu_function; /* one kernel of a module */
struct vx_gpu_stream;
struct vx_gpu_event;
struct vx_gpu_graph; /* instantiated, ready to launch */

enum vx_gpu_vendor { VX_GPU_CUDA, VX_GPU_HIP, VX_GPU_FAKE };

struct vx_gpu_options {
    enum vx_gpu_vendor vendor;
    i32 index;           /* of the device, as the driver counts */
    const char *library; /* path of the driver's library; NULL = the search list */
    const char *root;    /* tests: put before /sys and /dev; NULL = nothing */
};

/* Counts the devices of a vendor's driver without making a context; 0 if there is no
 * driver or no device, and `why` then says what was tried. */
i32 vx_gpu_count(const struct vx_gpu_options *options, struct vx_why *why);

VX_MUST_USE vx_status vx_gpu_open(const struct vx_gpu_options *options,
                                  struct vx_why *why, struct vx_gpu **gpu);
void vx_gpu_close(struct vx_gpu **gpu);
const struct vx_caps *vx_gpu_caps(const struct vx_gpu *gpu);
const char *vx_gpu_name(const struct vx_gpu *gpu);   /* "NVIDIA H200" */
const char *vx_gpu_arch(const struct vx_gpu *gpu);   /* "sm_90a", "gfx942", "fake" */
i32 vx_gpu_driver_version(const struct vx_gpu *gpu); /* as the vendor counts */
#define VX_VERSION_BYTES 24
void vx_gpu_driver_version_text(const struct vx_gpu *gpu, char text[VX_VERSION_BYTES]);
bool vx_gpu_lost(const struct vx_gpu *gpu, struct vx_why *why); /* why: the first error */
/* Marks the device lost, because its state is no longer known.  `why` is the reason; if
 * the device was lost before, it becomes the first one.  Returns UNAVAILABLE. */
VX_MUST_USE vx_status vx_gpu_lose(struct vx_gpu *gpu, struct vx_why *why);

/* --- memory: alloc and free only while loading; copies are asynchronous --- */
VX_MUST_USE vx_status vx_gpu_alloc(struct vx_gpu *gpu, size_t bytes, struct vx_why *why,
                                   void **memory);
void vx_gpu_free(struct vx_gpu *gpu, void **memory);
VX_MUST_USE vx_status vx_gpu_memory_info(struct vx_gpu *gpu, struct vx_why *why,
                                         size_t *free_bytes, size_t *total_bytes);
/* Page-locks host memory for DMA; if this fails, copies are only slower. */
VX_MUST_USE vx_status vx_gpu_host_pin(struct vx_gpu *gpu, void *memory, size_t bytes,
                                      struct vx_why *why);
/* Page-locked host memory that kernels read and write where it lies, at its own address. */
struct vx_gpu_reach {
    const u8 *begin;
    size_t bytes;
};
/* Of memory that pin or host_alloc has made; 0 bytes if the driver maps it elsewhere, or not, and on
 * AMD's, where what a kernel has written there was never tried. */
struct vx_gpu_reach vx_gpu_host_reach(struct vx_gpu *gpu, void *memory, size_t bytes);
static inline bool vx_gpu_reaches(const struct vx_gpu_reach *reach, const void *at,
                                  size_t bytes)
{
    const u64 from = (u64)(uintptr_t)at - (u64)(uintptr_t)reach->begin;
    return bytes <= reach->bytes && from <= reach->bytes - bytes;
}
/* Allocates page-locked host memory, for small data that is copied often. */
VX_MUST_USE vx_status vx_gpu_host_alloc(struct vx_gpu *gpu, size_t bytes,
                                        struct vx_why *why, void **memory);
void vx_gpu_host_free(struct vx_gpu *gpu, void **memory);
/* The system's number of the nearest NUMA node; -1 = not known.  Any thread. */
i32 vx_gpu_numa_node(const struct vx_gpu *gpu);
void vx_gpu_host_unpin(struct vx_gpu *gpu, void *memory);
struct vx_gpu_copy {
    void *to;
    const void *from;
    size_t bytes;
};
VX_MUST_USE vx_status vx_gpu_copy_in(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                     const struct vx_gpu_copy *copy, struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_copy_out(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                      const struct vx_gpu_copy *copy, struct vx_why *why);
/* Copies within the device's memory. */
VX_MUST_USE vx_status vx_gpu_copy_within(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                         const struct vx_gpu_copy *copy,
                                         struct vx_why *why);
/* Opens device memory of another process by the IPC handle that it made.
 * INVALID_ARGUMENT if the handle is not valid, is another device's, or has fewer than
 * `bytes` bytes.  Until release the memory stays, even if its owner frees it. */
#define VX_GPU_IPC_BYTES 64
VX_MUST_USE vx_status vx_gpu_import(struct vx_gpu *gpu, const u8 handle[VX_GPU_IPC_BYTES],
                                    size_t bytes, struct vx_why *why, void **memory);
void vx_gpu_release(struct vx_gpu *gpu, void **memory);
struct vx_gpu_words {
    void *at; /* on the device */
    u32 value;
    size_t bytes; /* a multiple of 4 */
};
VX_MUST_USE vx_status vx_gpu_fill(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                  const struct vx_gpu_words *words, struct vx_why *why);

/* --- streams and events --- */
VX_MUST_USE vx_status vx_gpu_stream_open(struct vx_gpu *gpu, struct vx_why *why,
                                         struct vx_gpu_stream **stream);
/* One whose blocks go before those of usual streams that have not begun. */
VX_MUST_USE vx_status vx_gpu_stream_open_urgent(struct vx_gpu *gpu, struct vx_why *why,
                                                struct vx_gpu_stream **stream);
void vx_gpu_stream_close(struct vx_gpu *gpu, struct vx_gpu_stream **stream);
VX_MUST_USE vx_status vx_gpu_stream_wait(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                         struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_event_open(struct vx_gpu *gpu, struct vx_why *why,
                                        struct vx_gpu_event **event);
void vx_gpu_event_close(struct vx_gpu *gpu, struct vx_gpu_event **event);
/* *done: the last record of the event has happened.  Does not wait. */
VX_MUST_USE vx_status vx_gpu_event_done(struct vx_gpu *gpu, struct vx_gpu_event *event,
                                        struct vx_why *why, bool *done);
/* Later work on the stream begins after the event; the host does not wait. */
VX_MUST_USE vx_status vx_gpu_stream_after(struct vx_gpu *gpu,
                                          struct vx_gpu_stream *stream,
                                          struct vx_gpu_event *event, struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_event_record(struct vx_gpu *gpu, struct vx_gpu_event *event,
                                          struct vx_gpu_stream *stream,
                                          struct vx_why *why);
/* Nanoseconds between two recorded events that have both happened. */
VX_MUST_USE vx_status vx_gpu_event_elapsed(struct vx_gpu *gpu, struct vx_gpu_event *begin,
                                           struct vx_gpu_event *end, struct vx_why *why,
                                           f64 *ns);

/* --- graphs: launches and copies between begin and end are recorded, not run --- */
VX_MUST_USE vx_status vx_gpu_capture_begin(struct vx_gpu *gpu,
                                           struct vx_gpu_stream *stream,
                                           struct vx_why *why);
VX_MUST_USE vx_status vx_gpu_capture_end(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                         struct vx_why *why, struct vx_gpu_graph **graph);
VX_MUST_USE vx_status vx_gpu_graph_launch(struct vx_gpu *gpu, struct vx_gpu_graph *graph,
                                          struct vx_gpu_stream *stream,
                                          struct vx_why *why);
void vx_gpu_graph_close(struct vx_gpu *gpu, struct vx_gpu_graph **graph);

/* --- kernels --- */
/* Any thread.  `image` is what engine/gpu/jit/jit.h made for this device's architecture. */
VX_MUST_USE vx_status vx_gpu_module_load(struct vx_gpu *gpu, const void *image,
                                         size_t bytes, struct vx_why *why,
                                         struct vx_gpu_module **module);
void vx_gpu_module_unload(struct vx_gpu *gpu, struct vx_gpu_module **module);
struct vx_gpu_symbol {
    const char *name;
    i32 shared; /* the most dynamic shared memory it will be launched with */
};
/* The function lives as long as its module. */
VX_MUST_USE vx_status vx_gpu_function_get(struct vx_gpu *gpu,
                                          struct vx_gpu_module *module,
                                          const struct vx_gpu_symbol *symbol,
                                          struct vx_why *why,
                                          struct vx_gpu_function **function);

/* One by-value struct of arguments; it is copied during the call. */
struct vx_gpu_launch {
    struct vx_gpu_function *function;
    struct vx_grid grid; /* any axis 0: nothing is launched */
    i32 threads;
    i32 shared;
    const void *args;
    size_t args_bytes;
    /* It may begin while the launch before it on the stream still runs: on Hopper and later;
     * elsewhere it is a launch like any other.  It waits by itself until all before it have ended.
     * A kernel of VX_TURN_FIRST waits before anything else, and always begins early.  One of
     * VX_TURN_ASKED does where the launch before lets it, with nothing between them, and where what
     * it reads before it waits was written before the last launch that did not begin early. */
    bool early;
};
VX_MUST_USE vx_status vx_gpu_launch(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                                    const struct vx_gpu_launch *launch,
                                    struct vx_why *why);

#endif
