/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/gpu_parts.h"

#include "engine/base/process/check.h"

/* Compute capability from which kernels know launches that begin early (device.h). */
#define EARLY_ARCH 90

/* --- streams and events --- */

static vx_status stream_open(struct vx_gpu *gpu, int priority, struct vx_why *why,
                             struct vx_gpu_stream **stream)
{
    void *made = NULL;
    *stream = NULL;
    VX_TRY(vx_gpu_enter(gpu, why));
    VX_TRY(VX_GPU_CALL(gpu, why, stream_open, &made, VX_STREAM_NON_BLOCKING, priority));
    *stream = made;
    return VX_OK;
}

vx_status vx_gpu_stream_open(struct vx_gpu *gpu, struct vx_why *why,
                             struct vx_gpu_stream **stream)
{
    return stream_open(gpu, VX_STREAM_USUAL, why, stream);
}

vx_status vx_gpu_stream_open_urgent(struct vx_gpu *gpu, struct vx_why *why,
                                    struct vx_gpu_stream **stream)
{
    return stream_open(gpu, VX_STREAM_URGENT, why, stream);
}

void vx_gpu_stream_close(struct vx_gpu *gpu, struct vx_gpu_stream **stream)
{
    struct vx_gpu_stream *it = *stream;
    *stream = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.stream_close(it);
}

vx_status vx_gpu_stream_wait(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                             struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    return VX_GPU_CALL(gpu, why, stream_wait, stream);
}

vx_status vx_gpu_event_open(struct vx_gpu *gpu, struct vx_why *why,
                            struct vx_gpu_event **event)
{
    void *made = NULL;
    *event = NULL;
    VX_TRY(vx_gpu_enter(gpu, why));
    VX_TRY(VX_GPU_CALL(gpu, why, event_open, &made, VX_EVENT_TIMED));
    *event = made;
    return VX_OK;
}

void vx_gpu_event_close(struct vx_gpu *gpu, struct vx_gpu_event **event)
{
    struct vx_gpu_event *it = *event;
    *event = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.event_close(it);
}

vx_status vx_gpu_event_record(struct vx_gpu *gpu, struct vx_gpu_event *event,
                              struct vx_gpu_stream *stream, struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    return VX_GPU_CALL(gpu, why, event_record, event, stream);
}

vx_status vx_gpu_event_done(struct vx_gpu *gpu, struct vx_gpu_event *event,
                            struct vx_why *why, bool *done)
{
    *done = false;
    VX_TRY(vx_gpu_enter(gpu, why));
    int code = gpu->driver.event_done(event);
    if (code == VX_DRIVER_NOT_READY) return VX_OK;
    VX_TRY(vx_gpu_answer(gpu, code, VX_CALL_event_done, why));
    *done = true;
    return VX_OK;
}

vx_status vx_gpu_stream_after(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                              struct vx_gpu_event *event, struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    return VX_GPU_CALL(gpu, why, stream_after, stream, event, 0);
}

vx_status vx_gpu_event_elapsed(struct vx_gpu *gpu, struct vx_gpu_event *begin,
                               struct vx_gpu_event *end, struct vx_why *why, f64 *ns)
{
    f32 ms = 0;
    VX_TRY(vx_gpu_enter(gpu, why));
    VX_TRY(VX_GPU_CALL(gpu, why, event_elapsed, &ms, begin, end));
    *ns = (f64)ms * 1e6;
    return VX_OK;
}

/* --- graphs --- */

vx_status vx_gpu_capture_begin(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                               struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    /* Calls of other threads (loading a model) do not disturb the capture. */
    return VX_GPU_CALL(gpu, why, capture_begin, stream, VX_CAPTURE_THREAD_LOCAL);
}

vx_status vx_gpu_capture_end(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                             struct vx_why *why, struct vx_gpu_graph **graph)
{
    void *recording = NULL, *made = NULL;
    *graph = NULL;
    VX_TRY(vx_gpu_enter(gpu, why));
    VX_TRY(VX_GPU_CALL(gpu, why, capture_end, stream, &recording));
    vx_status status = VX_GPU_CALL(gpu, why, graph_open, &made, recording, 0);
    gpu->driver.recording_close(recording);
    if (!status.fault) *graph = made;
    return status;
}

vx_status vx_gpu_graph_launch(struct vx_gpu *gpu, struct vx_gpu_graph *graph,
                              struct vx_gpu_stream *stream, struct vx_why *why)
{
    VX_TRY(vx_gpu_enter(gpu, why));
    return VX_GPU_CALL(gpu, why, graph_launch, graph, stream);
}

void vx_gpu_graph_close(struct vx_gpu *gpu, struct vx_gpu_graph **graph)
{
    struct vx_gpu_graph *it = *graph;
    *graph = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.graph_close(it);
}

/* --- kernels --- */

vx_status vx_gpu_module_load(struct vx_gpu *gpu, const void *image, size_t bytes,
                             struct vx_why *why, struct vx_gpu_module **module)
{
    void *made = NULL;
    *module = NULL;
    VX_ASSERT(bytes > 0); /* the driver reads the length from the image itself */
    VX_TRY(vx_gpu_enter(gpu, why));
    VX_TRY(VX_GPU_CALL(gpu, why, module_load, &made, image));
    *module = made;
    return VX_OK;
}

void vx_gpu_module_unload(struct vx_gpu *gpu, struct vx_gpu_module **module)
{
    struct vx_gpu_module *it = *module;
    *module = NULL;
    if (!it) return;
    vx_gpu_enter_to_close(gpu);
    gpu->driver.module_unload(it);
}

vx_status vx_gpu_function_get(struct vx_gpu *gpu, struct vx_gpu_module *module,
                              const struct vx_gpu_symbol *symbol, struct vx_why *why,
                              struct vx_gpu_function **function)
{
    void *made = NULL;
    *function = NULL;
    VX_TRY(vx_gpu_enter(gpu, why));
    vx_status status = VX_GPU_CALL(gpu, why, function_get, &made, module, symbol->name);
    if (status.fault && !vx_gpu_lost(gpu, NULL))
        vx_why_set(why, "%s: the binary does not contain the kernel %s", gpu->name,
                   symbol->name);
    VX_TRY(status);
    /* Always set: the kernel's static shared memory counts too, and only the driver
     * knows its size. */
    if (symbol->shared > 0) {
        status = vx_gpu_answer(
            gpu, gpu->driver.shared_allow(&gpu->driver, made, symbol->shared),
            VX_CALL_function_set, why);
        if (status.fault && !vx_gpu_lost(gpu, NULL))
            vx_why_set(why, "%s: %s needs %d bytes of shared memory, a block may have %d",
                       gpu->name, symbol->name, symbol->shared, gpu->caps.shared_block);
        VX_TRY(status);
    }
    *function = made;
    return VX_OK;
}

static bool begins_early(const struct vx_gpu *gpu)
{
    const i32 arch = gpu->caps.arch;
    return arch >= EARLY_ARCH && arch < VX_ARCH_AMD;
}

vx_status vx_gpu_launch(struct vx_gpu *gpu, struct vx_gpu_stream *stream,
                        const struct vx_gpu_launch *launch, struct vx_why *why)
{
    VX_ASSERT(launch->function);
    VX_ASSERT(launch->args);
    VX_TRY(vx_gpu_enter(gpu, why));
    if (!launch->grid.x || !launch->grid.y || !launch->grid.z) return VX_OK;
    const struct vx_driver_launch start = {
        .function = launch->function,
        .grid = launch->grid,
        .threads = (unsigned)launch->threads,
        .shared = (unsigned)launch->shared,
        .early = launch->early && begins_early(gpu),
        .stream = stream,
        .args = (void *)(uintptr_t)launch->args, /* the driver only reads */
    };
    return vx_gpu_answer(gpu, gpu->driver.start(&gpu->driver, &start), VX_CALL_launch,
                         why);
}
